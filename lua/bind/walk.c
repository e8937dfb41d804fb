/* The sandbox's directories: walk_files iterates, list_files gives the whole list. */
#include "transport/walk.h"

#include "base/limits.h"
#include "base/util.h"
#include "error.h"
#include "options.h"
#include "sandbox.h"

#define LIST_TIMEOUT_S 60
#define LIST_MAX_S 86400

static void drop_walk(lua_State *L, void *ptr)
{
    (void)L;
    nsbx_walk_close(ptr);
}

static const struct nsbx_type walk_type = {.name = "nsbx.walk", .noun = "walk", .drop = drop_walk};

/* Pushes the object of a walk; its user values are the sandbox at index 1 and the timeout in milliseconds: walk_files
 * has it for each wait, list_files for the whole. */
static void push_walk(lua_State *L, struct nsbx_sandbox *sb, const struct nsbx_walk_request *request,
                      int64_t timeout_ms, const char *op)
{
    struct nsbx_err err = {0};
    struct nsbx_walk *w;
    struct nsbx_box *box = nsbx_box_push(L, &walk_type, 2);
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, -2, 1);
    lua_pushinteger(L, timeout_ms);
    lua_setiuservalue(L, -2, 2);
    if (nsbx_walk_open(sb->guest, request, &w, &err) < 0)
        nsbx_raise(L, &err, op, sb->id);
    box->ptr = w;
}

static void push_entry(lua_State *L, const struct nsbx_entry *e)
{
    lua_createtable(L, 0, 5);
    lua_pushstring(L, e->path);
    lua_setfield(L, -2, "path");
    lua_pushinteger(L, e->size);
    lua_setfield(L, -2, "size");
    lua_pushstring(L, nsbx_entry_type_name(e->type));
    lua_setfield(L, -2, "type");
    lua_pushinteger(L, e->mode);
    lua_setfield(L, -2, "mode");
    lua_pushnumber(L, e->mtime);
    lua_setfield(L, -2, "mtime");
}

/* Raises when the wait for entries, whose box is on the top, failed; the walk in the box at `walk` is closed then. */
static void check_came(lua_State *L, int walk, const char *op)
{
    struct nsbx_box *box = lua_touserdata(L, walk);
    if (nsbx_op_state(nsbx_wait_op(L)) != NSBX_OP_DONE)
        nsbx_box_drop(L, box);
    lua_getiuservalue(L, walk, 1);
    lua_insert(L, -2);
    struct nsbx_sandbox *sb = ((struct nsbx_box *)lua_touserdata(L, -2))->ptr;
    nsbx_waited(L, op, sb->id);
    nsbx_wait_over(L, -1);
    lua_pop(L, 2);
    if (!box->ptr)
        nsbx_raise_destroyed(L, op, NULL, "the walk was closed meanwhile");
}

/* Of the walk in the box at idx. */
static int64_t timeout_of(lua_State *L, int idx)
{
    lua_getiuservalue(L, idx, 2);
    int64_t timeout_ms = lua_tointeger(L, -1);
    lua_pop(L, 1);
    return timeout_ms;
}

/* ---- walk_files ---- */

static int entries_came(lua_State *L, int status, lua_KContext ctx);

static int push_next(lua_State *L, struct nsbx_box *box)
{
    struct nsbx_entry entry;
    while (!nsbx_walk_take(box->ptr, &entry)) {
        if (nsbx_walk_ended(box->ptr)) {
            nsbx_box_drop(L, box);
            lua_pushnil(L);
            return 1;
        }
        lua_settop(L, 1);
        int64_t timeout_ms = timeout_of(L, 1);
        void **slot = nsbx_wait_slot(L);
        *slot = nsbx_walk_next(box->ptr, timeout_ms);
        if (!nsbx_wait_here(L, "walk_files", NSBX_WAIT))
            return nsbx_wait(L, "walk_files", NSBX_WAIT, entries_came, 0);
        check_came(L, 1, "walk_files");
    }
    push_entry(L, &entry);
    return 1;
}

static int entries_came(lua_State *L, int status, lua_KContext ctx)
{
    (void)status, (void)ctx;
    check_came(L, 1, "walk_files");
    return push_next(L, lua_touserdata(L, 1));
}

static int next_entry(lua_State *L)
{
    nsbx_box_open(L, &walk_type, "walk_files");
    nsbx_checkpoint(L, "walk_files");
    return push_next(L, lua_touserdata(L, 1));
}

int nsbx_sandbox_walk_files(lua_State *L)
{
    static const char *const orders[] = {"none", "sorted", NULL};
    static const struct nsbx_option options[] = {
        {.key = "pattern", .kind = NSBX_KIND_TEXT},
        {.key = "include_hidden", .kind = NSBX_KIND_BOOLEAN},
        {.key = "max_depth", .kind = NSBX_KIND_COUNT, .min = 1, .max = NSBX_COUNT_MAX},
        {.key = "max_entries", .kind = NSBX_KIND_COUNT, .min = 1, .max = NSBX_COUNT_MAX},
        {.key = "max_visited_entries", .kind = NSBX_KIND_COUNT, .min = 1, .max = NSBX_COUNT_MAX},
        {.key = "order", .kind = NSBX_KIND_CHOICE, .choices = orders},
        {.key = "timeout", .kind = NSBX_KIND_SECONDS, .max = LIST_MAX_S},
        {0}};
    struct nsbx_sandbox *sb = nsbx_sandbox_self(L, "walk_files");
    nsbx_check_count(L, 3, "walk_files", "sandbox:walk_files(path[, options])");
    struct nsbx_walk_request request = {.path = nsbx_check_text(L, 2, "walk_files", "path")};
    nsbx_check_options(L, 3, "walk_files", options);
    request.pattern = nsbx_option_text(L, 3, "pattern", NULL);
    request.include_hidden = nsbx_option_flag(L, 3, "include_hidden");
    request.sorted = nsbx_option_choice(L, 3, "order", orders, 0) == 1;
    request.max_depth = nsbx_option_count(L, 3, "max_depth", -1);
    request.max_entries = nsbx_option_count(L, 3, "max_entries", -1);
    request.max_visited = nsbx_option_count(L, 3, "max_visited_entries", -1);
    nsbx_checkpoint(L, "walk_files");
    lua_pushcfunction(L, next_entry);
    /* The timeout is for each wait; without one the transport's own limit of silence holds. */
    push_walk(L, sb, &request, nsbx_option_ms(L, 3, "timeout", -1), "walk_files");
    lua_pushnil(L);
    lua_pushvalue(L, -2);
    return 4;
}

/* ---- list_files ---- */

/* Stack: the sandbox at 1, the walk at 2, the list at 3. */
static int list_more(lua_State *L, uint64_t deadline);

static int list_came(lua_State *L, int status, lua_KContext deadline)
{
    (void)status;
    check_came(L, 2, "list_files");
    return list_more(L, (uint64_t)deadline);
}

/* Adds what can be had without waiting; false: that was all. */
static bool take_all(lua_State *L, struct nsbx_walk *w)
{
    struct nsbx_entry entry;
    for (lua_Integer n = (lua_Integer)lua_rawlen(L, 3); nsbx_walk_take(w, &entry);) {
        push_entry(L, &entry);
        lua_rawseti(L, 3, ++n);
    }
    return !nsbx_walk_ended(w);
}

static int list_too_late(lua_State *L)
{
    struct nsbx_err err = {0};
    struct nsbx_sandbox *sb = ((struct nsbx_box *)lua_touserdata(L, 1))->ptr;
    nsbx_box_drop(L, lua_touserdata(L, 2));
    nsbx_err_set(&err, NSBX_E_TIMEOUT, "list_files timed out after %lld ms", (long long)timeout_of(L, 2));
    return nsbx_raise(L, &err, "list_files", sb->id);
}

static int list_more(lua_State *L, uint64_t deadline)
{
    struct nsbx_box *box = lua_touserdata(L, 2);
    while (take_all(L, box->ptr)) {
        uint64_t now = nsbx_now_ms();
        if (now >= deadline)
            return list_too_late(L);
        void **slot = nsbx_wait_slot(L);
        *slot = nsbx_walk_next(box->ptr, (int64_t)(deadline - now));
        if (!nsbx_wait_here(L, "list_files", NSBX_WAIT))
            return nsbx_wait(L, "list_files", NSBX_WAIT, list_came, (lua_KContext)deadline);
        check_came(L, 2, "list_files");
    }
    nsbx_box_drop(L, box);
    return 1;
}

int nsbx_sandbox_list_files(lua_State *L)
{
    static const struct nsbx_option options[] = {{.key = "timeout", .kind = NSBX_KIND_SECONDS, .max = LIST_MAX_S},
                                                 {0}};
    struct nsbx_sandbox *sb = nsbx_sandbox_self(L, "list_files");
    nsbx_check_count(L, 3, "list_files", "sandbox:list_files(path[, {timeout=}])");
    struct nsbx_walk_request request = {.path = nsbx_check_text(L, 2, "list_files", "path"),
                                        .max_depth = -1,
                                        .max_entries = -1,
                                        .max_visited = -1,
                                        .list = true};
    nsbx_check_options(L, 3, "list_files", options);
    int64_t timeout_ms = nsbx_option_ms(L, 3, "timeout", LIST_TIMEOUT_S * 1000);
    nsbx_checkpoint(L, "list_files");
    push_walk(L, sb, &request, timeout_ms, "list_files");
    lua_replace(L, 2);
    lua_settop(L, 2);
    lua_newtable(L);
    return list_more(L, nsbx_now_ms() + (uint64_t)timeout_ms);
}
