/* The commands that the specs of the spawn file run: well-behaved and hostile ones. Built without sanitizers, so that what
 * forks as fast as it can does. Each process takes the given name, by which a spec counts what is left. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int number(const char *text)
{
    char *rest;
    long n = strtol(text, &rest, 10);
    if (rest == text || *rest)
        _exit(98);
    return (int)n;
}

static void take_name(const char *name)
{
    prctl(PR_SET_NAME, name, 0ul, 0ul, 0ul);
    if (getenv("NSBX_HIDE")) /* from a /proc with hidepid */
        prctl(PR_SET_DUMPABLE, 0ul, 0ul, 0ul, 0ul);
}

static void rest_ms(long ms)
{
    struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    while (nanosleep(&ts, &ts) < 0 && errno == EINTR)
        ;
}

_Noreturn static void rest_forever(void)
{
    for (;;)
        pause();
}

/* A process that nobody waits for, in a session of its own; the caller goes on. True in the new process. */
static int become_orphan(void)
{
    pid_t first = fork();
    if (first > 0) {
        waitpid(first, NULL, 0);
        return 0;
    }
    if (first < 0)
        return 0;
    setsid();
    if (fork() != 0)
        _exit(0);
    return 1;
}

/* ---- what a process was given ---- */

static int list_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    char open_fds[1024] = {0};
    for (struct dirent *entry; (entry = readdir(dir));) {
        int fd = entry->d_name[0] == '.' ? -1 : number(entry->d_name);
        if (fd >= 0 && fd != dirfd(dir) && fd < (int)sizeof open_fds)
            open_fds[fd] = 1;
    }
    closedir(dir);
    for (int fd = 0; fd < (int)sizeof open_fds; fd++)
        if (open_fds[fd])
            printf("%d ", fd);
    return 0;
}

static int show_signals(void)
{
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    while (fgets(line, sizeof line, status))
        if (strncmp(line, "SigBlk:", 7) == 0 || strncmp(line, "SigIgn:", 7) == 0 ||
            strncmp(line, "SigCgt:", 7) == 0)
            fputs(line, stdout);
    fclose(status);
    return 0;
}

static int show_identity(void)
{
    uid_t r, e, s;
    gid_t gr, ge, gs;
    getresuid(&r, &e, &s);
    getresgid(&gr, &ge, &gs);
    printf("%u %u %u %u %u %u groups %d\n", r, e, s, gr, ge, gs, getgroups(0, NULL));
    return 0;
}

static int show_place(void)
{
    char cwd[4096];
    printf("%s %d %d\n", getcwd(cwd, sizeof cwd) ? cwd : "?", getsid(0) == getpid(), getpgid(0) == getpid());
    return 0;
}

static int show_limit(int resource)
{
    struct rlimit limit;
    getrlimit(resource, &limit);
    printf("%llu %llu\n", (unsigned long long)limit.rlim_cur, (unsigned long long)limit.rlim_max);
    return 0;
}

static int show_terminal(void)
{
    int tty = open("/dev/tty", O_RDWR | O_CLOEXEC);
    printf("%s %d\n", tty >= 0 ? "terminal" : "none", tty >= 0 && tcgetpgrp(tty) == getpid());
    return 0;
}

/* Directly, because libc keeps 32 and 33 to itself. */
static int die_of(int signo)
{
    syscall(SYS_kill, getpid(), signo);
    return 77;
}

/* ---- trees ---- */

/* COUNT orphans that live for MS (0: for ever; -1: to the end of their input). */
static int orphans(int count, long ms)
{
    char c;
    for (int i = 0; i < count; i++)
        if (become_orphan()) {
            if (!ms)
                rest_forever();
            if (ms > 0)
                rest_ms(ms);
            while (ms < 0 && read(0, &c, 1) > 0)
                ;
            _exit(0);
        }
    return 0;
}

/* Each forks until it may not; none ends. */
_Noreturn static void bomb(void)
{
    for (;;) {
        pid_t pid = fork();
        if (pid < 0)
            sched_yield();
        if (pid == 0 && getpid() % 3 == 0)
            setsid();
    }
}

/* Each forks three that do the same, each in a session of its own, and ends. */
_Noreturn static void relay(void)
{
    for (int born = 0; born < 3;) {
        pid_t pid = fork();
        if (pid == 0) {
            setsid();
            born = 0;
        } else if (pid > 0)
            born++;
        else
            sched_yield();
    }
    _exit(0);
}

/* Each process forks its successor and ends; never more than COUNT alive, never the same ones. */
_Noreturn static void chain(int count, int with_sessions)
{
    for (int i = 1; i < count; i++)
        if (fork() == 0)
            break;
    for (;;) {
        pid_t pid = fork();
        if (pid > 0)
            _exit(0);
        if (pid == 0 && with_sessions)
            setsid();
    }
}

/* A line of DEPTH living parents, each in its own session. */
_Noreturn static void nest(int depth)
{
    for (int i = 0; i < depth; i++) {
        if (fork() > 0)
            rest_forever();
        setsid();
    }
    rest_forever();
}

static void on_usr1(int signo)
{
    (void)signo;
    _exit(41);
}

static int counted_usr1;
static void count_usr1(int signo)
{
    (void)signo;
    counted_usr1++;
}

/* A child in the leader's group and an orphan outside of it; each says "u" when USR1 comes, and goes on. */
_Noreturn static void listen_usr1(void)
{
    signal(SIGUSR1, count_usr1);
    if (fork() != 0)
        become_orphan(); /* three processes go on from here */
    if (write(1, "r", 1) < 0)
        _exit(1);
    for (int seen = 0;;) {
        if (seen == counted_usr1)
            rest_ms(2);
        for (; seen < counted_usr1; seen++)
            if (write(1, "u", 1) < 0)
                _exit(1);
    }
}

static void *rest_thread(void *arg)
{
    (void)arg;
    rest_forever();
}

/* In /proc this one is a zombie, and yet it runs. */
_Noreturn static void leaderless_threads(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, rest_thread, NULL);
    pthread_exit(NULL);
}

static int tree_role(const char *role, int argc, char **argv)
{
    int n = argc > 3 ? number(argv[3]) : 1;
    take_name(argv[2]);
    if (strcmp(role, "orphans") == 0)
        return orphans(n, argc > 4 ? number(argv[4]) : 0);
    if (strcmp(role, "orphans-stay") == 0) {
        orphans(n, argc > 4 ? number(argv[4]) : 0);
        rest_forever();
    }
    if (strcmp(role, "bomb") == 0)
        bomb();
    if (strcmp(role, "relay") == 0)
        relay();
    if (strcmp(role, "chain") == 0)
        chain(n, 0);
    if (strcmp(role, "chain-sessions") == 0)
        chain(n, 1);
    if (strcmp(role, "nest") == 0)
        nest(n);
    if (strcmp(role, "rest") == 0) {
        rest_ms(n);
        return 0;
    }
    if (strcmp(role, "stubborn") == 0) {
        signal(SIGTERM, SIG_IGN);
        if (write(1, "r", 1) == 1)
            rest_forever();
    }
    if (strcmp(role, "stop") == 0) {
        raise(SIGSTOP);
        rest_forever();
    }
    if (strcmp(role, "group") == 0) { /* the leader ends, its group lives */
        if (fork() == 0) {
            signal(SIGUSR1, on_usr1);
            if (write(1, "r", 1) == 1)
                rest_forever();
        }
        return 3;
    }
    if (strcmp(role, "listen") == 0)
        listen_usr1();
    if (strcmp(role, "threads") == 0)
        leaderless_threads();
    return 99;
}

int main(int argc, char **argv)
{
    const char *role = argc > 1 ? argv[1] : "";
    if (strcmp(role, "exit") == 0)
        return number(argv[2]);
    if (strcmp(role, "die") == 0)
        return die_of(number(argv[2]));
    if (strcmp(role, "fds") == 0)
        return list_fds();
    if (strcmp(role, "signals") == 0)
        return show_signals();
    if (strcmp(role, "identity") == 0)
        return show_identity();
    if (strcmp(role, "place") == 0)
        return show_place();
    if (strcmp(role, "limit") == 0)
        return show_limit(number(argv[2]));
    if (strcmp(role, "terminal") == 0)
        return show_terminal();
    if (strcmp(role, "env") == 0) {
        for (char **entry = environ; *entry; entry++)
            puts(*entry);
        return 0;
    }
    if (strcmp(role, "say") == 0) /* say FD TEXT FD TEXT … */
        for (int i = 2; i + 1 < argc; i += 2)
            dprintf(number(argv[i]), "%s", argv[i + 1]);
    if (argc > 2 && strcmp(role, "say") != 0)
        return tree_role(role, argc, argv);
    return strcmp(role, "say") == 0 ? 0 : 99;
}
