#include "call_priv.h"

#include "base/alloc.h"
#include "base/util.h"
#include "loop/timer.h"

struct nsbx_call {
    struct nsbx_guest *guest;
    struct nsbx_channel *channel;
    struct nsbx_timer *bound; /* NULL without a whole bound */
    struct nsbx_op *dial;     /* the last attempt: says whether there ever was a connection */
    uint64_t deadline;        /* of the whole; 0 = none */
    int64_t whole_ms;
    json_t *reply;
    struct nsbx_buf *into;
    const char *name;
    void (*done)(void *ud, json_t *reply, const struct nsbx_err *err);
    void *ud;
};

void nsbx_call_close(struct nsbx_call *c)
{
    if (!c)
        return;
    nsbx_channel_close(c->channel);
    nsbx_timer_close(c->bound);
    nsbx_op_unref(c->dial);
    json_decref(c->reply);
    nsbx_guest_unref(c->guest);
    nsbx_free(c);
}

/* The call goes first: whoever is told may start the next one, or drop the last reference to the guest. */
static void finish(struct nsbx_call *c, const struct nsbx_err *err)
{
    struct nsbx_err copy;
    if (err)
        copy = *nsbx_guest_truth(c->guest, err);
    json_t *reply = json_incref(c->reply);
    void (*done)(void *, json_t *, const struct nsbx_err *) = c->done;
    void *ud = c->ud;
    nsbx_call_close(c);
    done(ud, reply, err ? &copy : NULL);
    json_decref(reply);
}

static void on_message(void *ud, json_t *message)
{
    struct nsbx_call *c = ud;
    if (!c->reply) {
        c->reply = json_incref(message);
        return;
    }
    struct nsbx_err err;
    nsbx_err_set(&err, NSBX_E_PROTOCOL, "%s: the guest sent two replies", c->name);
    json_decref(c->reply);
    c->reply = NULL;
    finish(c, &err);
}

static void on_end(void *ud)
{
    struct nsbx_call *c = ud;
    struct nsbx_err err;
    if (!c->reply) {
        nsbx_err_set(&err, NSBX_E_PROTOCOL, "%s: the guest ended the connection without a reply", c->name);
        finish(c, &err);
        return;
    }
    nsbx_guest_saw(c->guest, c->reply);
    if (json_is_true(json_object_get(c->reply, "ok"))) {
        finish(c, NULL);
        return;
    }
    nsbx_guest_refusal(c->reply, &err);
    finish(c, &err);
}

static void on_data(void *ud, enum nsbx_sub sub, const uint8_t *bytes, size_t n, int64_t offset)
{
    struct nsbx_call *c = ud;
    struct nsbx_err err;
    (void)sub;
    (void)offset;
    if (c->into && nsbx_buf_append(c->into, bytes, n, &err) < 0)
        finish(c, &err);
    else
        nsbx_channel_consumed(c->channel, n);
}

static void on_fail(void *ud, const struct nsbx_err *err)
{
    struct nsbx_call *c = ud;
    json_decref(c->reply); /* a reply is valid only with its clean end */
    c->reply = NULL;
    finish(c, err);
}

static const struct nsbx_channel_events call_events = {
    .on_message = on_message, .on_data = on_data, .on_end = on_end, .on_fail = on_fail};

static void on_bound(void *ud)
{
    struct nsbx_call *c = ud;
    struct nsbx_err err;
    if (c->dial && nsbx_op_state(c->dial) == NSBX_OP_DONE)
        nsbx_err_set(&err, NSBX_E_TIMEOUT, "%s: no answer from the guest within %lld ms", c->name,
                     (long long)c->whole_ms);
    else
        nsbx_err_set(&err, NSBX_E_UNREACHABLE, "%s: no connection to the guest within %lld ms", c->name,
                     (long long)c->whole_ms);
    on_fail(c, &err);
}

static bool is_gone(void *ud, const struct nsbx_err *err)
{
    struct nsbx_call *c = ud;
    (void)err;
    return c->guest->gone.code != 0;
}

/* Each attempt ends with the whole at the latest, and its op is kept: see on_bound. */
static struct nsbx_op *dial(void *ud, struct nsbx_loop *loop, int64_t timeout_ms)
{
    struct nsbx_call *c = ud;
    if (c->deadline) {
        uint64_t now = nsbx_now_ms();
        int64_t left = now < c->deadline ? (int64_t)(c->deadline - now) : 1;
        timeout_ms = timeout_ms < 0 ? left : NSBX_MIN(timeout_ms, left);
    }
    nsbx_op_unref(c->dial);
    c->dial = nsbx_guest_dial(c->guest, loop, timeout_ms);
    return c->dial ? nsbx_op_ref(c->dial) : NULL;
}

int nsbx_call_open(struct nsbx_guest *guest, const struct nsbx_call_spec *spec, struct nsbx_call **out,
                   struct nsbx_err *err)
{
    if (guest->gone.code)
        return nsbx_err_copy(err, &guest->gone);
    struct nsbx_call *c = nsbx_calloc(1, sizeof *c);
    if (!c)
        return nsbx_err_nomem(err, "a request");
    c->guest = nsbx_guest_ref(guest);
    c->into = spec->into;
    c->name = spec->op;
    c->done = spec->done;
    c->ud = spec->ud;
    c->whole_ms = spec->whole_ms;
    struct nsbx_single_request single = {
        .op = spec->op,
        .body = spec->body,
        .large = spec->large,
        .large_len = spec->large_len,
        .large_base64 = spec->large_base64,
        .data_base64 = spec->into != NULL,
        .idle_ms = nsbx_guest_ms(guest, NSBX_REPLY_IDLE_MS),
    };
    nsbx_guest_address(guest, &single);
    single.permanent = is_gone;
    if (spec->whole_ms >= 0) {
        c->deadline = nsbx_now_ms() + (uint64_t)spec->whole_ms;
        single.dial_budget_ms = NSBX_MIN(single.dial_budget_ms, spec->whole_ms);
        c->bound = nsbx_timer_new(guest->loop, on_bound, c);
        if (!c->bound) {
            nsbx_call_close(c);
            return nsbx_err_nomem(err, "a timer");
        }
        nsbx_timer_start(c->bound, (uint64_t)spec->whole_ms);
    }
    c->channel = nsbx_single_open(guest->loop, dial, c, &single, &call_events, c, err);
    if (!c->channel) {
        nsbx_call_close(c);
        return err ? -err->code : -NSBX_E_LIMIT;
    }
    *out = c;
    return 0;
}
