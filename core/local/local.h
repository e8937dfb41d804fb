/* The local backend: a process tree on this machine, isolated by bubblewrap, with the agent as its PID 1.
 * As root it drops to an unprivileged host uid before bwrap runs. See docs/security.md for what is and is not a boundary. */
#ifndef NSBX_LOCAL_LOCAL_H
#define NSBX_LOCAL_LOCAL_H

#include "base/err.h"
#include "loop/loop.h"
#include "loop/op.h"
#include "loop/spawn.h"
#include "transport/guest.h"

struct nsbx_local;

struct nsbx_local_bind {
    const char *source; /* host path, absolute */
    const char *target; /* path inside, absolute */
};
struct nsbx_local_options {
    const char *
        agent; /* path of nsbx-agent; NULL = $NSBX_AGENT, then beside this program, then libexec of the install prefix */
    const char *workspace; /* host directory, kept; NULL = a temporary one, removed at the end */
    bool keep;             /* keep a temporary workspace (its path: nsbx_local_workspace) */
    const struct nsbx_local_bind *read_only, *read_write;
    size_t n_read_only, n_read_write;
    bool network;        /* share the host's network namespace: its loopback and abstract sockets included */
    const char *root_fs; /* an unpacked image to use instead of the host's /usr; NULL = the host's */
    long uid; /* as root: the host uid and gid to become; <0 = 65534. As a plain user only the own uid. */
    struct nsbx_rlimit rlimits[NSBX_SPAWN_MAX_RLIMITS]; /* for executed commands */
    size_t n_rlimits;
    uint64_t tmp_size; /* bytes of /tmp; 0 = 256 MiB */
};

/* Result: struct nsbx_local * (take it). Done when the agent has answered healthz. A failure quotes bwrap's own words and names the package or
 * sysctl that mends it. Cancel or deadline leaves nothing behind. Sweeps what dead hosts left, first. */
struct nsbx_op *nsbx_local_create(struct nsbx_loop *loop, const struct nsbx_local_options *options,
                                  int64_t timeout_ms);
struct nsbx_guest *nsbx_local_guest(struct nsbx_local *local);    /* borrowed */
const char *nsbx_local_id(const struct nsbx_local *local);        /* "local-<uuid>" */
const char *nsbx_local_root_dir(const struct nsbx_local *local);  /* the workspace's path inside */
const char *nsbx_local_workspace(const struct nsbx_local *local); /* the workspace's path on the host */
bool nsbx_local_alive(const struct nsbx_local *local);
/* Ends every process of it and removes what it owned; done when that is confirmed. Idempotent: a second call's op ends with the first. */
struct nsbx_op *nsbx_local_destroy(struct nsbx_local *local, int64_t timeout_ms);
/* Gives the handle up. One that was not destroyed is destroyed first, in the background, for as long as its loop is turned (its pieces
 * count as live until then); should the process end before, the lifeline and the next create's sweep do the rest. NULL is fine. */
void nsbx_local_free(struct nsbx_local *local);

#endif
