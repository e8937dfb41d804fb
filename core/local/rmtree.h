/* Removes a directory tree by descriptor. For trees that a hostile program filled: links are never followed, directories
 * without permissions are given them, any depth takes bounded memory and descriptors. */
#ifndef NSBX_LOCAL_RMTREE_H
#define NSBX_LOCAL_RMTREE_H

#include "base/err.h"

/* Removes `name` in the directory `parent_fd`, with everything below, on one file system or several. A missing one is fine. Goes on after an
 * entry that cannot be removed and returns the first error. Blocking: for a worker thread or process exit. `name` has no slash. */
int nsbx_rmtree(int parent_fd, const char *name, struct nsbx_err *err) __attribute__((warn_unused_result));

#endif
