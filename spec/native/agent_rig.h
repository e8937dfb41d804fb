/* For tests of the host side against the real agent: a workspace in a temporary directory and the agent on a socket. */
#ifndef NSBX_SPEC_AGENT_RIG_H
#define NSBX_SPEC_AGENT_RIG_H

#include "guest_rig.h"
#include "transport/exec.h"

#define MIB (1024 * 1024)

#define AGENT_TOKEN "the-token-of-the-agent"

static inline const char *agent_program(void)
{
    const char *program = getenv("NSBX_AGENT");
    if (!program) {
        fprintf(stderr, "NSBX_AGENT must name the agent's program\n");
        exit(1);
    }
    return program;
}

static inline pid_t start_agent(enum nsbx_arm arm, uint16_t port)
{
    char socket_env[128], workspace[128], tcp[64];
    snprintf(socket_env, sizeof socket_env, "NAMZU_AGENT_UNIX_PATH=%s", guest_socket);
    snprintf(tcp, sizeof tcp, "NAMZU_AGENT_TCP_PORT=%u", port);
    snprintf(workspace, sizeof workspace, "NAMZU_SANDBOX_WORKSPACE=%s/ws", guest_dir);
    const char *const env[] = {arm == NSBX_ARM_UNIX ? socket_env : tcp,
                               workspace,
                               "PATH=/usr/local/bin:/usr/bin:/bin",
                               "ASAN_OPTIONS=detect_leaks=1",
                               arm == NSBX_ARM_TCP ? "NAMZU_AGENT_BIND_TOKEN=" AGENT_TOKEN : NULL,
                               NULL};
    const char *const argv[] = {"nsbx-agent", NULL};
    const char *program = agent_program();
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execve(program, (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)env);
        _exit(127);
    }
    return pid;
}

/* A port that is free right now. */
static inline uint16_t free_port(void)
{
    uint16_t port = 0;
    close(listen_somewhere(NSBX_ARM_TCP, &port));
    return port;
}

static inline void agent_rig_open(enum nsbx_arm arm)
{
    struct nsbx_err err;
    char workspace[128];
    rig_open();
    guest_rig_dir();
    snprintf(workspace, sizeof workspace, "%s/ws", guest_dir);
    if (mkdir(workspace, 0700) != 0)
        abort();
    uint16_t port = arm == NSBX_ARM_TCP ? free_port() : 0;
    guest_pid = start_agent(arm, port);
    struct nsbx_guest_options options = {
        .arm = arm, .unix_path = guest_socket, .host = "127.0.0.1", .port = port, .token = AGENT_TOKEN};
    if (nsbx_guest_new(loop, &options, &guest, &err) < 0)
        abort();
}

/* The agent ends on SIGTERM with status 0: a sanitizer's complaint would be another one. */
static inline void agent_rig_close(void)
{
    char command[128];
    int status = 0;
    nsbx_guest_free(guest);
    guest = NULL;
    TURN_UNTIL(nsbx_loop_live(loop, NULL, NULL) <= 1, 15000);
    rig_close();
    if (guest_pid > 0) {
        kill(guest_pid, SIGTERM);
        waitpid(guest_pid, &status, 0);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    guest_pid = 0;
    snprintf(command, sizeof command, "rm -rf '%s'", guest_dir);
    if (system(command) != 0)
        harness_case_failed = 1;
}

/* ---- commands, one at a time ---- */

static struct nsbx_exec *exec;
static struct nsbx_exec_result last;
static char out[4096]; /* of the last collected command, as text */

static inline struct nsbx_exec_request shell(const char *script)
{
    static const char *args[3];
    args[0] = "-c";
    args[1] = script;
    return (struct nsbx_exec_request){.command = "/bin/sh", .args = args, .timeout_ms = 20000, .collect = true};
}

static inline void start(const struct nsbx_exec_request *r)
{
    struct nsbx_err err;
    if (nsbx_exec_start(guest, r, &exec, &err) < 0) {
        fprintf(stderr, "in %s: not started: %s\n", harness_case, err.message);
        abort();
    }
}

static inline struct nsbx_err wait_exec(void)
{
    struct nsbx_err err = {0};
    struct nsbx_op *op = nsbx_exec_wait(exec, -1);
    WAIT_OP(op);
    nsbx_err_copy(&err, nsbx_op_err(op));
    out[0] = '\0';
    if (nsbx_op_state(op) == NSBX_OP_DONE) {
        last = *(struct nsbx_exec_result *)nsbx_op_result(op);
        snprintf(out, sizeof out, "%.*s", (int)last.out_len, last.out ? (const char *)last.out : "");
    }
    nsbx_op_unref(op);
    return err;
}

static inline struct nsbx_err run(const struct nsbx_exec_request *r)
{
    start(r);
    struct nsbx_err err = wait_exec();
    nsbx_exec_close(exec);
    exec = NULL;
    return err;
}

static inline struct nsbx_err run_shell(const char *script)
{
    struct nsbx_exec_request r = shell(script);
    return run(&r);
}

#endif
