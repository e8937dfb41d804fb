/* process:output() and process:lines(): iterators over what a command writes, as it writes it.
 *
 * One iterator at a time. It is an object of its own, the closing value of the generic for: a `break` ends the reading, not the
 * process; whoever iterates again goes on where it ended, in the middle of a line if need be. */
#include "base/alloc.h"
#include "base/limits.h"
#include "error.h"
#include "sandbox.h"

#include <string.h>

static const char *const stream_names[] = {"stdout", "stderr"};

void nsbx_process_discard(struct nsbx_process *p)
{
    if (p->read_out || p->discarded)
        return;
    p->discarded = true;
    nsbx_exec_discard(p->exec);
}

/* ---- the iterator object: its pointer is the box of its process, kept alive by its user value ---- */

static void drop_reader(lua_State *L, void *ptr)
{
    (void)L;
    struct nsbx_process *p = ((struct nsbx_box *)ptr)->ptr;
    if (!p)
        return;
    p->reading = false;
    if (p->waiters > 0)
        nsbx_process_discard(p);
}

static const struct nsbx_type reader_type = {.name = "nsbx.output", .noun = "output", .drop = drop_reader};

/* The process of the open reader that is argument 1 of its iterator function. */
static struct nsbx_process *reader(lua_State *L, const char *op)
{
    struct nsbx_box *process = nsbx_box_open(L, &reader_type, op);
    if (!process->ptr)
        nsbx_raise_destroyed(L, op, NULL, "the process was closed meanwhile");
    return process->ptr;
}

static int open_reader(lua_State *L, const char *op, lua_CFunction next)
{
    struct nsbx_process *p = nsbx_box_open(L, &nsbx_process_type, op);
    if (lua_gettop(L) > 1)
        return nsbx_misused(L, op, "too many arguments; it is called as process:%s()", op);
    if (p->reading)
        return nsbx_misused(L, op, "the output of this process is being read already");
    if (p->discarded)
        return nsbx_misused(L, op, "the output of this process was dropped: wait() was called and nobody read it");
    lua_pushcfunction(L, next);
    struct nsbx_box *box = nsbx_box_push(L, &reader_type, 1);
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, -2, 1);
    box->ptr = lua_touserdata(L, 1);
    p->reading = true;
    lua_pushnil(L);
    lua_pushvalue(L, -2);
    return 4;
}

/* Takes the next piece into p->piece. */
static bool take(struct nsbx_process *p, int *stream)
{
    enum nsbx_sub sub;
    if (p->piece_kept) {
        p->piece_kept = false;
        *stream = p->kept_stream;
        return true;
    }
    nsbx_free(p->piece);
    p->piece = NULL;
    if (!nsbx_exec_take(p->exec, &sub, &p->piece, &p->piece_len))
        return false;
    *stream = sub == NSBX_SUB_STDERR;
    return true;
}

static int push_bytes(lua_State *L, int stream, const uint8_t *bytes, size_t n)
{
    lua_pushstring(L, stream_names[stream]);
    lua_pushlstring(L, (const char *)bytes, n);
    return 2;
}

/* All has been read: nil ends the generic for. */
static int end_reading(lua_State *L, struct nsbx_process *p)
{
    p->read_out = true;
    nsbx_box_drop(L, lua_touserdata(L, 1));
    lua_pushnil(L);
    return 1;
}

/* Pushes the wait until there is something to take, or nothing more to come. */
static void push_wait(lua_State *L, struct nsbx_process *p)
{
    lua_settop(L, 1);
    void **slot = nsbx_wait_slot(L);
    *slot = nsbx_exec_read(p->exec, -1);
}

/* After the wait of push_wait. */
static struct nsbx_process *output_came(lua_State *L, const char *op)
{
    struct nsbx_process *p = reader(L, op);
    nsbx_waited(L, op, p->sandbox->id);
    nsbx_wait_over(L, -1);
    lua_settop(L, 1);
    return p;
}

/* ---- output() ---- */

/* Pushes all that an iterator of lines holds of one stream; 0 when there is nothing. */
static int push_held(lua_State *L, struct nsbx_process *p)
{
    for (int stream = 0; stream < 2; stream++) {
        struct nsbx_buf *held = &p->held[stream];
        if (held->len == 0)
            continue;
        push_bytes(L, stream, nsbx_buf_data(held), held->len);
        nsbx_buf_consume(held, held->len);
        p->scanned[stream] = 0;
        return 2;
    }
    return 0;
}

/* Pushes what can be had without waiting; 0 when there is nothing. */
static int push_output(lua_State *L, struct nsbx_process *p)
{
    int stream, n = push_held(L, p);
    if (n || !take(p, &stream))
        return n;
    return push_bytes(L, stream, p->piece, p->piece_len);
}

static int output_next_k(lua_State *L, int status, lua_KContext ctx)
{
    (void)status, (void)ctx;
    struct nsbx_process *p = output_came(L, "output");
    int n = push_output(L, p);
    return n ? n : end_reading(L, p);
}

static int output_next(lua_State *L)
{
    struct nsbx_process *p = reader(L, "output");
    nsbx_checkpoint(L, "output");
    int n = push_output(L, p);
    if (n)
        return n;
    push_wait(L, p);
    return nsbx_wait(L, "output", NSBX_WAIT, output_next_k, 0);
}

int nsbx_process_output(lua_State *L)
{
    return open_reader(L, "output", output_next);
}

/* ---- lines() ---- */

/* Pushes the next whole line that is held; 0 when there is none. */
static int push_line(lua_State *L, struct nsbx_process *p, int stream)
{
    struct nsbx_buf *held = &p->held[stream];
    const uint8_t *bytes = nsbx_buf_data(held);
    const uint8_t *end = held->len > p->scanned[stream]
                             ? memchr(bytes + p->scanned[stream], '\n', held->len - p->scanned[stream])
                             : NULL;
    p->scanned[stream] = held->len;
    if (!end)
        return 0;
    size_t n = (size_t)(end - bytes);
    p->scanned[stream] = 0; /* also when the push below has no memory */
    push_bytes(L, stream, bytes, n);
    nsbx_buf_consume(held, n + 1);
    return 2;
}

/* The same, taking pieces until there is a line. */
static int push_any_line(lua_State *L, struct nsbx_process *p, bool *took)
{
    int n = push_line(L, p, 0), stream;
    if (!n)
        n = push_line(L, p, 1);
    *took = false;
    while (n == 0 && take(p, &stream)) {
        struct nsbx_err err = {0};
        *took = true;
        if (nsbx_buf_append(&p->held[stream], p->piece, p->piece_len, &err) < 0) {
            p->piece_kept = true; /* output() can still give it out, after what is held */
            p->kept_stream = stream;
            nsbx_err_set(&err, NSBX_E_LIMIT, "a line of %s is longer than %u bytes; read it with output()",
                         stream_names[stream], NSBX_LINE_MAX);
            return nsbx_raise(L, &err, "lines", p->sandbox->id);
        }
        n = push_line(L, p, stream);
    }
    return n;
}

/* *again: there was output, but no whole line yet. */
static int lines_came(lua_State *L, bool *again)
{
    struct nsbx_process *p = output_came(L, "lines");
    int n = push_any_line(L, p, again);
    if (n || *again) {
        *again = n == 0;
        return n;
    }
    n = push_held(L, p); /* what came after the last newline is a line too */
    return n ? n : end_reading(L, p);
}

static int lines_next_k(lua_State *L, int status, lua_KContext ctx);

static int wait_for_line(lua_State *L)
{
    int n = 0;
    for (bool again = true; again; n = lines_came(L, &again)) {
        push_wait(L, reader(L, "lines"));
        if (!nsbx_wait_here(L, "lines", NSBX_WAIT))
            return nsbx_wait(L, "lines", NSBX_WAIT, lines_next_k, 0);
    }
    return n;
}

static int lines_next_k(lua_State *L, int status, lua_KContext ctx)
{
    (void)status, (void)ctx;
    bool again;
    int n = lines_came(L, &again);
    return again ? wait_for_line(L) : n;
}

static int lines_next(lua_State *L)
{
    struct nsbx_process *p = reader(L, "lines");
    nsbx_checkpoint(L, "lines");
    bool took;
    int n = push_any_line(L, p, &took);
    return n ? n : wait_for_line(L);
}

int nsbx_process_lines(lua_State *L)
{
    return open_reader(L, "lines", lines_next);
}
