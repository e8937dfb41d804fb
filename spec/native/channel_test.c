/* The table of operations, strings of any bytes, and both ends of the published carrier against each other. */
#include "channel_rig.h"

#include "channel/bytestr.h"
#include "channel/wire_priv.h"

/* ---- the table ---- */

static void every_row_is_found_by_its_name(void)
{
    size_t n;
    const struct nsbx_op_row *rows = nsbx_op_rows(&n);
    CHECK_INT(n, 9);
    for (size_t i = 0; i < n; i++)
        CHECK(nsbx_op_row(rows[i].name) == &rows[i]);
    CHECK(nsbx_op_row("") == NULL);
    CHECK(nsbx_op_row("health") == NULL);
    CHECK(nsbx_op_row("healthzz") == NULL);
}

static void every_feature_is_found_by_its_name(void)
{
    for (int i = 0; i < NSBX_FEATURE_COUNT; i++)
        CHECK_INT(nsbx_feature_of_name(nsbx_feature_name((enum nsbx_feature)i)), i);
    CHECK_INT(nsbx_feature_of_name("walks"), -1);
    CHECK_STR(nsbx_feature_name(NSBX_FEATURE_EXEC_BYTES), "exec-bytes");
}

/* ---- strings that hold any byte ---- */

static void check_bytestr(const char *bytes, size_t n, const char *json)
{
    json_t *value = nsbx_bytestr_make(bytes, n);
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY), *back = NULL;
    size_t len;
    CHECK_STR(text, json);
    CHECK_INT(nsbx_bytestr_read(value, "path", &back, &len, NULL), 0);
    CHECK_INT(len, n);
    CHECK(back && memcmp(back, bytes, n) == 0 && back[n] == 0);
    nsbx_free(back);
    free(text);
    json_decref(value);
}

static void a_string_is_plain_when_it_can_be(void)
{
    check_bytestr("", 0, "\"\"");
    check_bytestr("a/\xc3\xa4", 4, "\"a/\xc3\xa4\"");
    check_bytestr("a\0b", 3, "{\"base64\":\"YQBi\"}");
    check_bytestr("\xff", 1, "{\"base64\":\"/w==\"}");
    check_bytestr("\xc3", 1, "{\"base64\":\"ww==\"}");
}

static void what_is_neither_form_is_refused_by_name(void)
{
    static const char *const wrong[] = {"1",  "null",           "[]",
                                        "{}", "{\"base64\":1}", "{\"base64\":\"YQ\",\"more\":1}"};
    for (size_t i = 0; i < NSBX_LEN(wrong); i++) {
        json_t *value = json_loads(wrong[i], JSON_DECODE_ANY, NULL);
        char *out;
        size_t n;
        struct nsbx_err err;
        CHECK_INT(nsbx_bytestr_read(value, "args[3]", &out, &n, &err), -NSBX_E_INVALID);
        CHECK(strstr(err.message, "args[3]") != NULL);
        json_decref(value);
    }
}

/* ---- messages ---- */

/* jansson ignores what its callback says of a key. */
static void a_message_is_written_whole_or_not_at_all(void)
{
    char key[300];
    memset(key, 'k', sizeof(key));
    key[sizeof(key) - 1] = 0;
    json_t *message = json_pack("{s:b}", key, 1);
    for (unsigned long nth = 1; nth < 8; nth++) {
        struct nsbx_buf out;
        struct nsbx_err err;
        nsbx_buf_init(&out, NSBX_MAX_MESSAGE_REST);
        nsbx_alloc_fail_at(nth);
        int rc = nsbx_wire_put_message(&out, message, &err);
        nsbx_alloc_fail_at(0);
        CHECK(rc == 0 ? out.len == NSBX_FRAME_HEADER + strlen(key) + 9 : rc == -NSBX_E_LIMIT);
        nsbx_buf_free(&out);
    }
    json_decref(message);
}

/* ---- both ends ---- */

/* What a small agent answers. */
static void serve(struct heard *h, char what)
{
    const char *op = h->ch ? nsbx_channel_op(h->ch)->name : "";
    if (what == 'f') {
        heard_close(h);
    } else if (what == 'e' && strcmp(op, "execute") == 0) {
        CHECK_INT(heard_put(h, NSBX_SUB_STDOUT, text_of(&h->data[0]), h->data[0].n, -1), 0);
        CHECK_INT(heard_put(h, NSBX_SUB_STDERR, "\xff!", 2, -1), 0);
        CHECK_INT(heard_send(h, json_pack("{s:s,s:i}", "type", "result", "exitCode", 3)), 0);
        CHECK_INT(heard_finish(h), 0);
        heard_close(h);
    } else if (what == 'e' && strcmp(op, "read-file") == 0) {
        h->in_call = true;
        CHECK_INT(nsbx_channel_send_large(h->ch, json_pack("{s:b,s:s}", "ok", 1, "encoding", "base64"),
                                          NSBX_LARGE_BASE64, 7, NULL),
                  0);
        CHECK_INT(nsbx_channel_data(h->ch, NSBX_SUB_MAIN, (const uint8_t *)"a", 1, -1, NULL), 0);
        CHECK_INT(nsbx_channel_data(h->ch, NSBX_SUB_MAIN, (const uint8_t *)"bcdef", 5, -1, NULL), 0);
        CHECK_INT(nsbx_channel_end(h->ch, NULL), -NSBX_E_INVALID);
        CHECK_INT(nsbx_channel_data(h->ch, NSBX_SUB_MAIN, (const uint8_t *)"\xff\xff", 2, -1, NULL),
                  -NSBX_E_INVALID);
        CHECK_INT(nsbx_channel_data(h->ch, NSBX_SUB_MAIN, (const uint8_t *)"\xff", 1, -1, NULL), 0);
        h->in_call = false;
        CHECK_INT(heard_finish(h), 0);
        heard_close(h);
    } else if (what == 'e' && strcmp(op, "read-file-stream") == 0) {
        CHECK_INT(heard_send(h, json_pack("{s:s,s:i}", "type", "meta", "length", 5)), 0);
        CHECK_INT(heard_put(h, NSBX_SUB_MAIN, "wor\0d", 5, -1), 0);
        CHECK_INT(heard_send(h, json_pack("{s:s,s:i}", "type", "end", "bytesSent", 5)), 0);
        CHECK_INT(heard_finish(h), 0);
        heard_close(h);
    } else if (what == 'e') {
        CHECK_INT(heard_send(h, json_pack("{s:b,s:I}", "ok", 1, "bytesWritten", (json_int_t)h->bytes)), 0);
        CHECK_INT(heard_finish(h), 0);
        heard_close(h);
    }
}

static void ask_and_compare(struct nsbx_single_request request, const char *guest, const char *host)
{
    struct heard h = {0};
    channel_rig_open();
    rig.serve = serve;
    rig_serve();
    CHECK_INT(rig_ask(&h, request), 0);
    TURN_UNTIL(heard_all(&h), 10000);
    CHECK_INT(rig.n_served, 1);
    CHECK_STR(rig.n_served ? text_of(&rig.served[0]->log) : "", guest);
    CHECK_STR(text_of(&h.log), host);
    heard_free(&h);
    channel_rig_close();
    json_decref(request.body);
}

static void a_control_operation(void)
{
    ask_and_compare((struct nsbx_single_request){.op = "healthz"}, "open healthz -\nend\n",
                    "message {\"ok\":true,\"bytesWritten\":0}\nend\n");
    ask_and_compare((struct nsbx_single_request){.op = "reserve-execution",
                                                 .body = json_pack("{s:s}", "executionId", "exec_1")},
                    "open reserve-execution {\"executionId\":\"exec_1\"}\nend\n",
                    "message {\"ok\":true,\"bytesWritten\":0}\nend\n");
}

static void a_body_travels_as_data(void)
{
    ask_and_compare(
        (struct nsbx_single_request){.op = "write-file",
                                     .body = json_pack("{s:s,s:s}", "path", "a", "encoding", "base64"),
                                     .large = (const uint8_t *)"\x00\x01\xff\xfe",
                                     .large_len = 4,
                                     .large_base64 = true},
        "open write-file {\"path\":\"a\",\"encoding\":\"base64\",\"content\":\"\"}\ndata 0 \x00\x01\xff\xfe\nend\n",
        "message {\"ok\":true,\"bytesWritten\":4}\nend\n");
    ask_and_compare((struct nsbx_single_request){.op = "write-file",
                                                 .body = json_pack("{s:s}", "path", "a"),
                                                 .large = (const uint8_t *)""},
                    "open write-file {\"path\":\"a\",\"content\":\"\"}\nend\n",
                    "message {\"ok\":true,\"bytesWritten\":0}\nend\n");
    ask_and_compare(
        (struct nsbx_single_request){.op = "write-file", .large = (const uint8_t *)"\"\xff\\", .large_len = 3},
        "open write-file {\"content\":\"\"}\ndata 0 \"\xef\xbf\xbd\\\nend\n",
        "message {\"ok\":true,\"bytesWritten\":5}\nend\n");
}

static void an_execution_with_text(void)
{
    ask_and_compare(
        (struct nsbx_single_request){.op = "execute",
                                     .body = json_pack("{s:s}", "command", "cat"),
                                     .large = (const uint8_t *)"h\xc3\xa4 \"",
                                     .large_len = 5},
        "open execute {\"command\":\"cat\",\"stdin\":\"\"}\ndata 0 h\xc3\xa4 \"\nend\n",
        "data 1 h\xc3\xa4 \"\ndata 2 \xef\xbf\xbd!\nmessage {\"type\":\"result\",\"exitCode\":3}\nend\n");
}

static void an_execution_with_bytes(void)
{
    ask_and_compare((struct nsbx_single_request){.op = "execute",
                                                 .body = json_pack("{s:s}", "encoding", "base64"),
                                                 .data_base64 = true},
                    "open execute {\"encoding\":\"base64\"}\nend\n",
                    "data 2 \xff!\nmessage {\"type\":\"result\",\"exitCode\":3}\nend\n");
}

static void files_come_as_bytes(void)
{
    ask_and_compare((struct nsbx_single_request){.op = "read-file-stream"}, "open read-file-stream -\nend\n",
                    "message {\"type\":\"meta\",\"length\":5}\ndata 0 wor");
    ask_and_compare((struct nsbx_single_request){.op = "read-file", .data_base64 = true}, "open read-file -\nend\n",
                    "data 0 abcdef\xff\nmessage {\"ok\":true,\"encoding\":\"base64\",\"content\":\"\"}\nend\n");
}

int main(void)
{
    rig_open(); /* libuv's process-wide descriptors are made by the first loop */
    nsbx_loop_free(loop);
    RUN(every_row_is_found_by_its_name);
    RUN(every_feature_is_found_by_its_name);
    RUN(a_string_is_plain_when_it_can_be);
    RUN(what_is_neither_form_is_refused_by_name);
    RUN(a_message_is_written_whole_or_not_at_all);
    for (rig.io = 0; rig.io < 2; rig.io++) {
        RUN(a_control_operation);
        RUN(a_body_travels_as_data);
        RUN(an_execution_with_text);
        RUN(an_execution_with_bytes);
        RUN(files_come_as_bytes);
    }
    return harness_done();
}
