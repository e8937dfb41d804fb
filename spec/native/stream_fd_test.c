/* What is particular to streams of descriptors: devices, files, terminals, signals, shortages. */
#include "stream_rig.h"

#include "loop/loop_priv.h"

#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <termios.h>

static struct nsbx_stream *stream_of(struct end *e, int fd)
{
    struct nsbx_err err = {0};
    *e = (struct end){0};
    if (nsbx_stream_from_fd(loop, fd, &e->s, &err) < 0) {
        fprintf(stderr, "no stream of %d: %s\n", fd, err.message);
        abort();
    }
    nsbx_stream_set_events(e->s, &end_events, e);
    return e->s;
}

/* ---- descriptors that epoll refuses ---- */

static void dev_null_is_written_and_read(void)
{
    struct end e;
    rig_open();
    stream_of(&e, open("/dev/null", O_RDWR | O_CLOEXEC));
    CHECK_STR(nsbx_stream_kind(e.s), "pipe");
    CHECK_INT(end_write(&e, 1 << 20), 0);
    CHECK_INT(nsbx_stream_queued(e.s), 0);
    end_start(&e);
    TURN_UNTIL(e.eofs, 5000);
    CHECK_INT(e.got, 0);
    end_close(&e);
    rig_close();
}

enum { ENOUGH = 64 << 20 };
static void stop_after(struct end *e, char what)
{
    if (what == 'r' && e->got >= ENOUGH)
        nsbx_stream_read_stop(e->s);
}

static void dev_zero_gives_bytes_and_room_for_others(void)
{
    struct end zero, reader, writer;
    int p[2];
    rig_open();
    CHECK_INT(pipe2(p, O_CLOEXEC), 0);
    stream_of(&zero, open("/dev/zero", O_RDONLY | O_CLOEXEC));
    stream_of(&reader, p[0]);
    stream_of(&writer, p[1]);
    zero.hook = stop_after;
    end_start(&zero);
    end_start(&reader);
    TURN_UNTIL(zero.got, 5000);
    CHECK_INT(end_write(&writer, 100), 0);
    TURN_UNTIL(reader.got == 100, 5000);
    CHECK(zero.got < ENOUGH);
    TURN_UNTIL(zero.got >= ENOUGH, 5000);
    uint64_t got = zero.got;
    turn_for(10);
    CHECK_INT(zero.got, got);
    end_close(&zero);
    end_close(&reader);
    end_close(&writer);
    rig_close();
}

static void a_file_is_read_to_its_end(void)
{
    struct end in, out;
    rig_open();
    int fd = memfd_create("stream", MFD_CLOEXEC);
    int again = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    stream_of(&out, fd);
    CHECK_INT(end_write(&out, 3 << 20), 0);
    end_close(&out);
    CHECK_INT(lseek(again, 0, SEEK_SET), 0);
    stream_of(&in, again);
    end_start(&in);
    TURN_UNTIL(in.eofs, 5000);
    CHECK_INT(in.got, 3 << 20);
    CHECK_INT(in.wrong, 0);
    end_close(&in);
    rig_close();
}

static void a_full_device_is_an_error(void)
{
    struct end e;
    rig_open();
    stream_of(&e, open("/dev/full", O_WRONLY | O_CLOEXEC));
    struct nsbx_err err = {0};
    CHECK_INT(nsbx_stream_write(e.s, "x", 1, &err), -NSBX_E_STREAM_LOST);
    CHECK_INT(err.sys, ENOSPC);
    TURN_UNTIL(e.errors, 5000);
    CHECK_INT(e.code, NSBX_E_IO);
    end_close(&e);
    rig_close();
}

static void a_terminal_ends_when_its_other_side_is_closed(void)
{
    struct end e;
    int master, slave;
    rig_open();
    CHECK_INT(openpty(&master, &slave, NULL, NULL, NULL), 0);
    struct termios raw;
    tcgetattr(slave, &raw);
    cfmakeraw(&raw);
    tcsetattr(slave, TCSANOW, &raw);
    stream_of(&e, master);
    end_start(&e);
    uint8_t bytes[100];
    fill(bytes, sizeof bytes, 0);
    CHECK_INT(write(slave, bytes, sizeof bytes), sizeof bytes);
    TURN_UNTIL(e.got == 100, 5000);
    CHECK_INT(end_write(&e, 10), 0);
    CHECK_INT(read(slave, bytes, sizeof bytes), 10);
    CHECK_INT(nsbx_stream_can_shutdown(e.s), false);
    close(slave);
    TURN_UNTIL(e.eofs, 5000);
    CHECK_INT(e.errors, 0);
    CHECK_INT(e.wrong, 0);
    end_close(&e);
    rig_close();
}

static void writing_to_a_closed_terminal_ends(void)
{
    struct end e;
    int master, slave;
    rig_open();
    CHECK_INT(openpty(&master, &slave, NULL, NULL, NULL), 0);
    stream_of(&e, master);
    CHECK_INT(end_write(&e, 1 << 20), 0);
    CHECK(nsbx_stream_queued(e.s) > 0);
    turn_for(5);
    CHECK_INT(e.errors, 0); /* open and full: it waits */
    close(slave);
    TURN_UNTIL(e.errors, 5000);
    CHECK_INT(e.code, NSBX_E_IO);
    CHECK_INT(end_write(&e, 1), -NSBX_E_STREAM_LOST);
    end_close(&e);
    rig_close();
}

/* ---- the watch below ---- */

static int n_ready;
static void count_ready(void *ud, unsigned ready)
{
    CHECK_INT(ready, *(unsigned *)ud);
    n_ready++;
}

static void a_watch_is_level_triggered_in_an_error_state_too(void)
{
    unsigned interest = NSBX_WRITABLE;
    struct nsbx_watch *w;
    struct nsbx_err err;
    int p[2];
    rig_open();
    CHECK_INT(pipe2(p, O_CLOEXEC), 0);
    close(p[0]); /* POLLERR from now on */
    CHECK_INT(nsbx_watch_new(loop, p[1], count_ready, &interest, &w, &err), 0);
    nsbx_watch_set(w, interest);
    n_ready = 0;
    for (int i = 1; i <= 5; i++) {
        nsbx_loop_turn(loop, NSBX_TURN_WAIT);
        CHECK_INT(n_ready, i);
    }
    nsbx_watch_set(w, 0);
    CHECK(!nsbx_loop_turn(loop, NSBX_TURN_WAIT));
    CHECK_INT(n_ready, 5);
    nsbx_watch_close(w);
    nsbx_watch_close(NULL);
    close(p[1]);
    rig_close();
}

/* ---- what from_fd takes ---- */

static void refused(int fd, int code)
{
    struct nsbx_stream *s = NULL;
    struct nsbx_err err = {0};
    CHECK_INT(nsbx_stream_from_fd(loop, fd, &s, &err), -code);
    CHECK_INT(err.code, code);
    CHECK(s == NULL);
    CHECK(fcntl(fd, F_GETFD) < 0); /* taken over, so closed */
}

static void from_fd_refuses_what_is_no_stream(void)
{
    rig_open();
    refused(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), NSBX_E_INVALID);
    refused(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), NSBX_E_INVALID);
    refused(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), NSBX_E_INVALID);
    struct nsbx_err err = {0};
    struct nsbx_stream *s;
    int closed = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(closed);
    CHECK_INT(nsbx_stream_from_fd(loop, closed, &s, &err), -NSBX_E_IO);
    rig_close();
}

static void from_fd_makes_it_nonblocking(void)
{
    struct end a;
    int p[2];
    rig_open();
    CHECK_INT(pipe2(p, O_CLOEXEC), 0);
    int other = fcntl(p[1], F_DUPFD_CLOEXEC, 0);
    stream_of(&a, p[1]);
    CHECK(fcntl(other, F_GETFL) & O_NONBLOCK);
    close(other);
    close(p[0]);
    end_close(&a);
    rig_close();
}

static void a_pipe_is_readable_or_writable_only(void)
{
    struct end in, out;
    int p[2];
    rig_open();
    CHECK_INT(pipe2(p, O_CLOEXEC), 0);
    stream_of(&in, p[0]);
    stream_of(&out, p[1]);
    CHECK_INT(end_write(&in, 1), -NSBX_E_INVALID);
    CHECK_INT(in.errors, 0);
    end_start(&out);
    CHECK_INT(end_write(&out, 1), 0);
    end_start(&in);
    TURN_UNTIL(in.got == 1, 5000);
    end_close(&in);
    end_close(&out);
    rig_close();
}

static void closing_lets_the_descriptor_go_at_once(void)
{
    struct end a;
    int p[2];
    rig_open();
    CHECK_INT(pipe2(p, O_CLOEXEC), 0);
    stream_of(&a, p[0]);
    end_start(&a);
    nsbx_loop_turn(loop, NSBX_TURN_POLL);
    end_close(&a);
    CHECK(fcntl(p[0], F_GETFD) < 0);
    /* The number is free for a next stream within the same turn. */
    int q[2];
    CHECK_INT(pipe2(q, O_CLOEXEC), 0);
    CHECK_INT(q[0], p[0]);
    stream_of(&a, q[0]);
    end_start(&a);
    CHECK_INT(write(q[1], &(uint8_t){pattern(0)}, 1), 1);
    TURN_UNTIL(a.got == 1, 5000);
    CHECK_INT(a.wrong, 0);
    end_close(&a);
    close(q[1]);
    close(p[1]);
    rig_close();
}

/* ---- signals ---- */

static volatile sig_atomic_t pipe_signals;
static void on_sigpipe(int signo)
{
    (void)signo;
    pipe_signals++;
}

static void somebody_elses_sigpipe_is_left_alone(void)
{
    struct end out;
    int p[2];
    struct sigaction act = {.sa_handler = on_sigpipe}, old, now;
    sigset_t only, saved, pending;
    rig_open();
    sigaction(SIGPIPE, &act, &old);
    CHECK_INT(pipe2(p, O_CLOEXEC), 0);
    close(p[0]);
    stream_of(&out, p[1]);
    sigemptyset(&only);
    sigaddset(&only, SIGPIPE);
    /* Blocked and pending before: stays so. */
    pthread_sigmask(SIG_BLOCK, &only, &saved);
    raise(SIGPIPE);
    CHECK_INT(end_write(&out, 1), -NSBX_E_STREAM_LOST);
    sigpending(&pending);
    CHECK(sigismember(&pending, SIGPIPE));
    CHECK_INT(pipe_signals, 0);
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
    CHECK_INT(pipe_signals, 1);
    /* A handler of the embedder is not called for our write, and stays installed. */
    end_close(&out);
    CHECK_INT(pipe2(p, O_CLOEXEC), 0);
    close(p[0]);
    stream_of(&out, p[1]);
    CHECK_INT(end_write(&out, 1), -NSBX_E_STREAM_LOST);
    CHECK_INT(pipe_signals, 1);
    sigaction(SIGPIPE, &old, &now);
    CHECK(now.sa_handler == on_sigpipe);
    end_close(&out);
    rig_close();
}

/* ---- shortages ---- */

static void no_memory_for_a_stream_is_a_clean_error(void)
{
    for (unsigned long nth = 1; nth < 10; nth++) {
        struct nsbx_stream *s[2] = {NULL, NULL};
        struct nsbx_err err = {0};
        int p[2];
        rig_open();
        CHECK_INT(pipe2(p, O_CLOEXEC), 0);
        nsbx_alloc_fail_at(nth);
        int rc = nsbx_stream_from_fd(loop, p[0], &s[0], &err);
        bool reached = nsbx_alloc_count() >= nth;
        nsbx_alloc_fail_at(0);
        CHECK_INT(rc, reached ? -NSBX_E_LIMIT : 0);
        nsbx_stream_close(s[0]);
        close(p[1]);
        s[0] = NULL;
        nsbx_alloc_fail_at(nth);
        rc = nsbx_stream_pair(loop, 10, 0, s, &err);
        reached = nsbx_alloc_count() >= nth;
        nsbx_alloc_fail_at(0);
        CHECK_INT(rc, reached ? -NSBX_E_LIMIT : 0);
        nsbx_stream_close(s[0]);
        nsbx_stream_close(s[1]);
        rig_close();
    }
}

static void no_memory_for_the_queue(void)
{
    struct end out, in;
    int fds[2];
    rig_open();
    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    stream_of(&out, fds[0]);
    stream_of(&in, fds[1]);
    /* A part is on its way: the stream is lost, and says so. */
    nsbx_alloc_fail_at(1);
    CHECK_INT(end_write(&out, 8 << 20), -NSBX_E_LIMIT);
    nsbx_alloc_fail_at(0);
    CHECK_INT(end_write(&out, 1), -NSBX_E_STREAM_LOST);
    TURN_UNTIL(out.errors, 5000);
    end_close(&out);
    end_start(&in);
    TURN_UNTIL(in.eofs || in.errors, 5000);
    CHECK(in.got > 0);
    CHECK_INT(in.wrong, 0);
    end_close(&in);
    /* Nothing was sent: nothing is queued either, and the stream goes on. */
    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    stream_of(&out, fds[0]);
    stream_of(&in, fds[1]);
    while (nsbx_stream_queued(out.s) == 0)
        CHECK_INT(end_write(&out, 1 << 20), 0);
    size_t queued = nsbx_stream_queued(out.s);
    nsbx_alloc_fail_at(1);
    CHECK_INT(end_write(&out, 16 << 20), -NSBX_E_LIMIT);
    nsbx_alloc_fail_at(0);
    CHECK_INT(nsbx_stream_queued(out.s), queued);
    end_start(&in);
    TURN_UNTIL(in.got == out.sent, 10000);
    CHECK_INT(in.wrong, 0);
    CHECK_INT(out.errors, 0);
    end_close(&in);
    end_close(&out);
    rig_close();
}

/* A descriptor that another process holds too is not read any more once our stream of it is closed. */
static void a_copy_elsewhere_does_not_keep_the_watch(void)
{
    struct end in;
    int p[2];
    rig_open();
    CHECK_INT(pipe2(p, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        pause();
        _exit(0);
    }
    stream_of(&in, p[0]);
    end_start(&in);
    nsbx_loop_turn(loop, NSBX_TURN_POLL);
    end_close(&in);
    CHECK_INT(write(p[1], "x", 1), 1);
    uint64_t start = nsbx_now_ms();
    turn_for(30); /* must sleep, not spin on an event that nobody wants */
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    turn_for(100);
    getrusage(RUSAGE_SELF, &after);
    CHECK(nsbx_now_ms() - start >= 130);
    long used_us = (after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1000000 + after.ru_utime.tv_usec -
                   before.ru_utime.tv_usec;
    CHECK(used_us < 50000);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(p[1]);
    rig_close();
}

int main(void)
{
    rig_open();
    nsbx_loop_free(loop);
    RUN(dev_null_is_written_and_read);
    RUN(dev_zero_gives_bytes_and_room_for_others);
    RUN(a_file_is_read_to_its_end);
    RUN(a_full_device_is_an_error);
    RUN(a_terminal_ends_when_its_other_side_is_closed);
    RUN(writing_to_a_closed_terminal_ends);
    RUN(a_watch_is_level_triggered_in_an_error_state_too);
    RUN(from_fd_refuses_what_is_no_stream);
    RUN(from_fd_makes_it_nonblocking);
    RUN(a_pipe_is_readable_or_writable_only);
    RUN(closing_lets_the_descriptor_go_at_once);
    RUN(somebody_elses_sigpipe_is_left_alone);
    RUN(no_memory_for_a_stream_is_a_clean_error);
    RUN(no_memory_for_the_queue);
    RUN(a_copy_elsewhere_does_not_keep_the_watch);
    return harness_done();
}
