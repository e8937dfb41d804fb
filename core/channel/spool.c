#include "spool_priv.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/limits.h"
#include "base/util.h"
#include "loop/work.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* Blocks of one step. Written ones join what arrives meanwhile, so that reading and writing overlap. */
enum { FILE_BLOCK = 256 * 1024 };
enum { FILL_MAX = NSBX_SPOOL_MEMORY + 4 * NSBX_STREAM_READ_CHUNK };

struct nsbx_spool {
    struct nsbx_loop *loop;
    void (*on_step)(void *ud);
    void *ud;
    int dir_fd, fd;
    struct nsbx_buf fill;   /* what is not in the file (yet): the newest bytes */
    struct nsbx_buf flight; /* being written, or the block that was read */
    uint64_t in_file;       /* bytes written to it */
    uint64_t read_at;       /* bytes of the file given out or in `flight` */
    bool stepping;          /* a step is under way: `flight`, `fd` and `step` are the worker's */
    bool dropped;           /* nobody wants it any more: the step's end frees it */
    bool given;             /* the block in `flight`, or all of `fill`, was handed out by the last read */
    struct nsbx_err err;    /* code 0 = none */
    struct {
        void (*work)(void *ud);
        int sys;
        const char *call;
        size_t n;
    } step;
};

struct nsbx_spool *nsbx_spool_new(struct nsbx_loop *loop, int dir_fd, void (*on_step)(void *ud), void *ud)
{
    struct nsbx_spool *s = nsbx_calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->loop = loop;
    s->on_step = on_step;
    s->ud = ud;
    s->dir_fd = dir_fd;
    s->fd = -1;
    nsbx_buf_init(&s->fill, FILL_MAX);
    nsbx_buf_init(&s->flight, FILL_MAX);
    return s;
}

void nsbx_spool_follow(struct nsbx_spool *s, void (*on_step)(void *ud), void *ud)
{
    s->on_step = on_step;
    s->ud = ud;
}

/* ---- on a worker ---- */

static int open_unnamed(int dir_fd, const char **call)
{
    *call = "open";
    int fd = openat(dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL && errno != ENOENT))
        return fd;
    /* A file system without unnamed files. The name is one that a sweep of orphans knows, should we die in between. */
    char uuid[NSBX_UUID_LEN + 1], name[64];
    if (nsbx_uuid4(uuid, NULL) != 0) {
        errno = EIO;
        return -1;
    }
    snprintf(name, sizeof(name), ".namzu-write-%s.part", uuid);
    fd = openat(dir_fd, name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0)
        unlinkat(dir_fd, name, 0);
    return fd;
}

static void write_block(void *ud)
{
    struct nsbx_spool *s = ud;
    const uint8_t *bytes = nsbx_buf_data(&s->flight);
    size_t left = s->flight.len;
    off_t at = (off_t)s->in_file;
    if (s->fd < 0 && (s->fd = open_unnamed(s->dir_fd, &s->step.call)) < 0) {
        s->step.sys = errno;
        return;
    }
    s->step.call = "write";
    while (left) {
        ssize_t n = pwrite(s->fd, bytes, left, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            s->step.sys = n < 0 ? errno : ENOSPC;
            return;
        }
        bytes += n;
        at += n;
        left -= (size_t)n;
    }
}

static void read_block(void *ud)
{
    struct nsbx_spool *s = ud;
    uint8_t *into = nsbx_buf_data(&s->flight);
    s->step.call = "read";
    ssize_t n;
    do
        n = pread(s->fd, into, s->step.n, (off_t)s->read_at);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        s->step.sys = n < 0 ? errno : EIO; /* nobody else can have shortened it */
    else
        s->step.n = (size_t)n;
}

/* Giving back the blocks of a large file takes its time too. */
static void close_file(void *ud)
{
    struct nsbx_spool *s = ud;
    close(s->fd);
    s->fd = -1;
}

/* ---- on the loop ---- */

static void release(struct nsbx_spool *s)
{
    if (s->fd >= 0)
        close(s->fd);
    nsbx_buf_free(&s->fill);
    nsbx_buf_free(&s->flight);
    nsbx_free(s);
}

static void fail(struct nsbx_spool *s, const struct nsbx_err *err)
{
    if (!s->err.code)
        s->err = *err;
    nsbx_buf_free(&s->fill);
}

static void on_done(void *ud);

static void start(struct nsbx_spool *s, void (*work)(void *ud))
{
    struct nsbx_err err;
    s->step.work = work;
    s->step.sys = 0;
    s->stepping = true;
    if (nsbx_work(s->loop, work, on_done, s, &err) == 0)
        return;
    s->stepping = false;
    fail(s, &err);
}

static void flush(struct nsbx_spool *s)
{
    struct nsbx_err err;
    if (s->dir_fd < 0) {
        nsbx_err_set(&err, NSBX_E_LIMIT,
                     "body_too_large: more than %u bytes, and there is no directory for the rest",
                     NSBX_SPOOL_MEMORY);
        fail(s, &err);
        return;
    }
    struct nsbx_buf empty = s->flight;
    s->flight = s->fill;
    s->fill = empty;
    start(s, write_block);
}

/* Before n bytes more are taken. */
static void flush_if_due(struct nsbx_spool *s, size_t n)
{
    size_t due = s->in_file ? FILE_BLOCK : NSBX_SPOOL_MEMORY;
    if (!s->stepping && !s->err.code && s->fill.len && s->fill.len + n > due)
        flush(s);
}

static void end_step(struct nsbx_spool *s)
{
    struct nsbx_err err;
    if (s->step.sys) {
        nsbx_err_sys(&err, s->step.sys, "%s", s->step.call);
        nsbx_buf_free(&s->flight);
        fail(s, &err);
    } else if (s->step.work == write_block) {
        s->in_file += s->flight.len;
        if (s->flight.cap > 2 * FILE_BLOCK)
            nsbx_buf_free(&s->flight);
        s->flight.head = s->flight.len = 0;
        flush_if_due(s, 0);
    } else {
        nsbx_buf_commit(&s->flight, s->step.n);
        s->read_at += s->step.n;
    }
}

static void on_done(void *ud)
{
    struct nsbx_spool *s = ud;
    s->stepping = false;
    if (s->dropped) {
        nsbx_spool_free(s);
        return;
    }
    end_step(s);
    s->on_step(s->ud);
}

void nsbx_spool_free(struct nsbx_spool *s)
{
    if (!s)
        return;
    s->dropped = true;
    if (s->stepping)
        return;
    if (s->fd >= 0)
        start(s, close_file);
    if (!s->stepping)
        release(s);
}

void nsbx_spool_write(struct nsbx_spool *s, const uint8_t *bytes, size_t n)
{
    struct nsbx_err err;
    flush_if_due(s, n);
    if (!s->err.code && nsbx_buf_append(&s->fill, bytes, n, &err) != 0)
        fail(s, &err);
}

bool nsbx_spool_full(const struct nsbx_spool *s)
{
    return s->stepping && s->fill.len >= FILE_BLOCK;
}

bool nsbx_spool_settled(const struct nsbx_spool *s)
{
    return !s->stepping;
}

const struct nsbx_err *nsbx_spool_err(const struct nsbx_spool *s)
{
    return s->err.code ? &s->err : NULL;
}

static const uint8_t *give(struct nsbx_spool *s, const struct nsbx_buf *b, size_t *n)
{
    s->given = true;
    *n = b->len;
    return nsbx_buf_data(b);
}

const uint8_t *nsbx_spool_read(struct nsbx_spool *s, size_t *n)
{
    struct nsbx_err err;
    *n = 0;
    if (s->given && s->flight.len)
        s->flight.head = s->flight.len = 0;
    else if (s->given)
        nsbx_buf_free(&s->fill);
    s->given = false;
    if (s->stepping || s->err.code)
        return NULL;
    if (s->flight.len)
        return give(s, &s->flight, n);
    if (s->read_at == s->in_file)
        return s->fill.len ? give(s, &s->fill, n) : NULL;
    s->step.n = (size_t)NSBX_MIN(s->in_file - s->read_at, (uint64_t)FILE_BLOCK);
    if (nsbx_buf_reserve(&s->flight, s->step.n, &err))
        start(s, read_block);
    else
        fail(s, &err);
    return NULL;
}

bool nsbx_spool_at_end(const struct nsbx_spool *s)
{
    size_t at_hand = s->flight.len + s->fill.len;
    if (s->given)
        at_hand -= s->flight.len ? s->flight.len : s->fill.len;
    return !s->stepping && s->read_at == s->in_file && at_hand == 0;
}
