#include "confirm_priv.h"

#include "base/util.h"

#include <string.h>

static void attempt(struct nsbx_confirm *c);

static void finish(struct nsbx_confirm *c, const struct nsbx_exec_ack *ack, const struct nsbx_err *err)
{
    c->running = false;
    c->done(c->ud, ack, err);
}

/* A refusal that no repetition can turn: the token is not accepted, or the guest holds no such execution. */
static bool is_permanent(const struct nsbx_confirm *c, const struct nsbx_err *err)
{
    return c->guest->gone.code || strcmp(err->reason, "unauthorized") == 0 ||
           strcmp(err->reason, "invalid_execution_id") == 0 || strcmp(err->reason, "unknown_execution") == 0;
}

static void failed(struct nsbx_confirm *c, const struct nsbx_err *err)
{
    c->last = *err;
    uint64_t pause = (uint64_t)nsbx_guest_ms(c->guest, NSBX_CANCEL_PAUSE_MS);
    if (is_permanent(c, err))
        c->deadline = 0;
    nsbx_timer_start(c->timer, c->deadline ? pause : 0);
}

static void on_reply(void *ud, json_t *reply, const struct nsbx_err *refused)
{
    struct nsbx_confirm *c = ud;
    struct nsbx_exec_ack ack;
    struct nsbx_err err;
    c->request = NULL;
    if (refused)
        failed(c, refused);
    else if (nsbx_exec_read_ack(reply, &ack, &err) < 0)
        failed(c, &err);
    else
        finish(c, &ack, NULL);
}

static int ask(struct nsbx_guest *guest, const char *id, int64_t whole_ms,
               void (*done)(void *, json_t *, const struct nsbx_err *), void *ud, struct nsbx_call **out,
               struct nsbx_err *err)
{
    json_t *body = json_pack("{s:s}", "executionId", id);
    if (!body)
        return nsbx_err_nomem(err, "a cancel request");
    struct nsbx_call_spec spec = {
        .op = "cancel-execution", .body = body, .whole_ms = whole_ms, .done = done, .ud = ud};
    int rc = nsbx_call_open(guest, &spec, out, err);
    json_decref(body);
    return rc;
}

static void attempt(struct nsbx_confirm *c)
{
    struct nsbx_err err;
    uint64_t now = nsbx_now_ms();
    int64_t whole = nsbx_guest_ms(c->guest, NSBX_CONTROL_REQUEST_MS);
    if (now + (uint64_t)whole > c->deadline)
        whole = (int64_t)(c->deadline - now);
    if (ask(c->guest, c->id, whole, on_reply, c, &c->request, &err) < 0)
        failed(c, &err);
}

static void on_timer(void *ud)
{
    struct nsbx_confirm *c = ud;
    if (nsbx_now_ms() < c->deadline)
        attempt(c);
    else
        finish(c, NULL, &c->last);
}

int nsbx_confirm_init(struct nsbx_confirm *c, struct nsbx_guest *guest,
                      void (*done)(void *ud, const struct nsbx_exec_ack *ack, const struct nsbx_err *err), void *ud,
                      struct nsbx_err *err)
{
    *c = (struct nsbx_confirm){.guest = guest, .done = done, .ud = ud};
    c->timer = nsbx_timer_new(guest->loop, on_timer, c);
    return c->timer ? 0 : nsbx_err_nomem(err, "a timer");
}

void nsbx_confirm_start(struct nsbx_confirm *c, const char *id)
{
    if (c->running)
        return;
    c->running = true;
    c->id = id;
    c->deadline = nsbx_now_ms() + (uint64_t)nsbx_guest_ms(c->guest, NSBX_CANCEL_WINDOW_MS);
    attempt(c);
}

void nsbx_confirm_stop(struct nsbx_confirm *c)
{
    nsbx_call_close(c->request);
    c->request = NULL;
    if (c->timer)
        nsbx_timer_stop(c->timer);
    c->running = false;
}

void nsbx_confirm_fini(struct nsbx_confirm *c)
{
    nsbx_confirm_stop(c);
    nsbx_timer_close(c->timer);
    c->timer = NULL;
}

static void on_released(void *ud, json_t *reply, const struct nsbx_err *err)
{
    (void)ud;
    (void)reply;
    (void)err; /* a reservation that was not given back is forgotten by the guest when its lease ends */
}

void nsbx_confirm_release(struct nsbx_guest *guest, const char *id)
{
    struct nsbx_call *request; /* owns itself */
    struct nsbx_err err;
    (void)ask(guest, id, nsbx_guest_ms(guest, NSBX_CONTROL_REQUEST_MS), on_released, NULL, &request, &err);
}
