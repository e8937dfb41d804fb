/* Two ends in one process: each has an inbox of bounded size that the other fills. Behaves as a pair of unix sockets does. */
#include "base/alloc.h"
#include "base/limits.h"
#include "base/util.h"
#include "stream_priv.h"

#include <errno.h>
#include <string.h>

struct mem_stream {
    struct nsbx_stream base;
    struct mem_stream *peer; /* NULL once it is closed */
    struct nsbx_buf inbox;
    size_t max_io;
    bool ended; /* the peer has ended its direction */
    bool reset; /* the peer was closed with bytes of ours unread */
    unsigned interest;
    struct nsbx_defer wake;
};

static bool readable(const struct mem_stream *m)
{
    return m->inbox.len || m->ended || m->reset;
}

static bool writable(const struct mem_stream *m)
{
    return !m->peer || m->peer->inbox.len < m->peer->inbox.max;
}

static void on_wake(struct nsbx_defer *d)
{
    struct mem_stream *m = nsbx_container_of(d, struct mem_stream, wake);
    unsigned ready = (readable(m) ? NSBX_READABLE : 0) | (writable(m) ? NSBX_WRITABLE : 0);
    nsbx_stream_ready(&m->base, ready & m->interest);
}

/* Something changed for this end. */
static void look_again(struct mem_stream *m)
{
    if (((m->interest & NSBX_READABLE) && readable(m)) || ((m->interest & NSBX_WRITABLE) && writable(m)))
        nsbx_loop_defer(m->base.object.loop, &m->wake, on_wake);
    else
        nsbx_defer_cancel(&m->wake);
}

static enum nsbx_io lost(struct nsbx_err *err, int sys)
{
    nsbx_err_sys(err, sys, "the other end of a mem stream is gone");
    return NSBX_IO_FAILED;
}

static enum nsbx_io mem_read(struct nsbx_stream *s, uint8_t *into, size_t max, size_t *n, struct nsbx_err *err)
{
    struct mem_stream *m = (struct mem_stream *)s;
    if (!m->inbox.len && m->reset)
        return lost(err, ECONNRESET);
    if (!m->inbox.len)
        return m->ended ? NSBX_IO_EOF : NSBX_IO_AGAIN;
    *n = NSBX_MIN(m->inbox.len, NSBX_MIN(max, m->max_io));
    memcpy(into, nsbx_buf_data(&m->inbox), *n);
    nsbx_buf_consume(&m->inbox, *n);
    if (m->peer)
        look_again(m->peer);
    return NSBX_IO_OK;
}

static enum nsbx_io mem_write(struct nsbx_stream *s, const struct iovec *iov, int count, size_t *n,
                              struct nsbx_err *err)
{
    struct mem_stream *m = (struct mem_stream *)s;
    if (!m->peer)
        return lost(err, m->reset ? ECONNRESET : EPIPE);
    struct nsbx_buf *inbox = &m->peer->inbox;
    size_t left = NSBX_MIN(m->max_io, inbox->max - inbox->len);
    *n = 0;
    for (int i = 0; i < count; i++) {
        size_t take = NSBX_MIN(left, iov[i].iov_len);
        if (nsbx_buf_append(inbox, iov[i].iov_base, take, err) < 0)
            return NSBX_IO_FAILED;
        *n += take;
        left -= take;
    }
    if (*n)
        look_again(m->peer);
    return *n ? NSBX_IO_OK : NSBX_IO_AGAIN;
}

static enum nsbx_io mem_end(struct nsbx_stream *s, struct nsbx_err *err)
{
    struct mem_stream *m = (struct mem_stream *)s;
    (void)err;
    if (m->peer) {
        m->peer->ended = true;
        look_again(m->peer);
    }
    return NSBX_IO_OK;
}

static void mem_want(struct nsbx_stream *s, unsigned interest)
{
    struct mem_stream *m = (struct mem_stream *)s;
    m->interest = interest;
    look_again(m);
}

static void mem_close(struct nsbx_stream *s)
{
    struct mem_stream *m = (struct mem_stream *)s;
    nsbx_defer_cancel(&m->wake);
    struct mem_stream *peer = m->peer;
    if (peer) {
        peer->peer = NULL;
        peer->ended = true;
        peer->reset = m->inbox.len > 0;
        look_again(peer);
    }
    nsbx_buf_free(&m->inbox);
}

static const struct nsbx_stream_vtable mem_vtable = {mem_read, mem_write, mem_end, mem_want, mem_close};

int nsbx_stream_pair(struct nsbx_loop *loop, size_t capacity, size_t max_io, struct nsbx_stream *out[2],
                     struct nsbx_err *err)
{
    struct mem_stream *a = nsbx_calloc(1, sizeof *a), *b = nsbx_calloc(1, sizeof *b);
    if (!a || !b) {
        nsbx_free(a);
        nsbx_free(b);
        return nsbx_err_nomem(err, "a pair of streams");
    }
    struct mem_stream *ends[2] = {a, b};
    for (int i = 0; i < 2; i++) {
        nsbx_stream_init(&ends[i]->base, loop, &mem_vtable, "mem");
        ends[i]->base.half_close = true;
        ends[i]->peer = ends[1 - i];
        ends[i]->max_io = max_io ? max_io : SIZE_MAX;
        nsbx_buf_init(&ends[i]->inbox, NSBX_MIN(NSBX_MAX(capacity, 1), NSBX_STREAM_QUEUE));
        out[i] = &ends[i]->base;
    }
    return 0;
}
