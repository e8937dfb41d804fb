/* Before the token: what an unauthenticated peer may cost is bounded in bytes, connections and time. Nothing is built from what it
 * sends: a scanner of constant size looks for `op` and `token`, and the raw bytes wait in blocks that are charged to a common account. As
 * soon as the right token was scanned, wherever in the frame it stands, the limits are lifted and the blocks read again. */
#include "single_priv.h"

#include "base/alloc.h"
#include "base/util.h"

#include <string.h>

/* Bytes of all unauthenticated peers that are looked at in one turn, or one read more: the worst that can be sent takes a
 * scanner 20 ns a byte, and those who have a token are not to wait for that. */
enum { TURN_BYTES = 128 * 1024 };
enum { BLOCK = 16 * 1024, BLOCK_BYTES = BLOCK - sizeof(struct nsbx_block) - 16 /* the allocator's own */ };

enum verdict { UNDECIDED, ADMITTED, EXEMPT, UNAUTHORIZED, TOO_LARGE, MALFORMED };

struct nsbx_gate {
    struct nsbx_single_server *server;
    struct nsbx_wire_reader reader;
    struct nsbx_list blocks;
    struct nsbx_block *last; /* of them, where there may be room; NULL = none */
    size_t held;
    uint64_t last_byte, deadline;
    const struct nsbx_op_row *row; /* of the last `op` so far; NULL = none or unknown */
    bool has_token;
    unsigned tokens;         /* members of that name so far */
    struct nsbx_token token; /* the first */
    uint32_t announced;
    enum verdict verdict;
};

int nsbx_token_set(struct nsbx_token *token, const char *text, size_t n, struct nsbx_err *err)
{
    memset(token, 0, sizeof(*token));
    if (n == 0 || n > sizeof(token->bytes))
        return nsbx_err_set(err, NSBX_E_INVALID, "a token has 1 to %zu bytes, not %zu", sizeof(token->bytes), n);
    memcpy(token->bytes, text, n);
    token->len[0] = (uint8_t)(n >> 8);
    token->len[1] = (uint8_t)n;
    return 0;
}

/* ---- what the frame says ---- */

static size_t frame_cap(const struct nsbx_single_server *server)
{
    return NSBX_MIN(server->config.max_preauth_frame, server->config.max_frame);
}

static int on_header(void *ud, uint32_t length, struct nsbx_err *err)
{
    struct nsbx_gate *g = ud;
    (void)err;
    g->announced = length;
    if (length <= frame_cap(g->server))
        return 0;
    g->verdict = TOO_LARGE;
    return NSBX_WIRE_STOP;
}

static int on_terminator(void *ud, struct nsbx_err *err)
{
    struct nsbx_gate *g = ud;
    (void)err;
    g->verdict = MALFORMED;
    return NSBX_WIRE_STOP;
}

/* A second token is nobody's: readers differ in which of two they take, and so may whoever let the first one pass. A token that is right
 * admits at once; a second one behind it is the intake's to find. One that is to be the first (trust on first use) has to wait for the whole frame: a healthz shows
 * its token to nobody. */
static int on_watch(void *ud, size_t index, const char *value, size_t n)
{
    struct nsbx_gate *g = ud;
    if (index == 0) {
        g->row = value && strlen(value) == n ? nsbx_op_row(value) : NULL;
        return 0;
    }
    if (g->tokens++ > 0)
        return 0;
    g->has_token = value && nsbx_token_set(&g->token, value, n, NULL) == 0;
    if (!g->has_token || !g->server->bound || !nsbx_equal_secret(&g->token, &g->server->token, sizeof(g->token)))
        return 0;
    g->verdict = ADMITTED;
    return NSBX_WIRE_STOP;
}

static int on_frame(void *ud, const char *rest, size_t len, struct nsbx_err *err)
{
    struct nsbx_gate *g = ud;
    (void)rest;
    (void)len;
    (void)err;
    if (g->row && g->row->without_token) {
        g->verdict = EXEMPT;
    } else if (g->has_token && g->tokens == 1 && !g->server->bound) {
        g->server->token = g->token;
        g->server->bound = true;
        g->verdict = ADMITTED;
    } else {
        g->verdict = UNAUTHORIZED;
    }
    return NSBX_WIRE_STOP;
}

/* ---- bytes held ---- */

static struct nsbx_block *add_block(struct nsbx_gate *g)
{
    struct nsbx_block *block = nsbx_malloc(sizeof(*block) + BLOCK_BYTES);
    if (!block)
        return NULL;
    block->len = 0;
    nsbx_list_init(&block->node);
    nsbx_list_push(&g->blocks, &block->node);
    g->last = block;
    return block;
}

static int hold(struct nsbx_gate *g, const uint8_t *bytes, size_t n)
{
    while (n) {
        struct nsbx_block *block = g->last;
        if ((!block || block->len == BLOCK_BYTES) && !(block = add_block(g)))
            return -NSBX_E_LIMIT;
        size_t take = NSBX_MIN(n, BLOCK_BYTES - block->len);
        memcpy(block->bytes + block->len, bytes, take);
        block->len += take;
        bytes += take;
        n -= take;
    }
    return 0;
}

static void uncharge(struct nsbx_gate *g)
{
    g->server->held -= g->held;
    g->held = 0;
}

void nsbx_block_drop_all(struct nsbx_list *blocks)
{
    struct nsbx_list *node;
    while ((node = nsbx_list_shift(blocks)) != NULL)
        nsbx_free(nsbx_container_of(node, struct nsbx_block, node));
}

static void drop_blocks(struct nsbx_gate *g)
{
    uncharge(g);
    nsbx_block_drop_all(&g->blocks);
    g->last = NULL;
}

static void hold_or_refuse(struct nsbx_conn *c, const uint8_t *bytes, size_t n)
{
    struct nsbx_gate *g = c->gate;
    struct nsbx_single_server *server = c->server;
    size_t max = NSBX_MAX(server->config.max_preauth_buffer, frame_cap(server) + NSBX_FRAME_HEADER);
    if (n > max - server->held) {
        nsbx_conn_refuse_text(c, "preauth_buffer_exhausted: limit %zu bytes (NAMZU_AGENT_MAX_PREAUTH_BUFFER_BYTES)",
                              max);
        return;
    }
    server->held += n;
    g->held += n;
    if (hold(g, bytes, n) != 0)
        nsbx_conn_break(c, NULL);
}

/* ---- the pool ---- */

static void start_clock(struct nsbx_conn *c)
{
    const struct nsbx_gate *g = c->gate;
    uint64_t now = nsbx_loop_now_ms(c->server->loop);
    uint64_t next = NSBX_MIN(g->last_byte + c->server->config.preauth_idle_ms, g->deadline);
    nsbx_timer_start(c->timer, next > now ? next - now : 0);
}

void nsbx_gate_tick(struct nsbx_conn *c)
{
    const struct nsbx_gate *g = c->gate;
    uint64_t now = nsbx_loop_now_ms(c->server->loop);
    if (now >= g->deadline || now - g->last_byte >= c->server->config.preauth_idle_ms) {
        struct nsbx_err err;
        nsbx_err_set(&err, NSBX_E_TIMEOUT, "an unauthenticated connection took too long");
        nsbx_conn_break(c, &err);
    } else {
        start_clock(c);
    }
}

static void evict(struct nsbx_conn *c)
{
    nsbx_conn_enter(c);
    if (c->phase == NSBX_CONN_GATE)
        nsbx_conn_refuse_text(
            c, "too_many_unauthenticated_connections: limit %u (NAMZU_AGENT_MAX_PREAUTH_CONNECTIONS)",
            c->server->config.max_preauth_connections);
    else
        nsbx_conn_break(c, NULL); /* a healthz that has had its answer */
    nsbx_conn_leave(c);
}

int nsbx_gate_enter(struct nsbx_conn *c, struct nsbx_err *err)
{
    static const char *const watch[] = {"op", "token", NULL};
    static const char *const large[] = {NULL};
    static const struct nsbx_wire_events events = {
        .on_header = on_header,
        .on_terminator = on_terminator,
        .on_frame = on_frame,
        .on_watch = on_watch,
    };
    struct nsbx_single_server *server = c->server;
    struct nsbx_gate *g = nsbx_calloc(1, sizeof(*g));
    if (!g)
        return nsbx_err_nomem(err, "a connection");
    c->gate = g;
    g->server = server;
    nsbx_list_init(&g->blocks);
    nsbx_list_push(&server->gate_pool, &c->pool);
    server->pool_size++;
    int rc = nsbx_wire_reader_init(&g->reader, watch, large, true, &events, g, err);
    if (rc)
        return rc;
    g->last_byte = nsbx_loop_now_ms(server->loop);
    g->deadline = g->last_byte + server->config.preauth_deadline_ms;
    start_clock(c);
    if (server->pool_size > server->config.max_preauth_connections)
        evict(nsbx_container_of(nsbx_list_first(&server->gate_pool), struct nsbx_conn, pool));
    return 0;
}

void nsbx_gate_leave(struct nsbx_conn *c)
{
    struct nsbx_gate *g = c->gate;
    if (!g)
        return;
    c->gate = NULL;
    nsbx_list_remove(&c->pool);
    c->server->pool_size--;
    drop_blocks(g);
    nsbx_wire_reader_free(&g->reader);
    nsbx_wipe(&g->token, sizeof(g->token));
    nsbx_free(g);
}

/* ---- the decision ---- */

static void admit(struct nsbx_conn *c, const uint8_t *bytes, size_t n)
{
    struct nsbx_gate *g = c->gate;
    nsbx_timer_stop(c->timer);
    uncharge(g);
    bool replay = !nsbx_list_empty(&g->blocks);
    int rc = replay ? hold(g, bytes, n) : 0;
    struct nsbx_list *node;
    while ((node = nsbx_list_shift(&g->blocks)) != NULL)
        nsbx_list_push(&c->early, node);
    g->last = NULL;
    nsbx_gate_leave(c);
    if (rc == 0)
        rc = nsbx_intake_start(c, NULL);
    if (rc)
        nsbx_conn_break(c, NULL);
    else if (replay)
        nsbx_intake_replay(c);
    else
        nsbx_intake_read(c, bytes, n);
}

static void decide(struct nsbx_conn *c, const uint8_t *bytes, size_t n)
{
    struct nsbx_gate *g = c->gate;
    switch (g->verdict) {
    case UNDECIDED:
        hold_or_refuse(c, bytes, n);
        break;
    case ADMITTED:
        admit(c, bytes, n);
        break;
    case EXEMPT: /* stays unauthenticated: nothing of its body is looked at and no limit is lifted */
        drop_blocks(g);
        nsbx_intake_serve(c, g->row, NULL, NULL);
        break;
    case UNAUTHORIZED:
        nsbx_conn_refuse_text(c, "unauthorized");
        break;
    case TOO_LARGE:
        nsbx_conn_refuse_text(
            c, "frame_too_large: announced %u bytes, limit %zu (NAMZU_AGENT_MAX_PREAUTH_FRAME_BYTES)", g->announced,
            frame_cap(c->server));
        break;
    case MALFORMED:
        nsbx_conn_break(c, NULL);
        break;
    }
}

static void each_may_read(struct nsbx_single_server *server, bool may)
{
    nsbx_list_each (node, &server->gate_pool) {
        struct nsbx_conn *c = nsbx_container_of(node, struct nsbx_conn, pool);
        if (may)
            nsbx_stream_read_start(c->stream);
        else
            nsbx_stream_read_stop(c->stream);
    }
}

static void on_turn_over(struct nsbx_defer *d)
{
    struct nsbx_single_server *server = nsbx_container_of(d, struct nsbx_single_server, gate_rest);
    if (server->gate_read >= TURN_BYTES)
        each_may_read(server, true);
    server->gate_read = 0;
}

static void account(struct nsbx_single_server *server, size_t n)
{
    size_t before = server->gate_read;
    server->gate_read += n;
    if (before < TURN_BYTES && server->gate_read >= TURN_BYTES)
        each_may_read(server, false);
    nsbx_loop_defer(server->loop, &server->gate_rest, on_turn_over);
}

void nsbx_gate_read(struct nsbx_conn *c, const uint8_t *bytes, size_t n)
{
    struct nsbx_err err = {0};
    struct nsbx_single_server *server = c->server;
    struct nsbx_gate *g = c->gate;
    g->last_byte = nsbx_loop_now_ms(server->loop);
    int rc = nsbx_wire_feed(&g->reader, bytes, n, NULL, &err);
    if (rc == -NSBX_E_LIMIT && !err.sys) /* too deep */
        nsbx_conn_refuse_text(c, "request_refused: %s", err.message);
    else if (rc < 0)
        nsbx_conn_break(c, NULL);
    else
        decide(c, bytes, n);
    account(server, n);
}
