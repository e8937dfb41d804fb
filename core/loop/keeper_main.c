#include "keeper_main.h"

#include "proc_tree.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    LEADER_STACK = 64 * 1024, /* until its exec */
    WALKS_MAX = 64,           /* of one round, when forks outrun them */
    ROUND_MS = 10,            /* a round's wait for the killed to die; doubled while none does */
    ROUND_MAX_MS = 320,
    REAP_PAUSE_MS = 10,     /* between two passes over the children beside an ended leader */
    REAP_PAUSE_FACTOR = 20, /* and that times what the last pass took: it never costs more than a twentieth */
};

/* A process has one keeper's life at most, and its stack may be small. */
static struct keeper {
    int control;
    bool control_ended; /* the program is gone, or it says no more */
    int signals;
    pid_t leader;
    bool leader_held;  /* not reaped yet: its number and its group's are nobody else's */
    bool leader_ended; /* and the program knows */
    bool released;
    bool ending;
    bool children_changed;
    int64_t end_at;  /* when the grace is over */
    int64_t reap_at; /* earliest next pass over the children */
    struct nsbx_tree tree;
} self;

static unsigned char leader_stack[LEADER_STACK] __attribute__((aligned(16)));

static int64_t now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* The program may be gone or about to be; the end of file tells that in its own time. */
static void tell(struct keeper *k, enum nsbx_keeper_type type, int32_t a, int32_t b)
{
    struct nsbx_keeper_msg msg = {.type = (int32_t)type, .a = a, .b = b};
    send(k->control, &msg, sizeof msg, MSG_NOSIGNAL);
}

/* ---- starting the leader ---- */

/* clone under the name that no sanitizer takes for a fork: their runtime would lock in it what a copy must unlock. */
int __clone(int (*fn)(void *), void *stack, int flags, void *arg, ...);

struct leader_start {
    const struct nsbx_spawn_plan *plan;
    pid_t keeper;
    struct nsbx_spawn_report report;
};

static int leader_main(void *arg)
{
    struct leader_start *start = arg;
    nsbx_spawn_exec(start->plan, start->keeper, -1, &start->report);
    return 127;
}

/* Shares our memory and holds us until it has exec'ed or ended: nothing is copied a second time, and what went wrong is
 * simply there to read. Sound because we are one thread and all signals are blocked. */
static void start_leader(struct keeper *k, struct leader_start *start)
{
    k->leader = __clone(leader_main, leader_stack + sizeof leader_stack, CLONE_VM | CLONE_VFORK | SIGCHLD, start);
    if (k->leader < 0)
        start->report = (struct nsbx_spawn_report){.stage = NSBX_SPAWN_STAGE_FORK, .sys = errno};
    else if (start->report.sys)
        waitid(P_PID, (id_t)k->leader, &(siginfo_t){0}, WEXITED);
}

/* 0 or an errno. */
static int become_keeper(struct keeper *k, const struct nsbx_spawn *spec)
{
    int keep[NSBX_SPAWN_MAX_FDS + 2];
    size_t n = 0;
    keep[n++] = k->control;
    for (size_t i = 0; i < spec->n_fds; i++)
        keep[n++] = spec->fds[i].from;
    keep[n++] = spec->cwd_fd;
    /* The program's other descriptors go first: an exec can take its time, and a connection or a pipe that the program
     * closes meanwhile must be closed. */
    int sys = nsbx_spawn_close_except(keep, n);
    if (sys)
        return sys;
    nsbx_spawn_default_signal(SIGCHLD); /* ignored, it would reap the leader */
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    k->signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    if (k->signals < 0 || setsid() < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1ul, 0ul, 0ul, 0ul) < 0)
        return errno;
    return 0;
}

static void begin(struct keeper *k, const struct nsbx_spawn_plan *plan)
{
    struct leader_start start = {.plan = plan, .keeper = getpid()};
    start.report.stage = NSBX_SPAWN_STAGE_FORK;
    start.report.sys = become_keeper(k, plan->spec);
    if (!start.report.sys)
        start_leader(k, &start);
    if (start.report.sys) {
        tell(k, NSBX_KEEPER_FAILED, start.report.stage, start.report.sys);
        _exit(0);
    }
    k->leader_held = true;
    int keep[] = {k->control, k->signals};
    nsbx_spawn_close_except(keep, sizeof keep / sizeof keep[0]);
    tell(k, NSBX_KEEPER_STARTED, k->leader, 0);
    prctl(PR_SET_NAME, "nsbx-keeper", 0ul, 0ul, 0ul);
    if (chdir("/") < 0)
        return; /* keeps a directory busy, no more */
}

/* ---- reaping ---- */

static void note_leader_exit(struct keeper *k, const siginfo_t *si)
{
    if (k->leader_ended)
        return;
    k->leader_ended = true;
    bool exited = si->si_code == CLD_EXITED;
    tell(k, NSBX_KEEPER_LEADER_EXIT, exited ? si->si_status : -1, exited ? 0 : si->si_status);
}

static _Noreturn void finish(struct keeper *k)
{
    tell(k, NSBX_KEEPER_TREE_END, 0, 0);
    _exit(0);
}

/* Reaps whatever has ended, the leader too. Returns how many; does not return when no child is left, which means that no
 * process of the tree is: whoever lost his parent became our child before that one could be reaped. */
static unsigned reap_all(struct keeper *k)
{
    for (unsigned n = 0;; n++) {
        siginfo_t si = {0};
        if (waitid(P_ALL, 0, &si, WEXITED | WNOHANG) < 0 && errno == ECHILD)
            finish(k);
        if (!si.si_pid)
            return n;
        if (si.si_pid == k->leader && k->leader_held) {
            note_leader_exit(k, &si);
            k->leader_held = false;
        }
    }
}

/* A wait for stopped children only does not count zombies as children. */
static bool all_children_dead(void)
{
    siginfo_t si;
    return waitid(P_ALL, 0, &si, WSTOPPED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD;
}

static bool reap_unless_leader(void *ud, pid_t pid)
{
    struct keeper *k = ud;
    siginfo_t si = {0};
    if (pid == k->leader || waitid(P_PID, (id_t)pid, &si, WEXITED | WNOHANG) < 0 || !si.si_pid)
        return false;
    k->children_changed = true; /* the list changed under the pass: another one follows */
    return true;
}

/* An ended leader that is held is the first that any wait for all children finds: the others are asked for one by one. */
static void reap_beside_leader(struct keeper *k)
{
    int64_t began = now_ms();
    if (began < k->reap_at)
        return;
    k->children_changed = false;
    nsbx_tree_children(&k->tree, reap_unless_leader, k);
    int64_t ended = now_ms();
    k->reap_at = ended + REAP_PAUSE_MS + (ended - began) * REAP_PAUSE_FACTOR;
}

static void reap_while_leader_runs(struct keeper *k)
{
    while (!k->leader_ended) {
        siginfo_t si = {0};
        waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT);
        if (!si.si_pid)
            return;
        if (si.si_pid == k->leader)
            note_leader_exit(k, &si);
        else
            waitid(P_PID, (id_t)si.si_pid, &si, WEXITED | WNOHANG);
    }
}

static void children_changed(struct keeper *k)
{
    if (k->leader_held)
        reap_while_leader_runs(k);
    if (k->leader_held && !k->leader_ended)
        k->children_changed = false;
    else if (!k->leader_held || all_children_dead()) {
        k->children_changed = false;
        reap_all(k);
    } else
        reap_beside_leader(k);
}

/* ---- ending the tree ---- */

static void signal_group(struct keeper *k, int signo)
{
    if (k->leader_held)
        kill(-k->leader, signo);
}

/* Stops whatever runs, so that nothing is born any more; then kills it. */
static void kill_round(struct keeper *k)
{
    nsbx_tree_forget(&k->tree);
    signal_group(k, SIGSTOP);
    for (int walk = 0; walk < WALKS_MAX && nsbx_tree_signal_new(&k->tree, SIGSTOP); walk++)
        ;
    signal_group(k, SIGKILL);
    nsbx_tree_signal_all(&k->tree, SIGKILL);
}

static void drain_signals(const struct keeper *k)
{
    struct signalfd_siginfo si[8];
    while (read(k->signals, si, sizeof si) == (ssize_t)sizeof si)
        ;
}

/* Returns only by finish: as long as one child lives, that is not the end, and nothing else is told. */
static _Noreturn void end_now(struct keeper *k)
{
    for (int64_t wait_ms = ROUND_MS;;) {
        kill_round(k);
        unsigned reaped = 0;
        for (int64_t left = wait_ms, until = now_ms() + wait_ms; left > 0; left = until - now_ms()) {
            reaped += reap_all(k);
            struct pollfd fd = {.fd = k->signals, .events = POLLIN};
            poll(&fd, 1, (int)left);
            drain_signals(k);
        }
        wait_ms = reaped ? ROUND_MS : wait_ms * 2 > ROUND_MAX_MS ? ROUND_MAX_MS : wait_ms * 2;
    }
}

static void end_after(struct keeper *k, int64_t grace_ms)
{
    int64_t at = now_ms() + grace_ms;
    if (k->ending) {
        k->end_at = at < k->end_at ? at : k->end_at;
        return;
    }
    k->ending = true;
    k->end_at = at;
    if (grace_ms > 0) {
        signal_group(k, SIGTERM);
        signal_group(k, SIGCONT); /* one that is stopped could not use its grace */
    }
}

/* ---- the program's wishes ---- */

static void signal_tree(struct keeper *k, int signo)
{
    if (signo == SIGKILL) {
        end_after(k, 0);
        return;
    }
    nsbx_tree_forget(&k->tree);
    for (int walk = 0; walk < WALKS_MAX && nsbx_tree_signal_new(&k->tree, signo); walk++)
        ;
}

static void read_control(struct keeper *k)
{
    for (;;) {
        struct nsbx_keeper_msg msg;
        ssize_t n = recv(k->control, &msg, sizeof msg, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n != (ssize_t)sizeof msg) {
            k->control_ended = true;
            if (!k->released)
                end_after(k, 0);
            return;
        }
        if (msg.type == NSBX_KEEPER_SIGNAL && msg.b)
            signal_tree(k, msg.a);
        else if (msg.type == NSBX_KEEPER_SIGNAL)
            signal_group(k, msg.a);
        else if (msg.type == NSBX_KEEPER_END)
            end_after(k, msg.a);
        else if (msg.type == NSBX_KEEPER_RELEASE)
            k->released = true;
    }
}

/* ---- its life ---- */

/* Milliseconds until something is due, for poll. */
static int due_in(const struct keeper *k)
{
    int64_t at = INT64_MAX;
    if (k->ending)
        at = k->end_at;
    if (k->children_changed && k->reap_at < at)
        at = k->reap_at;
    if (at == INT64_MAX)
        return -1;
    int64_t left = at - now_ms();
    return left < 0 ? 0 : left > INT32_MAX ? INT32_MAX : (int)left;
}

_Noreturn void nsbx_keeper_main(const struct nsbx_spawn_plan *plan, int control)
{
    struct keeper *k = &self;
    nsbx_spawn_block_signals(true);
    k->control = control;
    begin(k, plan);
    for (;;) {
        struct pollfd fds[] = {{.fd = k->signals, .events = POLLIN}, {.fd = k->control, .events = POLLIN}};
        poll(fds, k->control_ended ? 1 : 2, due_in(k));
        if (fds[0].revents) {
            drain_signals(k);
            k->children_changed = true;
        }
        if (k->children_changed)
            children_changed(k);
        if (fds[1].revents)
            read_control(k);
        if (k->ending && now_ms() >= k->end_at)
            end_now(k);
    }
}
