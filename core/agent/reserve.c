/* The operation reserve-execution: a name for a command that does not run yet. */
#include "agent.h"
#include "registry.h"

#include <string.h>

static json_t *reply(const struct nsbx_agent *agent, const struct nsbx_record *rec, bool with_state)
{
    int64_t lease = nsbx_epoch_ms();
    if (rec->expires_ms)
        lease += (int64_t)(rec->expires_ms - nsbx_now_ms());
    json_t *message =
        json_pack("{s:b, s:s, s:i, s:s, s:I}", "ok", 1, "guestBootId", agent->boot_id, "protocolVersion",
                  NSBX_PROTOCOL_VERSION, "executionId", rec->id, "leaseExpiresAt", (json_int_t)lease);
    if (message && with_state &&
        json_object_set_new(message, "state", json_string(nsbx_record_state_name(rec->state))) != 0) {
        json_decref(message);
        message = NULL;
    }
    return message;
}

static void open_reserve(struct nsbx_agent *agent, struct nsbx_channel *ch, json_t *body)
{
    struct nsbx_err err = {0};
    struct nsbx_record *rec = NULL;
    const json_t *named = json_object_get(body, "executionId");
    const char *id = json_string_value(named);
    if (named && !(id && nsbx_execution_id_valid(id, json_string_length(named)))) {
        nsbx_agent_refuse_text(ch, "invalid_execution_id");
        return;
    }
    if (id)
        rec = nsbx_registry_find(agent->registry, id);
    if (!rec && nsbx_registry_reserve(agent->registry, id, &rec, &err) != 0) {
        nsbx_agent_refuse_text(ch, err.reason[0] ? err.reason : err.message);
        return;
    }
    nsbx_agent_answer(ch, reply(agent, rec, id != NULL));
}

const struct nsbx_agent_op nsbx_agent_op_reserve = {"reserve-execution", open_reserve};
