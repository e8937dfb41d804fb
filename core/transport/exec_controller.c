/* What follows from what, in an execution. The rules behind it:
 *  - a result comes only from a stream that ended as it should;
 *  - whatever else happens after the execute may have reached the guest, the end is confirmed by id before anything is reported,
 *    and when it cannot be, the outcome is UNKNOWN_OUTCOME;
 *  - nothing is sent twice but the cancel, which is idempotent. */
#include "exec_priv.h"

#include "base/alloc.h"
#include "base/util.h"

#include <assert.h>
#include <stdarg.h>
#include <string.h>

#define BIT(state) (1u << NSBX_EXEC_##state)
static const unsigned next_states[NSBX_EXEC_STATES] = {
    [NSBX_EXEC_ASK] = BIT(RESERVE) | BIT(OVER),
    [NSBX_EXEC_RESERVE] = BIT(RUN) | BIT(OVER),
    [NSBX_EXEC_RUN] = BIT(DRAIN) | BIT(RECONCILE) | BIT(OVER),
    [NSBX_EXEC_DRAIN] = BIT(OVER),
    [NSBX_EXEC_RECONCILE] = BIT(OVER),
};

static void set_state(struct nsbx_exec *x, enum nsbx_exec_state to)
{
    assert(next_states[x->state] & (1u << to));
    x->state = to;
}

/* ---- outcomes ---- */

static void drop_channel(struct nsbx_exec *x)
{
    nsbx_channel_close(x->channel);
    x->channel = NULL;
}

const struct nsbx_err *nsbx_exec_cancel_outcome(const struct nsbx_exec *x)
{
    return x->outcome.code == NSBX_E_UNKNOWN_OUTCOME ? &x->outcome : NULL;
}

/* err NULL: x->result is the outcome. The last thing that a handler does: x may be gone after it. */
static void over(struct nsbx_exec *x, const struct nsbx_err *err)
{
    set_state(x, NSBX_EXEC_OVER);
    if (err)
        x->outcome = *nsbx_guest_truth(x->guest, err);
    else
        nsbx_exec_output_settle(&x->output, &x->result);
    err = err ? &x->outcome : NULL;
    nsbx_guest_unask(x->guest, &x->ask);
    nsbx_call_close(x->reserve);
    x->reserve = NULL;
    drop_channel(x);
    nsbx_timer_stop(x->clock);
    /* Only somebody who asked for the end still wants it confirmed when the command ended by itself: what it left behind goes too. */
    if (err || !x->asked_cancel)
        nsbx_confirm_stop(&x->confirm);
    nsbx_waits_finish(&x->starting, x->started ? NULL : err, NULL);
    nsbx_waits_finish(&x->reading, err, NULL);
    nsbx_waits_finish(&x->waiting, err, &x->result);
    nsbx_exec_stdin_drop(x, err);
    nsbx_exec_signals_send(x);
    if (!x->confirm.running)
        nsbx_waits_finish(&x->cancelling, nsbx_exec_cancel_outcome(x), NULL);
    nsbx_exec_maybe_free(x);
}

/* The command has ended, but how its stream went on is lost. A violation keeps its code, a loss is STREAM_LOST. */
static void over_incomplete(struct nsbx_exec *x, const struct nsbx_err *cause)
{
    struct nsbx_err err;
    char known[64] = "";
    int code = cause->code == NSBX_E_PROTOCOL || cause->code == NSBX_E_LIMIT ? cause->code : NSBX_E_STREAM_LOST;
    if (x->ack.has_result && *x->ack.result.signal)
        snprintf(known, sizeof known, " (by %s)", x->ack.result.signal);
    else if (x->ack.has_result)
        snprintf(known, sizeof known, " (exit code %lld)", (long long)x->ack.result.exit_code);
    nsbx_err_reason(&err, code, "RemoteResultIncompleteError",
                    "'%s' has ended%s, but its output or result is incomplete: %s", x->name, known, cause->message);
    err.sys = cause->sys;
    over(x, &err);
}

static void over_unknown(struct nsbx_exec *x, const struct nsbx_err *why)
{
    struct nsbx_err err;
    const char *cause = x->cause.code ? x->cause.message : x->overdue ? "its time was over" : "it was cancelled";
    nsbx_err_reason(&err, NSBX_E_UNKNOWN_OUTCOME, "RemoteCancellationUnknownError",
                    "whether '%s' still runs is not known: %.180s; the guest did not confirm its end: %s", x->name,
                    cause, why->message);
    over(x, &err);
}

/* Confirmed by id: it never ran. */
static void over_not_started(struct nsbx_exec *x)
{
    struct nsbx_err err;
    if (x->asked_cancel)
        nsbx_err_reason(&err, NSBX_E_CANCELLED, "never_started", "'%s' was cancelled before it started", x->name);
    else if (x->cause.code) {
        nsbx_err_reason(&err, x->cause.code, "never_started", "'%s' never started: %s", x->name, x->cause.message);
        err.sys = x->cause.sys;
    } else
        nsbx_err_reason(&err, NSBX_E_TIMEOUT, "never_started", "the guest did not start '%s' within its time",
                        x->name);
    over(x, &err);
}

static void over_cancelled(struct nsbx_exec *x)
{
    struct nsbx_err err;
    nsbx_err_reason(&err, NSBX_E_CANCELLED, "", "'%s' was cancelled", x->name);
    over(x, &err);
}

/* ---- the end, by id ---- */

static void restart_drain(struct nsbx_exec *x)
{
    nsbx_timer_start(x->clock, (uint64_t)nsbx_guest_ms(x->guest, NSBX_CANCEL_DRAIN_MS));
}

/* From now on the guest is waited for, or, while output is held, the reader. */
static void drain_turn(struct nsbx_exec *x)
{
    uint64_t now = nsbx_now_ms();
    if (x->drain.since)
        x->drain.waited_ms += now - x->drain.since;
    x->drain.since = x->output.held ? 0 : now;
}

/* A guest that goes on sending for ever is not waited for for ever. */
static bool drain_exhausted(const struct nsbx_exec *x)
{
    return x->drain.waited_ms > (uint64_t)nsbx_guest_ms(x->guest, NSBX_CANCEL_DRAIN_WHOLE_MS) ||
           x->drain.bytes > NSBX_CANCEL_DRAIN_BYTES;
}

static void begin_drain(struct nsbx_exec *x)
{
    set_state(x, NSBX_EXEC_DRAIN);
    nsbx_waits_finish(&x->cancelling, NULL, NULL);
    drain_turn(x);
    restart_drain(x);
}

static void on_confirmed(void *ud, const struct nsbx_exec_ack *ack, const struct nsbx_err *failure)
{
    struct nsbx_exec *x = ud;
    if (ack)
        x->ack = *ack;
    if (x->state == NSBX_EXEC_OVER) { /* its result came first */
        struct nsbx_err err;
        if (failure)
            nsbx_err_reason(&err, NSBX_E_UNKNOWN_OUTCOME, "RemoteCancellationUnknownError",
                            "'%s' has ended; whether all that it started has is not known: %s", x->name,
                            failure->message);
        nsbx_waits_finish(&x->cancelling, failure ? &err : NULL, NULL);
        nsbx_exec_maybe_free(x);
    } else if (!ack) {
        over_unknown(x, failure);
    } else if (x->cause_is_command && ack->state == NSBX_ACK_FAILED) {
        over(x, &x->cause);
    } else if (x->state == NSBX_EXEC_RUN && (ack->started || x->ran)) {
        begin_drain(x);
    } else if (!ack->started && !x->ran) {
        over_not_started(x);
    } else {
        over_incomplete(x, &x->cause);
    }
}

/* ---- the stream ---- */

/* It gives no result any more. The last thing that a handler does. */
static void stream_failed(struct nsbx_exec *x, const struct nsbx_err *err)
{
    struct nsbx_err cause = *err;
    drop_channel(x);
    nsbx_timer_stop(x->clock);
    if (x->state == NSBX_EXEC_DRAIN) {
        if (x->cause_is_command && x->ack.state == NSBX_ACK_FAILED)
            over(x, &cause);
        else
            over_incomplete(x, &cause);
    } else if (cause.code == NSBX_E_UNREACHABLE && !x->heard) { /* no byte of it left this host */
        nsbx_confirm_release(x->guest, x->id);
        over(x, &cause);
    } else {
        x->cause = cause;
        set_state(x, NSBX_EXEC_RECONCILE);
        nsbx_exec_stdin_drop(x, &cause);
        nsbx_confirm_start(&x->confirm, x->id);
    }
}

static void violation(struct nsbx_exec *x, const char *what)
{
    struct nsbx_err err;
    nsbx_err_set(&err, NSBX_E_PROTOCOL, "the guest broke the protocol: %s", what);
    stream_failed(x, &err);
}

/* Refused for what was asked, before the reservation was spent: nothing ran and nothing will. */
static bool is_unspent(const json_t *frame, const struct nsbx_err *err)
{
    static const char *const words[] = {"unknown_execution", "retain_requires_execution_id",
                                        "retained_output_capacity", "quiesce_in_progress", "agent_retiring"};
    if (!json_object_get(frame, "type")) /* in control shape: refused before the operation was looked at */
        return true;
    for (size_t i = 0; i < NSBX_LEN(words); i++)
        if (strcmp(err->reason, words[i]) == 0)
            return true;
    return strncmp(err->reason, "invalid_", 8) == 0 || strncmp(err->reason, "missing_", 8) == 0;
}

static void command_failed(struct nsbx_exec *x, const json_t *frame)
{
    struct nsbx_err err;
    nsbx_guest_refusal(frame, &err);
    nsbx_err_wrap(&err, err.code == NSBX_E_STREAM_LOST ? "'%s'" : "cannot run '%s'", x->name);
    bool unspent = is_unspent(frame, &err);
    if (x->has_result) {
        violation(x, "an error after a result");
    } else if (unspent && x->ran) {
        violation(x, "a refusal of what it had started");
    } else if (unspent) {
        if (strcmp(err.reason, "unknown_execution") != 0)
            nsbx_confirm_release(x->guest, x->id);
        over(x, &err);
    } else {
        x->cause_is_command = true;
        stream_failed(x, &err);
    }
}

/* The guest says so, or it is a guest that does not and was asked to. */
static void mark_started(struct nsbx_exec *x)
{
    if (x->started)
        return;
    x->started = true;
    nsbx_waits_finish(&x->starting, NULL, NULL);
    nsbx_exec_signals_send(x);
}

static void on_result(struct nsbx_exec *x, const json_t *frame)
{
    struct nsbx_err err;
    if (x->has_result) {
        violation(x, "two results");
    } else if (nsbx_exec_read_result(frame, &x->result, &err) < 0) {
        stream_failed(x, &err);
    } else {
        x->has_result = x->ran = true;
        mark_started(x);
    }
}

static void on_message(void *ud, json_t *message)
{
    struct nsbx_exec *x = ud;
    const char *type = json_string_value(json_object_get(message, "type"));
    x->heard = true;
    if (type ? strcmp(type, "error") == 0 : json_is_false(json_object_get(message, "ok"))) {
        command_failed(x, message);
    } else if (type && strcmp(type, "result") == 0) {
        on_result(x, message);
    } else if (type && strcmp(type, "started") == 0 && !x->has_result) {
        const json_t *pid = json_object_get(message, "pid");
        x->pid = json_is_integer(pid) && json_integer_value(pid) > 0 ? (int64_t)json_integer_value(pid) : 0;
        x->ran = true;
        mark_started(x);
    } else if (type && strcmp(type, "stdin_closed") == 0 && x->in.stream && !x->has_result) {
        x->ran = true;
        mark_started(x);
        nsbx_exec_stdin_closed(x);
    } else {
        char what[64], text[24];
        nsbx_guest_one_line(text, sizeof text, type ? type : "none");
        snprintf(what, sizeof what, "a message of type %s", text);
        violation(x, what);
    }
}

static void too_late(struct nsbx_exec *x)
{
    struct nsbx_err late;
    nsbx_err_set(&late, NSBX_E_STREAM_LOST,
                 x->drain.bytes ? "its stream went on and on" : "the rest of its stream did not come");
    stream_failed(x, &late);
}

/* n bytes came: it is late only while nothing comes, within what drain_exhausted allows. false: given up. */
static bool goes_on_draining(struct nsbx_exec *x, size_t n)
{
    x->drain.bytes += n;
    drain_turn(x);
    if (drain_exhausted(x)) {
        too_late(x);
        return false;
    }
    restart_drain(x);
    return true;
}

static void on_data(void *ud, enum nsbx_sub sub, const uint8_t *bytes, size_t n, int64_t offset)
{
    struct nsbx_exec *x = ud;
    struct nsbx_err err;
    size_t settled = 0;
    (void)offset;
    x->heard = x->ran = true;
    if (x->has_result) {
        violation(x, "output after the result");
        return;
    }
    if (nsbx_exec_output_push(&x->output, sub, bytes, n, &settled, &err) < 0) {
        stream_failed(x, &err);
        return;
    }
    mark_started(x);
    if (x->state == NSBX_EXEC_DRAIN && !goes_on_draining(x, n))
        return;
    if (x->output.held)
        nsbx_waits_finish(&x->reading, NULL, NULL);
    if (settled)
        nsbx_channel_consumed(x->channel, settled);
}

/* It was our clock that ended it, and not what the guest took for a cancel. */
static void count_as_timeout(struct nsbx_exec_result *result)
{
    result->timed_out = true;
    result->exit_code = -1;
    if (!*result->signal)
        snprintf(result->signal, sizeof result->signal, "SIGTERM");
}

static void on_end(void *ud)
{
    struct nsbx_exec *x = ud;
    if (!x->has_result) {
        violation(x, "the stream ended without a result");
        return;
    }
    if (x->state == NSBX_EXEC_DRAIN && x->overdue && x->ack.state == NSBX_ACK_CANCELLED)
        count_as_timeout(&x->result);
    over(x, NULL);
}

static void on_fail(void *ud, const struct nsbx_err *err)
{
    stream_failed(ud, err);
}

static void on_drain(void *ud)
{
    nsbx_exec_stdin_pump(ud);
}

static const struct nsbx_channel_events channel_events = {
    .on_message = on_message, .on_data = on_data, .on_end = on_end, .on_fail = on_fail, .on_drain = on_drain};

void nsbx_exec_output_taken(struct nsbx_exec *x, size_t n)
{
    if (x->channel)
        nsbx_channel_consumed(x->channel, n);
    if (x->state != NSBX_EXEC_DRAIN)
        return;
    drain_turn(x);
    restart_drain(x); /* the reader was the slow one */
}

/* RUN: the guest should have ended it by now. DRAIN: the rest of the stream is late, unless it is held up by our reader. */
static void on_clock(void *ud)
{
    struct nsbx_exec *x = ud;
    if (x->state == NSBX_EXEC_RUN) {
        x->overdue = true;
        nsbx_confirm_start(&x->confirm, x->id);
    } else if (x->state == NSBX_EXEC_DRAIN && x->output.held) {
        restart_drain(x);
    } else if (x->state == NSBX_EXEC_DRAIN) {
        too_late(x);
    }
}

/* ---- the way there ---- */

static void run(struct nsbx_exec *x)
{
    struct nsbx_err err;
    set_state(x, NSBX_EXEC_RUN);
    x->channel = nsbx_exec_open_channel(x, &channel_events, &err);
    if (!x->channel) {
        nsbx_confirm_release(x->guest, x->id);
        nsbx_err_wrap(&err, "cannot run '%s'", x->name);
        over(x, &err);
        return;
    }
    nsbx_timer_start(x->clock, (uint64_t)(x->timeout_ms + nsbx_guest_ms(x->guest, NSBX_EXEC_OBSERVE_MS)));
    nsbx_exec_stdin_pump(x);
    if (!nsbx_guest_has(x->guest, NSBX_FEATURE_EXEC_STARTED))
        mark_started(x); /* this guest will not say; all that can be known is that it was asked */
}

static void on_reserved(void *ud, json_t *reply, const struct nsbx_err *refused)
{
    struct nsbx_exec *x = ud;
    struct nsbx_err err;
    x->reserve = NULL;
    if (refused)
        err = *refused;
    else if (nsbx_exec_read_reservation(reply, x->id, &err) == 0) {
        run(x);
        return;
    }
    nsbx_err_wrap(&err, "cannot run '%s'", x->name);
    over(x, &err);
}

static void reserve(struct nsbx_exec *x)
{
    struct nsbx_err err;
    struct nsbx_call_spec spec = {.op = "reserve-execution",
                                  .whole_ms = nsbx_guest_ms(x->guest, NSBX_CONTROL_REQUEST_MS),
                                  .done = on_reserved,
                                  .ud = x};
    if (nsbx_exec_fit_body(x, &err) < 0 || nsbx_call_open(x->guest, &spec, &x->reserve, &err) < 0) {
        nsbx_err_wrap(&err, "cannot run '%s'", x->name);
        over(x, &err);
        return;
    }
    set_state(x, NSBX_EXEC_RESERVE);
}

static void on_features(void *ud, const struct nsbx_err *failure)
{
    struct nsbx_exec *x = ud;
    struct nsbx_err err;
    if (!failure) {
        reserve(x);
        return;
    }
    err = *failure;
    nsbx_err_wrap(&err, "cannot run '%s'", x->name);
    over(x, &err);
}

int nsbx_exec_controller_init(struct nsbx_exec *x, struct nsbx_err *err)
{
    nsbx_list_init(&x->ask.node);
    x->ask.done = on_features;
    x->ask.ud = x;
    x->clock = nsbx_timer_new(x->guest->loop, on_clock, x);
    return x->clock ? nsbx_confirm_init(&x->confirm, x->guest, on_confirmed, x, err)
                    : nsbx_err_nomem(err, "a timer");
}

void nsbx_exec_begin(struct nsbx_exec *x)
{
    struct nsbx_err err;
    int rc = nsbx_guest_ask(x->guest, &x->ask, &err);
    if (rc < 0)
        on_features(x, &err);
    else if (rc > 0)
        reserve(x);
}

/* ---- being asked to end ---- */

void nsbx_exec_end(struct nsbx_exec *x)
{
    x->asked_cancel = true;
    if (x->state == NSBX_EXEC_ASK || x->state == NSBX_EXEC_RESERVE)
        over_not_started(x);
    else if (x->state == NSBX_EXEC_RUN)
        nsbx_confirm_start(&x->confirm, x->id);
}

void nsbx_exec_let_go(struct nsbx_exec *x)
{
    struct nsbx_err err;
    x->asked_cancel = true;
    if (x->state == NSBX_EXEC_ASK || x->state == NSBX_EXEC_RESERVE) {
        over_not_started(x);
    } else if (x->state == NSBX_EXEC_RUN) {
        nsbx_err_set(&err, NSBX_E_CANCELLED, "nobody waits for it any more");
        stream_failed(x, &err);
    } else if (x->state == NSBX_EXEC_DRAIN) {
        over_cancelled(x);
    } else if (x->state == NSBX_EXEC_OVER) {
        nsbx_exec_maybe_free(x);
    }
}
