#include "strmap.h"

#include "alloc.h"

#include <stdint.h>
#include <string.h>

struct nsbx_strmap_slot {
    char *key; /* NULL: never used; GRAVE: removed */
    void *value;
};

enum { FIRST_CAP = 16 };
static char grave;
#define GRAVE (&grave)

/* FNV-1a. The keys are ours or bounded by a registry's capacity, so a flood of collisions is bounded too. */
static size_t hash(const char *key)
{
    uint64_t h = 14695981039346656037u;
    for (; *key; key++)
        h = (h ^ (uint8_t)*key) * 1099511628211u;
    return (size_t)(h ^ (h >> 32));
}

void nsbx_strmap_init(struct nsbx_strmap *m)
{
    *m = (struct nsbx_strmap){0};
}

static int held(const struct nsbx_strmap_slot *s)
{
    return s->key && s->key != GRAVE;
}

void nsbx_strmap_free(struct nsbx_strmap *m)
{
    for (size_t i = 0; i < m->cap; i++)
        if (held(&m->slots[i]))
            nsbx_free(m->slots[i].key);
    nsbx_free(m->slots);
    nsbx_strmap_init(m);
}

static struct nsbx_strmap_slot *find(const struct nsbx_strmap *m, const char *key)
{
    if (m->cap == 0)
        return NULL;
    for (size_t i = hash(key) & (m->cap - 1);; i = (i + 1) & (m->cap - 1)) {
        struct nsbx_strmap_slot *s = &m->slots[i];
        if (!s->key)
            return NULL;
        if (s->key != GRAVE && strcmp(s->key, key) == 0)
            return s;
    }
}

static struct nsbx_strmap_slot *free_slot(struct nsbx_strmap_slot *slots, size_t cap, const char *key)
{
    size_t i = hash(key) & (cap - 1);
    while (held(&slots[i]))
        i = (i + 1) & (cap - 1);
    return &slots[i];
}

/* Rebuilds at a size that leaves at least half of the slots never used; graves go. */
static int rebuild(struct nsbx_strmap *m, struct nsbx_err *err)
{
    size_t cap = FIRST_CAP;
    while (cap < (m->live + 1) * 2)
        cap *= 2;
    struct nsbx_strmap_slot *slots = nsbx_calloc(cap, sizeof *slots);
    if (!slots)
        return nsbx_err_nomem(err, "a map");
    for (size_t i = 0; i < m->cap; i++)
        if (held(&m->slots[i]))
            *free_slot(slots, cap, m->slots[i].key) = m->slots[i];
    nsbx_free(m->slots);
    m->slots = slots;
    m->cap = cap;
    m->used = m->live;
    return 0;
}

int nsbx_strmap_set(struct nsbx_strmap *m, const char *key, void *value, struct nsbx_err *err)
{
    struct nsbx_strmap_slot *s = find(m, key);
    if (s) {
        s->value = value;
        return 0;
    }
    if ((m->used + 1) * 4 > m->cap * 3) {
        int rc = rebuild(m, err);
        if (rc < 0)
            return rc;
    }
    char *copy = nsbx_strdup(key);
    if (!copy)
        return nsbx_err_nomem(err, "a map's key");
    s = free_slot(m->slots, m->cap, key);
    if (!s->key)
        m->used++;
    *s = (struct nsbx_strmap_slot){copy, value};
    m->live++;
    return 0;
}

void *nsbx_strmap_get(const struct nsbx_strmap *m, const char *key)
{
    const struct nsbx_strmap_slot *s = find(m, key);
    return s ? s->value : NULL;
}

void *nsbx_strmap_remove(struct nsbx_strmap *m, const char *key)
{
    struct nsbx_strmap_slot *s = find(m, key);
    if (!s)
        return NULL;
    void *value = s->value;
    nsbx_free(s->key);
    *s = (struct nsbx_strmap_slot){GRAVE, NULL};
    m->live--;
    return value;
}

size_t nsbx_strmap_count(const struct nsbx_strmap *m)
{
    return m->live;
}

void *nsbx_strmap_next(const struct nsbx_strmap *m, size_t *pos, const char **key)
{
    while (*pos < m->cap) {
        const struct nsbx_strmap_slot *s = &m->slots[(*pos)++];
        if (held(s)) {
            if (key)
                *key = s->key;
            return s->value;
        }
    }
    return NULL;
}
