/* Files of the guest: whole, ranged and streamed reads; atomic writes, in parts when one frame cannot carry them. */
#ifndef NSBX_TRANSPORT_FILE_H
#define NSBX_TRANSPORT_FILE_H

#include "guest.h"

/* Of all operations here: NULL without memory; a cancel or the deadline closes the conversation. */

struct nsbx_bytes { /* free with nsbx_bytes_free */
    uint8_t *data;
    size_t len;
};
void nsbx_bytes_free(void *bytes);

/* offset < 0: from the start; length < 0: to the end. Result: struct nsbx_bytes *. -NSBX_E_LIMIT beyond NSBX_MAX_READ_FILE. */
struct nsbx_op *nsbx_file_read(struct nsbx_guest *guest, const char *path, int64_t offset, int64_t length,
                               int64_t timeout_ms);

struct nsbx_file_stream;
int nsbx_file_stream_open(struct nsbx_guest *guest, const char *path, int64_t offset, int64_t length,
                          struct nsbx_file_stream **out, struct nsbx_err *err) __attribute__((warn_unused_result));
/* Result: struct nsbx_bytes *, or none at the (verified) end. A file that shrank meanwhile fails with IO, a lost connection with STREAM_LOST. */
struct nsbx_op *nsbx_file_stream_next(struct nsbx_file_stream *s, int64_t timeout_ms);
void nsbx_file_stream_close(struct nsbx_file_stream *s); /* NULL is fine */

/* Copies nothing: `bytes` stay the caller's until the op has finished (release(ud) is called then, once, may be NULL; not when NULL is
 * returned for want of memory). Result: none. On failure, cancel or timeout the target is as it was and the temporary file is
 * discarded (bounded, best effort). When the last frame was on its way already and no answer to it came, the target is as it was or
 * completely written, never in between, and the error's reason is "write_unconfirmed". */
struct nsbx_op *nsbx_file_write(struct nsbx_guest *guest, const char *path, const uint8_t *bytes, size_t n,
                                int64_t timeout_ms, void (*release)(void *ud), void *ud);

#endif
