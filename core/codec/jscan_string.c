/* Strings: escapes, surrogates and bytes to valid UTF-8, and on to where the string goes. */
#include "jscan_priv.h"
#include "utf8_priv.h"

#include "utf8.h"

#include <string.h>

enum { REPLACEMENT = 0xfffd };

void nsbx_jscan_string_begin(struct nsbx_jscan *s, enum jscan_role role)
{
    struct jscan_string *string = &s->string;
    string->role = role;
    string->escape = string->begun = string->overlong = false;
    string->hex_left = string->held_n = 0;
    string->high = 0;
    string->word_n = string->scratch_n = 0;
}

/* --- out: to the sink, or to the rest and the word --- */

static int sink(struct nsbx_jscan *s, const uint8_t *bytes, size_t n, bool end)
{
    bool begin = !s->string.begun;
    s->string.begun = true;
    return s->config.on_large(s->config.ud, (size_t)s->large, bytes, n, begin, end);
}

int nsbx_jscan_string_flush(struct nsbx_jscan *s, bool end)
{
    struct jscan_string *string = &s->string;
    size_t n = string->scratch_n;
    if (string->role != JSCAN_LARGE || (n == 0 && !end))
        return 0;
    string->scratch_n = 0;
    return sink(s, string->scratch, n, end);
}

/* Long pieces are lent to the sink as they are; short ones (text with many escapes) are put together first. */
static int put_large(struct nsbx_jscan *s, const uint8_t *bytes, size_t n)
{
    struct jscan_string *string = &s->string;
    if (n > sizeof(string->scratch) - string->scratch_n) {
        int rc = nsbx_jscan_string_flush(s, false);
        if (rc)
            return rc;
    }
    if (n > sizeof(string->scratch) / 2)
        return nsbx_jscan_string_flush(s, false) ?: sink(s, bytes, n, false);
    memcpy(string->scratch + string->scratch_n, bytes, n);
    string->scratch_n += n;
    return 0;
}

static void put_word(struct jscan_string *string, const uint8_t *bytes, size_t n)
{
    if (string->role == JSCAN_PLAIN || string->overlong)
        return;
    if (n > NSBX_JSCAN_WATCH_MAX - string->word_n) {
        string->overlong = true;
        return;
    }
    memcpy(string->word + string->word_n, bytes, n);
    string->word_n += n;
}

/* Bytes that need no escape. */
static int put_text(struct nsbx_jscan *s, const void *bytes, size_t n)
{
    if (s->string.role == JSCAN_LARGE)
        return put_large(s, bytes, n);
    put_word(&s->string, bytes, n);
    return nsbx_jscan_put(s, bytes, n);
}

static int put_char(struct nsbx_jscan *s, uint32_t c)
{
    /* A strict parser refuses NUL in a key, and no key that anybody looks for holds one. */
    if (c == 0 && s->string.role == JSCAN_NAME)
        c = REPLACEMENT;
    uint8_t bytes[4];
    size_t n = nsbx_utf8_encode(bytes, c);
    if (s->string.role == JSCAN_LARGE || (c >= 0x20 && c != '"' && c != '\\'))
        return put_text(s, bytes, n);
    put_word(&s->string, bytes, n);
    char escape[6];
    return nsbx_jscan_put(s, escape, nsbx_json_escape_byte(escape, (uint8_t)c));
}

/* --- in --- */

/* A high surrogate that no low one followed. */
static int settle_high(struct nsbx_jscan *s)
{
    if (s->string.high == 0)
        return 0;
    s->string.high = 0;
    return put_char(s, REPLACEMENT);
}

static int put_unit(struct nsbx_jscan *s, uint16_t unit)
{
    bool low = unit >= 0xdc00 && unit <= 0xdfff;
    if (low && s->string.high) {
        uint32_t c = 0x10000u + ((uint32_t)(s->string.high - 0xd800) << 10) + (uint32_t)(unit - 0xdc00);
        s->string.high = 0;
        return put_char(s, c);
    }
    int rc = settle_high(s);
    if (rc)
        return rc;
    if (unit >= 0xd800 && unit <= 0xdbff) {
        s->string.high = unit;
        return 0;
    }
    return put_char(s, low ? REPLACEMENT : unit);
}

static int next_hex(struct nsbx_jscan *s, uint8_t c, size_t at)
{
    struct jscan_string *string = &s->string;
    uint8_t lower = c | 0x20;
    int digit = c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
    if (digit < 0)
        return nsbx_jscan_reject(s, at, "\\u wants four hex digits");
    string->unit = (uint16_t)(string->unit << 4 | digit);
    return --string->hex_left ? 0 : put_unit(s, string->unit);
}

static int after_backslash(struct nsbx_jscan *s, uint8_t c, size_t at)
{
    static const char names[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    s->string.escape = false;
    if (c == 'u') {
        s->string.hex_left = 4;
        s->string.unit = 0;
        return 0;
    }
    const char *name = c ? strchr(names, c) : NULL;
    if (!name)
        return nsbx_jscan_reject(s, at, "there is no such escape");
    return settle_high(s) ?: put_char(s, (uint8_t)meanings[name - names]);
}

/* Goes on with a character that the last piece left incomplete; false in *took when c is not part of it. */
static int next_held(struct nsbx_jscan *s, uint8_t c, bool *took)
{
    struct jscan_string *string = &s->string;
    size_t len;
    string->held[string->held_n] = c;
    enum nsbx_utf8_kind kind = nsbx_utf8_next(string->held, string->held_n + 1u, &len);
    *took = kind != NSBX_UTF8_BAD;
    if (kind == NSBX_UTF8_PARTIAL) {
        string->held_n++;
        return 0;
    }
    string->held_n = 0;
    return kind == NSBX_UTF8_CHAR ? put_text(s, string->held, len) : put_char(s, REPLACEMENT);
}

/* A byte that is neither plain nor the start of a whole character; *used bytes were taken. */
static int special(struct nsbx_jscan *s, const uint8_t *p, size_t n, size_t at, size_t *used, bool *closed)
{
    *used = 1;
    if (p[0] == '\\') {
        s->string.escape = true;
        return 0;
    }
    int rc = settle_high(s);
    if (rc)
        return rc;
    if (p[0] == '"') {
        *closed = true;
        return 0;
    }
    if (p[0] < 0x20)
        return nsbx_jscan_reject(s, at, "a control character in a string must be escaped");
    if (nsbx_utf8_next(p, n, used) == NSBX_UTF8_BAD)
        return put_char(s, REPLACEMENT);
    memcpy(s->string.held, p, *used);
    s->string.held_n = (uint8_t)*used;
    return 0;
}

/* Bytes at the start that mean themselves. */
static size_t literal_run(const uint8_t *p, size_t n)
{
    size_t at = 0, len;
    for (;;) {
        at += nsbx_json_plain_run(p + at, n - at);
        if (at == n || p[at] < 0x80 || nsbx_utf8_next(p + at, n - at, &len) != NSBX_UTF8_CHAR)
            return at;
        at += len;
    }
}

/* One step inside a string: *used bytes, at least one but for the end of a held character. */
static int step(struct nsbx_jscan *s, const uint8_t *p, size_t n, size_t at, size_t *used, bool *closed)
{
    *used = 1;
    if (s->string.hex_left)
        return next_hex(s, p[0], at);
    if (s->string.escape)
        return after_backslash(s, p[0], at);
    if (s->string.held_n) {
        bool took;
        int rc = next_held(s, p[0], &took);
        *used = took;
        return rc;
    }
    size_t run = literal_run(p, n);
    if (run == 0)
        return special(s, p, n, at, used, closed);
    *used = run;
    return settle_high(s) ?: put_text(s, p, run);
}

int nsbx_jscan_string(struct nsbx_jscan *s, const uint8_t *p, size_t n, size_t *used, bool *closed)
{
    int rc = 0;
    size_t at = 0;
    *closed = false;
    while (rc == 0 && at < n && !*closed) {
        size_t took;
        rc = step(s, p + at, n - at, at, &took, closed);
        at += took;
    }
    *used = at;
    return rc;
}
