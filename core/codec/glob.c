#include "glob.h"

#include "glob_priv.h"

#include "base/alloc.h"
#include "base/util.h"

#include <string.h>

/* --- compiling --- */

enum { NODES_MAX = 2 * 1024 * 1024 }; /* bytes */

/* The first segment of text[*at..n); *at moves behind it and its slashes. */
static size_t next_segment(const char *text, size_t n, size_t *at)
{
    const char *slash = memchr(text + *at, '/', n - *at);
    size_t len = slash ? (size_t)(slash - text) - *at : n - *at;
    *at += len;
    while (*at < n && text[*at] == '/')
        ++*at;
    return len;
}

static bool is_text(const char *p, size_t n, const char *text)
{
    return n == strlen(text) && memcmp(p, text, n) == 0;
}

/* Drops each leading "./", and refuses what could leave the root or names nothing. */
static int check(const char **text, size_t *n, struct nsbx_err *err)
{
    while (*n >= 2 && memcmp(*text, "./", 2) == 0) {
        *text += 2;
        *n -= 2;
    }
    if (*n == 0)
        return nsbx_err_set(err, NSBX_E_INVALID, "the pattern is empty");
    if ((*text)[0] == '/')
        return nsbx_err_set(err, NSBX_E_INVALID,
                            "the pattern '%.*s' is absolute: patterns are relative to the root",
                            (int)NSBX_MIN(*n, (size_t)60), *text);
    for (size_t at = 0; at < *n;) {
        const char *segment = *text + at;
        if (is_text(segment, next_segment(*text, *n, &at), ".."))
            return nsbx_err_set(err, NSBX_E_INVALID,
                                "the pattern '%.*s' has a '..' segment: it cannot leave the root",
                                (int)NSBX_MIN(*n, (size_t)60), *text);
    }
    return 0;
}

static struct glob_segment *segment_at(const struct nsbx_glob *g, size_t index)
{
    return (struct glob_segment *)nsbx_buf_data(&g->segments) + index;
}

static size_t segment_count(const struct nsbx_glob *g)
{
    return g->segments.len / sizeof(struct glob_segment);
}

/* No name is "", "." or "..". */
static bool matches_no_name(const struct nsbx_glob *g, const struct glob_segment *segment)
{
    if (segment->what != GLOB_LITERAL || segment->literal_n == 0)
        return segment->what == GLOB_LITERAL;
    const char *text = (const char *)nsbx_buf_data(&g->literals) + segment->literal;
    return is_text(text, segment->literal_n, ".") || is_text(text, segment->literal_n, "..");
}

static int add_segment(struct nsbx_glob *g, const char *text, size_t n, bool *hopeless, struct nsbx_err *err)
{
    struct glob_segment segment = {.what = GLOB_GLOBSTAR};
    if (!is_text(text, n, "**")) {
        int rc = nsbx_glob_segment(g, text, n, &segment, err);
        if (rc)
            return rc;
        *hopeless |= matches_no_name(g, &segment);
    }
    return nsbx_buf_append(&g->segments, &segment, sizeof(segment), err);
}

static int add_branch(void *ud, const char *text, size_t n, struct nsbx_err *err)
{
    struct nsbx_glob *g = ud;
    uint32_t start = (uint32_t)segment_count(g);
    int rc = check(&text, &n, err);
    g->named = true;
    bool hopeless = rc == 0 && text[n - 1] == '/'; /* only a directory's path could end so */
    for (size_t at = 0; rc == 0 && at < n;) {
        const char *segment = text + at;
        size_t len = next_segment(text, n, &at);
        bool again = is_text(segment, len, "**") && segment_count(g) > start &&
                     segment_at(g, segment_count(g) - 1)->what == GLOB_GLOBSTAR;
        if (!again)
            rc = add_segment(g, segment, len, &hopeless, err);
    }
    if (rc)
        return rc;
    if (hopeless) {
        g->segments.len = start * sizeof(struct glob_segment);
        return 0;
    }
    segment_at(g, segment_count(g) - 1)->last = true;
    return nsbx_buf_append(&g->starts, &start, sizeof(start), err);
}

static int check_size(const char *pattern, size_t len, struct nsbx_err *err)
{
    size_t characters = 0;
    for (size_t i = 0; i < len; i++)
        characters += ((uint8_t)pattern[i] & 0xc0) != 0x80;
    if (characters > NSBX_GLOB_MAX_PATTERN || len > 4u * NSBX_GLOB_MAX_PATTERN)
        return nsbx_err_set(err, NSBX_E_INVALID, "the pattern is longer than %d characters", NSBX_GLOB_MAX_PATTERN);
    if (len > 0 && memchr(pattern, 0, len))
        return nsbx_err_set(err, NSBX_E_INVALID, "the pattern holds a NUL byte, which no file name can hold");
    return 0;
}

int nsbx_glob_compile(struct nsbx_glob **out, const char *pattern, size_t len, bool hidden, struct nsbx_err *err)
{
    int rc = check_size(pattern, len, err);
    if (rc == 0)
        rc = check(&pattern, &len, err);
    if (rc)
        return rc;
    struct nsbx_glob *g = nsbx_calloc(1, sizeof(*g));
    if (!g)
        return nsbx_err_nomem(err, "a pattern");
    g->hidden = hidden;
    nsbx_buf_init(&g->segments, sizeof(struct glob_segment) * NSBX_GLOB_MAX_EXPANDED);
    nsbx_buf_init(&g->starts, sizeof(uint32_t) * NSBX_GLOB_MAX_BRANCHES);
    nsbx_buf_init(&g->literals, NSBX_GLOB_MAX_EXPANDED);
    nsbx_buf_init(&g->nodes, NODES_MAX);
    nsbx_buf_init(&g->classes, sizeof(struct glob_class) * NSBX_GLOB_MAX_EXPANDED);
    nsbx_buf_init(&g->ranges, sizeof(struct glob_range) * NSBX_GLOB_MAX_EXPANDED);
    rc = nsbx_glob_expand(pattern, len, add_branch, g, err);
    if (rc == 0 && !g->named)
        rc = nsbx_err_set(err, NSBX_E_INVALID, "the pattern is empty: its braces hold nothing");
    if (rc)
        nsbx_glob_free(g);
    else
        *out = g;
    return rc;
}

void nsbx_glob_free(struct nsbx_glob *g)
{
    if (!g)
        return;
    nsbx_buf_free(&g->segments);
    nsbx_buf_free(&g->starts);
    nsbx_buf_free(&g->literals);
    nsbx_buf_free(&g->nodes);
    nsbx_buf_free(&g->classes);
    nsbx_buf_free(&g->ranges);
    nsbx_free(g);
}

/* --- walking: a bit a segment says that the segments before it in its branch are matched --- */

size_t nsbx_glob_state_words(const struct nsbx_glob *g)
{
    return NSBX_MAX((segment_count(g) + 63) / 64, (size_t)1);
}

/* Makes a segment alive; what follows a `**` is then alive too, for that may stand for no segment. At the end it must
 * stand for one at least: "src/" and "**" name what is below src, not a file src. */
static void enliven(const struct nsbx_glob *g, uint64_t *state, size_t index)
{
    state[index / 64] |= (uint64_t)1 << (index % 64);
    const struct glob_segment *segment = segment_at(g, index);
    if (segment->what == GLOB_GLOBSTAR && !segment->last)
        state[(index + 1) / 64] |= (uint64_t)1 << ((index + 1) % 64);
}

void nsbx_glob_start(const struct nsbx_glob *g, uint64_t *state)
{
    memset(state, 0, nsbx_glob_state_words(g) * sizeof(*state));
    const uint32_t *starts = (const uint32_t *)nsbx_buf_data(&g->starts);
    for (size_t i = 0; i < g->starts.len / sizeof(*starts); i++)
        enliven(g, state, starts[i]);
}

bool nsbx_glob_step(const struct nsbx_glob *g, const uint64_t *state, const char *name, size_t len, uint64_t *next,
                    bool *file_match)
{
    struct glob_name decoded;
    decoded.bytes = name;
    decoded.n = len;
    decoded.dotted = !g->hidden && len > 0 && name[0] == '.';
    decoded.decoded = false;
    decoded.count = 0;
    size_t words = nsbx_glob_state_words(g);
    bool below = false;
    *file_match = false;
    memset(next, 0, words * sizeof(*next));
    for (size_t word = 0; word < words; word++) {
        for (uint64_t left = state[word]; left; left &= left - 1) {
            size_t index = word * 64 + (size_t)__builtin_ctzll(left);
            const struct glob_segment *segment = segment_at(g, index);
            if (!nsbx_glob_match(g, segment, &decoded))
                continue;
            *file_match |= segment->last;
            bool stays = segment->what == GLOB_GLOBSTAR;
            if (stays || !segment->last) {
                enliven(g, next, stays ? index : index + 1);
                below = true;
            }
        }
    }
    return below;
}
