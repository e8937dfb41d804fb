#include "options.h"

#include "error.h"
#include "nearest.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- values ---- */

static const char *const kind_texts[] = {
    [NSBX_KIND_TEXT] = "a string",
    [NSBX_KIND_BYTES] = "a string",
    [NSBX_KIND_SECONDS] = "a number of seconds",
    [NSBX_KIND_COUNT] = "an integer",
    [NSBX_KIND_BOOLEAN] = "true or false",
    [NSBX_KIND_FUNCTION] = "a function",
    [NSBX_KIND_TABLE] = "a table",
    [NSBX_KIND_ANY] = "there",
    [NSBX_KIND_CHOICE] = "a string",
};
static const int kind_types[] = {
    [NSBX_KIND_TEXT] = LUA_TSTRING,  [NSBX_KIND_BYTES] = LUA_TSTRING,    [NSBX_KIND_SECONDS] = LUA_TNUMBER,
    [NSBX_KIND_COUNT] = LUA_TNUMBER, [NSBX_KIND_BOOLEAN] = LUA_TBOOLEAN, [NSBX_KIND_FUNCTION] = LUA_TFUNCTION,
    [NSBX_KIND_TABLE] = LUA_TTABLE,  [NSBX_KIND_CHOICE] = LUA_TSTRING,
};

/* Refuses what a person can only have meant otherwise; `subject` as in "option 'cwd'", the value on the stack's top. */
static void check_text(lua_State *L, const char *op, const char *subject)
{
    size_t len;
    const char *text = lua_tolstring(L, -1, &len);
    if (len == 0)
        nsbx_misused(L, op, "%s must not be empty", subject);
    if (strlen(text) != len)
        nsbx_misused(L, op, "%s must not hold a NUL byte", subject);
}

/* lua_pushfstring writes a float 5 as "5.0". */
struct number {
    char text[32];
};
static struct number number(double n)
{
    struct number out;
    snprintf(out.text, sizeof out.text, fabs(n) < 1e16 && floor(n) >= n ? "%.0f" : "%.14g", n);
    return out;
}

static void check_seconds(lua_State *L, const char *op, const char *subject, double max)
{
    lua_Number s = lua_tonumber(L, -1);
    if (!(s > 0) || s > max)
        nsbx_misused(L, op, "%s must be more than 0 and at most %s seconds, not %s", subject, number(max).text,
                     number(s).text);
}

static void check_whole(lua_State *L, const char *op, const char *subject, double min, double max)
{
    int whole;
    lua_Integer n = lua_tointegerx(L, -1, &whole);
    if (!whole)
        nsbx_misused(L, op, "%s must be an integer, not %s", subject, number(lua_tonumber(L, -1)).text);
    if ((double)n < min || (double)n > max)
        nsbx_misused(L, op, "%s must be between %s and %s, not %I", subject, number(min).text, number(max).text,
                     (LUAI_UACINT)n);
}

static void check_choice(lua_State *L, const char *op, const char *subject, const char *const *choices)
{
    const char *text = lua_tostring(L, -1);
    struct nsbx_nearest near;
    nsbx_nearest_init(&near, text);
    luaL_Buffer list;
    luaL_buffinit(L, &list);
    for (int i = 0; choices[i]; i++) {
        if (strcmp(choices[i], text) == 0) {
            luaL_pushresult(&list);
            lua_pop(L, 1);
            return;
        }
        luaL_addstring(&list, i ? ", '" : "'");
        luaL_addstring(&list, choices[i]);
        luaL_addchar(&list, '\'');
    }
    luaL_pushresult(&list);
    nsbx_misused(L, op, "%s must be one of %s, not '%s'", subject, lua_tostring(L, -1), text);
}

/* The value on the top of the stack. */
static void check_value(lua_State *L, const char *op, const char *subject, const struct nsbx_option *option)
{
    if (option->kind != NSBX_KIND_ANY && lua_type(L, -1) != kind_types[option->kind])
        nsbx_misused(L, op, "%s must be %s, not %s", subject, kind_texts[option->kind], nsbx_a_value(L, -1));
    switch (option->kind) {
    case NSBX_KIND_TEXT:
        check_text(L, op, subject);
        break;
    case NSBX_KIND_SECONDS:
        check_seconds(L, op, subject, option->max);
        break;
    case NSBX_KIND_COUNT:
        check_whole(L, op, subject, option->min, option->max);
        break;
    case NSBX_KIND_CHOICE:
        check_choice(L, op, subject, option->choices);
        break;
    case NSBX_KIND_ANY:
    case NSBX_KIND_BYTES:
    case NSBX_KIND_BOOLEAN:
    case NSBX_KIND_FUNCTION:
    case NSBX_KIND_TABLE:
        break;
    }
}

/* ---- tables ---- */

static _Noreturn void unknown_key(lua_State *L, const char *op, const char *key, const struct nsbx_option *options)
{
    struct nsbx_nearest near;
    nsbx_nearest_init(&near, key);
    for (const struct nsbx_option *o = options; o->key; o++)
        nsbx_nearest_offer(&near, o->key);
    if (near.best[0])
        nsbx_misused(L, op, "there is no option '%s' (did you mean '%s'?)", key, near.best);
    lua_pushliteral(L, "");
    for (const struct nsbx_option *o = options; o->key; o++) {
        lua_pushfstring(L, o == options ? "%s" : ", %s", o->key);
        lua_concat(L, 2);
    }
    nsbx_misused(L, op, "there is no option '%s' (there are: %s)", key, lua_tostring(L, -1));
}

static const struct nsbx_option *find_option(const struct nsbx_option *options, const char *key)
{
    for (; options->key; options++)
        if (strcmp(options->key, key) == 0)
            return options;
    return NULL;
}

void nsbx_check_options(lua_State *L, int idx, const char *op, const struct nsbx_option *options)
{
    if (lua_isnoneornil(L, idx))
        return;
    if (lua_type(L, idx) != LUA_TTABLE)
        nsbx_misused(L, op, "the options must be a table, not %s", nsbx_a_value(L, idx));
    luaL_checkstack(L, 8, op);
    idx = lua_absindex(L, idx);
    for (lua_pushnil(L); lua_next(L, idx); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING)
            nsbx_misused(L, op, "options have names; the table also has the key %s", luaL_tolstring(L, -2, NULL));
        const char *key = lua_tostring(L, -2);
        const struct nsbx_option *option = find_option(options, key);
        if (!option)
            unknown_key(L, op, key, options);
        const char *subject = lua_pushfstring(L, "option '%s'", key);
        lua_insert(L, -2);
        check_value(L, op, subject, option);
        lua_remove(L, -2);
    }
}

int nsbx_option_push(lua_State *L, int idx, const char *key)
{
    if (lua_type(L, idx) != LUA_TTABLE) {
        lua_pushnil(L);
        return LUA_TNIL;
    }
    idx = lua_absindex(L, idx);
    lua_pushstring(L, key);
    return lua_rawget(L, idx);
}

const char *nsbx_option_text(lua_State *L, int idx, const char *key, const char *otherwise)
{
    nsbx_option_push(L, idx, key);
    const char *text = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : otherwise;
    lua_pop(L, 1);
    return text;
}

bool nsbx_option_flag(lua_State *L, int idx, const char *key)
{
    nsbx_option_push(L, idx, key);
    bool yes = lua_toboolean(L, -1) != 0;
    lua_pop(L, 1);
    return yes;
}

int64_t nsbx_option_count(lua_State *L, int idx, const char *key, int64_t otherwise)
{
    int64_t n = nsbx_option_push(L, idx, key) == LUA_TNUMBER ? lua_tointeger(L, -1) : otherwise;
    lua_pop(L, 1);
    return n;
}

int64_t nsbx_option_ms(lua_State *L, int idx, const char *key, int64_t otherwise_ms)
{
    int64_t ms = otherwise_ms;
    if (nsbx_option_push(L, idx, key) == LUA_TNUMBER)
        ms = (int64_t)ceil(lua_tonumber(L, -1) * 1000);
    lua_pop(L, 1);
    return ms;
}

int nsbx_option_choice(lua_State *L, int idx, const char *key, const char *const *choices, int otherwise)
{
    const char *text = nsbx_option_text(L, idx, key, NULL);
    for (int i = 0; text && choices[i]; i++)
        if (strcmp(choices[i], text) == 0)
            return i;
    return otherwise;
}

/* ---- positional arguments ---- */

static const char *argument(lua_State *L, int idx, const char *what)
{
    /* An object's method has its object before the first argument. */
    int shown = idx - (lua_type(L, 1) == LUA_TUSERDATA);
    return lua_pushfstring(L, "argument %d (%s)", shown, what);
}

static void check_argument(lua_State *L, int idx, const char *op, const char *what,
                           const struct nsbx_option *option)
{
    bool missing = lua_isnone(L, idx);
    const char *subject = argument(L, idx, what);
    if (missing)
        nsbx_misused(L, op, "%s is missing; it must be %s", subject, kind_texts[option->kind]);
    lua_pushvalue(L, idx);
    check_value(L, op, subject, option);
    lua_pop(L, 2);
}

const char *nsbx_check_text(lua_State *L, int idx, const char *op, const char *what)
{
    static const struct nsbx_option text = {.kind = NSBX_KIND_TEXT};
    check_argument(L, idx, op, what, &text);
    return lua_tostring(L, idx);
}

const char *nsbx_check_bytes(lua_State *L, int idx, const char *op, const char *what, size_t *len)
{
    static const struct nsbx_option bytes = {.kind = NSBX_KIND_BYTES};
    check_argument(L, idx, op, what, &bytes);
    return lua_tolstring(L, idx, len);
}

void nsbx_check_function(lua_State *L, int idx, const char *op, const char *what)
{
    static const struct nsbx_option function = {.kind = NSBX_KIND_FUNCTION};
    check_argument(L, idx, op, what, &function);
}

void nsbx_check_count(lua_State *L, int max, const char *op, const char *usage)
{
    if (lua_gettop(L) > max)
        nsbx_misused(L, op, "too many arguments; it is called as %s", usage);
}

int64_t nsbx_check_ms(lua_State *L, int idx, const char *op, const char *what, double max)
{
    const char *type = nsbx_a_value(L, idx);
    lua_Number s = lua_type(L, idx) == LUA_TNUMBER ? lua_tonumber(L, idx) : -1;
    const char *subject = argument(L, idx, what);
    if (strcmp(type, "a number") != 0)
        nsbx_misused(L, op, "%s must be a number of seconds, not %s", subject, type);
    if (!(s >= 0) || s > max)
        nsbx_misused(L, op, "%s must be between 0 and %s seconds, not %s", subject, number(max).text,
                     number(s).text);
    lua_pop(L, 1);
    return (int64_t)ceil(s * 1000);
}
