/* Where local sandboxes keep what they need on the host: one directory for this user, one below it for each sandbox, held by a
 * lock that tells a living host process from a dead one. */
#ifndef NSBX_LOCAL_PLACE_H
#define NSBX_LOCAL_PLACE_H

#include "base/err.h"
#include "base/limits.h"
#include "base/util.h"

#include <sys/types.h>

enum { NSBX_PLACE_NAME = 64 };

/* A sandbox's directory: "<base>/local-<uuid>", locked by this process until closed. */
struct nsbx_place {
    int base_fd; /* the user's directory */
    int dir_fd;  /* the sandbox's own */
    int lock_fd;
    char name[NSBX_PLACE_NAME]; /* "local-<uuid>" */
    char path[NSBX_PATH_MAX];   /* of the sandbox's own directory */
};

/* Makes the directories ("$TMPDIR or /tmp"/nsbx-<uid>), refuses a base that another user could have prepared, takes the lock and sets
 * aside (renames to dead-*) what dead hosts left, to be removed by nsbx_place_sweep. Blocking for a moment. */
int nsbx_place_open(struct nsbx_place *place, struct nsbx_err *err) __attribute__((warn_unused_result));
/* Gives up the lock and the descriptors; the directory stays (remove it before, with nsbx_place_remove). */
void nsbx_place_close(struct nsbx_place *place);
/* Removes the sandbox's directory with everything in it. Blocking. */
int nsbx_place_remove(struct nsbx_place *place, struct nsbx_err *err) __attribute__((warn_unused_result));
/* Removes what was set aside. `base_fd` is borrowed. Blocking, for a worker. Several processes may sweep at once. */
int nsbx_place_sweep(int base_fd, struct nsbx_err *err) __attribute__((warn_unused_result));

#endif
