/* The gate before the token: who is let in, and what those who are not may cost. Refusals word by word. */
#include "channel_guest_rig.h"
#include "codec/jscan.h"

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
        "{\"token\":\"" TOKEN "\",\"op\":\"walk\",\"token\":\"" TOKEN "\"}",
        "{\"token\":\"" TOKEN "\",\"token\":\"x\",\"op\":\"walk\"}",
        "{\"token\":\"x\",\"token\":\"" TOKEN "\",\"op\":\"walk\"}",
        "{\"token\":\"" TOKEN "\",\"op\":\"walk\",\"token\":null}",
        "{\"token\":\"" TOKEN "\",\"op\":\"walk\",\"to\\u006ben\":{}}",
        "{\"token\":7,\"op\":\"walk\",\"token\":\"" TOKEN "\"}",
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
                                        "{\"token\":\"\",\"body\":{\"a\":[1]},\"op\":\"healthz\"}",
                                        "{\"token\":\"" TOKEN "\",\"token\":\"x\",\"op\":\"healthz\"}"};
    for (size_t i = 0; i < NSBX_LEN(asked); i++)
        check_frame((struct exchange){
            .token = TOKEN, .sent = asked[i], .replied = OK_FRAME, .opened = "open healthz -\nend\n"});
}

static void without_tokens_any_is_ignored(void)
{
    check_frame((struct exchange){.sent = WALK_WITH("\"anything\""), .replied = DONE_FRAME, .opened = OPENED_WALK});
    check_frame((struct exchange){.sent = WALK_WITH("{\"a\":1}"), .replied = DONE_FRAME, .opened = OPENED_WALK});
    check_frame((struct exchange){
        .sent = WALK_WITH("\"one\",\"token\":\"two\""), .replied = DONE_FRAME, .opened = OPENED_WALK});
}

static void the_first_token_is_trusted_for_good(void)
{
    channel_rig_open();
    rig.serve = answer;
    rig.config.require_token = true;
    rig_serve();
    ask_once("{\"op\":\"healthz\",\"token\":\"of a health question\"}", OK_FRAME);
    ask_once("{\"op\":\"walk\",\"token\":\"\"}", REFUSED("unauthorized"));
    ask_once("{\"op\":\"walk\",\"token\":\"second\",\"token\":\"second\"}", REFUSED("unauthorized"));
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
            raw_write(&host, drops < 9 ? &"0000ffff\n"[drops] : " ", 1);
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

int main(void)
{
    rig_open(); /* libuv's process-wide descriptors are made by the first loop */
    nsbx_loop_free(loop);
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
    return harness_done();
}
