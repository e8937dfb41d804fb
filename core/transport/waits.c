#include "waits_priv.h"

#include "base/alloc.h"

struct wait {
    struct nsbx_list node;
    struct nsbx_op *op;
};

void nsbx_waits_init(struct nsbx_waits *w)
{
    nsbx_list_init(&w->list);
}

static void drop(struct wait *w)
{
    nsbx_list_remove(&w->node);
    nsbx_op_unref(w->op);
    nsbx_free(w);
}

static void wait_stop(struct nsbx_op *op, void *owner, enum nsbx_op_stop why)
{
    (void)why;
    nsbx_op_finish_stopped(op);
    drop(owner);
}

struct nsbx_op *nsbx_waits_add(struct nsbx_waits *w, struct nsbx_loop *loop, const char *name, int64_t timeout_ms)
{
    struct wait *wait = nsbx_malloc(sizeof *wait);
    if (!wait)
        return NULL;
    struct nsbx_op_spec spec = {.name = name, .timeout_ms = timeout_ms, .stop = wait_stop, .owner = wait};
    wait->op = nsbx_op_new(loop, &spec);
    if (!wait->op) {
        nsbx_free(wait);
        return NULL;
    }
    nsbx_list_push(&w->list, &wait->node);
    return nsbx_op_ref(wait->op);
}

void nsbx_waits_finish(struct nsbx_waits *w, const struct nsbx_err *err, void *result)
{
    struct nsbx_list *node;
    while ((node = nsbx_list_first(&w->list))) {
        struct wait *wait = nsbx_container_of(node, struct wait, node);
        if (!err && result)
            nsbx_op_set_result(wait->op, result, NULL);
        nsbx_op_finish(wait->op, err);
        drop(wait);
    }
}

struct nsbx_op *nsbx_waits_over(struct nsbx_loop *loop, const char *name, const struct nsbx_err *err, void *result)
{
    struct nsbx_op_spec spec = {.name = name, .timeout_ms = -1};
    struct nsbx_op *op = nsbx_op_new(loop, &spec);
    if (!op)
        return NULL;
    if (!err && result)
        nsbx_op_set_result(op, result, NULL);
    nsbx_op_finish(op, err);
    return op;
}
