#include "exec_output_priv.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "base/util.h"
#include "codec/utf8.h"

#include <string.h>

struct piece {
    struct nsbx_list node;
    enum nsbx_sub sub;
    struct nsbx_buf buf;
};

void nsbx_exec_output_init(struct nsbx_exec_output *o, const struct nsbx_exec_request *request)
{
    *o = (struct nsbx_exec_output){.collect = request->collect, .combine = request->collect && request->combine};
    o->max = request->max_output ? request->max_output : NSBX_EXEC_MAX_OUTPUT;
    nsbx_list_init(&o->pieces);
    size_t max = (size_t)NSBX_MIN(o->max, SIZE_MAX / 2);
    for (int i = 0; i < NSBX_SUBS; i++)
        nsbx_buf_init(&o->gathered[i], o->combine ? 2 * max : max);
}

static void piece_free(struct nsbx_exec_output *o, struct piece *piece)
{
    o->held -= piece->buf.len;
    nsbx_list_remove(&piece->node);
    nsbx_buf_free(&piece->buf);
    nsbx_free(piece);
}

static void drop_pieces(struct nsbx_exec_output *o)
{
    nsbx_list_each (node, &o->pieces)
        piece_free(o, nsbx_container_of(node, struct piece, node));
}

void nsbx_exec_output_free(struct nsbx_exec_output *o)
{
    drop_pieces(o);
    for (int i = 0; i < NSBX_SUBS; i++)
        nsbx_buf_free(&o->gathered[i]);
}

/* Looks for U+FFFD (three bytes) in text that arrives in pieces: the two bytes before a border are looked at again with
 * the two behind it. */
static void watch_text(struct nsbx_exec_output *o, enum nsbx_sub sub, const uint8_t *bytes, size_t n)
{
    uint8_t border[4];
    size_t have = o->tail_len[sub], more = NSBX_MIN(n, (size_t)2);
    memcpy(border, o->tail[sub], have);
    memcpy(border + have, bytes, more);
    have += more;
    if (nsbx_utf8_has_replacement(border, have) || nsbx_utf8_has_replacement(bytes, n))
        o->replaced = true;
    const uint8_t *end = n >= 2 ? bytes + n : border + have;
    size_t keep = NSBX_MIN(n >= 2 ? n : have, (size_t)2);
    memmove(o->tail[sub], end - keep, keep);
    o->tail_len[sub] = (uint8_t)keep;
}

static int collect(struct nsbx_exec_output *o, enum nsbx_sub sub, const uint8_t *bytes, size_t n,
                   struct nsbx_err *err)
{
    uint64_t room = o->max - o->kept[sub];
    if (n > room) {
        o->truncated[sub] = true;
        n = (size_t)room;
    }
    o->kept[sub] += n;
    return nsbx_buf_append(&o->gathered[o->combine ? NSBX_SUB_STDOUT : sub], bytes, n, err);
}

/* The piece that takes n more bytes of the stream: the last one while it is of that stream and short, else a new one. */
static struct piece *piece_for(struct nsbx_exec_output *o, enum nsbx_sub sub, size_t n)
{
    if (!nsbx_list_empty(&o->pieces)) {
        struct piece *last = nsbx_container_of(o->pieces.prev, struct piece, node);
        if (last->sub == sub && last->buf.len + n <= NSBX_DATA_CHUNK)
            return last;
    }
    struct piece *piece = nsbx_malloc(sizeof *piece);
    if (!piece)
        return NULL;
    piece->sub = sub;
    nsbx_buf_init(&piece->buf, NSBX_CHANNEL_WINDOW);
    nsbx_list_push(&o->pieces, &piece->node);
    return piece;
}

static int enqueue(struct nsbx_exec_output *o, enum nsbx_sub sub, const uint8_t *bytes, size_t n,
                   struct nsbx_err *err)
{
    struct piece *piece = piece_for(o, sub, n);
    if (!piece)
        return nsbx_err_nomem(err, "output");
    int rc = nsbx_buf_append(&piece->buf, bytes, n, err);
    if (rc == 0)
        o->held += n;
    else if (piece->buf.len == 0)
        piece_free(o, piece);
    return rc;
}

int nsbx_exec_output_push(struct nsbx_exec_output *o, enum nsbx_sub sub, const uint8_t *bytes, size_t n,
                          size_t *settled, struct nsbx_err *err)
{
    if (o->text && !o->replaced)
        watch_text(o, sub, bytes, n);
    *settled = o->discard || o->collect ? n : 0;
    if (o->discard)
        return 0;
    return o->collect ? collect(o, sub, bytes, n, err) : enqueue(o, sub, bytes, n, err);
}

bool nsbx_exec_output_take(struct nsbx_exec_output *o, enum nsbx_sub *sub, uint8_t **bytes, size_t *n)
{
    struct nsbx_list *node = nsbx_list_first(&o->pieces);
    if (!node)
        return false;
    struct piece *piece = nsbx_container_of(node, struct piece, node);
    *sub = piece->sub;
    *bytes = nsbx_buf_take(&piece->buf, n);
    o->held -= *n;
    piece_free(o, piece);
    return true;
}

size_t nsbx_exec_output_discard(struct nsbx_exec_output *o)
{
    size_t held = o->held;
    o->discard = true;
    drop_pieces(o);
    for (int i = 0; i < NSBX_SUBS; i++)
        nsbx_buf_free(&o->gathered[i]);
    return held;
}

void nsbx_exec_output_settle(struct nsbx_exec_output *o, struct nsbx_exec_result *result)
{
    result->maybe_lossy = o->replaced;
    result->stdout_truncated |= o->truncated[NSBX_SUB_STDOUT];
    result->stderr_truncated |= o->truncated[NSBX_SUB_STDERR];
    result->out = nsbx_buf_take(&o->gathered[NSBX_SUB_STDOUT], &result->out_len);
    result->err = nsbx_buf_take(&o->gathered[NSBX_SUB_STDERR], &result->err_len);
}
