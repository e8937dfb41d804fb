/* An operation finishes exactly once: done, failed, timed out or cancelled. It carries its deadline and is the only thing
 * that waiters (C or Lua) wait on. Finishing twice aborts: it is the programmer's error.
 *
 * Owner: the code that does the work. It makes the op (one reference), sets a result, calls nsbx_op_finish once.
 * Waiter: takes its own reference, waits by nsbx_op_on_finish, reads the result, drops the reference.
 * The finish callback runs as deferred work (loop.h), never inside the finisher's stack frame. */
#ifndef NSBX_LOOP_OP_H
#define NSBX_LOOP_OP_H

#include "base/err.h"
#include "loop.h"

#include <stdbool.h>
#include <stdint.h>

struct nsbx_op;

enum nsbx_op_state { NSBX_OP_PENDING, NSBX_OP_DONE, NSBX_OP_FAILED, NSBX_OP_TIMED_OUT, NSBX_OP_CANCELLED };
enum nsbx_op_stop { NSBX_STOP_CANCEL, NSBX_STOP_TIMEOUT };

struct nsbx_op_spec {
    const char *name;   /* static; for messages: "exec", "read_file" */
    int64_t timeout_ms; /* from now; < 0 = no deadline */
    /* Asked to stop, at most once, by a cancel or the deadline, never after the finish. The owner must see to it that the op
     * finishes (at once or after the guest confirmed), with nsbx_op_finish_stopped or with the truth it learned instead.
     * NULL: the op is finished as stopped on the spot (for waits that own nothing). */
    void (*stop)(struct nsbx_op *op, void *owner, enum nsbx_op_stop why);
    void *owner;
};

/* One reference for the caller. NULL without memory. */
struct nsbx_op *nsbx_op_new(struct nsbx_loop *loop, const struct nsbx_op_spec *spec);
struct nsbx_op *nsbx_op_ref(struct nsbx_op *op);
void nsbx_op_unref(struct nsbx_op *op); /* NULL is fine; the last one frees the result */

/* Before finish. `free_result` may be NULL. */
void nsbx_op_set_result(struct nsbx_op *op, void *result, void (*free_result)(void *result));
/* err NULL: done; else failed, with a copy of err (a code of TIMEOUT or CANCELLED sets those states). */
void nsbx_op_finish(struct nsbx_op *op, const struct nsbx_err *err);
/* Timed out or cancelled, by the reason it was stopped for (cancel when it was not), with the standard message. */
void nsbx_op_finish_stopped(struct nsbx_op *op);
/* The owner goes away while the op is pending: no stop call any more. The owner still has to finish it. */
void nsbx_op_disown(struct nsbx_op *op);

/* Asks a pending op to stop; does nothing on a finished or already stopping one. */
void nsbx_op_cancel(struct nsbx_op *op);
enum nsbx_op_state nsbx_op_state(const struct nsbx_op *op);
bool nsbx_op_stopping(const struct nsbx_op *op);
const char *nsbx_op_name(const struct nsbx_op *op);
/* The finished op's error; NULL when it is done or pending. Valid as long as the op. */
const struct nsbx_err *nsbx_op_err(const struct nsbx_op *op);
void *nsbx_op_result(const struct nsbx_op *op); /* borrowed; NULL unless set */
void *nsbx_op_take_result(struct nsbx_op *op);  /* the caller frees it now */

/* One waiter at a time. Called once, deferred, also when the op is finished already. `cb` NULL takes the wait back. */
void nsbx_op_on_finish(struct nsbx_op *op, void (*cb)(struct nsbx_op *op, void *ud), void *ud);

#endif
