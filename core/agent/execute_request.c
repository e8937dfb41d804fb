#include "execute_request.h"

#include "base/alloc.h"
#include "channel/bytestr.h"
#include "child_env.h"
#include "codec/path.h"
#include "jail.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* An argument as text, scalars as theirs; NULL with the fault set. */
static char *argument(const json_t *value, size_t i, struct nsbx_fault *fault)
{
    struct nsbx_err err = {0};
    char what[32], *text = NULL;
    size_t n;
    snprintf(what, sizeof what, "args[%zu]", i);
    if (json_is_number(value) || json_is_boolean(value) || json_is_null(value)) {
        text = nsbx_agent_json_text(value);
        if (!text)
            nsbx_fault_set(fault, "invalid_args: no memory");
    } else if (nsbx_bytestr_read(value, what, &text, &n, &err) != 0) {
        nsbx_fault_set(fault, "invalid_args: %s", err.message);
        text = NULL;
    } else if (strlen(text) != n) {
        nsbx_fault_set(fault, "invalid_args: %s holds a NUL byte", what);
        nsbx_free(text);
        text = NULL;
    }
    return text;
}

static int read_args(struct nsbx_exec_request *request, const json_t *args, struct nsbx_fault *fault)
{
    size_t n = json_array_size(args); /* 0 when it is no array: anything else counts as none */
    if (n >= NSBX_EXEC_MAX_ARGS)
        return nsbx_fault_set(fault, "invalid_args: %zu arguments, limit %d", n, NSBX_EXEC_MAX_ARGS);
    char **argv = nsbx_calloc(n + 2, sizeof *argv);
    if (!argv)
        return nsbx_fault_set(fault, "invalid_args: no memory");
    argv[0] = request->argv[0];
    nsbx_free(request->argv);
    request->argv = argv;
    for (size_t i = 0; i < n; i++) {
        argv[i + 1] = argument(json_array_get(args, i), i, fault);
        if (!argv[i + 1])
            return -1;
    }
    return 0;
}

static int read_command(struct nsbx_exec_request *request, const json_t *command, struct nsbx_fault *fault)
{
    size_t n;
    request->argv = nsbx_calloc(2, sizeof *request->argv);
    if (!request->argv)
        return nsbx_fault_set(fault, "missing_command");
    if (!command || nsbx_bytestr_read(command, "command", &request->argv[0], &n, NULL) != 0 || n == 0) {
        nsbx_free(request->argv[0]);
        request->argv[0] = NULL;
        return nsbx_fault_set(fault, "missing_command");
    }
    if (strlen(request->argv[0]) != n)
        return nsbx_fault_set(fault, "invalid_command: it holds a NUL byte");
    return 0;
}

static int read_id(struct nsbx_exec_request *request, const json_t *body, struct nsbx_fault *fault)
{
    const json_t *id = json_object_get(body, "executionId");
    if (!id)
        return 0;
    if (!json_is_string(id) || !nsbx_execution_id_valid(json_string_value(id), json_string_length(id)))
        return nsbx_fault_set(fault, "invalid_execution_id");
    memcpy(request->id, json_string_value(id), NSBX_EXECUTION_ID_LEN + 1);
    return 0;
}

/* The workspace alone is asked, and its links are not: where a command stands is no secret from a command that may go anywhere. */
static int read_cwd(struct nsbx_exec_request *request, struct nsbx_agent *agent, const json_t *cwd,
                    struct nsbx_fault *fault)
{
    NSBX_AUTO_FREE char *text = NULL;
    size_t n;
    struct nsbx_err err = {0};
    if (!cwd || json_is_null(cwd) || (json_is_string(cwd) && json_string_length(cwd) == 0))
        return 0;
    const char *workspace = nsbx_jail_workspace(agent->jail);
    if (nsbx_bytestr_read(cwd, "cwd", &text, &n, &err) != 0 ||
        nsbx_path_resolve(request->cwd, workspace, text, n, &err) != 0)
        return nsbx_fault_set(fault, "invalid_cwd: %s", err.message);
    if (!nsbx_path_within(workspace, request->cwd))
        return nsbx_fault_set(fault, "invalid_cwd: path escapes the workspace");
    return 0;
}

static int read_numbers(struct nsbx_exec_request *request, struct nsbx_agent *agent, const json_t *body,
                        struct nsbx_fault *fault)
{
    double value, ceiling = (double)agent->config->max_timeout_ms;
    request->timeout_ms = NSBX_MIN((uint64_t)NSBX_EXEC_TIMEOUT_MS, agent->config->max_timeout_ms);
    if (nsbx_agent_number(body, "timeoutMs", &value)) {
        if (!(value > 0 && value <= ceiling))
            return nsbx_fault_set(fault,
                                  "invalid_timeout: timeoutMs must be a finite number in (0, %llu] "
                                  "(NAMZU_SANDBOX_MAX_TIMEOUT_MS)",
                                  (unsigned long long)agent->config->max_timeout_ms);
        request->timeout_ms = (uint64_t)ceil(value);
    }
    request->max_output = NSBX_EXEC_MAX_OUTPUT;
    if (nsbx_agent_number(body, "maxOutputBytes", &value)) {
        if (value < 0)
            request->max_output = 0;
        else if (value > 0) /* neither 0 nor NaN */
            request->max_output = value < 9e15 ? (uint64_t)value : UINT64_MAX;
    }
    return 0;
}

static int read_modes(struct nsbx_exec_request *request, const json_t *body, struct nsbx_fault *fault)
{
    const json_t *wait = json_object_get(body, "wait");
    if (wait) {
        const char *text = json_string_value(wait);
        if (!text || (strcmp(text, "exit") != 0 && strcmp(text, "pipes") != 0))
            return nsbx_fault_set(fault, "invalid_wait: wait must be \"exit\" or \"pipes\"");
        request->wait_pipes = *text == 'p';
    }
    const json_t *text = json_object_get(body, "stdin");
    request->has_stdin = text && !json_is_null(text);
    request->stdin_stream = json_is_true(json_object_get(body, "stdinStream"));
    request->tell_started = json_is_true(json_object_get(body, "started"));
    if (request->has_stdin && (request->stdin_stream || !json_is_string(text)))
        return nsbx_fault_set(fault, "invalid_stdin: stdin must be a string, and not together with stdinStream");
    return 0;
}

int nsbx_exec_request_read(struct nsbx_exec_request *request, struct nsbx_agent *agent, const json_t *body,
                           struct nsbx_fault *fault)
{
    int rc = read_command(request, json_object_get(body, "command"), fault);
    if (rc == 0)
        rc = read_id(request, body, fault);
    if (rc == 0 && !request->id[0] && json_is_true(json_object_get(body, "retainOutput")))
        rc = nsbx_fault_set(fault, "retain_requires_execution_id");
    if (rc == 0)
        rc = read_cwd(request, agent, json_object_get(body, "cwd"), fault);
    if (rc == 0)
        rc = read_numbers(request, agent, body, fault);
    if (rc == 0)
        rc = read_modes(request, body, fault);
    if (rc == 0)
        rc = read_args(request, json_object_get(body, "args"), fault);
    if (rc == 0)
        rc = nsbx_child_env_make(&request->envp, json_object_get(body, "env"), fault);
    return rc;
}

void nsbx_exec_request_free(struct nsbx_exec_request *request)
{
    for (char **it = request->argv; it && *it; it++)
        nsbx_free(*it);
    nsbx_free(request->argv);
    nsbx_child_env_free(request->envp);
    *request = (struct nsbx_exec_request){0};
}
