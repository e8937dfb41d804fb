/* What sched.c, wait.c and task.c share. */
#ifndef NSBX_BIND_SCHED_PRIV_H
#define NSBX_BIND_SCHED_PRIV_H

#include "base/list.h"
#include "loop/timer.h"
#include "sched.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

enum nsbx_task_state {
    NSBX_TASK_READY,
    NSBX_TASK_RUNNING,
    NSBX_TASK_WAITING,
    NSBX_TASK_DONE,
    NSBX_TASK_FAILED,
    NSBX_TASK_CANCELLED
};

/* A task, or the main chunk. A task belongs to its box (task.c); while it lives, the registry holds that box. */
struct nsbx_task {
    struct nsbx_sched *sched;
    lua_State *co;            /* its own coroutine; of the main chunk: the main state */
    struct nsbx_list ready;   /* in sched->ready, or unlinked */
    struct nsbx_list live;    /* in sched->live, or unlinked */
    struct nsbx_list joiners; /* struct nsbx_joiner (task.c) */
    enum nsbx_task_state state;
    int first_args; /* values on co for the first step */
    bool started;
    struct nsbx_op *op;        /* what it waits for, borrowed from the wait's box; NULL = nothing */
    bool shielded;             /* that wait */
    struct nsbx_timer *grace;  /* bounds that wait when the task was cancelled; NULL = none */
    const char *cancel_reason; /* static text; NULL = not cancelled */
    bool told;                 /* got the cancelled error */
    uint64_t grace_end;        /* monotonic ms, once told */
    bool stuck;                /* its wait was given up: nothing was left that could end it */
    bool ending;               /* being closed by the scheduler: it cannot yield any more */
    bool failed;               /* its body raised: what is on co is the error and its traceback */
    bool unwatched;            /* it failed and nobody has asked for its outcome; counted in sched->unwatched */
};

struct nsbx_sched {
    lua_State *main;
    struct nsbx_loop *loop; /* NULL until the first wait */
    struct nsbx_task chunk; /* the main chunk */
    struct nsbx_task *current;
    lua_State *volatile running; /* the coroutine in which the scheduler last gave control */
    struct nsbx_list ready, live;
    size_t n_ready;
    struct nsbx_list released; /* pins */
    volatile sig_atomic_t signo;
    bool signal_taken;
    size_t unwatched;       /* tasks that failed and were not joined */
    bool failures_reported; /* some such task has reported itself */
    bool fresh_failures;    /* some of them since the last collection */
    bool exiting;           /* os.exit was called */
    bool exit_drains;
    bool closing; /* the state is being closed for os.exit */
    int exit_status;
    void (*quit)(int status);
};

/* The state's scheduler; raises when it is gone (a finalizer that runs after it). */
struct nsbx_sched *nsbx_sched_get(lua_State *L);

/* ---- wait.c ---- */

/* Yielded by a task's own coroutine, as light userdata: it waits; or it is to be ended, and no pcall can stop that. */
extern const char nsbx_tag_wait, nsbx_tag_end;
void nsbx_task_cancel(struct nsbx_task *t, const char *reason); /* touches no Lua */
void nsbx_task_wait_ended(struct nsbx_task *t);                 /* forgets its op and grace */
/* Whether other tasks go on while L waits: not so inside a task where it cannot yield, nor in a finalizer. */
bool nsbx_others_go_on(lua_State *L, const struct nsbx_task *t);
void nsbx_pins_sweep(lua_State *L, struct nsbx_sched *s);
void nsbx_pins_drop(struct nsbx_sched *s); /* without a Lua state to speak of */
/* Pushes the cancelled error of the task, and it counts as told. */
void nsbx_push_cancelled(lua_State *L, struct nsbx_task *t, const char *op);

/* ---- sched.c ---- */

/* One turn of everything, for a wait on the spot: steps tasks when `others`, then turns the loop. False: nothing is left that could happen. */
bool nsbx_sched_turn(lua_State *L, struct nsbx_sched *s, bool others);
/* Acts on a signal that came: cancels everything, once. True when it did. */
bool nsbx_sched_take_signal(struct nsbx_sched *s);
void nsbx_sched_make_ready(struct nsbx_task *t);
/* os.exit. */
int nsbx_sched_exit(lua_State *L);

/* ---- task.c ---- */

/* The body that every task's coroutine begins with: (function, arguments…) below it on the coroutine. */
int nsbx_task_body(lua_State *L);
/* The task's coroutine has ended: sets the state, tells the joiners, lets the box go. */
void nsbx_task_finished(lua_State *L, struct nsbx_task *t);

#endif
