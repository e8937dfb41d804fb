#include "signal.h"

#include "base/alloc.h"
#include "loop_priv.h"

#include <string.h>

struct nsbx_signal {
    struct nsbx_object object;
    uv_signal_t uv;
    void (*cb)(void *ud, int signo);
    void *ud;
};

static void on_signal(uv_signal_t *handle, int signo)
{
    struct nsbx_signal *s = handle->data;
    s->cb(s->ud, signo);
}

int nsbx_signal_watch(struct nsbx_loop *loop, int signo, void (*cb)(void *ud, int signo), void *ud,
                      struct nsbx_signal **out, struct nsbx_err *err)
{
    struct nsbx_signal *s = nsbx_calloc(1, sizeof *s);
    if (!s)
        return nsbx_err_nomem(err, "a signal watch");
    int rc = uv_signal_init(loop->uv, &s->uv);
    if (rc) {
        nsbx_free(s);
        return nsbx_err_sys(err, -rc, "cannot watch signal %d", signo);
    }
    s->cb = cb;
    s->ud = ud;
    s->uv.data = s;
    nsbx_object_open(&s->object, loop, "signal", NULL);
    rc = uv_signal_start(&s->uv, on_signal, signo);
    if (rc) {
        nsbx_signal_close(s);
        return nsbx_err_sys(err, -rc, "cannot watch signal %d", signo);
    }
    uv_unref((uv_handle_t *)&s->uv);
    *out = s;
    return 0;
}

void nsbx_signal_close(struct nsbx_signal *s)
{
    if (s)
        nsbx_object_close(&s->object, (uv_handle_t *)&s->uv);
}
