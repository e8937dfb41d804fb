/* What the text codecs share: one character at a time, and the runs that need no look at single bytes. */
#ifndef NSBX_CODEC_UTF8_PRIV_H
#define NSBX_CODEC_UTF8_PRIV_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum nsbx_utf8_kind {
    NSBX_UTF8_CHAR,    /* a whole character */
    NSBX_UTF8_BAD,     /* an invalid maximal subpart: one U+FFFD stands for it */
    NSBX_UTF8_PARTIAL, /* the bytes end inside a so far valid character */
};
/* What p[0..n) begins with, n ≥ 1; *len is its length in bytes (of the held bytes when partial). */
enum nsbx_utf8_kind nsbx_utf8_next(const uint8_t *p, size_t n, size_t *len);
/* The code point of the whole character at p, `len` bytes long. */
uint32_t nsbx_utf8_decode(const uint8_t *p, size_t len);
/* Writes a code point that is no surrogate; returns its length. */
size_t nsbx_utf8_encode(uint8_t out[4], uint32_t c);
/* Bytes at the start that are whole valid characters. */
size_t nsbx_utf8_run(const uint8_t *p, size_t n);

/* The escape of a byte that cannot stand in a JSON string (a control, `"`, `\`); returns its length, 2 or 6. */
size_t nsbx_json_escape_byte(char out[6], uint8_t byte);

#define NSBX_UTF8_REPLACEMENT "\xef\xbf\xbd"

/* Bytes at the start that stand for themselves inside a JSON string: ASCII without controls, `"` and `\`. Eight at a
 * time: for each byte its high bit is set when it is (or a borrow from a lower one makes it look) special, so the test
 * of a whole word is exact and the loop for single bytes finds which. */
static inline size_t nsbx_json_plain_run(const uint8_t *p, size_t n)
{
    const uint64_t ones = 0x0101010101010101u;
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        uint64_t x;
        memcpy(&x, p + i, 8);
        uint64_t control = x - ones * 0x20;
        uint64_t quote = (x ^ (ones * '"')) - ones;
        uint64_t backslash = (x ^ (ones * '\\')) - ones;
        if ((x | control | quote | backslash) & (ones * 0x80))
            break;
    }
    while (i < n && p[i] >= 0x20 && p[i] < 0x80 && p[i] != '"' && p[i] != '\\')
        i++;
    return i;
}

#endif
