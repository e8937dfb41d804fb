/* The speed of a bare pipe between two processes on this machine: `pipe_bench BYTES` prints MB/s. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WRITE_SIZE = 64 * 1024, READ_SIZE = 256 * 1024 };

static void fail(const char *what)
{
    fprintf(stderr, "pipe_bench: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void write_all(int fd, long long bytes)
{
    static char block[WRITE_SIZE];
    while (bytes > 0) {
        ssize_t n = write(fd, block, bytes < WRITE_SIZE ? (size_t)bytes : WRITE_SIZE);
        if (n < 0)
            _exit(1);
        bytes -= n;
    }
}

int main(int argc, char **argv)
{
    long long bytes = argc == 2 ? atoll(argv[1]) : 0; /* nonsense is 0, which is refused */
    if (bytes <= 0) {
        fputs("usage: pipe_bench BYTES\n", stderr);
        return 2;
    }
    int ends[2];
    if (pipe(ends) < 0)
        fail("pipe");
    double begin = now_s();
    pid_t writer = fork();
    if (writer < 0)
        fail("fork");
    if (writer == 0) {
        close(ends[0]);
        write_all(ends[1], bytes);
        _exit(0);
    }
    close(ends[1]);
    static char sink[READ_SIZE];
    long long got = 0;
    ssize_t n;
    while ((n = read(ends[0], sink, sizeof sink)) > 0)
        got += n;
    double took = now_s() - begin;
    int status;
    waitpid(writer, &status, 0);
    if (n < 0 || got != bytes || status != 0) {
        fprintf(stderr, "pipe_bench: %lld of %lld bytes arrived\n", got, bytes);
        return 1;
    }
    printf("%.0f\n", (double)bytes / 1e6 / took);
    return 0;
}
