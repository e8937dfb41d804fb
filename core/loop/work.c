#include "work.h"

#include "base/alloc.h"
#include "loop_priv.h"

struct work {
    struct nsbx_object object;
    uv_work_t uv;
    void (*run)(void *ud);
    void (*done)(void *ud);
    void *ud;
};

static void on_pool_thread(uv_work_t *req)
{
    struct work *w = req->data;
    w->run(w->ud);
}

static void on_done(uv_work_t *req, int status)
{
    (void)status; /* nobody cancels it */
    struct work *w = req->data;
    void (*done)(void *) = w->done;
    void *ud = w->ud;
    nsbx_object_gone(&w->object);
    nsbx_free(w);
    done(ud);
}

int nsbx_work(struct nsbx_loop *loop, void (*work)(void *ud), void (*done)(void *ud), void *ud,
              struct nsbx_err *err)
{
    struct work *w = nsbx_calloc(1, sizeof *w);
    if (!w)
        return nsbx_err_nomem(err, "a piece of work");
    w->run = work;
    w->done = done;
    w->ud = ud;
    w->uv.data = w;
    nsbx_object_open(&w->object, loop, "work", NULL);
    sigset_t saved;
    nsbx_signals_block(&saved); /* the first call starts the pool */
    int rc = uv_queue_work(loop->uv, &w->uv, on_pool_thread, on_done);
    nsbx_signals_restore(&saved);
    if (rc) {
        nsbx_object_gone(&w->object);
        nsbx_free(w);
        return nsbx_err_sys(err, -rc, "cannot start a piece of work");
    }
    return 0;
}
