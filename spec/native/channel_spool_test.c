/* Bodies that are too large for memory, on the guest's end. */
#include "channel_guest_rig.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* ---- large bodies ---- */

static char dir[] = "/tmp/nsbx-channel-XXXXXX";

static void write_body(struct raw *host, size_t n)
{
    static const char before[] = "{\"op\":\"write-file\",\"body\":{\"encoding\":\"base64\",\"content\":\"",
                      after[] = "\"}}";
    uint8_t raw[48 * 1024];
    char letters[64 * 1024];
    char header[16];
    snprintf(header, sizeof(header), "%08zx\n", strlen(before) + nsbx_base64_len(n) + strlen(after));
    raw_write(host, header, 9);
    raw_write(host, before, strlen(before));
    for (size_t at = 0; at < n; at += sizeof(raw)) {
        size_t piece = NSBX_MIN(sizeof(raw), n - at);
        fill(raw, piece, at);
        raw_write(host, letters, nsbx_base64_encode(letters, raw, piece));
    }
    raw_write(host, after, strlen(after));
}

static void count(struct heard *h, char what)
{
    if (what == 'o')
        h->count_only = true;
    answer(h, what);
}

static void body_of(size_t n, int dir_fd, const char *reply)
{
    struct raw host;
    channel_rig_open();
    rig.serve = count;
    rig.config.spool_dir_fd = dir_fd;
    rig_serve();
    rig_connect(&host);
    write_body(&host, n);
    TURN_UNTIL(raw_over(&host), 20000);
    CHECK_STR(text_of(&host.got), framed(reply));
    CHECK(!host.error);
    if (strcmp(reply, OK_FRAME) == 0) {
        CHECK_INT(rig.served[0]->bytes, n);
        CHECK_INT(rig.served[0]->wrong, 0);
    } else {
        CHECK_INT(rig.n_served, 0);
    }
    raw_free(&host);
    channel_rig_close();
}

static size_t names_in(int dir_fd)
{
    size_t n = 0;
    DIR *d = fdopendir(openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

static void a_body_is_spooled_beyond_what_memory_may_hold(void)
{
    static const size_t letters[] = {NSBX_SPOOL_MEMORY, NSBX_SPOOL_MEMORY + 4, 5 << 20, 16 << 20};
    int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < NSBX_LEN(letters); i++)
        body_of(letters[i] / 4 * 3, dir_fd, OK_FRAME);
    CHECK_INT(names_in(dir_fd), 0);
    close(dir_fd);
}

static void without_a_directory_a_large_body_is_refused(void)
{
    body_of(NSBX_SPOOL_MEMORY / 4 * 3, -1, OK_FRAME);
    body_of(3 << 20, -1,
            REFUSED("body_too_large: more than 1048576 bytes, and there is no directory for the rest"));
}

/* A large body replayed to an operation that takes its time, and to one that goes away in the middle. */
static void a_spooled_body_waits_for_its_reader(void)
{
    struct raw host;
    int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int leave = 0; leave < 2; leave++) {
        channel_rig_open();
        rig.config.spool_dir_fd = dir_fd;
        rig_serve();
        rig_connect(&host);
        write_body(&host, 6 << 20);
        TURN_UNTIL(rig.n_served, 10000);
        struct heard *h = rig.served[0];
        h->keep = h->count_only = true;
        turn_for(100);
        CHECK(h->bytes > NSBX_CHANNEL_WINDOW);
        CHECK(h->bytes <= NSBX_CHANNEL_WINDOW + NSBX_STREAM_READ_CHUNK);
        if (leave) {
            heard_close(h);
            TURN_UNTIL(raw_over(&host), 10000);
        } else {
            h->keep = false;
            nsbx_channel_consumed(h->ch, h->bytes);
            TURN_UNTIL(h->ends, 10000);
            CHECK_INT(h->bytes, 6 << 20);
            CHECK_INT(h->wrong, 0);
        }
        raw_free(&host);
        turn_for(5);
        channel_rig_close();
    }
    close(dir_fd);
}

static void a_host_may_leave_while_its_body_is_spooled(void)
{
    int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int turns = 0; turns < 40; turns += 3) {
        struct raw host;
        channel_rig_open();
        rig.config.spool_dir_fd = dir_fd;
        rig_serve();
        rig_connect(&host);
        write_body(&host, 3 << 20);
        for (int i = 0; i < turns; i++)
            nsbx_loop_turn(loop, NSBX_TURN_POLL);
        raw_free(&host);
        TURN_UNTIL(nsbx_single_connections(rig.server) == 0 || rig.n_served, 10000);
        turn_for(5);
        channel_rig_close();
    }
    close(dir_fd);
}

/* In a child: the limit stays with it. */
static int in_child(void (*fn)(void))
{
    pid_t pid = fork();
    if (pid == 0) {
        harness_case_failed = 0;
        fn();
        fflush(NULL);
        _exit(harness_case_failed);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void write_beyond_the_file_limit(void)
{
    int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const struct rlimit limit = {2 << 20, 2 << 20};
    signal(SIGXFSZ, SIG_IGN);
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
    body_of(6 << 20, dir_fd, "{\"ok\":false,\"error\":\"EFBIG: file too large, write\",\"code\":\"EFBIG\"}");
    body_of(300, dir_fd, OK_FRAME);
    close(dir_fd);
}

/* A user without an entry in the map owns no file there. */
static int map_own_id(const char *map, unsigned id)
{
    int fd = open(map, O_WRONLY | O_CLOEXEC);
    int rc = fd < 0 || dprintf(fd, "%u %u 1\n", id, id) < 0 ? -1 : 0;
    close(fd);
    return rc;
}

static int own_mounts(void)
{
    unsigned uid = geteuid(), gid = getegid();
    if (uid == 0)
        return unshare(CLONE_NEWNS);
    if (unshare(CLONE_NEWNS | CLONE_NEWUSER) != 0)
        return -1;
    int fd = open("/proc/self/setgroups", O_WRONLY | O_CLOEXEC);
    int rc = fd < 0 || write(fd, "deny", 4) != 4 ? -1 : 0;
    close(fd);
    return rc || map_own_id("/proc/self/uid_map", uid) ? -1 : map_own_id("/proc/self/gid_map", gid);
}

static void write_to_a_full_disk(void)
{
    if (own_mounts() != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", dir, "tmpfs", 0, "size=2m") != 0)
        _exit(77);
    int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    body_of(6 << 20, dir_fd,
            "{\"ok\":false,\"error\":\"ENOSPC: no space left on device, write\",\"code\":\"ENOSPC\"}");
    body_of(1 << 20, dir_fd, OK_FRAME); /* the space is free again */
    close(dir_fd);
}

static void a_body_that_cannot_be_kept_is_refused_with_the_reason(void)
{
    CHECK_INT(in_child(write_beyond_the_file_limit), 0);
    int rc = in_child(write_to_a_full_disk);
    CHECK(rc == 0 || rc == 77);
    if (rc == 77)
        printf("SKIP a full disk: no mount namespace here\n");
}

int main(void)
{
    rig_open(); /* libuv's process-wide descriptors are made by the first loop */
    nsbx_loop_free(loop);
    if (!mkdtemp(dir))
        return 1;
    RUN(a_body_that_cannot_be_kept_is_refused_with_the_reason); /* forks: before there are threads */
    RUN(a_body_is_spooled_beyond_what_memory_may_hold);
    RUN(without_a_directory_a_large_body_is_refused);
    RUN(a_spooled_body_waits_for_its_reader);
    RUN(a_host_may_leave_while_its_body_is_spooled);
    rmdir(dir);
    return harness_done();
}
