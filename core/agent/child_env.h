/* The environment of an executed command: the agent's own without the names that are the agent's business, then the request's. */
#ifndef NSBX_AGENT_CHILD_ENV_H
#define NSBX_AGENT_CHILD_ENV_H

#include "fault.h"

#include <jansson.h>

/* `env`: an object name → value, an array of [name, value] pairs (names and values in the byte form too), or NULL. Later ones win;
 * numbers, booleans and null count as their text. *out is NULL-terminated; free with nsbx_child_env_free. -1 with "invalid_env: …". */
int nsbx_child_env_make(char ***out, const json_t *env, struct nsbx_fault *fault)
    __attribute__((warn_unused_result));
void nsbx_child_env_free(char **env); /* NULL is fine */

#endif
