/* Dials until there is a connection, the budget is spent or a failure is permanent. */
#ifndef NSBX_CHANNEL_DIALLER_PRIV_H
#define NSBX_CHANNEL_DIALLER_PRIV_H

#include "loop/timer.h"
#include "single.h"

struct nsbx_dialler {
    struct nsbx_loop *loop;
    nsbx_dial_fn *dial;
    bool (*permanent)(void *dial_ud, const struct nsbx_err *err);
    void *dial_ud;
    int64_t budget_ms; /* looked at after a failed attempt only */
    uint64_t start;
    struct nsbx_op *attempt;  /* NULL between two */
    struct nsbx_timer *pause; /* NULL until one is needed */
    /* Exactly one of them, once, from the loop; nothing is under way any more. */
    void (*connected)(void *ud, struct nsbx_stream *stream);
    void (*gave_up)(void *ud, const struct nsbx_err *err); /* UNREACHABLE: no byte has reached anybody */
    void *ud;
};
/* Fill in what says how to dial and whom to tell, zero the rest. -NSBX_E_LIMIT without memory. */
int nsbx_dialler_start(struct nsbx_dialler *d, struct nsbx_err *err) __attribute__((warn_unused_result));
void nsbx_dialler_stop(struct nsbx_dialler *d); /* no callback after it; safe at any time */

#endif
