/* What an execute asks for, checked and copied. */
#ifndef NSBX_AGENT_EXECUTE_REQUEST_H
#define NSBX_AGENT_EXECUTE_REQUEST_H

#include "agent.h"
#include "registry.h"

struct nsbx_exec_request {
    char **argv; /* argv[0] is the command; NULL-terminated */
    char **envp;
    char id[NSBX_EXECUTION_ID_LEN + 1]; /* "" = none */
    char cwd[NSBX_PATH_MAX];            /* "" = the workspace */
    uint64_t timeout_ms;
    uint64_t max_output; /* per stream */
    bool wait_pipes;
    bool tell_started;
    bool has_stdin, stdin_stream;
};

/* 0, or -1 with the published text of the first check that fails. Free in both cases. */
int nsbx_exec_request_read(struct nsbx_exec_request *request, struct nsbx_agent *agent, const json_t *body,
                           struct nsbx_fault *fault) __attribute__((warn_unused_result));
void nsbx_exec_request_free(struct nsbx_exec_request *request);

#endif
