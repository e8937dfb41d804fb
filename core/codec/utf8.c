#include "utf8.h"

#include "utf8_priv.h"

/* Bytes after the lead byte, and the range of the first of them: the other ones are 80..BF. 0 = no lead byte. */
static size_t follow(uint8_t lead, uint8_t *low, uint8_t *high)
{
    *low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    *high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (lead >= 0xc2 && lead <= 0xdf)
        return 1;
    if (lead >= 0xe0 && lead <= 0xef)
        return 2;
    return lead >= 0xf0 && lead <= 0xf4 ? 3 : 0;
}

enum nsbx_utf8_kind nsbx_utf8_next(const uint8_t *p, size_t n, size_t *len)
{
    *len = 1;
    if (p[0] < 0x80)
        return NSBX_UTF8_CHAR;
    uint8_t low, high;
    size_t more = follow(p[0], &low, &high);
    if (more == 0)
        return NSBX_UTF8_BAD;
    for (size_t i = 1; i <= more; i++) {
        if (i == n)
            return NSBX_UTF8_PARTIAL;
        if (p[i] < low || p[i] > high)
            return NSBX_UTF8_BAD;
        low = 0x80;
        high = 0xbf;
        *len = i + 1;
    }
    return NSBX_UTF8_CHAR;
}

uint32_t nsbx_utf8_decode(const uint8_t *p, size_t len)
{
    uint32_t c = len == 1 ? p[0] : p[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++)
        c = c << 6 | (p[i] & 0x3fu);
    return c;
}

size_t nsbx_utf8_encode(uint8_t out[4], uint32_t c)
{
    if (c < 0x80) {
        out[0] = (uint8_t)c;
        return 1;
    }
    size_t len = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = len - 1; i > 0; i--, c >>= 6)
        out[i] = (uint8_t)(0x80 | (c & 0x3f));
    out[0] = (uint8_t)(0xf00u >> len | c);
    return len;
}

static size_t ascii_run(const uint8_t *p, size_t n)
{
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        uint64_t x;
        memcpy(&x, p + i, 8);
        if (x & 0x8080808080808080u)
            break;
    }
    while (i < n && p[i] < 0x80)
        i++;
    return i;
}

size_t nsbx_utf8_run(const uint8_t *p, size_t n)
{
    size_t at = 0, len;
    while (at < n) {
        if (p[at] < 0x80)
            at += ascii_run(p + at, n - at);
        else if (nsbx_utf8_next(p + at, n - at, &len) == NSBX_UTF8_CHAR)
            at += len;
        else
            break;
    }
    return at;
}

void nsbx_utf8_init(struct nsbx_utf8 *u)
{
    *u = (struct nsbx_utf8){0};
}

static int replace(struct nsbx_utf8 *u, struct nsbx_buf *out, struct nsbx_err *err)
{
    int rc = nsbx_buf_append(out, NSBX_UTF8_REPLACEMENT, 3, err);
    if (rc == 0)
        u->replaced++;
    return rc;
}

/* Goes on with the character that the last chunk left incomplete; *used is what it took of p. */
static int finish_held(struct nsbx_utf8 *u, const uint8_t *p, size_t n, size_t *used, struct nsbx_buf *out,
                       struct nsbx_err *err)
{
    *used = 0;
    while (u->n > 0 && *used < n) {
        size_t len;
        u->held[u->n] = p[*used];
        enum nsbx_utf8_kind kind = nsbx_utf8_next(u->held, u->n + 1u, &len);
        if (kind != NSBX_UTF8_BAD) {
            u->n++;
            ++*used;
        }
        if (kind == NSBX_UTF8_PARTIAL)
            continue;
        /* Bad: what was held is the maximal subpart, and the new byte starts afresh. */
        int rc = kind == NSBX_UTF8_CHAR ? nsbx_buf_append(out, u->held, u->n, err) : replace(u, out, err);
        if (rc)
            return rc;
        u->n = 0;
    }
    return 0;
}

int nsbx_utf8_feed(struct nsbx_utf8 *u, const uint8_t *p, size_t n, struct nsbx_buf *out, struct nsbx_err *err)
{
    size_t at = 0, len;
    int rc = finish_held(u, p, n, &at, out, err);
    while (rc == 0 && at < n) {
        size_t run = nsbx_utf8_run(p + at, n - at);
        rc = nsbx_buf_append(out, p + at, run, err);
        at += run;
        if (rc || at == n)
            break;
        if (nsbx_utf8_next(p + at, n - at, &len) == NSBX_UTF8_PARTIAL) {
            memcpy(u->held, p + at, len);
            u->n = (uint8_t)len;
        } else
            rc = replace(u, out, err);
        at += len;
    }
    return rc;
}

int nsbx_utf8_flush(struct nsbx_utf8 *u, struct nsbx_buf *out, struct nsbx_err *err)
{
    int rc = u->n ? replace(u, out, err) : 0;
    if (rc == 0)
        u->n = 0;
    return rc;
}

bool nsbx_utf8_valid(const uint8_t *p, size_t n)
{
    return nsbx_utf8_run(p, n) == n;
}

size_t nsbx_utf8_tail(const uint8_t *p, size_t n)
{
    size_t len;
    for (size_t back = 1; back <= 3 && back <= n; back++)
        if (nsbx_utf8_next(p + n - back, back, &len) == NSBX_UTF8_PARTIAL)
            return back;
    return 0;
}

bool nsbx_utf8_has_replacement(const uint8_t *p, size_t n)
{
    return n > 0 && memmem(p, n, NSBX_UTF8_REPLACEMENT, 3) != NULL;
}

size_t nsbx_json_escape_byte(char out[6], uint8_t byte)
{
    static const char digits[] = "0123456789abcdef";
    const char *short_form = byte == '"' || byte == '\\' ? NULL : memchr("\bb\tt\nn\ff\rr", byte, 10);
    out[0] = '\\';
    if (byte == '"' || byte == '\\' || short_form) {
        out[1] = short_form ? short_form[1] : (char)byte;
        return 2;
    }
    memcpy(out + 1, "u00", 3);
    out[4] = digits[byte >> 4];
    out[5] = digits[byte & 15];
    return 6;
}

int nsbx_json_escape(struct nsbx_buf *out, const uint8_t *p, size_t n, struct nsbx_err *err)
{
    size_t at = 0;
    int rc = 0;
    while (rc == 0 && at < n) {
        size_t run = 0;
        do
            run += nsbx_json_plain_run(p + at + run, n - at - run);
        while (at + run < n && p[at + run] >= 0x80 && ++run < n - at);
        rc = nsbx_buf_append(out, p + at, run, err);
        at += run;
        if (rc == 0 && at < n) {
            char text[6];
            rc = nsbx_buf_append(out, text, nsbx_json_escape_byte(text, p[at++]), err);
        }
    }
    return rc;
}
