#include "base/alloc.h"
#include "base/util.h"
#include "bind_priv.h"
#include "error.h"
#include "object.h"
#include "options.h"
#include "sched_priv.h"

#include <stdio.h>

#define SLEEP_MAX_S 1e9
#define JOIN_MAX_S 86400

/* ---- the body ---- */

/* The message handler of a task: notes where the error came from (registry[&task->failed]) and leaves the error as it is, for
 * `<close>` sees it too. */
static int note_traceback(lua_State *L)
{
    lua_settop(L, 1);
    luaL_traceback(L, L, NULL, 1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &nsbx_sched_get(L)->current->failed);
    return 1;
}

/* Leaves the results, or the error and, when there is one, its traceback. */
static int body_done(lua_State *L, int status, lua_KContext ctx)
{
    (void)ctx;
    if (status == LUA_OK || status == LUA_YIELD)
        return lua_gettop(L) - 1;
    struct nsbx_task *t = nsbx_sched_get(L)->current;
    t->failed = true;
    lua_rawgetp(L, LUA_REGISTRYINDEX, &t->failed);
    lua_pushnil(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &t->failed);
    return 2;
}

int nsbx_task_body(lua_State *L)
{
    lua_pushcfunction(L, note_traceback);
    lua_insert(L, 1);
    /* A pcall that can be left by a yield: only so do `<close>` run, and wait, after an error that nobody catches. */
    int status = lua_pcallk(L, lua_gettop(L) - 2, LUA_MULTRET, 1, 0, body_done);
    return body_done(L, status, 0);
}

/* ---- joining ---- */

/* Waits for some tasks: its op finishes when all have ended, or the first one has failed. */
struct nsbx_joiner {
    struct nsbx_list node; /* in task->joiners */
    struct group *group;
};
struct group {
    struct nsbx_op *op; /* NULL once finished */
    size_t left, n;
    struct nsbx_joiner joiners[];
};

static void drop_group(lua_State *L, void *ptr)
{
    (void)L;
    struct group *g = ptr;
    for (size_t i = 0; i < g->n; i++)
        nsbx_list_remove(&g->joiners[i].node);
    nsbx_op_unref(g->op);
    nsbx_free(g);
}

static const struct nsbx_type group_type = {.name = "nsbx.group", .noun = "group", .drop = drop_group};

static bool has_ended(const struct nsbx_task *t)
{
    return t->state >= NSBX_TASK_DONE;
}

static void tell_joiners(struct nsbx_task *t)
{
    for (struct nsbx_list *node; (node = nsbx_list_shift(&t->joiners));) {
        struct group *g = nsbx_container_of(node, struct nsbx_joiner, node)->group;
        g->left--;
        if (g->left > 0 && !t->failed)
            continue;
        if (nsbx_op_state(g->op) == NSBX_OP_PENDING)
            nsbx_op_finish(g->op, NULL);
    }
}

static void report_unwatched(lua_State *L, struct nsbx_task *t)
{
    t->sched->unwatched--;
    t->sched->failures_reported = true;
    t->unwatched = false;
    lua_pushvalue(t->co, 1);
    lua_xmove(t->co, L, 1);
    const char *text = luaL_tolstring(L, -1, NULL);
    const char *trace = lua_tostring(t->co, 2);
    fprintf(stderr, "nsbx: a task failed and nobody joined it: %s%s%s\n", text, trace ? "\n" : "",
            trace ? trace : "");
    lua_pop(L, 2);
}

static void drop_task(lua_State *L, void *ptr)
{
    struct nsbx_task *t = ptr;
    if (t->unwatched)
        report_unwatched(L, t);
    nsbx_list_remove(&t->ready);
    nsbx_list_remove(&t->live);
    nsbx_task_wait_ended(t);
    nsbx_free(t);
}

void nsbx_task_finished(lua_State *L, struct nsbx_task *t)
{
    t->state = NSBX_TASK_DONE;
    if (t->failed)
        t->state = t->cancel_reason && nsbx_error_code(t->co, 1) == NSBX_E_CANCELLED ? NSBX_TASK_CANCELLED
                                                                                     : NSBX_TASK_FAILED;
    if (t->state == NSBX_TASK_FAILED) {
        t->unwatched = true;
        t->sched->unwatched++;
        t->sched->fresh_failures = true;
    }
    nsbx_list_remove(&t->live);
    tell_joiners(t);
    lua_pushnil(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, t);
}

/* Pushes the results of an ended task, or raises its error. */
static int push_outcome(lua_State *L, struct nsbx_task *t)
{
    if (t->unwatched) {
        t->unwatched = false;
        t->sched->unwatched--;
    }
    int n = t->failed ? 1 : lua_gettop(t->co);
    luaL_checkstack(L, n, "too many results of a task");
    luaL_checkstack(t->co, 1, "too many results of a task");
    for (int i = 1; i <= n; i++) {
        lua_pushvalue(t->co, i);
        lua_xmove(t->co, L, 1);
    }
    return t->failed ? lua_error(L) : n;
}

static const struct nsbx_type task_type;

/* Adds the task in the box at idx to the group. */
static void add_to_group(lua_State *L, int idx, struct group *g)
{
    struct nsbx_task *t = nsbx_box_test(L, idx, &task_type)->ptr;
    struct nsbx_joiner *j = &g->joiners[g->n++];
    nsbx_list_init(&j->node);
    j->group = g;
    if (has_ended(t))
        return;
    g->left++;
    nsbx_list_push(&t->joiners, &j->node);
}

/* Pushes a group for n tasks, with its op in a wait's box above it. */
static struct group *push_group(lua_State *L, size_t n, int64_t timeout_ms)
{
    struct nsbx_loop *loop = nsbx_sched_loop(L);
    struct nsbx_box *box = nsbx_box_push(L, &group_type, 0);
    struct group *g = nsbx_calloc(1, sizeof *g + n * sizeof g->joiners[0]);
    if (!g)
        nsbx_raise_nomem(L, "join", "the wait");
    box->ptr = g;
    void **slot = nsbx_wait_slot(L);
    g->op = nsbx_op_new(loop, &(struct nsbx_op_spec){.name = "join", .timeout_ms = timeout_ms});
    if (!g->op)
        nsbx_raise_nomem(L, "join", "the wait");
    *slot = nsbx_op_ref(g->op);
    return g;
}

static void check_join_here(lua_State *L, const char *op)
{
    if (!nsbx_others_go_on(L, nsbx_sched_get(L)->current))
        nsbx_misused(L, op,
                     "a task cannot be waited for here, inside a coroutine of the task's own making or where Lua "
                     "cannot yield: "
                     "no other task goes on during such a wait");
}

/* ---- the task's methods ---- */

static int join_done(lua_State *L, int status, lua_KContext ctx)
{
    (void)status, (void)ctx;
    nsbx_box_drop(L, lua_touserdata(L, -2));
    nsbx_waited(L, "join", NULL);
    nsbx_wait_over(L, -1);
    return push_outcome(L, nsbx_box_test(L, 1, &task_type)->ptr);
}

static int task_join(lua_State *L)
{
    static const struct nsbx_option options[] = {{.key = "timeout", .kind = NSBX_KIND_SECONDS, .max = JOIN_MAX_S},
                                                 {0}};
    struct nsbx_task *t = nsbx_box_open(L, &task_type, "join");
    nsbx_check_count(L, 2, "join", "task:join([{timeout=}])");
    nsbx_check_options(L, 2, "join", options);
    int64_t timeout_ms = nsbx_option_ms(L, 2, "timeout", -1);
    if (has_ended(t))
        return push_outcome(L, t);
    nsbx_checkpoint(L, "join");
    if (t == t->sched->current)
        return nsbx_misused(L, "join", "a task cannot join itself");
    check_join_here(L, "join");
    add_to_group(L, 1, push_group(L, 1, timeout_ms));
    return nsbx_wait(L, "join", NSBX_WAIT, join_done, 0);
}

static int task_cancel(lua_State *L)
{
    struct nsbx_task *t = nsbx_box_open(L, &task_type, "cancel");
    if (!has_ended(t))
        nsbx_task_cancel(t, "cancel");
    return 0;
}

static int close_done(lua_State *L, int status, lua_KContext ctx)
{
    (void)status, (void)ctx;
    nsbx_wait_over(L, -1);
    nsbx_box_drop(L, lua_touserdata(L, -2));
    struct nsbx_task *t = nsbx_box_test(L, 1, &task_type)->ptr;
    if (t->unwatched)
        report_unwatched(L, t);
    return 0;
}

/* Cancels it and waits for its end; how it ended does not matter, but for an error that nobody has seen. */
static int task_close(lua_State *L)
{
    struct nsbx_task *t = nsbx_box_self(L, &task_type, "close")->ptr;
    if (!t || has_ended(t) || t == t->sched->current)
        return 0;
    nsbx_task_cancel(t, "cancel");
    check_join_here(L, "close");
    add_to_group(L, 1, push_group(L, 1, -1));
    return nsbx_wait(L, "close", NSBX_WAIT_SHIELDED, close_done, 0);
}

static const char *state_name(const struct nsbx_task *t)
{
    static const char *const names[] = {"ready", "running", "waiting", "done", "failed", "cancelled"};
    return names[t->state];
}

static int task_status(lua_State *L)
{
    lua_pushstring(L, state_name(nsbx_box_open(L, &task_type, "status")));
    return 1;
}

static void describe_task(lua_State *L, void *ptr)
{
    lua_pushfstring(L, "%s, %p", state_name(ptr), ptr);
}

static const luaL_Reg task_methods[] = {
    {"join", task_join}, {"cancel", task_cancel}, {"status", task_status}, {NULL, NULL}};
static const struct nsbx_type task_type = {
    .name = "nsbx.task",
    .noun = "task",
    .drop = drop_task,
    .close = task_close,
    .methods = task_methods,
    .describe = describe_task,
};

/* ---- functions ---- */

static int spawn(lua_State *L)
{
    nsbx_check_function(L, 1, "spawn", "function");
    struct nsbx_sched *s = nsbx_sched_get(L);
    if (s->exiting)
        return nsbx_misused(L, "spawn", "the recipe is ending");
    int n = lua_gettop(L);
    struct nsbx_box *box = nsbx_box_push(L, &task_type, 1);
    lua_State *co = lua_newthread(L);
    lua_setiuservalue(L, -2, 1);
    lua_insert(L, 1);
    if (!lua_checkstack(co, n + 2))
        return nsbx_misused(L, "spawn", "too many arguments");
    lua_pushcfunction(co, nsbx_task_body);
    lua_xmove(L, co, n);
    struct nsbx_task *t = nsbx_calloc(1, sizeof *t);
    if (!t)
        return nsbx_raise_nomem(L, "spawn", "the task");
    t->sched = s;
    t->co = co;
    t->first_args = n;
    nsbx_list_init(&t->ready);
    nsbx_list_init(&t->live);
    nsbx_list_init(&t->joiners);
    box->ptr = t;
    lua_pushvalue(L, 1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, t);
    nsbx_list_push(&s->live, &t->live);
    nsbx_sched_make_ready(t);
    return 1;
}

static int all_done(lua_State *L, int status, lua_KContext ctx)
{
    (void)status, (void)ctx;
    nsbx_box_drop(L, lua_touserdata(L, -2));
    nsbx_waited(L, "all", NULL);
    nsbx_wait_over(L, -1);
    bool well = true;
    for (lua_Integer i = 1; well && lua_rawgeti(L, 1, i) != LUA_TNIL; i++) {
        well = !((struct nsbx_task *)nsbx_box_test(L, -1, &task_type)->ptr)->failed;
        lua_pop(L, 1);
    }
    lua_pushboolean(L, well);
    return 1;
}

static int wait_all(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    nsbx_checkpoint(L, "all");
    check_join_here(L, "all");
    size_t n = lua_rawlen(L, 1);
    struct group *g = push_group(L, n, -1);
    bool failed = false;
    for (size_t i = 1; i <= n; i++) {
        lua_rawgeti(L, 1, (lua_Integer)i);
        struct nsbx_box *box = nsbx_box_test(L, -1, &task_type);
        if (!box || !box->ptr || ((struct nsbx_task *)box->ptr)->sched->current == box->ptr)
            return nsbx_misused(L, "all", "entry %d of the list is not a task that can be waited for", (int)i);
        add_to_group(L, -1, g);
        failed = failed || ((struct nsbx_task *)box->ptr)->failed;
        lua_pop(L, 1);
    }
    if (g->left == 0 || failed)
        nsbx_op_finish(g->op, NULL);
    return nsbx_wait(L, "all", NSBX_WAIT, all_done, 0);
}

static int sleep_done(lua_State *L, int status, lua_KContext ctx)
{
    (void)status, (void)ctx;
    if (nsbx_op_state(nsbx_wait_op(L)) != NSBX_OP_TIMED_OUT)
        nsbx_waited(L, "sleep", NULL);
    nsbx_wait_over(L, -1);
    return 0;
}

static int task_sleep(lua_State *L)
{
    nsbx_check_count(L, 1, "sleep", "nsbx.sleep(seconds)");
    int64_t ms = nsbx_check_ms(L, 1, "sleep", "seconds", SLEEP_MAX_S);
    nsbx_checkpoint(L, "sleep");
    struct nsbx_loop *loop = nsbx_sched_loop(L);
    void **slot = nsbx_wait_slot(L);
    *slot = nsbx_op_new(loop, &(struct nsbx_op_spec){.name = "sleep", .timeout_ms = ms});
    return nsbx_wait(L, "sleep", NSBX_WAIT, sleep_done, 0);
}

static int now(lua_State *L)
{
    lua_pushnumber(L, (lua_Number)nsbx_now_ns() / 1e9);
    return 1;
}

const luaL_Reg nsbx_task_functions[] = {{"spawn", spawn}, {"sleep", task_sleep}, {"now", now}, {NULL, NULL}};
const luaL_Reg nsbx_task_core_functions[] = {{"wait_all", wait_all}, {NULL, NULL}};
