/* The guest's end of the published carrier, inside: what its files share of a connection and of the server. A connection goes through
 * the phases below; each file has one of them. */
#ifndef NSBX_CHANNEL_SINGLE_PRIV_H
#define NSBX_CHANNEL_SINGLE_PRIV_H

#include "base/list.h"
#include "channel_priv.h"
#include "loop/timer.h"
#include "single.h"
#include "spool_priv.h"
#include "wire_priv.h"

enum { NSBX_TOKEN_MAX = NSBX_JSCAN_WATCH_MAX };
/* Of one size whatever its length is, so that comparing it tells nothing of either. */
struct nsbx_token {
    uint8_t bytes[NSBX_TOKEN_MAX];
    uint8_t len[2];
};

enum nsbx_conn_phase {
    NSBX_CONN_GATE,   /* unauthenticated: bounded and against the clock (single_gate.c) */
    NSBX_CONN_INTAKE, /* the first frame is read (single_intake.c) */
    NSBX_CONN_OPEN,   /* the operation has its channel (single_guest_channel.c) */
    NSBX_CONN_LINGER, /* all is said; what is queued goes out and the peer's end is awaited (single_guest.c) */
    NSBX_CONN_DEAD,   /* the stream is gone; the operation may still hold the channel */
};

struct nsbx_gate;
struct nsbx_intake;

struct nsbx_conn {
    struct nsbx_channel ch; /* first */
    struct nsbx_single_server *server;
    struct nsbx_stream *stream;
    struct nsbx_timer *timer; /* the gate's clock, then the lingering's; NULL until there is one */
    enum nsbx_conn_phase phase;
    int busy;                   /* callbacks of ours on the stack */
    bool held;                  /* by the operation, which has not closed its channel */
    struct nsbx_list node;      /* in server->all */
    struct nsbx_list pool;      /* in server->gate_pool, or in server->refused while a refusal goes out */
    struct nsbx_gate *gate;     /* as long as it counts as unauthenticated; a healthz does to its end */
    struct nsbx_intake *intake; /* phase INTAKE */
    struct nsbx_list early;     /* struct nsbx_block: bytes that came before the token, to be read again */

    /* phase OPEN */
    bool sent_end;   /* our direction is shut down */
    bool peer_ended; /* theirs is */
    bool refused;    /* the answer is a refusal: no terminator */
    bool talks;      /* data or messages may still come */
    bool told_end;
    bool told_fail;
    bool paused; /* for a reader that is slow */
    size_t unconsumed;
    struct nsbx_inbox inbox;
    struct nsbx_wire_writer writer;
    struct nsbx_spool *spool; /* the large member, being replayed */
    bool spool_base64;
    struct nsbx_base64_decoder decoder;
    struct nsbx_defer pump; /* replays it, and says on_end */
    bool large_reply;       /* a reply's large member is being sent: */
    bool large_escaped;     /* as it is, not as base64; */
    uint64_t owed;          /* so many bytes of it are still to come, */
    uint8_t carry[3];       /* and these wait to be three */
    uint8_t carried;

    struct nsbx_buf
        out; /* small frames of this turn: a result, its terminator and the FIN are one wake-up of the host */
    struct nsbx_defer cork; /* sends them */

    bool refusing;    /* lingering with a refusal: against the clock */
    size_t left_last; /* lingering: queued bytes when the clock was last looked at */
};

struct nsbx_single_server {
    struct nsbx_loop *loop;
    struct nsbx_single_server_config config;
    bool guarded; /* tokens are wanted */
    bool bound;   /* and the one is known */
    bool closing;
    struct nsbx_token token;
    size_t connections;
    struct nsbx_list all;
    struct nsbx_list gate_pool; /* unauthenticated ones, oldest first */
    struct nsbx_list refused;   /* those that are being told so, oldest first */
    size_t pool_size, refused_size;
    size_t held;                 /* bytes held of all unauthenticated connections */
    size_t gate_read;            /* bytes of theirs that were looked at in this turn */
    struct nsbx_defer gate_rest; /* the end of the turn */
    struct nsbx_buf scratch;     /* frames are built here */
    struct nsbx_buf decoded;     /* base64 of a replay is decoded here */
};

/* ---- single_guest.c ---- */
/* Around everything the loop calls. The connection may be gone after leave. */
void nsbx_conn_enter(struct nsbx_conn *c);
void nsbx_conn_leave(struct nsbx_conn *c);
/* The stream is closed. An operation that holds the channel hears `err` (NULL: it is told nothing); else the connection goes. */
void nsbx_conn_break(struct nsbx_conn *c, const struct nsbx_err *err);
/* The refusal of whatever comes before OPEN: one frame (as_stream: and a terminator), our end, and a short time for it to go out.
 * Takes `reply` over; NULL (no memory) breaks off. */
void nsbx_conn_refuse(struct nsbx_conn *c, json_t *reply, bool as_stream);
void nsbx_conn_refuse_text(struct nsbx_conn *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Everything is said and the channel closed: lets the queue go out and waits a moment for the peer's end. */
void nsbx_conn_linger(struct nsbx_conn *c);
int nsbx_conn_emit(void *conn, const uint8_t *bytes, size_t n, struct nsbx_err *err); /* an nsbx_wire_emit */
size_t nsbx_conn_queued(const struct nsbx_conn *c);                                   /* unsent bytes */
int nsbx_conn_shutdown(struct nsbx_conn *c, struct nsbx_err *err);

/* ---- single_gate.c ---- */
int nsbx_token_set(struct nsbx_token *token, const char *text, size_t n, struct nsbx_err *err);
int nsbx_gate_enter(struct nsbx_conn *c,
                    struct nsbx_err *err); /* a new connection joins the pool; the oldest may have to go */
void nsbx_gate_read(struct nsbx_conn *c, const uint8_t *bytes, size_t n);
void nsbx_gate_tick(struct nsbx_conn *c);
void nsbx_gate_leave(
    struct nsbx_conn *c); /* out of the pool, its bytes uncharged and dropped; safe when it is not in it */

struct nsbx_block {
    struct nsbx_list node;
    size_t len;
    uint8_t bytes[];
};
void nsbx_block_drop_all(struct nsbx_list *blocks);

/* ---- single_intake.c ---- */
int nsbx_intake_start(struct nsbx_conn *c, struct nsbx_err *err);
void nsbx_intake_replay(struct nsbx_conn *c); /* reads c->early before anything else */
void nsbx_intake_read(struct nsbx_conn *c, const uint8_t *bytes, size_t n);
void nsbx_intake_free(struct nsbx_conn *c); /* safe when there is none */
/* Serves the operation: past its fences it gets its channel. `body` is borrowed, `spool` (may be NULL) taken over. */
void nsbx_intake_serve(struct nsbx_conn *c, const struct nsbx_op_row *row, json_t *body, struct nsbx_spool *spool);

/* ---- single_guest_channel.c ---- */
/* `spool` (may be NULL) is taken over. */
int nsbx_conn_open(struct nsbx_conn *c, const struct nsbx_op_row *row, json_t *body, struct nsbx_spool *spool,
                   struct nsbx_err *err);
void nsbx_conn_read(struct nsbx_conn *c, const uint8_t *bytes, size_t n);
void nsbx_conn_tell_fail(struct nsbx_conn *c,
                         const struct nsbx_err *err); /* once, and only to an operation that holds the channel */
void nsbx_conn_close_parts(struct nsbx_conn *c);      /* what the phase OPEN owns */

#endif
