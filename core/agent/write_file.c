/* The operation write-file: a whole body in one go, or a part of one. What a reader of the target sees is the old file or the new one,
 * never a piece: the bytes go to a temporary file beside it, which takes its place when they are all there and on disk. */
#include "write_file_priv.h"

#include "base/alloc.h"
#include "channel/bytestr.h"

#include <string.h>

static struct nsbx_write *of(struct nsbx_task *task)
{
    return nsbx_container_of(task, struct nsbx_write, task);
}

static void end(struct nsbx_task *task)
{
    struct nsbx_write *w = of(task);
    nsbx_list_remove(&w->flight);
    nsbx_cleanup_fd(&w->fd);
    nsbx_cleanup_fd(&w->temp.dir);
    nsbx_cleanup_fd(&w->target.dir);
    nsbx_buf_free(&w->pending);
    nsbx_buf_free(&w->writing);
    nsbx_free(w->rename_to);
    nsbx_free(w);
}

static void finished(struct nsbx_task *task)
{
    struct nsbx_write *w = of(task);
    if (w->rc) {
        nsbx_task_refuse(task, &w->fault);
        return;
    }
    json_t *message = json_pack("{s:b, s:s, s:I}", "ok", 1, "guestBootId", task->agent->boot_id, "bytesWritten",
                                (json_int_t)w->written);
    if (message && w->part && json_object_set_new(message, "sizeBytes", json_integer(w->size)) != 0) {
        json_decref(message);
        message = NULL;
    }
    nsbx_task_answer(task, message);
}

/* ---- the body ---- */

static void piece_written(struct nsbx_task *task);

static void go_on(struct nsbx_write *w)
{
    if (w->task.busy || !w->ready)
        return;
    if (w->pending.len) {
        struct nsbx_buf empty = w->writing;
        w->writing = w->pending;
        w->pending = empty;
        nsbx_task_step(&w->task, nsbx_write_piece, piece_written);
    } else if (w->data_ended) {
        nsbx_task_step(&w->task, nsbx_write_finish, finished);
    }
}

static void piece_written(struct nsbx_task *task)
{
    struct nsbx_write *w = of(task);
    if (w->rc) {
        nsbx_task_refuse(task, &w->fault);
        return;
    }
    size_t n = w->writing.len;
    nsbx_buf_consume(&w->writing, n);
    nsbx_channel_consumed(task->ch, NSBX_MIN(n, w->unconsumed));
    w->unconsumed -= NSBX_MIN(n, w->unconsumed);
    go_on(w);
}

static void on_data(void *ud, enum nsbx_sub sub, const uint8_t *bytes, size_t n, int64_t offset)
{
    struct nsbx_write *w = of(ud);
    struct nsbx_err err = {0};
    (void)sub, (void)offset;
    w->unconsumed += n;
    if (nsbx_buf_append(&w->pending, bytes, n, &err) != 0) {
        nsbx_fault_set(&w->fault, "write_file: %s", err.message);
        nsbx_task_refuse(&w->task, &w->fault);
        return;
    }
    go_on(w);
}

static void on_end(void *ud)
{
    struct nsbx_write *w = of(ud);
    w->data_ended = true;
    go_on(w);
}

static const struct nsbx_channel_events events = {.on_data = on_data, .on_end = on_end, .on_fail = nsbx_task_lost};

static void opened(struct nsbx_task *task)
{
    struct nsbx_write *w = of(task);
    if (w->rc) {
        nsbx_task_refuse(task, &w->fault);
        return;
    }
    w->ready = true;
    go_on(w);
}

/* ---- a part ---- */

static void discarded(struct nsbx_task *task)
{
    struct nsbx_write *w = of(task);
    if (w->rc)
        nsbx_task_refuse(task, &w->fault);
    else
        nsbx_task_answer(task, json_pack("{s:b, s:b}", "ok", 1, "discarded", 1));
}

static bool same_file(const struct nsbx_write *a, const struct nsbx_write *b)
{
    return a->dir_dev == b->dir_dev && a->dir_ino == b->dir_ino && strcmp(a->temp.name, b->temp.name) == 0;
}

static bool in_flight(const struct nsbx_write *w)
{
    nsbx_list_each (it, &w->task.agent->writes) {
        const struct nsbx_write *other = nsbx_container_of(it, struct nsbx_write, flight);
        if (same_file(w, other))
            return true;
    }
    return false;
}

/* The checks of a part whose temporary file has its place, in the published order. */
static int check_part(struct nsbx_write *w)
{
    if (!w->has_content)
        return nsbx_fault_set(&w->fault, "missing_path_or_content");
    if (w->offset_text[0])
        return nsbx_fault_set(&w->fault, "write_part_invalid_offset: %s", w->offset_text);
    if (w->final && !w->rename_to)
        return nsbx_fault_set(&w->fault, "write_part_missing_rename_target");
    if (w->final && nsbx_jail_locate(w->task.agent->jail, NSBX_JAIL_WRITE, w->rename_to, w->rename_len,
                                     &w->target_place, &w->fault) != 0)
        return -1;
    if (in_flight(w))
        return nsbx_fault_set(&w->fault, "write_part_in_flight");
    return 0;
}

static void part_seated(struct nsbx_task *task)
{
    struct nsbx_write *w = of(task);
    if (w->rc || check_part(w) != 0) {
        nsbx_task_refuse(task, &w->fault);
        return;
    }
    nsbx_list_push(&task->agent->writes, &w->flight);
    nsbx_task_step(task, nsbx_write_open_part, opened);
}

static int read_part(struct nsbx_write *w, const json_t *part)
{
    const json_t *offset = json_object_get(part, "offset"), *target = json_object_get(part, "renameTo");
    struct nsbx_err err = {0};
    if (!json_is_object(part))
        return nsbx_fault_set(&w->fault, "write_part_invalid_shape");
    w->part = true;
    w->discard = json_is_true(json_object_get(part, "discard"));
    w->final = json_is_true(json_object_get(part, "final"));
    if (offset && (w->offset = nsbx_agent_safe_integer(offset)) < 0) {
        NSBX_AUTO_FREE char *text = nsbx_agent_json_text(offset);
        snprintf(w->offset_text, sizeof w->offset_text, "%s", text ? text : "?");
    }
    if (target && !json_is_null(target) &&
        nsbx_bytestr_read(target, "renameTo", &w->rename_to, &w->rename_len, &err) != 0)
        return nsbx_fault_set(&w->fault, "invalid_path: %s", err.message);
    return 0;
}

/* ---- the request ---- */

/* Content that is no string counts as its text, as published; a string's bytes come as data. */
static int read_content(struct nsbx_write *w, const json_t *content)
{
    w->has_content = content && !json_is_null(content);
    if (!w->has_content || json_is_string(content))
        return 0;
    NSBX_AUTO_FREE char *text = nsbx_agent_json_text(content);
    int rc = text ? nsbx_buf_append(&w->pending, text, strlen(text), NULL) : -1;
    return rc ? nsbx_fault_set(&w->fault, "write_file: no memory for the content") : 0;
}

static int read_request(struct nsbx_write *w, const json_t *body)
{
    NSBX_AUTO_FREE char *path = NULL;
    struct nsbx_err err = {0};
    size_t n = 0;
    const json_t *value = json_object_get(body, "path"), *part = json_object_get(body, "part");
    bool has_path = value && !json_is_null(value);
    if (has_path && nsbx_bytestr_read(value, "path", &path, &n, &err) != 0)
        return nsbx_fault_set(&w->fault, "invalid_path: %s", err.message);
    if (read_content(w, json_object_get(body, "content")) != 0)
        return -1;
    bool parted = part && !json_is_null(part);
    if (n == 0 || (!parted && !w->has_content))
        return nsbx_fault_set(&w->fault, "missing_path_or_content");
    if (parted && read_part(w, part) != 0)
        return -1;
    return nsbx_jail_locate(w->task.agent->jail, NSBX_JAIL_WRITE, path, n, &w->place, &w->fault);
}

static void open_write_file(struct nsbx_agent *agent, struct nsbx_channel *ch, json_t *body)
{
    struct nsbx_write *w = nsbx_calloc(1, sizeof *w);
    if (!w) {
        nsbx_agent_refuse_text(ch, "no memory");
        return;
    }
    w->fd = w->temp.dir = w->target.dir = -1;
    nsbx_list_init(&w->flight);
    nsbx_buf_init(&w->pending, NSBX_WRITE_PENDING);
    nsbx_buf_init(&w->writing, NSBX_WRITE_PENDING);
    nsbx_task_begin(&w->task, agent, ch, &events, end);
    if (read_request(w, body) != 0)
        nsbx_task_refuse(&w->task, &w->fault);
    else if (w->discard)
        nsbx_task_step(&w->task, nsbx_write_discard, discarded);
    else if (w->part)
        nsbx_task_step(&w->task, nsbx_write_seat_part, part_seated);
    else
        nsbx_task_step(&w->task, nsbx_write_open_whole, opened);
}

const struct nsbx_agent_op nsbx_agent_op_write_file = {"write-file", open_write_file};
