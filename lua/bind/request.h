/* exec's grammar: exec(command[, argv][, options]) or exec{shell="…", …}, nothing else. */
#ifndef NSBX_BIND_REQUEST_H
#define NSBX_BIND_REQUEST_H

#include "transport/exec.h"

#include <lua.h>
#include <stdbool.h>

struct nsbx_call {
    /* Points into Lua values: valid until the calling C function returns or waits. */
    struct nsbx_exec_request request;
    int options; /* the stack index of the options, or of a nil */
    bool check, has_on_output;
};

/* The arguments of `op` ("exec" or "spawn") from stack index 2 on; raises on anything wrong. Leaves values on the stack. `cwd` is where a command
 * runs that names no other place; may be NULL. */
void nsbx_call_parse(lua_State *L, struct nsbx_call *out, const char *op, const char *cwd);

#endif
