/* Guests, features, refusals, files and walks against a scripted guest. */
#include "guest_rig.h"
#include "transport/exec_output_priv.h"
#include "transport/exec_result_priv.h"
#include "transport/file.h"
#include "transport/walk.h"

#include <math.h>

#define FIN "{\"fin\":true}"
#define END "{\"end\":true}"
#define RST "{\"rst\":true}"
#define SILENCE "{\"silence\":true}"
#define REFUSE(word) "{\"send\":{\"ok\":false,\"error\":\"" word "\"}}," FIN
#define ON(op, steps) "{\"ops\":{\"" op "\":[[" steps "]]}}"

enum { FAST = 5 };

static uint8_t *noise(size_t n)
{
    uint8_t *bytes = nsbx_malloc(n + 1);
    uint32_t x = 12345;
    for (size_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)(x >> 24);
    }
    return bytes;
}

/* ---- guests ---- */

static void health_tells_and_fills_the_cache(void)
{
    guest_rig_open(NSBX_ARM_UNIX, 1, "{\"features\":[\"walk\",\"time-travel\",\"exec-bytes\",7]}");
    CHECK(nsbx_guest_known(guest) == NULL);
    struct nsbx_op *op = nsbx_guest_health(guest, 5000);
    WAIT_OP(op);
    REQUIRE(nsbx_op_state(op) == NSBX_OP_DONE);
    const struct nsbx_health *health = nsbx_op_result(op);
    CHECK(health->ok && !health->retiring && health->protocol_version == 2);
    CHECK(health->features[NSBX_FEATURE_WALK] && health->features[NSBX_FEATURE_EXEC_BYTES]);
    CHECK(!health->features[NSBX_FEATURE_SIGNAL]);
    nsbx_op_unref(op);
    REQUIRE(nsbx_guest_known(guest) != NULL);
    CHECK(nsbx_guest_known(guest)->features[NSBX_FEATURE_WALK]);
    CHECK_INT(finish_op(nsbx_guest_health(guest, 5000)).code, 0); /* asks anew */
    CHECK_INT(ASKED("healthz"), 2);
    guest_rig_close();
}

static void health_of_odd_guests(void)
{
    guest_rig_open(
        NSBX_ARM_UNIX, FAST,
        ON("healthz",
           "{\"send\":{\"ok\":false,\"protocolVersion\":2,\"features\":[\"walk\"],\"retiring\":true}}," FIN));
    struct nsbx_op *op = nsbx_guest_health(guest, 5000);
    WAIT_OP(op);
    REQUIRE(nsbx_op_state(op) == NSBX_OP_DONE);
    const struct nsbx_health *health = nsbx_op_result(op);
    CHECK(!health->ok && health->retiring && health->features[NSBX_FEATURE_WALK]);
    nsbx_op_unref(op);
    guest_rig_close();

    static const struct {
        const char *script;
        int code;
    } odd[] = {
        {ON("healthz", REFUSE("too_many_unauthenticated_connections: limit 64")), NSBX_E_CAPACITY},
        {ON("healthz", "{\"send\":{\"ok\":true,\"protocolVersion\":1}}," FIN), NSBX_E_PROTOCOL},
        {ON("healthz", "{\"send\":{\"ok\":true}}," FIN), NSBX_E_PROTOCOL},
        {ON("healthz", "{\"send\":{\"ok\":true,\"protocolVersion\":2}},{\"send\":{\"ok\":true}}," FIN),
         NSBX_E_PROTOCOL},
        {ON("healthz", "{\"raw\":\"HTTP/1.1 400 Bad Request\\r\\n\\r\\n\"}," FIN), NSBX_E_PROTOCOL},
        {ON("healthz", FIN), NSBX_E_STREAM_LOST},
        {ON("healthz", END "," FIN), NSBX_E_PROTOCOL},
        {ON("healthz", SILENCE), NSBX_E_TIMEOUT},
    };
    for (size_t i = 0; i < NSBX_LEN(odd); i++) {
        guest_rig_open(NSBX_ARM_UNIX, FAST, odd[i].script);
        struct nsbx_err err = finish_op(nsbx_guest_health(guest, 700));
        CHECK_INT(err.code, odd[i].code);
        CHECK(err.message[0]);
        CHECK(nsbx_guest_known(guest) == NULL);
        guest_rig_close();
    }
}

/* Two wait for one answer; one gives up. The other still gets it, and when both give up the question is taken back. */
static void one_question_for_all(void)
{
    guest_rig_open(NSBX_ARM_UNIX, 1, ON("healthz", "{\"sleep\":0.2},{\"builtin\":true}"));
    struct nsbx_op *one = nsbx_guest_health(guest, 50), *two = nsbx_guest_health(guest, 5000);
    CHECK_INT(finish_op(one).code, NSBX_E_TIMEOUT);
    CHECK_INT(finish_op(two).code, 0);
    CHECK_INT(ASKED("healthz"), 1);
    one = nsbx_guest_health(guest, 50);
    two = nsbx_guest_health(guest, 50);
    CHECK_INT(finish_op(one).code, NSBX_E_TIMEOUT);
    nsbx_op_cancel(two);
    CHECK(finish_op(two).code != 0);
    CHECK(guest->probe == NULL);
    guest_rig_close();
}

static void another_boot_id_is_another_guest(void)
{
    json_t *first = json_pack("{s:s}", "guestBootId", "aaaa"), *second = json_pack("{s:s}", "guestBootId", "bbbb");
    guest_rig_open(NSBX_ARM_UNIX, 1, "{}");
    CHECK_STR(nsbx_guest_boot_id(guest), "");
    CHECK_INT(finish_op(nsbx_guest_health(guest, 5000)).code, 0);
    nsbx_guest_saw(guest, first);
    CHECK_STR(nsbx_guest_boot_id(guest), "aaaa");
    CHECK(nsbx_guest_known(guest) != NULL);
    nsbx_guest_saw(guest, first);
    CHECK(nsbx_guest_known(guest) != NULL);
    nsbx_guest_saw(guest, second);
    CHECK_STR(nsbx_guest_boot_id(guest), "bbbb");
    CHECK(nsbx_guest_known(guest) == NULL);
    json_decref(first);
    json_decref(second);
    guest_rig_close();
}

static void addresses_are_checked(void)
{
    struct nsbx_err err;
    struct nsbx_guest *g = NULL;
    rig_open();
    struct nsbx_guest_options none = {.arm = NSBX_ARM_UNIX}, no_port = {.arm = NSBX_ARM_TCP, .host = "127.0.0.1"};
    CHECK_INT(nsbx_guest_new(loop, &none, &g, &err), -NSBX_E_INVALID);
    CHECK_INT(nsbx_guest_new(loop, &no_port, &g, &err), -NSBX_E_INVALID);
    rig_close();
}

/* ---- refusals ---- */

static void refusals_become_errors(void)
{
    static const struct {
        const char *json;
        int code, sys;
        const char *reason, *has;
    } cases[] = {
        {"{\"error\":\"unauthorized\"}", NSBX_E_FORBIDDEN, 0, "unauthorized", "unauthorized"},
        {"{\"error\":\"unknown_op: walk\"}", NSBX_E_UNSUPPORTED, 0, "unknown_op", "walk"},
        {"{\"error\":\"ENOENT: no such file or directory, open '/x/EACCES: y'\"}", NSBX_E_NOT_FOUND, ENOENT,
         "ENOENT", "no such file"},
        {"{\"error\":\"EISDIR: illegal operation on a directory, read\"}", NSBX_E_INVALID, EISDIR, "EISDIR",
         "illegal"},
        {"{\"error\":\"spawn EACCES ENOENT\"}", NSBX_E_NOT_FOUND, ENOENT, "ENOENT", "spawn"},
        {"{\"error\":\"mkdir_failed: EACCES: permission denied\"}", NSBX_E_FORBIDDEN, EACCES, "mkdir_failed",
         "denied"},
        {"{\"error\":\"whatever broke\",\"code\":\"ENOSPC\"}", 0, ENOSPC, "ENOSPC", "whatever"},
        {"{\"error\":\"walk_limit: more than 5\",\"code\":\"ERR_FILE_WALK_LIMIT\"}", NSBX_E_LIMIT, 0, "walk_limit",
         "more than 5"},
        {"{\"error\":\"path escapes the workspace\"}", NSBX_E_FORBIDDEN, 0, "outside_workspace", "escapes"},
        {"{\"error\":\"symlink escapes the workspace\"}", NSBX_E_FORBIDDEN, 0, "outside_workspace", "symlink"},
        {"{\"error\":\"cancellation_unconfirmed\",\"message\":\"a group is left\"}", NSBX_E_REFUSED, 0,
         "cancellation_unconfirmed", "a group is left"},
        {"{\"error\":\"invalid_something_new: x\"}", NSBX_E_INVALID, 0, "invalid_something_new", "x"},
        {"{\"error\":\"a\\u001b[31mred\\nb\\u0000c\"}", NSBX_E_REFUSED, 0, "", "a?[31mred?b"},
        {"{\"error\":5}", NSBX_E_PROTOCOL, 0, "", "without saying why"},
        {"{}", NSBX_E_PROTOCOL, 0, "", "without saying why"},
    };
    for (size_t i = 0; i < NSBX_LEN(cases); i++) {
        struct nsbx_err err = {0};
        json_t *frame = json_loads(cases[i].json, JSON_ALLOW_NUL, NULL);
        int code = cases[i].code ? cases[i].code : nsbx_code_of_errno(cases[i].sys);
        CHECK_INT(nsbx_guest_refusal(frame, &err), -code);
        CHECK_ERR(err, code, cases[i].reason);
        CHECK_INT(err.sys, cases[i].sys);
        CHECK_HAS(err.message, cases[i].has);
        json_decref(frame);
    }
    char text[2000], line[64];
    memset(text, 'x', sizeof text);
    memcpy(text + 62, "\xc3\xa9", 2);
    text[sizeof text - 1] = '\0';
    nsbx_guest_one_line(line, sizeof line, text); /* the cut would halve a character */
    CHECK_INT(strlen(line), 62);
}

static void reservations_are_checked(void)
{
    static const char *const bad[] = {
        "exec_3b0f6c1a-2d44-4e0b-9c1e-5a7f00d1e2c",  "exec_3b0f6c1a-2d44-4e0b-9c1e-5a7f00d1e2c30",
        "exec_3b0f6c1a-2d44-6e0b-9c1e-5a7f00d1e2c3", "exec_3b0f6c1a-2d44-4e0b-7c1e-5a7f00d1e2c3",
        "exec-3b0f6c1a-2d44-4e0b-9c1e-5a7f00d1e2c3", "exec_3b0f6c1a_2d44-4e0b-9c1e-5a7f00d1e2c3",
        "exec_3b0f6c1g-2d44-4e0b-9c1e-5a7f00d1e2c3", "",
    };
    char id[NSBX_EXEC_ID_LEN + 1];
    struct nsbx_err err;
    json_t *good = json_pack("{s:i,s:s,s:f}", "protocolVersion", 2, "executionId",
                             "exec_3B0F6c1a-2d44-1e0b-Bc1e-5a7f00d1e2c3", "leaseExpiresAt", 1.5e12);
    CHECK_INT(nsbx_exec_read_reservation(good, id, &err), 0);
    CHECK_STR(id, "exec_3B0F6c1a-2d44-1e0b-Bc1e-5a7f00d1e2c3");
    for (size_t i = 0; i < NSBX_LEN(bad); i++) {
        json_object_set_new(good, "executionId", json_string(bad[i]));
        CHECK_INT(nsbx_exec_read_reservation(good, id, &err), -NSBX_E_PROTOCOL);
    }
    json_decref(good);
}

/* U+FFFD is seen wherever the pieces are cut, and only it. */
static void lost_bytes_are_noticed_at_every_cut(void)
{
    static const char *const texts[] = {"ab\xef\xbf\xbd"
                                        "cd",
                                        "\xef\xbf\xbd", "caf\xc3\xa9\xef\xbf\xbc\xe2\xbf\xbdplain"};
    struct nsbx_exec_request request = {.command = "x", .collect = true};
    for (size_t t = 0; t < NSBX_LEN(texts); t++) {
        size_t n = strlen(texts[t]), settled;
        for (size_t a = 0; a <= n; a++) {
            for (size_t b = a; b <= n; b++) {
                struct nsbx_exec_output o;
                struct nsbx_err err;
                size_t cuts[] = {0, a, b, n};
                nsbx_exec_output_init(&o, &request);
                o.text = true;
                for (int i = 0; i < 3; i++)
                    if (cuts[i + 1] > cuts[i])
                        CHECK_INT(nsbx_exec_output_push(&o, NSBX_SUB_STDOUT, (const uint8_t *)texts[t] + cuts[i],
                                                        cuts[i + 1] - cuts[i], &settled, &err),
                                  0);
                CHECK_INT(o.replaced, t < 2);
                nsbx_exec_output_free(&o);
            }
        }
    }
}

/* ---- reading ---- */

static struct nsbx_err read_all(const char *path, int64_t offset, int64_t length, struct nsbx_bytes **out)
{
    struct nsbx_err err = {0};
    struct nsbx_op *op = nsbx_file_read(guest, path, offset, length, 20000);
    WAIT_OP(op);
    nsbx_err_copy(&err, nsbx_op_err(op));
    *out = nsbx_op_state(op) == NSBX_OP_DONE ? nsbx_op_take_result(op) : NULL;
    nsbx_op_unref(op);
    return err;
}

static int released;
static void note_release(void *ud)
{
    (void)ud;
    released++;
}

static struct nsbx_err write_all(const char *path, const uint8_t *bytes, size_t n, int64_t timeout_ms)
{
    int before = released;
    struct nsbx_err err = finish_op(nsbx_file_write(guest, path, bytes, n, timeout_ms, note_release, NULL));
    CHECK_INT(released, before + 1);
    return err;
}

static void round_trips(void)
{
    static const size_t sizes[] = {0, 1, 4095, 4096, 18432, 7u << 20};
    guest_rig_open(NSBX_ARM_UNIX, 1, "{}");
    for (size_t i = 0; i < NSBX_LEN(sizes); i++) {
        uint8_t *bytes = noise(sizes[i]);
        struct nsbx_bytes *back;
        CHECK_INT(write_all("dir/file", bytes, sizes[i], 20000).code, 0);
        CHECK_INT(read_all("dir/file", -1, -1, &back).code, 0);
        REQUIRE(back != NULL);
        CHECK(back->len == sizes[i] && (sizes[i] == 0 || memcmp(back->data, bytes, sizes[i]) == 0));
        nsbx_bytes_free(back);
        if (sizes[i] > 4000) {
            CHECK_INT(read_all("dir/file", 1000, 2000, &back).code, 0);
            REQUIRE(back != NULL);
            CHECK(back->len == 2000 && memcmp(back->data, bytes + 1000, 2000) == 0);
            nsbx_bytes_free(back);
        }
        nsbx_free(bytes);
    }
    CHECK_INT(logged("\"part\""), 0); /* on this arm all of it fits into one frame */
    CHECK_INT(ASKED("healthz"), 1);   /* and writing needs no feature for it */
    struct nsbx_bytes *none;
    struct nsbx_err err = read_all("no/such", -1, -1, &none);
    CHECK_ERR(err, NSBX_E_NOT_FOUND, "ENOENT");
    CHECK_HAS(err.message, "cannot read 'no/such'");
    CHECK_ERR(read_all("", -1, -1, &none), NSBX_E_INVALID, "");
    guest_rig_close();
}

static void old_guest_reads_whole(void)
{
    guest_rig_open(NSBX_ARM_UNIX, 1, "{\"features\":[]}");
    uint8_t *bytes = noise(300000);
    struct nsbx_bytes *back;
    struct nsbx_file_stream *s;
    struct nsbx_err err;
    CHECK_INT(write_all("f", bytes, 300000, 20000).code, 0);
    CHECK_INT(read_all("f", -1, -1, &back).code, 0);
    REQUIRE(back != NULL);
    CHECK(back->len == 300000 && memcmp(back->data, bytes, 300000) == 0);
    nsbx_bytes_free(back);
    CHECK_INT(ASKED("read-file-stream"), 0);
    CHECK_ERR(read_all("f", 5, -1, &back), NSBX_E_UNSUPPORTED, "read-file-stream");
    REQUIRE(nsbx_file_stream_open(guest, "f", -1, -1, &s, &err) == 0);
    CHECK_ERR(finish_op(nsbx_file_stream_next(s, 5000)), NSBX_E_UNSUPPORTED, "read-file-stream");
    nsbx_file_stream_close(s);
    CHECK_ERR(read_all("f\xff", -1, -1, &back), NSBX_E_INVALID, "byte-strings");
    CHECK_ERR(write_all("f\xff", bytes, 5, 5000), NSBX_E_INVALID, "byte-strings");
    CHECK_ERR(read_all("nothing", -1, -1, &back), NSBX_E_NOT_FOUND, "ENOENT");
    nsbx_free(bytes);
    guest_rig_close();
}

#define META(size, length)                                                                                         \
    "{\"send\":{\"type\":\"meta\",\"sizeBytes\":" #size ",\"offset\":0,\"length\":" #length "}}"
#define DATA "{\"send\":{\"type\":\"data\",\"data\":\"aGVsbG8=\"}}" /* 5 bytes */
#define SENT(n) "{\"send\":{\"type\":\"end\",\"bytesSent\":" #n "}}"

static void reads_are_verified(void)
{
    static const struct {
        const char *script;
        int code;
    } cases[] = {
        {META(5, 5) "," DATA "," SENT(5) "," END "," FIN, 0},
        {META(9, 9) "," DATA "," SENT(5) "," END "," FIN, NSBX_E_IO}, /* it shrank */
        {META(5, 5) "," DATA "," SENT(4) "," END "," FIN, NSBX_E_PROTOCOL},
        {META(4, 4) "," DATA "," SENT(5) "," END "," FIN, NSBX_E_PROTOCOL},
        {META(4, 5) "," DATA "," SENT(5) "," END "," FIN, NSBX_E_PROTOCOL},
        {DATA "," SENT(5) "," END "," FIN, NSBX_E_PROTOCOL},
        {META(5, 5) "," META(5, 5) "," DATA "," SENT(5) "," END "," FIN, NSBX_E_PROTOCOL},
        {META(5, 5) "," DATA "," SENT(5) "," DATA "," END "," FIN, NSBX_E_PROTOCOL},
        {META(5, 5) "," DATA "," END "," FIN, NSBX_E_PROTOCOL},
        {META(5, 5) "," DATA "," FIN, NSBX_E_STREAM_LOST},
        {META(5, 5) "," DATA "," RST, NSBX_E_STREAM_LOST},
        {META(5, 5) "," DATA "," SENT(5) "," FIN, NSBX_E_STREAM_LOST},
        {META(-1, -1) "," SENT(0) "," END "," FIN, NSBX_E_PROTOCOL},
        {META(2000000000, 2000000000) "," DATA "," SILENCE, NSBX_E_LIMIT},
        {"{\"send\":{\"type\":\"error\",\"error\":\"read_file_stream_not_a_regular_file\"}}," END "," FIN,
         NSBX_E_INVALID},
        {"{\"send\":{\"type\":\"what\"}}," END "," FIN, NSBX_E_PROTOCOL},
        {REFUSE("agent_retiring"), NSBX_E_REFUSED},
        {"{\"raw\":\"zzzzzzzz\\n\"}," SILENCE, NSBX_E_PROTOCOL},
    };
    char script[8192] = "{\"ops\":{\"read-file-stream\":[";
    for (size_t i = 0; i < NSBX_LEN(cases); i++)
        snprintf(script + strlen(script), sizeof script - strlen(script), "%s[%s]", i ? "," : "", cases[i].script);
    snprintf(script + strlen(script), sizeof script - strlen(script), "]}}");
    guest_rig_open(NSBX_ARM_TCP, 1, script);
    for (size_t i = 0; i < NSBX_LEN(cases); i++) {
        struct nsbx_bytes *back;
        struct nsbx_err err = read_all("f", -1, -1, &back);
        CHECK_STR(nsbx_code_name(err.code), nsbx_code_name(cases[i].code));
        if (harness_case_failed)
            fprintf(stderr, "    case %zu: %s\n", i, err.message);
        CHECK((back != NULL) == (err.code == 0));
        nsbx_bytes_free(back);
    }
    guest_rig_close();
}

static void range_is_not_exceeded(void)
{
    guest_rig_open(NSBX_ARM_UNIX, 1, ON("read-file-stream", META(5, 5) "," DATA "," SENT(5) "," END "," FIN));
    struct nsbx_bytes *back;
    CHECK_INT(read_all("f", 0, 3, &back).code, NSBX_E_PROTOCOL);
    guest_rig_close();
}

static void reads_stop_when_told(void)
{
    guest_rig_open(NSBX_ARM_UNIX, 1, ON("read-file-stream", META(9, 9) "," DATA "," SILENCE));
    struct nsbx_err err = finish_op(nsbx_file_read(guest, "f", -1, -1, 100));
    CHECK_INT(err.code, NSBX_E_TIMEOUT);
    struct nsbx_op *op = nsbx_file_read(guest, "f", -1, -1, -1);
    nsbx_op_cancel(op); /* at once */
    CHECK_INT(finish_op(op).code, NSBX_E_CANCELLED);
    op = nsbx_file_read(guest, "f", -1, -1, -1);
    POLL_UNTIL(ASKED("read-file-stream") == 2, 5000);
    nsbx_op_cancel(op);
    CHECK_INT(finish_op(op).code, NSBX_E_CANCELLED);
    guest_rig_close();
}

/* A slow reader holds at most a window; the whole file comes, in order. */
static void streams_with_back_pressure(void)
{
    enum { SIZE = 5 << 20 };
    guest_rig_open(NSBX_ARM_UNIX, 1, "{}");
    uint8_t *bytes = noise(SIZE);
    struct nsbx_file_stream *s;
    struct nsbx_err err;
    size_t got = 0;
    CHECK_INT(write_all("f", bytes, SIZE, 20000).code, 0);
    REQUIRE(nsbx_file_stream_open(guest, "f", 100, -1, &s, &err) == 0);
    for (int i = 0;; i++) {
        struct nsbx_op *op = nsbx_file_stream_next(s, 5000);
        if (i == 1)
            CHECK_INT(finish_op(nsbx_file_stream_next(s, 5000)).code,
                      nsbx_op_state(op) == NSBX_OP_PENDING ? NSBX_E_INVALID : 0);
        WAIT_OP(op);
        struct nsbx_bytes *piece = nsbx_op_result(op);
        CHECK_INT(nsbx_op_state(op), NSBX_OP_DONE);
        bool end = !piece;
        if (piece) {
            CHECK(piece->len > 0 && piece->len <= 2 * NSBX_CHANNEL_WINDOW);
            if (i != 1)
                CHECK(got + piece->len <= SIZE - 100);
            got += piece->len;
        }
        nsbx_op_unref(op);
        if (end)
            break;
        if (i < 3) { /* the guest goes on meanwhile, as far as it may */
            usleep(50000);
            for (int k = 0; k < 50; k++)
                nsbx_loop_turn(loop, NSBX_TURN_POLL);
        }
    }
    CHECK(got <= SIZE - 100);
    CHECK_INT(finish_op(nsbx_file_stream_next(s, 5000)).code, 0); /* the end stays the end */
    nsbx_file_stream_close(s);
    nsbx_free(bytes);
    guest_rig_close();
}

static void closed_streams(void)
{
    guest_rig_open(NSBX_ARM_UNIX, 1, ON("read-file-stream", META(9, 9) "," DATA "," SILENCE));
    struct nsbx_file_stream *s;
    struct nsbx_err err;
    for (int i = 0; i < 3; i++) {
        REQUIRE(nsbx_file_stream_open(guest, "f", -1, -1, &s, &err) == 0);
        for (size_t got = 0; i > 0 && got < 5;) {
            struct nsbx_op *some = nsbx_file_stream_next(s, 5000);
            WAIT_OP(some);
            const struct nsbx_bytes *piece = nsbx_op_result(some);
            got += piece ? piece->len : 5;
            nsbx_op_unref(some);
        }
        struct nsbx_op *op = nsbx_file_stream_next(s, i == 2 ? 50 : -1);
        if (i == 2) {
            CHECK_INT(finish_op(op).code, NSBX_E_TIMEOUT);
            CHECK_INT(finish_op(nsbx_file_stream_next(s, 50)).code, NSBX_E_TIMEOUT); /* it is over for good */
        }
        nsbx_file_stream_close(s);
        if (i < 2)
            CHECK_INT(finish_op(op).code, NSBX_E_CANCELLED);
    }
    guest_rig_close();
}

/* ---- writing ---- */

/* On tcp a frame carries 8 MiB: 14 MiB go in three parts under the published name, and the target appears in one step. */
static void parts(void)
{
    enum { SIZE = 14 << 20 };
    guest_rig_open(NSBX_ARM_TCP, 1, "{}");
    uint8_t *bytes = noise(SIZE);
    struct nsbx_bytes *back;
    CHECK_INT(write_all("some/dir/a-name.bin", bytes, SIZE, 60000).code, 0);
    CHECK_INT(ASKED("write-file"), 3);
    CHECK_INT(logged("\"path\": \"some/dir/.namzu-write-"), 3);
    CHECK_INT(logged("-a-name.bin.part\""), 3);
    CHECK_INT(logged("\"part\": {\"offset\": 0, \"final\": false}"), 1);
    CHECK_INT(logged("\"final\": true, \"renameTo\": \"some/dir/a-name.bin\""), 1);
    CHECK_INT(logged("discard"), 0);
    CHECK_INT(read_all("some/dir/a-name.bin", -1, -1, &back).code, 0);
    REQUIRE(back != NULL);
    CHECK(back->len == SIZE && memcmp(back->data, bytes, SIZE) == 0);
    nsbx_bytes_free(back);
    /* the largest body that fits into one frame, and one byte more; the guest refuses what is too large */
    json_t *body = json_pack("{s:s,s:s}", "path", "x", "encoding", "base64");
    struct nsbx_single_request request = {
        .op = "write-file", .body = body, .large = bytes, .token = GUEST_TOKEN, .large_base64 = true};
    request.large_len = (6u << 20) - 4096;
    while (nsbx_single_envelope_len(&request) <= NSBX_MAX_PREAUTH_FRAME)
        request.large_len++;
    CHECK_INT(write_all("x", bytes, request.large_len - 1, 60000).code, 0);
    CHECK_INT(ASKED("write-file"), 4);
    CHECK_INT(write_all("x", bytes, request.large_len, 60000).code, 0);
    CHECK_INT(ASKED("write-file"), 6);
    json_decref(body);
    nsbx_free(bytes);
    guest_rig_close();
}

static void part_names_stay_short(void)
{
    char path[300] = "d/";
    guest_rig_open(NSBX_ARM_TCP, 1, "{}");
    for (int i = 0; i < 80; i++)
        strcat(path, "\xe6\x97\xa5"); /* 240 bytes: 96 of them are 32 characters */
    uint8_t *bytes = noise(8u << 20);
    CHECK_INT(write_all(path, bytes, 8u << 20, 60000).code, 0);
    /* "d/.namzu-write-" + uuid + "-" + 32 characters (\uXXXX in the log) + ".part" */
    char want[512] = "-";
    for (int i = 0; i < 32; i++)
        strcat(want, "\\u65e5");
    strcat(want, ".part\"");
    CHECK_INT(logged(want), 2);
    nsbx_free(bytes);
    guest_rig_close();
}

static void parts_need_the_feature(void)
{
    guest_rig_open(NSBX_ARM_TCP, 1, "{\"features\":[]}");
    uint8_t *bytes = noise(8u << 20);
    CHECK_ERR(write_all("x", bytes, 8u << 20, 60000), NSBX_E_UNSUPPORTED, "write-file-parts");
    CHECK_INT(ASKED("write-file"), 0);
    nsbx_free(bytes);
    guest_rig_close();
}

/* What goes wrong with the second part: the temporary file is discarded, the first error is told. */
static void failed_parts_are_discarded(void)
{
    static const struct {
        const char *second, *reason;
        int code;
        int64_t timeout_ms;
    } cases[] = {
        {REFUSE("write_part_offset_mismatch: temp file is absent"), "write_part_offset_mismatch", NSBX_E_IO, -1},
        {REFUSE("ENOSPC: no space left on device, write"), "ENOSPC", 0, -1},
        {RST, "write_unconfirmed", NSBX_E_STREAM_LOST, -1},
        {"{\"send\":{\"ok\":true,\"bytesWritten\":1,\"sizeBytes\":1}}," FIN, "", NSBX_E_IO, -1},
        {SILENCE, "write_unconfirmed", NSBX_E_TIMEOUT, 3000},
    };
    uint8_t *bytes = noise(8u << 20);
    for (size_t i = 0; i < NSBX_LEN(cases); i++) {
        char script[1024];
        snprintf(script, sizeof script,
                 "{\"ops\":{\"write-file\":[[{\"builtin\":true}],[%s],[{\"builtin\":true}]]}}", cases[i].second);
        guest_rig_open(NSBX_ARM_TCP, 1, script);
        struct nsbx_err err = write_all("x", bytes, 8u << 20, cases[i].timeout_ms);
        CHECK_ERR(err, cases[i].code ? cases[i].code : nsbx_code_of_errno(ENOSPC), cases[i].reason);
        CHECK_HAS(err.message, "'x'");
        CHECK_INT(ASKED("write-file"), 3);
        CHECK_INT(logged("\"discard\": true"), 1);
        guest_rig_close();
    }
    nsbx_free(bytes);
}

/* Discarding that does not work is bounded, and its own failure is not told. */
static void discard_is_bounded(void)
{
    uint8_t *bytes = noise(8u << 20);
    guest_rig_open(NSBX_ARM_TCP, FAST,
                   "{\"ops\":{\"write-file\":[[" REFUSE("ENOSPC: no space left") "],[" SILENCE "]]}}");
    uint64_t before = nsbx_now_ms();
    CHECK_ERR(write_all("x", bytes, 8u << 20, -1), nsbx_code_of_errno(ENOSPC), "ENOSPC");
    uint64_t took = nsbx_now_ms() - before;
    CHECK(took >= 1000 && took < 6000);
    if (harness_case_failed)
        fprintf(stderr, "    took %lu ms\n", (unsigned long)took);
    nsbx_free(bytes);
    guest_rig_close();
}

static void single_writes_that_fail(void)
{
    static const struct {
        const char *steps, *reason;
        int code;
    } cases[] = {
        {REFUSE("EISDIR: illegal operation on a directory, open 'x'"), "EISDIR", NSBX_E_INVALID},
        {REFUSE("path escapes the workspace"), "outside_workspace", NSBX_E_FORBIDDEN},
        {RST, "write_unconfirmed", NSBX_E_STREAM_LOST},
        {FIN, "write_unconfirmed", NSBX_E_STREAM_LOST},
        {"{\"send\":{\"ok\":true,\"bytesWritten\":4}}," FIN, "", NSBX_E_IO},
        {"{\"send\":{\"ok\":true}}," FIN, "", NSBX_E_IO},
        {SILENCE, "write_unconfirmed", NSBX_E_TIMEOUT},
    };
    char script[4096] = "{\"ops\":{\"write-file\":[";
    for (size_t i = 0; i < NSBX_LEN(cases); i++)
        snprintf(script + strlen(script), sizeof script - strlen(script), "%s[%s]", i ? "," : "", cases[i].steps);
    snprintf(script + strlen(script), sizeof script - strlen(script), "]}}");
    guest_rig_open(NSBX_ARM_TCP, 1, script);
    for (size_t i = 0; i < NSBX_LEN(cases); i++) {
        struct nsbx_err err = write_all("x", (const uint8_t *)"hello", 5, i + 1 == NSBX_LEN(cases) ? 300 : 10000);
        CHECK_ERR(err, cases[i].code, cases[i].reason);
        CHECK_INT(ASKED("write-file"), (int)i + 1);
    }
    CHECK_INT(logged("discard"), 0);
    CHECK_ERR(write_all("", (const uint8_t *)"hello", 5, 1000), NSBX_E_INVALID, "");
    guest_rig_close();
}

static void cancelled_writes(void)
{
    guest_rig_open(NSBX_ARM_TCP, 1, "{\"ops\":{\"write-file\":[[" SILENCE "],[{\"builtin\":true}]]}}");
    uint8_t *bytes = noise(8u << 20);
    released = 0;
    struct nsbx_op *op = nsbx_file_write(guest, "x", bytes, 8u << 20, -1, note_release, NULL);
    nsbx_op_cancel(op); /* while the features are asked for: nothing was sent */
    CHECK_INT(finish_op(op).code, NSBX_E_CANCELLED);
    CHECK_INT(released, 1);
    CHECK_INT(ASKED("write-file"), 0);
    op = nsbx_file_write(guest, "x", bytes, 8u << 20, -1, note_release, NULL);
    POLL_UNTIL(ASKED("write-file") == 1, 10000);
    nsbx_op_cancel(op);
    CHECK_ERR(finish_op(op), NSBX_E_CANCELLED, "");
    CHECK_INT(released, 2);
    CHECK_INT(logged("\"discard\": true"), 1);
    nsbx_free(bytes);
    guest_rig_close();
}

/* ---- walking ---- */

#define ENTRY(path, type) "[\"" path "\",12,\"" type "\",420,1500.5]"
#define ENTRIES(...) "{\"send\":{\"type\":\"entries\",\"entries\":[" __VA_ARGS__ "]}}"
#define DONE "{\"send\":{\"type\":\"done\",\"visited\":9}}," END "," FIN

static struct nsbx_walk_request everything(const char *path)
{
    return (struct nsbx_walk_request){.path = path, .max_depth = -1, .max_entries = -1, .max_visited = -1};
}

/* Walks to the end; joins the paths. */
static struct nsbx_err walk_all(const struct nsbx_walk_request *request, char *seen, size_t size)
{
    struct nsbx_err err = {0};
    struct nsbx_walk *w;
    struct nsbx_entry entry;
    seen[0] = '\0';
    if (nsbx_walk_open(guest, request, &w, &err) < 0)
        return err;
    do {
        err = finish_op(nsbx_walk_next(w, 5000));
        while (nsbx_walk_take(w, &entry))
            snprintf(seen + strlen(seen), size - strlen(seen), "%s ", entry.path);
    } while (err.code == 0 && !nsbx_walk_ended(w));
    nsbx_walk_close(w);
    return err;
}

static void walks(void)
{
    guest_rig_open(
        NSBX_ARM_UNIX, 1,
        ON("walk", ENTRIES(ENTRY("/w/a", "file") "," ENTRY("/w/b", "directory")) "," ENTRIES() "," ENTRIES(
                       ENTRY("/w/c", "symlink") ",[{\"base64\":\"L3cv/w==\"},0,\"other\",0,0]") "," DONE));
    struct nsbx_walk_request r = everything("/w/");
    struct nsbx_err err;
    struct nsbx_walk *w;
    struct nsbx_entry e;
    char seen[64];
    r.pattern = "**/*.c";
    r.include_hidden = r.sorted = true;
    r.max_depth = 3;
    r.max_entries = 4;
    r.max_visited = 100;
    REQUIRE(nsbx_walk_open(guest, &r, &w, &err) == 0);
    CHECK_INT(finish_op(nsbx_walk_next(w, 5000)).code, 0);
    REQUIRE(nsbx_walk_take(w, &e));
    CHECK_STR(e.path, "/w/a");
    CHECK(e.size == 12 && e.type == NSBX_ENTRY_FILE && e.mode == 0644 && fabs(e.mtime - 1.5005) < 1e-9);
    CHECK_STR(nsbx_entry_type_name(e.type), "file");
    nsbx_walk_close(w);
    CHECK_INT(logged("\"root\": \"/w/\", \"pattern\": \"**/*.c\", \"includeHidden\": true, \"sorted\": true, "
                     "\"maxDepth\": 3, "
                     "\"maxEntries\": 4, \"maxVisitedEntries\": 100"),
              1);
    r = everything("w");
    err = walk_all(&r, seen, sizeof seen);
    CHECK_INT(err.code, 0);
    CHECK_STR(seen, "/w/a /w/b /w/c /w/\xff ");
    guest_rig_close();
}

static void walks_are_verified(void)
{
    static const struct {
        const char *steps;
        int code;
        const char *reason;
    } cases[] = {
        {DONE, 0, ""},
        {ENTRIES(ENTRY("/other", "file")) "," DONE, NSBX_E_PROTOCOL, ""},
        {ENTRIES(ENTRY("/wide", "file")) "," DONE, NSBX_E_PROTOCOL, ""},
        {ENTRIES(ENTRY("w/a", "file")) "," DONE, NSBX_E_PROTOCOL, ""},
        {ENTRIES(ENTRY("/w/a\\u0000b", "file")) "," DONE, NSBX_E_PROTOCOL, ""},
        {ENTRIES(ENTRY("/w/a", "socket")) "," DONE, NSBX_E_PROTOCOL, ""},
        {ENTRIES("[\"/w/a\",-1,\"file\",420,0]") "," DONE, NSBX_E_PROTOCOL, ""},
        {ENTRIES("[\"/w/a\",1,\"file\",4096,0]") "," DONE, NSBX_E_PROTOCOL, ""},
        {ENTRIES("[\"/w/a\",1,\"file\",420]") "," DONE, NSBX_E_PROTOCOL, ""},
        {ENTRIES("[5,1,\"file\",420,0]") "," DONE, NSBX_E_PROTOCOL, ""},
        {ENTRIES("7") "," DONE, NSBX_E_PROTOCOL, ""},
        {"{\"send\":{\"type\":\"entries\",\"entries\":5}}," DONE, NSBX_E_PROTOCOL, ""},
        {ENTRIES(ENTRY("/w/a", "file") "," ENTRY("/w/b", "file") "," ENTRY("/w/c", "file")) "," DONE,
         NSBX_E_PROTOCOL, ""},
        {"{\"send\":{\"type\":\"done\"}},{\"send\":{\"type\":\"done\"}}," END "," FIN, NSBX_E_PROTOCOL, ""},
        {END "," FIN, NSBX_E_PROTOCOL, ""},
        {FIN, NSBX_E_STREAM_LOST, ""},
        {ENTRIES(ENTRY("/w/a", "file")) "," RST, NSBX_E_STREAM_LOST, ""},
        {"{\"send\":{\"type\":\"error\",\"error\":\"walk_limit: x\",\"code\":\"ERR_FILE_WALK_LIMIT\"}}," END
         "," FIN,
         NSBX_E_LIMIT, "walk_limit"},
        {"{\"send\":{\"type\":\"error\",\"error\":\"no such directory\",\"code\":\"ENOENT\"}}," END "," FIN,
         NSBX_E_NOT_FOUND, "ENOENT"},
    };
    char script[8192] = "{\"ops\":{\"walk\":[", seen[64];
    for (size_t i = 0; i < NSBX_LEN(cases); i++)
        snprintf(script + strlen(script), sizeof script - strlen(script), "%s[%s]", i ? "," : "", cases[i].steps);
    snprintf(script + strlen(script), sizeof script - strlen(script), "]}}");
    guest_rig_open(NSBX_ARM_TCP, 1, script);
    for (size_t i = 0; i < NSBX_LEN(cases); i++) {
        struct nsbx_walk_request r = everything("/w");
        r.max_entries = 2;
        struct nsbx_err err = walk_all(&r, seen, sizeof seen);
        CHECK_ERR(err, cases[i].code, cases[i].reason);
        if (err.code)
            CHECK_HAS(err.message, "cannot walk '/w'");
    }
    guest_rig_close();
}

/* A guest that sends entries faster than they are taken is held up. */
static void walk_with_back_pressure(void)
{
    enum { MESSAGES = 400, EACH = 256 };
    size_t size = 64u << 10, n = 0;
    char *script = nsbx_malloc(size), name[128];
    n += (size_t)snprintf(
        script, size, "{\"ops\":{\"walk\":[[{\"repeat\":%d,\"send\":{\"type\":\"entries\",\"entries\":[", MESSAGES);
    for (int i = 0; i < EACH; i++) {
        snprintf(name, sizeof name, "/w/a-name-that-is-not-short-at-all-so-that-it-adds-up-%05d", i);
        n += (size_t)snprintf(script + n, size - n, "%s[\"%s\",1,\"file\",420,0]", i ? "," : "", name);
    }
    snprintf(script + n, size - n, "]}}," DONE "]]}}");
    guest_rig_open(NSBX_ARM_UNIX, 1, script);
    struct nsbx_walk_request r = everything("/w");
    struct nsbx_err err = {0};
    struct nsbx_walk *w;
    struct nsbx_entry entry;
    size_t got = 0, most = 0;
    REQUIRE(nsbx_walk_open(guest, &r, &w, &err) == 0);
    CHECK_INT(finish_op(nsbx_walk_next(w, 5000)).code, 0);
    for (int i = 0; i < 100; i++) {
        usleep(5000);
        nsbx_loop_turn(loop, NSBX_TURN_POLL);
    }
    while (nsbx_walk_take(w, &entry))
        got++;
    most = got;
    CHECK(most < (size_t)MESSAGES * EACH / 2);
    while (!err.code && !nsbx_walk_ended(w)) {
        err = finish_op(nsbx_walk_next(w, 5000));
        while (nsbx_walk_take(w, &entry))
            got++;
    }
    CHECK_INT(err.code, 0);
    CHECK_INT(got, MESSAGES * EACH);
    nsbx_walk_close(w);
    nsbx_free(script);
    guest_rig_close();
}

static void walks_end_when_told(void)
{
    guest_rig_open(NSBX_ARM_UNIX, 1, ON("walk", ENTRIES(ENTRY("/w/a", "file")) "," SILENCE));
    struct nsbx_walk_request r = everything("/w");
    struct nsbx_err err;
    struct nsbx_walk *w;
    struct nsbx_entry entry;
    REQUIRE(nsbx_walk_open(guest, &r, &w, &err) == 0);
    CHECK_INT(finish_op(nsbx_walk_next(w, 5000)).code, 0);
    CHECK(nsbx_walk_take(w, &entry));
    CHECK(!nsbx_walk_ended(w));
    CHECK_INT(finish_op(nsbx_walk_next(w, 50)).code, NSBX_E_TIMEOUT);
    CHECK_INT(finish_op(nsbx_walk_next(w, 50)).code, NSBX_E_TIMEOUT);
    nsbx_walk_close(w);
    REQUIRE(nsbx_walk_open(guest, &r, &w, &err) == 0);
    struct nsbx_op *op = nsbx_walk_next(w, -1);
    nsbx_walk_close(w);
    CHECK_INT(finish_op(op).code, NSBX_E_CANCELLED);
    guest_rig_close();

    guest_rig_open(NSBX_ARM_UNIX, 1, "{\"features\":[]}");
    char seen[16];
    CHECK_ERR(walk_all(&r, seen, sizeof seen), NSBX_E_UNSUPPORTED, "walk");
    guest_rig_close();
}

/* ---- no memory ---- */

static unsigned long write_without_memory(unsigned long nth, int *done)
{
    static uint8_t bytes[7u << 20];
    guest->known = false;
    nsbx_alloc_fail_at(nth);
    struct nsbx_op *op = nsbx_file_write(guest, "x", bytes, sizeof bytes, -1, NULL, NULL);
    while (op && nsbx_op_state(op) == NSBX_OP_PENDING)
        nsbx_loop_turn(loop, NSBX_TURN_WAIT);
    unsigned long count = nsbx_alloc_count();
    nsbx_alloc_fail_at(0);
    if (op && nsbx_op_state(op) == NSBX_OP_DONE)
        ++*done;
    else if (op)
        CHECK(nsbx_op_err(op)->message[0]);
    nsbx_op_unref(op);
    TURN_UNTIL(nsbx_loop_live(loop, NULL, NULL) <= 1, 10000);
    return count;
}

/* A write in two parts, with each of its allocations failing in turn. */
static void write_with_no_memory(void)
{
    int done = 0;
    guest_rig_open(NSBX_ARM_TCP, 1, "{}");
    unsigned long count = write_without_memory(0, &done);
    CHECK_INT(done, 1);
    unsigned long step = count > 200 ? count / 200 + 1 : 1; /* sending in pieces makes many that are all alike */
    for (unsigned long nth = 1; nth <= count; nth += nth < 100 ? 1 : step)
        write_without_memory(nth, &done);
    fprintf(stderr, "write_with_no_memory: %lu allocations, %d done\n", count, done);
    CHECK(count > 50 && done < 100);
    guest_rig_close();
}

int main(void)
{
    json_set_alloc_funcs(nsbx_malloc, nsbx_free);
    alarm(280);
    rig_open(); /* libuv's process-wide descriptors are made by the first loop */
    nsbx_loop_free(loop);
    RUN(health_tells_and_fills_the_cache);
    RUN(health_of_odd_guests);
    RUN(one_question_for_all);
    RUN(another_boot_id_is_another_guest);
    RUN(addresses_are_checked);
    RUN(refusals_become_errors);
    RUN(reservations_are_checked);
    RUN(lost_bytes_are_noticed_at_every_cut);
    RUN(round_trips);
    RUN(old_guest_reads_whole);
    RUN(reads_are_verified);
    RUN(range_is_not_exceeded);
    RUN(reads_stop_when_told);
    RUN(streams_with_back_pressure);
    RUN(closed_streams);
    RUN(parts);
    RUN(part_names_stay_short);
    RUN(parts_need_the_feature);
    RUN(failed_parts_are_discarded);
    RUN(discard_is_bounded);
    RUN(single_writes_that_fail);
    RUN(cancelled_writes);
    RUN(walks);
    RUN(walks_are_verified);
    RUN(walk_with_back_pressure);
    RUN(walks_end_when_told);
    RUN(write_with_no_memory);
    return harness_done();
}
