#include "util.h"

#include "alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

void nsbx_cleanup_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void nsbx_cleanup_free(void *pptr)
{
    void *ptr;
    memcpy(&ptr, pptr, sizeof ptr);
    nsbx_free(ptr);
}

bool nsbx_open_standard_fds(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) /* the lowest free number */
            return false;
    return true;
}

static uint64_t clock_ns(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t nsbx_now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

uint64_t nsbx_now_ms(void)
{
    return nsbx_now_ns() / 1000000u;
}

int64_t nsbx_epoch_ms(void)
{
    return (int64_t)(clock_ns(CLOCK_REALTIME) / 1000000u);
}

int nsbx_uuid4(char out[NSBX_UUID_LEN + 1], struct nsbx_err *err)
{
    uint8_t r[16];
    size_t have = 0;
    while (have < sizeof r) {
        ssize_t n = getrandom(r + have, sizeof r - have, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return nsbx_err_sys(err, errno, "random bytes from the kernel");
        have += (size_t)n;
    }
    r[6] = (uint8_t)((r[6] & 0x0f) | 0x40);
    r[8] = (uint8_t)((r[8] & 0x3f) | 0x80);
    char *at = out;
    for (size_t i = 0; i < sizeof r; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *at++ = '-';
        at += snprintf(at, 3, "%02x", r[i]);
    }
    return 0;
}

bool nsbx_equal_secret(const void *a, const void *b, size_t n)
{
    const volatile uint8_t *x = a, *y = b;
    uint8_t diff = 0;
    for (size_t i = 0; i < n; i++)
        diff |= x[i] ^ y[i];
    return diff == 0;
}

void nsbx_wipe(void *p, size_t n)
{
    explicit_bzero(p, n);
}
