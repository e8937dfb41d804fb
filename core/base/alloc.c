#include "alloc.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* 0 = off; otherwise the allocation whose number reaches it fails. Relaxed is enough: tests are its only users. */
static atomic_ulong fail_at;
static atomic_ulong asked;

static int must_fail(void)
{
    unsigned long nth = atomic_fetch_add_explicit(&asked, 1, memory_order_relaxed) + 1;
    return nth == atomic_load_explicit(&fail_at, memory_order_relaxed);
}

void *nsbx_malloc(size_t size)
{
    return must_fail() ? NULL : malloc(size ? size : 1);
}

void *nsbx_calloc(size_t count, size_t size)
{
    return must_fail() ? NULL : calloc(count ? count : 1, size ? size : 1);
}

void *nsbx_realloc(void *old, size_t size)
{
    return must_fail() ? NULL : realloc(old, size ? size : 1);
}

void nsbx_free(void *ptr)
{
    free(ptr);
}

char *nsbx_strdup(const char *text)
{
    return nsbx_strndup(text, strlen(text));
}

char *nsbx_strndup(const char *text, size_t len)
{
    char *copy = nsbx_malloc(len + 1);
    if (!copy)
        return NULL;
    memcpy(copy, text, len);
    copy[len] = '\0';
    return copy;
}

void nsbx_alloc_fail_at(unsigned long nth)
{
    atomic_store(&asked, 0);
    atomic_store(&fail_at, nth);
}

unsigned long nsbx_alloc_count(void)
{
    return atomic_load(&asked);
}
