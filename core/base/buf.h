/* A growable byte buffer that is born with a hard maximum. Consuming from the front is cheap (an offset; the
 * rest is moved only when space is needed). Holds no NUL of its own; bytes are bytes. */
#ifndef NSBX_BASE_BUF_H
#define NSBX_BASE_BUF_H

#include "err.h"

#include <stddef.h>
#include <stdint.h>

struct nsbx_buf {
    uint8_t *base; /* allocation, or NULL */
    size_t head;   /* offset of the first held byte */
    size_t len;    /* held bytes */
    size_t cap;    /* size of the allocation */
    size_t max;    /* len never exceeds it */
};

void nsbx_buf_init(struct nsbx_buf *b, size_t max); /* no allocation; `max` is a name from limits.h */
void nsbx_buf_free(struct nsbx_buf *b);             /* leaves it empty and usable, with the same maximum */
static inline uint8_t *nsbx_buf_data(const struct nsbx_buf *b)
{
    return b->base ? b->base + b->head : NULL;
}
/* -NSBX_E_LIMIT when it would pass the maximum (nothing is appended) or there is no memory. */
int nsbx_buf_append(struct nsbx_buf *b, const void *bytes, size_t n, struct nsbx_err *err)
    __attribute__((warn_unused_result));
int nsbx_buf_printf(struct nsbx_buf *b, struct nsbx_err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4), warn_unused_result));
/* Room for n more bytes after the held ones; write there, then nsbx_buf_commit. NULL as for append. Valid until the next call. */
uint8_t *nsbx_buf_reserve(struct nsbx_buf *b, size_t n, struct nsbx_err *err) __attribute__((warn_unused_result));
void nsbx_buf_commit(struct nsbx_buf *b, size_t n); /* n ≤ what was reserved */
void nsbx_buf_consume(
    struct nsbx_buf *b,
    size_t n); /* n ≤ len; drops from the front; frees the memory when it runs empty and is large */
/* Hands the bytes over (free with nsbx_free; *len set); the buffer is empty after. NULL when empty. */
uint8_t *nsbx_buf_take(struct nsbx_buf *b, size_t *len) __attribute__((warn_unused_result));

#endif
