/* A conversation that does blocking work in steps on the pool. It is over when its channel is closed: by an answer, or because
 * the host is gone; the end then waits for a step that is still under way, and for the cleanup on the pool where there is one. */
#ifndef NSBX_AGENT_TASK_H
#define NSBX_AGENT_TASK_H

#include "agent.h"

struct nsbx_task {
    struct nsbx_list node; /* agent->tasks */
    struct nsbx_agent *agent;
    struct nsbx_channel *ch;                 /* NULL: the conversation is over */
    void (*cleanup)(struct nsbx_task *task); /* on the pool, once, before end; may be NULL, may be set any time */
    void (*end)(struct nsbx_task *task);     /* on the loop, the last call: frees */
    void (*work)(struct nsbx_task *task);
    void (*done)(struct nsbx_task *task);
    bool busy; /* a step is under way */
};

/* `task` is the caller's, zeroed; it is the ud of `events`, whose on_fail is nsbx_task_lost or ends in it. */
void nsbx_task_begin(struct nsbx_task *task, struct nsbx_agent *agent, struct nsbx_channel *ch,
                     const struct nsbx_channel_events *events, void (*end)(struct nsbx_task *task));
/* `work` runs on the pool and touches only what the task owns; `done` on the loop after it, unless the conversation is over by then.
 * Without memory the conversation ends. */
void nsbx_task_step(struct nsbx_task *task, void (*work)(struct nsbx_task *task),
                    void (*done)(struct nsbx_task *task));
/* Three ways to the end; the task may be freed when they return. */
void nsbx_task_answer(struct nsbx_task *task, json_t *message);
void nsbx_task_refuse(struct nsbx_task *task, const struct nsbx_fault *fault);
void nsbx_task_stop(
    struct nsbx_task *task); /* without another word; safe on an ended one whose end is still pending */

/* For a struct nsbx_channel_events of an operation: ud is the task. */
void nsbx_task_lost(void *ud, const struct nsbx_err *err);
/* Bytes nobody wants: give them back. */
void nsbx_task_ignore_data(void *ud, enum nsbx_sub sub, const uint8_t *bytes, size_t n, int64_t offset);

#endif
