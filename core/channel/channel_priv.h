/* For carriers: a channel is this base, first in the carrier's own struct. */
#ifndef NSBX_CHANNEL_CHANNEL_PRIV_H
#define NSBX_CHANNEL_CHANNEL_PRIV_H

#include "channel.h"

struct nsbx_channel_vtable {
    int (*send)(struct nsbx_channel *ch, json_t *message, struct nsbx_err *err);
    int (*data)(struct nsbx_channel *ch, enum nsbx_sub sub, const uint8_t *bytes, size_t n, int64_t offset,
                struct nsbx_err *err);
    int (*end)(struct nsbx_channel *ch, struct nsbx_err *err);
    size_t (*room)(const struct nsbx_channel *ch);
    void (*consumed)(struct nsbx_channel *ch, size_t n);
    void (*hold)(struct nsbx_channel *ch, size_t n); /* NULL: this end has no use for it */
    void (*close)(struct nsbx_channel *ch);
    int (*send_large)(struct nsbx_channel *ch, json_t *message, enum nsbx_large_form form, uint64_t n,
                      struct nsbx_err *err);
    int (*refuse)(struct nsbx_channel *ch, json_t *message, struct nsbx_err *err);
};
struct nsbx_channel {
    const struct nsbx_channel_vtable *vtable;
    const struct nsbx_op_row *row;
    const struct nsbx_channel_events *events;
    void *ud;
};

#endif
