/* What a guest's end costs in memory, measured in a process of its own while the host is another one: its largest resident set, or, where
 * a sanitizer makes that one useless, the largest heap seen between two turns of the loop. */
#include "channel_rig.h"

#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifdef SANITIZED
size_t __sanitizer_get_current_allocated_bytes(void);
#endif

#define TOKEN "the token"
static char dir[] = "/tmp/nsbx-memory-XXXXXX";

/* ---- measuring ---- */

static size_t peak_heap;

static void look_at_heap(void)
{
#ifdef SANITIZED
    peak_heap = NSBX_MAX(peak_heap, __sanitizer_get_current_allocated_bytes());
#endif
}

/* Bytes, since the last forget_peak. */
static size_t peak(void)
{
#ifdef SANITIZED
    return peak_heap;
#else
    char line[256];
    size_t kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "VmHWM: %zu", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib * 1024;
#endif
}

static void forget_peak(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "we");
    if (f) {
        fputs("5", f);
        fclose(f);
    }
    peak_heap = 0;
    look_at_heap();
}

/* ---- the guest, in the child ---- */

static void count(struct heard *h, char what)
{
    if (what == 'o')
        h->count_only = true;
    if (what == 'f')
        heard_close(h);
    if (what != 'e')
        return;
    CHECK_INT(h->wrong, 0);
    CHECK_INT(heard_send(h, json_pack("{s:b,s:I}", "ok", 1, "bytesWritten", (json_int_t)h->bytes)), 0);
    CHECK_INT(heard_finish(h), 0);
    heard_close(h);
}

/* Serves these connections to their end and says how much it took. */
static size_t serve_all(const int *fds, size_t n, const char *token, bool growth)
{
    void (*serve)(struct heard * h, char what) = rig.serve ? rig.serve : count;
    struct nsbx_err err;
    rig_open(); /* libuv's process-wide descriptors are made by the first loop */
    nsbx_loop_free(loop);
    channel_rig_open();
    fds_before -= (int)n; /* these go with their connections */
    rig.serve = serve;
    rig.config.bind_token = token;
    rig.config.preauth_idle_ms = rig.config.preauth_deadline_ms = 60000;
    rig.config.spool_dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    rig_serve();
    forget_peak();
    size_t before = growth ? peak() : 0;
    for (size_t i = 0; i < n; i++) {
        struct nsbx_stream *stream;
        if (nsbx_stream_from_fd(loop, fds[i], &stream, &err) != 0)
            abort();
        nsbx_single_serve(rig.server, stream);
    }
    while (nsbx_single_connections(rig.server)) {
        nsbx_loop_turn(loop, NSBX_TURN_WAIT);
        look_at_heap();
    }
    size_t took = peak() - before;
    close(rig.config.spool_dir_fd);
    channel_rig_close();
    return took;
}

/* The child's figure, when `host` has done its part with the other ends. */
static size_t in_child(size_t n, const char *token, bool growth, void (*host)(const int *fds, size_t n))
{
    int ours[NSBX_MAX_PREAUTH_CONNECTIONS], theirs[NSBX_MAX_PREAUTH_CONNECTIONS], result[2];
    if (pipe2(result, O_CLOEXEC) != 0)
        abort();
    for (size_t i = 0; i < n; i++) {
        int fds[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
            abort();
        ours[i] = fds[0];
        theirs[i] = fds[1];
    }
    pid_t pid = fork();
    if (pid == 0) {
        for (size_t i = 0; i < n; i++)
            close(ours[i]);
        harness_case_failed = 0;
        close(result[0]);
        size_t took = serve_all(theirs, n, token, growth);
        if (write(result[1], &took, sizeof(took)) != sizeof(took))
            _exit(2);
        _exit(harness_case_failed);
    }
    for (size_t i = 0; i < n; i++)
        close(theirs[i]);
    close(result[1]);
    host(ours, n);
    for (size_t i = 0; i < n; i++)
        close(ours[i]);
    size_t took = 0;
    CHECK_INT(read(result[0], &took, sizeof(took)), sizeof(took));
    close(result[0]);
    int status;
    waitpid(pid, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return took;
}

/* ---- a body as large as a frame may be ---- */

static void write_all(int fd, const char *bytes, size_t n)
{
    while (n) {
        ssize_t put = send(fd, bytes, n, MSG_NOSIGNAL);
        if (put <= 0)
            return;
        bytes += put;
        n -= (size_t)put;
    }
}

static void write_largest_body(const int *fds, size_t n)
{
    static const char before[] = "{\"op\":\"write-file\",\"body\":{\"encoding\":\"base64\",\"content\":\"",
                      after[] = "\"}}";
    size_t letters = (NSBX_MAX_FRAME - strlen(before) - strlen(after)) / 4 * 4, bytes = letters / 4 * 3;
    static uint8_t raw[48 * 1024];
    static char text[64 * 1024];
    char header[16], reply[256];
    (void)n;
    snprintf(header, sizeof(header), "%08zx\n", strlen(before) + letters + strlen(after));
    write_all(fds[0], header, 9);
    write_all(fds[0], before, strlen(before));
    for (size_t at = 0; at < bytes; at += sizeof(raw)) {
        size_t piece = NSBX_MIN(sizeof(raw), bytes - at);
        fill(raw, piece, at);
        write_all(fds[0], text, nsbx_base64_encode(text, raw, piece));
    }
    write_all(fds[0], after, strlen(after));
    ssize_t got = recv(fds[0], reply, sizeof(reply) - 1, 0);
    char want[64];
    snprintf(want, sizeof(want), "{\"ok\":true,\"bytesWritten\":%zu}", bytes);
    CHECK(got > 9);
    reply[got > 0 ? got : 0] = 0;
    CHECK_STR(got > 9 ? reply + 9 : "", want);
}

static void the_largest_body_costs_four_megabytes_at_most(void)
{
    size_t took = in_child(1, NULL, true, write_largest_body);
    fprintf(stderr, "a body of 256 MiB: %.2f MiB\n", (double)took / (1 << 20));
    CHECK(took <= 4 << 20);
}

/* ---- hostile peers ---- */

static const char *hostile_start, *hostile_more;

/* Every peer sends as much of its frame as the guest takes. */
static void send_hostile_frames(const int *fds, size_t n)
{
    size_t sent[NSBX_MAX_PREAUTH_CONNECTIONS] = {0}, len = strlen(hostile_more), block_len = 64 * 1024 / len * len;
    struct pollfd polled[NSBX_MAX_PREAUTH_CONNECTIONS];
    char *block = malloc(block_len);
    for (size_t i = 0; i < block_len; i++)
        block[i] = hostile_more[i % len];
    for (size_t i = 0; i < n; i++) {
        polled[i] = (struct pollfd){.fd = fds[i], .events = POLLOUT};
        write_all(fds[i], "00800000\n", 9);
        write_all(fds[i], hostile_start, strlen(hostile_start));
        sent[i] = strlen(hostile_start);
    }
    while (poll(polled, n, 500) > 0)
        for (size_t i = 0; i < n; i++) {
            size_t left = NSBX_MAX_PREAUTH_FRAME - 1 - sent[i];
            ssize_t put =
                polled[i].revents ? send(fds[i], block, NSBX_MIN(left, block_len), MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
            sent[i] += put > 0 ? (size_t)put : 0;
            if ((put < 0 && errno != EAGAIN) || left == 0)
                polled[i].fd = -1;
        }
    free(block);
}

static void hostile_peers(const char *start, const char *more)
{
    hostile_start = start;
    hostile_more = more;
    size_t took = in_child(NSBX_MAX_PREAUTH_CONNECTIONS, TOKEN, false, send_hostile_frames);
    fprintf(stderr, "64 peers with %s%s: %.2f MiB in all\n", start, more, (double)took / (1 << 20));
    CHECK(took <= 40 << 20);
}

static void hostile_peers_cost_forty_megabytes_at_most(void)
{
    hostile_peers("", " ");
    hostile_peers("{\"op\":\"walk\",\"body\":[", "[],");
    hostile_peers("{\"op\":\"write-file\",\"body\":{\"content\":\"", "aaaa");
    hostile_peers("{\"op\":\"", "\xff");
    hostile_peers("{\"token\":\"", "t");
    hostile_peers("{\"a\":[", "\"\\ud800\",");
}

/* The token comes last, as the published host sends it: everything before it has to be held, and is spooled only then. */
static void write_late_token(const int *fds, size_t n)
{
    static const char before[] = "{\"op\":\"write-file\",\"body\":{\"content\":\"",
                      after[] = "\"},\"token\":\"" TOKEN "\"}";
    size_t letters = NSBX_MAX_PREAUTH_FRAME - strlen(before) - strlen(after);
    char *text = malloc(letters), reply[256];
    (void)n;
    fill((uint8_t *)text, letters, 0);
    for (size_t i = 0; i < letters; i++)
        text[i] = (char)('a' + (text[i] & 15));
    write_all(fds[0], "00800000\n", 9);
    write_all(fds[0], before, strlen(before));
    write_all(fds[0], text, letters);
    write_all(fds[0], after, strlen(after));
    ssize_t got = recv(fds[0], reply, sizeof(reply), 0);
    CHECK(got > 9 && strncmp(reply + 9, "{\"ok\":true,", 11) == 0);
    free(text);
}

static void count_any(struct heard *h, char what)
{
    h->wrong = 0;
    count(h, what);
}

static void a_late_token_costs_one_frame(void)
{
    rig.serve = count_any;
    size_t took = in_child(1, TOKEN, true, write_late_token);
    fprintf(stderr, "a body of 8 MiB before its token: %.2f MiB\n", (double)took / (1 << 20));
    CHECK(took <= 13 << 20);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    if (!mkdtemp(dir))
        return 1;
    RUN(the_largest_body_costs_four_megabytes_at_most);
    RUN(hostile_peers_cost_forty_megabytes_at_most);
    RUN(a_late_token_costs_one_frame);
    rmdir(dir);
    return harness_done();
}
