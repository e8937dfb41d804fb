#include "sandbox.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/util.h"
#include "error.h"
#include "options.h"

#include <string.h>

#define DESTROY_TIMEOUT_S 60
#define DESTROY_MAX_S 3600

/* ---- the object ---- */

static void drop_sandbox(lua_State *L, void *ptr)
{
    (void)L;
    struct nsbx_sandbox *sb = ptr;
    while (nsbx_list_shift(&sb->processes)) {
    }
    if (sb->local)
        nsbx_local_free(sb->local);
    else
        nsbx_guest_free(sb->guest);
    nsbx_free(sb->id);
    nsbx_free(sb->root_dir);
    nsbx_free(sb->cwd);
    nsbx_free(sb->workspace);
    nsbx_free(sb);
}

static const char *status(const struct nsbx_sandbox *sb)
{
    if (sb->destroyed || (sb->local && !nsbx_local_alive(sb->local)))
        return "destroyed";
    nsbx_list_each (node, &sb->processes) {
        if (!nsbx_exec_finished(nsbx_container_of(node, struct nsbx_process, node)->exec))
            return "busy";
    }
    return "ready";
}

static int push_features(lua_State *L, const struct nsbx_sandbox *sb)
{
    const struct nsbx_health *health = sb->guest ? nsbx_guest_known(sb->guest) : NULL;
    lua_createtable(L, 0, NSBX_FEATURE_COUNT);
    for (int f = 0; health && f < NSBX_FEATURE_COUNT; f++)
        if (health->features[f]) {
            lua_pushboolean(L, 1);
            lua_setfield(L, -2, nsbx_feature_name((enum nsbx_feature)f));
        }
    return 1;
}

/* (sandbox, key) → the field, or nil */
static int field(lua_State *L)
{
    struct nsbx_sandbox *sb = ((struct nsbx_box *)lua_touserdata(L, 1))->ptr;
    const char *key = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "";
    const char *text = NULL;
    if (strcmp(key, "features") == 0)
        return push_features(L, sb);
    if (strcmp(key, "id") == 0)
        text = sb->id;
    else if (strcmp(key, "status") == 0)
        text = status(sb);
    else if (strcmp(key, "root_dir") == 0)
        text = sb->root_dir;
    else if (strcmp(key, "environment") == 0)
        text = sb->environment;
    else if (strcmp(key, "carrier") == 0)
        text = "single";
    else if (strcmp(key, "workspace") == 0)
        text = sb->local ? nsbx_local_workspace(sb->local) : sb->workspace;
    lua_pushstring(L, text); /* NULL: nil */
    return 1;
}

static void describe(lua_State *L, void *ptr)
{
    const struct nsbx_sandbox *sb = ptr;
    lua_pushfstring(L, "%s, %s", sb->id, status(sb));
}

char *nsbx_sandbox_copy(lua_State *L, const char *text)
{
    char *out = text ? nsbx_strdup(text) : NULL;
    if (text && !out)
        nsbx_raise_nomem(L, NULL, "a sandbox");
    return out;
}

struct nsbx_sandbox *nsbx_sandbox_push(lua_State *L, const char *id, const char *root_dir, const char *cwd)
{
    struct nsbx_box *box = nsbx_box_push(L, &nsbx_sandbox_type, 2);
    struct nsbx_sandbox *sb = nsbx_calloc(1, sizeof *sb);
    if (!sb)
        nsbx_raise_nomem(L, NULL, "a sandbox");
    nsbx_list_init(&sb->processes);
    box->ptr = sb;
    sb->id = nsbx_sandbox_copy(L, id);
    sb->root_dir = nsbx_sandbox_copy(L, root_dir);
    sb->cwd = nsbx_sandbox_copy(L, cwd);
    sb->environment = "agent";
    return sb;
}

struct nsbx_sandbox *nsbx_sandbox_self(lua_State *L, const char *op)
{
    struct nsbx_sandbox *sb = nsbx_box_open(L, &nsbx_sandbox_type, op);
    if (sb->destroyed)
        nsbx_raise_destroyed(L, op, sb->id, "the sandbox was destroyed");
    return sb;
}

/* ---- destroy ---- */

/* The processes of an agent that goes on without us end at the same time; then each is waited for. */
static bool end_processes(struct nsbx_sandbox *sb)
{
    nsbx_list_each (node, &sb->processes) {
        struct nsbx_process *p = nsbx_container_of(node, struct nsbx_process, node);
        struct nsbx_op *op = nsbx_exec_finished(p->exec) ? NULL : nsbx_exec_cancel(p->exec);
        if (!op && !nsbx_exec_finished(p->exec))
            return false;
        nsbx_op_unref(op);
    }
    return true;
}

/* The next process whose end is not known yet; NULL: none. */
static struct nsbx_process *next_process(struct nsbx_sandbox *sb)
{
    nsbx_list_each (node, &sb->processes) {
        struct nsbx_process *p = nsbx_container_of(node, struct nsbx_process, node);
        if (!p->ending && !nsbx_exec_finished(p->exec))
            return p;
    }
    return NULL;
}

static void let_go(struct nsbx_sandbox *sb)
{
    struct nsbx_err gone = {0};
    nsbx_err_set(&gone, NSBX_E_DESTROYED, "the sandbox was destroyed");
    if (sb->guest)
        nsbx_guest_gone(sb->guest, &gone);
    if (sb->local)
        nsbx_local_free(sb->local);
    else
        nsbx_guest_free(sb->guest);
    sb->local = NULL;
    sb->guest = NULL;
}

static int local_destroyed(lua_State *L, int status, lua_KContext ctx)
{
    (void)status, (void)ctx;
    struct nsbx_sandbox *sb = ((struct nsbx_box *)lua_touserdata(L, 1))->ptr;
    nsbx_waited(L, "destroy", sb->id); /* it stays with us when this fails: one can try again */
    nsbx_wait_over(L, -1);
    let_go(sb);
    return 0;
}

/* Notes how the wait on the top went. When its time was over nothing is let go: the cancels go on, and one can wait again. */
static void process_ended(lua_State *L, struct nsbx_sandbox *sb)
{
    struct nsbx_op *op = nsbx_wait_op(L);
    const struct nsbx_err *failure = nsbx_op_err(op);
    if (nsbx_op_state(op) != NSBX_OP_DONE && failure && failure->code == NSBX_E_TIMEOUT) {
        struct nsbx_err err = {0};
        nsbx_err_set(&err, NSBX_E_TIMEOUT,
                     "the guest has not confirmed the end of every command within the timeout");
        nsbx_list_each (node, &sb->processes)
            nsbx_container_of(node, struct nsbx_process, node)->ending = false;
        nsbx_wait_over(L, -1);
        nsbx_raise(L, &err, "destroy", sb->id);
    }
    if (failure && !sb->end.code)
        sb->end = *failure;
    nsbx_wait_over(L, -1);
    lua_settop(L, 1);
}

static int destroy_agents(lua_State *L, struct nsbx_sandbox *sb, uint64_t deadline);

static int process_ended_k(lua_State *L, int status, lua_KContext deadline)
{
    (void)status;
    struct nsbx_sandbox *sb = ((struct nsbx_box *)lua_touserdata(L, 1))->ptr;
    process_ended(L, sb);
    return destroy_agents(L, sb, (uint64_t)deadline);
}

/* Over an agent: every process ends, by id, before the handle lets go. */
static int destroy_agents(lua_State *L, struct nsbx_sandbox *sb, uint64_t deadline)
{
    for (struct nsbx_process *p; (p = next_process(sb));) {
        uint64_t now = nsbx_now_ms();
        p->ending = true;
        void **slot = nsbx_wait_slot(L);
        *slot = nsbx_exec_cancel_within(p->exec, now < deadline ? (int64_t)(deadline - now) : 0);
        if (!nsbx_wait_here(L, "destroy", NSBX_WAIT_SHIELDED))
            return nsbx_wait(L, "destroy", NSBX_WAIT_SHIELDED, process_ended_k, (lua_KContext)deadline);
        process_ended(L, sb);
    }
    let_go(sb);
    if (!sb->end.code)
        return 0;
    struct nsbx_err err = sb->end;
    sb->end.code = 0;
    return nsbx_raise(L, &err, "destroy", sb->id);
}

static int destroy_within(lua_State *L, struct nsbx_sandbox *sb, int64_t timeout_ms)
{
    lua_settop(L, 1);
    if (!sb->guest)
        return 0;
    sb->destroyed = true;
    if (!sb->local) {
        if (!end_processes(sb))
            return nsbx_raise_nomem(L, "destroy", "the operation");
        return destroy_agents(L, sb, nsbx_now_ms() + (uint64_t)timeout_ms);
    }
    struct nsbx_err gone = {0};
    nsbx_err_set(&gone, NSBX_E_DESTROYED, "the sandbox was destroyed");
    nsbx_guest_gone(sb->guest, &gone);
    void **slot = nsbx_wait_slot(L);
    *slot = nsbx_local_destroy(sb->local, timeout_ms);
    return nsbx_wait(L, "destroy", NSBX_WAIT_SHIELDED, local_destroyed, 0);
}

static int destroy(lua_State *L)
{
    static const struct nsbx_option options[] = {
        {.key = "timeout", .kind = NSBX_KIND_SECONDS, .max = DESTROY_MAX_S}, {0}};
    struct nsbx_sandbox *sb = nsbx_box_open(L, &nsbx_sandbox_type, "destroy");
    nsbx_check_count(L, 2, "destroy", "sandbox:destroy([{timeout=}])");
    nsbx_check_options(L, 2, "destroy", options);
    return destroy_within(L, sb, nsbx_option_ms(L, 2, "timeout", DESTROY_TIMEOUT_S * 1000));
}

static int closed(lua_State *L, int status, lua_KContext ctx)
{
    (void)ctx;
    if (status == LUA_OK || status == LUA_YIELD)
        return 0;
    nsbx_log(NSBX_LOG_WARN, "%s (while another error was on its way)", luaL_tolstring(L, -1, NULL));
    return 0;
}

/* close and __close: destroy. While an error is on its way, a failure of ours must not take its place. */
static int close_sandbox(lua_State *L)
{
    struct nsbx_box *box = nsbx_box_self(L, &nsbx_sandbox_type, "close");
    if (!box->ptr)
        return 0;
    if (lua_isnoneornil(L, 2))
        return destroy_within(L, box->ptr, DESTROY_TIMEOUT_S * 1000);
    lua_settop(L, 1);
    lua_pushcfunction(L, destroy);
    lua_insert(L, 1);
    return closed(L, lua_pcallk(L, 1, 0, 0, 0, closed), 0);
}

static const luaL_Reg methods[] = {
    {"exec", nsbx_sandbox_exec},
    {"spawn", nsbx_sandbox_spawn},
    {"write_file", nsbx_sandbox_write_file},
    {"read_file", nsbx_sandbox_read_file},
    {"read_file_stream", nsbx_sandbox_read_file_stream},
    {"list_files", nsbx_sandbox_list_files},
    {"walk_files", nsbx_sandbox_walk_files},
    {"destroy", destroy},
    {NULL, NULL},
};
const struct nsbx_type nsbx_sandbox_type = {
    .name = "nsbx.sandbox",
    .noun = "sandbox",
    .drop = drop_sandbox,
    .close = close_sandbox,
    .methods = methods,
    .field = field,
    .describe = describe,
};
