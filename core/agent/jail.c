#include "jail_priv.h"

#include "base/alloc.h"
#include "base/util.h"
#include "codec/path.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_ROOTS = 64, OPEN_EXTRA = O_NONBLOCK | O_NOCTTY | O_CLOEXEC };

struct root_list {
    struct nsbx_jail_root *roots[MAX_ROOTS]; /* shared between the two lists */
    size_t n;
};

struct nsbx_jail {
    struct nsbx_jail_root *all[2 * MAX_ROOTS]; /* owned */
    size_t n;
    struct root_list read, write;
};

/* Roots are opened and reopened by pool threads. */
static pthread_mutex_t roots_lock = PTHREAD_MUTEX_INITIALIZER;

static struct nsbx_jail_root *find_root(const struct nsbx_jail *jail, const char *path)
{
    for (size_t i = 0; i < jail->n; i++)
        if (strcmp(jail->all[i]->path, path) == 0)
            return jail->all[i];
    return NULL;
}

static int add_root(struct nsbx_jail *jail, struct root_list *list, const char *text, size_t len,
                    struct nsbx_err *err)
{
    char here[NSBX_PATH_MAX], path[NSBX_PATH_MAX];
    if (!getcwd(here, sizeof here) || here[0] != '/')
        strcpy(here, "/");
    int rc = nsbx_path_resolve(path, here, text, len, err);
    if (rc)
        return nsbx_err_wrap(err, "a root of the file jail");
    struct nsbx_jail_root *root = find_root(jail, path);
    for (size_t i = 0; root && i < list->n; i++)
        if (list->roots[i] == root)
            return 0;
    if (list->n == MAX_ROOTS)
        return nsbx_err_set(err, NSBX_E_LIMIT, "the file jail has more than %d roots", MAX_ROOTS);
    if (!root) {
        root = nsbx_calloc(1, sizeof *root);
        if (!root)
            return nsbx_err_nomem(err, "a root of the file jail");
        root->fd = -1;
        strcpy(root->path, path);
        jail->all[jail->n++] = root;
    }
    list->roots[list->n++] = root;
    return 0;
}

static int add_roots(struct nsbx_jail *jail, struct root_list *list, const char *text, struct nsbx_err *err)
{
    int rc = 0;
    while (text && *text && rc == 0) {
        size_t n = strcspn(text, ":"), head = 0, tail = n;
        while (head < n && isspace((unsigned char)text[head]))
            head++;
        while (tail > head && isspace((unsigned char)text[tail - 1]))
            tail--;
        if (tail > head)
            rc = add_root(jail, list, text + head, tail - head, err);
        text += n + (text[n] == ':');
    }
    return rc;
}

int nsbx_jail_new(struct nsbx_jail **out, const char *workspace, const char *read_roots, const char *write_roots,
                  struct nsbx_err *err)
{
    struct nsbx_jail *jail = nsbx_calloc(1, sizeof *jail);
    if (!jail)
        return nsbx_err_nomem(err, "the file jail");
    int rc = add_root(jail, &jail->read, workspace, strlen(workspace), err);
    if (rc == 0)
        rc = add_root(jail, &jail->write, workspace, strlen(workspace), err);
    if (rc == 0)
        rc = add_roots(jail, &jail->read, read_roots, err);
    if (rc == 0)
        rc = add_roots(jail, &jail->write, write_roots, err);
    if (rc) {
        nsbx_jail_free(jail);
        return rc;
    }
    *out = jail;
    return 0;
}

void nsbx_jail_free(struct nsbx_jail *jail)
{
    if (!jail)
        return;
    for (size_t i = 0; i < jail->n; i++) {
        nsbx_cleanup_fd(&jail->all[i]->fd);
        nsbx_free(jail->all[i]);
    }
    nsbx_free(jail);
}

const char *nsbx_jail_workspace(const struct nsbx_jail *jail)
{
    return jail->read.roots[0]->path;
}

int nsbx_jail_locate(struct nsbx_jail *jail, enum nsbx_jail_use use, const char *path, size_t len,
                     struct nsbx_jail_place *place, struct nsbx_fault *fault)
{
    struct nsbx_err err = {0};
    int rc = nsbx_path_resolve(place->path, nsbx_jail_workspace(jail), path, len, &err);
    if (rc == -NSBX_E_LIMIT)
        return nsbx_fault_sys(fault, ENAMETOOLONG, "open", path);
    if (rc)
        return nsbx_fault_set(fault, "invalid_path: %s", err.message);
    const struct root_list *list = use == NSBX_JAIL_READ ? &jail->read : &jail->write;
    size_t last = len > 0 && path[0] == '/' ? list->n : 1; /* a relative path is the workspace's business alone */
    for (size_t i = 0; i < last; i++) {
        place->below = nsbx_path_below(list->roots[i]->path, place->path);
        if (place->below) {
            place->root = list->roots[i];
            return 0;
        }
    }
    return nsbx_fault_set(fault, "path escapes the workspace");
}

static int make_path(const char *path)
{
    char part[NSBX_PATH_MAX];
    for (const char *slash = path; slash;) {
        slash = strchr(slash + 1, '/');
        size_t n = slash ? (size_t)(slash - path) : strlen(path);
        memcpy(part, path, n);
        part[n] = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return -errno;
    }
    return 0;
}

/* A root that was removed is looked up again by its name; its descriptor keeps its number, which others may have borrowed. */
static int open_root(struct nsbx_jail_root *root, bool make)
{
    struct stat st;
    if (root->fd >= 0 && fstat(root->fd, &st) == 0 && st.st_nlink > 0)
        return 0;
    int fd = open(root->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && make) {
        int rc = make_path(root->path);
        if (rc)
            return rc;
        fd = open(root->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    }
    if (fd < 0)
        return -errno;
    if (root->fd < 0) {
        root->fd = fd;
    } else {
        int rc = dup3(fd, root->fd, O_CLOEXEC) < 0 ? -errno : 0;
        close(fd);
        if (rc)
            return rc;
    }
    if (!realpath(root->path, root->real))
        root->real[0] = '\0';
    return 0;
}

int nsbx_jail_workspace_fd(struct nsbx_jail *jail, bool make)
{
    struct nsbx_jail_root *root = jail->read.roots[0];
    pthread_mutex_lock(&roots_lock);
    open_root(root, make);
    int fd = root->fd;
    pthread_mutex_unlock(&roots_lock);
    return fd;
}

/* A descriptor of the caller's own, so that a root that is opened anew harms nobody. */
static int root_fd(struct nsbx_jail_root *root, bool make)
{
    pthread_mutex_lock(&roots_lock);
    int rc = open_root(root, make);
    if (rc == 0) {
        rc = fcntl(root->fd, F_DUPFD_CLOEXEC, 0);
        if (rc < 0)
            rc = -errno;
    }
    pthread_mutex_unlock(&roots_lock);
    return rc;
}

int nsbx_jail_cwd(struct nsbx_jail *jail, const char *path)
{
    if (!*path)
        return root_fd(jail->read.roots[0], true);
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 || errno != ENOENT)
        return fd >= 0 ? fd : -errno;
    int rc = make_path(path);
    if (rc)
        return rc;
    fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 ? fd : -errno;
}

static int open_beneath(int dir, const char *path, int flags)
{
    struct open_how how = {.flags = (unsigned)flags, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    long fd = syscall(SYS_openat2, dir, *path ? path : ".", &how, sizeof how);
    return fd < 0 ? -errno : (int)fd;
}

/* What openat2 leaves open: absolute links (EXDEV), a race that it noticed (EAGAIN), a kernel or a filter without it. */
static bool walk_instead(int rc)
{
    return rc == -EXDEV || rc == -EAGAIN || rc == -ENOSYS || rc == -EPERM;
}

static int fail(struct nsbx_fault *fault, int rc, const struct nsbx_jail_place *place)
{
    if (rc == -EXDEV)
        return nsbx_fault_set(fault, "symlink escapes the workspace");
    return nsbx_fault_sys(fault, -rc, "open", place->path);
}

/* Between the walk and the open the name may have become a link: then the walk goes on from there. */
static int open_walked(struct nsbx_trail *t, int flags)
{
    char name[NAME_MAX + 1];
    for (;;) {
        int rc = nsbx_trail_walk(t, name);
        if (rc)
            return rc;
        int fd = openat(t->dir, name, flags | O_NOFOLLOW);
        if (fd >= 0)
            return fd;
        if (errno != ELOOP || t->links >= NSBX_JAIL_MAX_LINKS)
            return -errno;
        strcpy(t->todo, name);
    }
}

int nsbx_jail_open(const struct nsbx_jail_place *place, int flags, struct nsbx_fault *fault)
{
    flags |= OPEN_EXTRA;
    int root = root_fd(place->root, false);
    if (root < 0)
        return fail(fault, root, place);
    int rc = open_beneath(root, place->below, flags);
    if (!walk_instead(rc)) {
        close(root);
        return rc < 0 ? fail(fault, rc, place) : rc;
    }
    struct nsbx_trail t;
    rc = nsbx_trail_begin(&t, place->root, root, place->below, false);
    if (rc == 0)
        rc = open_walked(&t, flags);
    nsbx_trail_end(&t);
    return rc < 0 ? fail(fault, rc, place) : rc;
}

static int stat_seat(struct nsbx_jail_seat *seat)
{
    seat->exists = fstatat(seat->dir, seat->name, &seat->st, AT_SYMLINK_NOFOLLOW) == 0;
    return seat->exists || errno == ENOENT ? 0 : -errno;
}

/* The usual case: the directory opens below the root, and the name in it is no link. -EAGAIN: it is, or openat2 cannot tell. */
static int seat_directly(int root, const struct nsbx_jail_place *place, struct nsbx_jail_seat *seat)
{
    char parent[NSBX_PATH_MAX];
    const char *slash = strrchr(place->below, '/'), *name = slash ? slash + 1 : place->below;
    size_t n = slash ? (size_t)(slash - place->below) : 0;
    if (strlen(name) > NAME_MAX)
        return -ENAMETOOLONG;
    memcpy(parent, place->below, n);
    parent[n] = '\0';
    strcpy(seat->name, *name ? name : ".");
    int rc = open_beneath(root, parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (rc < 0)
        return walk_instead(rc) ? -EAGAIN : rc;
    seat->dir = rc;
    rc = stat_seat(seat);
    if (rc == 0 && seat->exists && S_ISLNK(seat->st.st_mode))
        rc = -EAGAIN;
    if (rc)
        nsbx_cleanup_fd(&seat->dir);
    return rc;
}

static int seat_in(int dir, const char *name, struct nsbx_jail_seat *seat)
{
    strcpy(seat->name, name);
    seat->dir = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (seat->dir < 0)
        return -errno;
    int rc = stat_seat(seat);
    if (rc)
        nsbx_cleanup_fd(&seat->dir);
    return rc;
}

/* A link that leads to nothing is a file of its own: where the first link was is the seat then. */
static int seat_walked(struct nsbx_trail *t, struct nsbx_jail_seat *seat)
{
    char name[NAME_MAX + 1];
    int rc = nsbx_trail_walk(t, name);
    if (rc == 0)
        rc = seat_in(t->dir, name, seat);
    bool nothing = rc == 0 ? !seat->exists : rc == -ENOENT;
    if (!nothing || t->links == 0 || t->link_dir < 0)
        return rc;
    if (rc == 0)
        nsbx_cleanup_fd(&seat->dir);
    return seat_in(t->link_dir, t->link_name, seat);
}

int nsbx_jail_seat(const struct nsbx_jail_place *place, bool make, struct nsbx_jail_seat *seat,
                   struct nsbx_fault *fault)
{
    seat->dir = -1;
    int root = root_fd(place->root, make);
    if (root < 0)
        return fail(fault, root, place);
    int rc = seat_directly(root, place, seat);
    if (rc != -EAGAIN && !(rc == -ENOENT && make)) {
        close(root);
        return rc ? fail(fault, rc, place) : 0;
    }
    struct nsbx_trail t;
    rc = nsbx_trail_begin(&t, place->root, root, place->below, make);
    if (rc == 0)
        rc = seat_walked(&t, seat);
    nsbx_trail_end(&t);
    return rc ? fail(fault, rc, place) : 0;
}
