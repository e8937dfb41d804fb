/* An operation under way on the guest's end: what the host sends after its request, output, and how the connection ends. */
#include "channel_guest_rig.h"

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

int main(void)
{
    rig_open(); /* libuv's process-wide descriptors are made by the first loop */
    nsbx_loop_free(loop);
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
    return harness_done();
}
