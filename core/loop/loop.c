#include "loop_priv.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A deferred function may defer again; so many generations run in one turn before I/O gets its chance. */
enum { DEFER_ROUNDS = 16 };

void nsbx_misuse(const char *fmt, ...)
{
    char text[NSBX_ERR_MESSAGE];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    nsbx_log(NSBX_LOG_ERROR, "programmer's error: %s", text);
    abort();
}

/* ---- deferred functions ---- */

static void on_busy(uv_idle_t *handle)
{
    (void)handle; /* being active is all it is for */
}

void nsbx_loop_no_wait(struct nsbx_loop *loop)
{
    uv_idle_start(&loop->busy, on_busy);
}

void nsbx_loop_defer(struct nsbx_loop *loop, struct nsbx_defer *d, void (*fn)(struct nsbx_defer *d))
{
    if (d->pending)
        return;
    d->pending = true;
    d->fn = fn;
    nsbx_list_push(&loop->deferred, &d->node);
    nsbx_loop_no_wait(loop);
}

void nsbx_defer_cancel(struct nsbx_defer *d)
{
    if (!d->pending)
        return;
    d->pending = false;
    nsbx_list_remove(&d->node);
}

static void run_deferred(struct nsbx_loop *loop)
{
    for (int round = 0; round < DEFER_ROUNDS && !nsbx_list_empty(&loop->deferred); round++) {
        /* Everything up to this mark is this generation; what it defers comes behind. */
        struct nsbx_list mark;
        nsbx_list_push(&loop->deferred, &mark);
        struct nsbx_list *node;
        while ((node = nsbx_list_shift(&loop->deferred)) != &mark) {
            struct nsbx_defer *d = nsbx_container_of(node, struct nsbx_defer, node);
            d->pending = false;
            d->fn(d);
        }
    }
    if (nsbx_list_empty(&loop->deferred))
        uv_idle_stop(&loop->busy);
}

static void on_after(uv_check_t *handle)
{
    struct nsbx_loop *loop = handle->data;
    if (!loop->turning)
        run_deferred(loop);
}

/* ---- turns ---- */

bool nsbx_loop_turn(struct nsbx_loop *loop, enum nsbx_turn mode)
{
    if (loop->turning)
        nsbx_misuse("nsbx_loop_turn was called inside a turn");
    loop->turning = true;
    uv_run(loop->uv, mode == NSBX_TURN_WAIT ? UV_RUN_ONCE : UV_RUN_NOWAIT);
    run_deferred(loop);
    loop->turning = false;
    return uv_loop_alive(loop->uv) != 0;
}

static void on_wake(uv_async_t *handle)
{
    (void)handle; /* that the poll returned is all it is for */
}

void nsbx_loop_wake(struct nsbx_loop *loop)
{
    uv_async_send(&loop->wake);
}

uint64_t nsbx_loop_now_ms(const struct nsbx_loop *loop)
{
    return uv_now(loop->uv);
}

/* ---- life ---- */

static void on_own_closed(uv_handle_t *handle)
{
    struct nsbx_loop *loop = handle->data;
    loop->own_handles--;
}

static void own_handle(struct nsbx_loop *loop, uv_handle_t *handle)
{
    handle->data = loop;
    uv_unref(handle);
    loop->own_handles++;
}

static int init_handles(struct nsbx_loop *loop)
{
    int rc = uv_async_init(loop->uv, &loop->wake, on_wake);
    if (rc)
        return rc;
    own_handle(loop, (uv_handle_t *)&loop->wake);
    uv_idle_init(loop->uv, &loop->busy);
    own_handle(loop, (uv_handle_t *)&loop->busy);
    uv_ref((uv_handle_t *)&loop->busy); /* what is deferred is something to do */
    uv_check_init(loop->uv, &loop->after);
    own_handle(loop, (uv_handle_t *)&loop->after);
    if (loop->borrowed)
        uv_check_start(&loop->after, on_after);
    return 0;
}

static int init_own(uv_loop_t *uv)
{
    uv->backend_fd = -1;
    int rc = uv_loop_init(uv);
#if UV_VERSION_HEX <= ((1 << 16) | (44 << 8) | 2)
    if (rc && uv->backend_fd >= 0)
        close(uv->backend_fd); /* this libuv forgets it when a later step fails */
#endif
    return rc;
}

static int make(struct nsbx_loop **out, uv_loop_t *borrowed, struct nsbx_err *err)
{
    struct nsbx_loop *loop = nsbx_calloc(1, sizeof *loop);
    if (!loop)
        return nsbx_err_nomem(err, "the event loop");
    nsbx_list_init(&loop->deferred);
    nsbx_list_init(&loop->objects);
    nsbx_list_init(&loop->left);
    int rc = UV_ENOMEM;
    loop->read_buffer = nsbx_malloc(NSBX_STREAM_READ_CHUNK);
    if (!loop->read_buffer)
        goto fail;
    loop->borrowed = borrowed != NULL;
    loop->uv = borrowed ? borrowed : &loop->own;
    rc = borrowed ? 0 : init_own(&loop->own);
    if (rc)
        goto fail;
    rc = init_handles(loop);
    if (rc) {
        if (!borrowed)
            uv_loop_close(&loop->own);
        goto fail;
    }
    *out = loop;
    return 0;
fail:
    nsbx_free(loop->read_buffer);
    nsbx_free(loop);
    return nsbx_err_sys(err, -rc, "cannot make the event loop");
}

int nsbx_loop_new(struct nsbx_loop **out, struct nsbx_err *err)
{
    return make(out, NULL, err);
}

int nsbx_loop_borrow(struct nsbx_loop **out, struct uv_loop_s *uv, struct nsbx_err *err)
{
    return make(out, uv, err);
}

static void report_live(void *ud, const char *kind)
{
    (void)ud;
    nsbx_log(NSBX_LOG_ERROR, "still open when its loop was freed: %s", kind);
}

/* Runs what is under way to its end without waiting for events. */
static void settle(struct nsbx_loop *loop)
{
    for (int i = 0; i < DEFER_ROUNDS && (loop->closing || !nsbx_list_empty(&loop->deferred)); i++)
        nsbx_loop_turn(loop, NSBX_TURN_POLL);
}

void nsbx_loop_free(struct nsbx_loop *loop)
{
    if (!loop)
        return;
    settle(loop);
    if (nsbx_loop_live(loop, report_live, NULL) || !nsbx_list_empty(&loop->deferred)) {
#ifdef NSBX_TESTING
        nsbx_misuse("a loop was freed while something on it was open or deferred");
#else
        return; /* leaked: what is open still points to it */
#endif
    }
    nsbx_list_each (node, &loop->left) {
        struct nsbx_object *o = nsbx_container_of(node, struct nsbx_object, node);
        o->drop(o);
    }
    uv_close((uv_handle_t *)&loop->wake, on_own_closed);
    uv_close((uv_handle_t *)&loop->busy, on_own_closed);
    uv_close((uv_handle_t *)&loop->after, on_own_closed);
    while (loop->own_handles || loop->closing)
        uv_run(loop->uv, UV_RUN_NOWAIT);
    if (!loop->borrowed && uv_loop_close(&loop->own) != 0)
        nsbx_misuse("a libuv handle outlived its loop");
    nsbx_free(loop->read_buffer);
    nsbx_free(loop);
}

/* ---- objects ---- */

void nsbx_object_open(struct nsbx_object *o, struct nsbx_loop *loop, const char *kind, const char *name)
{
    o->loop = loop;
    o->kind = kind;
    o->name = name;
    nsbx_list_init(&o->node);
    if (kind)
        nsbx_list_push(&loop->objects, &o->node);
}

void nsbx_object_gone(struct nsbx_object *o)
{
    nsbx_list_remove(&o->node);
}

void nsbx_object_leave(struct nsbx_object *o, void (*drop)(struct nsbx_object *o))
{
    nsbx_object_gone(o);
    o->drop = drop;
    nsbx_list_push(&o->loop->left, &o->node);
}

static void on_object_closed(uv_handle_t *handle)
{
    struct nsbx_object *o = handle->data;
    o->loop->closing--;
    nsbx_free(o);
}

void nsbx_object_close(struct nsbx_object *o, uv_handle_t *handle)
{
    nsbx_object_gone(o);
    o->loop->closing++;
    handle->data = o;
    uv_close(handle, on_object_closed);
}

size_t nsbx_loop_live(const struct nsbx_loop *loop, void (*describe)(void *ud, const char *kind), void *ud)
{
    size_t count = 0;
    nsbx_list_each (node, &loop->objects) {
        const struct nsbx_object *o = nsbx_container_of(node, struct nsbx_object, node);
        count++;
        if (!describe)
            continue;
        char text[96];
        snprintf(text, sizeof text, "%s%s%s", o->kind, o->name ? " " : "", o->name ? o->name : "");
        describe(ud, text);
    }
    return count;
}
