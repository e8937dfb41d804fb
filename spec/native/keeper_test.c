#include "keeper_support.h"

#include "base/alloc.h"

#include <sys/resource.h>

/* ---- one command ---- */

static void a_command_from_start_to_end(void)
{
    struct story s = {0};
    struct pipe_ends out = make_pipe();
    COMMAND(c, "say", "1", "hello", "2", "!");
    map_fd(&c, out.write, 1);
    map_fd(&c, out.write, 2);
    REQUIRE(begin(&s, &c));
    CHECK(nsbx_keeper_pid(s.keeper) > 0);
    CHECK_INT(nsbx_loop_live(loop, NULL, NULL), 1);
    CHECK_STR(read_all(out), "hello!");
    finish(&s);
    CHECK(s.started && s.leader_ended && s.tree_ended);
    CHECK_INT(s.events, 3);
    CHECK(s.leader > 0 && s.exit.known);
    CHECK_INT(s.exit.code, 0);
    check_clean(NULL);
}

static void codes_and_signals(void)
{
    static const int codes[] = {0, 1, 127, 128, 255}, signals[] = {SIGHUP, SIGKILL, SIGSEGV, SIGTERM, 32, 33, 64};
    char text[16];
    for (size_t i = 0; i < NSBX_LEN(codes); i++) {
        struct story s = {0};
        snprintf(text, sizeof text, "%d", codes[i]);
        COMMAND(c, "exit", text);
        REQUIRE(begin(&s, &c));
        finish(&s);
        CHECK(s.exit.known);
        CHECK_INT(s.exit.code, codes[i]);
        CHECK_INT(s.exit.signal, 0);
    }
    for (size_t i = 0; i < NSBX_LEN(signals); i++) {
        struct story s = {0};
        snprintf(text, sizeof text, "%d", signals[i]);
        COMMAND(c, "die", text);
        limit(&c, RLIMIT_CORE, 0);
        REQUIRE(begin(&s, &c));
        finish(&s);
        CHECK_INT(s.exit.code, -1);
        CHECK_INT(s.exit.signal, signals[i]);
    }
    check_clean(NULL);
}

static void fails(struct command *c, int code, int sys, const char *text)
{
    struct story s = {0};
    int fds = count_fds();
    if (!begin(&s, c))
        return;
    finish(&s);
    CHECK(s.failed);
    CHECK_INT(s.events, 1);
    CHECK_INT(s.err.code, code);
    CHECK_INT(s.err.sys, sys);
    if (!strstr(s.err.message, text)) {
        fprintf(stderr, "the message \"%s\" does not have \"%s\"\n", s.err.message, text);
        harness_case_failed = 1;
    }
    CHECK_INT(count_fds(), fds);
    check_clean(NULL);
}

static void commands_that_do_not_start(void)
{
    char file[128];
    COMMAND(c, "exit", "0");
    c.spec.file = "nsbx-no-such-command";
    fails(&c, NSBX_E_NOT_FOUND, ENOENT, "nsbx-no-such-command, which is in no directory of PATH");
    snprintf(file, sizeof file, "%s/text", scratch);
    put_file(file, "echo\n", 0755);
    c.spec.file = file;
    fails(&c, NSBX_E_INVALID, ENOEXEC, file);
    chmod(file, 0644);
    fails(&c, NSBX_E_FORBIDDEN, EACCES, file);
    c.spec.file = helper;
    c.spec.cwd = "/nonexistent";
    fails(&c, NSBX_E_NOT_FOUND, ENOENT, "in the directory /nonexistent");
    c.spec.cwd = NULL;
    map_fd(&c, 999, 1);
    fails(&c, NSBX_E_IO, EBADF, "descriptors");
    c.spec.n_fds = 0;
    limit(&c, -5, 1);
    fails(&c, nsbx_code_of_errno(EINVAL), EINVAL, "limits");
}

/* The keeper has its socket and its signals and nothing of the program: a pipe that the program closes is closed. */
static void a_keeper_holds_nothing(void)
{
    struct story s = {0};
    char path[64], link[64];
    int other = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
        dir = open(scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    COMMAND(c, "stubborn", "kp-holds");
    struct pipe_ends out = make_pipe();
    map_fd(&c, out.write, 1);
    c.spec.cwd_fd = dir;
    REQUIRE(begin(&s, &c));
    CHECK_INT(read_byte(out.read), 'r');
    CHECK(turn_until(&s.started, 5000));
    turn_until(NULL, 20);
    snprintf(path, sizeof path, "/proc/%d/fd", (int)nsbx_keeper_pid(s.keeper));
    CHECK_INT(count_fds_in(path), 2);
    snprintf(path, sizeof path, "/proc/%d/cwd", (int)nsbx_keeper_pid(s.keeper));
    ssize_t n = readlink(path, link, sizeof link);
    CHECK(n == 1 && link[0] == '/');
    /* Signals that reach it by accident do not end it. */
    for (int signo = 1; signo <= 64; signo++)
        if (signo != SIGKILL && signo != SIGSTOP)
            kill(nsbx_keeper_pid(s.keeper), signo);
    turn_until(NULL, 50);
    CHECK(!s.over);
    end(&s, 0);
    finish(&s);
    CHECK(s.tree_ended);
    CHECK_STR(read_all(out), "");
    close(other);
    close(dir);
    check_clean("kp-holds");
}

/* While an exec takes its time (the program is being written), nothing of ours is held open by it. */
static void a_slow_start_holds_nothing(void)
{
    struct story s = {0};
    char copy[128], command[PATH_MAX + 128], byte;
    snprintf(copy, sizeof copy, "%s/slow", scratch);
    snprintf(command, sizeof command, "cp %s %s", helper, copy);
    REQUIRE(system(command) == 0);
    struct pipe_ends ready = make_pipe(), held = make_pipe(), watched = make_pipe();
    pid_t writer = fork();
    if (writer == 0) {
        int fd = open(copy, O_WRONLY | O_CLOEXEC);
        close(watched.write);
        close(held.write);
        ssize_t n = write(ready.write, "r", 1);
        n = n == 1 ? read(held.read, &byte, 1) : 0;
        close(fd);
        _exit((int)n);
    }
    CHECK_INT(read_byte(ready.read), 'r');
    COMMAND(c, "exit", "0");
    c.spec.file = copy;
    REQUIRE(begin(&s, &c));
    close(watched.write);
    CHECK_INT(read_byte(watched.read), -1); /* its end of file */
    CHECK(!s.events);
    nsbx_loop_turn(loop, NSBX_TURN_POLL);
    CHECK(!s.events); /* and the start is still under way */
    close(held.write);
    CHECK_INT(waitpid(writer, NULL, 0), writer);
    finish(&s);
    CHECK(s.started);
    close(ready.read);
    close(ready.write);
    close(held.read);
    close(watched.read);
    check_clean(NULL);
}

static void statuses_an_embedder_cannot_take(void)
{
    struct story s = {0};
    struct sigaction ignore = {.sa_handler = SIG_IGN}, saved;
    sigaction(SIGCHLD, &ignore, &saved); /* what would reap a usual child by itself */
    COMMAND(c, "rest", "kp-taken", "100");
    REQUIRE(begin(&s, &c));
    for (int i = 0; i < 60; i++) {
        CHECK_INT(waitpid(-1, NULL, WNOHANG), -1);
        poll(NULL, 0, 5);
    }
    finish(&s);
    sigaction(SIGCHLD, &saved, NULL);
    CHECK(s.tree_ended && s.exit.known);
    CHECK_INT(s.exit.code, 0);
    CHECK_INT(nsbx_reap_strangers(), 0);
    check_clean("kp-taken");
}

/* ---- signals ---- */

static void signals_to_the_group_or_the_tree(void)
{
    struct story s = {0};
    struct nsbx_err err;
    struct pipe_ends out = make_pipe();
    COMMAND(c, "listen", "kp-listen");
    map_fd(&c, out.write, 1);
    REQUIRE(begin(&s, &c));
    for (int i = 0; i < 3; i++)
        CHECK_INT(read_byte(out.read), 'r');
    CHECK(turn_until(&s.started, 5000));
    CHECK_INT(nsbx_keeper_signal(s.keeper, SIGUSR1, false, &err), 0);
    CHECK_INT(read_byte(out.read), 'u');
    CHECK_INT(read_byte(out.read), 'u');
    struct pollfd more = {.fd = out.read, .events = POLLIN};
    CHECK_INT(poll(&more, 1, 200), 0); /* the orphan is in another group */
    CHECK_INT(nsbx_keeper_signal(s.keeper, SIGUSR1, true, &err), 0);
    for (int i = 0; i < 3; i++)
        CHECK_INT(read_byte(out.read), 'u');
    CHECK_INT(poll(&more, 1, 200), 0); /* each once */
    CHECK_INT(nsbx_keeper_signal(s.keeper, 0, false, &err), -NSBX_E_INVALID);
    CHECK_INT(nsbx_keeper_signal(s.keeper, 65, true, &err), -NSBX_E_INVALID);
    CHECK_INT(nsbx_keeper_signal(s.keeper, SIGKILL, false, &err), 0);
    CHECK(turn_until(&s.leader_ended, 5000));
    CHECK_INT(s.exit.signal, SIGKILL);
    turn_until(NULL, 50);
    CHECK_INT(alive("kp-listen"), 1); /* the orphan */
    CHECK_INT(nsbx_keeper_signal(s.keeper, SIGKILL, true, &err), 0);
    CHECK(turn_until(&s.over, 5000));
    CHECK(s.tree_ended);
    CHECK_INT(nsbx_keeper_signal(s.keeper, SIGTERM, true, &err), 0);
    CHECK_INT(nsbx_keeper_end(s.keeper, 5, &err), 0);
    finish(&s);
    read_all(out);
    check_clean("kp-listen");
}

static void a_group_outlives_its_leader(void)
{
    struct story s = {0};
    struct nsbx_err err;
    struct pipe_ends out = make_pipe();
    COMMAND(c, "group", "kp-group");
    map_fd(&c, out.write, 1);
    REQUIRE(begin(&s, &c));
    CHECK_INT(read_byte(out.read), 'r');
    CHECK(turn_until(&s.leader_ended, 5000));
    CHECK_INT(s.exit.code, 3);
    turn_until(NULL, 50);
    CHECK(!s.over);
    CHECK_INT(nsbx_keeper_signal(s.keeper, SIGUSR1, false, &err), 0);
    finish(&s);
    CHECK(s.tree_ended);
    read_all(out);
    check_clean("kp-group");
}

static void more_signals_than_are_read(void)
{
    struct story s = {0};
    struct nsbx_err err;
    COMMAND(c, "rest", "kp-many", "60000");
    REQUIRE(begin(&s, &c));
    CHECK(wait_alive("kp-many", 1, 5000));
    CHECK(turn_until(&s.started, 5000));
    kill(nsbx_keeper_pid(s.keeper), SIGSTOP);
    int rc = 0, n = 0;
    while (!rc && n < 100000) {
        rc = nsbx_keeper_signal(s.keeper, SIGCONT, false, &err);
        n++;
    }
    CHECK_INT(rc, -NSBX_E_LIMIT);
    end(&s, 60000); /* finds its way all the same */
    kill(nsbx_keeper_pid(s.keeper), SIGCONT);
    finish(&s);
    CHECK(s.tree_ended);
    check_clean("kp-many");
}

/* ---- lives of the program and the keeper ---- */

static void the_program_is_killed(void)
{
    struct pipe_ends said = make_pipe();
    pid_t program = fork();
    if (program == 0) {
        struct nsbx_err err;
        struct story s = {0};
        if (nsbx_loop_new(&loop, &err))
            _exit(1);
        COMMAND(c, "orphans-stay", "kp-gone", "3");
        if (!begin(&s, &c) || !wait_alive("kp-gone", 4, 5000) || write(said.write, "r", 1) != 1)
            _exit(1);
        for (;;)
            nsbx_loop_turn(loop, NSBX_TURN_WAIT);
    }
    CHECK_INT(read_byte(said.read), 'r');
    CHECK_INT(alive("kp-gone"), 4);
    kill(program, SIGKILL);
    CHECK_INT(waitpid(program, NULL, 0), program);
    CHECK(wait_alive("kp-gone", 0, 2000));
    close(said.read);
    close(said.write);
}

static void the_keeper_is_killed(void)
{
    struct story s = {0};
    COMMAND(c, "rest", "kp-lost", "60000");
    REQUIRE(begin(&s, &c));
    CHECK(wait_alive("kp-lost", 1, 5000));
    kill(nsbx_keeper_pid(s.keeper), SIGKILL);
    finish(&s);
    CHECK(s.lost && s.started && !s.leader_ended);
    CHECK_INT(s.err.code, NSBX_E_UNKNOWN_OUTCOME);
    CHECK(strstr(s.err.message, "signal 9") != NULL);
    CHECK_INT(kill(s.leader, SIGKILL), 0);
    CHECK(wait_alive("kp-lost", 0, 2000));
    check_clean(NULL);
}

static void the_keeper_is_stopped(void)
{
    COMMAND(c, "orphans-stay", "kp-halt", "1");
    for (int closing = 0; closing < 2; closing++) {
        struct story s = {0};
        REQUIRE(begin(&s, &c));
        CHECK(turn_until(&s.started, 5000));
        CHECK(wait_alive("kp-halt", 2, 5000));
        kill(nsbx_keeper_pid(s.keeper), SIGSTOP);
        if (closing)
            nsbx_keeper_close(s.keeper, true);
        else {
            end(&s, 100);
            finish(&s);
            CHECK(s.tree_ended);
        }
        check_clean("kp-halt");
    }
}

static void released(void)
{
    struct story s = {0};
    COMMAND(c, "orphans", "kp-free", "2", "700");
    REQUIRE(begin(&s, &c));
    CHECK(turn_until(&s.leader_ended, 5000));
    int told = s.events;
    pid_t keeper = nsbx_keeper_pid(s.keeper);
    nsbx_keeper_close(s.keeper, false);
    CHECK_INT(nsbx_loop_live(loop, NULL, NULL), 0);
    turn_until(NULL, 150);
    CHECK_INT(alive("kp-free"), 2);
    CHECK_INT(kill(keeper, 0), 0);
    CHECK(wait_alive("kp-free", 0, 5000));
    turn_until(NULL, 100);
    CHECK_INT(kill(keeper, 0), -1);
    CHECK_INT(s.events, told);
    check_clean("kp-free");
}

static void closed_without_release(void)
{
    struct story s = {0};
    COMMAND(c, "orphans-stay", "kp-close", "2");
    REQUIRE(begin(&s, &c));
    CHECK(wait_alive("kp-close", 3, 5000));
    CHECK(turn_until(&s.started, 1000));
    nsbx_keeper_close(s.keeper, true);
    CHECK(wait_alive("kp-close", 0, 2000));
    CHECK_INT(s.events, 1);
    check_clean("kp-close");

    struct story t = {0}; /* at once, before anything was told */
    REQUIRE(begin(&t, &c));
    nsbx_keeper_close(t.keeper, true);
    check_clean("kp-close");
    CHECK_INT(t.events, 0);
}

static void closed_in_each_event(void)
{
    COMMAND(good, "orphans", "kp-event", "1", "100");
    COMMAND(bad, "exit", "0");
    bad.spec.file = "/nonexistent";
    for (const char *at = "sltf"; *at; at++) {
        struct story s = {.close_at = *at};
        REQUIRE(begin(&s, *at == 'f' ? &bad : &good));
        for (int i = 0; s.keeper && i < 400; i++)
            turn_until(NULL, 5);
        CHECK(!s.keeper);
        check_clean("kp-event");
    }
    struct story s = {.close_at = 'x'};
    COMMAND(c, "rest", "kp-event", "200");
    REQUIRE(begin(&s, &c));
    kill(nsbx_keeper_pid(s.keeper), SIGKILL);
    CHECK(turn_until(&s.lost, 5000));
    check_clean(NULL);
    CHECK(wait_alive("kp-event", 0, 2000));
}

static void many_at_once(void)
{
    enum { N = 40 };
    static struct story s[N];
    int fds = count_fds();
    memset(s, 0, sizeof s);
    for (int i = 0; i < N; i++) {
        COMMAND(c, "orphans-stay", "kp-n", "1");
        REQUIRE(begin(&s[i], &c));
    }
    CHECK(wait_alive("kp-n", 2 * N, 20000));
    for (int i = 0; i < N; i++)
        end(&s[i], 0);
    for (int i = 0; i < N; i++)
        finish(&s[i]);
    turn_until(NULL, 5);
    CHECK_INT(count_fds(), fds);
    check_clean("kp-n");
}

static void without_memory(void)
{
    for (unsigned long nth = 1;; nth++) {
        struct story s = {0};
        struct nsbx_err err;
        COMMAND(c, "exit", "0");
        nsbx_alloc_fail_at(nth);
        int rc = nsbx_keeper_start(loop, &c.spec, &events, &s, &s.keeper, &err);
        unsigned long asked = nsbx_alloc_count();
        nsbx_alloc_fail_at(0);
        if (!rc) {
            finish(&s);
            CHECK(asked < nth);
            break;
        }
        CHECK_INT(rc, -NSBX_E_LIMIT);
        check_clean(NULL);
    }
}

int main(void)
{
    setup(NSBX_SPAWN_HELPER);
    RUN(a_command_from_start_to_end);
    RUN(codes_and_signals);
    RUN(commands_that_do_not_start);
    RUN(a_keeper_holds_nothing);
    RUN(a_slow_start_holds_nothing);
    RUN(statuses_an_embedder_cannot_take);
    RUN(signals_to_the_group_or_the_tree);
    RUN(a_group_outlives_its_leader);
    RUN(more_signals_than_are_read);
    RUN(the_program_is_killed);
    RUN(the_keeper_is_killed);
    RUN(the_keeper_is_stopped);
    RUN(released);
    RUN(closed_without_release);
    RUN(closed_in_each_event);
    RUN(many_at_once);
    RUN(without_memory);
    if (teardown() != 0)
        return 1;
    return harness_done();
}
