#include "walk.h"

#include "base/alloc.h"
#include "base/util.h"
#include "channel/bytestr.h"
#include "codec/path.h"
#include "file_priv.h"

#include <math.h>
#include <string.h>

/* The entries of one message, checked, with their paths behind them in the same piece of memory. */
struct batch {
    struct nsbx_list node;
    size_t n, at;
    size_t weight; /* what it holds of the channel's window */
    struct nsbx_entry entries[];
};

struct nsbx_walk {
    struct nsbx_guest *guest;
    char *path;
    char *root; /* normalised, when the path is absolute: every entry must lie within; else NULL */
    json_t *body;
    int64_t left; /* entries that may still come; < 0 = any number */
    bool list;
    size_t listed, text; /* list: what came so far, entries and bytes of their paths */
    uint64_t since;      /* the reader waits since then */
    struct nsbx_feature_wait ask;
    struct nsbx_channel *channel;
    struct nsbx_list batches;
    struct nsbx_op *next; /* the reader waits */
    bool done, over;
    struct nsbx_err outcome; /* over: code 0 = the guest said done */
};

const char *nsbx_entry_type_name(enum nsbx_entry_type type)
{
    static const char *const names[] = {"file", "directory", "symlink", "other"};
    return (size_t)type < NSBX_LEN(names) ? names[type] : "other";
}

/* ---- being told ---- */

static void drop_batch(struct nsbx_walk *w, struct batch *batch)
{
    if (w->channel)
        nsbx_channel_consumed(w->channel, batch->weight);
    nsbx_list_remove(&batch->node);
    nsbx_free(batch);
}

/* A finished batch stays until the next take: its paths are lent. */
static struct batch *current(struct nsbx_walk *w)
{
    struct nsbx_list *node;
    while ((node = nsbx_list_first(&w->batches))) {
        struct batch *batch = nsbx_container_of(node, struct batch, node);
        if (batch->at < batch->n)
            return batch;
        drop_batch(w, batch);
    }
    return NULL;
}

static bool has_entries(const struct nsbx_walk *w)
{
    for (const struct nsbx_list *node = w->batches.next; node != &w->batches; node = node->next) {
        const struct batch *batch = (const struct batch *)((const char *)node - offsetof(struct batch, node));
        if (batch->at < batch->n)
            return true;
    }
    return false;
}

static void answer(struct nsbx_walk *w)
{
    struct nsbx_op *op = w->next;
    bool entries = has_entries(w);
    if (!op || (!entries && !w->over))
        return;
    w->next = NULL;
    nsbx_op_finish(op, !entries && w->outcome.code ? &w->outcome : NULL);
    nsbx_op_unref(op);
}

static void over(struct nsbx_walk *w, const struct nsbx_err *err)
{
    nsbx_channel_close(w->channel);
    w->channel = NULL;
    w->over = true;
    if (err) {
        w->outcome = *nsbx_guest_truth(w->guest, err);
        nsbx_file_wrap(&w->outcome, w->list ? "list" : "walk", w->path);
    }
    answer(w);
}

static void violation(struct nsbx_walk *w, const char *what)
{
    struct nsbx_err err;
    nsbx_err_set(&err, NSBX_E_PROTOCOL, "the guest broke the protocol: %s", what);
    over(w, &err);
}

/* ---- entries ---- */

static int wrong_entry(struct nsbx_err *err, const char *what)
{
    return nsbx_err_set(err, NSBX_E_PROTOCOL, "the guest broke the protocol: an entry with %s", what);
}

/* [path, size, type, mode, mtimeMs]; the path is checked by place_path. */
static int read_entry(const json_t *item, struct nsbx_entry *entry, struct nsbx_err *err)
{
    const json_t *size = json_array_get(item, 1), *mode = json_array_get(item, 3), *mtime = json_array_get(item, 4);
    const char *type = json_string_value(json_array_get(item, 2));
    size_t i = 0;
    while (i <= NSBX_ENTRY_OTHER && (!type || strcmp(type, nsbx_entry_type_name((enum nsbx_entry_type)i)) != 0))
        i++;
    if (i > NSBX_ENTRY_OTHER)
        return wrong_entry(err, "an unknown type");
    if (!json_is_integer(size) || json_integer_value(size) < 0)
        return wrong_entry(err, "no size");
    if (!json_is_integer(mode) || json_integer_value(mode) < 0 || json_integer_value(mode) > 07777)
        return wrong_entry(err, "no mode");
    if (!json_is_number(mtime) || !isfinite(json_number_value(mtime)))
        return wrong_entry(err, "no time");
    entry->type = (enum nsbx_entry_type)i;
    entry->size = (int64_t)json_integer_value(size);
    entry->mode = (uint32_t)json_integer_value(mode);
    entry->mtime = json_number_value(mtime) / 1000.0;
    return 0;
}

/* Upper bound of the bytes that an entry's path takes with its NUL. */
static size_t path_room(const json_t *path)
{
    return (json_is_string(path) ? json_string_length(path) : json_string_length(json_object_get(path, "base64"))) +
           1;
}

/* A walk from a file gives that file itself. */
static bool lies_where_asked(const struct nsbx_walk *w, const char *path)
{
    const char *below = nsbx_path_below(w->root, path);
    return below && (!w->list || (*below && !strchr(below, '/')));
}

static int place_path(const struct nsbx_walk *w, const json_t *path, char *at, size_t *n, struct nsbx_err *err)
{
    NSBX_AUTO_FREE char *decoded = NULL;
    const char *text = json_string_value(path);
    *n = json_string_length(path);
    if (!text) {
        if (nsbx_bytestr_read(path, "a path", &decoded, n, err) < 0)
            return err->code == NSBX_E_INVALID ? wrong_entry(err, "no path") : -err->code;
        text = decoded;
    }
    if (*n == 0 || *n >= NSBX_PATH_MAX || text[0] != '/' || memchr(text, 0, *n))
        return wrong_entry(err, "a path that is not absolute");
    memcpy(at, text, *n + 1);
    char plain[NSBX_PATH_MAX];
    if (nsbx_path_resolve(plain, "/", at, *n, NULL) < 0 || strcmp(plain, at) != 0)
        return wrong_entry(err, "a path that is not plain");
    if (w->root && !lies_where_asked(w, at))
        return wrong_entry(err, "a path outside of what was asked for");
    return 0;
}

static int fill_batch(const struct nsbx_walk *w, struct batch *batch, const json_t *items, struct nsbx_err *err)
{
    char *at = (char *)(batch->entries + batch->n);
    for (size_t i = 0; i < batch->n; i++) {
        const json_t *item = json_array_get(items, i);
        size_t len = 0;
        int rc = read_entry(item, &batch->entries[i], err);
        if (rc == 0)
            rc = place_path(w, json_array_get(item, 0), at, &len, err);
        if (rc < 0)
            return rc;
        batch->entries[i].path = at;
        at += len + 1;
    }
    return 0;
}

/* A list is held whole by whoever asked for it. */
static int count_listed(struct nsbx_walk *w, size_t n, size_t text, struct nsbx_err *err)
{
    w->listed += n;
    w->text += text;
    if (w->listed > NSBX_LIST_MAX_ENTRIES)
        return nsbx_err_set(err, NSBX_E_LIMIT,
                            "it has more than %d entries (NSBX_LIST_MAX_ENTRIES); use walk_files",
                            NSBX_LIST_MAX_ENTRIES);
    if (w->text > NSBX_LIST_MAX_TEXT)
        return nsbx_err_set(err, NSBX_E_LIMIT,
                            "its paths are more than %u bytes together (NSBX_LIST_MAX_TEXT); use walk_files",
                            NSBX_LIST_MAX_TEXT);
    return 0;
}

/* Messages without entries are no progress to whoever waits for one. */
static int check_progress(const struct nsbx_walk *w, struct nsbx_err *err)
{
    int64_t bound = nsbx_guest_ms(w->guest, NSBX_REPLY_IDLE_MS);
    if (!w->next || nsbx_now_ms() - w->since < (uint64_t)bound)
        return 0;
    return nsbx_err_set(err, NSBX_E_TIMEOUT, "the guest sent no entry for %lld ms", (long long)bound);
}

static int read_batch(struct nsbx_walk *w, const json_t *items, struct nsbx_err *err)
{
    size_t n = json_array_size(items), size = sizeof(struct batch) + n * sizeof(struct nsbx_entry);
    size_t text = 0;
    if (!json_is_array(items))
        return wrong_entry(err, "no list around it");
    if (n == 0)
        return check_progress(w, err);
    if (w->left >= 0 && (int64_t)n > w->left)
        return nsbx_err_set(err, NSBX_E_PROTOCOL, "the guest broke the protocol: more entries than were asked for");
    for (size_t i = 0; i < n; i++)
        text += path_room(json_array_get(json_array_get(items, i), 0));
    if (w->list && count_listed(w, n, text, err) < 0)
        return -err->code;
    size += text;
    struct batch *batch = nsbx_malloc(size);
    if (!batch)
        return nsbx_err_nomem(err, "entries");
    batch->n = n;
    batch->at = 0;
    batch->weight = size;
    int rc = fill_batch(w, batch, items, err);
    if (rc < 0) {
        nsbx_free(batch);
        return rc;
    }
    if (w->left >= 0)
        w->left -= (int64_t)n;
    nsbx_list_push(&w->batches, &batch->node);
    nsbx_channel_hold(w->channel, size);
    return 0;
}

/* ---- the stream ---- */

static void on_message(void *ud, json_t *message)
{
    struct nsbx_walk *w = ud;
    struct nsbx_err err;
    const char *type = json_string_value(json_object_get(message, "type"));
    if (w->done) {
        violation(w, "a message after the last one");
    } else if (type ? strcmp(type, "error") == 0 : json_is_false(json_object_get(message, "ok"))) {
        nsbx_guest_refusal(message, &err);
        over(w, &err);
    } else if (type && strcmp(type, "entries") == 0) {
        if (read_batch(w, json_object_get(message, "entries"), &err) < 0)
            over(w, &err);
        else
            answer(w);
    } else if (type && strcmp(type, "done") == 0) {
        w->done = true;
    } else {
        violation(w, "a message of an unknown type");
    }
}

static void on_end(void *ud)
{
    struct nsbx_walk *w = ud;
    if (w->done)
        over(w, NULL);
    else
        violation(w, "the stream ended without its last message");
}

static void on_fail(void *ud, const struct nsbx_err *err)
{
    over(ud, err);
}

static int start(struct nsbx_walk *w, struct nsbx_err *err)
{
    static const struct nsbx_channel_events events = {
        .on_message = on_message, .on_end = on_end, .on_fail = on_fail};
    struct nsbx_single_request request = {
        .op = "walk", .body = w->body, .idle_ms = nsbx_guest_ms(w->guest, NSBX_REPLY_IDLE_MS)};
    int rc = nsbx_guest_require(w->guest, NSBX_FEATURE_WALK, "walking and listing directories", err);
    if (rc < 0)
        return rc;
    w->channel = nsbx_guest_open(w->guest, &request, &events, w, err);
    return w->channel ? 0 : -err->code;
}

static void on_features(void *ud, const struct nsbx_err *failure)
{
    struct nsbx_walk *w = ud;
    struct nsbx_err err;
    if (!failure && start(w, &err) < 0)
        failure = &err;
    if (failure)
        over(w, failure);
}

/* ---- opening ---- */

static int put(json_t *body, const char *key, json_t *value, struct nsbx_err *err)
{
    return json_object_set_new_nocheck(body, key, value) == 0 ? 0 : nsbx_err_nomem(err, "a request");
}

static int put_limit(json_t *body, const char *key, int64_t value, struct nsbx_err *err)
{
    return value < 0 ? 0 : put(body, key, json_integer(value), err);
}

static int make_body(struct nsbx_walk *w, const struct nsbx_walk_request *request, struct nsbx_err *err)
{
    w->body = json_object();
    int rc = put(w->body, "root", nsbx_bytestr_make(request->path, strlen(request->path)), err);
    if (rc == 0 && request->list)
        rc = put(w->body, "list", json_true(), err);
    if (rc == 0 && request->pattern)
        rc = put(w->body, "pattern", nsbx_bytestr_make(request->pattern, strlen(request->pattern)), err);
    if (rc == 0 && request->include_hidden)
        rc = put(w->body, "includeHidden", json_true(), err);
    if (rc == 0 && request->sorted)
        rc = put(w->body, "sorted", json_true(), err);
    if (rc == 0)
        rc = put_limit(w->body, "maxDepth", request->max_depth, err);
    if (rc == 0)
        rc = put_limit(w->body, "maxEntries", request->max_entries, err);
    if (rc == 0)
        rc = put_limit(w->body, "maxVisitedEntries", request->max_visited, err);
    return rc;
}

static void walk_free(struct nsbx_walk *w)
{
    nsbx_guest_unask(w->guest, &w->ask);
    nsbx_channel_close(w->channel);
    w->channel = NULL;
    nsbx_list_each (node, &w->batches)
        drop_batch(w, nsbx_container_of(node, struct batch, node));
    json_decref(w->body);
    nsbx_free(w->root);
    nsbx_free(w->path);
    nsbx_guest_unref(w->guest);
    nsbx_free(w);
}

static int copy_paths(struct nsbx_walk *w, const char *path, struct nsbx_err *err)
{
    char root[NSBX_PATH_MAX];
    w->path = nsbx_strdup(path);
    if (!w->path)
        return nsbx_err_nomem(err, "a walk");
    if (path[0] != '/')
        return 0;
    int rc = nsbx_path_resolve(root, "/", path, strlen(path), err);
    if (rc < 0)
        return rc;
    w->root = nsbx_strdup(root);
    return w->root ? 0 : nsbx_err_nomem(err, "a walk");
}

int nsbx_walk_open(struct nsbx_guest *guest, const struct nsbx_walk_request *request, struct nsbx_walk **out,
                   struct nsbx_err *err)
{
    struct nsbx_err failure;
    int rc = nsbx_file_check(request->path, -1, -1, err);
    if (rc < 0)
        return rc;
    struct nsbx_walk *w = nsbx_calloc(1, sizeof *w);
    if (!w)
        return nsbx_err_nomem(err, "a walk");
    w->guest = nsbx_guest_ref(guest);
    w->list = request->list;
    w->left = request->list || request->max_entries < 0 ? -1 : request->max_entries;
    nsbx_list_init(&w->batches);
    nsbx_list_init(&w->ask.node);
    w->ask.done = on_features;
    w->ask.ud = w;
    rc = copy_paths(w, request->path, err);
    if (rc == 0)
        rc = make_body(w, request, err);
    if (rc < 0) {
        walk_free(w);
        return rc;
    }
    *out = w;
    rc = nsbx_guest_ask(guest, &w->ask, &failure);
    if (rc != 0)
        on_features(w, rc < 0 ? &failure : NULL);
    return 0;
}

/* ---- reading ---- */

static void next_stop(struct nsbx_op *op, void *owner, enum nsbx_op_stop why)
{
    (void)why;
    struct nsbx_walk *w = owner;
    nsbx_guest_unask(w->guest, &w->ask);
    nsbx_channel_close(w->channel);
    w->channel = NULL;
    w->next = NULL;
    nsbx_op_finish_stopped(op);
    w->over = true;
    nsbx_err_copy(&w->outcome, nsbx_op_err(op));
    nsbx_op_unref(op);
}

struct nsbx_op *nsbx_walk_next(struct nsbx_walk *w, int64_t timeout_ms)
{
    struct nsbx_err err;
    if (w->next) {
        nsbx_err_set(&err, NSBX_E_INVALID, "somebody waits for the next entry of this walk already");
        return nsbx_waits_over(w->guest->loop, "walk", &err, NULL);
    }
    struct nsbx_op_spec spec = {
        .name = w->list ? "list_files" : "walk_files", .timeout_ms = timeout_ms, .stop = next_stop, .owner = w};
    w->next = nsbx_op_new(w->guest->loop, &spec);
    if (!w->next)
        return NULL;
    w->since = nsbx_now_ms();
    struct nsbx_op *op = nsbx_op_ref(w->next);
    answer(w);
    return op;
}

bool nsbx_walk_take(struct nsbx_walk *w, struct nsbx_entry *entry)
{
    struct batch *batch = current(w);
    if (!batch)
        return false;
    *entry = batch->entries[batch->at++];
    if (batch->at == batch->n && w->channel) { /* the memory is lent on, but the guest may send more */
        nsbx_channel_consumed(w->channel, batch->weight);
        batch->weight = 0;
    }
    return true;
}

bool nsbx_walk_ended(const struct nsbx_walk *w)
{
    return w->over && w->outcome.code == 0 && !has_entries(w);
}

void nsbx_walk_close(struct nsbx_walk *w)
{
    struct nsbx_err err;
    if (!w)
        return;
    if (w->next) {
        nsbx_err_set(&err, NSBX_E_CANCELLED, "the walk was closed");
        nsbx_op_finish(w->next, &err);
        nsbx_op_unref(w->next);
    }
    walk_free(w);
}
