/* The blocking steps of write-file. */
#include "write_file_priv.h"

#include "codec/path.h"
#include "codec/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TEMP_PREFIX ".namzu-write-" /* [wire] with TEMP_SUFFIX: by these a discard knows a temporary file */
#define TEMP_SUFFIX ".part"

enum {
    MODE_BITS = 07777,
    CREATE_MODE = 0666,
    OPEN_WRITE = O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC
};

static struct nsbx_write *of(struct nsbx_task *task)
{
    return nsbx_container_of(task, struct nsbx_write, task);
}

static int temp_dir(const struct nsbx_write *w)
{
    return w->part ? w->temp.dir : w->target.dir;
}

/* ---- a whole body ---- */

static void remove_temp(struct nsbx_task *task)
{
    const struct nsbx_write *w = of(task);
    unlinkat(w->target.dir, w->temp.name, 0);
}

/* ".namzu-write-<name>.<uuid>.part"; a long name is cut, at a whole character, to what a directory can hold. */
static int name_temp(struct nsbx_write *w, struct nsbx_err *err)
{
    char uuid[NSBX_UUID_LEN + 1];
    int rc = nsbx_uuid4(uuid, err);
    if (rc)
        return rc;
    size_t n = strlen(w->target.name);
    size_t room = NAME_MAX - strlen(TEMP_PREFIX) - 1 - NSBX_UUID_LEN - strlen(TEMP_SUFFIX);
    if (n > room)
        n = room - nsbx_utf8_tail((const uint8_t *)w->target.name, room);
    snprintf(w->temp.name, sizeof w->temp.name, TEMP_PREFIX "%.*s.%s" TEMP_SUFFIX, (int)n, w->target.name, uuid);
    return 0;
}

/* What cannot be replaced by a file is told before any byte is written. A link here is one that leads to nothing. */
static int check_target(const struct nsbx_jail_seat *seat, const char *path, struct nsbx_fault *fault)
{
    if (!seat->exists || S_ISREG(seat->st.st_mode) || S_ISLNK(seat->st.st_mode))
        return 0;
    if (S_ISDIR(seat->st.st_mode))
        return nsbx_fault_sys(fault, EISDIR, "open", path);
    return nsbx_fault_set(fault, "write_file_not_a_regular_file");
}

static int open_whole(struct nsbx_write *w)
{
    struct nsbx_err err = {0};
    if (nsbx_jail_seat(&w->place, true, &w->target, &w->fault) != 0 ||
        check_target(&w->target, w->place.path, &w->fault) != 0)
        return -1;
    if (name_temp(w, &err) != 0)
        return nsbx_fault_set(&w->fault, "write_file: %s", err.message);
    w->fd = openat(w->target.dir, w->temp.name, OPEN_WRITE | O_CREAT | O_EXCL, CREATE_MODE);
    if (w->fd < 0)
        return nsbx_fault_sys(&w->fault, errno, "open", w->place.path);
    w->task.cleanup = remove_temp;
    return 0;
}

void nsbx_write_open_whole(struct nsbx_task *task)
{
    struct nsbx_write *w = of(task);
    w->rc = open_whole(w);
}

/* ---- a part ---- */

static int seat_part(struct nsbx_write *w, bool make)
{
    struct stat st;
    if (nsbx_jail_seat(&w->place, make, &w->temp, &w->fault) != 0)
        return -1;
    if (fstat(w->temp.dir, &st) != 0)
        return nsbx_fault_sys(&w->fault, errno, "open", w->place.path);
    w->dir_dev = st.st_dev;
    w->dir_ino = st.st_ino;
    return 0;
}

void nsbx_write_seat_part(struct nsbx_task *task)
{
    struct nsbx_write *w = of(task);
    w->rc = seat_part(w, true);
}

static int mismatch(struct nsbx_write *w, bool exists, int64_t size)
{
    if (!exists)
        return nsbx_fault_set(&w->fault,
                              "write_part_offset_mismatch: temp file is absent, part starts at offset %lld",
                              (long long)w->offset);
    return nsbx_fault_set(&w->fault,
                          "write_part_offset_mismatch: temp file is %lld bytes, part starts at offset %lld",
                          (long long)size, (long long)w->offset);
}

static int open_part(struct nsbx_write *w)
{
    struct stat st;
    if (w->final && (nsbx_jail_seat(&w->target_place, true, &w->target, &w->fault) != 0 ||
                     check_target(&w->target, w->target_place.path, &w->fault) != 0))
        return -1;
    int flags = w->offset ? OPEN_WRITE : OPEN_WRITE | O_CREAT | O_TRUNC;
    w->fd = openat(w->temp.dir, w->temp.name, flags, CREATE_MODE);
    if (w->fd < 0 && errno == ENOENT && w->offset)
        return mismatch(w, false, 0);
    if (w->fd < 0)
        return nsbx_fault_sys(&w->fault, errno, "open", w->place.path);
    if (fstat(w->fd, &st) != 0)
        return nsbx_fault_sys(&w->fault, errno, "fstat", NULL);
    if (!S_ISREG(st.st_mode))
        return nsbx_fault_set(&w->fault, "write_file_not_a_regular_file");
    return st.st_size == w->offset ? 0 : mismatch(w, true, st.st_size);
}

void nsbx_write_open_part(struct nsbx_task *task)
{
    struct nsbx_write *w = of(task);
    w->rc = open_part(w);
}

/* ---- the body ---- */

void nsbx_write_piece(struct nsbx_task *task)
{
    struct nsbx_write *w = of(task);
    const uint8_t *bytes = nsbx_buf_data(&w->writing);
    size_t n = w->writing.len, done = 0;
    w->rc = 0;
    w->total += (int64_t)n;
    while (done < n) {
        ssize_t got = pwrite(w->fd, bytes + done, n - done, w->offset + w->written);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            w->rc = nsbx_fault_sys(&w->fault, errno, "write", NULL);
            return;
        }
        if (got == 0)
            return; /* the check of the size in the end tells of it */
        done += (size_t)got;
        w->written += got;
    }
}

static int short_write(struct nsbx_write *w)
{
    if (w->part)
        return nsbx_fault_set(
            &w->fault, "write_part_short_write: wrote %lld of %lld bytes at offset %lld, temp file is %lld bytes",
            (long long)w->written, (long long)w->total, (long long)w->offset, (long long)w->size);
    return nsbx_fault_set(&w->fault, "write_short_write: wrote %lld of %lld bytes, temp file is %lld bytes",
                          (long long)w->written, (long long)w->total, (long long)w->size);
}

static int verify(struct nsbx_write *w)
{
    struct stat st;
    if (fstat(w->fd, &st) != 0)
        return nsbx_fault_sys(&w->fault, errno, "fstat", NULL);
    w->size = st.st_size;
    return w->written == w->total && w->size == w->offset + w->total ? 0 : short_write(w);
}

/* A file that is replaced hands its mode on. Looked at only now: it may have changed since the first byte. */
static int keep_mode(struct nsbx_write *w)
{
    struct stat st;
    if (fstatat(w->target.dir, w->target.name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
        return 0;
    return fchmod(w->fd, st.st_mode & MODE_BITS) == 0 ? 0 : nsbx_fault_sys(&w->fault, errno, "fchmod", NULL);
}

static int put_in_place(struct nsbx_write *w)
{
    const char *target = w->part ? w->target_place.path : w->place.path;
    if (renameat(temp_dir(w), w->temp.name, w->target.dir, w->target.name) != 0)
        return nsbx_fault_sys2(&w->fault, errno, "rename", w->temp.name, target);
    w->task.cleanup = NULL;
    return fsync(w->target.dir) == 0 ? 0 : nsbx_fault_sys(&w->fault, errno, "fsync", NULL);
}

static int finish(struct nsbx_write *w)
{
    bool last = !w->part || w->final;
    if (last && keep_mode(w) != 0)
        return -1;
    if (last && fsync(w->fd) != 0)
        return nsbx_fault_sys(&w->fault, errno, "fsync", NULL);
    if (verify(w) != 0)
        return -1;
    return last ? put_in_place(w) : 0;
}

void nsbx_write_finish(struct nsbx_task *task)
{
    struct nsbx_write *w = of(task);
    w->rc = finish(w);
}

/* ---- discard ---- */

static bool is_temp_name(const char *name)
{
    size_t n = strlen(name), prefix = strlen(TEMP_PREFIX), suffix = strlen(TEMP_SUFFIX);
    return n > prefix + suffix && memcmp(name, TEMP_PREFIX, prefix) == 0 &&
           memcmp(name + n - suffix, TEMP_SUFFIX, suffix) == 0;
}

static int discard(struct nsbx_write *w)
{
    if (!is_temp_name(nsbx_path_base(w->place.path)))
        return nsbx_fault_set(&w->fault, "write_part_not_a_temp_file");
    if (seat_part(w, false) != 0)
        return w->fault.code && strcmp(w->fault.code, "ENOENT") == 0 ? 0 : -1;
    if (!is_temp_name(w->temp.name))
        return nsbx_fault_set(&w->fault, "write_part_not_a_temp_file");
    if (unlinkat(w->temp.dir, w->temp.name, 0) != 0 && errno != ENOENT)
        return nsbx_fault_sys(&w->fault, errno, "unlink", w->place.path);
    return 0;
}

void nsbx_write_discard(struct nsbx_task *task)
{
    struct nsbx_write *w = of(task);
    w->rc = discard(w);
}
