#include "guest_priv.h"

#include "base/alloc.h"
#include "base/util.h"
#include "call_priv.h"
#include "channel/bytestr.h"

#include <string.h>

enum { PROTOCOL_VERSION = 2 };

/* ---- the object ---- */

static void guest_destroy(struct nsbx_guest *guest)
{
    if (guest->token)
        nsbx_wipe(guest->token, strlen(guest->token));
    nsbx_free(guest->token);
    nsbx_free(guest->unix_path);
    nsbx_free(guest->host);
    nsbx_free(guest);
}

static int copy_text(char **to, const char *from, struct nsbx_err *err)
{
    if (!from)
        return 0;
    *to = nsbx_strdup(from);
    return *to ? 0 : nsbx_err_nomem(err, "a guest");
}

int nsbx_guest_new(struct nsbx_loop *loop, const struct nsbx_guest_options *options, struct nsbx_guest **out,
                   struct nsbx_err *err)
{
    bool is_unix = options->arm == NSBX_ARM_UNIX;
    if (is_unix ? !options->unix_path || !*options->unix_path : !options->host || !*options->host || !options->port)
        return nsbx_err_set(err, NSBX_E_INVALID,
                            is_unix ? "a guest on a unix socket needs its path"
                                    : "a guest on tcp needs a host and a port");
    struct nsbx_guest *guest = nsbx_calloc(1, sizeof *guest);
    if (!guest)
        return nsbx_err_nomem(err, "a guest");
    guest->loop = loop;
    guest->refs = 1;
    guest->arm = options->arm;
    guest->port = options->port;
    guest->dial_budget_ms = options->dial_budget_ms ? options->dial_budget_ms : NSBX_DIAL_BUDGET_MS;
    guest->max_frame = is_unix ? NSBX_MAX_FRAME : NSBX_MAX_PREAUTH_FRAME;
    guest->clock_divisor = 1;
    nsbx_list_init(&guest->asking);
    int rc = copy_text(&guest->unix_path, is_unix ? options->unix_path : NULL, err);
    if (rc == 0)
        rc = copy_text(&guest->host, is_unix ? NULL : options->host, err);
    if (rc == 0) /* the published rule: a unix socket's file mode is its lock, and its guest asks no token */
        rc = copy_text(&guest->token, is_unix ? NULL : options->token, err);
    if (rc < 0) {
        guest_destroy(guest);
        return rc;
    }
    *out = guest;
    return 0;
}

struct nsbx_guest *nsbx_guest_ref(struct nsbx_guest *guest)
{
    guest->refs++;
    return guest;
}

void nsbx_guest_unref(struct nsbx_guest *guest)
{
    if (guest && --guest->refs == 0)
        guest_destroy(guest);
}

void nsbx_guest_free(struct nsbx_guest *guest)
{
    nsbx_guest_unref(guest);
}

struct nsbx_loop *nsbx_guest_loop(const struct nsbx_guest *guest)
{
    return guest->loop;
}

void nsbx_guest_gone(struct nsbx_guest *guest, const struct nsbx_err *why)
{
    if (!guest->gone.code)
        guest->gone = *why;
}

void nsbx_guest_scale_clocks(struct nsbx_guest *guest, unsigned divisor)
{
    guest->clock_divisor = divisor;
}

int64_t nsbx_guest_ms(const struct nsbx_guest *guest, int64_t ms)
{
    if (ms <= 0 || guest->clock_divisor <= 1)
        return ms;
    return NSBX_MAX(ms / guest->clock_divisor, 1);
}

/* ---- reaching it ---- */

void nsbx_guest_address(const struct nsbx_guest *guest, struct nsbx_single_request *request)
{
    request->token = guest->token;
    request->max_frame = guest->max_frame;
    request->dial_budget_ms = nsbx_guest_ms(guest, guest->dial_budget_ms);
}

struct nsbx_op *nsbx_guest_dial(void *ud, struct nsbx_loop *loop, int64_t timeout_ms)
{
    struct nsbx_guest *guest = ud;
    if (guest->gone.code)
        return nsbx_waits_over(loop, "dial", &guest->gone, NULL);
    if (guest->arm == NSBX_ARM_UNIX)
        return nsbx_stream_dial_unix(loop, guest->unix_path, timeout_ms);
    return nsbx_stream_dial_tcp(loop, guest->host, guest->port, timeout_ms);
}

static bool is_gone(void *ud, const struct nsbx_err *err)
{
    const struct nsbx_guest *guest = ud;
    (void)err;
    return guest->gone.code != 0;
}

const struct nsbx_err *nsbx_guest_truth(const struct nsbx_guest *guest, const struct nsbx_err *err)
{
    bool broke =
        err->code == NSBX_E_STREAM_LOST || err->code == NSBX_E_UNREACHABLE || err->code == NSBX_E_UNKNOWN_OUTCOME;
    return broke && guest->gone.code ? &guest->gone : err;
}

struct nsbx_channel *nsbx_guest_open(struct nsbx_guest *guest, struct nsbx_single_request *request,
                                     const struct nsbx_channel_events *events, void *ud, struct nsbx_err *err)
{
    if (guest->gone.code) {
        nsbx_err_copy(err, &guest->gone);
        return NULL;
    }
    nsbx_guest_address(guest, request);
    request->permanent = is_gone;
    return nsbx_single_open(guest->loop, nsbx_guest_dial, guest, request, events, ud, err);
}

/* ---- what replies tell in passing ---- */

void nsbx_guest_saw(struct nsbx_guest *guest, const json_t *reply)
{
    const json_t *id = json_object_get(reply, "guestBootId");
    size_t n = json_string_length(id);
    if (n == 0 || n >= NSBX_BOOT_ID_MAX || strlen(json_string_value(id)) != n)
        return;
    if (strcmp(guest->boot_id, json_string_value(id)) == 0)
        return;
    if (guest->boot_id[0])
        guest->known = false;
    memcpy(guest->boot_id, json_string_value(id), n + 1);
}

const char *nsbx_guest_boot_id(const struct nsbx_guest *guest)
{
    return guest->boot_id;
}

/* ---- healthz and the feature cache ---- */

static int read_health(const json_t *reply, struct nsbx_health *health, struct nsbx_err *err)
{
    const json_t *version = json_object_get(reply, "protocolVersion");
    if (!json_is_integer(version) || json_integer_value(version) != PROTOCOL_VERSION)
        return nsbx_err_set(err, NSBX_E_PROTOCOL, "the guest speaks protocol version %lld, this host speaks %d",
                            (long long)json_integer_value(version), PROTOCOL_VERSION);
    *health = (struct nsbx_health){
        .ok = json_is_true(json_object_get(reply, "ok")),
        .retiring = json_is_true(json_object_get(reply, "retiring")),
        .protocol_version = PROTOCOL_VERSION,
    };
    const json_t *features = json_object_get(reply, "features");
    for (size_t i = 0; i < json_array_size(features); i++) {
        const char *name = json_string_value(json_array_get(features, i));
        int feature = name ? nsbx_feature_of_name(name) : -1;
        if (feature >= 0)
            health->features[feature] = true;
    }
    return 0;
}

static void probe_done(void *ud, json_t *reply, const struct nsbx_err *failure)
{
    struct nsbx_guest *guest = ud;
    struct nsbx_err err;
    guest->probe = NULL;
    /* A fenced guest says ok:false and retiring:true, and still tells what it can do; any other ok:false tells nothing. */
    if (!failure || json_is_true(json_object_get(reply, "retiring"))) {
        failure = NULL;
        if (read_health(reply, &guest->health, &err) < 0)
            failure = &err;
    }
    guest->known = !failure;
    /* Taken off first: whoever is told may ask again, or take others' questions back. */
    struct nsbx_list told;
    nsbx_list_init(&told);
    struct nsbx_list *node;
    while ((node = nsbx_list_shift(&guest->asking)))
        nsbx_list_push(&told, node);
    nsbx_guest_ref(guest);
    while ((node = nsbx_list_shift(&told))) {
        struct nsbx_feature_wait *wait = nsbx_container_of(node, struct nsbx_feature_wait, node);
        wait->done(wait->ud, failure);
    }
    nsbx_guest_unref(guest);
}

static int ask_anew(struct nsbx_guest *guest, struct nsbx_feature_wait *wait, struct nsbx_err *err)
{
    if (!guest->probe) {
        struct nsbx_call_spec spec = {.op = "healthz", .whole_ms = -1, .done = probe_done, .ud = guest};
        int rc = nsbx_call_open(guest, &spec, &guest->probe, err);
        if (rc < 0)
            return rc;
    }
    nsbx_list_push(&guest->asking, &wait->node);
    return 0;
}

int nsbx_guest_ask(struct nsbx_guest *guest, struct nsbx_feature_wait *wait, struct nsbx_err *err)
{
    return guest->known ? 1 : ask_anew(guest, wait, err);
}

void nsbx_guest_unask(struct nsbx_guest *guest, struct nsbx_feature_wait *wait)
{
    if (nsbx_list_empty(&wait->node))
        return;
    nsbx_list_remove(&wait->node);
    if (nsbx_list_empty(&guest->asking) && guest->probe) {
        nsbx_call_close(guest->probe);
        guest->probe = NULL;
    }
}

bool nsbx_guest_has(const struct nsbx_guest *guest, enum nsbx_feature feature)
{
    return guest->known && guest->health.features[feature];
}

int nsbx_guest_require(const struct nsbx_guest *guest, enum nsbx_feature feature, const char *what,
                       struct nsbx_err *err)
{
    if (nsbx_guest_has(guest, feature))
        return 0;
    return nsbx_err_reason(err, NSBX_E_UNSUPPORTED, nsbx_feature_name(feature),
                           "%s needs a guest with the feature %s, which this one lacks", what,
                           nsbx_feature_name(feature));
}

json_t *nsbx_guest_string(const struct nsbx_guest *guest, const char *text, const char *what, struct nsbx_err *err)
{
    size_t n = strlen(text);
    if (!nsbx_bytestr_plain(text, n) && !nsbx_guest_has(guest, NSBX_FEATURE_BYTE_STRINGS)) {
        nsbx_err_reason(err, NSBX_E_INVALID, nsbx_feature_name(NSBX_FEATURE_BYTE_STRINGS),
                        "%s is not valid UTF-8, and this guest takes only text (it lacks the feature %s)", what,
                        nsbx_feature_name(NSBX_FEATURE_BYTE_STRINGS));
        return NULL;
    }
    json_t *value = nsbx_bytestr_make(text, n);
    if (!value)
        nsbx_err_nomem(err, what);
    return value;
}

const struct nsbx_health *nsbx_guest_known(const struct nsbx_guest *guest)
{
    return guest->known ? &guest->health : NULL;
}

/* ---- health as an operation ---- */

struct health_call {
    struct nsbx_guest *guest;
    struct nsbx_op *op;
    struct nsbx_feature_wait wait;
};

static void health_free(struct health_call *call)
{
    nsbx_op_unref(call->op);
    nsbx_guest_unref(call->guest);
    nsbx_free(call);
}

static void health_finish(struct health_call *call, const struct nsbx_err *err)
{
    struct nsbx_err nomem;
    if (!err) {
        struct nsbx_health *health = nsbx_malloc(sizeof *health);
        if (health) {
            *health = call->guest->health;
            nsbx_op_set_result(call->op, health, nsbx_free);
        } else {
            nsbx_err_nomem(&nomem, "an answer");
            err = &nomem;
        }
    }
    nsbx_op_finish(call->op, err);
    health_free(call);
}

static void health_told(void *ud, const struct nsbx_err *err)
{
    health_finish(ud, err);
}

static void health_stop(struct nsbx_op *op, void *owner, enum nsbx_op_stop why)
{
    (void)why;
    struct health_call *call = owner;
    nsbx_guest_unask(call->guest, &call->wait);
    nsbx_op_finish_stopped(op);
    health_free(call);
}

struct nsbx_op *nsbx_guest_health(struct nsbx_guest *guest, int64_t timeout_ms)
{
    struct health_call *call = nsbx_calloc(1, sizeof *call);
    if (!call)
        return NULL;
    struct nsbx_op_spec spec = {.name = "health", .timeout_ms = timeout_ms, .stop = health_stop, .owner = call};
    call->op = nsbx_op_new(guest->loop, &spec);
    if (!call->op) {
        nsbx_free(call);
        return NULL;
    }
    call->guest = nsbx_guest_ref(guest);
    nsbx_list_init(&call->wait.node);
    call->wait.done = health_told;
    call->wait.ud = call;
    struct nsbx_op *op = nsbx_op_ref(call->op);
    struct nsbx_err err;
    if (ask_anew(guest, &call->wait, &err) < 0)
        health_finish(call, &err);
    return op;
}
