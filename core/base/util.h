/* Small things that every layer needs. */
#ifndef NSBX_BASE_UTIL_H
#define NSBX_BASE_UTIL_H

#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NSBX_LEN(array) (sizeof(array) / sizeof((array)[0]))
#define NSBX_MIN(a, b) ((a) < (b) ? (a) : (b))
#define NSBX_MAX(a, b) ((a) > (b) ? (a) : (b))

/* Cleanup attributes, for core/ only (never in a function that calls a raising Lua function). */
void nsbx_cleanup_fd(int *fd); /* closes it unless it is negative, and leaves -1 */
void nsbx_cleanup_free(void *pptr);
#define NSBX_AUTO_CLOSE __attribute__((cleanup(nsbx_cleanup_fd)))
#define NSBX_AUTO_FREE __attribute__((cleanup(nsbx_cleanup_free)))
static inline int nsbx_steal_fd(int *fd) /* the named hand-off: returns *fd and leaves -1 */
{
    int out = *fd;
    *fd = -1;
    return out;
}

/* Gives descriptors 0, 1 and 2 that are closed to /dev/null, as the C library does for setuid programs: whatever is opened
 * next must not become somebody's output. The first statement of a main. False: there is no /dev/null, and no going on. */
bool nsbx_open_standard_fds(void) __attribute__((warn_unused_result));

uint64_t nsbx_now_ms(void);  /* monotonic */
uint64_t nsbx_now_ns(void);  /* monotonic */
int64_t nsbx_epoch_ms(void); /* wall clock */

enum { NSBX_UUID_LEN = 36 };
/* A random version-4 UUID, lower case, NUL-terminated. Fails only when the kernel has no randomness. */
int nsbx_uuid4(char out[NSBX_UUID_LEN + 1], struct nsbx_err *err) __attribute__((warn_unused_result));
/* Compares in time that depends on `n` only. */
bool nsbx_equal_secret(const void *a, const void *b, size_t n);
void nsbx_wipe(void *p, size_t n); /* not optimised away */

#endif
