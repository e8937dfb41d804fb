#include "base/alloc.h"
#include "base/util.h"
#include "stream_priv.h"
#include "timer.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    ACCEPTS_PER_WAKE = 32,
    PAUSE_MS = 100, /* after a failed accept */
    BACKLOG = 511,
};

struct nsbx_listener {
    struct nsbx_object object;
    int fd;
    nsbx_accept_cb *cb;
    void *ud;
    struct nsbx_watch *watch;
    struct nsbx_timer *pause;
    bool closed;
    bool accepting; /* inside on_ready: the memory is freed at its end */
};

static void on_pause_over(void *ud)
{
    struct nsbx_listener *l = ud;
    nsbx_watch_set(l->watch, NSBX_READABLE);
}

static void pause_accepting(struct nsbx_listener *l)
{
    nsbx_watch_set(l->watch, 0);
    nsbx_timer_start(l->pause, PAUSE_MS);
}

/* True: go on with the next. */
static bool accept_one(struct nsbx_listener *l)
{
    int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        if (errno == ECONNABORTED || errno == EINTR)
            return true; /* that connection is gone, the next may be there */
        if (errno != EAGAIN)
            pause_accepting(l); /* EMFILE and its like: the socket stays readable, so watching on would spin */
        return false;
    }
    struct nsbx_stream *stream;
    nsbx_tcp_tune(fd);
    if (nsbx_stream_from_fd(l->object.loop, fd, &stream, NULL) < 0) {
        pause_accepting(l); /* out of memory: the peer sees its connection closed */
        return false;
    }
    l->cb(l->ud, stream);
    return !l->closed;
}

static void on_ready(void *ud, unsigned ready)
{
    struct nsbx_listener *l = ud;
    (void)ready;
    l->accepting = true;
    for (int i = 0; i < ACCEPTS_PER_WAKE && accept_one(l); i++)
        ;
    l->accepting = false;
    if (l->closed)
        nsbx_free(l);
}

void nsbx_listener_close(struct nsbx_listener *l)
{
    if (!l)
        return;
    nsbx_watch_close(l->watch);
    nsbx_timer_close(l->pause);
    close(l->fd);
    nsbx_object_gone(&l->object);
    l->closed = true;
    if (!l->accepting)
        nsbx_free(l);
}

int nsbx_listen_fd(struct nsbx_loop *loop, int fd, nsbx_accept_cb *cb, void *ud, struct nsbx_listener **out,
                   struct nsbx_err *err)
{
    NSBX_AUTO_CLOSE int own = fd;
    int listening = 0;
    socklen_t len = sizeof listening;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) != 0)
        return nsbx_err_sys(err, errno, "cannot listen on descriptor %d", fd);
    if (!listening)
        return nsbx_err_set(err, NSBX_E_INVALID, "descriptor %d is not a listening socket", fd);
    struct nsbx_listener *l = nsbx_calloc(1, sizeof *l);
    if (!l)
        return nsbx_err_nomem(err, "a listener");
    l->pause = nsbx_timer_new(loop, on_pause_over, l);
    int rc = l->pause ? nsbx_watch_new(loop, fd, on_ready, l, &l->watch, err) : nsbx_err_nomem(err, "a listener");
    if (rc) {
        nsbx_timer_close(l->pause);
        nsbx_free(l);
        return rc;
    }
    l->fd = nsbx_steal_fd(&own);
    l->cb = cb;
    l->ud = ud;
    nsbx_object_open(&l->object, loop, "listener", NULL);
    nsbx_watch_set(l->watch, NSBX_READABLE);
    *out = l;
    return 0;
}

static int listen_on(struct nsbx_loop *loop, int fd, const struct nsbx_addr *addr, const char *what,
                     nsbx_accept_cb *cb, void *ud, struct nsbx_listener **out, struct nsbx_err *err)
{
    if (bind(fd, (const struct sockaddr *)&addr->sa, addr->len) != 0 || listen(fd, BACKLOG) != 0) {
        int rc = nsbx_err_sys(err, errno, "cannot listen on %s", what);
        close(fd);
        return rc;
    }
    return nsbx_listen_fd(loop, fd, cb, ud, out, err);
}

/* A socket at the path that nobody listens on is left over from an earlier run. Anything else there is not ours to remove. */
static void unlink_stale(const struct nsbx_addr *addr, const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0 || !S_ISSOCK(st.st_mode))
        return;
    NSBX_AUTO_CLOSE int probe = nsbx_addr_socket(addr, NULL);
    if (probe >= 0 && connect(probe, (const struct sockaddr *)&addr->sa, addr->len) != 0 && errno == ECONNREFUSED)
        unlink(path);
}

int nsbx_listen_unix(struct nsbx_loop *loop, const char *path, nsbx_accept_cb *cb, void *ud,
                     struct nsbx_listener **out, struct nsbx_err *err)
{
    struct nsbx_addr addr;
    int rc = nsbx_addr_unix(&addr, path, err);
    if (rc)
        return rc;
    unlink_stale(&addr, path);
    int fd = nsbx_addr_socket(&addr, err);
    return fd < 0 ? fd : listen_on(loop, fd, &addr, path, cb, ud, out, err);
}

int nsbx_listen_tcp(struct nsbx_loop *loop, const char *address, uint16_t port, nsbx_accept_cb *cb, void *ud,
                    struct nsbx_listener **out, struct nsbx_err *err)
{
    struct nsbx_addr addr;
    if (!nsbx_addr_literal(&addr, address, port))
        return nsbx_err_set(err, NSBX_E_INVALID, "%.64s is no IPv4 or IPv6 address to listen on", address);
    int fd = nsbx_addr_socket(&addr, err);
    if (fd < 0)
        return fd;
    int on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    char what[80];
    snprintf(what, sizeof what, "%.64s port %u", address, port);
    return listen_on(loop, fd, &addr, what, cb, ud, out, err);
}

uint16_t nsbx_listener_port(const struct nsbx_listener *l)
{
    struct nsbx_addr addr = {.len = sizeof addr.sa};
    if (getsockname(l->fd, (struct sockaddr *)&addr.sa, &addr.len) != 0)
        return 0;
    if (addr.sa.ss_family == AF_INET)
        return ntohs(((const struct sockaddr_in *)&addr.sa)->sin_port);
    if (addr.sa.ss_family == AF_INET6)
        return ntohs(((const struct sockaddr_in6 *)&addr.sa)->sin6_port);
    return 0;
}
