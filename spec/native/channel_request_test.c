/* The host's end of the published carrier: its requests byte for byte, its dialling, its clocks, and data both ways. */
#include "channel_rig.h"

/* ---- the request ---- */

static void check_request(struct nsbx_single_request request, const char *want)
{
    struct heard h = {0};
    struct text frame = {0};
    text_frame(&frame, want);
    channel_rig_open();
    CHECK_INT(nsbx_single_envelope_len(&request), strlen(want));
    CHECK_INT(rig_ask(&h, request), 0);
    TURN_UNTIL(rig.guest.got.n >= frame.n, 10000);
    turn_for(2);
    CHECK_STR(text_of(&rig.guest.got), frame.p);
    CHECK(!rig.guest.eof); /* a guest would take a half-close for a loss */
    heard_close(&h);
    TURN_UNTIL(raw_over(&rig.guest), 10000);
    heard_free(&h);
    text_free(&frame);
    json_decref(request.body);
    channel_rig_close();
}

static void requests_say_the_token_first_and_the_large_member_last(void)
{
    check_request((struct nsbx_single_request){.op = "healthz"}, "{\"op\":\"healthz\"}");
    check_request((struct nsbx_single_request){.op = "reserve-execution", .token = "t\"\xc3\xa4"},
                  "{\"op\":\"reserve-execution\",\"token\":\"t\\\"\xc3\xa4\"}");
    check_request(
        (struct nsbx_single_request){.op = "execute", .token = "t", .body = json_pack("{s:s}", "command", "sh")},
        "{\"op\":\"execute\",\"token\":\"t\",\"body\":{\"command\":\"sh\"}}");
    check_request(
        (struct nsbx_single_request){
            .op = "execute", .body = json_object(), .large = (const uint8_t *)"a\n\"\x01", .large_len = 4},
        "{\"op\":\"execute\",\"body\":{\"stdin\":\"a\\n\\\"\\u0001\"}}");
    check_request((struct nsbx_single_request){.op = "write-file",
                                               .token = "t",
                                               .body = json_pack("{s:s,s:s}", "path", "p", "encoding", "base64"),
                                               .large = (const uint8_t *)"hello ",
                                               .large_len = 6,
                                               .large_base64 = true},
                  "{\"op\":\"write-file\",\"token\":\"t\",\"body\":{\"path\":\"p\",\"encoding\":\"base64\","
                  "\"content\":\"aGVsbG8g\"}}");
}

static size_t decode_content(const struct text *got, uint8_t *out)
{
    const char *text = strstr(got->p, "\"content\":\"");
    struct nsbx_base64_decoder decoder;
    if (!text)
        return 0;
    text += 11;
    nsbx_base64_decoder_init(&decoder);
    size_t len = strcspn(text, "\"");
    size_t n = nsbx_base64_decode(&decoder, out, (const uint8_t *)text, len);
    CHECK_STR(text + len, "\"}}");
    return n + nsbx_base64_decode_end(&decoder, out + n);
}

static void bodies_of_any_size_are_announced_exactly(void)
{
    static const size_t sizes[] = {0, 1, 2, 3, 196607, 196608, 196609, 393216, 3 << 20};
    uint8_t *body = malloc(3 << 20), *back = malloc((3 << 20) + 8);
    fill(body, 3 << 20, 0);
    for (size_t i = 0; i < NSBX_LEN(sizes); i++) {
        struct heard h = {0};
        struct nsbx_single_request request = {
            .op = "write-file", .large = body, .large_len = sizes[i], .large_base64 = true};
        size_t len = nsbx_single_envelope_len(&request);
        channel_rig_open();
        CHECK_INT(rig_ask(&h, request), 0);
        TURN_UNTIL(rig.guest.got.n >= len + 9, 10000);
        turn_for(2);
        CHECK_INT(rig.guest.got.n, len + 9);
        CHECK_INT(strtoul(text_of(&rig.guest.got), NULL, 16), len);
        CHECK_INT(decode_content(&rig.guest.got, back), sizes[i]);
        CHECK(is_filled(back, sizes[i], 0));
        heard_free(&h);
        channel_rig_close();
    }
    free(body);
    free(back);
}

/* Characters of three bytes lie over every border of the steps in which text is made. */
static void text_of_any_size_is_announced_exactly(void)
{
    static const size_t sizes[] = {0, 1, 2, 3, 16383, 16384, 16385, 100000};
    char *body = malloc(100002);
    for (size_t i = 0; i < 100000; i += 3)
        memcpy(body + i, "\xe2\x82\xac", 3);
    for (size_t i = 0; i < NSBX_LEN(sizes); i++) {
        struct heard h = {0};
        struct nsbx_single_request request = {
            .op = "write-file", .large = (const uint8_t *)body, .large_len = sizes[i]};
        size_t len = nsbx_single_envelope_len(&request);
        channel_rig_open();
        CHECK_INT(rig_ask(&h, request), 0);
        TURN_UNTIL(rig.guest.got.n >= len + 9, 10000);
        turn_for(2);
        CHECK_INT(rig.guest.got.n, len + 9);
        json_error_t problem;
        json_t *message = rig.guest.got.p ? json_loads(rig.guest.got.p + 9, 0, &problem) : NULL;
        const char *content = json_string_value(json_object_get(json_object_get(message, "body"), "content"));
        CHECK(content && strlen(content) == sizes[i] / 3 * 3 + (sizes[i] % 3 ? 3 : 0));
        CHECK(content && memcmp(content, body, sizes[i] / 3 * 3) == 0);
        json_decref(message);
        heard_free(&h);
        channel_rig_close();
    }
    free(body);
}

static void a_request_beyond_the_frame_limit_is_not_dialled(void)
{
    struct nsbx_single_request request = {
        .op = "write-file", .large = (const uint8_t *)"abcdef", .large_len = 6, .large_base64 = true};
    size_t len = nsbx_single_envelope_len(&request);
    struct heard h = {0};
    channel_rig_open();
    request.max_frame = len - 1;
    CHECK_INT(rig_ask(&h, request), -NSBX_E_LIMIT);
    CHECK_INT(rig.dials, 0);
    request.max_frame = len;
    CHECK_INT(rig_ask(&h, request), 0);
    TURN_UNTIL(rig.guest.got.n == len + 9, 10000);
    heard_free(&h);
    h = (struct heard){0};
    CHECK_INT(rig_ask(&h, (struct nsbx_single_request){.op = "no-such"}), -NSBX_E_INVALID);
    CHECK_INT(rig_ask(&h, (struct nsbx_single_request){.op = "walk", .large = (const uint8_t *)""}),
              -NSBX_E_INVALID);
    CHECK_INT(rig_ask(&h, (struct nsbx_single_request){.op = "walk", .token = "\xff"}), -NSBX_E_INVALID);
    CHECK_INT(rig.dials, 1);
    heard_free(&h);
    channel_rig_close();
}

static void a_refusal_is_heard_while_the_request_is_still_going_out(void)
{
    struct heard h = {0};
    struct text bytes = {0};
    uint8_t *body = calloc(1, 8 << 20);
    channel_rig_open();
    CHECK_INT(rig_ask(&h,
                      (struct nsbx_single_request){
                          .op = "write-file", .large = body, .large_len = 8 << 20, .large_base64 = true}),
              0);
    TURN_UNTIL(rig.guest.s, 10000);
    nsbx_stream_read_stop(rig.guest.s);
    text_frame(&bytes, "{\"ok\":false,\"error\":\"frame_too_large: …\"}");
    raw_write(&rig.guest, bytes.p, bytes.n);
    CHECK_INT(nsbx_stream_shutdown(rig.guest.s, NULL), 0);
    TURN_UNTIL(heard_all(&h), 10000);
    CHECK_STR(text_of(&h.log), "message {\"ok\":false,\"error\":\"frame_too_large: …\"}\nend\n");
    CHECK(rig.guest.got.n < 2 << 20);
    heard_free(&h);
    text_free(&bytes);
    free(body);
    channel_rig_close();
}

/* ---- dialling ---- */

static bool is_permanent(void *ud, const struct nsbx_err *err)
{
    (void)ud;
    return err->sys == ECONNREFUSED;
}

static void the_dial_is_tried_again_within_its_budget(void)
{
    struct heard h = {0};
    channel_rig_open();
    rig.dials_to_fail = 2;
    CHECK_INT(rig_ask(&h, (struct nsbx_single_request){.op = "healthz", .dial_budget_ms = 1000}), 0);
    TURN_UNTIL(rig.guest.got.n, 10000);
    CHECK_INT(rig.dials, 3);
    CHECK_INT(h.fails, 0);
    heard_free(&h);
    channel_rig_close();
}

static void a_dial_that_fails_proves_that_nothing_was_sent(void)
{
    static const struct nsbx_single_request requests[] = {
        {.op = "healthz", .dial_budget_ms = -1},
        {.op = "healthz", .dial_budget_ms = 150},
        {.op = "healthz", .dial_budget_ms = 30000, .permanent = is_permanent},
    };
    static const int dials[] = {1, 3, 1};
    for (size_t i = 0; i < NSBX_LEN(requests); i++) {
        struct heard h = {0};
        channel_rig_open();
        rig.dials_to_fail = 1000;
        CHECK_INT(rig_ask(&h, requests[i]), 0);
        TURN_UNTIL(heard_all(&h), 10000);
        CHECK_INT(h.code, NSBX_E_UNREACHABLE);
        CHECK_INT(rig.dials, dials[i]);
        heard_free(&h);
        channel_rig_close();
    }
}

static void a_channel_closes_while_it_dials_or_sends(void)
{
    for (int turns = 0; turns < 6; turns++) {
        struct heard h = {0};
        uint8_t *body = calloc(1, 4 << 20);
        channel_rig_open();
        rig.dials_to_fail = turns == 3;
        CHECK_INT(rig_ask(&h, (struct nsbx_single_request){.op = "write-file",
                                                           .dial_budget_ms = 1000,
                                                           .large = body,
                                                           .large_len = 4 << 20,
                                                           .large_base64 = true}),
                  0);
        for (int i = 0; i < turns; i++)
            nsbx_loop_turn(loop, NSBX_TURN_POLL);
        heard_close(&h);
        free(body);
        turn_for(1);
        CHECK_INT(heard_all(&h), 0);
        heard_free(&h);
        channel_rig_close();
    }
}

/* ---- clocks and windows ---- */

static void silence_times_out(void)
{
    struct heard h = {0};
    channel_rig_open();
    CHECK_INT(rig_ask(&h, (struct nsbx_single_request){.op = "execute", .idle_ms = 400}), 0);
    for (int i = 0; i < 4; i++) { /* any byte keeps it alive */
        turn_for(150);
        raw_write(&rig.guest, &"00000000\n"[i], 1);
    }
    CHECK_INT(h.fails, 0);
    TURN_UNTIL(heard_all(&h), 10000);
    CHECK_INT(h.code, NSBX_E_TIMEOUT);
    heard_free(&h);
    channel_rig_close();
}

static void make_chunks(struct text *frames, size_t total)
{
    uint8_t raw[48 * 1024];
    char letters[64 * 1024 + 1];
    for (size_t at = 0; at < total; at += sizeof(raw)) {
        size_t n = NSBX_MIN(sizeof(raw), total - at);
        struct text json = {0};
        fill(raw, n, at);
        letters[nsbx_base64_encode(letters, raw, n)] = 0;
        text_printf(&json, "{\"type\":\"data\",\"data\":\"%s\"}", letters);
        text_frame(frames, json.p);
        text_free(&json);
    }
    text_frame(frames, "");
}

static void a_reader_that_stops_stops_the_guest_and_no_clock_runs(void)
{
    struct heard h = {.keep = true, .count_only = true};
    struct text frames = {0};
    const size_t total = 8 << 20;
    make_chunks(&frames, total);
    channel_rig_open();
    CHECK_INT(rig_ask(&h, (struct nsbx_single_request){.op = "read-file-stream", .idle_ms = 400}), 0);
    rig_settle();
    raw_write(&rig.guest, frames.p, frames.n);
    text_free(&frames);
    CHECK_INT(nsbx_stream_shutdown(rig.guest.s, NULL), 0);
    turn_for(700);
    CHECK_INT(heard_all(&h), 0);
    CHECK(h.bytes > NSBX_CHANNEL_WINDOW);
    CHECK(h.bytes <= NSBX_CHANNEL_WINDOW + NSBX_STREAM_READ_CHUNK);
    while (!heard_all(&h)) { /* a slow reader: half a window at a time, back to a full one */
        uint64_t before = h.bytes;
        nsbx_channel_consumed(h.ch, NSBX_CHANNEL_WINDOW / 2 + NSBX_STREAM_READ_CHUNK);
        turn_for(2);
        CHECK(h.bytes - before <= NSBX_CHANNEL_WINDOW + NSBX_STREAM_READ_CHUNK);
        REQUIRE(h.bytes > before || heard_all(&h));
    }
    CHECK_INT(h.bytes, total);
    CHECK_INT(h.wrong, 0);
    CHECK_STR(text_of(&h.log), "end\n");
    heard_free(&h);
    channel_rig_close();
}

static void messages_that_are_kept_count_too(void)
{
    struct heard h = {0};
    struct text frames = {0};
    channel_rig_open();
    CHECK_INT(rig_ask(&h, (struct nsbx_single_request){.op = "walk"}), 0);
    rig_settle();
    nsbx_channel_hold(h.ch, NSBX_CHANNEL_WINDOW + 1);
    text_frame(&frames, "{\"type\":\"entries\"}");
    raw_write(&rig.guest, frames.p, frames.n);
    turn_for(20);
    CHECK_INT(h.messages, 0);
    nsbx_channel_consumed(h.ch, NSBX_CHANNEL_WINDOW + 1);
    TURN_UNTIL(h.messages, 10000);
    heard_free(&h);
    text_free(&frames);
    channel_rig_close();
}

/* ---- data to the guest ---- */

static void data_before_the_connection_follows_the_request(void)
{
    struct heard h = {0};
    struct text want = {0};
    json_t *body = json_pack("{s:b}", "stdinStream", 1);
    channel_rig_open();
    rig.dials_to_fail = 1;
    CHECK_INT(rig_ask(&h, (struct nsbx_single_request){.op = "execute", .body = body, .dial_budget_ms = 1000}), 0);
    CHECK_INT(nsbx_channel_room(h.ch), NSBX_CHANNEL_WINDOW);
    CHECK_INT(heard_put(&h, NSBX_SUB_MAIN, "\xff\x00", 2, -1), 0);
    CHECK(nsbx_channel_room(h.ch) < NSBX_CHANNEL_WINDOW);
    text_frame(&want, "{\"op\":\"execute\",\"body\":{\"stdinStream\":true}}");
    text_frame(&want, "{\"type\":\"stdin\",\"data\":\"/wA=\"}");
    TURN_UNTIL(rig.guest.got.n == want.n, 10000);
    CHECK_INT(heard_put(&h, NSBX_SUB_MAIN, "more", 4, -1), 0);
    CHECK_INT(heard_finish(&h), 0);
    CHECK_INT(heard_finish(&h), 0);
    CHECK_INT(heard_put(&h, NSBX_SUB_MAIN, "late", 4, -1), -NSBX_E_INVALID);
    text_frame(&want, "{\"type\":\"stdin\",\"data\":\"bW9yZQ==\"}");
    text_frame(&want, "{\"type\":\"stdin_end\"}");
    TURN_UNTIL(rig.guest.got.n == want.n, 10000);
    CHECK_STR(text_of(&rig.guest.got), want.p);
    heard_free(&h);
    text_free(&want);
    json_decref(body);
    channel_rig_close();
}

static void data_waits_for_room(void)
{
    struct heard h = {0};
    json_t *body = json_pack("{s:b}", "stdinStream", 1);
    static char block[64 * 1024];
    channel_rig_open();
    CHECK_INT(rig_ask(&h, (struct nsbx_single_request){.op = "execute", .body = body}), 0);
    TURN_UNTIL(rig.guest.got.n, 10000);
    nsbx_stream_read_stop(rig.guest.s);
    int drains = h.drains;
    while (nsbx_channel_room(h.ch) > 0)
        CHECK_INT(heard_put(&h, NSBX_SUB_MAIN, block, sizeof(block), -1), 0);
    turn_for(10);
    CHECK_INT(h.drains, drains);
    nsbx_stream_read_start(rig.guest.s);
    TURN_UNTIL(h.drains > drains, 10000);
    CHECK_INT(nsbx_channel_room(h.ch), NSBX_CHANNEL_WINDOW);
    heard_free(&h);
    json_decref(body);
    channel_rig_close();
}

static void an_operation_without_data_to_the_guest_sends_none(void)
{
    struct heard h = {0};
    struct text want = {0};
    channel_rig_open();
    CHECK_INT(rig_ask(&h, (struct nsbx_single_request){.op = "execute"}), 0);
    CHECK_INT(heard_put(&h, NSBX_SUB_MAIN, "x", 1, -1), -NSBX_E_INVALID);
    CHECK_INT(heard_send(&h, json_object()), -NSBX_E_INVALID);
    CHECK_INT(nsbx_channel_send(h.ch, NULL, NULL), -NSBX_E_LIMIT);
    CHECK_INT(heard_finish(&h), 0);
    CHECK_INT(nsbx_channel_refuse(h.ch, json_object(), NULL), -NSBX_E_INVALID);
    CHECK_INT(nsbx_channel_send_large(h.ch, json_object(), NSBX_LARGE_BASE64, 1, NULL), -NSBX_E_INVALID);
    text_frame(&want, "{\"op\":\"execute\"}");
    TURN_UNTIL(rig.guest.got.n >= want.n, 10000);
    turn_for(5);
    CHECK_STR(text_of(&rig.guest.got), want.p);
    heard_free(&h);
    text_free(&want);
    channel_rig_close();
}

/* ---- closing from inside ---- */

static char close_at;
static void close_self(struct heard *h, char what)
{
    if (what == close_at)
        heard_close(h);
}

static void a_callback_may_close_its_channel(void)
{
    static const char events[] = {'m', 'd', 'e', 'f'};
    for (size_t i = 0; i < NSBX_LEN(events); i++) {
        struct heard h = {.hook = close_self};
        struct text bytes = {0};
        close_at = events[i];
        channel_rig_open();
        CHECK_INT(rig_ask(&h, (struct nsbx_single_request){.op = "read-file-stream"}), 0);
        rig_settle();
        text_frame(&bytes, "{\"type\":\"meta\"}");
        text_frame(&bytes, "{\"type\":\"data\",\"data\":\"YWJj\"}");
        text_frame(&bytes, "{\"type\":\"data\",\"data\":\"YWJj\"}");
        if (close_at != 'f')
            text_frame(&bytes, "");
        raw_write(&rig.guest, bytes.p, bytes.n);
        CHECK_INT(nsbx_stream_shutdown(rig.guest.s, NULL), 0);
        TURN_UNTIL(!h.ch, 10000);
        turn_for(2);
        heard_free(&h);
        text_free(&bytes);
        channel_rig_close();
    }
}

int main(void)
{
    rig_open(); /* libuv's process-wide descriptors are made by the first loop */
    nsbx_loop_free(loop);
    RUN(requests_say_the_token_first_and_the_large_member_last);
    RUN(bodies_of_any_size_are_announced_exactly);
    RUN(text_of_any_size_is_announced_exactly);
    RUN(a_request_beyond_the_frame_limit_is_not_dialled);
    RUN(a_refusal_is_heard_while_the_request_is_still_going_out);
    RUN(the_dial_is_tried_again_within_its_budget);
    RUN(a_dial_that_fails_proves_that_nothing_was_sent);
    RUN(a_channel_closes_while_it_dials_or_sends);
    RUN(silence_times_out);
    RUN(a_reader_that_stops_stops_the_guest_and_no_clock_runs);
    RUN(messages_that_are_kept_count_too);
    RUN(data_before_the_connection_follows_the_request);
    RUN(data_waits_for_room);
    RUN(an_operation_without_data_to_the_guest_sends_none);
    RUN(a_callback_may_close_its_channel);
    return harness_done();
}
