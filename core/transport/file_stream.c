/* A file in pieces, as its reader asks for them: what is not asked for yet is at most one window. */
#include "base/alloc.h"
#include "file_priv.h"

enum {
    HELD_MAX = 2 * NSBX_CHANNEL_WINDOW
}; /* the window, and what one read of the connection may bring beyond it */

struct nsbx_file_stream {
    struct nsbx_guest *guest;
    char *path;
    int64_t offset, length;
    struct nsbx_feature_wait ask;
    struct nsbx_file_pull pull;
    struct nsbx_buf held;
    struct nsbx_op *next; /* the reader waits */
    bool over;
    struct nsbx_err outcome; /* over: code 0 = the verified end */
};

/* Hands what is held to the op. */
static void give(struct nsbx_file_stream *s, struct nsbx_op *op)
{
    struct nsbx_err err;
    size_t n = s->held.len;
    struct nsbx_bytes *bytes = nsbx_file_bytes(&s->held);
    if (!bytes) {
        nsbx_err_nomem(&err, "a piece of a file"); /* it stays, and can be asked for again */
        nsbx_op_finish(op, &err);
        return;
    }
    nsbx_op_set_result(op, bytes, nsbx_bytes_free);
    nsbx_op_finish(op, NULL);
    if (s->pull.channel)
        nsbx_channel_consumed(s->pull.channel, n);
}

static void answer(struct nsbx_file_stream *s)
{
    struct nsbx_op *op = s->next;
    if (!op || (!s->held.len && !s->over))
        return;
    s->next = NULL;
    if (s->held.len)
        give(s, op);
    else
        nsbx_op_finish(op, s->outcome.code ? &s->outcome : NULL);
    nsbx_op_unref(op);
}

static void on_over(void *ud, const struct nsbx_err *err)
{
    struct nsbx_file_stream *s = ud;
    s->over = true;
    if (err) {
        s->outcome = *err;
        nsbx_file_wrap(&s->outcome, "read", s->path);
    }
    answer(s);
}

static int on_bytes(void *ud, const uint8_t *bytes, size_t n, struct nsbx_err *err)
{
    struct nsbx_file_stream *s = ud;
    int rc = nsbx_buf_append(&s->held, bytes, n, err);
    if (rc == 0)
        answer(s);
    return rc;
}

static void on_features(void *ud, const struct nsbx_err *failure)
{
    struct nsbx_file_stream *s = ud;
    struct nsbx_err err;
    if (!failure &&
        (nsbx_guest_require(s->guest, NSBX_FEATURE_READ_FILE_STREAM, "reading a file as a stream", &err) < 0 ||
         nsbx_file_pull_open(&s->pull, s->path, s->offset, s->length, &err) < 0))
        failure = &err;
    if (failure)
        on_over(s, failure);
}

static void stream_free(struct nsbx_file_stream *s)
{
    nsbx_guest_unask(s->guest, &s->ask);
    nsbx_file_pull_close(&s->pull);
    nsbx_buf_free(&s->held);
    nsbx_free(s->path);
    nsbx_guest_unref(s->guest);
    nsbx_free(s);
}

int nsbx_file_stream_open(struct nsbx_guest *guest, const char *path, int64_t offset, int64_t length,
                          struct nsbx_file_stream **out, struct nsbx_err *err)
{
    struct nsbx_err failure;
    int rc = nsbx_file_check(path, offset, length, err);
    if (rc < 0)
        return rc;
    struct nsbx_file_stream *s = nsbx_calloc(1, sizeof *s);
    if (s)
        s->path = nsbx_strdup(path);
    if (!s || !s->path) {
        nsbx_free(s);
        return nsbx_err_nomem(err, "a file stream");
    }
    s->guest = nsbx_guest_ref(guest);
    s->offset = offset;
    s->length = length;
    nsbx_list_init(&s->ask.node);
    s->ask.done = on_features;
    s->ask.ud = s;
    s->pull = (struct nsbx_file_pull){
        .guest = guest, .max_length = INT64_MAX, .on_bytes = on_bytes, .on_over = on_over, .ud = s};
    nsbx_buf_init(&s->held, HELD_MAX);
    *out = s;
    rc = nsbx_guest_ask(guest, &s->ask, &failure);
    if (rc != 0)
        on_features(s, rc < 0 ? &failure : NULL);
    return 0;
}

/* Whoever stops waiting for a piece stops reading: the rest is not wanted, and a later call must not find it half read. */
static void next_stop(struct nsbx_op *op, void *owner, enum nsbx_op_stop why)
{
    (void)why;
    struct nsbx_file_stream *s = owner;
    nsbx_guest_unask(s->guest, &s->ask);
    nsbx_file_pull_close(&s->pull);
    nsbx_buf_free(&s->held);
    s->next = NULL;
    nsbx_op_finish_stopped(op);
    s->over = true;
    nsbx_err_copy(&s->outcome, nsbx_op_err(op));
    nsbx_op_unref(op);
}

struct nsbx_op *nsbx_file_stream_next(struct nsbx_file_stream *s, int64_t timeout_ms)
{
    struct nsbx_err err;
    if (s->next) {
        nsbx_err_set(&err, NSBX_E_INVALID, "somebody waits for the next piece of this file already");
        return nsbx_waits_over(s->guest->loop, "read_file_stream", &err, NULL);
    }
    struct nsbx_op_spec spec = {
        .name = "read_file_stream", .timeout_ms = timeout_ms, .stop = next_stop, .owner = s};
    s->next = nsbx_op_new(s->guest->loop, &spec);
    if (!s->next)
        return NULL;
    struct nsbx_op *op = nsbx_op_ref(s->next);
    answer(s);
    return op;
}

void nsbx_file_stream_close(struct nsbx_file_stream *s)
{
    struct nsbx_err err;
    if (!s)
        return;
    if (s->next) {
        nsbx_err_set(&err, NSBX_E_CANCELLED, "the file stream was closed");
        nsbx_op_finish(s->next, &err);
        nsbx_op_unref(s->next);
    }
    stream_free(s);
}
