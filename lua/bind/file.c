/* The sandbox's files: whole and ranged reads, streamed reads, atomic writes. */
#include "transport/file.h"

#include "base/limits.h"
#include "error.h"
#include "options.h"
#include "sandbox.h"

#define FILE_TIMEOUT_S 300
#define FILE_MAX_S 86400

static const char *id_at(lua_State *L, int idx)
{
    return ((struct nsbx_sandbox *)((struct nsbx_box *)lua_touserdata(L, idx))->ptr)->id;
}

/* ---- write_file ---- */

static int write_done(lua_State *L, int status, lua_KContext ctx)
{
    (void)status, (void)ctx;
    nsbx_waited(L, "write_file", id_at(L, 1));
    nsbx_wait_over(L, -1);
    return 0;
}

int nsbx_sandbox_write_file(lua_State *L)
{
    static const struct nsbx_option options[] = {{.key = "timeout", .kind = NSBX_KIND_SECONDS, .max = FILE_MAX_S},
                                                 {0}};
    struct nsbx_sandbox *sb = nsbx_sandbox_self(L, "write_file");
    size_t n;
    nsbx_check_count(L, 4, "write_file", "sandbox:write_file(path, bytes[, options])");
    const char *path = nsbx_check_text(L, 2, "write_file", "path");
    const char *bytes = nsbx_check_bytes(L, 3, "write_file", "bytes", &n);
    nsbx_check_options(L, 4, "write_file", options);
    int64_t timeout_ms = nsbx_option_ms(L, 4, "timeout", FILE_TIMEOUT_S * 1000);
    nsbx_checkpoint(L, "write_file");
    void **slot = nsbx_wait_slot(L);
    /* The string must outlive the operation, which may go on for a while after a cancelled wait. */
    struct nsbx_pin *pin = nsbx_pin(L, 3);
    *slot = nsbx_file_write(sb->guest, path, (const uint8_t *)bytes, n, timeout_ms, nsbx_pin_release, pin);
    if (!*slot)
        nsbx_pin_release(pin);
    return nsbx_wait(L, "write_file", NSBX_WAIT, write_done, 0);
}

/* ---- read_file ---- */

static int read_done(lua_State *L, int status, lua_KContext ctx)
{
    (void)status, (void)ctx;
    const struct nsbx_bytes *bytes = nsbx_op_result(nsbx_waited(L, "read_file", id_at(L, 1)));
    lua_pushlstring(L, bytes && bytes->len ? (const char *)bytes->data : "", bytes ? bytes->len : 0);
    nsbx_wait_over(L, -2);
    return 1;
}

/* The arguments of both ways to read. */
struct range {
    const char *path;
    int64_t offset, length, timeout_ms;
};

static struct range check_range(lua_State *L, const char *op, const char *usage, int64_t timeout_ms)
{
    static const struct nsbx_option options[] = {{.key = "offset", .kind = NSBX_KIND_COUNT, .max = NSBX_COUNT_MAX},
                                                 {.key = "length", .kind = NSBX_KIND_COUNT, .max = NSBX_COUNT_MAX},
                                                 {.key = "timeout", .kind = NSBX_KIND_SECONDS, .max = FILE_MAX_S},
                                                 {0}};
    nsbx_check_count(L, 3, op, usage);
    struct range r = {.path = nsbx_check_text(L, 2, op, "path")};
    nsbx_check_options(L, 3, op, options);
    r.offset = nsbx_option_count(L, 3, "offset", -1);
    r.length = nsbx_option_count(L, 3, "length", -1);
    r.timeout_ms = nsbx_option_ms(L, 3, "timeout", timeout_ms);
    return r;
}

int nsbx_sandbox_read_file(lua_State *L)
{
    struct nsbx_sandbox *sb = nsbx_sandbox_self(L, "read_file");
    struct range r = check_range(L, "read_file", "sandbox:read_file(path[, {offset=, length=, timeout=}])",
                                 FILE_TIMEOUT_S * 1000);
    nsbx_checkpoint(L, "read_file");
    void **slot = nsbx_wait_slot(L);
    *slot = nsbx_file_read(sb->guest, r.path, r.offset, r.length, r.timeout_ms);
    return nsbx_wait(L, "read_file", NSBX_WAIT, read_done, 0);
}

/* ---- read_file_stream ---- */

static void drop_stream(lua_State *L, void *ptr)
{
    (void)L;
    nsbx_file_stream_close(ptr);
}

static const struct nsbx_type stream_type = {
    .name = "nsbx.file_stream", .noun = "file stream", .drop = drop_stream};

/* Pushes the next chunk, or nil at the verified end; after that and after a failure the stream is closed. */
static int chunk_came(lua_State *L, int status, lua_KContext ctx)
{
    (void)status, (void)ctx;
    struct nsbx_op *op = nsbx_wait_op(L);
    const struct nsbx_bytes *bytes = nsbx_op_result(op);
    if (nsbx_op_state(op) != NSBX_OP_DONE || !bytes)
        nsbx_box_drop(L, lua_touserdata(L, 1));
    lua_getiuservalue(L, 1, 1);
    lua_insert(L, -2);
    nsbx_waited(L, "read_file_stream", id_at(L, -2));
    if (bytes)
        lua_pushlstring(L, (const char *)bytes->data, bytes->len);
    else
        lua_pushnil(L);
    nsbx_wait_over(L, -2);
    return 1;
}

static int next_chunk(lua_State *L)
{
    struct nsbx_file_stream *s = nsbx_box_open(L, &stream_type, "read_file_stream");
    nsbx_checkpoint(L, "read_file_stream");
    lua_settop(L, 1);
    lua_getiuservalue(L, 1, 2);
    int64_t timeout_ms = lua_tointeger(L, 2);
    lua_settop(L, 1);
    void **slot = nsbx_wait_slot(L);
    *slot = nsbx_file_stream_next(s, timeout_ms);
    return nsbx_wait(L, "read_file_stream", NSBX_WAIT, chunk_came, 0);
}

/* The timeout is for each chunk; without one the transport's own limit of silence holds. */
int nsbx_sandbox_read_file_stream(lua_State *L)
{
    struct nsbx_sandbox *sb = nsbx_sandbox_self(L, "read_file_stream");
    struct range r =
        check_range(L, "read_file_stream", "sandbox:read_file_stream(path[, {offset=, length=, timeout=}])", -1);
    nsbx_checkpoint(L, "read_file_stream");
    struct nsbx_err err = {0};
    lua_pushcfunction(L, next_chunk);
    struct nsbx_box *box = nsbx_box_push(L, &stream_type, 2);
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, -2, 1);
    lua_pushinteger(L, r.timeout_ms);
    lua_setiuservalue(L, -2, 2);
    struct nsbx_file_stream *s;
    if (nsbx_file_stream_open(sb->guest, r.path, r.offset, r.length, &s, &err) < 0)
        return nsbx_raise(L, &err, "read_file_stream", sb->id);
    box->ptr = s;
    lua_pushnil(L);
    lua_pushvalue(L, -2);
    return 4;
}
