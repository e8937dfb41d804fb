/* The executions that the host may name: reserved, run, ended; how long each is remembered and how many. */
#ifndef NSBX_AGENT_REGISTRY_H
#define NSBX_AGENT_REGISTRY_H

#include "base/err.h"
#include "base/list.h"
#include "base/util.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum nsbx_record_state {
    NSBX_RECORD_RESERVED,
    NSBX_RECORD_STARTING,
    NSBX_RECORD_RUNNING,
    NSBX_RECORD_EXITED, /* the leader has ended, its output or its tree has not */
    NSBX_RECORD_TERMINAL,
};
enum nsbx_outcome { NSBX_OUTCOME_COMPLETED, NSBX_OUTCOME_CANCELLED, NSBX_OUTCOME_FAILED };

enum { NSBX_EXECUTION_ID_LEN = 5 + NSBX_UUID_LEN }; /* "exec_<uuid>" */

struct nsbx_execution;
struct nsbx_registry;

struct nsbx_record {
    struct nsbx_list node;
    char id[NSBX_EXECUTION_ID_LEN + 1];
    enum nsbx_record_state state;     /* changed by nsbx_registry_advance and _settle only */
    uint64_t expires_ms;              /* nsbx_now_ms; 0 = does not expire */
    struct nsbx_execution *execution; /* its running part; NULL before it started and when its tree has ended */
    struct nsbx_list cancels;         /* those who wait for its end (cancel.c) */
    /* when terminal */
    enum nsbx_outcome outcome;
    bool started;
    json_t *result; /* without "type"; NULL = none */
    json_t *error;  /* a text; NULL = none */
};

struct nsbx_registry_limits {
    uint64_t lease_ttl_ms, terminal_ttl_ms, max_tracked;
};
int nsbx_registry_new(struct nsbx_registry **out, const struct nsbx_registry_limits *limits, struct nsbx_err *err)
    __attribute__((warn_unused_result));
void nsbx_registry_free(struct nsbx_registry *r); /* no record may have an execution or a waiter; NULL is fine */

/* The published grammar. `n` bytes; a NUL inside is no id. */
bool nsbx_execution_id_valid(const char *id, size_t n);
/* A new reservation; `id` NULL makes one up. Expired records go first, then, when full, ended ones, the earliest expiry first. -NSBX_E_CAPACITY
 * when all that are held are live, -NSBX_E_EXISTS for an id that is held. The record lives until it expires or is evicted: never across a turn. */
int nsbx_registry_reserve(struct nsbx_registry *r, const char *id, struct nsbx_record **out, struct nsbx_err *err)
    __attribute__((warn_unused_result));
/* NULL when it is not held (any more). Drops what has expired first. */
struct nsbx_record *nsbx_registry_find(struct nsbx_registry *r, const char *id);
size_t nsbx_registry_count(const struct nsbx_registry *r);

/* To a later state that is not terminal. A record with such a state neither expires nor is evicted. */
void nsbx_registry_advance(struct nsbx_record *rec, enum nsbx_record_state state);
/* The end, once. Takes `result` and `error` over (either may be NULL). It expires after its time, or is evicted earlier; its execution,
 * when one is still linked (a background process), is unlinked then and lives on. */
void nsbx_registry_settle(struct nsbx_registry *r, struct nsbx_record *rec, enum nsbx_outcome outcome, bool started,
                          json_t *result, json_t *error);

const char *nsbx_record_state_name(enum nsbx_record_state state); /* the wire's word */
const char *nsbx_outcome_name(enum nsbx_outcome outcome);

#endif
