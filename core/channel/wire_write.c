/* Messages and data to frames. */
#include "wire_priv.h"

#include "base/limits.h"
#include "base/util.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SCRATCH_KEEP = 512 * 1024 }; /* one frame of read-file-stream fits */

const struct nsbx_wire_form *nsbx_wire_form(enum nsbx_data_form form)
{
    static const struct nsbx_wire_form forms[] = {
        [NSBX_DATA_NONE] = {.chunk = 0},
        [NSBX_DATA_DELTA] = {.types = {NULL, "stdout_delta", "stderr_delta"},
                             .counted = true,
                             .chunk = NSBX_DATA_CHUNK},
        [NSBX_DATA_BASE64] = {.types = {"data"}, .base64 = true, .chunk = NSBX_FILE_CHUNK},
        [NSBX_DATA_STDIN] = {.types = {"stdin"}, .end_type = "stdin_end", .base64 = true, .chunk = NSBX_DATA_CHUNK},
    };
    return &forms[form];
}

/* ---- frames in a buffer ---- */

static int begin_frame(struct nsbx_buf *out, size_t *start, struct nsbx_err *err)
{
    static const uint8_t header[NSBX_FRAME_HEADER];
    *start = out->len;
    return nsbx_buf_append(out, header, sizeof(header), err);
}

static void end_frame(struct nsbx_buf *out, size_t start)
{
    nsbx_frame_header(nsbx_buf_data(out) + start, (uint32_t)(out->len - start - NSBX_FRAME_HEADER));
}

struct dump {
    struct nsbx_buf *out;
    struct nsbx_err *err;
    int rc;
};

static int dump_piece(const char *piece, size_t n, void *ud)
{
    struct dump *dump = ud;
    if (dump->rc == 0)
        dump->rc = nsbx_buf_append(dump->out, piece, n, dump->err);
    return dump->rc;
}

static int put_json(struct nsbx_buf *out, const json_t *message, struct nsbx_err *err)
{
    struct dump dump = {.out = out, .err = err};
    /* jansson does not look at what the callback says of a key, so its own verdict alone would let half a message through. */
    if (json_dump_callback(message, dump_piece, &dump, JSON_COMPACT) == 0 || dump.rc)
        return dump.rc;
    return nsbx_err_nomem(err, "a message");
}

int nsbx_wire_put_message(struct nsbx_buf *out, const json_t *message, struct nsbx_err *err)
{
    size_t start;
    int rc = begin_frame(out, &start, err);
    if (rc == 0)
        rc = put_json(out, message, err);
    if (rc == 0)
        end_frame(out, start);
    return rc;
}

int nsbx_wire_put_terminator(struct nsbx_buf *out, struct nsbx_err *err)
{
    size_t start;
    int rc = begin_frame(out, &start, err);
    if (rc == 0)
        end_frame(out, start);
    return rc;
}

void nsbx_wire_scratch_reset(struct nsbx_buf *scratch)
{
    if (scratch->cap > SCRATCH_KEEP)
        nsbx_buf_free(scratch);
    scratch->head = scratch->len = 0;
}

/* ---- the writer ---- */

void nsbx_wire_writer_init(struct nsbx_wire_writer *w, const struct nsbx_wire_form *form, bool base64,
                           struct nsbx_buf *scratch, nsbx_wire_emit *emit, void *ud)
{
    memset(w, 0, sizeof(*w));
    w->form = form;
    w->base64 = base64 || form->base64;
    w->scratch = scratch;
    w->emit = emit;
    w->ud = ud;
    for (size_t i = 0; i < NSBX_LEN(w->chars); i++) {
        nsbx_utf8_init(&w->chars[i]);
        w->next[i] = -1;
    }
    nsbx_buf_init(&w->text, 4 * NSBX_DATA_CHUNK);
}

void nsbx_wire_writer_free(struct nsbx_wire_writer *w)
{
    nsbx_buf_free(&w->text);
}

/* Hands the built frame on, whatever building it said, and leaves the scratch empty. */
static int emit_scratch(struct nsbx_wire_writer *w, int rc, struct nsbx_err *err)
{
    if (rc == 0)
        rc = w->emit(w->ud, nsbx_buf_data(w->scratch), w->scratch->len, err);
    nsbx_wire_scratch_reset(w->scratch);
    return rc;
}

static int put_offsets(struct nsbx_buf *out, int64_t offset, size_t n, struct nsbx_err *err)
{
    if (offset < 0)
        return nsbx_buf_append(out, "\"}", 2, err);
    return nsbx_buf_printf(out, err, "\",\"offset\":%" PRId64 ",\"nextOffset\":%" PRId64 "}", offset,
                           offset + (int64_t)n);
}

static int put_base64(struct nsbx_buf *out, const uint8_t *bytes, size_t n, struct nsbx_err *err)
{
    uint8_t *at = nsbx_buf_reserve(out, nsbx_base64_len(n), err);
    if (!at)
        return -NSBX_E_LIMIT;
    nsbx_buf_commit(out, nsbx_base64_encode((char *)at, bytes, n));
    return 0;
}

/* One data message; `bytes` is text when it is not to be base64, and stands for `n` bytes from `offset` either way. */
static int write_piece(struct nsbx_wire_writer *w, enum nsbx_sub sub, const uint8_t *bytes, size_t len, size_t n,
                       int64_t offset, struct nsbx_err *err)
{
    struct nsbx_buf *out = w->scratch;
    size_t start;
    int rc = begin_frame(out, &start, err);
    if (rc == 0)
        rc = nsbx_buf_printf(out, err, "{\"type\":\"%s\",\"data\":\"", w->form->types[sub]);
    if (rc == 0)
        rc = w->base64 ? put_base64(out, bytes, len, err) : nsbx_json_escape(out, bytes, len, err);
    if (rc == 0)
        rc = put_offsets(out, offset, n, err);
    if (rc == 0)
        end_frame(out, start);
    return emit_scratch(w, rc, err);
}

/* Text of `n` new bytes (0: none, the held ones become U+FFFD). The message counts the bytes that it shows, so that an offset is
 * always the place to go on from. */
static int write_text(struct nsbx_wire_writer *w, enum nsbx_sub sub, const uint8_t *bytes, size_t n, int64_t offset,
                      struct nsbx_err *err)
{
    struct nsbx_utf8 *chars = &w->chars[sub];
    size_t before = chars->n;
    int rc = n ? nsbx_utf8_feed(chars, bytes, n, &w->text, err) : nsbx_utf8_flush(chars, &w->text, err);
    size_t shown = before + n - chars->n;
    if (rc == 0 && w->text.len)
        rc = write_piece(w, sub, nsbx_buf_data(&w->text), w->text.len, shown,
                         offset < 0 ? -1 : offset - (int64_t)before, err);
    w->next[sub] = offset < 0 ? -1 : offset + (int64_t)n;
    w->text.head = w->text.len = 0;
    return rc;
}

static int flush_sub(struct nsbx_wire_writer *w, enum nsbx_sub sub, struct nsbx_err *err)
{
    return w->chars[sub].n ? write_text(w, sub, NULL, 0, w->next[sub], err) : 0;
}

int nsbx_wire_write_flush(struct nsbx_wire_writer *w, struct nsbx_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < NSBX_LEN(w->chars); i++)
        rc = flush_sub(w, (enum nsbx_sub)i, err);
    return rc;
}

/* Counted bytes share one space: a reader goes on from the highest offset it saw, so what is held back must go out before
 * bytes that come later, and is never joined with bytes that do not follow it. */
static int flush_before(struct nsbx_wire_writer *w, enum nsbx_sub sub, int64_t offset, struct nsbx_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && offset >= 0 && i < NSBX_LEN(w->chars); i++)
        if (i != (size_t)sub || w->next[i] != offset)
            rc = flush_sub(w, (enum nsbx_sub)i, err);
    return rc;
}

int nsbx_wire_write_data(struct nsbx_wire_writer *w, enum nsbx_sub sub, const uint8_t *bytes, size_t n,
                         int64_t offset, struct nsbx_err *err)
{
    if ((unsigned)sub >= NSBX_LEN(w->form->types) || !w->form->types[sub])
        return nsbx_err_set(err, NSBX_E_INVALID, "this operation has no sub-stream %d", (int)sub);
    if (!w->form->counted)
        offset = -1;
    int rc = 0;
    if (!w->base64)
        rc = flush_before(w, sub, offset, err);
    while (rc == 0 && n) {
        size_t piece = NSBX_MIN(n, w->form->chunk);
        rc = w->base64 ? write_piece(w, sub, bytes, piece, piece, offset, err)
                       : write_text(w, sub, bytes, piece, offset, err);
        bytes += piece;
        n -= piece;
        offset = offset < 0 ? -1 : offset + (int64_t)piece;
    }
    return rc;
}

int nsbx_wire_write_message(struct nsbx_wire_writer *w, const json_t *message, struct nsbx_err *err)
{
    int rc = nsbx_wire_write_flush(w, err);
    if (rc == 0)
        rc = emit_scratch(w, nsbx_wire_put_message(w->scratch, message, err), err);
    return rc;
}

int nsbx_wire_write_end(struct nsbx_wire_writer *w, struct nsbx_err *err)
{
    if (!w->form->end_type)
        return 0;
    size_t start;
    int rc = begin_frame(w->scratch, &start, err);
    if (rc == 0)
        rc = nsbx_buf_printf(w->scratch, err, "{\"type\":\"%s\"}", w->form->end_type);
    if (rc == 0)
        end_frame(w->scratch, start);
    return emit_scratch(w, rc, err);
}
