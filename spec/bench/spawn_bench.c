/* What starting a program and waiting for it costs without nsbx: posix_spawn with three pipes, both outputs read to their
 * ends, waitpid. Prints "p50 p99" in microseconds. It is the baseline of exec, of start-up and of creation.
 *
 *   spawn_bench [--count N] [--uid N] [--open FD=PATH]… COMMAND [ARG…]
 *
 * --uid drops to that uid and gid first; --open gives the command PATH as descriptor FD, anew for each run. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_OPENS = 16 };

struct options {
    long count;
    long uid; /* -1 = as we are */
    int n_opens;
    struct {
        int fd;
        const char *path;
    } opens[MAX_OPENS];
    char **command;
};

static void fail(const char *what, int sys)
{
    fprintf(stderr, "spawn_bench: %s: %s\n", what, strerror(sys));
    exit(1);
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void read_both_to_the_end(int out, int err)
{
    char sink[65536];
    struct pollfd fds[2] = {{.fd = out, .events = POLLIN}, {.fd = err, .events = POLLIN}};
    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
        if (poll(fds, 2, -1) < 0)
            fail("poll", errno);
        for (int i = 0; i < 2; i++) {
            if (fds[i].fd < 0 || !fds[i].revents)
                continue;
            ssize_t n = read(fds[i].fd, sink, sizeof sink);
            if (n < 0)
                fail("read", errno);
            if (n == 0)
                fds[i].fd = -1; /* poll skips it */
        }
    }
}

static void spawn_once(const struct options *o)
{
    int pipes[3][2];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (int i = 0; i < 3; i++) {
        if (pipe2(pipes[i], O_CLOEXEC) < 0)
            fail("pipe2", errno);
        posix_spawn_file_actions_adddup2(&actions, pipes[i][i == 0 ? 0 : 1], i);
    }
    for (int i = 0; i < o->n_opens; i++)
        posix_spawn_file_actions_addopen(&actions, o->opens[i].fd, o->opens[i].path, O_RDONLY, 0);
    pid_t pid;
    int rc = posix_spawnp(&pid, o->command[0], &actions, NULL, o->command, environ);
    if (rc != 0)
        fail(o->command[0], rc);
    posix_spawn_file_actions_destroy(&actions);
    close(pipes[0][0]);
    close(pipes[0][1]);
    close(pipes[1][1]);
    close(pipes[2][1]);
    read_both_to_the_end(pipes[1][0], pipes[2][0]);
    close(pipes[1][0]);
    close(pipes[2][0]);
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            fail("waitpid", errno);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fprintf(stderr, "spawn_bench: %s ended with wait status %#x\n", o->command[0], (unsigned)status);
        exit(1);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void usage(void)
{
    fputs("usage: spawn_bench [--count N] [--uid N] [--open FD=PATH]… COMMAND [ARG…]\n", stderr);
    exit(2);
}

static void parse(int argc, char **argv, struct options *o)
{
    *o = (struct options){.count = 1000, .uid = -1};
    int i = 1;
    for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
        char *value = argv[i + 1], *rest;
        long number = strtol(value, &rest, 10);
        if (strcmp(argv[i], "--count") == 0)
            o->count = number;
        else if (strcmp(argv[i], "--uid") == 0)
            o->uid = number;
        else if (strcmp(argv[i], "--open") == 0 && *rest == '=' && o->n_opens < MAX_OPENS) {
            o->opens[o->n_opens].fd = (int)number;
            o->opens[o->n_opens++].path = rest + 1;
        } else
            usage();
    }
    o->command = argv + i;
    if (i >= argc || o->count < 1)
        usage();
}

int main(int argc, char **argv)
{
    struct options o;
    parse(argc, argv, &o);
    if (o.uid >= 0 && (setgroups(0, NULL) < 0 || setresgid((gid_t)o.uid, (gid_t)o.uid, (gid_t)o.uid) < 0 ||
                       setresuid((uid_t)o.uid, (uid_t)o.uid, (uid_t)o.uid) < 0))
        fail("dropping to the uid", errno);
    double *took = calloc((size_t)o.count, sizeof *took);
    if (!took)
        fail("memory", errno);
    for (long i = 0; i < o.count; i++) {
        double begin = now_us();
        spawn_once(&o);
        took[i] = now_us() - begin;
    }
    qsort(took, (size_t)o.count, sizeof *took, by_value);
    printf("%.1f %.1f\n", took[o.count / 2], took[o.count * 99 / 100]);
    free(took);
    return 0;
}
