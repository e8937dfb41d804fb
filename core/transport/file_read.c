/* A file, or a range of it, in one piece: by read-file-stream, which knows no size limit, or by the whole read-file of a guest
 * without it. */
#include "base/alloc.h"
#include "call_priv.h"
#include "file_priv.h"

struct read_call {
    struct nsbx_guest *guest;
    struct nsbx_op *op;
    char *path;
    int64_t offset, length;
    struct nsbx_feature_wait ask;
    struct nsbx_file_pull pull;
    struct nsbx_call *whole;
    struct nsbx_buf bytes;
};

static void call_free(struct read_call *call)
{
    nsbx_guest_unask(call->guest, &call->ask);
    nsbx_file_pull_close(&call->pull);
    nsbx_call_close(call->whole);
    nsbx_buf_free(&call->bytes);
    nsbx_free(call->path);
    nsbx_op_unref(call->op);
    nsbx_guest_unref(call->guest);
    nsbx_free(call);
}

static void call_finish(struct read_call *call, const struct nsbx_err *failure)
{
    struct nsbx_err err;
    if (failure) {
        err = *failure;
        nsbx_file_wrap(&err, "read", call->path);
    } else {
        struct nsbx_bytes *bytes = nsbx_file_bytes(&call->bytes);
        if (bytes)
            nsbx_op_set_result(call->op, bytes, nsbx_bytes_free);
        else
            nsbx_err_nomem(&err, "a file");
        failure = bytes ? NULL : &err;
    }
    nsbx_op_finish(call->op, failure ? &err : NULL);
    call_free(call);
}

static void on_over(void *ud, const struct nsbx_err *err)
{
    call_finish(ud, err);
}

static int on_bytes(void *ud, const uint8_t *bytes, size_t n, struct nsbx_err *err)
{
    struct read_call *call = ud;
    int rc = nsbx_buf_append(&call->bytes, bytes, n, err);
    if (rc == 0)
        nsbx_channel_consumed(call->pull.channel, n);
    return rc;
}

static void on_whole(void *ud, json_t *reply, const struct nsbx_err *err)
{
    struct read_call *call = ud;
    struct nsbx_err wrong;
    call->whole = NULL;
    const json_t *size = json_object_get(reply, "sizeBytes");
    if (!err && json_is_integer(size) && json_integer_value(size) != (json_int_t)call->bytes.len) {
        nsbx_err_set(&wrong, NSBX_E_PROTOCOL, "the guest sent %zu bytes of a file of %lld", call->bytes.len,
                     (long long)json_integer_value(size));
        err = &wrong;
    }
    call_finish(call, err);
}

static int start_whole(struct read_call *call, struct nsbx_err *err)
{
    json_t *body = nsbx_file_body(call->guest, call->path, -1, -1, err);
    if (!body)
        return -err->code;
    if (json_object_set_new_nocheck(body, "encoding", json_string("base64")) != 0) {
        json_decref(body);
        return nsbx_err_nomem(err, "a request");
    }
    struct nsbx_call_spec spec = {
        .op = "read-file", .body = body, .into = &call->bytes, .whole_ms = -1, .done = on_whole, .ud = call};
    int rc = nsbx_call_open(call->guest, &spec, &call->whole, err);
    json_decref(body);
    return rc;
}

static int start(struct read_call *call, struct nsbx_err *err)
{
    if (nsbx_guest_has(call->guest, NSBX_FEATURE_READ_FILE_STREAM))
        return nsbx_file_pull_open(&call->pull, call->path, call->offset, call->length, err);
    if (call->offset >= 0 || call->length >= 0) /* an older guest would ignore the range and send everything */
        return nsbx_guest_require(call->guest, NSBX_FEATURE_READ_FILE_STREAM, "reading a range", err);
    return start_whole(call, err);
}

static void on_features(void *ud, const struct nsbx_err *failure)
{
    struct read_call *call = ud;
    struct nsbx_err err;
    if (failure)
        call_finish(call, failure);
    else if (start(call, &err) < 0)
        call_finish(call, &err);
}

static void call_stop(struct nsbx_op *op, void *owner, enum nsbx_op_stop why)
{
    (void)why;
    nsbx_op_finish_stopped(op);
    call_free(owner);
}

struct nsbx_op *nsbx_file_read(struct nsbx_guest *guest, const char *path, int64_t offset, int64_t length,
                               int64_t timeout_ms)
{
    struct nsbx_err err;
    if (nsbx_file_check(path, offset, length, &err) < 0)
        return nsbx_waits_over(guest->loop, "read_file", &err, NULL);
    struct read_call *call = nsbx_calloc(1, sizeof *call);
    char *copy = call ? nsbx_strdup(path) : NULL;
    struct nsbx_op_spec spec = {.name = "read_file", .timeout_ms = timeout_ms, .stop = call_stop, .owner = call};
    struct nsbx_op *op = copy ? nsbx_op_new(guest->loop, &spec) : NULL;
    if (!op) {
        nsbx_free(copy);
        nsbx_free(call);
        return NULL;
    }
    call->guest = nsbx_guest_ref(guest);
    call->op = nsbx_op_ref(op);
    call->path = copy;
    call->offset = offset;
    call->length = length;
    nsbx_list_init(&call->ask.node);
    call->ask.done = on_features;
    call->ask.ud = call;
    call->pull = (struct nsbx_file_pull){
        .guest = guest, .max_length = NSBX_MAX_READ_FILE, .on_bytes = on_bytes, .on_over = on_over, .ud = call};
    nsbx_buf_init(&call->bytes, NSBX_MAX_READ_FILE);
    int rc = nsbx_guest_ask(guest, &call->ask, &err);
    if (rc > 0)
        on_features(call, NULL);
    else if (rc < 0)
        on_features(call, &err);
    return op;
}
