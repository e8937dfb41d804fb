#include "signal.h"

#include "base/alloc.h"
#include "loop_priv.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

struct nsbx_signal {
    struct nsbx_object object;
    uv_signal_t uv;
    void (*cb)(void *ud, int signo);
    void *ud;
};

static void on_signal(uv_signal_t *handle, int signo)
{
    struct nsbx_signal *s = handle->data;
    s->cb(s->ud, signo);
}

int nsbx_signal_watch(struct nsbx_loop *loop, int signo, void (*cb)(void *ud, int signo), void *ud,
                      struct nsbx_signal **out, struct nsbx_err *err)
{
    struct nsbx_signal *s = nsbx_calloc(1, sizeof *s);
    if (!s)
        return nsbx_err_nomem(err, "a signal watch");
    int rc = uv_signal_init(loop->uv, &s->uv);
    if (rc) {
        nsbx_free(s);
        return nsbx_err_sys(err, -rc, "cannot watch signal %d", signo);
    }
    s->cb = cb;
    s->ud = ud;
    s->uv.data = s;
    nsbx_object_open(&s->object, loop, "signal", NULL);
    rc = uv_signal_start(&s->uv, on_signal, signo);
    if (rc) {
        nsbx_signal_close(s);
        return nsbx_err_sys(err, -rc, "cannot watch signal %d", signo);
    }
    uv_unref((uv_handle_t *)&s->uv);
    *out = s;
    return 0;
}

void nsbx_signal_close(struct nsbx_signal *s)
{
    if (s)
        nsbx_object_close(&s->object, (uv_handle_t *)&s->uv);
}

/* ---- with the sender: by a descriptor, since a handler's siginfo does not reach the loop ---- */

struct nsbx_signal_from {
    struct nsbx_object object;
    struct nsbx_watch *watch;
    int fd;
    void (*cb)(void *ud, int signo, pid_t sender);
    void *ud;
};

/* One signal a turn: the callback may close the watch. */
static void on_signal_ready(void *ud, unsigned ready)
{
    struct nsbx_signal_from *s = ud;
    struct signalfd_siginfo info;
    (void)ready;
    if (read(s->fd, &info, sizeof info) == (ssize_t)sizeof info)
        s->cb(s->ud, (int)info.ssi_signo, (pid_t)info.ssi_pid);
}

int nsbx_signal_watch_from(struct nsbx_loop *loop, int signo, void (*cb)(void *ud, int signo, pid_t sender),
                           void *ud, struct nsbx_signal_from **out, struct nsbx_err *err)
{
    struct nsbx_signal_from *s = nsbx_calloc(1, sizeof *s);
    if (!s)
        return nsbx_err_nomem(err, "a signal watch");
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signo);
    int rc = pthread_sigmask(SIG_BLOCK, &set, NULL);
    s->fd = rc ? -1 : signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->fd < 0) {
        rc = nsbx_err_sys(err, rc ? rc : errno, "cannot watch signal %d", signo);
        nsbx_free(s);
        return rc;
    }
    rc = nsbx_watch_new(loop, s->fd, on_signal_ready, s, &s->watch, err);
    if (rc < 0) {
        close(s->fd);
        nsbx_free(s);
        return rc;
    }
    s->cb = cb;
    s->ud = ud;
    nsbx_object_open(&s->object, loop, "signal", NULL);
    nsbx_watch_set(s->watch, NSBX_READABLE);
    *out = s;
    return 0;
}

void nsbx_signal_from_close(struct nsbx_signal_from *s)
{
    if (!s)
        return;
    nsbx_watch_close(s->watch);
    close(s->fd);
    nsbx_object_gone(&s->object);
    nsbx_free(s);
}
