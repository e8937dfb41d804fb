/* For the tests of streams: a loop whose end is checked, the kinds of stream, and an end that keeps the record. */
#ifndef NSBX_SPEC_STREAM_RIG_H
#define NSBX_SPEC_STREAM_RIG_H

#include "base/alloc.h"
#include "base/limits.h"
#include "base/util.h"
#include "harness.h"
#include "loop/loop.h"
#include "loop/stream.h"
#include "loop/timer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

/* ---- the loop ---- */

static struct nsbx_loop *loop;
static int fds_before;

static inline void rig_open(void)
{
    fds_before = count_fds();
    struct nsbx_err err;
    if (nsbx_loop_new(&loop, &err) < 0) {
        fprintf(stderr, "no loop: %s\n", err.message);
        abort();
    }
}

static inline void print_live(void *ud, const char *kind)
{
    (void)ud;
    fprintf(stderr, "still open: %s\n", kind);
}

/* Everything must have been closed. */
static inline void rig_close(void)
{
    for (int i = 0; i < 100 && nsbx_loop_turn(loop, NSBX_TURN_POLL); i++)
        ;
    CHECK_INT(nsbx_loop_live(loop, print_live, NULL), 0);
    CHECK(!nsbx_loop_turn(loop, NSBX_TURN_POLL));
    nsbx_loop_free(loop);
    loop = NULL;
    /* A resolver's thread that nobody waits for any more may still hold a socket of its own. */
    for (int i = 0; i < 1000 && count_fds() != fds_before; i++)
        usleep(10000);
    CHECK_INT(count_fds(), fds_before);
}

static inline void note_late(void *ud)
{
    *(bool *)ud = true;
}

/* Turns until `cond`; gives up after `ms`. */
#define TURN_UNTIL(cond, ms)                                                                                       \
    do {                                                                                                           \
        bool late_ = false;                                                                                        \
        struct nsbx_timer *guard_ = nsbx_timer_new(loop, note_late, &late_);                                       \
        nsbx_timer_start(guard_, (ms));                                                                            \
        while (!(cond) && !late_)                                                                                  \
            nsbx_loop_turn(loop, NSBX_TURN_WAIT);                                                                  \
        nsbx_timer_close(guard_);                                                                                  \
        if (!(cond)) {                                                                                             \
            fprintf(stderr, "%s:%d: in %s: never: %s\n", __FILE__, __LINE__, harness_case, #cond);                 \
            harness_case_failed = 1;                                                                               \
        }                                                                                                          \
    } while (0)

/* Turns for a while: for what must not happen. */
static inline void turn_for(unsigned ms)
{
    bool over = false;
    struct nsbx_timer *t = nsbx_timer_new(loop, note_late, &over);
    nsbx_timer_start(t, ms);
    while (!over)
        nsbx_loop_turn(loop, NSBX_TURN_WAIT);
    nsbx_timer_close(t);
}

/* ---- bytes ---- */

/* A stream's byte i. The period is a prime, so that no size of a buffer is a multiple of it. */
enum { PATTERN_PERIOD = 65521 };

static inline const uint8_t *pattern_table(void)
{
    static uint8_t table[PATTERN_PERIOD];
    static bool made;
    for (uint64_t i = 0; !made && i < PATTERN_PERIOD; i++)
        table[i] = (uint8_t)((i * 0x9e3779b97f4a7c15u) >> 53);
    made = true;
    return table;
}

static inline uint8_t pattern(uint64_t i)
{
    return pattern_table()[i % PATTERN_PERIOD];
}

static inline void fill(uint8_t *to, size_t n, uint64_t offset)
{
    while (n) {
        size_t at = offset % PATTERN_PERIOD, piece = NSBX_MIN(n, PATTERN_PERIOD - at);
        memcpy(to, pattern_table() + at, piece);
        to += piece;
        offset += piece;
        n -= piece;
    }
}

static inline bool is_filled(const uint8_t *bytes, size_t n, uint64_t offset)
{
    while (n) {
        size_t at = offset % PATTERN_PERIOD, piece = NSBX_MIN(n, PATTERN_PERIOD - at);
        if (memcmp(bytes, pattern_table() + at, piece) != 0)
            return false;
        bytes += piece;
        offset += piece;
        n -= piece;
    }
    return true;
}

/* ---- an end that keeps the record ---- */

struct end {
    struct nsbx_stream *s; /* NULL after close */
    uint64_t got;          /* bytes, all of them right */
    int wrong;             /* reads that were not as sent */
    int reads, eofs, errors, drains;
    int code;     /* of the error */
    bool in_call; /* the test is inside a call on the stream */
    bool called_inside;
    bool after_end; /* a callback came after eof-and-error, or after close */
    size_t biggest; /* read */
    size_t queued_at_drain;
    bool stop_each;                         /* read_stop in each on_read */
    void (*hook)(struct end *e, char what); /* 'r' 'e' 'x' 'd', after the record */
    struct end *peer;
    uint64_t sent, to_send; /* by send_more */
};

static inline void record(struct end *e, char what)
{
    if (e->in_call)
        e->called_inside = true;
    if (!e->s || e->errors > (what == 'x') || (what == 'r' && e->eofs))
        e->after_end = true;
    if (e->hook)
        e->hook(e, what);
}

static inline void end_on_read(void *ud, const uint8_t *bytes, size_t n)
{
    struct end *e = ud;
    e->wrong += !is_filled(bytes, n, e->got);
    e->got += n;
    e->reads++;
    e->biggest = NSBX_MAX(e->biggest, n);
    if (e->stop_each)
        nsbx_stream_read_stop(e->s);
    record(e, 'r');
}
static inline void end_on_eof(void *ud)
{
    struct end *e = ud;
    e->eofs++;
    record(e, 'e');
}
static inline void end_on_error(void *ud, const struct nsbx_err *err)
{
    struct end *e = ud;
    e->errors++;
    e->code = err->code;
    record(e, 'x');
}
static inline void end_on_drain(void *ud)
{
    struct end *e = ud;
    e->drains++;
    e->queued_at_drain = nsbx_stream_queued(e->s);
    record(e, 'd');
}
static const struct nsbx_stream_events end_events = {end_on_read, end_on_eof, end_on_error, end_on_drain};

static inline int end_write(struct end *e, size_t n)
{
    uint8_t *bytes = malloc(n ? n : 1);
    fill(bytes, n, e->sent);
    e->in_call = true;
    int rc = nsbx_stream_write(e->s, bytes, n, NULL);
    e->in_call = false;
    if (rc == 0)
        e->sent += n;
    free(bytes);
    return rc;
}

static inline void end_start(struct end *e)
{
    e->in_call = true;
    nsbx_stream_read_start(e->s);
    e->in_call = false;
}

static inline int end_shutdown(struct end *e)
{
    e->in_call = true;
    int rc = nsbx_stream_shutdown(e->s, NULL);
    e->in_call = false;
    return rc;
}

static inline void end_close(struct end *e)
{
    struct nsbx_stream *s = e->s;
    e->s = NULL;
    nsbx_stream_close(s);
}

/* ---- the kinds ---- */

struct kind {
    const char *label;
    const char *name;    /* nsbx_stream_kind */
    bool duplex;         /* both ends read and write; else [0] writes and [1] reads */
    size_t capacity, io; /* mem */
    uint64_t bulk;       /* bytes that a long transfer moves */
};

static const struct kind kinds[] = {
    {"tcp", "tcp", true, 0, 0, 64u << 20},
    {"unix", "unix", true, 0, 0, 64u << 20},
    {"pipe", "pipe", false, 0, 0, 64u << 20},
    {"mem", "mem", true, 256 * 1024, 0, 64u << 20},
    {"mem, one byte in flight", "mem", true, 1, 0, 64 * 1024},
    {"mem, one byte at a time", "mem", true, 100, 1, 64 * 1024},
    {"mem, seven bytes at a time", "mem", true, 1000, 7, 256 * 1024},
};
static const struct kind *kind; /* of the case that runs */

static inline void raw_tcp(int fds[2])
{
    int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(l, (struct sockaddr *)&a, sizeof a) != 0 || listen(l, 1) != 0 ||
        getsockname(l, (struct sockaddr *)&a, &len) != 0 || connect(fds[0], (struct sockaddr *)&a, sizeof a) != 0)
        abort();
    fds[1] = accept4(l, NULL, NULL, SOCK_CLOEXEC);
    close(l);
}

static inline void raw_pair(int fds[2])
{
    if (strcmp(kind->name, "tcp") == 0) {
        raw_tcp(fds);
    } else if (strcmp(kind->name, "unix") == 0) {
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
            abort();
    } else {
        int p[2];
        if (pipe2(p, O_CLOEXEC) != 0)
            abort();
        fds[0] = p[1];
        fds[1] = p[0];
    }
}

/* Two connected, recording ends; b reads already. */
static inline void make_ends(struct end *a, struct end *b)
{
    struct nsbx_stream *s[2] = {NULL, NULL};
    struct nsbx_err err = {0};
    int rc = 0;
    if (kind->capacity) {
        rc = nsbx_stream_pair(loop, kind->capacity, kind->io, s, &err);
    } else {
        int fds[2];
        raw_pair(fds);
        for (int i = 0; i < 2 && rc == 0; i++)
            rc = nsbx_stream_from_fd(loop, fds[i], &s[i], &err);
    }
    if (rc) {
        fprintf(stderr, "no %s pair: %s\n", kind->label, err.message);
        abort();
    }
    *a = (struct end){.s = s[0], .peer = b};
    *b = (struct end){.s = s[1], .peer = a};
    nsbx_stream_set_events(a->s, &end_events, a);
    nsbx_stream_set_events(b->s, &end_events, b);
    end_start(b);
}

static inline void check_end(const struct end *e)
{
    CHECK_INT(e->wrong, 0);
    CHECK(!e->called_inside);
    CHECK(!e->after_end);
    CHECK(e->eofs <= 1);
    CHECK(e->errors <= 1);
    if (kind->io)
        CHECK(e->biggest <= kind->io);
}

/* Closes what is open and checks what always holds. */
static inline void end_pair(struct end *a, struct end *b)
{
    if (a->s)
        end_close(a);
    if (b->s)
        end_close(b);
    turn_for(1);
    check_end(a);
    check_end(b);
    rig_close();
}

/* Runs a case once for each kind that has it, named "case [kind]". */
#define RUN_KINDS(fn) RUN_KINDS_IF(fn, true)
#define RUN_DUPLEX_KINDS(fn) RUN_KINDS_IF(fn, kind->duplex)
#define RUN_KINDS_IF(fn, has)                                                                                      \
    for (size_t i_ = 0; i_ < NSBX_LEN(kinds); i_++) {                                                              \
        static char name_[128];                                                                                    \
        kind = &kinds[i_];                                                                                         \
        snprintf(name_, sizeof name_, "%s [%s]", #fn, kind->label);                                                \
        if (has)                                                                                                   \
            run_case(fn, name_);                                                                                   \
    }
static inline void run_case(void (*fn)(void), const char *name)
{
    harness_case = name;
    harness_case_failed = 0;
    fn();
    if (harness_case_failed) {
        harness_failed++;
        fprintf(stderr, "FAILED %s\n", name);
    } else {
        harness_passed++;
    }
}

#endif
