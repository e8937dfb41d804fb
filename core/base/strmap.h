/* Text → pointer, open addressing. Keys are copied. Not ordered. */
#ifndef NSBX_BASE_STRMAP_H
#define NSBX_BASE_STRMAP_H

#include "err.h"

#include <stddef.h>

struct nsbx_strmap {
    struct nsbx_strmap_slot *slots;
    size_t cap, used, live;
};

void nsbx_strmap_init(struct nsbx_strmap *m); /* no allocation */
void nsbx_strmap_free(struct nsbx_strmap *m); /* frees keys, not values */
/* Replaces the value of an existing key. -NSBX_E_LIMIT without memory. */
int nsbx_strmap_set(struct nsbx_strmap *m, const char *key, void *value, struct nsbx_err *err)
    __attribute__((warn_unused_result));
void *nsbx_strmap_get(const struct nsbx_strmap *m, const char *key); /* NULL when absent */
void *nsbx_strmap_remove(struct nsbx_strmap *m, const char *key);    /* the value that was there, or NULL */
size_t nsbx_strmap_count(const struct nsbx_strmap *m);
/* Walks: start with *pos = 0; NULL at the end. The map must not change meanwhile. */
void *nsbx_strmap_next(const struct nsbx_strmap *m, size_t *pos, const char **key);

#endif
