/* Walking and listing the guest's directories, by the native operations. A guest without the feature: UNSUPPORTED by name. */
#ifndef NSBX_TRANSPORT_WALK_H
#define NSBX_TRANSPORT_WALK_H

#include "guest.h"

enum nsbx_entry_type { NSBX_ENTRY_FILE, NSBX_ENTRY_DIRECTORY, NSBX_ENTRY_SYMLINK, NSBX_ENTRY_OTHER };
struct nsbx_entry {
    const char *path; /* absolute, bytes as they are, NUL-terminated */
    int64_t size;
    enum nsbx_entry_type type;
    uint32_t mode; /* permission bits, 07777 */
    double mtime;  /* seconds since the epoch */
};
const char *nsbx_entry_type_name(enum nsbx_entry_type type); /* "file", "directory", "symlink", "other" */

struct nsbx_walk_request {
    const char *path;
    const char *pattern; /* NULL = everything: all regular files below */
    bool include_hidden;
    bool sorted;         /* by name within each directory; else as the directory gives them */
    int64_t max_depth;   /* <0 = none */
    int64_t max_entries; /* <0 = none; the walk ends there, not an error */
    int64_t max_visited; /* <0 = NSBX_WALK_MAX_VISITED; beyond it: LIMIT */
    bool list;           /* one directory, entries of every type, sorted */
};
struct nsbx_walk;
int nsbx_walk_open(struct nsbx_guest *guest, const struct nsbx_walk_request *request, struct nsbx_walk **out,
                   struct nsbx_err *err) __attribute__((warn_unused_result));
/* Done when nsbx_walk_take gives something or the end is known; fails when the walk failed. */
struct nsbx_op *nsbx_walk_next(struct nsbx_walk *w, int64_t timeout_ms);
/* The next entry without waiting (its memory lasts until the next take or close); false: nothing now, or the end after a finished nsbx_walk_next. */
bool nsbx_walk_take(struct nsbx_walk *w, struct nsbx_entry *entry);
bool nsbx_walk_ended(const struct nsbx_walk *w); /* the guest said done and everything is taken */
void nsbx_walk_close(struct nsbx_walk *w);       /* NULL is fine; ends the walk in the guest */

#endif
