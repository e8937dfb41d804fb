/* The published carrier: one connection per operation, framed JSON, base64 or UTF-8 text for data. Both ends. */
#ifndef NSBX_CHANNEL_SINGLE_H
#define NSBX_CHANNEL_SINGLE_H

#include "channel.h"
#include "loop/loop.h"
#include "loop/stream.h"

/* ---- host end ---- */

/* Makes a connection: returns an op as nsbx_stream_dial_* do. `ud` as given below. */
typedef struct nsbx_op *nsbx_dial_fn(void *ud, struct nsbx_loop *loop, int64_t timeout_ms);

struct nsbx_single_request {
    const char *op;    /* a row of ops.h */
    json_t *body;      /* borrowed; NULL = none. Without the large member */
    const char *token; /* NULL = none; travels before the body, so that a guest can check it early */
    const uint8_t *
        large; /* bytes of the row's large member; NULL = the body has none. Borrowed until on_end, on_fail or close */
    size_t large_len;
    bool
        large_base64; /* encode them (the body must say encoding:"base64"); else they are sent as (sanitised) text */
    bool data_base64; /* the request says encoding:"base64": decode deltas, and a reply's large member, as base64 */
    bool
        data_strict; /* with data_base64: what is none breaks the protocol; else it is passed over, as the published peers do */
    size_t max_frame;       /* refuse (LIMIT, before dialling) an envelope larger than this; 0 = NSBX_MAX_FRAME */
    int64_t dial_budget_ms; /* attempts of NSBX_DIAL_ATTEMPT_MS, NSBX_DIAL_PAUSE_MS apart; <0 = one attempt only */
    bool (*permanent)(
        void *dial_ud,
        const struct nsbx_err *err); /* this failed attempt will not mend: stop dialling. NULL = none is */
    int64_t
        idle_ms; /* fail (TIMEOUT) after so long without a byte while reading; <0 = never. Not counted while the reader is the slow one */
};
/* Dials, sends, reads. Everything is copied but `large`. NULL only with err set (no memory, LIMIT: the envelope is too large, INVALID:
 * no such op), and then nothing was dialled; every other failure comes by on_fail. */
struct nsbx_channel *nsbx_single_open(struct nsbx_loop *loop, nsbx_dial_fn *dial, void *dial_ud,
                                      const struct nsbx_single_request *request,
                                      const struct nsbx_channel_events *events, void *ud, struct nsbx_err *err);
/* Exact length of the envelope that `request` makes, without encoding it: for deciding about parts. */
size_t nsbx_single_envelope_len(const struct nsbx_single_request *request);

/* ---- guest end ---- */

struct nsbx_single_server; /* what all connections of one agent share: the gate's state and pre-auth accounting */

struct nsbx_single_server_config {
    const char *bind_token; /* NULL = none; copied, wipe yours */
    bool require_token;     /* trust on first use when there is no bind_token */
    size_t max_frame, max_preauth_frame, max_preauth_buffer;
    unsigned max_preauth_connections;
    uint64_t preauth_idle_ms, preauth_deadline_ms, refusal_flush_ms;
    int spool_dir_fd; /* where a large member beyond NSBX_SPOOL_MEMORY goes (an unnamed file); borrowed; -1: refused as too large */
    /* An authenticated request. `body` is borrowed, NULL when absent. The callee owns `ch`: it sets events before it returns and closes it in the
     * end. Data of a large member, then on_end (for rows without data to the guest: on_end alone), follow from the loop. `op` may be unknown: row NULL
     * never comes here; the server answers unknown_op itself through `gate`. */
    void (*on_open)(void *ud, struct nsbx_channel *ch, json_t *body);
    /* The dispatch gate, after authentication and before on_open: NULL to serve, or a new refusal object to send: in control shape
     * (*as_stream false) or as typed error with terminator (*as_stream true). Knows fences; called for every op but unknown ones. */
    json_t *(*gate)(void *ud, const struct nsbx_op_row *row, bool *as_stream);
    void *ud;
};
struct nsbx_single_server *nsbx_single_server_new(struct nsbx_loop *loop,
                                                  const struct nsbx_single_server_config *config,
                                                  struct nsbx_err *err);
/* Serves one accepted connection; takes the stream over, also on failure. */
void nsbx_single_serve(struct nsbx_single_server *server, struct nsbx_stream *stream);
size_t nsbx_single_connections(
    const struct nsbx_single_server *server); /* open connections, served channels included */
/* Destroys every connection whose channel is not open: not yet, or not any more; open channels live on until closed. Frees itself when the last is gone. */
void nsbx_single_server_close(struct nsbx_single_server *server);

#endif
