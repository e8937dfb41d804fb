#include "stream.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "stream_priv.h"

#include <string.h>

/* Reads, and writes, of one wake-up: one stream must not starve the others. */
enum { STEPS_PER_WAKE = 4 };

static void update_want(struct nsbx_stream *s)
{
    if (s->in_ready || s->closed)
        return;
    unsigned interest = 0;
    if (!s->failed && s->reading && !s->eof)
        interest |= NSBX_READABLE;
    if (!s->failed && s->queue.len)
        interest |= NSBX_WRITABLE;
    s->vtable->want(s, interest);
}

/* ---- failure ---- */

static enum nsbx_io read_some(struct nsbx_stream *s);

static void tell_drain(struct nsbx_stream *s)
{
    if (s->events && s->events->on_drain)
        s->events->on_drain(s->ud);
}

/* A failed write does not make untrue what the peer sent before: while somebody reads, that is delivered first. A reader who
 * has stopped for a while learns of the failure when he starts again; should he wait for on_drain meanwhile, he gets it. */
static void tell_failure(struct nsbx_defer *d)
{
    struct nsbx_stream *s = nsbx_container_of(d, struct nsbx_stream, later);
    if (s->read_once && !s->eof && !s->read_lost) {
        if (!s->reading) {
            bool owed = s->drain_owed;
            s->drain_owed = false;
            if (owed)
                tell_drain(s);
            return;
        }
        enum nsbx_io io = read_some(s);
        if (s->closed)
            return;
        if (io == NSBX_IO_OK) {
            nsbx_loop_defer(s->object.loop, &s->later, tell_failure);
            return;
        }
    }
    s->told = true;
    if (s->events && s->events->on_error)
        s->events->on_error(s->ud, &s->err);
}

static void fail(struct nsbx_stream *s, const struct nsbx_err *err)
{
    if (s->failed)
        return;
    s->failed = true;
    s->err = *err;
    s->drain_owed = s->queue.len > 0;
    nsbx_buf_free(&s->queue);
    nsbx_loop_defer(s->object.loop, &s->later, tell_failure);
    update_want(s);
}

/* ---- reading ---- */

/* OK: there may be more. Look at s->closed after it. */
static enum nsbx_io read_some(struct nsbx_stream *s)
{
    uint8_t *into = s->object.loop->read_buffer;
    for (int i = 0; i < STEPS_PER_WAKE && s->reading && !s->closed; i++) {
        struct nsbx_err err;
        size_t n = 0;
        enum nsbx_io io = s->vtable->read(s, into, NSBX_STREAM_READ_CHUNK, &n, &err);
        if (io == NSBX_IO_AGAIN)
            return io;
        if (io == NSBX_IO_FAILED) {
            s->read_lost = true;
            fail(s, &err);
            return io;
        }
        if (io == NSBX_IO_EOF) {
            /* After a failed write the kernel may have spent the reset on that write and call the rest a clean end. */
            if (s->failed)
                return io;
            s->eof = true;
            if (s->events && s->events->on_eof)
                s->events->on_eof(s->ud);
            return io;
        }
        if (s->events && s->events->on_read)
            s->events->on_read(s->ud, into, n);
        if (n < NSBX_STREAM_READ_CHUNK)
            break;
    }
    return NSBX_IO_OK;
}

void nsbx_stream_set_events(struct nsbx_stream *s, const struct nsbx_stream_events *events, void *ud)
{
    s->events = events;
    s->ud = ud;
}

void nsbx_stream_read_start(struct nsbx_stream *s)
{
    s->reading = true;
    s->read_once = true;
    if (s->failed && !s->told)
        nsbx_loop_defer(s->object.loop, &s->later, tell_failure);
    update_want(s);
}

void nsbx_stream_read_stop(struct nsbx_stream *s)
{
    s->reading = false;
    update_want(s);
}

/* ---- writing ---- */

static void end_sending(struct nsbx_stream *s)
{
    struct nsbx_err err;
    if (s->vtable->end(s, &err) == NSBX_IO_FAILED)
        fail(s, &err);
}

static void flush(struct nsbx_stream *s)
{
    for (int i = 0; i < STEPS_PER_WAKE && s->queue.len; i++) {
        struct nsbx_err err;
        struct iovec iov = {nsbx_buf_data(&s->queue), s->queue.len};
        size_t n = 0;
        enum nsbx_io io = s->vtable->write(s, &iov, 1, &n, &err);
        if (io == NSBX_IO_FAILED)
            fail(s, &err);
        if (io != NSBX_IO_OK)
            return;
        nsbx_buf_consume(&s->queue, n);
    }
    if (s->queue.len)
        return;
    if (s->ending)
        end_sending(s);
    if (!s->failed)
        tell_drain(s);
}

static int refuse_lost(const struct nsbx_stream *s, struct nsbx_err *err)
{
    nsbx_err_copy(err, &s->err);
    if (err)
        err->code = NSBX_E_STREAM_LOST;
    return -NSBX_E_STREAM_LOST;
}

static void copy_rest(uint8_t *to, const struct iovec iov[2], size_t skip)
{
    for (int i = 0; i < 2; i++) {
        size_t past = skip < iov[i].iov_len ? skip : iov[i].iov_len;
        size_t n = iov[i].iov_len - past;
        if (n)
            memcpy(to, (const uint8_t *)iov[i].iov_base + past, n);
        to += n;
        skip -= past;
    }
}

int nsbx_stream_write2(struct nsbx_stream *s, const void *a, size_t an, const void *b, size_t bn,
                       struct nsbx_err *err)
{
    if (s->ending || s->unwritable)
        return nsbx_err_set(err, NSBX_E_INVALID, "a write to a %s stream %s", s->object.kind,
                            s->ending ? "after its shutdown" : "that is open for reading only");
    if (s->failed)
        return refuse_lost(s, err);
    size_t room = NSBX_STREAM_QUEUE - s->queue.len;
    if (an > room || bn > room - an)
        return nsbx_err_set(err, NSBX_E_LIMIT, "a %s stream holds %zu unsent bytes and takes no %zu more",
                            s->object.kind, s->queue.len, an + bn);
    size_t sent = 0, total = an + bn;
    /* iovec has no const; nothing writes through it. */
    struct iovec iov[2] = {{(void *)(uintptr_t)a, an}, {(void *)(uintptr_t)b, bn}};
    struct nsbx_err why;
    if (total && !s->queue.len && s->vtable->write(s, iov, 2, &sent, &why) == NSBX_IO_FAILED) {
        fail(s, &why);
        return refuse_lost(s, err);
    }
    if (sent == total)
        return 0;
    uint8_t *rest = nsbx_buf_reserve(&s->queue, total - sent, &why);
    if (!rest) {
        if (sent) /* half of it is on its way: nothing that is sent later could be understood */
            fail(s, &why);
        return nsbx_err_copy(err, &why);
    }
    copy_rest(rest, iov, sent);
    nsbx_buf_commit(&s->queue, total - sent);
    update_want(s);
    return 0;
}

int nsbx_stream_write(struct nsbx_stream *s, const void *bytes, size_t n, struct nsbx_err *err)
{
    return nsbx_stream_write2(s, bytes, n, NULL, 0, err);
}

size_t nsbx_stream_queued(const struct nsbx_stream *s)
{
    return s->queue.len;
}

bool nsbx_stream_can_shutdown(const struct nsbx_stream *s)
{
    return s->half_close;
}

int nsbx_stream_shutdown(struct nsbx_stream *s, struct nsbx_err *err)
{
    if (!s->half_close)
        return nsbx_err_set(err, NSBX_E_UNSUPPORTED, "a %s stream has no half-close", s->object.kind);
    if (s->failed)
        return refuse_lost(s, err);
    if (s->ending)
        return 0;
    s->ending = true;
    if (!s->queue.len)
        end_sending(s);
    return s->failed ? refuse_lost(s, err) : 0;
}

/* ---- life ---- */

void nsbx_stream_init(struct nsbx_stream *s, struct nsbx_loop *loop, const struct nsbx_stream_vtable *vtable,
                      const char *kind)
{
    nsbx_object_open(&s->object, loop, kind, "stream");
    s->vtable = vtable;
    nsbx_buf_init(&s->queue, NSBX_STREAM_QUEUE);
}

void nsbx_stream_ready(struct nsbx_stream *s, unsigned ready)
{
    if (s->closed || s->failed)
        return;
    s->in_ready = true;
    if ((ready & NSBX_READABLE) && s->reading && !s->eof)
        read_some(s);
    if ((ready & NSBX_WRITABLE) && !s->closed && !s->failed && s->queue.len)
        flush(s);
    s->in_ready = false;
    update_want(s);
}

static void free_stream(struct nsbx_defer *d)
{
    nsbx_free(nsbx_container_of(d, struct nsbx_stream, later));
}

void nsbx_stream_close(struct nsbx_stream *s)
{
    if (!s)
        return;
    if (s->closed)
        nsbx_misuse("a %s stream was closed twice", s->object.kind);
    s->closed = true;
    s->vtable->close(s);
    nsbx_buf_free(&s->queue);
    nsbx_object_gone(&s->object);
    /* Deferred, because the caller may be a callback of this stream. */
    nsbx_defer_cancel(&s->later);
    nsbx_loop_defer(s->object.loop, &s->later, free_stream);
}

const char *nsbx_stream_kind(const struct nsbx_stream *s)
{
    return s->object.kind;
}
