/* nsbx-lua: runs a recipe. lua.c's contract, as far as it goes. */
#include "base/log.h"
#include "base/util.h"
#include "bind/bind.h"
#include "bind/error.h"
#include "command.h"
#include "interrupt.h"

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void say(const char *message)
{
    fflush(stdout);
    fprintf(stderr, "nsbx-lua: %s\n", message);
    fflush(stderr);
}

static _Noreturn void quit(int status)
{
    if (nsbx_interrupt_caught())
        say("interrupted");
    exit(nsbx_interrupt_status(status));
}

static const char traceback_key; /* registry: where the last error of the main chunk came from */

/* The message handler. It leaves the error as it is, for `<close>` sees it too. */
static int note_traceback(lua_State *L)
{
    lua_settop(L, 1);
    luaL_traceback(L, L, NULL, 1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &traceback_key);
    return 1;
}

/* Pushes what lua.c says of the error on the top of the stack: text with a traceback, an object's own words without; an error of
 * nsbx brings its traceback along. */
static const char *describe_error(lua_State *L)
{
    bool ours = nsbx_error_code(L, -1) != 0;
    if (!ours && !lua_isstring(L, -1) && luaL_callmeta(L, -1, "__tostring") && lua_isstring(L, -1))
        return lua_tostring(L, -1);
    const char *text = ours || lua_isstring(L, -1)
                           ? luaL_tolstring(L, -1, NULL)
                           : lua_pushfstring(L, "(error object is a %s value)", luaL_typename(L, -1));
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &traceback_key) != LUA_TSTRING)
        return text;
    return lua_pushfstring(L, "%s\n%s", text, lua_tostring(L, -1));
}

/* Runs the chunk and its n arguments on the top of the stack; what goes wrong is said. */
static bool run(lua_State *L, int n)
{
    int base = lua_gettop(L) - n;
    lua_pushcfunction(L, note_traceback);
    lua_insert(L, base);
    int status = lua_pcall(L, n, 0, base);
    bool by_signal = nsbx_interrupt_caught() && status != LUA_OK && nsbx_error_code(L, -1) == NSBX_E_CANCELLED;
    if (status != LUA_OK && !by_signal) /* of a signal the program's last words tell */
        say(describe_error(L));
    lua_settop(L, base - 1);
    return status == LUA_OK;
}

/* Runs what a load (its `status`) has pushed, with the arguments that push_args (NULL = none) pushes. */
static bool run_loaded(lua_State *L, int status, int (*push_args)(lua_State *L))
{
    if (status != LUA_OK) {
        say(lua_tostring(L, -1));
        lua_pop(L, 1);
        return false;
    }
    return run(L, push_args ? push_args(L) : 0);
}

/* The global arg: the script at 0, its arguments after it, the program and its options before. */
static void make_arg(lua_State *L, int argc, char **argv, int script)
{
    if (script == 0)
        script = argc;
    lua_createtable(L, argc - script, script + 1);
    for (int i = 0; i < argc; i++) {
        lua_pushstring(L, argv[i]);
        lua_rawseti(L, -2, i - script);
    }
    lua_setglobal(L, "arg");
}

static int push_script_args(lua_State *L)
{
    if (lua_getglobal(L, "arg") != LUA_TTABLE)
        luaL_error(L, "'arg' is not a table");
    int n = (int)luaL_len(L, -1);
    luaL_checkstack(L, n + 3, "too many arguments to script");
    int table = lua_gettop(L);
    for (int i = 1; i <= n; i++)
        lua_rawgeti(L, table, i);
    lua_remove(L, table);
    return n;
}

static bool run_script(lua_State *L, const char *name)
{
    return run_loaded(L, luaL_loadfile(L, strcmp(name, "-") == 0 ? NULL : name), push_script_args);
}

static bool run_chunks(lua_State *L, const struct nsbx_command *c, char **argv)
{
    int at = 1;
    for (const char *text; (text = nsbx_command_chunk(c, argv, &at));)
        if (!run_loaded(L, luaL_loadbuffer(L, text, strlen(text), "=(command line)"), NULL))
            return false;
    return true;
}

struct program {
    int argc;
    char **argv;
    struct nsbx_command command;
    bool ok;
};

static void open_libraries(lua_State *L)
{
    luaL_checkversion(L);
    luaL_openlibs(L);
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    lua_pushcfunction(L, luaopen_nsbx);
    lua_setfield(L, -2, "nsbx");
    lua_pop(L, 1);
    nsbx_sched_own_process(L, quit);
    nsbx_interrupt_install();
}

static int protected_main(lua_State *L)
{
    struct program *p = lua_touserdata(L, 1);
    const struct nsbx_command *c = &p->command;
    open_libraries(L);
    make_arg(L, p->argc, p->argv, c->script);
    bool ok = run_chunks(L, c, p->argv);
    if (ok && c->script)
        ok = run_script(L, p->argv[c->script]);
    else if (ok && !c->has_chunks && !c->show_version)
        ok = run_script(L, "-");
    p->ok = nsbx_sched_drain(L, !ok) && ok;
    return 0;
}

int main(int argc, char **argv)
{
    if (!nsbx_open_standard_fds())
        return EXIT_FAILURE;
    struct program p = {.argc = argc, .argv = argv};
    nsbx_log_init("nsbx-lua", NSBX_LOG_WARN);
    int wrong = argc > 0 ? nsbx_command_parse(&p.command, argc, argv) : 0;
    bool nothing = !p.command.script && !p.command.has_chunks && !p.command.show_version && !p.command.show_help;
    if (wrong || (nothing && isatty(STDIN_FILENO))) {
        nsbx_command_usage(wrong ? argv[wrong] : NULL);
        return EXIT_FAILURE;
    }
    if (p.command.show_help) {
        nsbx_command_help();
        return EXIT_SUCCESS;
    }
    if (p.command.show_version)
        nsbx_command_version();
    lua_State *L = luaL_newstate();
    if (!L) {
        say("cannot create state: not enough memory");
        return EXIT_FAILURE;
    }
    lua_pushcfunction(L, protected_main);
    lua_pushlightuserdata(L, &p);
    int status = lua_pcall(L, 1, 0, 0);
    if (status != LUA_OK)
        say(lua_tostring(L, -1) ? lua_tostring(L, -1) : "(error object that is no text)");
    lua_close(L);
    quit(status == LUA_OK && p.ok ? EXIT_SUCCESS : EXIT_FAILURE);
}
