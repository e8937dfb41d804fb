/* A one-shot timer on the loop. */
#ifndef NSBX_LOOP_TIMER_H
#define NSBX_LOOP_TIMER_H

#include "loop.h"

struct nsbx_timer;

/* NULL without memory. `cb` may start it again or close it. */
struct nsbx_timer *nsbx_timer_new(struct nsbx_loop *loop, void (*cb)(void *ud), void *ud);
void nsbx_timer_start(struct nsbx_timer *t,
                      uint64_t ms); /* restarts a running one; 0 is the next turn, never busy */
void nsbx_timer_stop(struct nsbx_timer *t);
bool nsbx_timer_active(const struct nsbx_timer *t);
void nsbx_timer_unref(struct nsbx_timer *t); /* it alone does not keep nsbx_loop_turn going */
void nsbx_timer_close(struct nsbx_timer *t); /* NULL is fine; no callback after it; frees itself */

#endif
