#include "exec_priv.h"

#include "base/alloc.h"
#include "base/util.h"

#include <errno.h>
#include <string.h>

/* Bytes (or the end) on their way to the command. Whoever waits for them may stop waiting; they are sent all the same,
 * because half a write would leave the command with bytes that nobody can name. */
struct write {
    struct nsbx_list node;
    struct nsbx_op *op; /* NULL: nobody waits */
    bool ends;          /* the end of stdin follows the bytes */
    size_t n, sent;
    uint8_t *bytes;
};

void nsbx_exec_stdin_init(struct nsbx_exec_stdin_queue *in)
{
    nsbx_list_init(&in->writes);
}

static void write_free(struct nsbx_exec *x, struct write *w)
{
    x->in.queued -= w->n - w->sent;
    nsbx_list_remove(&w->node);
    nsbx_op_unref(w->op);
    nsbx_free(w->bytes);
    nsbx_free(w);
}

static void write_finish(struct nsbx_exec *x, struct write *w, const struct nsbx_err *err)
{
    if (w->op)
        nsbx_op_finish(w->op, err);
    write_free(x, w);
}

static void write_stop(struct nsbx_op *op, void *owner, enum nsbx_op_stop why)
{
    (void)why;
    struct write *w = owner;
    w->op = NULL;
    nsbx_op_finish_stopped(op);
    nsbx_op_unref(op);
}

/* Hands on as much as there is room for; true when there is more room after it. */
static bool hand_on(struct nsbx_exec *x, struct write *w, struct nsbx_err *err)
{
    while (w->sent < w->n) {
        size_t n = NSBX_MIN(nsbx_channel_room(x->channel), w->n - w->sent);
        if (n == 0)
            return false;
        if (nsbx_channel_data(x->channel, NSBX_SUB_MAIN, w->bytes + w->sent, n, -1, err) < 0)
            return false;
        w->sent += n;
        x->in.queued -= n;
    }
    if (w->ends)
        return nsbx_channel_end(x->channel, err) == 0;
    return nsbx_channel_room(x->channel) > 0;
}

void nsbx_exec_stdin_pump(struct nsbx_exec *x)
{
    struct nsbx_list *node;
    while (x->channel && x->in.stream && (node = nsbx_list_first(&x->in.writes))) {
        struct write *w = nsbx_container_of(node, struct write, node);
        struct nsbx_err err = {0};
        bool more = hand_on(x, w, &err);
        if (err.code) { /* the channel is broken and says so itself; these bytes can go nowhere */
            nsbx_exec_stdin_drop(x, &err);
            return;
        }
        if (!more)
            return;
        write_finish(x, w, NULL);
    }
}

void nsbx_exec_stdin_drop(struct nsbx_exec *x, const struct nsbx_err *err)
{
    struct nsbx_err ended;
    if (!err) {
        nsbx_err_set(&ended, NSBX_E_IO, "'%s' has ended and reads no more", x->name);
        ended.sys = EPIPE;
        err = &ended;
    }
    x->in.ended = true;
    struct nsbx_list *node;
    while ((node = nsbx_list_first(&x->in.writes))) {
        struct write *w = nsbx_container_of(node, struct write, node);
        write_finish(x, w,
                     w->ends && err == &ended ? NULL : err); /* an end that comes too late has what it wanted */
    }
}

static int refused(const struct nsbx_exec *x, struct nsbx_err *err)
{
    nsbx_err_reason(err, NSBX_E_STREAM_LOST, "stdin_closed", "'%s' has closed its stdin and reads no more",
                    x->name);
    if (err)
        err->sys = EPIPE;
    return -NSBX_E_STREAM_LOST;
}

void nsbx_exec_stdin_closed(struct nsbx_exec *x)
{
    struct nsbx_err err;
    x->in.refused = true;
    refused(x, &err);
    struct nsbx_list *node;
    while ((node = nsbx_list_first(&x->in.writes))) {
        struct write *w = nsbx_container_of(node, struct write, node);
        write_finish(x, w, w->sent < w->n ? &err : NULL); /* its end is what a close has wanted */
    }
}

/* Takes over `bytes`, also without memory (NULL). */
static struct write *enqueue(struct nsbx_exec *x, uint8_t *bytes, size_t n, bool ends)
{
    struct write *w = nsbx_calloc(1, sizeof *w);
    if (!w) {
        nsbx_free(bytes);
        return NULL;
    }
    w->ends = ends;
    w->n = n;
    w->bytes = bytes;
    x->in.queued += n;
    nsbx_list_push(&x->in.writes, &w->node);
    return w;
}

int nsbx_exec_stdin_give(struct nsbx_exec *x, uint8_t *bytes, size_t n, struct nsbx_err *err)
{
    x->in.stream = true;
    x->in.ended = true;
    return enqueue(x, bytes, n, true) ? 0 : nsbx_err_nomem(err, "stdin");
}

/* A reference for the caller, or NULL without memory. */
static struct nsbx_op *add(struct nsbx_exec *x, const char *name, const uint8_t *bytes, size_t n, bool ends,
                           int64_t timeout_ms)
{
    uint8_t *copy = nsbx_malloc(n + 1);
    struct write *w = copy ? enqueue(x, copy, n, ends) : NULL;
    if (!w)
        return NULL;
    if (n)
        memcpy(copy, bytes, n);
    struct nsbx_op_spec spec = {.name = name, .timeout_ms = timeout_ms, .stop = write_stop, .owner = w};
    w->op = nsbx_op_new(x->guest->loop, &spec);
    if (!w->op) {
        write_free(x, w);
        return NULL;
    }
    struct nsbx_op *op = nsbx_op_ref(w->op);
    nsbx_exec_stdin_pump(x);
    return op;
}

static int may_write(const struct nsbx_exec *x, size_t n, struct nsbx_err *err)
{
    if (x->stdin_kind != NSBX_STDIN_STREAM)
        return nsbx_err_set(err, NSBX_E_INVALID, "'%s' was not started with a stdin to write to", x->name);
    if (x->state == NSBX_EXEC_OVER) {
        nsbx_err_set(err, NSBX_E_IO, "'%s' has ended and reads no more", x->name);
        if (err)
            err->sys = EPIPE;
        return -NSBX_E_IO;
    }
    if (x->in.refused)
        return refused(x, err);
    if (x->in.ended)
        return nsbx_err_set(err, NSBX_E_INVALID, "the stdin of '%s' is closed", x->name);
    if (n > NSBX_STREAM_QUEUE - x->in.queued)
        return nsbx_err_set(
            err, NSBX_E_LIMIT,
            "more than %u bytes wait to be read by '%s'; write less at a time and wait for each write",
            NSBX_STREAM_QUEUE, x->name);
    return 0;
}

struct nsbx_op *nsbx_exec_write(struct nsbx_exec *x, const uint8_t *bytes, size_t n, int64_t timeout_ms)
{
    struct nsbx_err err;
    if (may_write(x, n, &err) < 0)
        return nsbx_waits_over(x->guest->loop, "write", &err, NULL);
    return add(x, "write", bytes, n, false, timeout_ms);
}

struct nsbx_op *nsbx_exec_close_stdin(struct nsbx_exec *x)
{
    struct nsbx_err err;
    if (x->stdin_kind == NSBX_STDIN_STREAM && (x->in.ended || x->in.refused || x->state == NSBX_EXEC_OVER))
        return nsbx_waits_over(x->guest->loop, "close_stdin", NULL, NULL);
    if (may_write(x, 0, &err) < 0)
        return nsbx_waits_over(x->guest->loop, "close_stdin", &err, NULL);
    struct nsbx_op *op = add(x, "close_stdin", NULL, 0, true, -1);
    if (op)
        x->in.ended = true;
    return op;
}
