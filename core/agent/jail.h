/* The jail: which paths the host may read and write, and how they are opened so that no link and no race leads out.
 *
 * A path is judged twice. Lexically (nsbx_jail_locate, cheap): the first root that holds it governs. Then it is opened below that
 * root's directory descriptor: by openat2(RESOLVE_BENEATH), and where that refuses (it knows no absolute links, or the kernel
 * or a filter has no openat2) by a walk of its components that follows at most NSBX_JAIL_MAX_LINKS links itself, absolute ones that stay inside
 * the root too. Nothing is ever opened by a name that was only checked. */
#ifndef NSBX_AGENT_JAIL_H
#define NSBX_AGENT_JAIL_H

#include "base/err.h"
#include "base/limits.h"
#include "fault.h"

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

struct nsbx_jail;
struct nsbx_jail_root;

enum nsbx_jail_use { NSBX_JAIL_READ, NSBX_JAIL_WRITE };

/* The workspace is the first root of both kinds; `read_roots` and `write_roots` are ':' lists, NULL = none. A root need not exist yet. */
int nsbx_jail_new(struct nsbx_jail **out, const char *workspace, const char *read_roots, const char *write_roots,
                  struct nsbx_err *err) __attribute__((warn_unused_result));
void nsbx_jail_free(struct nsbx_jail *jail);                   /* no place may be in use; NULL is fine */
const char *nsbx_jail_workspace(const struct nsbx_jail *jail); /* absolute, normalised; lives as long as the jail */
/* The workspace's descriptor (O_PATH), borrowed: its number is the same as long as the jail lives, whatever becomes of the directory. Looks
 * again for one that was removed since. -1 when there never was one. `make`: it is made if it is missing. */
int nsbx_jail_workspace_fd(struct nsbx_jail *jail, bool make);
/* The directory in which a command starts, made if it is missing: a descriptor of the caller's (O_PATH), or -errno. `path` is absolute,
 * "" = the workspace; links are followed, wherever they lead: the command itself could go there. Blocking, but for "" when the workspace
 * was opened before. */
int nsbx_jail_cwd(struct nsbx_jail *jail, const char *path) __attribute__((warn_unused_result));

struct nsbx_jail_place { /* a path that is lexically inside */
    struct nsbx_jail_root *root;
    char path[NSBX_PATH_MAX]; /* absolute, normalised */
    const char *below;        /* its part below the root; "" for the root itself; points into path */
};
/* Faults: "path escapes the workspace", ENAMETOOLONG, "invalid_path: …". `path` may hold any byte. A place is moved with nsbx_jail_locate alone,
 * never copied (below points into it). */
int nsbx_jail_locate(struct nsbx_jail *jail, enum nsbx_jail_use use, const char *path, size_t len,
                     struct nsbx_jail_place *place, struct nsbx_fault *fault) __attribute__((warn_unused_result));

/* Blocking, and safe on any thread. */

/* Opens what the place leads to, final links followed; O_NONBLOCK, O_NOCTTY and O_CLOEXEC are added to `flags`, so that a FIFO or a device
 * blocks nobody; fstat tells what it is. Returns the descriptor, or -1 with "symlink escapes the workspace" or the errno in published form. */
int nsbx_jail_open(const struct nsbx_jail_place *place, int flags, struct nsbx_fault *fault)
    __attribute__((warn_unused_result));

/* Where a file is to be made, replaced or removed: the directory that holds it, and its name in there, links resolved. A dangling link
 * counts as a file of its own, as published. */
struct nsbx_jail_seat {
    int dir;                 /* readable directory (for fsync); the caller closes it */
    char name[NAME_MAX + 1]; /* "." when the place is a directory without a name of its own */
    bool exists;
    struct stat st; /* of the name, when it exists; never a followed link */
};
/* `make`: missing directories on the way are made. */
int nsbx_jail_seat(const struct nsbx_jail_place *place, bool make, struct nsbx_jail_seat *seat,
                   struct nsbx_fault *fault) __attribute__((warn_unused_result));

#endif
