/* Holds a large member between its arrival and the operation that wants it: in memory up to NSBX_SPOOL_MEMORY, in an unnamed
 * file beyond. The file is worked on off the loop, one step at a time. First written to, then read once. */
#ifndef NSBX_CHANNEL_SPOOL_PRIV_H
#define NSBX_CHANNEL_SPOOL_PRIV_H

#include "base/err.h"
#include "loop/loop.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nsbx_spool;

/* `dir_fd` is borrowed, -1: no file, more is an error. `on_step` is called from the loop when a step on the file has ended: ask
 * again then what could not be done before. NULL without memory. */
struct nsbx_spool *nsbx_spool_new(struct nsbx_loop *loop, int dir_fd, void (*on_step)(void *ud), void *ud);
void nsbx_spool_follow(struct nsbx_spool *s, void (*on_step)(void *ud), void *ud); /* another owner */
void nsbx_spool_free(
    struct nsbx_spool *s); /* no callback after it; a step under way ends by itself; NULL is fine */

/* Never fails at once: a failure is kept, and what is written after it is dropped. */
void nsbx_spool_write(struct nsbx_spool *s, const uint8_t *bytes, size_t n);
bool nsbx_spool_full(const struct nsbx_spool *s);    /* write no more until on_step */
bool nsbx_spool_settled(const struct nsbx_spool *s); /* nothing under way: its error is final, and it can be read */
const struct nsbx_err *nsbx_spool_err(const struct nsbx_spool *s); /* NULL = none */

/* After the last write, when settled. The next bytes at hand (valid until the next call), or NULL with *n 0: at the end, or a
 * step on the file was started and on_step follows. A failed read is an error as above. */
const uint8_t *nsbx_spool_read(struct nsbx_spool *s, size_t *n);
bool nsbx_spool_at_end(const struct nsbx_spool *s);

#endif
