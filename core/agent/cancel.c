/* The operation cancel-execution: ends the whole tree of a command and says so only when that is certain. Any number of hosts may wait
 * for one end. */
#include "execution.h"

#include "base/alloc.h"

struct waiter {
    struct nsbx_list node; /* record->cancels */
    struct nsbx_channel *ch;
};

static struct waiter *first_waiter(struct nsbx_record *rec)
{
    struct nsbx_list *node = nsbx_list_shift(&rec->cancels);
    return node ? nsbx_container_of(node, struct waiter, node) : NULL;
}

static void on_fail(void *ud, const struct nsbx_err *err)
{
    struct waiter *w = ud;
    (void)err;
    nsbx_list_remove(&w->node);
    nsbx_channel_close(w->ch);
    nsbx_free(w);
}

static const struct nsbx_channel_events events = {.on_fail = on_fail};

static json_t *payload(const struct nsbx_agent *agent, const struct nsbx_record *rec)
{
    json_t *message = json_pack("{s:b, s:s, s:s, s:b}", "ok", 1, "guestBootId", agent->boot_id, "state",
                                nsbx_outcome_name(rec->outcome), "started", rec->started);
    if (!message || (rec->result && json_object_set(message, "result", rec->result) != 0) ||
        (rec->error && json_object_set(message, "error", rec->error) != 0)) {
        json_decref(message);
        return NULL;
    }
    return message;
}

static json_t *refusal(const struct nsbx_agent *agent, const char *error, const char *text)
{
    json_t *message = json_pack("{s:b, s:s, s:s}", "ok", 0, "guestBootId", agent->boot_id, "error", error);
    if (message && text && json_object_set_new(message, "message", json_string(text)) != 0) {
        json_decref(message);
        return NULL;
    }
    return message;
}

void nsbx_cancel_settled(struct nsbx_agent *agent, struct nsbx_record *rec)
{
    struct waiter *w;
    while ((w = first_waiter(rec)) != NULL) {
        nsbx_agent_answer(w->ch, payload(agent, rec));
        nsbx_free(w);
    }
}

void nsbx_cancel_unconfirmed(struct nsbx_agent *agent, struct nsbx_record *rec)
{
    struct waiter *w;
    while ((w = first_waiter(rec)) != NULL) {
        nsbx_agent_fence(agent, "a cancellation was not confirmed");
        nsbx_agent_answer(w->ch, refusal(agent, "cancellation_unconfirmed",
                                         "it is not certain that nothing of the execution runs any more"));
        nsbx_free(w);
    }
}

void nsbx_cancel_drop(struct nsbx_record *rec)
{
    struct waiter *w;
    while ((w = first_waiter(rec)) != NULL) {
        nsbx_channel_close(w->ch);
        nsbx_free(w);
    }
}

/* A reservation that will never be used. */
static void settle_reserved(struct nsbx_agent *agent, struct nsbx_record *rec)
{
    json_t *result = json_pack("{s:i, s:b, s:i, s:b, s:b}", "exitCode", 1, "timedOut", 0, "durationMs", 0,
                               "stdoutTruncated", 0, "stderrTruncated", 0);
    nsbx_registry_settle(agent->registry, rec, NSBX_OUTCOME_CANCELLED, false, result, NULL);
}

static void open_cancel(struct nsbx_agent *agent, struct nsbx_channel *ch, json_t *body)
{
    const json_t *named = json_object_get(body, "executionId");
    const char *id = json_string_value(named);
    if (!id || !nsbx_execution_id_valid(id, json_string_length(named))) {
        nsbx_agent_refuse_text(ch, "invalid_execution_id");
        return;
    }
    struct nsbx_record *rec = nsbx_registry_find(agent->registry, id);
    if (!rec) {
        nsbx_agent_answer(ch, refusal(agent, "unknown_execution", NULL));
        return;
    }
    if (rec->state == NSBX_RECORD_RESERVED)
        settle_reserved(agent, rec);
    if (rec->state == NSBX_RECORD_TERMINAL) {
        nsbx_agent_answer(ch, payload(agent, rec));
        return;
    }
    struct waiter *w = nsbx_malloc(sizeof *w);
    if (!w) {
        nsbx_agent_refuse_text(ch, "no memory");
        return;
    }
    nsbx_list_init(&w->node);
    w->ch = ch;
    nsbx_channel_set_events(ch, &events, w);
    nsbx_list_push(&rec->cancels, &w->node);
    nsbx_execution_end(rec->execution, NSBX_CAUSE_CANCELLED); /* one that is neither reserved nor terminal has it */
}

const struct nsbx_agent_op nsbx_agent_op_cancel = {"cancel-execution", open_cancel};
