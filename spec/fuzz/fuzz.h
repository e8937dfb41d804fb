/* What the fuzz targets of the codecs share: wants that abort, and an input cut into pieces where the input itself says.
 * Each piece is a heap copy of its own, so that a look beyond its end is seen. */
#ifndef NSBX_SPEC_FUZZ_H
#define NSBX_SPEC_FUZZ_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WANT(cond)                                                                                                 \
    do {                                                                                                           \
        if (!(cond)) {                                                                                             \
            fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #cond);                                    \
            abort();                                                                                               \
        }                                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A small generator, seeded by the input, says how long each piece is; seed 0 makes one piece of all. */
static inline size_t fuzz_piece(uint32_t *seed, size_t left)
{
    if (*seed == 0)
        return left;
    *seed = *seed * 1664525u + 1013904223u;
    *seed |= 1;
    size_t most = (*seed >> 24) % 8 == 0 ? 64 : 4; /* mostly short ones */
    size_t n = (*seed >> 8) % most;
    return n < left ? n : left;
}

static inline uint8_t *fuzz_copy(const uint8_t *p, size_t n)
{
    uint8_t *copy = malloc(n ? n : 1);
    WANT(copy);
    if (n)
        memcpy(copy, p, n);
    return copy;
}

#endif
