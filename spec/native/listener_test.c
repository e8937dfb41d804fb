/* Listening: paths, inherited sockets, shortages. */
#include "listen_rig.h"

#include <sys/resource.h>
#include <sys/stat.h>

static void an_inherited_socket_listens(void)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct nsbx_err err = {0};
    open_all();
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(un.sun_path, sizeof un.sun_path, "%s", path);
    CHECK_INT(bind(fd, (struct sockaddr *)&un, sizeof un), 0);
    CHECK_INT(nsbx_listen_fd(loop, fd, on_accept, &n_accepted, &listener, &err),
              -NSBX_E_INVALID); /* not listening yet */
    CHECK(fcntl(fd, F_GETFD) < 0);
    unlink(path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_INT(bind(fd, (struct sockaddr *)&un, sizeof un), 0);
    CHECK_INT(listen(fd, 5), 0);
    CHECK_INT(nsbx_listen_fd(loop, fd, on_accept, &n_accepted, &listener, &err), 0);
    check_dial(nsbx_stream_dial_unix(loop, path, 5000), "unix");
    struct nsbx_listener *none = NULL;
    CHECK_INT(nsbx_listen_fd(loop, open("/dev/null", O_RDONLY | O_CLOEXEC), on_accept, NULL, &none, &err),
              -NSBX_E_IO);
    CHECK_INT(err.sys, ENOTSOCK);
    close_all();
}

static void a_stale_path_is_replaced_and_nothing_else(void)
{
    struct nsbx_err err = {0};
    struct nsbx_listener *second = NULL;
    open_all();
    listen_unix();
    /* Somebody listens there. */
    CHECK_INT(nsbx_listen_unix(loop, path, on_accept, &n_accepted, &second, &err), -NSBX_E_EXISTS);
    CHECK(strstr(err.message, path) != NULL);
    nsbx_listener_close(listener);
    struct stat st;
    CHECK_INT(lstat(path, &st), 0);
    listen_unix();
    check_dial(nsbx_stream_dial_unix(loop, path, 5000), "unix");
    nsbx_listener_close(listener);
    listener = NULL;
    unlink(path);
    /* A file. */
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    CHECK_INT(nsbx_listen_unix(loop, path, on_accept, &n_accepted, &second, &err), -NSBX_E_EXISTS);
    CHECK_INT(lstat(path, &st), 0);
    CHECK(S_ISREG(st.st_mode));
    unlink(path);
    CHECK_INT(nsbx_listen_unix(loop, "/nowhere/socket", on_accept, &n_accepted, &second, &err), -NSBX_E_NOT_FOUND);
    CHECK_INT(nsbx_listen_tcp(loop, "localhost", 0, on_accept, &n_accepted, &second, &err), -NSBX_E_INVALID);
    CHECK_INT(nsbx_listen_tcp(loop, "192.0.2.1", 0, on_accept, &n_accepted, &second, &err), -NSBX_E_UNREACHABLE);
    listen_tcp();
    CHECK_INT(
        nsbx_listen_tcp(loop, "127.0.0.1", nsbx_listener_port(listener), on_accept, &n_accepted, &second, &err),
        -NSBX_E_EXISTS);
    CHECK(second == NULL);
    close_all();
}

static void the_callback_may_close_the_listener(void)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fds[5];
    open_all();
    listen_unix();
    close_on_accept = true;
    snprintf(un.sun_path, sizeof un.sun_path, "%s", path);
    for (int i = 0; i < 5; i++) {
        fds[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK_INT(connect(fds[i], (struct sockaddr *)&un, sizeof un), 0);
    }
    TURN_UNTIL(!listener, 5000);
    turn_for(5);
    CHECK_INT(n_accepted, 1);
    for (int i = 0; i < 5; i++)
        close(fds[i]);
    close_all();
}

static void many_connections_at_one_time(void)
{
    static struct nsbx_op *ops[500];
    struct nsbx_err err;
    open_all();
    listen_unix();
    for (size_t i = 0; i < NSBX_LEN(ops); i++)
        ops[i] = nsbx_stream_dial_unix(loop, path, 20000);
    struct nsbx_stream *streams[NSBX_LEN(ops)];
    for (size_t i = 0; i < NSBX_LEN(ops); i++) {
        streams[i] = dialled(ops[i], &err);
        CHECK(streams[i] != NULL);
    }
    TURN_UNTIL(n_accepted == NSBX_LEN(ops), 10000);
    for (size_t i = 0; i < NSBX_LEN(ops); i++)
        nsbx_stream_close(streams[i]);
    close_all();
}

static long cpu_us(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 + u.ru_utime.tv_usec + u.ru_stime.tv_usec;
}

static void no_descriptors_pauses_accepting(void)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct rlimit old, tight;
    open_all();
    listen_unix();
    snprintf(un.sun_path, sizeof un.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_INT(connect(fd, (struct sockaddr *)&un, sizeof un), 0);
    getrlimit(RLIMIT_NOFILE, &old);
    tight = old;
    int probe = dup(0);
    close(probe);
    tight.rlim_cur = (rlim_t)probe;
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &tight), 0);
    long before = cpu_us();
    turn_for(350);
    long used = cpu_us() - before;
    CHECK_INT(n_accepted, 0);
    CHECK(used < 100000);
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &old), 0);
    TURN_UNTIL(n_accepted == 1, 2000);
    drop_accepted();
    close(fd);
    /* It may be closed while it pauses. */
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_INT(connect(fd, (struct sockaddr *)&un, sizeof un), 0);
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &tight), 0);
    turn_for(10);
    nsbx_listener_close(listener);
    listener = NULL;
    turn_for(150);
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &old), 0);
    CHECK_INT(n_accepted, 0);
    close(fd);
    close_all();
}

static void no_memory_is_a_clean_error(void)
{
    for (unsigned long nth = 1; nth < 12; nth++) {
        struct nsbx_err err = {0};
        open_all();
        nsbx_alloc_fail_at(nth);
        int rc = nsbx_listen_unix(loop, path, on_accept, &n_accepted, &listener, &err);
        bool reached = nsbx_alloc_count() >= nth;
        nsbx_alloc_fail_at(0);
        CHECK_INT(rc, reached ? -NSBX_E_LIMIT : 0);
        if (reached)
            listen_unix();
        for (int by_name = 0; by_name < 2; by_name++) {
            nsbx_alloc_fail_at(nth); /* reaches into accepting as well */
            struct nsbx_op *op =
                by_name ? nsbx_stream_dial_tcp(loop, "localhost", 1, -1) : nsbx_stream_dial_unix(loop, path, -1);
            for (int i = 0; i < 10; i++)
                nsbx_loop_turn(loop, NSBX_TURN_POLL);
            nsbx_alloc_fail_at(0);
            struct nsbx_stream *s = op ? dialled(op, &err) : NULL;
            CHECK(s || !op || err.code == NSBX_E_LIMIT || err.code == NSBX_E_UNREACHABLE);
            nsbx_stream_close(s);
        }
        turn_for(2);
        close_all();
    }
}

int main(void)
{
    rig_open();
    nsbx_loop_free(loop);
    if (!mkdtemp(dir))
        return 1;
    RUN(an_inherited_socket_listens);
    RUN(a_stale_path_is_replaced_and_nothing_else);
    RUN(the_callback_may_close_the_listener);
    RUN(many_connections_at_one_time);
    RUN(no_descriptors_pauses_accepting);
    RUN(no_memory_is_a_clean_error);
    rmdir(dir);
    return harness_done();
}
