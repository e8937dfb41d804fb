#include "spawn_child.h"

#include "base/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    KERNEL_SIGNALS = 64,
    KERNEL_SIGSET_BYTES = KERNEL_SIGNALS / 8,
    STASH_MAX = NSBX_SPAWN_MAX_FDS + 3, /* the mapped ones and /dev/null for 0, 1 and 2 */
    KEEP_MAX = STASH_MAX + 1,
    BUSY_PAUSE_MS = 1,
    BUSY_PAUSE_MAX_MS = 64,
};

/* Some calls go to the kernel directly: glibc keeps two signals from its sigaction and its masks, and its setres*id and
 * setgroups would wait for the threads of a program of which this process is only a copy. A thread sanitizer, which knows
 * as little of the fork, would take our descriptors for those of the program's threads. */

void nsbx_spawn_default_signal(int signo)
{
    const unsigned long action[8] = {0}; /* SIG_DFL, no flags; at least as large as the kernel's sigaction */
    syscall(SYS_rt_sigaction, signo, action, NULL, KERNEL_SIGSET_BYTES);
}

void nsbx_spawn_block_signals(bool block)
{
    unsigned char set[KERNEL_SIGSET_BYTES];
    memset(set, block ? 0xff : 0, sizeof set);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, set, NULL, KERNEL_SIGSET_BYTES);
}

/* ---- descriptors ---- */

int nsbx_spawn_close_except(int *keep, size_t n)
{
    for (size_t i = 1; i < n; i++)
        for (size_t j = i; j > 0 && keep[j - 1] > keep[j]; j--) {
            int swap = keep[j];
            keep[j] = keep[j - 1];
            keep[j - 1] = swap;
        }
    unsigned next = 0;
    for (size_t i = 0; i < n; i++) {
        if (keep[i] < 0 || (unsigned)keep[i] < next)
            continue;
        unsigned fd = (unsigned)keep[i];
        if (fd > next && close_range(next, fd - 1, 0) < 0)
            return errno;
        next = fd + 1;
    }
    return close_range(next, ~0u, 0) < 0 ? errno : 0;
}

/* The descriptors on their way from the parent's numbers to the child's. */
struct stash {
    struct nsbx_fd_map at[STASH_MAX]; /* `from` is above every target: no dup2 can hit one that is still to come */
    size_t n;
    int cwd; /* spec->cwd_fd moved there too, or -1 */
};

static int raise_fd(int fd, int first_free)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, first_free);
}

static bool is_target(const struct nsbx_spawn *spec, int fd)
{
    for (size_t i = 0; i < spec->n_fds; i++)
        if (spec->fds[i].to == fd)
            return true;
    return false;
}

static int stash_all(const struct nsbx_spawn_plan *plan, struct stash *s)
{
    const struct nsbx_spawn *spec = plan->spec;
    s->n = 0;
    s->cwd = -1;
    if (spec->cwd_fd >= 0 && (s->cwd = raise_fd(spec->cwd_fd, plan->first_free)) < 0)
        return errno;
    for (size_t i = 0; i < spec->n_fds; i++) {
        int fd = raise_fd(spec->fds[i].from, plan->first_free);
        if (fd < 0)
            return errno;
        s->at[s->n++] = (struct nsbx_fd_map){.from = fd, .to = spec->fds[i].to};
    }
    int null = -1;
    for (int to = 0; to <= 2; to++) {
        if (is_target(spec, to))
            continue;
        if (null < 0) {
            long low = syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC);
            null = low < 0 ? -1 : raise_fd((int)low, plan->first_free);
            if (null < 0)
                return errno;
        }
        s->at[s->n++] = (struct nsbx_fd_map){.from = null, .to = to};
    }
    return 0;
}

static int place_all(const struct stash *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (syscall(SYS_dup3, s->at[i].from, s->at[i].to, 0) < 0)
            return errno;
    return 0;
}

static int close_rest(const struct stash *s, int keep_fd)
{
    int keep[KEEP_MAX];
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        keep[n++] = s->at[i].to;
    keep[n++] = keep_fd;
    return nsbx_spawn_close_except(keep, n);
}

/* ---- who and where ---- */

static int take_session(const struct nsbx_spawn_plan *plan)
{
    if (plan->spec->new_session)
        return setsid() < 0 ? errno : 0;
    if (plan->own_group)
        return setpgid(0, 0) < 0 ? errno : 0;
    return 0;
}

static int take_terminal(const struct nsbx_spawn *spec)
{
    if (spec->controlling_tty < 0)
        return 0;
    return ioctl(spec->controlling_tty, TIOCSCTTY, 0) < 0 ? errno : 0;
}

static int set_limits(const struct nsbx_spawn *spec)
{
    for (size_t i = 0; i < spec->n_rlimits; i++)
        if (syscall(SYS_prlimit64, 0, spec->rlimits[i].resource, &spec->rlimits[i].value, NULL) < 0)
            return errno;
    return 0;
}

/* Before the change of identity: what root makes counts for root, who may have many keys, and not for the one uid that
 * every sandbox of root's has. */
static int take_keyring(const struct nsbx_spawn *spec)
{
    if (!spec->new_keyring || syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) >= 0)
        return 0;
    return errno == ENOSYS || errno == EPERM ? 0 : errno;
}

static int drop_identity(const struct nsbx_spawn *spec)
{
    if (!spec->drop)
        return 0;
    /* Leaving uid 0 clears the other capability sets; between two plain users this one would survive the exec. Kernels
     * that do not know it have nothing to clear. */
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0ul, 0ul, 0ul);
    if (syscall(SYS_setgroups, 0, NULL) < 0)
        return errno;
    if (syscall(SYS_setresgid, spec->gid, spec->gid, spec->gid) < 0)
        return errno;
    return syscall(SYS_setresuid, spec->uid, spec->uid, spec->uid) < 0 ? errno : 0;
}

static int change_directory(const struct nsbx_spawn *spec, int cwd_fd)
{
    if (cwd_fd >= 0)
        return fchdir(cwd_fd) < 0 ? errno : 0;
    return spec->cwd && chdir(spec->cwd) < 0 ? errno : 0;
}

static int die_with_parent(const struct nsbx_spawn *spec, pid_t parent)
{
    if (!spec->parent_death_signal)
        return 0;
    /* After the change of identity, which clears it. */
    if (prctl(PR_SET_PDEATHSIG, (unsigned long)spec->parent_death_signal, 0ul, 0ul, 0ul) < 0)
        return errno;
    return getppid() == parent ? 0 : ESRCH; /* it died before we asked to be told */
}

/* ---- the program ---- */

/* A program just written is busy for as long as another child, between its fork and its exec, still has a copy of the
 * descriptor it was written by. */
static int exec_path(const char *path, const struct nsbx_spawn *spec)
{
    for (long pause_ms = BUSY_PAUSE_MS;; pause_ms *= 4) {
        syscall(SYS_execve, path, spec->argv, spec->envp);
        if (errno != ETXTBSY || pause_ms > BUSY_PAUSE_MAX_MS)
            return errno;
        nanosleep(&(struct timespec){.tv_nsec = pause_ms * 1000000}, NULL);
    }
}

/* "<first n bytes of dir>/<file>", or just the file for the empty directory, which is the current one. */
static int exec_in(const char *dir, size_t n, const struct nsbx_spawn *spec)
{
    char path[NSBX_PATH_MAX];
    size_t file_len = strlen(spec->file);
    if (n + 1 + file_len + 1 > sizeof path)
        return ENAMETOOLONG;
    memcpy(path, dir, n);
    if (n)
        path[n++] = '/';
    memcpy(path + n, spec->file, file_len + 1);
    return exec_path(path, spec);
}

/* execvp's rules, without its last one of running as a shell script what is no program. */
static int exec_search(const char *dirs, const struct nsbx_spawn *spec)
{
    int result = ENOENT;
    for (const char *dir = dirs;;) {
        const char *end = strchr(dir, ':');
        int sys = exec_in(dir, end ? (size_t)(end - dir) : strlen(dir), spec);
        switch (sys) {
        case EACCES:
            result = EACCES; /* unless a later directory has one that runs */
            break;
        case ENOENT:
        case ENOTDIR:
        case ENAMETOOLONG:
        case ESTALE:
        case ENODEV:
        case ETIMEDOUT:
            break;
        default:
            return sys;
        }
        if (!end)
            return result;
        dir = end + 1;
    }
}

void nsbx_spawn_exec(const struct nsbx_spawn_plan *plan, pid_t parent, int keep_fd,
                     struct nsbx_spawn_report *report)
{
    const struct nsbx_spawn *spec = plan->spec;
    struct stash stash;
    for (int signo = 1; signo <= KERNEL_SIGNALS; signo++)
        nsbx_spawn_default_signal(signo);
    report->stage = NSBX_SPAWN_STAGE_SESSION;
    if ((report->sys = take_session(plan)))
        return;
    report->stage = NSBX_SPAWN_STAGE_DESCRIPTORS;
    if ((report->sys = stash_all(plan, &stash)) || (report->sys = place_all(&stash)))
        return;
    report->stage = NSBX_SPAWN_STAGE_TERMINAL;
    if ((report->sys = take_terminal(spec)))
        return;
    report->stage = NSBX_SPAWN_STAGE_LIMITS; /* no new descriptor from here on: one of them may be their number */
    if ((report->sys = set_limits(spec)))
        return;
    report->stage = NSBX_SPAWN_STAGE_KEYRING;
    if ((report->sys = take_keyring(spec)))
        return;
    report->stage = NSBX_SPAWN_STAGE_IDENTITY;
    if ((report->sys = drop_identity(spec)))
        return;
    report->stage = NSBX_SPAWN_STAGE_DIRECTORY; /* as the new user, who may not be allowed in */
    if ((report->sys = change_directory(spec, stash.cwd)))
        return;
    report->stage = NSBX_SPAWN_STAGE_DESCRIPTORS;
    if ((report->sys = close_rest(&stash, keep_fd)))
        return;
    report->stage = NSBX_SPAWN_STAGE_PARENT;
    if ((report->sys = die_with_parent(spec, parent)))
        return;
    report->stage = NSBX_SPAWN_STAGE_EXEC;
    nsbx_spawn_block_signals(false);
    report->sys = plan->search ? exec_search(plan->search, spec) : exec_path(spec->file, spec);
}

_Noreturn void nsbx_spawn_child_main(const struct nsbx_spawn_plan *plan, pid_t parent, int report_fd)
{
    struct nsbx_spawn_report report = {.stage = NSBX_SPAWN_STAGE_DESCRIPTORS};
    int keep_fd = raise_fd(report_fd, plan->first_free);
    if (keep_fd < 0)
        report.sys = errno;
    else {
        report_fd = keep_fd;
        nsbx_spawn_exec(plan, parent, keep_fd, &report);
    }
    while (syscall(SYS_write, report_fd, &report, sizeof report) < 0 && errno == EINTR)
        ;
    _exit(127);
}
