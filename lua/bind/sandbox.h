/* The sandbox object: what the bindings of its methods share. */
#ifndef NSBX_BIND_SANDBOX_H
#define NSBX_BIND_SANDBOX_H

#include "base/buf.h"
#include "base/list.h"
#include "local/local.h"
#include "object.h"
#include "sched.h"
#include "transport/exec.h"
#include "transport/guest.h"

#include <stdbool.h>

struct nsbx_sandbox {
    struct nsbx_guest *guest; /* NULL once destroyed */
    struct nsbx_local
        *local; /* of the local backend, which owns the guest then; NULL = over an agent that runs somewhere */
    bool destroyed;
    const char *environment; /* what it is, also when it is no more; static */
    char *workspace; /* of the local backend: the host's path, when it outlives the sandbox; NULL = it does not */
    char *id, *root_dir, *cwd;  /* root_dir and cwd (of commands, when they name none) may be NULL */
    struct nsbx_list processes; /* struct nsbx_process, started by this handle and not closed */
    struct nsbx_err end;        /* the first failure of ending a process, while it is being destroyed */
};

extern const struct nsbx_type nsbx_sandbox_type;

/* Pushes a sandbox with its texts copied and neither guest nor local: fill them in. Its environment is "agent". id is not NULL; two user values. */
struct nsbx_sandbox *nsbx_sandbox_push(lua_State *L, const char *id, const char *root_dir, const char *cwd);
/* A copy of `text` for one of its fields (NULL: NULL); raises when there is no memory. */
char *nsbx_sandbox_copy(lua_State *L, const char *text);
/* The first argument of method `op`; raises when it is none, or destroyed. */
struct nsbx_sandbox *nsbx_sandbox_self(lua_State *L, const char *op);

/* ---- processes (process.c) ---- */

struct nsbx_process {
    struct nsbx_list node;        /* in sandbox->processes */
    struct nsbx_sandbox *sandbox; /* kept alive by the box's user value */
    struct nsbx_exec *exec;
    bool ending;    /* its sandbox's destroy has dealt with it */
    bool reading;   /* an iterator of its output is open */
    bool read_out;  /* all of its output was read */
    bool discarded; /* its output is dropped, because somebody waits for it and nobody read */
    unsigned waiters;
    uint8_t *piece; /* a piece of output on its way to Lua: freed here whatever happens there */
    size_t piece_len;
    bool piece_kept; /* it found no room in `held`, and is of kept_stream */
    int kept_stream;
    struct nsbx_buf held[2]; /* of stdout and stderr: bytes that an iterator of lines has not given out */
    size_t scanned[2];       /* of those, how many are known to hold no newline */
};

extern const struct nsbx_type nsbx_process_type;

/* Starts an execution of the sandbox in the box at sandbox_idx and pushes its process. Raises. */
struct nsbx_process *nsbx_process_start(lua_State *L, int sandbox_idx, const struct nsbx_exec_request *request,
                                        const char *op);
/* For a cancelled wait: ends the command of the process in the box at `idx`, waits for the guest's word, closes the box, and raises `cancelled` or what kept the
 * end from being confirmed. `return nsbx_process_abandon(…)`. */
int nsbx_process_abandon(lua_State *L, int idx, const char *op);

/* output() and lines() (output.c) */
int nsbx_process_output(lua_State *L);
int nsbx_process_lines(lua_State *L);
/* From now on output is dropped as it comes. */
void nsbx_process_discard(struct nsbx_process *p);

/* ---- methods, by file ---- */

int nsbx_sandbox_exec(lua_State *L);       /* exec.c */
int nsbx_sandbox_spawn(lua_State *L);      /* process.c */
int nsbx_sandbox_write_file(lua_State *L); /* file.c */
int nsbx_sandbox_read_file(lua_State *L);
int nsbx_sandbox_read_file_stream(lua_State *L);
int nsbx_sandbox_list_files(lua_State *L); /* walk.c */
int nsbx_sandbox_walk_files(lua_State *L);

/* Remembers the function on the top of the stack as what runs an exec with on_output (lua/nsbx/flow.lua) and pops it. */
void nsbx_exec_set_streamed(lua_State *L);
/* Pushes the result table; output too when `with_output`. */
void nsbx_push_result(lua_State *L, const struct nsbx_exec_result *result, bool with_output);

#endif
