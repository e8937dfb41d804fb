/* Lexical paths (POSIX, bytes). No I/O and no knowledge of links. */
#ifndef NSBX_CODEC_PATH_H
#define NSBX_CODEC_PATH_H

#include "base/err.h"
#include "base/limits.h"

#include <stdbool.h>
#include <stddef.h>

/* Joins (an absolute `path` ignores `base`) and normalises: no empty, "." or ".." segments, no trailing slash but for "/".
 * `base` is absolute. ".." above "/" stays "/". -NSBX_E_INVALID for an empty path or one with NUL (len != strlen),
 * -NSBX_E_LIMIT when longer than NSBX_PATH_MAX. */
int nsbx_path_resolve(char out[NSBX_PATH_MAX], const char *base, const char *path, size_t len,
                      struct nsbx_err *err);
/* True when `path` equals `root` or lies below it. Both normalised and absolute. */
bool nsbx_path_within(const char *root, const char *path);
/* The part of `path` below `root` without a leading slash; "" when equal; NULL when not within. Points into path. */
const char *nsbx_path_below(const char *root, const char *path);
const char *nsbx_path_base(const char *path); /* after the last slash; points into path */

#endif
