/* Glob patterns for walking, segment-wise as the published walk defines them: `*` and `?` within a segment, `[…]` with
 * ranges, `!`/`^` and POSIX classes, `**` over segments, {a,b} and {1..3} expansion (≤ 256 branches), extglobs @ ! + * ?(…)
 * within a segment, backslash escapes. Wildcards never match a leading dot unless `hidden`. Bytes outside UTF-8
 * match `?` and `*` one by one. Matching takes time polynomial in the name and never recurses on hostile depth. */
#ifndef NSBX_CODEC_GLOB_H
#define NSBX_CODEC_GLOB_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nsbx_glob;

/* -NSBX_E_INVALID naming what is wrong (empty, absolute, `..`, too many branches, too long). Free with nsbx_glob_free. */
int nsbx_glob_compile(struct nsbx_glob **out, const char *pattern, size_t len, bool hidden, struct nsbx_err *err);
void nsbx_glob_free(struct nsbx_glob *g);

/* A walk's position: which pattern positions are alive after the segments consumed so far. Opaque words; copy freely. */
size_t nsbx_glob_state_words(const struct nsbx_glob *g);
void nsbx_glob_start(const struct nsbx_glob *g, uint64_t *state);
/* Consumes one segment. `file_match`: the path ending here matches as a whole. Returns true when something below could
 * still match (descend); `next` is then the state for the children. next != state. */
bool nsbx_glob_step(const struct nsbx_glob *g, const uint64_t *state, const char *name, size_t len, uint64_t *next,
                    bool *file_match);

#endif
