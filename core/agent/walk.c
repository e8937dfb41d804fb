#include "agent.h"
static void open_walk(struct nsbx_agent *agent, struct nsbx_channel *ch, json_t *body)
{
    (void)agent, (void)body;
    nsbx_agent_refuse_text(ch, "unknown_op: walk");
}
const struct nsbx_agent_op nsbx_agent_op_walk = {"walk", open_walk};
