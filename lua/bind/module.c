/* require "nsbx": the module's table. */
#include "base/alloc.h"
#include "bind_priv.h"
#include "embedded.h"
#include "error.h"
#include "object.h"
#include "sandbox.h"
#include "sched_priv.h"

#include <stdlib.h>
#include <string.h>

#ifndef NSBX_VERSION
#define NSBX_VERSION "0.1.0"
#endif

/* nsbx.type(v) → "sandbox", "process", …, "error", or nil */
static int type_of(lua_State *L)
{
    luaL_checkany(L, 1);
    const struct nsbx_box *box = nsbx_box_any(L, 1);
    if (box)
        lua_pushstring(L, box->type->noun);
    else if (nsbx_error_code(L, 1))
        lua_pushliteral(L, "error");
    else
        lua_pushnil(L);
    return 1;
}

#ifdef NSBX_TESTING
/* ---- for tests: not in a release, where a recipe could break its own program by them ---- */

enum { LIVE_MAX = 64, LIVE_TEXT = 64 };
struct live {
    char kinds[LIVE_MAX][LIVE_TEXT];
    size_t n;
};

static void note_live(void *ud, const char *kind)
{
    struct live *live = ud;
    if (live->n < LIVE_MAX)
        strncpy(live->kinds[live->n++], kind, LIVE_TEXT - 1);
}

/* nsbx._debug.live() → the list of what is open on the event loop. Turns the loop for what is closing. */
static int debug_live(lua_State *L)
{
    struct live live = {.n = 0};
    struct nsbx_loop *loop = nsbx_sched_get(L)->loop;
    if (loop) {
        nsbx_loop_turn(loop, NSBX_TURN_POLL);
        nsbx_loop_live(loop, note_live, &live);
    }
    lua_createtable(L, (int)live.n, 0);
    for (size_t i = 0; i < live.n; i++) {
        lua_pushstring(L, live.kinds[i]);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    return 1;
}

/* nsbx._debug.setenv(name, value) */
static int debug_setenv(lua_State *L)
{
    setenv(luaL_checkstring(L, 1), luaL_checkstring(L, 2), 1);
    return 0;
}

/* nsbx._debug.fail_alloc(n): the nth allocation from now, of C, fails once; 0: none. → how many there were since the last call */
static int debug_fail_alloc(lua_State *L)
{
    unsigned long count = nsbx_alloc_count();
    nsbx_alloc_fail_at((unsigned long)luaL_checkinteger(L, 1));
    lua_pushinteger(L, (lua_Integer)count);
    return 1;
}

static const luaL_Reg debug_functions[] = {
    {"live", debug_live}, {"setenv", debug_setenv}, {"fail_alloc", debug_fail_alloc}, {NULL, NULL}};
#endif

/* ---- what the Lua parts need ---- */

static int misused(lua_State *L)
{
    return nsbx_misused(L, luaL_checkstring(L, 1), "%s", luaL_checkstring(L, 2));
}

static int a_value(lua_State *L)
{
    lua_pushstring(L, nsbx_a_value(L, 1));
    return 1;
}

/* run_streamed_by(function(process, on_output, combine) → result): how an exec with on_output is run */
static int run_streamed_by(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TFUNCTION);
    lua_settop(L, 1);
    nsbx_exec_set_streamed(L);
    return 0;
}

static const luaL_Reg core_functions[] = {
    {"misused", misused}, {"a_value", a_value}, {"run_streamed_by", run_streamed_by}, {NULL, NULL}};

/* Runs an embedded module with (module, core): at 1 and 2. */
static void run_embedded(lua_State *L, const struct nsbx_embedded *e)
{
    lua_pushfstring(L, "=%s", e->name);
    if (luaL_loadbufferx(L, e->text, e->len, lua_tostring(L, -1), "t") != LUA_OK)
        lua_error(L);
    lua_pushvalue(L, 1);
    lua_pushvalue(L, 2);
    lua_call(L, 2, 0);
    lua_settop(L, 2);
}

int luaopen_nsbx(lua_State *L)
{
    static const luaL_Reg functions[] = {{"type", type_of}, {"is", nsbx_lua_is}, {NULL, NULL}};
    lua_settop(L, 0);
    nsbx_sched_open(L);
    lua_newtable(L);
    luaL_setfuncs(L, functions, 0);
    luaL_setfuncs(L, nsbx_task_functions, 0);
    luaL_setfuncs(L, nsbx_backend_functions, 0);
    lua_pushliteral(L, NSBX_VERSION);
    lua_setfield(L, 1, "version");
#ifdef NSBX_TESTING
    lua_newtable(L);
    luaL_setfuncs(L, debug_functions, 0);
    lua_setfield(L, 1, "_debug");
#endif
    lua_newtable(L);
    luaL_setfuncs(L, core_functions, 0);
    luaL_setfuncs(L, nsbx_task_core_functions, 0);
    for (const struct nsbx_embedded *e = nsbx_embedded; e->name; e++)
        run_embedded(L, e);
    lua_settop(L, 1);
    return 1;
}
