/* The guest's channel: an operation under way on its connection. */
#include "single_priv.h"

#include "base/limits.h"
#include "base/util.h"

#include <string.h>

static struct nsbx_conn *conn_of(struct nsbx_channel *ch)
{
    return (struct nsbx_conn *)ch;
}

static const char *name_of(const struct nsbx_conn *c)
{
    return c->ch.row->name;
}

/* ---- to the operation ---- */

static void tell_end(struct nsbx_conn *c)
{
    if (c->told_end || c->told_fail || !c->held)
        return;
    c->told_end = true;
    if (c->ch.events && c->ch.events->on_end)
        c->ch.events->on_end(c->ch.ud);
}

void nsbx_conn_tell_fail(struct nsbx_conn *c, const struct nsbx_err *err)
{
    if (!c->held || c->told_fail)
        return;
    c->told_fail = true;
    if (c->ch.events && c->ch.events->on_fail)
        c->ch.events->on_fail(c->ch.ud, err);
}

static void tell_data(struct nsbx_conn *c, enum nsbx_sub sub, const uint8_t *bytes, size_t n, int64_t offset)
{
    if (n == 0 || !c->held)
        return;
    if (!c->ch.events || !c->ch.events->on_data)
        return;
    c->unconsumed += n;
    c->ch.events->on_data(c->ch.ud, sub, bytes, n, offset);
}

static bool window_full(const struct nsbx_conn *c)
{
    return c->unconsumed > NSBX_CHANNEL_WINDOW;
}

/* ---- the large member ---- */

/* True when there may be more at once. */
static bool replay_piece(struct nsbx_conn *c)
{
    struct nsbx_buf *room = &c->server->decoded;
    struct nsbx_err err;
    size_t n;
    const uint8_t *bytes = nsbx_spool_read(c->spool, &n);
    if (!bytes) {
        if (nsbx_spool_err(c->spool))
            nsbx_conn_break(c, nsbx_spool_err(c->spool));
        return false;
    }
    if (!c->spool_base64) {
        tell_data(c, NSBX_SUB_MAIN, bytes, n, -1);
        return true;
    }
    uint8_t *into = nsbx_buf_reserve(room, n / 4 * 3 + 3, &err);
    if (!into) {
        nsbx_conn_break(c, &err);
        return false;
    }
    n = nsbx_base64_decode(&c->decoder, into, bytes, n);
    tell_data(c, NSBX_SUB_MAIN, into, n, -1);
    return true;
}

static void end_replay(struct nsbx_conn *c)
{
    uint8_t last[2];
    size_t n = c->spool_base64 ? nsbx_base64_decode_end(&c->decoder, last) : 0;
    nsbx_spool_free(c->spool);
    c->spool = NULL;
    tell_data(c, NSBX_SUB_MAIN, last, n, -1);
}

static void pump(struct nsbx_conn *c)
{
    while (c->spool && c->phase == NSBX_CONN_OPEN && !window_full(c) && replay_piece(c))
        ;
    if (c->spool && c->phase == NSBX_CONN_OPEN && nsbx_spool_at_end(c->spool))
        end_replay(c);
    if (!c->spool && !c->talks && c->phase == NSBX_CONN_OPEN)
        tell_end(c);
}

static void on_pump(struct nsbx_defer *d)
{
    struct nsbx_conn *c = nsbx_container_of(d, struct nsbx_conn, pump);
    nsbx_conn_enter(c);
    pump(c);
    nsbx_conn_leave(c);
}

static void on_step(void *ud)
{
    struct nsbx_conn *c = ud;
    nsbx_conn_enter(c);
    pump(c);
    nsbx_conn_leave(c);
}

/* ---- what the host sends after its request ---- */

static int on_header(void *ud, uint32_t length, struct nsbx_err *err)
{
    const struct nsbx_conn *c = ud;
    size_t max = c->server->config.max_frame;
    if (length <= max)
        return 0;
    return nsbx_err_set(err, NSBX_E_LIMIT,
                        "frame_too_large: announced %u bytes, limit %zu (NAMZU_AGENT_MAX_FRAME_BYTES)", length,
                        max);
}

static int on_terminator(void *ud, struct nsbx_err *err)
{
    (void)ud;
    (void)err;
    return 0; /* no JSON, and so ignored as every malformed message is */
}

static int stop_unless_heard(const struct nsbx_conn *c)
{
    return c->held && !c->told_end && !c->told_fail ? 0 : NSBX_WIRE_STOP;
}

static int on_message(void *ud, json_t *message, struct nsbx_err *err)
{
    struct nsbx_conn *c = ud;
    (void)err;
    if (c->ch.events && c->ch.events->on_message)
        c->ch.events->on_message(c->ch.ud, message);
    return stop_unless_heard(c);
}

static int on_data(void *ud, enum nsbx_sub sub, const uint8_t *bytes, size_t n, int64_t offset)
{
    struct nsbx_conn *c = ud;
    tell_data(c, sub, bytes, n, offset);
    return stop_unless_heard(c);
}

static int on_data_end(void *ud)
{
    struct nsbx_conn *c = ud;
    tell_end(c);
    return NSBX_WIRE_STOP;
}

/* A frame larger than any may be: the host is told, and the operation hears of it as of a loss. */
static void refuse_frame(struct nsbx_conn *c, const struct nsbx_err *err)
{
    json_t *refusal = json_pack("{s:b, s:s}", "ok", 0, "error", err->message);
    int rc = refusal && !c->sent_end ? nsbx_wire_write_message(&c->writer, refusal, NULL) : -NSBX_E_LIMIT;
    json_decref(refusal);
    if (rc == 0)
        rc = nsbx_conn_shutdown(c, NULL);
    if (rc)
        nsbx_conn_break(c, err);
    else
        nsbx_conn_tell_fail(c, err);
}

/* Bytes that nobody waits for are dropped, not kept: reading goes on to see the connection's end. */
void nsbx_conn_read(struct nsbx_conn *c, const uint8_t *bytes, size_t n)
{
    struct nsbx_err err = {0};
    if (!c->talks || stop_unless_heard(c))
        return;
    int rc = nsbx_inbox_feed(&c->inbox, bytes, n, NULL, &err);
    if (rc == -NSBX_E_LIMIT && !err.sys)
        refuse_frame(c, &err);
    else if (rc < 0)
        nsbx_conn_break(c, &err);
    if (c->phase == NSBX_CONN_OPEN && !c->paused && !c->sent_end && window_full(c)) {
        c->paused = true;
        nsbx_stream_read_stop(c->stream);
    }
}

/* ---- to the host ---- */

static int conn_send(struct nsbx_channel *ch, json_t *message, struct nsbx_err *err)
{
    return nsbx_wire_write_message(&conn_of(ch)->writer, message, err);
}

static int put_escaped(struct nsbx_conn *c, struct nsbx_buf *out, const uint8_t *bytes, size_t n,
                       struct nsbx_err *err)
{
    int rc = nsbx_buf_append(out, bytes, n, err);
    return rc || c->owed ? rc : nsbx_buf_append(out, "\"}", 2, err);
}

/* Base64 letters can be joined only at multiples of three bytes: up to two wait for the next piece. */
static int put_base64(struct nsbx_conn *c, struct nsbx_buf *out, const uint8_t *bytes, size_t n,
                      struct nsbx_err *err)
{
    uint8_t *room = nsbx_buf_reserve(out, nsbx_base64_len(n + c->carried) + 2, err);
    if (!room)
        return -NSBX_E_LIMIT;
    size_t len = 0;
    while (c->carried && c->carried < 3 && n) {
        c->carry[c->carried++] = *bytes++;
        n--;
    }
    if (c->carried == 3) {
        len += nsbx_base64_encode((char *)room, c->carry, 3);
        c->carried = 0;
    }
    size_t whole = c->carried ? 0 : n - n % 3;
    len += nsbx_base64_encode((char *)room + len, bytes, whole);
    for (size_t i = whole; i < n; i++)
        c->carry[c->carried++] = bytes[i];
    if (!c->owed) {
        len += nsbx_base64_encode((char *)room + len, c->carry, c->carried);
        c->carried = 0;
        room[len++] = '"';
        room[len++] = '}';
    }
    nsbx_buf_commit(out, len);
    return 0;
}

static int large_piece(struct nsbx_conn *c, const uint8_t *bytes, size_t n, struct nsbx_err *err)
{
    struct nsbx_buf *out = &c->server->scratch;
    c->owed -= n;
    int rc = c->large_escaped ? put_escaped(c, out, bytes, n, err) : put_base64(c, out, bytes, n, err);
    if (rc == 0)
        rc = nsbx_conn_emit(c, nsbx_buf_data(out), out->len, err);
    nsbx_wire_scratch_reset(out);
    return rc;
}

static int large_data(struct nsbx_conn *c, const uint8_t *bytes, size_t n, struct nsbx_err *err)
{
    if (n > c->owed)
        return nsbx_err_set(err, NSBX_E_INVALID, "the reply to %s promised %zu bytes fewer", name_of(c),
                            (size_t)(n - c->owed));
    int rc = 0;
    while (rc == 0 && n) {
        size_t piece = NSBX_MIN(n, (size_t)NSBX_FILE_CHUNK);
        rc = large_piece(c, bytes, piece, err);
        bytes += piece;
        n -= piece;
    }
    return rc;
}

static int conn_send_large(struct nsbx_channel *ch, json_t *message, enum nsbx_large_form form, uint64_t n,
                           struct nsbx_err *err)
{
    struct nsbx_conn *c = conn_of(ch);
    struct nsbx_buf *out = &c->server->scratch;
    uint64_t letters = form == NSBX_LARGE_ESCAPED ? n : nsbx_base64_len((size_t)n);
    if (!ch->row->reply_large || c->large_reply || !json_object_size(message))
        return nsbx_err_set(err, NSBX_E_INVALID, "%s has no large reply", name_of(c));
    int rc = nsbx_wire_put_message(out, message, err);
    if (rc == 0) {
        out->len--; /* its closing brace */
        rc = nsbx_buf_printf(out, err, ",\"%s\":\"", ch->row->reply_large);
    }
    uint64_t total = out->len - NSBX_FRAME_HEADER + letters + 2;
    if (rc == 0 && total > NSBX_MAX_REPLY_FRAME)
        rc = nsbx_err_set(err, NSBX_E_LIMIT, "a reply of %llu bytes is more than a host takes (%u)",
                          (unsigned long long)total, NSBX_MAX_REPLY_FRAME);
    if (rc == 0) {
        nsbx_frame_header(nsbx_buf_data(out), (uint32_t)total);
        rc = nsbx_conn_emit(c, nsbx_buf_data(out), out->len, err);
    }
    nsbx_wire_scratch_reset(out);
    if (rc)
        return rc;
    c->large_reply = true;
    c->large_escaped = form == NSBX_LARGE_ESCAPED;
    c->owed = n;
    return n ? 0 : large_piece(c, NULL, 0, err);
}

static int conn_data(struct nsbx_channel *ch, enum nsbx_sub sub, const uint8_t *bytes, size_t n, int64_t offset,
                     struct nsbx_err *err)
{
    struct nsbx_conn *c = conn_of(ch);
    if (c->large_reply)
        return large_data(c, bytes, n, err);
    return nsbx_wire_write_data(&c->writer, sub, bytes, n, offset, err);
}

static int conn_end(struct nsbx_channel *ch, struct nsbx_err *err)
{
    struct nsbx_conn *c = conn_of(ch);
    if (c->sent_end)
        return 0;
    if (c->owed)
        return nsbx_err_set(err, NSBX_E_INVALID, "the reply to %s still owes %llu bytes", name_of(c),
                            (unsigned long long)c->owed);
    int rc = nsbx_wire_write_flush(&c->writer, err);
    if (rc == 0)
        rc = nsbx_wire_write_end(&c->writer, err);
    if (rc == 0 && ch->row->shape == NSBX_SHAPE_STREAM && !c->refused) {
        uint8_t terminator[NSBX_FRAME_HEADER];
        nsbx_frame_header(terminator, 0);
        rc = nsbx_conn_emit(c, terminator, sizeof(terminator), err);
    }
    return rc ? rc : nsbx_conn_shutdown(c, err);
}

static int conn_refuse(struct nsbx_channel *ch, json_t *message, struct nsbx_err *err)
{
    struct nsbx_conn *c = conn_of(ch);
    int rc = conn_send(ch, message, err);
    c->refused = true;
    return rc ? rc : conn_end(ch, err);
}

static size_t conn_room(const struct nsbx_channel *ch)
{
    const struct nsbx_conn *c = (const struct nsbx_conn *)ch;
    size_t queued = c->stream ? nsbx_conn_queued(c) : NSBX_CHANNEL_WINDOW;
    return queued < NSBX_CHANNEL_WINDOW && !c->sent_end ? NSBX_CHANNEL_WINDOW - queued : 0;
}

static void conn_consumed(struct nsbx_channel *ch, size_t n)
{
    struct nsbx_conn *c = conn_of(ch);
    bool was_full = window_full(c);
    c->unconsumed -= NSBX_MIN(n, c->unconsumed);
    if (c->phase != NSBX_CONN_OPEN)
        return;
    if (c->spool && was_full && !window_full(c))
        nsbx_loop_defer(c->server->loop, &c->pump, on_pump);
    if (c->paused && c->unconsumed <= NSBX_CHANNEL_WINDOW / 2) {
        c->paused = false;
        nsbx_stream_read_start(c->stream);
    }
}

static void conn_hold(struct nsbx_channel *ch, size_t n)
{
    conn_of(ch)->unconsumed += n; /* looked at when what is being read now has been dealt with */
}

static void conn_close(struct nsbx_channel *ch)
{
    struct nsbx_conn *c = conn_of(ch);
    nsbx_conn_enter(c);
    c->held = false;
    if (c->phase == NSBX_CONN_OPEN && c->sent_end)
        nsbx_conn_linger(c);
    else
        nsbx_conn_break(c, NULL);
    nsbx_conn_leave(c);
}

static const struct nsbx_channel_vtable vtable = {
    .send = conn_send,
    .data = conn_data,
    .end = conn_end,
    .room = conn_room,
    .consumed = conn_consumed,
    .hold = conn_hold,
    .close = conn_close,
    .refuse = conn_refuse,
    .send_large = conn_send_large,
};

/* ---- opening ---- */

static bool asks(const json_t *body, const char *member, const char *value)
{
    const char *text = json_string_value(json_object_get(body, member));
    return text && strcmp(text, value) == 0;
}

static bool may_follow(const struct nsbx_op_row *row, const json_t *body, const struct nsbx_spool *spool)
{
    if (row->shape == NSBX_SHAPE_DUPLEX)
        return true;
    if (row->to_guest == NSBX_DATA_NONE || spool)
        return false;
    return !row->to_guest_if || json_is_true(json_object_get(body, row->to_guest_if));
}

void nsbx_conn_close_parts(struct nsbx_conn *c)
{
    nsbx_defer_cancel(&c->pump);
    nsbx_spool_free(c->spool);
    c->spool = NULL;
    nsbx_inbox_free(&c->inbox);
    nsbx_wire_writer_free(&c->writer);
}

int nsbx_conn_open(struct nsbx_conn *c, const struct nsbx_op_row *row, json_t *body, struct nsbx_spool *spool,
                   struct nsbx_err *err)
{
    static const struct nsbx_inbox_events events = {
        .on_header = on_header,
        .on_terminator = on_terminator,
        .on_message = on_message,
        .on_data = on_data,
        .on_data_end = on_data_end,
    };
    bool base64 = asks(body, "encoding", "base64");
    c->spool = spool;
    c->spool_base64 = base64 && row->large_is_encoded;
    nsbx_base64_decoder_init(&c->decoder);
    c->talks = may_follow(row, body, spool);
    if (c->talks) {
        int rc = nsbx_inbox_init(&c->inbox, nsbx_wire_form(row->to_guest), NULL, false, &events, c, err);
        if (rc)
            return rc;
        c->inbox.reader.lenient = true;
    }
    if (spool)
        nsbx_spool_follow(spool, on_step, c);
    nsbx_wire_writer_init(&c->writer, nsbx_wire_form(row->to_host), base64, &c->server->scratch, nsbx_conn_emit, c);
    c->ch.vtable = &vtable;
    c->ch.row = row;
    c->phase = NSBX_CONN_OPEN;
    c->held = true;
    c->server->config.on_open(c->server->config.ud, &c->ch, body);
    if (c->held)
        nsbx_loop_defer(c->server->loop, &c->pump, on_pump);
    return 0;
}
