#include "task.h"

#include "base/log.h"
#include "loop/work.h"

static void finish(struct nsbx_task *task);

void nsbx_task_begin(struct nsbx_task *task, struct nsbx_agent *agent, struct nsbx_channel *ch,
                     const struct nsbx_channel_events *events, void (*end)(struct nsbx_task *task))
{
    task->agent = agent;
    task->ch = ch;
    task->end = end;
    nsbx_list_init(&task->node);
    nsbx_list_push(&agent->tasks, &task->node);
    nsbx_channel_set_events(ch, events, task);
}

static void on_pool(void *ud)
{
    struct nsbx_task *task = ud;
    task->work(task);
}

static void on_loop(void *ud)
{
    struct nsbx_task *task = ud;
    task->busy = false;
    if (task->ch)
        task->done(task);
    else
        finish(task);
}

void nsbx_task_step(struct nsbx_task *task, void (*work)(struct nsbx_task *task),
                    void (*done)(struct nsbx_task *task))
{
    struct nsbx_err err = {0};
    task->work = work;
    task->done = done;
    task->busy = true;
    if (nsbx_work(task->agent->loop, on_pool, on_loop, task, &err) == 0)
        return;
    task->busy = false;
    nsbx_log(NSBX_LOG_ERROR, "%s: %s", nsbx_channel_op(task->ch)->name, err.message);
    nsbx_task_stop(task);
}

static void ended(void *ud)
{
    struct nsbx_task *task = ud;
    nsbx_list_remove(&task->node);
    task->end(task);
}

static void finish(struct nsbx_task *task)
{
    if (!task->cleanup) {
        ended(task);
        return;
    }
    task->work = task->cleanup;
    task->cleanup = NULL;
    task->busy = true;
    if (nsbx_work(task->agent->loop, on_pool, ended, task, NULL) != 0) {
        on_pool(task); /* rather a short block than a file left behind */
        ended(task);
    }
}

void nsbx_task_stop(struct nsbx_task *task)
{
    struct nsbx_channel *ch = task->ch;
    task->ch = NULL;
    nsbx_channel_close(ch);
    if (ch && !task->busy)
        finish(task);
}

void nsbx_task_answer(struct nsbx_task *task, json_t *message)
{
    struct nsbx_channel *ch = task->ch;
    task->ch = NULL;
    nsbx_agent_answer(ch, message);
    if (!task->busy)
        finish(task);
}

void nsbx_task_refuse(struct nsbx_task *task, const struct nsbx_fault *fault)
{
    nsbx_task_answer(task, nsbx_fault_message(nsbx_channel_op(task->ch), fault));
}

void nsbx_task_lost(void *ud, const struct nsbx_err *err)
{
    (void)err;
    nsbx_task_stop(ud);
}

void nsbx_task_ignore_data(void *ud, enum nsbx_sub sub, const uint8_t *bytes, size_t n, int64_t offset)
{
    struct nsbx_task *task = ud;
    (void)sub, (void)bytes, (void)offset;
    nsbx_channel_consumed(task->ch, n);
}
