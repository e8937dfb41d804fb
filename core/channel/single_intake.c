/* The first frame of an authenticated connection: its JSON is built, its large member spooled; then the operation is served. */
#include "single_priv.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "base/util.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The large members of all rows. Which one is the operation's own may be known only after it arrived. */
static const char *const large_paths[] = {"body.stdin", "body.content", NULL};
enum { LARGES = 2, BODY_PREFIX = 5 };

struct nsbx_intake {
    struct nsbx_conn *c;
    struct nsbx_wire_reader reader;
    const struct nsbx_op_row *row; /* as far as `op` is known */
    unsigned tokens;               /* members of that name so far */
    struct nsbx_spool *spools[LARGES];
    json_t *message; /* the frame is whole */
    bool too_large;
    uint32_t announced;
    bool waiting; /* reading has stopped until a spool's step is done */
};

/* -1: the operation has none */
static int large_index(const struct nsbx_op_row *row)
{
    for (int i = 0; row->large && i < LARGES; i++)
        if (strcmp(large_paths[i] + BODY_PREFIX, row->large) == 0)
            return i;
    return -1;
}

void nsbx_intake_free(struct nsbx_conn *c)
{
    struct nsbx_intake *in = c->intake;
    if (!in)
        return;
    c->intake = NULL;
    for (int i = 0; i < LARGES; i++)
        nsbx_spool_free(in->spools[i]);
    json_decref(in->message);
    nsbx_wire_reader_free(&in->reader);
    nsbx_free(in);
}

/* ---- the frame ---- */

static int on_header(void *ud, uint32_t length, struct nsbx_err *err)
{
    struct nsbx_intake *in = ud;
    (void)err;
    in->announced = length;
    in->too_large = length > in->c->server->config.max_frame;
    return in->too_large ? NSBX_WIRE_STOP : 0;
}

static int on_terminator(void *ud, struct nsbx_err *err)
{
    (void)ud;
    return nsbx_err_set(err, NSBX_E_PROTOCOL, "the first frame is empty");
}

static int on_watch(void *ud, size_t index, const char *value, size_t n)
{
    struct nsbx_intake *in = ud;
    if (index == 1) {
        in->tokens++;
        return 0;
    }
    in->row = value && strlen(value) == n ? nsbx_op_row(value) : NULL;
    return 0;
}

static void on_step(void *ud);

static int on_large(void *ud, size_t index, const uint8_t *bytes, size_t n, bool begin, bool end)
{
    struct nsbx_intake *in = ud;
    struct nsbx_spool **spool = &in->spools[index];
    (void)end;
    if (in->row && large_index(in->row) != (int)index)
        return 0;
    if (begin) { /* of a repeated member the last one counts */
        nsbx_spool_free(*spool);
        *spool = nsbx_spool_new(in->c->server->loop, in->c->server->config.spool_dir_fd, on_step, in);
    }
    if (!*spool)
        return -NSBX_E_LIMIT;
    nsbx_spool_write(*spool, bytes, n);
    return 0;
}

static int on_frame(void *ud, const char *rest, size_t len, struct nsbx_err *err)
{
    struct nsbx_intake *in = ud;
    in->message = nsbx_wire_parse(rest, len, err);
    return in->message ? NSBX_WIRE_STOP : -err->code;
}

int nsbx_intake_start(struct nsbx_conn *c, struct nsbx_err *err)
{
    static const char *const watch[] = {"op", "token", NULL};
    static const struct nsbx_wire_events events = {
        .on_header = on_header,
        .on_terminator = on_terminator,
        .on_frame = on_frame,
        .on_watch = on_watch,
        .on_large = on_large,
    };
    struct nsbx_intake *in = nsbx_calloc(1, sizeof(*in));
    if (!in)
        return nsbx_err_nomem(err, "a connection");
    c->intake = in;
    c->phase = NSBX_CONN_INTAKE;
    in->c = c;
    return nsbx_wire_reader_init(&in->reader, watch, large_paths, false, &events, in, err);
}

/* ---- serving ---- */

/* In the words of the published guest: "ENOSPC: no space left on device, write". */
static json_t *errno_refusal(const struct nsbx_err *err)
{
    const char *name = nsbx_errno_name(err->sys);
    char text[NSBX_ERR_MESSAGE];
    snprintf(text, sizeof(text), "%s", strerror(err->sys));
    text[0] = (char)tolower((unsigned char)text[0]);
    if (!err->sys || !name)
        return json_pack("{s:b, s:s}", "ok", 0, "error", err->message);
    json_t *error = json_sprintf("%s: %s, %s", name, text, err->sys == ENOENT ? "open" : "write");
    return json_pack("{s:b, s:o, s:s}", "ok", 0, "error", error, "code", name);
}

void nsbx_intake_serve(struct nsbx_conn *c, const struct nsbx_op_row *row, json_t *body, struct nsbx_spool *spool)
{
    struct nsbx_single_server *server = c->server;
    struct nsbx_err err;
    bool as_stream = false;
    json_t *refusal = server->config.gate ? server->config.gate(server->config.ud, row, &as_stream) : NULL;
    if (refusal) {
        nsbx_spool_free(spool);
        nsbx_conn_refuse(c, refusal, as_stream);
    } else if (spool && nsbx_spool_err(spool)) {
        refusal = errno_refusal(nsbx_spool_err(spool));
        nsbx_spool_free(spool);
        nsbx_conn_refuse(c, refusal, false);
    } else if (nsbx_conn_open(c, row, body, spool, &err) != 0) {
        nsbx_conn_refuse_text(c, "%s", err.message);
    }
}

static const struct nsbx_op_row *row_of(const json_t *message)
{
    const json_t *op = json_object_get(message, "op");
    if (!json_is_string(op) || strlen(json_string_value(op)) != json_string_length(op))
        return NULL;
    return nsbx_op_row(json_string_value(op));
}

static void serve_message(struct nsbx_conn *c, struct nsbx_spool *spool)
{
    json_t *message = json_incref(c->intake->message);
    const json_t *op = json_object_get(message, "op");
    json_t *body = json_object_get(message, "body");
    const struct nsbx_op_row *row = row_of(message);
    nsbx_intake_free(c);
    if (row) {
        nsbx_intake_serve(c, row, json_is_object(body) ? body : NULL, spool);
    } else {
        nsbx_spool_free(spool);
        nsbx_conn_refuse_text(c, "unknown_op: %s", json_is_string(op) ? json_string_value(op) : "undefined");
    }
    json_decref(message);
}

/* ---- reading ---- */

static void wait_for_spool(struct nsbx_conn *c, bool wait)
{
    if (c->intake)
        c->intake->waiting = wait;
    if (!wait)
        nsbx_stream_read_start(c->stream);
    else
        nsbx_stream_read_stop(c->stream);
}

/* The operation's own spool when the frame is whole; the others are of no use. */
static struct nsbx_spool **own_spool(struct nsbx_intake *in)
{
    static struct nsbx_spool *none;
    int own = in->row ? large_index(in->row) : -1;
    for (int i = 0; i < LARGES; i++) {
        if (i == own)
            continue;
        nsbx_spool_free(in->spools[i]);
        in->spools[i] = NULL;
    }
    return own < 0 ? &none : &in->spools[own];
}

static void frame_done(struct nsbx_conn *c)
{
    struct nsbx_intake *in = c->intake;
    in->row = row_of(in->message);
    if (c->server->guarded && in->tokens > 1 && !(in->row && in->row->without_token)) {
        nsbx_conn_refuse_text(c, "unauthorized");
        return;
    }
    struct nsbx_spool **own = own_spool(in), *spool = *own;
    if (spool && !nsbx_spool_settled(spool)) {
        wait_for_spool(c, true);
        return;
    }
    if (spool)
        *own = NULL;
    serve_message(c, spool);
}

static void feed(struct nsbx_conn *c, const uint8_t *bytes, size_t n)
{
    struct nsbx_intake *in = c->intake;
    struct nsbx_err err = {0};
    size_t used = 0;
    int rc = in->message ? 0 : nsbx_wire_feed(&in->reader, bytes, n, &used, &err);
    if (in->too_large) {
        nsbx_conn_refuse_text(c, "frame_too_large: announced %u bytes, limit %zu (NAMZU_AGENT_MAX_FRAME_BYTES)",
                              in->announced, c->server->config.max_frame);
    } else if (rc == -NSBX_E_LIMIT && err.code && !err.sys) {
        nsbx_conn_refuse_text(c, "request_refused: %s", err.message);
    } else if (rc < 0) {
        nsbx_conn_break(c, NULL);
    } else if (rc == NSBX_WIRE_STOP) {
        frame_done(c);
        if (c->phase == NSBX_CONN_OPEN && used < n)
            nsbx_conn_read(c, bytes + used, n - used);
    }
}

static bool spool_full(const struct nsbx_intake *in)
{
    for (int i = 0; i < LARGES; i++)
        if (in->spools[i] && nsbx_spool_full(in->spools[i]))
            return true;
    return false;
}

static void replay_early(struct nsbx_conn *c)
{
    struct nsbx_list *node;
    while (!(c->intake && c->intake->waiting) && (node = nsbx_list_shift(&c->early)) != NULL) {
        struct nsbx_block *block = nsbx_container_of(node, struct nsbx_block, node);
        if (c->intake)
            nsbx_intake_read(c, block->bytes, block->len);
        else if (c->phase == NSBX_CONN_OPEN)
            nsbx_conn_read(c, block->bytes, block->len);
        nsbx_free(block);
    }
}

static void on_step(void *ud)
{
    struct nsbx_intake *in = ud;
    struct nsbx_conn *c = in->c;
    nsbx_conn_enter(c);
    if (in->message) {
        wait_for_spool(c, false);
        frame_done(c);
        nsbx_intake_replay(c);
    } else if (in->waiting && !spool_full(in)) {
        wait_for_spool(c, false);
        nsbx_intake_replay(c);
    }
    nsbx_conn_leave(c);
}

void nsbx_intake_replay(struct nsbx_conn *c)
{
    if (c->stream)
        nsbx_stream_read_stop(c->stream);
    replay_early(c);
    if (c->stream && !c->paused && !(c->intake && c->intake->waiting))
        nsbx_stream_read_start(c->stream);
}

void nsbx_intake_read(struct nsbx_conn *c, const uint8_t *bytes, size_t n)
{
    feed(c, bytes, n);
    if (c->intake && !c->intake->waiting && spool_full(c->intake))
        wait_for_spool(c, true);
}
