/* For tests of the execution controller: the words of a guest's conversation, and one command at a time. */
#ifndef NSBX_SPEC_EXEC_RIG_H
#define NSBX_SPEC_EXEC_RIG_H

#include "guest_rig.h"
#include "transport/exec.h"

#define STARTED "{\"send\":{\"type\":\"started\",\"pid\":77}}"
#define OUT_HI "{\"send\":{\"type\":\"stdout_delta\",\"data\":\"aGkK\"}}" /* "hi\n" */
#define ERR_OH "{\"send\":{\"type\":\"stderr_delta\",\"data\":\"b2gK\"}}" /* "oh\n" */
#define RESULT(code) "{\"send\":{\"type\":\"result\",\"exitCode\":" #code ",\"timedOut\":false,\"durationMs\":4}}"
#define ACK(state, started)                                                                                        \
    "{\"send\":{\"ok\":true,\"state\":\"" state "\",\"started\":" started                                          \
    ",\"result\":{\"exitCode\":0,\"timedOut\":false,\"durationMs\":4}}}," FIN
#define EXECUTE(steps) "\"execute\":[[" steps "]]"
#define CANCEL(steps) "\"cancel-execution\":[[" steps "]]"
#define OPS_1(a) "{\"ops\":{" a "}}"
#define OPS_2(a, b) "{\"ops\":{" a "," b "}}"
#define OPS_PICK(a, b, name, ...) name
#define OPS(...) OPS_PICK(__VA_ARGS__, OPS_2, OPS_1, )(__VA_ARGS__)

enum { FAST = 5 }; /* the cancel window is 1600 ms then, a control request 400 ms, the drain 300 ms */

static struct nsbx_exec *exec;

static inline struct nsbx_exec_request request(const char *command)
{
    return (struct nsbx_exec_request){.command = command, .timeout_ms = 5000};
}

static inline void start(const struct nsbx_exec_request *r)
{
    struct nsbx_err err;
    exec = NULL;
    int rc = nsbx_exec_start(guest, r, &exec, &err);
    if (rc < 0) {
        fprintf(stderr, "in %s: not started: %s\n", harness_case, err.message);
        harness_case_failed = 1;
        abort();
    }
}

static struct nsbx_exec_result last; /* numbers of the last result; out and err are not to be looked at */

static inline struct nsbx_err wait_exec(void)
{
    struct nsbx_err err = {0};
    struct nsbx_op *op = nsbx_exec_wait(exec, -1);
    WAIT_OP(op);
    nsbx_err_copy(&err, nsbx_op_err(op));
    if (nsbx_op_state(op) == NSBX_OP_DONE)
        last = *(struct nsbx_exec_result *)nsbx_op_result(op);
    nsbx_op_unref(op);
    return err;
}

static inline void close_exec(void)
{
    nsbx_exec_close(exec);
    exec = NULL;
}

/* Runs one command on a guest with this script and gives its outcome. */
static inline struct nsbx_err outcome_of(enum nsbx_arm arm, const char *script)
{
    guest_rig_open(arm, FAST, script);
    struct nsbx_exec_request r = request("frobnicate");
    r.timeout_ms = 300;
    start(&r);
    nsbx_exec_discard(exec);
    struct nsbx_err err = wait_exec();
    close_exec();
    return err;
}

#endif
