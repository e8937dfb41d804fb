/* Base64: standard alphabet with padding when written; read as tolerantly as the published peers do
 * (url-safe letters, missing padding, characters outside the alphabet skipped). Incremental both ways. */
#ifndef NSBX_CODEC_BASE64_H
#define NSBX_CODEC_BASE64_H

#include <stddef.h>
#include <stdint.h>

static inline size_t nsbx_base64_len(size_t n) /* encoded length of n bytes, padding included */
{
    return (n + 2) / 3 * 4;
}
/* Encodes all of p; out has room for nsbx_base64_len(n). Returns the bytes written. To encode in pieces cut at multiples of 3. */
size_t nsbx_base64_encode(char *out, const uint8_t *p, size_t n);

struct nsbx_base64_decoder {
    uint32_t acc;
    uint8_t bits; /* bits held in acc: 0, 6, 12 or 18 */
    uint8_t done; /* padding was seen: the rest is ignored, as the published decoder does */
    uint8_t odd;  /* something that is no base64 was passed over: for whoever is not that tolerant */
};
void nsbx_base64_decoder_init(struct nsbx_base64_decoder *d);
/* Decodes text[0..n) into out (room for n/4*3+3); returns the bytes written. Nothing is an error. For a decoder that
 * holds no bits (a fresh one) out may be text itself. */
size_t nsbx_base64_decode(struct nsbx_base64_decoder *d, uint8_t *out, const uint8_t *text, size_t n);
/* The bytes that an unpadded end still owes (0..2); out has room for 2. */
size_t nsbx_base64_decode_end(struct nsbx_base64_decoder *d, uint8_t *out);

#endif
