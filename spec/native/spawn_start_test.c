#include "spawn_run.h"

#include "base/alloc.h"
#include "loop/spawn_child.h"

#include <sys/prctl.h>

/* ---- what cannot be started ---- */

static void fails_with(struct command *c, int code, int sys, const char *text)
{
    struct nsbx_child *child;
    struct result r = {0};
    struct nsbx_err err = {0};
    int fds = count_fds();
    CHECK_INT(nsbx_child_start(loop, &c->spec, on_exit_cb, &r, &child, &err), -code);
    CHECK_INT(err.sys, sys);
    if (!strstr(err.message, text)) {
        fprintf(stderr, "the message \"%s\" does not have \"%s\"\n", err.message, text);
        harness_case_failed = 1;
    }
    turn_until(NULL, 5);
    CHECK_INT(r.calls, 0);
    CHECK(childless());
    CHECK_INT(count_fds(), fds);
    CHECK_INT(nsbx_loop_live(loop, NULL, NULL), 0);
}

static char *in_scratch(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    return path;
}

static void programs_that_are_none(void)
{
    put_file(in_scratch("noexec"), "echo no\n", 0644);
    put_file(in_scratch("noformat"), "echo no\n", 0755);
    put_file(in_scratch("nointerpreter"), "#!/nonexistent/interpreter\n", 0755);
    COMMAND(c, "exit", "0");
    c.spec.file = in_scratch("missing");
    fails_with(&c, NSBX_E_NOT_FOUND, ENOENT, "missing");
    c.spec.file = "";
    fails_with(&c, NSBX_E_NOT_FOUND, ENOENT, "\"\"");
    c.spec.file = in_scratch("noexec");
    fails_with(&c, NSBX_E_FORBIDDEN, EACCES, "noexec");
    c.spec.file = in_scratch("noexec/below");
    fails_with(&c, nsbx_code_of_errno(ENOTDIR), ENOTDIR, "noexec/below");
    c.spec.file = scratch;
    fails_with(&c, NSBX_E_FORBIDDEN, EACCES, scratch);
    c.spec.file = in_scratch("noformat"); /* no shell runs it instead */
    fails_with(&c, NSBX_E_INVALID, ENOEXEC, "neither a program for this machine");
    c.spec.file = in_scratch("nointerpreter");
    fails_with(&c, NSBX_E_NOT_FOUND, ENOENT, "nointerpreter");
    c.spec.file = helper;
    c.spec.cwd = "/nonexistent";
    fails_with(&c, NSBX_E_NOT_FOUND, ENOENT, "in the directory /nonexistent");
    c.spec.cwd = in_scratch("noexec");
    fails_with(&c, nsbx_code_of_errno(ENOTDIR), ENOTDIR, "noexec");
    c.spec.cwd = NULL;
    map_fd(&c, 999, 1);
    fails_with(&c, NSBX_E_IO, EBADF, "descriptors");
    c.spec.n_fds = 0;
    c.spec.controlling_tty = 0;
    fails_with(&c, nsbx_code_of_errno(ENOTTY), ENOTTY, "terminal");
}

static void specs_that_are_none(void)
{
    COMMAND(c, "exit", "0");
    map_fd(&c, 0, 5);
    map_fd(&c, 1, 5);
    fails_with(&c, NSBX_E_INVALID, 0, "two descriptors for 5");
    c.spec.n_fds = 1;
    c.spec.fds[0].from = -1;
    fails_with(&c, NSBX_E_INVALID, 0, "-1 cannot become 5");
    c.spec.n_fds = NSBX_SPAWN_MAX_FDS + 1;
    fails_with(&c, NSBX_E_INVALID, 0, "at most 16");
    c.spec.n_fds = 0;
    c.spec.n_rlimits = NSBX_SPAWN_MAX_RLIMITS + 1;
    fails_with(&c, NSBX_E_INVALID, 0, "at most 8");
    c.spec.n_rlimits = 0;
    c.spec.controlling_tty = 1;
    c.spec.new_session = false;
    fails_with(&c, NSBX_E_INVALID, 0, "session of its own");
    c.spec.controlling_tty = -1;
    c.argv[0] = NULL;
    fails_with(&c, NSBX_E_INVALID, 0, "arguments");
}

/* ---- the search ---- */

static const char *found_on(const char *path_entry, const char *file, const char *cwd)
{
    const char *env[] = {path_entry, NULL};
    COMMAND(c, "place");
    c.spec.file = file;
    c.spec.envp = env;
    c.spec.cwd = cwd;
    return output_of(&c);
}

static void search_of_path(void)
{
    char blocked[96], full[96], entry[512];
    snprintf(blocked, sizeof blocked, "%s/blocked", scratch);
    snprintf(full, sizeof full, "%s/full", scratch);
    mkdir(blocked, 0755);
    mkdir(full, 0755);
    put_file(in_scratch("blocked/tool"), "x", 0644);
    put_file(in_scratch("full/tool"), "#!/bin/sh\necho full\n", 0755);
    put_file(in_scratch("full/odd"), "echo odd\n", 0755);

    /* Past what is missing, no directory, too long or not executable, to what runs. */
    snprintf(entry, sizeof entry, "PATH=/nonexistent:%s/noexec:%s:%s", scratch, blocked, full);
    CHECK_STR(found_on(entry, "tool", NULL), "full\n");
    snprintf(entry, sizeof entry, "PATH=:%s", blocked);
    CHECK_STR(found_on(entry, "tool", full), "full\n"); /* empty: the current directory */
    snprintf(entry, sizeof entry, "PATH=%s:", blocked);
    CHECK_STR(found_on(entry, "tool", full), "full\n");
    CHECK_STR(found_on("PATH=", "tool", full), "full\n");
    CHECK_STR(found_on("OTHER=1", "echo", NULL), "place\n"); /* the default path */

    const char *env[] = {entry, NULL};
    COMMAND(c, "place");
    c.spec.envp = env;
    c.spec.file = "tool";
    snprintf(entry, sizeof entry, "PATH=%s:/nonexistent", blocked);
    fails_with(&c, NSBX_E_FORBIDDEN, EACCES, "tool"); /* there is one, which may not run */
    snprintf(entry, sizeof entry, "PATH=/nonexistent:%s", scratch);
    fails_with(&c, NSBX_E_NOT_FOUND, ENOENT, "in no directory of PATH");
    c.spec.file = "odd";
    snprintf(entry, sizeof entry, "PATH=%s:/bin", full);
    fails_with(&c, NSBX_E_INVALID, ENOEXEC, "odd");
}

static void path_entries_of_any_length(void)
{
    char *entry = nsbx_malloc(20000);
    REQUIRE(entry != NULL);
    memset(entry, 'a', 20000);
    memcpy(entry, "PATH=", 5);
    snprintf(entry + 15000, 5000, ":/bin:/usr/bin");
    CHECK_STR(found_on(entry, "echo", NULL), "place\n");
    nsbx_free(entry);
}

static void busy_program(void)
{
    struct result r;
    struct nsbx_err err;
    char copy[96], command[PATH_MAX + 128];
    snprintf(copy, sizeof copy, "%s/busy", scratch);
    snprintf(command, sizeof command, "cp %s %s", helper, copy);
    REQUIRE(system(command) == 0);
    struct pipe_ends ready = make_pipe();
    pid_t writer = fork();
    if (writer == 0) {
        int fd = open(copy, O_WRONLY | O_CLOEXEC);
        if (write(ready.write, "r", 1) == 1)
            poll(NULL, 0, 15);
        close(fd);
        _exit(0);
    }
    CHECK_INT(read_byte(ready.read), 'r');
    COMMAND(c, "exit", "5");
    c.spec.file = copy;
    CHECK_INT(run(&c, &r, &err), 0);
    CHECK_INT(r.exit.code, 5);
    CHECK_INT(waitpid(writer, NULL, 0), writer);
    close(ready.read);
    close(ready.write);
}

/* ---- parents ---- */

static void ends_with_its_parent(void)
{
    struct pipe_ends said = make_pipe();
    pid_t parent = fork();
    if (parent == 0) {
        struct nsbx_child *child;
        struct result r = {0};
        struct nsbx_err err;
        struct nsbx_loop *own;
        COMMAND(c, "rest", "sp-parent", "60000");
        c.spec.parent_death_signal = SIGKILL;
        c.spec.drop = geteuid() == 0; /* which clears the setting if it comes after */
        c.spec.uid = c.spec.gid = lone_user();
        if (nsbx_loop_new(&own, &err) || nsbx_child_start(own, &c.spec, on_exit_cb, &r, &child, &err) ||
            write(said.write, "r", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    CHECK_INT(read_byte(said.read), 'r');
    CHECK(wait_alive("sp-parent", 1, 2000)); /* it names itself after its exec */
    kill(parent, SIGKILL);
    CHECK_INT(waitpid(parent, NULL, 0), parent);
    CHECK(wait_alive("sp-parent", 0, 2000));
    close(said.read);
    close(said.write);
}

static void parent_that_died_before_it_was_asked_for(void)
{
    struct pipe_ends report_pipe = make_pipe();
    COMMAND(c, "exit", "0");
    c.spec.parent_death_signal = SIGKILL;
    struct nsbx_spawn_plan plan = {.spec = &c.spec, .first_free = 3};
    pid_t child = fork();
    if (child == 0)
        nsbx_spawn_child_main(&plan, getppid() + 1, report_pipe.write);
    int status;
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 127);
    struct nsbx_spawn_report report = {0};
    close(report_pipe.write);
    CHECK_INT(read(report_pipe.read, &report, sizeof report), sizeof report);
    CHECK_INT(report.stage, NSBX_SPAWN_STAGE_PARENT);
    CHECK_INT(report.sys, ESRCH);
    close(report_pipe.read);
}

static void strangers_are_reaped_and_no_child_is(void)
{
    struct nsbx_child *child[2];
    struct result r[2] = {{0}, {0}};
    struct nsbx_err err;
    REQUIRE(prctl(PR_SET_CHILD_SUBREAPER, 1ul, 0ul, 0ul, 0ul) == 0);
    COMMAND(first, "exit", "11");
    REQUIRE(nsbx_child_start(loop, &first.spec, on_exit_cb, &r[0], &child[0], &err) == 0);
    COMMAND(second, "orphans", "sp-orphan", "5", "50");
    REQUIRE(nsbx_child_start(loop, &second.spec, on_exit_cb, &r[1], &child[1], &err) == 0);
    size_t strangers = 0;
    for (int i = 0; i < 400 && strangers < 5;
         i++) { /* the loop is not turned: both children are zombies in the way */
        poll(NULL, 0, 5);
        strangers += nsbx_reap_strangers();
    }
    CHECK_INT(strangers, 5);
    CHECK_INT(r[0].calls + r[1].calls, 0);
    CHECK(turn_until(&r[0].ended, 2000) && turn_until(&r[1].ended, 2000));
    CHECK(r[0].exit.known && r[1].exit.known);
    CHECK_INT(r[0].exit.code, 11);
    CHECK_INT(r[1].exit.code, 0);
    for (int i = 0; i < 2; i++)
        nsbx_child_close(child[i]);
    prctl(PR_SET_CHILD_SUBREAPER, 0ul, 0ul, 0ul, 0ul);
    CHECK_INT(nsbx_reap_strangers(), 0);
    CHECK(childless());
}

int main(void)
{
    setup(NSBX_SPAWN_HELPER);
    RUN(programs_that_are_none);
    RUN(specs_that_are_none);
    RUN(search_of_path);
    RUN(path_entries_of_any_length);
    RUN(busy_program);
    RUN(ends_with_its_parent);
    RUN(parent_that_died_before_it_was_asked_for);
    RUN(strangers_are_reaped_and_no_child_is);
    if (teardown() != 0)
        return 1;
    return harness_done();
}
