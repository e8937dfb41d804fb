#include "exec_priv.h"

#include "base/alloc.h"
#include "base/util.h"
#include "channel/bytestr.h"
#include "codec/utf8.h"

#include <string.h>

static const int64_t max_safe_integer = (1LL << 53) - 1;

/* In what form a string travels is settled by its bytes; whether the guest can read that form, once it is known. `number`: which of
 * several, from 1; 0 = the only one. */
static json_t *any_string(struct nsbx_exec *x, const char *text, size_t n, const char *what, size_t number)
{
    if (!nsbx_bytestr_plain(text, n) && !x->odd_string[0]) {
        char digits[24] = "";
        if (number)
            snprintf(digits, sizeof digits, " %zu", number);
        snprintf(x->odd_string, sizeof x->odd_string, "%s%s", what, digits);
    }
    return nsbx_bytestr_make(text, n);
}

static int put(json_t *object, const char *key, json_t *value, struct nsbx_err *err)
{
    return json_object_set_new_nocheck(object, key, value) == 0 ? 0 : nsbx_err_nomem(err, "a request");
}

static int put_args(struct nsbx_exec *x, const char *const *args, struct nsbx_err *err)
{
    json_t *list = json_array();
    int rc = put(x->body, "args", list, err); /* lends the list to the body */
    for (size_t i = 0; rc == 0 && args[i]; i++) {
        if (i >= NSBX_EXEC_MAX_ARGS)
            return nsbx_err_set(err, NSBX_E_LIMIT, "a command takes at most %d arguments", NSBX_EXEC_MAX_ARGS);
        if (json_array_append_new(list, any_string(x, args[i], strlen(args[i]), "argument", i + 1)) != 0)
            rc = nsbx_err_nomem(err, "a request");
    }
    return rc;
}

static bool env_is_plain(const char *const *env)
{
    for (; *env; env++)
        if (!nsbx_bytestr_plain(*env, strlen(*env)))
            return false;
    return true;
}

/* An object while all of it is text, else pairs. */
static int put_env(struct nsbx_exec *x, const char *const *env, struct nsbx_err *err)
{
    bool plain = env_is_plain(env);
    json_t *all = plain ? json_object() : json_array();
    int rc = put(x->body, "env", all, err);
    for (size_t i = 0; rc == 0 && env[i]; i++) {
        const char *equals = strchr(env[i], '=');
        if (!equals || equals == env[i])
            return nsbx_err_set(err, NSBX_E_INVALID, "environment entry %zu has no name: NAME=value is wanted",
                                i + 1);
        size_t n = (size_t)(equals - env[i]);
        json_t *value = any_string(x, equals + 1, strlen(equals + 1), "environment entry", i + 1);
        int put_rc;
        if (plain)
            put_rc = json_object_setn_new_nocheck(all, env[i], n, value);
        else
            put_rc = json_array_append_new(
                all, json_pack("[o,o]", any_string(x, env[i], n, "environment entry", i + 1), value));
        if (put_rc != 0)
            rc = nsbx_err_nomem(err, "a request");
    }
    return rc;
}

static int check(const struct nsbx_exec_request *request, struct nsbx_err *err)
{
    if (!request->command || !*request->command)
        return nsbx_err_set(err, NSBX_E_INVALID, "a command is needed");
    if (request->cwd && !*request->cwd)
        return nsbx_err_set(err, NSBX_E_INVALID, "cwd is empty; leave it out for the workspace root");
    if (request->timeout_ms < 0 || request->timeout_ms > max_safe_integer)
        return nsbx_err_set(err, NSBX_E_INVALID, "the timeout of a command must be more than 0 ms, not %lld",
                            (long long)request->timeout_ms);
    if (request->max_output > (uint64_t)max_safe_integer)
        return nsbx_err_set(err, NSBX_E_INVALID, "max_output is larger than any output can be");
    return 0;
}

int nsbx_exec_make_body(struct nsbx_exec *x, const struct nsbx_exec_request *request, struct nsbx_err *err)
{
    int rc = check(request, err);
    if (rc < 0)
        return rc;
    nsbx_guest_one_line(x->name, sizeof x->name, request->command);
    x->body = json_object();
    rc = put(x->body, "command", any_string(x, request->command, strlen(request->command), "the command", 0), err);
    if (rc == 0 && request->args)
        rc = put_args(x, request->args, err);
    if (rc == 0 && request->cwd)
        rc = put(x->body, "cwd", any_string(x, request->cwd, strlen(request->cwd), "cwd", 0), err);
    if (rc == 0 && request->env)
        rc = put_env(x, request->env, err);
    if (rc == 0)
        rc = put(x->body, "timeoutMs", json_integer(x->timeout_ms), err);
    if (rc == 0 && request->max_output)
        rc = put(x->body, "maxOutputBytes", json_integer((json_int_t)request->max_output), err);
    if (rc < 0 || request->stdin_kind != NSBX_STDIN_BYTES)
        return rc;
    x->stdin_bytes = nsbx_malloc(request->stdin_len + 1);
    if (!x->stdin_bytes)
        return nsbx_err_nomem(err, "stdin");
    if (request->stdin_len)
        memcpy(x->stdin_bytes, request->stdin_bytes, request->stdin_len);
    x->stdin_len = request->stdin_len;
    return 0;
}

/* Given bytes travel in the envelope when they are text and few, else as a stream, so that the guest need not hold them. */
static int fit_given_stdin(struct nsbx_exec *x, struct nsbx_err *err)
{
    bool can_stream = nsbx_guest_has(x->guest, NSBX_FEATURE_EXEC_STDIN);
    bool text = nsbx_utf8_valid(x->stdin_bytes, x->stdin_len);
    if (text && (x->stdin_len <= NSBX_DATA_CHUNK || !can_stream))
        return 0;
    int rc = nsbx_guest_require(x->guest, NSBX_FEATURE_EXEC_STDIN, "stdin that is not valid UTF-8", err);
    if (rc < 0)
        return rc;
    uint8_t *bytes = x->stdin_bytes;
    x->stdin_bytes = NULL;
    return nsbx_exec_stdin_give(x, bytes, x->stdin_len, err);
}

static int fit_stdin(struct nsbx_exec *x, struct nsbx_err *err)
{
    int rc = 0;
    if (x->stdin_kind == NSBX_STDIN_STREAM)
        rc = nsbx_guest_require(x->guest, NSBX_FEATURE_EXEC_STDIN, "writing to a command's stdin", err);
    else if (x->stdin_kind == NSBX_STDIN_BYTES)
        rc = fit_given_stdin(x, err);
    return rc == 0 && x->in.stream ? put(x->body, "stdinStream", json_true(), err) : rc;
}

int nsbx_exec_fit_body(struct nsbx_exec *x, struct nsbx_err *err)
{
    if (x->odd_string[0] && !nsbx_guest_has(x->guest, NSBX_FEATURE_BYTE_STRINGS))
        return nsbx_err_reason(err, NSBX_E_INVALID, nsbx_feature_name(NSBX_FEATURE_BYTE_STRINGS),
                               "%s is not valid UTF-8, and this guest takes only text (it lacks the feature %s)",
                               x->odd_string, nsbx_feature_name(NSBX_FEATURE_BYTE_STRINGS));
    x->output.text = !nsbx_guest_has(x->guest, NSBX_FEATURE_EXEC_BYTES);
    int rc = fit_stdin(x, err);
    if (rc == 0 && !x->output.text)
        rc = put(x->body, "encoding", json_string("base64"), err);
    if (rc == 0 && nsbx_guest_has(x->guest, NSBX_FEATURE_EXEC_STARTED))
        rc = put(x->body, "started", json_true(), err);
    if (rc == 0 && x->wait_pipes && nsbx_guest_has(x->guest, NSBX_FEATURE_EXEC_WAIT))
        rc = put(x->body, "wait", json_string("pipes"), err);
    return rc;
}

struct nsbx_channel *nsbx_exec_open_channel(struct nsbx_exec *x, const struct nsbx_channel_events *events,
                                            struct nsbx_err *err)
{
    if (put(x->body, "executionId", json_string(x->id), err) < 0)
        return NULL;
    struct nsbx_single_request request = {
        .op = "execute",
        .body = x->body,
        .large = x->stdin_bytes,
        .large_len = x->stdin_len,
        .data_base64 = !x->output.text,
        .data_strict = true,
        .idle_ms = -1,
    };
    return nsbx_guest_open(x->guest, &request, events, x, err);
}
