/* Each allocation of an exchange fails once in turn: both ends come to an end that is true, and nothing is leaked. */
#include "channel_rig.h"

#include <fcntl.h>

static char dir[] = "/tmp/nsbx-torture-XXXXXX";
enum { BODY = 3 << 20, PATIENCE_MS = 5000 };
static uint8_t body[BODY];

/* ---- a guest that gives up when something cannot be had ---- */

static bool reply_to(struct heard *h)
{
    const char *op = nsbx_channel_op(h->ch)->name;
    int rc = 0;
    if (strcmp(op, "execute") == 0) {
        rc = heard_put(h, NSBX_SUB_STDOUT, text_of(&h->data[0]), h->data[0].n, -1);
        if (rc == 0)
            rc = heard_send(h, json_pack("{s:s}", "type", "result"));
    } else if (strcmp(op, "read-file") == 0) {
        rc = nsbx_channel_send_large(h->ch, json_pack("{s:b}", "ok", 1), NSBX_LARGE_BASE64, 300000, NULL);
        if (rc == 0)
            rc = heard_put(h, NSBX_SUB_MAIN, (const char *)body, 300000, -1);
    } else {
        rc = heard_send(h, json_pack("{s:b,s:I}", "ok", 1, "bytesWritten", (json_int_t)h->bytes));
    }
    return rc == 0 && heard_finish(h) == 0;
}

static void serve(struct heard *h, char what)
{
    if (what == 'o')
        h->count_only = strcmp(nsbx_channel_op(h->ch)->name, "write-file") == 0;
    if (what == 'f' || (what == 'e' && !reply_to(h)))
        heard_close(h);
    else if (what == 'e')
        heard_close(h);
}

/* ---- exchanges ---- */

struct exchange {
    const char *name;
    struct nsbx_single_request request;
    const char *body;      /* JSON */
    const char *stdin_two; /* sent in two pieces, then the end */
    const char *want;      /* all of what the host heard, when it heard an end */
    bool sockets;
    bool refused; /* by its token */
};

static void turn_while(bool (*going_on)(void *ud), void *ud)
{
    uint64_t start = nsbx_now_ms();
    while (going_on(ud) && nsbx_now_ms() - start < PATIENCE_MS)
        if (!nsbx_loop_turn(loop, NSBX_TURN_POLL))
            usleep(100);
}

static bool unheard(void *ud)
{
    return !heard_all(ud);
}

static bool connected(void *ud)
{
    (void)ud;
    return nsbx_single_connections(rig.server) > 0;
}

/* Where the nth allocation fails; false when there are no n. */
static bool exchange_failing_at(const struct exchange *x, unsigned long nth)
{
    struct heard h = {.last_sub = -1};
    json_t *json = x->body ? json_loads(x->body, 0, NULL) : NULL;
    struct nsbx_single_request request = x->request;
    rig.sockets = x->sockets;
    channel_rig_open();
    rig.serve = serve;
    rig.config.bind_token = "secret";
    rig.config.spool_dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    rig_serve();
    request.body = json;
    request.token = x->refused ? "guess" : "secret";
    nsbx_alloc_fail_at(nth);
    int rc = rig_ask(&h, request);
    if (rc == 0 && x->stdin_two) {
        size_t half = strlen(x->stdin_two) / 2;
        if (heard_put(&h, NSBX_SUB_MAIN, x->stdin_two, half, -1) != 0 ||
            heard_put(&h, NSBX_SUB_MAIN, x->stdin_two + half, strlen(x->stdin_two) - half, -1) != 0 ||
            heard_finish(&h) != 0)
            rc = -1;
    }
    if (rc == 0)
        turn_while(unheard, &h);
    bool reached = nsbx_alloc_count() >= nth;
    nsbx_alloc_fail_at(0);
    CHECK(rc != 0 || heard_all(&h));
    bool told = strstr(text_of(&h.log), "{\"ok\":false") != NULL; /* a refusal for want of memory is true too */
    if (h.ends && strcmp(text_of(&h.log), x->want) != 0 && !(told && reached)) {
        fprintf(stderr, "%s, allocation %lu: an end, but not a true one: %s\n", x->name, nth, text_of(&h.log));
        harness_case_failed = 1;
    }
    CHECK(reached || h.ends);
    heard_free(&h);
    turn_while(connected, NULL);
    CHECK_INT(nsbx_single_connections(rig.server), 0);
    json_decref(json);
    close(rig.config.spool_dir_fd);
    channel_rig_close();
    return reached;
}

static void torture(const struct exchange *x)
{
    unsigned long nth = 1;
    while (exchange_failing_at(x, nth) && !harness_case_failed)
        nth++;
    CHECK(nth > 20);
    fprintf(stderr, "%s: %lu allocations\n", x->name, nth - 1);
}

static void a_health_question(void)
{
    torture(&(struct exchange){.name = "healthz",
                               .request = {.op = "healthz"},
                               .want = "message {\"ok\":true,\"bytesWritten\":0}\nend\n"});
}

static void a_refused_token(void)
{
    torture(&(struct exchange){.name = "unauthorized",
                               .request = {.op = "walk"},
                               .refused = true,
                               .want = "message {\"ok\":false,\"error\":\"unauthorized\"}\nend\n"});
}

static void an_execution_with_stdin(void)
{
    torture(&(struct exchange){
        .name = "execute",
        .request = {.op = "execute", .data_base64 = true},
        .body = "{\"encoding\":\"base64\",\"stdinStream\":true,\"args\":[\"a\",{\"base64\":\"/w==\"}]}",
        .stdin_two = "some bytes",
        .want = "data 1 some bytes\nmessage {\"type\":\"result\"}\nend\n"});
}

static void an_execution_as_text(void)
{
    torture(
        &(struct exchange){.name = "execute as text",
                           .request = {.op = "execute", .large = (const uint8_t *)"t\xc3\xa4xt", .large_len = 5},
                           .want = "data 1 t\xc3\xa4xt\nmessage {\"type\":\"result\"}\nend\n"});
}

static void a_spooled_body(void)
{
    torture(
        &(struct exchange){.name = "write-file",
                           .request = {.op = "write-file", .large = body, .large_len = BODY, .large_base64 = true},
                           .body = "{\"encoding\":\"base64\"}",
                           .sockets = true,
                           .want = "message {\"ok\":true,\"bytesWritten\":3145728}\nend\n"});
}

static void a_large_reply(void)
{
    struct text want = {0};
    text_printf(&want, "data 0 ");
    text_add(&want, body, 300000);
    text_printf(&want, "\nmessage {\"ok\":true,\"content\":\"\"}\nend\n");
    torture(&(struct exchange){
        .name = "read-file", .request = {.op = "read-file", .data_base64 = true}, .sockets = true, .want = want.p});
    text_free(&want);
}

int main(void)
{
    rig_open(); /* libuv's process-wide descriptors are made by the first loop */
    nsbx_loop_free(loop);
    json_set_alloc_funcs(nsbx_malloc, nsbx_free);
    fill(body, sizeof(body), 0);
    if (!mkdtemp(dir))
        return 1;
    RUN(a_health_question);
    RUN(a_refused_token);
    RUN(an_execution_with_stdin);
    RUN(an_execution_as_text);
    RUN(a_spooled_body);
    RUN(a_large_reply);
    rmdir(dir);
    return harness_done();
}
