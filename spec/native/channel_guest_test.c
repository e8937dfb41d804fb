/* The guest's end of the published carrier against hosts made of plain bytes: the gate before the token, requests in every split, refusals
 * word by word, and how a connection ends. */
#include "channel_rig.h"
#include "codec/jscan.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define TOKEN "0d7e6a52-7c1b-4a53-9b0e-2f6f3f1c9a11"

/* Answers everything with one object, or with one message on streams, when the host has said all. */
static void answer(struct heard *h, char what)
{
    if (what == 'f')
        heard_close(h);
    if (what != 'e')
        return;
    bool control = nsbx_channel_op(h->ch)->shape == NSBX_SHAPE_CONTROL;
    json_t *reply = control ? json_pack("{s:b}", "ok", 1) : json_pack("{s:s}", "type", "done");
    CHECK_INT(heard_send(h, reply), 0);
    CHECK_INT(heard_finish(h), 0);
    heard_close(h);
}

#define OK_FRAME "0000000b\n{\"ok\":true}"
#define DONE_FRAME "0000000f\n{\"type\":\"done\"}00000000\n"
#define REFUSED(text) "{\"ok\":false,\"error\":\"" text "\"}"

/* The bytes of one frame with this JSON, or these bytes when they are none. Until the next call. */
static const char *framed(const char *json)
{
    static struct text frame;
    text_free(&frame);
    if (json[0] == '{')
        text_frame(&frame, json);
    else
        text_printf(&frame, "%s", json);
    return text_of(&frame);
}

static void write_in_two(struct raw *host, const char *bytes, size_t n, size_t cut)
{
    raw_write(host, bytes, cut);
    rig_settle();
    raw_write(host, bytes + cut, n - cut);
}

/* What the guest says to these bytes, and what its operation heard (NULL: none was opened). */
struct exchange {
    const char *token; /* the guest's; NULL = none */
    bool first_use;
    const char *sent;
    const char *replied;
    const char *opened;
};

static void exchange_in_two(const struct exchange *x, size_t cut)
{
    struct raw host;
    size_t n = strlen(x->sent);
    channel_rig_open();
    rig.serve = answer;
    rig.config.bind_token = x->token;
    rig.config.require_token = x->first_use;
    rig_serve();
    rig_connect(&host);
    write_in_two(&host, x->sent, n, cut);
    TURN_UNTIL(raw_over(&host), 10000);
    const char *opened = rig.n_served ? text_of(&rig.served[0]->log) : NULL;
    if (strcmp(text_of(&host.got), framed(x->replied)) != 0 || (host.error && x->replied[0]) ||
        strcmp(opened ? opened : "-", x->opened ? x->opened : "-") != 0) {
        fprintf(stderr, "%s\ncut at %zu%s: replied%s\n%s\nnot\n%s\nopened\n%s\nnot\n%s\n", x->sent, cut,
                rig.io ? ", byte by byte" : "", host.error ? " and reset" : "", text_of(&host.got), x->replied,
                opened, x->opened);
        harness_case_failed = 1;
    }
    raw_free(&host);
    channel_rig_close();
}

static void check_exchange(const struct exchange *x)
{
    for (size_t cut = 0; cut <= strlen(x->sent) && !harness_case_failed; cut++)
        exchange_in_two(x, cut);
    rig.io = 1;
    exchange_in_two(x, 0);
    rig.io = 0;
}

/* Long ones: whole and byte by byte only. */
static void check_long_frame(struct exchange x)
{
    struct text sent = {0};
    text_frame(&sent, x.sent);
    x.sent = sent.p;
    for (rig.io = 0; rig.io < 2; rig.io++)
        exchange_in_two(&x, 0);
    rig.io = 0;
    text_free(&sent);
}

static void check_frame(struct exchange x)
{
    struct text sent = {0};
    text_frame(&sent, x.sent);
    x.sent = sent.p;
    check_exchange(&x);
    text_free(&sent);
}

/* ---- requests ---- */

static void requests_in_every_split(void)
{
    check_frame(
        (struct exchange){.sent = "{\"op\":\"healthz\"}", .replied = OK_FRAME, .opened = "open healthz -\nend\n"});
    check_frame((struct exchange){
        .sent = "{\"op\":\"read-file-stream\",\"body\":{\"path\":\"/workspace/a.txt\",\"offset\":6}}",
        .replied = DONE_FRAME,
        .opened = "open read-file-stream {\"path\":\"/workspace/a.txt\",\"offset\":6}\nend\n"});
    check_frame((struct exchange){
        .sent = "{\"op\":\"write-file\",\"body\":{\"path\":\"a\",\"content\":\"aGVsbG8g\",\"encoding\":\"base64\","
                "\"part\":{\"offset\":0,\"final\":false}}}",
        .replied = OK_FRAME,
        .opened =
            "open write-file "
            "{\"path\":\"a\",\"content\":\"\",\"encoding\":\"base64\",\"part\":{\"offset\":0,\"final\":false}}\n"
            "data 0 hello \nend\n"});
    check_frame((struct exchange){
        .sent = "{\"body\":{\"content\":\"aGVs\\nbG8g\"},\"op\":\"write-file\",\"more\":[null,1e3]}",
        .replied = OK_FRAME,
        .opened = "open write-file {\"content\":\"\"}\ndata 0 aGVs\nbG8g\nend\n"});
    check_frame(
        (struct exchange){.sent = "{\"op\":\"write-file\",\"body\":{\"content\":\"first\",\"content\":\"second\"}}",
                          .replied = OK_FRAME,
                          .opened = "open write-file {\"content\":\"\"}\ndata 0 second\nend\n"});
    check_frame((struct exchange){
        .sent = "{\"op\":\"execute\",\"body\":{\"command\":\"cat\",\"stdin\":\"\\u00e4\\ud83d\\ude00\\ud83d\"}}",
        .replied = DONE_FRAME,
        .opened = "open execute {\"command\":\"cat\",\"stdin\":\"\"}\ndata 0 "
                  "\xc3\xa4\xf0\x9f\x98\x80\xef\xbf\xbd\nend\n"});
}

static void what_is_no_large_member_of_the_operation_is_left_out(void)
{
    check_frame((struct exchange){.sent = "{\"op\":\"write-file\",\"body\":{\"stdin\":\"x\",\"content\":\"y\"}}",
                                  .replied = OK_FRAME,
                                  .opened = "open write-file {\"stdin\":\"\",\"content\":\"\"}\ndata 0 y\nend\n"});
    check_frame((struct exchange){.sent = "{\"body\":{\"stdin\":\"x\",\"content\":\"y\"},\"op\":\"execute\"}",
                                  .replied = DONE_FRAME,
                                  .opened = "open execute {\"stdin\":\"\",\"content\":\"\"}\ndata 0 x\nend\n"});
    check_frame((struct exchange){.sent = "{\"body\":{\"content\":\"y\"},\"op\":\"walk\"}",
                                  .replied = DONE_FRAME,
                                  .opened = "open walk {\"content\":\"\"}\nend\n"});
    check_frame((struct exchange){.sent = "{\"op\":\"write-file\",\"body\":{\"content\":5}}",
                                  .replied = OK_FRAME,
                                  .opened = "open write-file {\"content\":5}\nend\n"});
}

static void odd_requests(void)
{
    check_frame((struct exchange){
        .sent = "{\"op\":\"walk\",\"body\":\"text\"}", .replied = DONE_FRAME, .opened = "open walk -\nend\n"});
    check_frame((struct exchange){.sent = "{\"op\":\"flush\"}", .replied = REFUSED("unknown_op: flush")});
    check_frame((struct exchange){.sent = "{\"op\":\"wal\\u0000k\"}", .replied = REFUSED("unknown_op: wal")});
    check_frame((struct exchange){.sent = "{\"op\":5}", .replied = REFUSED("unknown_op: undefined")});
    check_frame((struct exchange){.sent = "[]", .replied = REFUSED("unknown_op: undefined")});
    check_frame((struct exchange){.sent = "null", .replied = REFUSED("unknown_op: undefined")});
}

static void a_first_frame_that_is_none_gets_no_reply(void)
{
    static const char *const sent[] = {
        "00000000\n",         "0000000g\n{}", "00000002 {}",
        "000000002\n{}",      "0x000002\n{}", "00000002\n{]",
        "00000003\n{}x",      "00000001\n{",  "00000010\n{\"op\":healthz}",
        "00000002\n\xff\xff",
    };
    for (size_t i = 0; i < NSBX_LEN(sent); i++) {
        check_exchange(&(struct exchange){.sent = sent[i], .replied = ""});
        check_exchange(&(struct exchange){.sent = sent[i], .replied = "", .token = TOKEN});
    }
}

/* ---- tokens ---- */

#define WALK_WITH(token) "{\"op\":\"walk\",\"body\":{\"root\":\"/\"},\"token\":" token "}"
#define OPENED_WALK "open walk {\"root\":\"/\"}\nend\n"

static void the_right_token_is_wanted_wherever_it_stands(void)
{
    check_frame((struct exchange){
        .token = TOKEN, .sent = WALK_WITH("\"" TOKEN "\""), .replied = DONE_FRAME, .opened = OPENED_WALK});
    check_frame((struct exchange){.token = TOKEN,
                                  .sent = "{\"token\":\"" TOKEN "\",\"op\":\"walk\",\"body\":{\"root\":\"/\"}}",
                                  .replied = DONE_FRAME,
                                  .opened = OPENED_WALK});
    static const char *const wrong[] = {
        WALK_WITH("\"\""),
        WALK_WITH("null"),
        WALK_WITH("5"),
        WALK_WITH("[\"" TOKEN "\"]"),
        WALK_WITH("\"" TOKEN "0\""),
        WALK_WITH("\"x\""),
        WALK_WITH("\"" TOKEN "\\u0000\""),
        "{\"op\":\"walk\"}",
        "{\"op\":\"walk\",\"body\":{\"token\":\"" TOKEN "\"}}",
        "{\"op\":\"nosuch\"}",
        "5",
    };
    for (size_t i = 0; i < NSBX_LEN(wrong); i++)
        check_frame((struct exchange){.token = TOKEN, .sent = wrong[i], .replied = REFUSED("unauthorized")});
}

static void a_token_of_any_length_is_compared(void)
{
    char longest[NSBX_JSCAN_WATCH_MAX + 2];
    for (size_t len = 511; len <= 513; len++) {
        struct text json = {0};
        memset(longest, 'x', len);
        longest[len] = 0;
        text_printf(&json, WALK_WITH("\"%s\""), longest);
        if (len <= NSBX_JSCAN_WATCH_MAX) {
            check_long_frame(
                (struct exchange){.token = longest, .sent = json.p, .replied = DONE_FRAME, .opened = OPENED_WALK});
            longest[len - 1] = 'y';
        }
        check_long_frame((struct exchange){.token = len <= NSBX_JSCAN_WATCH_MAX ? longest : TOKEN,
                                           .sent = json.p,
                                           .replied = REFUSED("unauthorized")});
        text_free(&json);
    }
    struct nsbx_err err;
    channel_rig_open();
    rig.config.bind_token = longest;
    CHECK(nsbx_single_server_new(loop, &rig.config, &err) == NULL);
    CHECK_INT(err.code, NSBX_E_INVALID);
    rig.config.bind_token = "";
    CHECK(nsbx_single_server_new(loop, &rig.config, &err) == NULL);
    channel_rig_close();
}

static void a_health_question_needs_no_token(void)
{
    static const char *const asked[] = {"{\"op\":\"healthz\"}", "{\"op\":\"healthz\",\"token\":\"wrong\"}",
                                        "{\"token\":\"\",\"body\":{\"a\":[1]},\"op\":\"healthz\"}"};
    for (size_t i = 0; i < NSBX_LEN(asked); i++)
        check_frame((struct exchange){
            .token = TOKEN, .sent = asked[i], .replied = OK_FRAME, .opened = "open healthz -\nend\n"});
}

static void without_tokens_any_is_ignored(void)
{
    check_frame((struct exchange){.sent = WALK_WITH("\"anything\""), .replied = DONE_FRAME, .opened = OPENED_WALK});
    check_frame((struct exchange){.sent = WALK_WITH("{\"a\":1}"), .replied = DONE_FRAME, .opened = OPENED_WALK});
}

static void ask_once(const char *json, const char *reply)
{
    struct raw host;
    struct text frame = {0};
    text_frame(&frame, json);
    rig_connect(&host);
    raw_write(&host, frame.p, frame.n);
    TURN_UNTIL(raw_over(&host), 10000);
    CHECK_STR(text_of(&host.got), framed(reply));
    text_free(&frame);
    raw_free(&host);
}

static void the_first_token_is_trusted_for_good(void)
{
    channel_rig_open();
    rig.serve = answer;
    rig.config.require_token = true;
    rig_serve();
    ask_once("{\"op\":\"healthz\",\"token\":\"of a health question\"}", OK_FRAME);
    ask_once("{\"op\":\"walk\",\"token\":\"\"}", REFUSED("unauthorized"));
    ask_once("{\"op\":\"walk\",\"token\":\"first\"}", DONE_FRAME);
    ask_once("{\"op\":\"walk\",\"token\":\"second\"}", REFUSED("unauthorized"));
    ask_once("{\"token\":\"first\",\"op\":\"walk\"}", DONE_FRAME);
    channel_rig_close();
    check_frame((struct exchange){
        .first_use = true, .sent = WALK_WITH("\"t\""), .replied = DONE_FRAME, .opened = OPENED_WALK});
}

/* ---- bounds ---- */

static void a_frame_is_refused_by_its_header(void)
{
    check_exchange(&(struct exchange){
        .token = TOKEN,
        .sent = "00800001\n",
        .replied = REFUSED(
            "frame_too_large: announced 8388609 bytes, limit 8388608 (NAMZU_AGENT_MAX_PREAUTH_FRAME_BYTES)")});
    check_exchange(&(struct exchange){
        .sent = "10000001\n",
        .replied =
            REFUSED("frame_too_large: announced 268435457 bytes, limit 268435456 (NAMZU_AGENT_MAX_FRAME_BYTES)")});
    struct raw host;
    channel_rig_open();
    rig.config.bind_token = TOKEN;
    rig_serve();
    rig_connect(&host);
    raw_write(&host, "00800000\n{", 10);
    turn_for(5);
    CHECK(!raw_over(&host));
    raw_free(&host);
    channel_rig_close();
}

/* A frame of n bytes: the token, the operation, and spaces. */
static char *padded(const char *json, size_t n)
{
    char *frame = malloc(n + 10);
    snprintf(frame, 10, "%08zx\n", n);
    memset(frame + 9, ' ', n);
    memcpy(frame + 9 + n - strlen(json), json, strlen(json));
    return frame;
}

static void a_frame_of_the_limit_is_served(void)
{
    char *frame = padded(WALK_WITH("\"" TOKEN "\""), NSBX_MAX_PREAUTH_FRAME);
    struct raw host;
    channel_rig_open();
    rig.serve = answer;
    rig.config.bind_token = TOKEN;
    rig_serve();
    rig_connect(&host);
    raw_write(&host, frame, 9 + NSBX_MAX_PREAUTH_FRAME);
    TURN_UNTIL(raw_over(&host), 10000);
    CHECK_STR(text_of(&host.got), DONE_FRAME);
    raw_free(&host);
    channel_rig_close();
    free(frame);
}

static void the_header_behind_an_authenticating_frame_is_judged_by_the_raised_cap(void)
{
    struct text sent = {0};
    text_frame(&sent, "{\"op\":\"execute\",\"token\":\"" TOKEN "\",\"body\":{\"stdinStream\":true}}");
    text_printf(&sent, "00800001\n{\"type\":\"stdin\",\"data\":\"YWJj");
    struct raw host;
    channel_rig_open();
    rig.config.bind_token = TOKEN;
    rig_serve();
    rig_connect(&host);
    raw_write(&host, sent.p, sent.n);
    TURN_UNTIL(rig.n_served && rig.served[0]->bytes == 3, 10000);
    CHECK(!raw_over(&host));
    raw_free(&host);
    text_free(&sent);
    TURN_UNTIL(rig.served[0]->fails, 10000);
    channel_rig_close();
}

static void the_oldest_of_too_many_is_evicted(void)
{
    enum { N = 4 };
    struct raw hosts[N + 2];
    channel_rig_open();
    rig.serve = answer;
    rig.config.bind_token = TOKEN;
    rig.config.max_preauth_connections = N;
    rig_serve();
    for (size_t i = 0; i < N; i++)
        rig_connect(&hosts[i]);
    raw_write(&hosts[1], "0000", 4); /* being busy does not make one younger */
    turn_for(5);
    for (size_t i = 0; i < N; i++)
        CHECK(!raw_over(&hosts[i]));
    rig_connect(&hosts[N]);
    TURN_UNTIL(raw_over(&hosts[0]), 10000);
    CHECK_STR(
        text_of(&hosts[0].got),
        framed(REFUSED("too_many_unauthenticated_connections: limit 4 (NAMZU_AGENT_MAX_PREAUTH_CONNECTIONS)")));
    CHECK(!raw_over(&hosts[1]));
    /* one that is authenticated is out of the pool */
    struct text sent = {0};
    text_frame(&sent, "{\"token\":\"" TOKEN "\",\"op\":\"execute\",\"body\":{\"stdinStream\":true}}");
    raw_write(&hosts[2], sent.p, sent.n);
    turn_for(5);
    rig_connect(&hosts[N + 1]);
    turn_for(5);
    for (size_t i = 1; i < N + 2; i++)
        CHECK(!raw_over(&hosts[i]));
    text_free(&sent);
    for (size_t i = 0; i < N + 2; i++)
        raw_free(&hosts[i]);
    turn_for(5);
    channel_rig_close();
}

static void what_all_may_hold_together_is_bounded(void)
{
    struct raw hosts[3];
    static char filler[400];
    memset(filler, ' ', sizeof(filler));
    channel_rig_open();
    rig.config.bind_token = TOKEN;
    rig.config.max_preauth_frame = 1000;
    rig.config.max_preauth_buffer = 1100;
    rig_serve();
    for (size_t i = 0; i < 3; i++) {
        rig_connect(&hosts[i]);
        raw_write(&hosts[i], "000003e8\n", 9);
        raw_write(&hosts[i], filler, 400);
        turn_for(5);
    }
    CHECK(!raw_over(&hosts[0]));
    CHECK(!raw_over(&hosts[1]));
    CHECK_STR(text_of(&hosts[2].got),
              framed(REFUSED("preauth_buffer_exhausted: limit 1100 bytes (NAMZU_AGENT_MAX_PREAUTH_BUFFER_BYTES)")));
    raw_close(&hosts[0]); /* what it held is free again */
    turn_for(5);
    raw_write(&hosts[1], filler, 400);
    turn_for(5);
    CHECK(!raw_over(&hosts[1]));
    for (size_t i = 0; i < 3; i++)
        raw_free(&hosts[i]);
    channel_rig_close();
}

static void one_frame_always_fits(void)
{
    char *frame = padded(WALK_WITH("\"" TOKEN "\""), 2000);
    struct raw host;
    channel_rig_open();
    rig.serve = answer;
    rig.config.bind_token = TOKEN;
    rig.config.max_preauth_frame = 2000;
    rig.config.max_preauth_buffer = 10;
    rig_serve();
    rig_connect(&host);
    write_in_two(&host, frame, 2009, 2008);
    TURN_UNTIL(raw_over(&host), 10000);
    CHECK_STR(text_of(&host.got), DONE_FRAME);
    raw_free(&host);
    channel_rig_close();
    free(frame);
}

static void clocks_run_until_the_token(uint64_t idle, uint64_t deadline, bool drip, uint64_t want)
{
    struct raw host, health, served;
    struct text sent = {0};
    channel_rig_open();
    rig.serve = answer;
    rig.config.bind_token = TOKEN;
    rig.config.preauth_idle_ms = idle;
    rig.config.preauth_deadline_ms = deadline;
    rig_serve();
    text_frame(&sent, "{\"op\":\"execute\",\"token\":\"" TOKEN "\",\"body\":{\"stdinStream\":true}}");
    rig_connect(&served);
    raw_write(&served, sent.p, sent.n);
    rig_connect(&health);
    rig_connect(&host);
    uint64_t start = nsbx_now_ms();
    size_t drops = 0;
    while (!raw_over(&host) && nsbx_now_ms() - start < 5000) {
        if (drip) /* a header, then spaces */
            raw_write(&host, drops < 9 ? "0000ffff\n" + drops : " ", 1);
        drops++;
        turn_for(20);
    }
    CHECK(nsbx_now_ms() - start >= want - 50); /* the loop's own time may lie behind a little */
    CHECK(nsbx_now_ms() - start < want + 2000);
    CHECK_STR(text_of(&host.got), "");
    CHECK(raw_over(&health));
    turn_for((unsigned)want + 50);
    CHECK(!raw_over(&served)); /* the token stops the clocks */
    raw_free(&host);
    raw_free(&health);
    raw_free(&served);
    text_free(&sent);
    turn_for(5);
    channel_rig_close();
}

static void a_silent_peer_goes_after_the_idle_time(void)
{
    clocks_run_until_the_token(300, 10000, false, 300);
}

static void a_dripping_peer_goes_at_the_deadline(void)
{
    clocks_run_until_the_token(400, 1000, true, 1000);
}

static void a_health_question_lifts_no_limit(void)
{
    struct raw host;
    struct text sent = {0};
    channel_rig_open(); /* an agent that does not answer */
    rig.config.bind_token = TOKEN;
    rig.config.preauth_idle_ms = rig.config.preauth_deadline_ms = 80;
    rig_serve();
    text_frame(&sent, "{\"op\":\"healthz\",\"token\":\"nope\"}");
    rig_connect(&host);
    raw_write(&host, sent.p, sent.n);
    TURN_UNTIL(raw_over(&host), 10000);
    CHECK_STR(text_of(&host.got), "");
    CHECK_STR(text_of(&rig.served[0]->log), "open healthz -\nend\nfail timeout\n");
    raw_free(&host);
    text_free(&sent);
    channel_rig_close();
}

static void a_body_that_is_no_large_member_is_bounded(void)
{
    static const char before[] = "{\"op\":\"walk\",\"body\":{\"a\":\"", after[] = "\"}}";
    for (size_t over = 0; over < 2; over++) {
        struct raw host;
        struct text json = {0}, sent = {0};
        size_t n = NSBX_MAX_MESSAGE_REST - strlen(before) - strlen(after) + over;
        text_printf(&json, "%s", before);
        char *fillers = malloc(n);
        memset(fillers, 'x', n);
        text_add(&json, fillers, n);
        text_printf(&json, "%s", after);
        text_frame(&sent, json.p);
        channel_rig_open();
        rig.serve = answer;
        rig_serve();
        rig_connect(&host);
        raw_write(&host, sent.p, sent.n);
        TURN_UNTIL(raw_over(&host), 10000);
        if (over)
            CHECK(strncmp(text_of(&host.got) + 9, "{\"ok\":false,\"error\":\"request_refused: ", 37) == 0);
        else
            CHECK_STR(text_of(&host.got), DONE_FRAME);
        CHECK(!host.error);
        free(fillers);
        text_free(&json);
        text_free(&sent);
        raw_free(&host);
        channel_rig_close();
    }
}

static void nesting_is_bounded_on_both_sides_of_the_gate(void)
{
    for (int token = 0; token < 2; token++) {
        struct text json = {0}, sent = {0};
        struct raw host;
        text_printf(&json, "{\"op\":\"walk\",\"body\":");
        for (int i = 0; i < NSBX_MAX_MESSAGE_DEPTH; i++)
            text_printf(&json, "[");
        text_frame(&sent, json.p);
        channel_rig_open();
        rig.config.bind_token = token ? TOKEN : NULL;
        rig_serve();
        rig_connect(&host);
        raw_write(&host, sent.p, sent.n);
        TURN_UNTIL(raw_over(&host), 10000);
        CHECK(strncmp(text_of(&host.got) + 9, "{\"ok\":false,\"error\":\"request_refused: ", 37) == 0);
        text_free(&json);
        text_free(&sent);
        raw_free(&host);
        channel_rig_close();
    }
}

static void refused_peers_do_not_pile_up(void)
{
    enum { N = 40 };
    struct raw hosts[N];
    channel_rig_open();
    rig.config.bind_token = TOKEN;
    rig.config.max_preauth_connections = 8;
    rig_serve();
    for (size_t i = 0; i < N; i++) {
        rig_connect(&hosts[i]);
        raw_write(&hosts[i], "00000002\n5 ", 11);
        turn_for(1);
        CHECK(nsbx_single_connections(rig.server) <= 9);
        CHECK_STR(text_of(&hosts[i].got), framed(REFUSED("unauthorized")));
    }
    TURN_UNTIL(nsbx_single_connections(rig.server) == 0, 10000); /* they never close: the short time does */
    for (size_t i = 0; i < N; i++)
        raw_free(&hosts[i]);
    channel_rig_close();
}

/* However many unauthenticated peers press, a turn looks at a bounded number of their bytes. */
static void a_turn_looks_at_few_unauthenticated_bytes(void)
{
    enum { N = 32, EACH = 2 << 20 };
    struct raw hosts[N];
    char *frame = padded("", EACH);
    rig.sockets = true;
    channel_rig_open();
    rig.serve = answer;
    rig.config.bind_token = TOKEN;
    rig.config.max_preauth_buffer = 2 * N * EACH;
    rig_serve();
    for (size_t i = 0; i < N; i++) {
        rig_connect(&hosts[i]);
        raw_write(&hosts[i], frame, EACH);
    }
    size_t left = 0, most = 0, before;
    for (size_t i = 0; i < N; i++)
        left += nsbx_stream_queued(hosts[i].s);
    for (int turn = 0; turn < 60; turn++) {
        before = left;
        left = 0;
        nsbx_loop_turn(loop, NSBX_TURN_POLL);
        for (size_t i = 0; i < N; i++)
            left += nsbx_stream_queued(hosts[i].s);
        most = NSBX_MAX(most, before - left);
    }
    CHECK(most > 0);
    CHECK(most <= 3 * NSBX_STREAM_READ_CHUNK); /* what the kernel takes anew lags behind what was read */
    ask_once("{\"op\":\"healthz\"}", OK_FRAME);
    for (size_t i = 0; i < N; i++)
        raw_free(&hosts[i]);
    free(frame);
    channel_rig_close();
    rig.sockets = false;
}

/* ---- fences ---- */

static void a_fence_refuses_in_its_shape(void)
{
    for (int as_stream = 0; as_stream < 2; as_stream++) {
        channel_rig_open();
        rig.serve = answer;
        rig.fence = nsbx_op_row("walk");
        rig.fence_as_stream = as_stream != 0;
        rig_serve();
        ask_once("{\"op\":\"walk\"}",
                 as_stream ? "00000025\n" REFUSED("agent_retiring") "00000000\n" : REFUSED("agent_retiring"));
        ask_once("{\"op\":\"execute\"}", DONE_FRAME);
        channel_rig_close();
    }
}

static void refuse(struct heard *h, char what)
{
    if (what != 'o')
        return;
    h->in_call = true;
    CHECK_INT(nsbx_channel_refuse(h->ch, json_pack("{s:b,s:s}", "ok", 0, "error", "no"), NULL), 0);
    CHECK_INT(nsbx_channel_send(h->ch, json_object(), NULL), -NSBX_E_INVALID);
    h->in_call = false;
    heard_close(h);
}

static void an_operation_refuses_in_control_shape(void)
{
    channel_rig_open();
    rig.serve = refuse;
    rig_serve();
    ask_once("{\"op\":\"execute\"}", REFUSED("no"));
    CHECK_STR(text_of(&rig.served[0]->log), "open execute -\n");
    channel_rig_close();
}

/* ---- what comes after the request ---- */

static void open_execute(struct raw *host)
{
    struct text sent = {0};
    rig_connect(host);
    text_frame(&sent, "{\"op\":\"execute\",\"body\":{\"stdinStream\":true,\"encoding\":\"base64\"}}");
    raw_write(host, sent.p, sent.n);
    text_free(&sent);
    TURN_UNTIL(rig.n_served, 10000);
}

#define OPENED_EXECUTE "open execute {\"stdinStream\":true,\"encoding\":\"base64\"}\n"

static void check_stdin(const char *sent, const char *want, bool over)
{
    for (rig.io = 0; rig.io < 2; rig.io++) {
        struct raw host;
        channel_rig_open();
        rig_serve();
        open_execute(&host);
        raw_write(&host, sent, strlen(sent));
        TURN_UNTIL(strcmp(text_of(&rig.served[0]->log), want) == 0, 10000);
        turn_for(3);
        CHECK_STR(text_of(&rig.served[0]->log), want);
        CHECK_INT(raw_over(&host), over);
        raw_free(&host);
        turn_for(3);
        channel_rig_close();
    }
    rig.io = 0;
}

static void stdin_comes_as_data(void)
{
    struct text sent = {0};
    text_frame(&sent, "{\"type\":\"stdin\",\"data\":\"YWI=\"}");
    text_frame(&sent, "{\"data\":\"Yw\",\"type\":\"stdin\"}");
    text_frame(&sent, "{\"type\":\"window\",\"rows\":3}");
    text_frame(&sent, "{\"type\":\"stdin\",\"data\":\"\"}");
    text_frame(&sent, "{\"type\":\"stdin_end\"}");
    text_frame(&sent, "{\"type\":\"stdin\",\"data\":\"YWI=\"}");
    check_stdin(sent.p, OPENED_EXECUTE "data 0 abc\nmessage {\"type\":\"window\",\"rows\":3}\nend\n", false);
    text_free(&sent);
}

static void malformed_messages_are_skipped_and_malformed_headers_are_not(void)
{
    struct text sent = {0};
    text_frame(&sent, "{\"type\":\"stdin\"}");
    text_frame(&sent, "{\"type\":");
    text_frame(&sent, "nonsense");
    text_frame(&sent, "");
    text_frame(&sent, "[]");
    text_frame(&sent, "{\"type\":\"stdin\",\"data\":\"YWI=\"}");
    text_printf(&sent, "00000002;{}");
    check_stdin(sent.p, OPENED_EXECUTE "data 0 ab\nfail protocol\n", true);
    text_free(&sent);
}

static void a_later_frame_beyond_the_cap_is_refused(void)
{
    struct raw host;
    channel_rig_open();
    rig.serve = NULL;
    rig_serve();
    open_execute(&host);
    raw_write(&host, "10000001\n", 9);
    TURN_UNTIL(raw_over(&host), 10000);
    CHECK_STR(text_of(&host.got),
              framed(REFUSED(
                  "frame_too_large: announced 268435457 bytes, limit 268435456 (NAMZU_AGENT_MAX_FRAME_BYTES)")));
    CHECK_STR(text_of(&rig.served[0]->log), OPENED_EXECUTE "fail limit\n");
    raw_free(&host);
    channel_rig_close();
}

static void stdin_that_nobody_reads_stops_the_host(void)
{
    struct raw host;
    struct text frame = {0}, json = {0};
    uint8_t raw[48 * 1024];
    char letters[64 * 1024 + 1];
    channel_rig_open();
    rig_serve();
    open_execute(&host);
    struct heard *h = rig.served[0];
    h->keep = h->count_only = true;
    const size_t total = 6 << 20;
    for (size_t at = 0; at < total; at += sizeof(raw)) {
        fill(raw, sizeof(raw), at);
        letters[nsbx_base64_encode(letters, raw, sizeof(raw))] = 0;
        text_printf(&json, "{\"type\":\"stdin\",\"data\":\"%s\"}", letters);
        text_frame(&frame, json.p);
        text_free(&json);
    }
    raw_write(&host, frame.p, frame.n);
    turn_for(50);
    CHECK(h->bytes > NSBX_CHANNEL_WINDOW);
    CHECK(h->bytes <= NSBX_CHANNEL_WINDOW + NSBX_STREAM_READ_CHUNK);
    CHECK(nsbx_stream_queued(host.s) > (3 << 20));
    h->keep = false;
    nsbx_channel_consumed(h->ch, h->bytes);
    TURN_UNTIL(h->bytes >= total, 10000);
    CHECK_INT(h->wrong, 0);
    raw_free(&host);
    text_free(&frame);
    turn_for(3);
    channel_rig_close();
}

static void bytes_after_a_request_without_conversation_are_dropped(void)
{
    struct raw host;
    static char noise[256 * 1024];
    channel_rig_open();
    rig_serve();
    rig_connect(&host);
    raw_write(&host, "0000000d\n{\"op\":\"walk\"}", 22);
    TURN_UNTIL(rig.n_served && rig.served[0]->ends, 10000);
    for (int i = 0; i < 64; i++) {
        raw_write(&host, noise, sizeof(noise));
        turn_for(1);
        CHECK(nsbx_stream_queued(host.s) < 4 * sizeof(noise));
    }
    CHECK(!raw_over(&host));
    answer(rig.served[0], 'e');
    TURN_UNTIL(raw_over(&host), 10000);
    CHECK_STR(text_of(&host.got), DONE_FRAME);
    raw_free(&host);
    channel_rig_close();
}

/* ---- ends ---- */

static void a_host_that_goes_before_its_request_is_whole_was_never_there(void)
{
    static const char request[] = "0000000d\n{\"op\":\"walk\"}";
    for (int token = 0; token < 2; token++) {
        for (size_t n = 0; n < strlen(request); n++) {
            struct raw host;
            channel_rig_open();
            rig.config.bind_token = token ? TOKEN : NULL;
            rig_serve();
            rig_connect(&host);
            raw_write(&host, request, n);
            rig_settle();
            raw_free(&host);
            TURN_UNTIL(nsbx_single_connections(rig.server) == 0, 10000);
            CHECK_INT(rig.n_served, 0);
            channel_rig_close();
        }
    }
}

static void a_host_that_goes_is_a_loss_to_the_operation(void)
{
    for (int reset = 0; reset < 2; reset++) {
        struct raw host;
        rig.sockets = true;
        channel_rig_open();
        rig.serve = answer;
        rig_serve();
        open_execute(&host);
        CHECK_INT(heard_send(rig.served[0], json_pack("{s:s}", "type", "started")), 0);
        if (reset) {
            nsbx_stream_read_stop(host.s);
            turn_for(5);
        }
        raw_free(&host);
        TURN_UNTIL(!rig.served[0]->ch, 10000);
        CHECK_STR(text_of(&rig.served[0]->log), OPENED_EXECUTE "fail stream_lost\n");
        channel_rig_close();
        rig.sockets = false;
    }
}

/* More than the kernel holds is queued when the operation closes; the host reads late and slowly. */
static void what_is_queued_arrives_after_the_close(void)
{
    struct raw host;
    static char block[64 * 1024];
    rig.sockets = true;
    channel_rig_open();
    rig_serve();
    open_execute(&host);
    nsbx_stream_read_stop(host.s);
    struct heard *h = rig.served[0];
    for (size_t at = 0; at < 4 << 20; at += sizeof(block)) {
        fill((uint8_t *)block, sizeof(block), at);
        CHECK_INT(heard_put(h, NSBX_SUB_STDOUT, block, sizeof(block), -1), 0);
    }
    CHECK_INT(heard_finish(h), 0);
    heard_close(h);
    turn_for(1200); /* longer than a host that has everything may take to close */
    CHECK(!raw_over(&host));
    nsbx_stream_read_start(host.s);
    TURN_UNTIL(raw_over(&host), 10000);
    CHECK(!host.error);
    CHECK(host.got.n > (4 << 20) / 3 * 4);
    CHECK_STR(host.got.p + host.got.n - 9, "00000000\n");
    raw_free(&host);
    channel_rig_close();
    rig.sockets = false;
}

static void the_reply_survives_bytes_that_nobody_read(void)
{
    struct raw host;
    static char noise[512 * 1024];
    rig.sockets = true;
    channel_rig_open();
    rig.serve = answer;
    rig_serve();
    rig_connect(&host);
    nsbx_stream_read_stop(host.s);
    raw_write(&host, "0000000d\n{\"op\":\"walk\"}", 22);
    for (int i = 0; i < 4; i++) {
        raw_write(&host, noise, sizeof(noise));
        turn_for(2);
    }
    nsbx_stream_read_start(host.s);
    TURN_UNTIL(raw_over(&host), 10000);
    CHECK(!host.error);
    CHECK_STR(text_of(&host.got), DONE_FRAME);
    raw_free(&host);
    channel_rig_close();
    rig.sockets = false;
}

static void a_host_that_never_closes_is_closed(void)
{
    struct raw host;
    channel_rig_open();
    rig.serve = answer;
    rig_serve();
    rig_connect(&host);
    raw_write(&host, "0000000d\n{\"op\":\"walk\"}", 22);
    TURN_UNTIL(raw_over(&host), 10000);
    uint64_t start = nsbx_now_ms();
    CHECK_INT(nsbx_single_connections(rig.server), 1);
    TURN_UNTIL(nsbx_single_connections(rig.server) == 0, 10000);
    CHECK(nsbx_now_ms() - start >= NSBX_CLOSE_WAIT_MS - 20);
    raw_free(&host);
    channel_rig_close();
}

static void the_server_closes_what_is_not_open_yet(void)
{
    struct raw hosts[3];
    channel_rig_open();
    rig_serve();
    rig_connect(&hosts[0]);
    rig_connect(&hosts[1]);
    raw_write(&hosts[1], "0000", 4);
    rig_connect(&hosts[2]);
    raw_write(&hosts[2], "0000000d\n{\"op\":\"walk\"}", 22);
    TURN_UNTIL(rig.n_served, 10000);
    nsbx_single_server_close(rig.server);
    rig.server = NULL;
    TURN_UNTIL(raw_over(&hosts[0]) && raw_over(&hosts[1]), 10000);
    CHECK(!raw_over(&hosts[2]));
    answer(rig.served[0], 'e');
    TURN_UNTIL(raw_over(&hosts[2]), 10000);
    CHECK_STR(text_of(&hosts[2].got), DONE_FRAME);
    for (size_t i = 0; i < 3; i++)
        raw_free(&hosts[i]);
    channel_rig_close();
}

/* ---- output ---- */

static void output_in_text_keeps_characters_whole(void)
{
    struct raw host;
    struct text want = {0};
    channel_rig_open();
    rig_serve();
    rig_connect(&host);
    raw_write(&host, "00000010\n{\"op\":\"execute\"}", 25);
    TURN_UNTIL(rig.n_served, 10000);
    struct heard *h = rig.served[0];
    CHECK_INT(heard_put(h, NSBX_SUB_STDOUT, "a\xe2\x82", 3, -1), 0);
    CHECK_INT(heard_put(h, NSBX_SUB_STDERR, "\xc3", 1, -1), 0);
    CHECK_INT(heard_put(h, NSBX_SUB_STDOUT, "\xac\n\xe2", 3, -1), 0);
    CHECK_INT(heard_send(h, json_pack("{s:s}", "type", "result")), 0);
    CHECK_INT(heard_finish(h), 0);
    heard_close(h);
    text_frame(&want, "{\"type\":\"stdout_delta\",\"data\":\"a\"}");
    text_frame(&want, "{\"type\":\"stdout_delta\",\"data\":\"\xe2\x82\xac\\n\"}");
    text_frame(&want, "{\"type\":\"stdout_delta\",\"data\":\"\xef\xbf\xbd\"}");
    text_frame(&want, "{\"type\":\"stderr_delta\",\"data\":\"\xef\xbf\xbd\"}");
    text_frame(&want, "{\"type\":\"result\"}");
    text_frame(&want, "");
    TURN_UNTIL(raw_over(&host), 10000);
    CHECK_STR(text_of(&host.got), want.p);
    raw_free(&host);
    text_free(&want);
    channel_rig_close();
}

static void offsets_match_the_bytes_that_a_message_shows(void)
{
    struct raw host;
    struct text want = {0};
    channel_rig_open();
    rig_serve();
    rig_connect(&host);
    raw_write(&host, "00000010\n{\"op\":\"execute\"}", 25);
    TURN_UNTIL(rig.n_served, 10000);
    struct heard *h = rig.served[0];
    CHECK_INT(heard_put(h, NSBX_SUB_STDOUT, "a\xe2\x82", 3, 10), 0);
    CHECK_INT(heard_put(h, NSBX_SUB_STDOUT, "\xac\xe2", 2, 13), 0);
    CHECK_INT(heard_put(h, NSBX_SUB_STDERR, "e", 1, 15), 0); /* comes behind the bytes held back, so these go out */
    CHECK_INT(heard_put(h, NSBX_SUB_STDOUT, "\x82\xac", 2, 16), 0);
    text_frame(&want, "{\"type\":\"stdout_delta\",\"data\":\"a\",\"offset\":10,\"nextOffset\":11}");
    text_frame(&want, "{\"type\":\"stdout_delta\",\"data\":\"\xe2\x82\xac\",\"offset\":11,\"nextOffset\":14}");
    text_frame(&want, "{\"type\":\"stdout_delta\",\"data\":\"\xef\xbf\xbd\",\"offset\":14,\"nextOffset\":15}");
    text_frame(&want, "{\"type\":\"stderr_delta\",\"data\":\"e\",\"offset\":15,\"nextOffset\":16}");
    text_frame(&want,
               "{\"type\":\"stdout_delta\",\"data\":\"\xef\xbf\xbd\xef\xbf\xbd\",\"offset\":16,\"nextOffset\":18}");
    TURN_UNTIL(host.got.n >= want.n, 10000);
    CHECK_STR(text_of(&host.got), want.p);
    raw_free(&host);
    text_free(&want);
    turn_for(3);
    channel_rig_close();
}

static void output_is_cut_into_messages(void)
{
    struct raw host;
    const size_t n = NSBX_DATA_CHUNK * 2 + 1;
    char *bytes = malloc(n);
    channel_rig_open();
    rig_serve();
    open_execute(&host);
    fill((uint8_t *)bytes, n, 0);
    CHECK_INT(heard_put(rig.served[0], NSBX_SUB_STDOUT, bytes, n, 100), 0);
    CHECK_INT(heard_put(rig.served[0], NSBX_SUB_MAIN, "x", 1, -1), -NSBX_E_INVALID);
    TURN_UNTIL(host.got.n >= nsbx_base64_len(n), 10000);
    turn_for(2);
    const char *at = text_of(&host.got);
    for (size_t i = 0; i < 3; i++) {
        size_t len = strtoul(at, NULL, 16), raw = i < 2 ? NSBX_DATA_CHUNK : 1;
        json_t *message = json_loadb(at + 9, len, 0, NULL);
        CHECK_INT(json_integer_value(json_object_get(message, "offset")), 100 + i * NSBX_DATA_CHUNK);
        CHECK_INT(json_integer_value(json_object_get(message, "nextOffset")), 100 + i * NSBX_DATA_CHUNK + raw);
        CHECK_INT(json_string_length(json_object_get(message, "data")), nsbx_base64_len(raw));
        json_decref(message);
        at += 9 + len;
    }
    CHECK_STR(at, "");
    free(bytes);
    raw_free(&host);
    turn_for(3);
    channel_rig_close();
}

static void a_stopped_host_takes_the_room_away(void)
{
    struct raw host;
    static char block[64 * 1024];
    channel_rig_open();
    rig_serve();
    open_execute(&host);
    struct heard *h = rig.served[0];
    nsbx_stream_read_stop(host.s);
    size_t sent = 0;
    while (nsbx_channel_room(h->ch) > 0 && sent < 64 << 20) {
        CHECK_INT(heard_put(h, NSBX_SUB_STDOUT, block, sizeof(block), -1), 0);
        sent += sizeof(block);
    }
    CHECK(sent < 2 << 20);
    turn_for(10);
    CHECK_INT(h->drains, 0);
    nsbx_stream_read_start(host.s);
    TURN_UNTIL(h->drains, 10000);
    CHECK_INT(nsbx_channel_room(h->ch), NSBX_CHANNEL_WINDOW);
    raw_free(&host);
    turn_for(3);
    CHECK_INT(nsbx_channel_room(h->ch), 0);
    channel_rig_close();
}

/* ---- large bodies ---- */

static char dir[] = "/tmp/nsbx-channel-XXXXXX";

static void write_body(struct raw *host, size_t n)
{
    static const char before[] = "{\"op\":\"write-file\",\"body\":{\"encoding\":\"base64\",\"content\":\"",
                      after[] = "\"}}";
    uint8_t raw[48 * 1024];
    char letters[64 * 1024];
    char header[16];
    snprintf(header, sizeof(header), "%08zx\n", strlen(before) + nsbx_base64_len(n) + strlen(after));
    raw_write(host, header, 9);
    raw_write(host, before, strlen(before));
    for (size_t at = 0; at < n; at += sizeof(raw)) {
        size_t piece = NSBX_MIN(sizeof(raw), n - at);
        fill(raw, piece, at);
        raw_write(host, letters, nsbx_base64_encode(letters, raw, piece));
    }
    raw_write(host, after, strlen(after));
}

static void count(struct heard *h, char what)
{
    if (what == 'o')
        h->count_only = true;
    answer(h, what);
}

static void body_of(size_t n, int dir_fd, const char *reply)
{
    struct raw host;
    channel_rig_open();
    rig.serve = count;
    rig.config.spool_dir_fd = dir_fd;
    rig_serve();
    rig_connect(&host);
    write_body(&host, n);
    TURN_UNTIL(raw_over(&host), 20000);
    CHECK_STR(text_of(&host.got), framed(reply));
    CHECK(!host.error);
    if (strcmp(reply, OK_FRAME) == 0) {
        CHECK_INT(rig.served[0]->bytes, n);
        CHECK_INT(rig.served[0]->wrong, 0);
    } else {
        CHECK_INT(rig.n_served, 0);
    }
    raw_free(&host);
    channel_rig_close();
}

static size_t names_in(int dir_fd)
{
    size_t n = 0;
    DIR *d = fdopendir(openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

static void a_body_is_spooled_beyond_what_memory_may_hold(void)
{
    static const size_t letters[] = {NSBX_SPOOL_MEMORY, NSBX_SPOOL_MEMORY + 4, 5 << 20, 16 << 20};
    int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < NSBX_LEN(letters); i++)
        body_of(letters[i] / 4 * 3, dir_fd, OK_FRAME);
    CHECK_INT(names_in(dir_fd), 0);
    close(dir_fd);
}

static void without_a_directory_a_large_body_is_refused(void)
{
    body_of(NSBX_SPOOL_MEMORY / 4 * 3, -1, OK_FRAME);
    body_of(3 << 20, -1,
            REFUSED("body_too_large: more than 1048576 bytes, and there is no directory for the rest"));
}

/* A large body replayed to an operation that takes its time, and to one that goes away in the middle. */
static void a_spooled_body_waits_for_its_reader(void)
{
    struct raw host;
    int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int leave = 0; leave < 2; leave++) {
        channel_rig_open();
        rig.config.spool_dir_fd = dir_fd;
        rig_serve();
        rig_connect(&host);
        write_body(&host, 6 << 20);
        TURN_UNTIL(rig.n_served, 10000);
        struct heard *h = rig.served[0];
        h->keep = h->count_only = true;
        turn_for(100);
        CHECK(h->bytes > NSBX_CHANNEL_WINDOW);
        CHECK(h->bytes <= NSBX_CHANNEL_WINDOW + NSBX_STREAM_READ_CHUNK);
        if (leave) {
            heard_close(h);
            TURN_UNTIL(raw_over(&host), 10000);
        } else {
            h->keep = false;
            nsbx_channel_consumed(h->ch, h->bytes);
            TURN_UNTIL(h->ends, 10000);
            CHECK_INT(h->bytes, 6 << 20);
            CHECK_INT(h->wrong, 0);
        }
        raw_free(&host);
        turn_for(5);
        channel_rig_close();
    }
    close(dir_fd);
}

static void a_host_may_leave_while_its_body_is_spooled(void)
{
    int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int turns = 0; turns < 40; turns += 3) {
        struct raw host;
        channel_rig_open();
        rig.config.spool_dir_fd = dir_fd;
        rig_serve();
        rig_connect(&host);
        write_body(&host, 3 << 20);
        for (int i = 0; i < turns; i++)
            nsbx_loop_turn(loop, NSBX_TURN_POLL);
        raw_free(&host);
        TURN_UNTIL(nsbx_single_connections(rig.server) == 0 || rig.n_served, 10000);
        turn_for(5);
        channel_rig_close();
    }
    close(dir_fd);
}

/* In a child: the limit stays with it. */
static int in_child(void (*fn)(void))
{
    pid_t pid = fork();
    if (pid == 0) {
        harness_case_failed = 0;
        fn();
        fflush(NULL);
        _exit(harness_case_failed);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void write_beyond_the_file_limit(void)
{
    int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const struct rlimit limit = {2 << 20, 2 << 20};
    signal(SIGXFSZ, SIG_IGN);
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
    body_of(6 << 20, dir_fd, "{\"ok\":false,\"error\":\"EFBIG: file too large, write\",\"code\":\"EFBIG\"}");
    body_of(300, dir_fd, OK_FRAME);
    close(dir_fd);
}

static void write_to_a_full_disk(void)
{
    if (unshare(CLONE_NEWNS | (geteuid() ? CLONE_NEWUSER : 0)) != 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 || mount("none", dir, "tmpfs", 0, "size=2m") != 0)
        _exit(77);
    int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    body_of(6 << 20, dir_fd,
            "{\"ok\":false,\"error\":\"ENOSPC: no space left on device, write\",\"code\":\"ENOSPC\"}");
    body_of(1 << 20, dir_fd, OK_FRAME); /* the space is free again */
    close(dir_fd);
}

static void a_body_that_cannot_be_kept_is_refused_with_the_reason(void)
{
    CHECK_INT(in_child(write_beyond_the_file_limit), 0);
    int rc = in_child(write_to_a_full_disk);
    CHECK(rc == 0 || rc == 77);
    if (rc == 77)
        printf("SKIP a full disk: no mount namespace here\n");
}

int main(void)
{
    rig_open(); /* libuv's process-wide descriptors are made by the first loop */
    nsbx_loop_free(loop);
    if (!mkdtemp(dir))
        return 1;
    RUN(a_body_that_cannot_be_kept_is_refused_with_the_reason); /* forks: before there are threads */
    RUN(requests_in_every_split);
    RUN(what_is_no_large_member_of_the_operation_is_left_out);
    RUN(odd_requests);
    RUN(a_first_frame_that_is_none_gets_no_reply);
    RUN(the_right_token_is_wanted_wherever_it_stands);
    RUN(a_token_of_any_length_is_compared);
    RUN(a_health_question_needs_no_token);
    RUN(without_tokens_any_is_ignored);
    RUN(the_first_token_is_trusted_for_good);
    RUN(a_frame_is_refused_by_its_header);
    RUN(a_frame_of_the_limit_is_served);
    RUN(the_header_behind_an_authenticating_frame_is_judged_by_the_raised_cap);
    RUN(the_oldest_of_too_many_is_evicted);
    RUN(what_all_may_hold_together_is_bounded);
    RUN(one_frame_always_fits);
    RUN(a_silent_peer_goes_after_the_idle_time);
    RUN(a_dripping_peer_goes_at_the_deadline);
    RUN(a_health_question_lifts_no_limit);
    RUN(a_body_that_is_no_large_member_is_bounded);
    RUN(nesting_is_bounded_on_both_sides_of_the_gate);
    RUN(refused_peers_do_not_pile_up);
    RUN(a_turn_looks_at_few_unauthenticated_bytes);
    RUN(a_fence_refuses_in_its_shape);
    RUN(an_operation_refuses_in_control_shape);
    RUN(stdin_comes_as_data);
    RUN(malformed_messages_are_skipped_and_malformed_headers_are_not);
    RUN(a_later_frame_beyond_the_cap_is_refused);
    RUN(stdin_that_nobody_reads_stops_the_host);
    RUN(bytes_after_a_request_without_conversation_are_dropped);
    RUN(a_host_that_goes_before_its_request_is_whole_was_never_there);
    RUN(a_host_that_goes_is_a_loss_to_the_operation);
    RUN(what_is_queued_arrives_after_the_close);
    RUN(the_reply_survives_bytes_that_nobody_read);
    RUN(a_host_that_never_closes_is_closed);
    RUN(the_server_closes_what_is_not_open_yet);
    RUN(output_in_text_keeps_characters_whole);
    RUN(offsets_match_the_bytes_that_a_message_shows);
    RUN(output_is_cut_into_messages);
    RUN(a_stopped_host_takes_the_room_away);
    RUN(a_body_is_spooled_beyond_what_memory_may_hold);
    RUN(without_a_directory_a_large_body_is_refused);
    RUN(a_spooled_body_waits_for_its_reader);
    RUN(a_host_may_leave_while_its_body_is_spooled);
    rmdir(dir);
    return harness_done();
}
