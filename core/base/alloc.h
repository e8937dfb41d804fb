/* The one door to the heap. Every allocation of the project goes through here, so that a test can make
 * each of them fail in turn. All functions are thread-safe as far as malloc is. */
#ifndef NSBX_BASE_ALLOC_H
#define NSBX_BASE_ALLOC_H

#include <stddef.h>

/* NULL when there is no memory; free with nsbx_free. nsbx_malloc(0) returns a unique pointer. */
void *nsbx_malloc(size_t size) __attribute__((malloc, warn_unused_result));
/* Zeroed; NULL on overflow of count*size too. */
void *nsbx_calloc(size_t count, size_t size) __attribute__((malloc, warn_unused_result));
/* NULL leaves `old` as it was. */
void *nsbx_realloc(void *old, size_t size) __attribute__((warn_unused_result));
void nsbx_free(void *ptr); /* NULL is fine */
/* Copies, NUL-terminated; NULL when there is no memory. `text` must not be NULL. */
char *nsbx_strdup(const char *text) __attribute__((malloc, warn_unused_result));
char *nsbx_strndup(const char *text, size_t len) __attribute__((malloc, warn_unused_result));

/* Testing: the nth allocation from now (1 = the next) fails once; 0 switches it off. Counts all threads. */
void nsbx_alloc_fail_at(unsigned long nth);
/* Testing: allocations asked for since the last nsbx_alloc_fail_at call. */
unsigned long nsbx_alloc_count(void);

#endif
