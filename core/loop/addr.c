#include "base/limits.h"
#include "stream_priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/un.h>

enum { KEEPALIVE_S = 15 };

bool nsbx_addr_literal(struct nsbx_addr *addr, const char *text, uint16_t port)
{
    memset(addr, 0, sizeof *addr);
    struct sockaddr_in *v4 = (struct sockaddr_in *)&addr->sa;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&addr->sa;
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        addr->len = sizeof *v4;
        return true;
    }
    if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
        addr->len = sizeof *v6;
        return true;
    }
    return false;
}

int nsbx_addr_unix(struct nsbx_addr *addr, const char *path, struct nsbx_err *err)
{
    struct sockaddr_un *un = (struct sockaddr_un *)&addr->sa;
    size_t len = strlen(path);
    if (len == 0 || len >= sizeof un->sun_path)
        return nsbx_err_set(err, NSBX_E_INVALID, "a socket's path has 1 to %zu bytes, this one %zu: %.64s…",
                            sizeof un->sun_path - 1, len, path);
    memset(addr, 0, sizeof *addr);
    un->sun_family = AF_UNIX;
    memcpy(un->sun_path, path, len + 1);
    addr->len = (socklen_t)sizeof *un;
    return 0;
}

void nsbx_tcp_tune(int fd)
{
    /* Each may fail on a socket that is no tcp one, or already dead, and nothing depends on it. */
    int on = 1, idle = KEEPALIVE_S;
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
}

int nsbx_addr_socket(const struct nsbx_addr *addr, struct nsbx_err *err)
{
    int fd = socket(addr->sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return nsbx_err_sys(err, errno, "cannot make a socket");
    if (addr->sa.ss_family != AF_UNIX)
        nsbx_tcp_tune(fd);
    return fd;
}
