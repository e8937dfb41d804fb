/* The bubblewrap command line of a local sandbox. */
#ifndef NSBX_LOCAL_BWRAP_H
#define NSBX_LOCAL_BWRAP_H

#include "base/err.h"
#include "local.h"

#include <stddef.h>

/* Paths inside the sandbox. */
#define NSBX_INSIDE_WORKSPACE "/workspace"
#define NSBX_INSIDE_AGENT "/run/nsbx-agent"

enum { NSBX_INSIDE_UID = 1000 };

/* The descriptors that the command line names, by their numbers in bwrap. */
enum { NSBX_BWRAP_LISTEN = 3, NSBX_BWRAP_LIFELINE, NSBX_BWRAP_AGENT, NSBX_BWRAP_PASSWD, NSBX_BWRAP_GROUP };

struct nsbx_args { /* a growing NULL-terminated vector of owned texts */
    char **v;
    size_t n, cap;
    struct nsbx_err err; /* the first failure; nothing is added after it */
};
void nsbx_args_free(struct nsbx_args *args);

/* Checks the options and builds the whole argument vector, the agent's own included. `workspace` is the host path to mount. The rest of
 * the host's environment goes nowhere. -NSBX_E_INVALID or _NOT_FOUND naming the option at fault. */
int nsbx_bwrap_args(const struct nsbx_local_options *options, const char *workspace, struct nsbx_args *out,
                    struct nsbx_err *err) __attribute__((warn_unused_result));

#endif
