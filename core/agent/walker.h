/* The walk of a directory tree, without a conversation: blocking steps of a bounded size that give entries. Depth first; a directory is
 * entered when it is met. Links are never followed. However deep the tree is, few directories are open at a time. */
#ifndef NSBX_AGENT_WALKER_H
#define NSBX_AGENT_WALKER_H

#include "base/buf.h"
#include "codec/glob.h"
#include "fault.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

struct nsbx_walk_options {
    bool list;   /* the one directory, entries of every type */
    bool hidden; /* wildcards match a leading dot */
    bool sorted; /* by name within each directory; else in the directory's own order */
    uint64_t max_depth, max_entries, max_visited; /* UINT64_MAX = none */
};
struct nsbx_walk_entry {
    size_t path; /* offset in the batch's text, NUL-terminated there */
    size_t path_len;
    struct stat st; /* of the entry itself */
};

struct nsbx_walker;

/* `glob` (NULL with list) and the texts are borrowed for the walker's life. `prefix`: the leading segments of the pattern that are plain
 * names, "a/b" or "": they are looked up, not searched for. NULL without memory. */
struct nsbx_walker *nsbx_walker_new(const struct nsbx_walk_options *options, const struct nsbx_glob *glob,
                                    const char *prefix);
void nsbx_walker_free(struct nsbx_walker *w); /* NULL is fine */

/* Blocking. */
/* Begins at `fd`, which is what `path` (absolute) names and is taken over, also on failure. */
int nsbx_walker_begin(struct nsbx_walker *w, int fd, const char *path, struct nsbx_fault *fault);
/* Looks at no more than NSBX_WALK_BATCH entries. The batch before is gone. */
int nsbx_walker_step(struct nsbx_walker *w, struct nsbx_fault *fault);

bool nsbx_walker_done(const struct nsbx_walker *w); /* the batch at hand is the last one */
uint64_t nsbx_walker_visited(const struct nsbx_walker *w);
const struct nsbx_walk_entry *nsbx_walker_batch(const struct nsbx_walker *w, size_t *n, const char **text);

#endif
