/* What the two specs of the spawn file share: the loop, the helper's commands, pipes read to their end, and counting the
 * processes of a name. */
#ifndef NSBX_SPEC_SPAWN_SUPPORT_H
#define NSBX_SPEC_SPAWN_SUPPORT_H

#include "harness.h"

#include "base/util.h"
#include "loop/spawn.h"
#include "loop/timer.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static struct nsbx_loop *loop;
static char scratch[64]; /* a directory that everybody may enter */
static char helper[128]; /* spawn_helper, copied there: a build directory may be closed to other users */

static const char *const no_env[] = {NULL};

/* ---- files ---- */

static inline void put_file(const char *path, const char *text, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) || fchmod(fd, mode) < 0)
        abort();
    close(fd);
}

/* `built`: spawn_helper's place in the build. */
static inline void copy_helper(const char *built)
{
    char buf[65536];
    ssize_t n;
    snprintf(helper, sizeof helper, "%s/helper", scratch);
    int from = open(built, O_RDONLY | O_CLOEXEC);
    int to = open(helper, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    while ((n = read(from, buf, sizeof buf)) > 0)
        if (write(to, buf, (size_t)n) != n)
            abort();
    if (n < 0 || fchmod(to, 0755) < 0)
        abort();
    close(from);
    close(to);
}

static inline void setup(const char *built)
{
    struct nsbx_err err;
    snprintf(scratch, sizeof scratch, "/tmp/nsbx-spawn-XXXXXX");
    if (!mkdtemp(scratch) || chmod(scratch, 0755) < 0 || nsbx_loop_new(&loop, &err) < 0)
        abort();
    copy_helper(built);
}

static inline int teardown(void)
{
    char command[128];
    nsbx_loop_free(loop);
    snprintf(command, sizeof command, "rm -rf %s", scratch);
    return system(command);
}

/* ---- pipes ---- */

struct pipe_ends {
    int read, write;
};

static inline struct pipe_ends make_pipe(void)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        abort();
    return (struct pipe_ends){ends[0], ends[1]};
}

/* Reads to the end of file, which must come within 10 s, and closes both ends. Static text. */
static inline const char *read_all(struct pipe_ends p)
{
    static char text[65536];
    size_t len = 0;
    close(p.write);
    for (;;) {
        struct pollfd fd = {.fd = p.read, .events = POLLIN};
        if (poll(&fd, 1, 10000) <= 0) {
            fprintf(stderr, "a pipe had no end of file in 10 s\n");
            break;
        }
        ssize_t n = read(p.read, text + len, sizeof text - 1 - len);
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    close(p.read);
    text[len] = '\0';
    return text;
}

/* One byte, within 10 s. */
static inline int read_byte(int fd)
{
    char c;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 10000) == 1 && read(fd, &c, 1) == 1 ? c : -1;
}

/* ---- turning ---- */

static inline void on_tick(void *ud)
{
    (void)ud;
}

/* Turns the loop until *flag or for `ms`; returns *flag. A NULL flag: for the whole time. */
static inline bool turn_until(const bool *flag, uint64_t ms)
{
    uint64_t end = nsbx_now_ms() + ms;
    struct nsbx_timer *tick = nsbx_timer_new(loop, on_tick, NULL);
    for (uint64_t now; !(flag && *flag) && (now = nsbx_now_ms()) < end;) {
        nsbx_timer_start(tick, NSBX_MIN(end - now, 20));
        nsbx_loop_turn(loop, NSBX_TURN_WAIT);
    }
    nsbx_timer_close(tick);
    return flag && *flag;
}

/* ---- processes ---- */

struct proc_line {
    pid_t ppid;
    char state;
    bool ours; /* the helper of this run: others may run at the same time */
    char name[64];
};

static inline ssize_t read_proc_file(int proc, const char *pid, const char *file, char *text, size_t size)
{
    char path[NAME_MAX + 16];
    snprintf(path, sizeof path, "%s/%s", pid, file);
    int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, text, size - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n;
}

static inline bool read_proc(int proc, const char *pid, struct proc_line *out)
{
    char text[512];
    out->ours = read_proc_file(proc, pid, "cmdline", text, sizeof text) > 0 && strcmp(text, helper) == 0;
    if (read_proc_file(proc, pid, "stat", text, sizeof text) <= 0)
        return false;
    char *open_at = strchr(text, '('), *close_at = strrchr(text, ')');
    if (!open_at || !close_at || strlen(close_at) < 5)
        return false;
    snprintf(out->name, sizeof out->name, "%.*s", (int)(close_at - open_at - 1), open_at + 1);
    out->state = close_at[2];
    out->ppid = (pid_t)strtol(close_at + 4, NULL, 10);
    return true;
}

/* A /proc to look at, which a spec that hides /proc opens before. */
static int proc_dir = -1;

static inline int count_procs(bool (*match)(const struct proc_line *line, const void *arg), const void *arg)
{
    int count = 0;
    int fd = proc_dir >= 0 ? dup(proc_dir) : open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fdopendir(fd);
    rewinddir(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        struct proc_line line;
        if (isdigit((unsigned char)entry->d_name[0]) && read_proc(dirfd(dir), entry->d_name, &line) &&
            match(&line, arg))
            count++;
    }
    closedir(dir);
    return count;
}

static inline bool lives_as(const struct proc_line *line, const void *name)
{
    return line->ours && strcmp(line->name, name) == 0 && line->state != 'Z' && line->state != 'X';
}

static inline bool is_zombie_of(const struct proc_line *line, const void *ppid)
{
    return line->ppid == *(const pid_t *)ppid && line->state == 'Z';
}

/* A user that runs nothing else, for those who may become one. */
static inline uid_t lone_user(void)
{
    return 20000 + (uid_t)getpid() % 30000;
}

/* Processes of that name that are not zombies. */
static inline int alive(const char *name)
{
    return count_procs(lives_as, name);
}

static inline int zombies_of(pid_t ppid)
{
    return count_procs(is_zombie_of, &ppid);
}

/* Until there are that many for a while: a process on its way to become an orphan is two for a moment. */
static inline bool wait_alive(const char *name, int want, uint64_t ms)
{
    uint64_t end = nsbx_now_ms() + ms;
    int seen = 0;
    while (seen < 3 && nsbx_now_ms() < end) {
        seen = alive(name) == want ? seen + 1 : 0;
        turn_until(NULL, 5);
    }
    return seen == 3;
}

/* No child of any kind, dead or alive. */
static inline bool childless(void)
{
    siginfo_t si;
    return waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT | __WALL) < 0 && errno == ECHILD;
}

/* ---- specs of commands ---- */

/* The helper with these arguments and nothing else given; `argv` has its role first and ends with NULL. */
struct command {
    struct nsbx_spawn spec;
    const char *argv[16];
};

static inline void command_init(struct command *c, const char *const *args)
{
    size_t n = 0;
    nsbx_spawn_init(&c->spec);
    c->argv[n++] = helper;
    while (*args && n + 1 < NSBX_LEN(c->argv))
        c->argv[n++] = *args++;
    c->argv[n] = NULL;
    c->spec.file = helper;
    c->spec.argv = c->argv;
    c->spec.envp = no_env;
    c->spec.new_session = true;
}
#define COMMAND(name, ...)                                                                                         \
    struct command name;                                                                                           \
    command_init(&name, (const char *const[]){__VA_ARGS__, NULL})

static inline void map_fd(struct command *c, int from, int to)
{
    c->spec.fds[c->spec.n_fds++] = (struct nsbx_fd_map){.from = from, .to = to};
}

static inline void limit(struct command *c, int resource, rlim_t value)
{
    c->spec.rlimits[c->spec.n_rlimits++] = (struct nsbx_rlimit){.resource = resource, .value = {value, value}};
}

#endif
