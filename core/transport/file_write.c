/* Writing a file: in one frame when it fits, else in parts into a temporary sibling that the last part renames. The guest replaces the
 * target in one step either way, so that it is never seen half written. */
#include "base/alloc.h"
#include "base/util.h"
#include "call_priv.h"
#include "channel/bytestr.h"
#include "codec/path.h"
#include "codec/utf8.h"
#include "file_priv.h"

#include <string.h>

enum {
    PART_RESERVE = 1024, /* [wire] of the frame, for what the formula does not count */
    TEMP_BASE_MAX = 96,  /* of the target's name in the temporary file's; the published host counts characters */
    DISCARD_MS = 5000,   /* [wire] */
};

struct write_call {
    struct nsbx_guest *guest;
    struct nsbx_op *op;
    char *path;
    const uint8_t *bytes;
    size_t n;
    void (*release)(void *ud);
    void *release_ud;
    struct nsbx_feature_wait ask;
    struct nsbx_call *call;  /* the part, or the discard, under way */
    char *temp;              /* NULL: everything in one frame */
    size_t part;             /* bytes of one part */
    size_t at;               /* where the part under way begins */
    size_t len;              /* and its bytes */
    bool asked;              /* the part under way may have reached the guest */
    struct nsbx_err outcome; /* while the temporary file is discarded */
};

static void write_free(struct write_call *w)
{
    nsbx_guest_unask(w->guest, &w->ask);
    nsbx_call_close(w->call);
    if (w->release)
        w->release(w->release_ud);
    nsbx_free(w->temp);
    nsbx_free(w->path);
    nsbx_op_unref(w->op);
    nsbx_guest_unref(w->guest);
    nsbx_free(w);
}

static void finish(struct write_call *w, const struct nsbx_err *err)
{
    nsbx_call_close(w->call);
    w->call = NULL;
    nsbx_op_finish(w->op, err);
    write_free(w);
}

/* ---- what is sent ---- */

static json_t *make_body(const struct write_call *w, const char *path, json_t *part)
{
    (void)w;
    json_t *body = json_pack("{s:o,s:s}", "path", nsbx_bytestr_make(path, strlen(path)), "encoding", "base64");
    if (body && part && json_object_set_nocheck(body, "part", part) != 0) {
        json_decref(body);
        return NULL;
    }
    return body;
}

static json_t *make_part(const struct write_call *w, size_t at, bool final)
{
    if (!final)
        return json_pack("{s:I,s:b}", "offset", (json_int_t)at, "final", 0);
    return json_pack("{s:I,s:b,s:o}", "offset", (json_int_t)at, "final", 1, "renameTo",
                     nsbx_bytestr_make(w->path, strlen(w->path)));
}

/* The exact length of the frame that writes `n` bytes with this body; 0 without memory. */
static size_t envelope_len(const struct write_call *w, json_t *body, size_t n)
{
    struct nsbx_single_request request = {
        .op = "write-file", .body = body, .large = (const uint8_t *)"", .large_len = n, .large_base64 = true};
    nsbx_guest_address(w->guest, &request);
    return body ? nsbx_single_envelope_len(&request) : 0;
}

static int make_temp(struct write_call *w, struct nsbx_err *err)
{
    char uuid[NSBX_UUID_LEN + 1];
    int rc = nsbx_uuid4(uuid, err);
    if (rc < 0)
        return rc;
    const char *base = nsbx_path_base(w->path);
    size_t dir_len = (size_t)(base - w->path), base_len = NSBX_MIN(strlen(base), (size_t)TEMP_BASE_MAX);
    if (base[base_len] != '\0') /* not in the middle of a character, where it is one */
        base_len -= nsbx_utf8_tail((const uint8_t *)base, base_len);
    size_t size = dir_len + sizeof ".namzu-write--.part" + NSBX_UUID_LEN + base_len;
    w->temp = nsbx_malloc(size);
    if (!w->temp)
        return nsbx_err_nomem(err, "a path");
    snprintf(w->temp, size, "%.*s.namzu-write-%s-%.*s.part", (int)dir_len, w->path, uuid, (int)base_len, base);
    return 0;
}

/* The published formula: what is left of the frame beside the longest envelope, in whole groups of four letters. */
static int size_parts(struct write_call *w, struct nsbx_err *err)
{
    size_t budget = w->guest->max_frame;
    json_t *part = make_part(w, w->n, true), *body = part ? make_body(w, w->temp, part) : NULL;
    size_t overhead = envelope_len(w, body, 0);
    json_decref(part);
    json_decref(body);
    if (overhead == 0)
        return nsbx_err_nomem(err, "a request");
    if (overhead + PART_RESERVE + 4 > budget)
        return nsbx_err_set(err, NSBX_E_LIMIT, "the path is too long for the guest's largest message");
    w->part = (budget - overhead - PART_RESERVE) / 4 * 3;
    return 0;
}

/* ---- sending it ---- */

static void on_written(void *ud, json_t *reply, const struct nsbx_err *err);

static int send_bytes(struct write_call *w, struct nsbx_err *err)
{
    bool final = w->at + w->len == w->n;
    json_t *part = w->temp ? make_part(w, w->at, final) : NULL;
    json_t *body = w->temp && !part ? NULL : make_body(w, w->temp ? w->temp : w->path, part);
    json_decref(part);
    if (!body)
        return nsbx_err_nomem(err, "a request");
    struct nsbx_call_spec spec = {
        .op = "write-file",
        .body = body,
        .large = w->len ? w->bytes + w->at : (const uint8_t *)"",
        .large_len = w->len,
        .large_base64 = true,
        .whole_ms = -1,
        .done = on_written,
        .ud = w,
    };
    int rc = nsbx_call_open(w->guest, &spec, &w->call, err);
    json_decref(body);
    w->asked = rc == 0;
    return rc;
}

static void on_discarded(void *ud, json_t *reply, const struct nsbx_err *err)
{
    struct write_call *w = ud;
    (void)reply;
    (void)err; /* best effort: the write's own failure is the one to tell */
    w->call = NULL;
    finish(w, &w->outcome);
}

/* Ends the write with w->outcome; before that, a temporary file that may be there is removed. */
static void fail(struct write_call *w)
{
    struct nsbx_err err;
    nsbx_call_close(w->call);
    w->call = NULL;
    json_t *part = w->temp ? json_pack("{s:b}", "discard", 1) : NULL;
    json_t *body = part ? make_body(w, w->temp, part) : NULL;
    struct nsbx_call_spec spec = {.op = "write-file",
                                  .body = body,
                                  .large = (const uint8_t *)"",
                                  .large_base64 = true,
                                  .whole_ms = nsbx_guest_ms(w->guest, DISCARD_MS),
                                  .done = on_discarded,
                                  .ud = w};
    bool asked = body && nsbx_call_open(w->guest, &spec, &w->call, &err) == 0;
    json_decref(part);
    json_decref(body);
    if (!asked)
        finish(w, &w->outcome);
}

/* Once the frame that replaces the target is on its way and no answer to it comes, it may have done so or not. */
static bool is_uncertain(const struct write_call *w, const json_t *reply, const struct nsbx_err *err)
{
    return !reply && w->asked && w->at + w->len == w->n && err->code != NSBX_E_UNREACHABLE;
}

static void failed(struct write_call *w, const json_t *reply, const struct nsbx_err *err)
{
    char name[128];
    w->outcome = *err;
    if (is_uncertain(w, reply, err)) {
        nsbx_guest_one_line(name, sizeof name, w->path);
        nsbx_err_reason(&w->outcome, err->code, "write_unconfirmed",
                        "'%s' is either as it was or completely written: %s", name, err->message);
    } else {
        nsbx_file_wrap(&w->outcome, "write", w->path);
    }
    bool nothing_sent = w->at == 0 && (!w->asked || err->code == NSBX_E_UNREACHABLE);
    if (nothing_sent)
        finish(w, &w->outcome);
    else
        fail(w);
}

static int check_reply(const struct write_call *w, const json_t *reply, struct nsbx_err *err)
{
    const json_t *written = json_object_get(reply, "bytesWritten"), *size = json_object_get(reply, "sizeBytes");
    if (!json_is_integer(written) || json_integer_value(written) != (json_int_t)w->len)
        return nsbx_err_set(err, NSBX_E_IO, "the guest says it wrote %lld of %zu bytes",
                            (long long)json_integer_value(written), w->len);
    if (w->temp && (!json_is_integer(size) || json_integer_value(size) != (json_int_t)(w->at + w->len)))
        return nsbx_err_set(err, NSBX_E_IO, "the guest's file has %lld bytes, not %zu",
                            (long long)json_integer_value(size), w->at + w->len);
    return 0;
}

static void next_part(struct write_call *w)
{
    struct nsbx_err err;
    w->asked = false;
    w->len = w->temp ? NSBX_MIN(w->part, w->n - w->at) : w->n;
    if (send_bytes(w, &err) < 0)
        failed(w, NULL, &err);
}

static void on_written(void *ud, json_t *reply, const struct nsbx_err *err)
{
    struct write_call *w = ud;
    struct nsbx_err wrong;
    w->call = NULL;
    if (!err && check_reply(w, reply, &wrong) < 0)
        err = &wrong;
    if (err) {
        failed(w, reply, err);
        return;
    }
    w->at += w->len;
    if (w->at == w->n)
        finish(w, NULL);
    else
        next_part(w);
}

/* ---- beginning ---- */

/* Whether it fits, and so what the guest must be able to do, is known before anything is sent. */
static int plan(struct write_call *w, struct nsbx_err *err)
{
    json_t *body = make_body(w, w->path, NULL);
    size_t len = envelope_len(w, body, w->n);
    json_decref(body);
    if (len == 0)
        return nsbx_err_nomem(err, "a request");
    if (len <= w->guest->max_frame)
        return 0;
    int rc = make_temp(w, err);
    return rc == 0 ? size_parts(w, err) : rc;
}

static void on_features(void *ud, const struct nsbx_err *failure)
{
    struct write_call *w = ud;
    struct nsbx_err err;
    json_t *text = failure ? NULL : nsbx_guest_string(w->guest, w->path, "the path", &err);
    if (!failure && !text)
        failure = &err;
    json_decref(text);
    if (!failure && w->temp &&
        nsbx_guest_require(w->guest, NSBX_FEATURE_WRITE_FILE_PARTS, "writing a file of this size", &err) < 0)
        failure = &err;
    if (!failure) {
        next_part(w);
        return;
    }
    w->outcome = *failure;
    nsbx_file_wrap(&w->outcome, "write", w->path);
    finish(w, &w->outcome);
}

static void write_stop(struct nsbx_op *op, void *owner, enum nsbx_op_stop why)
{
    (void)op;
    struct write_call *w = owner;
    struct nsbx_err err;
    nsbx_err_set(&err, why == NSBX_STOP_TIMEOUT ? NSBX_E_TIMEOUT : NSBX_E_CANCELLED, "write_file %s",
                 why == NSBX_STOP_TIMEOUT ? "timed out" : "was cancelled");
    if (w->call) {
        failed(w, NULL, &err);
        return;
    }
    nsbx_file_wrap(&err, "write", w->path);
    finish(w, &err);
}

static int start(struct write_call *w, struct nsbx_err *err)
{
    int rc = plan(w, err);
    bool needs_features = w->temp || !nsbx_bytestr_plain(w->path, strlen(w->path));
    if (rc < 0)
        return rc;
    if (!needs_features) {
        next_part(w);
        return 0;
    }
    rc = nsbx_guest_ask(w->guest, &w->ask, err);
    if (rc > 0)
        on_features(w, NULL);
    return rc < 0 ? rc : 0;
}

struct nsbx_op *nsbx_file_write(struct nsbx_guest *guest, const char *path, const uint8_t *bytes, size_t n,
                                int64_t timeout_ms, void (*release)(void *ud), void *ud)
{
    struct nsbx_err err;
    struct write_call *w = nsbx_calloc(1, sizeof *w);
    char *copy = w ? nsbx_strdup(path ? path : "") : NULL;
    struct nsbx_op_spec spec = {.name = "write_file", .timeout_ms = timeout_ms, .stop = write_stop, .owner = w};
    struct nsbx_op *op = copy ? nsbx_op_new(guest->loop, &spec) : NULL;
    if (!op) {
        nsbx_free(copy);
        nsbx_free(w);
        return NULL;
    }
    *w = (struct write_call){
        .guest = nsbx_guest_ref(guest), .op = nsbx_op_ref(op), .path = copy, .bytes = bytes, .n = n};
    w->release = release;
    w->release_ud = ud;
    nsbx_list_init(&w->ask.node);
    w->ask.done = on_features;
    w->ask.ud = w;
    int rc = nsbx_file_check(path, -1, -1, &err);
    if (rc == 0 && n > NSBX_MAX_WRITE_FILE)
        rc = nsbx_err_set(&err, NSBX_E_LIMIT, "%zu bytes are more than the %u that can be written at once", n,
                          NSBX_MAX_WRITE_FILE);
    if (rc == 0)
        rc = start(w, &err);
    if (rc < 0) {
        if (*copy)
            nsbx_file_wrap(&err, "write", copy);
        finish(w, &err);
    }
    return op;
}
