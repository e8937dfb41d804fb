#include "base64.h"

#include <string.h>

static const char letters[64] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t nsbx_base64_encode(char *out, const uint8_t *p, size_t n)
{
    char *at = out;
    for (; n >= 3; n -= 3, p += 3, at += 4) {
        uint32_t group = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
        at[0] = letters[group >> 18];
        at[1] = letters[group >> 12 & 63];
        at[2] = letters[group >> 6 & 63];
        at[3] = letters[group & 63];
    }
    if (n > 0) {
        uint32_t group = (uint32_t)p[0] << 16 | (n == 2 ? (uint32_t)p[1] << 8 : 0);
        at[0] = letters[group >> 18];
        at[1] = letters[group >> 12 & 63];
        at[2] = n == 2 ? letters[group >> 6 & 63] : '=';
        at[3] = '=';
        at += 4;
    }
    return (size_t)(at - out);
}

/* The value of a letter with LETTER set, PAD, or 0 for a character outside the alphabet. */
enum { LETTER = 0x40, PAD = 0x80 };
#define ROW(first, value)                                                                                          \
    [first] = LETTER | (value), [(first) + 1] = LETTER | ((value) + 1), [(first) + 2] = LETTER | ((value) + 2),    \
    [(first) + 3] = LETTER | ((value) + 3), [(first) + 4] = LETTER | ((value) + 4)
static const uint8_t values[256] = {
    ROW('A', 0),         ROW('F', 5),         ROW('K', 10),        ROW('P', 15), ROW('U', 20),
    ['Z'] = LETTER | 25, ROW('a', 26),        ROW('f', 31),        ROW('k', 36), ROW('p', 41),
    ROW('u', 46),        ['z'] = LETTER | 51, ROW('0', 52),        ROW('5', 57), ['+'] = LETTER | 62,
    ['-'] = LETTER | 62, ['/'] = LETTER | 63, ['_'] = LETTER | 63, ['='] = PAD,
};

void nsbx_base64_decoder_init(struct nsbx_base64_decoder *d)
{
    *d = (struct nsbx_base64_decoder){0};
}

/* Whole groups of letters from the start of text; returns how many letters. */
static size_t decode_groups(uint8_t *out, const uint8_t *text, size_t n)
{
    size_t at = 0;
    for (; n - at >= 4; at += 4, out += 3) {
        uint32_t a = values[text[at]], b = values[text[at + 1]], c = values[text[at + 2]], d = values[text[at + 3]];
        if (!(a & b & c & d & LETTER))
            break;
        uint32_t group = (a & 63) << 18 | (b & 63) << 12 | (c & 63) << 6 | (d & 63);
        out[0] = (uint8_t)(group >> 16);
        out[1] = (uint8_t)(group >> 8);
        out[2] = (uint8_t)group;
    }
    return at;
}

size_t nsbx_base64_decode(struct nsbx_base64_decoder *d, uint8_t *out, const uint8_t *text, size_t n)
{
    uint8_t *start = out;
    for (size_t at = 0; at < n && !d->done;) {
        if (d->bits == 0) {
            size_t used = decode_groups(out, text + at, n - at);
            out += used / 4 * 3;
            at += used;
            if (at == n)
                break;
        }
        uint8_t value = values[text[at++]];
        if (value == PAD)
            d->done = 1;
        d->odd |= value == 0;
        if (!(value & LETTER))
            continue;
        d->acc = d->acc << 6 | (value & 63u);
        d->bits += 6;
        if (d->bits == 24) {
            *out++ = (uint8_t)(d->acc >> 16);
            *out++ = (uint8_t)(d->acc >> 8);
            *out++ = (uint8_t)d->acc;
            d->acc = d->bits = 0;
        }
    }
    return (size_t)(out - start);
}

size_t nsbx_base64_decode_end(struct nsbx_base64_decoder *d, uint8_t *out)
{
    size_t owed = d->bits / 8u; /* 6 bits alone are no byte */
    for (size_t i = 0; i < owed; i++)
        out[i] = (uint8_t)(d->acc >> (d->bits - 8 * (i + 1)));
    nsbx_base64_decoder_init(d);
    return owed;
}
