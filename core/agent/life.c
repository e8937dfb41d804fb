#include "life.h"

#include "agent.h"
#include "base/log.h"
#include "execution.h"
#include "jail.h"
#include "loop/signal.h"
#include "loop/spawn.h"
#include "loop/stream.h"
#include "loop/timer.h"
#include "server.h"
#include "task.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define WATCHED_FOR_LEAKS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WATCHED_FOR_LEAKS 1
#endif
#endif

enum {
    FAREWELL_MS =
        100, /* for results to go out, and file work to come to its end, when the last command has ended */
    MAX_DESCRIPTORS = 65536, /* of the agent itself; a command has what the agent was started with */
    TEAR_DOWN_MS = 1000,     /* for steps on the pool to come back */
};

enum phase { SERVING, STOPPING, ENDING, OVER };

struct life {
    struct nsbx_agent agent; /* first: agent callbacks find the rest through it */
    enum phase phase;
    struct nsbx_signal_from *on_term;
    struct nsbx_signal *on_child;
    struct nsbx_stream *lifeline;
    struct nsbx_timer *deadline; /* while stopping, then for the farewell */
    int tmp_fd;                  /* /tmp, when there is no workspace to put aside in; -1 = none */
};

/* ---- the end ---- */

/* From here on nothing is waited for but what is nearly done. */
static void end_soon(struct life *life)
{
    if (life->phase >= ENDING)
        return;
    life->phase = ENDING;
    nsbx_timer_start(life->deadline, FAREWELL_MS);
}

static void on_execution_gone(struct nsbx_agent *agent)
{
    struct life *life = (struct life *)agent;
    if (life->phase == STOPPING && nsbx_list_empty(&agent->executions))
        end_soon(life);
}

/* Ends every command, and the agent when they are all gone. */
static void stop(struct life *life)
{
    struct nsbx_agent *agent = &life->agent;
    if (life->phase != SERVING)
        return;
    life->phase = STOPPING;
    agent->stopping = true;
    nsbx_agent_stop_listening(agent);
    if (nsbx_list_empty(&agent->executions)) {
        if (nsbx_list_empty(&agent->tasks))
            life->phase = OVER;
        else
            end_soon(life);
        return;
    }
    nsbx_timer_start(life->deadline, agent->config->shutdown_deadline_ms);
    nsbx_list_each (it, &agent->executions)
        nsbx_execution_end(nsbx_container_of(it, struct nsbx_execution, node), NSBX_CAUSE_CANCELLED);
}

static void on_deadline(void *ud)
{
    struct life *life = ud;
    if (life->phase == OVER) {
        nsbx_log(NSBX_LOG_WARN, "file work does not come back");
        nsbx_end_namespace();
        _exit(EXIT_SUCCESS);
    }
    if (life->phase == STOPPING)
        nsbx_log(NSBX_LOG_WARN, "not everything has ended by the deadline");
    life->phase = OVER;
}

/* A PID 1 listens to its owner, who is outside of its pid namespace, and not to the commands that it runs. */
static void on_term(void *ud, int signo, pid_t sender)
{
    struct life *life = ud;
    (void)signo;
    if (sender == 0 || !life->agent.config->as_pid_1)
        stop(life);
}

static void on_child(void *ud, int signo)
{
    (void)ud, (void)signo;
    nsbx_reap_strangers();
}

/* The host is gone. Of a whole pid namespace we are the end: nothing survives its PID 1, so nothing is waited for. */
static void on_lifeline_eof(void *ud)
{
    struct life *life = ud;
    nsbx_stream_close(life->lifeline);
    life->lifeline = NULL;
    if (!life->agent.config->as_pid_1) {
        stop(life);
        return;
    }
    life->phase = OVER; /* the namespace is ended at the end */
}

static void on_lifeline_read(void *ud, const uint8_t *bytes, size_t n)
{
    (void)ud, (void)bytes, (void)n;
}

static void on_lifeline_error(void *ud, const struct nsbx_err *err)
{
    nsbx_log(NSBX_LOG_WARN, "the lifeline: %s", err->message);
    on_lifeline_eof(ud);
}

static const struct nsbx_stream_events lifeline_events = {
    .on_read = on_lifeline_read, .on_eof = on_lifeline_eof, .on_error = on_lifeline_error};

static void tear_down(struct life *life)
{
    struct nsbx_agent *agent = &life->agent;
    agent->on_execution_gone = NULL;
    nsbx_agent_stop_listening(agent);
    nsbx_signal_from_close(life->on_term);
    nsbx_signal_close(life->on_child);
    nsbx_stream_close(life->lifeline);
    nsbx_list_each (execution, &agent->executions)
        nsbx_execution_destroy(nsbx_container_of(execution, struct nsbx_execution, node));
    nsbx_list_each (task, &agent->tasks)
        nsbx_task_stop(nsbx_container_of(task, struct nsbx_task, node));
    if (agent->server)
        nsbx_single_server_close(agent->server);
    /* Steps on the pool that are still under way come back, and their tasks with them. */
    if (life->deadline)
        nsbx_timer_start(life->deadline, TEAR_DOWN_MS);
    while (agent->loop && nsbx_loop_live(agent->loop, NULL, NULL) > (life->deadline ? 1 : 0))
        nsbx_loop_turn(agent->loop, NSBX_TURN_WAIT);
    nsbx_timer_close(life->deadline);
    nsbx_registry_free(agent->registry);
    nsbx_jail_free(agent->jail);
    nsbx_cleanup_fd(&life->tmp_fd);
    nsbx_loop_free(agent->loop);
}

/* ---- the start ---- */

/* A command gets the number of descriptors that the agent was started with, the agent itself what it may have. */
static void raise_descriptors(struct nsbx_agent_config *config)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    bool given = false;
    for (size_t i = 0; i < config->n_rlimits; i++)
        given = given || config->rlimits[i].resource == RLIMIT_NOFILE;
    if (!given)
        config->rlimits[config->n_rlimits++] = (struct nsbx_rlimit){RLIMIT_NOFILE, limit};
    limit.rlim_cur = NSBX_MIN(limit.rlim_max, (rlim_t)MAX_DESCRIPTORS);
    setrlimit(RLIMIT_NOFILE, &limit);
}

static int open_lifeline(struct life *life, struct nsbx_err *err)
{
    struct nsbx_agent *agent = &life->agent;
    int fd = agent->config->lifeline_fd;
    if (fd < 0)
        return 0;
    int flags = fcntl(fd, F_GETFD);
    if (flags < 0 || fcntl(fd, F_SETFD, flags | FD_CLOEXEC) != 0)
        return nsbx_err_sys(err, errno, "--lifeline-fd %d", fd);
    int rc = nsbx_stream_from_fd(agent->loop, fd, &life->lifeline, err);
    if (rc)
        return nsbx_err_wrap(err, "--lifeline-fd %d", fd);
    nsbx_stream_set_events(life->lifeline, &lifeline_events, life);
    nsbx_stream_read_start(life->lifeline);
    return 0;
}

static int open_parts(struct life *life, struct nsbx_err *err)
{
    struct nsbx_agent *agent = &life->agent;
    const struct nsbx_agent_config *config = agent->config;
    const struct nsbx_registry_limits limits = {config->lease_ttl_ms, config->terminal_ttl_ms, config->max_tracked};
    int rc = nsbx_uuid4(agent->boot_id, err);
    if (rc == 0)
        rc = nsbx_loop_new(&agent->loop, err);
    if (rc == 0)
        rc = nsbx_registry_new(&agent->registry, &limits, err);
    if (rc == 0)
        rc = nsbx_jail_new(&agent->jail, config->workspace, config->read_roots, config->write_roots, err);
    if (rc)
        return rc;
    agent->has_null = access("/dev/null", R_OK) == 0;
    /* Large bodies wait on the file system that most of them are for. */
    agent->spool_fd = nsbx_jail_workspace_fd(agent->jail, true);
    if (agent->spool_fd < 0)
        agent->spool_fd = life->tmp_fd = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);
    life->deadline = nsbx_timer_new(agent->loop, on_deadline, life);
    if (!life->deadline)
        return nsbx_err_nomem(err, "a timer");
    rc = nsbx_signal_watch_from(agent->loop, SIGTERM, on_term, life, &life->on_term, err);
    if (rc == 0 && config->as_pid_1)
        rc = nsbx_signal_watch(agent->loop, SIGCHLD, on_child, life, &life->on_child, err);
    return rc ? rc : open_lifeline(life, err);
}

/* Nobody of the same user may look into this process or take over its descriptors. */
static int close_off(struct nsbx_err *err)
{
    return prctl(PR_SET_DUMPABLE, 0L) == 0 ? 0 : nsbx_err_sys(err, errno, "PR_SET_DUMPABLE");
}

int nsbx_agent_run(struct nsbx_agent_config *config)
{
    struct life life = {.tmp_fd = -1,
                        .agent = {.config = config, .spool_fd = -1, .on_execution_gone = on_execution_gone}};
    struct nsbx_agent *agent = &life.agent;
    struct nsbx_err err = {0};
    nsbx_list_init(&agent->tasks);
    nsbx_list_init(&agent->writes);
    nsbx_list_init(&agent->executions);
    signal(SIGPIPE, SIG_IGN);
    raise_descriptors(config);
    int rc = close_off(&err);
    if (rc == 0)
        rc = open_parts(&life, &err);
    if (rc == 0)
        rc = nsbx_agent_listen(agent, &err);
    nsbx_agent_config_wipe(config);
    if (rc)
        nsbx_log(NSBX_LOG_ERROR, "%s", err.message);
    while (rc == 0 && life.phase != OVER)
        nsbx_loop_turn(agent->loop, NSBX_TURN_WAIT);
    tear_down(&life);
    nsbx_end_namespace();
#ifdef WATCHED_FOR_LEAKS
    prctl(PR_SET_DUMPABLE, 1L); /* the leak check looks into its own process the way a stranger would */
#endif
    return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}
