/* The operation signal-execution: a signal for a command's process group, or for every process of its tree. */
#include "execution.h"

#include <string.h>

static void open_signal(struct nsbx_agent *agent, struct nsbx_channel *ch, json_t *body)
{
    const json_t *named = json_object_get(body, "executionId");
    const char *id = json_string_value(named), *name = json_string_value(json_object_get(body, "signal"));
    if (!id || !nsbx_execution_id_valid(id, json_string_length(named))) {
        nsbx_agent_refuse_text(ch, "invalid_execution_id");
        return;
    }
    struct nsbx_record *rec = nsbx_registry_find(agent->registry, id);
    if (!rec) {
        nsbx_agent_refuse_text(ch, "unknown_execution");
        return;
    }
    int signo = name ? nsbx_signal_of_name(name) : 0;
    if (signo == 0) {
        nsbx_agent_refuse_text(ch, "invalid_signal");
        return;
    }
    struct nsbx_execution *x = rec->execution;
    struct nsbx_fault fault;
    if (rec->state < NSBX_RECORD_RUNNING) {
        nsbx_fault_set(&fault, "execution_not_running: %s", nsbx_record_state_name(rec->state));
        nsbx_agent_refuse(ch, &fault);
        return;
    }
    /* An ended command may have left processes in the background: they are its tree still. */
    bool delivered = x && x->keeper;
    struct nsbx_err err = {0};
    if (delivered && nsbx_keeper_signal(x->keeper, signo, json_is_true(json_object_get(body, "tree")), &err) != 0) {
        nsbx_fault_set(&fault, "%s", err.message);
        fault.code = nsbx_errno_name(err.sys);
        nsbx_agent_refuse(ch, &fault);
        return;
    }
    nsbx_agent_answer(ch,
                      json_pack("{s:b, s:s, s:b}", "ok", 1, "guestBootId", agent->boot_id, "delivered", delivered));
}

const struct nsbx_agent_op nsbx_agent_op_signal = {"signal-execution", open_signal};
