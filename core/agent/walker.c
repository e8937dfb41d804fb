#include "walker.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "base/util.h"
#include "codec/path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    RAW_BYTES =
        6 * 1024, /* one reading of a directory: no more than NSBX_WALK_BATCH entries of the smallest size */
    OPEN_DIR = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
};

/* As the kernel gives it. */
struct raw_entry {
    uint64_t ino;
    int64_t next;
    uint16_t size;
    uint8_t type;
    char name[];
};
#define RAW_NAME offsetof(struct raw_entry, name)

/* A directory on the way from the root to where the walk is. */
struct level {
    int fd; /* -1 while it is closed for the sake of those below */
    dev_t dev;
    ino_t ino;
    size_t path_len; /* of the walker's path that names it */
    uint64_t *state; /* the pattern's, for its entries; NULL with list */
    bool eof;
    /* unsorted: entries as read */
    uint8_t *raw;
    size_t raw_len, raw_next;
    off_t position; /* after the last entry that was taken */
    /* sorted: all names first, each behind its type, then their order */
    struct nsbx_buf names;
    uint32_t *order;
    size_t count, next;
};

struct nsbx_walker {
    struct nsbx_walk_options options;
    const struct nsbx_glob *glob;
    const char *prefix;
    size_t words; /* of a state */
    uint64_t *next_state;
    struct level *levels;
    size_t depth, cap; /* levels in use, and room for */
    size_t root_len;
    char path[NSBX_PATH_MAX]; /* of the last level, while it is worked on; its entries' names are added behind it */
    uint64_t visited, emitted;
    size_t budget; /* entries that this step may still look at */
    size_t held;   /* bytes of all names held */
    bool done;
    struct nsbx_walk_entry *batch; /* NSBX_WALK_BATCH of them */
    size_t batch_n;
    struct nsbx_buf text;
};

struct nsbx_walker *nsbx_walker_new(const struct nsbx_walk_options *options, const struct nsbx_glob *glob,
                                    const char *prefix)
{
    struct nsbx_walker *w = nsbx_calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->options = *options;
    w->options.sorted = options->sorted || options->list;
    w->glob = glob;
    w->prefix = prefix;
    w->words = glob ? nsbx_glob_state_words(glob) : 0;
    w->next_state = nsbx_calloc(w->words + 1, sizeof *w->next_state);
    w->batch = nsbx_calloc(NSBX_WALK_BATCH, sizeof *w->batch);
    nsbx_buf_init(&w->text, NSBX_WALK_BATCH_TEXT + NSBX_PATH_MAX);
    if (!w->batch || !w->next_state) {
        nsbx_walker_free(w);
        return NULL;
    }
    return w;
}

static void pop(struct nsbx_walker *w)
{
    struct level *l = &w->levels[--w->depth];
    nsbx_cleanup_fd(&l->fd);
    w->held -= l->names.len;
    nsbx_buf_free(&l->names);
    nsbx_free(l->order);
    nsbx_free(l->raw);
    nsbx_free(l->state);
}

void nsbx_walker_free(struct nsbx_walker *w)
{
    if (!w)
        return;
    while (w->depth)
        pop(w);
    nsbx_free(w->levels);
    nsbx_free(w->next_state);
    nsbx_free(w->batch);
    nsbx_buf_free(&w->text);
    nsbx_free(w);
}

static struct level *top(struct nsbx_walker *w)
{
    return &w->levels[w->depth - 1];
}

static int no_memory(struct nsbx_fault *fault)
{
    return nsbx_fault_sys(fault, ENOMEM, "scandir", NULL);
}

/* ---- levels ---- */

static int add_name(struct nsbx_walker *w, size_t at, const char *name, size_t n, struct nsbx_fault *fault)
{
    if (at + 1 + n >= sizeof w->path) {
        w->path[at] = '\0';
        return nsbx_fault_sys(fault, ENAMETOOLONG, "scandir", w->path);
    }
    if (at > 1) /* not behind the slash of the root directory */
        w->path[at++] = '/';
    memcpy(w->path + at, name, n);
    w->path[at + n] = '\0';
    return 0;
}

/* Enters `fd`, the directory that w->path names; `state` (copied) is the pattern's for its entries. Takes `fd` over. */
static int push(struct nsbx_walker *w, int fd, const uint64_t *state, struct nsbx_fault *fault)
{
    struct stat st;
    if (w->depth == w->cap) {
        size_t cap = w->cap ? w->cap * 2 : 16;
        struct level *levels = nsbx_realloc(w->levels, cap * sizeof *levels);
        if (!levels) {
            close(fd);
            return no_memory(fault);
        }
        w->levels = levels;
        w->cap = cap;
    }
    struct level *l = &w->levels[w->depth++];
    *l = (struct level){.fd = fd, .path_len = strlen(w->path)};
    nsbx_buf_init(&l->names, NSBX_WALK_HELD);
    if (fstat(fd, &st) != 0)
        return nsbx_fault_sys(fault, errno, "scandir", w->path);
    l->dev = st.st_dev;
    l->ino = st.st_ino;
    if (state) {
        l->state = nsbx_malloc((w->words + 1) * sizeof *l->state);
        if (!l->state)
            return no_memory(fault);
        memcpy(l->state, state, w->words * sizeof *state);
    }
    /* The one that is now far enough above is closed, with what it read ahead; not the root, from which they are opened again. */
    if (w->depth > NSBX_WALK_OPEN_DIRS + 1) {
        struct level *above = &w->levels[w->depth - 1 - NSBX_WALK_OPEN_DIRS];
        nsbx_cleanup_fd(&above->fd);
        nsbx_free(above->raw);
        above->raw = NULL;
        above->raw_len = above->raw_next = 0;
    }
    return 0;
}

/* By names from the root, never through a link. */
static int open_below(int root, const char *below)
{
    char names[NSBX_PATH_MAX], *rest = names, *name;
    strcpy(names, below);
    int dir = fcntl(root, F_DUPFD_CLOEXEC, 0);
    while (dir >= 0 && (name = strsep(&rest, "/")) != NULL) {
        int next = openat(dir, *name ? name : ".", OPEN_DIR);
        int sys = errno;
        close(dir);
        errno = sys;
        dir = next;
    }
    return dir;
}

/* The directory of the last level, open. False: it is not there any more, and the level is gone. */
static bool ensure_open(struct nsbx_walker *w)
{
    struct level *l = top(w);
    struct stat st;
    w->path[l->path_len] = '\0';
    if (l->fd >= 0)
        return true;
    const char *below = w->path + w->root_len;
    l->fd = open_below(w->levels[0].fd, *below == '/' ? below + 1 : below);
    if (l->fd >= 0 && fstat(l->fd, &st) == 0 && st.st_dev == l->dev && st.st_ino == l->ino) {
        if (!w->options.sorted)
            lseek(l->fd, l->position, SEEK_SET);
        return true;
    }
    pop(w);
    return false;
}

/* ---- reading a directory ---- */

static bool is_dots(const char *name)
{
    return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

static int count_visit(struct nsbx_walker *w, struct nsbx_fault *fault)
{
    w->budget -= w->budget > 0;
    if (++w->visited <= w->options.max_visited)
        return 0;
    nsbx_fault_set(fault, "walk_limit: more than %llu entries visited (maxVisitedEntries)",
                   (unsigned long long)w->options.max_visited);
    fault->code = "ERR_FILE_WALK_LIMIT";
    return -1;
}

/* 1: something was read, 0: the end. A directory that was removed while it is open has no entries. */
static int read_raw(struct nsbx_walker *w, struct nsbx_fault *fault)
{
    struct level *l = top(w);
    if (!l->raw && !(l->raw = nsbx_malloc(RAW_BYTES)))
        return no_memory(fault);
    long n = syscall(SYS_getdents64, l->fd, l->raw, RAW_BYTES);
    if (n < 0 && errno != ENOENT) {
        w->path[l->path_len] = '\0';
        return nsbx_fault_sys(fault, errno, "scandir", w->path);
    }
    l->raw_len = n > 0 ? (size_t)n : 0;
    l->raw_next = 0;
    l->eof = n <= 0;
    return n > 0;
}

/* The next entry as read; false when a new reading is due. The fields of a raw entry are not aligned for sure, hence the copies. */
static bool take_raw(struct level *l, const char **name, uint8_t *type)
{
    while (l->raw_next < l->raw_len) {
        const uint8_t *p = l->raw + l->raw_next;
        int64_t next;
        uint16_t size;
        memcpy(&next, p + offsetof(struct raw_entry, next), sizeof next);
        memcpy(&size, p + offsetof(struct raw_entry, size), sizeof size);
        l->raw_next += size;
        l->position = next;
        *type = p[offsetof(struct raw_entry, type)];
        *name = (const char *)p + RAW_NAME;
        if (!is_dots(*name))
            return true;
    }
    return false;
}

static int compare_names(const void *a, const void *b, void *names)
{
    uint32_t at[2];
    memcpy(&at[0], a, sizeof at[0]);
    memcpy(&at[1], b, sizeof at[1]);
    const char *base = names;
    return strcmp(base + at[0] + 1, base + at[1] + 1);
}

static int sort_names(struct level *l, struct nsbx_fault *fault)
{
    l->order = nsbx_calloc(l->count + 1, sizeof *l->order);
    if (!l->order)
        return no_memory(fault);
    const char *base = (const char *)nsbx_buf_data(&l->names);
    size_t at = 0;
    for (size_t i = 0; i < l->count; i++) {
        l->order[i] = (uint32_t)at;
        at += 1 + strlen(base + at + 1) + 1;
    }
    if (l->count)
        qsort_r(l->order, l->count, sizeof *l->order, compare_names, nsbx_buf_data(&l->names));
    nsbx_free(l->raw);
    l->raw = NULL;
    return 0;
}

/* One reading more of the names that a sorted level holds. */
static int gather(struct nsbx_walker *w, struct nsbx_fault *fault)
{
    struct level *l = top(w);
    const char *name;
    uint8_t type;
    int rc = read_raw(w, fault);
    while (rc > 0 && take_raw(l, &name, &type)) {
        size_t n = strlen(name) + 1;
        if (count_visit(w, fault) != 0)
            return -1;
        if (w->held + 1 + n > NSBX_WALK_HELD || nsbx_buf_append(&l->names, &type, 1, NULL) != 0 ||
            nsbx_buf_append(&l->names, name, n, NULL) != 0) {
            nsbx_fault_set(fault, "walk_limit: more than %u bytes of names to sort", NSBX_WALK_HELD);
            fault->code = "ERR_FILE_WALK_LIMIT";
            return -1;
        }
        w->held += 1 + n;
        l->count++;
    }
    return rc < 0 || !l->eof ? rc : sort_names(l, fault);
}

/* 1: an entry, 0: none at hand (read on, or the level is at its end), -1: the fault. */
static int next_entry(struct nsbx_walker *w, const char **name, uint8_t *type, struct nsbx_fault *fault)
{
    struct level *l = top(w);
    if (!w->options.sorted) {
        if (take_raw(l, name, type))
            return count_visit(w, fault) == 0 ? 1 : -1;
        return l->eof || read_raw(w, fault) >= 0 ? 0 : -1;
    }
    if (!l->eof)
        return gather(w, fault) < 0 ? -1 : 0;
    if (l->next == l->count)
        return 0;
    const uint8_t *entry = nsbx_buf_data(&l->names) + l->order[l->next++];
    *type = entry[0];
    *name = (const char *)entry + 1;
    w->budget -= w->budget > 0;
    return 1;
}

static bool level_ended(const struct nsbx_walker *w)
{
    const struct level *l = &w->levels[w->depth - 1];
    return l->eof && (w->options.sorted ? l->next == l->count : l->raw_next == l->raw_len);
}

/* ---- what is done with an entry ---- */

static int emit(struct nsbx_walker *w, const struct stat *st, struct nsbx_fault *fault)
{
    size_t n = strlen(w->path);
    struct nsbx_walk_entry *entry = &w->batch[w->batch_n];
    *entry = (struct nsbx_walk_entry){w->text.len, n, *st};
    if (nsbx_buf_append(&w->text, w->path, n + 1, NULL) != 0)
        return no_memory(fault);
    w->batch_n++;
    w->done = ++w->emitted >= w->options.max_entries || w->done;
    return 0;
}

static int descend(struct nsbx_walker *w, const char *name, struct nsbx_fault *fault)
{
    int fd = openat(top(w)->fd, name, OPEN_DIR);
    if (fd >= 0)
        return push(w, fd, w->next_state, fault);
    if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)
        return 0; /* it was a directory when it was met */
    return nsbx_fault_sys(fault, errno, "opendir", w->path);
}

static int stat_entry(const struct nsbx_walker *w, const char *name, struct stat *st, struct nsbx_fault *fault)
{
    if (fstatat(w->levels[w->depth - 1].fd, name, st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) == 0)
        return 1;
    return errno == ENOENT ? 0 : nsbx_fault_sys(fault, errno, "lstat", w->path);
}

static int visit(struct nsbx_walker *w, const char *name, uint8_t type, struct nsbx_fault *fault)
{
    struct stat st = {0};
    size_t n = strlen(name);
    bool stated = w->options.list || type == DT_UNKNOWN, matches = w->options.list, deeper = false;
    if (add_name(w, top(w)->path_len, name, n, fault) != 0)
        return -1;
    int there = stated ? stat_entry(w, name, &st, fault) : 1;
    if (there <= 0)
        return there;
    bool regular = stated ? S_ISREG(st.st_mode) : type == DT_REG;
    bool directory = stated ? S_ISDIR(st.st_mode) : type == DT_DIR;
    if (w->glob && (regular || directory))
        deeper = nsbx_glob_step(w->glob, top(w)->state, name, n, w->next_state, &matches);
    if (w->glob)
        matches = matches && regular;
    if (matches && !stated && (there = stat_entry(w, name, &st, fault)) <= 0)
        return there;
    if (matches)
        return emit(w, &st, fault);
    if (directory && deeper && w->depth < w->options.max_depth)
        return descend(w, name, fault);
    return 0;
}

int nsbx_walker_step(struct nsbx_walker *w, struct nsbx_fault *fault)
{
    if (w->done)
        return 0; /* the beginning was all */
    w->batch_n = 0;
    w->text.head = w->text.len = 0;
    w->budget = NSBX_WALK_BATCH;
    while (!w->done && w->budget && w->batch_n < NSBX_WALK_BATCH && w->text.len < NSBX_WALK_BATCH_TEXT) {
        const char *name;
        uint8_t type;
        if (w->depth == 0) {
            w->done = true;
        } else if (level_ended(w)) {
            pop(w);
        } else if (ensure_open(w)) {
            int rc = next_entry(w, &name, &type, fault);
            if (rc > 0)
                rc = visit(w, name, type, fault);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

/* ---- the beginning ---- */

/* A root that is a file: an entry of its own, by its name. */
static int begin_with_file(struct nsbx_walker *w, const struct stat *st, struct nsbx_fault *fault)
{
    const char *name = nsbx_path_base(w->path);
    bool matches;
    w->done = true;
    w->budget = 1;
    nsbx_glob_start(w->glob, w->next_state);
    uint64_t *state = nsbx_malloc((w->words + 1) * sizeof *state);
    if (!state)
        return no_memory(fault);
    nsbx_glob_step(w->glob, w->next_state, name, strlen(name), state, &matches);
    nsbx_free(state);
    if (count_visit(w, fault) != 0)
        return -1;
    return matches ? emit(w, st, fault) : 0;
}

/* The pattern's plain names: each is one entry looked at, not a directory to be searched. */
static int follow_prefix(struct nsbx_walker *w, struct nsbx_fault *fault)
{
    const char *p = w->prefix;
    while (*p && !w->done) {
        bool matches;
        char name[NAME_MAX + 1];
        size_t n = strcspn(p, "/");
        if (n > NAME_MAX || w->depth >= w->options.max_depth) {
            w->done = true;
            return 0;
        }
        memcpy(name, p, n);
        name[n] = '\0';
        p += n + (p[n] == '/');
        if (count_visit(w, fault) != 0 || add_name(w, top(w)->path_len, name, n, fault) != 0)
            return -1;
        top(w)->eof = true;
        size_t depth = w->depth;
        if (nsbx_glob_step(w->glob, top(w)->state, name, n, w->next_state, &matches) &&
            descend(w, name, fault) != 0)
            return -1;
        w->done = w->depth == depth;
    }
    return 0;
}

int nsbx_walker_begin(struct nsbx_walker *w, int fd, const char *path, struct nsbx_fault *fault)
{
    struct stat st = {0};
    strcpy(w->path, path); /* shorter than NSBX_PATH_MAX */
    w->root_len = strlen(path);
    if (fstat(fd, &st) != 0 || !S_ISDIR(st.st_mode)) {
        close(fd);
        if (w->glob && S_ISREG(st.st_mode))
            return begin_with_file(w, &st, fault);
        return nsbx_fault_sys(fault, ENOTDIR, "scandir", path);
    }
    if (w->glob)
        nsbx_glob_start(w->glob, w->next_state);
    if (push(w, fd, w->glob ? w->next_state : NULL, fault) != 0)
        return -1;
    return w->glob ? follow_prefix(w, fault) : 0;
}

/* ---- what came of it ---- */

bool nsbx_walker_done(const struct nsbx_walker *w)
{
    return w->done;
}

uint64_t nsbx_walker_visited(const struct nsbx_walker *w)
{
    return w->visited;
}

const struct nsbx_walk_entry *nsbx_walker_batch(const struct nsbx_walker *w, size_t *n, const char **text)
{
    *n = w->batch_n;
    *text = (const char *)nsbx_buf_data(&w->text);
    return w->batch;
}
