/* Any bytes as a message. Cut anywhere the scanner says the same; the rest of what it accepts is what jansson accepts;
 * what jansson accepts it accepts too, with the same value. */
#include "fuzz.h"

#include "base/limits.h"
#include "codec/jscan.h"

#include <jansson.h>

static const char *const watch[] = {"op", "token", "body.path", NULL};
static const char *const large[] = {"data", "body.content", NULL};

enum { MAX_REST = 4096, MAX_DEPTH = 20, FLAG_LARGE = 1, FLAG_DROP = 2 };

struct scan {
    FILE *watched, *sunk;
    char *watched_text, *sunk_text;
    size_t watched_n, sunk_n;
    int rc;
    struct nsbx_err err;
    char *rest;
    size_t rest_n;
    bool in_large;
};

static int on_watch(void *ud, size_t index, const char *value, size_t n)
{
    struct scan *scan = ud;
    fprintf(scan->watched, "%zu %zu ", index, value ? n + 1 : 0);
    if (value) {
        WANT(value[n] == 0 && n <= NSBX_JSCAN_WATCH_MAX);
        fwrite(value, 1, n, scan->watched);
    }
    return 0;
}

static int on_large(void *ud, size_t index, const uint8_t *bytes, size_t n, bool begin, bool end)
{
    struct scan *scan = ud;
    WANT(begin != scan->in_large);
    scan->in_large = !end;
    if (begin)
        fprintf(scan->sunk, "<%zu ", index);
    fwrite(bytes, 1, n, scan->sunk);
    if (end)
        fputc('>', scan->sunk);
    return 0;
}

static struct scan run(const uint8_t *data, size_t size, uint32_t seed, uint8_t flags)
{
    struct scan scan = {.rc = 0};
    scan.watched = open_memstream(&scan.watched_text, &scan.watched_n);
    scan.sunk = open_memstream(&scan.sunk_text, &scan.sunk_n);
    struct nsbx_jscan_config config = {.max_rest = MAX_REST,
                                       .max_depth = MAX_DEPTH,
                                       .watch = watch,
                                       .large = flags & FLAG_LARGE ? large : NULL,
                                       .drop_rest = flags & FLAG_DROP,
                                       .on_watch = on_watch,
                                       .on_large = on_large,
                                       .ud = &scan};
    struct nsbx_jscan *s = nsbx_jscan_new(&config);
    for (size_t at = 0, n; scan.rc == 0 && at < size; at += n) {
        n = fuzz_piece(&seed, size - at);
        uint8_t *piece = fuzz_copy(data + at, n);
        scan.rc = nsbx_jscan_feed(s, piece, n, &scan.err);
        free(piece);
    }
    const char *rest = NULL;
    if (scan.rc == 0)
        scan.rc = nsbx_jscan_end(s, &rest, &scan.rest_n, &scan.err);
    if (scan.rc == 0) {
        WANT(scan.rest_n <= MAX_REST);
        scan.rest = (char *)fuzz_copy((const uint8_t *)rest, scan.rest_n);
    } else
        WANT(scan.err.code == -scan.rc && (scan.rc == -NSBX_E_PROTOCOL || scan.rc == -NSBX_E_LIMIT));
    fclose(scan.watched);
    fclose(scan.sunk);
    nsbx_jscan_free(s);
    return scan;
}

static void forget(struct scan *scan)
{
    free(scan->watched_text);
    free(scan->sunk_text);
    free(scan->rest);
}

static void check_same(const struct scan *a, const struct scan *b)
{
    WANT(a->rc == b->rc);
    WANT(a->watched_n == b->watched_n && memcmp(a->watched_text, b->watched_text, a->watched_n) == 0);
    if (a->rc) { /* how much of an unfinished string the sink got depends on the pieces; where it ended does not */
        WANT(strcmp(a->err.message, b->err.message) == 0);
        return;
    }
    WANT(a->sunk_n == b->sunk_n && memcmp(a->sunk_text, b->sunk_text, a->sunk_n) == 0);
    WANT(a->rest_n == b->rest_n && memcmp(a->rest, b->rest, a->rest_n) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 5)
        return 0;
    uint32_t seed;
    uint8_t flags = data[4];
    memcpy(&seed, data, 4);
    data += 5;
    size -= 5;
    struct scan whole = run(data, size, 0, flags), pieces = run(data, size, seed | 1, flags);
    check_same(&whole, &pieces);

    json_t *rest = NULL, *direct = NULL;
    if (whole.rc == 0 && !(flags & FLAG_DROP)) {
        rest = json_loadb(whole.rest, whole.rest_n, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
        WANT(rest);
    }
    if (!memchr(data, 0, size)) /* which jansson overlooks behind a word */
        direct = json_loadb((const char *)data, size, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
    WANT(!direct || whole.rc != -NSBX_E_PROTOCOL);
    if (direct && rest && !(flags & FLAG_LARGE))
        WANT(json_equal(direct, rest));
    json_decref(rest);
    json_decref(direct);
    forget(&whole);
    forget(&pieces);
    return 0;
}
