#include "source.h"

#include "agent.h"
#include "channel/bytestr.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int nsbx_range_read(struct nsbx_range *range, const json_t *body, struct nsbx_fault *fault)
{
    const json_t *offset = json_object_get(body, "offset"), *length = json_object_get(body, "length");
    *range = (struct nsbx_range){0, -1, offset || length};
    if (offset && (range->offset = nsbx_agent_safe_integer(offset)) < 0)
        return nsbx_fault_set(fault, "read_file_invalid_offset: offset must be a non-negative safe integer");
    if (length && (range->length = nsbx_agent_safe_integer(length)) < 0)
        return nsbx_fault_set(fault, "read_file_invalid_length: length must be a non-negative safe integer");
    return 0;
}

int64_t nsbx_range_clip(const struct nsbx_range *range, int64_t size)
{
    int64_t rest = size > range->offset ? size - range->offset : 0;
    return range->length < 0 ? rest : NSBX_MIN(range->length, rest);
}

int nsbx_source_locate(struct nsbx_source *s, struct nsbx_jail *jail, const json_t *body, struct nsbx_fault *fault)
{
    NSBX_AUTO_FREE char *path = NULL;
    struct nsbx_err err = {0};
    size_t n = 0;
    const json_t *value = json_object_get(body, "path");
    s->fd = -1;
    nsbx_buf_init(&s->held, NSBX_READ_HELD);
    if (!value || json_is_null(value))
        return nsbx_fault_set(fault, "missing_path");
    if (nsbx_bytestr_read(value, "path", &path, &n, &err) != 0)
        return nsbx_fault_set(fault, "invalid_path: %s", err.message);
    if (n == 0)
        return nsbx_fault_set(fault, "missing_path");
    return nsbx_jail_locate(jail, NSBX_JAIL_READ, path, n, &s->place, fault);
}

static int hold_all(struct nsbx_source *s, struct nsbx_fault *fault)
{
    enum { PIECE = 64 * 1024 };
    for (;;) {
        uint8_t *room = nsbx_buf_reserve(&s->held, NSBX_MIN((size_t)PIECE, s->held.max - s->held.len), NULL);
        if (!room)
            return nsbx_fault_sys(fault, ENOMEM, "read", NULL);
        ssize_t n = read(s->fd, room, NSBX_MIN((size_t)PIECE, s->held.max - s->held.len));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return nsbx_fault_sys(fault, errno, "read", NULL);
        nsbx_buf_commit(&s->held, (size_t)n);
        if (n == 0)
            break;
        if (s->held.len == s->held.max)
            return nsbx_fault_set(fault, "read_file_too_large: a file that tells no size, limit %u bytes",
                                  NSBX_READ_HELD);
    }
    s->size = (int64_t)s->held.len;
    return 0;
}

int nsbx_source_open(struct nsbx_source *s, const char *not_regular, bool directory_text, struct nsbx_fault *fault)
{
    struct stat st;
    s->fd = nsbx_jail_open(&s->place, O_RDONLY, fault);
    if (s->fd < 0)
        return -1;
    if (fstat(s->fd, &st) != 0)
        return nsbx_fault_sys(fault, errno, "fstat", NULL);
    if (S_ISDIR(st.st_mode) && directory_text)
        return nsbx_fault_sys(fault, EISDIR, "read", NULL);
    if (!S_ISREG(st.st_mode))
        return nsbx_fault_set(fault, "%s", not_regular);
    s->size = st.st_size;
    return s->size == 0 ? hold_all(s, fault) : 0;
}

ssize_t nsbx_source_read(struct nsbx_source *s, uint8_t *out, size_t n, int64_t offset, struct nsbx_fault *fault)
{
    if (s->held.len) {
        size_t at = (size_t)NSBX_MIN(offset, s->size);
        n = NSBX_MIN(n, s->held.len - at);
        memcpy(out, nsbx_buf_data(&s->held) + at, n);
        return (ssize_t)n;
    }
    size_t have = 0;
    while (have < n) {
        ssize_t got = pread(s->fd, out + have, n - have, offset + (int64_t)have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return nsbx_fault_sys(fault, errno, "read", NULL);
        if (got == 0)
            break;
        have += (size_t)got;
    }
    return (ssize_t)have;
}

void nsbx_source_close(struct nsbx_source *s)
{
    nsbx_cleanup_fd(&s->fd);
    nsbx_buf_free(&s->held);
}
