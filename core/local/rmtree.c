#include "rmtree.h"

#include "base/util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_DEPTH = 32, MAX_PASSES = 100000 };

struct removal {
    int root_fd;                    /* the tree's top: where directories that lie too deep are moved to */
    unsigned long moved;            /* how many were */
    char prefix[NSBX_UUID_LEN + 1]; /* of their new names: nothing that the tree could hold already */
    bool failed;
    struct nsbx_err err; /* the first failure */
};

static void note(struct removal *r, int sys, const char *name)
{
    if (r->failed)
        return;
    r->failed = true;
    nsbx_err_sys(&r->err, sys, "remove '%s'", name);
}

/* Opens a directory that may have no permission bits, without ever following a link: the handle that chmod goes through is O_PATH. */
static int open_directory(int at, const char *name)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == EACCES) {
        NSBX_AUTO_CLOSE int handle = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (handle < 0)
            return -1;
        char link[32];
        snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
        if (chmod(link, 0700) < 0)
            return -1;
        fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }
    if (fd >= 0)
        (void)fchmod(fd, 0700); /* a directory without w or x keeps its entries; failing shows at the entries */
    return fd;
}

static void empty_directory(struct removal *r, int fd, int depth);

static void remove_entry(struct removal *r, int fd, const char *name, int depth)
{
    if (unlinkat(fd, name, 0) == 0 || errno == ENOENT)
        return;
    if (errno != EISDIR && errno != EPERM) {
        note(r, errno, name);
        return;
    }
    if (unlinkat(fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return;
    if (depth >= MAX_DEPTH) {
        char to[64];
        snprintf(to, sizeof to, "%s-%lu", r->prefix, r->moved++);
        if (renameat(fd, name, r->root_fd, to) < 0)
            note(r, errno, name);
        return;
    }
    NSBX_AUTO_CLOSE int sub = open_directory(fd, name);
    if (sub < 0) {
        note(r, errno, name);
        return;
    }
    empty_directory(r, sub, depth + 1);
    if (unlinkat(fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
        note(r, errno, name);
}

static void empty_directory(struct removal *r, int fd, int depth)
{
    /* Opened anew, not dup'ed: a second pass must start at the first entry. */
    int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
    if (!dir) {
        note(r, errno, "a directory");
        if (copy >= 0)
            close(copy);
        return;
    }
    struct dirent *entry;
    while ((entry = readdir(dir)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            remove_entry(r, fd, entry->d_name, depth);
    closedir(dir);
}

int nsbx_rmtree(int parent_fd, const char *name, struct nsbx_err *err)
{
    struct removal r = {.root_fd = open_directory(parent_fd, name)};
    if (r.root_fd < 0) {
        if (errno == ENOENT || ((errno == ENOTDIR || errno == ELOOP) && unlinkat(parent_fd, name, 0) == 0))
            return 0;
        return nsbx_err_sys(err, errno, "remove '%s'", name);
    }
    int rc = nsbx_uuid4(r.prefix, err);
    if (rc < 0) {
        close(r.root_fd);
        return rc;
    }
    /* Each pass empties what the last one moved up; a pass that moved nothing was the last. */
    for (unsigned long before = 1, pass = 0; before != r.moved && pass < MAX_PASSES; pass++) {
        before = r.moved;
        empty_directory(&r, r.root_fd, 0);
    }
    close(r.root_fd);
    if (unlinkat(parent_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
        note(&r, errno, name);
    return r.failed ? nsbx_err_copy(err, &r.err) : 0;
}
