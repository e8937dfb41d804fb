#include "loop_priv.h"

#include "base/alloc.h"

#include <errno.h>
#include <fcntl.h>

struct nsbx_watch {
    struct nsbx_object object;
    nsbx_watch_cb *cb;
    void *ud;
    unsigned interest; /* as last set */
    bool armed;        /* for it */
    bool always_ready; /* epoll refused the descriptor */
    union {
        uv_handle_t handle;
        uv_poll_t poll;
        uv_timer_t tick; /* always_ready */
    } uv;
};

enum { TICK_MS = 1 };

static void arm(struct nsbx_watch *w);

static void on_poll(uv_poll_t *handle, int status, int events)
{
    struct nsbx_watch *w = handle->data;
    unsigned ready = 0;
    if (status < 0) {
        /* libuv says EBADF for every POLLERR, and has stopped the handle. */
        ready = w->interest;
        w->armed = false;
    } else {
        if (events & UV_READABLE)
            ready |= NSBX_READABLE;
        if (events & UV_WRITABLE)
            ready |= NSBX_WRITABLE;
    }
    w->cb(w->ud, ready);
    if (!w->armed && w->interest && !uv_is_closing(&w->uv.handle))
        arm(w);
}

static void on_tick(uv_timer_t *handle)
{
    struct nsbx_watch *w = handle->data;
    struct nsbx_loop *loop = w->object.loop;
    loop->in_timer = true;
    nsbx_loop_no_wait(loop);
    w->cb(w->ud, w->interest);
    loop->in_timer = false;
}

static int make_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ? -errno : 0;
}

int nsbx_watch_new(struct nsbx_loop *loop, int fd, nsbx_watch_cb *cb, void *ud, struct nsbx_watch **out,
                   struct nsbx_err *err)
{
    struct nsbx_watch *w = nsbx_calloc(1, sizeof *w);
    if (!w)
        return nsbx_err_nomem(err, "the watch of a descriptor");
    int rc = uv_poll_init(loop->uv, &w->uv.poll, fd);
    if (rc == UV_EPERM) {
        w->always_ready = true;
        rc = make_nonblocking(fd);
        if (!rc)
            rc = uv_timer_init(loop->uv, &w->uv.tick);
    }
    if (rc) {
        nsbx_free(w);
        return nsbx_err_sys(err, -rc, "cannot watch descriptor %d", fd);
    }
    w->uv.handle.data = w;
    w->cb = cb;
    w->ud = ud;
    nsbx_object_open(&w->object, loop, NULL, NULL);
    *out = w;
    return 0;
}

static void arm(struct nsbx_watch *w)
{
    int events = (w->interest & NSBX_READABLE ? UV_READABLE : 0) | (w->interest & NSBX_WRITABLE ? UV_WRITABLE : 0);
    int rc = 0;
    if (!w->always_ready)
        rc = events ? uv_poll_start(&w->uv.poll, events, on_poll) : uv_poll_stop(&w->uv.poll);
    else if (!events)
        rc = uv_timer_stop(&w->uv.tick);
    else if (!uv_is_active(&w->uv.handle))
        rc = uv_timer_start(&w->uv.tick, on_tick, TICK_MS, TICK_MS);
    if (rc)
        nsbx_misuse("two watches of one descriptor, or a closed one: %s", uv_strerror(rc));
    w->armed = true;
}

void nsbx_watch_set(struct nsbx_watch *w, unsigned interest)
{
    if (interest == w->interest && w->armed)
        return;
    w->interest = interest;
    arm(w);
}

void nsbx_watch_close(struct nsbx_watch *w)
{
    if (w)
        nsbx_object_close(&w->object, &w->uv.handle);
}
