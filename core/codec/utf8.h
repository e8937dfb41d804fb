/* UTF-8 where the wire wants text: decoding of chunks with U+FFFD for each invalid maximal subpart (the
 * published rule), holding an incomplete character back to the next chunk; and JSON string escaping. */
#ifndef NSBX_CODEC_UTF8_H
#define NSBX_CODEC_UTF8_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nsbx_utf8 {
    uint8_t held[4]; /* an incomplete character at the end of the last chunk */
    uint8_t n;
    uint64_t replaced; /* U+FFFD written so far */
};
void nsbx_utf8_init(struct nsbx_utf8 *u);
/* Appends valid UTF-8 for p[0..n) to out; keeps at most 3 bytes back. -NSBX_E_LIMIT when out is full. */
int nsbx_utf8_feed(struct nsbx_utf8 *u, const uint8_t *p, size_t n, struct nsbx_buf *out, struct nsbx_err *err);
/* End of the bytes: what was held back is invalid and becomes U+FFFD. */
int nsbx_utf8_flush(struct nsbx_utf8 *u, struct nsbx_buf *out, struct nsbx_err *err);
bool nsbx_utf8_valid(const uint8_t *p, size_t n);
/* Bytes of an incomplete but so far valid character at the very end (0..3): cut there to keep characters whole. */
size_t nsbx_utf8_tail(const uint8_t *p, size_t n);
/* True when p[0..n) holds an encoded U+FFFD. */
bool nsbx_utf8_has_replacement(const uint8_t *p, size_t n);

/* Appends p[0..n) (valid UTF-8) as the inside of a JSON string: ", \ and control characters escaped, non-ASCII as it is. */
int nsbx_json_escape(struct nsbx_buf *out, const uint8_t *p, size_t n, struct nsbx_err *err);

#endif
