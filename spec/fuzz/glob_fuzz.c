/* A pattern and paths, a line each, after a byte that says whether wildcards match hidden names. */
#include "fuzz.h"

#include "codec/glob.h"

static bool walk(const struct nsbx_glob *g, const uint8_t *path, size_t len)
{
    size_t words = nsbx_glob_state_words(g);
    uint64_t *state = malloc(words * sizeof(*state)), *next = malloc(words * sizeof(*next));
    bool file = false, below = true, again;
    nsbx_glob_start(g, state);
    for (size_t at = 0; below && at <= len;) {
        const uint8_t *slash = at < len ? memchr(path + at, '/', len - at) : NULL;
        size_t n = slash ? (size_t)(slash - path) - at : len - at;
        uint8_t *name = fuzz_copy(path + at, n);
        below = nsbx_glob_step(g, state, (char *)name, n, next, &file);
        WANT(below == nsbx_glob_step(g, state, (char *)name, n, next, &again) && file == again);
        bool alive = false;
        for (size_t i = 0; i < words; i++)
            alive |= next[i] != 0;
        WANT(alive == below);
        free(name);
        uint64_t *swap = state;
        state = next;
        next = swap;
        at += n + 1;
        if (at <= len && !below)
            file = false;
    }
    free(state);
    free(next);
    return file;
}

/* A path with every byte that could mean something escaped matches itself and nothing else of one byte more. */
static void check_literal(const uint8_t *path, size_t n)
{
    struct nsbx_glob *g = NULL;
    uint8_t *pattern = malloc(2 * n + 1), *longer = malloc(n + 1);
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        if (path[i] != '/' && path[i] < 0x80)
            pattern[len++] = '\\';
        pattern[len++] = path[i];
    }
    memcpy(longer, path, n);
    longer[n] = 'x';
    if (nsbx_glob_compile(&g, (char *)pattern, len, true, NULL) == 0) {
        bool plain = true; /* no empty, "." or ".." name */
        for (size_t at = 0; at <= n;) {
            const uint8_t *slash = at < n ? memchr(path + at, '/', n - at) : NULL;
            size_t size = slash ? (size_t)(slash - path) - at : n - at;
            plain &= !(size == 0 || (size <= 2 && memcmp(path + at, "..", size) == 0));
            at += size + 1;
        }
        WANT(walk(g, path, n) == plain && !walk(g, longer, n + 1));
    }
    nsbx_glob_free(g);
    free(pattern);
    free(longer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    bool hidden = data[0] & 1;
    const uint8_t *p = data + 1, *end = data + size;
    const uint8_t *line = memchr(p, '\n', (size_t)(end - p));
    size_t n = (size_t)((line ? line : end) - p);
    uint8_t *pattern = fuzz_copy(p, n);
    struct nsbx_glob *g = NULL;
    struct nsbx_err err = {0};
    int rc = nsbx_glob_compile(&g, (char *)pattern, n, hidden, &err);
    free(pattern);
    if (rc)
        WANT(rc == -NSBX_E_INVALID && err.code == NSBX_E_INVALID && err.message[0] && !g);
    for (p += n; g && line && p < end; p += n) {
        p++;
        line = p < end ? memchr(p, '\n', (size_t)(end - p)) : NULL;
        n = (size_t)((line ? line : end) - p);
        walk(g, p, n);
        if (n < 512)
            check_literal(p, n);
    }
    nsbx_glob_free(g);
    return 0;
}
