#include "exec_result_priv.h"

#include "base/util.h"
#include "guest_priv.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

static int wrong(struct nsbx_err *err, const char *what)
{
    return nsbx_err_set(err, NSBX_E_PROTOCOL, "the guest sent a malformed message: %s", what);
}

/* A finite number that fits. */
static bool read_number(const json_t *object, const char *name, int64_t *out)
{
    const json_t *value = json_object_get(object, name);
    double number = json_number_value(value);
    if (!json_is_number(value) || !isfinite(number) || number <= -9.2e18 || number >= 9.2e18)
        return false;
    *out = json_is_integer(value) ? (int64_t)json_integer_value(value) : (int64_t)number;
    return true;
}

/* A whole number of that range, in whatever form JSON has it (3.0 is one). */
static bool read_whole(const json_t *object, const char *name, int64_t min, int64_t max, int64_t *out)
{
    double number = json_number_value(json_object_get(object, name));
    return read_number(object, name, out) && *out >= min && *out <= max && fabs(trunc(number) - number) <= 0.0;
}

static bool read_flag(const json_t *object, const char *name, bool *out)
{
    const json_t *value = json_object_get(object, name);
    *out = json_is_true(value);
    return !value || json_is_boolean(value);
}

int nsbx_exec_read_result(const json_t *frame, struct nsbx_exec_result *result, struct nsbx_err *err)
{
    const json_t *signal = json_object_get(frame, "signal");
    *result = (struct nsbx_exec_result){0};
    if (!read_whole(frame, "exitCode", -1, INT32_MAX, &result->exit_code))
        return wrong(err, "exitCode of a result");
    if (!read_number(frame, "durationMs", &result->duration_ms))
        return wrong(err, "durationMs of a result");
    if (result->duration_ms < 0)
        result->duration_ms = 0; /* a guest whose clock was set back; the result is no less true */
    if (!json_object_get(frame, "timedOut") || !read_flag(frame, "timedOut", &result->timed_out))
        return wrong(err, "timedOut of a result");
    if (!read_flag(frame, "stdoutTruncated", &result->stdout_truncated) ||
        !read_flag(frame, "stderrTruncated", &result->stderr_truncated) ||
        !read_flag(frame, "pipesOpen", &result->pipes_open))
        return wrong(err, "a flag of a result");
    if (signal) { /* a name that is new to us is a name all the same */
        if (!json_is_string(signal) || json_string_length(signal) == 0)
            return wrong(err, "signal of a result");
        if (result->exit_code >= 0)
            return wrong(err, "a result with a signal and an exit code");
        nsbx_guest_one_line(result->signal, sizeof result->signal, json_string_value(signal));
    }
    return 0;
}

int nsbx_exec_read_ack(const json_t *reply, struct nsbx_exec_ack *ack, struct nsbx_err *err)
{
    static const char *const states[] = {
        [NSBX_ACK_CANCELLED] = "cancelled", [NSBX_ACK_COMPLETED] = "completed", [NSBX_ACK_FAILED] = "failed"};
    const char *state = json_string_value(json_object_get(reply, "state"));
    const json_t *started = json_object_get(reply, "started"), *result = json_object_get(reply, "result");
    *ack = (struct nsbx_exec_ack){.started = json_is_true(started), .has_result = result != NULL};
    size_t i = 0;
    while (i < NSBX_LEN(states) && (!state || strcmp(states[i], state) != 0))
        i++;
    if (i == NSBX_LEN(states))
        return wrong(err, "state of an acknowledgement");
    ack->state = (enum nsbx_ack_state)i;
    if (!json_is_boolean(started))
        return wrong(err, "started of an acknowledgement");
    return result ? nsbx_exec_read_result(result, &ack->result, err) : 0;
}

/* exec_ and a UUID of version 1 to 5 with the RFC's variant, in either case. */
static bool is_execution_id(const char *id)
{
    static const char form[] = "exec_xxxxxxxx-xxxx-vxxx-nxxx-xxxxxxxxxxxx";
    for (size_t i = 0; i < NSBX_EXEC_ID_LEN; i++) {
        int c = tolower((unsigned char)id[i]);
        bool fits = i < 5 || form[i] == '-' ? id[i] == form[i]
                    : form[i] == 'v'        ? c >= '1' && c <= '5'
                    : form[i] == 'n'        ? c == '8' || c == '9' || c == 'a' || c == 'b'
                                            : isxdigit(c) != 0;
        if (!fits)
            return false;
    }
    return id[NSBX_EXEC_ID_LEN] == '\0';
}

int nsbx_exec_read_reservation(const json_t *reply, char id[NSBX_EXEC_ID_LEN + 1], struct nsbx_err *err)
{
    const char *text = json_string_value(json_object_get(reply, "executionId"));
    int64_t version = 0, lease = 0;
    if (!read_number(reply, "protocolVersion", &version) || version != 2)
        return wrong(err, "protocolVersion of a reservation is not 2");
    if (!text || !is_execution_id(text))
        return wrong(err, "executionId of a reservation");
    if (!read_number(reply, "leaseExpiresAt", &lease))
        return wrong(err, "leaseExpiresAt of a reservation");
    memcpy(id, text, NSBX_EXEC_ID_LEN + 1);
    return 0;
}
