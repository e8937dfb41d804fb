/* Errors as recipes see them: a table of the metatable nsbx.Error with code, name, message, op, sandbox, errno, reason,
 * retryable, where and traceback. All functions here may raise (they allocate in Lua); none holds anything in C meanwhile. */
#ifndef NSBX_BIND_ERROR_H
#define NSBX_BIND_ERROR_H

#include "base/err.h"

#include <lauxlib.h>
#include <lua.h>
#include <stdbool.h>

/* Never returns. The int is for `return nsbx_raise(…)`, by which a reader sees that it ends there. */
#define NSBX_RAISES __attribute__((noreturn))

/* Pushes the object. `op` (static text) and `sandbox` (its id, copied) may be NULL. */
void nsbx_error_push(lua_State *L, const struct nsbx_err *err, const char *op, const char *sandbox);
/* Pushes and raises. */
int nsbx_raise(lua_State *L, const struct nsbx_err *err, const char *op, const char *sandbox) NSBX_RAISES;
/* A wrong argument or a wrong use: code "invalid", raised at the caller's line. `fmt` as lua_pushfstring has it. */
int nsbx_misused(lua_State *L, const char *op, const char *fmt, ...) NSBX_RAISES;
/* Something was closed or destroyed by this program. */
int nsbx_raise_destroyed(lua_State *L, const char *op, const char *sandbox, const char *message) NSBX_RAISES;
/* No memory for `what`. */
int nsbx_raise_nomem(lua_State *L, const char *op, const char *what) NSBX_RAISES;

/* What kind of value is at `idx`, for messages: "nil", "a string", "nothing" when the argument is absent. Static text. */
const char *nsbx_a_value(lua_State *L, int idx);

/* Pushes "FILE:LINE: " of the nearest caller that is a Lua function of the recipe (not of the embedded modules), or "". */
void nsbx_where(lua_State *L);
/* The code (enum nsbx_code) of the error object at `idx`; 0 when it is no error object of ours. */
int nsbx_error_code(lua_State *L, int idx);

/* nsbx.is(err[, code or name]) */
int nsbx_lua_is(lua_State *L);

#endif
