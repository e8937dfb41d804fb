#include "jscan.h"

#include "jscan_priv.h"

#include "base/alloc.h"
#include "base/limits.h"

#include <assert.h>
#include <string.h>

enum { KEEP_CAP = 64 * 1024 }; /* memory of the rest that a reset keeps */

int nsbx_jscan_reject(struct nsbx_jscan *s, size_t at, const char *what)
{
    return nsbx_err_set(&s->failure, NSBX_E_PROTOCOL, "not JSON at byte %llu: %s",
                        (unsigned long long)(s->offset + at), what);
}

int nsbx_jscan_put(struct nsbx_jscan *s, const void *bytes, size_t n)
{
    if (s->config.drop_rest)
        return 0;
    if (n > s->config.max_rest - s->rest.len)
        return nsbx_err_set(&s->failure, NSBX_E_LIMIT,
                            "a message is longer than %zu bytes without its large member", s->config.max_rest);
    return nsbx_buf_append(&s->rest, bytes, n, &s->failure);
}

static size_t add_paths(struct nsbx_jscan *s, const char *const *list)
{
    size_t n = 0;
    for (; list && list[n]; n++) {
        assert(n < JSCAN_PATHS);
        s->paths[s->all++] = list[n];
    }
    return n;
}

struct nsbx_jscan *nsbx_jscan_new(const struct nsbx_jscan_config *config)
{
    size_t bits = ((size_t)config->max_depth + 7) / 8;
    struct nsbx_jscan *s = nsbx_calloc(1, sizeof(*s) + bits);
    if (!s)
        return NULL;
    s->config = *config;
    s->watches = add_paths(s, config->watch);
    add_paths(s, config->large);
    nsbx_buf_init(&s->rest, config->max_rest);
    nsbx_jscan_reset(s);
    return s;
}

void nsbx_jscan_free(struct nsbx_jscan *s)
{
    if (!s)
        return;
    nsbx_buf_free(&s->rest);
    nsbx_free(s);
}

void nsbx_jscan_reset(struct nsbx_jscan *s)
{
    s->state = JSCAN_VALUE;
    s->offset = 0;
    s->failed = 0;
    s->failure.code = 0;
    s->depth = 0;
    s->containers = 0;
    memset(s->deep, 0, sizeof(s->deep));
    s->follow = 0;
    s->watch = s->large = -1;
    if (s->rest.cap > KEEP_CAP)
        nsbx_buf_free(&s->rest);
    s->rest.head = s->rest.len = 0;
}

/* --- which member is being read --- */

static bool in_object(const struct nsbx_jscan *s)
{
    int level = s->depth - 1;
    return level >= 0 && (s->objects[level / 8] >> (level % 8) & 1);
}

/* The component of a dotted path with that number; its length in *n. */
static const char *component(const char *path, uint8_t number, size_t *n)
{
    for (; number > 0; number--)
        path = strchr(path, '.') + 1;
    *n = strcspn(path, ".");
    return path;
}

/* A key is complete: which paths does it lead on, which does it end? */
static void match_key(struct nsbx_jscan *s)
{
    const struct jscan_string *key = &s->string;
    s->follow = 0;
    s->watch = s->large = -1;
    for (size_t i = 0; i < s->all && !key->overlong; i++) {
        size_t n;
        if (s->deep[i] != s->depth - 1) /* an enclosing key was another one */
            continue;
        const char *want = component(s->paths[i], s->deep[i], &n);
        if (n != key->word_n || memcmp(want, key->word, n) != 0)
            continue;
        if (want[n] == '.')
            s->follow |= 1u << i;
        else if (i < s->watches)
            s->watch = (int)i;
        else
            s->large = (int)(i - s->watches);
    }
}

static int open_container(struct nsbx_jscan *s, bool object)
{
    if (s->depth >= s->config.max_depth)
        return nsbx_err_set(&s->failure, NSBX_E_LIMIT, "a message nests deeper than %d levels (at byte %llu)",
                            s->config.max_depth, (unsigned long long)s->offset);
    if (++s->containers > NSBX_MAX_MESSAGE_CONTAINERS && !s->config.drop_rest)
        return nsbx_err_set(&s->failure, NSBX_E_LIMIT, "a message holds more than %d objects and arrays",
                            NSBX_MAX_MESSAGE_CONTAINERS);
    int level = s->depth++;
    uint8_t bit = (uint8_t)(1u << (level % 8));
    s->objects[level / 8] = (uint8_t)(object ? s->objects[level / 8] | bit : s->objects[level / 8] & ~bit);
    for (size_t i = 0; object && i < s->all; i++)
        if (s->follow >> i & 1)
            s->deep[i] = (uint8_t)level;
    s->state = object ? JSCAN_KEY_OR_END : JSCAN_VALUE_OR_END;
    return nsbx_jscan_put(s, object ? "{" : "[", 1);
}

static void after_value(struct nsbx_jscan *s)
{
    s->state = s->depth > 0 ? JSCAN_NEXT : JSCAN_DONE;
}

static int close_container(struct nsbx_jscan *s, uint8_t c)
{
    if (c != (in_object(s) ? '}' : ']'))
        return nsbx_jscan_reject(s, 0, in_object(s) ? "a comma or } must follow" : "a comma or ] must follow");
    s->depth--;
    for (size_t i = 0; i < s->all; i++)
        if (s->depth > 0 && s->deep[i] == s->depth)
            s->deep[i]--;
    after_value(s);
    return nsbx_jscan_put(s, &c, 1);
}

/* --- values --- */

static int begin_string(struct nsbx_jscan *s, enum jscan_role role)
{
    s->state = JSCAN_STRING;
    nsbx_jscan_string_begin(s, role);
    return nsbx_jscan_put(s, "\"", 1);
}

static int end_string(struct nsbx_jscan *s)
{
    struct jscan_string *string = &s->string;
    int rc = nsbx_jscan_put(s, "\"", 1);
    if (rc)
        return rc;
    if (string->role == JSCAN_NAME) {
        match_key(s);
        s->state = JSCAN_COLON;
        return 0;
    }
    after_value(s);
    if (string->role == JSCAN_LARGE)
        return nsbx_jscan_string_flush(s, true);
    if (string->role != JSCAN_WATCHED)
        return 0;
    string->word[string->word_n] = 0;
    return s->config.on_watch(s->config.ud, (size_t)s->watch, string->overlong ? NULL : string->word,
                              string->overlong ? 0 : string->word_n);
}

static int begin_word(struct nsbx_jscan *s, uint8_t c)
{
    const char *word = c == 't' ? "true" : c == 'f' ? "false" : "null";
    s->word = word + 1;
    s->state = JSCAN_WORD;
    return nsbx_jscan_put(s, word, strlen(word));
}

static int next_of_word(struct nsbx_jscan *s, uint8_t c)
{
    if (c != (uint8_t)*s->word)
        return nsbx_jscan_reject(s, 0, "true, false and null are the only words");
    if (*++s->word == 0)
        after_value(s);
    return 0;
}

static int begin_number(struct nsbx_jscan *s, uint8_t c)
{
    s->state = JSCAN_NUMBER;
    s->number = nsbx_jscan_number_begin(c);
    s->number_start = s->rest.len;
    return nsbx_jscan_put(s, &c, 1);
}

static int begin_other(struct nsbx_jscan *s, uint8_t c)
{
    switch (c) {
    case '{':
    case '[':
        return open_container(s, c == '{');
    case 't':
    case 'f':
    case 'n':
        return begin_word(s, c);
    default:
        if (c != '-' && (c < '0' || c > '9'))
            return nsbx_jscan_reject(s, 0, "a value must start here");
        return begin_number(s, c);
    }
}

static int begin_value(struct nsbx_jscan *s, uint8_t c)
{
    int rc;
    if (c == '"')
        rc = begin_string(s, s->large >= 0 ? JSCAN_LARGE : s->watch >= 0 ? JSCAN_WATCHED : JSCAN_PLAIN);
    else {
        rc = begin_other(s, c);
        if (rc == 0 && s->watch >= 0)
            rc = s->config.on_watch(s->config.ud, (size_t)s->watch, NULL, 0);
    }
    s->follow = 0;
    if (s->state != JSCAN_STRING)
        s->watch = s->large = -1;
    return rc;
}

/* --- the structure between values --- */

static int next_member(struct nsbx_jscan *s, uint8_t c)
{
    if (c != ',')
        return close_container(s, c);
    s->state = in_object(s) ? JSCAN_KEY : JSCAN_VALUE;
    s->watch = s->large = -1;
    return nsbx_jscan_put(s, ",", 1);
}

static int begin_key(struct nsbx_jscan *s, uint8_t c)
{
    return c == '"' ? begin_string(s, JSCAN_NAME) : nsbx_jscan_reject(s, 0, "a key must start here");
}

static int structure(struct nsbx_jscan *s, uint8_t c)
{
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r')
        return 0;
    switch (s->state) {
    case JSCAN_VALUE_OR_END:
        return c == ']' ? close_container(s, c) : begin_value(s, c);
    case JSCAN_VALUE:
        return begin_value(s, c);
    case JSCAN_KEY_OR_END:
        return c == '}' ? close_container(s, c) : begin_key(s, c);
    case JSCAN_KEY:
        return begin_key(s, c);
    case JSCAN_COLON:
        if (c != ':')
            return nsbx_jscan_reject(s, 0, "a colon must follow a key");
        s->state = JSCAN_VALUE;
        return nsbx_jscan_put(s, ":", 1);
    case JSCAN_NEXT:
        return next_member(s, c);
    default:
        return nsbx_jscan_reject(s, 0, "the value has ended and something follows");
    }
}

/* Takes at least one byte, or ends a number. */
static int scan(struct nsbx_jscan *s, const uint8_t *p, size_t n, size_t *used)
{
    bool closed;
    int rc;
    switch (s->state) {
    case JSCAN_STRING:
        rc = nsbx_jscan_string(s, p, n, used, &closed);
        return rc || !closed ? rc : end_string(s);
    case JSCAN_NUMBER:
        rc = nsbx_jscan_number(s, p, n, used);
        if (rc || *used == n)
            return rc;
        after_value(s);
        return nsbx_jscan_number_end(s, *used);
    case JSCAN_WORD:
        return next_of_word(s, p[0]);
    default:
        return structure(s, p[0]);
    }
}

static int fail(struct nsbx_jscan *s, int rc, struct nsbx_err *err)
{
    s->failed = rc;
    if (s->failure.code == -rc) /* otherwise a callback stopped the scan, which knows why */
        nsbx_err_copy(err, &s->failure);
    return rc;
}

int nsbx_jscan_feed(struct nsbx_jscan *s, const uint8_t *p, size_t n, struct nsbx_err *err)
{
    int rc = s->failed;
    for (size_t at = 0; rc == 0 && at < n;) {
        size_t used = 1;
        rc = scan(s, p + at, n - at, &used);
        at += used;
        s->offset += used;
    }
    if (rc == 0 && s->state == JSCAN_STRING)
        rc = nsbx_jscan_string_flush(s, false);
    return rc ? fail(s, rc, err) : 0;
}

int nsbx_jscan_end(struct nsbx_jscan *s, const char **rest, size_t *len, struct nsbx_err *err)
{
    int rc = s->failed;
    if (rc == 0 && s->state == JSCAN_NUMBER && s->depth == 0) {
        rc = nsbx_jscan_number_end(s, 0);
        s->state = JSCAN_DONE;
    }
    if (rc == 0 && s->state != JSCAN_DONE)
        rc = nsbx_jscan_reject(s, 0, "the text ends inside a value");
    if (rc)
        return fail(s, rc, err);
    *rest = s->rest.len ? (const char *)nsbx_buf_data(&s->rest) : "";
    *len = s->rest.len;
    return 0;
}
