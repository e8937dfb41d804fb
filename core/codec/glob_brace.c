/* Brace expansion: {a,b}, {1..9..2}, {a..e}. The texts that still hold braces wait on a stack; the first group of the
 * top one is replaced by each of its parts, until none is left. */
#include "glob_priv.h"

#include "base/alloc.h"
#include "base/util.h"

#include <stdio.h>
#include <string.h>

enum { NUMBER_DIGITS = 15, PART_MAX = 24 };

struct text {
    char *bytes;
    size_t n;
    size_t done; /* bytes at the start in which no group is left */
};

struct stack {
    struct text texts[NSBX_GLOB_MAX_BRANCHES];
    size_t count;
    size_t branches; /* those that were made */
    size_t bytes;    /* of the waiting texts and of the branches */
    size_t *open;    /* openers without their end while a text is scanned */
};

/* {first..last..step} */
struct sequence {
    bool letters;
    int64_t first, last, step;
    int width; /* numbers are padded with zeros to it; 0 = not padded */
};

/* What a group stands for: its place in a text and either a sequence or parts between commas. */
struct group {
    size_t open, close;
    bool is_sequence;
    struct sequence sequence;
};

/* --- sequences --- */

/* A number at p: "-"? digits; its length, 0 when it is none or too long to count. */
static size_t read_number(const char *p, size_t n, int64_t *value)
{
    size_t sign = n > 0 && p[0] == '-', at = sign;
    for (*value = 0; at < n && p[at] >= '0' && p[at] <= '9'; at++)
        if (at - sign < NUMBER_DIGITS)
            *value = *value * 10 + (p[at] - '0');
    if (at == sign || at - sign > NUMBER_DIGITS)
        return 0;
    if (sign)
        *value = -*value;
    return at;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static size_t read_bound(const char *p, size_t n, bool letters, int64_t *value)
{
    if (!letters)
        return read_number(p, n, value);
    *value = n > 0 ? p[0] : 0;
    return n > 0 && is_letter(p[0]);
}

static bool is_padded(const char *p, size_t n)
{
    size_t sign = p[0] == '-';
    return n > sign + 1 && p[sign] == '0';
}

static bool read_sequence(const char *p, size_t n, struct sequence *s)
{
    *s = (struct sequence){.letters = n > 0 && is_letter(p[0]), .step = 1};
    size_t first = read_bound(p, n, s->letters, &s->first);
    if (first == 0 || n - first < 3 || memcmp(p + first, "..", 2) != 0)
        return false;
    const char *second = p + first + 2;
    size_t last = read_bound(second, n - first - 2, s->letters, &s->last);
    size_t at = first + 2 + last;
    if (last == 0)
        return false;
    if (!s->letters && (is_padded(p, first) || is_padded(second, last)))
        s->width = (int)NSBX_MAX(first, last);
    if (at == n)
        return true;
    if (n - at < 3 || memcmp(p + at, "..", 2) != 0)
        return false;
    size_t step = read_number(p + at + 2, n - at - 2, &s->step);
    s->step = NSBX_MAX(s->step < 0 ? -s->step : s->step, 1);
    return step > 0 && at + 2 + step == n;
}

static int64_t sequence_count(const struct sequence *s)
{
    int64_t span = s->last > s->first ? s->last - s->first : s->first - s->last;
    return span / s->step + 1;
}

static size_t sequence_part(const struct sequence *s, int64_t number, char out[PART_MAX])
{
    int64_t value = s->first + (s->last > s->first ? number : -number) * s->step;
    if (s->letters) {
        out[0] = (char)value;
        return value != '\\'; /* between the letters; alone it would escape what follows */
    }
    return (size_t)snprintf(out, PART_MAX, "%0*lld", s->width, (long long)value);
}

/* --- finding the first group --- */

static size_t skip_escape(const char *p, size_t n, size_t at)
{
    return p[at] == '\\' && at + 1 < n ? at + 2 : at + 1;
}

/* The leftmost group of t at or behind t->done. An opener counts from its closer on; one without a comma of its own
 * that is no sequence, or behind a `$`, stands for itself. */
static bool find_group(struct stack *stack, const struct text *t, struct group *found)
{
    enum { COMMA = 1 }; /* the low bit of an opener on the stack: it has a comma */
    size_t depth = 0;
    const char *p = t->bytes;
    bool any = false;
    for (size_t at = t->done; at < t->n; at = skip_escape(p, t->n, at)) {
        if (p[at] == '{')
            stack->open[depth++] = at << 1;
        else if (p[at] == ',' && depth > 0)
            stack->open[depth - 1] |= COMMA;
        else if (p[at] == '}' && depth > 0) {
            size_t open = stack->open[--depth] >> 1;
            bool comma = stack->open[depth] & COMMA;
            struct group group = {.open = open, .close = at};
            group.is_sequence = read_sequence(p + open + 1, at - open - 1, &group.sequence);
            bool counts = (comma || group.is_sequence) && (open == 0 || p[open - 1] != '$');
            if (counts && (!any || open < found->open)) {
                *found = group;
                any = true;
            }
            if (any && depth == 0)
                break;
        }
    }
    return any;
}

/* --- replacing it --- */

/* The part of p[0..n) up to a comma at its own level. */
static size_t part_length(const char *p, size_t n)
{
    size_t depth = 0, at = 0;
    for (; at < n && (depth > 0 || p[at] != ','); at = skip_escape(p, n, at)) {
        depth += p[at] == '{';
        depth -= p[at] == '}' && depth > 0;
    }
    return NSBX_MIN(at, n);
}

static int64_t count_parts(const char *p, size_t n)
{
    int64_t count = 1;
    for (size_t at = part_length(p, n); at < n; at += 1 + part_length(p + at + 1, n - at - 1))
        count++;
    return count;
}

/* Puts head, part and tail together on the stack; head holds no group. */
static int push(struct stack *stack, const char *head, size_t head_n, const char *part, size_t n, const char *tail,
                size_t tail_n, struct nsbx_err *err)
{
    struct text t = {.n = head_n + n + tail_n, .done = head_n};
    stack->bytes += t.n;
    if (stack->bytes > NSBX_GLOB_MAX_EXPANDED)
        return nsbx_err_set(err, NSBX_E_INVALID, "the braces of the pattern make more than %u bytes",
                            NSBX_GLOB_MAX_EXPANDED);
    t.bytes = nsbx_malloc(t.n + 1);
    if (!t.bytes)
        return nsbx_err_nomem(err, "a pattern");
    memcpy(t.bytes, head, head_n);
    memcpy(t.bytes + head_n, part, n);
    memcpy(t.bytes + head_n + n, tail, tail_n);
    stack->texts[stack->count++] = t;
    return 0;
}

/* The parts go on the stack in their order, and are then turned round: the first is to be on top. */
static int replace(struct stack *stack, const struct text *t, const struct group *group, struct nsbx_err *err)
{
    const char *body = t->bytes + group->open + 1;
    size_t n = group->close - group->open - 1, base = stack->count, at = 0;
    int64_t count = group->is_sequence ? sequence_count(&group->sequence) : count_parts(body, n);
    if (count > (int64_t)(NSBX_GLOB_MAX_BRANCHES - stack->branches - stack->count))
        return nsbx_err_set(err, NSBX_E_INVALID, "the braces of the pattern make more than %d branches",
                            NSBX_GLOB_MAX_BRANCHES);
    for (int64_t i = 0; i < count; i++) {
        char number[PART_MAX];
        const char *part = group->is_sequence ? number : body + at;
        size_t len = group->is_sequence ? sequence_part(&group->sequence, i, number) : part_length(part, n - at);
        int rc = push(stack, t->bytes, group->open, part, len, t->bytes + group->close + 1, t->n - group->close - 1,
                      err);
        if (rc)
            return rc;
        at += len + 1;
    }
    for (size_t low = base, high = stack->count - 1; low < high; low++, high--) {
        struct text swap = stack->texts[low];
        stack->texts[low] = stack->texts[high];
        stack->texts[high] = swap;
    }
    return 0;
}

static int expand(struct stack *stack, int (*branch)(void *ud, const char *text, size_t n, struct nsbx_err *err),
                  void *ud, struct nsbx_err *err)
{
    int rc = 0;
    while (rc == 0 && stack->count > 0) {
        struct text top = stack->texts[--stack->count];
        struct group group = {0};
        if (find_group(stack, &top, &group)) {
            stack->bytes -= top.n;
            rc = replace(stack, &top, &group, err);
        } else {
            stack->branches++;
            if (top.n > 0) /* an empty part of a group that was all of the pattern */
                rc = branch(ud, top.bytes, top.n, err);
        }
        nsbx_free(top.bytes);
    }
    return rc;
}

int nsbx_glob_expand(const char *pattern, size_t len,
                     int (*branch)(void *ud, const char *text, size_t n, struct nsbx_err *err), void *ud,
                     struct nsbx_err *err)
{
    struct stack *stack = nsbx_calloc(1, sizeof(*stack));
    size_t *open = nsbx_malloc((len + 1) * sizeof(*open));
    if (!stack || !open) {
        nsbx_free(stack);
        nsbx_free(open);
        return nsbx_err_nomem(err, "a pattern");
    }
    stack->open = open;
    int rc = push(stack, "", 0, pattern, len, "", 0, err);
    if (rc == 0)
        rc = expand(stack, branch, ud, err);
    while (stack->count > 0)
        nsbx_free(stack->texts[--stack->count].bytes);
    nsbx_free(open);
    nsbx_free(stack);
    return rc;
}
