/* The jail with openat2, and with kernels and filters that have none: the answers are the same. */
#include "harness.h"

#include "agent/jail.h"
#include "base/alloc.h"
#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static char base[64], root[96], outside[96];
static struct nsbx_jail *jail;

static const char *in(const char *folder, const char *name)
{
    static char path[8][8192];
    static unsigned at;
    char *out = path[at++ % 8];
    snprintf(out, sizeof path[0], "%s/%s", folder, name);
    return out;
}

static void put(const char *path, const char *text)
{
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0644);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

static void link_to(const char *target, const char *name)
{
    CHECK_INT(symlink(target, in(root, name)), 0);
}

/* What opening `path` for reading says: the file's text, or the fault's. */
static const char *content(const char *path)
{
    static char text[NSBX_FAULT_TEXT];
    struct nsbx_jail_place place;
    struct nsbx_fault fault = {0};
    if (nsbx_jail_locate(jail, NSBX_JAIL_READ, path, strlen(path), &place, &fault) != 0)
        return strcpy(text, fault.text);
    int fd = nsbx_jail_open(&place, O_RDONLY, &fault);
    if (fd < 0)
        return strcpy(text, fault.code ? fault.code : fault.text);
    ssize_t n = read(fd, text, sizeof text - 1);
    if (n < 0)
        strcpy(text, nsbx_errno_name(errno));
    else
        text[n] = '\0';
    close(fd);
    return text;
}

/* Where `path` would be written: "<folder below the root>|<name>|<exists>", or the fault. */
static const char *seat(const char *path, bool make)
{
    static char text[NSBX_FAULT_TEXT];
    char proc[64], folder[4096];
    struct nsbx_jail_place place;
    struct nsbx_jail_seat s;
    struct nsbx_fault fault = {0};
    if (nsbx_jail_locate(jail, NSBX_JAIL_WRITE, path, strlen(path), &place, &fault) != 0 ||
        nsbx_jail_seat(&place, make, &s, &fault) != 0)
        return strcpy(text, fault.code ? fault.code : fault.text);
    snprintf(proc, sizeof proc, "/proc/self/fd/%d", s.dir);
    ssize_t n = readlink(proc, folder, sizeof folder - 1);
    folder[n > 0 ? n : 0] = '\0';
    close(s.dir);
    const char *below = strncmp(folder, root, strlen(root)) == 0 ? folder + strlen(root) : "OUTSIDE";
    snprintf(text, sizeof text, "%.4000s|%s|%d", below, s.name, s.exists);
    return text;
}

static void make_tree(void)
{
    mkdir(root, 0755);
    mkdir(outside, 0755);
    mkdir(in(root, "d"), 0755);
    mkdir(in(root, "d/e"), 0755);
    put(in(root, "f"), "f");
    put(in(root, "d/e/g"), "g");
    put(in(outside, "secret"), "SECRET");
}

static void remove_tree(void)
{
    char command[512];
    snprintf(command, sizeof command, "rm -rf %s %s %s-alias", root, outside, root);
    CHECK_INT(system(command), 0);
}

#define ESCAPES "symlink escapes the workspace"

static void plain_paths(void)
{
    CHECK_STR(content("f"), "f");
    CHECK_STR(content("./d//e/../e/./g"), "g");
    CHECK_STR(content(in(root, "d/e/g")), "g");
    CHECK_STR(content("none"), "ENOENT");
    CHECK_STR(content("f/x"), "ENOTDIR");
    CHECK_STR(content("d"), "EISDIR");
    CHECK_STR(content(""), "invalid_path: the path is empty");
    CHECK_STR(content("../x"), "path escapes the workspace");
    CHECK_STR(content("/etc/passwd"), "path escapes the workspace");
    CHECK_STR(content(in(outside, "secret")), "path escapes the workspace");
    CHECK_STR(content(in(base, "jail-roof/f")), "path escapes the workspace"); /* a prefix of the name is no root */
}

static void links_that_stay(void)
{
    link_to("d/e/g", "rel");
    link_to(in(root, "d/e/g"), "abs");
    link_to(in(root, "/d/../d/./e//g"), "abs-odd");
    link_to("../../d/e/../../rel", "d/e/up");
    link_to(in(root, ""), "self");
    link_to(in(root, "d"), "dir");
    link_to(".", "here");
    CHECK_STR(content("rel"), "g");
    CHECK_STR(content("abs"), "g");
    CHECK_STR(content("abs-odd"), "g");
    CHECK_STR(content("d/e/up"), "g");
    CHECK_STR(content("self/self/abs"), "g");
    CHECK_STR(content("dir/e/g"), "g");
    CHECK_STR(content("here/here/dir/e/up"), "g");
    CHECK_STR(content("self"), "EISDIR");
    CHECK_STR(seat("rel", false), "/d/e|g|1");
    CHECK_STR(seat("abs", false), "/d/e|g|1");
    CHECK_STR(seat("dir/new", false), "/d|new|0");
    CHECK_STR(seat("self", false), "|.|1");
}

static void links_that_leave(void)
{
    link_to(in(outside, "secret"), "abs");
    link_to("../outside/secret", "rel");
    link_to("..", "up");
    link_to("/", "slash");
    link_to(outside, "dir");
    link_to("../../outside/secret", "d/far");
    link_to(in(root, "../outside/secret"), "absback");
    link_to("d/../../jail/f", "roundabout");
    link_to("/proc/self/root/etc/passwd", "proc");
    static const char *const paths[] = {"abs",
                                        "rel",
                                        "up/outside/secret",
                                        "slash/etc/passwd",
                                        "dir/secret",
                                        "d/far",
                                        "absback",
                                        "roundabout",
                                        "proc",
                                        "dir",
                                        "up"};
    for (size_t i = 0; i < NSBX_LEN(paths); i++) {
        CHECK_STR(content(paths[i]), ESCAPES);
        CHECK_STR(seat(paths[i], false), ESCAPES);
        CHECK_STR(seat(paths[i], true), ESCAPES);
    }
    CHECK_STR(seat("dir/new", true), ESCAPES);
    CHECK_STR(seat("dir/new/deeper", true), ESCAPES);
    CHECK(access(in(outside, "new"), F_OK) != 0);
}

static void loops_and_lengths(void)
{
    char name[32], target[32];
    link_to("loop", "loop");
    link_to("b", "a");
    link_to("a", "b");
    CHECK_STR(content("loop"), "ELOOP");
    CHECK_STR(content("a/x"), "ELOOP");
    CHECK_STR(seat("a", false), "ELOOP");
    link_to("f", "l0");
    for (int i = 1; i <= NSBX_JAIL_MAX_LINKS; i++) {
        snprintf(name, sizeof name, "l%d", i);
        snprintf(target, sizeof target, "l%d", i - 1);
        link_to(i == 20 ? in(root, target) : target, name); /* one that openat2 does not follow */
    }
    CHECK_STR(content("l39"), "f");
    CHECK_STR(content("l40"), "ELOOP");
    CHECK_STR(seat("l39", false), "|f|1");
    CHECK_STR(seat("l40", false), "ELOOP");

    /* A link that goes up and down as often as its text can say, several times over. */
    static char long_target[3000];
    for (size_t i = 0; i + 8 < sizeof long_target; i += 7)
        memcpy(long_target + i, "d/e/../", 7);
    memset(long_target + 2800, '\0', 200);
    CHECK_INT(symlink(long_target, in(root, "winding")), 0);
    CHECK_STR(content("winding/e/winding"), "ENOENT");
    static char giant[5000];
    memset(giant, 'x', sizeof giant - 1);
    CHECK(strncmp(content(giant), "ENAMETOOLONG: ", 14) == 0); /* too long for any path */
    giant[300] = '\0';
    CHECK_STR(content(giant), "ENAMETOOLONG");
    CHECK_STR(seat(giant, true), "ENAMETOOLONG");
}

static void missing_ones(void)
{
    link_to("nothing", "dangling");
    link_to("nothing/below", "dangling2");
    link_to("d/none", "dangling3");
    CHECK_STR(content("dangling"), "ENOENT");
    CHECK_STR(seat("dangling", false), "|dangling|1"); /* a file of its own */
    CHECK_STR(seat("dangling2", true), "|dangling2|1");
    CHECK_STR(seat("dangling3", true), "|dangling3|1");
    CHECK_STR(seat("none/x", false), "ENOENT");
    CHECK_STR(seat("new/deep/x", true), "/new/deep|x|0");
    CHECK_STR(seat("dangling/x", true), "ENOENT"); /* nobody makes what a link promises */
    CHECK(access(in(root, "nothing"), F_OK) != 0);
    link_to(in(root, "d"), "dir");
    CHECK_STR(seat("dir/made/x", true), "/d/made|x|0");
    CHECK_STR(seat("f/x", true), "ENOTDIR");
    CHECK_STR(seat("f", true), "|f|1");
}

static void what_blocks(void)
{
    CHECK_INT(mkfifo(in(root, "fifo"), 0600), 0);
    struct nsbx_jail_place place;
    struct nsbx_fault fault;
    alarm(5); /* would end the test */
    REQUIRE(nsbx_jail_locate(jail, NSBX_JAIL_READ, "fifo", 4, &place, &fault) == 0);
    int fd = nsbx_jail_open(&place, O_RDONLY, &fault);
    CHECK(fd >= 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    close(fd);
    alarm(0);
}

static void a_root_that_comes_and_goes(void)
{
    CHECK_STR(content("f"), "f");
    remove_tree();
    CHECK_STR(content("f"), "ENOENT");
    CHECK_STR(seat("x", false), "ENOENT");
    CHECK_STR(seat("x", true), "|x|0"); /* the root is made */
    put(in(root, "f"), "new");
    CHECK_STR(content("f"), "new");
    int fd = nsbx_jail_cwd(jail, "");
    CHECK(fd >= 0);
    close(fd);
    fd = nsbx_jail_cwd(jail, in(root, "made/deep"));
    CHECK(fd >= 0 && access(in(root, "made/deep"), F_OK) == 0);
    close(fd);
    CHECK_INT(nsbx_jail_cwd(jail, in(root, "f/x")), -ENOTDIR);
    CHECK_INT(nsbx_jail_cwd(jail, in(root, "f")), -ENOTDIR);
}

/* The root is a link itself: its own name and that of what it leads to are both inside. */
static void a_root_with_two_names(void)
{
    char alias[128], roots[512];
    snprintf(alias, sizeof alias, "%s-alias", root);
    REQUIRE(symlink(root, alias) == 0);
    link_to(in(root, "f"), "by-real");
    link_to(in(alias, "f"), "by-alias");
    struct nsbx_jail *before = jail;
    snprintf(roots, sizeof roots, ": %s ::relative:%s:", outside, outside);
    REQUIRE(nsbx_jail_new(&jail, alias, roots, NULL, NULL) == 0);
    CHECK_STR(nsbx_jail_workspace(jail), alias);
    CHECK_STR(content("by-real"), "f");
    CHECK_STR(content("by-alias"), "f");
    CHECK_STR(content(in(outside, "secret")), "SECRET");
    CHECK_STR(content("../outside/secret"), "path escapes the workspace"); /* a relative path is the workspace's */
    CHECK_STR(seat(in(outside, "x"), false), "path escapes the workspace");
    nsbx_jail_free(jail);
    jail = before;
    CHECK_STR(content("by-alias"), ESCAPES);
}

static void the_whole_system_as_root(void)
{
    struct nsbx_jail *before = jail;
    REQUIRE(nsbx_jail_new(&jail, "/", NULL, NULL, NULL) == 0);
    link_to("/", "slash");
    link_to("../../../../../../../../../etc", "etc");
    CHECK_STR(content(in(root, "f")), "f");
    CHECK_STR(content(in(in(root, "slash"), in(root, "f") + 1)), "f");
    CHECK_STR(content(in(root, "etc/passwd")), ESCAPES); /* above the root is outside of it */
    CHECK_STR(content("/none"), "ENOENT");
    nsbx_jail_free(jail);
    jail = before;
}

static void no_memory(void)
{
    struct nsbx_jail *other = NULL;
    struct nsbx_err err;
    for (unsigned long n = 1; n <= 3; n++) {
        nsbx_alloc_fail_at(n);
        int rc = nsbx_jail_new(&other, root, outside, NULL, &err);
        nsbx_alloc_fail_at(0);
        CHECK(rc != 0 && err.sys == ENOMEM);
    }
    CHECK_INT(nsbx_jail_new(&other, root, outside, NULL, &err), 0);
    nsbx_jail_free(other);
}

static void case_of(void (*body)(void))
{
    make_tree();
    REQUIRE(nsbx_jail_new(&jail, root, NULL, NULL, NULL) == 0);
    CHECK_STR(content("f"), "f");
    int before = count_fds();
    body();
    CHECK_INT(count_fds(), before);
    nsbx_jail_free(jail);
    remove_tree();
}

#define CASE(name)                                                                                                 \
    static void name##_case(void)                                                                                  \
    {                                                                                                              \
        case_of(name);                                                                                             \
    }
CASE(plain_paths)
CASE(links_that_stay)
CASE(links_that_leave)
CASE(loops_and_lengths)
CASE(missing_ones)
CASE(what_blocks)
CASE(a_root_that_comes_and_goes)
CASE(a_root_with_two_names)
CASE(the_whole_system_as_root)
CASE(no_memory)

static void all(void)
{
    RUN(plain_paths_case);
    RUN(links_that_stay_case);
    RUN(links_that_leave_case);
    RUN(loops_and_lengths_case);
    RUN(missing_ones_case);
    RUN(what_blocks_case);
    RUN(a_root_that_comes_and_goes_case);
    RUN(a_root_with_two_names_case);
    RUN(the_whole_system_as_root_case);
    RUN(no_memory_case);
}

/* From here on openat2 fails with `sys` in this process; a later call wins over an earlier one. */
static void without_openat2(int sys)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)sys),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {NSBX_LEN(code), code};
    CHECK_INT(prctl(PR_SET_NO_NEW_PRIVS, 1L, 0L, 0L, 0L), 0);
    CHECK_INT(prctl(PR_SET_SECCOMP, (long)SECCOMP_MODE_FILTER, &program), 0);
    CHECK_INT(syscall(SYS_openat2, -1, "", NULL, 0), -1);
    CHECK_INT(errno, sys);
}
static void without_it_in_the_kernel(void)
{
    without_openat2(ENOSYS);
}
static void without_it_in_the_filter(void)
{
    without_openat2(EPERM);
}

int main(void)
{
    strcpy(base, "/tmp/nsbx-jail-XXXXXX");
    if (!mkdtemp(base))
        return 1;
    snprintf(root, sizeof root, "%s/jail", base);
    snprintf(outside, sizeof outside, "%s/outside", base);
    all();
    RUN(without_it_in_the_kernel);
    all();
    RUN(without_it_in_the_filter);
    all();
    rmdir(base);
    return harness_done();
}
