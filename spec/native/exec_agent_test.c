/* Commands on the real agent, over real sockets, with real processes. */
#include "agent_rig.h"

/* ---- commands ---- */

static void results_are_true(void)
{
    agent_rig_open(NSBX_ARM_UNIX);
    CHECK_INT(run_shell("echo out; echo err >&2; exit 7").code, 0);
    CHECK_INT(last.exit_code, 7);
    CHECK_STR(out, "out\n");
    CHECK_INT(last.err_len, 4);
    CHECK(!last.maybe_lossy && !last.timed_out && !last.pipes_open);
    CHECK_INT(run_shell("kill -9 $$").code, 0);
    CHECK_INT(last.exit_code, -1);
    CHECK_STR(last.signal, "SIGKILL");
    for (int code = 0; code < 256; code += 51) {
        char script[32];
        snprintf(script, sizeof script, "exit %d", code);
        CHECK_INT(run_shell(script).code, 0);
        CHECK_INT(last.exit_code, code);
    }
    struct nsbx_exec_request r = shell("printf '%s' \"$WHAT\"; pwd");
    const char *env[] = {"WHAT=a b=c\n", NULL};
    r.env = env;
    r.cwd = "made/here";
    CHECK_INT(run(&r).code, 0);
    CHECK_HAS(out, "a b=c\n");
    CHECK_HAS(out, "/ws/made/here\n");
    agent_rig_close();
}

static void refusals_are_clear(void)
{
    agent_rig_open(NSBX_ARM_UNIX);
    struct nsbx_exec_request r = {.command = "/no/such/program", .timeout_ms = 5000};
    uint64_t before = nsbx_now_ms();
    struct nsbx_err err = run(&r);
    CHECK_INT(err.code, NSBX_E_NOT_FOUND);
    CHECK_INT(err.sys, ENOENT);
    CHECK_HAS(err.message, "cannot run '/no/such/program'");
    CHECK(nsbx_now_ms() - before < 1000);
    r.command = "no-such-program-on-path";
    CHECK_INT(run(&r).code, NSBX_E_NOT_FOUND);
    r.command = "/etc";
    CHECK_INT(run(&r).code, NSBX_E_FORBIDDEN);
    r.command = "/bin/true";
    r.cwd = "/etc";
    CHECK_INT(run(&r).code, NSBX_E_FORBIDDEN);
    r.cwd = NULL;
    r.timeout_ms = 999999999;
    CHECK_ERR(run(&r), NSBX_E_INVALID, "invalid_timeout");
    r.timeout_ms = 5000;
    CHECK_INT(run(&r).code, 0);
    agent_rig_close();
}

static void every_byte_comes_back(void)
{
    agent_rig_open(NSBX_ARM_UNIX);
    uint8_t all[65536];
    for (size_t i = 0; i < sizeof all; i++)
        all[i] = (uint8_t)(i * 167 + i / 256);
    struct nsbx_exec_request r = {.command = "cat", .collect = true, .timeout_ms = 10000};
    r.stdin_kind = NSBX_STDIN_BYTES;
    r.stdin_bytes = all;
    r.stdin_len = sizeof all;
    start(&r);
    CHECK_INT(wait_exec().code, 0);
    CHECK(last.out_len == sizeof all && memcmp(last.out, all, sizeof all) == 0);
    nsbx_exec_close(exec);
    r.stdin_bytes = (const uint8_t *)"text \xe2\x82\xac with a NUL \0 inside";
    r.stdin_len = 27;
    start(&r);
    CHECK_INT(wait_exec().code, 0);
    CHECK(last.out_len == 27 && memcmp(last.out, r.stdin_bytes, 27) == 0);
    nsbx_exec_close(exec);
    const char *args[] = {"%s", "\xff\xfe", NULL};
    r = (struct nsbx_exec_request){.command = "printf", .args = args, .collect = true};
    CHECK_INT(run(&r).code, 0);
    CHECK_STR(out, "\xff\xfe");
    agent_rig_close();
}

static size_t drain(size_t *held_most)
{
    enum nsbx_sub sub;
    uint8_t *bytes;
    size_t n, got = 0;
    while (nsbx_exec_take(exec, &sub, &bytes, &n)) {
        got += n;
        nsbx_free(bytes);
    }
    *held_most = NSBX_MAX(*held_most, got);
    return got;
}

/* Much output and a reader that dozes: all of it arrives, and little is held at any time. */
static void much_output_and_a_slow_reader(void)
{
    enum { TOTAL = 200 * MIB };
    agent_rig_open(NSBX_ARM_UNIX);
    struct nsbx_exec_request r = shell("head -c 209715200 /dev/zero");
    r.collect = false;
    r.timeout_ms = 100000;
    r.max_output = 1024u * MIB;
    start(&r);
    size_t total = 0, most = 0;
    for (int i = 0; !nsbx_exec_finished(exec) || total < TOTAL; i++) {
        struct nsbx_err err = finish_op(nsbx_exec_read(exec, 20000));
        REQUIRE(err.code == 0);
        if (i % 100 == 0)
            usleep(20000);
        size_t got = drain(&most);
        total += got;
        if (!got && nsbx_exec_finished(exec))
            break;
    }
    CHECK_INT(total, TOTAL);
    CHECK(most <= NSBX_CHANNEL_WINDOW + NSBX_STREAM_READ_CHUNK);
    CHECK_INT(wait_exec().code, 0);
    CHECK(last.exit_code == 0 && !last.stdout_truncated);
    nsbx_exec_close(exec);
    agent_rig_close();
}

static void output_is_cut_where_asked(void)
{
    agent_rig_open(NSBX_ARM_UNIX);
    struct nsbx_exec_request r = shell("head -c 100000 /dev/zero; echo short >&2");
    r.max_output = 1000;
    start(&r);
    CHECK_INT(wait_exec().code, 0);
    CHECK_INT(last.out_len, 1000);
    CHECK_INT(last.err_len, 6);
    CHECK(last.stdout_truncated && !last.stderr_truncated);
    nsbx_exec_close(exec);
    agent_rig_close();
}

static void streamed_stdin(void)
{
    enum { SIZE = 3 * MIB };
    agent_rig_open(NSBX_ARM_UNIX);
    struct nsbx_exec_request r = {.command = "cat", .stdin_kind = NSBX_STDIN_STREAM, .timeout_ms = 20000};
    uint8_t *bytes = nsbx_calloc(1, SIZE);
    size_t total = 0, most = 0;
    start(&r);
    struct nsbx_op *written = nsbx_exec_write(exec, bytes, SIZE, 20000), *end = nsbx_exec_close_stdin(exec);
    while (!nsbx_exec_finished(exec) || total < SIZE) {
        REQUIRE(finish_op(nsbx_exec_read(exec, 20000)).code == 0);
        size_t got = drain(&most);
        total += got;
        if (!got && nsbx_exec_finished(exec))
            break;
    }
    CHECK_INT(total, SIZE);
    CHECK_INT(finish_op(written).code, 0);
    CHECK_INT(finish_op(end).code, 0);
    CHECK_INT(wait_exec().code, 0);
    nsbx_exec_close(exec);
    nsbx_free(bytes);
    /* a command that does not read it ends all the same */
    r.command = "/bin/true";
    start(&r);
    CHECK_INT(wait_exec().code, 0);
    CHECK_INT(finish_op(nsbx_exec_write(exec, (const uint8_t *)"x", 1, 5000)).sys, EPIPE);
    nsbx_exec_close(exec);
    agent_rig_close();
}

static void open_pipes(void)
{
    agent_rig_open(NSBX_ARM_UNIX);
    uint64_t before = nsbx_now_ms();
    CHECK_INT(run_shell("sleep 3 & echo ok").code, 0);
    CHECK_STR(out, "ok\n");
    CHECK(last.pipes_open);
    CHECK(nsbx_now_ms() - before < 2000);
    struct nsbx_exec_request r = shell("sleep 1 & echo ok");
    r.wait_pipes = true;
    before = nsbx_now_ms();
    CHECK_INT(run(&r).code, 0);
    CHECK(!last.pipes_open);
    CHECK(nsbx_now_ms() - before >= 900);
    agent_rig_close();
}

/* ---- the end of commands ---- */

static bool is_alive(pid_t pid)
{
    return kill(pid, 0) == 0;
}

/* The pid that the command printed. */
static pid_t printed_pid(void)
{
    enum nsbx_sub sub;
    uint8_t *bytes;
    size_t n;
    char text[32] = "";
    while (!strchr(text, '\n')) {
        if (finish_op(nsbx_exec_read(exec, 10000)).code)
            return 0;
        if (nsbx_exec_take(exec, &sub, &bytes, &n)) {
            snprintf(text + strlen(text), sizeof text - strlen(text), "%.*s", (int)n, (const char *)bytes);
            nsbx_free(bytes);
        }
    }
    return (pid_t)strtol(text, NULL, 10);
}

static void timeout_ends_the_tree(void)
{
    agent_rig_open(NSBX_ARM_UNIX);
    struct nsbx_exec_request r = shell("setsid sleep 1000 & echo $!; wait");
    r.collect = false;
    r.timeout_ms = 400;
    start(&r);
    pid_t orphan = printed_pid();
    CHECK(orphan > 0 && is_alive(orphan));
    nsbx_exec_discard(exec);
    CHECK_INT(wait_exec().code, 0);
    CHECK(last.timed_out);
    CHECK_INT(last.exit_code, -1);
    CHECK(!is_alive(orphan));
    nsbx_exec_close(exec);
    agent_rig_close();
}

static void cancel_ends_who_ignores_term(void)
{
    agent_rig_open(NSBX_ARM_UNIX);
    struct nsbx_exec_request r =
        shell("trap '' TERM; (trap '' TERM; while :; do sleep 1; done) & echo $!; while :; do sleep 1; done");
    r.collect = false;
    start(&r);
    pid_t child = printed_pid();
    CHECK(child > 0 && is_alive(child));
    nsbx_exec_discard(exec);
    uint64_t before = nsbx_now_ms();
    CHECK_INT(finish_op(nsbx_exec_cancel(exec)).code, 0);
    CHECK(!is_alive(child));
    CHECK(nsbx_now_ms() - before < 5000);
    CHECK_INT(wait_exec().code, 0);
    CHECK_STR(last.signal, "SIGKILL");
    CHECK(!last.timed_out);
    nsbx_exec_close(exec);
    agent_rig_close();
}

static void close_ends_in_the_background(void)
{
    agent_rig_open(NSBX_ARM_UNIX);
    struct nsbx_exec_request r = shell("echo $$; exec sleep 1000");
    r.collect = false;
    start(&r);
    pid_t child = printed_pid();
    CHECK_INT(nsbx_exec_pid(exec), child);
    nsbx_exec_close(exec);
    TURN_UNTIL(nsbx_loop_live(loop, NULL, NULL) <= 1, 10000);
    CHECK(child > 0 && !is_alive(child));
    agent_rig_close();
}

static void signals_arrive(void)
{
    agent_rig_open(NSBX_ARM_UNIX);
    struct nsbx_exec_request r = shell("trap 'echo usr1; exit 9' USR1; echo $$; while :; do sleep 0.05; done");
    r.collect = false;
    start(&r);
    CHECK(printed_pid() > 0);
    CHECK_INT(finish_op(nsbx_exec_signal(exec, SIGUSR1, false, 5000)).code, 0);
    nsbx_exec_discard(exec);
    CHECK_INT(wait_exec().code, 0);
    CHECK_INT(last.exit_code, 9);
    usleep(200000); /* the last sleep of its group may outlive it */
    struct nsbx_op *op = nsbx_exec_signal(exec, SIGUSR1, false, 5000);
    WAIT_OP(op);
    CHECK_INT(nsbx_op_state(op), NSBX_OP_DONE);
    CHECK(!*(const bool *)nsbx_op_result(op));
    nsbx_op_unref(op);
    nsbx_exec_close(exec);
    agent_rig_close();
}

static void killed_agent(void)
{
    agent_rig_open(NSBX_ARM_UNIX);
    nsbx_guest_scale_clocks(guest, 10);
    struct nsbx_exec_request r = shell("echo $$; exec sleep 1000");
    r.collect = false;
    start(&r);
    pid_t child = printed_pid();
    kill(guest_pid, SIGKILL);
    waitpid(guest_pid, NULL, 0);
    guest_pid = 0;
    CHECK_ERR(wait_exec(), NSBX_E_UNKNOWN_OUTCOME, "RemoteCancellationUnknownError");
    nsbx_exec_close(exec);
    if (child > 0)
        kill(child, SIGKILL); /* outside of a sandbox nobody else would */
    agent_rig_close();
}

static void many_at_once(void)
{
    enum { N = 40 };
    struct nsbx_exec *all[N];
    agent_rig_open(NSBX_ARM_UNIX);
    struct nsbx_exec_request r = shell("echo hello; exit 3");
    for (int i = 0; i < N; i++) {
        start(&r);
        all[i] = exec;
    }
    for (int i = 0; i < N; i++) {
        exec = all[i];
        CHECK_INT(wait_exec().code, 0);
        CHECK_INT(last.exit_code, 3);
        CHECK_STR(out, "hello\n");
        nsbx_exec_close(exec);
    }
    agent_rig_close();
}

int main(void)
{
    guest_rig_main();
    RUN(results_are_true);
    RUN(refusals_are_clear);
    RUN(every_byte_comes_back);
    RUN(much_output_and_a_slow_reader);
    RUN(output_is_cut_where_asked);
    RUN(streamed_stdin);
    RUN(open_pipes);
    RUN(timeout_ends_the_tree);
    RUN(cancel_ends_who_ignores_term);
    RUN(close_ends_in_the_background);
    RUN(signals_arrive);
    RUN(killed_agent);
    RUN(many_at_once);
    return harness_done();
}
