/* The operation execute: the life of a command from the accepted request to the end of its tree. */
#include "execution.h"

#include "base/alloc.h"
#include "base/log.h"
#include "jail.h"
#include "loop/work.h"

#include <errno.h>
#include <signal.h>

/* A timeout is told as the end by a signal that it is, also when only what the leader left behind was ended by it. */
static struct nsbx_exit exit_told(const struct nsbx_execution *x)
{
    if (x->cause != NSBX_CAUSE_TIMEOUT || x->exit.signal)
        return x->exit;
    return (struct nsbx_exit){.known = true, .code = -1, .signal = SIGTERM};
}

static json_t *result_json(const struct nsbx_execution *x, bool pipes_open)
{
    const struct nsbx_exit exit = exit_told(x);
    json_t *result = json_pack("{s:I, s:b, s:I}", "exitCode", (json_int_t)exit.code, "timedOut",
                               x->cause == NSBX_CAUSE_TIMEOUT, "durationMs", (json_int_t)x->duration_ms);
    const char *signal = exit.signal ? nsbx_signal_name(exit.signal) : NULL;
    bool bad =
        exit.signal &&
        json_object_set_new(result, "signal", signal ? json_string(signal) : json_sprintf("SIG%d", exit.signal));
    bad = bad || json_object_set_new(result, "stdoutTruncated", json_boolean(x->pipes[0].truncated));
    bad = bad || json_object_set_new(result, "stderrTruncated", json_boolean(x->pipes[1].truncated));
    if (pipes_open)
        bad = bad || json_object_set_new(result, "pipesOpen", json_true());
    if (bad) {
        json_decref(result);
        return NULL;
    }
    return result;
}

static void settle(struct nsbx_execution *x, enum nsbx_outcome outcome, bool started, json_t *result, json_t *error)
{
    if (x->settled || !x->record) {
        json_decref(result);
        json_decref(error);
    } else {
        nsbx_registry_settle(x->agent->registry, x->record, outcome, started, result, error);
        nsbx_cancel_settled(x->agent, x->record);
    }
    x->settled = true;
    if (x->confirm)
        nsbx_timer_stop(x->confirm);
}

/* The conversation's last message. From here on nobody wants what the command says. */
static void tell(struct nsbx_execution *x, json_t *message)
{
    struct nsbx_channel *ch = x->ch;
    x->ch = NULL;
    x->answered = true;
    nsbx_timer_stop(x->clock);
    nsbx_timer_stop(x->drain);
    if (ch)
        nsbx_agent_answer(ch, message);
    else
        json_decref(message);
    nsbx_execution_input_end(x);
    nsbx_execution_pipes_flow(x);
}

static void fail(struct nsbx_execution *x, bool started, const struct nsbx_fault *fault)
{
    json_t *message = x->ch ? nsbx_fault_message(nsbx_channel_op(x->ch), fault) : NULL;
    settle(x, NSBX_OUTCOME_FAILED, started, NULL, nsbx_fault_text(fault));
    tell(x, message);
    nsbx_execution_advance(x);
}

static enum nsbx_outcome outcome_of(const struct nsbx_execution *x)
{
    return x->cause == NSBX_CAUSE_CANCELLED ? NSBX_OUTCOME_CANCELLED : NSBX_OUTCOME_COMPLETED;
}

/* Cancelled before there was a program to end. */
static void settle_unstarted(struct nsbx_execution *x)
{
    x->exit.code = 1;
    settle(x, NSBX_OUTCOME_CANCELLED, false, x->settled ? NULL : result_json(x, false), NULL);
}

static void answer(struct nsbx_execution *x)
{
    for (int i = 0; i < 2; i++)
        x->pipes[i].truncated = x->pipes[i].truncated || x->pipes[i].owed > 0;
    json_t *result = result_json(x, !nsbx_execution_pipes_ended(x)),
           *message = json_pack("{s:s}", "type", "result");
    if (!result || json_object_update(message, result) != 0) {
        json_decref(message);
        message = NULL; /* no memory: the connection breaks instead of telling less than the truth */
    }
    settle(x, outcome_of(x), true, result, NULL);
    tell(x, message);
}

static void release(struct nsbx_execution *x)
{
    struct nsbx_agent *agent = x->agent;
    if (x->record)
        x->record->execution = NULL;
    nsbx_list_remove(&x->node);
    nsbx_execution_pipes_close(x);
    if (x->cwd_fd >= 0)
        nsbx_cleanup_fd(&x->cwd_fd);
    nsbx_timer_close(x->clock);
    nsbx_timer_close(x->drain);
    nsbx_timer_close(x->confirm);
    nsbx_exec_request_free(&x->request);
    nsbx_free(x);
    if (agent->on_execution_gone)
        agent->on_execution_gone(agent);
}

/* An end that was asked for is an end of the whole tree; without a cause what is left in the background is no concern. */
static bool output_complete(const struct nsbx_execution *x)
{
    return (x->cause == NSBX_CAUSE_NONE || x->tree_ended) && (nsbx_execution_pipes_ended(x) || x->drained);
}

void nsbx_execution_advance(struct nsbx_execution *x)
{
    if (x->leader_exited && x->cause != NSBX_CAUSE_NONE && x->tree_ended)
        settle(x, outcome_of(x), true, x->settled ? NULL : result_json(x, false), NULL);
    if (x->leader_exited && !x->answered && output_complete(x))
        answer(x);
    if (x->answered && !x->keeper && !x->working)
        release(x);
}

static void on_clock(void *ud)
{
    nsbx_execution_end(ud, NSBX_CAUSE_TIMEOUT);
}

static void on_drain_timer(void *ud)
{
    struct nsbx_execution *x = ud;
    x->drained = true;
    nsbx_execution_advance(x);
}

/* A keeper that somebody stopped can end nothing: it is given up, and what is below it with it. One that does its work and does not come
 * to the end of it is the other case: something cannot be killed, and that is to be known. */
static void on_confirm(void *ud)
{
    struct nsbx_execution *x = ud;
    if (x->keeper && nsbx_keeper_give_up(x->keeper))
        return; /* on_lost follows */
    nsbx_agent_fence(x->agent, "the end of an execution was not confirmed in time");
    if (x->record)
        nsbx_cancel_unconfirmed(x->agent, x->record);
}

/* ---- the keeper's tale ---- */

static void on_started(void *ud, pid_t leader)
{
    struct nsbx_execution *x = ud;
    struct nsbx_err err = {0};
    if (x->ch && x->request.tell_started &&
        nsbx_channel_send(x->ch, json_pack("{s:s, s:I}", "type", "started", "pid", (json_int_t)leader), &err) != 0)
        nsbx_log(NSBX_LOG_DEBUG, "execute: %s", err.message); /* the channel's own failure follows */
    nsbx_execution_pipes_flow(x);
}

static void on_failed(void *ud, const struct nsbx_err *err)
{
    struct nsbx_execution *x = ud;
    struct nsbx_fault fault;
    const char *name = nsbx_errno_name(err->sys);
    nsbx_keeper_close(x->keeper, false);
    x->keeper = NULL;
    nsbx_fault_set(&fault, "spawn %s %s", x->request.argv[0], name ? name : err->message);
    fault.code = name;
    if (x->cause == NSBX_CAUSE_CANCELLED) {
        settle_unstarted(x);
        nsbx_fault_set(&fault, "execution_cancelled");
    }
    fail(x, false, &fault);
}

static void on_leader_exit(void *ud, const struct nsbx_exit *exit)
{
    struct nsbx_execution *x = ud;
    x->leader_exited = true;
    x->exit = *exit;
    x->duration_ms = (int64_t)(nsbx_now_ms() - x->started_ms);
    if (!x->request.wait_pipes)
        nsbx_timer_stop(x->clock);
    if (x->record && !x->settled)
        nsbx_registry_advance(x->record, NSBX_RECORD_EXITED);
    nsbx_execution_input_end(x);
    nsbx_execution_pipes_measure(x);
    nsbx_execution_advance(x);
}

static void on_tree_end(void *ud)
{
    struct nsbx_execution *x = ud;
    nsbx_keeper_close(x->keeper, false);
    x->keeper = NULL;
    x->tree_ended = true;
    nsbx_execution_pipes_measure(x);
    nsbx_execution_advance(x);
}

/* Somebody killed the keeper, and the kernel the leader with it. Other processes of the tree may run on in the background, as processes
 * of the sandbox that belong to no execution any more: the execution itself is over, and has failed. */
static void on_lost(void *ud, const struct nsbx_err *err)
{
    struct nsbx_execution *x = ud;
    struct nsbx_fault fault;
    nsbx_log(NSBX_LOG_WARN, "execute: %s", err->message);
    nsbx_keeper_close(x->keeper, false);
    x->keeper = NULL;
    bool known = x->leader_exited && x->cause == NSBX_CAUSE_NONE && !x->request.wait_pipes;
    if (x->answered || known) { /* the result is what it is */
        nsbx_execution_advance(x);
        return;
    }
    nsbx_fault_set(&fault,
                   "execution_lost: the process that kept this command was killed, and the command with it; "
                   "what else it started may still run");
    fail(x, true, &fault);
}

static const struct nsbx_keeper_events keeper_events = {
    .on_started = on_started,
    .on_failed = on_failed,
    .on_leader_exit = on_leader_exit,
    .on_tree_end = on_tree_end,
    .on_lost = on_lost,
};

/* ---- the start ---- */

static void fill_spawn(const struct nsbx_execution *x, struct nsbx_spawn *spawn)
{
    const struct nsbx_agent_config *config = x->agent->config;
    nsbx_spawn_init(spawn);
    spawn->file = x->request.argv[0];
    spawn->argv = (const char *const *)x->request.argv;
    spawn->envp = (const char *const *)x->request.envp;
    spawn->cwd_fd = x->cwd_fd;
    spawn->new_session = true;
    spawn->parent_death_signal = SIGKILL; /* of its keeper's death */
    for (int to = 0; to < 3; to++)
        if (x->child_fds[to] >= 0)
            spawn->fds[spawn->n_fds++] = (struct nsbx_fd_map){x->child_fds[to], to};
    spawn->n_rlimits = config->n_rlimits;
    for (size_t i = 0; i < config->n_rlimits; i++)
        spawn->rlimits[i] = config->rlimits[i];
}

static void start(struct nsbx_execution *x)
{
    struct nsbx_fault fault;
    struct nsbx_err err = {0};
    struct nsbx_spawn spawn;
    if (x->cause != NSBX_CAUSE_NONE) {
        nsbx_fault_set(&fault, "execution_cancelled");
        fail(x, false, &fault);
        return;
    }
    if (x->cwd_fd < 0) {
        nsbx_fault_sys(&fault, -x->cwd_fd, "mkdir",
                       x->request.cwd[0] ? x->request.cwd : nsbx_jail_workspace(x->agent->jail));
        nsbx_fault_prefix(&fault, "mkdir_failed: ");
        fail(x, false, &fault);
        return;
    }
    fill_spawn(x, &spawn);
    x->started_ms = nsbx_now_ms();
    if (nsbx_keeper_start(x->agent->loop, &spawn, &keeper_events, x, &x->keeper, &err) != 0) {
        x->keeper = NULL;
        on_failed(x, &err);
        return;
    }
    nsbx_execution_pipes_started(x);
    nsbx_cleanup_fd(&x->cwd_fd);
    if (x->record)
        nsbx_registry_advance(x->record, NSBX_RECORD_RUNNING);
    nsbx_timer_start(x->clock, x->request.timeout_ms);
}

static void make_cwd(void *ud)
{
    struct nsbx_execution *x = ud;
    x->cwd_fd = nsbx_jail_cwd(x->agent->jail, x->request.cwd);
}

static void cwd_made(void *ud)
{
    struct nsbx_execution *x = ud;
    x->working = false;
    if (x->answered)
        nsbx_execution_advance(x); /* torn down meanwhile */
    else
        start(x);
}

/* ---- the host's side ---- */

static void on_data(void *ud, enum nsbx_sub sub, const uint8_t *bytes, size_t n, int64_t offset)
{
    (void)sub, (void)offset;
    nsbx_execution_input(ud, bytes, n);
}

static void on_end(void *ud)
{
    nsbx_execution_input_end(ud);
}

/* The host is gone; the command goes on, and what it says is read and dropped. */
static void on_fail(void *ud, const struct nsbx_err *err)
{
    struct nsbx_execution *x = ud;
    (void)err;
    nsbx_channel_close(x->ch);
    x->ch = NULL;
    nsbx_execution_input_end(x);
    nsbx_execution_pipes_flow(x);
}

static void on_drain(void *ud)
{
    nsbx_execution_pipes_flow(ud);
}

static const struct nsbx_channel_events channel_events = {
    .on_data = on_data,
    .on_end = on_end,
    .on_fail = on_fail,
    .on_drain = on_drain,
};

/* The checks that leave a reservation unspent. */
static int admit(struct nsbx_execution *x, const json_t *body, struct nsbx_fault *fault)
{
    if (nsbx_exec_request_read(&x->request, x->agent, body, fault) != 0)
        return -1;
    if (x->request.id[0]) {
        x->record = nsbx_registry_find(x->agent->registry, x->request.id);
        if (!x->record)
            return nsbx_fault_set(fault, "unknown_execution");
        if (x->record->state != NSBX_RECORD_RESERVED) {
            nsbx_fault_set(fault, "execution_not_reserved: %s", nsbx_record_state_name(x->record->state));
            x->record = NULL;
            return -1;
        }
    }
    x->clock = nsbx_timer_new(x->agent->loop, on_clock, x);
    x->drain = nsbx_timer_new(x->agent->loop, on_drain_timer, x);
    x->confirm = nsbx_timer_new(x->agent->loop, on_confirm, x);
    if (!x->clock || !x->drain || !x->confirm)
        return nsbx_fault_set(fault, "spawn %s ENOMEM", x->request.argv[0]);
    return nsbx_execution_pipes_open(x, fault);
}

static void open_execute(struct nsbx_agent *agent, struct nsbx_channel *ch, json_t *body)
{
    struct nsbx_fault fault;
    struct nsbx_execution *x = nsbx_calloc(1, sizeof *x);
    if (!x) {
        nsbx_agent_refuse_text(ch, "spawn ENOMEM");
        return;
    }
    x->agent = agent;
    x->cwd_fd = x->child_fds[0] = x->child_fds[1] = x->child_fds[2] = -1;
    nsbx_list_init(&x->node);
    nsbx_list_push(&agent->executions, &x->node);
    if (admit(x, body, &fault) != 0) {
        x->record = NULL;
        release(x);
        nsbx_agent_refuse(ch, &fault);
        return;
    }
    x->ch = ch;
    nsbx_channel_set_events(ch, &channel_events, x);
    if (x->record) {
        nsbx_registry_advance(x->record, NSBX_RECORD_STARTING);
        x->record->execution = x;
    }
    if (!x->request.cwd[0]) {
        make_cwd(x);
        start(x);
        return;
    }
    x->working = true;
    if (nsbx_work(agent->loop, make_cwd, cwd_made, x, NULL) != 0) {
        x->cwd_fd = -ENOMEM;
        cwd_made(x);
    }
}

void nsbx_execution_end(struct nsbx_execution *x, enum nsbx_cause cause)
{
    if (!x->answered && x->cause == NSBX_CAUSE_NONE) {
        x->cause = cause;
        nsbx_timer_stop(x->drain); /* what the rest of the tree says on its way out is output too */
        x->drained = false;
    }
    if (x->keeper) {
        struct nsbx_err err = {0};
        if (nsbx_keeper_end(x->keeper, (uint32_t)NSBX_MIN(x->agent->config->cancel_grace_ms, UINT32_MAX), &err) !=
            0)
            nsbx_log(NSBX_LOG_ERROR, "an execution's end: %s", err.message); /* and is not confirmed then */
        if (!x->settled && !nsbx_timer_active(x->confirm))
            nsbx_timer_start(x->confirm, x->agent->config->cancel_confirm_ms);
    } else if (!x->settled && !x->leader_exited) { /* it has not started yet, and will not */
        settle_unstarted(x);
    }
}

void nsbx_execution_forget_record(struct nsbx_execution *x)
{
    x->record = NULL;
}

void nsbx_execution_destroy(struct nsbx_execution *x)
{
    nsbx_keeper_close(x->keeper, true);
    x->keeper = NULL;
    nsbx_channel_close(x->ch);
    x->ch = NULL;
    if (x->record)
        nsbx_cancel_drop(x->record);
    settle(x, NSBX_OUTCOME_FAILED, true, NULL, NULL);
    x->answered = true;
    nsbx_execution_advance(x);
}

const struct nsbx_agent_op nsbx_agent_op_execute = {"execute", open_execute};
