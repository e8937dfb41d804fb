/* Any bytes as a guest: whatever they are, the host hears one end or one failure, and an end only of an answer that is complete. */
#include "channel_fuzz.h"

struct asked {
    struct nsbx_channel *ch;
    struct fuzz_peer *guest;
    unsigned how;
    int messages, ends, fails;
};

static void on_message(void *ud, json_t *message)
{
    struct asked *a = ud;
    assert(json_is_object(message) && !a->ends && !a->fails);
    a->messages++;
}

static void on_data(void *ud, enum nsbx_sub sub, const uint8_t *bytes, size_t n, int64_t offset)
{
    const struct asked *a = ud;
    assert(n > 0 && bytes && (unsigned)sub <= NSBX_SUB_STDERR && offset >= -1);
    assert(!a->ends && !a->fails);
    nsbx_channel_consumed(a->ch, n);
}

static void on_end(void *ud)
{
    struct asked *a = ud;
    assert(!a->ends && !a->fails);
    assert(nsbx_channel_op(a->ch)->shape != NSBX_SHAPE_CONTROL || a->messages == 1);
    a->ends++;
}

static void on_fail(void *ud, const struct nsbx_err *err)
{
    struct asked *a = ud;
    assert(err->code && !a->ends && !a->fails);
    a->fails++;
}

static void close_stream(void *stream)
{
    nsbx_stream_close(stream);
}

static struct nsbx_op *dial(void *ud, struct nsbx_loop *l, int64_t timeout_ms)
{
    struct asked *a = ud;
    const struct nsbx_op_spec spec = {.name = "dial", .timeout_ms = timeout_ms};
    struct nsbx_op *op = nsbx_op_new(l, &spec);
    struct nsbx_stream *ends[2];
    fuzz_pair(a->how, ends);
    fuzz_peer_take(a->guest, ends[1], a->how);
    nsbx_op_set_result(op, ends[0], close_stream);
    nsbx_op_finish(op, NULL);
    return op;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct nsbx_channel_events events = {on_message, on_data, on_end, on_fail, NULL};
    size_t n_rows;
    const struct nsbx_op_row *rows = nsbx_op_rows(&n_rows);
    if (size < 2)
        return 0;
    struct fuzz_peer guest = {0};
    struct asked a = {.guest = &guest, .how = data[0]};
    const struct nsbx_single_request request = {
        .op = rows[data[1] % n_rows].name,
        .data_base64 = (data[0] & TOKEN) != 0,
        .dial_budget_ms = -1,
        .idle_ms = -1,
    };
    fuzz_loop();
    a.ch = nsbx_single_open(loop, dial, &a, &request, &events, &a, NULL);
    assert(a.ch);
    fuzz_turn(4);
    fuzz_peer_send(&guest, data + 2, size - 2, a.how);
    fuzz_peer_close(&guest);
    for (int i = 0; i < 100 && !a.ends && !a.fails; i++)
        fuzz_turn(1);
    assert(a.ends + a.fails == 1); /* the guest is gone: nothing may wait for it */
    nsbx_channel_close(a.ch);
    fuzz_turn(2);
    assert(nsbx_loop_live(loop, NULL, NULL) == 0);
    return 0;
}
