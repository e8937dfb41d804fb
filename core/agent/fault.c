#include "fault.h"

#include "base/buf.h"
#include "base/util.h"
#include "codec/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The published texts of the errors that file work meets; any other is told in the C library's words. */
static const struct {
    int sys;
    const char *text;
} texts[] = {
    {E2BIG, "argument list too long"},
    {EACCES, "permission denied"},
    {EAGAIN, "resource temporarily unavailable"},
    {EBADF, "bad file descriptor"},
    {EBUSY, "resource busy or locked"},
    {EEXIST, "file already exists"},
    {EFBIG, "file too large"},
    {EINVAL, "invalid argument"},
    {EIO, "i/o error"},
    {EISDIR, "illegal operation on a directory"},
    {ELOOP, "too many symbolic links encountered"},
    {EMFILE, "too many open files"},
    {EMLINK, "too many links"},
    {ENAMETOOLONG, "name too long"},
    {ENFILE, "file table overflow"},
    {ENODEV, "no such device"},
    {ENOENT, "no such file or directory"},
    {ENOMEM, "not enough memory"},
    {ENOSPC, "no space left on device"},
    {ENOTDIR, "not a directory"},
    {ENOTEMPTY, "directory not empty"},
    {ENXIO, "no such device or address"},
    {EPERM, "operation not permitted"},
    {EROFS, "read-only file system"},
    {ETXTBSY, "text file is busy"},
    {EXDEV, "cross-device link not permitted"},
};

static const char *text_of(int sys)
{
    for (size_t i = 0; i < NSBX_LEN(texts); i++)
        if (texts[i].sys == sys)
            return texts[i].text;
    const char *text = strerrordesc_np(sys);
    return text ? text : "unknown error";
}

static const char *name_of(int sys)
{
    const char *name = nsbx_errno_name(sys);
    return name ? name : "EUNKNOWN";
}

int nsbx_fault_set(struct nsbx_fault *f, const char *fmt, ...)
{
    f->code = NULL;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(f->text, sizeof f->text, fmt, ap);
    va_end(ap);
    return -1;
}

int nsbx_fault_sys(struct nsbx_fault *f, int sys, const char *call, const char *path)
{
    const char *name = name_of(sys);
    if (path)
        nsbx_fault_set(f, "%s: %s, %s '%s'", name, text_of(sys), call, path);
    else
        nsbx_fault_set(f, "%s: %s, %s", name, text_of(sys), call);
    f->code = name;
    return -1;
}

int nsbx_fault_sys2(struct nsbx_fault *f, int sys, const char *call, const char *from, const char *to)
{
    const char *name = name_of(sys);
    nsbx_fault_set(f, "%s: %s, %s '%s' -> '%s'", name, text_of(sys), call, from, to);
    f->code = name;
    return -1;
}

int nsbx_fault_prefix(struct nsbx_fault *f, const char *prefix)
{
    size_t n = strlen(prefix), have = strlen(f->text);
    if (n + have >= sizeof f->text)
        have = sizeof f->text - 1 - n;
    memmove(f->text + n, f->text, have);
    memcpy(f->text, prefix, n);
    f->text[n + have] = '\0';
    return -1;
}

json_t *nsbx_fault_text(const struct nsbx_fault *f)
{
    const char *text = f->text;
    json_t *plain = json_string(text);
    if (plain)
        return plain;
    struct nsbx_buf out;
    nsbx_buf_init(&out, 3 * (size_t)NSBX_FAULT_TEXT); /* U+FFFD has three bytes */
    struct nsbx_utf8 decoder;
    nsbx_utf8_init(&decoder);
    json_t *value = NULL;
    if (nsbx_utf8_feed(&decoder, (const uint8_t *)text, strlen(text), &out, NULL) == 0 &&
        nsbx_utf8_flush(&decoder, &out, NULL) == 0)
        value = json_stringn((const char *)nsbx_buf_data(&out), out.len);
    nsbx_buf_free(&out);
    return value;
}

json_t *nsbx_fault_message(const struct nsbx_op_row *row, const struct nsbx_fault *f)
{
    json_t *message =
        row->shape == NSBX_SHAPE_CONTROL ? json_pack("{s:b}", "ok", 0) : json_pack("{s:s}", "type", "error");
    if (!message)
        return NULL;
    if (json_object_set_new(message, "error", nsbx_fault_text(f)) != 0 ||
        (f->code && json_object_set_new(message, "code", json_string(f->code)) != 0)) {
        json_decref(message);
        return NULL;
    }
    return message;
}
