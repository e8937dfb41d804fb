#include "timer.h"

#include "base/alloc.h"
#include "base/util.h"
#include "loop_priv.h"

struct nsbx_timer {
    struct nsbx_object object;
    uv_timer_t uv;
    void (*cb)(void *ud);
    void *ud;
};

static void on_timer(uv_timer_t *handle)
{
    struct nsbx_timer *t = handle->data;
    struct nsbx_loop *loop = t->object.loop;
    loop->in_timer = true;
    nsbx_loop_no_wait(loop);
    t->cb(t->ud);
    loop->in_timer = false;
}

struct nsbx_timer *nsbx_timer_new(struct nsbx_loop *loop, void (*cb)(void *ud), void *ud)
{
    struct nsbx_timer *t = nsbx_calloc(1, sizeof *t);
    if (!t)
        return NULL;
    uv_timer_init(loop->uv, &t->uv);
    t->uv.data = t;
    t->cb = cb;
    t->ud = ud;
    nsbx_object_open(&t->object, loop, "timer", NULL);
    return t;
}

void nsbx_timer_start(struct nsbx_timer *t, uint64_t ms)
{
    struct nsbx_loop *loop = t->object.loop;
    /* The loop's clock stands still between turns, however long a caller computes; a timer started then would fire early by
     * as much. In a timer's callback the clock must not move: libuv goes on until no timer is due, and for timers that
     * start each other there would always be one. For the same reason 0 is 1. */
    if (!loop->in_timer)
        uv_update_time(loop->uv);
    uv_timer_start(&t->uv, on_timer, NSBX_MAX(ms, 1), 0);
}

void nsbx_timer_stop(struct nsbx_timer *t)
{
    uv_timer_stop(&t->uv);
}

bool nsbx_timer_active(const struct nsbx_timer *t)
{
    return uv_is_active((const uv_handle_t *)&t->uv) != 0;
}

void nsbx_timer_unref(struct nsbx_timer *t)
{
    uv_unref((uv_handle_t *)&t->uv);
}

void nsbx_timer_close(struct nsbx_timer *t)
{
    if (t)
        nsbx_object_close(&t->object, (uv_handle_t *)&t->uv);
}
