/* A local sandbox's life: create, ready, destroy. One state word, one setter; everything that ends it goes through teardown. */
#include "local.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/log.h"
#include "base/util.h"
#include "bwrap.h"
#include "diagnose.h"
#include "host.h"
#include "loop/timer.h"
#include "loop/work.h"
#include "place.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    TEARDOWN_GRACE_MS = 2000, /* from the lifeline's end to SIGKILL */
    TEARDOWN_LIMIT_MS = 4000, /* from there to giving up on a confirmation */
    MAX_WAITERS = 64,
    MAX_SAID = 4096,
};

enum state {
    CREATING,
    READY,
    ENDING,   /* the lifeline is closed; waiting for bwrap to end */
    REMOVING, /* a worker removes the files */
    ENDED,
};

struct nsbx_local {
    struct nsbx_loop *loop;
    enum state state;
    struct nsbx_place place;
    char workspace[NSBX_PATH_MAX];
    long uid; /* the host uid of its processes */
    struct nsbx_keeper
        *keeper;     /* of bwrap, which lives as long as the sandbox: what bwrap leaves is below it too */
    bool left;       /* bwrap has ended */
    bool exited;     /* and everything below it */
    int lifeline_fd; /* closing it ends everything */
    int socket_fd;   /* O_PATH: the agent's socket, which has no name any more */
    int said_fd;     /* a memory file: stderr of bwrap and agent */
    char socket_path[32];
    struct nsbx_guest *guest;
    struct nsbx_op *create; /* pending, or NULL */
    struct nsbx_op *health;
    struct nsbx_err failure; /* why a create failed */
    struct nsbx_timer *timer;
    bool forced;                          /* SIGKILL was sent */
    struct nsbx_op *waiters[MAX_WAITERS]; /* destroy calls */
    size_t n_waiters;
    struct nsbx_err end_err; /* why the end is not a clean one */
    bool abandoned;          /* freed by its user: frees itself at the end */
};

static void set_state(struct nsbx_local *l, enum state to)
{
    static const char *const names[] = {"creating", "ready", "ending", "removing", "ended"};
    nsbx_log(NSBX_LOG_DEBUG, "%s: %s → %s", l->place.name, names[l->state], names[to]);
    l->state = to;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(nsbx_steal_fd(fd));
}

static void release(struct nsbx_local *l)
{
    nsbx_timer_close(l->timer);
    nsbx_keeper_close(l->keeper, true);
    nsbx_guest_free(l->guest);
    close_fd(&l->lifeline_fd);
    close_fd(&l->socket_fd);
    close_fd(&l->said_fd);
    nsbx_place_close(&l->place);
    nsbx_free(l);
}

/* ---- the end ---- */

static void finish_end(struct nsbx_local *l)
{
    const struct nsbx_err *err = l->end_err.code ? &l->end_err : NULL;
    set_state(l, ENDED);
    nsbx_place_close(&l->place);
    for (size_t i = 0; i < l->n_waiters; i++) {
        if (nsbx_op_state(l->waiters[i]) == NSBX_OP_PENDING)
            nsbx_op_finish(l->waiters[i], err);
        nsbx_op_unref(l->waiters[i]);
    }
    l->n_waiters = 0;
    if (l->create) { /* a create that failed: its object never reaches anybody */
        struct nsbx_op *create = l->create;
        l->create = NULL;
        if (nsbx_op_stopping(create))
            nsbx_op_finish_stopped(create);
        else
            nsbx_op_finish(create, &l->failure);
        nsbx_op_unref(create);
        l->abandoned = true;
    }
    if (l->abandoned)
        release(l);
}

static void work_remove(void *ud)
{
    struct nsbx_local *l = ud;
    if (nsbx_place_remove(&l->place, &l->end_err) == 0)
        l->end_err.code = 0;
}

static void on_removed(void *ud)
{
    struct nsbx_local *l = ud;
    finish_end(l);
}

static void remove_files(struct nsbx_local *l)
{
    struct nsbx_err err = {0};
    set_state(l, REMOVING);
    nsbx_timer_stop(l->timer);
    if (nsbx_work(l->loop, work_remove, on_removed, l, &err) < 0) {
        work_remove(l); /* no memory for a worker: here and now, then */
        on_removed(l);
    }
}

/* bwrap can die before it ties its child to its own life, and leave it waiting for ever: only its keeper finds everything. */
static void force_end(struct nsbx_local *l)
{
    struct nsbx_err err = {0};
    l->forced = true;
    if (nsbx_keeper_end(l->keeper, 0, &err) < 0)
        nsbx_log(NSBX_LOG_WARN, "%s could not be killed: %s", l->place.name, err.message);
}

static void teardown(struct nsbx_local *l)
{
    if (l->state == ENDING || l->state == REMOVING || l->state == ENDED)
        return;
    set_state(l, ENDING);
    close_fd(&l->lifeline_fd);
    if (l->health) {
        nsbx_op_on_finish(l->health, NULL, NULL);
        nsbx_op_cancel(l->health);
        nsbx_op_unref(l->health);
        l->health = NULL;
    }
    if (l->exited || !l->keeper) {
        remove_files(l);
        return;
    }
    /* A sandbox that never answered may not have its lifeline yet: no grace. */
    if (l->create || l->left)
        force_end(l);
    nsbx_timer_start(l->timer, l->create ? TEARDOWN_LIMIT_MS : TEARDOWN_GRACE_MS);
}

static void fail_create(struct nsbx_local *l, const struct nsbx_err *err)
{
    if (l->failure.code == 0)
        l->failure = *err;
    teardown(l);
}

static void on_timer(void *ud)
{
    struct nsbx_local *l = ud;
    if (l->state == CREATING) { /* the agent was lost, and bwrap did not end: see on_health */
        fail_create(l, &l->failure);
        return;
    }
    if (l->state != ENDING)
        return;
    if (!l->forced) {
        force_end(l);
        nsbx_timer_start(l->timer, TEARDOWN_LIMIT_MS);
        return;
    }
    nsbx_err_set(&l->end_err, NSBX_E_UNKNOWN_OUTCOME,
                 "the end of %s could not be confirmed: its processes were killed and did not go", l->place.name);
    finish_end(l);
}

/* ---- the beginning ---- */

static void read_said(const struct nsbx_local *l, char *said, size_t size)
{
    ssize_t n = pread(l->said_fd, said, size - 1, 0);
    said[n > 0 ? n : 0] = '\0';
}

/* For tests: what bwrap and the agent said, and how they ended, outlives them. */
static void keep_record(const struct nsbx_local *l, const struct nsbx_exit *how)
{
    const char *path = getenv("NSBX_AGENT_LOG");
    if (!path)
        return;
    NSBX_AUTO_CLOSE int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    char block[4096];
    dprintf(fd, "%s: exit %d signal %d\n", l->place.name, how->code, how->signal);
    off_t at = 0;
    for (ssize_t n; (n = pread(l->said_fd, block, sizeof block, at)) > 0; at += n)
        if (write(fd, block, (size_t)n) != n)
            return;
}

/* bwrap has ended, and with it its PID 1, if there was one. */
static void on_leader_exit(void *ud, const struct nsbx_exit *how)
{
    struct nsbx_local *l = ud;
    l->left = true;
    keep_record(l, how);
    if (l->state == CREATING) {
        char said[MAX_SAID];
        struct nsbx_err err = {0};
        l->failure.code = 0; /* what the connection said of the same end says less */
        read_said(l, said, sizeof said);
        nsbx_diagnose_bwrap(said, l->uid, &err);
        fail_create(l, &err);
        return;
    }
    if (l->state == READY) {
        /* Who asks after it need not wait for an answer. */
        struct nsbx_err gone = {0};
        if (how->signal)
            nsbx_err_set(&gone, NSBX_E_GONE, "the sandbox was ended from outside (%s)",
                         nsbx_signal_name(how->signal));
        else if (!how->known)
            nsbx_err_set(&gone, NSBX_E_GONE, "the sandbox was ended from outside");
        else
            nsbx_err_set(&gone, NSBX_E_GONE, "the sandbox has ended by itself (exit %d)", how->code);
        nsbx_guest_gone(l->guest, &gone);
    }
    force_end(l); /* usually there is nothing left to end */
}

static void on_tree_end(void *ud)
{
    struct nsbx_local *l = ud;
    l->exited = true;
    close_fd(&l->lifeline_fd);
    if (l->state == ENDING)
        remove_files(l);
}

static void on_start_failed(void *ud, const struct nsbx_err *err)
{
    struct nsbx_local *l = ud;
    struct nsbx_err copy = *err;
    l->left = l->exited = true;
    nsbx_diagnose_missing(&copy);
    if (l->state == CREATING) {
        l->failure.code = 0; /* as in on_leader_exit */
        fail_create(l, &copy);
    } else if (l->state == ENDING)
        remove_files(l);
}

/* Somebody killed the keeper. bwrap dies with it (parent_death_signal), and its PID 1 with bwrap. */
static void on_lost(void *ud, const struct nsbx_err *err)
{
    struct nsbx_local *l = ud;
    const struct nsbx_exit unknown = {.code = -1};
    nsbx_log(NSBX_LOG_WARN, "%s: %s", l->place.name, err->message);
    if (!l->left)
        on_leader_exit(l, &unknown);
    on_tree_end(l);
}

/* That bwrap runs says nothing yet: the agent's answer does. */
static void on_started(void *ud, pid_t leader)
{
    (void)ud;
    (void)leader;
}

static const struct nsbx_keeper_events keeper_events = {.on_started = on_started,
                                                        .on_failed = on_start_failed,
                                                        .on_leader_exit = on_leader_exit,
                                                        .on_tree_end = on_tree_end,
                                                        .on_lost = on_lost};

static void free_result(void *result)
{
    nsbx_local_free(result);
}

static void on_health(struct nsbx_op *op, void *ud)
{
    struct nsbx_local *l = ud;
    const struct nsbx_err *err = nsbx_op_err(op);
    struct nsbx_err copy = {0};
    if (err)
        copy = *err;
    l->health = NULL;
    nsbx_op_unref(op);
    if (!err) {
        set_state(l, READY);
        struct nsbx_op *create = l->create;
        l->create = NULL;
        nsbx_op_set_result(create, l, free_result);
        nsbx_op_disown(create);
        nsbx_op_finish(create, NULL);
        nsbx_op_unref(create);
        return;
    }
    /* bwrap's end explains more than the connection's. It is on its way: give it a moment to come first. */
    if (!l->left && (copy.code == NSBX_E_UNREACHABLE || copy.code == NSBX_E_STREAM_LOST) && l->failure.code == 0) {
        l->failure = copy;
        nsbx_err_wrap(&l->failure, "the agent of %s did not answer", l->place.name);
        nsbx_timer_start(l->timer, TEARDOWN_GRACE_MS);
        return;
    }
    nsbx_err_wrap(&copy, "the agent of %s did not answer", l->place.name);
    fail_create(l, &copy);
}

static int make_workspace(struct nsbx_local *l, const struct nsbx_local_options *o, struct nsbx_err *err)
{
    if (o->workspace)
        return nsbx_host_check_workspace(o->workspace, l->uid, l->workspace, err);
    /* One that is to be kept lies beside the sandbox's directory, under a name that no sweep takes. */
    char name[NSBX_PLACE_NAME];
    snprintf(name, sizeof name, "kept-%s", l->place.name + strlen("local-"));
    int dir = o->keep ? l->place.base_fd : l->place.dir_fd;
    int at = o->keep ? snprintf(l->workspace, sizeof l->workspace, "%.*s%s",
                                (int)(strlen(l->place.path) - strlen(l->place.name)), l->place.path, name)
                     : snprintf(l->workspace, sizeof l->workspace, "%s/workspace", l->place.path);
    if (at < 0 || (size_t)at >= sizeof l->workspace)
        return nsbx_err_set(err, NSBX_E_INVALID, "TMPDIR is too long for a path");
    const char *leaf = o->keep ? name : "workspace";
    if (mkdirat(dir, leaf, 0700) < 0)
        return nsbx_err_sys(err, errno, "make '%s'", l->workspace);
    if (geteuid() == 0 && fchownat(dir, leaf, (uid_t)l->uid, (gid_t)l->uid, AT_SYMLINK_NOFOLLOW) < 0)
        return nsbx_err_sys(err, errno, "give '%s' to uid %ld", l->workspace, l->uid);
    if (!nsbx_host_writable_by(l->workspace, l->uid))
        return nsbx_err_set(
            err, NSBX_E_FORBIDDEN,
            "uid %ld, as which the sandbox runs, cannot reach '%s': set TMPDIR to a directory that it "
            "can pass through",
            l->uid, l->workspace);
    return 0;
}

static int start_bwrap(struct nsbx_local *l, const struct nsbx_local_options *o, int listen_fd, int lifeline_read,
                       struct nsbx_err *err)
{
    NSBX_AUTO_CLOSE int agent = nsbx_host_open_agent(o->agent, err);
    if (agent < 0)
        return agent;
    NSBX_AUTO_CLOSE int passwd =
        nsbx_host_memory_file("passwd", "sandbox:x:1000:1000:sandbox:" NSBX_INSIDE_WORKSPACE ":/bin/sh\n", err);
    NSBX_AUTO_CLOSE int group = nsbx_host_memory_file("group", "sandbox:x:1000:\n", err);
    l->said_fd = nsbx_host_memory_file("stderr", "", err);
    if (passwd < 0 || group < 0 || l->said_fd < 0)
        return -NSBX_E_IO;
    struct nsbx_args args;
    int rc = nsbx_bwrap_args(o, l->workspace, &args, err);
    if (rc < 0)
        return rc;
    /* PATH is for finding bwrap; what runs inside gets an environment of its own. */
    const char *path = getenv("PATH");
    struct nsbx_buf env_path;
    nsbx_buf_init(&env_path, NSBX_MAX_ENV_VALUE);
    rc = nsbx_buf_printf(&env_path, err, "PATH=%s%c", path ? path : "/usr/local/bin:/usr/bin:/bin", 0);
    if (rc < 0) {
        nsbx_args_free(&args);
        return rc;
    }
    const char *const env[] = {(const char *)nsbx_buf_data(&env_path), NULL};
    struct nsbx_spawn spec;
    nsbx_spawn_init(&spec);
    spec.file = "bwrap";
    spec.argv = (const char *const *)args.v;
    spec.envp = env;
    spec.cwd = "/";
    spec.new_session = true;
    spec.new_keyring = true;
    spec.parent_death_signal = SIGKILL;
    const struct nsbx_fd_map fds[] = {
        {l->said_fd, 2},           {listen_fd, NSBX_BWRAP_LISTEN}, {lifeline_read, NSBX_BWRAP_LIFELINE},
        {agent, NSBX_BWRAP_AGENT}, {passwd, NSBX_BWRAP_PASSWD},    {group, NSBX_BWRAP_GROUP}};
    memcpy(spec.fds, fds, sizeof fds);
    spec.n_fds = NSBX_LEN(fds);
    spec.drop = geteuid() == 0;
    spec.uid = (uid_t)l->uid;
    spec.gid = (gid_t)l->uid;
    rc = nsbx_keeper_start(l->loop, &spec, &keeper_events, l, &l->keeper, err);
    nsbx_args_free(&args);
    nsbx_buf_free(&env_path);
    return rc;
}

static void stop_create(struct nsbx_op *op, void *owner, enum nsbx_op_stop why)
{
    (void)op;
    (void)why;
    teardown(owner);
}

struct sweep {
    int base_fd;
};

static void work_sweep(void *ud)
{
    struct sweep *s = ud;
    struct nsbx_err err = {0};
    if (nsbx_place_sweep(s->base_fd, &err) < 0)
        nsbx_log(NSBX_LOG_WARN, "what dead processes left could not be removed: %s", err.message);
}

static void on_swept(void *ud)
{
    struct sweep *s = ud;
    close(s->base_fd);
    nsbx_free(s);
}

/* In the background: a large ruin must not hold the new sandbox up. */
static void start_sweep(struct nsbx_local *l)
{
    struct sweep *s = nsbx_malloc(sizeof *s);
    if (!s)
        return;
    s->base_fd = fcntl(l->place.base_fd, F_DUPFD_CLOEXEC, 0);
    if (s->base_fd < 0 || nsbx_work(l->loop, work_sweep, on_swept, s, NULL) < 0) {
        close_fd(&s->base_fd);
        nsbx_free(s);
    }
}

static int build(struct nsbx_local *l, const struct nsbx_local_options *o, struct nsbx_err *err)
{
    int rc = nsbx_place_open(&l->place, err);
    if (rc < 0)
        return rc;
    start_sweep(l);
    rc = make_workspace(l, o, err);
    if (rc < 0)
        return rc;
    NSBX_AUTO_CLOSE int listen_fd = nsbx_host_listen_nameless(l->place.dir_fd, &l->socket_fd, err);
    if (listen_fd < 0)
        return listen_fd;
    int lifeline[2];
    if (pipe2(lifeline, O_CLOEXEC) < 0)
        return nsbx_err_sys(err, errno, "a pipe");
    NSBX_AUTO_CLOSE int lifeline_read = lifeline[0];
    l->lifeline_fd = lifeline[1];
    snprintf(l->socket_path, sizeof l->socket_path, "/proc/self/fd/%d", l->socket_fd);
    const struct nsbx_guest_options guest = {
        .arm = NSBX_ARM_UNIX, .unix_path = l->socket_path, .dial_budget_ms = -1};
    rc = nsbx_guest_new(l->loop, &guest, &l->guest, err);
    if (rc == 0)
        rc = start_bwrap(l, o, listen_fd, lifeline_read, err);
    return rc;
}

static int choose_uid(const struct nsbx_local_options *o, long *uid, struct nsbx_err *err)
{
    long own = (long)geteuid();
    *uid = own == 0 ? (o->uid < 0 ? 65534 : o->uid) : own;
    if (own == 0 && *uid == 0)
        return nsbx_err_set(err, NSBX_E_INVALID,
                            "uid: a sandbox never runs as the host's root; choose an unprivileged uid");
    if (own == 0 && !nsbx_host_uid_is_mapped(*uid))
        return nsbx_err_set(err, NSBX_E_UNSUPPORTED,
                            "uid: %ld does not exist in this user namespace (a rootless container?); choose one of "
                            "/proc/self/uid_map with uid=, or run as a plain user",
                            *uid);
    if (own != 0 && o->uid >= 0 && o->uid != own)
        return nsbx_err_set(err, NSBX_E_FORBIDDEN, "uid: only root can choose another uid than its own (%ld)", own);
    return 0;
}

struct nsbx_op *nsbx_local_create(struct nsbx_loop *loop, const struct nsbx_local_options *o, int64_t timeout_ms)
{
    struct nsbx_local *l = nsbx_calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->loop = loop;
    l->place.base_fd = l->place.dir_fd = l->place.lock_fd = -1;
    l->lifeline_fd = l->socket_fd = l->said_fd = -1;
    const struct nsbx_op_spec spec = {.name = "create", .timeout_ms = timeout_ms, .stop = stop_create, .owner = l};
    l->timer = nsbx_timer_new(loop, on_timer, l);
    l->create = nsbx_op_new(loop, &spec);
    if (!l->timer || !l->create) {
        nsbx_op_unref(l->create);
        release(l);
        return NULL;
    }
    struct nsbx_op *op = nsbx_op_ref(l->create);
    struct nsbx_err err = {0};
    int rc = choose_uid(o, &l->uid, &err);
    if (rc == 0)
        rc = build(l, o, &err);
    if (rc == 0) {
        l->health = nsbx_guest_health(l->guest, -1);
        if (!l->health)
            rc = nsbx_err_nomem(&err, "a sandbox");
    }
    if (rc < 0)
        fail_create(l, &err);
    else
        nsbx_op_on_finish(l->health, on_health, l);
    return op;
}

/* ---- the handle ---- */

struct nsbx_guest *nsbx_local_guest(struct nsbx_local *l)
{
    return l->guest;
}

const char *nsbx_local_id(const struct nsbx_local *l)
{
    return l->place.name;
}

const char *nsbx_local_root_dir(const struct nsbx_local *l)
{
    (void)l;
    return NSBX_INSIDE_WORKSPACE;
}

const char *nsbx_local_workspace(const struct nsbx_local *l)
{
    return l->workspace;
}

bool nsbx_local_alive(const struct nsbx_local *l)
{
    return l->state == READY && !l->left;
}

struct nsbx_op *nsbx_local_destroy(struct nsbx_local *l, int64_t timeout_ms)
{
    /* Its stop ends the waiting only: nothing owned, so no stop function. */
    const struct nsbx_op_spec spec = {.name = "destroy", .timeout_ms = timeout_ms};
    if (l->n_waiters == MAX_WAITERS)
        return NULL;
    struct nsbx_op *op = nsbx_op_new(l->loop, &spec);
    if (!op)
        return NULL;
    if (l->state == ENDED) {
        nsbx_op_finish(op, l->end_err.code ? &l->end_err : NULL);
        return op;
    }
    l->waiters[l->n_waiters++] = nsbx_op_ref(op);
    teardown(l);
    return op;
}

void nsbx_local_free(struct nsbx_local *l)
{
    if (!l)
        return;
    if (l->state == ENDED) {
        release(l);
        return;
    }
    l->abandoned = true;
    teardown(l);
}
