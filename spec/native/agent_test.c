/* The parts of the agent that need no process: its settings, its table, texts of faults, requests, and the walk. */
#include "harness.h"

#include "agent/child_env.h"
#include "agent/config.h"
#include "agent/execute_request.h"
#include "agent/fault.h"
#include "agent/jail.h"
#include "agent/server.h"
#include "agent/walker.h"
#include "base/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <sys/stat.h>

/* ---- the table ---- */

static void every_row_has_its_operation(void)
{
    size_t n;
    const struct nsbx_op_row *rows = nsbx_op_rows(&n);
    CHECK(n > 0);
    for (size_t i = 0; i < n; i++) {
        const struct nsbx_agent_op *op = nsbx_agent_op_of(&rows[i]);
        CHECK(op != NULL && op->open != NULL);
        for (size_t j = 0; op && j < i; j++)
            CHECK(nsbx_agent_op_of(&rows[j]) != op);
    }
}

/* ---- settings ---- */

static void clear_environment(void)
{
    CHECK_INT(clearenv(), 0);
    setenv("NAMZU_AGENT_UNIX_PATH", "/tmp/s", 1);
}

static int load(struct nsbx_agent_config *config, struct nsbx_err *err)
{
    *config = (struct nsbx_agent_config){.lifeline_fd = -1};
    return nsbx_agent_config_load(config, err);
}

static void defaults(void)
{
    struct nsbx_agent_config c;
    struct nsbx_err err;
    clear_environment();
    REQUIRE(load(&c, &err) == 0);
    CHECK_INT(c.listen, NSBX_LISTEN_UNIX);
    CHECK_STR(c.workspace, "/workspace");
    CHECK_INT(c.max_timeout_ms, 1800000);
    CHECK_INT(c.lease_ttl_ms, 30000);
    CHECK_INT(c.terminal_ttl_ms, 60000);
    CHECK_INT(c.max_tracked, 1024);
    CHECK_INT(c.cancel_grace_ms, 250);
    CHECK_INT(c.cancel_confirm_ms, 5000);
    CHECK_INT(c.shutdown_deadline_ms, 15000);
    CHECK_INT(c.max_frame, 268435456);
    CHECK_INT(c.max_preauth_frame, 8388608);
    CHECK_INT(c.max_preauth_connections, 64);
    CHECK_INT(c.max_preauth_buffer, 33554432);
    CHECK_INT(c.preauth_idle_ms, 10000);
    CHECK_INT(c.preauth_deadline_ms, 10000);
    CHECK_INT(c.refusal_flush_ms, 1000);
    CHECK_INT(c.read_range, 1048576);
    CHECK_INT(c.read_chunk, 262144);
}

static void integers(void)
{
    struct nsbx_agent_config c;
    struct nsbx_err err;
    clear_environment();
    setenv("NAMZU_AGENT_CANCEL_GRACE_MS", "0", 1);
    setenv("NAMZU_AGENT_MAX_FRAME_BYTES", "9007199254740991", 1);
    setenv("NAMZU_AGENT_READ_FILE_RANGE_BYTES", "", 1); /* empty: not set */
    REQUIRE(load(&c, &err) == 0);
    CHECK_INT(c.cancel_grace_ms, 0);
    CHECK_INT(c.max_frame, 9007199254740991);
    CHECK_INT(c.read_range, 1048576);
    setenv("NAMZU_AGENT_MAX_FRAME_BYTES", "9007199254740992", 1);
    CHECK_INT(load(&c, &err), -NSBX_E_INVALID);
    CHECK_STR(err.message, "NAMZU_AGENT_MAX_FRAME_BYTES must be a positive safe integer");
}

static void the_token_is_wiped(void)
{
    struct nsbx_agent_config c;
    static char entry[] = "NAMZU_AGENT_BIND_TOKEN=hush-hush";
    clear_environment();
    putenv(entry); /* the block itself, as the kernel shows it */
    REQUIRE(load(&c, NULL) == 0);
    CHECK_STR(c.bind_token, "hush-hush");
    nsbx_agent_config_wipe(&c);
    CHECK(c.bind_token == NULL && getenv("NAMZU_AGENT_BIND_TOKEN") == NULL);
    CHECK(memmem(entry, sizeof entry, "hush", 4) == NULL);
    nsbx_agent_config_wipe(&c);
}

static void rlimits(void)
{
    struct nsbx_agent_config c = {0};
    struct nsbx_err err;
    CHECK_INT(nsbx_agent_config_rlimit(&c, "nofile=64", NULL), 0);
    CHECK_INT(nsbx_agent_config_rlimit(&c, "as=1000000000", NULL), 0);
    CHECK_INT(c.n_rlimits, 2);
    CHECK_INT(c.rlimits[0].resource, RLIMIT_NOFILE);
    CHECK_INT(c.rlimits[0].value.rlim_cur, 64);
    CHECK_INT(c.rlimits[0].value.rlim_max, 64);
    CHECK_INT(nsbx_agent_config_rlimit(&c, "no", &err), -NSBX_E_INVALID);
    CHECK_INT(nsbx_agent_config_rlimit(&c, "nofil=1", &err), -NSBX_E_INVALID);
    CHECK_INT(nsbx_agent_config_rlimit(&c, "nofilex=1", &err), -NSBX_E_INVALID);
    for (int i = 0; i < NSBX_SPAWN_MAX_RLIMITS - 3; i++)
        CHECK_INT(nsbx_agent_config_rlimit(&c, "cpu=1", &err), 0);
    CHECK_INT(nsbx_agent_config_rlimit(&c, "cpu=1", &err), -NSBX_E_LIMIT);
}

/* ---- faults ---- */

static void faults(void)
{
    static struct nsbx_fault f;
    CHECK_INT(nsbx_fault_sys(&f, ENOENT, "open", "/a b"), -1);
    CHECK_STR(f.text, "ENOENT: no such file or directory, open '/a b'");
    CHECK_STR(f.code, "ENOENT");
    nsbx_fault_sys(&f, ENOSPC, "write", NULL);
    CHECK_STR(f.text, "ENOSPC: no space left on device, write");
    nsbx_fault_sys2(&f, EXDEV, "rename", "/a", "/b");
    CHECK_STR(f.text, "EXDEV: cross-device link not permitted, rename '/a' -> '/b'");
    nsbx_fault_prefix(&f, "mkdir_failed: ");
    CHECK_STR(f.text, "mkdir_failed: EXDEV: cross-device link not permitted, rename '/a' -> '/b'");
    CHECK_STR(f.code, "EXDEV");
    nsbx_fault_set(&f, "plain %d", 7);
    CHECK(f.code == NULL);
    nsbx_fault_sys(&f, 12345, "open", "/x");
    CHECK_STR(f.code, "EUNKNOWN");

    static char longest[2 * NSBX_FAULT_TEXT];
    memset(longest, '\xff', sizeof longest - 1);
    nsbx_fault_sys2(&f, ENOENT, "rename", longest, longest);
    CHECK_INT(strlen(f.text), NSBX_FAULT_TEXT - 1);
    nsbx_fault_prefix(&f, "before: ");
    CHECK_INT(strlen(f.text), NSBX_FAULT_TEXT - 1);
    json_t *message = nsbx_fault_message(nsbx_op_row("walk"), &f); /* no UTF-8, and still a message */
    REQUIRE(message != NULL);
    CHECK_STR(json_string_value(json_object_get(message, "type")), "error");
    CHECK(strstr(json_string_value(json_object_get(message, "error")), "\xef\xbf\xbd") != NULL);
    json_decref(message);
    message = nsbx_fault_message(nsbx_op_row("read-file"), &f);
    CHECK(json_is_false(json_object_get(message, "ok")));
    json_decref(message);
}

static void numbers(void)
{
    static const struct {
        const char *json;
        double want; /* -1: no number */
        int64_t safe;
    } cases[] = {
        {"5", 5, 5},
        {"5.0", 5, 5},
        {"\"7\"", 7, -1},
        {"\" 7 \"", 7, -1},
        {"\"\"", 0, -1},
        {"\"x\"", -1, -1},
        {"null", 0, -1},
        {"false", 0, -1},
        {"true", 1, -1},
        {"[]", -1, -1},
        {"1.5", 1.5, -1},
        {"-3", -3, -1},
        {"9007199254740991", 9007199254740991.0, 9007199254740991},
        {"9007199254740992", 9007199254740992.0, -1},
        {"1e300", 1e300, -1},
    };
    double value;
    for (size_t i = 0; i < NSBX_LEN(cases); i++) {
        char text[64];
        snprintf(text, sizeof text, "{\"n\":%s}", cases[i].json);
        json_t *body = json_loads(text, 0, NULL);
        CHECK(nsbx_agent_number(body, "n", &value));
        bool none = cases[i].want < 0 && cases[i].safe < 0 && cases[i].json[0] != '-';
        CHECK(none ? isnan(value) : !(value < cases[i].want) && !(value > cases[i].want) && !isnan(value));
        CHECK_INT(nsbx_agent_safe_integer(json_object_get(body, "n")), cases[i].safe);
        json_decref(body);
    }
    CHECK(!nsbx_agent_number(NULL, "n", &value));
}

/* ---- requests, with each allocation failing once ---- */

static void environment_of_a_command(void)
{
    static struct nsbx_fault fault;
    char **env = NULL;
    clearenv();
    setenv("KEPT", "1", 1);
    setenv("NAMZU_AGENT_X", "1", 1);
    json_t *want = json_loads("{\"A\":\"b\",\"N\":5,\"KEPT\":\"2\",\"NAMZU_AGENT_X\":\"mine\"}", 0, NULL);
    unsigned long failed = 0;
    for (unsigned long n = 1;; n++) {
        nsbx_alloc_fail_at(n);
        int rc = nsbx_child_env_make(&env, want, &fault);
        nsbx_alloc_fail_at(0);
        if (rc == 0)
            break;
        failed++;
        CHECK(strstr(fault.text, "memory") != NULL);
    }
    CHECK(failed > 5);
    REQUIRE(env != NULL);
    CHECK_STR(env[0], "KEPT=2");
    CHECK_STR(env[1], "A=b");
    CHECK_STR(env[2], "N=5");
    CHECK_STR(env[3], "NAMZU_AGENT_X=mine");
    CHECK(env[4] == NULL);
    nsbx_child_env_free(env);
    json_decref(want);
}

static void a_request_without_memory(void)
{
    static struct nsbx_fault fault;
    struct nsbx_agent_config config = {.max_timeout_ms = 1000};
    struct nsbx_agent agent = {.config = &config};
    REQUIRE(nsbx_jail_new(&agent.jail, "/ws", NULL, NULL, NULL) == 0);
    json_t *body = json_loads(
        "{\"command\":\"a\",\"args\":[\"b\",5],\"cwd\":\"d\",\"env\":{\"A\":\"b\"},\"timeoutMs\":10.5}", 0, NULL);
    unsigned long failed = 0;
    for (unsigned long n = 1;; n++) {
        struct nsbx_exec_request request = {0};
        nsbx_alloc_fail_at(n);
        int rc = nsbx_exec_request_read(&request, &agent, body, &fault);
        nsbx_alloc_fail_at(0);
        if (rc == 0) {
            CHECK_STR(request.argv[2], "5");
            CHECK_STR(request.cwd, "/ws/d");
            CHECK_INT(request.timeout_ms, 11);
        }
        failed += rc != 0;
        nsbx_exec_request_free(&request);
        if (rc == 0)
            break;
    }
    CHECK(failed > 5);
    json_decref(body);
    nsbx_jail_free(agent.jail);
}

/* ---- the walk ---- */

static char place[64];

static void make_tree(void)
{
    char path[256];
    strcpy(place, "/tmp/nsbx-walk-XXXXXX");
    CHECK(mkdtemp(place) != NULL);
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s/d%d", place, i);
        mkdir(path, 0755);
        for (int j = 0; j < 5; j++) {
            snprintf(path, sizeof path, "%s/d%d/f%d", place, i, j);
            close(open(path, O_CREAT | O_CLOEXEC | O_WRONLY, 0644));
        }
    }
}

/* Entries found, or -1. */
static int walk(bool sorted, struct nsbx_fault *fault)
{
    struct nsbx_walk_options options = {
        .sorted = sorted, .max_depth = UINT64_MAX, .max_entries = UINT64_MAX, .max_visited = 1000};
    struct nsbx_glob *glob = NULL;
    int found = 0;
    if (nsbx_glob_compile(&glob, "**/f*", 5, false, NULL) != 0)
        return -1;
    struct nsbx_walker *w = nsbx_walker_new(&options, glob, "");
    int rc = w ? nsbx_walker_begin(w, open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC), place, fault) : -1;
    while (rc == 0) {
        size_t n;
        const char *text;
        rc = nsbx_walker_step(w, fault);
        nsbx_walker_batch(w, &n, &text);
        found += (int)n;
        if (nsbx_walker_done(w))
            break;
    }
    nsbx_walker_free(w);
    nsbx_glob_free(glob);
    return rc ? -1 : found;
}

static void a_walk_without_memory(void)
{
    static struct nsbx_fault fault;
    make_tree();
    for (int sorted = 0; sorted < 2; sorted++) {
        unsigned long failed = 0;
        for (unsigned long n = 1;; n++) {
            nsbx_alloc_fail_at(n);
            int found = walk(sorted, &fault);
            nsbx_alloc_fail_at(0);
            if (found < 0) {
                failed++;
                continue;
            }
            CHECK_INT(found, 25);
            break;
        }
        CHECK(failed > 10);
    }
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", place);
    CHECK_INT(system(command), 0);
}

int main(void)
{
    RUN(every_row_has_its_operation);
    RUN(defaults);
    RUN(integers);
    RUN(the_token_is_wiped);
    RUN(rlimits);
    RUN(faults);
    RUN(numbers);
    RUN(environment_of_a_command);
    RUN(a_request_without_memory);
    setenv("PATH", "/usr/bin:/bin", 1);
    RUN(a_walk_without_memory);
    return harness_done();
}
