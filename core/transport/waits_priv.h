/* Operations that wait for one thing: "there is output", "it has ended". A wait owns nothing, so a cancel or a deadline
 * ends the waiting only and takes it off its list. */
#ifndef NSBX_TRANSPORT_WAITS_PRIV_H
#define NSBX_TRANSPORT_WAITS_PRIV_H

#include "base/list.h"
#include "loop/op.h"

struct nsbx_waits {
    struct nsbx_list list;
};

void nsbx_waits_init(struct nsbx_waits *w);
/* A reference for the caller. NULL without memory. `name` is static. */
struct nsbx_op *nsbx_waits_add(struct nsbx_waits *w, struct nsbx_loop *loop, const char *name, int64_t timeout_ms);
/* Finishes all of them: done with `result` (lent, never freed by the op) when err is NULL, else failed. */
void nsbx_waits_finish(struct nsbx_waits *w, const struct nsbx_err *err, void *result);

/* An operation that is finished already, in the same two ways. A reference for the caller; NULL without memory. */
struct nsbx_op *nsbx_waits_over(struct nsbx_loop *loop, const char *name, const struct nsbx_err *err, void *result);

#endif
