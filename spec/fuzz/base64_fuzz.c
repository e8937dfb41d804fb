/* Any bytes as base64 text and as what is to be written as such. */
#include "fuzz.h"

#include "codec/base64.h"

static uint8_t *decode(const uint8_t *text, size_t n, uint32_t seed, size_t *got)
{
    struct nsbx_base64_decoder decoder;
    nsbx_base64_decoder_init(&decoder);
    uint8_t *all = malloc(n / 4 * 3 + 6);
    WANT(all);
    *got = 0;
    for (size_t at = 0, piece; at < n; at += piece) {
        piece = fuzz_piece(&seed, n - at);
        uint8_t *in = fuzz_copy(text + at, piece), *out = malloc(piece / 4 * 3 + 3);
        size_t len = nsbx_base64_decode(&decoder, out, in, piece);
        WANT(len <= piece / 4 * 3 + 3);
        memcpy(all + *got, out, len);
        *got += len;
        free(in);
        free(out);
    }
    *got += nsbx_base64_decode_end(&decoder, all + *got);
    return all;
}

/* The plain rule: letters until padding, six bits each. */
static void check_bits(const uint8_t *text, size_t n, const uint8_t *got, size_t got_n)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0, held = 0;
    size_t at = 0;
    for (size_t i = 0; i < n && text[i] != '='; i++) {
        int c = text[i] == '-' ? '+' : text[i] == '_' ? '/' : text[i];
        const char *letter = c ? strchr(letters, c) : NULL;
        if (!letter)
            continue;
        bits = bits << 6 | (uint32_t)(letter - letters);
        held += 6;
        if (held >= 8) {
            held -= 8;
            WANT(at < got_n && got[at] == (uint8_t)(bits >> held));
            at++;
        }
    }
    WANT(at == got_n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4)
        return 0;
    uint32_t seed;
    memcpy(&seed, data, 4);
    data += 4;
    size -= 4;
    size_t whole_n, pieces_n, back_n;
    uint8_t *whole = decode(data, size, 0, &whole_n), *pieces = decode(data, size, seed | 1, &pieces_n);
    WANT(whole_n == pieces_n && memcmp(whole, pieces, whole_n) == 0);
    check_bits(data, size, whole, whole_n);

    char *text = malloc(nsbx_base64_len(size) + 1);
    size_t text_n = nsbx_base64_encode(text, data, size);
    WANT(text_n == nsbx_base64_len(size));
    uint8_t *back = decode((uint8_t *)text, text_n, seed | 1, &back_n);
    WANT(back_n == size && memcmp(back, data, size) == 0);
    struct nsbx_base64_decoder decoder;
    nsbx_base64_decoder_init(&decoder); /* in place */
    back_n = nsbx_base64_decode(&decoder, (uint8_t *)text, (uint8_t *)text, text_n);
    back_n += nsbx_base64_decode_end(&decoder, (uint8_t *)text + back_n);
    WANT(back_n == size && memcmp(text, data, size) == 0);
    free(whole);
    free(pieces);
    free(back);
    free(text);
    return 0;
}
