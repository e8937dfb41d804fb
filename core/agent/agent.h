/* What the parts of the guest program share: the agent itself, its table of operations, and how an operation answers. */
#ifndef NSBX_AGENT_AGENT_H
#define NSBX_AGENT_AGENT_H

#include "base/list.h"
#include "base/util.h"
#include "channel/channel.h"
#include "channel/single.h"
#include "config.h"
#include "fault.h"
#include "loop/loop.h"

#include <jansson.h>
#include <stdbool.h>

struct nsbx_jail;
struct nsbx_registry;

enum { NSBX_PROTOCOL_VERSION = 2 }; /* [wire] never changes for an addition */

struct nsbx_agent {
    struct nsbx_loop *loop;
    const struct nsbx_agent_config *config;
    struct nsbx_jail *jail;
    struct nsbx_registry *registry;
    struct nsbx_single_server *server;
    struct nsbx_listener *listener;
    int spool_fd;                /* directory where large bodies wait, borrowed; -1 = none */
    struct nsbx_list tasks;      /* conversations under way (task.h) */
    struct nsbx_list writes;     /* parts of files being written (write_file.c) */
    struct nsbx_list executions; /* commands whose tree lives, or whose result is owed (execution.h) */
    void (*on_execution_gone)(struct nsbx_agent *agent); /* one of them left the list */
    char boot_id[NSBX_UUID_LEN + 1];
    bool has_null; /* there is a /dev/null */
    bool stopping; /* every execution is being ended, and then the agent */
    bool retiring; /* fenced: an end could not be confirmed. For the rest of the process's life */
};

/* An operation is one file with one of these, and one row in server.c joined to channel/ops.h by its name. `open` owns `ch`: it sets
 * events or answers before it returns. `body` is borrowed and may be NULL. */
struct nsbx_agent_op {
    const char *name;
    void (*open)(struct nsbx_agent *agent, struct nsbx_channel *ch, json_t *body);
};
extern const struct nsbx_agent_op nsbx_agent_op_healthz, nsbx_agent_op_reserve, nsbx_agent_op_execute,
    nsbx_agent_op_cancel, nsbx_agent_op_signal, nsbx_agent_op_read_file, nsbx_agent_op_read_stream,
    nsbx_agent_op_write_file, nsbx_agent_op_walk;

/* The last message of a conversation: sends it (taken over; NULL is out of memory), ends our direction and closes the channel. What
 * cannot be sent breaks the conversation, which the host sees. */
void nsbx_agent_answer(struct nsbx_channel *ch, json_t *message);
void nsbx_agent_refuse(struct nsbx_channel *ch, const struct nsbx_fault *fault);
/* A refusal that is one fixed text. */
void nsbx_agent_refuse_text(struct nsbx_channel *ch, const char *text);

/* Until now nothing of an ended command is certain any more: from here on only healthz and cancel-execution are served. */
void nsbx_agent_fence(struct nsbx_agent *agent, const char *why);

/* Reads body[key] as the published peer coerces numbers: true when the key is there; *value is NaN when it is no number. */
bool nsbx_agent_number(const json_t *body, const char *key, double *value);
/* Any value as compact JSON: NUL-terminated, free with nsbx_free; NULL without memory. */
char *nsbx_agent_json_text(const json_t *value);
/* A non-negative safe integer, as it is, without coercion; -1 when it is not one. */
int64_t nsbx_agent_safe_integer(const json_t *value);

#endif
