#include "base/alloc.h"
#include "file_priv.h"

#include <string.h>

void nsbx_file_pull_close(struct nsbx_file_pull *p)
{
    nsbx_channel_close(p->channel);
    p->channel = NULL;
}

static void over(struct nsbx_file_pull *p, const struct nsbx_err *err)
{
    nsbx_file_pull_close(p);
    p->on_over(p->ud, err ? nsbx_guest_truth(p->guest, err) : NULL);
}

static void violation(struct nsbx_file_pull *p, const char *what)
{
    struct nsbx_err err;
    nsbx_err_set(&err, NSBX_E_PROTOCOL, "the guest broke the protocol: %s", what);
    over(p, &err);
}

static bool read_count(const json_t *message, const char *name, int64_t *out)
{
    const json_t *value = json_object_get(message, name);
    *out = (int64_t)json_integer_value(value);
    return json_is_integer(value) && *out >= 0;
}

static void on_meta(struct nsbx_file_pull *p, const json_t *message)
{
    struct nsbx_err err;
    int64_t size, length;
    if (p->length >= 0) {
        violation(p, "two meta messages");
    } else if (!read_count(message, "sizeBytes", &size) || !read_count(message, "length", &length) ||
               length > size || (p->wanted >= 0 && length > p->wanted)) {
        violation(p, "the sizes of a file");
    } else if (length > p->max_length) {
        nsbx_err_set(&err, NSBX_E_LIMIT,
                     "%lld bytes are more than can be read at once (%lld); read it as a stream or in ranges",
                     (long long)length, (long long)p->max_length);
        over(p, &err);
    } else {
        p->length = length;
    }
}

static void on_last(struct nsbx_file_pull *p, const json_t *message)
{
    struct nsbx_err err;
    int64_t sent;
    if (p->length < 0 || !read_count(message, "bytesSent", &sent) || sent != p->got) {
        violation(p, "what it counted is not what it sent");
    } else if (sent < p->length) {
        nsbx_err_reason(&err, NSBX_E_IO, "file_shrank",
                        "the file shrank while it was read: %lld of %lld bytes came", (long long)sent,
                        (long long)p->length);
        over(p, &err);
    } else {
        p->ended = true;
    }
}

static void on_message(void *ud, json_t *message)
{
    struct nsbx_file_pull *p = ud;
    struct nsbx_err err;
    const char *type = json_string_value(json_object_get(message, "type"));
    if (p->ended) {
        violation(p, "a message after the last one");
    } else if (type ? strcmp(type, "error") == 0 : json_is_false(json_object_get(message, "ok"))) {
        nsbx_guest_refusal(message, &err);
        over(p, &err);
    } else if (type && strcmp(type, "meta") == 0) {
        on_meta(p, message);
    } else if (type && strcmp(type, "end") == 0) {
        on_last(p, message);
    } else {
        violation(p, "a message of an unknown type");
    }
}

static void on_data(void *ud, enum nsbx_sub sub, const uint8_t *bytes, size_t n, int64_t offset)
{
    struct nsbx_file_pull *p = ud;
    struct nsbx_err err;
    (void)sub;
    (void)offset;
    if (p->length < 0 || p->ended || (int64_t)n > p->length - p->got) {
        violation(p, "more bytes than it announced");
        return;
    }
    p->got += (int64_t)n;
    if (p->on_bytes(p->ud, bytes, n, &err) < 0)
        over(p, &err);
}

static void on_end(void *ud)
{
    struct nsbx_file_pull *p = ud;
    if (p->ended)
        over(p, NULL);
    else
        violation(p, "the stream ended without its last message");
}

static void on_fail(void *ud, const struct nsbx_err *err)
{
    over(ud, err);
}

int nsbx_file_pull_open(struct nsbx_file_pull *p, const char *path, int64_t offset, int64_t length,
                        struct nsbx_err *err)
{
    static const struct nsbx_channel_events events = {
        .on_message = on_message, .on_data = on_data, .on_end = on_end, .on_fail = on_fail};
    json_t *body = nsbx_file_body(p->guest, path, offset, length, err);
    if (!body)
        return -err->code;
    p->length = -1;
    p->wanted = length;
    struct nsbx_single_request request = {.op = "read-file-stream",
                                          .body = body,
                                          .data_base64 = true,
                                          .idle_ms = nsbx_guest_ms(p->guest, NSBX_REPLY_IDLE_MS)};
    p->channel = nsbx_guest_open(p->guest, &request, &events, p, err);
    json_decref(body);
    return p->channel ? 0 : -err->code;
}

/* ---- small things of all file operations ---- */

json_t *nsbx_file_body(const struct nsbx_guest *guest, const char *path, int64_t offset, int64_t length,
                       struct nsbx_err *err)
{
    json_t *body = json_object(), *text = nsbx_guest_string(guest, path, "the path", err);
    if (!text) {
        json_decref(body);
        return NULL;
    }
    bool made = json_object_set_new_nocheck(body, "path", text) == 0;
    if (offset >= 0)
        made = made && json_object_set_new_nocheck(body, "offset", json_integer(offset)) == 0;
    if (length >= 0)
        made = made && json_object_set_new_nocheck(body, "length", json_integer(length)) == 0;
    if (made)
        return body;
    json_decref(body);
    nsbx_err_nomem(err, "a request");
    return NULL;
}

void nsbx_bytes_free(void *bytes)
{
    struct nsbx_bytes *b = bytes;
    if (!b)
        return;
    nsbx_free(b->data);
    nsbx_free(b);
}

struct nsbx_bytes *nsbx_file_bytes(struct nsbx_buf *buf)
{
    struct nsbx_bytes *b = nsbx_malloc(sizeof *b);
    if (b)
        b->data = nsbx_buf_take(buf, &b->len);
    return b;
}

int nsbx_file_wrap(struct nsbx_err *err, const char *doing, const char *path)
{
    char name[128];
    nsbx_guest_one_line(name, sizeof name, path);
    return nsbx_err_wrap(err, "cannot %s '%s'", doing, name);
}

int nsbx_file_check(const char *path, int64_t offset, int64_t length, struct nsbx_err *err)
{
    const int64_t max_safe_integer = (1LL << 53) - 1;
    if (!path || !*path)
        return nsbx_err_set(err, NSBX_E_INVALID, "a path is needed");
    if (offset > max_safe_integer || length > max_safe_integer)
        return nsbx_err_set(err, NSBX_E_INVALID, "the range is larger than any file can be");
    return 0;
}
