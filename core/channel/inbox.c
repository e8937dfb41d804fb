/* One direction of a conversation: which frames are messages, which carry data, and the data's bytes as they arrive. */
#include "wire_priv.h"

#include "base/limits.h"
#include "base/util.h"

#include <string.h>

enum { SUB_NONE = -1, SUB_UNKNOWN = -2, SUB_END = -3 };
enum { DECODE_STEP = 256 * 1024 }; /* base64 letters decoded at a time; what one read of a socket gives */

static const char *const watched[] = {"type", NULL};

static int on_header(void *ud, uint32_t length, struct nsbx_err *err)
{
    struct nsbx_inbox *in = ud;
    in->sub = in->plain_large ? (int)NSBX_SUB_MAIN : SUB_UNKNOWN;
    in->seen = in->holding = false;
    in->trouble = 0;
    nsbx_wire_scratch_reset(&in->held);
    return in->events->on_header(in->ud, length, err);
}

static int on_watch(void *ud, size_t index, const char *value, size_t n)
{
    struct nsbx_inbox *in = ud;
    (void)index;
    (void)n;
    if (in->plain_large)
        return 0;
    in->sub = SUB_NONE;
    if (!value)
        return 0;
    for (size_t i = 0; i < NSBX_LEN(in->form->types); i++)
        if (in->form->types[i] && strcmp(in->form->types[i], value) == 0)
            in->sub = (int)i;
    if (in->form->end_type && strcmp(in->form->end_type, value) == 0)
        in->sub = SUB_END;
    return 0;
}

static int hold(struct nsbx_inbox *in, const uint8_t *bytes, size_t n)
{
    if (!in->base64)
        return nsbx_buf_append(&in->held, bytes, n, NULL);
    uint8_t *room = nsbx_buf_reserve(&in->held, n / 4 * 3 + 3, NULL);
    if (!room)
        return -NSBX_E_LIMIT;
    nsbx_buf_commit(&in->held, nsbx_base64_decode(&in->decoder, room, bytes, n));
    return 0;
}

static int deliver(struct nsbx_inbox *in, const uint8_t *bytes, size_t n, int64_t offset)
{
    return n ? in->events->on_data(in->ud, (enum nsbx_sub)in->sub, bytes, n, offset) : 0;
}

static int pass_on(struct nsbx_inbox *in, const uint8_t *bytes, size_t n)
{
    if (!in->base64)
        return deliver(in, bytes, n, -1);
    int rc = 0;
    while (rc == 0 && n) {
        size_t step = NSBX_MIN(n, (size_t)DECODE_STEP);
        uint8_t *room = nsbx_buf_reserve(&in->scratch, step / 4 * 3 + 3, NULL);
        if (!room)
            return -NSBX_E_LIMIT;
        rc = deliver(in, room, nsbx_base64_decode(&in->decoder, room, bytes, step), -1);
        bytes += step;
        n -= step;
    }
    return rc;
}

/* An unpadded end owes up to two bytes. */
static int end_string(struct nsbx_inbox *in)
{
    uint8_t last[2];
    size_t n = in->base64 ? nsbx_base64_decode_end(&in->decoder, last) : 0;
    if (in->holding)
        return nsbx_buf_append(&in->held, last, n, NULL);
    return deliver(in, last, n, -1);
}

static int on_large(void *ud, size_t index, const uint8_t *bytes, size_t n, bool begin, bool end)
{
    struct nsbx_inbox *in = ud;
    (void)index;
    if (begin) {
        nsbx_base64_decoder_init(&in->decoder);
        in->held.head = in->held.len = 0;
        in->holding = !in->plain_large && (in->form->counted || in->sub == SUB_UNKNOWN);
        in->seen = true;
    }
    if (in->trouble || (!in->holding && in->sub < 0))
        return 0; /* a message of a type that carries no data */
    int rc = in->holding ? hold(in, bytes, n) : pass_on(in, bytes, n);
    if (rc == 0 && in->strict && in->decoder.odd)
        rc = -NSBX_E_PROTOCOL;
    if (rc == 0 && end)
        rc = end_string(in);
    if (rc < 0)
        in->trouble = rc;
    return rc;
}

static int64_t offset_of(const char *rest, size_t len)
{
    json_t *message = nsbx_wire_parse(rest, len, NULL);
    const json_t *offset = json_object_get(message, "offset");
    int64_t value = json_is_integer(offset) && json_integer_value(offset) >= 0 ? json_integer_value(offset) : -1;
    json_decref(message);
    return value;
}

static int data_frame(struct nsbx_inbox *in, const char *rest, size_t len, struct nsbx_err *err)
{
    if (!in->seen)
        return nsbx_err_set(err, NSBX_E_PROTOCOL, "a message of type %s has no data string",
                            in->form->types[in->sub]);
    if (!in->holding || !in->held.len)
        return 0;
    int64_t offset = in->form->counted ? offset_of(rest, len) : -1;
    return deliver(in, nsbx_buf_data(&in->held), in->held.len, offset);
}

static int on_frame(void *ud, const char *rest, size_t len, struct nsbx_err *err)
{
    struct nsbx_inbox *in = ud;
    if (in->sub == SUB_END)
        return in->events->on_data_end(in->ud);
    if (in->sub >= 0 && !in->plain_large)
        return data_frame(in, rest, len, err);
    json_t *message = nsbx_wire_parse(rest, len, err);
    if (!message)
        return err ? -err->code : -NSBX_E_PROTOCOL;
    int rc = json_is_object(message) ? in->events->on_message(in->ud, message, err)
                                     : nsbx_err_set(err, NSBX_E_PROTOCOL, "a message is not an object");
    json_decref(message);
    return rc;
}

static int on_terminator(void *ud, struct nsbx_err *err)
{
    struct nsbx_inbox *in = ud;
    return in->events->on_terminator(in->ud, err);
}

int nsbx_inbox_init(struct nsbx_inbox *in, const struct nsbx_wire_form *form, const char *large, bool base64,
                    const struct nsbx_inbox_events *events, void *ud, struct nsbx_err *err)
{
    static const struct nsbx_wire_events wire_events = {
        .on_header = on_header,
        .on_terminator = on_terminator,
        .on_frame = on_frame,
        .on_watch = on_watch,
        .on_large = on_large,
    };
    memset(in, 0, sizeof(*in));
    in->form = form;
    in->plain_large = large != NULL;
    in->large[0] = large ? large : form->chunk ? "data" : NULL;
    in->base64 = base64 || (!large && form->base64);
    in->events = events;
    in->ud = ud;
    nsbx_buf_init(&in->held, NSBX_MAX_HELD_DATA);
    nsbx_buf_init(&in->scratch, DECODE_STEP);
    return nsbx_wire_reader_init(&in->reader, watched, in->large, false, &wire_events, in, err);
}

void nsbx_inbox_free(struct nsbx_inbox *in)
{
    nsbx_wire_reader_free(&in->reader);
    nsbx_buf_free(&in->held);
    nsbx_buf_free(&in->scratch);
}

int nsbx_inbox_feed(struct nsbx_inbox *in, const uint8_t *p, size_t n, size_t *used, struct nsbx_err *err)
{
    int rc = nsbx_wire_feed(&in->reader, p, n, used, err);
    /* What stopped the scanner from inside a string has had no place to say why. */
    if (rc == -NSBX_E_PROTOCOL && in->trouble == rc)
        nsbx_err_set(err, NSBX_E_PROTOCOL, "the data of a message is not base64");
    else if (rc < 0 && in->trouble == rc)
        nsbx_err_set(err, -rc,
                     "a message holds more data than can wait for its end (%u bytes), or there is no memory for it",
                     NSBX_MAX_HELD_DATA);
    return rc;
}
