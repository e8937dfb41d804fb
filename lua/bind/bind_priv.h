/* What the files of the binding give to module.c. */
#ifndef NSBX_BIND_BIND_PRIV_H
#define NSBX_BIND_BIND_PRIV_H

#include <lauxlib.h>

extern const luaL_Reg nsbx_task_functions[]; /* spawn, sleep, now */
extern const luaL_Reg
    nsbx_task_core_functions[]; /* wait_all(list of tasks) → whether all ended well; false as soon as one did not */
extern const luaL_Reg nsbx_backend_functions[]; /* local_backend, connect */

#endif
