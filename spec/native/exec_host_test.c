/* The execution controller against guests that behave: output, stdin, cancel, close, and guests that can do less. */
#include "exec_rig.h"

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

/* The command closed it and runs on: what waits and what comes fails, a close does not. */
static void stdin_that_the_command_closed(void)
{
    guest_rig_open(NSBX_ARM_UNIX, 1,
                   OPS(EXECUTE("{\"sleep\":0.2},{\"send\":{\"type\":\"stdin_closed\"}},{\"sleep\":0.3}," OUT_HI
                               "," RESULT(3) "," END "," FIN)));
    struct nsbx_exec_request r = request("sleep");
    r.stdin_kind = NSBX_STDIN_STREAM;
    r.collect = true;
    static uint8_t much[4 << 20];
    start(&r);
    struct nsbx_err err = finish_op(nsbx_exec_write(exec, much, sizeof much, 5000));
    CHECK_INT(err.code, NSBX_E_STREAM_LOST);
    CHECK_INT(err.sys, EPIPE);
    err = finish_op(nsbx_exec_write(exec, much, 1, 5000));
    CHECK_INT(err.code, NSBX_E_STREAM_LOST);
    CHECK_INT(err.sys, EPIPE);
    CHECK_INT(finish_op(nsbx_exec_close_stdin(exec)).code, 0);
    CHECK_INT(wait_exec().code, 0);
    CHECK_INT(last.exit_code, 3);
    CHECK_INT(last.out_len, 3);
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

/* A guest may know signals that we do not. */
static void a_signal_of_another_name(void)
{
    guest_rig_open(NSBX_ARM_UNIX, 1,
                   OPS(EXECUTE(STARTED ",{\"send\":{\"type\":\"result\",\"exitCode\":-1,\"timedOut\":false,"
                                       "\"durationMs\":4,\"signal\":\"SIGNEW\"}}," END "," FIN)));
    struct nsbx_exec_request r = request("odd");
    start(&r);
    CHECK_INT(wait_exec().code, 0);
    CHECK_INT(last.exit_code, -1);
    CHECK_STR(last.signal, "SIGNEW");
    close_exec();
    guest_rig_close();
}

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
    CHECK_STR(last.signal, "SIGKILL");
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

int main(void)
{
    guest_rig_main();
    RUN(collects_output_and_result);
    RUN(combines_in_order_of_arrival);
    RUN(cuts_what_is_collected);
    RUN(asks_features_once);
    RUN(streams_in_order);
    RUN(slow_reader_holds_the_guest_up);
    RUN(old_guest_may_lose_bytes);
    RUN(old_guest_refusals_name_the_feature);
    RUN(strings_that_are_not_text);
    RUN(wrong_arguments);
    RUN(given_text_travels_in_the_envelope);
    RUN(given_bytes_are_streamed);
    RUN(streamed_stdin);
    RUN(stdin_that_the_command_closed);
    RUN(stdin_that_nobody_reads);
    RUN(a_signal_of_another_name);
    RUN(cancelled_gives_its_real_result);
    RUN(late_cancel);
    RUN(cancel_that_fails);
    RUN(cancelled_before_it_ran);
    RUN(closed_at_each_step);
    RUN(closed_and_never_confirmed);
    RUN(signals);
    return harness_done();
}
