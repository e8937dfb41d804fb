/* Numbers: the grammar as a table, and what a strict parser could not hold. */
#include "jscan_priv.h"

#include <string.h>

enum { OTHER, ZERO, DIGIT, POINT, EXPONENT, PLUS, MINUS, CLASSES };

static int class_of(uint8_t c)
{
    switch (c) {
    case '0':
        return ZERO;
    case '.':
        return POINT;
    case 'e':
    case 'E':
        return EXPONENT;
    case '+':
        return PLUS;
    case '-':
        return MINUS;
    default:
        return c >= '1' && c <= '9' ? DIGIT : OTHER;
    }
}

/* State × class → state; what is not listed is NONE: the number ends before this byte, if it may. */
static const uint8_t next_state[][CLASSES] = {
    [JSCAN_NUM_MINUS] = {[ZERO] = JSCAN_NUM_ZERO, [DIGIT] = JSCAN_NUM_INT},
    [JSCAN_NUM_ZERO] = {[POINT] = JSCAN_NUM_POINT, [EXPONENT] = JSCAN_NUM_E},
    [JSCAN_NUM_INT] =
        {[ZERO] = JSCAN_NUM_INT, [DIGIT] = JSCAN_NUM_INT, [POINT] = JSCAN_NUM_POINT, [EXPONENT] = JSCAN_NUM_E},
    [JSCAN_NUM_POINT] = {[ZERO] = JSCAN_NUM_FRACTION, [DIGIT] = JSCAN_NUM_FRACTION},
    [JSCAN_NUM_FRACTION] = {[ZERO] = JSCAN_NUM_FRACTION, [DIGIT] = JSCAN_NUM_FRACTION, [EXPONENT] = JSCAN_NUM_E},
    [JSCAN_NUM_E] = {[ZERO] = JSCAN_NUM_EXPONENT,
                     [DIGIT] = JSCAN_NUM_EXPONENT,
                     [PLUS] = JSCAN_NUM_SIGN,
                     [MINUS] = JSCAN_NUM_SIGN},
    [JSCAN_NUM_SIGN] = {[ZERO] = JSCAN_NUM_EXPONENT, [DIGIT] = JSCAN_NUM_EXPONENT},
    [JSCAN_NUM_EXPONENT] = {[ZERO] = JSCAN_NUM_EXPONENT, [DIGIT] = JSCAN_NUM_EXPONENT},
};

enum jscan_number nsbx_jscan_number_begin(uint8_t first)
{
    return first == '-' ? JSCAN_NUM_MINUS : first == '0' ? JSCAN_NUM_ZERO : JSCAN_NUM_INT;
}

int nsbx_jscan_number(struct nsbx_jscan *s, const uint8_t *p, size_t n, size_t *used)
{
    size_t at = 0;
    for (; at < n; at++) {
        uint8_t next = next_state[s->number][class_of(p[at])];
        if (next == JSCAN_NUM_NONE)
            break;
        s->number = (enum jscan_number)next;
    }
    *used = at;
    return nsbx_jscan_put(s, p, at);
}

/* Digits of an integer without sign and leading zeros, against the range of 64 bits. */
static bool fits(const char *digits, size_t n, bool negative)
{
    const char *limit = negative ? "9223372036854775808" : "9223372036854775807";
    return n < 19 || (n == 19 && memcmp(digits, limit, 19) <= 0);
}

/* An exponent's value, kept in a range in which nothing overflows. */
static int64_t read_exponent(const char *p, const char *end)
{
    bool negative = p < end && *p == '-';
    int64_t value = 0;
    for (p += p < end && (*p == '-' || *p == '+'); p < end && value < 1000000000; p++)
        value = value * 10 + (*p - '0');
    return negative ? -value : value;
}

/* True when the value is beyond the largest finite double: the power of ten of the first digit that is not 0, and at
 * the border the first 17 digits, tell. (Those that round down to the largest double are counted as beyond; what is
 * written for them is that double.) */
static bool beyond_double(const char *p, const char *end)
{
    static const char largest[] = "17976931348623157";
    char digits[sizeof(largest)] = "00000000000000000";
    size_t n = 0;
    int64_t power = -1, first = 0;
    bool fraction = false, found = false;
    for (; p < end && *p != 'e' && *p != 'E'; p++) {
        if (*p == '.') {
            fraction = true;
            continue;
        }
        power += !fraction;
        if (*p != '0' && !found)
            found = true;
        if (!found)
            first--; /* so far a zero */
        else if (n < sizeof(largest) - 1)
            digits[n++] = *p;
    }
    if (!found)
        return false;
    first += power + (p < end ? read_exponent(p + 1, end) : 0);
    return first > 308 || (first == 308 && memcmp(digits, largest, sizeof(largest) - 1) > 0);
}

int nsbx_jscan_number_end(struct nsbx_jscan *s, size_t at)
{
    if (s->number == JSCAN_NUM_MINUS || s->number == JSCAN_NUM_POINT || s->number == JSCAN_NUM_E ||
        s->number == JSCAN_NUM_SIGN)
        return nsbx_jscan_reject(s, at, "a number is incomplete");
    if (s->config.drop_rest)
        return 0;
    const char *text = (const char *)nsbx_buf_data(&s->rest) + s->number_start;
    size_t n = s->rest.len - s->number_start;
    bool negative = text[0] == '-';
    if (beyond_double(text + negative, text + n)) {
        s->rest.len = s->number_start + negative;
        return nsbx_jscan_put(s, "1.7976931348623157e308", 22);
    }
    bool integer = s->number == JSCAN_NUM_ZERO || s->number == JSCAN_NUM_INT;
    if (integer && !fits(text + negative, n - negative, negative))
        return nsbx_jscan_put(s, ".0", 2);
    return 0;
}
