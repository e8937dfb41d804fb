/* A control request: one connection, one reply. */
#ifndef NSBX_TRANSPORT_CALL_PRIV_H
#define NSBX_TRANSPORT_CALL_PRIV_H

#include "base/buf.h"
#include "guest_priv.h"

struct nsbx_call;

struct nsbx_call_spec {
    const char *op;       /* a row of channel/ops.h; static */
    json_t *body;         /* borrowed for the call; NULL = none */
    const uint8_t *large; /* borrowed until done or close */
    size_t large_len;
    bool large_base64;
    struct nsbx_buf
        *into; /* gathers the reply's large member, base64 decoded; NULL = dropped. Lent until done or close */
    int64_t whole_ms; /* bound of the whole request, dial included; < 0: the dial budget and the idle bound alone */
    /* From the loop, once; the request is gone already. err NULL: the guest said ok and closed properly. Else `reply` is the refusal, or
     * NULL when there is none; a bound that ran out before there was a connection is UNREACHABLE, after it TIMEOUT. */
    void (*done)(void *ud, json_t *reply, const struct nsbx_err *err);
    void *ud;
};
/* -NSBX_E_…: nothing was sent and `done` is not called. Keeps the guest alive. */
int nsbx_call_open(struct nsbx_guest *guest, const struct nsbx_call_spec *spec, struct nsbx_call **out,
                   struct nsbx_err *err) __attribute__((warn_unused_result));
void nsbx_call_close(struct nsbx_call *c); /* breaks it off; no `done` any more; NULL is fine */

#endif
