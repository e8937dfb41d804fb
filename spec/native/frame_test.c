#include "splits.h"

#include "base/util.h"
#include "codec/frame.h"

/* One line an event; the chunks of a frame are put together. */
static void run(FILE *log, const struct splits_piece *pieces, size_t count)
{
    struct nsbx_frame_reader reader;
    struct nsbx_frame_event event = {.kind = NSBX_FRAME_MORE};
    nsbx_frame_reader_init(&reader);
    for (size_t i = 0; i < count && event.kind != NSBX_FRAME_BAD; i++) {
        size_t at = 0;
        do {
            size_t used = nsbx_frame_next(&reader, pieces[i].bytes + at, pieces[i].n - at, &event);
            at += used;
            if (event.kind == NSBX_FRAME_BEGIN)
                fprintf(log, "begin %" PRIu32 "\n", event.length);
            else if (event.kind == NSBX_FRAME_CHUNK)
                fwrite(event.bytes, 1, event.n, log);
            else if (event.kind == NSBX_FRAME_END)
                fprintf(log, " end\n");
        } while (event.kind != NSBX_FRAME_MORE && event.kind != NSBX_FRAME_BAD);
    }
    fprintf(log, event.kind == NSBX_FRAME_BAD ? "bad" : nsbx_frame_at_border(&reader) ? "border" : "inside");
}

static void frames_come_out_as_they_went_in(void)
{
    splits_check(run, "00000002\n{}", "begin 2\n{} end\nborder");
    splits_check(run, "00000002\n{}00000000\n", "begin 2\n{} end\nbegin 0\n end\nborder");
    splits_check(run, "0000001A\nabcdefghijklmnopqrstuvwxyz00000001\n\n",
                 "begin 26\nabcdefghijklmnopqrstuvwxyz end\nbegin 1\n\n end\nborder");
    splits_check(run, "0000000a\n0123456789", "begin 10\n0123456789 end\nborder");
    splits_check(run, "", "border");
}

static void a_cut_stream_is_told_from_a_whole_one(void)
{
    splits_check(run, "0000000", "inside");
    splits_check(run, "00000002\n", "begin 2\ninside");
    splits_check(run, "00000002\n{", "begin 2\n{inside");
    splits_check(run, "00000001\n.0", "begin 1\n. end\ninside");
}

static void a_length_is_announced_before_any_payload(void)
{
    splits_check(run, "ffffffff\n", "begin 4294967295\ninside");
    splits_check(run, "FfFfFfFf\nx", "begin 4294967295\nxinside");
    splits_check(run, "10000000\n", "begin 268435456\ninside");
}

static void what_is_no_header_is_refused_at_the_ninth_byte(void)
{
    splits_check(run, "0000000g\n", "bad");
    splits_check(run, "00000002{}", "bad");
    splits_check(run, "0000002\n{}", "bad");
    splits_check(run, "0x000002\n{}", "bad");
    splits_check(run, "+0000002\n{}", "bad");
    splits_check(run, " 0000002\n{}", "bad");
    splits_check(run, "00000002\r\n{}", "bad");
    splits_check(run, "GET / HTTP/1.1\r\n", "bad");
    splits_check(run, "00000001\nx0000000\n1", "begin 1\nx end\nbad");
    splits_check(run, "GET / HT", "inside"); /* eight bytes: not decided yet */
    splits_check_bytes(run, "\0\0\0\0\0\0\0\0\n", 9, "bad");
}

static void a_bad_reader_stays_bad(void)
{
    struct nsbx_frame_reader reader;
    struct nsbx_frame_event event;
    nsbx_frame_reader_init(&reader);
    CHECK_INT(nsbx_frame_next(&reader, (const uint8_t *)"123456789", 9, &event), 9);
    CHECK_INT(event.kind, NSBX_FRAME_BAD);
    CHECK_INT(nsbx_frame_next(&reader, (const uint8_t *)"00000000\n", 9, &event), 0);
    CHECK_INT(event.kind, NSBX_FRAME_BAD);
    CHECK(!nsbx_frame_at_border(&reader));
}

static void a_written_header_reads_back(void)
{
    static const uint32_t lengths[] = {0, 1, 9, 10, 255, 4096, 8388608, 268435456, 4294967295u};
    for (size_t i = 0; i < NSBX_LEN(lengths); i++) {
        uint8_t head[NSBX_FRAME_HEADER];
        struct nsbx_frame_reader reader;
        struct nsbx_frame_event event;
        nsbx_frame_header(head, lengths[i]);
        nsbx_frame_reader_init(&reader);
        CHECK_INT(nsbx_frame_next(&reader, head, sizeof(head), &event), NSBX_FRAME_HEADER);
        CHECK_INT(event.kind, NSBX_FRAME_BEGIN);
        CHECK_INT(event.length, lengths[i]);
    }
    uint8_t head[NSBX_FRAME_HEADER];
    nsbx_frame_header(head, 0xabcdef);
    CHECK(memcmp(head, "00abcdef\n", 9) == 0);
}

int main(void)
{
    RUN(frames_come_out_as_they_went_in);
    RUN(a_cut_stream_is_told_from_a_whole_one);
    RUN(a_length_is_announced_before_any_payload);
    RUN(what_is_no_header_is_refused_at_the_ninth_byte);
    RUN(a_bad_reader_stays_bad);
    RUN(a_written_header_reads_back);
    return harness_done();
}
