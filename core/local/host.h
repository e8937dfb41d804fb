/* Single things that a local sandbox asks of the host. */
#ifndef NSBX_LOCAL_HOST_H
#define NSBX_LOCAL_HOST_H

#include "base/err.h"
#include "base/limits.h"

#include <stdbool.h>

/* Opens the agent's program: `given`, else $NSBX_AGENT, else beside this program, else in the install prefix's libexec/nsbx. */
int nsbx_host_open_agent(const char *given, struct nsbx_err *err);
/* An unnamed file in memory with `text` in it, positioned at its start. */
int nsbx_host_memory_file(const char *name, const char *text, struct nsbx_err *err);
/* A listening unix socket without a name: bound in `dir_fd`, opened as O_PATH (*handle, to connect through /proc/self/fd), unlinked. */
int nsbx_host_listen_nameless(int dir_fd, int *handle, struct nsbx_err *err);
/* A given workspace: absolute, a directory, writable by `uid`. `out` gets it with links resolved. */
int nsbx_host_check_workspace(const char *path, long uid, char out[NSBX_PATH_MAX], struct nsbx_err *err);
/* Whether `uid` could reach the directory and write there. */
bool nsbx_host_writable_by(const char *path, long uid);
/* Whether this user namespace maps `uid` (and so, by custom, the gid): in a rootless container most are not. */
bool nsbx_host_uid_is_mapped(long uid);
#endif
