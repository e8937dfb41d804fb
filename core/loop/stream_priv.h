/* For kinds of stream. stream.c is the state machine that all of them share: back-pressure, the queue, half-close, the order
 * of events, the life of the object. A kind adds only the five functions below, which never call back. Its struct begins with
 * struct nsbx_stream and is made by nsbx_calloc. */
#ifndef NSBX_LOOP_STREAM_PRIV_H
#define NSBX_LOOP_STREAM_PRIV_H

#include "base/buf.h"
#include "loop_priv.h"
#include "stream.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum nsbx_io {
    NSBX_IO_OK,    /* *n ≥ 1 bytes went */
    NSBX_IO_AGAIN, /* none can now */
    NSBX_IO_EOF,   /* reading only: the peer's clean end */
    NSBX_IO_FAILED /* err is set: STREAM_LOST or IO */
};

struct nsbx_stream_vtable {
    enum nsbx_io (*read)(struct nsbx_stream *s, uint8_t *into, size_t max, size_t *n, struct nsbx_err *err);
    enum nsbx_io (*write)(struct nsbx_stream *s, const struct iovec *iov, int count, size_t *n,
                          struct nsbx_err *err);
    /* Ends our direction: OK or FAILED. Called once, and only when half_close is set. */
    enum nsbx_io (*end)(struct nsbx_stream *s, struct nsbx_err *err);
    /* From now on call nsbx_stream_ready, from the loop, whenever this (NSBX_READABLE, NSBX_WRITABLE; 0: nothing) is possible. */
    void (*want)(struct nsbx_stream *s, unsigned interest);
    /* Lets go of everything but the memory of the struct, which is freed later. */
    void (*close)(struct nsbx_stream *s);
};

struct nsbx_stream {
    struct nsbx_object object;
    const struct nsbx_stream_vtable *vtable;
    bool half_close; /* set by the kind */
    bool unwritable; /* set by the kind: a pipe's read end and the like */
    const struct nsbx_stream_events *events;
    void *ud;
    struct nsbx_buf queue;
    bool reading;
    bool read_once;  /* read_start was called at least once */
    bool eof;        /* told */
    bool read_lost;  /* a read has failed: nothing more can come */
    bool ending;     /* shutdown was called */
    bool failed;     /* err is set */
    bool told;       /* of err */
    bool drain_owed; /* the failure dropped a queue */
    bool in_ready;   /* inside nsbx_stream_ready: interest is brought up to date at its end */
    bool closed;
    struct nsbx_defer later; /* tells of err; after close: frees */
    struct nsbx_err err;
};

void nsbx_stream_init(struct nsbx_stream *s, struct nsbx_loop *loop, const struct nsbx_stream_vtable *vtable,
                      const char *kind);
/* By the kind: reads and writes what can be, and tells the user. Only from the loop (a watch, a timer, a deferred function). */
void nsbx_stream_ready(struct nsbx_stream *s, unsigned ready);

/* ---- addresses of sockets (addr.c) ---- */

struct nsbx_addr {
    struct sockaddr_storage sa;
    socklen_t len;
};
/* A literal IPv4 or IPv6 address; false when it is none. */
bool nsbx_addr_literal(struct nsbx_addr *addr, const char *text, uint16_t port);
/* -NSBX_E_INVALID when the path is too long for a socket. */
int nsbx_addr_unix(struct nsbx_addr *addr, const char *path, struct nsbx_err *err)
    __attribute__((warn_unused_result));
/* A non-blocking stream socket of the address's family, tcp ones with TCP_NODELAY and keep-alive; or a negative code. */
int nsbx_addr_socket(const struct nsbx_addr *addr, struct nsbx_err *err) __attribute__((warn_unused_result));
void nsbx_tcp_tune(int fd); /* TCP_NODELAY, SO_KEEPALIVE 15 s; harmless on other sockets */

#endif
