/* Frames to JSON texts: the frame reader and the scanner put together. */
#include "wire_priv.h"

#include "base/limits.h"

#include <string.h>

int nsbx_wire_reader_init(struct nsbx_wire_reader *r, const char *const *watch, const char *const *large,
                          bool drop_rest, const struct nsbx_wire_events *events, void *ud, struct nsbx_err *err)
{
    struct nsbx_jscan_config config = {
        .max_rest = NSBX_MAX_MESSAGE_REST,
        .max_depth = NSBX_MAX_MESSAGE_DEPTH,
        .watch = watch,
        .large = large,
        .drop_rest = drop_rest,
        .on_watch = events->on_watch,
        .on_large = events->on_large,
        .ud = ud,
    };
    memset(r, 0, sizeof(*r));
    nsbx_frame_reader_init(&r->frames);
    r->events = events;
    r->ud = ud;
    r->scan = nsbx_jscan_new(&config);
    return r->scan ? 0 : nsbx_err_nomem(err, "a message reader");
}

void nsbx_wire_reader_free(struct nsbx_wire_reader *r)
{
    nsbx_jscan_free(r->scan);
    r->scan = NULL;
}

bool nsbx_wire_at_border(const struct nsbx_wire_reader *r)
{
    return nsbx_frame_at_border(&r->frames);
}

static int frame_ended(struct nsbx_wire_reader *r, struct nsbx_err *err)
{
    if (r->length == 0)
        return r->events->on_terminator(r->ud, err);
    const char *rest;
    size_t len;
    int rc = nsbx_jscan_end(r->scan, &rest, &len, err);
    return rc ? rc : r->events->on_frame(r->ud, rest, len, err);
}

/* A peer's mistake within a frame; a lack of ours (LIMIT) is never skipped over. */
static int forgive(struct nsbx_wire_reader *r, int rc)
{
    if (!r->lenient || rc != -NSBX_E_PROTOCOL)
        return rc;
    r->skipping = true;
    return 0;
}

static int handle(struct nsbx_wire_reader *r, const struct nsbx_frame_event *event, struct nsbx_err *err)
{
    switch (event->kind) {
    case NSBX_FRAME_BEGIN:
        r->length = event->length;
        r->skipping = false;
        nsbx_jscan_reset(r->scan);
        return r->events->on_header(r->ud, event->length, err);
    case NSBX_FRAME_CHUNK:
        return r->skipping ? 0 : forgive(r, nsbx_jscan_feed(r->scan, event->bytes, event->n, err));
    case NSBX_FRAME_END:
        return r->skipping ? 0 : forgive(r, frame_ended(r, err));
    case NSBX_FRAME_BAD:
        return nsbx_err_set(err, NSBX_E_PROTOCOL, "these bytes are no frame header");
    case NSBX_FRAME_MORE:
        break;
    }
    return 0;
}

int nsbx_wire_feed(struct nsbx_wire_reader *r, const uint8_t *p, size_t n, size_t *used, struct nsbx_err *err)
{
    size_t at = 0;
    int rc = 0;
    struct nsbx_frame_event event;
    do {
        at += nsbx_frame_next(&r->frames, p + at, n - at, &event);
        rc = handle(r, &event, err);
    } while (rc == 0 && event.kind != NSBX_FRAME_MORE);
    if (used)
        *used = at;
    return rc;
}

json_t *nsbx_wire_parse(const char *text, size_t len, struct nsbx_err *err)
{
    const size_t flags = JSON_ALLOW_NUL | JSON_DECODE_ANY;
    /* Without memory jansson may say nothing at all: neither a text nor a code. */
    json_error_t problem = {0};
    json_t *value = json_loadb(text, len, flags, &problem);
    /* The wire's numbers are doubles: an integer that needs more than 64 bits is one too. */
    if (!value && json_error_code(&problem) == json_error_numeric_overflow)
        value = json_loadb(text, len, flags | JSON_DECODE_INT_AS_REAL, &problem);
    if (value)
        return value;
    if (json_error_code(&problem) == json_error_out_of_memory || !problem.text[0])
        nsbx_err_nomem(err, "a message");
    else
        nsbx_err_set(err, NSBX_E_PROTOCOL, "a message is not JSON: %.100s", problem.text);
    return NULL;
}
