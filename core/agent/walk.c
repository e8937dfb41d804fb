/* The operation walk: the entries below a directory that match a pattern, or those of one directory. */
#include "base/alloc.h"
#include "base/log.h"
#include "channel/bytestr.h"
#include "jail.h"
#include "task.h"
#include "walker.h"

#include <fcntl.h>
#include <string.h>

struct walk {
    struct nsbx_task task;
    struct nsbx_jail_place place;
    struct nsbx_walk_options options;
    struct nsbx_glob *glob;
    char *prefix; /* owned */
    struct nsbx_walker *walker;
    bool begun;
    int rc; /* of the last step; -1: the fault */
    struct nsbx_fault fault;
};

static struct walk *of(struct nsbx_task *task)
{
    return nsbx_container_of(task, struct walk, task);
}

static void end(struct nsbx_task *task)
{
    struct walk *w = of(task);
    nsbx_walker_free(w->walker);
    nsbx_glob_free(w->glob);
    nsbx_free(w->prefix);
    nsbx_free(w);
}

/* ---- the walk ---- */

static const char *type_name(mode_t mode)
{
    if (S_ISREG(mode))
        return "file";
    if (S_ISDIR(mode))
        return "directory";
    return S_ISLNK(mode) ? "symlink" : "other";
}

static json_t *entry_json(const struct nsbx_walk_entry *entry, const char *text)
{
    const struct stat *st = &entry->st;
    double mtime_ms = (double)st->st_mtim.tv_sec * 1e3 + (double)st->st_mtim.tv_nsec / 1e6;
    return json_pack("[o, I, s, i, f]", nsbx_bytestr_make(text + entry->path, entry->path_len),
                     (json_int_t)st->st_size, type_name(st->st_mode), (int)(st->st_mode & 07777), mtime_ms);
}

static json_t *batch_json(const struct walk *w)
{
    const char *text;
    size_t n;
    const struct nsbx_walk_entry *batch = nsbx_walker_batch(w->walker, &n, &text);
    json_t *entries = json_array();
    for (size_t i = 0; entries && i < n; i++)
        if (json_array_append_new(entries, entry_json(&batch[i], text)) != 0) {
            json_decref(entries);
            entries = NULL;
        }
    return entries ? json_pack("{s:s, s:o}", "type", "entries", "entries", entries) : NULL;
}

static int begin(struct walk *w)
{
    int fd = nsbx_jail_open(&w->place, O_RDONLY, &w->fault);
    if (fd < 0)
        return -1;
    w->begun = true;
    return nsbx_walker_begin(w->walker, fd, w->place.path, &w->fault);
}

static void step(struct nsbx_task *task)
{
    struct walk *w = of(task);
    w->rc = w->begun ? 0 : begin(w);
    if (w->rc == 0)
        w->rc = nsbx_walker_step(w->walker, &w->fault);
}

static void stepped(struct nsbx_task *task)
{
    struct walk *w = of(task);
    struct nsbx_err err = {0};
    const char *text;
    size_t n = 0;
    if (w->begun)
        nsbx_walker_batch(w->walker, &n, &text);
    /* Before an error too: what was found is found. */
    if (n && nsbx_channel_send(task->ch, batch_json(w), &err) != 0) {
        nsbx_log(NSBX_LOG_DEBUG, "walk: %s", err.message);
        nsbx_task_stop(task);
    } else if (w->rc) {
        nsbx_task_refuse(task, &w->fault);
    } else if (nsbx_walker_done(w->walker)) {
        nsbx_task_answer(
            task, json_pack("{s:s, s:I}", "type", "done", "visited", (json_int_t)nsbx_walker_visited(w->walker)));
    } else if (nsbx_channel_room(task->ch) > 0) {
        nsbx_task_step(task, step, stepped);
    }
}

static void on_drain(void *ud)
{
    struct nsbx_task *task = ud;
    if (!task->busy)
        nsbx_task_step(task, step, stepped);
}

static const struct nsbx_channel_events events = {
    .on_data = nsbx_task_ignore_data,
    .on_fail = nsbx_task_lost,
    .on_drain = on_drain,
};

/* ---- the request ---- */

static int read_count(uint64_t *out, const json_t *body, const char *key, struct nsbx_fault *fault)
{
    const json_t *value = json_object_get(body, key);
    if (!value || json_is_null(value))
        return 0;
    int64_t number = nsbx_agent_safe_integer(value);
    if (number <= 0)
        return nsbx_fault_set(fault, "walk_invalid_limit: %s must be a positive safe integer", key);
    *out = (uint64_t)number;
    return 0;
}

/* The leading segments that are plain names, never the last one. */
static size_t plain_prefix(const char *pattern)
{
    size_t prefix = 0;
    for (const char *p = pattern;;) {
        size_t n = strcspn(p, "/");
        bool plain = n > 0 && strcspn(p, "*?[]{}()!+@\\") >= n && !(n == 1 && *p == '.') &&
                     !(n == 2 && p[0] == '.' && p[1] == '.');
        if (!plain || p[n] == '\0')
            return prefix;
        prefix = (size_t)(p - pattern) + n;
        p += n + 1;
    }
}

static int read_pattern(struct walk *w, const json_t *body)
{
    NSBX_AUTO_FREE char *pattern = NULL;
    struct nsbx_err err = {0};
    size_t n = 0;
    const json_t *value = json_object_get(body, "pattern");
    if (w->options.list)
        return 0;
    if (value && !json_is_null(value)) {
        if (nsbx_bytestr_read(value, "pattern", &pattern, &n, &err) != 0)
            return nsbx_fault_set(&w->fault, "walk_invalid_pattern: %s", err.message);
    } else if ((pattern = nsbx_strdup("**/*")) != NULL) {
        n = strlen(pattern);
    }
    if (!pattern)
        return nsbx_fault_set(&w->fault, "walk: no memory");
    if (nsbx_glob_compile(&w->glob, pattern, n, w->options.hidden, &err) != 0)
        return nsbx_fault_set(&w->fault, "walk_invalid_pattern: %s", err.message);
    w->prefix = nsbx_strndup(pattern, plain_prefix(pattern));
    return w->prefix ? 0 : nsbx_fault_set(&w->fault, "walk: no memory");
}

static int read_request(struct walk *w, const json_t *body)
{
    NSBX_AUTO_FREE char *root = NULL;
    struct nsbx_err err = {0};
    size_t n = 0;
    const json_t *value = json_object_get(body, "root");
    if (value && !json_is_null(value) && nsbx_bytestr_read(value, "root", &root, &n, &err) != 0)
        return nsbx_fault_set(&w->fault, "invalid_path: %s", err.message);
    if (n == 0)
        return nsbx_fault_set(&w->fault, "missing_root");
    w->options.list = json_is_true(json_object_get(body, "list"));
    w->options.hidden = json_is_true(json_object_get(body, "includeHidden"));
    w->options.sorted = json_is_true(json_object_get(body, "sorted"));
    w->options.max_depth = w->options.max_entries = UINT64_MAX;
    w->options.max_visited = w->options.list ? UINT64_MAX : NSBX_WALK_MAX_VISITED;
    if (read_count(&w->options.max_depth, body, "maxDepth", &w->fault) != 0 ||
        read_count(&w->options.max_entries, body, "maxEntries", &w->fault) != 0 ||
        read_count(&w->options.max_visited, body, "maxVisitedEntries", &w->fault) != 0 ||
        read_pattern(w, body) != 0)
        return -1;
    w->walker = nsbx_walker_new(&w->options, w->glob, w->prefix);
    if (!w->walker)
        return nsbx_fault_set(&w->fault, "walk: no memory");
    return nsbx_jail_locate(w->task.agent->jail, NSBX_JAIL_READ, root, n, &w->place, &w->fault);
}

static void open_walk(struct nsbx_agent *agent, struct nsbx_channel *ch, json_t *body)
{
    struct walk *w = nsbx_calloc(1, sizeof *w);
    if (!w) {
        nsbx_agent_refuse_text(ch, "no memory");
        return;
    }
    nsbx_task_begin(&w->task, agent, ch, &events, end);
    if (read_request(w, body) != 0)
        nsbx_task_refuse(&w->task, &w->fault);
    else
        nsbx_task_step(&w->task, step, stepped);
}

const struct nsbx_agent_op nsbx_agent_op_walk = {"walk", open_walk};
