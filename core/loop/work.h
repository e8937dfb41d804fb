/* Blocking file work off the loop, in bounded steps, on a small fixed pool. */
#ifndef NSBX_LOOP_WORK_H
#define NSBX_LOOP_WORK_H

#include "loop.h"

/* `work` runs on a pool thread (touches only what `ud` owns); `done` runs on the loop afterwards, always, exactly once.
 * There is no cancelling: keep a step ≤ 1 MiB or ≤ 256 entries and look at a flag in `done`. -NSBX_E_LIMIT without memory: `done` is not called. */
int nsbx_work(struct nsbx_loop *loop, void (*work)(void *ud), void (*done)(void *ud), void *ud,
              struct nsbx_err *err) __attribute__((warn_unused_result));

#endif
