/* A request's first frame, made as it is sent: the token before the body and the large member last, so that the guest can check the one early
 * and nobody has to hold the other. */
#ifndef NSBX_CHANNEL_ENVELOPE_PRIV_H
#define NSBX_CHANNEL_ENVELOPE_PRIV_H

#include "base/buf.h"
#include "codec/utf8.h"
#include "single.h"

struct nsbx_envelope {
    struct nsbx_buf head; /* the frame header and the JSON before the large member's letters */
    const uint8_t *large; /* what is left of it; borrowed */
    size_t left;
    bool base64;
    struct nsbx_utf8 chars; /* text: an incomplete character between two pieces */
    struct nsbx_buf text;
    bool open; /* the string of the large member is still to be closed */
    bool done;
};
/* -NSBX_E_LIMIT when the frame would be larger than the request's max_frame, -NSBX_E_INVALID for what cannot be said in an envelope. */
int nsbx_envelope_init(struct nsbx_envelope *e, const struct nsbx_op_row *row,
                       const struct nsbx_single_request *request, struct nsbx_err *err)
    __attribute__((warn_unused_result));
/* Appends the next piece (about NSBX_ENVELOPE_PIECE bytes); `done` says that it was the last. */
int nsbx_envelope_next(struct nsbx_envelope *e, struct nsbx_buf *out, struct nsbx_err *err)
    __attribute__((warn_unused_result));
void nsbx_envelope_free(
    struct nsbx_envelope *e); /* also of a zeroed one; the large member is not needed after it */

enum { NSBX_ENVELOPE_PIECE = 256 * 1024 };

#endif
