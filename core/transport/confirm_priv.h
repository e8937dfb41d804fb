/* Asking the guest to end an execution by its id, again and again on new connections, until it confirms that nothing of it
 * runs, refuses for good, or the cancel window has passed. Part of its owner's struct, so that no allocation stands between a
 * broken execution and the first attempt. */
#ifndef NSBX_TRANSPORT_CONFIRM_PRIV_H
#define NSBX_TRANSPORT_CONFIRM_PRIV_H

#include "call_priv.h"
#include "exec_result_priv.h"
#include "loop/timer.h"

struct nsbx_confirm {
    struct nsbx_guest *guest;
    struct nsbx_timer *timer; /* the pause between two attempts */
    struct nsbx_call *request;
    const char *id;
    uint64_t deadline;
    bool running;
    struct nsbx_err last; /* why the last attempt failed */
    /* From the loop; `running` is false already. Exactly one of ack and err. */
    void (*done)(void *ud, const struct nsbx_exec_ack *ack, const struct nsbx_err *err);
    void *ud;
};

/* The guest must outlive it. */
int nsbx_confirm_init(struct nsbx_confirm *c, struct nsbx_guest *guest,
                      void (*done)(void *ud, const struct nsbx_exec_ack *ack, const struct nsbx_err *err), void *ud,
                      struct nsbx_err *err) __attribute__((warn_unused_result));
void nsbx_confirm_start(struct nsbx_confirm *c,
                        const char *id);        /* `id` is borrowed; a running one goes on as it was */
void nsbx_confirm_stop(struct nsbx_confirm *c); /* no `done` */
void nsbx_confirm_fini(struct nsbx_confirm *c);

/* Gives an unspent reservation back: one attempt in the background. Nobody waits for it, since the lease ends by itself. */
void nsbx_confirm_release(struct nsbx_guest *guest, const char *id);

#endif
