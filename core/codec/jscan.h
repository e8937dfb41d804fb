/* An incremental JSON scanner for the published messages. It reads one JSON value in pieces of any size and
 *  - reports watched short strings (`op`, `token`, `type`) as soon as each is complete, before the rest arrived;
 *  - hands the string value of a *large* member (`body.content`, `data`, …) to a sink, unescaped, as it arrives,
 *    so that no message is ever held whole;
 *  - keeps the rest as normalised JSON text (valid UTF-8; lone surrogates, invalid bytes and NUL in a key as U+FFFD;
 *    numbers that fit neither 64 bits nor a double as the nearest double; a large string as ""), at most `max_rest`
 *    bytes, `max_depth` levels and NSBX_MAX_MESSAGE_CONTAINERS objects and arrays, fit for a strict parser that
 *    allows NUL.
 * It accepts what the published reader accepts (any key order, unknown keys, duplicates, \u0000, lone surrogates)
 * and rejects what is not JSON with the offset. No I/O. Memory: max_rest and a constant. */
#ifndef NSBX_CODEC_JSCAN_H
#define NSBX_CODEC_JSCAN_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nsbx_jscan;

enum { NSBX_JSCAN_WATCH_MAX = 512 }; /* a longer value of a watched member is reported as absent (value NULL) */

struct nsbx_jscan_config {
    size_t max_rest;
    int max_depth;
    /* Dotted paths of object keys from the top, NULL-terminated; static for the scanner's life. At most 8 of each. */
    const char *const *watch;
    const char *const *large;
    /* Check the rest but keep nothing of it: max_rest is no bound then and the rest is "" at the end. For what an
     * unauthenticated peer sends, where a constant is all the memory it may cost. */
    bool drop_rest;
    /* A watched member's string value is complete (NUL-terminated too; borrowed; may hold NULs: use n).
     * A non-string or overlong value: value NULL. Non-zero stops the scan with that return. */
    int (*on_watch)(void *ud, size_t index, const char *value, size_t n);
    /* Pieces of a large member's string, unescaped to valid UTF-8, borrowed. `end` is true once per string, with n
     * possibly 0; every string has at least that call. A repeated key starts over: `begin` is true on a string's first call. */
    int (*on_large)(void *ud, size_t index, const uint8_t *bytes, size_t n, bool begin, bool end);
    void *ud;
};

/* NULL without memory. `config` is copied (the path arrays are not). */
struct nsbx_jscan *nsbx_jscan_new(const struct nsbx_jscan_config *config);
void nsbx_jscan_free(struct nsbx_jscan *s);  /* NULL is fine */
void nsbx_jscan_reset(struct nsbx_jscan *s); /* for the next message; keeps memory that is small */
/* 0, or -NSBX_E_PROTOCOL (not JSON), -NSBX_E_LIMIT (rest too long, too deep), or a callback's non-zero return. Sticky. */
int nsbx_jscan_feed(struct nsbx_jscan *s, const uint8_t *p, size_t n, struct nsbx_err *err);
/* End of the value: 0 and *rest, *len (borrowed until reset or free; not NUL-terminated), or an error when the value is incomplete. */
int nsbx_jscan_end(struct nsbx_jscan *s, const char **rest, size_t *len, struct nsbx_err *err);

#endif
