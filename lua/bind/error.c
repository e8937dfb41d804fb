#include "error.h"

#include "nearest.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char error_type[] = "nsbx.Error";
/* A command of `check = true` that said no: the one name that is no code's. */
static const char command_failed[] = "CommandFailedError";

enum { NAME_MAX_LEN = 40 };

/* "not_found" → "NotFoundError" */
static void name_of_code(int code, char out[NAME_MAX_LEN])
{
    const char *text = nsbx_code_name(code);
    size_t n = 0;
    bool up = true;
    for (; *text && n < NAME_MAX_LEN - sizeof "Error"; text++) {
        if (*text != '_')
            out[n++] = (char)(up ? toupper((unsigned char)*text) : *text);
        up = *text == '_';
    }
    memcpy(out + n, "Error", sizeof "Error");
}

static bool is_retryable(int code)
{
    return code == NSBX_E_UNREACHABLE || code == NSBX_E_CAPACITY || code == NSBX_E_QUOTA;
}

/* ---- where ---- */

void nsbx_where(lua_State *L)
{
    lua_Debug ar;
    for (int level = 0; lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "Sl", &ar);
        if (ar.currentline > 0 && strncmp(ar.source, "=nsbx/", 6) != 0) {
            lua_pushfstring(L, "%s:%d: ", ar.short_src, ar.currentline);
            return;
        }
    }
    lua_pushliteral(L, "");
}

/* ---- the object ---- */

static int error_tostring(lua_State *L)
{
    luaL_Buffer b;
    lua_settop(L, 1);
    luaL_checktype(L, 1, LUA_TTABLE);
    /* All pieces first: a buffer's own slots must stay on top of the stack. */
    static const char *const fields[] = {"where", "op", "sandbox", "message"};
    for (int i = 0; i < 4; i++)
        lua_getfield(L, 1, fields[i]);
    luaL_buffinit(L, &b);
    if (lua_isstring(L, 2))
        luaL_addstring(&b, lua_tostring(L, 2));
    if (lua_isstring(L, 3)) {
        luaL_addstring(&b, lua_tostring(L, 3));
        if (lua_isstring(L, 4)) {
            luaL_addstring(&b, " on ");
            luaL_addstring(&b, lua_tostring(L, 4));
        }
        luaL_addstring(&b, ": ");
    }
    luaL_addstring(&b, lua_isstring(L, 5) ? lua_tostring(L, 5) : "an error without a message");
    luaL_pushresult(&b);
    return 1;
}

static void push_metatable(lua_State *L)
{
    if (luaL_newmetatable(L, error_type)) {
        lua_pushcfunction(L, error_tostring);
        lua_setfield(L, -2, "__tostring");
    }
}

static void set_text(lua_State *L, const char *key, const char *value)
{
    if (value && value[0]) {
        lua_pushstring(L, value);
        lua_setfield(L, -2, key);
    }
}

void nsbx_error_push(lua_State *L, const struct nsbx_err *err, const char *op, const char *sandbox)
{
    char name[NAME_MAX_LEN];
    name_of_code(err->code, name);
    luaL_checkstack(L, 6, "no room for an error");
    lua_createtable(L, 0, 12);
    push_metatable(L);
    lua_setmetatable(L, -2);
    set_text(L, "code", nsbx_code_name(err->code));
    set_text(L, "name", name);
    set_text(L, "message", err->message[0] ? err->message : nsbx_code_name(err->code));
    set_text(L, "op", op);
    set_text(L, "sandbox", sandbox);
    set_text(L, "reason", err->reason);
    set_text(L, "errno", err->sys ? nsbx_errno_name(err->sys) : NULL);
    lua_pushboolean(L, is_retryable(err->code));
    lua_setfield(L, -2, "retryable");
    nsbx_where(L);
    lua_setfield(L, -2, "where");
    luaL_traceback(L, L, NULL, 0);
    lua_setfield(L, -2, "traceback");
}

int nsbx_raise(lua_State *L, const struct nsbx_err *err, const char *op, const char *sandbox)
{
    nsbx_error_push(L, err, op, sandbox);
    lua_error(L);
    abort(); /* it does not return */
}

int nsbx_misused(lua_State *L, const char *op, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const char *text = lua_pushvfstring(L, fmt, args);
    va_end(args);
    struct nsbx_err err = {.code = NSBX_E_INVALID};
    snprintf(err.message, sizeof err.message, "%s", text);
    nsbx_raise(L, &err, op, NULL);
}

const char *nsbx_a_value(lua_State *L, int idx)
{
    static const char *const texts[] = {
        [LUA_TNIL] = "nil",
        [LUA_TBOOLEAN] = "a boolean",
        [LUA_TLIGHTUSERDATA] = "a userdata",
        [LUA_TNUMBER] = "a number",
        [LUA_TSTRING] = "a string",
        [LUA_TTABLE] = "a table",
        [LUA_TFUNCTION] = "a function",
        [LUA_TUSERDATA] = "a userdata",
        [LUA_TTHREAD] = "a coroutine",
    };
    int type = lua_type(L, idx);
    return type == LUA_TNONE ? "nothing" : texts[type];
}

int nsbx_raise_destroyed(lua_State *L, const char *op, const char *sandbox, const char *message)
{
    struct nsbx_err err = {0};
    nsbx_err_set(&err, NSBX_E_DESTROYED, "%s", message);
    nsbx_raise(L, &err, op, sandbox);
}

int nsbx_raise_nomem(lua_State *L, const char *op, const char *what)
{
    struct nsbx_err err = {0};
    nsbx_err_nomem(&err, what);
    nsbx_raise(L, &err, op, NULL);
}

int nsbx_error_code(lua_State *L, int idx)
{
    if (lua_type(L, idx) != LUA_TTABLE || !luaL_getmetafield(L, idx, "__name"))
        return 0;
    lua_pop(L, 1);
    idx = lua_absindex(L, idx);
    lua_getmetatable(L, idx);
    luaL_getmetatable(L, error_type);
    bool ours = lua_rawequal(L, -1, -2) != 0;
    lua_pop(L, 2);
    if (!ours)
        return 0;
    lua_pushliteral(L, "code");
    lua_rawget(L, idx);
    const char *text = lua_tostring(L, -1);
    int code = text ? nsbx_code_of_name(text) : 0;
    lua_pop(L, 1);
    return code;
}

/* ---- nsbx.is ---- */

/* A code or a name that no error can have is a slip that would hide itself for ever; so it is refused. */
static void check_known(lua_State *L, const char *what)
{
    if (nsbx_code_of_name(what) || strcmp(what, command_failed) == 0)
        return;
    char name[NAME_MAX_LEN];
    struct nsbx_nearest near;
    nsbx_nearest_init(&near, what);
    nsbx_nearest_offer(&near, command_failed);
    for (int code = 1; code < NSBX_CODE_COUNT; code++) {
        name_of_code(code, name);
        if (strcmp(name, what) == 0)
            return;
        nsbx_nearest_offer(&near, name);
        nsbx_nearest_offer(&near, nsbx_code_name(code));
    }
    if (near.best[0])
        nsbx_misused(L, "is", "there is no error '%s' (did you mean '%s'?)", what, near.best);
    nsbx_misused(L, "is", "there is no error '%s'", what);
}

int nsbx_lua_is(lua_State *L)
{
    const char *what = NULL;
    luaL_checkany(L, 1);
    if (!lua_isnoneornil(L, 2)) {
        if (lua_type(L, 2) != LUA_TSTRING)
            return nsbx_misused(L, "is", "argument 2 must be an error's code or name, not %s", nsbx_a_value(L, 2));
        what = lua_tostring(L, 2);
        check_known(L, what);
    }
    bool yes = nsbx_error_code(L, 1) != 0;
    if (yes && what) {
        lua_getfield(L, 1, "code");
        lua_getfield(L, 1, "name");
        yes = lua_rawequal(L, -1, 2) || lua_rawequal(L, -2, 2);
    }
    lua_pushboolean(L, yes);
    return 1;
}
