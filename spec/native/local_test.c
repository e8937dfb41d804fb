/* A whole local sandbox from C: create, run a command, destroy; and what happens when its making fails. */
#include "harness.h"

#include "base/limits.h"
#include "base/util.h"
#include "local/local.h"
#include "loop/timer.h"
#include "transport/exec.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

static struct nsbx_loop *loop;
static char scratch[64];

static enum nsbx_op_state wait_for(struct nsbx_op *op)
{
    while (nsbx_op_state(op) == NSBX_OP_PENDING && nsbx_loop_turn(loop, NSBX_TURN_WAIT))
        ;
    return nsbx_op_state(op);
}

static const char *why(struct nsbx_op *op)
{
    const struct nsbx_err *err = nsbx_op_err(op);
    return err ? err->message : "(no error)";
}

static void drain(void)
{
    for (int i = 0; i < 200 && nsbx_loop_live(loop, NULL, NULL) > 0; i++)
        nsbx_loop_turn(loop, NSBX_TURN_WAIT);
    CHECK_INT(nsbx_loop_live(loop, NULL, NULL), 0);
}

/* Directories of sandboxes under this test's TMPDIR. */
static int leftovers(void)
{
    char base[128];
    snprintf(base, sizeof base, "%s/nsbx-%ld", scratch, (long)geteuid());
    DIR *dir = opendir(base);
    int n = 0;
    for (struct dirent *e; dir && (e = readdir(dir));)
        n += e->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return n;
}

static struct nsbx_local *create(const struct nsbx_local_options *options)
{
    struct nsbx_op *op = nsbx_local_create(loop, options, 20000);
    struct nsbx_local *l = NULL;
    if (wait_for(op) == NSBX_OP_DONE)
        l = nsbx_op_take_result(op);
    else
        fprintf(stderr, "create: %s\n", why(op));
    nsbx_op_unref(op);
    return l;
}

static void destroy(struct nsbx_local *l)
{
    struct nsbx_op *op = nsbx_local_destroy(l, 10000);
    CHECK_INT(wait_for(op), NSBX_OP_DONE);
    nsbx_op_unref(op);
    nsbx_local_free(l);
    drain();
}

static void a_sandbox_runs_a_command_and_leaves_nothing(void)
{
    struct nsbx_local_options options = {.uid = -1};
    struct nsbx_local *l = create(&options);
    REQUIRE(l != NULL);
    CHECK(nsbx_local_alive(l));
    CHECK_INT(leftovers(), 1);
    const char *args[] = {"-c", "id -u; exit 7", NULL};
    struct nsbx_exec_request request = {.command = "sh", .args = args, .collect = true};
    struct nsbx_exec *exec;
    struct nsbx_err err = {0};
    CHECK_INT(nsbx_exec_start(nsbx_local_guest(l), &request, &exec, &err), 0);
    struct nsbx_op *op = nsbx_exec_wait(exec, 10000);
    CHECK_INT(wait_for(op), NSBX_OP_DONE);
    struct nsbx_exec_result *result = nsbx_op_result(op);
    REQUIRE(result != NULL);
    CHECK_INT(result->exit_code, 7);
    CHECK(result->out_len == 5 && memcmp(result->out, "1000\n", 5) == 0);
    nsbx_op_unref(op);
    nsbx_exec_close(exec);
    destroy(l);
    CHECK_INT(leftovers(), 0);
}

static void a_second_destroy_ends_with_the_first(void)
{
    struct nsbx_local_options options = {.uid = -1};
    struct nsbx_local *l = create(&options);
    REQUIRE(l != NULL);
    struct nsbx_op *a = nsbx_local_destroy(l, 10000), *b = nsbx_local_destroy(l, 10000);
    CHECK_INT(wait_for(a), NSBX_OP_DONE);
    CHECK_INT(wait_for(b), NSBX_OP_DONE);
    nsbx_op_unref(a);
    nsbx_op_unref(b);
    destroy(l); /* and a third */
}

static void a_freed_handle_takes_its_sandbox_with_it(void)
{
    struct nsbx_local_options options = {.uid = -1};
    struct nsbx_local *l = create(&options);
    REQUIRE(l != NULL);
    nsbx_local_free(l);
    drain();
    CHECK_INT(leftovers(), 0);
}

static void a_cancelled_create_leaves_nothing(void)
{
    for (int turns = 0; turns < 6; turns++) {
        struct nsbx_local_options options = {.uid = -1};
        struct nsbx_op *op = nsbx_local_create(loop, &options, 20000);
        for (int i = 0; i < turns; i++)
            nsbx_loop_turn(loop, NSBX_TURN_WAIT);
        nsbx_op_cancel(op);
        enum nsbx_op_state state = wait_for(op);
        CHECK(state == NSBX_OP_CANCELLED || state == NSBX_OP_DONE);
        nsbx_op_unref(op); /* an untaken result goes with it */
        drain();
        CHECK_INT(leftovers(), 0);
    }
}

static void a_kept_workspace_outlives_its_sandbox(void)
{
    struct nsbx_local_options options = {.uid = -1, .keep = true};
    struct nsbx_local *l = create(&options);
    REQUIRE(l != NULL);
    char path[NSBX_PATH_MAX];
    CHECK((size_t)snprintf(path, sizeof path, "%s", nsbx_local_workspace(l)) < sizeof path);
    destroy(l);
    struct nsbx_local_options plain = {.uid = -1};
    l = create(&plain); /* whose sweep spares it */
    REQUIRE(l != NULL);
    destroy(l);
    CHECK(rmdir(path) == 0);
}

static void failures_name_the_thing(void)
{
    static const struct nsbx_local_bind missing = {"/no/such/place", "/data"}, reserved = {"/usr", "/proc/x"},
                                        odd = {"/usr", "/a/../b"}, hiding = {"/usr", "/run"};
    static const struct {
        struct nsbx_local_options options;
        int code;
        const char *says;
    } cases[] = {
        {{.uid = -1, .agent = "/no/such/agent"}, NSBX_E_NOT_FOUND, "/no/such/agent"},
        {{.uid = -1, .workspace = "/no/such/workspace"}, NSBX_E_NOT_FOUND, "/no/such/workspace"},
        {{.uid = -1, .workspace = "/etc/passwd"}, NSBX_E_INVALID, "not a directory"},
        {{.uid = -1, .root_fs = "/etc/passwd"}, NSBX_E_INVALID, "root_fs"},
        {{.uid = -1, .root_fs = "relative"}, NSBX_E_INVALID, "absolute"},
        {{.uid = -1, .read_only = &missing, .n_read_only = 1}, NSBX_E_NOT_FOUND, "read_only: '/no/such/place'"},
        {{.uid = -1, .read_write = &reserved, .n_read_write = 1}, NSBX_E_INVALID, "read_write: '/proc/x'"},
        {{.uid = -1, .read_only = &hiding, .n_read_only = 1}, NSBX_E_INVALID, "read_only: '/run'"},
        {{.uid = -1, .read_only = &odd, .n_read_only = 1}, NSBX_E_INVALID, "plain path"},
        {{.uid = -1, .agent = "/bin/true"}, NSBX_E_IO, "ended before it answered"},
    };
    for (size_t i = 0; i < NSBX_LEN(cases); i++) {
        struct nsbx_op *op = nsbx_local_create(loop, &cases[i].options, 20000);
        CHECK_INT(wait_for(op), NSBX_OP_FAILED);
        const struct nsbx_err *err = nsbx_op_err(op);
        if (!err || err->code != cases[i].code || !strstr(err->message, cases[i].says)) {
            fprintf(stderr, "case %zu: %s: %s\n", i, err ? nsbx_code_name(err->code) : "-", why(op));
            CHECK(!"the right words");
        }
        nsbx_op_unref(op);
        drain();
        CHECK_INT(leftovers(), 0);
    }
}

static void nothing_leaks_over_many(void)
{
    struct nsbx_local_options options = {.uid = -1};
    struct nsbx_local *l = create(&options);
    REQUIRE(l != NULL);
    destroy(l);
    int before = count_fds();
    for (int i = 0; i < 10; i++) {
        l = create(&options);
        REQUIRE(l != NULL);
        destroy(l);
    }
    CHECK_INT(count_fds(), before);
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}

int main(void)
{
    strcpy(scratch, "/tmp/nsbx-local-XXXXXX");
    if (!mkdtemp(scratch) || chmod(scratch, 0755) < 0)
        return 2;
    setenv("TMPDIR", scratch, 1);
    struct nsbx_err err = {0};
    if (nsbx_loop_new(&loop, &err) < 0)
        return 2;
    RUN(a_sandbox_runs_a_command_and_leaves_nothing);
    RUN(a_second_destroy_ends_with_the_first);
    RUN(a_freed_handle_takes_its_sandbox_with_it);
    RUN(a_cancelled_create_leaves_nothing);
    RUN(a_kept_workspace_outlives_its_sandbox);
    RUN(failures_name_the_thing);
    RUN(nothing_leaks_over_many);
    nsbx_loop_free(loop);
    char base[128];
    snprintf(base, sizeof base, "%s/nsbx-%ld", scratch, (long)geteuid());
    rmdir(base);
    if (rmdir(scratch) < 0)
        perror(scratch);
    return harness_done();
}
