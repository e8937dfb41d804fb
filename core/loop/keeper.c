#include "keeper_main.h"

#include "base/alloc.h"
#include "base/util.h"
#include "spawn_priv.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct nsbx_keeper {
    struct nsbx_object object;
    struct nsbx_child *process;
    int control;
    struct nsbx_watch *watch; /* of control */
    struct nsbx_keeper_events events;
    void *ud;
    struct nsbx_spawn_names names;
    struct nsbx_spawn_report failure; /* stage 0: none */
    bool tree_ended;                  /* by the keeper's word, which is on_tree_end's once it is gone too */
    bool gone;                        /* the keeper's process */
    bool delivering;                  /* inside a callback: closing must leave the memory */
    bool closed;
};

/* ---- events ---- */

/* Between these two the caller's code runs; false: it closed the keeper, which is freed. */
static void enter(struct nsbx_keeper *k)
{
    k->delivering = true;
}

static bool leave(struct nsbx_keeper *k)
{
    k->delivering = false;
    if (!k->closed)
        return true;
    nsbx_free(k);
    return false;
}

static bool deliver_message(struct nsbx_keeper *k, const struct nsbx_keeper_msg *msg)
{
    struct nsbx_exit exit = {.known = true, .code = msg->a, .signal = msg->b};
    switch (msg->type) {
    case NSBX_KEEPER_STARTED:
        enter(k);
        k->events.on_started(k->ud, msg->a);
        return leave(k);
    case NSBX_KEEPER_LEADER_EXIT:
        enter(k);
        k->events.on_leader_exit(k->ud, &exit);
        return leave(k);
    case NSBX_KEEPER_FAILED:
        k->failure = (struct nsbx_spawn_report){.stage = msg->a, .sys = msg->b};
        return true;
    case NSBX_KEEPER_TREE_END:
        k->tree_ended = true;
        return true;
    default:
        return true;
    }
}

/* False: the keeper was closed by a callback and is freed. */
static bool read_control(struct nsbx_keeper *k)
{
    for (;;) {
        struct nsbx_keeper_msg msg;
        ssize_t n = recv(k->control, &msg, sizeof msg, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return true;
        if (n != (ssize_t)sizeof msg) {
            nsbx_watch_set(k->watch, 0); /* its end; the process will follow */
            return true;
        }
        if (!deliver_message(k, &msg))
            return false;
    }
}

static void on_control(void *ud, unsigned ready)
{
    (void)ready;
    read_control(ud);
}

static void lost(struct nsbx_keeper *k, const struct nsbx_exit *exit)
{
    struct nsbx_err err;
    if (!exit->known)
        nsbx_err_set(&err, NSBX_E_UNKNOWN_OUTCOME, "the keeper of %s is gone; what it ran may still run",
                     k->names.file);
    else if (exit->signal)
        nsbx_err_set(&err, NSBX_E_UNKNOWN_OUTCOME,
                     "the keeper of %s was killed by signal %d; what it ran may still run", k->names.file,
                     exit->signal);
    else
        nsbx_err_set(&err, NSBX_E_UNKNOWN_OUTCOME, "the keeper of %s ended with code %d; what it ran may still run",
                     k->names.file, exit->code);
    k->events.on_lost(k->ud, &err);
}

static void on_process_exit(void *ud, const struct nsbx_exit *exit)
{
    struct nsbx_keeper *k = ud;
    if (!read_control(k)) /* what it said before it went */
        return;
    k->gone = true;
    enter(k);
    if (k->failure.stage) {
        struct nsbx_err err;
        nsbx_spawn_error(&k->failure, &k->names, &err);
        k->events.on_failed(k->ud, &err);
    } else if (k->tree_ended)
        k->events.on_tree_end(k->ud);
    else
        lost(k, exit);
    leave(k);
}

/* ---- wishes ---- */

static int tell(struct nsbx_keeper *k, enum nsbx_keeper_type type, int32_t a, int32_t b)
{
    struct nsbx_keeper_msg msg = {.type = (int32_t)type, .a = a, .b = b};
    return send(k->control, &msg, sizeof msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? errno : 0;
}

/* A command of the keeper's own user can stop it. */
static void wake(struct nsbx_keeper *k)
{
    nsbx_child_kill(k->process, SIGCONT, NULL);
}

static bool tree_is_over(const struct nsbx_keeper *k, int sys)
{
    return k->gone || sys == EPIPE || sys == ECONNRESET; /* the event that says so is under way */
}

int nsbx_keeper_signal(struct nsbx_keeper *k, int signo, bool tree, struct nsbx_err *err)
{
    if (signo < 1 || signo > SIGRTMAX)
        return nsbx_err_set(err, NSBX_E_INVALID, "there is no signal %d", signo);
    int sys = k->gone ? 0 : tell(k, NSBX_KEEPER_SIGNAL, signo, tree);
    if (!sys || tree_is_over(k, sys))
        return 0;
    return nsbx_err_sys(err, sys, "cannot send signal %d to %s", signo, k->names.file);
}

int nsbx_keeper_end(struct nsbx_keeper *k, uint32_t grace_ms, struct nsbx_err *err)
{
    if (k->gone)
        return 0;
    wake(k);
    int sys = tell(k, NSBX_KEEPER_END, (int32_t)NSBX_MIN(grace_ms, (uint32_t)INT32_MAX), 0);
    if (!sys || tree_is_over(k, sys))
        return 0;
    /* Too many signals wait to be read. The end of file needs no room, and also ends the tree. */
    if (sys == EAGAIN && shutdown(k->control, SHUT_WR) == 0)
        return 0;
    return nsbx_err_sys(err, sys, "cannot end %s", k->names.file);
}

bool nsbx_keeper_give_up(struct nsbx_keeper *k)
{
    if (k->gone || !nsbx_child_stopped(k->process))
        return false;
    nsbx_child_kill(k->process, SIGKILL, NULL);
    return true;
}

pid_t nsbx_keeper_pid(const struct nsbx_keeper *k)
{
    return nsbx_child_pid(k->process);
}

/* ---- life ---- */

static void release_parts(struct nsbx_keeper *k)
{
    nsbx_watch_close(k->watch);
    nsbx_cleanup_fd(&k->control); /* unless released, the keeper now ends its tree */
    k->control = -1;
    nsbx_child_close(k->process);
    nsbx_object_gone(&k->object);
}

void nsbx_keeper_close(struct nsbx_keeper *k, bool kill)
{
    if (!k)
        return;
    if (!k->gone) {
        wake(k);
        if (!kill)
            tell(k, NSBX_KEEPER_RELEASE, 0, 0);
    }
    release_parts(k);
    k->closed = true;
    if (!k->delivering)
        nsbx_free(k);
}

/* Forks with `k` made ready; in the keeper it does not return. */
static int fork_keeper(struct nsbx_keeper *k, const struct nsbx_spawn_plan *plan, struct nsbx_err *err)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return nsbx_err_sys(err, errno, "cannot make a keeper's socket");
    k->control = ends[0];
    NSBX_AUTO_CLOSE int keeper_end = ends[1];
    int rc = nsbx_watch_new(k->object.loop, k->control, on_control, k, &k->watch, err);
    if (rc)
        return rc;
    nsbx_watch_set(k->watch, NSBX_READABLE);
    pid_t pid = nsbx_child_fork(k->process, 0, err);
    if (pid == 0)
        nsbx_keeper_main(plan, keeper_end);
    rc = pid < 0 ? pid : nsbx_child_await(k->process, err);
    if (pid > 0 && rc) {
        nsbx_watch_close(k->watch);
        k->watch = NULL;
        close(nsbx_steal_fd(&k->control)); /* ends the keeper */
        nsbx_child_reap_now(k->process);
    }
    return rc;
}

int nsbx_keeper_start(struct nsbx_loop *loop, const struct nsbx_spawn *spec,
                      const struct nsbx_keeper_events *events, void *ud, struct nsbx_keeper **out,
                      struct nsbx_err *err)
{
    struct nsbx_spawn_plan plan;
    int rc = nsbx_spawn_plan(&plan, spec, err);
    if (rc)
        return rc;
    plan.own_group = true; /* signals to the leader's group must not reach the keeper */
    struct nsbx_keeper *k = nsbx_calloc(1, sizeof *k);
    if (!k)
        return nsbx_err_nomem(err, "a keeper");
    k->events = *events;
    k->ud = ud;
    k->control = -1;
    nsbx_spawn_names(&k->names, spec);
    nsbx_object_open(&k->object, loop, "keeper", NULL);
    rc = nsbx_child_new(loop, NULL, on_process_exit, k, &k->process, err);
    if (!rc)
        rc = fork_keeper(k, &plan, err);
    if (rc) {
        release_parts(k);
        nsbx_free(k);
        return nsbx_err_wrap(err, "cannot start %s", spec->file);
    }
    *out = k;
    return 0;
}
