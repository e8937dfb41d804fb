#include "spawn_priv.h"

#include "base/alloc.h"
#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct nsbx_child {
    struct nsbx_object object;
    struct nsbx_list node; /* in `known` from the fork until the status was taken */
    uv_poll_t poll;
    bool awaited; /* `poll` lives */
    bool left;    /* closed by its owner and only to be reaped */
    pid_t pid;    /* 0 before the fork */
    int pidfd;
    bool reaped; /* `exit` says how it ended */
    struct nsbx_exit exit;
    void (*on_exit)(void *ud, const struct nsbx_exit *exit);
    void *ud;
};

/* Processes whose status belongs to a nsbx_child, so that nsbx_reap_strangers can tell; of all threads. The lock is also
 * held across a fork: a child that ends at once must be known already. */
static struct nsbx_list known = {&known, &known};
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- statuses ---- */

static void take_status(struct nsbx_child *c, const siginfo_t *si)
{
    bool exited = si->si_code == CLD_EXITED;
    c->exit = (struct nsbx_exit){
        .known = true, .code = exited ? si->si_status : -1, .signal = exited ? 0 : si->si_status};
}

static void set_reaped(struct nsbx_child *c)
{
    c->reaped = true;
    nsbx_list_remove(&c->node);
}

/* Whether it has ended and its status is taken. Under the lock. */
static bool reap_locked(struct nsbx_child *c)
{
    while (!c->reaped) {
        siginfo_t si = {0};
        int rc = waitid(P_PIDFD, (id_t)c->pidfd, &si, WEXITED | WNOHANG | __WALL);
        if (rc < 0 && errno == EINTR)
            continue;
        if (rc == 0 && !si.si_pid)
            return false;
        if (rc == 0)
            take_status(c, &si);
        else /* somebody in this process waits for whatever child ends */
            c->exit = (struct nsbx_exit){.known = false, .code = -1};
        set_reaped(c);
    }
    return true;
}

static bool reap(struct nsbx_child *c)
{
    pthread_mutex_lock(&known_lock);
    bool reaped = reap_locked(c);
    pthread_mutex_unlock(&known_lock);
    return reaped;
}

void nsbx_child_reap_now(struct nsbx_child *c)
{
    while (!reap(c))
        poll(&(struct pollfd){.fd = c->pidfd, .events = POLLIN}, 1, -1);
}

static struct nsbx_child *find_known(pid_t pid)
{
    nsbx_list_each (node, &known) {
        struct nsbx_child *c = nsbx_container_of(node, struct nsbx_child, node);
        if (c->pid == pid)
            return c;
    }
    return NULL;
}

size_t nsbx_reap_strangers(void)
{
    size_t strangers = 0;
    pthread_mutex_lock(&known_lock);
    for (;;) {
        siginfo_t si = {0};
        if (waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) < 0 || !si.si_pid)
            break;
        /* One of ours hides those behind it: its status is taken too and kept for its owner, whose pidfd tells him. */
        struct nsbx_child *c = find_known(si.si_pid);
        if (c)
            reap_locked(c);
        else if (waitid(P_PID, (id_t)si.si_pid, &si, WEXITED | WNOHANG) == 0)
            strangers++;
    }
    pthread_mutex_unlock(&known_lock);
    return strangers;
}

void nsbx_end_namespace(void)
{
    if (getpid() != 1)
        return;
    kill(-1, SIGKILL);
    while (waitid(P_ALL, 0, &(siginfo_t){0}, WEXITED | __WALL) == 0 || errno == EINTR)
        ;
}

/* ---- life ---- */

int nsbx_child_new(struct nsbx_loop *loop, const char *kind,
                   void (*on_exit)(void *ud, const struct nsbx_exit *exit), void *ud, struct nsbx_child **out,
                   struct nsbx_err *err)
{
    struct nsbx_child *c = nsbx_calloc(1, sizeof *c);
    if (!c)
        return nsbx_err_nomem(err, "a child process");
    c->pidfd = -1;
    c->on_exit = on_exit;
    c->ud = ud;
    nsbx_list_init(&c->node);
    nsbx_object_open(&c->object, loop, kind, NULL);
    *out = c;
    return 0;
}

pid_t nsbx_child_fork(struct nsbx_child *c, int exit_signal, struct nsbx_err *err)
{
    sigset_t saved;
    pthread_mutex_lock(&known_lock);
    nsbx_signals_block(&saved);
    int pidfd = -1;
    /* As fork does it, and the pidfd with it. */
    pid_t pid = (pid_t)syscall(SYS_clone, CLONE_PIDFD | exit_signal, NULL, &pidfd, NULL, 0);
    if (pid == 0)
        return 0;
    int sys = errno;
    if (pid > 0 && pidfd < 0) { /* the flag is newer than the kernel, which ignored it */
        kill(pid, SIGKILL);
        waitid(P_PID, (id_t)pid, &(siginfo_t){0}, WEXITED | __WALL);
        pid = -1;
        sys = ENOSYS;
    }
    if (pid > 0) {
        c->pid = pid;
        c->pidfd = pidfd;
        nsbx_list_push(&known, &c->node);
    }
    nsbx_signals_restore(&saved);
    pthread_mutex_unlock(&known_lock);
    if (pid > 0)
        return pid;
    return nsbx_err_sys(err, sys,
                        sys == ENOSYS ? "cannot fork with a pidfd, which wants Linux 5.4" : "cannot fork");
}

/* As it was opened, past the C library: a thread sanitizer that saw only one of the two would mistake it. */
static void close_pidfd(struct nsbx_child *c)
{
    if (c->pidfd >= 0)
        syscall(SYS_close, c->pidfd);
    c->pidfd = -1;
}

static void destroy(struct nsbx_child *c)
{
    pthread_mutex_lock(&known_lock);
    nsbx_list_remove(&c->node);
    pthread_mutex_unlock(&known_lock);
    if (c->awaited) {
        nsbx_object_close(&c->object, (uv_handle_t *)&c->poll);
        close_pidfd(c);
    } else {
        nsbx_object_gone(&c->object);
        close_pidfd(c);
        nsbx_free(c);
    }
}

static void on_pidfd(uv_poll_t *handle, int status, int events)
{
    struct nsbx_child *c = nsbx_container_of(handle, struct nsbx_child, poll);
    (void)status, (void)events;
    if (!reap(c))
        return;
    uv_poll_stop(&c->poll);
    if (c->left)
        destroy(c);
    else
        c->on_exit(c->ud, &c->exit);
}

int nsbx_child_await(struct nsbx_child *c, struct nsbx_err *err)
{
    int rc = uv_poll_init(c->object.loop->uv, &c->poll, c->pidfd);
    if (!rc) {
        c->awaited = true;
        rc = uv_poll_start(&c->poll, UV_READABLE, on_pidfd);
    }
    return rc ? nsbx_err_sys(err, -rc, "cannot watch a child process") : 0;
}

static void drop(struct nsbx_object *o)
{
    destroy(nsbx_container_of(o, struct nsbx_child, object));
}

void nsbx_child_close(struct nsbx_child *c)
{
    if (!c)
        return;
    if (!c->awaited || c->reaped) {
        destroy(c);
        return;
    }
    c->left = true;
    uv_unref((uv_handle_t *)&c->poll);
    nsbx_object_leave(&c->object, drop);
}

pid_t nsbx_child_pid(const struct nsbx_child *c)
{
    return c->pid;
}

int nsbx_child_kill(struct nsbx_child *c, int signo, struct nsbx_err *err)
{
    if (syscall(SYS_pidfd_send_signal, c->pidfd, signo, NULL, 0) == 0 || errno == ESRCH)
        return 0;
    return nsbx_err_sys(err, errno, "cannot send signal %d to process %d", signo, (int)c->pid);
}

bool nsbx_child_stopped(const struct nsbx_child *c)
{
    siginfo_t si = {0};
    return waitid(P_PIDFD, (id_t)c->pidfd, &si, WSTOPPED | WNOHANG | WNOWAIT | __WALL) == 0 && si.si_pid;
}

/* ---- one program ---- */

/* Blocks until the child has exec'ed (the pipe closes) or says why it could not. */
static int read_report(int fd, const struct nsbx_spawn *spec, struct nsbx_err *err)
{
    struct nsbx_spawn_report report;
    struct nsbx_spawn_names names;
    ssize_t n;
    do
        n = read(fd, &report, sizeof report);
    while (n < 0 && errno == EINTR);
    if (n == 0)
        return 0;
    if (n < 0)
        return nsbx_err_sys(err, errno, "cannot learn whether %s was started", spec->file);
    nsbx_spawn_names(&names, spec);
    return nsbx_spawn_error(&report, &names, err);
}

static int start(struct nsbx_child *c, const struct nsbx_spawn_plan *plan, struct nsbx_err *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return nsbx_err_sys(err, errno, "cannot make a pipe");
    NSBX_AUTO_CLOSE int from_child = ends[0];
    NSBX_AUTO_CLOSE int to_parent = ends[1];
    pid_t self = getpid();
    pid_t pid = nsbx_child_fork(c, SIGCHLD, err);
    if (pid < 0)
        return pid;
    if (pid == 0)
        nsbx_spawn_child_main(plan, self, to_parent);
    close(nsbx_steal_fd(&to_parent));
    int rc = read_report(from_child, plan->spec, err);
    if (rc)
        nsbx_child_reap_now(c);
    return rc;
}

int nsbx_child_start(struct nsbx_loop *loop, const struct nsbx_spawn *spec,
                     void (*on_exit)(void *ud, const struct nsbx_exit *exit), void *ud, struct nsbx_child **out,
                     struct nsbx_err *err)
{
    struct nsbx_spawn_plan plan;
    struct nsbx_child *c = NULL;
    int rc = nsbx_spawn_plan(&plan, spec, err);
    if (rc)
        return rc;
    rc = nsbx_child_new(loop, "child", on_exit, ud, &c, err);
    if (!c)
        return rc;
    rc = start(c, &plan, err);
    if (!rc) {
        rc = nsbx_child_await(c, err);
        if (rc) {
            nsbx_child_kill(c, SIGKILL, NULL);
            nsbx_child_reap_now(c);
        }
    }
    if (rc) {
        destroy(c);
        return rc;
    }
    *out = c;
    return 0;
}
