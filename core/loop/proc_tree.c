#include "proc_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    STAT_BYTES = 512,           /* more than the 22 fields that are read can take */
    DIRENT_BYTES = 2048,        /* small, so that the numbers are fresh when they are looked at */
    PID_PROBE_NEAR = 64 * 1024, /* where most systems' numbers are */
    PIDS = 4 * 1024 * 1024,     /* the kernel's largest pid_max */
    FIELD_STATE = 3,
    FIELD_THREADS = 20,
    FIELD_START = 22,
};

/* ---- /proc/<pid>/stat ---- */

struct proc_stat {
    pid_t ppid;
    uint64_t start;
    bool dead; /* a zombie in every thread */
};

static uint64_t parse_number(const char **at)
{
    uint64_t n = 0;
    while (**at >= '0' && **at <= '9')
        n = n * 10 + (uint64_t)(*(*at)++ - '0');
    return n;
}

/* "<pid>" and a tail, NUL-terminated. */
static void pid_path(char out[32], pid_t pid, const char *tail)
{
    char digits[12];
    size_t n = 0;
    for (unsigned rest = (unsigned)pid; rest || !n; rest /= 10)
        digits[n++] = (char)('0' + rest % 10);
    while (n)
        *out++ = digits[--n];
    memcpy(out, tail, strlen(tail) + 1);
}

static bool parse_stat(const char *text, struct proc_stat *out)
{
    /* The name is in parentheses and may hold some itself; nothing behind it does. */
    const char *at = strrchr(text, ')');
    if (!at || at[1] != ' ')
        return false;
    at += 2;
    uint64_t fields[FIELD_START + 1] = {0};
    char state = *at;
    for (int field = FIELD_STATE; field <= FIELD_START; field++) {
        fields[field] = parse_number(&at); /* 0 for what is negative or no number: none of ours */
        at = strchr(at, ' ');
        if (!at)
            return false;
        at++;
    }
    out->ppid = (pid_t)fields[4];
    out->start = fields[FIELD_START];
    out->dead = (state == 'Z' || state == 'X') && fields[FIELD_THREADS] <= 1;
    return true;
}

static bool read_stat(const struct nsbx_tree *t, pid_t pid, struct proc_stat *out)
{
    char path[32], text[STAT_BYTES];
    pid_path(path, pid, "/stat");
    int fd = openat(t->proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    return parse_stat(text, out);
}

/* ---- opening ---- */

struct nsbx_tree_slot {
    uint64_t start;
    uint32_t round;     /* the one that `start` is of; others: free */
    uint32_t walk : 31; /* the last one that met it */
    uint32_t own : 1;   /* our own child */
};

/* A /proc that was mounted in another pid namespace shows us under another number, or not at all. */
static bool shows_us(int proc, pid_t self)
{
    char link[16], want[32];
    ssize_t n = readlinkat(proc, "self", link, sizeof link);
    pid_path(want, self, "");
    return n > 0 && (size_t)n == strlen(want) && memcmp(link, want, (size_t)n) == 0;
}

/* Most keepers never need any of it. */
static void open_once(struct nsbx_tree *t)
{
    if (t->self)
        return;
    t->self = getpid();
    void *slots = mmap(NULL, PIDS * sizeof *t->slots, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    t->slots = slots == MAP_FAILED ? NULL : slots;
    t->proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (t->proc >= 0 && !shows_us(t->proc, t->self)) {
        close(t->proc);
        t->proc = -1;
    }
}

/* ---- the table ---- */

void nsbx_tree_forget(struct nsbx_tree *t)
{
    open_once(t);
    t->round++;
    t->low = PIDS;
    t->high = 0;
}

/* NULL when it was not met. */
static struct nsbx_tree_slot *find(const struct nsbx_tree *t, pid_t pid)
{
    if (!t->slots || pid < 0 || pid >= PIDS || t->slots[pid].round != t->round)
        return NULL;
    return &t->slots[pid];
}

static void record(struct nsbx_tree *t, pid_t pid, bool own, uint64_t start)
{
    if (!t->slots || pid < 0 || pid >= PIDS)
        return;
    t->slots[pid] = (struct nsbx_tree_slot){.start = start, .round = t->round, .walk = t->walk, .own = own};
    t->low = pid < t->low ? pid : t->low;
    t->high = pid > t->high ? pid : t->high;
}

/* Whether `pid` is a descendant met before and still the same process. */
static bool is_met(const struct nsbx_tree *t, pid_t pid)
{
    struct nsbx_tree_slot *slot = find(t, pid);
    struct proc_stat now;
    if (!slot)
        return false;
    if (slot->walk != t->walk) {
        if (!read_stat(t, pid, &now) || now.start != slot->start)
            return false;
        slot->walk = t->walk;
    }
    return true;
}

/* ---- every process, every child ---- */

/* Calls `fn` for each process number that /proc shows. */
static void each_pid(struct nsbx_tree *t, void (*fn)(struct nsbx_tree *t, pid_t pid, void *ud), void *ud)
{
    union {
        struct dirent64 align;
        char bytes[DIRENT_BYTES];
    } buf;
    ssize_t n;
    if (t->proc < 0 || lseek(t->proc, 0, SEEK_SET) < 0)
        return;
    while ((n = getdents64(t->proc, buf.bytes, sizeof buf.bytes)) > 0)
        for (ssize_t at = 0; at < n;) {
            /* The kernel aligns each record for this type. */
            const struct dirent64 *entry = (const struct dirent64 *)(const void *)(buf.bytes + at);
            at += entry->d_reclen;
            const char *name = entry->d_name;
            uint64_t pid = parse_number(&name);
            if (pid && !*name)
                fn(t, (pid_t)pid, ud);
        }
}

struct child_visit {
    bool (*fn)(void *ud, pid_t pid);
    void *ud;
    bool any, wanted;
};

static void visit_one(struct child_visit *v, pid_t pid)
{
    v->any = true;
    if (v->fn(v->ud, pid))
        v->wanted = true;
}

static void visit_if_child(struct nsbx_tree *t, pid_t pid, void *ud)
{
    struct child_visit *v = ud;
    struct proc_stat stat;
    if (!read_stat(t, pid, &stat) || stat.ppid != t->self)
        return;
    visit_one(v, pid);
}

/* The kernel's own list of them, where it is configured. */
static bool children_listed(struct nsbx_tree *t, struct child_visit *v)
{
    char buf[1024];
    pid_t pid = 0;
    ssize_t n;
    int fd = t->proc < 0 ? -1 : openat(t->proc, "thread-self/children", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    while ((n = read(fd, buf, sizeof buf)) > 0)
        for (ssize_t i = 0; i < n; i++) {
            if (buf[i] >= '0' && buf[i] <= '9') {
                pid = pid * 10 + (buf[i] - '0');
                continue;
            }
            if (pid)
                visit_one(v, pid);
            pid = 0;
        }
    close(fd);
    return true;
}

/* Without /proc: asks for every number there can be. Exact, but all of them take half a second. */
static void children_probed(struct child_visit *v)
{
    for (pid_t pid = 2; pid < PIDS && !(v->wanted && pid >= PID_PROBE_NEAR); pid++)
        if (syscall(SYS_waitid, P_PID, pid, NULL, WEXITED | WNOHANG | WNOWAIT, NULL) == 0)
            visit_one(v, pid);
}

void nsbx_tree_children(struct nsbx_tree *t, bool (*fn)(void *ud, pid_t pid), void *ud)
{
    struct child_visit v = {.fn = fn, .ud = ud};
    open_once(t);
    if (children_listed(t, &v))
        return;
    each_pid(t, visit_if_child, &v);
    if (!v.any)
        children_probed(&v);
}

/* ---- signals ---- */

static void signal_other(const struct nsbx_tree *t, pid_t pid, uint64_t start, int signo)
{
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0)
        return;
    struct proc_stat now;
    if (read_stat(t, pid, &now) && now.start == start)
        syscall(SYS_pidfd_send_signal, pidfd, signo, NULL, 0);
    close(pidfd);
}

struct walk {
    int signo;
    size_t met, fresh;
};

static void meet(struct nsbx_tree *t, struct walk *w, pid_t pid, bool own, uint64_t start)
{
    record(t, pid, own, start);
    w->met++;
    w->fresh++;
    if (own)
        kill(pid, w->signo);
    else
        signal_other(t, pid, start, w->signo);
}

static void visit(struct nsbx_tree *t, pid_t pid, void *ud)
{
    struct walk *w = ud;
    struct proc_stat stat;
    if (!read_stat(t, pid, &stat) || stat.dead)
        return;
    bool own = stat.ppid == t->self;
    if (!own && !is_met(t, stat.ppid))
        return;
    struct nsbx_tree_slot *slot = find(t, pid);
    if (slot && slot->start == stat.start) {
        slot->own = own;
        slot->walk = t->walk;
        w->met++;
        return;
    }
    meet(t, w, pid, own, stat.start);
}

struct probe {
    struct nsbx_tree *t;
    struct walk *w;
};

/* Nobody sees what is below this child, but what is in its group can be stopped with it. Only descendants can be there: a
 * process never moves into another session, and every session below us but our own was made below us. */
static void stop_group(const struct nsbx_tree *t, pid_t pid)
{
    pid_t pgrp = getpgid(pid);
    if (pgrp > 1 && pgrp != t->self)
        kill(-pgrp, SIGSTOP);
}

static bool visit_child(void *ud, pid_t pid)
{
    struct probe *p = ud;
    siginfo_t si;
    if (waitid(P_PID, (id_t)pid, &si, WSTOPPED | WNOHANG | WNOWAIT) < 0)
        return false; /* ECHILD: a zombie never stops */
    if (find(p->t, pid))
        return true;
    meet(p->t, p->w, pid, true, 0);
    if (p->w->signo == SIGSTOP)
        stop_group(p->t, pid);
    return true;
}

size_t nsbx_tree_signal_new(struct nsbx_tree *t, int signo)
{
    struct walk w = {.signo = signo};
    if (!t->slots && signo == SIGSTOP)
        w.signo = SIGKILL; /* nothing can be remembered for later */
    t->walk++;
    each_pid(t, visit, &w);
    /* Whoever walks knows of a living child: a /proc that shows none is of no use. A second look would cost too much. */
    if (!w.met) {
        struct probe p = {.t = t, .w = &w};
        nsbx_tree_children(t, visit_child, &p);
        return 0;
    }
    return t->slots ? w.fresh : 0;
}

void nsbx_tree_signal_all(struct nsbx_tree *t, int signo)
{
    for (pid_t pid = t->low; pid <= t->high; pid++) {
        const struct nsbx_tree_slot *slot = find(t, pid);
        if (slot && slot->own)
            kill(pid, signo);
        else if (slot)
            signal_other(t, pid, slot->start, signo);
    }
}
