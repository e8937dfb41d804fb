/* What the two halves of write-file share: the conversation (write_file.c) and its blocking steps (write_steps.c). */
#ifndef NSBX_AGENT_WRITE_FILE_PRIV_H
#define NSBX_AGENT_WRITE_FILE_PRIV_H

#include "base/buf.h"
#include "jail.h"
#include "task.h"

#define NSBX_WRITE_PENDING (2 * NSBX_CHANNEL_WINDOW) /* a window, and the text of a content that is no string */

struct nsbx_write {
    struct nsbx_task task;
    struct nsbx_list flight; /* agent->writes, while a part is being written */
    struct nsbx_jail_place place, target_place;
    struct nsbx_jail_seat temp, target; /* of a whole body: temp has the target's directory in common, and dir -1 */
    dev_t dir_dev;                      /* of temp's directory, for a part */
    ino_t dir_ino;

    bool part, discard, final, has_content;
    int64_t offset;
    char offset_text[64]; /* an offset that is none, as JSON */
    char *rename_to;      /* owned, NULL = none */
    size_t rename_len;

    bool ready; /* the temporary file is open */
    bool data_ended;
    struct nsbx_buf pending, writing;
    size_t unconsumed; /* bytes of the host in the two */
    int fd;
    int64_t written, total; /* of the body */
    int64_t size;           /* of the temporary file in the end */
    int rc;                 /* of the last step; -1: the fault */
    struct nsbx_fault fault;
};

/* Steps: on the pool, each sets rc. */
void nsbx_write_open_whole(
    struct nsbx_task *task); /* seat, and a temporary file that is removed when the task ends early */
void nsbx_write_seat_part(struct nsbx_task *task);
void nsbx_write_open_part(struct nsbx_task *task);
void nsbx_write_piece(struct nsbx_task *task);
void nsbx_write_finish(struct nsbx_task *task);
void nsbx_write_discard(struct nsbx_task *task);

#endif
