/* sandbox:exec: a command, from its start to its result. */
#include "error.h"
#include "options.h"
#include "request.h"
#include "sandbox.h"

#include <stdio.h>
#include <string.h>

static const char streamed_key; /* registry: the function of nsbx_exec_set_streamed */

void nsbx_exec_set_streamed(lua_State *L)
{
    lua_rawsetp(L, LUA_REGISTRYINDEX, &streamed_key);
}

/* ---- results ---- */

static void set_flag(lua_State *L, const char *key, bool value)
{
    lua_pushboolean(L, value);
    lua_setfield(L, -2, key);
}

static void set_bytes(lua_State *L, const char *key, const uint8_t *bytes, size_t n)
{
    lua_pushlstring(L, n ? (const char *)bytes : "", n);
    lua_setfield(L, -2, key);
}

void nsbx_push_result(lua_State *L, const struct nsbx_exec_result *r, bool with_output)
{
    lua_createtable(L, 0, 10);
    lua_pushinteger(L, r->exit_code);
    lua_setfield(L, -2, "exit_code");
    if (*r->signal) {
        lua_pushstring(L, r->signal);
        lua_setfield(L, -2, "signal");
    }
    lua_pushnumber(L, (lua_Number)r->duration_ms / 1000);
    lua_setfield(L, -2, "duration");
    set_flag(L, "timed_out", r->timed_out);
    set_flag(L, "stdout_truncated", r->stdout_truncated);
    set_flag(L, "stderr_truncated", r->stderr_truncated);
    set_flag(L, "pipes_open", r->pipes_open);
    set_flag(L, "maybe_lossy", r->maybe_lossy);
    if (with_output) {
        set_bytes(L, "stdout", r->out, r->out_len);
        set_bytes(L, "stderr", r->err, r->err_len);
    }
}

/* ---- check = true ---- */

/* Copies the last line of the string at the top of the stack, for a message. */
static void last_line(lua_State *L, char *out, size_t size)
{
    size_t n;
    const char *text = lua_tolstring(L, -1, &n);
    while (text && n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        n--;
    size_t from = n;
    while (text && from > 0 && text[from - 1] != '\n')
        from--;
    snprintf(out, size, "%.*s", (int)(n - from), text ? text + from : "");
}

/* The result is on the top: raises when it is not a success. Returns 1. */
static int checked(lua_State *L, const struct nsbx_sandbox *sb)
{
    int result = lua_gettop(L);
    struct nsbx_err err = {0};
    char line[160];
    bool timed_out = nsbx_option_flag(L, result, "timed_out");
    int64_t code = nsbx_option_count(L, result, "exit_code", -1);
    if (!timed_out && code == 0)
        return 1;
    nsbx_option_push(L, result, "stderr");
    last_line(L, line, sizeof line);
    const char *signal = nsbx_option_text(L, result, "signal", NULL);
    const char *command = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : nsbx_option_text(L, 2, "shell", "");
    const char *colon = line[0] ? ": " : "";
    if (timed_out)
        nsbx_err_reason(&err, NSBX_E_TIMEOUT, "timed_out", "'%.200s' outlived its timeout and was ended%s%s",
                        command, colon, line);
    else if (signal)
        nsbx_err_reason(&err, NSBX_E_REFUSED, "signal", "'%.200s' was ended by %s%s%s", command, signal, colon,
                        line);
    else
        nsbx_err_reason(&err, NSBX_E_REFUSED, "exit_code", "'%.200s' exited with code %d%s%s", command, (int)code,
                        colon, line);
    nsbx_error_push(L, &err, "exec", sb->id);
    if (!timed_out) {
        lua_pushliteral(L, "CommandFailedError");
        lua_setfield(L, -2, "name");
    }
    lua_pushvalue(L, result);
    lua_setfield(L, -2, "result");
    return lua_error(L);
}

/* ---- the command ---- */

/* Stack from a call's start on: its arguments, …, the process, and what is waited for. */
enum { CHECK = 1 };

static int streamed_done(lua_State *L, int status, lua_KContext ctx)
{
    (void)status;
    struct nsbx_sandbox *sb = ((struct nsbx_box *)lua_touserdata(L, 1))->ptr;
    return ctx & CHECK ? checked(L, sb) : 1;
}

static int exec_done(lua_State *L, int status, lua_KContext ctx)
{
    (void)status;
    int process = lua_gettop(L) - 1;
    struct nsbx_sandbox *sb = ((struct nsbx_box *)lua_touserdata(L, 1))->ptr;
    struct nsbx_op *op = nsbx_wait_op(L);
    if (nsbx_op_state(op) == NSBX_OP_CANCELLED && !sb->destroyed)
        return nsbx_process_abandon(L, process, "exec");
    if (nsbx_op_state(op) == NSBX_OP_DONE)
        nsbx_push_result(L, nsbx_op_result(op), true);
    else {
        struct nsbx_err err = *nsbx_op_err(op);
        nsbx_wait_over(L, -1);
        nsbx_box_drop(L, lua_touserdata(L, process));
        return nsbx_wait_raise(L, &err, "exec", sb->id);
    }
    nsbx_wait_over(L, -2);
    nsbx_box_drop(L, lua_touserdata(L, process));
    return ctx & CHECK ? checked(L, sb) : 1;
}

int nsbx_sandbox_exec(lua_State *L)
{
    struct nsbx_sandbox *sb = nsbx_sandbox_self(L, "exec");
    struct nsbx_call call;
    nsbx_call_parse(L, &call, "exec", sb->cwd);
    nsbx_checkpoint(L, "exec");
    struct nsbx_process *p = nsbx_process_start(L, 1, &call.request, "exec");
    lua_KContext ctx = call.check ? CHECK : 0;
    if (!call.has_on_output) {
        void **slot = nsbx_wait_slot(L);
        *slot = nsbx_exec_wait(p->exec, -1);
        return nsbx_wait(L, "exec", NSBX_WAIT, exec_done, ctx);
    }
    lua_rawgetp(L, LUA_REGISTRYINDEX, &streamed_key);
    lua_insert(L, -2);
    nsbx_option_push(L, call.options, "on_output");
    lua_pushboolean(L, call.request.combine);
    lua_callk(L, 3, 1, ctx, streamed_done);
    return streamed_done(L, LUA_OK, ctx);
}
