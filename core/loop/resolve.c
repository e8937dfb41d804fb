/* Names to addresses, on a thread of their own: getaddrinfo can take half a minute and cannot be interrupted, so it must
 * neither fill the pool that file work runs on (which libuv joins at exit) nor hold up whoever gave up waiting for it. */
#include "base/alloc.h"
#include "dial_priv.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Shared by the loop and the thread; the last to let go frees it. */
struct question {
    pthread_mutex_t lock;
    struct nsbx_resolve
        *asker; /* NULL: nobody waits any more. Read by the thread, cleared by the loop, under the lock */
    bool thread_done;
    char host[256];
    char port[8];
    int gai, sys;
    size_t n;
    struct nsbx_addr addrs[NSBX_DIAL_ADDRESSES];
};

struct nsbx_resolve {
    struct nsbx_object object;
    uv_async_t answered;
    struct question *question;
    nsbx_resolve_cb *cb;
    void *ud;
};

static void free_question(struct question *q)
{
    pthread_mutex_destroy(&q->lock);
    nsbx_free(q);
}

static void *ask(void *arg)
{
    struct question *q = arg;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    int gai = getaddrinfo(q->host, q->port, &hints, &list);
    int sys = errno;
    pthread_mutex_lock(&q->lock);
    q->gai = gai;
    q->sys = sys;
    for (struct addrinfo *ai = gai ? NULL : list; ai && q->n < NSBX_DIAL_ADDRESSES; ai = ai->ai_next) {
        if (ai->ai_addrlen > sizeof q->addrs[0].sa)
            continue;
        memcpy(&q->addrs[q->n].sa, ai->ai_addr, ai->ai_addrlen);
        q->addrs[q->n++].len = ai->ai_addrlen;
    }
    q->thread_done = true;
    bool last = q->asker == NULL;
    if (!last)
        uv_async_send(&q->asker->answered); /* its handle is open as long as the asker is set */
    pthread_mutex_unlock(&q->lock);
    if (!gai)
        freeaddrinfo(list);
    if (last)
        free_question(q);
    return NULL;
}

/* The loop lets go: true when the thread has done so before. */
static bool leave(struct question *q)
{
    pthread_mutex_lock(&q->lock);
    q->asker = NULL;
    bool last = q->thread_done;
    pthread_mutex_unlock(&q->lock);
    return last;
}

static void on_answered(uv_async_t *handle)
{
    struct nsbx_resolve *r = handle->data;
    struct question *q = r->question;
    nsbx_resolve_cb *cb = r->cb;
    void *ud = r->ud;
    bool last = leave(q); /* true: the thread sent this at its end */
    nsbx_object_close(&r->object, (uv_handle_t *)&r->answered);
    struct nsbx_err err = {0};
    if (q->n == 0) {
        nsbx_err_set(&err, NSBX_E_UNREACHABLE, "cannot resolve %s: %s", q->host,
                     q->gai == EAI_SYSTEM ? strerror(q->sys)
                     : q->gai             ? gai_strerror(q->gai)
                                          : "it has no address");
        err.sys = q->gai == EAI_SYSTEM ? q->sys : 0;
    }
    cb(ud, q->addrs, q->n, &err);
    if (last)
        free_question(q);
}

static int start_thread(struct question *q)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t saved;
    int rc = pthread_attr_init(&attr);
    if (rc)
        return rc;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    nsbx_signals_block(&saved);
    rc = pthread_create(&thread, &attr, ask, q);
    nsbx_signals_restore(&saved);
    pthread_attr_destroy(&attr);
    return rc;
}

int nsbx_resolve_start(struct nsbx_loop *loop, const char *host, uint16_t port, nsbx_resolve_cb *cb, void *ud,
                       struct nsbx_resolve **out, struct nsbx_err *err)
{
    struct question *q = nsbx_calloc(1, sizeof *q);
    struct nsbx_resolve *r = nsbx_calloc(1, sizeof *r);
    if (!q || !r) {
        nsbx_free(q);
        nsbx_free(r);
        return nsbx_err_nomem(err, "the resolving of a name");
    }
    if (strlen(host) >= sizeof q->host || !*host) {
        nsbx_free(q);
        nsbx_free(r);
        return nsbx_err_set(err, NSBX_E_INVALID, "a host's name has 1 to %zu bytes", sizeof q->host - 1);
    }
    int rc = uv_async_init(loop->uv, &r->answered, on_answered);
    if (rc) {
        nsbx_free(q);
        nsbx_free(r);
        return nsbx_err_sys(err, -rc, "cannot start resolving %s", host);
    }
    nsbx_object_open(&r->object, loop, NULL, NULL);
    r->answered.data = r;
    r->cb = cb;
    r->ud = ud;
    r->question = q;
    pthread_mutex_init(&q->lock, NULL);
    q->asker = r;
    snprintf(q->host, sizeof q->host, "%s", host);
    snprintf(q->port, sizeof q->port, "%u", port);
    rc = start_thread(q);
    if (rc) {
        free_question(q);
        nsbx_object_close(&r->object, (uv_handle_t *)&r->answered);
        return nsbx_err_sys(err, rc, "cannot start a thread to resolve %s", host);
    }
    *out = r;
    return 0;
}

void nsbx_resolve_stop(struct nsbx_resolve *r)
{
    struct question *q = r->question;
    if (leave(q))
        free_question(q);
    nsbx_object_close(&r->object, (uv_handle_t *)&r->answered);
}
