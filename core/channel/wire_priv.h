/* The published wire, below the two ends of the single carrier: frames to messages, messages and data to frames. No I/O. */
#ifndef NSBX_CHANNEL_WIRE_PRIV_H
#define NSBX_CHANNEL_WIRE_PRIV_H

#include "base/buf.h"
#include "base/err.h"
#include "codec/base64.h"
#include "codec/frame.h"
#include "codec/jscan.h"
#include "codec/utf8.h"
#include "ops.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- how data looks ---- */

struct nsbx_wire_form {
    const char
        *types[3]; /* by enum nsbx_sub: the `type` of the message that carries it; NULL = no such sub-stream */
    const char *end_type; /* the message that says that no more comes; NULL = none */
    bool base64;          /* always; otherwise text, or base64 when the request asked for it */
    bool counted;         /* may carry offset and nextOffset */
    size_t chunk;         /* raw bytes of one message, at most */
};
const struct nsbx_wire_form *nsbx_wire_form(enum nsbx_data_form form);

/* ---- reading (wire_read.c) ---- */

enum {
    NSBX_WIRE_STOP = 1
}; /* what a callback returns that has changed its owner's state: the feed stops after its event */

/* Each returns 0 to go on, NSBX_WIRE_STOP, or a negative error with err filled. None frees the reader. */
struct nsbx_wire_events {
    int (*on_header)(void *ud, uint32_t length,
                     struct nsbx_err *err); /* a frame was announced; 0 is a terminator */
    int (*on_terminator)(void *ud, struct nsbx_err *err);
    /* A frame is whole: its JSON text without the large members; borrowed for the call. nsbx_wire_parse makes a value of it. */
    int (*on_frame)(void *ud, const char *rest, size_t len, struct nsbx_err *err);
    int (*on_watch)(void *ud, size_t index, const char *value, size_t n); /* see codec/jscan.h */
    int (*on_large)(void *ud, size_t index, const uint8_t *bytes, size_t n, bool begin, bool end);
};
struct nsbx_wire_reader {
    struct nsbx_frame_reader frames;
    struct nsbx_jscan *scan;
    const struct nsbx_wire_events *events;
    void *ud;
    uint32_t length; /* of the frame being read */
    bool lenient;    /* a frame that is no JSON, or not the JSON wanted, is skipped instead of ending everything */
    bool skipping;   /* such a frame */
};
int nsbx_wire_reader_init(struct nsbx_wire_reader *r, const char *const *watch, const char *const *large,
                          bool drop_rest, const struct nsbx_wire_events *events, void *ud, struct nsbx_err *err)
    __attribute__((warn_unused_result));
void nsbx_wire_reader_free(struct nsbx_wire_reader *r); /* also of a zeroed one */
/* 0, a callback's return, -NSBX_E_PROTOCOL or -NSBX_E_LIMIT; after a negative one the reader is of no more use. *used (may be NULL): the bytes dealt
 * with, up to and including the event that stopped it. */
int nsbx_wire_feed(struct nsbx_wire_reader *r, const uint8_t *p, size_t n, size_t *used, struct nsbx_err *err);
bool nsbx_wire_at_border(const struct nsbx_wire_reader *r); /* between two frames */
/* Any JSON value; NULL with err set. */
json_t *nsbx_wire_parse(const char *text, size_t len, struct nsbx_err *err);

/* ---- one direction of a conversation (inbox.c): messages and data told apart ---- */

struct nsbx_inbox_events { /* returns as above */
    int (*on_header)(void *ud, uint32_t length, struct nsbx_err *err);
    int (*on_terminator)(void *ud, struct nsbx_err *err);
    int (*on_message)(void *ud, json_t *message, struct nsbx_err *err); /* borrowed */
    int (*on_data)(void *ud, enum nsbx_sub sub, const uint8_t *bytes, size_t n, int64_t offset);
    int (*on_data_end)(void *ud);
};
struct nsbx_inbox {
    struct nsbx_wire_reader reader;
    const struct nsbx_wire_form *form;
    const char *large[2]; /* the member whose string is data, NULL-terminated */
    bool plain_large;     /* that member belongs to a control reply: no type says so */
    bool base64;
    bool strict; /* set after init: base64 that is none breaks the protocol */
    const struct nsbx_inbox_events *events;
    void *ud;
    /* the message being read */
    int sub;      /* its sub-stream; -1 = none, -2 = its type is not known yet, -3 = the end of data */
    bool seen;    /* it had a data string */
    bool holding; /* the string waits in `held` for the message's end */
    int trouble;  /* why its data could not be taken: a negative code to report at the next chance, or 0 */
    struct nsbx_base64_decoder decoder;
    struct nsbx_buf held;
    struct nsbx_buf scratch;
};
/* `large`: the data member of a control reply, or NULL; then `form` says which messages carry data. */
int nsbx_inbox_init(struct nsbx_inbox *in, const struct nsbx_wire_form *form, const char *large, bool base64,
                    const struct nsbx_inbox_events *events, void *ud, struct nsbx_err *err)
    __attribute__((warn_unused_result));
void nsbx_inbox_free(struct nsbx_inbox *in); /* also of a zeroed one */
int nsbx_inbox_feed(struct nsbx_inbox *in, const uint8_t *p, size_t n, size_t *used, struct nsbx_err *err);

/* ---- writing (wire_write.c) ---- */

/* Appends one frame with the message. -NSBX_E_LIMIT when `out` would pass its maximum or there is no memory. */
int nsbx_wire_put_message(struct nsbx_buf *out, const json_t *message, struct nsbx_err *err)
    __attribute__((warn_unused_result));
int nsbx_wire_put_terminator(struct nsbx_buf *out, struct nsbx_err *err) __attribute__((warn_unused_result));

/* Where finished frames go; the bytes are borrowed for the call. */
typedef int nsbx_wire_emit(void *ud, const uint8_t *bytes, size_t n, struct nsbx_err *err);
struct nsbx_wire_writer {
    const struct nsbx_wire_form *form;
    bool base64;
    nsbx_wire_emit *emit;
    void *ud;
    struct nsbx_buf *scratch;  /* lent; a frame is built here. Shared by all writers of a thread */
    struct nsbx_utf8 chars[3]; /* text: an incomplete character waits for its rest, by sub-stream */
    int64_t next[3];           /* and the offset after it; -1 = not counted */
    struct nsbx_buf text;
};
void nsbx_wire_writer_init(struct nsbx_wire_writer *w, const struct nsbx_wire_form *form, bool base64,
                           struct nsbx_buf *scratch, nsbx_wire_emit *emit, void *ud);
void nsbx_wire_writer_free(struct nsbx_wire_writer *w); /* also of a zeroed one */
int nsbx_wire_write_message(struct nsbx_wire_writer *w, const json_t *message, struct nsbx_err *err)
    __attribute__((warn_unused_result));
/* Any size; cut into messages. -NSBX_E_INVALID when the form has no such sub-stream. */
int nsbx_wire_write_data(struct nsbx_wire_writer *w, enum nsbx_sub sub, const uint8_t *bytes, size_t n,
                         int64_t offset, struct nsbx_err *err) __attribute__((warn_unused_result));
/* No more data comes: an incomplete character becomes U+FFFD. */
int nsbx_wire_write_flush(struct nsbx_wire_writer *w, struct nsbx_err *err) __attribute__((warn_unused_result));
/* The form's end message; nothing for a form without one. */
int nsbx_wire_write_end(struct nsbx_wire_writer *w, struct nsbx_err *err) __attribute__((warn_unused_result));
void nsbx_wire_scratch_reset(
    struct nsbx_buf *scratch); /* empty again; its memory stays unless it is unusually large */

#endif
