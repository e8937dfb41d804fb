/* The process object: a command that runs while the recipe goes on. */
#include "base/alloc.h"
#include "base/limits.h"
#include "base/log.h"
#include "error.h"
#include "options.h"
#include "request.h"
#include "sandbox.h"

#include "loop/spawn.h"

#define OP_TIMEOUT_S 60
#define OP_MAX_S 86400

/* Bytes handed to the execution in one step of a write. */
enum { WRITE_STEP = 256 * 1024 };

/* ---- the object ---- */

static void drop_process(lua_State *L, void *ptr)
{
    (void)L;
    struct nsbx_process *p = ptr;
    nsbx_list_remove(&p->node);
    nsbx_exec_close(p->exec);
    nsbx_free(p->piece);
    nsbx_buf_free(&p->held[0]);
    nsbx_buf_free(&p->held[1]);
    nsbx_free(p);
}

/* (process, key) → the field, or nil */
static int field(lua_State *L)
{
    struct nsbx_process *p = ((struct nsbx_box *)lua_touserdata(L, 1))->ptr;
    lua_pushliteral(L, "pid");
    if (!p || !lua_rawequal(L, 2, -1) || nsbx_exec_pid(p->exec) == 0)
        lua_pushnil(L);
    else
        lua_pushinteger(L, nsbx_exec_pid(p->exec));
    return 1;
}

static void describe(lua_State *L, void *ptr)
{
    const struct nsbx_process *p = ptr;
    lua_pushstring(L, nsbx_exec_id(p->exec));
}

struct nsbx_process *nsbx_process_start(lua_State *L, int sandbox_idx, const struct nsbx_exec_request *request,
                                        const char *op)
{
    struct nsbx_sandbox *sb = ((struct nsbx_box *)lua_touserdata(L, sandbox_idx))->ptr;
    struct nsbx_err err = {0};
    struct nsbx_box *box = nsbx_box_push(L, &nsbx_process_type, 1);
    lua_pushvalue(L, sandbox_idx);
    lua_setiuservalue(L, -2, 1);
    struct nsbx_process *p = nsbx_calloc(1, sizeof *p);
    if (!p)
        nsbx_raise_nomem(L, op, "a process");
    nsbx_list_init(&p->node);
    nsbx_buf_init(&p->held[0], NSBX_LINE_MAX);
    nsbx_buf_init(&p->held[1], NSBX_LINE_MAX);
    if (nsbx_exec_start(sb->guest, request, &p->exec, &err) < 0) {
        nsbx_free(p);
        nsbx_raise(L, &err, op, sb->id);
    }
    p->sandbox = sb;
    nsbx_list_push(&sb->processes, &p->node);
    box->ptr = p;
    return p;
}

/* The first argument of method `op`; raises when it is none, or closed. */
static struct nsbx_process *self(lua_State *L, const char *op)
{
    return nsbx_box_open(L, &nsbx_process_type, op);
}

/* After a wait: the process may have been closed meanwhile, by another task. */
static struct nsbx_process *still(lua_State *L, int idx, const char *op)
{
    struct nsbx_box *box = lua_touserdata(L, idx);
    if (!box->ptr)
        nsbx_raise_destroyed(L, op, NULL, "the process was closed meanwhile");
    return box->ptr;
}

/* ---- the end ---- */

static int abandoned(lua_State *L, int status, lua_KContext op)
{
    (void)status;
    struct nsbx_err err = {0};
    nsbx_err_set(&err, NSBX_E_CANCELLED, "the wait was cancelled");
    nsbx_err_copy(&err, nsbx_op_err(nsbx_wait_op(L)));
    nsbx_wait_over(L, -1);
    struct nsbx_box *box = lua_touserdata(L, -2);
    struct nsbx_process *p = box->ptr;
    lua_pushstring(L, p ? p->sandbox->id : NULL);
    nsbx_box_drop(L, box);
    return nsbx_wait_raise(L, &err, (const char *)op, lua_tostring(L, -1));
}

int nsbx_process_abandon(lua_State *L, int idx, const char *op)
{
    lua_settop(L, idx);
    struct nsbx_process *p = still(L, idx, op);
    void **slot = nsbx_wait_slot(L);
    *slot = nsbx_exec_cancel(p->exec);
    return nsbx_wait(L, op, NSBX_WAIT_SHIELDED, abandoned, (lua_KContext)op);
}

static int closed(lua_State *L, int status, lua_KContext error_under_way)
{
    (void)status;
    struct nsbx_err err = {0};
    nsbx_err_copy(&err, nsbx_op_err(nsbx_wait_op(L)));
    nsbx_wait_over(L, -1);
    struct nsbx_box *box = lua_touserdata(L, 1);
    struct nsbx_process *p = box->ptr;
    bool tell = p && err.code && !p->sandbox->destroyed;
    lua_pushstring(L, p ? p->sandbox->id : NULL);
    nsbx_box_drop(L, box);
    if (tell && !error_under_way)
        nsbx_wait_raise(L, &err, "close", lua_tostring(L, -1));
    if (tell)
        nsbx_log(NSBX_LOG_WARN, "close on %s: %s (while another error was on its way)", lua_tostring(L, -1),
                 err.message);
    return 0;
}

/* close and __close: ends what still runs of the command and waits for the guest's word. */
static int close_process(lua_State *L)
{
    struct nsbx_box *box = nsbx_box_self(L, &nsbx_process_type, "close");
    struct nsbx_process *p = box->ptr;
    if (!p || nsbx_exec_finished(p->exec)) {
        nsbx_box_drop(L, box);
        return 0;
    }
    lua_KContext error_under_way = !lua_isnoneornil(L, 2);
    lua_settop(L, 1);
    void **slot = nsbx_wait_slot(L);
    *slot = nsbx_exec_cancel(p->exec);
    return nsbx_wait(L, "close", NSBX_WAIT_SHIELDED, closed, error_under_way);
}

/* ---- spawn ---- */

static int spawned(lua_State *L, int status, lua_KContext ctx)
{
    (void)status, (void)ctx;
    struct nsbx_op *op = nsbx_wait_op(L);
    int process = lua_gettop(L) - 1;
    if (nsbx_op_state(op) == NSBX_OP_CANCELLED)
        return nsbx_process_abandon(L, process, "spawn");
    if (nsbx_op_err(op)) {
        struct nsbx_err err = *nsbx_op_err(op);
        nsbx_wait_over(L, -1);
        nsbx_box_drop(L, lua_touserdata(L, process));
        struct nsbx_sandbox *sb = ((struct nsbx_box *)lua_touserdata(L, 1))->ptr;
        return nsbx_wait_raise(L, &err, "spawn", sb->id);
    }
    nsbx_wait_over(L, -1);
    lua_settop(L, process);
    return 1;
}

int nsbx_sandbox_spawn(lua_State *L)
{
    struct nsbx_sandbox *sb = nsbx_sandbox_self(L, "spawn");
    struct nsbx_call call;
    nsbx_call_parse(L, &call, "spawn", sb->cwd);
    nsbx_checkpoint(L, "spawn");
    struct nsbx_process *p = nsbx_process_start(L, 1, &call.request, "spawn");
    void **slot = nsbx_wait_slot(L);
    *slot = nsbx_exec_started(p->exec, -1);
    return nsbx_wait(L, "spawn", NSBX_WAIT, spawned, 0);
}

/* ---- stdin ---- */

static int write_more(lua_State *L, size_t from);

static void written(lua_State *L)
{
    nsbx_waited(L, "write", still(L, 1, "write")->sandbox->id);
    nsbx_wait_over(L, -1);
    lua_settop(L, 2);
}

static int written_k(lua_State *L, int status, lua_KContext from)
{
    (void)status;
    written(L);
    return write_more(L, (size_t)from);
}

static int write_more(lua_State *L, size_t from)
{
    size_t len;
    const char *bytes = lua_tolstring(L, 2, &len);
    while (from < len) {
        size_t n = len - from < WRITE_STEP ? len - from : WRITE_STEP;
        void **slot = nsbx_wait_slot(L);
        *slot = nsbx_exec_write(still(L, 1, "write")->exec, (const uint8_t *)bytes + from, n, -1);
        from += n;
        if (!nsbx_wait_here(L, "write", NSBX_WAIT))
            return nsbx_wait(L, "write", NSBX_WAIT, written_k, (lua_KContext)from);
        written(L);
    }
    return 0;
}

static int process_write(lua_State *L)
{
    size_t len;
    self(L, "write");
    nsbx_check_count(L, 2, "write", "process:write(bytes)");
    nsbx_check_bytes(L, 2, "write", "bytes", &len);
    nsbx_checkpoint(L, "write");
    lua_settop(L, 2);
    return write_more(L, 0);
}

static int stdin_closed(lua_State *L, int status, lua_KContext ctx)
{
    (void)status, (void)ctx;
    nsbx_waited(L, "close_stdin", still(L, 1, "close_stdin")->sandbox->id);
    nsbx_wait_over(L, -1);
    return 0;
}

static int process_close_stdin(lua_State *L)
{
    struct nsbx_process *p = self(L, "close_stdin");
    nsbx_check_count(L, 1, "close_stdin", "process:close_stdin()");
    nsbx_checkpoint(L, "close_stdin");
    void **slot = nsbx_wait_slot(L);
    *slot = nsbx_exec_close_stdin(p->exec);
    return nsbx_wait(L, "close_stdin", NSBX_WAIT, stdin_closed, 0);
}

/* ---- kill ---- */

static int check_signal(lua_State *L, int idx, const char *what)
{
    int signo = 0;
    if (lua_type(L, idx) == LUA_TSTRING)
        signo = nsbx_signal_of_name(lua_tostring(L, idx));
    else if (lua_isinteger(L, idx) && lua_tointeger(L, idx) > 0 && lua_tointeger(L, idx) <= 64)
        signo = (int)lua_tointeger(L, idx);
    if (!signo)
        nsbx_misused(L, "kill", "%s must be a signal's name or number, such as \"TERM\", not %s", what,
                     lua_type(L, idx) == LUA_TSTRING ? lua_pushfstring(L, "'%s'", lua_tostring(L, idx))
                                                     : nsbx_a_value(L, idx));
    return signo;
}

static int killed(lua_State *L, int status, lua_KContext ctx)
{
    (void)status, (void)ctx;
    struct nsbx_op *op = nsbx_waited(L, "kill", still(L, 1, "kill")->sandbox->id);
    const bool *delivered = nsbx_op_result(op);
    lua_pushboolean(L, !delivered || *delivered);
    nsbx_wait_over(L, -2);
    return 1;
}

/* kill([signal | {signal=, tree=, timeout=}]) → whether there was something left to signal */
static int process_kill(lua_State *L)
{
    /* A signal may be a name or a number, so its kind is looked at here. */
    static const struct nsbx_option options[] = {{.key = "tree", .kind = NSBX_KIND_BOOLEAN},
                                                 {.key = "timeout", .kind = NSBX_KIND_SECONDS, .max = OP_MAX_S},
                                                 {.key = "signal", .kind = NSBX_KIND_ANY},
                                                 {0}};
    struct nsbx_process *p = self(L, "kill");
    nsbx_check_count(L, 2, "kill", "process:kill([signal | {signal=, tree=}])");
    int signo = nsbx_signal_of_name("TERM");
    if (lua_type(L, 2) == LUA_TTABLE) {
        nsbx_check_options(L, 2, "kill", options);
        if (nsbx_option_push(L, 2, "signal") != LUA_TNIL)
            signo = check_signal(L, -1, "option 'signal'");
    } else if (!lua_isnoneornil(L, 2))
        signo = check_signal(L, 2, "argument 1 (signal)");
    bool tree = nsbx_option_flag(L, 2, "tree");
    int64_t timeout_ms = nsbx_option_ms(L, 2, "timeout", OP_TIMEOUT_S * 1000);
    nsbx_checkpoint(L, "kill");
    void **slot = nsbx_wait_slot(L);
    *slot = nsbx_exec_signal(p->exec, signo, tree, timeout_ms);
    return nsbx_wait(L, "kill", NSBX_WAIT, killed, 0);
}

/* ---- wait ---- */

static int waited(lua_State *L, int status, lua_KContext ctx)
{
    (void)status, (void)ctx;
    struct nsbx_process *p = still(L, 1, "wait");
    p->waiters--;
    struct nsbx_op *op = nsbx_waited(L, "wait", p->sandbox->id);
    nsbx_push_result(L, nsbx_op_result(op), false);
    nsbx_wait_over(L, -2);
    return 1;
}

/* Others have had their turn, a task that was made to read the output among them. If nobody reads it, it is dropped: kept, it
 * would stop the command. */
static int wait_now(lua_State *L, int status, lua_KContext timeout_ms)
{
    (void)status;
    struct nsbx_process *p = still(L, 1, "wait");
    nsbx_wait_over(L, -1);
    if (!p->reading)
        nsbx_process_discard(p);
    p->waiters++;
    lua_settop(L, 1);
    void **slot = nsbx_wait_slot(L);
    *slot = nsbx_exec_wait(p->exec, timeout_ms);
    return nsbx_wait(L, "wait", NSBX_WAIT, waited, 0);
}

static int process_wait(lua_State *L)
{
    static const struct nsbx_option options[] = {{.key = "timeout", .kind = NSBX_KIND_SECONDS, .max = OP_MAX_S},
                                                 {0}};
    self(L, "wait");
    nsbx_check_count(L, 2, "wait", "process:wait([{timeout=}])");
    nsbx_check_options(L, 2, "wait", options);
    int64_t timeout_ms = nsbx_option_ms(L, 2, "timeout", -1);
    nsbx_checkpoint(L, "wait");
    lua_settop(L, 1);
    void **slot = nsbx_wait_slot(L);
    struct nsbx_op *op = nsbx_op_new(nsbx_sched_loop(L), &(struct nsbx_op_spec){.name = "wait", .timeout_ms = -1});
    *slot = op;
    if (op)
        nsbx_op_finish(op, NULL);
    return nsbx_wait(L, "wait", NSBX_WAIT, wait_now, (lua_KContext)timeout_ms);
}

static const luaL_Reg methods[] = {
    {"write", process_write},
    {"close_stdin", process_close_stdin},
    {"output", nsbx_process_output},
    {"lines", nsbx_process_lines},
    {"wait", process_wait},
    {"kill", process_kill},
    {NULL, NULL},
};
const struct nsbx_type nsbx_process_type = {
    .name = "nsbx.process",
    .noun = "process",
    .drop = drop_process,
    .close = close_process,
    .methods = methods,
    .field = field,
    .describe = describe,
};
