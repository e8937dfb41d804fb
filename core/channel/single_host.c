/* The host's end of the published carrier: dials, sends the envelope, reads the replies and judges how they end. */
#include "single.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "base/util.h"
#include "channel_priv.h"
#include "dialler_priv.h"
#include "envelope_priv.h"
#include "loop/timer.h"
#include "wire_priv.h"

#include <string.h>

enum phase {
    DIALLING, /* an attempt is under way, or the pause before the next one */
    SENDING,  /* connected; the envelope is going out (replies may come already) */
    READING,  /* the envelope is out */
    CLOSING,  /* the reply is complete; the peer's end is awaited */
    OVER,     /* ended or failed; only close follows */
};

struct host {
    struct nsbx_channel ch; /* first */
    struct nsbx_loop *loop;
    enum phase phase;
    int busy;    /* callbacks of ours on the stack */
    bool closed; /* by the user: no callback any more */

    struct nsbx_dialler dialler;
    struct nsbx_stream *stream;
    struct nsbx_timer *timer; /* idle bound, close wait: by phase */
    int64_t idle_ms;
    uint64_t last_byte; /* or last progress in sending */
    uint64_t last_gain; /* the last message or piece of data: bytes alone may be nothing but empty data */
    bool gained;        /* the frame that is being read held some */

    struct nsbx_envelope envelope;
    struct nsbx_defer more; /* goes on with the envelope after others had their turn */
    struct nsbx_buf scratch;
    struct nsbx_buf pending; /* frames that wait for the envelope to be out */
    struct nsbx_wire_writer writer;
    bool talks; /* data or messages may follow the envelope */
    bool ended; /* and no more does */

    struct nsbx_inbox inbox;
    bool replied; /* at least one message came */
    size_t unconsumed;
    bool paused;
};

static struct host *host_of(struct nsbx_channel *ch)
{
    return (struct host *)ch;
}

static const struct host *host_of_const(const struct nsbx_channel *ch)
{
    return (const struct host *)ch;
}

/* ---- life ---- */

static void let_go(struct host *h)
{
    nsbx_dialler_stop(&h->dialler);
    nsbx_stream_close(h->stream);
    h->stream = NULL;
    if (h->timer)
        nsbx_timer_stop(h->timer);
    nsbx_defer_cancel(&h->more);
    nsbx_envelope_free(&h->envelope);
    nsbx_buf_free(&h->pending);
}

static void destroy(struct host *h)
{
    let_go(h);
    nsbx_timer_close(h->timer);
    nsbx_inbox_free(&h->inbox);
    nsbx_wire_writer_free(&h->writer);
    nsbx_buf_free(&h->scratch);
    nsbx_free(h);
}

/* Around everything the loop calls: what the user closes meanwhile goes when the stack is ours again. */
static void enter(struct host *h)
{
    h->busy++;
}

static void leave(struct host *h)
{
    if (--h->busy == 0 && h->closed)
        destroy(h);
}

static void host_close(struct nsbx_channel *ch)
{
    struct host *h = host_of(ch);
    h->closed = true;
    h->phase = OVER;
    if (h->busy)
        let_go(h);
    else
        destroy(h);
}

static void fail(struct host *h, const struct nsbx_err *err)
{
    if (h->phase == OVER)
        return;
    h->phase = OVER;
    let_go(h);
    if (h->ch.events->on_fail)
        h->ch.events->on_fail(h->ch.ud, err);
}

static void finish(struct host *h)
{
    h->phase = OVER;
    let_go(h);
    if (h->ch.events->on_end)
        h->ch.events->on_end(h->ch.ud);
}

/* ---- the clock ---- */

static void start_idle(struct host *h)
{
    h->last_byte = h->last_gain = nsbx_loop_now_ms(h->loop);
    if (h->idle_ms >= 0)
        nsbx_timer_start(h->timer, (uint64_t)h->idle_ms);
}

static int too_idle(const struct host *h, struct nsbx_err *err)
{
    return nsbx_err_set(err, NSBX_E_TIMEOUT, "the guest sent nothing for %lld ms during %s", (long long)h->idle_ms,
                        h->ch.row->name);
}

/* Restarting a timer for each read would be dearer than looking, when it fires, how long ago the last byte was. */
static void check_idle(struct host *h)
{
    uint64_t since = nsbx_loop_now_ms(h->loop) - h->last_byte, bound = (uint64_t)h->idle_ms;
    if (since < bound) {
        nsbx_timer_start(h->timer, bound - since);
        return;
    }
    struct nsbx_err err;
    too_idle(h, &err);
    fail(h, &err);
}

static void gain(struct host *h)
{
    h->gained = true;
    h->last_gain = nsbx_loop_now_ms(h->loop);
}

/* Data frames without data, one after another, are silence too. Those before this frame are judged here. */
static int check_gain(struct host *h, struct nsbx_err *err)
{
    bool empty = !h->gained && h->idle_ms >= 0;
    h->gained = false;
    return empty && nsbx_loop_now_ms(h->loop) - h->last_gain >= (uint64_t)h->idle_ms ? too_idle(h, err) : 0;
}

/* ---- replies ---- */

/* Only the peer's end makes the reply final. It is awaited for a moment, but a peer (or a relay on the way) that is slow to close does not
 * turn a complete reply into a failure. */
static void complete(struct host *h)
{
    h->phase = CLOSING;
    nsbx_envelope_free(&h->envelope);
    h->paused = false;
    nsbx_stream_read_start(h->stream);
    nsbx_timer_start(h->timer, NSBX_CLOSE_WAIT_MS);
}

static int on_header(void *ud, uint32_t length, struct nsbx_err *err)
{
    if (length > NSBX_MAX_REPLY_FRAME)
        return nsbx_err_set(err, NSBX_E_LIMIT, "the guest announced a message of %u bytes, the limit is %u", length,
                            NSBX_MAX_REPLY_FRAME);
    return check_gain(ud, err);
}

static int on_terminator(void *ud, struct nsbx_err *err)
{
    struct host *h = ud;
    switch (h->ch.row->shape) {
    case NSBX_SHAPE_CONTROL:
        return nsbx_err_set(err, NSBX_E_PROTOCOL, "an empty message instead of the reply to %s", h->ch.row->name);
    case NSBX_SHAPE_STREAM:
        complete(h);
        return NSBX_WIRE_STOP;
    case NSBX_SHAPE_DUPLEX:
        break;
    }
    return 0;
}

/* What a gate says before any operation saw the request has control shape on every operation. */
static bool is_refusal(const json_t *message)
{
    return json_is_false(json_object_get(message, "ok")) && !json_object_get(message, "type");
}

static int on_message(void *ud, json_t *message, struct nsbx_err *err)
{
    struct host *h = ud;
    (void)err;
    gain(h);
    bool last = h->ch.row->shape == NSBX_SHAPE_CONTROL || (!h->replied && is_refusal(message));
    h->replied = true;
    if (h->ch.events->on_message)
        h->ch.events->on_message(h->ch.ud, message);
    if (h->closed)
        return NSBX_WIRE_STOP;
    if (!last)
        return 0;
    complete(h);
    return NSBX_WIRE_STOP;
}

static int on_data(void *ud, enum nsbx_sub sub, const uint8_t *bytes, size_t n, int64_t offset)
{
    struct host *h = ud;
    gain(h);
    h->unconsumed += n;
    if (h->ch.events->on_data)
        h->ch.events->on_data(h->ch.ud, sub, bytes, n, offset);
    else
        h->unconsumed -= n;
    return h->closed ? NSBX_WIRE_STOP : 0;
}

static int on_data_end(void *ud)
{
    (void)ud;
    return 0;
}

static void pause_if_full(struct host *h)
{
    if (h->paused || h->unconsumed <= NSBX_CHANNEL_WINDOW)
        return;
    h->paused = true;
    nsbx_stream_read_stop(h->stream);
    nsbx_timer_stop(h->timer); /* it is the reader who is slow now */
}

static void host_hold(struct nsbx_channel *ch, size_t n)
{
    struct host *h = host_of(ch);
    h->unconsumed += n;
    if (h->phase == SENDING || h->phase == READING)
        pause_if_full(h);
}

static void host_consumed(struct nsbx_channel *ch, size_t n)
{
    struct host *h = host_of(ch);
    h->unconsumed -= NSBX_MIN(n, h->unconsumed);
    if (!h->paused || h->unconsumed > NSBX_CHANNEL_WINDOW / 2 || h->phase == OVER)
        return;
    h->paused = false;
    nsbx_stream_read_start(h->stream);
    start_idle(h);
}

static void read_reply(struct host *h, const uint8_t *bytes, size_t n)
{
    struct nsbx_err err;
    size_t used = 0;
    h->last_byte = nsbx_loop_now_ms(h->loop);
    if (h->phase != CLOSING) {
        int rc = nsbx_inbox_feed(&h->inbox, bytes, n, &used, &err);
        if (h->closed)
            return;
        if (rc < 0) {
            nsbx_err_wrap(&err, "the guest's answer to %s", h->ch.row->name);
            fail(h, &err);
            return;
        }
    }
    if (h->phase == CLOSING && used < n) {
        nsbx_err_set(&err, NSBX_E_PROTOCOL, "the guest sent %zu bytes more after its complete answer to %s",
                     n - used, h->ch.row->name);
        fail(h, &err);
        return;
    }
    if (h->phase != CLOSING)
        pause_if_full(h);
}

static void on_read(void *ud, const uint8_t *bytes, size_t n)
{
    struct host *h = ud;
    enter(h);
    read_reply(h, bytes, n);
    leave(h);
}

static void on_eof(void *ud)
{
    struct host *h = ud;
    struct nsbx_err err;
    enter(h);
    bool border = nsbx_wire_at_border(&h->inbox.reader);
    if (h->phase == CLOSING || (h->ch.row->shape == NSBX_SHAPE_DUPLEX && h->replied && border)) {
        finish(h);
    } else {
        nsbx_err_set(&err, NSBX_E_STREAM_LOST, "the guest ended the connection %s of %s",
                     h->replied || !border ? "in the middle" : "before the answer", h->ch.row->name);
        fail(h, &err);
    }
    leave(h);
}

static void on_error(void *ud, const struct nsbx_err *why)
{
    struct host *h = ud;
    struct nsbx_err err = *why;
    enter(h);
    if (h->phase == CLOSING) {
        finish(h);
    } else {
        err.code = NSBX_E_STREAM_LOST;
        nsbx_err_wrap(&err, "the connection broke during %s", h->ch.row->name);
        fail(h, &err);
    }
    leave(h);
}

/* ---- sending ---- */

static int emit(void *ud, const uint8_t *bytes, size_t n, struct nsbx_err *err)
{
    struct host *h = ud;
    switch (h->phase) {
    case DIALLING:
    case SENDING:
        return nsbx_buf_append(&h->pending, bytes, n, err);
    case READING:
        return nsbx_stream_write(h->stream, bytes, n, err);
    case CLOSING:
    case OVER:
        break;
    }
    return nsbx_err_set(err, NSBX_E_STREAM_LOST, "%s is over, nothing can be sent to it", h->ch.row->name);
}

static void tell_drain(struct host *h)
{
    if (h->ch.events->on_drain)
        h->ch.events->on_drain(h->ch.ud);
}

static void envelope_is_out(struct host *h, struct nsbx_err *err)
{
    h->phase = READING;
    nsbx_envelope_free(&h->envelope);
    bool waited = h->pending.len > 0;
    /* A failed write is told by on_error, after what the guest may have said. */
    if (waited && nsbx_stream_write(h->stream, nsbx_buf_data(&h->pending), h->pending.len, err) == -NSBX_E_LIMIT) {
        fail(h, err);
        return;
    }
    nsbx_buf_free(&h->pending);
    nsbx_buf_free(&h->scratch);
    if (waited && nsbx_stream_queued(h->stream) == 0)
        tell_drain(h);
}

static void send_envelope(struct host *h);

static void on_more(struct nsbx_defer *d)
{
    struct host *h = nsbx_container_of(d, struct host, more);
    enter(h);
    send_envelope(h);
    leave(h);
}

/* One piece at a time, and the next when the socket took it: nothing is encoded long before it can be sent. */
static void send_envelope(struct host *h)
{
    struct nsbx_err err;
    if (h->phase != SENDING || nsbx_stream_queued(h->stream))
        return;
    int rc = nsbx_envelope_next(&h->envelope, &h->scratch, &err);
    if (rc == 0)
        rc = nsbx_stream_write(h->stream, nsbx_buf_data(&h->scratch), h->scratch.len, &err);
    nsbx_wire_scratch_reset(&h->scratch);
    if (rc == -NSBX_E_STREAM_LOST)
        return; /* on_error follows, after what the guest may have said */
    if (rc)
        fail(h, &err);
    else if (h->envelope.done)
        envelope_is_out(h, &err);
    else if (!nsbx_stream_queued(h->stream))
        nsbx_loop_defer(h->loop, &h->more, on_more);
}

static void on_drain(void *ud)
{
    struct host *h = ud;
    enter(h);
    h->last_byte = nsbx_loop_now_ms(h->loop);
    if (h->phase == SENDING)
        send_envelope(h);
    else if (h->phase == READING)
        tell_drain(h);
    leave(h);
}

static int may_talk(struct host *h, struct nsbx_err *err)
{
    if (h->talks && !h->ended)
        return 0;
    return nsbx_err_set(err, NSBX_E_INVALID, "%s takes %s", h->ch.row->name,
                        h->ended ? "nothing after the end" : "nothing after its request");
}

static int host_send(struct nsbx_channel *ch, json_t *message, struct nsbx_err *err)
{
    struct host *h = host_of(ch);
    int rc = may_talk(h, err);
    return rc ? rc : nsbx_wire_write_message(&h->writer, message, err);
}

static int host_data(struct nsbx_channel *ch, enum nsbx_sub sub, const uint8_t *bytes, size_t n, int64_t offset,
                     struct nsbx_err *err)
{
    struct host *h = host_of(ch);
    int rc = may_talk(h, err);
    return rc ? rc : nsbx_wire_write_data(&h->writer, sub, bytes, n, offset, err);
}

static int host_end(struct nsbx_channel *ch, struct nsbx_err *err)
{
    struct host *h = host_of(ch);
    if (!h->talks || h->ended)
        return 0;
    h->ended = true;
    int rc = nsbx_wire_write_flush(&h->writer, err);
    return rc ? rc : nsbx_wire_write_end(&h->writer, err);
}

static size_t host_room(const struct nsbx_channel *ch)
{
    const struct host *h = host_of_const(ch);
    if (h->phase == CLOSING || h->phase == OVER)
        return 0;
    size_t queued = h->phase == READING ? nsbx_stream_queued(h->stream) : h->pending.len;
    return queued < NSBX_CHANNEL_WINDOW ? NSBX_CHANNEL_WINDOW - queued : 0;
}

/* ---- dialling ---- */

static void on_unreachable(void *ud, const struct nsbx_err *err)
{
    struct host *h = ud;
    enter(h);
    fail(h, err);
    leave(h);
}

static void on_connected(void *ud, struct nsbx_stream *stream)
{
    static const struct nsbx_stream_events events = {
        .on_read = on_read,
        .on_eof = on_eof,
        .on_error = on_error,
        .on_drain = on_drain,
    };
    struct host *h = ud;
    enter(h);
    h->stream = stream;
    h->phase = SENDING;
    nsbx_stream_set_events(stream, &events, h);
    nsbx_stream_read_start(stream);
    start_idle(h);
    send_envelope(h);
    leave(h);
}

static void on_timer(void *ud)
{
    struct host *h = ud;
    enter(h);
    switch (h->phase) {
    case SENDING:
    case READING:
        check_idle(h);
        break;
    case CLOSING:
        finish(h);
        break;
    case DIALLING:
    case OVER:
        break;
    }
    leave(h);
}

/* ---- opening ---- */

static const struct nsbx_channel_vtable host_vtable = {
    .send = host_send,
    .data = host_data,
    .end = host_end,
    .room = host_room,
    .consumed = host_consumed,
    .hold = host_hold,
    .close = host_close,
};

static const struct nsbx_inbox_events inbox_events = {
    .on_header = on_header,
    .on_terminator = on_terminator,
    .on_message = on_message,
    .on_data = on_data,
    .on_data_end = on_data_end,
};

static bool may_follow(const struct nsbx_op_row *row, const struct nsbx_single_request *request)
{
    if (row->shape == NSBX_SHAPE_DUPLEX)
        return true;
    if (row->to_guest == NSBX_DATA_NONE || request->large)
        return false;
    return !row->to_guest_if || json_is_true(json_object_get(request->body, row->to_guest_if));
}

static int prepare(struct host *h, const struct nsbx_op_row *row, const struct nsbx_single_request *request,
                   struct nsbx_err *err)
{
    nsbx_buf_init(&h->scratch, NSBX_STREAM_QUEUE);
    nsbx_buf_init(&h->pending, NSBX_STREAM_QUEUE);
    nsbx_wire_writer_init(&h->writer, nsbx_wire_form(row->to_guest), false, &h->scratch, emit, h);
    h->talks = may_follow(row, request);
    h->idle_ms = request->idle_ms;
    h->dialler.loop = h->loop;
    h->dialler.permanent = request->permanent;
    h->dialler.budget_ms = request->dial_budget_ms;
    h->dialler.connected = on_connected;
    h->dialler.gave_up = on_unreachable;
    h->dialler.ud = h;
    int rc = nsbx_envelope_init(&h->envelope, row, request, err);
    if (rc == 0)
        rc = nsbx_inbox_init(&h->inbox, nsbx_wire_form(row->to_host), row->reply_large, request->data_base64,
                             &inbox_events, h, err);
    if (rc)
        return rc;
    h->inbox.strict = request->data_strict;
    h->timer = nsbx_timer_new(h->loop, on_timer, h);
    return h->timer ? nsbx_dialler_start(&h->dialler, err) : nsbx_err_nomem(err, "a channel");
}

struct nsbx_channel *nsbx_single_open(struct nsbx_loop *loop, nsbx_dial_fn *dial, void *dial_ud,
                                      const struct nsbx_single_request *request,
                                      const struct nsbx_channel_events *events, void *ud, struct nsbx_err *err)
{
    const struct nsbx_op_row *row = nsbx_op_row(request->op);
    if (!row) {
        nsbx_err_set(err, NSBX_E_INVALID, "there is no operation %s", request->op);
        return NULL;
    }
    struct host *h = nsbx_calloc(1, sizeof(*h));
    if (!h) {
        nsbx_err_nomem(err, "a channel");
        return NULL;
    }
    h->ch = (struct nsbx_channel){.vtable = &host_vtable, .row = row, .events = events, .ud = ud};
    h->loop = loop;
    h->phase = DIALLING;
    h->dialler.dial = dial;
    h->dialler.dial_ud = dial_ud;
    if (prepare(h, row, request, err) != 0) {
        destroy(h);
        return NULL;
    }
    return &h->ch;
}
