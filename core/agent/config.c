#include "config.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "base/util.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define BIND_TOKEN "NAMZU_AGENT_BIND_TOKEN"
#define REQUIRE_TOKEN "NAMZU_AGENT_REQUIRE_TOKEN"
#define MAX_SAFE_INTEGER 9007199254740991u

/* The published integers, their names and their defaults. */
#define INTEGER(name, member, value)                                                                               \
    {                                                                                                              \
        name, offsetof(struct nsbx_agent_config, member), value, false                                             \
    }
#define INTEGER_OR_ZERO(name, member, value)                                                                       \
    {                                                                                                              \
        name, offsetof(struct nsbx_agent_config, member), value, true                                              \
    }
static const struct {
    const char *name;
    size_t offset;
    uint64_t value;
    bool zero;
} integers[] = {
    INTEGER("NAMZU_SANDBOX_MAX_TIMEOUT_MS", max_timeout_ms, NSBX_EXEC_TIMEOUT_CEILING_MS),
    INTEGER("NAMZU_AGENT_EXECUTION_LEASE_TTL_MS", lease_ttl_ms, NSBX_EXEC_LEASE_MS),
    INTEGER("NAMZU_AGENT_EXECUTION_TERMINAL_TTL_MS", terminal_ttl_ms, NSBX_EXEC_TERMINAL_TTL_MS),
    INTEGER("NAMZU_AGENT_MAX_TRACKED_EXECUTIONS", max_tracked, NSBX_EXEC_MAX_TRACKED),
    INTEGER_OR_ZERO("NAMZU_AGENT_CANCEL_GRACE_MS", cancel_grace_ms, NSBX_CANCEL_GRACE_MS),
    INTEGER("NAMZU_AGENT_CANCEL_CONFIRM_TIMEOUT_MS", cancel_confirm_ms, NSBX_CANCEL_CONFIRM_MS),
    INTEGER("NAMZU_AGENT_SHUTDOWN_DEADLINE_MS", shutdown_deadline_ms, NSBX_SHUTDOWN_DEADLINE_MS),
    INTEGER("NAMZU_AGENT_MAX_FRAME_BYTES", max_frame, NSBX_MAX_FRAME),
    INTEGER("NAMZU_AGENT_MAX_PREAUTH_FRAME_BYTES", max_preauth_frame, NSBX_MAX_PREAUTH_FRAME),
    INTEGER("NAMZU_AGENT_MAX_PREAUTH_CONNECTIONS", max_preauth_connections, NSBX_MAX_PREAUTH_CONNECTIONS),
    INTEGER("NAMZU_AGENT_MAX_PREAUTH_BUFFER_BYTES", max_preauth_buffer, NSBX_MAX_PREAUTH_BUFFER),
    INTEGER("NAMZU_AGENT_PREAUTH_IDLE_TIMEOUT_MS", preauth_idle_ms, NSBX_PREAUTH_IDLE_MS),
    INTEGER("NAMZU_AGENT_PREAUTH_DEADLINE_MS", preauth_deadline_ms, NSBX_PREAUTH_DEADLINE_MS),
    INTEGER("NAMZU_AGENT_REFUSAL_FLUSH_GRACE_MS", refusal_flush_ms, NSBX_REFUSAL_FLUSH_MS),
    INTEGER("NAMZU_AGENT_READ_FILE_RANGE_BYTES", read_range, NSBX_READ_RANGE),
    INTEGER("NAMZU_AGENT_READ_FILE_STREAM_CHUNK_BYTES", read_chunk, NSBX_FILE_CHUNK),
};

/* A variable that is empty counts as not set, except where the protocol says otherwise. */
static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* Decimal digits only: what Number() would also make of "0x10" or "1e3" is not worth a surprise. */
static bool parse_integer(const char *text, uint64_t max, uint64_t *out)
{
    uint64_t value = 0;
    for (const char *p = text; *p; p++) {
        if (*p < '0' || *p > '9')
            return false;
        value = value * 10 + (uint64_t)(*p - '0');
        if (value > max)
            return false;
    }
    *out = value;
    return *text != '\0';
}

static int load_integers(struct nsbx_agent_config *config, struct nsbx_err *err)
{
    for (size_t i = 0; i < NSBX_LEN(integers); i++) {
        uint64_t value = integers[i].value;
        const char *text = variable(integers[i].name);
        if (text && (!parse_integer(text, MAX_SAFE_INTEGER, &value) || (value == 0 && !integers[i].zero)))
            return nsbx_err_set(err, NSBX_E_INVALID, "%s must be a %s safe integer", integers[i].name,
                                integers[i].zero ? "non-negative" : "positive");
        memcpy((char *)config + integers[i].offset, &value, sizeof value);
    }
    return 0;
}

/* One listener, in the published order of precedence. */
static int load_listener(struct nsbx_agent_config *config, struct nsbx_err *err)
{
    config->unix_path = variable("NAMZU_AGENT_UNIX_PATH");
    if (config->unix_path) {
        config->listen = NSBX_LISTEN_UNIX;
        return 0;
    }
    if (variable("NAMZU_AGENT_VSOCK_PORT")) {
        config->listen = NSBX_LISTEN_INHERITED;
        return 0;
    }
    const char *port = variable("NAMZU_AGENT_TCP_PORT");
    if (!port)
        return nsbx_err_set(
            err, NSBX_E_INVALID,
            "nothing to listen on: set NAMZU_AGENT_UNIX_PATH, NAMZU_AGENT_VSOCK_PORT or NAMZU_AGENT_TCP_PORT");
    uint64_t value;
    if (!parse_integer(port, UINT16_MAX, &value))
        return nsbx_err_set(err, NSBX_E_INVALID, "NAMZU_AGENT_TCP_PORT must be an integer in [0, 65535]");
    config->tcp_port = (uint16_t)value;
    config->listen = NSBX_LISTEN_TCP;
    if (!getenv(BIND_TOKEN) && !variable(REQUIRE_TOKEN))
        return nsbx_err_set(err, NSBX_E_INVALID,
                            "NAMZU_AGENT_TCP_PORT needs a credential: set " BIND_TOKEN " or " REQUIRE_TOKEN);
    return 0;
}

static int load_token(struct nsbx_agent_config *config, struct nsbx_err *err)
{
    const char *token = getenv(BIND_TOKEN);
    if (token && !*token)
        return nsbx_err_set(err, NSBX_E_INVALID, BIND_TOKEN " is set but empty");
    config->require_token = variable(REQUIRE_TOKEN) != NULL;
    if (!token)
        return 0;
    config->bind_token = nsbx_strdup(token);
    return config->bind_token ? 0 : nsbx_err_nomem(err, "the token");
}

int nsbx_agent_config_load(struct nsbx_agent_config *config, struct nsbx_err *err)
{
    const char *workspace = variable("NAMZU_SANDBOX_WORKSPACE");
    config->workspace = workspace ? workspace : "/workspace";
    config->read_roots = variable("NAMZU_SANDBOX_READ_ROOTS");
    config->write_roots = variable("NAMZU_SANDBOX_WRITE_ROOTS");
    int rc = load_token(config, err);
    if (rc == 0)
        rc = load_listener(config, err);
    return rc ? rc : load_integers(config, err);
}

static const struct {
    const char *name;
    int resource;
} limits[] = {
    {"as", RLIMIT_AS},   {"nproc", RLIMIT_NPROC},   {"fsize", RLIMIT_FSIZE},
    {"cpu", RLIMIT_CPU}, {"nofile", RLIMIT_NOFILE},
};

int nsbx_agent_config_rlimit(struct nsbx_agent_config *config, const char *text, struct nsbx_err *err)
{
    const char *equals = strchr(text, '=');
    uint64_t value;
    for (size_t i = 0; equals && i < NSBX_LEN(limits); i++) {
        size_t n = strlen(limits[i].name);
        if ((size_t)(equals - text) != n || strncmp(text, limits[i].name, n) != 0)
            continue;
        if (!parse_integer(equals + 1, MAX_SAFE_INTEGER, &value))
            break;
        if (config->n_rlimits == NSBX_SPAWN_MAX_RLIMITS - 1) /* one is kept for nofile (life.c) */
            return nsbx_err_set(err, NSBX_E_LIMIT, "--rlimit: at most %d limits", NSBX_SPAWN_MAX_RLIMITS - 1);
        config->rlimits[config->n_rlimits++] = (struct nsbx_rlimit){limits[i].resource, {value, value}};
        return 0;
    }
    return nsbx_err_set(err, NSBX_E_INVALID, "--rlimit %s: want NAME=N, NAME one of as, nproc, fsize, cpu, nofile",
                        text);
}

void nsbx_agent_config_wipe(struct nsbx_agent_config *config)
{
    if (config->bind_token)
        nsbx_wipe(config->bind_token, strlen(config->bind_token));
    nsbx_free(config->bind_token);
    config->bind_token = NULL;
    size_t name = strlen(BIND_TOKEN "=");
    for (char **entry = environ; entry && *entry; entry++)
        if (strncmp(*entry, BIND_TOKEN "=", name) == 0)
            nsbx_wipe(*entry + name, strlen(*entry + name));
    unsetenv(BIND_TOKEN);
}
