/* Where local sandboxes live on the host: removing hostile trees, and telling the dead from the living. */
#include "harness.h"

#include "local/place.h"
#include "local/rmtree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char scratch[64]; /* a fresh directory, the test's TMPDIR */

static bool exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static void make_file(const char *path)
{
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, "x", 1) == 1);
    close(fd);
}

static char *at(const char *name)
{
    static char path[4][512];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", scratch, name);
    return path[turn];
}

static int open_scratch(void)
{
    return open(scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void links_are_removed_and_never_followed(void)
{
    CHECK(mkdir(at("outside"), 0755) == 0 && mkdir(at("tree"), 0755) == 0 && mkdir(at("tree/sub"), 0755) == 0);
    make_file(at("outside/precious"));
    CHECK(symlink(at("outside"), at("tree/dir-link")) == 0);
    CHECK(symlink(at("outside/precious"), at("tree/sub/file-link")) == 0);
    CHECK(symlink("..", at("tree/up")) == 0);
    CHECK(mkfifo(at("tree/fifo"), 0600) == 0);
    int fd = open_scratch();
    struct nsbx_err err = {0};
    CHECK_INT(nsbx_rmtree(fd, "tree", &err), 0);
    CHECK(!exists(at("tree")));
    CHECK(exists(at("outside/precious")));
    CHECK_INT(nsbx_rmtree(fd, "tree", &err), 0); /* a missing one is fine */
    CHECK(symlink(at("outside"), at("tree")) == 0);
    CHECK_INT(nsbx_rmtree(fd, "tree", &err), 0); /* a link in its place goes, its target stays */
    CHECK(!exists(at("tree")) && exists(at("outside/precious")));
    CHECK_INT(nsbx_rmtree(fd, "outside", &err), 0);
    close(fd);
}

static void any_depth_takes_bounded_descriptors(void)
{
    CHECK(mkdir(at("deep"), 0755) == 0);
    int fd = open(at("deep"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < 3000; i++) {
        char name[32];
        snprintf(name, sizeof name, "side-%d", i);
        CHECK(mkdirat(fd, name, 0755) == 0 && mkdirat(fd, "d", 0755) == 0);
        int next = openat(fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(fd);
        REQUIRE(next >= 0);
        fd = next;
    }
    close(fd);
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit few = {128, 128};
        setrlimit(RLIMIT_NOFILE, &few);
        struct nsbx_err err = {0};
        int rc = nsbx_rmtree(open_scratch(), "deep", &err);
        if (rc < 0)
            fprintf(stderr, "%s\n", err.message);
        _exit(rc == 0 ? 0 : 1);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
    CHECK(!exists(at("deep")));
}

/* In a child under a plain uid, for which mode 0 means something. */
static void directories_without_permissions_go_too(void)
{
    CHECK(chmod(scratch, 0777) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (geteuid() == 0 && setresuid(12345, 12345, 12345) != 0)
            _exit(2);
        if (mkdir(at("shut"), 0755) < 0 || mkdir(at("shut/a"), 0755) < 0 || mkdir(at("shut/a/b"), 0755) < 0)
            _exit(3);
        make_file(at("shut/a/b/f"));
        if (chmod(at("shut/a/b"), 0) < 0 || chmod(at("shut/a"), 0500) < 0 || chmod(at("shut"), 0) < 0)
            _exit(4);
        struct nsbx_err err = {0};
        int rc = nsbx_rmtree(open_scratch(), "shut", &err);
        if (rc < 0)
            fprintf(stderr, "%s\n", err.message);
        _exit(rc == 0 ? 0 : 1);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
    CHECK(!exists(at("shut")));
    CHECK(chmod(scratch, 0700) == 0);
}

static void what_cannot_be_removed_is_named(void)
{
    struct nsbx_err err = {0};
    int fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(nsbx_rmtree(fd, "self", &err) < 0);
    CHECK(strstr(err.message, "self") != NULL);
    close(fd);
}

static int count_entries(const char *prefix)
{
    char base[256];
    snprintf(base, sizeof base, "%s/nsbx-%ld", scratch, (long)geteuid());
    DIR *dir = opendir(base);
    int n = 0;
    for (struct dirent *e; dir && (e = readdir(dir));)
        n += strncmp(e->d_name, prefix, strlen(prefix)) == 0;
    if (dir)
        closedir(dir);
    return n;
}

static void the_next_create_sweeps_the_dead_and_spares_the_living(void)
{
    setenv("TMPDIR", scratch, 1);
    int ready[2];
    CHECK(pipe(ready) == 0);
    pid_t pids[2];
    for (int i = 0; i < 2; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            struct nsbx_place p;
            struct nsbx_err err = {0};
            if (nsbx_place_open(&p, &err) < 0) {
                fprintf(stderr, "%s\n", err.message);
                _exit(1);
            }
            if (mkdirat(p.dir_fd, "workspace", 0700) < 0 || write(ready[1], "x", 1) != 1)
                _exit(1);
            for (;;)
                pause();
        }
    }
    char c;
    CHECK(read(ready[0], &c, 1) == 1);
    CHECK(read(ready[0], &c, 1) == 1);
    CHECK_INT(count_entries("local-"), 2);
    CHECK(kill(pids[0], SIGKILL) == 0 && waitpid(pids[0], NULL, 0) == pids[0]);

    struct nsbx_place p;
    struct nsbx_err err = {0};
    CHECK_INT(nsbx_place_open(&p, &err), 0);
    CHECK_INT(count_entries("local-"), 2); /* the living one and ours */
    CHECK_INT(count_entries("dead-"), 1);
    CHECK_INT(nsbx_place_sweep(p.base_fd, &err), 0);
    CHECK_INT(count_entries("dead-"), 0);
    CHECK_INT(nsbx_place_remove(&p, &err), 0);
    nsbx_place_close(&p);
    CHECK_INT(count_entries("local-"), 1);

    CHECK(kill(pids[1], SIGKILL) == 0 && waitpid(pids[1], NULL, 0) == pids[1]);
    CHECK_INT(nsbx_place_open(&p, &err), 0);
    CHECK_INT(nsbx_place_sweep(p.base_fd, &err), 0);
    CHECK_INT(nsbx_place_remove(&p, &err), 0);
    nsbx_place_close(&p);
    CHECK_INT(count_entries("local-"), 0);
    close(ready[0]);
    close(ready[1]);
}

static void a_prepared_base_is_refused(void)
{
    struct nsbx_place p;
    struct nsbx_err err = {0};
    char base[256];
    snprintf(base, sizeof base, "%s/nsbx-%ld", scratch, (long)geteuid());
    setenv("TMPDIR", scratch, 1);
    rmdir(base);
    CHECK(mkdir(base, 0777) == 0 && chmod(base, 0777) == 0);
    CHECK_INT(nsbx_place_open(&p, &err), -NSBX_E_FORBIDDEN);
    CHECK(strstr(err.message, base) && strstr(err.message, "TMPDIR"));
    CHECK(rmdir(base) == 0);
    CHECK(symlink("/tmp", base) == 0);
    CHECK(nsbx_place_open(&p, &err) < 0);
    CHECK(unlink(base) == 0);
    make_file(base);
    CHECK(nsbx_place_open(&p, &err) < 0);
    CHECK(unlink(base) == 0);
    setenv("TMPDIR", at("missing"), 1);
    CHECK(nsbx_place_open(&p, &err) < 0);
    CHECK(strstr(err.message, "TMPDIR") != NULL);
    setenv("TMPDIR", scratch, 1);
}

int main(void)
{
    strcpy(scratch, "/tmp/nsbx-place-XXXXXX");
    if (!mkdtemp(scratch))
        return 2;
    int before = count_fds();
    RUN(links_are_removed_and_never_followed);
    RUN(any_depth_takes_bounded_descriptors);
    RUN(directories_without_permissions_go_too);
    RUN(what_cannot_be_removed_is_named);
    RUN(a_prepared_base_is_refused);
    RUN(the_next_create_sweeps_the_dead_and_spares_the_living);
    CHECK_INT(count_fds(), before);
    harness_failed += harness_case_failed;
    char base[128];
    snprintf(base, sizeof base, "%s/nsbx-%ld", scratch, (long)geteuid());
    rmdir(base);
    if (rmdir(scratch) < 0)
        perror(scratch);
    return harness_done();
}
