/* A command under way: its keeper, its pipes, its clock, and whoever is told of its end. Lives from the accepted request until its
 * result is told and nothing of its tree is left. */
#ifndef NSBX_AGENT_EXECUTION_H
#define NSBX_AGENT_EXECUTION_H

#include "agent.h"
#include "execute_request.h"
#include "registry.h"

#include "loop/spawn.h"
#include "loop/stream.h"
#include "loop/timer.h"

enum nsbx_cause { NSBX_CAUSE_NONE, NSBX_CAUSE_TIMEOUT, NSBX_CAUSE_CANCELLED };

/* One output pipe of the command. */
struct nsbx_exec_pipe {
    struct nsbx_execution *execution;
    struct nsbx_stream *stream; /* NULL: at its end */
    int fd;                     /* the stream's descriptor, to ask how much is in it; -1 with the stream */
    enum nsbx_sub sub;
    uint64_t sent; /* bytes passed on, up to the request's limit */
    uint64_t owed; /* what was in the pipe when the leader ended and is not read yet */
    bool truncated;
};

struct nsbx_execution {
    struct nsbx_list node; /* agent->executions */
    struct nsbx_agent *agent;
    struct nsbx_record *record; /* NULL: run without an id, or forgotten by the registry */
    struct nsbx_channel *ch;    /* NULL: answered, or the host is gone */
    struct nsbx_exec_request request;

    struct nsbx_keeper *keeper; /* NULL: not started yet, or gone */
    struct nsbx_exec_pipe pipes[2];

    struct nsbx_stream *in; /* NULL: no stdin, or it is closed */
    size_t in_owed;         /* bytes of the host that the pipe has not taken yet */
    bool in_ended;

    struct nsbx_timer *clock;   /* the timeout */
    struct nsbx_timer *drain;   /* pipes that stay open after the leader's end */
    struct nsbx_timer *confirm; /* an end that does not come about */

    enum nsbx_cause cause;
    uint64_t started_ms;
    int64_t duration_ms;
    struct nsbx_exit exit;
    bool working; /* the directory is being made, on the pool */
    bool leader_exited;
    bool tree_ended;
    bool drained;     /* waited long enough for the pipes */
    bool answered;    /* the result or an error is told */
    bool settled;     /* the record is terminal, or was never there */
    int cwd_fd;       /* where the command starts; -errno when it could not be opened or made */
    int child_fds[3]; /* the command's ends of its pipes until it is started; -1 = none */
};

/* execute.c */
/* Asks for the end of the whole tree. The first cause is the one that counts. When the end is not confirmed in time, the waiters are
 * told so and the agent is fenced. */
void nsbx_execution_end(struct nsbx_execution *x, enum nsbx_cause cause);
/* The registry lets go of an ended record. */
void nsbx_execution_forget_record(struct nsbx_execution *x);
/* At the agent's own end: tears everything down; what still runs is killed without a word. */
void nsbx_execution_destroy(struct nsbx_execution *x);
/* Looks at what has happened so far and does what is due: settles the record, tells the result, frees. `x` may be gone after it. */
void nsbx_execution_advance(struct nsbx_execution *x);

/* execute_output.c: the pipes of the command and the host at their other side */
int nsbx_execution_pipes_open(struct nsbx_execution *x, struct nsbx_fault *fault)
    __attribute__((warn_unused_result));
void nsbx_execution_pipes_started(
    struct nsbx_execution *x); /* the command has its ends: close ours of them, begin to read */
void nsbx_execution_pipes_measure(
    struct nsbx_execution *x); /* the leader, or all, ended: what is in the pipes now is owed */
bool nsbx_execution_pipes_ended(const struct nsbx_execution *x);
void nsbx_execution_pipes_flow(struct nsbx_execution *x); /* reads on, or pauses, by the host's room */
void nsbx_execution_pipes_close(struct nsbx_execution *x);
void nsbx_execution_input(struct nsbx_execution *x, const uint8_t *bytes, size_t n);
void nsbx_execution_input_end(struct nsbx_execution *x);

/* cancel.c */
void nsbx_cancel_settled(struct nsbx_agent *agent,
                         struct nsbx_record *rec); /* the record is terminal: its waiters learn of it */
void nsbx_cancel_unconfirmed(struct nsbx_agent *agent,
                             struct nsbx_record *rec); /* its end did not come about in time */
void nsbx_cancel_drop(struct nsbx_record *rec);        /* breaks the waiters' conversations */

#endif
