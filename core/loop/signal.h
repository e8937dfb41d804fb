/* Signals as loop events; for programs only (it installs a handler), never for the library inside somebody's process. */
#ifndef NSBX_LOOP_SIGNAL_H
#define NSBX_LOOP_SIGNAL_H

#include "loop.h"

#include <sys/types.h>

struct nsbx_signal;

/* Watches one signal; it alone does not keep the loop going. */
int nsbx_signal_watch(struct nsbx_loop *loop, int signo, void (*cb)(void *ud, int signo), void *ud,
                      struct nsbx_signal **out, struct nsbx_err *err) __attribute__((warn_unused_result));
void nsbx_signal_close(struct nsbx_signal *s); /* NULL is fine */

struct nsbx_signal_from;

/* As above, and says who sent it: a pid as this process sees it, or 0 for the kernel and for a process outside of this pid
 * namespace. A PID 1 can tell its owner from what runs below it so. Blocks the signal in the calling thread instead of handling it,
 * and, unlike the above, keeps the loop going. */
int nsbx_signal_watch_from(struct nsbx_loop *loop, int signo, void (*cb)(void *ud, int signo, pid_t sender),
                           void *ud, struct nsbx_signal_from **out, struct nsbx_err *err)
    __attribute__((warn_unused_result));
void nsbx_signal_from_close(struct nsbx_signal_from *s); /* the signal stays blocked; NULL is fine */

#endif
