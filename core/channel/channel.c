/* What every carrier's channel shares: the calls go to the carrier. */
#include "channel_priv.h"

void nsbx_channel_set_events(struct nsbx_channel *ch, const struct nsbx_channel_events *events, void *ud)
{
    ch->events = events;
    ch->ud = ud;
}

const struct nsbx_op_row *nsbx_channel_op(const struct nsbx_channel *ch)
{
    return ch->row;
}

int nsbx_channel_send(struct nsbx_channel *ch, json_t *message, struct nsbx_err *err)
{
    if (!message)
        return nsbx_err_nomem(err, "a message");
    int rc = ch->vtable->send(ch, message, err);
    json_decref(message);
    return rc;
}

int nsbx_channel_send_large(struct nsbx_channel *ch, json_t *message, enum nsbx_large_form form, uint64_t n,
                            struct nsbx_err *err)
{
    if (!message)
        return nsbx_err_nomem(err, "a reply");
    int rc = ch->vtable->send_large ? ch->vtable->send_large(ch, message, form, n, err)
                                    : nsbx_err_set(err, NSBX_E_INVALID, "only a guest sends a large reply");
    json_decref(message);
    return rc;
}

int nsbx_channel_data(struct nsbx_channel *ch, enum nsbx_sub sub, const uint8_t *bytes, size_t n, int64_t offset,
                      struct nsbx_err *err)
{
    return n ? ch->vtable->data(ch, sub, bytes, n, offset, err) : 0;
}

int nsbx_channel_end(struct nsbx_channel *ch, struct nsbx_err *err)
{
    return ch->vtable->end(ch, err);
}

size_t nsbx_channel_room(const struct nsbx_channel *ch)
{
    return ch->vtable->room(ch);
}

void nsbx_channel_consumed(struct nsbx_channel *ch, size_t n)
{
    ch->vtable->consumed(ch, n);
}

void nsbx_channel_hold(struct nsbx_channel *ch, size_t n)
{
    if (ch->vtable->hold)
        ch->vtable->hold(ch, n);
}

void nsbx_channel_close(struct nsbx_channel *ch)
{
    if (ch)
        ch->vtable->close(ch);
}

int nsbx_channel_refuse(struct nsbx_channel *ch, json_t *message, struct nsbx_err *err)
{
    if (!message)
        return nsbx_err_nomem(err, "a refusal");
    int rc = ch->vtable->refuse ? ch->vtable->refuse(ch, message, err)
                                : nsbx_err_set(err, NSBX_E_INVALID, "only a guest refuses");
    json_decref(message);
    return rc;
}
