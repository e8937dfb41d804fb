#include "child_env.h"

#include "agent.h"
#include "base/alloc.h"
#include "base/strmap.h"
#include "channel/bytestr.h"

#include <stdbool.h>
#include <string.h>
#include <unistd.h>

struct env {
    char **entries; /* "name=value", owned; NULL-terminated when done */
    size_t n, cap;
    struct nsbx_strmap index; /* name → position + 1 */
};

/* The agent's own settings are not the command's business, and one of them is a credential. */
static bool hidden(const char *name)
{
    return strncmp(name, "NAMZU_AGENT_", 12) == 0 || strncmp(name, "NAMZU_SANDBOX_", 14) == 0;
}

static int grow(struct env *e)
{
    if (e->n + 1 < e->cap)
        return 0;
    size_t cap = e->cap ? e->cap * 2 : 64;
    char **entries = nsbx_realloc(e->entries, cap * sizeof *entries);
    if (!entries)
        return -1;
    e->entries = entries;
    e->cap = cap;
    return 0;
}

/* Takes `entry` over, also on failure; `name` is the part before its "=". */
static int put(struct env *e, const char *name, char *entry)
{
    if (!entry)
        return -1;
    size_t at = (size_t)(uintptr_t)nsbx_strmap_get(&e->index, name);
    if (at) {
        nsbx_free(e->entries[at - 1]);
        e->entries[at - 1] = entry;
        return 0;
    }
    if (grow(e) != 0 || nsbx_strmap_set(&e->index, name, (void *)(uintptr_t)(e->n + 1), NULL) != 0) {
        nsbx_free(entry);
        return -1;
    }
    e->entries[e->n++] = entry;
    return 0;
}

static int put_inherited(struct env *e)
{
    for (char **it = environ; it && *it; it++) {
        const char *equals = strchr(*it, '=');
        if (!equals || hidden(*it))
            continue;
        char *name = nsbx_strndup(*it, (size_t)(equals - *it));
        int rc = name ? put(e, name, nsbx_strdup(*it)) : -1;
        nsbx_free(name);
        if (rc)
            return rc;
    }
    return 0;
}

/* A name or a value as text (free with nsbx_free); NULL with the fault set. */
static char *text_of(const json_t *value, const char *what, struct nsbx_fault *fault)
{
    struct nsbx_err err = {0};
    char *text = NULL;
    size_t n;
    if (json_is_string(value) || json_is_object(value)) {
        if (nsbx_bytestr_read(value, what, &text, &n, &err) != 0) {
            nsbx_fault_set(fault, "invalid_env: %s", err.message);
        } else if (strlen(text) != n) {
            nsbx_fault_set(fault, "invalid_env: %s holds a NUL byte", what);
            nsbx_free(text);
            text = NULL;
        }
        return text;
    }
    if (!value || json_is_array(value)) {
        nsbx_fault_set(fault, "invalid_env: %s must be a string", what);
        return NULL;
    }
    text = nsbx_agent_json_text(value);
    if (!text)
        nsbx_fault_set(fault, "invalid_env: no memory");
    return text;
}

/* Takes `name` and `value` over; NULL: the fault is set already. */
static int put_pair(struct env *e, char *name, char *value, struct nsbx_fault *fault)
{
    int rc = -1;
    if (name && value) {
        size_t name_len = strlen(name), value_len = strlen(value);
        if (name_len == 0 || strchr(name, '=')) {
            nsbx_fault_set(fault, "invalid_env: '%s' is no name of a variable", name);
        } else {
            char *entry = nsbx_malloc(name_len + value_len + 2);
            if (entry) {
                memcpy(entry, name, name_len);
                entry[name_len] = '=';
                memcpy(entry + name_len + 1, value, value_len + 1);
            }
            rc = put(e, name, entry);
            if (rc)
                nsbx_fault_set(fault, "invalid_env: no memory");
        }
    }
    nsbx_free(name);
    nsbx_free(value);
    return rc;
}

static int put_object(struct env *e, const json_t *env, struct nsbx_fault *fault)
{
    const char *key;
    size_t key_len;
    json_t *value;
    void *it;
    /* jansson's iterator wants a non-const object; nothing is changed. */
    for (it = json_object_iter((json_t *)(uintptr_t)env); it;
         it = json_object_iter_next((json_t *)(uintptr_t)env, it)) {
        key = json_object_iter_key(it);
        key_len = json_object_iter_key_len(it);
        value = json_object_iter_value(it);
        if (strlen(key) != key_len)
            return nsbx_fault_set(fault, "invalid_env: a name holds a NUL byte");
        char *name = nsbx_strdup(key);
        if (!name)
            return nsbx_fault_set(fault, "invalid_env: no memory");
        if (put_pair(e, name, text_of(value, key, fault), fault) != 0)
            return -1;
    }
    return 0;
}

static int put_pairs(struct env *e, const json_t *env, struct nsbx_fault *fault)
{
    for (size_t i = 0; i < json_array_size(env); i++) {
        const json_t *pair = json_array_get(env, i);
        if (json_array_size(pair) != 2)
            return nsbx_fault_set(fault, "invalid_env: entry %zu must be [name, value]", i);
        char *name = text_of(json_array_get(pair, 0), "a name", fault);
        char *value = name ? text_of(json_array_get(pair, 1), name, fault) : NULL;
        if (put_pair(e, name, value, fault) != 0)
            return -1;
    }
    return 0;
}

int nsbx_child_env_make(char ***out, const json_t *env, struct nsbx_fault *fault)
{
    struct env e = {0};
    nsbx_strmap_init(&e.index);
    int rc = put_inherited(&e);
    if (rc)
        nsbx_fault_set(fault, "invalid_env: no memory");
    else if (json_is_object(env))
        rc = put_object(&e, env, fault);
    else if (json_is_array(env))
        rc = put_pairs(&e, env, fault);
    if (rc == 0 && grow(&e) != 0)
        rc = nsbx_fault_set(fault, "invalid_env: no memory");
    nsbx_strmap_free(&e.index);
    if (e.entries)
        e.entries[e.n] = NULL;
    if (rc) {
        nsbx_child_env_free(e.entries);
        return rc;
    }
    *out = e.entries;
    return 0;
}

void nsbx_child_env_free(char **env)
{
    for (char **it = env; it && *it; it++)
        nsbx_free(*it);
    nsbx_free(env);
}
