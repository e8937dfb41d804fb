#include "base/alloc.h"
#include "base/util.h"
#include "error.h"
#include "object.h"
#include "sched_priv.h"

#include <stdlib.h>
#include <string.h>

const char nsbx_tag_wait, nsbx_tag_end;

/* ---- the box of an op ---- */

static void drop_op(lua_State *L, void *ptr)
{
    struct nsbx_op *op = ptr;
    struct nsbx_sched *s = nsbx_sched_get(L);
    if (s->chunk.op == op)
        nsbx_task_wait_ended(&s->chunk); /* its wait was left by an error (no memory) */
    if (nsbx_op_state(op) == NSBX_OP_PENDING) {
        nsbx_op_on_finish(op, NULL, NULL);
        nsbx_op_cancel(op);
    }
    nsbx_op_unref(op);
}

static const struct nsbx_type wait_type = {.name = "nsbx.wait", .noun = "wait", .drop = drop_op};

void **nsbx_wait_slot(lua_State *L)
{
    luaL_checkstack(L, 8, "no room to wait");
    return &nsbx_box_push(L, &wait_type, 0)->ptr;
}

struct nsbx_op *nsbx_wait_op(lua_State *L)
{
    return ((struct nsbx_box *)lua_touserdata(L, -1))->ptr;
}

void nsbx_wait_over(lua_State *L, int idx)
{
    nsbx_box_drop(L, lua_touserdata(L, idx));
}

struct nsbx_op *nsbx_waited(lua_State *L, const char *name, const char *sandbox)
{
    struct nsbx_op *op = nsbx_wait_op(L);
    if (nsbx_op_state(op) == NSBX_OP_DONE)
        return op;
    struct nsbx_err err = {.code = NSBX_E_CANCELLED};
    nsbx_err_copy(&err, nsbx_op_err(op)); /* none on one that is pending still: its wait was given up */
    nsbx_wait_over(L, -1);
    nsbx_wait_raise(L, &err, name, sandbox);
}

/* ---- cancelling ---- */

static void on_grace_over(void *ud)
{
    struct nsbx_task *t = ud;
    if (t->op)
        nsbx_op_cancel(t->op);
}

static void bound_wait(struct nsbx_task *t, uint64_t ms)
{
    t->grace = nsbx_timer_new(t->sched->loop, on_grace_over, t);
    if (t->grace)
        nsbx_timer_start(t->grace, ms);
    else
        nsbx_op_cancel(t->op); /* without memory there is no grace */
}

void nsbx_task_cancel(struct nsbx_task *t, const char *reason)
{
    if (t->cancel_reason)
        return;
    t->cancel_reason = reason;
    if (t->op && t->shielded)
        bound_wait(t, NSBX_CANCEL_GRACE_TASK_MS);
    else if (t->op)
        nsbx_op_cancel(t->op);
}

void nsbx_task_wait_ended(struct nsbx_task *t)
{
    t->op = NULL;
    nsbx_timer_close(t->grace);
    t->grace = NULL;
}

static void cancel_err(const struct nsbx_task *t, struct nsbx_err *err)
{
    static const char *const texts[][2] = {
        {"cancel", "the task was cancelled"},
        {"exit", "the recipe has called os.exit"},
        {"failure", "the recipe has failed"},
        {"deadlock", "every task that is left waits for another one"},
    };
    for (size_t i = 0; i < NSBX_LEN(texts); i++)
        if (strcmp(t->cancel_reason, texts[i][0]) == 0) {
            nsbx_err_reason(err, NSBX_E_CANCELLED, texts[i][0], "%s", texts[i][1]);
            return;
        }
    nsbx_err_reason(err, NSBX_E_CANCELLED, t->cancel_reason, "the recipe was interrupted by %s", t->cancel_reason);
}

void nsbx_push_cancelled(lua_State *L, struct nsbx_task *t, const char *op)
{
    struct nsbx_err err = {0};
    cancel_err(t, &err);
    if (!t->told) {
        t->told = true;
        t->grace_end = nsbx_now_ms() + NSBX_CANCEL_GRACE_TASK_MS;
    }
    nsbx_error_push(L, &err, op, NULL);
}

static bool may_yield(lua_State *L, const struct nsbx_task *t)
{
    return t != &t->sched->chunk && t->co == L && !t->ending && lua_isyieldable(L);
}

void nsbx_checkpoint(lua_State *L, const char *op)
{
    struct nsbx_sched *s = nsbx_sched_get(L);
    struct nsbx_task *t = s->current;
    nsbx_sched_take_signal(s);
    if (!t->cancel_reason || (t->told && nsbx_now_ms() < t->grace_end))
        return;
    if (t->told && may_yield(L, t)) {
        /* It had its error and its grace and goes on: no pcall of its stops this. */
        lua_pushlightuserdata(L, (void *)(uintptr_t)&nsbx_tag_end);
        lua_yield(L, 1);
    }
    nsbx_push_cancelled(L, t, op);
    lua_error(L);
}

int nsbx_wait_raise(lua_State *L, const struct nsbx_err *err, const char *name, const char *sandbox)
{
    struct nsbx_task *t = nsbx_sched_get(L)->current;
    if (t->stuck) {
        t->stuck = false;
        nsbx_misused(L, name, "nothing is left that could end this wait: every task waits for another one");
    }
    if (err->code != NSBX_E_CANCELLED || !t->cancel_reason)
        nsbx_raise(L, err, name, sandbox);
    nsbx_push_cancelled(L, t, name);
    lua_error(L);
    abort(); /* it does not return */
}

/* ---- waiting ---- */

static void on_op_finished(struct nsbx_op *op, void *ud)
{
    (void)op;
    struct nsbx_task *t = ud;
    nsbx_task_wait_ended(t);
    nsbx_sched_make_ready(t);
}

/* Whether L runs a finalizer: it does so at any place of any function, where no other task may go on. The collector stands still
 * meanwhile, and says so by refusing to answer (or, in older Lua 5.4, as if the recipe had stopped it). */
static bool in_finalizer(lua_State *L)
{
    int running = lua_gc(L, LUA_GCISRUNNING);
    if (running != 0)
        return running < 0;
    lua_Debug ar;
    for (int level = 0; lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "n", &ar);
        if (ar.name && strcmp(ar.name, "__gc") == 0)
            return true;
    }
    return false;
}

bool nsbx_others_go_on(lua_State *L, const struct nsbx_task *t)
{
    return may_yield(L, t) || (t == &t->sched->chunk && !in_finalizer(L));
}

static void begin_wait(struct nsbx_task *t, struct nsbx_op *op, enum nsbx_wait_mode mode)
{
    t->op = op;
    t->shielded = mode == NSBX_WAIT_SHIELDED;
    if (t->cancel_reason) {
        uint64_t now = nsbx_now_ms();
        bound_wait(t, !t->told ? NSBX_CANCEL_GRACE_TASK_MS : t->grace_end > now ? t->grace_end - now : 0);
    }
}

static void turn_until_finished(lua_State *L, struct nsbx_task *t, struct nsbx_op *op)
{
    struct nsbx_sched *s = t->sched;
    bool others = nsbx_others_go_on(L, t); /* t cannot yield here, so this says: the main chunk, in no finalizer */
    if (others && s->n_ready > 0)
        nsbx_sched_turn(L, s, others); /* a wait that need not wait gives the others their turn all the same */
    while (nsbx_op_state(op) == NSBX_OP_PENDING)
        if (!nsbx_sched_turn(L, s, others) && nsbx_op_state(op) == NSBX_OP_PENDING) {
            t->stuck = true;
            nsbx_op_cancel(op);
            break;
        }
}

/* A finalizer that waits may run in the middle of another wait of the same task or chunk; then that goes on afterwards, and hears of a
 * cancel that came meanwhile. */
static void wait_in_place(lua_State *L, struct nsbx_task *t, struct nsbx_op *op, enum nsbx_wait_mode mode)
{
    struct nsbx_op *outer = t->op;
    struct nsbx_timer *outer_grace = t->grace;
    bool outer_shielded = t->shielded;
    t->grace = NULL;
    begin_wait(t, op, mode);
    turn_until_finished(L, t, op);
    nsbx_task_wait_ended(t);
    t->op = outer;
    t->grace = outer_grace;
    t->shielded = outer_shielded;
    if (!t->cancel_reason || !outer)
        return;
    if (!outer_shielded)
        nsbx_op_cancel(outer);
    else if (!outer_grace)
        bound_wait(t, NSBX_CANCEL_GRACE_TASK_MS);
}

bool nsbx_wait_here(lua_State *L, const char *name, enum nsbx_wait_mode mode)
{
    struct nsbx_op *op = nsbx_wait_op(L);
    if (!op)
        nsbx_raise_nomem(L, name, "the operation");
    struct nsbx_task *t = nsbx_sched_get(L)->current;
    if (may_yield(L, t))
        return false;
    wait_in_place(L, t, op, mode);
    return true;
}

int nsbx_wait(lua_State *L, const char *name, enum nsbx_wait_mode mode, lua_KFunction k, lua_KContext ctx)
{
    if (nsbx_wait_here(L, name, mode))
        return k(L, LUA_OK, ctx);
    struct nsbx_task *t = nsbx_sched_get(L)->current;
    struct nsbx_op *op = nsbx_wait_op(L);
    begin_wait(t, op, mode);
    t->state = NSBX_TASK_WAITING;
    nsbx_op_on_finish(op, on_op_finished, t);
    lua_pushlightuserdata(L, (void *)(uintptr_t)&nsbx_tag_wait);
    return lua_yieldk(L, 1, ctx, k);
}

/* ---- pins ---- */

struct nsbx_pin {
    struct nsbx_list node;
    struct nsbx_sched *sched;
    int ref;
};

struct nsbx_pin *nsbx_pin(lua_State *L, int idx)
{
    struct nsbx_sched *s = nsbx_sched_get(L);
    lua_pushvalue(L, idx);
    int ref = luaL_ref(L, LUA_REGISTRYINDEX);
    struct nsbx_pin *pin = nsbx_calloc(1, sizeof *pin);
    if (!pin) {
        luaL_unref(L, LUA_REGISTRYINDEX, ref);
        nsbx_raise_nomem(L, NULL, "the operation");
    }
    pin->sched = s;
    pin->ref = ref;
    nsbx_list_init(&pin->node);
    return pin;
}

void nsbx_pin_release(void *ptr)
{
    struct nsbx_pin *pin = ptr;
    nsbx_list_push(&pin->sched->released, &pin->node);
}

void nsbx_pins_sweep(lua_State *L, struct nsbx_sched *s)
{
    for (struct nsbx_list *node; (node = nsbx_list_shift(&s->released));) {
        struct nsbx_pin *pin = nsbx_container_of(node, struct nsbx_pin, node);
        int ref = pin->ref;
        nsbx_free(pin);
        luaL_unref(L, LUA_REGISTRYINDEX, ref);
    }
}

void nsbx_pins_drop(struct nsbx_sched *s)
{
    for (struct nsbx_list *node; (node = nsbx_list_shift(&s->released));)
        nsbx_free(nsbx_container_of(node, struct nsbx_pin, node));
}
