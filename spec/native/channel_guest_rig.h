/* For the tests of the guest's end: what it says to a host made of bytes, and an operation that answers. */
#ifndef NSBX_SPEC_CHANNEL_GUEST_RIG_H
#define NSBX_SPEC_CHANNEL_GUEST_RIG_H

#include "channel_rig.h"

#define TOKEN "0d7e6a52-7c1b-4a53-9b0e-2f6f3f1c9a11"

/* Answers everything with one object, or with one message on streams, when the host has said all. */
static inline void answer(struct heard *h, char what)
{
    if (what == 'f')
        heard_close(h);
    if (what != 'e')
        return;
    bool control = nsbx_channel_op(h->ch)->shape == NSBX_SHAPE_CONTROL;
    json_t *reply = control ? json_pack("{s:b}", "ok", 1) : json_pack("{s:s}", "type", "done");
    CHECK_INT(heard_send(h, reply), 0);
    CHECK_INT(heard_finish(h), 0);
    heard_close(h);
}

#define OK_FRAME "0000000b\n{\"ok\":true}"
#define DONE_FRAME "0000000f\n{\"type\":\"done\"}00000000\n"
#define REFUSED(text) "{\"ok\":false,\"error\":\"" text "\"}"

/* The bytes of one frame with this JSON, or these bytes when they are none. Until the next call. */
static inline const char *framed(const char *json)
{
    static struct text frame;
    text_free(&frame);
    if (json[0] == '{')
        text_frame(&frame, json);
    else
        text_printf(&frame, "%s", json);
    return text_of(&frame);
}

static inline void write_in_two(struct raw *host, const char *bytes, size_t n, size_t cut)
{
    raw_write(host, bytes, cut);
    rig_settle();
    raw_write(host, bytes + cut, n - cut);
}

/* What the guest says to these bytes, and what its operation heard (NULL: none was opened). */
struct exchange {
    const char *token; /* the guest's; NULL = none */
    bool first_use;
    const char *sent;
    const char *replied;
    const char *opened;
};

static inline void exchange_in_two(const struct exchange *x, size_t cut)
{
    struct raw host;
    size_t n = strlen(x->sent);
    channel_rig_open();
    rig.serve = answer;
    rig.config.bind_token = x->token;
    rig.config.require_token = x->first_use;
    rig_serve();
    rig_connect(&host);
    write_in_two(&host, x->sent, n, cut);
    TURN_UNTIL(raw_over(&host), 10000);
    const char *opened = rig.n_served ? text_of(&rig.served[0]->log) : NULL;
    if (strcmp(text_of(&host.got), framed(x->replied)) != 0 || (host.error && x->replied[0]) ||
        strcmp(opened ? opened : "-", x->opened ? x->opened : "-") != 0) {
        fprintf(stderr, "%s\ncut at %zu%s: replied%s\n%s\nnot\n%s\nopened\n%s\nnot\n%s\n", x->sent, cut,
                rig.io ? ", byte by byte" : "", host.error ? " and reset" : "", text_of(&host.got), x->replied,
                opened, x->opened);
        harness_case_failed = 1;
    }
    raw_free(&host);
    channel_rig_close();
}

static inline void check_exchange(const struct exchange *x)
{
    for (size_t cut = 0; cut <= strlen(x->sent) && !harness_case_failed; cut++)
        exchange_in_two(x, cut);
    rig.io = 1;
    exchange_in_two(x, 0);
    rig.io = 0;
}

/* Long ones: whole and byte by byte only. */
static inline void check_long_frame(struct exchange x)
{
    struct text sent = {0};
    text_frame(&sent, x.sent);
    x.sent = sent.p;
    for (rig.io = 0; rig.io < 2; rig.io++)
        exchange_in_two(&x, 0);
    rig.io = 0;
    text_free(&sent);
}

static inline void check_frame(struct exchange x)
{
    struct text sent = {0};
    text_frame(&sent, x.sent);
    x.sent = sent.p;
    check_exchange(&x);
    text_free(&sent);
}

static inline void ask_once(const char *json, const char *reply)
{
    struct raw host;
    struct text frame = {0};
    text_frame(&frame, json);
    rig_connect(&host);
    raw_write(&host, frame.p, frame.n);
    TURN_UNTIL(raw_over(&host), 10000);
    CHECK_STR(text_of(&host.got), framed(reply));
    text_free(&frame);
    raw_free(&host);
}

#endif
