#include "err.h"

#include "util.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void set_message(struct nsbx_err *err, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));

static void set_message(struct nsbx_err *err, const char *fmt, va_list ap)
{
    vsnprintf(err->message, sizeof err->message, fmt, ap);
}

int nsbx_err_set(struct nsbx_err *err, int code, const char *fmt, ...)
{
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        err->code = code;
        err->sys = 0;
        err->reason[0] = '\0';
        set_message(err, fmt, ap);
        va_end(ap);
    }
    return -code;
}

int nsbx_err_reason(struct nsbx_err *err, int code, const char *reason, const char *fmt, ...)
{
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        err->code = code;
        err->sys = 0;
        snprintf(err->reason, sizeof err->reason, "%s", reason);
        set_message(err, fmt, ap);
        va_end(ap);
    }
    return -code;
}

int nsbx_err_sys(struct nsbx_err *err, int sys, const char *fmt, ...)
{
    int code = nsbx_code_of_errno(sys);
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        err->code = code;
        err->sys = sys;
        err->reason[0] = '\0';
        set_message(err, fmt, ap);
        va_end(ap);
        size_t at = strlen(err->message);
        /* strerror's table is never written for known numbers; an unknown one may share a buffer, which only blurs a text. */
        snprintf(err->message + at, sizeof err->message - at, ": %s", strerror(sys));
    }
    return -code;
}

int nsbx_err_nomem(struct nsbx_err *err, const char *what)
{
    if (err) {
        err->code = NSBX_E_LIMIT;
        err->sys = ENOMEM;
        err->reason[0] = '\0';
        snprintf(err->message, sizeof err->message, "out of memory for %s", what);
    }
    return -NSBX_E_LIMIT;
}

int nsbx_err_wrap(struct nsbx_err *err, const char *fmt, ...)
{
    if (!err)
        return -NSBX_E_IO;
    char old[NSBX_ERR_MESSAGE];
    memcpy(old, err->message, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    set_message(err, fmt, ap);
    va_end(ap);
    size_t at = strlen(err->message);
    snprintf(err->message + at, sizeof err->message - at, ": %s", old);
    return -err->code;
}

int nsbx_err_copy(struct nsbx_err *to, const struct nsbx_err *from)
{
    if (!from)
        return 0;
    if (to && to != from)
        *to = *from;
    return -from->code;
}

static const char *const code_names[NSBX_CODE_COUNT] = {[NSBX_OK] = "ok",
#define NAME(name, text) [NSBX_E_##name] = text,
                                                        NSBX_CODES(NAME)
#undef NAME
};

const char *nsbx_code_name(int code)
{
    return code >= 0 && code < NSBX_CODE_COUNT ? code_names[code] : "unknown";
}

int nsbx_code_of_name(const char *name)
{
    for (int i = 1; i < NSBX_CODE_COUNT; i++)
        if (strcmp(code_names[i], name) == 0)
            return i;
    return 0;
}

/* The errnos that files, programs, sockets and processes meet, with the code that a user should see. */
#define ERRNOS(X)                                                                                                  \
    X(ENOENT, NOT_FOUND)                                                                                           \
    X(ENOTDIR, NOT_FOUND)                                                                                          \
    X(ESRCH, NOT_FOUND)                                                                                            \
    X(ENXIO, NOT_FOUND)                                                                                            \
    X(ENODEV, NOT_FOUND)                                                                                           \
    X(EACCES, FORBIDDEN)                                                                                           \
    X(EPERM, FORBIDDEN)                                                                                            \
    X(EROFS, FORBIDDEN)                                                                                            \
    X(EEXIST, EXISTS)                                                                                              \
    X(ENOTEMPTY, EXISTS)                                                                                           \
    X(EINVAL, INVALID)                                                                                             \
    X(EISDIR, INVALID)                                                                                             \
    X(ENAMETOOLONG, INVALID)                                                                                       \
    X(ELOOP, INVALID)                                                                                              \
    X(E2BIG, INVALID)                                                                                              \
    X(ENOEXEC, INVALID)                                                                                            \
    X(EILSEQ, INVALID)                                                                                             \
    X(ENOTSUP, UNSUPPORTED)                                                                                        \
    X(ENOSYS, UNSUPPORTED)                                                                                         \
    X(EAFNOSUPPORT, UNSUPPORTED)                                                                                   \
    X(ENOMEM, LIMIT)                                                                                               \
    X(ENOSPC, LIMIT)                                                                                               \
    X(EDQUOT, LIMIT)                                                                                               \
    X(EFBIG, LIMIT)                                                                                                \
    X(EMFILE, LIMIT)                                                                                               \
    X(ENFILE, LIMIT)                                                                                               \
    X(EAGAIN, LIMIT)                                                                                               \
    X(ENOBUFS, LIMIT)                                                                                              \
    X(EOVERFLOW, LIMIT)                                                                                            \
    X(ETIMEDOUT, TIMEOUT)                                                                                          \
    X(ECANCELED, CANCELLED)                                                                                        \
    X(ECONNREFUSED, UNREACHABLE)                                                                                   \
    X(EHOSTUNREACH, UNREACHABLE)                                                                                   \
    X(ENETUNREACH, UNREACHABLE)                                                                                    \
    X(EADDRNOTAVAIL, UNREACHABLE)                                                                                  \
    X(ECONNRESET, STREAM_LOST)                                                                                     \
    X(EPIPE, STREAM_LOST)                                                                                          \
    X(ECONNABORTED, STREAM_LOST)                                                                                   \
    X(EADDRINUSE, EXISTS)                                                                                          \
    X(EPROTO, PROTOCOL)                                                                                            \
    X(EBUSY, IO)                                                                                                   \
    X(ETXTBSY, IO)                                                                                                 \
    X(EIO, IO)                                                                                                     \
    X(EBADF, IO)                                                                                                   \
    X(EXDEV, IO)                                                                                                   \
    X(EMLINK, IO)                                                                                                  \
    X(ESPIPE, IO)                                                                                                  \
    X(EINTR, IO)                                                                                                   \
    X(ECHILD, IO)                                                                                                  \
    X(ENOTCONN, IO)                                                                                                \
    X(ENOTSOCK, IO)                                                                                                \
    X(EINPROGRESS, IO)                                                                                             \
    X(ESTALE, IO)                                                                                                  \
    X(EFAULT, IO)

static const struct {
    int sys;
    int code;
    const char *name;
} errnos[] = {
#define ROW(sys, code) {sys, NSBX_E_##code, #sys},
    ERRNOS(ROW)
#undef ROW
};

int nsbx_code_of_errno(int sys)
{
    for (size_t i = 0; i < NSBX_LEN(errnos); i++)
        if (errnos[i].sys == sys)
            return errnos[i].code;
    return NSBX_E_IO;
}

const char *nsbx_errno_name(int sys)
{
    for (size_t i = 0; i < NSBX_LEN(errnos); i++)
        if (errnos[i].sys == sys)
            return errnos[i].name;
    return NULL;
}

int nsbx_errno_of_name(const char *name)
{
    for (size_t i = 0; i < NSBX_LEN(errnos); i++)
        if (strcmp(errnos[i].name, name) == 0)
            return errnos[i].sys;
    return 0;
}
