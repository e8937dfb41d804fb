/* Waiting: what the bindings use of the scheduler.
 *
 * The main chunk runs in the main state, every task in a coroutine of its own. A wait of a task, in its own coroutine, yields to the
 * scheduler. Everywhere else a wait turns the loop on the spot until its operation has finished: in the main chunk (and in
 * coroutines it made) with the other tasks going on meanwhile; inside a task, but not in its own coroutine or where Lua cannot yield
 * (a sort comparator, a gsub callback, a finalizer, the top level of a required file), with the other tasks standing still, so
 * that nothing unexpected runs in the middle of such a place.
 *
 * Shape of a binding that waits:
 *
 *     nsbx_checkpoint(L, "read_file");                  (raises `cancelled`; before anything is acquired)
 *     void **slot = nsbx_wait_slot(L);                  (pushes a box)
 *     *slot = nsbx_file_read(guest, …);
 *     return nsbx_wait(L, "read_file", NSBX_WAIT, read_file_done, 0);
 *
 *     static int read_file_done(lua_State *L, int status, lua_KContext ctx)
 *     {
 *         struct nsbx_op *op = nsbx_waited(L, "read_file", id);   (raises the op's failure)
 *         …push what the op's result says…
 *         nsbx_wait_over(L, -2);                        (lets the op go now, not when the collector comes by)
 *         return 1;
 *     }
 *
 * Results are pushed in the continuation. Callbacks of the loop (named on_…) touch no Lua. */
#ifndef NSBX_BIND_SCHED_H
#define NSBX_BIND_SCHED_H

#include "bind.h"
#include "error.h"
#include "loop/loop.h"
#include "loop/op.h"

#include <lauxlib.h>

/* How long a cancelled task may go on waiting (to clean up) after it got the error. */
#define NSBX_CANCEL_GRACE_TASK_MS 5000
/* How long an ending recipe waits for its cancelled tasks, confirmations of the guests included. */
#define NSBX_DRAIN_MS 15000

/* The loop, made at the first call. Raises. */
struct nsbx_loop *nsbx_sched_loop(lua_State *L);

/* Raises `cancelled` when the running task or main chunk was cancelled and has not been told, or its grace is over. */
void nsbx_checkpoint(lua_State *L, const char *op);

enum nsbx_wait_mode {
    NSBX_WAIT,          /* a cancel cancels the op */
    NSBX_WAIT_SHIELDED, /* for cleaning up: a cancel reaches the op only when the grace is over */
};

/* Pushes the box of an op; put the op (your reference) in *slot before anything that can raise. */
void **nsbx_wait_slot(lua_State *L);
/* The box is on the top of the stack; a NULL op in it raises as out of memory. Runs `k` when the op has finished, with the stack as it is
 * now. `return nsbx_wait(…)`. */
int nsbx_wait(lua_State *L, const char *name, enum nsbx_wait_mode mode, lua_KFunction k, lua_KContext ctx);
/* For what waits again and again: where L cannot yield, waits here and returns true, so that the caller loops; its continuation, called
 * from within nsbx_wait, would nest once for each wait. false: `return nsbx_wait(…)`, which yields. */
bool nsbx_wait_here(lua_State *L, const char *name, enum nsbx_wait_mode mode);
/* In the continuation, with the box on the top: raises when the op failed (op and sandbox name it in the error); else the op, borrowed. */
struct nsbx_op *nsbx_waited(lua_State *L, const char *name, const char *sandbox);
/* The finished op in the box on the top, whatever became of it; for those that look at the failure themselves. */
struct nsbx_op *nsbx_wait_op(lua_State *L);
/* Raises `err`; a cancelled op of a cancelled task counts as having told it. */
int nsbx_wait_raise(lua_State *L, const struct nsbx_err *err, const char *name, const char *sandbox) NSBX_RAISES;
/* Lets go of the op in the box at `idx`. */
void nsbx_wait_over(lua_State *L, int idx);

/* Keeps the Lua value at `idx` alive until nsbx_pin_release, which touches no Lua and may be called by the loop, once. */
struct nsbx_pin;
struct nsbx_pin *nsbx_pin(lua_State *L, int idx);
void nsbx_pin_release(void *pin);

#endif
