/* The published framing: 8 hex digits, LF, that many payload bytes; a zero-length frame ends a stream.
 * No I/O: bytes in, events out; any split of the input gives the same events (chunk borders aside). */
#ifndef NSBX_CODEC_FRAME_H
#define NSBX_CODEC_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NSBX_FRAME_HEADER = 9 };

enum nsbx_frame_kind {
    NSBX_FRAME_MORE, /* all input used, no event */
    NSBX_FRAME_BEGIN, /* a header was read: `length` announced (judge it against your cap now); 0 is a terminator, followed by END */
    NSBX_FRAME_CHUNK, /* `bytes`, `n`: a piece of the payload, borrowed from the input */
    NSBX_FRAME_END,   /* the frame is whole */
    NSBX_FRAME_BAD,   /* not a header; decided at the ninth byte; the reader stays in this state */
};

struct nsbx_frame_event {
    enum nsbx_frame_kind kind;
    uint32_t length;
    const uint8_t *bytes;
    size_t n;
};

struct nsbx_frame_reader {
    uint8_t head[NSBX_FRAME_HEADER];
    uint8_t have; /* header bytes so far */
    uint8_t state;
    uint32_t left; /* payload bytes still to come */
};

void nsbx_frame_reader_init(struct nsbx_frame_reader *r);
/* Makes at most one event from p[0..n) and returns how many bytes it used. Call again with the rest until MORE or BAD. */
size_t nsbx_frame_next(struct nsbx_frame_reader *r, const uint8_t *p, size_t n, struct nsbx_frame_event *event);
/* True between two frames: an end of input here loses nothing. */
bool nsbx_frame_at_border(const struct nsbx_frame_reader *r);
/* Writes the nine bytes (lower-case hex), no NUL. */
void nsbx_frame_header(uint8_t out[NSBX_FRAME_HEADER], uint32_t length);

#endif
