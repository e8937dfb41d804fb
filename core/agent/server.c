#include "server.h"

#include "base/log.h"
#include "jail.h"
#include "loop/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const struct nsbx_agent_op *const ops[] = {
    &nsbx_agent_op_healthz,     &nsbx_agent_op_reserve,    &nsbx_agent_op_execute,
    &nsbx_agent_op_cancel,      &nsbx_agent_op_signal,     &nsbx_agent_op_read_file,
    &nsbx_agent_op_read_stream, &nsbx_agent_op_write_file, &nsbx_agent_op_walk,
};

const struct nsbx_agent_op *nsbx_agent_op_of(const struct nsbx_op_row *row)
{
    for (size_t i = 0; i < NSBX_LEN(ops); i++)
        if (strcmp(ops[i]->name, row->name) == 0)
            return ops[i];
    return NULL;
}

static void on_open(void *ud, struct nsbx_channel *ch, json_t *body)
{
    const struct nsbx_agent_op *op = nsbx_agent_op_of(nsbx_channel_op(ch));
    if (op)
        op->open(ud, ch, body);
    else
        nsbx_agent_refuse_text(ch, "unknown_op");
}

/* A guest that could not confirm an end serves nothing that would build on it. */
static json_t *gate(void *ud, const struct nsbx_op_row *row, bool *as_stream)
{
    const struct nsbx_agent *agent = ud;
    *as_stream = false;
    if (!agent->retiring || row->when_fenced)
        return NULL;
    return json_pack("{s:b, s:s}", "ok", 0, "error", "agent_retiring");
}

static void on_accept(void *ud, struct nsbx_stream *stream)
{
    const struct nsbx_agent *agent = ud;
    nsbx_jail_workspace_fd(agent->jail, false); /* where the body of its request may have to wait */
    nsbx_single_serve(agent->server, stream);
}

static int check_inherited(int fd, struct nsbx_err *err)
{
    int listening = 0;
    socklen_t n = sizeof listening;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &n) != 0)
        return nsbx_err_sys(err, errno, "NAMZU_AGENT_VSOCK_PORT wants a listening socket as descriptor %d", fd);
    if (!listening)
        return nsbx_err_set(err, NSBX_E_INVALID,
                            "NAMZU_AGENT_VSOCK_PORT wants a listening socket as descriptor %d: it does not listen",
                            fd);
    return 0;
}

static int listen_as_told(struct nsbx_agent *agent, struct nsbx_err *err)
{
    const struct nsbx_agent_config *config = agent->config;
    switch (config->listen) {
    case NSBX_LISTEN_UNIX:
        return nsbx_listen_unix(agent->loop, config->unix_path, on_accept, agent, &agent->listener, err);
    case NSBX_LISTEN_INHERITED:
        if (check_inherited(NSBX_AGENT_INHERITED_FD, err) != 0)
            return -err->code;
        return nsbx_listen_fd(agent->loop, NSBX_AGENT_INHERITED_FD, on_accept, agent, &agent->listener, err);
    case NSBX_LISTEN_TCP:
    default:
        return nsbx_listen_tcp(agent->loop, "0.0.0.0", config->tcp_port, on_accept, agent, &agent->listener, err);
    }
}

int nsbx_agent_listen(struct nsbx_agent *agent, struct nsbx_err *err)
{
    const struct nsbx_agent_config *config = agent->config;
    const struct nsbx_single_server_config server = {
        .bind_token = config->bind_token,
        .require_token = config->require_token,
        .max_frame = (size_t)config->max_frame,
        .max_preauth_frame = (size_t)config->max_preauth_frame,
        .max_preauth_buffer = (size_t)config->max_preauth_buffer,
        .max_preauth_connections = (unsigned)NSBX_MIN(config->max_preauth_connections, UINT32_MAX),
        .preauth_idle_ms = config->preauth_idle_ms,
        .preauth_deadline_ms = config->preauth_deadline_ms,
        .refusal_flush_ms = config->refusal_flush_ms,
        .spool_dir_fd = agent->spool_fd,
        .on_open = on_open,
        .gate = gate,
        .ud = agent,
    };
    agent->server = nsbx_single_server_new(agent->loop, &server, err);
    if (!agent->server)
        return -err->code;
    return listen_as_told(agent, err);
}

void nsbx_agent_stop_listening(struct nsbx_agent *agent)
{
    nsbx_listener_close(agent->listener);
    agent->listener = NULL;
}
