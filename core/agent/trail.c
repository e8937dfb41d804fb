/* The walk of a path's components below a root, with no help of openat2: each name is opened without following links, and a link's
 * text is put before what is still to be walked. */
#include "jail_priv.h"

#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum {
    OPEN_DIR = O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC,
    MAX_STEPS = 16384, /* names walked, those of links included: a bound on hostile links full of ".." */
};

int nsbx_trail_begin(struct nsbx_trail *t, const struct nsbx_jail_root *root, int root_fd, const char *below,
                     bool make)
{
    t->root = root;
    t->root_fd = root_fd;
    t->link_dir = -1;
    t->make = make;
    t->links = t->steps = 0;
    t->done[0] = '\0';
    strcpy(t->todo, below); /* shorter than NSBX_PATH_MAX */
    t->own = strlen(below);
    t->dir = fcntl(root_fd, F_DUPFD_CLOEXEC, 0);
    return t->dir < 0 ? -errno : 0;
}

void nsbx_trail_end(struct nsbx_trail *t)
{
    nsbx_cleanup_fd(&t->root_fd);
    nsbx_cleanup_fd(&t->dir);
    nsbx_cleanup_fd(&t->link_dir);
}

/* Takes the next name off todo; "" when nothing is left. `last`: only slashes follow. */
static int next_name(struct nsbx_trail *t, char name[NAME_MAX + 1], bool *last)
{
    const char *start = t->todo + strspn(t->todo, "/");
    size_t n = strcspn(start, "/");
    if (n > NAME_MAX)
        return -ENAMETOOLONG;
    memcpy(name, start, n);
    name[n] = '\0';
    const char *rest = start + n + strspn(start + n, "/");
    *last = *rest == '\0';
    t->of_link = strlen(t->todo) > t->own;
    t->own = NSBX_MIN(t->own, strlen(rest));
    memmove(t->todo, rest, strlen(rest) + 1);
    return 0;
}

static void move_to(struct nsbx_trail *t, int dir)
{
    close(t->dir);
    t->dir = dir;
}

static int back_to_root(struct nsbx_trail *t)
{
    int dir = fcntl(t->root_fd, F_DUPFD_CLOEXEC, 0);
    if (dir < 0)
        return -errno;
    move_to(t, dir);
    t->done[0] = '\0';
    return 0;
}

/* Goes down to `dir`, which is `name` in the present one. Takes `dir` over. */
static int descend(struct nsbx_trail *t, const char *name, int dir)
{
    size_t have = strlen(t->done), n = strlen(name);
    if (have + 1 + n >= sizeof t->done) {
        close(dir);
        return -ENAMETOOLONG;
    }
    if (have)
        t->done[have++] = '/';
    memcpy(t->done + have, name, n + 1);
    move_to(t, dir);
    return 0;
}

/* "..": not by asking the kernel, for whom the parent may by now be elsewhere, but by walking the known names again. */
static int ascend(struct nsbx_trail *t)
{
    char names[NSBX_PATH_MAX];
    if (!t->done[0])
        return -EXDEV;
    strcpy(names, t->done);
    char *slash = strrchr(names, '/');
    *(slash ? slash : names) = '\0';
    int rc = back_to_root(t);
    char *rest = names, *name;
    while (rc == 0 && (name = strsep(&rest, "/")) != NULL && *name) {
        int dir = openat(t->dir, name, OPEN_DIR);
        t->steps++;
        rc = dir < 0 ? -errno : descend(t, name, dir);
    }
    return rc;
}

/* The part of an absolute link's text below `root`; NULL when it leads elsewhere. ".." inside the root's own part is elsewhere. */
static const char *below_root(const char *root, const char *text)
{
    for (;;) {
        root += strspn(root, "/");
        text += strspn(text, "/");
        size_t n = strcspn(root, "/");
        if (n == 0)
            return text;
        if (strcspn(text, "/") != n || memcmp(root, text, n) != 0)
            return NULL;
        root += n;
        text += n;
    }
}

/* Puts the text of a link before what is still to be walked. */
static int follow(struct nsbx_trail *t, const char *text, size_t n)
{
    if (++t->links > NSBX_JAIL_MAX_LINKS)
        return -ELOOP;
    const char *rest = text;
    if (text[0] == '/') {
        rest = below_root(t->root->path, text);
        if (!rest && t->root->real[0])
            rest = below_root(t->root->real, text);
        if (!rest)
            return -EXDEV;
        int rc = back_to_root(t);
        if (rc)
            return rc;
        n -= (size_t)(rest - text);
    }
    size_t have = strlen(t->todo);
    if (n + 1 + have >= sizeof t->todo)
        return -ENAMETOOLONG;
    memmove(t->todo + n + 1, t->todo, have + 1);
    memcpy(t->todo, rest, n);
    t->todo[n] = '/';
    return 0;
}

/* 1: `name` is a link and was put into todo; 0: it is none (or is missing). */
static int follow_if_link(struct nsbx_trail *t, const char *name)
{
    char text[NSBX_PATH_MAX];
    ssize_t n = readlinkat(t->dir, name, text, sizeof text - 1);
    if (n < 0)
        return errno == EINVAL || errno == ENOENT ? 0 : -errno;
    if (n == 0 || n == (ssize_t)sizeof text - 1)
        return n ? -ENAMETOOLONG : -ENOENT;
    text[n] = '\0';
    int rc = follow(t, text, (size_t)n);
    return rc ? rc : 1;
}

/* The last name: follows it while it is a link (1), or is there (0). */
static int arrive(struct nsbx_trail *t, const char *name)
{
    if (t->link_dir < 0) {
        t->link_dir = fcntl(t->dir, F_DUPFD_CLOEXEC, 0);
        if (t->link_dir < 0)
            return -errno;
        strcpy(t->link_name, name);
    }
    return follow_if_link(t, name);
}

/* A name that others follow: has to be a directory, or a link. */
static int enter(struct nsbx_trail *t, const char *name)
{
    int dir = openat(t->dir, name, OPEN_DIR);
    if (dir < 0 && errno == ENOENT && t->make && !t->of_link) {
        if (mkdirat(t->dir, name, 0777) != 0 && errno != EEXIST)
            return -errno;
        dir = openat(t->dir, name, OPEN_DIR);
    }
    if (dir < 0) {
        int sys = errno;
        if (sys != ENOTDIR && sys != ELOOP)
            return -sys;
        int rc = follow_if_link(t, name);
        return rc == 0 ? -ENOTDIR : rc;
    }
    return descend(t, name, dir);
}

int nsbx_trail_walk(struct nsbx_trail *t, char name[NAME_MAX + 1])
{
    for (;;) {
        bool last;
        int rc = next_name(t, name, &last);
        if (rc < 0)
            return rc;
        if (!*name) {
            strcpy(name, ".");
            return 0;
        }
        if (++t->steps > MAX_STEPS)
            return -ELOOP;
        if (strcmp(name, ".") == 0) {
            rc = 0;
        } else if (strcmp(name, "..") == 0) {
            rc = ascend(t);
        } else if (!last) {
            rc = enter(t, name);
        } else {
            rc = arrive(t, name);
            if (rc == 0)
                return 0;
        }
        if (rc < 0)
            return rc;
    }
}
