/* Streams of a descriptor: sockets, pipes, character devices, files. Not uv_stream_t: its writes raise SIGPIPE. */
#include "base/alloc.h"
#include "stream_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct fd_stream {
    struct nsbx_stream base;
    struct nsbx_watch *watch; /* NULL once shut down by closing */
    int fd;
    bool is_socket;
    bool is_char;
};

static enum nsbx_io io_error(const struct fd_stream *f, int sys, const char *verb, struct nsbx_err *err)
{
    if (sys == EAGAIN)
        return NSBX_IO_AGAIN;
    nsbx_err_sys(err, sys, "cannot %s a %s stream", verb, f->base.object.kind);
    err->code = f->is_socket || sys == EPIPE ? NSBX_E_STREAM_LOST : NSBX_E_IO;
    return NSBX_IO_FAILED;
}

static enum nsbx_io fd_read(struct nsbx_stream *s, uint8_t *into, size_t max, size_t *n, struct nsbx_err *err)
{
    struct fd_stream *f = (struct fd_stream *)s;
    ssize_t got;
    do
        got = read(f->fd, into, max);
    while (got < 0 && errno == EINTR);
    if (got > 0) {
        *n = (size_t)got;
        return NSBX_IO_OK;
    }
    /* EIO is how the master of a terminal says that the last holder of the other side is gone. */
    if (got == 0 || (errno == EIO && f->is_char))
        return NSBX_IO_EOF;
    return io_error(f, errno, "read", err);
}

/* Only sockets have MSG_NOSIGNAL. Elsewhere SIGPIPE, which goes to the writing thread, is held back for the time of the write
 * and taken away, unless one was pending before (which only a mask that blocked it allows): that one is somebody else's. */
static ssize_t write_without_signal(int fd, const struct iovec *iov, int count)
{
    sigset_t pipe_only, saved, pending;
    sigemptyset(&pending);
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_only, &saved);
    if (sigismember(&saved, SIGPIPE))
        sigpending(&pending);
    ssize_t n;
    do
        n = writev(fd, iov, count);
    while (n < 0 && errno == EINTR);
    int sys = errno;
    if (n < 0 && sys == EPIPE && !sigismember(&pending, SIGPIPE)) {
        const struct timespec now = {0};
        while (sigtimedwait(&pipe_only, NULL, &now) < 0 && errno == EINTR)
            ;
    }
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
    errno = sys;
    return n;
}

static ssize_t send_without_signal(int fd, const struct iovec *iov, int count)
{
    struct msghdr msg = {0};
    msg.msg_iov = (struct iovec *)(uintptr_t)iov;
    msg.msg_iovlen = (size_t)count;
    ssize_t n;
    do
        n = sendmsg(fd, &msg, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n;
}

/* A terminal whose other side is closed takes a little more and then says EAGAIN, while poll says that it is ready: waiting
 * for room that never comes would be a busy loop. */
static bool is_hung_up(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    return poll(&p, 1, 0) == 1 && (p.revents & POLLHUP);
}

static enum nsbx_io fd_write(struct nsbx_stream *s, const struct iovec *iov, int count, size_t *n,
                             struct nsbx_err *err)
{
    struct fd_stream *f = (struct fd_stream *)s;
    ssize_t put = f->is_socket ? send_without_signal(f->fd, iov, count) : write_without_signal(f->fd, iov, count);
    if (put < 0 && errno == EAGAIN && f->is_char && is_hung_up(f->fd))
        return io_error(f, EIO, "write to", err);
    if (put < 0)
        return io_error(f, errno, "write to", err);
    *n = (size_t)put;
    return put ? NSBX_IO_OK : NSBX_IO_AGAIN;
}

static void let_go(struct fd_stream *f)
{
    nsbx_watch_close(f->watch);
    f->watch = NULL;
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
}

static enum nsbx_io fd_end(struct nsbx_stream *s, struct nsbx_err *err)
{
    struct fd_stream *f = (struct fd_stream *)s;
    if (!f->is_socket)
        let_go(f); /* a pipe's write end: its reader sees the end when it is closed */
    else if (shutdown(f->fd, SHUT_WR) != 0)
        return io_error(f, errno, "shut down", err);
    return NSBX_IO_OK;
}

static void fd_want(struct nsbx_stream *s, unsigned interest)
{
    struct fd_stream *f = (struct fd_stream *)s;
    if (f->watch)
        nsbx_watch_set(f->watch, interest);
}

static void fd_close(struct nsbx_stream *s)
{
    let_go((struct fd_stream *)s);
}

static const struct nsbx_stream_vtable fd_vtable = {fd_read, fd_write, fd_end, fd_want, fd_close};

static void on_ready(void *ud, unsigned ready)
{
    nsbx_stream_ready(ud, ready);
}

static int classify_socket(int fd, const char **kind, struct nsbx_err *err)
{
    int type = 0, domain = 0;
    socklen_t len = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) != 0)
        return nsbx_err_sys(err, errno, "cannot ask socket %d for its type", fd);
    len = sizeof domain;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) != 0)
        return nsbx_err_sys(err, errno, "cannot ask socket %d for its family", fd);
    if (type != SOCK_STREAM)
        return nsbx_err_set(err, NSBX_E_INVALID, "descriptor %d is a socket, but not a stream socket", fd);
    if (domain == AF_UNIX)
        *kind = "unix";
    else if (domain == AF_INET || domain == AF_INET6)
        *kind = "tcp";
    else
        *kind = domain == AF_VSOCK ? "vsock" : "socket";
    return 0;
}

static int classify(struct fd_stream *f, const char **kind, struct nsbx_err *err)
{
    struct stat st;
    int flags = fcntl(f->fd, F_GETFL);
    if (flags < 0 || fstat(f->fd, &st) != 0)
        return nsbx_err_sys(err, errno, "cannot make a stream of descriptor %d", f->fd);
    if (S_ISSOCK(st.st_mode)) {
        f->is_socket = true;
        f->base.half_close = true;
        return classify_socket(f->fd, kind, err);
    }
    if (!S_ISFIFO(st.st_mode) && !S_ISCHR(st.st_mode) && !S_ISREG(st.st_mode))
        return nsbx_err_set(err, NSBX_E_INVALID, "descriptor %d is no socket, pipe, device or file", f->fd);
    f->is_char = S_ISCHR(st.st_mode);
    f->base.half_close = (flags & O_ACCMODE) == O_WRONLY;
    f->base.unwritable = (flags & O_ACCMODE) == O_RDONLY;
    *kind = "pipe";
    return 0;
}

int nsbx_stream_from_fd(struct nsbx_loop *loop, int fd, struct nsbx_stream **out, struct nsbx_err *err)
{
    const char *kind = NULL;
    struct fd_stream *f = nsbx_calloc(1, sizeof *f);
    int rc = f ? 0 : nsbx_err_nomem(err, "a stream");
    if (f) {
        f->fd = fd;
        rc = classify(f, &kind, err);
    }
    if (!rc)
        rc = nsbx_watch_new(loop, fd, on_ready, f, &f->watch, err);
    if (rc) {
        nsbx_free(f);
        close(fd);
        return rc;
    }
    nsbx_stream_init(&f->base, loop, &fd_vtable, kind);
    *out = &f->base;
    return 0;
}
