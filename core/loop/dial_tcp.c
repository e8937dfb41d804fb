#include "dial_priv.h"

#include <stdio.h>
#include <string.h>

static void on_resolved(void *ud, const struct nsbx_addr *addrs, size_t n, const struct nsbx_err *err)
{
    struct nsbx_dial *d = ud;
    d->stop_resolving = NULL;
    if (n == 0) {
        nsbx_dial_fail(d, err);
        return;
    }
    memcpy(d->addrs, addrs, n * sizeof *addrs);
    d->n_addrs = n;
    nsbx_dial_start(d);
}

static void stop_resolving(struct nsbx_dial *d)
{
    nsbx_resolve_stop(d->resolve);
}

struct nsbx_op *nsbx_stream_dial_tcp(struct nsbx_loop *loop, const char *host, uint16_t port, int64_t timeout_ms)
{
    struct nsbx_dial *d = nsbx_dial_new(loop, timeout_ms);
    if (!d)
        return NULL;
    struct nsbx_op *op = nsbx_op_ref(d->op);
    struct nsbx_err err;
    snprintf(d->target, sizeof d->target, strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, port);
    if (nsbx_addr_literal(&d->addrs[0], host, port)) {
        d->n_addrs = 1;
        nsbx_dial_start(d);
    } else if (nsbx_resolve_start(loop, host, port, on_resolved, d, &d->resolve, &err) < 0) {
        nsbx_dial_fail(d, &err);
    } else {
        d->stop_resolving = stop_resolving;
    }
    return op;
}
