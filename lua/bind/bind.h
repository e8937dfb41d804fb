/* What a program that carries Lua uses of the binding: the module and the scheduler's life. The library part changes no global,
 * installs no signal handler and never exits; what does (os.exit, Ctrl-C) is the host's choice, by the functions below. */
#ifndef NSBX_BIND_BIND_H
#define NSBX_BIND_BIND_H

#include <lua.h>
#include <stdbool.h>

int luaopen_nsbx(lua_State *L);

struct nsbx_sched;

/* The state's scheduler, made at the first call (no event loop yet: that comes with the first wait). Raises without memory. Lives
 * until lua_close, which ends what is still open. */
struct nsbx_sched *nsbx_sched_open(lua_State *L);
/* This state is the program: os.exit ends the tasks, runs `<close>` and closes the state before it calls `quit`, which must not return;
 * and nsbx_sched_interrupt means this state. */
void nsbx_sched_own_process(lua_State *L, void (*quit)(int status));
/* From a signal handler: the recipe is to end. All tasks and the main chunk get `cancelled` at their wait or, when busy, at their next
 * instruction; from then they have a bounded grace. Once; further calls do nothing. */
void nsbx_sched_interrupt(int signo);
/* The main chunk has ended: runs the tasks that are left to their end; `cancel` cancels them first (bounded). False when one of
 * them failed and nobody joined it; lua_close reports those. Called outside of tasks only. */
bool nsbx_sched_drain(lua_State *L, bool cancel);

#endif
