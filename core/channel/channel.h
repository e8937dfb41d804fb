/* A channel: one operation's conversation between host and guest: JSON messages plus raw data on sub-streams, both ways.
 * The operation code of both sides sees only this; how it travels is the carrier's matter (the published wire: one
 * connection per operation, see single.h; later one multiplexed connection). Callbacks come from the loop, never from inside a call
 * that the user makes on the channel. A callback may close its channel. */
#ifndef NSBX_CHANNEL_CHANNEL_H
#define NSBX_CHANNEL_CHANNEL_H

#include "base/err.h"
#include "ops.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nsbx_channel;

struct nsbx_channel_events {
    void (*on_message)(void *ud, json_t *message); /* borrowed; incref to keep */
    /* Raw bytes, borrowed, n ≥ 1. `offset`: position of the first byte where the operation counts (retained output), else -1.
     * Give the bytes back with nsbx_channel_consumed when they are dealt with: an unconsumed window (NSBX_CHANNEL_WINDOW) stops the peer.
     * The large member of a control reply comes before its message: whether it was asked for is known only then. */
    void (*on_data)(void *ud, enum nsbx_sub sub, const uint8_t *bytes, size_t n, int64_t offset);
    /* The peer has finished its direction cleanly; nothing more comes. Once. On the host of a published connection this is the
     * FIN after a complete reply or terminator: only now is the reply valid. */
    void (*on_end)(void *ud);
    /* The conversation broke, once; instead of or after on_end; only close may follow. UNREACHABLE: never connected, so no byte
     * reached the peer. STREAM_LOST: the connection ended or broke midway. PROTOCOL, LIMIT, TIMEOUT (idle). */
    void (*on_fail)(void *ud, const struct nsbx_err *err);
    /* There is room to send again after nsbx_channel_room was 0. */
    void (*on_drain)(void *ud);
};

/* `events` is static for the channel's life; members may be NULL. */
void nsbx_channel_set_events(struct nsbx_channel *ch, const struct nsbx_channel_events *events, void *ud);
const struct nsbx_op_row *nsbx_channel_op(const struct nsbx_channel *ch);

/* Takes over the reference to `message` (also on failure). A NULL message is out of memory and reported as such. */
int nsbx_channel_send(struct nsbx_channel *ch, json_t *message, struct nsbx_err *err)
    __attribute__((warn_unused_result));
/* Copies. May be called with more than room: room is advice, the hard bound is NSBX_STREAM_QUEUE (-NSBX_E_LIMIT). Any size; cut as the carrier needs. */
int nsbx_channel_data(struct nsbx_channel *ch, enum nsbx_sub sub, const uint8_t *bytes, size_t n, int64_t offset,
                      struct nsbx_err *err) __attribute__((warn_unused_result));
/* How a large member is made of the bytes of a reply. */
enum nsbx_large_form {
    NSBX_LARGE_BASE64,  /* by this side: their base64 */
    NSBX_LARGE_ESCAPED, /* they are the inside of a JSON string as they are (nsbx_json_escape) */
};
/* Guest, control rows with a `reply_large`: sends a reply whose large member is made of the `n` bytes that follow by
 * nsbx_channel_data on NSBX_SUB_MAIN, exactly n before nsbx_channel_end (fewer: the conversation can only be closed, which the host
 * sees as a loss). Takes `message` over, which is without that member. For large files: nothing is held whole. */
int nsbx_channel_send_large(struct nsbx_channel *ch, json_t *message, enum nsbx_large_form form, uint64_t n,
                            struct nsbx_err *err) __attribute__((warn_unused_result));
/* Our direction is finished: guest: the terminator where the shape has one, then FIN; host: the end of its data (stdin). */
int nsbx_channel_end(struct nsbx_channel *ch, struct nsbx_err *err) __attribute__((warn_unused_result));
size_t nsbx_channel_room(
    const struct nsbx_channel *ch); /* bytes that may be sent now without growing the queue past its high water */
void nsbx_channel_consumed(struct nsbx_channel *ch, size_t n);
/* For messages that are kept rather than dealt with at once: n bytes more of the window are taken, until nsbx_channel_consumed gives them back. */
void nsbx_channel_hold(struct nsbx_channel *ch, size_t n);
/* No callback after it. Finished both ways: frees. Else aborts: the peer sees the connection (or channel) break. On the guest after
 * nsbx_channel_end it is the graceful close: what is queued is still delivered. NULL is fine. */
void nsbx_channel_close(struct nsbx_channel *ch);

/* Guest: a refusal in control shape, whatever the operation's shape, then FIN without a terminator. Takes `message` over. Close follows. */
int nsbx_channel_refuse(struct nsbx_channel *ch, json_t *message, struct nsbx_err *err)
    __attribute__((warn_unused_result));

#endif
