/* Glob patterns for walking, segment by segment as the published walk defines them: `*` and `?` within a segment, `[…]`
 * with ranges, `!`/`^` and POSIX classes (of Unicode), `**` over segments, {a,b} and {1..3} expansion (≤ 256 branches),
 * extglobs @ ! + * ?(…) within a segment (16 deep), backslash escapes. Wildcards never match a leading dot unless `hidden`.
 * Bytes outside UTF-8 match `?` and `*` one by one. A `**` at the end stands for one segment at least: `src/` and `**`
 * name what is below src. Matching takes time pattern × name and never recurses. Where the published matcher's versions
 * differ, spec/native/glob_test.c says which way was taken. */
#ifndef NSBX_CODEC_GLOB_H
#define NSBX_CODEC_GLOB_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nsbx_glob;

/* `pattern` needs no NUL behind it and is not kept. -NSBX_E_INVALID naming what is wrong (empty, absolute, `..`, NUL, too
 * many branches, too long, nested too deep), -NSBX_E_LIMIT without memory. Free with nsbx_glob_free. */
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
