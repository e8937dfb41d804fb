/* The agent's own life: from its start to its end by SIGTERM, by the lifeline, or by a failure to start. */
#ifndef NSBX_AGENT_LIFE_H
#define NSBX_AGENT_LIFE_H

#include "config.h"

/* Serves until the end. The exit status of the program; what went wrong is on stderr. Wipes the configuration's token. */
int nsbx_agent_run(struct nsbx_agent_config *config);

#endif
