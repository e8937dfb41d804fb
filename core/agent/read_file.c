/* The operation read-file: a whole file or a bounded range in one reply. As base64 it passes through in flat memory; as text it is
 * held whole, and so has a limit. What takes long is done on the pool. */
#include "base/alloc.h"
#include "base/log.h"
#include "codec/utf8.h"
#include "source.h"
#include "task.h"

#include <string.h>

struct read_file {
    struct nsbx_task task;
    struct nsbx_source source;
    struct nsbx_range range;
    bool base64;
    uint64_t range_max;
    int64_t length, got;   /* of the part that is asked for, and what of it was read */
    struct nsbx_buf chars; /* a piece, decoded */
    struct nsbx_buf text;  /* as text: all of it that is still to be sent, escaped */
    struct nsbx_utf8 decoder;
    bool sending; /* text */
    uint8_t *piece;
    ssize_t piece_len; /* -1: the fault */
    struct nsbx_fault fault;
};

static struct read_file *of(struct nsbx_task *task)
{
    return nsbx_container_of(task, struct read_file, task);
}

static void end(struct nsbx_task *task)
{
    struct read_file *r = of(task);
    nsbx_source_close(&r->source);
    nsbx_buf_free(&r->chars);
    nsbx_buf_free(&r->text);
    nsbx_free(r->piece);
    nsbx_free(r);
}

/* The reply; its content travels as data. */
static json_t *reply(const struct read_file *r)
{
    json_t *message = json_pack("{s:b, s:s}", "ok", 1, "guestBootId", r->task.agent->boot_id);
    bool bad = json_object_set_new(message, "sizeBytes", json_integer(r->source.size)) != 0;
    bad = bad || json_object_set_new(message, "encoding", json_string(r->base64 ? "base64" : "utf8")) != 0;
    if (r->range.given) {
        bad = bad || json_object_set_new(message, "offset", json_integer(r->range.offset)) != 0;
        bad = bad || json_object_set_new(message, "bytesRead", json_integer(r->length)) != 0;
    }
    if (bad) {
        json_decref(message);
        return NULL;
    }
    return message;
}

static void read_piece(struct nsbx_task *task)
{
    struct read_file *r = of(task);
    size_t n = (size_t)NSBX_MIN((int64_t)NSBX_FILE_CHUNK, r->length - r->got);
    r->piece_len = nsbx_source_read(&r->source, r->piece, n, r->range.offset + r->got, &r->fault);
}

/* ---- base64: the reply is begun, its content follows ---- */

static void piece_read(struct nsbx_task *task);

static void go_on(struct read_file *r)
{
    if (r->got < r->length) {
        if (!r->task.busy && nsbx_channel_room(r->task.ch) > 0)
            nsbx_task_step(&r->task, read_piece, piece_read);
        return;
    }
    struct nsbx_err err = {0};
    if (nsbx_channel_end(r->task.ch, &err) != 0)
        nsbx_log(NSBX_LOG_DEBUG, "read-file: %s", err.message);
    nsbx_task_stop(&r->task);
}

/* What was announced can not be taken back: a file that shrank breaks the conversation. */
static void piece_read(struct nsbx_task *task)
{
    struct read_file *r = of(task);
    struct nsbx_err err = {0};
    if (r->piece_len <= 0) {
        nsbx_log(NSBX_LOG_WARN, "read-file: %s",
                 r->piece_len < 0 ? r->fault.text : "the file shrank while it was read");
        nsbx_task_stop(task);
        return;
    }
    if (nsbx_channel_data(task->ch, NSBX_SUB_MAIN, r->piece, (size_t)r->piece_len, -1, &err) != 0) {
        nsbx_log(NSBX_LOG_DEBUG, "read-file: %s", err.message);
        nsbx_task_stop(task);
        return;
    }
    r->got += r->piece_len;
    go_on(r);
}

static void begin_base64(struct read_file *r)
{
    struct nsbx_err err = {0};
    if (r->length > NSBX_READ_WHOLE) {
        nsbx_fault_set(&r->fault,
                       "read_file_too_large: %lld bytes in one reply, limit %u; ask for read-file-stream",
                       (long long)r->length, NSBX_READ_WHOLE);
        nsbx_task_refuse(&r->task, &r->fault);
        return;
    }
    if (nsbx_channel_send_large(r->task.ch, reply(r), NSBX_LARGE_BASE64, (uint64_t)r->length, &err) != 0) {
        nsbx_log(NSBX_LOG_DEBUG, "read-file: %s", err.message);
        nsbx_task_stop(&r->task);
        return;
    }
    go_on(r);
}

/* ---- text: made whole on the pool, because its length is known only then, and sent as the host takes it ---- */

static int escape_piece(struct read_file *r, size_t n, struct nsbx_err *err)
{
    int rc =
        n ? nsbx_utf8_feed(&r->decoder, r->piece, n, &r->chars, err) : nsbx_utf8_flush(&r->decoder, &r->chars, err);
    if (rc == 0 && r->chars.len)
        rc = nsbx_json_escape(&r->text, nsbx_buf_data(&r->chars), r->chars.len, err);
    r->chars.head = r->chars.len = 0;
    return rc;
}

static void read_text(struct nsbx_task *task)
{
    struct read_file *r = of(task);
    struct nsbx_err err = {0};
    read_piece(task);
    if (r->piece_len < 0)
        return;
    r->got += r->piece_len;
    bool last = r->piece_len == 0 || r->got == r->length;
    int rc = r->piece_len ? escape_piece(r, (size_t)r->piece_len, &err) : 0;
    if (rc == 0 && last)
        rc = escape_piece(r, 0, &err);
    if (rc) {
        nsbx_fault_set(&r->fault, "read_file_too_large: %s", err.message);
        r->piece_len = -1;
    } else if (last) {
        r->length = r->got; /* what was read is what there is */
    }
}

static void send_text(struct read_file *r)
{
    struct nsbx_err err = {0};
    int rc = 0;
    while (rc == 0 && r->text.len && nsbx_channel_room(r->task.ch) > 0) {
        size_t n = NSBX_MIN(r->text.len, (size_t)NSBX_FILE_CHUNK);
        rc = nsbx_channel_data(r->task.ch, NSBX_SUB_MAIN, nsbx_buf_data(&r->text), n, -1, &err);
        nsbx_buf_consume(&r->text, n);
    }
    if (rc == 0 && r->text.len)
        return; /* on_drain goes on */
    if (rc == 0)
        rc = nsbx_channel_end(r->task.ch, &err);
    if (rc)
        nsbx_log(NSBX_LOG_DEBUG, "read-file: %s", err.message);
    nsbx_task_stop(&r->task);
}

static void text_read(struct nsbx_task *task)
{
    struct read_file *r = of(task);
    struct nsbx_err err = {0};
    if (r->piece_len < 0) {
        nsbx_task_refuse(task, &r->fault);
        return;
    }
    if (r->got < r->length) {
        nsbx_task_step(task, read_text, text_read);
        return;
    }
    r->source.size = r->got;
    r->sending = true;
    if (nsbx_channel_send_large(task->ch, reply(r), NSBX_LARGE_ESCAPED, r->text.len, &err) != 0) {
        nsbx_log(NSBX_LOG_DEBUG, "read-file: %s", err.message);
        nsbx_task_stop(task);
        return;
    }
    send_text(r);
}

static void begin_text(struct read_file *r)
{
    if (r->length > NSBX_READ_HELD) {
        nsbx_fault_set(&r->fault,
                       "read_file_too_large: %lld bytes as text, limit %u; ask for base64, or for read-file-stream",
                       (long long)r->length, NSBX_READ_HELD);
        nsbx_task_refuse(&r->task, &r->fault);
        return;
    }
    nsbx_utf8_init(&r->decoder);
    nsbx_buf_init(&r->chars, 3 * ((size_t)NSBX_FILE_CHUNK + 4)); /* U+FFFD has three bytes, */
    nsbx_buf_init(&r->text, 6 * (size_t)NSBX_READ_HELD);         /* an escaped control character six */
    nsbx_task_step(&r->task, read_text, text_read);
}

/* ---- both ---- */

static void open_source(struct nsbx_task *task)
{
    struct read_file *r = of(task);
    r->piece_len = nsbx_source_open(&r->source, "read_file_not_a_regular_file", true, &r->fault);
}

static void source_open(struct nsbx_task *task)
{
    struct read_file *r = of(task);
    int rc = r->piece_len < 0 ? -1 : 0;
    if (rc == 0 && r->range.given) {
        /* The wish is judged, not what the file has of it. */
        int64_t rest = r->source.size > r->range.offset ? r->source.size - r->range.offset : 0;
        int64_t wish = r->range.length < 0 ? rest : r->range.length;
        if ((uint64_t)wish > r->range_max)
            rc = nsbx_fault_set(
                &r->fault,
                "read_file_range_too_large: %lld bytes requested, limit %llu (NAMZU_AGENT_READ_FILE_RANGE_BYTES). "
                "Ask for less, or for read-file-stream",
                (long long)wish, (unsigned long long)r->range_max);
    }
    if (rc) {
        nsbx_task_refuse(task, &r->fault);
        return;
    }
    r->length = nsbx_range_clip(&r->range, r->source.size);
    if (r->base64)
        begin_base64(r);
    else
        begin_text(r);
}

static void on_drain(void *ud)
{
    struct read_file *r = of(ud);
    if (r->task.busy)
        return;
    if (r->base64)
        go_on(r);
    else if (r->sending)
        send_text(r);
}

static const struct nsbx_channel_events events = {
    .on_data = nsbx_task_ignore_data,
    .on_fail = nsbx_task_lost,
    .on_drain = on_drain,
};

static int check(struct read_file *r, struct nsbx_agent *agent, const json_t *body)
{
    if (nsbx_source_locate(&r->source, agent->jail, body, &r->fault) != 0)
        return -1;
    const char *encoding = json_string_value(json_object_get(body, "encoding"));
    r->base64 = encoding && strcmp(encoding, "base64") == 0;
    if (!r->base64 && (json_object_get(body, "offset") || json_object_get(body, "length")))
        return nsbx_fault_set(&r->fault,
                              "read_file_range_requires_base64: a range of bytes has no meaning in decoded text");
    r->range_max = agent->config->read_range;
    r->piece = nsbx_malloc(NSBX_FILE_CHUNK);
    if (!r->piece)
        return nsbx_fault_set(&r->fault, "no memory");
    return nsbx_range_read(&r->range, body, &r->fault);
}

static void open_read_file(struct nsbx_agent *agent, struct nsbx_channel *ch, json_t *body)
{
    struct read_file *r = nsbx_calloc(1, sizeof *r);
    if (!r) {
        nsbx_agent_refuse_text(ch, "no memory");
        return;
    }
    nsbx_task_begin(&r->task, agent, ch, &events, end);
    if (check(r, agent, body) != 0)
        nsbx_task_refuse(&r->task, &r->fault);
    else
        nsbx_task_step(&r->task, open_source, source_open);
}

const struct nsbx_agent_op nsbx_agent_op_read_file = {"read-file", open_read_file};
