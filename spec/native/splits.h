/* Feeds an input to a codec whole, byte by byte and cut at every place, and wants the same events each time. Every
 * piece is a heap copy of its own, so that a sanitizer sees a look beyond its end. */
#ifndef NSBX_SPEC_SPLITS_H
#define NSBX_SPEC_SPLITS_H

#include "harness.h"

struct splits_piece {
    uint8_t *bytes;
    size_t n;
};
/* Runs the codec over the pieces and writes what came out, in a form that does not show where the pieces met. */
typedef void (*splits_run)(FILE *log, const struct splits_piece *pieces, size_t count);

static inline struct splits_piece splits_copy(const uint8_t *p, size_t n)
{
    struct splits_piece piece = {malloc(n ? n : 1), n};
    if (n)
        memcpy(piece.bytes, p, n);
    return piece;
}

/* The log of one way to cut: at `cut` (and behind it bytewise when asked). Free it. */
static inline char *splits_log(splits_run run, const uint8_t *p, size_t n, size_t cut, int bytewise, size_t *len)
{
    size_t count = bytewise ? n : 2;
    struct splits_piece *pieces = calloc(count ? count : 1, sizeof(*pieces));
    for (size_t i = 0; i < count; i++)
        pieces[i] = bytewise ? splits_copy(p + i, 1) : i == 0 ? splits_copy(p, cut) : splits_copy(p + cut, n - cut);
    char *text = NULL;
    FILE *log = open_memstream(&text, len);
    run(log, pieces, count);
    fclose(log);
    for (size_t i = 0; i < count; i++)
        free(pieces[i].bytes);
    free(pieces);
    return text;
}

static inline void splits_compare(const char *how, size_t cut, const char *got, size_t n, const char *want,
                                  size_t want_n)
{
    if (n == want_n && memcmp(got, want, n) == 0)
        return;
    fprintf(stderr, "%s: %s (cut at %zu): got\n%.*s\nnot\n%.*s\n", harness_case, how, cut, (int)n, got, (int)want_n,
            want);
    harness_case_failed = 1;
}

/* want: the expected log, or NULL to compare the ways with each other only. */
static inline void splits_check_bytes(splits_run run, const void *input, size_t n, const char *want)
{
    size_t whole_n, len;
    char *whole = splits_log(run, input, n, n, 0, &whole_n);
    if (want)
        splits_compare("whole", n, whole, whole_n, want, strlen(want));
    char *text = splits_log(run, input, n, 0, 1, &len);
    splits_compare("byte by byte", 0, text, len, whole, whole_n);
    free(text);
    for (size_t cut = 0; cut < n; cut++) {
        text = splits_log(run, input, n, cut, 0, &len);
        splits_compare("in two", cut, text, len, whole, whole_n);
        free(text);
    }
    free(whole);
}

static inline void splits_check(splits_run run, const char *input, const char *want)
{
    splits_check_bytes(run, input, strlen(input), want);
}

#endif
