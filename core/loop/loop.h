/* The event loop: the only place of libuv. One thread owns a loop and everything made on it.
 * Rule: code that runs inside a libuv callback never re-enters the loop and never runs Lua; it records a result and
 * defers. Deferred functions run when the callbacks of a turn are done, before nsbx_loop_turn returns. */
#ifndef NSBX_LOOP_LOOP_H
#define NSBX_LOOP_LOOP_H

#include "base/err.h"
#include "base/list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nsbx_loop;
struct uv_loop_s;

/* A loop of our own. */
int nsbx_loop_new(struct nsbx_loop **out, struct nsbx_err *err) __attribute__((warn_unused_result));
/* The caller's uv loop, which outlives ours. */
int nsbx_loop_borrow(struct nsbx_loop **out, struct uv_loop_s *uv, struct nsbx_err *err)
    __attribute__((warn_unused_result));
/* Everything on it must have been closed; turns until the last close has been delivered, then frees. A live object is
 * the programmer's error: reported by name on stderr, and abort() in testing builds (NSBX_TESTING). NULL is fine. */
void nsbx_loop_free(struct nsbx_loop *loop);

enum nsbx_turn { NSBX_TURN_WAIT, NSBX_TURN_POLL };
/* One turn: waits for events (WAIT; at most until the next timer) or only looks (POLL), runs their callbacks, then what
 * was deferred. False when nothing is active and nothing is deferred any more. Never re-entered. */
bool nsbx_loop_turn(struct nsbx_loop *loop, enum nsbx_turn mode);

/* Caller-owned; zero it once. Pending at most once: deferring a pending one does nothing. */
struct nsbx_defer {
    struct nsbx_list node;
    void (*fn)(struct nsbx_defer *d);
    bool pending;
};
void nsbx_loop_defer(struct nsbx_loop *loop, struct nsbx_defer *d, void (*fn)(struct nsbx_defer *d));
void nsbx_defer_cancel(struct nsbx_defer *d); /* safe when not pending */

/* From any other thread: makes a waiting turn return. */
void nsbx_loop_wake(struct nsbx_loop *loop);
uint64_t nsbx_loop_now_ms(const struct nsbx_loop *loop); /* the loop's cached monotonic time */
/* Open objects (streams, timers, children, listeners, operations…) for leak checks; `describe`, when not NULL, is called for each. */
size_t nsbx_loop_live(const struct nsbx_loop *loop, void (*describe)(void *ud, const char *kind), void *ud);

#endif
