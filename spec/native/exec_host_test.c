/* The execution controller against guests that behave, that lie and that die. */
#include "guest_rig.h"
#include "transport/exec.h"

#define STARTED "{\"send\":{\"type\":\"started\",\"pid\":77}}"
#define OUT_HI "{\"send\":{\"type\":\"stdout_delta\",\"data\":\"aGkK\"}}" /* "hi\n" */
#define ERR_OH "{\"send\":{\"type\":\"stderr_delta\",\"data\":\"b2gK\"}}" /* "oh\n" */
#define RESULT(code) "{\"send\":{\"type\":\"result\",\"exitCode\":" #code ",\"timedOut\":false,\"durationMs\":4}}"
#define END "{\"end\":true}"
#define FIN "{\"fin\":true}"
#define RST "{\"rst\":true}"
#define SILENCE "{\"silence\":true}"
#define ACK(state, started)                                                                                        \
    "{\"send\":{\"ok\":true,\"state\":\"" state "\",\"started\":" started                                          \
    ",\"result\":{\"exitCode\":0,\"timedOut\":false,\"durationMs\":4}}}," FIN
#define REFUSE(word) "{\"send\":{\"ok\":false,\"error\":\"" word "\"}}," FIN
#define EXECUTE(steps) "\"execute\":[[" steps "]]"
#define CANCEL(steps) "\"cancel-execution\":[[" steps "]]"
#define OPS_1(a) "{\"ops\":{" a "}}"
#define OPS_2(a, b) "{\"ops\":{" a "," b "}}"
#define OPS_PICK(a, b, name, ...) name
#define OPS(...) OPS_PICK(__VA_ARGS__, OPS_2, OPS_1, )(__VA_ARGS__)

enum { FAST = 5 }; /* the cancel window is 1600 ms then, a control request 400 ms, the drain 300 ms */

static struct nsbx_exec *exec;

static struct nsbx_exec_request request(const char *command)
{
    return (struct nsbx_exec_request){.command = command, .timeout_ms = 5000};
}

static void start(const struct nsbx_exec_request *r)
{
    struct nsbx_err err;
    exec = NULL;
    int rc = nsbx_exec_start(guest, r, &exec, &err);
    if (rc < 0) {
        fprintf(stderr, "in %s: not started: %s\n", harness_case, err.message);
        harness_case_failed = 1;
        abort();
    }
}

static struct nsbx_exec_result last; /* numbers of the last result; out and err are not to be looked at */

static struct nsbx_err wait_exec(void)
{
    struct nsbx_err err = {0};
    struct nsbx_op *op = nsbx_exec_wait(exec, -1);
    WAIT_OP(op);
    nsbx_err_copy(&err, nsbx_op_err(op));
    if (nsbx_op_state(op) == NSBX_OP_DONE)
        last = *(struct nsbx_exec_result *)nsbx_op_result(op);
    nsbx_op_unref(op);
    return err;
}

static void close_exec(void)
{
    nsbx_exec_close(exec);
    exec = NULL;
}

/* Runs one command on a guest with this script and gives its outcome. */
static struct nsbx_err outcome_of(enum nsbx_arm arm, const char *script)
{
    guest_rig_open(arm, FAST, script);
    struct nsbx_exec_request r = request("frobnicate");
    r.timeout_ms = 300;
    start(&r);
    nsbx_exec_discard(exec);
    struct nsbx_err err = wait_exec();
    close_exec();
    return err;
}

/* ---- when all goes well ---- */

static void collects_output_and_result(void)
{
    guest_rig_open(NSBX_ARM_UNIX, 1,
                   OPS(EXECUTE(STARTED "," OUT_HI "," ERR_OH "," OUT_HI "," RESULT(3) "," END "," FIN)));
    struct nsbx_exec_request r = request("echo");
    const char *args[] = {"a", "b", NULL}, *env[] = {"X=1", NULL};
    r.args = args;
    r.env = env;
    r.cwd = "sub";
    r.collect = true;
    start(&r);
    struct nsbx_err err = finish_op(nsbx_exec_started(exec, 5000));
    CHECK_INT(err.code, 0);
    CHECK_INT(nsbx_exec_pid(exec), 77);
    CHECK(strncmp(nsbx_exec_id(exec), "exec_", 5) == 0);
    err = wait_exec();
    CHECK_INT(err.code, 0);
    CHECK_INT(last.exit_code, 3);
    CHECK_INT(last.out_len, 6);
    CHECK_INT(last.err_len, 3);
    CHECK(last.out && memcmp(last.out, "hi\nhi\n", 6) == 0);
    CHECK(!last.maybe_lossy);
    CHECK(nsbx_exec_finished(exec));
    close_exec();
    guest_rig_close();
}

static void combines_in_order_of_arrival(void)
{
    guest_rig_open(NSBX_ARM_UNIX, 1, OPS(EXECUTE(OUT_HI "," ERR_OH "," OUT_HI "," RESULT(0) "," END "," FIN)));
    struct nsbx_exec_request r = request("echo");
    r.collect = r.combine = true;
    start(&r);
    CHECK_INT(wait_exec().code, 0);
    CHECK(last.out_len == 9 && memcmp(last.out, "hi\noh\nhi\n", 9) == 0);
    CHECK_INT(last.err_len, 0);
    close_exec();
    guest_rig_close();
}

static void cuts_what_is_collected(void)
{
    guest_rig_open(NSBX_ARM_UNIX, 1, OPS(EXECUTE(OUT_HI "," ERR_OH "," OUT_HI "," RESULT(0) "," END "," FIN)));
    struct nsbx_exec_request r = request("echo");
    r.collect = true;
    r.max_output = 4; /* a guest that does not hold itself to it */
    start(&r);
    CHECK_INT(wait_exec().code, 0);
    CHECK(last.out_len == 4 && memcmp(last.out, "hi\nh", 4) == 0);
    CHECK(last.stdout_truncated && !last.stderr_truncated);
    CHECK_INT(logged("\"maxOutputBytes\": 4"), 1);
    close_exec();
    guest_rig_close();
}

/* Two executions at once ask for the features once, and every request of the tcp arm carries the token. */
static void asks_features_once(void)
{
    guest_rig_open(NSBX_ARM_TCP, 1, "{}");
    struct nsbx_exec_request r = request("echo");
    struct nsbx_exec *both[2];
    for (int i = 0; i < 2; i++) {
        start(&r);
        nsbx_exec_discard(exec);
        both[i] = exec;
    }
    for (int i = 0; i < 2; i++) {
        exec = both[i];
        CHECK_INT(wait_exec().code, 0);
        close_exec();
    }
    start(&r);
    nsbx_exec_discard(exec);
    CHECK_INT(wait_exec().code, 0);
    close_exec();
    CHECK_INT(ASKED("healthz"), 1);
    CHECK_INT(ASKED("execute"), 3);
    CHECK_INT(logged("\"token\": \"" GUEST_TOKEN "\""), 7);
    CHECK_INT(ASKED("cancel-execution"), 0);
    CHECK(nsbx_guest_boot_id(guest)[0] != '\0');
    guest_rig_close();
}

static void streams_in_order(void)
{
    guest_rig_open(NSBX_ARM_UNIX, 1, OPS(EXECUTE(STARTED "," OUT_HI "," ERR_OH "," RESULT(0) "," END "," FIN)));
    struct nsbx_exec_request r = request("echo");
    start(&r);
    char seen[32] = "";
    enum nsbx_sub sub;
    uint8_t *bytes;
    size_t n;
    for (;;) {
        while (nsbx_exec_take(exec, &sub, &bytes, &n)) {
            snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "%d%.*s", (int)sub, (int)n,
                     (const char *)bytes);
            nsbx_free(bytes);
        }
        if (nsbx_exec_finished(exec))
            break;
        CHECK_INT(finish_op(nsbx_exec_read(exec, 5000)).code, 0);
    }
    CHECK_STR(seen, "1hi\n2oh\n");
    CHECK_INT(finish_op(nsbx_exec_read(exec, 5000)).code, 0);
    close_exec();
    guest_rig_close();
}

/* Output that nobody takes holds the guest up; taking it lets it go on; nothing is lost. */
static void slow_reader_holds_the_guest_up(void)
{
    guest_rig_open(NSBX_ARM_UNIX, 1, OPS(EXECUTE("{\"flood\":16777216}," RESULT(0) "," END "," FIN)));
    struct nsbx_exec_request r = request("yes");
    start(&r);
    CHECK_INT(finish_op(nsbx_exec_read(exec, 5000)).code, 0);
    CHECK_INT(finish_op(nsbx_exec_wait(exec, 300)).code, NSBX_E_TIMEOUT);
    size_t total = 0, n, largest = 0;
    enum nsbx_sub sub;
    uint8_t *bytes;
    size_t held = 0;
    while (nsbx_exec_take(exec, &sub, &bytes, &n)) {
        held += n;
        nsbx_free(bytes);
    }
    CHECK(held <= NSBX_CHANNEL_WINDOW + NSBX_STREAM_READ_CHUNK);
    total = held;
    while (!nsbx_exec_finished(exec)) {
        CHECK_INT(finish_op(nsbx_exec_read(exec, 5000)).code, 0);
        while (nsbx_exec_take(exec, &sub, &bytes, &n)) {
            total += n;
            largest = n > largest ? n : largest;
            nsbx_free(bytes);
        }
    }
    CHECK_INT(total, 16777216 / 49152 * 49152);
    CHECK(largest <= NSBX_CHANNEL_WINDOW);
    CHECK_INT(wait_exec().code, 0);
    close_exec();
    guest_rig_close();
}

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
        NULL};
    for_each_conversation(NSBX_ARM_UNIX, conversations, "", check_violation);
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
    CHECK_INT(last.signal, SIGTERM);
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

/* ---- a guest that can do less ---- */

#define OLD_GUEST "\"features\":[\"write-file-parts\",\"read-file-stream\",\"guest-boot-id\"]"

static void old_guest_may_lose_bytes(void)
{
    guest_rig_open(NSBX_ARM_UNIX, 1,
                   "{" OLD_GUEST ",\"ops\":{" EXECUTE(
                       "{\"send\":{\"type\":\"stdout_delta\",\"data\":\"caf\\u00e9 \\ufffd\"}}," RESULT(
                           0) "," END "," FIN) "}}");
    struct nsbx_exec_request r = request("cat");
    r.collect = r.wait_pipes = true;
    start(&r);
    CHECK_INT(finish_op(nsbx_exec_started(exec, 5000)).code, 0);
    CHECK_INT(wait_exec().code, 0);
    CHECK(last.maybe_lossy);
    CHECK(last.out_len == 9 && memcmp(last.out, "caf\xc3\xa9 \xef\xbf\xbd", 9) == 0);
    CHECK_INT(logged("encoding") + logged("\"wait\"") + logged("stdinStream") + logged("\"started\""), 0);
    close_exec();
    guest_rig_close();
}

static void old_guest_refusals_name_the_feature(void)
{
    guest_rig_open(NSBX_ARM_UNIX, 1, "{" OLD_GUEST ",\"ops\":{" EXECUTE(SILENCE) "}}");
    struct nsbx_exec_request r = request("cat");
    r.stdin_kind = NSBX_STDIN_STREAM;
    start(&r);
    CHECK_ERR(wait_exec(), NSBX_E_UNSUPPORTED, "exec-stdin");
    close_exec();
    r.stdin_kind = NSBX_STDIN_BYTES;
    r.stdin_bytes = (const uint8_t *)"\xff\x00x";
    r.stdin_len = 3;
    start(&r);
    CHECK_ERR(wait_exec(), NSBX_E_UNSUPPORTED, "exec-stdin");
    close_exec();
    r.stdin_kind = NSBX_STDIN_NONE;
    const char *args[] = {"fine",
                          "not\xff"
                          "fine",
                          NULL};
    r.args = args;
    start(&r);
    struct nsbx_err err = wait_exec();
    CHECK_ERR(err, NSBX_E_INVALID, "byte-strings");
    CHECK_HAS(err.message, "argument 2");
    close_exec();
    r.args = NULL;
    start(&r);
    CHECK_INT(finish_op(nsbx_exec_started(exec, 5000)).code, 0);
    err = finish_op(nsbx_exec_signal(exec, SIGTERM, false, 5000));
    CHECK_ERR(err, NSBX_E_UNSUPPORTED, "signal-execution");
    CHECK_INT(finish_op(nsbx_exec_signal(exec, 999, false, 5000)).code, NSBX_E_INVALID);
    close_exec();
    guest_rig_close();
}

static void strings_that_are_not_text(void)
{
    guest_rig_open(NSBX_ARM_UNIX, 1, "{}");
    struct nsbx_exec_request r = request("c\xff");
    const char *args[] = {"a\xff", NULL}, *env[] = {"A=1", "B=\xfe", NULL};
    r.args = args;
    r.env = env;
    r.cwd = "d\xff";
    start(&r);
    nsbx_exec_discard(exec);
    CHECK_INT(wait_exec().code, 0);
    CHECK_INT(logged("\"command\": {\"base64\": \"Y/8=\"}"), 1);
    CHECK_INT(logged("\"args\": [{\"base64\": \"Yf8=\"}]"), 1);
    CHECK_INT(logged("\"env\": [[\"A\", \"1\"], [\"B\", {\"base64\": \"/g==\"}]]"), 1);
    CHECK_INT(logged("\"cwd\": {\"base64\": \"ZP8=\"}"), 1);
    close_exec();
    guest_rig_close();
}

static void wrong_arguments(void)
{
    struct nsbx_err err;
    struct nsbx_exec *x = NULL;
    guest_rig_open(NSBX_ARM_UNIX, 1, "{}");
    struct nsbx_exec_request r = request("");
    CHECK_INT(nsbx_exec_start(guest, &r, &x, &err), -NSBX_E_INVALID);
    r = request("x");
    r.timeout_ms = -1;
    CHECK_INT(nsbx_exec_start(guest, &r, &x, &err), -NSBX_E_INVALID);
    r = request("x");
    const char *env[] = {"A=1", "nothing", NULL};
    r.env = env;
    CHECK_INT(nsbx_exec_start(guest, &r, &x, &err), -NSBX_E_INVALID);
    CHECK_HAS(err.message, "entry 2");
    r = request("x");
    r.cwd = "";
    CHECK_INT(nsbx_exec_start(guest, &r, &x, &err), -NSBX_E_INVALID);
    CHECK_INT(ASKED("healthz"), 0);
    guest_rig_close();
}

/* ---- stdin ---- */

static void given_text_travels_in_the_envelope(void)
{
    guest_rig_open(NSBX_ARM_UNIX, 1, "{}");
    struct nsbx_exec_request r = request("cat");
    r.stdin_kind = NSBX_STDIN_BYTES;
    r.stdin_bytes = (const uint8_t *)"caf\xc3\xa9";
    r.stdin_len = 5;
    start(&r);
    nsbx_exec_discard(exec);
    CHECK_INT(wait_exec().code, 0);
    CHECK_INT(logged("\"stdin\": \"caf\\u00e9\""), 1);
    CHECK_INT(logged("stdinStream"), 0);
    close_exec();
    guest_rig_close();
}

static void given_bytes_are_streamed(void)
{
    guest_rig_open(NSBX_ARM_UNIX, 1, OPS(EXECUTE(STARTED ",{\"expect\":2}," RESULT(0) "," END "," FIN)));
    struct nsbx_exec_request r = request("cat");
    r.stdin_kind = NSBX_STDIN_BYTES;
    r.stdin_bytes = (const uint8_t *)"\x00\xff";
    r.stdin_len = 2;
    start(&r);
    nsbx_exec_discard(exec);
    CHECK_INT(wait_exec().code, 0);
    CHECK_INT(logged("\"stdinStream\": true"), 1);
    CHECK_INT(logged("{\"type\": \"stdin\", \"data\": \"AP8=\"}"), 1);
    CHECK_INT(logged("{\"type\": \"stdin_end\"}"), 1);
    close_exec();
    guest_rig_close();
}

static void streamed_stdin(void)
{
    guest_rig_open(NSBX_ARM_UNIX, 1, OPS(EXECUTE(STARTED ",{\"expect\":3}," RESULT(0) "," END "," FIN)));
    struct nsbx_exec_request r = request("cat");
    r.stdin_kind = NSBX_STDIN_STREAM;
    start(&r);
    nsbx_exec_discard(exec);
    struct nsbx_op *early =
        nsbx_exec_write(exec, (const uint8_t *)"one", 3, 5000); /* before anything is connected */
    CHECK_INT(finish_op(nsbx_exec_write(exec, (const uint8_t *)"two", 3, 5000)).code, 0);
    CHECK_INT(finish_op(early).code, 0);
    CHECK_INT(finish_op(nsbx_exec_close_stdin(exec)).code, 0);
    CHECK_INT(finish_op(nsbx_exec_write(exec, (const uint8_t *)"x", 1, 5000)).code, NSBX_E_INVALID);
    CHECK_INT(finish_op(nsbx_exec_close_stdin(exec)).code, 0);
    CHECK_INT(wait_exec().code, 0);
    struct nsbx_err err = finish_op(nsbx_exec_write(exec, (const uint8_t *)"x", 1, 5000));
    CHECK_INT(err.code, NSBX_E_IO);
    CHECK_INT(err.sys, EPIPE);
    CHECK_INT(logged("{\"type\": \"stdin\""), 2);
    close_exec();
    guest_rig_close();
}

/* The guest does not read: writes wait, and their deadlines end the waiting. When the command ends they fail. */
static void stdin_that_nobody_reads(void)
{
    guest_rig_open(NSBX_ARM_UNIX, 1, OPS(EXECUTE(STARTED ",{\"sleep\":2.5}," RESULT(0) "," END "," FIN)));
    struct nsbx_exec_request r = request("sleep");
    r.stdin_kind = NSBX_STDIN_STREAM;
    static uint8_t much[4 << 20];
    start(&r);
    nsbx_exec_discard(exec);
    CHECK_INT(finish_op(nsbx_exec_started(exec, 5000)).code, 0);
    CHECK_INT(finish_op(nsbx_exec_write(exec, much, sizeof much, 200)).code, NSBX_E_TIMEOUT);
    for (int i = 0; i < 15; i++) {
        struct nsbx_op *op = nsbx_exec_write(exec, much, sizeof much, -1);
        nsbx_op_unref(op);
    }
    struct nsbx_op *waiting = nsbx_exec_write(exec, much, 1, -1);
    CHECK_INT(finish_op(nsbx_exec_write(exec, much, sizeof much, -1)).code, NSBX_E_LIMIT);
    CHECK_INT(wait_exec().code, 0);
    CHECK_INT(finish_op(waiting).code, NSBX_E_IO);
    close_exec();
    guest_rig_close();
}

/* ---- cancel and close ---- */

#define KILLED                                                                                                     \
    "{\"send\":{\"type\":\"result\",\"exitCode\":-1,\"timedOut\":false,\"durationMs\":4,\"signal\":\"SIGKILL\"}}"  \
    "," END "," FIN

static void cancelled_gives_its_real_result(void)
{
    guest_rig_open(NSBX_ARM_UNIX, 1, OPS(EXECUTE(STARTED ",{\"sleep\":0.15}," KILLED)));
    struct nsbx_exec_request r = request("sleep");
    start(&r);
    CHECK_INT(finish_op(nsbx_exec_started(exec, 5000)).code, 0);
    struct nsbx_op *one = nsbx_exec_cancel(exec), *two = nsbx_exec_cancel(exec);
    CHECK_INT(finish_op(one).code, 0);
    CHECK_INT(finish_op(two).code, 0);
    CHECK_INT(wait_exec().code, 0);
    CHECK_INT(last.exit_code, -1);
    CHECK_INT(last.signal, SIGKILL);
    CHECK(!last.timed_out);
    CHECK_INT(finish_op(nsbx_exec_cancel(exec)).code, 0);
    CHECK_INT(ASKED("cancel-execution"), 1);
    close_exec();
    guest_rig_close();
}

/* The result comes while the cancel is under way: it is the result, and the cancel is confirmed all the same. */
static void late_cancel(void)
{
    guest_rig_open(NSBX_ARM_UNIX, 1,
                   OPS(EXECUTE(STARTED ",{\"sleep\":0.1}," RESULT(0) "," END "," FIN),
                       CANCEL("{\"sleep\":0.3}," ACK("completed", "true"))));
    struct nsbx_exec_request r = request("true");
    start(&r);
    CHECK_INT(finish_op(nsbx_exec_started(exec, 5000)).code, 0);
    struct nsbx_op *cancel = nsbx_exec_cancel(exec);
    CHECK_INT(wait_exec().code, 0);
    CHECK_INT(last.exit_code, 0);
    CHECK_INT(nsbx_op_state(cancel), NSBX_OP_PENDING);
    CHECK_INT(finish_op(cancel).code, 0);
    close_exec();
    guest_rig_close();
}

static void cancel_that_fails(void)
{
    guest_rig_open(NSBX_ARM_UNIX, FAST,
                   OPS(EXECUTE(STARTED "," SILENCE), CANCEL(REFUSE("cancellation_unconfirmed"))));
    struct nsbx_exec_request r = request("sleep");
    start(&r);
    CHECK_INT(finish_op(nsbx_exec_started(exec, 5000)).code, 0);
    CHECK_ERR(finish_op(nsbx_exec_cancel(exec)), NSBX_E_UNKNOWN_OUTCOME, "RemoteCancellationUnknownError");
    CHECK_ERR(wait_exec(), NSBX_E_UNKNOWN_OUTCOME, "RemoteCancellationUnknownError");
    CHECK_ERR(finish_op(nsbx_exec_cancel(exec)), NSBX_E_UNKNOWN_OUTCOME, "RemoteCancellationUnknownError");
    close_exec();
    guest_rig_close();
}

static void cancelled_before_it_ran(void)
{
    guest_rig_open(NSBX_ARM_UNIX, 1, OPS("\"reserve-execution\":[[" SILENCE "]]"));
    struct nsbx_exec_request r = request("echo");
    start(&r);
    CHECK_INT(finish_op(nsbx_exec_cancel(exec)).code, 0); /* while the features are asked for */
    CHECK_ERR(wait_exec(), NSBX_E_CANCELLED, "never_started");
    close_exec();
    start(&r);
    POLL_UNTIL(ASKED("reserve-execution") == 1, 5000);
    CHECK_INT(finish_op(nsbx_exec_cancel(exec)).code, 0);
    CHECK_ERR(wait_exec(), NSBX_E_CANCELLED, "never_started");
    CHECK_INT(ASKED("execute"), 0);
    close_exec();
    guest_rig_close();
}

/* Closing with work in flight, at each step: what waits is told, the command is ended in the background, nothing leaks. */
static void closed_at_each_step(void)
{
    for (int step = 0; step < 5; step++) {
        guest_rig_open(NSBX_ARM_UNIX, FAST,
                       OPS(EXECUTE(STARTED "," OUT_HI "," SILENCE),
                           "\"reserve-execution\":[[{\"sleep\":0.05},{\"builtin\":true}]]"));
        struct nsbx_exec_request r = request("sleep");
        r.stdin_kind = NSBX_STDIN_STREAM;
        start(&r);
        if (step == 1)
            POLL_UNTIL(ASKED("reserve-execution") == 1, 5000);
        if (step == 2)
            TURN_UNTIL(nsbx_exec_id(exec)[0], 5000);
        if (step >= 3)
            CHECK_INT(finish_op(nsbx_exec_read(exec, 5000)).code, 0);
        struct nsbx_op *ops[] = {nsbx_exec_wait(exec, -1), nsbx_exec_write(exec, (const uint8_t *)"x", 1, -1),
                                 nsbx_exec_signal(exec, SIGUSR1, false, -1), nsbx_exec_close_stdin(exec),
                                 step == 4 ? nsbx_exec_cancel(exec) : nsbx_exec_started(exec, -1)};
        close_exec();
        for (size_t i = 0; i < NSBX_LEN(ops); i++) {
            int code = finish_op(ops[i]).code;
            CHECK(code == NSBX_E_CANCELLED || (step >= 2 && i != 0 && code == 0));
        }
        guest_rig_close();
    }
}

/* The window passes in the background too. */
static void closed_and_never_confirmed(void)
{
    guest_rig_open(NSBX_ARM_UNIX, FAST, OPS(EXECUTE(STARTED "," SILENCE), CANCEL(SILENCE)));
    struct nsbx_exec_request r = request("sleep");
    start(&r);
    CHECK_INT(finish_op(nsbx_exec_started(exec, 5000)).code, 0);
    close_exec();
    guest_rig_close();
}

static void signals(void)
{
    guest_rig_open(
        NSBX_ARM_UNIX, 1,
        OPS(EXECUTE("{\"sleep\":0.1}," STARTED ",{\"sleep\":0.3}," RESULT(0) "," END "," FIN),
            "\"signal-execution\":[[{\"builtin\":true}],[" REFUSE("execution_not_running: terminal") "]]"));
    struct nsbx_exec_request r = request("sleep");
    start(&r);
    struct nsbx_op *op = nsbx_exec_signal(exec, SIGHUP, true, 5000); /* waits for the start */
    WAIT_OP(op);
    CHECK_INT(nsbx_op_state(op), NSBX_OP_DONE);
    CHECK(*(const bool *)nsbx_op_result(op));
    nsbx_op_unref(op);
    CHECK_INT(logged("\"signal\": \"SIGHUP\", \"tree\": true"), 1);
    CHECK_INT(wait_exec().code, 0);
    op = nsbx_exec_signal(exec, SIGHUP, false, 5000);
    WAIT_OP(op);
    CHECK_INT(nsbx_op_state(op), NSBX_OP_DONE);
    CHECK(!*(const bool *)nsbx_op_result(op));
    nsbx_op_unref(op);
    close_exec();
    guest_rig_close();
}

/* ---- no memory ---- */

/* One execution with the nth allocation failing (0: none). True when it gave a result. */
static bool run_without_memory(unsigned long nth, unsigned long *count)
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
    exec = NULL;
    nsbx_alloc_fail_at(nth);
    int rc = nsbx_exec_start(guest, &r, &exec, &err);
    struct nsbx_op *op = rc == 0 ? nsbx_exec_wait(exec, -1) : NULL;
    while (op && nsbx_op_state(op) == NSBX_OP_PENDING)
        nsbx_loop_turn(loop, NSBX_TURN_WAIT);
    bool done = op && nsbx_op_state(op) == NSBX_OP_DONE;
    if (done) {
        const struct nsbx_exec_result *result = nsbx_op_result(op);
        CHECK(result->exit_code == 0 && result->out_len == 3 && memcmp(result->out, "hi\n", 3) == 0);
    } else if (op) {
        CHECK(nsbx_op_err(op)->code != 0 && nsbx_op_err(op)->message[0]);
    } else if (rc < 0) {
        CHECK_INT(err.code, NSBX_E_LIMIT);
    }
    nsbx_op_unref(op);
    close_exec();
    *count = nsbx_alloc_count();
    nsbx_alloc_fail_at(0);
    TURN_UNTIL(nsbx_loop_live(loop, NULL, NULL) <= 1, 10000);
    return done;
}

/* Each allocation of an execution fails in turn: every one ends, nothing leaks, and a result is a whole one. */
static void no_memory_anywhere(void)
{
    guest_rig_open(NSBX_ARM_UNIX, FAST,
                   OPS(EXECUTE(STARTED ",{\"expect\":2}," OUT_HI "," RESULT(0) "," END "," FIN),
                       CANCEL(ACK("completed", "true"))));
    int results = 0;
    unsigned long count, unused;
    CHECK(run_without_memory(0, &count));
    for (unsigned long nth = 1; nth <= count + 5; nth++) {
        guest->known = false;
        results += run_without_memory(nth, &unused);
    }
    fprintf(stderr, "no_memory_anywhere: %lu allocations, %d results\n", count, results);
    CHECK(count > 50);
    CHECK(results > 0 && results < (int)count);
    guest_rig_close();
}

int main(void)
{
    json_set_alloc_funcs(nsbx_malloc, nsbx_free);
    alarm(280);
    rig_open(); /* libuv's process-wide descriptors are made by the first loop */
    nsbx_loop_free(loop);
    RUN(collects_output_and_result);
    RUN(combines_in_order_of_arrival);
    RUN(cuts_what_is_collected);
    RUN(asks_features_once);
    RUN(streams_in_order);
    RUN(slow_reader_holds_the_guest_up);
    RUN(reset_at_each_border);
    RUN(ended_at_each_border);
    RUN(ended_inside_a_frame);
    RUN(result_without_fin);
    RUN(result_without_terminator);
    RUN(violations_are_no_results);
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
    RUN(old_guest_may_lose_bytes);
    RUN(old_guest_refusals_name_the_feature);
    RUN(strings_that_are_not_text);
    RUN(wrong_arguments);
    RUN(given_text_travels_in_the_envelope);
    RUN(given_bytes_are_streamed);
    RUN(streamed_stdin);
    RUN(stdin_that_nobody_reads);
    RUN(cancelled_gives_its_real_result);
    RUN(late_cancel);
    RUN(cancel_that_fails);
    RUN(cancelled_before_it_ran);
    RUN(closed_at_each_step);
    RUN(closed_and_never_confirmed);
    RUN(signals);
    RUN(no_memory_anywhere);
    return harness_done();
}
