#include "registry.h"

#include "base/alloc.h"
#include "base/strmap.h"
#include "execution.h"

#include <assert.h>
#include <string.h>

struct nsbx_registry {
    struct nsbx_registry_limits limits;
    struct nsbx_strmap records; /* id → struct nsbx_record * */
    /* All of one list have the same time to live, so a list is in the order of expiry. Live records are in neither. */
    struct nsbx_list reserved, terminal;
};

int nsbx_registry_new(struct nsbx_registry **out, const struct nsbx_registry_limits *limits, struct nsbx_err *err)
{
    struct nsbx_registry *r = nsbx_malloc(sizeof *r);
    if (!r)
        return nsbx_err_nomem(err, "the registry of executions");
    r->limits = *limits;
    nsbx_strmap_init(&r->records);
    nsbx_list_init(&r->reserved);
    nsbx_list_init(&r->terminal);
    *out = r;
    return 0;
}

static void record_free(struct nsbx_record *rec)
{
    assert(nsbx_list_empty(&rec->cancels));
    json_decref(rec->result);
    json_decref(rec->error);
    nsbx_free(rec);
}

/* The one way out of the map. What still runs below an ended record lives on without a name. */
static void drop(struct nsbx_registry *r, struct nsbx_record *rec)
{
    nsbx_strmap_remove(&r->records, rec->id);
    nsbx_list_remove(&rec->node);
    if (rec->execution)
        nsbx_execution_forget_record(rec->execution);
    record_free(rec);
}

void nsbx_registry_free(struct nsbx_registry *r)
{
    if (!r)
        return;
    size_t pos = 0;
    struct nsbx_record *rec;
    while ((rec = nsbx_strmap_next(&r->records, &pos, NULL)) != NULL)
        record_free(rec);
    nsbx_strmap_free(&r->records);
    nsbx_free(r);
}

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

bool nsbx_execution_id_valid(const char *id, size_t n)
{
    if (n != NSBX_EXECUTION_ID_LEN || memcmp(id, "exec_", 5) != 0)
        return false;
    const char *uuid = id + 5;
    for (size_t i = 0; i < NSBX_UUID_LEN; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? uuid[i] != '-' : !is_hex(uuid[i]))
            return false;
    }
    return uuid[14] >= '1' && uuid[14] <= '5' && strchr("89abAB", uuid[19]) != NULL;
}

static void drop_expired(struct nsbx_registry *r, struct nsbx_list *records)
{
    uint64_t now = nsbx_now_ms();
    nsbx_list_each (it, records) {
        struct nsbx_record *rec = nsbx_container_of(it, struct nsbx_record, node);
        if (rec->expires_ms > now)
            return;
        drop(r, rec);
    }
}

static void prune(struct nsbx_registry *r)
{
    drop_expired(r, &r->reserved);
    drop_expired(r, &r->terminal);
}

static int make_room(struct nsbx_registry *r, struct nsbx_err *err)
{
    prune(r);
    while (nsbx_strmap_count(&r->records) >= r->limits.max_tracked) {
        struct nsbx_list *earliest = nsbx_list_first(&r->terminal);
        if (!earliest)
            return nsbx_err_reason(err, NSBX_E_CAPACITY, "execution_capacity", "all tracked executions are live");
        drop(r, nsbx_container_of(earliest, struct nsbx_record, node));
    }
    return 0;
}

int nsbx_registry_reserve(struct nsbx_registry *r, const char *id, struct nsbx_record **out, struct nsbx_err *err)
{
    int rc = make_room(r, err);
    if (rc)
        return rc;
    struct nsbx_record *rec = nsbx_calloc(1, sizeof *rec);
    if (!rec)
        return nsbx_err_nomem(err, "an execution's record");
    nsbx_list_init(&rec->node);
    nsbx_list_init(&rec->cancels);
    memcpy(rec->id, "exec_", 5);
    if (id)
        memcpy(rec->id, id, NSBX_EXECUTION_ID_LEN + 1);
    else
        rc = nsbx_uuid4(rec->id + 5, err);
    if (rc == 0 && nsbx_strmap_get(&r->records, rec->id))
        rc = nsbx_err_set(err, NSBX_E_EXISTS, "%s is held already", rec->id);
    if (rc == 0)
        rc = nsbx_strmap_set(&r->records, rec->id, rec, err);
    if (rc) {
        record_free(rec);
        return rc;
    }
    rec->state = NSBX_RECORD_RESERVED;
    rec->expires_ms = nsbx_now_ms() + r->limits.lease_ttl_ms;
    nsbx_list_push(&r->reserved, &rec->node);
    *out = rec;
    return 0;
}

struct nsbx_record *nsbx_registry_find(struct nsbx_registry *r, const char *id)
{
    prune(r);
    return nsbx_strmap_get(&r->records, id);
}

size_t nsbx_registry_count(const struct nsbx_registry *r)
{
    return nsbx_strmap_count(&r->records);
}

void nsbx_registry_advance(struct nsbx_record *rec, enum nsbx_record_state state)
{
    assert(state > rec->state && state != NSBX_RECORD_TERMINAL);
    rec->state = state;
    rec->expires_ms = 0;
    nsbx_list_remove(&rec->node);
}

void nsbx_registry_settle(struct nsbx_registry *r, struct nsbx_record *rec, enum nsbx_outcome outcome, bool started,
                          json_t *result, json_t *error)
{
    assert(rec->state != NSBX_RECORD_TERMINAL);
    rec->state = NSBX_RECORD_TERMINAL;
    rec->expires_ms = nsbx_now_ms() + r->limits.terminal_ttl_ms;
    nsbx_list_remove(&rec->node);
    nsbx_list_push(&r->terminal, &rec->node);
    rec->outcome = outcome;
    rec->started = started;
    rec->result = result;
    rec->error = error;
}

const char *nsbx_record_state_name(enum nsbx_record_state state)
{
    static const char *const names[] = {"reserved", "starting", "running", "exited", "terminal"};
    return names[state];
}

const char *nsbx_outcome_name(enum nsbx_outcome outcome)
{
    static const char *const names[] = {"completed", "cancelled", "failed"};
    return names[outcome];
}
