/* A byte stream: tcp, unix, pipe, in-memory pair (and later a port-forward). One conformance spec runs on all kinds.
 * Reading is push with back-pressure (start/stop); writing queues what the kernel does not take and says when it drained.
 * Sockets are written with MSG_NOSIGNAL; no kind can raise SIGPIPE in this process. No callback runs after close, and none
 * runs inside a call that the user makes on the stream (they come from the loop). A callback may close its stream. */
#ifndef NSBX_LOOP_STREAM_H
#define NSBX_LOOP_STREAM_H

#include "base/err.h"
#include "loop.h"
#include "op.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nsbx_stream;

struct nsbx_stream_events {
    /* n ≥ 1; borrowed for the call; read_stop inside is honoured before the next call */
    void (*on_read)(void *ud, const uint8_t *bytes, size_t n);
    /* once: the peer's clean end, after all its bytes; writing may go on */
    void (*on_eof)(void *ud);
    /* once; STREAM_LOST or IO; only close may follow */
    void (*on_error)(void *ud, const struct nsbx_err *err);
    /* the queue ran empty after it held something */
    void (*on_drain)(void *ud);
};
/* A failed write does not make untrue what the peer sent before: those bytes are delivered first, then on_error (no on_eof: the
 * kernel cannot be believed any more). A reader who has stopped learns of it when he starts again; had he something queued, it
 * is dropped and on_drain comes at once, so that nobody waits for ever. Who never started reading is told at once. */

/* `events` is static for the stream's life. Set before read_start. A stream without events may be written only. */
void nsbx_stream_set_events(struct nsbx_stream *s, const struct nsbx_stream_events *events, void *ud);
void nsbx_stream_read_start(struct nsbx_stream *s);
void nsbx_stream_read_stop(struct nsbx_stream *s);
/* Copies what cannot be sent at once. -NSBX_E_LIMIT (nothing queued) beyond NSBX_STREAM_QUEUE, -NSBX_E_STREAM_LOST after an error
 * (on_error tells of it too), -NSBX_E_INVALID after shutdown. The two-part form avoids joining a header and a payload. */
int nsbx_stream_write(struct nsbx_stream *s, const void *bytes, size_t n, struct nsbx_err *err)
    __attribute__((warn_unused_result));
int nsbx_stream_write2(struct nsbx_stream *s, const void *a, size_t an, const void *b, size_t bn,
                       struct nsbx_err *err) __attribute__((warn_unused_result));
size_t nsbx_stream_queued(const struct nsbx_stream *s);     /* unsent bytes */
bool nsbx_stream_can_shutdown(const struct nsbx_stream *s); /* whether this kind has a half-close */
/* Ends our direction once the queue is sent; reading goes on. -NSBX_E_UNSUPPORTED where the kind has none. */
int nsbx_stream_shutdown(struct nsbx_stream *s, struct nsbx_err *err) __attribute__((warn_unused_result));
/* Drops what is queued, closes, frees itself later. NULL is fine. */
void nsbx_stream_close(struct nsbx_stream *s);
const char *nsbx_stream_kind(const struct nsbx_stream *s); /* "tcp", "unix", "pipe", "mem" */

/* Takes the descriptor over, also on failure (made non-blocking, kind by what it is: a socket or a pipe/FIFO/character device). */
int nsbx_stream_from_fd(struct nsbx_loop *loop, int fd, struct nsbx_stream **out, struct nsbx_err *err)
    __attribute__((warn_unused_result));
/* Two ends in one process. `capacity` bytes in flight each way (≥ 1); `max_io` > 0 bounds each delivered read and each accepted write
 * step (1 = byte by byte), for tests. */
int nsbx_stream_pair(struct nsbx_loop *loop, size_t capacity, size_t max_io, struct nsbx_stream *out[2],
                     struct nsbx_err *err) __attribute__((warn_unused_result));

/* Dialling: an op whose result is a struct nsbx_stream * (take it with nsbx_op_take_result; an untaken one is closed).
 * `path` is a file system path, or "/proc/self/fd/N" for a socket opened O_PATH. NULL without memory. */
struct nsbx_op *nsbx_stream_dial_unix(struct nsbx_loop *loop, const char *path, int64_t timeout_ms);
/* host: a literal address or a name (resolved off the loop). TCP_NODELAY and SO_KEEPALIVE (15 s) are set. */
struct nsbx_op *nsbx_stream_dial_tcp(struct nsbx_loop *loop, const char *host, uint16_t port, int64_t timeout_ms);

struct nsbx_listener;
/* `on_accept` owns the stream it gets. An accept that fails for want of descriptors pauses 100 ms and goes on; it never spins. */
typedef void nsbx_accept_cb(void *ud, struct nsbx_stream *stream);
/* `fd`: a bound, listening socket; taken over, also on failure. */
int nsbx_listen_fd(struct nsbx_loop *loop, int fd, nsbx_accept_cb *cb, void *ud, struct nsbx_listener **out,
                   struct nsbx_err *err) __attribute__((warn_unused_result));
/* Unlinks a stale path first: a socket that nobody listens on, nothing else. */
int nsbx_listen_unix(struct nsbx_loop *loop, const char *path, nsbx_accept_cb *cb, void *ud,
                     struct nsbx_listener **out, struct nsbx_err *err) __attribute__((warn_unused_result));
/* `address`: a literal IPv4 or IPv6 address; port 0: any. */
int nsbx_listen_tcp(struct nsbx_loop *loop, const char *address, uint16_t port, nsbx_accept_cb *cb, void *ud,
                    struct nsbx_listener **out, struct nsbx_err *err) __attribute__((warn_unused_result));
uint16_t nsbx_listener_port(const struct nsbx_listener *l); /* 0 unless tcp */
void nsbx_listener_close(struct nsbx_listener *l);          /* NULL is fine */

#endif
