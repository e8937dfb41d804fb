#include "harness.h"

#include "base/util.h"
#include "codec/path.h"

static void paths_resolve_lexically(void)
{
    static const struct {
        const char *base, *path, *want;
    } cases[] = {
        {"/w", "a", "/w/a"},
        {"/w", "a/b/c", "/w/a/b/c"},
        {"/w", "/a", "/a"},
        {"/w", ".", "/w"},
        {"/w", "./", "/w"},
        {"/w", "..", "/"},
        {"/w", "../..", "/"},
        {"/w", "../../../x", "/x"},
        {"/w/a", "../b", "/w/b"},
        {"/", "a", "/a"},
        {"/", ".", "/"},
        {"/", "/", "/"},
        {"/w", "/", "/"},
        {"/w", "//", "/"},
        {"/w", "///a//b///", "/a/b"},
        {"/w", "a/", "/w/a"},
        {"/w", "a/./b/../c", "/w/a/c"},
        {"/w", "/..", "/"},
        {"/w", "/../a", "/a"},
        {"/w", "...", "/w/..."},
        {"/w", ".a", "/w/.a"},
        {"/w", "..a", "/w/..a"},
        {"/w", "a..", "/w/a.."},
        {"/w", "a/..b/.c./", "/w/a/..b/.c."},
        {"/w", " ", "/w/ "},
        {"/w", "\xff\n", "/w/\xff\n"},
        {"/w//x/", "y", "/w/x/y"},
    };
    for (size_t i = 0; i < NSBX_LEN(cases); i++) {
        char out[NSBX_PATH_MAX];
        struct nsbx_err err = {0};
        CHECK_INT(nsbx_path_resolve(out, cases[i].base, cases[i].path, strlen(cases[i].path), &err), 0);
        CHECK_STR(out, cases[i].want);
        CHECK_INT(err.code, 0);
    }
}

static void what_no_path_can_be_is_refused(void)
{
    char out[NSBX_PATH_MAX];
    struct nsbx_err err = {0};
    CHECK_INT(nsbx_path_resolve(out, "/w", "", 0, &err), -NSBX_E_INVALID);
    CHECK_INT(err.code, NSBX_E_INVALID);
    CHECK_INT(nsbx_path_resolve(out, "/w", "a\0b", 3, &err), -NSBX_E_INVALID);
    CHECK(strstr(err.message, "NUL"));
    CHECK_INT(nsbx_path_resolve(out, "/w", "\0", 1, NULL), -NSBX_E_INVALID);
}

static void the_longest_path_is_one_byte_less_than_the_maximum(void)
{
    char out[NSBX_PATH_MAX], path[NSBX_PATH_MAX + 1];
    struct nsbx_err err = {0};
    memset(path, 'a', sizeof(path));
    path[0] = '/';
    CHECK_INT(nsbx_path_resolve(out, "/", path, NSBX_PATH_MAX - 1, &err), 0);
    CHECK_INT(strlen(out), NSBX_PATH_MAX - 1);
    CHECK_INT(nsbx_path_resolve(out, "/", path, NSBX_PATH_MAX, &err), -NSBX_E_LIMIT);
    CHECK_INT(err.code, NSBX_E_LIMIT);
    path[1] = '/';
    CHECK_INT(nsbx_path_resolve(out, "/", path, NSBX_PATH_MAX, &err), 0);
    CHECK_INT(nsbx_path_resolve(out, "/b", path + 2, NSBX_PATH_MAX - 3, &err), -NSBX_E_LIMIT);
    CHECK_INT(nsbx_path_resolve(out, "/b", path + 2, NSBX_PATH_MAX - 4, &err), 0);
    CHECK_INT(strlen(out), NSBX_PATH_MAX - 1);
}

static void within_and_below_know_borders_of_segments(void)
{
    CHECK(nsbx_path_within("/w", "/w"));
    CHECK(nsbx_path_within("/w", "/w/a"));
    CHECK(!nsbx_path_within("/w", "/wa"));
    CHECK(!nsbx_path_within("/w", "/"));
    CHECK(!nsbx_path_within("/w/a", "/w"));
    CHECK(!nsbx_path_within("/w", "/x/w"));
    CHECK(nsbx_path_within("/", "/"));
    CHECK(nsbx_path_within("/", "/anything"));
    CHECK_STR(nsbx_path_below("/w", "/w"), "");
    CHECK_STR(nsbx_path_below("/w", "/w/a/b"), "a/b");
    CHECK_STR(nsbx_path_below("/", "/"), "");
    CHECK_STR(nsbx_path_below("/", "/a"), "a");
    CHECK(nsbx_path_below("/w", "/wa") == NULL);
    const char *path = "/w/a";
    CHECK(nsbx_path_below("/w", path) == path + 3);
}

static void the_base_is_what_follows_the_last_slash(void)
{
    CHECK_STR(nsbx_path_base("/a/b"), "b");
    CHECK_STR(nsbx_path_base("b"), "b");
    CHECK_STR(nsbx_path_base("/"), "");
    CHECK_STR(nsbx_path_base("a/"), "");
}

int main(void)
{
    RUN(paths_resolve_lexically);
    RUN(what_no_path_can_be_is_refused);
    RUN(the_longest_path_is_one_byte_less_than_the_maximum);
    RUN(within_and_below_know_borders_of_segments);
    RUN(the_base_is_what_follows_the_last_slash);
    return harness_done();
}
