/* Character classes of glob patterns. */
#include "glob_priv.h"
#include "utf8_priv.h"

#include "base/util.h"

#include <string.h>

enum { ALNUM, ALPHA, ASCII, BLANK, CNTRL, DIGIT, GRAPH, LOWER, PRINT, PUNCT, SPACE, UPPER, WORD, XDIGIT, NAMED };
static const char names[NAMED][8] = {"alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph",
                                     "lower", "print", "punct", "space", "upper", "word",  "xdigit"};

size_t nsbx_glob_char(const char *p, size_t n, uint32_t *c)
{
    size_t len;
    const uint8_t *bytes = (const uint8_t *)p;
    if (nsbx_utf8_next(bytes, n, &len) == NSBX_UTF8_CHAR) {
        *c = nsbx_utf8_decode(bytes, len);
        return len;
    }
    *c = GLOB_BYTE + bytes[0];
    return 1;
}

/* --- parsing --- */

/* The length of "[:name:]" at p, its number in *named; 0 when it is none. */
static size_t posix_class(const char *p, size_t n, int *named)
{
    if (n < 2 || p[1] != ':')
        return 0;
    for (int i = 0; i < NAMED; i++) {
        size_t len = strlen(names[i]);
        if (n >= len + 4 && memcmp(p + 2, names[i], len) == 0 && memcmp(p + 2 + len, ":]", 2) == 0) {
            *named = i;
            return len + 4;
        }
    }
    return 0;
}

/* One character of a class, an escaped one too; 0 at the end of the text. */
static size_t class_char(const char *p, size_t n, uint32_t *c)
{
    size_t escape = n > 1 && p[0] == '\\';
    return n > escape ? escape + nsbx_glob_char(p + escape, n - escape, c) : 0;
}

/* A character or a range at p; its length, 0 at the end of the text, negative without memory. */
static long class_item(struct glob_class *class, const char *p, size_t n, struct nsbx_buf *ranges,
                       struct nsbx_err *err)
{
    struct glob_range range;
    int named = 0;
    size_t len = class_char(p, n, &range.low), high_len;
    if (len == 0)
        return 0;
    range.high = range.low;
    if (n - len >= 2 && p[len] == '-' && p[len + 1] != ']') {
        const char *high = p + len + 1;
        high_len = posix_class(high, n - len - 1, &named);
        if (high_len)
            class->impossible = true;
        else if (!(high_len = class_char(high, n - len - 1, &range.high)))
            return 0;
        len += 1 + high_len;
    }
    if (range.high < range.low) /* an empty range adds nothing */
        return (long)len;
    int rc = nsbx_buf_append(ranges, &range, sizeof(range), err);
    class->count++;
    return rc ? rc : (long)len;
}

long nsbx_glob_class_parse(struct glob_class *class, const char *p, size_t n, struct nsbx_buf *ranges,
                           struct nsbx_err *err)
{
    *class = (struct glob_class){.first = (uint32_t)(ranges->len / sizeof(struct glob_range))};
    if (!memchr(p, ']', n)) /* so that many brackets without an end cost little each */
        return 0;
    size_t at = 1;
    if (at < n && (p[at] == '!' || p[at] == '^')) {
        class->negated = true;
        at++;
    }
    for (size_t start = at; at < n;) {
        int named = 0;
        if (p[at] == ']' && at > start) {
            class->impossible |= class->count == 0 && class->named == 0;
            return (long)at + 1;
        }
        size_t len = p[at] == '[' ? posix_class(p + at, n - at, &named) : 0;
        if (len)
            class->named |= (uint16_t)(1u << named);
        else {
            long item = class_item(class, p + at, n - at, ranges, err);
            if (item < 0)
                return item;
            if (item == 0)
                break;
            len = (size_t)item;
        }
        at += len;
    }
    ranges->len = class->first * sizeof(struct glob_range); /* no end: forget what was read */
    return 0;
}

/* --- matching --- */

static enum glob_kind kind_of(uint32_t c)
{
    size_t low = 0, high = nsbx_glob_run_count;
    while (high - low > 1) { /* the last run that starts at or before c */
        size_t middle = low + (high - low) / 2;
        if (nsbx_glob_runs[middle] >> 4 <= c)
            low = middle;
        else
            high = middle;
    }
    enum glob_kind kind = (enum glob_kind)(nsbx_glob_runs[low] & 15);
    if (kind != GLOB_LULL)
        return kind;
    return (c - (nsbx_glob_runs[low] >> 4)) % 2 ? GLOB_LL : GLOB_LU;
}

static bool is_among(uint32_t c, const char *chars)
{
    return c > 0 && c < 0x80 && strchr(chars, (int)c) != NULL;
}

static bool is_named(int named, uint32_t c)
{
    enum glob_kind kind = c < GLOB_BYTE ? kind_of(c) : GLOB_C;
    bool letter = kind >= GLOB_L && kind <= GLOB_LL;
    bool space = kind == GLOB_Z || kind == GLOB_ZS;
    bool control = kind == GLOB_C || kind == GLOB_CC;
    switch (named) {
    case ALNUM:
        return letter || kind == GLOB_ND;
    case ALPHA:
        return letter;
    case ASCII:
        return c < 0x80;
    case BLANK:
        return kind == GLOB_ZS || c == '\t';
    case CNTRL:
        return kind == GLOB_CC;
    case DIGIT:
        return kind == GLOB_ND;
    case GRAPH:
        return !space && !control;
    case LOWER:
        return kind == GLOB_LL;
    case PRINT:
        return !control;
    case PUNCT:
        return kind == GLOB_P || kind == GLOB_PC;
    case SPACE:
        return space || is_among(c, "\t\r\n\v\f");
    case UPPER:
        return kind == GLOB_LU;
    case WORD:
        return letter || kind == GLOB_ND || kind == GLOB_PC;
    default: /* XDIGIT */
        return is_among(c, "0123456789abcdefABCDEF");
    }
}

bool nsbx_glob_class_has(const struct glob_class *class, const struct glob_range *ranges, uint32_t c)
{
    if (class->impossible)
        return false;
    for (uint32_t i = 0; i < class->count; i++)
        if (c >= ranges[class->first + i].low && c <= ranges[class->first + i].high)
            return !class->negated;
    for (int named = 0; named < NAMED; named++)
        if ((class->named >> named & 1) && is_named(named, c))
            return !class->negated;
    return class->negated;
}
