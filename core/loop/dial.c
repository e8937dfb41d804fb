#include "dial_priv.h"

#include "base/alloc.h"
#include "base/util.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BACKLOG_PAUSE_MS = 5 };

static void close_attempt(struct nsbx_dial *d)
{
    nsbx_watch_close(d->watch);
    d->watch = NULL;
    nsbx_timer_stop(d->timer);
    if (d->fd >= 0)
        close(d->fd);
    d->fd = -1;
}

static void free_dial(struct nsbx_dial *d)
{
    if (d->stop_resolving)
        d->stop_resolving(d);
    close_attempt(d);
    nsbx_timer_close(d->timer);
    nsbx_defer_cancel(&d->start);
    nsbx_op_unref(d->op);
    nsbx_free(d);
}

void nsbx_dial_fail(struct nsbx_dial *d, const struct nsbx_err *err)
{
    nsbx_op_finish(d->op, err);
    free_dial(d);
}

static void on_stop(struct nsbx_op *op, void *owner, enum nsbx_op_stop why)
{
    (void)why;
    nsbx_op_finish_stopped(op);
    free_dial(owner);
}

static void close_result(void *stream)
{
    nsbx_stream_close(stream);
}

static void succeed(struct nsbx_dial *d)
{
    struct nsbx_stream *stream;
    struct nsbx_err err;
    nsbx_watch_close(d->watch); /* the stream gets its own */
    d->watch = NULL;
    if (nsbx_stream_from_fd(d->loop, nsbx_steal_fd(&d->fd), &stream, &err) < 0) {
        nsbx_dial_fail(d, &err);
        return;
    }
    nsbx_op_set_result(d->op, stream, close_result);
    nsbx_op_finish(d->op, NULL);
    free_dial(d);
}

/* Whatever the errno, what the caller has to know is that nobody was reached; a shortage of our own is told apart. */
static void note_failure(struct nsbx_dial *d, int sys)
{
    nsbx_err_sys(&d->last, sys, "cannot connect to %s", d->target);
    if (d->last.code != NSBX_E_LIMIT)
        d->last.code = NSBX_E_UNREACHABLE;
}

static void try_next(struct nsbx_dial *d);

static void attempt_failed(struct nsbx_dial *d, int sys)
{
    note_failure(d, sys);
    close_attempt(d);
    try_next(d);
}

/* A port of this machine's ephemeral range on which nobody listens can be chosen as our own port: tcp then connects the
 * socket to itself, and whoever listens there later cannot. */
static bool is_self_connected(int fd)
{
    struct nsbx_addr own = {.len = sizeof own.sa}, peer = {.len = sizeof peer.sa};
    if (getsockname(fd, (struct sockaddr *)&own.sa, &own.len) != 0 ||
        getpeername(fd, (struct sockaddr *)&peer.sa, &peer.len) != 0)
        return false;
    return own.sa.ss_family != AF_UNIX && own.len == peer.len && memcmp(&own.sa, &peer.sa, own.len) == 0;
}

static void on_connected(void *ud, unsigned ready)
{
    struct nsbx_dial *d = ud;
    int sys = 0;
    socklen_t len = sizeof sys;
    (void)ready;
    if (getsockopt(d->fd, SOL_SOCKET, SO_ERROR, &sys, &len) != 0)
        sys = errno;
    if (!sys && is_self_connected(d->fd))
        sys = ECONNREFUSED;
    if (sys)
        attempt_failed(d, sys);
    else
        succeed(d);
}

static void on_timer(void *ud)
{
    struct nsbx_dial *d = ud;
    if (d->watch) { /* this address had its share */
        attempt_failed(d, ETIMEDOUT);
    } else { /* the backlog may have room now */
        d->next--;
        close_attempt(d);
        try_next(d);
    }
}

/* Leaves the addresses behind this one their share of the time. */
static void limit_attempt(struct nsbx_dial *d)
{
    size_t left = d->n_addrs - d->next + 1;
    uint64_t now = nsbx_now_ms();
    if (d->deadline_ms && left > 1)
        nsbx_timer_start(d->timer, d->deadline_ms > now ? (d->deadline_ms - now) / left : 0);
}

static void try_next(struct nsbx_dial *d)
{
    if (d->next == d->n_addrs) {
        struct nsbx_err err = d->last;
        nsbx_dial_fail(d, &err);
        return;
    }
    const struct nsbx_addr *addr = &d->addrs[d->next++];
    d->fd = nsbx_addr_socket(addr, &d->last);
    if (d->fd < 0) {
        d->fd = -1;
        attempt_failed(d, d->last.sys);
        return;
    }
    int rc;
    do
        rc = connect(d->fd, (const struct sockaddr *)&addr->sa, addr->len);
    while (rc != 0 && errno == EINTR);
    if (rc == 0) {
        succeed(d);
    } else if (errno == EAGAIN) { /* unix: the listener's backlog is full, and nothing tells when it is not */
        nsbx_timer_start(d->timer, BACKLOG_PAUSE_MS);
    } else if (errno != EINPROGRESS) {
        attempt_failed(d, errno);
    } else if (nsbx_watch_new(d->loop, d->fd, on_connected, d, &d->watch, &d->last) < 0) {
        close_attempt(d);
        try_next(d);
    } else {
        nsbx_watch_set(d->watch, NSBX_WRITABLE);
        limit_attempt(d);
    }
}

static void on_start(struct nsbx_defer *defer)
{
    try_next(nsbx_container_of(defer, struct nsbx_dial, start));
}

void nsbx_dial_start(struct nsbx_dial *d)
{
    /* Deferred, so that the caller, who may be about to cancel, never holds a dial that is already gone. */
    nsbx_loop_defer(d->loop, &d->start, on_start);
}

struct nsbx_dial *nsbx_dial_new(struct nsbx_loop *loop, int64_t timeout_ms)
{
    struct nsbx_dial *d = nsbx_calloc(1, sizeof *d);
    if (!d)
        return NULL;
    struct nsbx_op_spec spec = {.name = "connect", .timeout_ms = timeout_ms, .stop = on_stop, .owner = d};
    d->loop = loop;
    d->fd = -1;
    d->deadline_ms = timeout_ms >= 0 ? nsbx_now_ms() + (uint64_t)timeout_ms : 0;
    d->timer = nsbx_timer_new(loop, on_timer, d);
    d->op = d->timer ? nsbx_op_new(loop, &spec) : NULL;
    if (!d->op) {
        nsbx_timer_close(d->timer);
        nsbx_free(d);
        return NULL;
    }
    return d;
}

struct nsbx_op *nsbx_stream_dial_unix(struct nsbx_loop *loop, const char *path, int64_t timeout_ms)
{
    struct nsbx_dial *d = nsbx_dial_new(loop, timeout_ms);
    if (!d)
        return NULL;
    struct nsbx_op *op = nsbx_op_ref(d->op);
    struct nsbx_err err;
    snprintf(d->target, sizeof d->target, "%s", path);
    if (nsbx_addr_unix(&d->addrs[0], path, &err) < 0) {
        nsbx_dial_fail(d, &err);
        return op;
    }
    d->n_addrs = 1;
    nsbx_dial_start(d);
    return op;
}
