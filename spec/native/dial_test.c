/* Dialling: addresses, names, deadlines, cancelling. */
#include "listen_rig.h"

#include "loop/dial_priv.h"

#include "loop/work.h"

#include <dlfcn.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <sys/resource.h>

/* ---- a resolver that misbehaves on demand ---- */

typedef int resolver(const char *, const char *, const struct addrinfo *, struct addrinfo **);
static atomic_int slow_running;
static atomic_bool slow_release;

/* In the place of libc's: names under "test." do what a case needs, all others are asked there. */
int getaddrinfo(const char *restrict host, const char *restrict port, const struct addrinfo *restrict hints,
                struct addrinfo **restrict list)
{
    resolver *real = (resolver *)(uintptr_t)dlsym(RTLD_NEXT, "getaddrinfo");
    if (strcmp(host, "slow.test") == 0) {
        atomic_fetch_add(&slow_running, 1);
        while (!atomic_load(&slow_release))
            usleep(1000);
        atomic_fetch_sub(&slow_running, 1);
        return EAI_AGAIN;
    }
    if (strcmp(host, "broken.test") == 0) {
        errno = ENFILE;
        return EAI_SYSTEM;
    }
    if (strcmp(host, "many.test") == 0) { /* one more than is looked at, and the last would be right */
        int rc = real("127.0.0.1", port, hints, list);
        for (int i = 0; i < NSBX_DIAL_ADDRESSES && rc == 0; i++) {
            struct addrinfo *first = NULL;
            rc = real("127.0.0.2", port, hints, &first);
            first->ai_next = *list;
            *list = first;
        }
        return rc;
    }
    if (strcmp(host, "second.test") == 0) {
        int rc = real("127.0.0.2", port, hints, list);
        return rc ? rc : real("127.0.0.1", port, hints, &(*list)->ai_next);
    }
    return real(host, port, hints, list);
}

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
    CHECK(!dialled(nsbx_stream_dial_tcp(loop, "broken.test", 1, 8000), &err));
    CHECK_INT(err.code, NSBX_E_UNREACHABLE);
    CHECK_INT(err.sys, ENFILE);
    CHECK_STR(err.message, "cannot resolve broken.test: Too many open files in system");
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
        (void)connect(fillers[i], (struct sockaddr *)a, sizeof *a);
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
    close_all();
}

static void note_done(void *ud)
{
    *(bool *)ud = true;
}
static void nothing(void *ud)
{
    (void)ud;
}

static void a_slow_resolver_holds_nothing_up(void)
{
    struct nsbx_err err;
    struct nsbx_op *ops[10];
    bool worked = false;
    open_all();
    atomic_store(&slow_release, false);
    for (size_t i = 0; i < NSBX_LEN(ops); i++)
        ops[i] = nsbx_stream_dial_tcp(loop, "slow.test", 1, 50000);
    for (int i = 0; i < 10000 && atomic_load(&slow_running) < (int)NSBX_LEN(ops); i++)
        usleep(1000);
    CHECK_INT(atomic_load(&slow_running), NSBX_LEN(ops));
    CHECK_INT(nsbx_work(loop, nothing, note_done, &worked, NULL), 0); /* more of them than the pool has threads */
    TURN_UNTIL(worked, 5000);
    CHECK(!dialled(nsbx_stream_dial_tcp(loop, "slow.test", 1, 20), &err));
    CHECK_INT(err.code, NSBX_E_TIMEOUT);
    for (size_t i = 0; i < NSBX_LEN(ops); i++) {
        nsbx_op_cancel(ops[i]);
        CHECK_INT(nsbx_op_state(ops[i]), NSBX_OP_CANCELLED);
        nsbx_op_unref(ops[i]);
    }
    close_all(); /* the loop is gone, they are not */
    CHECK_INT(atomic_load(&slow_running), NSBX_LEN(ops) + 1);
    atomic_store(&slow_release, true);
    for (int i = 0; i < 5000 && atomic_load(&slow_running); i++)
        usleep(1000);
    CHECK_INT(atomic_load(&slow_running), 0);
    usleep(20000); /* their last words, before the leak check */
}

static void a_names_addresses_are_tried_in_order(void)
{
    struct nsbx_err err;
    open_all();
    listen_tcp();
    uint16_t port = nsbx_listener_port(listener);
    check_dial(nsbx_stream_dial_tcp(loop, "second.test", port, 5000), "tcp");
    CHECK(!dialled(nsbx_stream_dial_tcp(loop, "many.test", port, 5000), &err));
    CHECK_INT(err.sys, ECONNREFUSED);
    close_all();
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

int main(void)
{
    rig_open();
    nsbx_loop_free(loop);
    if (!mkdtemp(dir))
        return 1;
    setenv("RES_OPTIONS", "timeout:1 attempts:1", 1); /* where no name server answers, it does not answer soon */
    RUN(tcp_by_address_and_by_name);
    RUN(tcp_over_ipv6);
    RUN(unix_by_path_and_by_descriptor);
    RUN(tcp_sockets_are_tuned);
    RUN(nobody_there);
    RUN(names_that_are_none);
    RUN(a_deadline_ends_a_connect);
    RUN(addresses_are_tried_in_order_within_the_time);
    RUN(a_full_unix_backlog_is_waited_for);
    RUN(a_dial_is_cancelled_at_any_time);
    RUN(resolvers_that_nobody_waits_for);
    RUN(a_slow_resolver_holds_nothing_up);
    RUN(a_names_addresses_are_tried_in_order);
    RUN(a_forgotten_dial_ends_by_itself);
    RUN(no_descriptors_to_dial_with);
    rmdir(dir);
    return harness_done();
}
