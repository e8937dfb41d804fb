/* Any bytes as text: cut anywhere it becomes the same valid UTF-8, and escaped it is JSON of the same text. */
#include "fuzz.h"

#include "codec/utf8.h"

#include <jansson.h>

static struct nsbx_buf clean(const uint8_t *data, size_t size, uint32_t seed, uint64_t *replaced)
{
    struct nsbx_utf8 text;
    struct nsbx_buf out;
    nsbx_utf8_init(&text);
    nsbx_buf_init(&out, 3 * size + 16);
    for (size_t at = 0, n; at < size; at += n) {
        n = fuzz_piece(&seed, size - at);
        uint8_t *piece = fuzz_copy(data + at, n);
        WANT(nsbx_utf8_feed(&text, piece, n, &out, NULL) == 0);
        WANT(text.n <= 3 && nsbx_utf8_valid(nsbx_buf_data(&out), out.len));
        free(piece);
        if (seed == 0)
            WANT(text.n == nsbx_utf8_tail(data, size));
    }
    WANT(nsbx_utf8_flush(&text, &out, NULL) == 0);
    *replaced = text.replaced;
    return out;
}

static void check_json(const struct nsbx_buf *text)
{
    struct nsbx_buf json;
    nsbx_buf_init(&json, 6 * text->len + 2);
    WANT(nsbx_buf_append(&json, "\"", 1, NULL) == 0);
    WANT(nsbx_json_escape(&json, nsbx_buf_data(text), text->len, NULL) == 0);
    WANT(nsbx_buf_append(&json, "\"", 1, NULL) == 0);
    json_t *value = json_loadb((char *)nsbx_buf_data(&json), json.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    WANT(value && json_string_length(value) == text->len);
    WANT(text->len == 0 || memcmp(json_string_value(value), nsbx_buf_data(text), text->len) == 0);
    json_decref(value);
    nsbx_buf_free(&json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4)
        return 0;
    uint32_t seed;
    memcpy(&seed, data, 4);
    uint8_t *exact = fuzz_copy(data + 4, size - 4);
    size -= 4;
    uint64_t replaced, again;
    struct nsbx_buf whole = clean(exact, size, 0, &replaced), pieces = clean(exact, size, seed | 1, &again);
    WANT(whole.len == pieces.len && replaced == again);
    WANT(whole.len == 0 || memcmp(nsbx_buf_data(&whole), nsbx_buf_data(&pieces), whole.len) == 0);
    bool valid = nsbx_utf8_valid(exact, size);
    WANT(valid == (replaced == 0));
    if (valid)
        WANT(whole.len == size && (size == 0 || memcmp(nsbx_buf_data(&whole), exact, size) == 0));
    else
        WANT(nsbx_utf8_has_replacement(nsbx_buf_data(&whole), whole.len));
    check_json(&whole);
    nsbx_buf_free(&whole);
    nsbx_buf_free(&pieces);
    free(exact);
    return 0;
}
