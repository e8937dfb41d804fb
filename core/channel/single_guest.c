/* The guest's end of the published carrier: the server, and a connection from its accept to its end. */
#include "single_priv.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "base/util.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { CORK_MAX = 16 * 1024 };

/* ---- life ---- */

static void release_server(struct nsbx_single_server *server)
{
    nsbx_defer_cancel(&server->gate_rest);
    nsbx_buf_free(&server->scratch);
    nsbx_buf_free(&server->decoded);
    nsbx_wipe(&server->token, sizeof(server->token));
    nsbx_free(server);
}

void nsbx_conn_enter(struct nsbx_conn *c)
{
    c->busy++;
}

void nsbx_conn_leave(struct nsbx_conn *c)
{
    if (--c->busy || c->held || c->phase != NSBX_CONN_DEAD)
        return;
    struct nsbx_single_server *server = c->server;
    nsbx_conn_close_parts(c);
    nsbx_timer_close(c->timer);
    nsbx_list_remove(&c->node);
    nsbx_free(c);
    if (--server->connections == 0 && server->closing)
        release_server(server);
}

static void leave_pools(struct nsbx_conn *c)
{
    nsbx_gate_leave(c);
    if (c->refusing)
        c->server->refused_size--;
    c->refusing = false;
    nsbx_list_remove(&c->pool);
}

void nsbx_conn_break(struct nsbx_conn *c, const struct nsbx_err *err)
{
    if (c->phase == NSBX_CONN_DEAD)
        return;
    c->phase = NSBX_CONN_DEAD;
    leave_pools(c);
    nsbx_intake_free(c);
    nsbx_block_drop_all(&c->early);
    nsbx_stream_close(c->stream);
    c->stream = NULL;
    nsbx_defer_cancel(&c->pump);
    nsbx_defer_cancel(&c->cork);
    nsbx_buf_free(&c->out);
    if (c->timer)
        nsbx_timer_stop(c->timer);
    if (err)
        nsbx_conn_tell_fail(c, err);
}

/* ---- our end ---- */

size_t nsbx_conn_queued(const struct nsbx_conn *c)
{
    return c->out.len + (c->stream ? nsbx_stream_queued(c->stream) : 0);
}

static int uncork(struct nsbx_conn *c, struct nsbx_err *err)
{
    nsbx_defer_cancel(&c->cork);
    if (!c->out.len || !c->stream)
        return 0;
    int rc = nsbx_stream_write(c->stream, nsbx_buf_data(&c->out), c->out.len, err);
    nsbx_buf_consume(&c->out, c->out.len);
    return rc;
}

static void on_cork(struct nsbx_defer *d)
{
    struct nsbx_conn *c = nsbx_container_of(d, struct nsbx_conn, cork);
    struct nsbx_err err;
    nsbx_conn_enter(c);
    if (uncork(c, &err) == -NSBX_E_LIMIT) /* of a lost stream on_error tells */
        nsbx_conn_break(c, &err);
    nsbx_conn_leave(c);
}

static int send_frame(struct nsbx_conn *c, const uint8_t *bytes, size_t n, struct nsbx_err *err)
{
    size_t queued = nsbx_conn_queued(c);
    if (n > NSBX_STREAM_QUEUE - NSBX_MIN(queued, NSBX_STREAM_QUEUE))
        return nsbx_err_set(err, NSBX_E_LIMIT, "%zu bytes are unsent and %zu more are too many", queued, n);
    if (c->out.len + n > c->out.max) {
        int rc = nsbx_stream_write2(c->stream, nsbx_buf_data(&c->out), c->out.len, bytes, n, err);
        nsbx_buf_consume(&c->out, c->out.len);
        return rc;
    }
    int rc = nsbx_buf_append(&c->out, bytes, n, err);
    if (rc == 0)
        nsbx_loop_defer(c->server->loop, &c->cork, on_cork);
    return rc;
}

int nsbx_conn_emit(void *conn, const uint8_t *bytes, size_t n, struct nsbx_err *err)
{
    struct nsbx_conn *c = conn;
    if (!c->stream)
        return nsbx_err_set(err, NSBX_E_STREAM_LOST, "the host of %s is gone",
                            c->ch.row ? c->ch.row->name : "this connection");
    if (c->sent_end)
        return nsbx_err_set(err, NSBX_E_INVALID, "nothing can be sent after the end");
    return send_frame(c, bytes, n, err);
}

int nsbx_conn_shutdown(struct nsbx_conn *c, struct nsbx_err *err)
{
    if (!c->stream)
        return nsbx_err_set(err, NSBX_E_STREAM_LOST, "the host is gone");
    int rc = uncork(c, err);
    if (rc == 0 && nsbx_stream_can_shutdown(c->stream))
        rc = nsbx_stream_shutdown(c->stream, err);
    if (rc)
        return rc;
    c->sent_end = true;
    if (c->paused || c->phase != NSBX_CONN_OPEN)
        nsbx_stream_read_start(c->stream); /* to see the peer's end */
    c->paused = false;
    return 0;
}

static bool ensure_timer(struct nsbx_conn *c);

void nsbx_conn_linger(struct nsbx_conn *c)
{
    c->left_last = c->stream ? nsbx_stream_queued(c->stream) : 0;
    if (!c->stream || (c->peer_ended && !c->left_last) || !ensure_timer(c)) {
        nsbx_conn_break(c, NULL);
        return;
    }
    c->phase = NSBX_CONN_LINGER;
    nsbx_defer_cancel(&c->pump);
    nsbx_spool_free(c->spool);
    c->spool = NULL;
    if (c->refusing)
        nsbx_timer_start(c->timer, c->server->config.refusal_flush_ms);
    else
        nsbx_timer_start(c->timer, c->left_last ? NSBX_LINGER_STALL_MS : NSBX_CLOSE_WAIT_MS);
}

static void linger_tick(struct nsbx_conn *c)
{
    size_t left = nsbx_stream_queued(c->stream);
    if (c->refusing || !left || left >= c->left_last) {
        nsbx_conn_break(c, NULL);
        return;
    }
    c->left_last = left;
    nsbx_timer_start(c->timer, NSBX_LINGER_STALL_MS);
}

/* So many may wait for their refusal to go out at a time as may wait to be authenticated: nobody makes more of them by being refused. */
static void join_refused(struct nsbx_conn *c)
{
    struct nsbx_single_server *server = c->server;
    c->refusing = true;
    nsbx_list_push(&server->refused, &c->pool);
    server->refused_size++;
    if (server->refused_size <= server->config.max_preauth_connections)
        return;
    struct nsbx_conn *oldest = nsbx_container_of(nsbx_list_first(&server->refused), struct nsbx_conn, pool);
    nsbx_conn_enter(oldest);
    nsbx_conn_break(oldest, NULL);
    nsbx_conn_leave(oldest);
}

void nsbx_conn_refuse(struct nsbx_conn *c, json_t *reply, bool as_stream)
{
    struct nsbx_buf *out = &c->server->scratch;
    nsbx_intake_free(c);
    nsbx_block_drop_all(&c->early);
    leave_pools(c);
    int rc = reply ? nsbx_wire_put_message(out, reply, NULL) : -NSBX_E_LIMIT;
    json_decref(reply);
    if (rc == 0 && as_stream)
        rc = nsbx_wire_put_terminator(out, NULL);
    if (rc == 0)
        rc = nsbx_conn_emit(c, nsbx_buf_data(out), out->len, NULL);
    nsbx_wire_scratch_reset(out);
    if (rc == 0)
        rc = nsbx_conn_shutdown(c, NULL);
    if (rc) {
        nsbx_conn_break(c, NULL);
        return;
    }
    join_refused(c);
    nsbx_conn_linger(c);
}

void nsbx_conn_refuse_text(struct nsbx_conn *c, const char *fmt, ...)
{
    char text[NSBX_ERR_MESSAGE];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    size_t len = strlen(text); /* a character that was cut in two is no JSON */
    text[len - nsbx_utf8_tail((const uint8_t *)text, len)] = 0;
    nsbx_conn_refuse(c, json_pack("{s:b, s:s}", "ok", 0, "error", text), false);
}

/* ---- from the stream ---- */

static void on_read(void *ud, const uint8_t *bytes, size_t n)
{
    struct nsbx_conn *c = ud;
    nsbx_conn_enter(c);
    switch (c->phase) {
    case NSBX_CONN_GATE:
        nsbx_gate_read(c, bytes, n);
        break;
    case NSBX_CONN_INTAKE:
        nsbx_intake_read(c, bytes, n);
        break;
    case NSBX_CONN_OPEN:
        nsbx_conn_read(c, bytes, n);
        break;
    case NSBX_CONN_LINGER: /* dropped: a close with bytes unread would take our last words back */
    case NSBX_CONN_DEAD:
        break;
    }
    nsbx_conn_leave(c);
}

static void lost(struct nsbx_conn *c, const struct nsbx_err *err)
{
    if (c->phase == NSBX_CONN_OPEN && c->sent_end) {
        c->peer_ended = true; /* as it should be; the operation closes in its own time */
        return;
    }
    nsbx_conn_break(c, err);
}

static void on_eof(void *ud)
{
    struct nsbx_conn *c = ud;
    struct nsbx_err err;
    nsbx_conn_enter(c);
    nsbx_err_set(&err, NSBX_E_STREAM_LOST, "the host ended the connection");
    c->peer_ended = true;
    if (c->phase != NSBX_CONN_LINGER || !nsbx_stream_queued(c->stream))
        lost(c, &err);
    nsbx_conn_leave(c);
}

static void on_error(void *ud, const struct nsbx_err *why)
{
    struct nsbx_conn *c = ud;
    struct nsbx_err err = *why;
    nsbx_conn_enter(c);
    err.code = NSBX_E_STREAM_LOST;
    c->peer_ended = true;
    lost(c, &err);
    nsbx_conn_leave(c);
}

static void on_drain(void *ud)
{
    struct nsbx_conn *c = ud;
    nsbx_conn_enter(c);
    if (c->phase == NSBX_CONN_OPEN && c->held && !c->sent_end) {
        if (c->ch.events && c->ch.events->on_drain)
            c->ch.events->on_drain(c->ch.ud);
    } else if (c->phase == NSBX_CONN_LINGER && c->peer_ended) {
        nsbx_conn_break(c, NULL);
    } else if (c->phase == NSBX_CONN_LINGER && !c->refusing) {
        nsbx_timer_start(c->timer, NSBX_CLOSE_WAIT_MS);
    }
    nsbx_conn_leave(c);
}

static void on_timer(void *ud)
{
    struct nsbx_conn *c = ud;
    nsbx_conn_enter(c);
    if (c->phase == NSBX_CONN_LINGER)
        linger_tick(c);
    else if (c->gate)
        nsbx_gate_tick(c);
    nsbx_conn_leave(c);
}

static bool ensure_timer(struct nsbx_conn *c)
{
    if (!c->timer)
        c->timer = nsbx_timer_new(c->server->loop, on_timer, c);
    return c->timer != NULL;
}

/* ---- the server ---- */

struct nsbx_single_server *nsbx_single_server_new(struct nsbx_loop *loop,
                                                  const struct nsbx_single_server_config *config,
                                                  struct nsbx_err *err)
{
    struct nsbx_single_server *server = nsbx_calloc(1, sizeof(*server));
    if (!server) {
        nsbx_err_nomem(err, "the server");
        return NULL;
    }
    if (config->bind_token &&
        nsbx_token_set(&server->token, config->bind_token, strlen(config->bind_token), err) != 0) {
        nsbx_free(server);
        return NULL;
    }
    server->loop = loop;
    server->config = *config;
    server->config.bind_token = NULL; /* the caller wipes his; ours is in server->token */
    server->bound = config->bind_token != NULL;
    server->guarded = server->bound || config->require_token;
    nsbx_list_init(&server->all);
    nsbx_list_init(&server->gate_pool);
    nsbx_list_init(&server->refused);
    nsbx_buf_init(&server->scratch, NSBX_STREAM_QUEUE);
    nsbx_buf_init(&server->decoded, NSBX_STREAM_QUEUE);
    return server;
}

static int begin(struct nsbx_conn *c, struct nsbx_err *err)
{
    if (!c->server->guarded)
        return nsbx_intake_start(c, err);
    c->phase = NSBX_CONN_GATE;
    return ensure_timer(c) ? nsbx_gate_enter(c, err) : nsbx_err_nomem(err, "a connection");
}

void nsbx_single_serve(struct nsbx_single_server *server, struct nsbx_stream *stream)
{
    static const struct nsbx_stream_events events = {
        .on_read = on_read,
        .on_eof = on_eof,
        .on_error = on_error,
        .on_drain = on_drain,
    };
    struct nsbx_conn *c = server->closing ? NULL : nsbx_calloc(1, sizeof(*c));
    if (!c) {
        nsbx_stream_close(stream);
        return;
    }
    c->server = server;
    c->stream = stream;
    nsbx_list_init(&c->node);
    nsbx_list_init(&c->pool);
    nsbx_list_init(&c->early);
    nsbx_buf_init(&c->out, CORK_MAX);
    nsbx_list_push(&server->all, &c->node);
    server->connections++;
    nsbx_conn_enter(c);
    nsbx_stream_set_events(stream, &events, c);
    if (begin(c, NULL) != 0)
        nsbx_conn_break(c, NULL);
    else if (c->stream)
        nsbx_stream_read_start(stream);
    nsbx_conn_leave(c);
}

size_t nsbx_single_connections(const struct nsbx_single_server *server)
{
    return server->connections;
}

void nsbx_single_server_close(struct nsbx_single_server *server)
{
    if (!server)
        return;
    server->connections++; /* this call's own, so that the server outlives it */
    nsbx_list_each (node, &server->all) {
        struct nsbx_conn *c = nsbx_container_of(node, struct nsbx_conn, node);
        if (c->held)
            continue;
        nsbx_conn_enter(c);
        nsbx_conn_break(c, NULL);
        nsbx_conn_leave(c);
    }
    server->closing = true;
    if (--server->connections == 0)
        release_server(server);
}
