/* The smallest useful test harness: named cases, checks that print both values, one process a file. No dependency. */
#ifndef NSBX_SPEC_HARNESS_H
#define NSBX_SPEC_HARNESS_H

#include <dirent.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int harness_failed, harness_passed;
static const char *harness_case;
static int harness_case_failed;

#define CHECK(cond)                                                                                                \
    do {                                                                                                           \
        if (!(cond)) {                                                                                             \
            fprintf(stderr, "%s:%d: in %s: %s is false\n", __FILE__, __LINE__, harness_case, #cond);               \
            harness_case_failed = 1;                                                                               \
        }                                                                                                          \
    } while (0)
#define CHECK_INT(got, want)                                                                                       \
    do {                                                                                                           \
        intmax_t got_ = (intmax_t)(got), want_ = (intmax_t)(want);                                                 \
        if (got_ != want_) {                                                                                       \
            fprintf(stderr, "%s:%d: in %s: %s is %jd, not %jd\n", __FILE__, __LINE__, harness_case, #got, got_,    \
                    want_);                                                                                        \
            harness_case_failed = 1;                                                                               \
        }                                                                                                          \
    } while (0)
#define CHECK_STR(got, want)                                                                                       \
    do {                                                                                                           \
        const char *got_ = (got), *want_ = (want);                                                                 \
        if (!got_ || !want_ || strcmp(got_, want_) != 0) {                                                         \
            fprintf(stderr, "%s:%d: in %s: %s is \"%s\", not \"%s\"\n", __FILE__, __LINE__, harness_case, #got,    \
                    got_ ? got_ : "(null)", want_ ? want_ : "(null)");                                             \
            harness_case_failed = 1;                                                                               \
        }                                                                                                          \
    } while (0)
/* For what makes the rest of the case pointless. */
#define REQUIRE(cond)                                                                                              \
    do {                                                                                                           \
        CHECK(cond);                                                                                               \
        if (harness_case_failed)                                                                                   \
            return;                                                                                                \
    } while (0)
#define RUN(fn)                                                                                                    \
    do {                                                                                                           \
        harness_case = #fn;                                                                                        \
        harness_case_failed = 0;                                                                                   \
        fn();                                                                                                      \
        if (harness_case_failed) {                                                                                 \
            harness_failed++;                                                                                      \
            fprintf(stderr, "FAILED %s\n", #fn);                                                                   \
        } else                                                                                                     \
            harness_passed++;                                                                                      \
    } while (0)
/* The entries of a /proc/PID/fd; -1 when there is none. */
static inline int count_fds_in(const char *path)
{
    DIR *dir = opendir(path);
    if (!dir)
        return -1;
    int n = 0;
    for (struct dirent *entry; (entry = readdir(dir));)
        n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(dir);
    return n;
}
/* The open descriptors of this process, and the one that this takes. */
static inline int count_fds(void)
{
    return count_fds_in("/proc/self/fd");
}
/* The last statement of main. A crash before it never counts as success: the runner wants this line. */
static inline int harness_done(void)
{
    printf("%d passed, %d failed\n", harness_passed, harness_failed);
    return harness_failed ? 1 : 0;
}

#endif
