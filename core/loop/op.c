#include "op.h"

#include "base/alloc.h"
#include "loop_priv.h"
#include "timer.h"

#include <inttypes.h>

struct nsbx_op {
    struct nsbx_object object; /* its name is the op's */
    unsigned refs;
    enum nsbx_op_state state;
    bool stopping;
    enum nsbx_op_stop why; /* when stopping */
    bool on_the_spot;      /* made without a stop function */
    void (*stop)(struct nsbx_op *op, void *owner, enum nsbx_op_stop why);
    void *owner;
    int64_t timeout_ms;
    struct nsbx_timer *deadline; /* NULL: none, or over */
    void *result;
    void (*free_result)(void *result);
    struct nsbx_err err;
    void (*cb)(struct nsbx_op *op, void *ud);
    void *ud;
    struct nsbx_defer call; /* holds a reference while pending */
};

static void ask_to_stop(struct nsbx_op *op, enum nsbx_op_stop why)
{
    if (op->state != NSBX_OP_PENDING || op->stopping)
        return;
    op->stopping = true;
    op->why = why;
    nsbx_op_ref(op); /* the owner may drop the last one in its stop function */
    if (op->on_the_spot)
        nsbx_op_finish_stopped(op);
    else if (op->stop)
        op->stop(op, op->owner, why);
    nsbx_op_unref(op);
}

static void on_deadline(void *ud)
{
    ask_to_stop(ud, NSBX_STOP_TIMEOUT);
}

struct nsbx_op *nsbx_op_new(struct nsbx_loop *loop, const struct nsbx_op_spec *spec)
{
    struct nsbx_op *op = nsbx_calloc(1, sizeof *op);
    if (!op)
        return NULL;
    if (spec->timeout_ms >= 0) {
        op->deadline = nsbx_timer_new(loop, on_deadline, op);
        if (!op->deadline) {
            nsbx_free(op);
            return NULL;
        }
        nsbx_timer_start(op->deadline, (uint64_t)spec->timeout_ms);
    }
    op->refs = 1;
    op->state = NSBX_OP_PENDING;
    op->on_the_spot = spec->stop == NULL;
    op->stop = spec->stop;
    op->owner = spec->owner;
    op->timeout_ms = spec->timeout_ms;
    nsbx_object_open(&op->object, loop, "op", spec->name);
    return op;
}

struct nsbx_op *nsbx_op_ref(struct nsbx_op *op)
{
    op->refs++;
    return op;
}

static void drop_result(struct nsbx_op *op)
{
    void *result = nsbx_op_take_result(op);
    if (result && op->free_result)
        op->free_result(result);
}

void nsbx_op_unref(struct nsbx_op *op)
{
    if (!op || --op->refs > 0)
        return;
    nsbx_timer_close(op->deadline);
    drop_result(op);
    nsbx_object_gone(&op->object);
    nsbx_free(op);
}

/* ---- the owner's side ---- */

void nsbx_op_set_result(struct nsbx_op *op, void *result, void (*free_result)(void *result))
{
    if (op->state != NSBX_OP_PENDING)
        nsbx_misuse("a result was set on the finished operation %s", op->object.name);
    drop_result(op);
    op->result = result;
    op->free_result = free_result;
}

static void call_waiter(struct nsbx_defer *d)
{
    struct nsbx_op *op = nsbx_container_of(d, struct nsbx_op, call);
    void (*cb)(struct nsbx_op *, void *) = op->cb;
    op->cb = NULL;
    cb(op, op->ud);
    nsbx_op_unref(op);
}

static void schedule_waiter(struct nsbx_op *op)
{
    nsbx_op_ref(op);
    nsbx_loop_defer(op->object.loop, &op->call, call_waiter);
}

static void set_state(struct nsbx_op *op, enum nsbx_op_state state)
{
    if (op->state != NSBX_OP_PENDING)
        nsbx_misuse("the operation %s finished twice", op->object.name);
    op->state = state;
    nsbx_timer_close(op->deadline);
    op->deadline = NULL;
    if (op->cb)
        schedule_waiter(op);
}

void nsbx_op_finish(struct nsbx_op *op, const struct nsbx_err *err)
{
    if (!err) {
        set_state(op, NSBX_OP_DONE);
        return;
    }
    enum nsbx_op_state state = NSBX_OP_FAILED;
    if (err->code == NSBX_E_TIMEOUT)
        state = NSBX_OP_TIMED_OUT;
    else if (err->code == NSBX_E_CANCELLED)
        state = NSBX_OP_CANCELLED;
    set_state(op, state);
    nsbx_err_copy(&op->err, err);
}

void nsbx_op_finish_stopped(struct nsbx_op *op)
{
    struct nsbx_err err = {0};
    if (op->stopping && op->why == NSBX_STOP_TIMEOUT)
        nsbx_err_set(&err, NSBX_E_TIMEOUT, "%s timed out after %" PRId64 " ms", op->object.name, op->timeout_ms);
    else
        nsbx_err_set(&err, NSBX_E_CANCELLED, "%s was cancelled", op->object.name);
    nsbx_op_finish(op, &err);
}

void nsbx_op_disown(struct nsbx_op *op)
{
    op->stop = NULL;
    op->owner = NULL;
}

/* ---- the waiter's side ---- */

void nsbx_op_cancel(struct nsbx_op *op)
{
    ask_to_stop(op, NSBX_STOP_CANCEL);
}

enum nsbx_op_state nsbx_op_state(const struct nsbx_op *op)
{
    return op->state;
}

bool nsbx_op_stopping(const struct nsbx_op *op)
{
    return op->stopping;
}

const char *nsbx_op_name(const struct nsbx_op *op)
{
    return op->object.name;
}

const struct nsbx_err *nsbx_op_err(const struct nsbx_op *op)
{
    return op->err.code ? &op->err : NULL;
}

void *nsbx_op_result(const struct nsbx_op *op)
{
    return op->result;
}

void *nsbx_op_take_result(struct nsbx_op *op)
{
    void *result = op->result;
    op->result = NULL;
    return result;
}

void nsbx_op_on_finish(struct nsbx_op *op, void (*cb)(struct nsbx_op *op, void *ud), void *ud)
{
    if (cb && op->cb)
        nsbx_misuse("two waiters of the operation %s", op->object.name);
    op->cb = cb;
    op->ud = ud;
    if (cb && op->state != NSBX_OP_PENDING) {
        schedule_waiter(op);
    } else if (!cb && op->call.pending) {
        nsbx_defer_cancel(&op->call);
        nsbx_op_unref(op);
    }
}
