/* Signals as loop events; for programs only (it installs a handler), never for the library inside somebody's process. */
#ifndef NSBX_LOOP_SIGNAL_H
#define NSBX_LOOP_SIGNAL_H

#include "loop.h"

struct nsbx_signal;

/* Watches one signal; it alone does not keep the loop going. */
int nsbx_signal_watch(struct nsbx_loop *loop, int signo, void (*cb)(void *ud, int signo), void *ud, struct nsbx_signal **out,
                      struct nsbx_err *err) __attribute__((warn_unused_result));
void nsbx_signal_close(struct nsbx_signal *s); /* NULL is fine */

#endif
