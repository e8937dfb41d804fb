#include "host.h"

#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define AGENT_NAME "nsbx-agent"

static int open_program(const char *path, struct nsbx_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return nsbx_err_sys(err, errno, "the agent's program '%s'", path);
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        return fd;
    close(fd);
    return nsbx_err_set(err, NSBX_E_INVALID, "the agent's program '%s' is not a file", path);
}

int nsbx_host_open_agent(const char *given, struct nsbx_err *err)
{
    const char *named = given ? given : getenv("NSBX_AGENT");
    if (named)
        return open_program(named, err);
    char self[NSBX_PATH_MAX], path[NSBX_PATH_MAX + 64];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        return nsbx_err_sys(err, errno, "the path of this program (set NSBX_AGENT)");
    self[n] = '\0';
    *strrchr(self, '/') = '\0';
    static const char *const places[] = {"/" AGENT_NAME, "/../libexec/nsbx/" AGENT_NAME};
    for (size_t i = 0; i < NSBX_LEN(places); i++) {
        snprintf(path, sizeof path, "%s%s", self, places[i]);
        if (access(path, R_OK) == 0)
            return open_program(path, err);
    }
    return nsbx_err_set(err, NSBX_E_NOT_FOUND,
                        "there is no " AGENT_NAME
                        " in '%s' or '%s/../libexec/nsbx'; set NSBX_AGENT or the option agent",
                        self, self);
}

int nsbx_host_memory_file(const char *name, const char *text, struct nsbx_err *err)
{
    int fd = memfd_create(name, MFD_CLOEXEC);
    size_t len = strlen(text);
    if (fd >= 0 && write(fd, text, len) == (ssize_t)len && lseek(fd, 0, SEEK_SET) == 0)
        return fd;
    int sys = errno;
    if (fd >= 0)
        close(fd);
    return nsbx_err_sys(err, sys, "a file in memory");
}

int nsbx_host_listen_nameless(int dir_fd, int *handle, struct nsbx_err *err)
{
    NSBX_AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return nsbx_err_sys(err, errno, "a unix socket");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    /* Through the descriptor, since TMPDIR may be longer than a socket's path may be. */
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/socket", dir_fd);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0)
        return nsbx_err_sys(err, errno, "bind the agent's socket");
    int rc = 0;
    if (listen(fd, SOMAXCONN) < 0)
        rc = nsbx_err_sys(err, errno, "listen on the agent's socket");
    else if ((*handle = openat(dir_fd, "socket", O_PATH | O_NOFOLLOW | O_CLOEXEC)) < 0)
        rc = nsbx_err_sys(err, errno, "open the agent's socket");
    if (unlinkat(dir_fd, "socket", 0) < 0 && rc == 0)
        rc = nsbx_err_sys(err, errno, "unlink the agent's socket");
    return rc < 0 ? rc : nsbx_steal_fd(&fd);
}

/* By the kernel's own judgement: with that file system uid for the length of one call. */
bool nsbx_host_writable_by(const char *path, long uid)
{
    if (geteuid() != 0)
        return access(path, W_OK | X_OK) == 0;
    int gid_before = setfsgid((gid_t)uid);
    int uid_before = setfsuid((uid_t)uid);
    bool yes = faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) == 0;
    setfsuid((uid_t)uid_before);
    setfsgid((gid_t)gid_before);
    return yes;
}

int nsbx_host_check_workspace(const char *path, long uid, char out[NSBX_PATH_MAX], struct nsbx_err *err)
{
    struct stat st;
    char real[PATH_MAX];
    if (!realpath(path, real))
        return nsbx_err_sys(err, errno, "workspace '%s'", path);
    int rc = 0;
    if (strlen(real) >= NSBX_PATH_MAX)
        rc = nsbx_err_set(err, NSBX_E_INVALID, "workspace: the path is too long");
    else if (stat(real, &st) < 0)
        rc = nsbx_err_sys(err, errno, "workspace '%s'", path);
    else if (!S_ISDIR(st.st_mode))
        rc = nsbx_err_set(err, NSBX_E_INVALID, "workspace '%s' is not a directory", path);
    else if (!nsbx_host_writable_by(real, uid))
        rc = nsbx_err_set(err, NSBX_E_FORBIDDEN,
                          "workspace '%s' cannot be written by uid %ld, as which the sandbox runs: chown it%s",
                          path, uid, geteuid() == 0 ? ", or choose its owner with uid=" : "");
    if (rc == 0)
        snprintf(out, NSBX_PATH_MAX, "%s", real);
    return rc;
}

bool nsbx_host_uid_is_mapped(long uid)
{
    FILE *map = fopen("/proc/self/uid_map", "re");
    if (!map)
        return true; /* a kernel without user namespaces maps every uid; bwrap will say the rest */
    bool mapped = false;
    long long inside, outside, count;
    while (!mapped && fscanf(map, "%lld %lld %lld", &inside, &outside, &count) == 3)
        mapped = uid >= inside && uid - inside < count;
    fclose(map);
    return mapped;
}
