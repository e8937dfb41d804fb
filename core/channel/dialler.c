#include "dialler_priv.h"

#include "base/limits.h"

static void begin_attempt(struct nsbx_dialler *d);

void nsbx_dialler_stop(struct nsbx_dialler *d)
{
    nsbx_timer_close(d->pause);
    d->pause = NULL;
    if (!d->attempt)
        return;
    nsbx_op_on_finish(d->attempt, NULL, NULL);
    nsbx_op_cancel(d->attempt);
    nsbx_op_unref(d->attempt); /* a stream that nobody took is closed */
    d->attempt = NULL;
}

static void give_up(struct nsbx_dialler *d, const struct nsbx_err *why)
{
    struct nsbx_err err = *why;
    nsbx_dialler_stop(d);
    nsbx_err_wrap(&err, "no connection to the guest");
    err.code = NSBX_E_UNREACHABLE;
    d->gave_up(d->ud, &err);
}

static void on_pause_over(void *ud)
{
    begin_attempt(ud);
}

static void attempt_failed(struct nsbx_dialler *d, const struct nsbx_err *err)
{
    int64_t spent = (int64_t)(nsbx_loop_now_ms(d->loop) - d->start);
    bool final = spent >= d->budget_ms || (d->permanent && d->permanent(d->dial_ud, err));
    if (!final && !d->pause)
        d->pause = nsbx_timer_new(d->loop, on_pause_over, d);
    if (final || !d->pause)
        give_up(d, err);
    else
        nsbx_timer_start(d->pause, NSBX_DIAL_PAUSE_MS);
}

/* The op is ours until the end: the callback that it leads to may be the last thing that happens to the dialler. */
static void on_finish(struct nsbx_op *op, void *ud)
{
    struct nsbx_dialler *d = ud;
    d->attempt = NULL;
    if (nsbx_op_state(op) == NSBX_OP_DONE) {
        struct nsbx_stream *stream = nsbx_op_take_result(op);
        nsbx_dialler_stop(d);
        d->connected(d->ud, stream);
    } else {
        attempt_failed(d, nsbx_op_err(op));
    }
    nsbx_op_unref(op);
}

static void begin_attempt(struct nsbx_dialler *d)
{
    struct nsbx_err err;
    d->attempt = d->dial(d->dial_ud, d->loop, NSBX_DIAL_ATTEMPT_MS);
    if (d->attempt) {
        nsbx_op_on_finish(d->attempt, on_finish, d);
        return;
    }
    nsbx_err_nomem(&err, "a connection");
    give_up(d, &err);
}

int nsbx_dialler_start(struct nsbx_dialler *d, struct nsbx_err *err)
{
    d->start = nsbx_loop_now_ms(d->loop);
    d->attempt = d->dial(d->dial_ud, d->loop, NSBX_DIAL_ATTEMPT_MS);
    if (!d->attempt)
        return nsbx_err_nomem(err, "a connection");
    nsbx_op_on_finish(d->attempt, on_finish, d);
    return 0;
}
