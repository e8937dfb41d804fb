/* For the tests of dialling and listening: a listener that keeps what it accepts, and a dial that is waited for. */
#ifndef NSBX_SPEC_LISTEN_RIG_H
#define NSBX_SPEC_LISTEN_RIG_H

#include "stream_rig.h"

#include <sys/un.h>

enum { MAX_ACCEPTED = 600 };
static struct nsbx_stream *accepted[MAX_ACCEPTED];
static size_t n_accepted;
static struct nsbx_listener *listener;
static bool close_on_accept;

static inline void on_accept(void *ud, struct nsbx_stream *stream)
{
    CHECK(ud == &n_accepted);
    if (n_accepted == MAX_ACCEPTED)
        abort();
    accepted[n_accepted++] = stream;
    if (close_on_accept) {
        nsbx_listener_close(listener);
        listener = NULL;
    }
}

static inline void drop_accepted(void)
{
    while (n_accepted)
        nsbx_stream_close(accepted[--n_accepted]);
}

static char dir[] = "/tmp/listener_test.XXXXXX";
static char path[64];

static inline void open_all(void)
{
    rig_open();
    n_accepted = 0;
    close_on_accept = false;
    listener = NULL;
    snprintf(path, sizeof path, "%s/socket", dir);
}

static inline void close_all(void)
{
    drop_accepted();
    nsbx_listener_close(listener);
    listener = NULL;
    unlink(path);
    rig_close();
}

static inline void listen_tcp(void)
{
    struct nsbx_err err = {0};
    CHECK_INT(nsbx_listen_tcp(loop, "127.0.0.1", 0, on_accept, &n_accepted, &listener, &err), 0);
}

static inline void listen_unix(void)
{
    struct nsbx_err err = {0};
    CHECK_INT(nsbx_listen_unix(loop, path, on_accept, &n_accepted, &listener, &err), 0);
    CHECK_STR(err.message, "");
}

/* Waits for the op, gives its stream or NULL; *err is a copy. */
static inline struct nsbx_stream *dialled(struct nsbx_op *op, struct nsbx_err *err)
{
    *err = (struct nsbx_err){0};
    if (!op)
        abort();
    TURN_UNTIL(nsbx_op_state(op) != NSBX_OP_PENDING, 10000);
    if (nsbx_op_err(op))
        *err = *nsbx_op_err(op);
    struct nsbx_stream *s = nsbx_op_take_result(op);
    nsbx_op_unref(op);
    return s;
}

/* A byte each way. */
static inline void check_talk(struct nsbx_stream *a, struct nsbx_stream *b)
{
    struct end x = {.s = a}, y = {.s = b};
    nsbx_stream_set_events(a, &end_events, &x);
    nsbx_stream_set_events(b, &end_events, &y);
    nsbx_stream_read_start(a);
    nsbx_stream_read_start(b);
    CHECK_INT(end_write(&x, 10), 0);
    CHECK_INT(end_write(&y, 20), 0);
    TURN_UNTIL(x.got == 20 && y.got == 10, 5000);
    nsbx_stream_read_stop(a);
    nsbx_stream_read_stop(b);
    nsbx_stream_set_events(a, NULL, NULL);
    nsbx_stream_set_events(b, NULL, NULL);
}

static inline void check_dial(struct nsbx_op *op, const char *want_kind)
{
    struct nsbx_err err;
    struct nsbx_stream *s = dialled(op, &err);
    CHECK_STR(err.message, "");
    REQUIRE(s != NULL);
    CHECK_STR(nsbx_stream_kind(s), want_kind);
    TURN_UNTIL(n_accepted, 5000);
    if (n_accepted) {
        CHECK_STR(nsbx_stream_kind(accepted[0]), want_kind);
        check_talk(s, accepted[0]);
    }
    drop_accepted();
    nsbx_stream_close(s);
}

#endif
