#include "buf.h"

#include "alloc.h"
#include "util.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { FIRST_CAP = 256, KEEP_CAP = 64 * 1024 };

void nsbx_buf_init(struct nsbx_buf *b, size_t max)
{
    *b = (struct nsbx_buf){.max = max};
}

void nsbx_buf_free(struct nsbx_buf *b)
{
    nsbx_free(b->base);
    nsbx_buf_init(b, b->max);
}

/* Makes room for n more bytes behind the held ones: by moving them to the front when half of the memory is free there
 * (so that a move is paid for by the bytes consumed), else by growing. */
static int make_room(struct nsbx_buf *b, size_t n, struct nsbx_err *err)
{
    if (n > b->max - b->len)
        return nsbx_err_set(err, NSBX_E_LIMIT, "a buffer of at most %zu bytes is full (%zu held, %zu more)", b->max,
                            b->len, n);
    if (b->head + b->len + n <= b->cap)
        return 0;
    if (b->len + n <= b->cap && b->head >= b->cap / 2) {
        memmove(b->base, b->base + b->head, b->len);
        b->head = 0;
        return 0;
    }
    size_t need = b->len + n;
    size_t cap = NSBX_MAX(b->cap, (size_t)FIRST_CAP);
    while (cap < need)
        cap = cap > b->max / 2 ? b->max : cap * 2;
    cap = NSBX_MAX(cap, need);
    uint8_t *base = nsbx_malloc(cap);
    if (!base)
        return nsbx_err_nomem(err, "a buffer");
    if (b->len)
        memcpy(base, b->base + b->head, b->len);
    nsbx_free(b->base);
    b->base = base;
    b->head = 0;
    b->cap = cap;
    return 0;
}

int nsbx_buf_append(struct nsbx_buf *b, const void *bytes, size_t n, struct nsbx_err *err)
{
    if (n == 0)
        return 0;
    int rc = make_room(b, n, err);
    if (rc < 0)
        return rc;
    memcpy(b->base + b->head + b->len, bytes, n);
    b->len += n;
    return 0;
}

int nsbx_buf_printf(struct nsbx_buf *b, struct nsbx_err *err, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    int rc = n < 0 ? nsbx_err_set(err, NSBX_E_INVALID, "a text could not be formatted") : 0;
    if (rc == 0 && n > 0) {
        uint8_t *at = NULL;
        /* vsnprintf writes a NUL behind the text: room for it, without counting it. */
        if ((size_t)n >= b->max - b->len)
            rc = nsbx_err_set(err, NSBX_E_LIMIT, "a buffer of at most %zu bytes is full", b->max);
        else if (!(at = nsbx_buf_reserve(b, (size_t)n + 1, err)))
            rc = -NSBX_E_LIMIT;
        else {
            vsnprintf((char *)at, (size_t)n + 1, fmt, again);
            nsbx_buf_commit(b, (size_t)n);
        }
    }
    va_end(again);
    return rc;
}

uint8_t *nsbx_buf_reserve(struct nsbx_buf *b, size_t n, struct nsbx_err *err)
{
    if (make_room(b, n ? n : 1, err) < 0)
        return NULL;
    return b->base + b->head + b->len;
}

void nsbx_buf_commit(struct nsbx_buf *b, size_t n)
{
    b->len += n;
}

void nsbx_buf_consume(struct nsbx_buf *b, size_t n)
{
    b->head += n;
    b->len -= n;
    if (b->len > 0)
        return;
    b->head = 0;
    if (b->cap > KEEP_CAP)
        nsbx_buf_free(b);
}

uint8_t *nsbx_buf_take(struct nsbx_buf *b, size_t *len)
{
    *len = b->len;
    if (b->len == 0)
        return NULL;
    if (b->head > 0)
        memmove(b->base, b->base + b->head, b->len);
    uint8_t *out = b->base;
    nsbx_buf_init(b, b->max);
    return out;
}
