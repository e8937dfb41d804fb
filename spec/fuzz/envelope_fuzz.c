/* Any bytes as a host: the gate, the first frame, the large member, what follows. The operation behind answers, refuses or says nothing. */
#include "channel_fuzz.h"

#include <jansson.h>

struct served {
    struct nsbx_channel *ch;
    bool ended;
};

static void finish(struct served *s)
{
    nsbx_channel_close(s->ch);
    free(s);
}

static void on_message(void *ud, json_t *message)
{
    const struct served *s = ud;
    assert(json_is_object(message));
    assert(!s->ended);
}

static void on_data(void *ud, enum nsbx_sub sub, const uint8_t *bytes, size_t n, int64_t offset)
{
    struct served *s = ud;
    assert(n > 0 && bytes && sub == NSBX_SUB_MAIN && offset == -1 && !s->ended);
    nsbx_channel_consumed(s->ch, n);
    if (bytes[0] == '!')
        finish(s);
}

static void on_end(void *ud)
{
    struct served *s = ud;
    const struct nsbx_op_row *row = nsbx_channel_op(s->ch);
    assert(!s->ended);
    s->ended = true;
    bool ok = nsbx_channel_send(s->ch, json_pack("{s:b}", "ok", 1), NULL) == 0;
    if (ok && row->to_host == NSBX_DATA_DELTA)
        ok = nsbx_channel_data(s->ch, NSBX_SUB_STDOUT, (const uint8_t *)"o\xff\xc3", 3, -1, NULL) == 0;
    if (ok && nsbx_channel_end(s->ch, NULL) == 0)
        finish(s);
}

static void on_fail(void *ud, const struct nsbx_err *err)
{
    assert(err->code);
    finish(ud);
}

static void on_open(void *ud, struct nsbx_channel *ch, json_t *body)
{
    static const struct nsbx_channel_events events = {on_message, on_data, on_end, on_fail, NULL};
    (void)ud;
    assert(!body || json_is_object(body));
    assert(nsbx_channel_op(ch));
    if (json_is_true(json_object_get(body, "refuse"))) {
        int rc = nsbx_channel_refuse(ch, json_pack("{s:b}", "ok", 0), NULL);
        assert(rc == 0);
        nsbx_channel_close(ch);
        return;
    }
    struct served *s = calloc(1, sizeof(*s));
    s->ch = ch;
    nsbx_channel_set_events(ch, &events, s);
}

static json_t *gate(void *ud, const struct nsbx_op_row *row, bool *as_stream)
{
    (void)ud;
    *as_stream = true;
    return strcmp(row->name, "signal-execution") == 0 ? json_pack("{s:s}", "type", "error") : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    unsigned how = data[0];
    const struct nsbx_single_server_config config = {
        .bind_token = how & TOKEN ? "token" : NULL,
        .require_token = (how & FIRST_USE) != 0,
        .max_frame = 1 << 20,
        .max_preauth_frame = 4096,
        .max_preauth_buffer = 6000,
        .max_preauth_connections = 2,
        .preauth_idle_ms = 1000,
        .preauth_deadline_ms = 1000,
        .refusal_flush_ms = 5,
        .spool_dir_fd = -1,
        .on_open = on_open,
        .gate = gate,
    };
    struct nsbx_err err;
    struct nsbx_stream *ends[2];
    struct fuzz_peer host;
    fuzz_loop();
    struct nsbx_single_server *server = nsbx_single_server_new(loop, &config, &err);
    assert(server);
    fuzz_pair(how, ends);
    fuzz_peer_take(&host, ends[0], how);
    nsbx_single_serve(server, ends[1]);
    fuzz_peer_send(&host, data + 1, size - 1, how);
    fuzz_peer_close(&host);
    for (int i = 0; i < 100 && nsbx_single_connections(server); i++)
        fuzz_turn(1);
    assert(nsbx_single_connections(server) == 0); /* the host is gone: nothing may wait for it */
    nsbx_single_server_close(server);
    fuzz_turn(2);
    assert(nsbx_loop_live(loop, NULL, NULL) == 0);
    return 0;
}
