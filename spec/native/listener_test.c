/* Dialling and listening. */
#include "stream_rig.h"

#include "loop/dial_priv.h"

#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>

/* ---- a listener that keeps what it accepts ---- */

enum { MAX_ACCEPTED = 600 };
static struct nsbx_stream *accepted[MAX_ACCEPTED];
static size_t n_accepted;
static struct nsbx_listener *listener;
static bool close_on_accept;

static void on_accept(void *ud, struct nsbx_stream *stream)
{
    CHECK(ud == &n_accepted);
    if (n_accepted == MAX_ACCEPTED)
        abort();
    accepted[n_accepted++] = stream;
    if (close_on_accept) {
        nsbx_listener_close(listener);
        listener = NULL;
    }
}

static void drop_accepted(void)
{
    while (n_accepted)
        nsbx_stream_close(accepted[--n_accepted]);
}

static char dir[] = "/tmp/listener_test.XXXXXX";
static char path[64];

static void open_all(void)
{
    rig_open();
    n_accepted = 0;
    close_on_accept = false;
    listener = NULL;
    snprintf(path, sizeof path, "%s/socket", dir);
}

static void close_all(void)
{
    drop_accepted();
    nsbx_listener_close(listener);
    listener = NULL;
    unlink(path);
    rig_close();
}

static void listen_tcp(void)
{
    struct nsbx_err err = {0};
    CHECK_INT(nsbx_listen_tcp(loop, "127.0.0.1", 0, on_accept, &n_accepted, &listener, &err), 0);
}

static void listen_unix(void)
{
    struct nsbx_err err = {0};
    CHECK_INT(nsbx_listen_unix(loop, path, on_accept, &n_accepted, &listener, &err), 0);
    CHECK_STR(err.message, "");
}

/* Waits for the op, gives its stream or NULL; *err is a copy. */
static struct nsbx_stream *dialled(struct nsbx_op *op, struct nsbx_err *err)
{
    *err = (struct nsbx_err){0};
    if (!op)
        abort();
    TURN_UNTIL(nsbx_op_state(op) != NSBX_OP_PENDING, 10000);
    if (nsbx_op_err(op))
        *err = *nsbx_op_err(op);
    struct nsbx_stream *s = nsbx_op_take_result(op);
    nsbx_op_unref(op);
    return s;
}

/* A byte each way. */
static void check_talk(struct nsbx_stream *a, struct nsbx_stream *b)
{
    struct end x = {.s = a}, y = {.s = b};
    nsbx_stream_set_events(a, &end_events, &x);
    nsbx_stream_set_events(b, &end_events, &y);
    nsbx_stream_read_start(a);
    nsbx_stream_read_start(b);
    CHECK_INT(end_write(&x, 10), 0);
    CHECK_INT(end_write(&y, 20), 0);
    TURN_UNTIL(x.got == 20 && y.got == 10, 5000);
    nsbx_stream_read_stop(a);
    nsbx_stream_read_stop(b);
    nsbx_stream_set_events(a, NULL, NULL);
    nsbx_stream_set_events(b, NULL, NULL);
}

static void check_dial(struct nsbx_op *op, const char *want_kind)
{
    struct nsbx_err err;
    struct nsbx_stream *s = dialled(op, &err);
    CHECK_STR(err.message, "");
    REQUIRE(s != NULL);
    CHECK_STR(nsbx_stream_kind(s), want_kind);
    TURN_UNTIL(n_accepted, 5000);
    if (n_accepted) {
        CHECK_STR(nsbx_stream_kind(accepted[0]), want_kind);
        check_talk(s, accepted[0]);
    }
    drop_accepted();
    nsbx_stream_close(s);
}

/* ---- dialling ---- */

static void tcp_by_address_and_by_name(void)
{
    open_all();
    listen_tcp();
    uint16_t port = nsbx_listener_port(listener);
    CHECK(port != 0);
    check_dial(nsbx_stream_dial_tcp(loop, "127.0.0.1", port, 5000), "tcp");
    check_dial(nsbx_stream_dial_tcp(loop, "localhost", port, 5000), "tcp");
    check_dial(nsbx_stream_dial_tcp(loop, "localhost", port, -1), "tcp");
    close_all();
}

static void tcp_over_ipv6(void)
{
    struct nsbx_err err = {0};
    open_all();
    int rc = nsbx_listen_tcp(loop, "::1", 0, on_accept, &n_accepted, &listener, &err);
    if (rc) {
        CHECK_INT(err.sys == EADDRNOTAVAIL || err.sys == EAFNOSUPPORT, true); /* a machine without IPv6 says so */
    } else {
        check_dial(nsbx_stream_dial_tcp(loop, "::1", nsbx_listener_port(listener), 5000), "tcp");
    }
    close_all();
}

static void unix_by_path_and_by_descriptor(void)
{
    char by_fd[64];
    open_all();
    listen_unix();
    CHECK_INT(nsbx_listener_port(listener), 0);
    check_dial(nsbx_stream_dial_unix(loop, path, 5000), "unix");
    /* The socket's path need not exist any more. */
    int fd = open(path, O_PATH | O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK_INT(unlink(path), 0);
    snprintf(by_fd, sizeof by_fd, "/proc/self/fd/%d", fd);
    check_dial(nsbx_stream_dial_unix(loop, by_fd, 5000), "unix");
    close(fd);
    close_all();
}

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

static void tcp_sockets_are_tuned(void)
{
    struct nsbx_err err;
    open_all();
    listen_tcp();
    int before = dup(0);
    close(before);
    struct nsbx_stream *s =
        dialled(nsbx_stream_dial_tcp(loop, "127.0.0.1", nsbx_listener_port(listener), 5000), &err);
    TURN_UNTIL(n_accepted, 5000);
    int tuned = 0;
    for (int fd = before; fd < before + 4; fd++) { /* both ends, wherever they are */
        int alive = 0, nodelay = 0, idle = 0;
        socklen_t len = sizeof alive;
        if (getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &alive, &len) == 0 && alive) {
            getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &nodelay, &len);
            getsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, &len);
            CHECK_INT(idle, 15);
            CHECK(nodelay);
            CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
            tuned++;
        }
    }
    CHECK_INT(tuned, 2);
    nsbx_stream_close(s);
    close_all();
}

static void nobody_there(void)
{
    struct nsbx_err err;
    open_all();
    listen_tcp();
    uint16_t port = nsbx_listener_port(listener);
    nsbx_listener_close(listener);
    listener = NULL;
    CHECK(!dialled(nsbx_stream_dial_tcp(loop, "127.0.0.1", port, 5000), &err));
    CHECK_INT(err.code, NSBX_E_UNREACHABLE);
    CHECK_INT(err.sys, ECONNREFUSED);
    CHECK(strstr(err.message, "cannot connect to 127.0.0.1:") != NULL);
    CHECK(!dialled(nsbx_stream_dial_tcp(loop, "localhost", port, 5000), &err));
    CHECK_INT(err.code, NSBX_E_UNREACHABLE);
    CHECK(!dialled(nsbx_stream_dial_unix(loop, path, 5000), &err));
    CHECK_INT(err.code, NSBX_E_UNREACHABLE);
    CHECK_INT(err.sys, ENOENT);
    CHECK(strstr(err.message, path) != NULL);
    CHECK(!dialled(nsbx_stream_dial_unix(loop, dir, 5000), &err)); /* a directory */
    CHECK_INT(err.code, NSBX_E_UNREACHABLE);
    char longer[200];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    CHECK(!dialled(nsbx_stream_dial_unix(loop, longer, 5000), &err));
    CHECK_INT(err.code, NSBX_E_INVALID);
    CHECK(!dialled(nsbx_stream_dial_unix(loop, "", 5000), &err));
    CHECK_INT(err.code, NSBX_E_INVALID);
    close_all();
}

static void names_that_are_none(void)
{
    struct nsbx_err err;
    char longer[300];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    open_all();
    CHECK(!dialled(nsbx_stream_dial_tcp(loop, longer, 1, 5000), &err));
    CHECK_INT(err.code, NSBX_E_INVALID);
    CHECK(!dialled(nsbx_stream_dial_tcp(loop, "", 1, 5000), &err));
    CHECK_INT(err.code, NSBX_E_INVALID);
    CHECK(!dialled(nsbx_stream_dial_tcp(loop, "not a name", 1, 8000), &err));
    CHECK(err.code == NSBX_E_UNREACHABLE || err.code == NSBX_E_TIMEOUT);
    if (err.code == NSBX_E_UNREACHABLE)
        CHECK(strstr(err.message, "cannot resolve not a name: ") != NULL);
    close_all();
}

/* A tcp port that never answers: its queue of connections is full, so the kernel drops what comes. */
static int black_hole(struct sockaddr_in *a, int fillers[8])
{
    int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t len = sizeof *a;
    *a = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CHECK_INT(bind(l, (struct sockaddr *)a, sizeof *a), 0);
    CHECK_INT(listen(l, 0), 0);
    getsockname(l, (struct sockaddr *)a, &len);
    for (int i = 0; i < 8; i++) {
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        connect(fillers[i], (struct sockaddr *)a, sizeof *a);
    }
    usleep(10000);
    return l;
}

static void close_fds(int fds[8], int l)
{
    for (int i = 0; i < 8; i++)
        close(fds[i]);
    close(l);
}

static void a_deadline_ends_a_connect(void)
{
    struct sockaddr_in a;
    struct nsbx_err err;
    int fillers[8];
    open_all();
    int l = black_hole(&a, fillers);
    uint64_t start = nsbx_now_ms();
    CHECK(!dialled(nsbx_stream_dial_tcp(loop, "127.0.0.1", ntohs(a.sin_port), 60), &err));
    CHECK_INT(err.code, NSBX_E_TIMEOUT);
    CHECK_STR(err.message, "connect timed out after 60 ms");
    CHECK(nsbx_now_ms() - start >= 59);
    CHECK(nsbx_now_ms() - start < 2000);
    close_fds(fillers, l);
    close_all();
}

static void addresses_are_tried_in_order_within_the_time(void)
{
    struct sockaddr_in a;
    struct nsbx_err err;
    int fillers[8];
    open_all();
    listen_tcp();
    int l = black_hole(&a, fillers);
    struct nsbx_dial *d = nsbx_dial_new(loop, 900);
    struct nsbx_op *op = nsbx_op_ref(d->op);
    CHECK(nsbx_addr_literal(&d->addrs[0], "127.0.0.1", 1)); /* refused at once */
    CHECK(nsbx_addr_literal(&d->addrs[1], "127.0.0.1",
                            ntohs(a.sin_port))); /* never answers: a half of what is left */
    CHECK(nsbx_addr_literal(&d->addrs[2], "127.0.0.1", nsbx_listener_port(listener)));
    d->n_addrs = 3;
    uint64_t start = nsbx_now_ms();
    nsbx_dial_start(d);
    struct nsbx_stream *s = dialled(op, &err);
    CHECK(s != NULL);
    CHECK(nsbx_now_ms() - start >= 400);
    nsbx_stream_close(s);
    /* None answers: the last failure is told. */
    d = nsbx_dial_new(loop, 5000);
    op = nsbx_op_ref(d->op);
    CHECK(nsbx_addr_literal(&d->addrs[0], "127.0.0.1", 1));
    CHECK(nsbx_addr_literal(&d->addrs[1], "127.0.0.1", 2));
    d->n_addrs = 2;
    nsbx_dial_start(d);
    CHECK(!dialled(op, &err));
    CHECK_INT(err.code, NSBX_E_UNREACHABLE);
    CHECK_INT(err.sys, ECONNREFUSED);
    TURN_UNTIL(n_accepted, 1000);
    close_fds(fillers, l);
    close_all();
}

static void a_full_unix_backlog_is_waited_for(void)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct nsbx_err err;
    open_all();
    snprintf(un.sun_path, sizeof un.sun_path, "%s", path);
    int l = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_INT(bind(l, (struct sockaddr *)&un, sizeof un), 0);
    CHECK_INT(listen(l, 0), 0);
    int filler = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    CHECK_INT(connect(filler, (struct sockaddr *)&un, sizeof un), 0);
    CHECK(!dialled(nsbx_stream_dial_unix(loop, path, 30), &err));
    CHECK_INT(err.code, NSBX_E_TIMEOUT);
    struct nsbx_op *op = nsbx_stream_dial_unix(loop, path, -1);
    turn_for(20);
    CHECK_INT(nsbx_op_state(op), NSBX_OP_PENDING);
    int got = accept4(l, NULL, NULL, SOCK_CLOEXEC);
    CHECK(got >= 0);
    struct nsbx_stream *s = dialled(op, &err);
    CHECK(s != NULL);
    nsbx_stream_close(s);
    close(got);
    close(filler);
    close(l);
    close_all();
}

static void a_dial_is_cancelled_at_any_time(void)
{
    struct sockaddr_in a;
    int fillers[8];
    open_all();
    listen_unix();
    int l = black_hole(&a, fillers);
    for (int kind_of = 0; kind_of < 4; kind_of++) {
        for (int turns = 0; turns < 4; turns++) {
            struct nsbx_op *op = kind_of == 0   ? nsbx_stream_dial_tcp(loop, "127.0.0.1", ntohs(a.sin_port), 5000)
                                 : kind_of == 1 ? nsbx_stream_dial_tcp(loop, "localhost", ntohs(a.sin_port), -1)
                                 : kind_of == 2 ? nsbx_stream_dial_tcp(loop, "host.invalid", 80, 5000)
                                                : nsbx_stream_dial_unix(loop, path, 5000);
            for (int i = 0; i < turns; i++)
                nsbx_loop_turn(loop, NSBX_TURN_POLL);
            enum nsbx_op_state before = nsbx_op_state(op);
            nsbx_op_cancel(op);
            CHECK_INT(nsbx_op_state(op), before == NSBX_OP_PENDING ? NSBX_OP_CANCELLED : before);
            nsbx_op_unref(op); /* a result that nobody took is closed */
        }
    }
    turn_for(5);
    close_fds(fillers, l);
    close_all();
}

static void resolvers_that_nobody_waits_for(void)
{
    open_all();
    for (int i = 0; i < 60; i++) {
        struct nsbx_op *op = nsbx_stream_dial_tcp(loop, "localhost", 1, 1000);
        struct nsbx_op *forgotten = nsbx_stream_dial_tcp(loop, "localhost", 1, 50); /* goes on alone */
        nsbx_op_unref(forgotten);
        if (i % 3)
            usleep((unsigned)(i * 37 % 500)); /* the answer may be there, taken, or on its way */
        if (i % 2)
            nsbx_loop_turn(loop, NSBX_TURN_POLL);
        nsbx_op_cancel(op);
        nsbx_op_unref(op);
    }
    TURN_UNTIL(nsbx_loop_live(loop, NULL, NULL) <= 1, 5000); /* the guard of this wait */
    /* The loop does not wait for a resolver. */
    struct nsbx_op *op = nsbx_stream_dial_tcp(loop, "host.invalid", 1, 50000);
    nsbx_op_cancel(op);
    nsbx_op_unref(op);
    uint64_t start = nsbx_now_ms();
    close_all();
    CHECK(nsbx_now_ms() - start < 1000);
}

static void a_forgotten_dial_ends_by_itself(void)
{
    open_all();
    listen_unix();
    struct nsbx_op *op = nsbx_stream_dial_unix(loop, path, 5000);
    nsbx_op_unref(op);
    TURN_UNTIL(n_accepted, 5000);
    struct end e = {.s = accepted[0]};
    nsbx_stream_set_events(e.s, &end_events, &e);
    nsbx_stream_read_start(e.s);
    TURN_UNTIL(e.eofs, 5000); /* its stream was closed */
    close_all();
}

/* ---- listening ---- */

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

static void no_descriptors_to_dial_with(void)
{
    struct rlimit old, tight;
    struct nsbx_err err;
    open_all();
    listen_unix();
    getrlimit(RLIMIT_NOFILE, &old);
    tight = old;
    int probe = dup(0);
    close(probe);
    tight.rlim_cur = (rlim_t)probe;
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &tight), 0);
    struct nsbx_stream *s = dialled(nsbx_stream_dial_unix(loop, path, 5000), &err);
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &old), 0);
    CHECK(s == NULL);
    CHECK_INT(err.code, NSBX_E_LIMIT);
    CHECK_INT(err.sys, EMFILE);
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
    RUN(tcp_by_address_and_by_name);
    RUN(tcp_over_ipv6);
    RUN(unix_by_path_and_by_descriptor);
    RUN(an_inherited_socket_listens);
    RUN(tcp_sockets_are_tuned);
    RUN(nobody_there);
    RUN(names_that_are_none);
    RUN(a_deadline_ends_a_connect);
    RUN(addresses_are_tried_in_order_within_the_time);
    RUN(a_full_unix_backlog_is_waited_for);
    RUN(a_dial_is_cancelled_at_any_time);
    RUN(resolvers_that_nobody_waits_for);
    RUN(a_forgotten_dial_ends_by_itself);
    RUN(a_stale_path_is_replaced_and_nothing_else);
    RUN(the_callback_may_close_the_listener);
    RUN(many_connections_at_one_time);
    RUN(no_descriptors_pauses_accepting);
    RUN(no_descriptors_to_dial_with);
    RUN(no_memory_is_a_clean_error);
    rmdir(dir);
    return harness_done();
}
