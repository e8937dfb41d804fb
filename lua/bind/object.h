/* The one shape of userdata: a box with a pointer and a type. It is made closed (pointer NULL) and filled afterwards, so that an
 * error in between has nothing to undo; closing twice is nothing; methods are in a table of their own behind __index; what an
 * object needs alive is in its user values. */
#ifndef NSBX_BIND_OBJECT_H
#define NSBX_BIND_OBJECT_H

#include <lauxlib.h>
#include <lua.h>
#include <stdbool.h>

struct nsbx_box;

struct nsbx_type {
    const char *name; /* "nsbx.process": __name and the metatable's key */
    const char *noun; /* "process": for messages and nsbx.type */
    /* Ends and frees what box->ptr (not NULL) points to, without waiting and without raising; called once, from __gc, or from the
     * default close. The caller has cleared box->ptr; `ptr` is what it was. */
    void (*drop)(lua_State *L, void *ptr);
    lua_CFunction close;     /* __close and the method close; may wait. NULL: drop */
    const luaL_Reg *methods; /* NULL = none */
    lua_CFunction field;     /* (object, key) → value, for keys that are no methods; NULL = none */
    void (*describe)(lua_State *L, void *ptr); /* pushes the text in tostring's parentheses; NULL: the address */
};

struct nsbx_box {
    void *ptr; /* NULL = closed */
    const struct nsbx_type *type;
};

/* Pushes a closed one with `user_values` user values. */
struct nsbx_box *nsbx_box_push(lua_State *L, const struct nsbx_type *type, int user_values);
/* The box at idx, or NULL when it is none of this type. */
struct nsbx_box *nsbx_box_test(lua_State *L, int idx, const struct nsbx_type *type);
/* The first argument of the method `op`: raises when it is no object of the type. */
struct nsbx_box *nsbx_box_self(lua_State *L, const struct nsbx_type *type, const char *op);
/* As nsbx_box_self; raises when it is closed. Returns its pointer. */
void *nsbx_box_open(lua_State *L, const struct nsbx_type *type, const char *op);
/* Clears the pointer and drops what it was; nothing on a closed one. */
void nsbx_box_drop(lua_State *L, struct nsbx_box *box);

/* The box at idx when it is one of any of our types; NULL otherwise. */
struct nsbx_box *nsbx_box_any(lua_State *L, int idx);

#endif
