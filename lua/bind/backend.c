/* Where sandboxes come from: nsbx.local_backend and its create, and nsbx.connect to an agent that runs somewhere already. */
#include "base/alloc.h"
#include "base/limits.h"
#include "bind_priv.h"
#include "error.h"
#include "options.h"
#include "sandbox.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define CREATE_TIMEOUT_S 60
#define CREATE_MAX_S 3600
#define CONNECT_TIMEOUT_S 10

static const char *const carriers[] = {"auto", "single", NULL};

/* ---- the local backend's options ---- */

/* limits: each bounds one process (or, of processes, one user), for that is what an rlimit does. */
static const struct {
    const char *key;
    int resource;
} limit_rows[] = {
    {"memory_per_process", RLIMIT_AS}, {"processes", RLIMIT_NPROC},   {"file_size", RLIMIT_FSIZE},
    {"cpu_seconds", RLIMIT_CPU},       {"open_files", RLIMIT_NOFILE},
};

static void read_limits(lua_State *L, struct nsbx_local_options *o)
{
#define LIMIT(name)                                                                                                \
    {                                                                                                              \
        .key = name, .kind = NSBX_KIND_COUNT, .min = 1, .max = NSBX_COUNT_MAX                                      \
    }
    static const struct nsbx_option options[] = {LIMIT("memory_per_process"), LIMIT("processes"),
                                                 LIMIT("file_size"),          LIMIT("cpu_seconds"),
                                                 LIMIT("open_files"),         {0}};
#undef LIMIT
    if (nsbx_option_push(L, 1, "limits") == LUA_TNIL)
        return;
    int limits = lua_gettop(L);
    if (nsbx_option_push(L, limits, "memory") != LUA_TNIL)
        nsbx_misused(L, "local_backend",
                     "there is no limit 'memory': the local backend cannot bound the memory of a whole sandbox; "
                     "'memory_per_process' bounds each process of it");
    nsbx_check_options(L, limits, "local_backend: limits", options);
    for (size_t i = 0; i < sizeof limit_rows / sizeof limit_rows[0]; i++) {
        int64_t n = nsbx_option_count(L, limits, limit_rows[i].key, 0);
        if (n == 0)
            continue;
        o->rlimits[o->n_rlimits++] = (struct nsbx_rlimit){.resource = limit_rows[i].resource,
                                                          .value = {.rlim_cur = (rlim_t)n, .rlim_max = (rlim_t)n}};
    }
}

static const char *absolute(lua_State *L, int idx, const char *key)
{
    size_t len = 0;
    const char *path = lua_type(L, idx) == LUA_TSTRING ? lua_tolstring(L, idx, &len) : NULL;
    if (!path || path[0] != '/' || strlen(path) != len)
        nsbx_misused(L, "local_backend",
                     "option '%s' must hold absolute paths: {\"/data\", [\"/inside\"] = \"/on/the/host\"}", key);
    return path;
}

/* Notes in the table at `keep` that the string at idx is used at *where. */
static void keep_string(lua_State *L, int keep, int idx, const void *where)
{
    lua_pushvalue(L, idx);
    lua_rawsetp(L, keep, where);
}

/* {"/data", ["/inside"] = "/on/the/host"}; the table at `keep` holds the array and its strings. */
static const struct nsbx_local_bind *read_binds(lua_State *L, int keep, const char *key, size_t *n)
{
    if (nsbx_option_push(L, 1, key) == LUA_TNIL)
        return NULL;
    int from = lua_gettop(L);
    size_t rows = 0;
    for (lua_pushnil(L); lua_next(L, from); lua_pop(L, 1))
        rows++;
    struct nsbx_local_bind *binds = lua_newuserdatauv(L, rows * sizeof *binds, 0);
    lua_rawsetp(L, keep, binds);
    for (lua_pushnil(L); lua_next(L, from); lua_pop(L, 1)) {
        struct nsbx_local_bind *b = &binds[(*n)++];
        b->source = absolute(L, -1, key);
        keep_string(L, keep, -1, &b->source);
        b->target = lua_isinteger(L, -2) ? b->source : absolute(L, -2, key);
        if (!lua_isinteger(L, -2))
            keep_string(L, keep, -2, &b->target);
    }
    return binds;
}

static const char *read_text(lua_State *L, int keep, const char *key)
{
    nsbx_option_push(L, 1, key);
    const char *text = lua_tostring(L, -1);
    lua_setfield(L, keep, key);
    return text;
}

/* ---- the backend object: its first user value keeps the strings of its options ---- */

struct backend {
    struct nsbx_local_options options;
};

static void drop_backend(lua_State *L, void *ptr)
{
    (void)L;
    nsbx_free(ptr);
}

static const struct nsbx_type backend_type;

static int create_done(lua_State *L, int status, lua_KContext ctx)
{
    (void)status, (void)ctx;
    struct nsbx_op *op = nsbx_waited(L, "create", NULL);
    struct nsbx_local *local = nsbx_op_result(op);
    nsbx_option_push(L, 2, "working_directory");
    struct nsbx_sandbox *sb =
        nsbx_sandbox_push(L, nsbx_local_id(local), nsbx_local_root_dir(local), lua_tostring(L, -1));
    sb->local = nsbx_op_take_result(op);
    sb->guest = nsbx_local_guest(sb->local);
    sb->environment = "linux-namespace";
    const struct backend *b = ((struct nsbx_box *)lua_touserdata(L, 1))->ptr;
    if (b && (b->options.keep || b->options.workspace))
        sb->workspace = nsbx_sandbox_copy(L, nsbx_local_workspace(sb->local));
    nsbx_wait_over(L, -3);
    return 1;
}

static int create(lua_State *L)
{
    static const struct nsbx_option options[] = {{.key = "timeout", .kind = NSBX_KIND_SECONDS, .max = CREATE_MAX_S},
                                                 {.key = "working_directory", .kind = NSBX_KIND_TEXT},
                                                 {0}};
    struct backend *b = nsbx_box_open(L, &backend_type, "create");
    nsbx_check_count(L, 2, "create", "backend:create([options])");
    nsbx_check_options(L, 2, "create", options);
    int64_t timeout_ms = nsbx_option_ms(L, 2, "timeout", CREATE_TIMEOUT_S * 1000);
    nsbx_checkpoint(L, "create");
    lua_settop(L, 2);
    struct nsbx_loop *loop = nsbx_sched_loop(L);
    void **slot = nsbx_wait_slot(L);
    *slot = nsbx_local_create(loop, &b->options, timeout_ms);
    return nsbx_wait(L, "create", NSBX_WAIT, create_done, 0);
}

static void describe(lua_State *L, void *ptr)
{
    (void)ptr;
    lua_pushliteral(L, "local");
}

static const luaL_Reg methods[] = {{"create", create}, {NULL, NULL}};
static const struct nsbx_type backend_type = {
    .name = "nsbx.backend", .noun = "backend", .drop = drop_backend, .methods = methods, .describe = describe};

static int local_backend(lua_State *L)
{
    static const struct nsbx_option options[] = {
        {.key = "workspace", .kind = NSBX_KIND_TEXT},
        {.key = "keep", .kind = NSBX_KIND_BOOLEAN},
        {.key = "read_only", .kind = NSBX_KIND_TABLE},
        {.key = "read_write", .kind = NSBX_KIND_TABLE},
        {.key = "network", .kind = NSBX_KIND_BOOLEAN},
        {.key = "root_fs", .kind = NSBX_KIND_TEXT},
        {.key = "uid", .kind = NSBX_KIND_COUNT, .min = 1, .max = 4294967294.0},
        {.key = "limits", .kind = NSBX_KIND_TABLE},
        {.key = "agent", .kind = NSBX_KIND_TEXT},
        {.key = "tmp_size", .kind = NSBX_KIND_COUNT, .min = 1, .max = NSBX_COUNT_MAX},
        {.key = "carrier", .kind = NSBX_KIND_CHOICE, .choices = carriers},
        {0}};
    nsbx_check_count(L, 1, "local_backend", "nsbx.local_backend([options])");
    nsbx_check_options(L, 1, "local_backend", options);
    struct nsbx_local_options o = {.uid = -1};
    lua_settop(L, 1);
    lua_newtable(L); /* 2: what o points to */
    read_limits(L, &o);
    o.read_only = read_binds(L, 2, "read_only", &o.n_read_only);
    o.read_write = read_binds(L, 2, "read_write", &o.n_read_write);
    o.workspace = read_text(L, 2, "workspace");
    o.root_fs = read_text(L, 2, "root_fs");
    o.agent = read_text(L, 2, "agent");
    o.keep = nsbx_option_flag(L, 1, "keep");
    o.network = nsbx_option_flag(L, 1, "network");
    o.uid = (long)nsbx_option_count(L, 1, "uid", -1);
    o.tmp_size = (uint64_t)nsbx_option_count(L, 1, "tmp_size", 0);
    struct nsbx_box *box = nsbx_box_push(L, &backend_type, 1);
    lua_pushvalue(L, 2);
    lua_setiuservalue(L, -2, 1);
    struct backend *b = nsbx_calloc(1, sizeof *b);
    if (!b)
        return nsbx_raise_nomem(L, "local_backend", "the backend");
    b->options = o;
    box->ptr = b;
    return 1;
}

/* ---- connect ---- */

static int connected(lua_State *L, int status, lua_KContext ctx)
{
    (void)status, (void)ctx;
    struct nsbx_box *box = lua_touserdata(L, 2);
    if (nsbx_op_state(nsbx_wait_op(L)) != NSBX_OP_DONE) {
        lua_pushstring(L, ((struct nsbx_sandbox *)box->ptr)->id);
        lua_insert(L, -2);
        nsbx_box_drop(L, box);
        nsbx_waited(L, "connect", lua_tostring(L, -2));
    }
    nsbx_wait_over(L, -1);
    lua_settop(L, 2);
    return 1;
}

static int connect_agent(lua_State *L)
{
    static const struct nsbx_option options[] = {{.key = "unix_path", .kind = NSBX_KIND_TEXT},
                                                 {.key = "host", .kind = NSBX_KIND_TEXT},
                                                 {.key = "port", .kind = NSBX_KIND_COUNT, .min = 1, .max = 65535},
                                                 {.key = "token", .kind = NSBX_KIND_TEXT},
                                                 {.key = "root_dir", .kind = NSBX_KIND_TEXT},
                                                 {.key = "timeout", .kind = NSBX_KIND_SECONDS, .max = CREATE_MAX_S},
                                                 {.key = "carrier", .kind = NSBX_KIND_CHOICE, .choices = carriers},
                                                 {0}};
    nsbx_check_count(L, 1, "connect", "nsbx.connect{unix_path=} or nsbx.connect{host=, port=, token=}");
    nsbx_check_options(L, 1, "connect", options);
    struct nsbx_guest_options o = {.unix_path = nsbx_option_text(L, 1, "unix_path", NULL),
                                   .host = nsbx_option_text(L, 1, "host", NULL),
                                   .port = (uint16_t)nsbx_option_count(L, 1, "port", 0),
                                   .token = nsbx_option_text(L, 1, "token", NULL)};
    if ((o.unix_path != NULL) == (o.host != NULL) || (o.host != NULL) != (o.port != 0))
        return nsbx_misused(L, "connect", "name the agent by 'unix_path', or by 'host' and 'port'");
    o.arm = o.unix_path ? NSBX_ARM_UNIX : NSBX_ARM_TCP;
    /* An agent on this machine is there or it is not; one elsewhere may be starting. Either way the dial gives up before
     * the whole does, so that the error says why there is no connection. */
    int64_t timeout_ms = nsbx_option_ms(L, 1, "timeout", CONNECT_TIMEOUT_S * 1000);
    o.dial_budget_ms = o.unix_path ? -1 : timeout_ms > 2000 ? timeout_ms - 1000 : timeout_ms / 2 + 1;
    if (o.dial_budget_ms > NSBX_DIAL_BUDGET_MS)
        o.dial_budget_ms = NSBX_DIAL_BUDGET_MS;
    nsbx_checkpoint(L, "connect");
    struct nsbx_loop *loop = nsbx_sched_loop(L);
    const char *id = o.unix_path ? lua_pushfstring(L, "unix:%s", o.unix_path)
                                 : lua_pushfstring(L, "tcp:%s:%d", o.host, (int)o.port);
    struct nsbx_sandbox *sb = nsbx_sandbox_push(L, id, nsbx_option_text(L, 1, "root_dir", NULL), NULL);
    lua_replace(L, 2);
    struct nsbx_err err = {0};
    if (nsbx_guest_new(loop, &o, &sb->guest, &err) < 0)
        return nsbx_raise(L, &err, "connect", NULL);
    void **slot = nsbx_wait_slot(L);
    *slot = nsbx_guest_health(sb->guest, timeout_ms);
    return nsbx_wait(L, "connect", NSBX_WAIT, connected, 0);
}

const luaL_Reg nsbx_backend_functions[] = {
    {"local_backend", local_backend}, {"connect", connect_agent}, {NULL, NULL}};
