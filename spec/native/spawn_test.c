#include "spawn_run.h"

#include "base/alloc.h"

#include <grp.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* ---- how it ended ---- */

static void every_exit_code(void)
{
    for (int code = 0; code <= 255; code++) {
        char text[16];
        struct result r;
        struct nsbx_err err;
        snprintf(text, sizeof text, "%d", code);
        COMMAND(c, "exit", text);
        REQUIRE(run(&c, &r, &err) == 0);
        CHECK(r.exit.known);
        CHECK_INT(r.exit.code, code);
        CHECK_INT(r.exit.signal, 0);
    }
    CHECK(childless());
}

static bool kills(int signo)
{
    switch (signo) {
    case SIGCHLD:
    case SIGCONT:
    case SIGURG:
    case SIGWINCH: /* nothing */
    case SIGSTOP:
    case SIGTSTP:
    case SIGTTIN:
    case SIGTTOU: /* a stop */
        return false;
    default:
        return true;
    }
}

static void every_signal(void)
{
    for (int signo = 1; signo <= 64; signo++) {
        char text[16];
        struct result r;
        struct nsbx_err err;
        if (!kills(signo))
            continue;
        snprintf(text, sizeof text, "%d", signo);
        COMMAND(c, "die", text);
        limit(&c, RLIMIT_CORE, 0);
        REQUIRE(run(&c, &r, &err) == 0);
        CHECK(r.exit.known);
        CHECK_INT(r.exit.code, -1);
        CHECK_INT(r.exit.signal, signo);
    }
}

static void status_taken_by_an_embedder(void)
{
    struct nsbx_child *child;
    struct result r = {0};
    struct nsbx_err err;
    COMMAND(c, "exit", "7");
    REQUIRE(nsbx_child_start(loop, &c.spec, on_exit_cb, &r, &child, &err) == 0);
    int status;
    CHECK_INT(waitpid(-1, &status, 0), nsbx_child_pid(child));
    CHECK(turn_until(&r.ended, 5000));
    CHECK(!r.exit.known);
    CHECK_INT(r.exit.code, -1);
    CHECK_INT(nsbx_child_kill(child, SIGTERM, &err), 0);
    nsbx_child_close(child);
}

static void killed_by_pidfd(void)
{
    struct nsbx_child *child;
    struct result r = {0};
    struct nsbx_err err;
    COMMAND(c, "rest", "sp-kill", "60000");
    REQUIRE(nsbx_child_start(loop, &c.spec, on_exit_cb, &r, &child, &err) == 0);
    CHECK_INT(nsbx_child_kill(child, SIGUSR2, &err), 0);
    CHECK(turn_until(&r.ended, 5000));
    CHECK_INT(r.exit.signal, SIGUSR2);
    CHECK_INT(nsbx_child_kill(child, SIGKILL, &err), 0);
    CHECK_INT(r.calls, 1);
    nsbx_child_close(child);
}

static void closed_before_its_end(void)
{
    struct nsbx_child *child;
    struct result r = {0};
    struct nsbx_err err;
    COMMAND(c, "rest", "sp-close", "150");
    REQUIRE(nsbx_child_start(loop, &c.spec, on_exit_cb, &r, &child, &err) == 0);
    pid_t pid = nsbx_child_pid(child);
    nsbx_child_close(child);
    CHECK_INT(nsbx_loop_live(loop, NULL, NULL), 0);
    CHECK(!nsbx_loop_turn(loop, NSBX_TURN_POLL)); /* it does not keep the loop going */
    turn_until(NULL, 400);
    CHECK_INT(r.calls, 0);
    CHECK_INT(kill(pid, 0), -1); /* not even a zombie */
    CHECK(childless());
}

static void left_behind_by_its_loop(void)
{
    struct nsbx_loop *own;
    struct nsbx_child *child;
    struct result r = {0};
    struct nsbx_err err;
    COMMAND(c, "rest", "sp-left", "60000");
    REQUIRE(nsbx_loop_new(&own, &err) == 0);
    REQUIRE(nsbx_child_start(own, &c.spec, on_exit_cb, &r, &child, &err) == 0);
    pid_t pid = nsbx_child_pid(child);
    int fds = count_fds();
    nsbx_child_close(child);
    nsbx_loop_free(own);
    CHECK(count_fds() < fds);
    CHECK_INT(kill(pid, SIGKILL), 0);
    CHECK_INT(waitpid(pid, NULL, 0), pid);
}

static void close_in_callback_cb(void *ud, const struct nsbx_exit *exit)
{
    struct nsbx_child **child = ud;
    (void)exit;
    nsbx_child_close(*child);
    *child = NULL;
}

static void closed_in_its_callback(void)
{
    struct nsbx_child *child;
    struct nsbx_err err;
    COMMAND(c, "exit", "0");
    REQUIRE(nsbx_child_start(loop, &c.spec, close_in_callback_cb, &child, &child, &err) == 0);
    for (int i = 0; child && i < 1000; i++)
        turn_until(NULL, 5);
    CHECK(!child);
    CHECK_INT(nsbx_loop_live(loop, NULL, NULL), 0);
}

/* ---- what it inherits ---- */

static void no_descriptor_but_those_named(void)
{
    int low = open("/", O_RDONLY | O_DIRECTORY), high = fcntl(low, F_DUPFD, 700);
    COMMAND(c, "fds");
    map_fd(&c, low, 9);
    map_fd(&c, low, 300);
    CHECK_STR(output_of(&c), "0 1 2 9 300 ");
    COMMAND(bare, "fds");
    CHECK_STR(output_of(&bare), "0 1 2 ");
    close(low);
    close(high);
}

static void standard_descriptors_when_the_parent_has_none(void)
{
    /* The pipes of the start get the numbers 0 to 2 here, the child's targets. */
    int saved[3];
    for (int fd = 0; fd < 3; fd++) {
        saved[fd] = fcntl(fd, F_DUPFD_CLOEXEC, 100);
        close(fd);
    }
    COMMAND(c, "fds");
    struct pipe_ends out = make_pipe();
    map_fd(&c, out.write, 1);
    struct result r;
    struct nsbx_err err;
    int rc = run(&c, &r, &err);
    char got[64];
    snprintf(got, sizeof got, "%s", read_all(out));
    for (int fd = 0; fd < 3; fd++) {
        dup2(saved[fd], fd);
        close(saved[fd]);
    }
    CHECK_INT(rc, 0);
    CHECK_INT(r.exit.code, 0);
    CHECK_STR(got, "0 1 2 ");
}

static void swapped_output(void)
{
    struct pipe_ends a = make_pipe(), b = make_pipe();
    int out = fcntl(1, F_DUPFD_CLOEXEC, 100), error = fcntl(2, F_DUPFD_CLOEXEC, 100);
    COMMAND(c, "say", "1", "from 1", "2", "from 2");
    map_fd(&c, 1, 2);
    map_fd(&c, 2, 1);
    struct result r;
    struct nsbx_err err;
    fflush(stdout);
    dup2(a.write, 1);
    dup2(b.write, 2);
    int rc = run(&c, &r, &err);
    dup2(out, 1);
    dup2(error, 2);
    close(out);
    close(error);
    CHECK_INT(rc, 0);
    CHECK_STR(read_all(a), "from 2");
    CHECK_STR(read_all(b), "from 1");
}

static void permuted_descriptors(void)
{
    /* Each becomes the next one's number, and two more are taken from the first. */
    struct pipe_ends p[3] = {make_pipe(), make_pipe(), make_pipe()};
    char fd[3][16];
    for (int i = 0; i < 3; i++)
        snprintf(fd[i], sizeof fd[i], "%d", p[i].write);
    COMMAND(c, "say", fd[0], "a", fd[1], "b", fd[2], "c", "0", "d", "50", "e");
    for (int i = 0; i < 3; i++)
        map_fd(&c, p[i].write, p[(i + 1) % 3].write);
    map_fd(&c, p[0].write, 0);
    map_fd(&c, p[0].write, 50);
    struct result r;
    struct nsbx_err err;
    REQUIRE(run(&c, &r, &err) == 0);
    CHECK_STR(read_all(p[0]), "bde");
    CHECK_STR(read_all(p[1]), "c");
    CHECK_STR(read_all(p[2]), "a");
}

static void set_ignored(int signo, bool ignored)
{
    unsigned long action[8] = {ignored ? 1 : 0}; /* SIG_IGN; also for the two that libc refuses */
    syscall(SYS_rt_sigaction, signo, action, NULL, 8);
}

static void no_mask_and_no_disposition(void)
{
    static const int ignored[] = {SIGHUP, SIGINT, SIGPIPE, SIGUSR1, SIGTERM, SIGTSTP, 32, 33, 34, 64};
    sigset_t all, saved;
    for (size_t i = 0; i < NSBX_LEN(ignored); i++)
        set_ignored(ignored[i], true);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved);
    COMMAND(c, "signals");
    const char *text = output_of(&c);
    sigset_t after;
    pthread_sigmask(SIG_SETMASK, &saved, &after);
    for (size_t i = 0; i < NSBX_LEN(ignored); i++)
        set_ignored(ignored[i], false);
    CHECK_STR(text, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\nSigCgt:\t0000000000000000\n");
    CHECK(sigismember(&after, SIGTERM) == 1); /* the parent's own mask came back */
}

static void environment_is_complete(void)
{
    static const char *const env[] = {"ONE=1", "EMPTY=", NULL};
    setenv("NSBX_INHERITED", "1", 1);
    COMMAND(c, "env");
    c.spec.envp = env;
    CHECK_STR(output_of(&c), "ONE=1\nEMPTY=\n");
    unsetenv("NSBX_INHERITED");
}

static void session_and_directory(void)
{
    char want[128];
    COMMAND(own, "place");
    own.spec.cwd = scratch;
    snprintf(want, sizeof want, "%s 1 1\n", scratch);
    CHECK_STR(output_of(&own), want);

    COMMAND(same, "place");
    same.spec.new_session = false;
    same.spec.cwd = "/";
    CHECK_STR(output_of(&same), "/ 0 0\n");
}

static void directory_by_descriptor(void)
{
    char want[128];
    int dir = open(scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    COMMAND(c, "place");
    c.spec.cwd = "/nonexistent";
    c.spec.cwd_fd = dir;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    map_fd(&c, null, dir); /* its number is wanted for something else */
    snprintf(want, sizeof want, "%s 1 1\n", scratch);
    CHECK_STR(output_of(&c), want);
    close(dir);
    close(null);
}

static void limits_are_set(void)
{
    COMMAND(c, "limit", "7" /* RLIMIT_NOFILE */);
    limit(&c, RLIMIT_NOFILE, 20);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    map_fd(&c, null, 200); /* above the limit, which is for the program */
    CHECK_STR(output_of(&c), "20 20\n");
    close(null);
    struct rlimit own;
    getrlimit(RLIMIT_NOFILE, &own);
    CHECK(own.rlim_cur > 20);
}

static void controlling_terminal(void)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    REQUIRE(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
    COMMAND(c, "terminal");
    map_fd(&c, slave, 0);
    c.spec.controlling_tty = 0;
    CHECK_STR(output_of(&c), "terminal 1\n");
    COMMAND(without, "terminal");
    CHECK_STR(output_of(&without), "none 0\n");
    close(slave);
    close(master);
}

static void identity(void)
{
    struct nsbx_err err;
    struct result r;
    COMMAND(c, "identity");
    c.spec.drop = true;
    c.spec.uid = 61234;
    c.spec.gid = 61235;
    if (geteuid() != 0) { /* a plain user is refused, and nothing runs as it was */
        CHECK_INT(run(&c, &r, &err), -NSBX_E_FORBIDDEN);
        CHECK(strstr(err.message, "change the user") != NULL);
        return;
    }
    gid_t group = 4;
    CHECK_INT(setgroups(1, &group), 0);
    CHECK_STR(output_of(&c), "61234 61234 61234 61235 61235 61235 groups 0\n");
    CHECK_INT(setgroups(0, NULL), 0);
    CHECK_INT(geteuid(), 0);
    /* The directory is entered as the new user. */
    char closed[96];
    snprintf(closed, sizeof closed, "%s/closed", scratch);
    mkdir(closed, 0700);
    COMMAND(inside, "place");
    inside.spec.drop = true;
    inside.spec.uid = inside.spec.gid = 61234;
    inside.spec.cwd = closed;
    CHECK_INT(run(&inside, &r, &err), -NSBX_E_FORBIDDEN);
    CHECK(strstr(err.message, closed) != NULL);
}

/* ---- threads and memory ---- */

struct runner {
    int base, bad;
    struct nsbx_loop *own;
};

static void *run_many(void *arg)
{
    struct runner *r = arg;
    for (int code = r->base; code < r->base + 40; code++) {
        char text[16];
        struct nsbx_child *child;
        struct nsbx_err err;
        struct result result = {0};
        snprintf(text, sizeof text, "%d", code);
        COMMAND(c, "exit", text);
        if (nsbx_child_start(r->own, &c.spec, on_exit_cb, &result, &child, &err)) {
            r->bad++;
            continue;
        }
        while (!result.ended)
            nsbx_loop_turn(r->own, NSBX_TURN_WAIT);
        r->bad += !result.exit.known || result.exit.code != code;
        nsbx_child_close(child);
    }
    return NULL;
}

static void from_four_threads(void)
{
    pthread_t threads[4];
    struct runner runners[4] = {{.base = 0}, {.base = 50}, {.base = 100}, {.base = 150}};
    struct nsbx_err err;
    for (int i = 0; i < 4; i++)
        REQUIRE(nsbx_loop_new(&runners[i].own, &err) == 0);
    for (int i = 0; i < 4; i++)
        REQUIRE(pthread_create(&threads[i], NULL, run_many, &runners[i]) == 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        CHECK_INT(runners[i].bad, 0);
    }
    for (int i = 0; i < 4; i++)
        nsbx_loop_free(runners[i].own);
}

static void without_memory(void)
{
    for (unsigned long nth = 1;; nth++) {
        struct nsbx_child *child;
        struct result r = {0};
        struct nsbx_err err;
        COMMAND(c, "exit", "0");
        nsbx_alloc_fail_at(nth);
        int rc = nsbx_child_start(loop, &c.spec, on_exit_cb, &r, &child, &err);
        unsigned long asked = nsbx_alloc_count();
        nsbx_alloc_fail_at(0);
        if (!rc) {
            CHECK(turn_until(&r.ended, 5000));
            nsbx_child_close(child);
            CHECK(asked < nth);
            break;
        }
        CHECK_INT(rc, -NSBX_E_LIMIT);
        CHECK(childless());
    }
    CHECK_INT(nsbx_loop_live(loop, NULL, NULL), 0);
}

static void names_of_signals(void)
{
    for (int signo = 1; signo <= 64; signo++) {
        const char *name = nsbx_signal_name(signo);
        REQUIRE(name != NULL);
        CHECK_INT(nsbx_signal_of_name(name), signo);
        CHECK_INT(nsbx_signal_of_name(name + 3), signo == 32 || signo == 33 ? 0 : signo);
    }
    CHECK_STR(nsbx_signal_name(33), "SIG33");
    CHECK_STR(nsbx_signal_name(34), "SIGRTMIN");
    CHECK_STR(nsbx_signal_name(49), "SIGRTMIN+15");
    CHECK_STR(nsbx_signal_name(50), "SIGRTMAX-14");
    CHECK_STR(nsbx_signal_name(64), "SIGRTMAX");
    CHECK_INT(nsbx_signal_of_name("rtmin+30"), 64);
    CHECK_INT(nsbx_signal_of_name("SIGRTMAX-30"), 34);
    CHECK_STR(nsbx_signal_name(SIGABRT), "SIGABRT");
    CHECK_STR(nsbx_signal_name(SIGIO), "SIGIO");
    CHECK_INT(nsbx_signal_of_name("sigterm"), SIGTERM);
    CHECK_INT(nsbx_signal_of_name("Kill"), SIGKILL);
    CHECK_INT(nsbx_signal_of_name("poll"), SIGPOLL);
    static const char *const wrong[] = {"",         "SIG",     "SIGX",   "TERMX",    "9",       "SIGSIGTERM",
                                        "RTMIN+31", "RTMIN-1", "RTMIN+", "RTMIN+1x", "RTMAX- 1"};
    for (size_t i = 0; i < NSBX_LEN(wrong); i++)
        CHECK_INT(nsbx_signal_of_name(wrong[i]), 0);
    static const int none[] = {-1, 0, 65, 1000};
    for (size_t i = 0; i < NSBX_LEN(none); i++)
        CHECK(!nsbx_signal_name(none[i]));
}

int main(void)
{
    setup(NSBX_SPAWN_HELPER);
    RUN(every_exit_code);
    RUN(every_signal);
    RUN(status_taken_by_an_embedder);
    RUN(killed_by_pidfd);
    RUN(closed_before_its_end);
    RUN(left_behind_by_its_loop);
    RUN(closed_in_its_callback);
    RUN(no_descriptor_but_those_named);
    RUN(standard_descriptors_when_the_parent_has_none);
    RUN(swapped_output);
    RUN(permuted_descriptors);
    RUN(no_mask_and_no_disposition);
    RUN(environment_is_complete);
    RUN(session_and_directory);
    RUN(directory_by_descriptor);
    RUN(limits_are_set);
    RUN(controlling_terminal);
    RUN(identity);
    RUN(from_four_threads);
    RUN(without_memory);
    RUN(names_of_signals);
    if (teardown() != 0)
        return 1;
    return harness_done();
}
