#include "request.h"

#include "base/limits.h"
#include "error.h"
#include "options.h"

#include <string.h>

static const char *const waits[] = {"exit", "pipes", NULL};

#define COMMON_OPTIONS                                                                                             \
    {.key = "env", .kind = NSBX_KIND_TABLE}, {.key = "cwd", .kind = NSBX_KIND_TEXT},                               \
        {.key = "stdin", .kind = NSBX_KIND_BYTES},                                                                 \
        {.key = "timeout", .kind = NSBX_KIND_SECONDS, .max = NSBX_EXEC_TIMEOUT_CEILING_MS / 1000.0},               \
        {.key = "max_output", .kind = NSBX_KIND_COUNT, .min = 1, .max = NSBX_COUNT_MAX},                           \
    {                                                                                                              \
        .key = "wait", .kind = NSBX_KIND_CHOICE, .choices = waits                                                  \
    }
#define EXEC_OPTIONS                                                                                               \
    COMMON_OPTIONS, {.key = "on_output", .kind = NSBX_KIND_FUNCTION},                                              \
        {.key = "combine", .kind = NSBX_KIND_BOOLEAN},                                                             \
    {                                                                                                              \
        .key = "check", .kind = NSBX_KIND_BOOLEAN                                                                  \
    }
#define SHELL_OPTION                                                                                               \
    {                                                                                                              \
        .key = "shell", .kind = NSBX_KIND_TEXT                                                                     \
    }

/* Without and with `shell`. */
static const struct nsbx_option spawn_options[] = {COMMON_OPTIONS, {0}};
static const struct nsbx_option spawn_shell_options[] = {COMMON_OPTIONS, SHELL_OPTION, {0}};
static const struct nsbx_option exec_options[] = {EXEC_OPTIONS, {0}};
static const struct nsbx_option exec_shell_options[] = {EXEC_OPTIONS, SHELL_OPTION, {0}};

static const struct nsbx_option *options_of(const char *op, bool shell)
{
    if (strcmp(op, "spawn") == 0)
        return shell ? spawn_shell_options : spawn_options;
    return shell ? exec_shell_options : exec_options;
}

/* ---- arrays for C ---- */

/* Pushes room for n pointers and the NULL at the end. */
static const char **push_array(lua_State *L, size_t n)
{
    const char **array = lua_newuserdatauv(L, (n + 1) * sizeof *array, 0);
    array[n] = NULL;
    return array;
}

/* The value on the top as text without NUL; it is made a string in its place. */
static const char *plain_text(lua_State *L, const char *op, const char *what)
{
    if (lua_type(L, -1) != LUA_TSTRING && lua_type(L, -1) != LUA_TNUMBER)
        nsbx_misused(L, op, "%s must be a string or a number, not %s", what, nsbx_a_value(L, -1));
    size_t len;
    const char *text = lua_tolstring(L, -1, &len);
    if (strlen(text) != len)
        nsbx_misused(L, op, "%s must not hold a NUL byte", what);
    return text;
}

/* Pushes the list at idx as an array whose strings a table below it keeps. */
static const char *const *push_argv(lua_State *L, int idx, const char *op)
{
    size_t n = lua_rawlen(L, idx);
    if (n > NSBX_EXEC_MAX_ARGS)
        nsbx_misused(L, op, "there are %I arguments, more than %d", (LUAI_UACINT)n, NSBX_EXEC_MAX_ARGS);
    lua_createtable(L, (int)n, 0);
    const char **array = push_array(L, n);
    for (size_t i = 0; i < n; i++) {
        const char *what = lua_pushfstring(L, "argument %d of the command", (int)i + 1);
        lua_rawgeti(L, idx, (lua_Integer)i + 1);
        array[i] = plain_text(L, op, what);
        lua_rawseti(L, -4, (lua_Integer)i + 1);
        lua_pop(L, 1);
    }
    return array;
}

static size_t count_pairs(lua_State *L, int idx)
{
    size_t n = 0;
    for (lua_pushnil(L); lua_next(L, idx); lua_pop(L, 1))
        n++;
    return n;
}

/* Pushes the table at idx as an array of "NAME=value" whose strings a table below it keeps. */
static const char *const *push_env(lua_State *L, int idx, const char *op)
{
    size_t n = count_pairs(L, idx), i = 0;
    lua_createtable(L, (int)n, 0);
    int keep = lua_gettop(L);
    const char **array = push_array(L, n);
    for (lua_pushnil(L); lua_next(L, idx); i++) {
        if (lua_type(L, -2) != LUA_TSTRING)
            nsbx_misused(L, op, "option 'env' must have names as keys, not %s", nsbx_a_value(L, -2));
        const char *name = lua_tostring(L, -2);
        if (!name[0] || strchr(name, '=') || strlen(name) != lua_rawlen(L, -2))
            nsbx_misused(L, op, "option 'env' has a name that is empty or holds '=' or NUL: '%s'", name);
        const char *what = lua_pushfstring(L, "the value of '%s' in option 'env'", name);
        lua_insert(L, -2);
        const char *value = plain_text(L, op, what);
        array[i] = lua_pushfstring(L, "%s=%s", name, value);
        lua_rawseti(L, keep, (lua_Integer)i + 1);
        lua_pop(L, 2);
    }
    return array;
}

/* ---- the grammar ---- */

static bool has_names(lua_State *L, int idx)
{
    bool found = false;
    for (lua_pushnil(L); !found && lua_next(L, idx); lua_pop(L, 1))
        found = lua_type(L, -2) == LUA_TSTRING;
    if (found)
        lua_pop(L, 1);
    return found;
}

/* An argv is a list and nothing else. */
static void check_list(lua_State *L, int idx, const char *op)
{
    size_t n = lua_rawlen(L, idx);
    if (count_pairs(L, idx) != n)
        nsbx_misused(L, op,
                     "the command's arguments must be a list without holes or names; options are a table of their "
                     "own after it");
}

/* Where the parts of a call are on the stack; 0 = not there. */
struct parts {
    int command, argv, options;
    bool shell;
};

static void find_parts(lua_State *L, struct parts *at, const char *op)
{
    if (lua_type(L, 2) == LUA_TTABLE) {
        if (nsbx_option_push(L, 2, "shell") == LUA_TNIL)
            nsbx_misused(L, op,
                         "with a table alone a shell's line is run and must be there: %s{shell=\"…\"}; a command "
                         "with arguments is "
                         "%s(command, {arguments}, {options})",
                         op, op);
        lua_pop(L, 1);
        nsbx_check_count(L, 2, op, strcmp(op, "exec") == 0 ? "sandbox:exec{shell=…}" : "sandbox:spawn{shell=…}");
        *at = (struct parts){.options = 2, .shell = true};
        return;
    }
    nsbx_check_text(L, 2, op, "command");
    nsbx_check_count(L, 4, op,
                     strcmp(op, "exec") == 0 ? "sandbox:exec(command[, argv][, options])"
                                             : "sandbox:spawn(command[, argv][, options])");
    *at = (struct parts){.command = 2};
    if (!lua_isnoneornil(L, 3) && lua_type(L, 3) != LUA_TTABLE)
        nsbx_misused(L, op, "argument 2 (argv or options) must be a table, not %s", nsbx_a_value(L, 3));
    bool third = lua_type(L, 3) == LUA_TTABLE, fourth = !lua_isnoneornil(L, 4);
    if (third && !fourth && has_names(L, 3))
        at->options = 3;
    else if (third)
        at->argv = 3;
    if (fourth)
        at->options = 4;
}

void nsbx_call_parse(lua_State *L, struct nsbx_call *out, const char *op, const char *cwd)
{
    static const int no_stdin[] = {NSBX_STDIN_NONE, NSBX_STDIN_STREAM};
    struct parts at;
    memset(out, 0, sizeof *out);
    luaL_checkstack(L, 16, op);
    find_parts(L, &at, op);
    if (!at.options) {
        lua_pushnil(L);
        at.options = lua_gettop(L);
    }
    int o = at.options;
    nsbx_check_options(L, o, op, options_of(op, at.shell));
    if (at.argv)
        check_list(L, at.argv, op);
    struct nsbx_exec_request *r = &out->request;
    bool spawn = strcmp(op, "spawn") == 0;
    r->command = at.shell ? "/bin/sh" : lua_tostring(L, at.command);
    if (at.argv)
        r->args = push_argv(L, at.argv, op);
    if (at.shell) {
        const char **args = push_array(L, 2);
        args[0] = "-c";
        args[1] = nsbx_option_text(L, o, "shell", NULL);
        r->args = args;
    }
    if (nsbx_option_push(L, o, "env") == LUA_TTABLE)
        r->env = push_env(L, lua_gettop(L), op);
    r->cwd = nsbx_option_text(L, o, "cwd", cwd);
    r->stdin_kind = (enum nsbx_exec_stdin)no_stdin[spawn];
    if (nsbx_option_push(L, o, "stdin") == LUA_TSTRING) {
        r->stdin_kind = NSBX_STDIN_BYTES;
        r->stdin_bytes = (const uint8_t *)lua_tolstring(L, -1, &r->stdin_len);
    }
    r->timeout_ms = nsbx_option_ms(L, o, "timeout", 0);
    r->max_output = (uint64_t)nsbx_option_count(L, o, "max_output", spawn ? (int64_t)NSBX_COUNT_MAX : 0);
    r->wait_pipes = nsbx_option_choice(L, o, "wait", waits, 0) == 1;
    out->options = o;
    out->check = nsbx_option_flag(L, o, "check");
    out->has_on_output = nsbx_option_push(L, o, "on_output") == LUA_TFUNCTION;
    r->collect = !spawn && !out->has_on_output;
    r->combine = nsbx_option_flag(L, o, "combine");
}
