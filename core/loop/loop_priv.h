/* What the files of core/loop share: the loop's body, the head that every object of a loop begins with, and the watch of
 * one descriptor. */
#ifndef NSBX_LOOP_LOOP_PRIV_H
#define NSBX_LOOP_LOOP_PRIV_H

#include "loop.h"

#include <signal.h>
#include <uv.h>

struct nsbx_loop {
    uv_loop_t *uv;
    uv_loop_t own; /* used unless borrowed */
    bool borrowed;
    bool turning;         /* inside nsbx_loop_turn */
    bool in_timer;        /* inside a timer's callback, see timer.c */
    unsigned own_handles; /* of the four below, not closed yet */
    uv_async_t wake;
    uv_idle_t busy;   /* active: the poll of this turn does not wait */
    uv_check_t after; /* borrowed loops only: runs what was deferred when the owner turns the loop himself */
    struct nsbx_list deferred;
    struct nsbx_list objects;
    struct nsbx_list left; /* objects of nsbx_object_leave */
    size_t closing;        /* handles whose close callback has not come yet */
    uint8_t *read_buffer;  /* NSBX_STREAM_READ_CHUNK bytes, lent to one read at a time */
};

/* Something is deferred, or was told before the poll (by a timer, which libuv runs first): this turn comes back without
 * waiting for more. */
void nsbx_loop_no_wait(struct nsbx_loop *loop);

/* ---- objects ---- */

/* First member of everything that lives on a loop. */
struct nsbx_object {
    struct nsbx_loop *loop;
    struct nsbx_list node;
    const char *kind; /* static; NULL: a part of another object, not counted by nsbx_loop_live */
    const char *name; /* static or NULL; shown after the kind */
    void (*drop)(struct nsbx_object *o);
};
void nsbx_object_open(struct nsbx_object *o, struct nsbx_loop *loop, const char *kind, const char *name);
/* Not counted any more; idempotent. The memory is still the caller's. */
void nsbx_object_gone(struct nsbx_object *o);
/* For what goes on when its owner has closed it (a child that is still to be reaped): not counted any more, and `drop` is
 * called if it is there when the loop is freed, to close it. */
void nsbx_object_leave(struct nsbx_object *o, void (*drop)(struct nsbx_object *o));
/* nsbx_object_gone, closes `handle` and frees `o` (by nsbx_free) once libuv has let go of the handle, which lies inside `o`. */
void nsbx_object_close(struct nsbx_object *o, uv_handle_t *handle);

/* ---- one descriptor ---- */

enum { NSBX_READABLE = 1, NSBX_WRITABLE = 2 };

/* Tells when a descriptor can be read or written, level-triggered. `ready` never holds more than what was asked for; an error
 * state of the descriptor makes all of it ready, so that the next read or write tells the errno. A descriptor that epoll
 * refuses (a regular file, /dev/null), which never blocks, is ready each millisecond instead. A part of its owner, not
 * counted. Does not own the descriptor; there may be one watch of a descriptor at a time. */
struct nsbx_watch;
typedef void nsbx_watch_cb(void *ud, unsigned ready);
int nsbx_watch_new(struct nsbx_loop *loop, int fd, nsbx_watch_cb *cb, void *ud, struct nsbx_watch **out,
                   struct nsbx_err *err) __attribute__((warn_unused_result)); /* makes fd non-blocking */
void nsbx_watch_set(struct nsbx_watch *w, unsigned interest); /* cheap when nothing changes; 0 = none */
/* No callback after it; the descriptor may be closed at once. NULL is fine. */
void nsbx_watch_close(struct nsbx_watch *w);

/* ---- the rest ---- */

/* Reports a programmer's error on stderr and aborts. */
void nsbx_misuse(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Around the start of a thread: it inherits a mask that blocks every signal, so that no handler of the embedder ever runs
 * on one of our threads. */
static inline void nsbx_signals_block(sigset_t *saved)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, saved);
}
static inline void nsbx_signals_restore(const sigset_t *saved)
{
    pthread_sigmask(SIG_SETMASK, saved, NULL);
}

#endif
