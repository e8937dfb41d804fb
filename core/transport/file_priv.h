/* What the file operations share. */
#ifndef NSBX_TRANSPORT_FILE_PRIV_H
#define NSBX_TRANSPORT_FILE_PRIV_H

#include "base/buf.h"
#include "file.h"
#include "guest_priv.h"

/* {path, offset?, length?}; negative numbers are left out. NULL with err set. */
json_t *nsbx_file_body(const struct nsbx_guest *guest, const char *path, int64_t offset, int64_t length,
                       struct nsbx_err *err);
/* Moves the bytes into a result; NULL without memory (they stay). */
struct nsbx_bytes *nsbx_file_bytes(struct nsbx_buf *buf);
/* "cannot <doing> '<path>': " before the message. */
int nsbx_file_wrap(struct nsbx_err *err, const char *doing, const char *path);
int nsbx_file_check(const char *path, int64_t offset, int64_t length, struct nsbx_err *err);

/* ---- one read-file-stream, checked (file_pull.c) ---- */
/* Its users differ in what they do with the bytes: the stream holds them until they are asked for, the whole read gathers them. */
struct nsbx_file_pull {
    struct nsbx_guest *guest; /* kept by the user */
    struct nsbx_channel *channel;
    int64_t wanted;     /* what was asked for; -1 = all */
    int64_t max_length; /* more than this is refused when it is announced */
    int64_t length;     /* announced; -1 until then */
    int64_t got;
    bool ended; /* the guest said how much it sent, and it is all here */
    /* Bytes; whoever keeps them calls nsbx_channel_consumed when they are dealt with. A negative return with err set breaks it off. */
    int (*on_bytes)(void *ud, const uint8_t *bytes, size_t n, struct nsbx_err *err);
    /* Once: err NULL = all bytes came and the connection ended properly. The channel is closed. */
    void (*on_over)(void *ud, const struct nsbx_err *err);
    void *ud;
};
int nsbx_file_pull_open(struct nsbx_file_pull *p, const char *path, int64_t offset, int64_t length,
                        struct nsbx_err *err) __attribute__((warn_unused_result));
void nsbx_file_pull_close(struct nsbx_file_pull *p); /* no callback any more; safe when it is not open */

#endif
