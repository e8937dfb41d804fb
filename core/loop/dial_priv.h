/* What dialling by path (dial.c) and by host (dial_tcp.c) share: addresses are tried in their order until one answers. A
 * program that dials no host links neither dial_tcp.c nor resolve.c, and so no getaddrinfo. */
#ifndef NSBX_LOOP_DIAL_PRIV_H
#define NSBX_LOOP_DIAL_PRIV_H

#include "stream_priv.h"
#include "timer.h"

enum { NSBX_DIAL_ADDRESSES = 16 }; /* of one name; more are ignored */

struct nsbx_dial {
    struct nsbx_loop *loop;
    struct nsbx_op *op;   /* a reference of ours */
    uint64_t deadline_ms; /* 0 = none */
    char target[288];     /* for messages */
    struct nsbx_addr addrs[NSBX_DIAL_ADDRESSES];
    size_t n_addrs, next;
    int fd;                   /* the socket that is connecting, or -1 */
    struct nsbx_watch *watch; /* of it */
    struct nsbx_timer
        *timer; /* the end of this address's share of the time, or the pause before a full backlog is tried again */
    struct nsbx_defer start;
    void (*stop_resolving)(struct nsbx_dial *d); /* NULL unless a resolver runs */
    struct nsbx_resolve *resolve;
    struct nsbx_err last; /* why the latest address failed */
};

/* The dial of a new op, to be started by nsbx_dial_start or ended by nsbx_dial_fail. NULL without memory. */
struct nsbx_dial *nsbx_dial_new(struct nsbx_loop *loop, int64_t timeout_ms);
/* Tries d->addrs, which has at least one. */
void nsbx_dial_start(struct nsbx_dial *d);
void nsbx_dial_fail(struct nsbx_dial *d, const struct nsbx_err *err); /* finishes the op and frees the dial */

/* ---- names (resolve.c) ---- */

struct nsbx_resolve;
/* `n` > 0 addresses, or 0 and an err. Called on the loop, once, unless stopped before. */
typedef void nsbx_resolve_cb(void *ud, const struct nsbx_addr *addrs, size_t n, const struct nsbx_err *err);
int nsbx_resolve_start(struct nsbx_loop *loop, const char *host, uint16_t port, nsbx_resolve_cb *cb, void *ud,
                       struct nsbx_resolve **out, struct nsbx_err *err) __attribute__((warn_unused_result));
void nsbx_resolve_stop(struct nsbx_resolve *r); /* not after its callback */

#endif
