/* For the tests of channels: both ends with a record of what they heard, and a peer made of plain bytes. */
#ifndef NSBX_SPEC_CHANNEL_RIG_H
#define NSBX_SPEC_CHANNEL_RIG_H

#include "channel/single.h"
#include "codec/base64.h"
#include "stream_rig.h"

#include <jansson.h>

/* ---- a growing text ---- */

struct text {
    char *p; /* NUL-terminated; NULL when empty */
    size_t n, cap;
};

static inline void text_add(struct text *t, const void *bytes, size_t n)
{
    if (t->n + n + 1 > t->cap) {
        t->cap = (t->n + n + 1) * 2;
        t->p = realloc(t->p, t->cap);
    }
    memcpy(t->p + t->n, bytes, n);
    t->n += n;
    t->p[t->n] = 0;
}

static inline void text_printf(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static inline void text_printf(struct text *t, const char *fmt, ...)
{
    va_list args;
    char *line = NULL;
    va_start(args, fmt);
    int n = vasprintf(&line, fmt, args);
    va_end(args);
    text_add(t, line, (size_t)n);
    free(line);
}

static inline void text_free(struct text *t)
{
    free(t->p);
    *t = (struct text){0};
}

static inline const char *text_of(const struct text *t)
{
    return t->p ? t->p : "";
}

/* Appends one frame. */
static inline void text_frame(struct text *t, const char *json)
{
    text_printf(t, "%08zx\n%s", strlen(json), json);
}

/* ---- one end of a channel, and what it heard ---- */

struct heard {
    struct nsbx_channel *ch; /* NULL when closed */
    struct text log;         /* a line an event; data that belongs together is one line, however it came in */
    int last_sub;            /* of the line of data that is being written; -1 = none */
    int64_t next_offset;
    struct text data[3]; /* by sub-stream */
    uint64_t bytes;      /* of data */
    int ends, fails, messages, drains;
    int code; /* of the failure */
    bool in_call, called_inside, after_all;
    bool keep;       /* do not consume */
    bool count_only; /* do not keep the data, but compare it with the pattern */
    int wrong;
    void (*hook)(struct heard *h, char what); /* 'm' 'd' 'e' 'f' 'r' after the record; 'o': opened (a guest) */
    json_t *body;                             /* a guest's, kept */
    json_t *message;                          /* the last */
};

static inline void heard_line(struct heard *h, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static inline void heard_line(struct heard *h, const char *fmt, ...)
{
    va_list args;
    char *line = NULL;
    va_start(args, fmt);
    if (vasprintf(&line, fmt, args) < 0)
        abort();
    va_end(args);
    text_printf(&h->log, "%s%s\n", h->last_sub >= 0 ? "\n" : "", line);
    h->last_sub = -1;
    free(line);
}

static inline void heard_check(struct heard *h)
{
    if (h->in_call)
        h->called_inside = true;
    if (!h->ch || h->fails)
        h->after_all = true;
}

/* The record must not be what fails when a test has an allocation fail: what fails once is tried again. */
static inline char *json_text(const json_t *value)
{
    const size_t flags = JSON_COMPACT | JSON_ENCODE_ANY;
    size_t n = 0;
    for (int i = 0; value && !n && i < 2; i++)
        n = json_dumpb(value, NULL, 0, flags);
    char *text = calloc(1, n + 2);
    if (!n)
        text[0] = '-';
    else if (json_dumpb(value, text, n, flags) != n)
        json_dumpb(value, text, n, flags);
    return text;
}

static inline void heard_message(void *ud, json_t *message)
{
    struct heard *h = ud;
    heard_check(h);
    char *json = json_text(message);
    heard_line(h, "message %s", json);
    free(json);
    json_decref(h->message);
    h->message = json_incref(message);
    h->messages++;
    if (h->hook)
        h->hook(h, 'm');
}

static inline void heard_data(void *ud, enum nsbx_sub sub, const uint8_t *bytes, size_t n, int64_t offset)
{
    struct heard *h = ud;
    heard_check(h);
    h->after_all |= n == 0 || h->ends > 0;
    if (h->count_only) {
        h->wrong += !is_filled(bytes, n, h->bytes);
    } else {
        if (h->last_sub != (int)sub || (offset >= 0 && offset != h->next_offset)) {
            text_printf(&h->log, "%sdata %d", h->last_sub >= 0 ? "\n" : "", (int)sub);
            if (offset >= 0)
                text_printf(&h->log, " @%lld", (long long)offset);
            text_printf(&h->log, " ");
        }
        text_add(&h->log, bytes, n);
        h->last_sub = (int)sub;
        h->next_offset = offset < 0 ? -1 : offset + (int64_t)n;
        text_add(&h->data[sub], bytes, n);
    }
    h->bytes += n;
    if (!h->keep) {
        h->in_call = true;
        nsbx_channel_consumed(h->ch, n);
        h->in_call = false;
    }
    if (h->hook)
        h->hook(h, 'd');
}

static inline void heard_end(void *ud)
{
    struct heard *h = ud;
    heard_check(h);
    heard_line(h, "end");
    h->ends++;
    if (h->hook)
        h->hook(h, 'e');
}

static inline void heard_fail(void *ud, const struct nsbx_err *err)
{
    struct heard *h = ud;
    heard_check(h);
    heard_line(h, "fail %s", nsbx_code_name(err->code));
    if (getenv("VERBOSE"))
        fprintf(stderr, "%s: %s\n", harness_case, err->message);
    h->fails++;
    h->code = err->code;
    if (h->hook)
        h->hook(h, 'f');
}

static inline void heard_drain(void *ud)
{
    struct heard *h = ud;
    heard_check(h);
    h->drains++;
    if (h->hook)
        h->hook(h, 'r');
}

static const struct nsbx_channel_events heard_events = {heard_message, heard_data, heard_end, heard_fail,
                                                        heard_drain};

static inline void heard_close(struct heard *h)
{
    struct nsbx_channel *ch = h->ch;
    h->ch = NULL;
    nsbx_channel_close(ch);
}

static inline void heard_free(struct heard *h)
{
    if (h->ch)
        heard_close(h);
    CHECK(!h->called_inside);
    CHECK(!h->after_all);
    CHECK(h->ends <= 1);
    CHECK(h->fails <= 1);
    text_free(&h->log);
    for (size_t i = 0; i < NSBX_LEN(h->data); i++)
        text_free(&h->data[i]);
    json_decref(h->body);
    json_decref(h->message);
}

static inline int heard_send(struct heard *h, json_t *message)
{
    h->in_call = true;
    int rc = nsbx_channel_send(h->ch, message, NULL);
    h->in_call = false;
    return rc;
}

static inline int heard_put(struct heard *h, enum nsbx_sub sub, const char *bytes, size_t n, int64_t offset)
{
    h->in_call = true;
    int rc = nsbx_channel_data(h->ch, sub, (const uint8_t *)bytes, n, offset, NULL);
    h->in_call = false;
    return rc;
}

static inline int heard_finish(struct heard *h)
{
    h->in_call = true;
    int rc = nsbx_channel_end(h->ch, NULL);
    h->in_call = false;
    return rc;
}

/* ---- a peer made of bytes ---- */

struct raw {
    struct nsbx_stream *s; /* NULL when closed */
    struct text got;
    bool eof, error;
};

static inline void raw_on_read(void *ud, const uint8_t *bytes, size_t n)
{
    struct raw *r = ud;
    text_add(&r->got, bytes, n);
}
static inline void raw_on_eof(void *ud)
{
    struct raw *r = ud;
    r->eof = true;
}
static inline void raw_on_error(void *ud, const struct nsbx_err *err)
{
    struct raw *r = ud;
    (void)err;
    r->error = true;
}
static const struct nsbx_stream_events raw_events = {raw_on_read, raw_on_eof, raw_on_error, NULL};

static inline void raw_take(struct raw *r, struct nsbx_stream *s)
{
    r->s = s;
    nsbx_stream_set_events(s, &raw_events, r);
    nsbx_stream_read_start(s);
}

static inline void raw_write(struct raw *r, const void *bytes, size_t n)
{
    if (r->s && nsbx_stream_write(r->s, bytes, n, NULL) != 0)
        r->error = true;
}

static inline void raw_close(struct raw *r)
{
    struct nsbx_stream *s = r->s;
    r->s = NULL;
    nsbx_stream_close(s);
}

static inline void raw_free(struct raw *r)
{
    raw_close(r);
    text_free(&r->got);
}

static inline bool raw_over(const struct raw *r)
{
    return r->eof || r->error;
}

/* ---- the rig: a guest's server (or a raw guest), and the way to it ---- */

enum { SERVED_MAX = 128 };

static struct rig {
    size_t capacity, io; /* of the pairs of streams */
    bool sockets;        /* socket pairs instead */
    struct nsbx_single_server *server;
    struct nsbx_single_server_config config;
    struct heard *served[SERVED_MAX]; /* by order of opening */
    size_t n_served;
    void (*serve)(struct heard *h, char what); /* the hook of what is opened */
    const struct nsbx_op_row *fence;           /* refused by the gate */
    bool fence_as_stream;
    struct raw guest; /* without a server: who is dialled */
    int dials, dials_to_fail;
} rig;

static inline void rig_on_open(void *ud, struct nsbx_channel *ch, json_t *body)
{
    (void)ud;
    struct heard *h = calloc(1, sizeof(*h));
    if (rig.n_served == SERVED_MAX)
        abort();
    rig.served[rig.n_served++] = h;
    h->last_sub = -1;
    h->ch = ch;
    h->body = json_incref(body);
    h->hook = rig.serve;
    char *json = json_text(body);
    heard_line(h, "open %s %s", nsbx_channel_op(ch)->name, json);
    free(json);
    nsbx_channel_set_events(ch, &heard_events, h);
    if (h->hook)
        h->hook(h, 'o');
}

static inline json_t *rig_gate(void *ud, const struct nsbx_op_row *row, bool *as_stream)
{
    (void)ud;
    *as_stream = rig.fence_as_stream;
    return row == rig.fence ? json_pack("{s:b,s:s}", "ok", 0, "error", "agent_retiring") : NULL;
}

/* A server as the agent makes it, without tokens; change rig.config before rig_serve. */
static inline void channel_rig_open(void)
{
    size_t capacity = rig.capacity, io = rig.io;
    bool sockets = rig.sockets;
    rig_open();
    rig = (struct rig){
        .capacity = capacity ? capacity : 256 * 1024,
        .io = io,
        .sockets = sockets,
        .config =
            {
                .max_frame = NSBX_MAX_FRAME,
                .max_preauth_frame = NSBX_MAX_PREAUTH_FRAME,
                .max_preauth_buffer = NSBX_MAX_PREAUTH_BUFFER,
                .max_preauth_connections = NSBX_MAX_PREAUTH_CONNECTIONS,
                .preauth_idle_ms = 10000,
                .preauth_deadline_ms = 10000,
                .refusal_flush_ms = 1000,
                .spool_dir_fd = -1,
                .on_open = rig_on_open,
                .gate = rig_gate,
            },
    };
}

static inline void rig_serve(void)
{
    struct nsbx_err err;
    rig.server = nsbx_single_server_new(loop, &rig.config, &err);
    if (!rig.server) {
        fprintf(stderr, "no server: %s\n", err.message);
        abort();
    }
}

static inline int rig_streams(struct nsbx_stream *ends[2])
{
    int fds[2], rc = 0;
    if (!rig.sockets)
        return nsbx_stream_pair(loop, rig.capacity, rig.io, ends, NULL);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
        abort();
    ends[0] = ends[1] = NULL;
    for (int i = 0; i < 2; i++)
        if (nsbx_stream_from_fd(loop, fds[i], &ends[i], NULL) != 0)
            rc = -NSBX_E_LIMIT;
    for (int i = 0; i < 2 && rc; i++)
        nsbx_stream_close(ends[i]);
    return rc;
}

/* A raw host, connected to the server. */
static inline void rig_connect(struct raw *host)
{
    struct nsbx_stream *ends[2];
    if (rig_streams(ends) != 0)
        abort();
    *host = (struct raw){0};
    raw_take(host, ends[0]);
    nsbx_single_serve(rig.server, ends[1]);
}

static inline void rig_close_stream(void *stream)
{
    nsbx_stream_close(stream);
}

static inline struct nsbx_op *rig_dial(void *ud, struct nsbx_loop *l, int64_t timeout_ms)
{
    (void)ud;
    const struct nsbx_op_spec spec = {.name = "dial", .timeout_ms = timeout_ms};
    struct nsbx_op *op = nsbx_op_new(l, &spec);
    if (!op)
        return NULL;
    struct nsbx_stream *ends[2];
    if (rig.dials++ < rig.dials_to_fail || rig_streams(ends) != 0) {
        struct nsbx_err err;
        nsbx_err_sys(&err, ECONNREFUSED, "cannot connect");
        nsbx_op_finish(op, &err);
        return op;
    }
    if (rig.server)
        nsbx_single_serve(rig.server, ends[1]);
    else
        raw_take(&rig.guest, ends[1]);
    nsbx_op_set_result(op, ends[0], rig_close_stream);
    nsbx_op_finish(op, NULL);
    return op;
}

/* Opens a host's channel that is heard by h; -code when it was refused at once. */
static inline int rig_ask(struct heard *h, struct nsbx_single_request request)
{
    struct nsbx_err err;
    if (!request.dial_budget_ms)
        request.dial_budget_ms = -1;
    if (!request.idle_ms)
        request.idle_ms = -1;
    h->last_sub = -1;
    h->ch = nsbx_single_open(loop, rig_dial, NULL, &request, &heard_events, h, &err);
    return h->ch ? 0 : -err.code;
}

static inline bool heard_all(const struct heard *h)
{
    return h->ends || h->fails;
}

static inline void channel_rig_close(void)
{
    for (size_t i = 0; i < rig.n_served; i++) {
        heard_free(rig.served[i]);
        free(rig.served[i]);
    }
    raw_free(&rig.guest);
    if (rig.server) {
        TURN_UNTIL(nsbx_single_connections(rig.server) == 0, 3000);
        nsbx_single_server_close(rig.server);
    }
    turn_for(1);
    for (int i = 0; i < 2000 && nsbx_loop_live(loop, NULL, NULL); i++)
        turn_for(1); /* a worker may still be closing a file */
    rig_close();
}

/* Turns until nothing is deferred any more and the pairs have carried what is in them. */
static inline void rig_settle(void)
{
    for (int i = 0; i < 8; i++)
        nsbx_loop_turn(loop, NSBX_TURN_POLL);
}

#endif
