#include "envelope_priv.h"

#include "base/limits.h"
#include "base/util.h"
#include "codec/base64.h"
#include "codec/frame.h"

#include <string.h>

enum { HEAD_MAX = 32 * 1024 * 1024 };            /* an envelope without its large member */
enum { RAW_STEP = NSBX_ENVELOPE_PIECE / 4 * 3 }; /* a multiple of 3, so that the letters of two steps join */
enum { TEXT_STEP = 16 * 1024, TEXT_MAX = TEXT_STEP * 3 + 16 };
static const char closing[] = "\"}}"; /* the string, the body, the envelope */

/* One step of text, escaped, onto `out`. n 0 ends the text. */
static int put_text(struct nsbx_utf8 *chars, struct nsbx_buf *text, const uint8_t *bytes, size_t n,
                    struct nsbx_buf *out, struct nsbx_err *err)
{
    int rc = n ? nsbx_utf8_feed(chars, bytes, n, text, err) : nsbx_utf8_flush(chars, text, err);
    if (rc == 0 && text->len)
        rc = nsbx_json_escape(out, nsbx_buf_data(text), text->len, err);
    text->head = text->len = 0;
    return rc;
}

/* The letters of a text member, counted by making them piece by piece. */
static int count_text(const uint8_t *bytes, size_t n, size_t *total, struct nsbx_err *err)
{
    struct nsbx_utf8 chars;
    struct nsbx_buf text, out;
    nsbx_utf8_init(&chars);
    nsbx_buf_init(&text, TEXT_MAX);
    nsbx_buf_init(&out, 6 * (size_t)TEXT_MAX);
    *total = 0;
    int rc;
    do {
        size_t step = NSBX_MIN(n, (size_t)TEXT_STEP);
        rc = put_text(&chars, &text, bytes, step, &out, err);
        if (rc == 0 && step && step == n)
            rc = put_text(&chars, &text, NULL, 0, &out, err);
        *total += out.len;
        out.head = out.len = 0;
        bytes += step;
        n -= step;
    } while (rc == 0 && n);
    nsbx_buf_free(&text);
    nsbx_buf_free(&out);
    return rc;
}

static int append_json(struct nsbx_buf *out, const json_t *value, struct nsbx_err *err)
{
    size_t len = json_dumpb(value, NULL, 0, JSON_COMPACT);
    if (!len)
        return nsbx_err_nomem(err, "a request");
    uint8_t *at = nsbx_buf_reserve(out, len, err);
    if (!at)
        return -NSBX_E_LIMIT;
    if (json_dumpb(value, (char *)at, len, JSON_COMPACT) != len)
        return nsbx_err_nomem(err, "a request");
    nsbx_buf_commit(out, len);
    return 0;
}

/* {"a":1} becomes {"a":1,"content":" */
static int append_open_body(struct nsbx_buf *out, const json_t *body, const char *large, struct nsbx_err *err)
{
    if (!json_object_size(body))
        return nsbx_buf_printf(out, err, ",\"body\":{\"%s\":\"", large);
    int rc = nsbx_buf_append(out, ",\"body\":", 8, err);
    if (rc == 0)
        rc = append_json(out, body, err);
    if (rc)
        return rc;
    out->len--;
    return nsbx_buf_printf(out, err, ",\"%s\":\"", large);
}

static int append_token(struct nsbx_buf *out, const char *token, struct nsbx_err *err)
{
    if (!nsbx_utf8_valid((const uint8_t *)token, strlen(token)))
        return nsbx_err_set(err, NSBX_E_INVALID, "the token is not valid UTF-8, so no request can carry it");
    int rc = nsbx_buf_append(out, ",\"token\":\"", 10, err);
    if (rc == 0)
        rc = nsbx_json_escape(out, (const uint8_t *)token, strlen(token), err);
    return rc ? rc : nsbx_buf_append(out, "\"", 1, err);
}

/* The frame header's room, and the JSON before the large member's letters, or all of it when there is none. */
static int build_head(struct nsbx_buf *head, const struct nsbx_op_row *row,
                      const struct nsbx_single_request *request, struct nsbx_err *err)
{
    static const uint8_t room[NSBX_FRAME_HEADER];
    int rc = nsbx_buf_append(head, room, sizeof(room), err);
    if (rc == 0)
        rc = nsbx_buf_printf(head, err, "{\"op\":\"%s\"", row->name);
    if (rc == 0 && request->token)
        rc = append_token(head, request->token, err);
    if (rc == 0 && request->large)
        return append_open_body(head, request->body, row->large, err);
    if (rc == 0 && request->body)
        rc = nsbx_buf_append(head, ",\"body\":", 8, err);
    if (rc == 0 && request->body)
        rc = append_json(head, request->body, err);
    return rc ? rc : nsbx_buf_append(head, "}", 1, err);
}

static int payload_len(const struct nsbx_buf *head, const struct nsbx_single_request *request, size_t *total,
                       struct nsbx_err *err)
{
    *total = head->len - NSBX_FRAME_HEADER;
    if (!request->large)
        return 0;
    size_t letters = nsbx_base64_len(request->large_len);
    int rc = request->large_base64 ? 0 : count_text(request->large, request->large_len, &letters, err);
    *total += letters + strlen(closing);
    return rc;
}

int nsbx_envelope_init(struct nsbx_envelope *e, const struct nsbx_op_row *row,
                       const struct nsbx_single_request *request, struct nsbx_err *err)
{
    memset(e, 0, sizeof(*e));
    nsbx_buf_init(&e->head, HEAD_MAX);
    nsbx_buf_init(&e->text, TEXT_MAX);
    nsbx_utf8_init(&e->chars);
    if (request->large && !row->large)
        return nsbx_err_set(err, NSBX_E_INVALID, "%s has no large member", row->name);
    if (request->body && !json_is_object(request->body))
        return nsbx_err_set(err, NSBX_E_INVALID, "the body of %s must be an object", row->name);
    size_t total, max = request->max_frame ? request->max_frame : NSBX_MAX_FRAME;
    int rc = build_head(&e->head, row, request, err);
    if (rc == 0)
        rc = payload_len(&e->head, request, &total, err);
    if (rc == 0 && total > max)
        rc = nsbx_err_set(err, NSBX_E_LIMIT, "the request %s takes %zu bytes, and the guest's limit is %zu",
                          row->name, total, max);
    if (rc) {
        nsbx_envelope_free(e);
        return rc;
    }
    nsbx_frame_header(nsbx_buf_data(&e->head), (uint32_t)total);
    e->large = request->large;
    e->left = request->large ? request->large_len : 0;
    e->base64 = request->large_base64;
    e->open = request->large != NULL;
    return 0;
}

static int put_step(struct nsbx_envelope *e, struct nsbx_buf *out, struct nsbx_err *err)
{
    size_t step = NSBX_MIN(e->left, (size_t)(e->base64 ? RAW_STEP : TEXT_STEP));
    if (e->base64) {
        uint8_t *at = nsbx_buf_reserve(out, nsbx_base64_len(step), err);
        if (!at)
            return -NSBX_E_LIMIT;
        nsbx_buf_commit(out, nsbx_base64_encode((char *)at, e->large, step));
    } else {
        int rc = put_text(&e->chars, &e->text, e->large, step, out, err);
        if (rc)
            return rc;
    }
    e->large += step;
    e->left -= step;
    return 0;
}

int nsbx_envelope_next(struct nsbx_envelope *e, struct nsbx_buf *out, struct nsbx_err *err)
{
    int rc = nsbx_buf_append(out, nsbx_buf_data(&e->head), e->head.len, err);
    nsbx_buf_free(&e->head);
    while (rc == 0 && e->left && out->len < NSBX_ENVELOPE_PIECE)
        rc = put_step(e, out, err);
    if (rc || e->left)
        return rc;
    if (e->open && !e->base64)
        rc = put_text(&e->chars, &e->text, NULL, 0, out, err);
    if (rc == 0 && e->open)
        rc = nsbx_buf_append(out, closing, strlen(closing), err);
    e->done = rc == 0;
    return rc;
}

void nsbx_envelope_free(struct nsbx_envelope *e)
{
    nsbx_buf_free(&e->head);
    nsbx_buf_free(&e->text);
    e->large = NULL;
}

size_t nsbx_single_envelope_len(const struct nsbx_single_request *request)
{
    const struct nsbx_op_row *row = nsbx_op_row(request->op);
    struct nsbx_buf head;
    nsbx_buf_init(&head, HEAD_MAX);
    size_t total = SIZE_MAX;
    if (!row || build_head(&head, row, request, NULL) != 0 || payload_len(&head, request, &total, NULL) != 0)
        total = SIZE_MAX;
    nsbx_buf_free(&head);
    return total;
}
