/* Any bytes as frames: cut anywhere, the events are the same, and what was read is what was there. */
#include "fuzz.h"

#include "codec/frame.h"

#include <ctype.h>

/* Writes the stream again as it was understood; returns how it ended. */
static char *replay(const uint8_t *data, size_t size, uint32_t seed, size_t *len)
{
    struct nsbx_frame_reader reader;
    struct nsbx_frame_event event = {.kind = NSBX_FRAME_MORE};
    char *text = NULL;
    FILE *out = open_memstream(&text, len);
    nsbx_frame_reader_init(&reader);
    for (size_t at = 0; at < size && event.kind != NSBX_FRAME_BAD;) {
        size_t n = fuzz_piece(&seed, size - at), used = 0;
        uint8_t *piece = fuzz_copy(data + at, n);
        do {
            used += nsbx_frame_next(&reader, piece + used, n - used, &event);
            WANT(used <= n);
            if (event.kind == NSBX_FRAME_BEGIN) {
                uint8_t head[NSBX_FRAME_HEADER];
                nsbx_frame_header(head, event.length);
                fwrite(head, 1, sizeof(head), out);
            } else if (event.kind == NSBX_FRAME_CHUNK) {
                WANT(event.n > 0);
                fwrite(event.bytes, 1, event.n, out);
            }
        } while (event.kind != NSBX_FRAME_MORE && event.kind != NSBX_FRAME_BAD);
        WANT(event.kind == NSBX_FRAME_BAD || used == n);
        free(piece);
        at += n;
    }
    fputc(event.kind == NSBX_FRAME_BAD ? 'B' : nsbx_frame_at_border(&reader) ? '.' : '-', out);
    fclose(out);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4)
        return 0;
    uint32_t seed;
    memcpy(&seed, data, 4);
    size_t whole_n, pieces_n;
    char *whole = replay(data + 4, size - 4, 0, &whole_n);
    char *pieces = replay(data + 4, size - 4, seed | 1, &pieces_n);
    WANT(whole_n == pieces_n && memcmp(whole, pieces, whole_n) == 0);
    WANT(whole_n - 1 <= size - 4);
    for (size_t i = 0; i + 1 < whole_n; i++) /* headers may have been in capitals */
        WANT((uint8_t)whole[i] == data[4 + i] || (uint8_t)whole[i] == tolower(data[4 + i]));
    free(whole);
    free(pieces);
    return 0;
}
