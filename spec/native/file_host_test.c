/* Reading and writing files, against a scripted guest. */
#include "guest_rig.h"
#include "transport/file.h"

enum { FAST = 5 }; /* the clocks run that much faster */

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

/* Data frames without data are silence, even though there is never a moment without a byte. */
static void empty_data_is_no_progress(void)
{
    static const char *const cases[] = {"[{\"type\":\"data\",\"data\":\"\"},0.3]",
                                        "[{\"type\":\"data\",\"data\":\"\"},5]"};
    for (size_t i = 0; i < NSBX_LEN(cases); i++) {
        char script[512];
        struct nsbx_bytes *back;
        snprintf(script, sizeof script,
                 "{\"ops\":{\"read-file-stream\":[[" META(5, 5) ",{\"trickle\":%s}," DATA
                                                                "," SENT(5) "," END "," FIN "]]}}",
                 cases[i]);
        guest_rig_open(NSBX_ARM_UNIX, 60, script); /* the limit of silence is 1 s */
        struct nsbx_err err = read_all("f", -1, -1, &back);
        CHECK_STR(nsbx_code_name(err.code), nsbx_code_name(i ? NSBX_E_TIMEOUT : 0));
        nsbx_bytes_free(back);
        guest_rig_close();
    }
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

enum { FRAME = 64 * 1024 }; /* where the size does not matter: as many bytes as a frame has do not fit into it */

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
    guest->max_frame = FRAME;
    for (int i = 0; i < 80; i++)
        strcat(path, "\xe6\x97\xa5"); /* 240 bytes: 96 of them are 32 characters */
    uint8_t *bytes = noise(FRAME);
    CHECK_INT(write_all(path, bytes, FRAME, 60000).code, 0);
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
    guest->max_frame = FRAME;
    uint8_t *bytes = noise(FRAME);
    CHECK_ERR(write_all("x", bytes, FRAME, 60000), NSBX_E_UNSUPPORTED, "write-file-parts");
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
    uint8_t *bytes = noise(FRAME);
    for (size_t i = 0; i < NSBX_LEN(cases); i++) {
        char script[1024];
        snprintf(script, sizeof script,
                 "{\"ops\":{\"write-file\":[[{\"builtin\":true}],[%s],[{\"builtin\":true}]]}}", cases[i].second);
        guest_rig_open(NSBX_ARM_TCP, 1, script);
        guest->max_frame = FRAME;
        struct nsbx_err err = write_all("x", bytes, FRAME, cases[i].timeout_ms);
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
    uint8_t *bytes = noise(FRAME);
    guest_rig_open(NSBX_ARM_TCP, FAST,
                   "{\"ops\":{\"write-file\":[[" REFUSE("ENOSPC: no space left") "],[" SILENCE "]]}}");
    guest->max_frame = FRAME;
    uint64_t before = nsbx_now_ms();
    CHECK_ERR(write_all("x", bytes, FRAME, -1), nsbx_code_of_errno(ENOSPC), "ENOSPC");
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
    guest->max_frame = FRAME;
    uint8_t *bytes = noise(FRAME);
    released = 0;
    struct nsbx_op *op = nsbx_file_write(guest, "x", bytes, FRAME, -1, note_release, NULL);
    nsbx_op_cancel(op); /* while the features are asked for: nothing was sent */
    CHECK_INT(finish_op(op).code, NSBX_E_CANCELLED);
    CHECK_INT(released, 1);
    CHECK_INT(ASKED("write-file"), 0);
    op = nsbx_file_write(guest, "x", bytes, FRAME, -1, note_release, NULL);
    POLL_UNTIL(ASKED("write-file") == 1, 10000);
    nsbx_op_cancel(op);
    CHECK_ERR(finish_op(op), NSBX_E_CANCELLED, "");
    CHECK_INT(released, 2);
    CHECK_INT(logged("\"discard\": true"), 1);
    nsbx_free(bytes);
    guest_rig_close();
}

/* ---- no memory ---- */

static uint8_t some[FRAME];

static struct nsbx_err one_write(void) /* in two parts */
{
    return finish_op_bare(nsbx_file_write(guest, "x", some, sizeof some, -1, NULL, NULL));
}

static struct nsbx_err one_read(void)
{
    struct nsbx_op *op = nsbx_file_read(guest, "x", -1, -1, -1);
    struct nsbx_err err = finish_op_bare(op ? nsbx_op_ref(op) : NULL);
    const struct nsbx_bytes *bytes = op ? nsbx_op_result(op) : NULL;
    CHECK((bytes && bytes->len == sizeof some) || err.code);
    nsbx_op_unref(op);
    return err;
}

static struct nsbx_err one_stream(void)
{
    struct nsbx_err err = {0};
    struct nsbx_file_stream *s;
    size_t got = 0;
    bool ended = false;
    if (nsbx_file_stream_open(guest, "x", -1, -1, &s, &err) < 0)
        return err;
    while (!ended && !err.code) {
        struct nsbx_op *op = nsbx_file_stream_next(s, -1);
        err = finish_op_bare(op ? nsbx_op_ref(op) : NULL);
        const struct nsbx_bytes *bytes = op ? nsbx_op_result(op) : NULL;
        got += bytes ? bytes->len : 0;
        ended = !bytes;
        nsbx_op_unref(op);
    }
    CHECK(got == sizeof some || err.code);
    nsbx_file_stream_close(s);
    return err;
}

static void no_memory_for_files(void)
{
    guest_rig_open(NSBX_ARM_TCP, 1, "{}");
    guest->max_frame = FRAME;
    without_memory(one_write);
    CHECK_INT(finish_op(nsbx_file_write(guest, "x", some, sizeof some, -1, NULL, NULL)).code, 0);
    without_memory(one_read);
    without_memory(one_stream);
    guest_rig_close();
}

int main(void)
{
    guest_rig_main();
    RUN(round_trips);
    RUN(old_guest_reads_whole);
    RUN(reads_are_verified);
    RUN(empty_data_is_no_progress);
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
    RUN(no_memory_for_files);
    return harness_done();
}
