/* Walks, against a scripted guest. */
#include "guest_rig.h"
#include "transport/walk.h"

#include <math.h>

/* ---- walking ---- */

#define ENTRY(path, type) "[\"" path "\",12,\"" type "\",420,1500.5]"
#define ENTRIES(...) "{\"send\":{\"type\":\"entries\",\"entries\":[" __VA_ARGS__ "]}}"
#define DONE "{\"send\":{\"type\":\"done\",\"visited\":9}}," END "," FIN

static struct nsbx_walk_request everything(const char *path)
{
    return (struct nsbx_walk_request){.path = path, .max_depth = -1, .max_entries = -1, .max_visited = -1};
}

/* Walks to the end; joins the paths. */
static struct nsbx_err walk_all(const struct nsbx_walk_request *request, char *seen, size_t size)
{
    struct nsbx_err err = {0};
    struct nsbx_walk *w;
    struct nsbx_entry entry;
    seen[0] = '\0';
    if (nsbx_walk_open(guest, request, &w, &err) < 0)
        return err;
    do {
        err = finish_op(nsbx_walk_next(w, 5000));
        while (nsbx_walk_take(w, &entry))
            snprintf(seen + strlen(seen), size - strlen(seen), "%s ", entry.path);
    } while (err.code == 0 && !nsbx_walk_ended(w));
    nsbx_walk_close(w);
    return err;
}

static void walks(void)
{
    guest_rig_open(
        NSBX_ARM_UNIX, 1,
        ON("walk", ENTRIES(ENTRY("/w/a", "file") "," ENTRY("/w/b", "directory")) "," ENTRIES() "," ENTRIES(
                       ENTRY("/w/c", "symlink") ",[{\"base64\":\"L3cv/w==\"},0,\"other\",0,0]") "," DONE));
    struct nsbx_walk_request r = everything("/w/");
    struct nsbx_err err;
    struct nsbx_walk *w;
    struct nsbx_entry e;
    char seen[64];
    r.pattern = "**/*.c";
    r.include_hidden = r.sorted = true;
    r.max_depth = 3;
    r.max_entries = 4;
    r.max_visited = 100;
    REQUIRE(nsbx_walk_open(guest, &r, &w, &err) == 0);
    CHECK_INT(finish_op(nsbx_walk_next(w, 5000)).code, 0);
    REQUIRE(nsbx_walk_take(w, &e));
    CHECK_STR(e.path, "/w/a");
    CHECK(e.size == 12 && e.type == NSBX_ENTRY_FILE && e.mode == 0644 && fabs(e.mtime - 1.5005) < 1e-9);
    CHECK_STR(nsbx_entry_type_name(e.type), "file");
    nsbx_walk_close(w);
    CHECK_INT(logged("\"root\": \"/w/\", \"pattern\": \"**/*.c\", \"includeHidden\": true, \"sorted\": true, "
                     "\"maxDepth\": 3, "
                     "\"maxEntries\": 4, \"maxVisitedEntries\": 100"),
              1);
    r = everything("w");
    err = walk_all(&r, seen, sizeof seen);
    CHECK_INT(err.code, 0);
    CHECK_STR(seen, "/w/a /w/b /w/c /w/\xff ");
    guest_rig_close();
}

static void walks_are_verified(void)
{
    static const struct {
        const char *steps;
        int code;
        const char *reason;
    } cases[] = {
        {DONE, 0, ""},
        {ENTRIES(ENTRY("/other", "file")) "," DONE, NSBX_E_PROTOCOL, ""},
        {ENTRIES(ENTRY("/wide", "file")) "," DONE, NSBX_E_PROTOCOL, ""},
        {ENTRIES(ENTRY("w/a", "file")) "," DONE, NSBX_E_PROTOCOL, ""},
        {ENTRIES(ENTRY("", "file")) "," DONE, NSBX_E_PROTOCOL, ""},
        {ENTRIES(ENTRY("/w/../etc/passwd", "file")) "," DONE, NSBX_E_PROTOCOL, ""},
        {ENTRIES(ENTRY("/w/..", "file")) "," DONE, NSBX_E_PROTOCOL, ""},
        {ENTRIES(ENTRY("/w/./a", "file")) "," DONE, NSBX_E_PROTOCOL, ""},
        {ENTRIES(ENTRY("/w//a", "file")) "," DONE, NSBX_E_PROTOCOL, ""},
        {ENTRIES(ENTRY("/w/a/", "file")) "," DONE, NSBX_E_PROTOCOL, ""},
        {ENTRIES("[{\"base64\":\"L3cvLi4vYQ==\"},0,\"other\",0,0]") "," DONE, NSBX_E_PROTOCOL, ""},
        {ENTRIES(ENTRY("/w/a\\u0000b", "file")) "," DONE, NSBX_E_PROTOCOL, ""},
        {ENTRIES(ENTRY("/w/a", "socket")) "," DONE, NSBX_E_PROTOCOL, ""},
        {ENTRIES("[\"/w/a\",-1,\"file\",420,0]") "," DONE, NSBX_E_PROTOCOL, ""},
        {ENTRIES("[\"/w/a\",1,\"file\",4096,0]") "," DONE, NSBX_E_PROTOCOL, ""},
        {ENTRIES("[\"/w/a\",1,\"file\",420]") "," DONE, NSBX_E_PROTOCOL, ""},
        {ENTRIES("[5,1,\"file\",420,0]") "," DONE, NSBX_E_PROTOCOL, ""},
        {ENTRIES("7") "," DONE, NSBX_E_PROTOCOL, ""},
        {"{\"send\":{\"type\":\"entries\",\"entries\":5}}," DONE, NSBX_E_PROTOCOL, ""},
        {ENTRIES(ENTRY("/w/a", "file") "," ENTRY("/w/b", "file") "," ENTRY("/w/c", "file")) "," DONE,
         NSBX_E_PROTOCOL, ""},
        {"{\"send\":{\"type\":\"done\"}},{\"send\":{\"type\":\"done\"}}," END "," FIN, NSBX_E_PROTOCOL, ""},
        {END "," FIN, NSBX_E_PROTOCOL, ""},
        {FIN, NSBX_E_STREAM_LOST, ""},
        {ENTRIES(ENTRY("/w/a", "file")) "," RST, NSBX_E_STREAM_LOST, ""},
        {"{\"send\":{\"type\":\"error\",\"error\":\"walk_limit: x\",\"code\":\"ERR_FILE_WALK_LIMIT\"}}," END
         "," FIN,
         NSBX_E_LIMIT, "walk_limit"},
        {"{\"send\":{\"type\":\"error\",\"error\":\"no such directory\",\"code\":\"ENOENT\"}}," END "," FIN,
         NSBX_E_NOT_FOUND, "ENOENT"},
    };
    char script[8192] = "{\"ops\":{\"walk\":[", seen[64];
    for (size_t i = 0; i < NSBX_LEN(cases); i++)
        snprintf(script + strlen(script), sizeof script - strlen(script), "%s[%s]", i ? "," : "", cases[i].steps);
    snprintf(script + strlen(script), sizeof script - strlen(script), "]}}");
    guest_rig_open(NSBX_ARM_TCP, 1, script);
    for (size_t i = 0; i < NSBX_LEN(cases); i++) {
        struct nsbx_walk_request r = everything("/w");
        r.max_entries = 2;
        struct nsbx_err err = walk_all(&r, seen, sizeof seen);
        CHECK_ERR(err, cases[i].code, cases[i].reason);
        if (err.code)
            CHECK_HAS(err.message, "cannot walk '/w'");
    }
    guest_rig_close();
}

static void lists_are_verified(void)
{
    static const char *const paths[] = {"/w", "/w/d/e", "/w/../a", "/v/a"};
    char seen[64];
    struct nsbx_walk_request r = everything("/w");
    r.list = true;
    for (size_t i = 0; i < NSBX_LEN(paths); i++) {
        char script[512];
        snprintf(script, sizeof script,
                 "{\"ops\":{\"walk\":[[" ENTRIES("[\"%s\",1,\"file\",420,0]") "," DONE "]]}}", paths[i]);
        guest_rig_open(NSBX_ARM_UNIX, 1, script);
        CHECK_ERR(walk_all(&r, seen, sizeof seen), NSBX_E_PROTOCOL, "");
        guest_rig_close();
    }
}

/* A list is bounded, by its entries and by its text. */
static void lists_are_bounded(void)
{
    enum { EACH = 250 };
    size_t size = 1u << 20;
    char *script = nsbx_malloc(size);
    struct nsbx_walk_request r = everything("/w");
    r.list = true;
    for (int width = 1; width <= 2048; width += 2047) {
        size_t n = (size_t)snprintf(
            script, size, "{\"ops\":{\"walk\":[[{\"repeat\":10,\"blast\":{\"type\":\"entries\",\"entries\":[");
        for (int i = 0; i < EACH; i++)
            n += (size_t)snprintf(script + n, size - n, "%s[\"/w/%0*d\",1,\"file\",420,0]", i ? "," : "", width, i);
        snprintf(script + n, size - n, "]}}," DONE "]]}}");
        guest_rig_open(NSBX_ARM_UNIX, 1, script);
        struct nsbx_err err = {0};
        struct nsbx_walk *w;
        struct nsbx_entry entry;
        size_t got = 0;
        REQUIRE(nsbx_walk_open(guest, &r, &w, &err) == 0);
        while (!err.code && !nsbx_walk_ended(w)) {
            err = finish_op(nsbx_walk_next(w, 60000));
            while (nsbx_walk_take(w, &entry))
                got++;
        }
        CHECK_ERR(err, NSBX_E_LIMIT, "");
        CHECK_HAS(err.message, width == 1 ? "NSBX_LIST_MAX_ENTRIES" : "NSBX_LIST_MAX_TEXT");
        CHECK_HAS(err.message, "walk_files");
        CHECK(got <= NSBX_LIST_MAX_ENTRIES && got * (size_t)width <= NSBX_LIST_MAX_TEXT);
        nsbx_walk_close(w);
        guest_rig_close();
    }
    nsbx_free(script);
}

/* Messages without an entry neither fill the window nor count as progress. */
static void empty_messages_for_ever(void)
{
    char seen[64];
    struct nsbx_walk_request r = everything("/w");
    guest_rig_open(NSBX_ARM_UNIX, 1,
                   ON("walk", "{\"repeat\":100,\"blast\":{\"type\":\"entries\",\"entries\":[]}}," ENTRIES(
                                  ENTRY("/w/a", "file")) "," DONE));
    CHECK_INT(walk_all(&r, seen, sizeof seen).code, 0);
    CHECK_STR(seen, "/w/a ");
    guest_rig_close();
    guest_rig_open(NSBX_ARM_UNIX, 100, /* the limit of silence is 600 ms */
                   ON("walk", "{\"repeat\":100000,\"blast\":{\"type\":\"entries\",\"entries\":[]}}," SILENCE));
    CHECK_ERR(walk_all(&r, seen, sizeof seen), NSBX_E_TIMEOUT, "");
    guest_rig_close();
}

/* A guest that sends entries faster than they are taken is held up. */
static void walk_with_back_pressure(void)
{
    enum { MESSAGES = 400, EACH = 256 };
    size_t size = 64u << 10, n = 0;
    char *script = nsbx_malloc(size), name[128];
    n += (size_t)snprintf(
        script, size, "{\"ops\":{\"walk\":[[{\"repeat\":%d,\"send\":{\"type\":\"entries\",\"entries\":[", MESSAGES);
    for (int i = 0; i < EACH; i++) {
        snprintf(name, sizeof name, "/w/a-name-that-is-not-short-at-all-so-that-it-adds-up-%05d", i);
        n += (size_t)snprintf(script + n, size - n, "%s[\"%s\",1,\"file\",420,0]", i ? "," : "", name);
    }
    snprintf(script + n, size - n, "]}}," DONE "]]}}");
    guest_rig_open(NSBX_ARM_UNIX, 1, script);
    struct nsbx_walk_request r = everything("/w");
    struct nsbx_err err = {0};
    struct nsbx_walk *w;
    struct nsbx_entry entry;
    size_t got = 0, most = 0;
    REQUIRE(nsbx_walk_open(guest, &r, &w, &err) == 0);
    CHECK_INT(finish_op(nsbx_walk_next(w, 5000)).code, 0);
    for (int i = 0; i < 100; i++) {
        usleep(5000);
        nsbx_loop_turn(loop, NSBX_TURN_POLL);
    }
    while (nsbx_walk_take(w, &entry))
        got++;
    most = got;
    CHECK(most < (size_t)MESSAGES * EACH / 2);
    while (!err.code && !nsbx_walk_ended(w)) {
        err = finish_op(nsbx_walk_next(w, 5000));
        while (nsbx_walk_take(w, &entry))
            got++;
    }
    CHECK_INT(err.code, 0);
    CHECK_INT(got, MESSAGES * EACH);
    nsbx_walk_close(w);
    nsbx_free(script);
    guest_rig_close();
}

static void walks_end_when_told(void)
{
    guest_rig_open(NSBX_ARM_UNIX, 1, ON("walk", ENTRIES(ENTRY("/w/a", "file")) "," SILENCE));
    struct nsbx_walk_request r = everything("/w");
    struct nsbx_err err;
    struct nsbx_walk *w;
    struct nsbx_entry entry;
    REQUIRE(nsbx_walk_open(guest, &r, &w, &err) == 0);
    CHECK_INT(finish_op(nsbx_walk_next(w, 5000)).code, 0);
    CHECK(nsbx_walk_take(w, &entry));
    CHECK(!nsbx_walk_ended(w));
    CHECK_INT(finish_op(nsbx_walk_next(w, 50)).code, NSBX_E_TIMEOUT);
    CHECK_INT(finish_op(nsbx_walk_next(w, 50)).code, NSBX_E_TIMEOUT);
    nsbx_walk_close(w);
    REQUIRE(nsbx_walk_open(guest, &r, &w, &err) == 0);
    struct nsbx_op *op = nsbx_walk_next(w, -1);
    nsbx_walk_close(w);
    CHECK_INT(finish_op(op).code, NSBX_E_CANCELLED);
    guest_rig_close();

    guest_rig_open(NSBX_ARM_UNIX, 1, "{\"features\":[]}");
    char seen[16];
    CHECK_ERR(walk_all(&r, seen, sizeof seen), NSBX_E_UNSUPPORTED, "walk");
    guest_rig_close();
}

static struct nsbx_err one_walk(void)
{
    struct nsbx_walk_request r = everything("/w");
    struct nsbx_err err = {0};
    struct nsbx_walk *w;
    struct nsbx_entry entry;
    int n = 0;
    if (nsbx_walk_open(guest, &r, &w, &err) < 0)
        return err;
    while (!err.code && !nsbx_walk_ended(w)) {
        err = finish_op_bare(nsbx_walk_next(w, -1));
        while (nsbx_walk_take(w, &entry))
            n++;
    }
    CHECK(n == 2 || err.code);
    nsbx_walk_close(w);
    return err;
}

static void no_memory_for_a_walk(void)
{
    guest_rig_open(NSBX_ARM_UNIX, 1,
                   ON("walk", ENTRIES(ENTRY("/w/a", "file")) "," ENTRIES(
                                  "[{\"base64\":\"L3cv/w==\"},0,\"other\",0,0]") "," DONE));
    without_memory(one_walk);
    guest_rig_close();
}

int main(void)
{
    guest_rig_main();
    RUN(walks);
    RUN(walks_are_verified);
    RUN(lists_are_verified);
    RUN(lists_are_bounded);
    RUN(empty_messages_for_ever);
    RUN(walk_with_back_pressure);
    RUN(walks_end_when_told);
    RUN(no_memory_for_a_walk);
    return harness_done();
}
