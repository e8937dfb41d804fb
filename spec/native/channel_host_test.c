/* The host's end of the published carrier against guests made of plain bytes: every way in which an answer can come and end. */
#include "channel_rig.h"

/* ---- answers: whole, byte by byte, cut at every place ---- */

enum ending { FIN, RESET };

struct answer {
    const char *op;
    bool base64;
    const char *frames[12]; /* JSON of a frame; "" = terminator; "!…" = these bytes as they are */
    const char *want;
};

static void write_answer(struct text *bytes, const struct answer *a)
{
    for (size_t i = 0; i < NSBX_LEN(a->frames) && a->frames[i]; i++) {
        if (a->frames[i][0] == '!')
            text_printf(bytes, "%s", a->frames[i] + 1);
        else
            text_frame(bytes, a->frames[i]);
    }
}

/* A reset is what a close with unread bytes makes: the guest has not read the request. The host may be gone already. */
static void hang_up(enum ending ending)
{
    int rc = ending == FIN ? nsbx_stream_shutdown(rig.guest.s, NULL) : 0;
    CHECK(rc == 0 || rc == -NSBX_E_STREAM_LOST);
    if (ending == RESET)
        raw_close(&rig.guest);
}

static void answer_in_two(const struct answer *a, const char *bytes, size_t n, size_t cut, enum ending ending,
                          const char *want)
{
    struct heard h = {0};
    channel_rig_open();
    CHECK_INT(rig_ask(&h, (struct nsbx_single_request){.op = a->op, .data_base64 = a->base64}), 0);
    rig_settle();
    if (ending == RESET)
        nsbx_stream_read_stop(rig.guest.s);
    raw_write(&rig.guest, bytes, cut);
    rig_settle();
    raw_write(&rig.guest, bytes + cut, n - cut);
    if (ending == RESET) { /* the answer has to be through before the reset overtakes it */
        h.in_call = false;
        rig_settle();
    }
    hang_up(ending);
    TURN_UNTIL(heard_all(&h), 10000);
    if (strcmp(text_of(&h.log), want) != 0) {
        fprintf(stderr, "%s: cut at %zu of %zu%s: got\n%s\nnot\n%s\n", a->op, cut, n,
                rig.io ? ", byte by byte" : "", text_of(&h.log), want);
        harness_case_failed = 1;
    }
    heard_free(&h);
    channel_rig_close();
}

static void check_answer(const struct answer *a)
{
    struct text bytes = {0};
    write_answer(&bytes, a);
    for (size_t cut = 0; cut <= bytes.n && !harness_case_failed; cut++)
        answer_in_two(a, bytes.p, bytes.n, cut, FIN, a->want);
    rig.io = 1;
    answer_in_two(a, bytes.p, bytes.n, 0, FIN, a->want);
    rig.io = 0;
    text_free(&bytes);
}

static void check_answers(const struct answer *answers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        check_answer(&answers[i]);
}

static void answers_that_are_right(void)
{
    static const struct answer answers[] = {
        {.op = "healthz",
         .frames = {"{\"ok\":true,\"features\":[\"walk\"]}"},
         .want = "message {\"ok\":true,\"features\":[\"walk\"]}\nend\n"},
        {.op = "healthz", .frames = {"!0000000F\n{\"ok\":   true} "}, .want = "message {\"ok\":true}\nend\n"},
        {.op = "execute", /* as in the protocol's examples */
         .frames = {"{\"type\":\"stdout_delta\",\"data\":\"hi\\n\"}",
                    "{\"type\":\"result\",\"exitCode\":3,\"timedOut\":false,\"durationMs\":4,\"stdoutTruncated\":"
                    "false,\"stderrTruncated\":false}",
                    ""},
         .want = "data 1 hi\n\nmessage "
                 "{\"type\":\"result\",\"exitCode\":3,\"timedOut\":false,\"durationMs\":4,\"stdoutTruncated\":"
                 "false,\"stderrTruncated\":false}\nend\n"},
        {.op = "read-file-stream",
         .frames = {"{\"type\":\"meta\",\"sizeBytes\":11,\"offset\":6,\"length\":5}",
                    "{\"type\":\"data\",\"data\":\"d29ybGQ=\"}", "{\"type\":\"end\",\"bytesSent\":5}", ""},
         .want = "message {\"type\":\"meta\",\"sizeBytes\":11,\"offset\":6,\"length\":5}\ndata 0 world\nmessage "
                 "{\"type\":\"end\",\"bytesSent\":5}\nend\n"},
        /* refusals before the operation have control shape and no terminator */
        {.op = "execute",
         .frames = {"{\"ok\":false,\"error\":\"unauthorized\"}"},
         .want = "message {\"ok\":false,\"error\":\"unauthorized\"}\nend\n"},
        {.op = "walk",
         .frames = {"{\"type\":\"error\",\"error\":\"quiesce_in_progress\"}", ""},
         .want = "message {\"type\":\"error\",\"error\":\"quiesce_in_progress\"}\nend\n"},
        {.op = "read-file",
         .base64 = true,
         .frames = {"{\"ok\":true,\"content\":\"aGk\",\"sizeBytes\":2,\"encoding\":\"base64\"}"},
         .want =
             "data 0 hi\nmessage {\"ok\":true,\"content\":\"\",\"sizeBytes\":2,\"encoding\":\"base64\"}\nend\n"},
        {.op = "read-file",
         .frames = {"{\"content\":\"h\\u00e4\",\"ok\":true}"},
         .want = "data 0 h\xc3\xa4\nmessage {\"content\":\"\",\"ok\":true}\nend\n"},
        {.op = "read-file",
         .frames = {"{\"ok\":false,\"error\":\"missing_path\"}"},
         .want = "message {\"ok\":false,\"error\":\"missing_path\"}\nend\n"},
    };
    check_answers(answers, NSBX_LEN(answers));
}

static void data_in_every_order_of_keys(void)
{
    static const struct answer answers[] = {
        {.op = "execute",
         .frames = {"{\"type\":\"stderr_delta\",\"data\":\"tail\\n\",\"offset\":40,\"nextOffset\":45}", ""},
         .want = "data 2 @40 tail\n\nend\n"},
        {.op = "execute",
         .frames = {"{\"offset\":40,\"nextOffset\":45,\"data\":\"tail\\n\",\"type\":\"stderr_delta\"}", ""},
         .want = "data 2 @40 tail\n\nend\n"},
        {.op = "execute",
         .base64 = true,
         .frames = {"{\"data\":\"_-8\",\"offset\":9007199254740991,\"type\":\"stdout_delta\"}", ""},
         .want = "data 1 @9007199254740991 \xff\xef\nend\n"},
        {.op = "execute", .frames = {"{\"type\":\"stdout_delta\",\"data\":\"\"}", ""}, .want = "end\n"},
        {.op = "execute",
         .frames = {"{\"type\":\"stdout_delta\",\"data\":\"a\",\"data\":\"b\"}", ""},
         .want = "data 1 b\nend\n"},
        {.op = "execute",
         .frames = {"{\"type\":\"stdout_delta\",\"data\":\"\\ud800\"}", ""},
         .want = "data 1 \xef\xbf\xbd\nend\n"},
        {.op = "execute",
         .frames = {"{\"type\":\"new\",\"data\":\"x\"}", ""},
         .want = "message {\"type\":\"new\",\"data\":\"\"}\nend\n"},
        {.op = "read-file-stream",
         .frames = {"{\"data\":\"YQ==\",\"type\":\"data\"}", "{\"type\":\"data\",\"data\":\"Y\\nm-_\"}", ""},
         .want = "data 0 abo\xbf\nend\n"},
        {.op = "read-file-stream",
         .frames = {"{\"data\":\"YQ==\",\"type\":\"other\"}", ""},
         .want = "message {\"data\":\"\",\"type\":\"other\"}\nend\n"},
    };
    check_answers(answers, NSBX_LEN(answers));
}

static void answers_that_break_the_protocol(void)
{
    static const char hi[] = "{\"ok\":true}";
    const struct answer answers[] = {
        {.op = "healthz", .frames = {hi, hi}, .want = "message {\"ok\":true}\nfail protocol\n"},
        {.op = "healthz", .frames = {hi, "!0"}, .want = "message {\"ok\":true}\nfail protocol\n"},
        {.op = "healthz", .frames = {hi, ""}, .want = "message {\"ok\":true}\nfail protocol\n"},
        {.op = "healthz", .frames = {"", hi}, .want = "fail protocol\n"},
        {.op = "walk", .frames = {"", "!x"}, .want = "fail protocol\n"},
        {.op = "walk", .frames = {"{\"ok\":false}", "!x"}, .want = "message {\"ok\":false}\nfail protocol\n"},
        {.op = "healthz", .frames = {"!0000000g\n"}, .want = "fail protocol\n"},
        {.op = "healthz", .frames = {"!0000000b {\"ok\":true}"}, .want = "fail protocol\n"},
        {.op = "healthz", .frames = {"!+000000b\n{\"ok\":true}"}, .want = "fail protocol\n"},
        {.op = "healthz", .frames = {"{\"ok\":true"}, .want = "fail protocol\n"},
        {.op = "healthz", .frames = {"{\"ok\":true}}"}, .want = "fail protocol\n"},
        {.op = "healthz", .frames = {"[1]"}, .want = "fail protocol\n"},
        {.op = "healthz", .frames = {"true"}, .want = "fail protocol\n"},
        {.op = "execute", .frames = {"{\"type\":\"stdout_delta\"}"}, .want = "fail protocol\n"},
        {.op = "execute", .frames = {"{\"type\":\"stdout_delta\",\"data\":1}"}, .want = "fail protocol\n"},
        {.op = "healthz", .frames = {"!20000001\n{"}, .want = "fail limit\n"},
    };
    check_answers(answers, NSBX_LEN(answers));
}

/* ---- a guest that goes away, at every byte ---- */

static const struct answer ended[] = {
    {.op = "healthz", .frames = {"{\"ok\":true}"}, .want = "message {\"ok\":true}\nend\n"},
    {.op = "execute",
     .frames = {"{\"type\":\"stdout_delta\",\"data\":\"a\"}", "{\"type\":\"result\"}", ""},
     .want = "data 1 a\nmessage {\"type\":\"result\"}\nend\n"},
};

static void cut_off(enum ending ending)
{
    for (size_t i = 0; i < NSBX_LEN(ended); i++) {
        struct text bytes = {0};
        write_answer(&bytes, &ended[i]);
        for (size_t n = 0; n < bytes.n; n++) {
            struct heard h = {0};
            channel_rig_open();
            CHECK_INT(rig_ask(&h, (struct nsbx_single_request){.op = ended[i].op}), 0);
            rig_settle();
            raw_write(&rig.guest, bytes.p, n);
            rig_settle();
            hang_up(ending);
            TURN_UNTIL(heard_all(&h), 10000);
            CHECK_INT(h.ends, 0);
            CHECK_INT(h.code, NSBX_E_STREAM_LOST);
            heard_free(&h);
            channel_rig_close();
        }
        answer_in_two(&ended[i], bytes.p, bytes.n, bytes.n, ending, ended[i].want);
        text_free(&bytes);
    }
}

static void a_connection_that_ends_at_any_byte_is_lost(void)
{
    cut_off(FIN);
}

static void a_connection_that_is_reset_at_any_byte_is_lost(void)
{
    rig.sockets = true;
    cut_off(RESET);
    rig.sockets = false;
}

static void a_complete_answer_stands_when_the_guest_is_slow_to_close(void)
{
    struct heard h = {0};
    struct text bytes = {0};
    channel_rig_open();
    CHECK_INT(rig_ask(&h, (struct nsbx_single_request){.op = "healthz"}), 0);
    text_frame(&bytes, "{\"ok\":true}");
    rig_settle();
    raw_write(&rig.guest, bytes.p, bytes.n);
    TURN_UNTIL(h.messages, 10000);
    uint64_t start = nsbx_now_ms();
    TURN_UNTIL(heard_all(&h), 10000);
    CHECK_STR(text_of(&h.log), "message {\"ok\":true}\nend\n");
    CHECK(nsbx_now_ms() - start >= NSBX_CLOSE_WAIT_MS - 20);
    CHECK(!rig.guest.eof || h.ends); /* we never close first */
    heard_free(&h);
    text_free(&bytes);
    channel_rig_close();
}

/* ---- limits of an answer ---- */

static void answer_of_size(const char *op, const char *before, size_t n, const char *after, const char *want)
{
    struct heard h = {0};
    char header[16];
    channel_rig_open();
    CHECK_INT(rig_ask(&h, (struct nsbx_single_request){.op = op}), 0);
    rig_settle();
    char *fillers = malloc(n);
    memset(fillers, 'x', n);
    snprintf(header, sizeof(header), "%08zx\n", strlen(before) + n + strlen(after));
    raw_write(&rig.guest, header, 9);
    raw_write(&rig.guest, before, strlen(before));
    raw_write(&rig.guest, fillers, n);
    raw_write(&rig.guest, after, strlen(after));
    raw_write(&rig.guest, "00000000\n", strcmp(op, "execute") == 0 ? 9 : 0);
    CHECK_INT(nsbx_stream_shutdown(rig.guest.s, NULL), 0);
    h.keep = false;
    TURN_UNTIL(heard_all(&h), 20000);
    const char *last = h.log.n > 40 ? h.log.p + h.log.n - strlen(want) : text_of(&h.log);
    CHECK_STR(last, want);
    free(fillers);
    heard_free(&h);
    channel_rig_close();
}

static void the_rest_of_a_message_is_bounded(void)
{
    static const char before[] = "{\"a\":\"", after[] = "\"}";
    const size_t around = sizeof(before) + sizeof(after) - 2;
    answer_of_size("healthz", before, NSBX_MAX_MESSAGE_REST - around, after, "x\"}\nend\n");
    answer_of_size("healthz", before, NSBX_MAX_MESSAGE_REST - around + 1, after, "fail limit\n");
}

static void data_that_waits_for_its_message_is_bounded(void)
{
    answer_of_size("execute", "{\"type\":\"stdout_delta\",\"data\":\"", NSBX_MAX_HELD_DATA, "\"}", "x\nend\n");
    answer_of_size("execute", "{\"type\":\"stdout_delta\",\"data\":\"", NSBX_MAX_HELD_DATA + 1, "\"}",
                   "fail limit\n");
    answer_of_size("read-file", "{\"content\":\"", NSBX_MAX_HELD_DATA + 1, "\"}",
                   "message {\"content\":\"\"}\nend\n");
}

static void nesting_is_bounded(void)
{
    for (size_t depth = NSBX_MAX_MESSAGE_DEPTH; depth <= NSBX_MAX_MESSAGE_DEPTH + 1; depth++) {
        struct heard h = {0};
        struct text json = {0}, bytes = {0};
        channel_rig_open();
        CHECK_INT(rig_ask(&h, (struct nsbx_single_request){.op = "healthz"}), 0);
        rig_settle();
        text_printf(&json, "{\"a\":");
        for (size_t i = 1; i < depth; i++)
            text_add(&json, "[", 1);
        for (size_t i = 1; i < depth; i++)
            text_add(&json, "]", 1);
        text_add(&json, "}", 1);
        text_frame(&bytes, json.p);
        raw_write(&rig.guest, bytes.p, bytes.n);
        CHECK_INT(nsbx_stream_shutdown(rig.guest.s, NULL), 0);
        TURN_UNTIL(heard_all(&h), 10000);
        CHECK_INT(h.code, depth > NSBX_MAX_MESSAGE_DEPTH ? NSBX_E_LIMIT : 0);
        heard_free(&h);
        text_free(&json);
        text_free(&bytes);
        channel_rig_close();
    }
}

int main(void)
{
    rig_open(); /* libuv's process-wide descriptors are made by the first loop */
    nsbx_loop_free(loop);
    RUN(answers_that_are_right);
    RUN(data_in_every_order_of_keys);
    RUN(answers_that_break_the_protocol);
    RUN(a_connection_that_ends_at_any_byte_is_lost);
    RUN(a_connection_that_is_reset_at_any_byte_is_lost);
    RUN(a_complete_answer_stands_when_the_guest_is_slow_to_close);
    RUN(the_rest_of_a_message_is_bounded);
    RUN(data_that_waits_for_its_message_is_bounded);
    RUN(nesting_is_bounded);
    return harness_done();
}
