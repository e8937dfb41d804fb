/* Running a command in the guest: reserve, execute, and whatever happens, cancel by id until the guest confirms.
 * An exit code comes only from the guest's terminal message. An outcome that cannot be known is an error (UNKNOWN_OUTCOME,
 * STREAM_LOST with what is known), never a result; nothing is ever run twice. */
#ifndef NSBX_TRANSPORT_EXEC_H
#define NSBX_TRANSPORT_EXEC_H

#include "guest.h"

#include <stddef.h>

struct nsbx_exec;

enum nsbx_exec_stdin { NSBX_STDIN_NONE, NSBX_STDIN_BYTES, NSBX_STDIN_STREAM };
struct nsbx_exec_request {
    const char *command;
    const char *const *args; /* NULL-terminated, without argv[0]; NULL = none */
    const char *const *env;  /* "NAME=value", NULL-terminated, added to the guest's; NULL = none */
    const char *cwd;         /* NULL = the workspace root */
    enum nsbx_exec_stdin stdin_kind;
    const uint8_t *stdin_bytes; /* copied */
    size_t stdin_len;
    int64_t timeout_ms;  /* 0 = NSBX_EXEC_TIMEOUT_MS */
    uint64_t max_output; /* per stream; 0 = NSBX_EXEC_MAX_OUTPUT */
    bool wait_pipes;     /* wait="pipes" */
    bool collect;        /* gather output in the result instead of nsbx_exec_read */
    bool combine;        /* with collect: stderr is appended to stdout in order of arrival */
};

enum { NSBX_EXEC_SIGNAL = 24 };

struct nsbx_exec_result {
    int64_t exit_code;
    char signal[NSBX_EXEC_SIGNAL]; /* its name, in the guest's words; "" = none */
    bool timed_out, stdout_truncated, stderr_truncated, pipes_open, maybe_lossy;
    int64_t duration_ms;
    uint8_t *out, *err; /* collected bytes, or NULL */
    size_t out_len, err_len;
};

/* Everything in `request` is copied. Always gives an object unless there is no memory or an argument is wrong. */
int nsbx_exec_start(struct nsbx_guest *guest, const struct nsbx_exec_request *request, struct nsbx_exec **out,
                    struct nsbx_err *err) __attribute__((warn_unused_result));

/* Of all operations below: NULL without memory. They may be asked any time. */
/* Finishes when the command has started (a guest without the feature exec-started: when it was asked to) or failed to. */
struct nsbx_op *nsbx_exec_started(struct nsbx_exec *exec, int64_t timeout_ms);
/* Finishes (done) when output can be taken or no more will come. A lost stream fails it. Cancelling the op ends the waiting only. */
struct nsbx_op *nsbx_exec_read(struct nsbx_exec *exec, int64_t timeout_ms);
/* The next piece without waiting: true and the sub-stream and owned bytes (nsbx_free), or false: nothing now. Taking it lets the guest send more. */
bool nsbx_exec_take(struct nsbx_exec *exec, enum nsbx_sub *sub, uint8_t **bytes, size_t *n);
/* Result: struct nsbx_exec_result *, owned by the exec, valid until close. Output that nobody takes holds the command up (back-pressure),
 * so with streams either read on or call nsbx_exec_discard. Cancelling the op or its deadline ends the waiting only. */
struct nsbx_op *nsbx_exec_wait(struct nsbx_exec *exec, int64_t timeout_ms);
void nsbx_exec_discard(struct nsbx_exec *exec); /* from now on output is dropped as it comes */
bool nsbx_exec_finished(const struct nsbx_exec *exec);

/* stdin of kind STREAM. Done when the bytes are handed on and there is room again; copies. Cancelling the op or its deadline ends the
 * waiting only, the bytes are sent all the same. At most NSBX_STREAM_QUEUE bytes may wait (LIMIT). A command that has ended: IO with EPIPE; one
 * that closed its stdin and runs on, where the guest says so: STREAM_LOST with EPIPE. */
struct nsbx_op *nsbx_exec_write(struct nsbx_exec *exec, const uint8_t *bytes, size_t n, int64_t timeout_ms);
struct nsbx_op *nsbx_exec_close_stdin(struct nsbx_exec *exec);
/* A signal to the leader's group, or to the whole tree; one that comes before the start waits for it. Result: const bool *, static: false
 * when there was nothing left to signal. */
struct nsbx_op *nsbx_exec_signal(struct nsbx_exec *exec, int signo, bool tree, int64_t timeout_ms);
/* Terminates and confirms (the controller's cancel). Done when it is confirmed that nothing of it runs; UNKNOWN_OUTCOME when not. Idempotent. */
struct nsbx_op *nsbx_exec_cancel(struct nsbx_exec *exec);
/* The same with a deadline, which ends the waiting only. */
struct nsbx_op *nsbx_exec_cancel_within(struct nsbx_exec *exec, int64_t timeout_ms);
int64_t nsbx_exec_pid(
    const struct nsbx_exec *exec); /* the leader's pid in the guest; 0 when the guest did not say */
const char *nsbx_exec_id(const struct nsbx_exec *exec);

/* Lets go: cancels a running one in the background (bounded by the cancel window) and frees itself when that is over. No effect on ops
 * that are pending other than failing them with CANCELLED. NULL is fine. */
void nsbx_exec_close(struct nsbx_exec *exec);

#endif
