/* The operation healthz: the one question that needs no token. */
#include "agent.h"

static json_t *features(void)
{
    json_t *list = json_array();
    for (int i = 0; list && i < NSBX_FEATURE_COUNT; i++)
        if (json_array_append_new(list, json_string(nsbx_feature_name((enum nsbx_feature)i))) != 0) {
            json_decref(list);
            list = NULL;
        }
    return list;
}

static void open_healthz(struct nsbx_agent *agent, struct nsbx_channel *ch, json_t *body)
{
    (void)body;
    json_t *message = json_pack("{s:b, s:i, s:o}", "ok", !agent->retiring, "protocolVersion", NSBX_PROTOCOL_VERSION,
                                "features", features());
    if (message && agent->retiring && json_object_set_new(message, "retiring", json_true()) != 0) {
        json_decref(message);
        message = NULL;
    }
    nsbx_agent_answer(ch, message);
}

const struct nsbx_agent_op nsbx_agent_op_healthz = {"healthz", open_healthz};
