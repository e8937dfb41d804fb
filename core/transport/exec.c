#include "exec_priv.h"

#include "base/alloc.h"

static void exec_destroy(struct nsbx_exec *x)
{
    nsbx_confirm_fini(&x->confirm);
    nsbx_timer_close(x->clock);
    nsbx_exec_output_free(&x->output);
    json_decref(x->body);
    nsbx_free(x->stdin_bytes);
    nsbx_free(x->result.out);
    nsbx_free(x->result.err);
    nsbx_guest_unref(x->guest);
    nsbx_free(x);
}

void nsbx_exec_maybe_free(struct nsbx_exec *x)
{
    if (x->closed && x->state == NSBX_EXEC_OVER && !x->confirm.running)
        exec_destroy(x);
}

int nsbx_exec_start(struct nsbx_guest *guest, const struct nsbx_exec_request *request, struct nsbx_exec **out,
                    struct nsbx_err *err)
{
    struct nsbx_exec *x = nsbx_calloc(1, sizeof *x);
    if (!x)
        return nsbx_err_nomem(err, "an execution");
    x->guest = nsbx_guest_ref(guest);
    x->timeout_ms = request->timeout_ms ? request->timeout_ms : NSBX_EXEC_TIMEOUT_MS;
    x->wait_pipes = request->wait_pipes;
    x->stdin_kind = request->stdin_kind;
    x->in.stream = request->stdin_kind == NSBX_STDIN_STREAM;
    nsbx_exec_output_init(&x->output, request);
    nsbx_exec_stdin_init(&x->in);
    nsbx_list_init(&x->signals);
    nsbx_waits_init(&x->starting);
    nsbx_waits_init(&x->reading);
    nsbx_waits_init(&x->waiting);
    nsbx_waits_init(&x->cancelling);
    int rc = nsbx_exec_controller_init(x, err);
    if (rc == 0)
        rc = nsbx_exec_make_body(x, request, err);
    if (rc < 0) {
        exec_destroy(x);
        return rc;
    }
    nsbx_exec_begin(x);
    *out = x;
    return 0;
}

/* ---- waiting for it ---- */

struct nsbx_op *nsbx_exec_started(struct nsbx_exec *x, int64_t timeout_ms)
{
    if (!x->started && x->state != NSBX_EXEC_OVER)
        return nsbx_waits_add(&x->starting, x->guest->loop, "exec", timeout_ms);
    return nsbx_waits_over(x->guest->loop, "exec", !x->started && x->outcome.code ? &x->outcome : NULL, NULL);
}

struct nsbx_op *nsbx_exec_read(struct nsbx_exec *x, int64_t timeout_ms)
{
    if (x->output.held)
        return nsbx_waits_over(x->guest->loop, "read", NULL, NULL);
    if (x->state == NSBX_EXEC_OVER)
        return nsbx_waits_over(x->guest->loop, "read", x->outcome.code ? &x->outcome : NULL, NULL);
    return nsbx_waits_add(&x->reading, x->guest->loop, "read", timeout_ms);
}

struct nsbx_op *nsbx_exec_wait(struct nsbx_exec *x, int64_t timeout_ms)
{
    if (x->state == NSBX_EXEC_OVER)
        return nsbx_waits_over(x->guest->loop, "wait", x->outcome.code ? &x->outcome : NULL, &x->result);
    return nsbx_waits_add(&x->waiting, x->guest->loop, "wait", timeout_ms);
}

struct nsbx_op *nsbx_exec_cancel(struct nsbx_exec *x)
{
    return nsbx_exec_cancel_within(x, -1);
}

struct nsbx_op *nsbx_exec_cancel_within(struct nsbx_exec *x, int64_t timeout_ms)
{
    bool settled = x->state == NSBX_EXEC_DRAIN || (x->state == NSBX_EXEC_OVER && !x->confirm.running);
    if (settled)
        return nsbx_waits_over(x->guest->loop, "cancel", nsbx_exec_cancel_outcome(x), NULL);
    struct nsbx_op *op = nsbx_waits_add(&x->cancelling, x->guest->loop, "cancel", timeout_ms);
    if (op)
        nsbx_exec_end(x);
    return op;
}

bool nsbx_exec_finished(const struct nsbx_exec *x)
{
    return x->state == NSBX_EXEC_OVER;
}

int64_t nsbx_exec_pid(const struct nsbx_exec *x)
{
    return x->pid;
}

const char *nsbx_exec_id(const struct nsbx_exec *x)
{
    return x->id;
}

/* ---- its output ---- */

bool nsbx_exec_take(struct nsbx_exec *x, enum nsbx_sub *sub, uint8_t **bytes, size_t *n)
{
    if (!nsbx_exec_output_take(&x->output, sub, bytes, n))
        return false;
    nsbx_exec_output_taken(x, *n);
    return true;
}

void nsbx_exec_discard(struct nsbx_exec *x)
{
    size_t held = nsbx_exec_output_discard(&x->output);
    if (held)
        nsbx_exec_output_taken(x, held);
}

/* ---- letting go ---- */

void nsbx_exec_close(struct nsbx_exec *x)
{
    struct nsbx_err err;
    if (!x)
        return;
    x->closed = true;
    nsbx_err_set(&err, NSBX_E_CANCELLED, "'%s' was closed", x->name);
    nsbx_waits_finish(&x->starting, &err, NULL);
    nsbx_waits_finish(&x->reading, &err, NULL);
    nsbx_waits_finish(&x->waiting, &err, NULL);
    nsbx_waits_finish(&x->cancelling, &err, NULL);
    nsbx_exec_stdin_drop(x, &err);
    nsbx_exec_signals_drop(x, &err);
    nsbx_exec_discard(x);
    nsbx_exec_let_go(x);
}
