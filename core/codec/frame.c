#include "frame.h"

#include <string.h>

enum { STATE_HEAD, STATE_PAYLOAD, STATE_BAD };

void nsbx_frame_reader_init(struct nsbx_frame_reader *r)
{
    *r = (struct nsbx_frame_reader){.state = STATE_HEAD};
}

static int hex_value(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_length(const uint8_t head[NSBX_FRAME_HEADER], uint32_t *length)
{
    *length = 0;
    for (int i = 0; i < 8; i++) {
        int digit = hex_value(head[i]);
        if (digit < 0)
            return false;
        *length = *length << 4 | (uint32_t)digit;
    }
    return head[8] == '\n';
}

static size_t next_head(struct nsbx_frame_reader *r, const uint8_t *p, size_t n, struct nsbx_frame_event *event)
{
    size_t used = 0;
    while (r->have < NSBX_FRAME_HEADER && used < n)
        r->head[r->have++] = p[used++];
    if (r->have < NSBX_FRAME_HEADER)
        return used;
    if (!read_length(r->head, &r->left)) {
        r->state = STATE_BAD;
        event->kind = NSBX_FRAME_BAD;
        return used;
    }
    r->state = STATE_PAYLOAD;
    event->kind = NSBX_FRAME_BEGIN;
    event->length = r->left;
    return used;
}

size_t nsbx_frame_next(struct nsbx_frame_reader *r, const uint8_t *p, size_t n, struct nsbx_frame_event *event)
{
    *event = (struct nsbx_frame_event){.kind = NSBX_FRAME_MORE};
    if (r->state == STATE_HEAD)
        return next_head(r, p, n, event);
    if (r->state == STATE_BAD) {
        event->kind = NSBX_FRAME_BAD;
        return 0;
    }
    if (r->left == 0) {
        r->state = STATE_HEAD;
        r->have = 0;
        event->kind = NSBX_FRAME_END;
        return 0;
    }
    size_t piece = n < r->left ? n : r->left;
    if (piece > 0) {
        event->kind = NSBX_FRAME_CHUNK;
        event->bytes = p;
        event->n = piece;
        r->left -= (uint32_t)piece;
    }
    return piece;
}

bool nsbx_frame_at_border(const struct nsbx_frame_reader *r)
{
    return r->state == STATE_HEAD && r->have == 0;
}

void nsbx_frame_header(uint8_t out[NSBX_FRAME_HEADER], uint32_t length)
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 7; i >= 0; i--, length >>= 4)
        out[i] = (uint8_t)digits[length & 15];
    out[8] = '\n';
}
