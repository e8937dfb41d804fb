/* A file that is read: opened in the jail, its size known, read in pieces. A regular file that tells size 0 (procfs and its like) is
 * read whole when it is opened, because only reading tells its size. */
#ifndef NSBX_AGENT_SOURCE_H
#define NSBX_AGENT_SOURCE_H

#include "base/buf.h"
#include "jail.h"

#include <sys/types.h>

struct nsbx_source {
    struct nsbx_jail_place place; /* set before open */
    int fd;                       /* -1 = not open */
    int64_t size;
    struct nsbx_buf held; /* the content of a file that told no size */
};

/* The wanted part of a file, as asked for. */
struct nsbx_range {
    int64_t offset; /* 0 when not given */
    int64_t length; /* -1 when not given: the rest */
    bool given;     /* either was */
};
/* Faults: "read_file_invalid_offset: …", "read_file_invalid_length: …". */
int nsbx_range_read(struct nsbx_range *range, const json_t *body, struct nsbx_fault *fault)
    __attribute__((warn_unused_result));
/* How many bytes of a file of `size` bytes it is. */
int64_t nsbx_range_clip(const struct nsbx_range *range, int64_t size);

/* Reads body.path and judges it lexically. Faults: "missing_path" and the jail's. */
int nsbx_source_locate(struct nsbx_source *s, struct nsbx_jail *jail, const json_t *body, struct nsbx_fault *fault)
    __attribute__((warn_unused_result));

/* These block. */
/* `not_regular`: the text for what is no regular file. With `directory_text` a directory has the published EISDIR text instead. */
int nsbx_source_open(struct nsbx_source *s, const char *not_regular, bool directory_text, struct nsbx_fault *fault)
    __attribute__((warn_unused_result));
/* At most n bytes from `offset`; less only at the end of the file. -1 with the fault. */
ssize_t nsbx_source_read(struct nsbx_source *s, uint8_t *out, size_t n, int64_t offset, struct nsbx_fault *fault)
    __attribute__((warn_unused_result));
void nsbx_source_close(struct nsbx_source *s);

#endif
