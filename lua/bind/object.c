#include "object.h"

#include "error.h"

#include <string.h>

/* A metatable holds this key with `true`: so a box of any of our types is told from other userdata. */
static const char box_mark;

void nsbx_box_drop(lua_State *L, struct nsbx_box *box)
{
    void *ptr = box->ptr;
    box->ptr = NULL;
    if (ptr)
        box->type->drop(L, ptr);
}

static int box_gc(lua_State *L)
{
    nsbx_box_drop(L, lua_touserdata(L, 1));
    return 0;
}

/* __close and close of a type that ends without waiting. */
static int box_close(lua_State *L)
{
    struct nsbx_box *box = nsbx_box_any(L, 1);
    if (!box)
        return nsbx_misused(L, "close", "argument 1 must be an object of nsbx, not %s", nsbx_a_value(L, 1));
    nsbx_box_drop(L, box);
    return 0;
}

static int box_tostring(lua_State *L)
{
    struct nsbx_box *box = nsbx_box_any(L, 1);
    if (!box)
        return nsbx_misused(L, "tostring", "argument 1 must be an object of nsbx, not %s", nsbx_a_value(L, 1));
    if (!box->ptr)
        lua_pushfstring(L, "%s (closed)", box->type->name);
    else if (!box->type->describe)
        lua_pushfstring(L, "%s (%p)", box->type->name, box->ptr);
    else {
        box->type->describe(L, box->ptr);
        lua_pushfstring(L, "%s (%s)", box->type->name, lua_tostring(L, -1));
    }
    return 1;
}

/* __index of a type with fields: upvalue 1 the methods, upvalue 2 the field function. */
static int box_index(lua_State *L)
{
    lua_settop(L, 2);
    lua_pushvalue(L, 2);
    if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNIL)
        return 1;
    lua_pop(L, 1);
    lua_pushvalue(L, lua_upvalueindex(2));
    lua_insert(L, 1);
    lua_call(L, 2, 1);
    return 1;
}

static void push_metatable(lua_State *L, const struct nsbx_type *type)
{
    if (!luaL_newmetatable(L, type->name))
        return;
    lua_CFunction close = type->close ? type->close : box_close;
    const luaL_Reg meta[] = {{"__gc", box_gc}, {"__close", close}, {"__tostring", box_tostring}, {NULL, NULL}};
    luaL_setfuncs(L, meta, 0);
    lua_pushboolean(L, 1);
    lua_rawsetp(L, -2, &box_mark);
    lua_newtable(L);
    if (type->methods)
        luaL_setfuncs(L, type->methods, 0);
    lua_pushcfunction(L, close);
    lua_setfield(L, -2, "close");
    if (type->field) {
        lua_pushcfunction(L, type->field);
        lua_pushcclosure(L, box_index, 2);
    }
    lua_setfield(L, -2, "__index");
}

struct nsbx_box *nsbx_box_push(lua_State *L, const struct nsbx_type *type, int user_values)
{
    struct nsbx_box *box = lua_newuserdatauv(L, sizeof *box, user_values);
    box->ptr = NULL;
    box->type = type;
    push_metatable(L, type);
    lua_setmetatable(L, -2);
    return box;
}

struct nsbx_box *nsbx_box_test(lua_State *L, int idx, const struct nsbx_type *type)
{
    return luaL_testudata(L, idx, type->name);
}

struct nsbx_box *nsbx_box_any(lua_State *L, int idx)
{
    if (lua_type(L, idx) != LUA_TUSERDATA || !lua_getmetatable(L, idx))
        return NULL;
    bool ours = lua_rawgetp(L, -1, &box_mark) == LUA_TBOOLEAN;
    lua_pop(L, 2);
    return ours ? lua_touserdata(L, idx) : NULL;
}

struct nsbx_box *nsbx_box_self(lua_State *L, const struct nsbx_type *type, const char *op)
{
    struct nsbx_box *box = nsbx_box_test(L, 1, type);
    if (!box)
        nsbx_misused(L, op, "the first argument must be a %s, not %s (call it as %s:%s(…))", type->noun,
                     nsbx_a_value(L, 1), type->noun, op);
    return box;
}

void *nsbx_box_open(lua_State *L, const struct nsbx_type *type, const char *op)
{
    struct nsbx_box *box = nsbx_box_self(L, type, op);
    if (!box->ptr)
        nsbx_raise_destroyed(L, op, NULL, lua_pushfstring(L, "the %s is closed", type->noun));
    return box->ptr;
}
