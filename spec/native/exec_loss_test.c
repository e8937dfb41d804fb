/* The execution controller against guests that lie and die: whatever happens, the outcome is the truth, and nothing leaks. */
#include "exec_rig.h"

/* ---- the connection dies ---- */

/* Runs a command for each of the conversations, on one guest, and gives each outcome to `check`. */
static void for_each_conversation(enum nsbx_arm arm, const char *const *conversations, const char *rest,
                                  void (*check)(struct nsbx_err err, const char *conversation))
{
    char script[8192] = "{\"ops\":{\"execute\":[";
    int n = 0;
    for (; conversations[n]; n++)
        snprintf(script + strlen(script), sizeof script - strlen(script), "%s[%s]", n ? "," : "", conversations[n]);
    snprintf(script + strlen(script), sizeof script - strlen(script), "]%s}}", rest);
    guest_rig_open(arm, FAST, script);
    for (int i = 0; i < n; i++) {
        struct nsbx_exec_request r = request("frobnicate");
        r.timeout_ms = 300;
        start(&r);
        nsbx_exec_discard(exec);
        check(wait_exec(), conversations[i]);
        close_exec();
        CHECK_INT(ASKED("execute"), i + 1);
        CHECK_INT(ASKED("cancel-execution"), i + 1);
    }
    guest_rig_close();
}

static void check_lost(struct nsbx_err err, const char *conversation)
{
    CHECK_ERR(err, NSBX_E_STREAM_LOST, "RemoteResultIncompleteError");
    CHECK_HAS(err.message, "frobnicate");
    CHECK_HAS(err.message, "exit code 0");
    if (harness_case_failed)
        fprintf(stderr, "    conversation: %s\n", conversation);
}

/* At every border of the conversation: the command is ended by id, and what is told is a loss, never a result. */
#define BORDERS(how)                                                                                               \
    how, STARTED "," how, STARTED "," OUT_HI "," how, STARTED "," OUT_HI "," ERR_OH "," how,                       \
        STARTED "," OUT_HI "," ERR_OH "," RESULT(0) "," how
#define CONFIRMED "," CANCEL(ACK("completed", "true"))

static void reset_at_each_border(void)
{
    static const char *const conversations[] = {BORDERS(RST), NULL};
    for_each_conversation(NSBX_ARM_TCP, conversations, CONFIRMED, check_lost);
}

static void ended_at_each_border(void)
{
    static const char *const conversations[] = {BORDERS(FIN), NULL};
    for_each_conversation(NSBX_ARM_UNIX, conversations, CONFIRMED, check_lost);
}

static void ended_inside_a_frame(void)
{
    static const char *const conversations[] = {STARTED ",{\"raw\":\"00000\"}," FIN,
                                                STARTED "," OUT_HI ",{\"raw\":\"00000020\\n{\"}," FIN, NULL};
    for_each_conversation(NSBX_ARM_UNIX, conversations, CONFIRMED, check_lost);
}

/* The result is complete, and only the connection's end is missing: that is a result, after a moment. */
static void result_without_fin(void)
{
    guest_rig_open(NSBX_ARM_UNIX, 1, OPS(EXECUTE(STARTED "," RESULT(5) "," END "," SILENCE)));
    struct nsbx_exec_request r = request("echo");
    start(&r);
    CHECK_INT(wait_exec().code, 0);
    CHECK_INT(last.exit_code, 5);
    close_exec();
    guest_rig_close();
}

/* A result without the terminator is none: our clock ends it, the guest confirms, the stream stays open and brings nothing. */
static void result_without_terminator(void)
{
    struct nsbx_err err = outcome_of(
        NSBX_ARM_UNIX, OPS(EXECUTE(STARTED "," RESULT(5) "," SILENCE), CANCEL(ACK("completed", "true"))));
    CHECK_ERR(err, NSBX_E_STREAM_LOST, "RemoteResultIncompleteError");
    guest_rig_close();
}

/* ---- the guest breaks the protocol ---- */

static void check_violation(struct nsbx_err err, const char *conversation)
{
    CHECK_ERR(err, NSBX_E_PROTOCOL, "RemoteResultIncompleteError");
    if (harness_case_failed)
        fprintf(stderr, "    conversation: %s\n", conversation);
}

#define LYING(code, duration, more)                                                                                \
    "{\"send\":{\"type\":\"result\",\"exitCode\":" code ",\"timedOut\":false,\"durationMs\":" duration more        \
    "}}," END "," FIN
static void violations_are_no_results(void)
{
    static const char *const conversations[] = {
        "{\"raw\":\"this is not a frame\"}," SILENCE,
        "{\"raw\":\"00000003\\n{{{\"}," SILENCE,
        "{\"send\":{\"type\":\"surprise\"}}," SILENCE,
        "{\"send\":{\"hello\":1}}," SILENCE,
        "{\"send\":[1,2]}," SILENCE,
        RESULT(0) "," RESULT(0) "," END "," FIN,
        RESULT(0) "," OUT_HI "," END "," FIN,
        RESULT(0) ",{\"send\":{\"type\":\"error\",\"error\":\"oh\"}}," END "," FIN,
        RESULT(0) "," STARTED "," END "," FIN,
        RESULT(0) "," END ",{\"raw\":\"x\"}," FIN,
        STARTED "," END "," FIN,
        "{\"send\":{\"type\":\"result\",\"exitCode\":\"0\",\"timedOut\":false,\"durationMs\":4}}," END "," FIN,
        "{\"send\":{\"type\":\"result\",\"exitCode\":0,\"timedOut\":0,\"durationMs\":4}}," END "," FIN,
        "{\"send\":{\"type\":\"result\",\"exitCode\":0,\"timedOut\":false}}," END "," FIN,
        "{\"send\":{\"type\":\"result\",\"exitCode\":0,\"timedOut\":false,\"durationMs\":4,\"signal\":9}}," END
        "," FIN,
        "{\"send\":{\"type\":\"result\",\"exitCode\":0,\"timedOut\":false,\"durationMs\":4,\"pipesOpen\":1}}," END
        "," FIN,
        "{\"send\":{\"type\":\"stdout_delta\"}}," RESULT(0) "," END "," FIN,
        "{\"send\":{\"type\":\"stdout_delta\",\"data\":\"!!!!\"}}," RESULT(0) "," END "," FIN,
        LYING("1.5", "4", ""),
        LYING("-2", "4", ""),
        LYING("2147483648", "4", ""),
        LYING("0", "4", ",\"signal\":\"SIGKILL\""),
        NULL};
    for_each_conversation(NSBX_ARM_UNIX, conversations, "", check_violation);
}

/* A number may be written in any way. */
static void results_in_other_forms(void)
{
    guest_rig_open(NSBX_ARM_UNIX, 1, OPS(EXECUTE(STARTED "," LYING("3.0", "4.25", ""))));
    struct nsbx_exec_request r = request("echo");
    start(&r);
    CHECK_INT(wait_exec().code, 0);
    CHECK_INT(last.exit_code, 3);
    CHECK_INT(last.duration_ms, 4);
    close_exec();
    guest_rig_close();

    guest_rig_open(NSBX_ARM_UNIX, 1, OPS(EXECUTE(STARTED "," LYING("3", "-1", ""))));
    start(&r);
    CHECK_INT(wait_exec().code, 0);
    CHECK_INT(last.exit_code, 3);
    CHECK_INT(last.duration_ms, 0);
    close_exec();
    guest_rig_close();
}

/* It ran: what is said about it afterwards is no refusal, and the end is confirmed by id. */
static void refusals_come_too_late(void)
{
    static const char *const conversations[] = {
        STARTED "," OUT_HI ",{\"send\":{\"ok\":false,\"error\":\"no\"}}," FIN,
        STARTED ",{\"send\":{\"ok\":false,\"error\":\"unknown_execution\"}}," FIN,
        STARTED "," OUT_HI ",{\"send\":{\"type\":\"error\",\"error\":\"invalid_args\"}}," END "," FIN,
        OUT_HI ",{\"send\":{\"type\":\"error\",\"error\":\"unknown_execution\"}}," END "," FIN, NULL};
    for_each_conversation(NSBX_ARM_UNIX, conversations, "", check_violation);
    for_each_conversation(NSBX_ARM_UNIX, conversations, "," CANCEL(ACK("cancelled", "false")), check_violation);
    struct nsbx_err err = outcome_of(
        NSBX_ARM_UNIX, OPS(EXECUTE(STARTED "," OUT_HI ",{\"send\":{\"ok\":false,\"error\":\"no\"}}," FIN),
                           CANCEL(REFUSE("cancellation_unconfirmed"))));
    CHECK_ERR(err, NSBX_E_UNKNOWN_OUTCOME, "RemoteCancellationUnknownError");
    guest_rig_close();
}

/* What counts is how long the guest is waited for: a reader takes its time and loses nothing. */
static void slow_reader_after_the_cancel(void)
{
    enum { DIVISOR = 20, TOTAL = 8 * 1024 * 1024 / 49152 * 49152 }; /* the whole of it is bounded by 500 ms then */
    guest_rig_open(NSBX_ARM_UNIX, DIVISOR, OPS(EXECUTE(STARTED ",{\"flood\":8388608}," RESULT(5) "," END "," FIN)));
    struct nsbx_exec_request r = request("frobnicate");
    start(&r);
    CHECK_INT(finish_op(nsbx_exec_started(exec, -1)).code, 0);
    CHECK_INT(finish_op(nsbx_exec_cancel(exec)).code, 0);
    size_t got = 0, n;
    uint64_t began = nsbx_now_ms();
    for (bool more = true; more;) {
        enum nsbx_sub sub;
        uint8_t *bytes;
        CHECK_INT(finish_op(nsbx_exec_read(exec, 5000)).code, 0);
        for (uint64_t until = nsbx_now_ms() + 15; nsbx_now_ms() < until; usleep(1000))
            nsbx_loop_turn(loop, NSBX_TURN_POLL);
        more = nsbx_exec_take(exec, &sub, &bytes, &n);
        if (!more)
            break;
        got += n;
        nsbx_free(bytes);
    }
    CHECK_INT(got, TOTAL);
    CHECK(nsbx_now_ms() - began > 1000); /* it was slow indeed */
    CHECK_INT(wait_exec().code, 0);
    CHECK_INT(last.exit_code, 5);
    close_exec();
    guest_rig_close();
}

/* The end is confirmed, and the guest goes on sending: much, or a little now and then. The whole of it is bounded. */
static void endless_after_the_cancel(void)
{
    static const char *const floods[] = {"{\"flood\":4000000000}", "{\"drip\":\"stdout_delta\",\"repeat\":400}"};
    for (size_t i = 0; i < NSBX_LEN(floods); i++) {
        char script[512];
        snprintf(script, sizeof script, "{\"ops\":{\"execute\":[[" STARTED ",%s]]}}", floods[i]);
        uint64_t began = nsbx_now_ms();
        struct nsbx_err err = outcome_of(NSBX_ARM_UNIX, script);
        CHECK_ERR(err, NSBX_E_STREAM_LOST, "RemoteResultIncompleteError");
        CHECK(nsbx_now_ms() - began < 15000);
        guest_rig_close();
    }
}

static void wrong_versions(void)
{
    struct nsbx_err err = outcome_of(NSBX_ARM_UNIX, "{\"version\":3}");
    CHECK_ERR(err, NSBX_E_PROTOCOL, "");
    CHECK_INT(ASKED("reserve-execution"), 0);
    guest_rig_close();
    err = outcome_of(NSBX_ARM_UNIX,
                     OPS("\"reserve-execution\":[[{\"send\":{\"ok\":true,\"protocolVersion\":3,\"executionId\":"
                         "\"exec_3b0f6c1a-2d44-4e0b-9c1e-5a7f00d1e2c3\",\"leaseExpiresAt\":1}}," FIN "]]"));
    CHECK_ERR(err, NSBX_E_PROTOCOL, "");
    CHECK_INT(ASKED("execute"), 0);
    guest_rig_close();
    err = outcome_of(NSBX_ARM_UNIX,
                     OPS("\"reserve-execution\":[[{\"send\":{\"ok\":true,\"protocolVersion\":2,\"executionId\":"
                         "\"exec_\",\"leaseExpiresAt\":1}}," FIN "]]"));
    CHECK_ERR(err, NSBX_E_PROTOCOL, "");
    guest_rig_close();
}

/* ---- the end cannot be confirmed ---- */

static void unconfirmed(const char *cancel, int attempts_min, int attempts_max)
{
    char script[2048];
    snprintf(script, sizeof script,
             "{\"ops\":{\"execute\":[[" STARTED "," OUT_HI "," RST "]],\"cancel-execution\":[[%s]]}}", cancel);
    uint64_t before = nsbx_now_ms();
    struct nsbx_err err = outcome_of(NSBX_ARM_TCP, script);
    CHECK_ERR(err, NSBX_E_UNKNOWN_OUTCOME, "RemoteCancellationUnknownError");
    CHECK(nsbx_now_ms() - before < 8000);
    int attempts = ASKED("cancel-execution");
    CHECK(attempts >= attempts_min && attempts <= attempts_max);
    if (harness_case_failed)
        fprintf(stderr, "    %d attempts with %s\n", attempts, cancel);
    guest_rig_close();
}

static void permanent_refusals_are_not_repeated(void)
{
    unconfirmed(REFUSE("unauthorized"), 1, 1);
    unconfirmed(REFUSE("unknown_execution"), 1, 1);
    unconfirmed(REFUSE("invalid_execution_id"), 1, 1);
}

static void other_refusals_are_repeated_within_the_window(void)
{
    unconfirmed(REFUSE("cancellation_unconfirmed"), 3, 1000);
    unconfirmed(RST, 3, 1000);
    unconfirmed(SILENCE, 2, 10);
    unconfirmed("{\"send\":{\"ok\":true,\"state\":\"maybe\",\"started\":true}}," FIN, 3, 1000);
}

/* The guest is slow to make sure, then does. */
static void confirmed_at_the_third_attempt(void)
{
    struct nsbx_err err =
        outcome_of(NSBX_ARM_TCP, OPS(EXECUTE(STARTED "," RST),
                                     "\"cancel-execution\":[[" SILENCE
                                     "],[" REFUSE("cancellation_unconfirmed") "],[" ACK("cancelled", "true") "]]"));
    CHECK_ERR(err, NSBX_E_STREAM_LOST, "RemoteResultIncompleteError");
    CHECK_INT(ASKED("cancel-execution"), 3);
    guest_rig_close();
}

static void guest_dies_altogether(void)
{
    guest_rig_open(NSBX_ARM_UNIX, FAST, OPS(EXECUTE(STARTED "," OUT_HI "," SILENCE)));
    struct nsbx_exec_request r = request("sleep");
    start(&r);
    CHECK_INT(finish_op(nsbx_exec_started(exec, 5000)).code, 0);
    CHECK_INT(finish_op(nsbx_exec_read(exec, 5000)).code, 0);
    stop_guest();
    struct nsbx_err err = wait_exec();
    CHECK_ERR(err, NSBX_E_UNKNOWN_OUTCOME, "RemoteCancellationUnknownError");
    /* what came before is still there, then the reader learns of the loss */
    enum nsbx_sub sub;
    uint8_t *bytes;
    size_t n;
    CHECK_INT(finish_op(nsbx_exec_read(exec, 5000)).code, 0);
    REQUIRE(nsbx_exec_take(exec, &sub, &bytes, &n));
    nsbx_free(bytes);
    CHECK_INT(finish_op(nsbx_exec_read(exec, 5000)).code, NSBX_E_UNKNOWN_OUTCOME);
    close_exec();
    guest_rig_close();
}

/* Its owner knows that it is gone: no window is waited out, and nothing is unknown. */
static void guest_declared_gone(void)
{
    guest_rig_open(NSBX_ARM_UNIX, 1, OPS(EXECUTE(STARTED "," SILENCE)));
    struct nsbx_exec_request r = request("sleep");
    struct nsbx_err why;
    start(&r);
    CHECK_INT(finish_op(nsbx_exec_started(exec, 5000)).code, 0);
    nsbx_err_set(&why, NSBX_E_DESTROYED, "the sandbox was destroyed");
    nsbx_guest_gone(guest, &why);
    uint64_t before = nsbx_now_ms();
    stop_guest();
    CHECK_ERR(wait_exec(), NSBX_E_DESTROYED, "");
    CHECK(nsbx_now_ms() - before < 1000);
    CHECK_INT(finish_op(nsbx_exec_cancel(exec)).code, 0);
    close_exec();
    start(&r);
    CHECK_ERR(wait_exec(), NSBX_E_DESTROYED, "");
    close_exec();
    guest_rig_close();
}

static void nobody_there(void)
{
    struct nsbx_err err;
    rig_open();
    struct nsbx_guest_options options = {
        .arm = NSBX_ARM_UNIX, .unix_path = "/tmp/nsbx-there-is-no-such-socket", .dial_budget_ms = -1};
    REQUIRE(nsbx_guest_new(loop, &options, &guest, &err) == 0);
    struct nsbx_exec_request r = request("echo");
    start(&r);
    err = finish_op(nsbx_exec_started(exec, 5000));
    CHECK_ERR(err, NSBX_E_UNREACHABLE, "");
    CHECK_HAS(err.message, "echo");
    CHECK_INT(finish_op(nsbx_exec_cancel(exec)).code, 0);
    close_exec();
    nsbx_guest_free(guest);
    guest = NULL;
    rig_close();
}

/* ---- our own clock ---- */

static void overdue_and_cancelled(void)
{
    struct nsbx_err err = outcome_of(
        NSBX_ARM_UNIX,
        OPS(EXECUTE(STARTED ",{\"sleep\":0.55},{\"send\":{\"type\":\"result\",\"exitCode\":-1,\"timedOut\":false,"
                            "\"durationMs\":4,\"signal\":\"SIGTERM\"}}," END "," FIN),
            CANCEL(ACK("cancelled", "true"))));
    CHECK_INT(err.code, 0);
    CHECK_INT(last.exit_code, -1);
    CHECK_STR(last.signal, "SIGTERM");
    CHECK(last.timed_out); /* the guest was told to cancel, but it was our clock */
    guest_rig_close();
}

static void overdue_and_silent(void)
{
    struct nsbx_err err =
        outcome_of(NSBX_ARM_UNIX, OPS(EXECUTE(STARTED "," SILENCE), CANCEL(ACK("cancelled", "true"))));
    CHECK_ERR(err, NSBX_E_STREAM_LOST, "RemoteResultIncompleteError");
    guest_rig_close();
    err = outcome_of(NSBX_ARM_UNIX, OPS(EXECUTE(STARTED "," SILENCE), CANCEL(SILENCE)));
    CHECK_ERR(err, NSBX_E_UNKNOWN_OUTCOME, "RemoteCancellationUnknownError");
    guest_rig_close();
    err = outcome_of(NSBX_ARM_UNIX, OPS(EXECUTE(SILENCE), CANCEL(ACK("cancelled", "false"))));
    CHECK_ERR(err, NSBX_E_TIMEOUT, "never_started");
    guest_rig_close();
}

/* The end is confirmed while its output waits for a reader who takes his time: that is no loss. */
static void slow_reader_after_the_end(void)
{
    guest_rig_open(
        NSBX_ARM_UNIX, FAST,
        OPS(EXECUTE(STARTED ",{\"flood\":8388608}," RESULT(0) "," END "," FIN), CANCEL(ACK("completed", "true"))));
    struct nsbx_exec_request r = request("yes");
    r.timeout_ms = 100;
    start(&r);
    CHECK_INT(finish_op(nsbx_exec_wait(exec, 1500)).code,
              NSBX_E_TIMEOUT); /* the drain bound of 300 ms passes several times */
    CHECK_INT(ASKED("cancel-execution"), 1);
    size_t total = 0, n;
    enum nsbx_sub sub;
    uint8_t *bytes;
    while (!nsbx_exec_finished(exec)) {
        struct nsbx_err err = finish_op(nsbx_exec_read(exec, 5000));
        CHECK_INT(err.code, 0);
        if (err.code)
            break;
        while (nsbx_exec_take(exec, &sub, &bytes, &n)) {
            total += n;
            nsbx_free(bytes);
        }
    }
    CHECK_INT(total, 8388608 / 49152 * 49152);
    CHECK_INT(wait_exec().code, 0);
    close_exec();
    guest_rig_close();
}

/* ---- the guest says no ---- */

static void missing_command(void)
{
    uint64_t before = nsbx_now_ms();
    struct nsbx_err err = outcome_of(
        NSBX_ARM_UNIX,
        OPS(EXECUTE("{\"send\":{\"type\":\"error\",\"error\":\"spawn frobnicate ENOENT\"}}," END "," FIN),
            CANCEL(ACK("failed", "false"))));
    CHECK_ERR(err, NSBX_E_NOT_FOUND, "ENOENT");
    CHECK_INT(err.sys, ENOENT);
    CHECK_HAS(err.message, "cannot run 'frobnicate'");
    CHECK(nsbx_now_ms() - before < 1000);
    guest_rig_close();
}

/* What was asked for is refused: nothing ran, nobody waits for a cancel, but the reservation is given back. */
static void argument_refusals(void)
{
    struct nsbx_err err = outcome_of(
        NSBX_ARM_UNIX,
        OPS(EXECUTE("{\"send\":{\"type\":\"error\",\"error\":\"invalid_cwd: path escapes the workspace\"}}," END
                    "," FIN)));
    CHECK_ERR(err, NSBX_E_FORBIDDEN, "invalid_cwd");
    POLL_UNTIL(ASKED("cancel-execution") == 1, 5000);
    guest_rig_close();
    err = outcome_of(
        NSBX_ARM_UNIX,
        OPS(EXECUTE("{\"send\":{\"type\":\"error\",\"error\":\"invalid_timeout: too long\"}}," END "," FIN)));
    CHECK_ERR(err, NSBX_E_INVALID, "invalid_timeout");
    guest_rig_close();
    err = outcome_of(NSBX_ARM_UNIX,
                     OPS(EXECUTE("{\"send\":{\"type\":\"error\",\"error\":\"unknown_execution\"}}," END "," FIN)));
    CHECK_ERR(err, NSBX_E_GONE, "unknown_execution");
    guest_rig_close();
    err = outcome_of(NSBX_ARM_UNIX, OPS(EXECUTE(REFUSE("agent_retiring"))));
    CHECK_ERR(err, NSBX_E_REFUSED, "agent_retiring");
    guest_rig_close();
    err = outcome_of(NSBX_ARM_UNIX, OPS("\"reserve-execution\":[[" REFUSE("execution_capacity") "]]"));
    CHECK_ERR(err, NSBX_E_CAPACITY, "execution_capacity");
    CHECK_INT(ASKED("execute"), 0);
    guest_rig_close();
}

/* An error from the middle of an execution is believed only when the guest confirms the end. */
static void errors_are_reconciled(void)
{
    const char *error =
        EXECUTE(STARTED ",{\"send\":{\"type\":\"error\",\"error\":\"something broke\"}}," END "," FIN);
    char script[1024];
    snprintf(script, sizeof script, "{\"ops\":{%s,%s}}", error, CANCEL(ACK("failed", "true")));
    CHECK_ERR(outcome_of(NSBX_ARM_UNIX, script), NSBX_E_REFUSED, "");
    guest_rig_close();
    snprintf(script, sizeof script, "{\"ops\":{%s,%s}}", error, CANCEL(ACK("completed", "true")));
    CHECK_ERR(outcome_of(NSBX_ARM_UNIX, script), NSBX_E_STREAM_LOST, "RemoteResultIncompleteError");
    guest_rig_close();
    snprintf(script, sizeof script, "{\"ops\":{%s,%s}}", error, CANCEL(REFUSE("unknown_execution")));
    CHECK_ERR(outcome_of(NSBX_ARM_UNIX, script), NSBX_E_UNKNOWN_OUTCOME, "RemoteCancellationUnknownError");
    guest_rig_close();
}

/* ---- no memory ---- */

static struct nsbx_err one_execution(void)
{
    const char *args[] = {"a", "\xff", NULL}, *env[] = {"A=\xff", NULL};
    struct nsbx_err err = {0};
    struct nsbx_exec_request r = request("echo");
    r.args = args;
    r.env = env;
    r.collect = true;
    r.timeout_ms = 150;
    r.stdin_kind = NSBX_STDIN_BYTES;
    r.stdin_bytes = (const uint8_t *)"\xff";
    r.stdin_len = 1;
    if (nsbx_exec_start(guest, &r, &exec, &err) < 0)
        return err;
    struct nsbx_op *op = nsbx_exec_wait(exec, -1);
    const struct nsbx_exec_result *result = NULL;
    err = finish_op_bare(op ? nsbx_op_ref(op) : NULL);
    if (err.code == 0 && (result = nsbx_op_result(op)))
        CHECK(result->exit_code == 0 && result->out_len == 3 && memcmp(result->out, "hi\n", 3) == 0);
    nsbx_op_unref(op);
    close_exec();
    return err;
}

static void no_memory_for_an_execution(void)
{
    guest_rig_open(NSBX_ARM_UNIX, FAST,
                   OPS(EXECUTE(STARTED ",{\"expect\":2}," OUT_HI "," RESULT(0) "," END "," FIN),
                       CANCEL(ACK("completed", "true"))));
    without_memory(one_execution);
    guest_rig_close();
}

int main(void)
{
    guest_rig_main();
    RUN(reset_at_each_border);
    RUN(ended_at_each_border);
    RUN(ended_inside_a_frame);
    RUN(result_without_fin);
    RUN(result_without_terminator);
    RUN(violations_are_no_results);
    RUN(results_in_other_forms);
    RUN(refusals_come_too_late);
    RUN(slow_reader_after_the_cancel);
    RUN(endless_after_the_cancel);
    RUN(wrong_versions);
    RUN(permanent_refusals_are_not_repeated);
    RUN(other_refusals_are_repeated_within_the_window);
    RUN(confirmed_at_the_third_attempt);
    RUN(guest_dies_altogether);
    RUN(guest_declared_gone);
    RUN(nobody_there);
    RUN(overdue_and_cancelled);
    RUN(overdue_and_silent);
    RUN(slow_reader_after_the_end);
    RUN(missing_command);
    RUN(argument_refusals);
    RUN(errors_are_reconciled);
    RUN(no_memory_for_an_execution);
    return harness_done();
}
