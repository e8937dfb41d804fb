/* One error shape. A function that can fail returns 0 or a negative -NSBX_E_* (or a pointer that may be NULL)
 * and takes `struct nsbx_err *err` last: untouched on success, filled on failure, wrapped with context on the
 * way up. It has a fixed size, so that failing never allocates. `err` may be NULL where the caller wants the code only. */
#ifndef NSBX_BASE_ERR_H
#define NSBX_BASE_ERR_H

#include <stddef.h>

/* The closed list of codes a user can meet: X(enumerator, string as Lua shows it). */
#define NSBX_CODES(X)                                                                                              \
    X(NOT_FOUND, "not_found")                                                                                      \
    X(TIMEOUT, "timeout")                                                                                          \
    X(CANCELLED, "cancelled")                                                                                      \
    X(DESTROYED, "destroyed")                                                                                      \
    X(GONE, "gone")                                                                                                \
    X(REPLACED, "replaced")                                                                                        \
    X(STREAM_LOST, "stream_lost")                                                                                  \
    X(UNKNOWN_OUTCOME, "unknown_outcome")                                                                          \
    X(PROTOCOL, "protocol")                                                                                        \
    X(REFUSED, "refused")                                                                                          \
    X(FORBIDDEN, "forbidden")                                                                                      \
    X(LIMIT, "limit")                                                                                              \
    X(UNSUPPORTED, "unsupported")                                                                                  \
    X(CAPACITY, "capacity")                                                                                        \
    X(QUOTA, "quota")                                                                                              \
    X(ADMISSION, "admission")                                                                                      \
    X(UNREACHABLE, "unreachable")                                                                                  \
    X(PRIVILEGED, "privileged")                                                                                    \
    X(INVALID, "invalid")                                                                                          \
    X(EXISTS, "exists")                                                                                            \
    X(IO, "io")

enum nsbx_code {
    NSBX_OK = 0,
#define NSBX_CODE_ENUM(name, text) NSBX_E_##name,
    NSBX_CODES(NSBX_CODE_ENUM)
#undef NSBX_CODE_ENUM
        NSBX_CODE_COUNT
};

enum { NSBX_ERR_REASON = 64, NSBX_ERR_MESSAGE = 512 };

struct nsbx_err {
    int code;                       /* enum nsbx_code, positive; 0 = no error */
    int sys;                        /* errno value behind it, or 0 */
    char reason[NSBX_ERR_REASON];   /* a stable machine word (a guest's error code), or "" */
    char message[NSBX_ERR_MESSAGE]; /* one line for a person, NUL-terminated, cut to fit */
};

/* All of these return -code, so `return nsbx_err_set(err, NSBX_E_INVALID, "…")` is the idiom. `err` may be NULL. */
int nsbx_err_set(struct nsbx_err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* As set, with a reason word. */
int nsbx_err_reason(struct nsbx_err *err, int code, const char *reason, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* From an errno: the code by nsbx_code_of_errno, the message "<fmt…>: <strerror>". */
int nsbx_err_sys(struct nsbx_err *err, int sys, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Out of memory: code LIMIT, sys ENOMEM. `what` names the thing that needed it. */
int nsbx_err_nomem(struct nsbx_err *err, const char *what);
/* Puts "<fmt…>: " before the message of a filled error; returns -err->code. */
int nsbx_err_wrap(struct nsbx_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Copies `from` into `to` (either may be NULL) and returns -from->code. */
int nsbx_err_copy(struct nsbx_err *to, const struct nsbx_err *from);

const char *nsbx_code_name(int code);     /* static text such as "not_found"; "unknown" outside the list */
int nsbx_code_of_name(const char *name);  /* 0 when it is none of ours */
int nsbx_code_of_errno(int sys);          /* ENOENT → NOT_FOUND, EACCES/EPERM → FORBIDDEN, … else IO */
const char *nsbx_errno_name(int sys);     /* static text such as "ENOENT"; NULL when unknown */
int nsbx_errno_of_name(const char *name); /* the reverse; 0 when unknown */

#endif
