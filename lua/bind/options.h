/* Arguments and option tables. A wrong one raises at the caller's line (error.h) before anything has been acquired: a function
 * checks all it was given, then acts. Tables are read raw: no metamethod of the caller's runs. */
#ifndef NSBX_BIND_OPTIONS_H
#define NSBX_BIND_OPTIONS_H

#include <lauxlib.h>
#include <lua.h>
#include <stdbool.h>
#include <stdint.h>

/* The largest integer that the wire carries exactly. */
#define NSBX_COUNT_MAX 9007199254740991.0

enum nsbx_kind {
    NSBX_KIND_TEXT,    /* a string without NUL, not empty */
    NSBX_KIND_BYTES,   /* any string */
    NSBX_KIND_SECONDS, /* a number of seconds within (0, max] */
    NSBX_KIND_COUNT,   /* an integer within [min, max] */
    NSBX_KIND_BOOLEAN,
    NSBX_KIND_FUNCTION,
    NSBX_KIND_TABLE,
    NSBX_KIND_ANY,
    NSBX_KIND_CHOICE, /* one of `choices` */
};

struct nsbx_option {
    const char *key;
    enum nsbx_kind kind;
    double min, max;            /* SECONDS: max; COUNT: both */
    const char *const *choices; /* CHOICE: NULL-terminated */
};

/* Checks that the value at idx is nil, absent, or a table whose every key is in `options` (ended by a NULL key), each of its kind. An
 * unknown key is refused with the nearest valid one. */
void nsbx_check_options(lua_State *L, int idx, const char *op, const struct nsbx_option *options);

/* From a checked table, or nil or absent at idx: the value, or the default. */
const char *nsbx_option_text(lua_State *L, int idx, const char *key,
                             const char *otherwise); /* lives as long as the table holds it */
bool nsbx_option_flag(lua_State *L, int idx, const char *key);
int64_t nsbx_option_count(lua_State *L, int idx, const char *key, int64_t otherwise);
int64_t nsbx_option_ms(lua_State *L, int idx, const char *key,
                       int64_t otherwise_ms); /* rounded up to a millisecond */
int nsbx_option_choice(lua_State *L, int idx, const char *key, const char *const *choices, int otherwise);
/* Pushes the value (nil when it is not there) and returns its type. */
int nsbx_option_push(lua_State *L, int idx, const char *key);

/* Positional arguments; `what` names it in the message. */
const char *nsbx_check_text(lua_State *L, int idx, const char *op, const char *what);
const char *nsbx_check_bytes(lua_State *L, int idx, const char *op, const char *what, size_t *len);
void nsbx_check_function(lua_State *L, int idx, const char *op, const char *what);
/* Raises when there are more than `max` arguments. */
void nsbx_check_count(lua_State *L, int max, const char *op, const char *usage);
/* A number of seconds within [0, max], as milliseconds, rounded up. */
int64_t nsbx_check_ms(lua_State *L, int idx, const char *op, const char *what, double max);

#endif
