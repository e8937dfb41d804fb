#include "base/util.h"
#include "error.h"
#include "loop/spawn.h"
#include "sched_priv.h"

#include <string.h>

static const char sched_key; /* of the registry */

/* The scheduler of the state that is the program, for the signal handler. */
static struct nsbx_sched *volatile program;

/* ---- the door: the one place where a task's coroutine is given control ---- */

/* lua.c's words, for a task that yields where only a coroutine of its own making may. */
static void refuse_yield(lua_State *L, lua_Debug *ar)
{
    (void)ar;
    lua_sethook(L, NULL, 0, 0);
    lua_pushliteral(L, "attempt to yield from outside a coroutine");
    lua_error(L);
}

/* Closes a task's coroutine between its steps: its `<close>` run (their waits are on the spot), no pcall stops it. */
static void end_task(lua_State *L, struct nsbx_sched *s, struct nsbx_task *t)
{
    struct nsbx_task *outer = s->current;
    lua_State *from = s->running;
    s->current = t;
    s->running = t->co;
    t->ending = true;
    t->state = NSBX_TASK_RUNNING;
    if (!t->cancel_reason)
        t->cancel_reason = "cancel";
    t->told = true;
    t->grace_end = nsbx_now_ms() + NSBX_CANCEL_GRACE_TASK_MS;
    int status = lua_resetthread(t->co);
    s->current = outer;
    s->running = from;
    if (status == LUA_OK) {
        lua_settop(t->co, 0);
        nsbx_push_cancelled(L, t, NULL);
        lua_xmove(L, t->co, 1);
    }
    t->failed = true;
    nsbx_task_finished(L, t);
}

static void task_yielded(lua_State *L, struct nsbx_sched *s, struct nsbx_task *t, int n)
{
    const void *tag = n == 1 ? lua_touserdata(t->co, -1) : NULL;
    lua_pop(t->co, n);
    if (tag == &nsbx_tag_wait)
        return;
    if (tag == &nsbx_tag_end) {
        end_task(L, s, t);
        return;
    }
    lua_sethook(t->co, refuse_yield, LUA_MASKCOUNT, 1);
    nsbx_sched_make_ready(t);
}

static void step(lua_State *L, struct nsbx_sched *s, struct nsbx_task *t)
{
    struct nsbx_task *outer = s->current;
    lua_State *from = s->running;
    int args = t->first_args, n = 0;
    if (!t->started && t->cancel_reason) {
        end_task(L, s, t);
        return;
    }
    t->started = true;
    t->first_args = 0;
    t->state = NSBX_TASK_RUNNING;
    s->current = t;
    s->running = t->co;
    int status = lua_resume(t->co, L, args, &n);
    s->current = outer;
    s->running = from;
    if (status == LUA_YIELD) {
        task_yielded(L, s, t, n);
        return;
    }
    t->failed = t->failed || status != LUA_OK;
    nsbx_task_finished(L, t);
}

void nsbx_sched_make_ready(struct nsbx_task *t)
{
    t->state = NSBX_TASK_READY;
    nsbx_list_push(&t->sched->ready, &t->ready);
    t->sched->n_ready++;
}

/* Each task that is ready now gets one step; those that become ready meanwhile wait for the next turn. */
static void step_ready(lua_State *L, struct nsbx_sched *s)
{
    for (size_t n = s->n_ready; n > 0 && !(s->exiting && !s->exit_drains); n--) {
        struct nsbx_list *node = nsbx_list_shift(&s->ready);
        s->n_ready--;
        step(L, s, nsbx_container_of(node, struct nsbx_task, ready));
    }
}

/* ---- turns ---- */

static void exit_now(lua_State *L, struct nsbx_sched *s);

bool nsbx_sched_turn(lua_State *L, struct nsbx_sched *s, bool others)
{
    struct nsbx_loop *loop = nsbx_sched_loop(L);
    if (nsbx_sched_take_signal(s))
        return true; /* it may have ended what is waited for */
    nsbx_pins_sweep(L, s);
    if (others && s->n_ready > 0) {
        step_ready(L, s);
        if (s->exiting && !s->exit_drains)
            exit_now(L, s);
        nsbx_loop_turn(loop, NSBX_TURN_POLL);
        return true;
    }
    if (others && s->fresh_failures) {
        /* A failed task that nobody can join any more reports itself when it is collected; let that not wait for ever. */
        s->fresh_failures = false;
        lua_gc(L, LUA_GCCOLLECT);
    }
    bool more = nsbx_loop_turn(loop, NSBX_TURN_WAIT);
    return more || (others && s->n_ready > 0) || (s->signo && !s->signal_taken);
}

/* ---- the end of a recipe ---- */

static void cancel_all(struct nsbx_sched *s, const char *reason)
{
    nsbx_list_each (node, &s->live)
        nsbx_task_cancel(nsbx_container_of(node, struct nsbx_task, live), reason);
}

static void end_leftovers(lua_State *L, struct nsbx_sched *s)
{
    for (struct nsbx_list *node; (node = nsbx_list_first(&s->live));) {
        struct nsbx_task *t = nsbx_container_of(node, struct nsbx_task, live);
        if (t->op) {
            nsbx_op_on_finish(t->op, NULL, NULL);
            nsbx_op_cancel(t->op);
        }
        nsbx_task_wait_ended(t);
        if (t->state == NSBX_TASK_READY) {
            nsbx_list_remove(&t->ready);
            s->n_ready--;
        }
        end_task(L, s, t);
    }
}

static void drain(lua_State *L, struct nsbx_sched *s, const char *cancel)
{
    uint64_t end = 0;
    while (!nsbx_list_empty(&s->live)) {
        if (!cancel && s->signo)
            cancel = nsbx_signal_name(s->signo);
        if (cancel && !end) {
            end = nsbx_now_ms() + NSBX_DRAIN_MS;
            cancel_all(s, cancel);
        }
        if (end && nsbx_now_ms() > end)
            break;
        if (nsbx_sched_turn(L, s, true))
            continue;
        if (cancel)
            break;
        cancel = "deadlock";
    }
    end_leftovers(L, s);
}

bool nsbx_sched_drain(lua_State *L, bool cancel)
{
    struct nsbx_sched *s = nsbx_sched_get(L);
    drain(L, s, s->signo ? nsbx_signal_name(s->signo) : cancel ? "failure" : NULL);
    if (s->unwatched > 0)
        lua_gc(L, LUA_GCCOLLECT); /* they report themselves */
    return s->unwatched == 0 && !s->failures_reported;
}

/* ---- os.exit ---- */

/* In the main chunk's part of the stack only. Never returns. As lua.c's os.exit(code, true): lua_close runs what is pending in the
 * main chunk, wherever in it we are. */
static void exit_now(lua_State *L, struct nsbx_sched *s)
{
    lua_State *main = s->main;
    void (*quit)(int) = s->quit;
    int status = s->exit_status;
    if (!s->exit_drains) {
        s->exit_drains = true;
        drain(L, s, "exit");
    }
    if (!s->closing) {
        s->closing = true;
        lua_close(main);
    }
    quit(status);
}

int nsbx_sched_exit(lua_State *L)
{
    int status = 0;
    if (lua_isboolean(L, 1))
        status = lua_toboolean(L, 1) ? 0 : 1;
    else
        status = (int)luaL_optinteger(L, 1, 0);
    struct nsbx_sched *s = nsbx_sched_get(L);
    struct nsbx_task *t = s->current;
    if (!s->exiting) {
        s->exiting = true;
        s->exit_status = status;
    }
    if (t == &s->chunk) {
        exit_now(L, s);
        return 0; /* not reached */
    }
    /* A task: it is ended by the scheduler, which then ends the rest. Where it cannot be (in a coroutine of its own making, in a
     * callback of C) an error brings it to a place where it can: its next wait at the latest. */
    if (!t->cancel_reason)
        t->cancel_reason = "exit";
    t->told = true;
    t->grace_end = 0;
    nsbx_checkpoint(L, "os.exit");
    return 0; /* not reached */
}

void nsbx_sched_own_process(lua_State *L, void (*quit)(int status))
{
    struct nsbx_sched *s = nsbx_sched_open(L);
    s->quit = quit;
    program = s;
    lua_getglobal(L, "os");
    lua_pushcfunction(L, nsbx_sched_exit);
    lua_setfield(L, -2, "exit");
    lua_pop(L, 1);
}

/* ---- signals ---- */

/* Runs at the next instruction of what was busy when the signal came. */
static void interrupted(lua_State *L, lua_Debug *ar)
{
    (void)ar;
    lua_sethook(L, NULL, 0, 0);
    struct nsbx_sched *s = nsbx_sched_get(L);
    nsbx_sched_take_signal(s);
    if (s->current->told)
        return; /* it got the error by a wait meanwhile */
    nsbx_push_cancelled(L, s->current, NULL);
    lua_error(L);
}

void nsbx_sched_interrupt(int signo)
{
    struct nsbx_sched *s = program;
    if (!s || s->signo)
        return;
    s->signo = signo;
    if (s->loop)
        nsbx_loop_wake(s->loop);
    lua_sethook(s->running, interrupted, LUA_MASKCALL | LUA_MASKRET | LUA_MASKLINE | LUA_MASKCOUNT, 1);
}

bool nsbx_sched_take_signal(struct nsbx_sched *s)
{
    if (!s->signo || s->signal_taken)
        return false;
    s->signal_taken = true;
    lua_sethook(s->running, NULL, 0, 0);
    const char *name = nsbx_signal_name(s->signo);
    nsbx_task_cancel(&s->chunk, name);
    cancel_all(s, name);
    return true;
}

/* ---- life ---- */

struct nsbx_loop *nsbx_sched_loop(lua_State *L)
{
    struct nsbx_sched *s = nsbx_sched_get(L);
    struct nsbx_err err = {0};
    if (!s->loop && nsbx_loop_new(&s->loop, &err) != 0)
        nsbx_raise(L, &err, NULL, NULL);
    return s->loop;
}

/* The last finalizer of ours: the scheduler's userdata is the first one that was made. What objects do in the background after their
 * closing (a cancel to confirm) is bounded; the rest of the time limit is for what is not. */
static int sched_gc(lua_State *L)
{
    struct nsbx_sched *s = lua_touserdata(L, 1);
    if (program == s)
        program = NULL;
    lua_pushnil(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &sched_key);
    nsbx_task_wait_ended(&s->chunk);
    if (s->loop) {
        uint64_t end = nsbx_now_ms() + NSBX_DRAIN_MS;
        while (nsbx_loop_live(s->loop, NULL, NULL) > 0 && nsbx_now_ms() < end)
            if (!nsbx_loop_turn(s->loop, NSBX_TURN_WAIT))
                break;
        nsbx_loop_free(s->loop);
        s->loop = NULL;
    }
    nsbx_pins_drop(s);
    return 0;
}

struct nsbx_sched *nsbx_sched_open(lua_State *L)
{
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &sched_key) == LUA_TUSERDATA) {
        struct nsbx_sched *s = lua_touserdata(L, -1);
        lua_pop(L, 1);
        return s;
    }
    lua_pop(L, 1);
    struct nsbx_sched *s = lua_newuserdatauv(L, sizeof *s, 0);
    memset(s, 0, sizeof *s);
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, sched_gc);
    lua_setfield(L, -2, "__gc");
    lua_setmetatable(L, -2);
    lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_MAINTHREAD);
    s->main = s->running = lua_tothread(L, -1);
    lua_pop(L, 1);
    s->chunk.sched = s;
    s->chunk.co = s->main;
    s->chunk.state = NSBX_TASK_RUNNING;
    s->current = &s->chunk;
    nsbx_list_init(&s->chunk.ready);
    nsbx_list_init(&s->chunk.live);
    nsbx_list_init(&s->chunk.joiners);
    nsbx_list_init(&s->ready);
    nsbx_list_init(&s->live);
    nsbx_list_init(&s->released);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &sched_key);
    return s;
}

struct nsbx_sched *nsbx_sched_get(lua_State *L)
{
    struct nsbx_sched *s = NULL;
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &sched_key) == LUA_TUSERDATA)
        s = lua_touserdata(L, -1);
    lua_pop(L, 1);
    if (!s)
        nsbx_misused(L, NULL, "nsbx is closed: the Lua state ends");
    return s;
}
