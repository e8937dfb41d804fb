/* Every operation of the agent with each of its allocations failing once: it answers, refuses or breaks off, nothing hangs, nothing
 * stays, and the next request is served. */
#include "harness.h"

#include "agent/agent.h"
#include "agent/execution.h"
#include "agent/jail.h"
#include "agent/registry.h"
#include "agent/server.h"
#include "base/alloc.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static char place[64], workspace[96], address[96];
static struct nsbx_agent agent;
static struct nsbx_agent_config config;

static void start_agent(void)
{
    struct nsbx_err err;
    struct nsbx_registry_limits limits = {1000, 1000, 16};
    strcpy(place, "/tmp/nsbx-torture-XXXXXX");
    REQUIRE(mkdtemp(place) != NULL);
    snprintf(workspace, sizeof workspace, "%s/ws", place);
    snprintf(address, sizeof address, "%s/sock", place);
    setenv("NAMZU_AGENT_UNIX_PATH", address, 1);
    setenv("NAMZU_SANDBOX_WORKSPACE", workspace, 1);
    REQUIRE(nsbx_agent_config_load(&config, &err) == 0);
    agent.config = &config;
    nsbx_list_init(&agent.tasks);
    nsbx_list_init(&agent.writes);
    nsbx_list_init(&agent.executions);
    agent.has_null = true;
    REQUIRE(nsbx_uuid4(agent.boot_id, &err) == 0);
    REQUIRE(nsbx_loop_new(&agent.loop, &err) == 0);
    REQUIRE(nsbx_registry_new(&agent.registry, &limits, &err) == 0);
    REQUIRE(nsbx_jail_new(&agent.jail, workspace, NULL, NULL, &err) == 0);
    agent.spool_fd = nsbx_jail_workspace_fd(agent.jail, true);
    REQUIRE(nsbx_agent_listen(&agent, &err) == 0);
}

static void stop_agent(void)
{
    char command[128];
    nsbx_agent_stop_listening(&agent);
    nsbx_single_server_close(agent.server);
    for (int i = 0; i < 100 && nsbx_loop_live(agent.loop, NULL, NULL) > 0; i++)
        nsbx_loop_turn(agent.loop, NSBX_TURN_WAIT);
    nsbx_registry_free(agent.registry);
    nsbx_jail_free(agent.jail);
    nsbx_loop_free(agent.loop);
    snprintf(command, sizeof command, "rm -rf %s", place);
    CHECK_INT(system(command), 0);
}

static bool busy(void)
{
    return !nsbx_list_empty(&agent.tasks) || !nsbx_list_empty(&agent.executions) ||
           nsbx_single_connections(agent.server) > 0;
}

/* Sends the request and turns the loop until the agent has closed the connection and nothing of it is under way. What it said is in
 * `reply`. False: it hangs. */
static bool converse(const char *request, char *reply, size_t max)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    char header[32];
    strcpy(to.sun_path, address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    CHECK_INT(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    snprintf(header, sizeof header, "%08zx\n", strlen(request));
    CHECK_INT(send(fd, header, 9, MSG_NOSIGNAL), 9);
    CHECK_INT(send(fd, request, strlen(request), MSG_NOSIGNAL), strlen(request));
    size_t have = 0;
    bool ended = false;
    uint64_t deadline = nsbx_now_ms() + 10000;
    while (!ended || busy()) {
        nsbx_loop_turn(agent.loop, NSBX_TURN_POLL);
        ssize_t n = ended ? -1 : recv(fd, reply + have, max - 1 - have, 0);
        if (n > 0) {
            have += (size_t)n;
        } else if (!ended && (n == 0 || errno != EAGAIN)) {
            ended = true;
            close(fd);
        }
        if (nsbx_now_ms() > deadline)
            return false;
    }
    reply[have] = '\0';
    return true;
}

/* `want` is in the answer when nothing fails. */
static void torture(const char *request, const char *want)
{
    static char reply[1 << 20];
    REQUIRE(converse(request, reply, sizeof reply));
    if (!strstr(reply, want))
        fprintf(stderr, "to %s: %s\n", request, reply);
    REQUIRE(strstr(reply, want) != NULL);
    nsbx_alloc_fail_at(0);
    REQUIRE(converse(request, reply, sizeof reply));
    unsigned long asked = nsbx_alloc_count();
    CHECK(asked > 5);
    int before = count_fds();
    for (unsigned long n = 1; n <= asked; n++) {
        nsbx_alloc_fail_at(n);
        bool ended = converse(request, reply, sizeof reply);
        nsbx_alloc_fail_at(0);
        REQUIRE(ended);
        CHECK(converse("{\"op\":\"healthz\"}", reply, sizeof reply) && strstr(reply, "\"ok\":true"));
    }
    CHECK(count_fds() <= before + 1);
    CHECK(converse(request, reply, sizeof reply) && strstr(reply, want));
}

static void reserving(void)
{
    torture("{\"op\":\"reserve-execution\"}", "\"leaseExpiresAt\"");
}
static void executing(void)
{
    torture("{\"op\":\"execute\",\"body\":{\"command\":\"/bin/sh\",\"args\":[\"-c\",\"cat; echo e "
            ">&2\"],\"stdin\":\"abc\",\"cwd\":\"d\","
            "\"env\":{\"A\":\"b\"},\"started\":true,\"encoding\":\"base64\"}}",
            "\"exitCode\":0");
}
static void executing_what_is_missing(void)
{
    torture("{\"op\":\"execute\",\"body\":{\"command\":\"/no/such\"}}", "ENOENT");
}
static void writing(void)
{
    torture("{\"op\":\"write-file\",\"body\":{\"path\":\"d/f\",\"content\":\"aGVsbG8=\",\"encoding\":\"base64\"}}",
            "\"bytesWritten\":5");
}
static void writing_a_part(void)
{
    torture("{\"op\":\"write-file\",\"body\":{\"path\":\".namzu-write-x.part\",\"content\":\"abc\",\"part\":{"
            "\"final\":true,\"renameTo\":\"g\"}}}",
            "\"sizeBytes\":3");
}
static void reading(void)
{
    torture("{\"op\":\"read-file\",\"body\":{\"path\":\"d/f\",\"encoding\":\"base64\"}}", "aGVsbG8=");
    torture("{\"op\":\"read-file\",\"body\":{\"path\":\"d/f\"}}", "hello");
    torture("{\"op\":\"read-file\",\"body\":{\"path\":\"none\"}}", "ENOENT");
}
static void reading_a_stream(void)
{
    torture("{\"op\":\"read-file-stream\",\"body\":{\"path\":\"d/f\",\"offset\":1}}", "\"bytesSent\":4");
}
static void walking(void)
{
    torture("{\"op\":\"walk\",\"body\":{\"root\":\".\",\"pattern\":\"**/*\"}}", "\"done\"");
    torture("{\"op\":\"walk\",\"body\":{\"root\":\"d\",\"list\":true}}", "\"done\"");
}
static void cancelling(void)
{
    torture(
        "{\"op\":\"cancel-execution\",\"body\":{\"executionId\":\"exec_3b0f6c1a-2d44-4e0b-9c1e-5a7f00d1e2c3\"}}",
        "unknown_execution");
}

static void nothing_is_left(void)
{
    DIR *dir = opendir(workspace);
    REQUIRE(dir != NULL);
    for (const struct dirent *e = readdir(dir); e; e = readdir(dir))
        if (strncmp(e->d_name, ".namzu", 6) == 0 && strcmp(e->d_name, ".namzu-write-x.part") != 0)
            CHECK_STR(e->d_name, "no temporary file");
    closedir(dir);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    nsbx_log_init("agent", NSBX_LOG_ERROR);
    RUN(start_agent);
    RUN(reserving);
    RUN(executing);
    RUN(executing_what_is_missing);
    RUN(writing);
    RUN(writing_a_part);
    RUN(reading);
    RUN(reading_a_stream);
    RUN(walking);
    RUN(cancelling);
    RUN(nothing_is_left);
    RUN(stop_agent);
    return harness_done();
}
