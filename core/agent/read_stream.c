/* The operation read-file-stream: a file, or a part of it, of any size in flat memory. */
#include "base/alloc.h"
#include "base/log.h"
#include "source.h"
#include "task.h"

struct read_stream {
    struct nsbx_task task;
    struct nsbx_source source;
    struct nsbx_range range;
    int64_t length, sent; /* announced, and handed on */
    uint8_t *piece;
    size_t piece_max;
    ssize_t piece_len; /* -1: the fault */
    struct nsbx_fault fault;
};

static struct read_stream *of(struct nsbx_task *task)
{
    return nsbx_container_of(task, struct read_stream, task);
}

static void end(struct nsbx_task *task)
{
    struct read_stream *r = of(task);
    nsbx_source_close(&r->source);
    nsbx_free(r->piece);
    nsbx_free(r);
}

static void read_piece(struct nsbx_task *task)
{
    struct read_stream *r = of(task);
    size_t n = (size_t)NSBX_MIN((int64_t)r->piece_max, r->length - r->sent);
    r->piece_len = nsbx_source_read(&r->source, r->piece, n, r->range.offset + r->sent, &r->fault);
}

static void piece_read(struct nsbx_task *task);

/* The next piece is read when the host has taken enough of the last one. */
static void go_on(struct read_stream *r)
{
    if (r->sent < r->length) {
        if (!r->task.busy && nsbx_channel_room(r->task.ch) > 0)
            nsbx_task_step(&r->task, read_piece, piece_read);
    } else {
        nsbx_task_answer(&r->task, json_pack("{s:s, s:I}", "type", "end", "bytesSent", (json_int_t)r->sent));
    }
}

static void piece_read(struct nsbx_task *task)
{
    struct read_stream *r = of(task);
    struct nsbx_err err = {0};
    if (r->piece_len < 0) {
        nsbx_task_refuse(task, &r->fault);
        return;
    }
    if (r->piece_len == 0)
        r->length = r->sent; /* the file shrank: the end says truthfully how much there was */
    if (nsbx_channel_data(task->ch, NSBX_SUB_MAIN, r->piece, (size_t)r->piece_len, -1, &err) != 0) {
        nsbx_log(NSBX_LOG_DEBUG, "read-file-stream: %s", err.message);
        nsbx_task_stop(task);
        return;
    }
    r->sent += r->piece_len;
    go_on(r);
}

static void open_source(struct nsbx_task *task)
{
    struct read_stream *r = of(task);
    r->piece_len = nsbx_source_open(&r->source, "read_file_stream_not_a_regular_file", false, &r->fault);
}

static void source_open(struct nsbx_task *task)
{
    struct read_stream *r = of(task);
    struct nsbx_err err = {0};
    if (r->piece_len < 0) {
        nsbx_task_refuse(task, &r->fault);
        return;
    }
    r->length = nsbx_range_clip(&r->range, r->source.size);
    if (nsbx_channel_send(task->ch,
                          json_pack("{s:s, s:I, s:I, s:I}", "type", "meta", "sizeBytes", (json_int_t)r->source.size,
                                    "offset", (json_int_t)r->range.offset, "length", (json_int_t)r->length),
                          &err) != 0) {
        nsbx_log(NSBX_LOG_DEBUG, "read-file-stream: %s", err.message);
        nsbx_task_stop(task);
        return;
    }
    go_on(r);
}

static void on_drain(void *ud)
{
    struct read_stream *r = of(ud);
    if (!r->task.busy)
        go_on(r);
}

static const struct nsbx_channel_events events = {
    .on_data = nsbx_task_ignore_data,
    .on_fail = nsbx_task_lost,
    .on_drain = on_drain,
};

static void open_read_stream(struct nsbx_agent *agent, struct nsbx_channel *ch, json_t *body)
{
    struct read_stream *r = nsbx_calloc(1, sizeof *r);
    if (!r) {
        nsbx_agent_refuse_text(ch, "no memory");
        return;
    }
    r->piece_max = (size_t)NSBX_MIN(agent->config->read_chunk, NSBX_WORK_CHUNK);
    r->piece = nsbx_malloc(r->piece_max);
    nsbx_task_begin(&r->task, agent, ch, &events, end);
    int rc = r->piece ? 0 : nsbx_fault_set(&r->fault, "no memory");
    if (rc == 0)
        rc = nsbx_source_locate(&r->source, agent->jail, body, &r->fault);
    else
        r->source.fd = -1;
    if (rc == 0)
        rc = nsbx_range_read(&r->range, body, &r->fault);
    if (rc)
        nsbx_task_refuse(&r->task, &r->fault);
    else
        nsbx_task_step(&r->task, open_source, source_open);
}

const struct nsbx_agent_op nsbx_agent_op_read_stream = {"read-file-stream", open_read_stream};
