#include "exec_priv.h"

#include "base/alloc.h"
#include "loop/spawn.h"

#include <string.h>

struct signal_call {
    struct nsbx_list node;
    struct nsbx_exec *exec;
    struct nsbx_op *op;
    struct nsbx_call *request; /* NULL: waits for the command to start */
    const char *name;
    bool tree;
};

static const bool was_delivered = true, was_not_delivered = false;

static void call_free(struct signal_call *call)
{
    nsbx_call_close(call->request);
    nsbx_list_remove(&call->node);
    nsbx_op_unref(call->op);
    nsbx_free(call);
}

static void call_finish(struct signal_call *call, const struct nsbx_err *err, const bool *delivered)
{
    if (!err)
        nsbx_op_set_result(call->op, (void *)(uintptr_t)delivered, NULL);
    nsbx_op_finish(call->op, err);
    call_free(call);
}

static void call_stop(struct nsbx_op *op, void *owner, enum nsbx_op_stop why)
{
    (void)why;
    nsbx_op_finish_stopped(op);
    call_free(owner);
}

static void on_reply(void *ud, json_t *reply, const struct nsbx_err *err)
{
    struct signal_call *call = ud;
    call->request = NULL;
    if (!err)
        call_finish(call, NULL,
                    json_is_true(json_object_get(reply, "delivered")) ? &was_delivered : &was_not_delivered);
    else if (strcmp(err->reason, "unknown_execution") == 0 || strcmp(err->reason, "execution_not_running") == 0)
        call_finish(call, NULL, &was_not_delivered);
    else
        call_finish(call, err, NULL);
}

static int send_request(struct signal_call *call, struct nsbx_err *err)
{
    struct nsbx_guest *guest = call->exec->guest;
    int rc = nsbx_guest_require(guest, NSBX_FEATURE_SIGNAL, "sending a signal to a command", err);
    if (rc < 0)
        return rc;
    json_t *body =
        json_pack("{s:s,s:s,s:b}", "executionId", call->exec->id, "signal", call->name, "tree", (int)call->tree);
    if (!body)
        return nsbx_err_nomem(err, "a request");
    struct nsbx_call_spec spec = {
        .op = "signal-execution", .body = body, .whole_ms = -1, .done = on_reply, .ud = call};
    rc = nsbx_call_open(guest, &spec, &call->request, err);
    json_decref(body);
    return rc;
}

static void send_call(struct signal_call *call)
{
    struct nsbx_err err;
    if (!call->exec->started)
        call_finish(call, NULL, &was_not_delivered);
    else if (send_request(call, &err) < 0)
        call_finish(call, &err, NULL);
}

void nsbx_exec_signals_send(struct nsbx_exec *x)
{
    nsbx_list_each (node, &x->signals) {
        struct signal_call *call = nsbx_container_of(node, struct signal_call, node);
        if (!call->request)
            send_call(call);
    }
}

void nsbx_exec_signals_drop(struct nsbx_exec *x, const struct nsbx_err *err)
{
    nsbx_list_each (node, &x->signals)
        call_finish(nsbx_container_of(node, struct signal_call, node), err, NULL);
}

struct nsbx_op *nsbx_exec_signal(struct nsbx_exec *x, int signo, bool tree, int64_t timeout_ms)
{
    struct nsbx_err err;
    const char *name = nsbx_signal_name(signo);
    if (!name) {
        nsbx_err_set(&err, NSBX_E_INVALID, "there is no signal %d", signo);
        return nsbx_waits_over(x->guest->loop, "signal", &err, NULL);
    }
    struct signal_call *call = nsbx_calloc(1, sizeof *call);
    if (!call)
        return NULL;
    struct nsbx_op_spec spec = {.name = "signal", .timeout_ms = timeout_ms, .stop = call_stop, .owner = call};
    call->op = nsbx_op_new(x->guest->loop, &spec);
    if (!call->op) {
        nsbx_free(call);
        return NULL;
    }
    struct nsbx_op *op = nsbx_op_ref(call->op);
    call->exec = x;
    call->name = name;
    call->tree = tree;
    nsbx_list_push(&x->signals, &call->node);
    if (x->started || x->state == NSBX_EXEC_OVER)
        send_call(call);
    return op;
}
