#include "place.h"

#include "base/list.h"
#include "base/log.h"
#include "rmtree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIVE_PREFIX "local-"
#define DEAD_PREFIX "dead-"
#define LOCK_NAME "lock"

static bool has_prefix(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Calls `each` for every entry with the prefix. The order is the directory's. */
static int for_each(int base_fd, const char *prefix, void (*each)(int base_fd, const char *name, void *ud),
                    void *ud, struct nsbx_err *err)
{
    int copy = openat(base_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
    if (!dir) {
        int sys = errno;
        if (copy >= 0)
            close(copy);
        return nsbx_err_sys(err, sys, "read the directory of local sandboxes");
    }
    struct dirent *entry;
    while ((entry = readdir(dir)))
        if (has_prefix(entry->d_name, prefix))
            each(base_fd, entry->d_name, ud);
    closedir(dir);
    return 0;
}

/* The lock is a flock, so it ends with the last process that holds the open file, whatever ended it. */
static bool is_dead(int base_fd, const char *name)
{
    NSBX_AUTO_CLOSE int dir = openat(base_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return false;
    NSBX_AUTO_CLOSE int lock = openat(dir, LOCK_NAME, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (lock < 0)
        return errno == ENOENT; /* made and locked under the base's lock: without one it is a ruin */
    return flock(lock, LOCK_EX | LOCK_NB) == 0;
}

static void set_aside(int base_fd, const char *name, void *ud)
{
    (void)ud;
    char uuid[NSBX_UUID_LEN + 1], to[NSBX_PLACE_NAME];
    if (!is_dead(base_fd, name) || nsbx_uuid4(uuid, NULL) < 0)
        return;
    snprintf(to, sizeof to, DEAD_PREFIX "%s", uuid);
    if (renameat(base_fd, name, base_fd, to) < 0)
        nsbx_log(NSBX_LOG_WARN, "what a dead process left in '%s' could not be set aside: %s", name,
                 strerror(errno));
}

/* The base is ours alone: nobody else could put links or files there. */
static int open_base(struct nsbx_place *p, char *path, size_t size, struct nsbx_err *err)
{
    const char *tmp = getenv("TMPDIR");
    if (!tmp || tmp[0] != '/')
        tmp = "/tmp";
    int n = snprintf(path, size, "%s/nsbx-%ld", tmp, (long)geteuid());
    if (n < 0 || (size_t)n >= size - NSBX_PLACE_NAME)
        return nsbx_err_set(err, NSBX_E_INVALID, "TMPDIR is too long for a path: '%.80s…'", tmp);
    /* As root the sandbox runs under another uid, which must be able to pass through. */
    mode_t mode = geteuid() == 0 ? 0711 : 0700;
    if (mkdir(path, mode) < 0 && errno != EEXIST)
        return nsbx_err_sys(err, errno, "make '%s' (set TMPDIR to a writable directory)", path);
    p->base_fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (p->base_fd < 0)
        return nsbx_err_sys(err, errno, "open '%s'", path);
    struct stat st;
    if (fstat(p->base_fd, &st) < 0)
        return nsbx_err_sys(err, errno, "stat '%s'", path);
    if (st.st_uid != geteuid() || (st.st_mode & 022))
        return nsbx_err_set(
            err, NSBX_E_FORBIDDEN,
            "'%s' belongs to uid %ld with mode %04o; it must be yours alone: remove it or set TMPDIR", path,
            (long)st.st_uid, (unsigned)(st.st_mode & 07777));
    if ((st.st_mode & 0777) != mode && fchmod(p->base_fd, mode) < 0) /* a umask narrowed it */
        return nsbx_err_sys(err, errno, "chmod '%s'", path);
    return 0;
}

static int make_own(struct nsbx_place *p, struct nsbx_err *err)
{
    mode_t mode = geteuid() == 0 ? 0711 : 0700;
    if (mkdirat(p->base_fd, p->name, mode) < 0)
        return nsbx_err_sys(err, errno, "make '%s'", p->path);
    p->dir_fd = openat(p->base_fd, p->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (p->dir_fd < 0 || fchmod(p->dir_fd, mode) < 0)
        return nsbx_err_sys(err, errno, "open '%s'", p->path);
    p->lock_fd = openat(p->dir_fd, LOCK_NAME, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (p->lock_fd < 0 || flock(p->lock_fd, LOCK_EX | LOCK_NB) < 0)
        return nsbx_err_sys(err, errno, "lock '%s'", p->path);
    return 0;
}

int nsbx_place_open(struct nsbx_place *p, struct nsbx_err *err)
{
    *p = (struct nsbx_place){.base_fd = -1, .dir_fd = -1, .lock_fd = -1};
    char base[NSBX_PATH_MAX], uuid[NSBX_UUID_LEN + 1];
    int rc = open_base(p, base, sizeof base, err);
    if (rc == 0)
        rc = nsbx_uuid4(uuid, err);
    if (rc == 0) {
        snprintf(p->name, sizeof p->name, LIVE_PREFIX "%s", uuid);
        int n = snprintf(p->path, sizeof p->path, "%s/%s", base, p->name);
        if (n < 0 || (size_t)n >= sizeof p->path)
            rc = nsbx_err_set(err, NSBX_E_INVALID, "TMPDIR is too long for a path");
    }
    if (rc == 0 && flock(p->base_fd, LOCK_EX) < 0) /* held for a few system calls by anyone */
        rc = nsbx_err_sys(err, errno, "lock '%s'", base);
    if (rc == 0) {
        rc = make_own(p, err);
        if (rc == 0)
            rc = for_each(p->base_fd, LIVE_PREFIX, set_aside, NULL, err);
        flock(p->base_fd, LOCK_UN);
    }
    if (rc < 0) {
        if (p->dir_fd >= 0 && nsbx_rmtree(p->base_fd, p->name, NULL) < 0)
            nsbx_log(NSBX_LOG_WARN, "'%s' could not be removed", p->path);
        nsbx_place_close(p);
    }
    return rc;
}

void nsbx_place_close(struct nsbx_place *p)
{
    int *fds[] = {&p->lock_fd, &p->dir_fd, &p->base_fd};
    for (size_t i = 0; i < NSBX_LEN(fds); i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
}

int nsbx_place_remove(struct nsbx_place *p, struct nsbx_err *err)
{
    return nsbx_rmtree(p->base_fd, p->name, err);
}

static void remove_dead(int base_fd, const char *name, void *ud)
{
    struct nsbx_err *first = ud, one = {0};
    if (nsbx_rmtree(base_fd, name, &one) < 0 && first->code == 0)
        *first = one;
}

int nsbx_place_sweep(int base_fd, struct nsbx_err *err)
{
    struct nsbx_err first = {0};
    int rc = for_each(base_fd, DEAD_PREFIX, remove_dead, &first, err);
    if (rc == 0 && first.code)
        rc = nsbx_err_copy(err, &first);
    return rc;
}
