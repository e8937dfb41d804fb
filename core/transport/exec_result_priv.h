/* The guest's words about an execution, read and checked: the result frame, the reservation, the acknowledgement of a cancel. */
#ifndef NSBX_TRANSPORT_EXEC_RESULT_PRIV_H
#define NSBX_TRANSPORT_EXEC_RESULT_PRIV_H

#include "exec.h"

#include <jansson.h>

enum { NSBX_EXEC_ID_LEN = 5 + 36 };

enum nsbx_ack_state { NSBX_ACK_CANCELLED, NSBX_ACK_COMPLETED, NSBX_ACK_FAILED };
struct nsbx_exec_ack {
    enum nsbx_ack_state state;
    bool started;
    bool has_result;
    struct nsbx_exec_result result; /* numbers and flags only */
};

/* All: 0, or -NSBX_E_PROTOCOL naming the member that is wrong. */
int nsbx_exec_read_result(const json_t *frame, struct nsbx_exec_result *result, struct nsbx_err *err);
int nsbx_exec_read_ack(const json_t *reply, struct nsbx_exec_ack *ack, struct nsbx_err *err);
int nsbx_exec_read_reservation(const json_t *reply, char id[NSBX_EXEC_ID_LEN + 1], struct nsbx_err *err);

#endif
