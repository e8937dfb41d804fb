#include "keeper_support.h"

#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* ---- ending trees ---- */

static void only_its_own_orphans_die(void)
{
    struct story a = {0}, b = {0};
    COMMAND(first, "orphans-stay", "kp-) R 1", "3");
    COMMAND(second, "orphans-stay", "kp-b", "3");
    REQUIRE(begin(&a, &first) && begin(&b, &second));
    CHECK(wait_alive("kp-) R 1", 4, 5000) && wait_alive("kp-b", 4, 5000));
    end(&a, 100);
    finish(&a);
    CHECK(a.tree_ended);
    CHECK_INT(a.exit.signal, SIGTERM);
    CHECK_INT(alive("kp-) R 1"), 0);
    CHECK_INT(alive("kp-b"), 4);
    CHECK(!b.leader_ended);
    end(&b, 0);
    finish(&b);
    CHECK_INT(b.exit.signal, SIGKILL);
    check_clean("kp-b");
}

static void background_processes_outlive_the_leader(void)
{
    struct story s = {0};
    COMMAND(c, "orphans", "kp-back", "2", "0");
    REQUIRE(begin(&s, &c));
    CHECK(turn_until(&s.leader_ended, 5000));
    CHECK_INT(s.exit.code, 0);
    turn_until(NULL, 100);
    CHECK(!s.over);
    CHECK_INT(alive("kp-back"), 2);
    end(&s, 5000);
    uint64_t before = nsbx_now_ms();
    CHECK(!turn_until(&s.over, 300)); /* TERM went to the leader's group, where they are not: the grace is theirs */
    end(&s, 0);
    finish(&s);
    CHECK(s.tree_ended && nsbx_now_ms() - before < 3000);
    check_clean("kp-back");
}

static void a_tree_ends_by_itself(void)
{
    struct story s = {0};
    COMMAND(c, "orphans", "kp-self", "4", "200");
    REQUIRE(begin(&s, &c));
    finish(&s);
    CHECK(s.tree_ended);
    CHECK(s.end_at - s.leader_at >= 100);
    check_clean("kp-self");
}

static void term_is_ignored(void)
{
    struct story s = {0};
    struct pipe_ends out = make_pipe();
    COMMAND(c, "stubborn", "kp-stub");
    map_fd(&c, out.write, 1);
    REQUIRE(begin(&s, &c));
    CHECK_INT(read_byte(out.read), 'r');
    uint64_t began = nsbx_now_ms();
    end(&s, 300);
    finish(&s);
    CHECK(s.end_at - began >= 300 && s.end_at - began < 3000);
    CHECK_INT(s.exit.signal, SIGKILL);
    read_all(out);
    check_clean("kp-stub");
}

static void the_grace_ends_early(void)
{
    struct story s = {0};
    COMMAND(c, "rest", "kp-early", "60000");
    REQUIRE(begin(&s, &c));
    CHECK(wait_alive("kp-early", 1, 5000));
    uint64_t began = nsbx_now_ms();
    end(&s, 15000);
    finish(&s);
    CHECK(s.end_at - began < 3000);
    CHECK_INT(s.exit.signal, SIGTERM);
    check_clean("kp-early");
}

static void a_grace_is_shortened_and_never_prolonged(void)
{
    struct story s = {0};
    struct pipe_ends out = make_pipe();
    COMMAND(c, "stubborn", "kp-short");
    map_fd(&c, out.write, 1);
    REQUIRE(begin(&s, &c));
    CHECK_INT(read_byte(out.read), 'r');
    uint64_t began = nsbx_now_ms();
    end(&s, 60000);
    turn_until(NULL, 50);
    end(&s, 200);
    end(&s, 60000);
    finish(&s);
    CHECK(s.end_at - began >= 200 && s.end_at - began < 5000);
    read_all(out);
    check_clean("kp-short");
}

static void a_stopped_command_uses_its_grace(void)
{
    struct story s = {0};
    COMMAND(c, "stop", "kp-stop");
    REQUIRE(begin(&s, &c));
    CHECK(wait_alive("kp-stop", 1, 5000));
    turn_until(NULL, 100);
    CHECK(!s.leader_ended); /* a stop is no end */
    uint64_t began = nsbx_now_ms();
    end(&s, 15000);
    finish(&s);
    CHECK(s.end_at - began < 3000);
    CHECK_INT(s.exit.signal, SIGTERM);

    struct story t = {0};
    REQUIRE(begin(&t, &c));
    CHECK(wait_alive("kp-stop", 1, 5000));
    end(&t, 0);
    finish(&t);
    CHECK_INT(t.exit.signal, SIGKILL);
    check_clean("kp-stop");
}

static void a_line_of_parents(void)
{
    struct story s = {0};
    COMMAND(c, "nest", "kp-nest", "60");
    REQUIRE(begin(&s, &c));
    CHECK(wait_alive("kp-nest", 61, 10000));
    end(&s, 0);
    finish(&s);
    CHECK(s.tree_ended);
    check_clean("kp-nest");
}

static void threads_without_their_first(void)
{
    struct story s = {0};
    COMMAND(c, "threads", "kp-thread");
    REQUIRE(begin(&s, &c));
    CHECK(turn_until(&s.started, 5000));
    turn_until(NULL, 100);
    CHECK(!s.leader_ended);
    end(&s, 0);
    finish(&s);
    CHECK_INT(s.exit.signal, SIGKILL);
    check_clean("kp-thread");
}

/* ---- hostile trees ---- */

static bool of_user(const struct proc_line *line, const void *arg)
{
    (void)line, (void)arg;
    return true;
}

/* As root: a user with no other process. As a plain user the limit counts all of his. */
static void limit_processes(struct command *c, rlim_t n)
{
    if (geteuid() == 0) {
        c->spec.drop = true;
        c->spec.uid = c->spec.gid = lone_user();
    } else
        n += (rlim_t)count_procs(of_user, NULL);
    limit(c, RLIMIT_NPROC, n);
}

static void end_bomb(const char *role)
{
    struct story s = {0};
    COMMAND(c, role, "kp-bomb");
    limit_processes(&c, 200);
    REQUIRE(begin(&s, &c));
    turn_until(NULL, 500);
    CHECK(alive("kp-bomb") > 50);
    uint64_t began = nsbx_now_ms();
    end(&s, 0);
    finish(&s);
    CHECK(s.tree_ended);
    printf("# %s of 200 ended in %" PRIu64 " ms\n", role, s.end_at - began);
    CHECK(s.end_at - began < 5000);
    check_clean("kp-bomb");
}

static void fork_bombs(void)
{
    end_bomb("bomb");
    end_bomb("relay");
}

/* The keeper has no memory to remember whom it met: it ends layer after layer. */
static void trees_without_a_table(void)
{
    static const char *const roles[][2] = {{"nest", "20"}, {"orphans-stay", "20"}, {"chain", "2"}};
    for (size_t i = 0; i < NSBX_LEN(roles); i++) {
        struct story s = {0};
        COMMAND(c, roles[i][0], "kp-table", roles[i][1]);
        limit_processes(&c, 60);
        REQUIRE(begin(&s, &c));
        CHECK(turn_until(&s.started, 5000));
        turn_until(NULL, 100);
        struct rlimit none = {1, 1};
        CHECK_INT(prlimit(nsbx_keeper_pid(s.keeper), RLIMIT_AS, &none, NULL), 0);
        uint64_t began = nsbx_now_ms();
        end(&s, 0);
        finish(&s);
        CHECK(s.tree_ended);
        printf("# %s without a table ended in %" PRIu64 " ms\n", roles[i][0], s.end_at - began);
        check_clean("kp-table");
    }
}

static void end_chain(const char *role, const char *width)
{
    struct story s = {0};
    COMMAND(c, role, "kp-chain", width);
    limit_processes(&c, 100);
    REQUIRE(begin(&s, &c));
    CHECK(turn_until(&s.leader_ended, 5000));
    turn_until(NULL, 100);
    CHECK(!s.over);
    uint64_t began = nsbx_now_ms();
    end(&s, 0);
    finish(&s);
    CHECK(s.tree_ended);
    printf("# %s %s ended in %" PRIu64 " ms\n", role, width, s.end_at - began);
    CHECK(s.end_at - began < 10000);
    check_clean("kp-chain");
}

static void chains_that_outrun_a_walk(void)
{
    end_chain("chain", "1");
    end_chain("chain", "8");
}

static void chains_that_change_their_session(void)
{
    end_chain("chain-sessions", "1");
    end_chain("chain-sessions", "8");
}

/* No zombie stays, whether the leader lives or has ended. */
static void five_hundred_orphans(const char *role)
{
    struct story s = {0};
    struct pipe_ends in = make_pipe();
    COMMAND(c, role, "kp-500", "500", "-1");
    map_fd(&c, in.read, 0);
    REQUIRE(begin(&s, &c));
    CHECK(turn_until(&s.started, 5000));
    pid_t keeper = nsbx_keeper_pid(s.keeper);
    bool leader_stays = strcmp(role, "orphans-stay") == 0;
    CHECK(wait_alive("kp-500", leader_stays ? 501 : 500, 20000));
    close(in.read);
    close(in.write); /* which ends them all */
    if (leader_stays) {
        CHECK(wait_alive("kp-500", 1, 20000));
        for (int i = 0; zombies_of(keeper) && i < 100; i++)
            turn_until(NULL, 10);
        CHECK_INT(zombies_of(keeper), 0);
        CHECK(!s.over);
        end(&s, 100);
    }
    finish(&s);
    CHECK(s.tree_ended);
    check_clean("kp-500");
}

static void five_hundred_orphans_beside_the_leader(void)
{
    five_hundred_orphans("orphans-stay");
}

static void five_hundred_orphans_after_the_leader(void)
{
    five_hundred_orphans("orphans");
}

/* Orphans that end while another one and the ended leader stay are reaped; the leader is not. */
static void zombies_beside_an_ended_leader(void)
{
    struct story s = {0};
    char script[512];
    snprintf(script, sizeof script, "%s orphans kp-stay 1; %s orphans kp-go 200 -1; exit 6", helper, helper);
    const char *const argv[] = {"sh", "-c", script, NULL};
    struct command c;
    command_init(&c, (const char *const[]){NULL});
    c.spec.file = "/bin/sh";
    c.spec.argv = argv;
    struct pipe_ends in = make_pipe();
    map_fd(&c, in.read, 0);
    REQUIRE(begin(&s, &c));
    CHECK(turn_until(&s.leader_ended, 20000));
    CHECK_INT(s.exit.code, 6);
    CHECK(wait_alive("kp-go", 200, 10000));
    close(in.read);
    close(in.write);
    CHECK(wait_alive("kp-go", 0, 10000));
    pid_t keeper = nsbx_keeper_pid(s.keeper);
    for (int i = 0; zombies_of(keeper) > 1 && i < 200; i++)
        turn_until(NULL, 10);
    CHECK_INT(zombies_of(keeper), 1);
    CHECK_INT(kill(s.leader, 0), 0);
    CHECK(!s.over);
    end(&s, 0);
    finish(&s);
    check_clean("kp-stay");
}

/* ---- a /proc that does not help ---- */

enum hiding { NO_PROC, HIDDEN_PROC, FOREIGN_PROC };

/* Before the fork of the first process of the new namespaces. */
static bool enter_namespaces(enum hiding how)
{
    static const int flags[] = {CLONE_NEWNS, CLONE_NEWNS | CLONE_NEWPID, CLONE_NEWPID};
    return unshare(flags[how] | (geteuid() != 0 ? CLONE_NEWUSER : 0)) == 0;
}

static bool hide_proc(enum hiding how)
{
    if (how == FOREIGN_PROC)
        return true;
    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    if (how == NO_PROC)
        return mount("none", "/proc", "tmpfs", 0, NULL) == 0;
    if (mount("proc", "/proc", "proc", 0, "hidepid=2") < 0)
        return false;
    /* Nothing is hidden from the capable. */
    uid_t user = lone_user();
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}, {0}};
    if (geteuid() == 0 && setresuid(user, user, user) < 0)
        return false;
    return syscall(SYS_capset, &head, none) == 0;
}

static void end_without_proc(const char *name)
{
    static const char *const env[] = {"NSBX_HIDE=1", NULL};
    struct nsbx_err err;
    struct story s = {0}, t = {0}, other = {0};
    if (nsbx_loop_new(&loop, &err))
        abort();
    COMMAND(bystander, "rest", "kp-by", "60000");
    REQUIRE(begin(&other, &bystander));
    COMMAND(c, "orphans-stay", name, "3");
    c.spec.envp = env;
    REQUIRE(begin(&s, &c));
    CHECK(wait_alive(name, 4, 5000));
    end(&s, 50);
    finish(&s);
    CHECK(s.tree_ended);
    CHECK_INT(alive(name), 0);
    COMMAND(nest, "nest", name, "3");
    nest.spec.envp = env;
    REQUIRE(begin(&t, &nest));
    CHECK(wait_alive(name, 4, 5000));
    uint64_t began = nsbx_now_ms();
    end(&t, 0);
    finish(&t);
    CHECK(t.tree_ended);
    printf("# %s: a line of 4 ended in %" PRIu64 " ms\n", name, t.end_at - began);
    CHECK_INT(alive(name), 0);
    CHECK_INT(alive("kp-by"), 1);
    end(&other, 0);
    finish(&other);
    nsbx_loop_free(loop);
}

static void in_a_namespace(enum hiding how, const char *name)
{
    proc_dir = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fflush(stdout);
    pid_t outer = fork();
    if (outer == 0) {
        if (!enter_namespaces(how))
            _exit(42);
        pid_t inner = fork(); /* the first of a new pid namespace */
        if (inner == 0) {
            if (!hide_proc(how))
                _exit(42);
            end_without_proc(name);
            fflush(NULL);
            _exit(harness_case_failed);
        }
        int status;
        waitpid(inner, &status, 0);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 43);
    }
    int status;
    CHECK_INT(waitpid(outer, &status, 0), outer);
    CHECK(WIFEXITED(status));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 42)
        fprintf(stderr, "this system lets nobody make the namespaces of this case\n");
    CHECK_INT(WEXITSTATUS(status), 0);
    close(proc_dir);
    proc_dir = -1;
}

static void without_proc(void)
{
    in_a_namespace(NO_PROC, "kp-noproc");
}

static void with_a_hiding_proc(void)
{
    in_a_namespace(HIDDEN_PROC, "kp-hidden");
}

static void with_a_foreign_proc(void)
{
    in_a_namespace(FOREIGN_PROC, "kp-foreign");
}

int main(void)
{
    setup(NSBX_SPAWN_HELPER);
    RUN(only_its_own_orphans_die);
    RUN(background_processes_outlive_the_leader);
    RUN(a_tree_ends_by_itself);
    RUN(term_is_ignored);
    RUN(the_grace_ends_early);
    RUN(a_grace_is_shortened_and_never_prolonged);
    RUN(a_stopped_command_uses_its_grace);
    RUN(a_line_of_parents);
    RUN(threads_without_their_first);
    RUN(fork_bombs);
    RUN(trees_without_a_table);
    RUN(chains_that_outrun_a_walk);
    RUN(chains_that_change_their_session);
    RUN(five_hundred_orphans_beside_the_leader);
    RUN(five_hundred_orphans_after_the_leader);
    RUN(zombies_beside_an_ended_leader);
    RUN(without_proc);
    RUN(with_a_hiding_proc);
    RUN(with_a_foreign_proc);
    if (teardown() != 0)
        return 1;
    return harness_done();
}
