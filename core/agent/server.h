/* The listening end: who may connect, and which operation a connection gets. */
#ifndef NSBX_AGENT_SERVER_H
#define NSBX_AGENT_SERVER_H

#include "agent.h"

/* Makes agent->server and agent->listener as the configuration says. The token's copy in the configuration is of no more use after it. */
int nsbx_agent_listen(struct nsbx_agent *agent, struct nsbx_err *err) __attribute__((warn_unused_result));
/* No new connections; those that are open are served on. Idempotent. */
void nsbx_agent_stop_listening(struct nsbx_agent *agent);
/* The operation of a row; NULL when the guest has none. */
const struct nsbx_agent_op *nsbx_agent_op_of(const struct nsbx_op_row *row);

#endif
