/* What the agent is told: the published environment and its own command line. */
#ifndef NSBX_AGENT_CONFIG_H
#define NSBX_AGENT_CONFIG_H

#include "base/err.h"
#include "loop/spawn.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum nsbx_listen { NSBX_LISTEN_UNIX, NSBX_LISTEN_INHERITED, NSBX_LISTEN_TCP };
enum { NSBX_AGENT_INHERITED_FD = 3 }; /* [wire] where a listening socket is inherited */

struct nsbx_agent_config {
    /* command line */
    bool as_pid_1;
    int lifeline_fd; /* -1 = none */
    struct nsbx_rlimit rlimits[NSBX_SPAWN_MAX_RLIMITS];
    size_t n_rlimits;
    /* environment; texts point into it and live as long as the process */
    enum nsbx_listen listen;
    const char *unix_path;
    uint16_t tcp_port;
    char *bind_token; /* a copy of our own (nsbx_agent_config_wipe), NULL = none */
    bool require_token;
    const char *workspace;
    const char *read_roots, *write_roots; /* "a:b"; NULL = none */
    uint64_t max_timeout_ms;
    uint64_t lease_ttl_ms, terminal_ttl_ms, max_tracked;
    uint64_t cancel_grace_ms, cancel_confirm_ms, shutdown_deadline_ms;
    uint64_t max_frame, max_preauth_frame, max_preauth_connections, max_preauth_buffer;
    uint64_t preauth_idle_ms, preauth_deadline_ms, refusal_flush_ms;
    uint64_t read_range, read_chunk;
};

/* Fills the environment's part. The message of a failure is the published text, to be printed as it is. */
int nsbx_agent_config_load(struct nsbx_agent_config *config, struct nsbx_err *err)
    __attribute__((warn_unused_result));
/* "nofile=256": adds a limit for executed commands. INVALID names the limits there are. */
int nsbx_agent_config_rlimit(struct nsbx_agent_config *config, const char *text, struct nsbx_err *err)
    __attribute__((warn_unused_result));
/* Forgets the token: our copy, and the text in the process's environment block, where /proc/PID/environ would show it. */
void nsbx_agent_config_wipe(struct nsbx_agent_config *config);

#endif
