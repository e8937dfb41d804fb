#include "harness.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "base/util.h"
#include "codec/glob.h"
#include "glob_table.h"

#include <time.h>

static struct nsbx_glob *compile(const char *pattern, bool hidden)
{
    struct nsbx_glob *g = NULL;
    struct nsbx_err err = {0};
    size_t len = strlen(pattern);
    char *exact = malloc(len ? len : 1); /* without a NUL behind it */
    memcpy(exact, pattern, len);
    if (nsbx_glob_compile(&g, exact, len, hidden, &err) != 0)
        fprintf(stderr, "%s: %s\n", pattern, err.message);
    free(exact);
    CHECK(g != NULL);
    return g;
}

/* Walks one path; false also when a directory on the way would not be entered. */
static bool matches_bytes(const struct nsbx_glob *g, const char *path, size_t len)
{
    size_t words = nsbx_glob_state_words(g);
    uint64_t *state = calloc(words, sizeof(*state)), *next = calloc(words, sizeof(*next));
    bool file = false, below = true;
    nsbx_glob_start(g, state);
    for (size_t at = 0; below && at <= len;) {
        const char *slash = memchr(path + at, '/', len - at);
        size_t n = slash ? (size_t)(slash - path) - at : len - at;
        char *name = malloc(n ? n : 1);
        memcpy(name, path + at, n);
        below = nsbx_glob_step(g, state, name, n, next, &file);
        free(name);
        memcpy(state, next, words * sizeof(*state));
        at += n + 1;
        if (!below && at <= len)
            file = false;
    }
    free(state);
    free(next);
    return file;
}

static bool matches(const char *pattern, bool hidden, const char *path)
{
    struct nsbx_glob *g = compile(pattern, hidden);
    bool result = g && matches_bytes(g, path, strlen(path));
    nsbx_glob_free(g);
    return result;
}

static void check_match(const char *pattern, bool hidden, const char *path, bool want)
{
    if (matches(pattern, hidden, path) == want)
        return;
    fprintf(stderr, "%s: '%s' %s '%s'\n", harness_case, pattern, want ? "does not match" : "matches", path);
    harness_case_failed = 1;
}

static bool listed(const char *list, const char *path)
{
    size_t n = strlen(path);
    for (const char *at = list; (at = strstr(at, path)) != NULL; at++)
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || at[n] == 0))
            return true;
    return false;
}

static void patterns_match_what_the_published_walk_matches(void)
{
    for (size_t i = 0; i < NSBX_LEN(glob_rows); i++)
        for (size_t k = 0; k < NSBX_LEN(glob_paths); k++)
            check_match(glob_rows[i].pattern, glob_rows[i].hidden, glob_paths[k],
                        listed(glob_rows[i].matches, glob_paths[k]));
}

/* Where the published matcher's versions disagree with each other or with its own rules. */
static void differences_are_on_purpose(void)
{
    static const struct {
        const char *pattern, *path;
        bool want;
    } cases[] = {
        /* a star beside an extglob may be empty, as in a shell and in later versions */
        {"@(.a|b)*", "b", true},
        {"a!(b)*", "a", true},
        {"*@(a|b)", "a", true},
        /* a wildcard behind an extglob that matched nothing is at the start all the same */
        {"?(a)*", ".x", false},
        {"*(a)?x", ".x", false},
        /* an escaped bar is a bar */
        {"@(a\\|b)", "a|b", true},
        {"@(a\\|b)", "a", false},
        /* an escaped caret does not negate */
        {"[\\^a]", "^", true},
        {"[\\^a]", "b", false},
        /* a negated class with [:graph:] or [:print:] holds what is in neither */
        {"x[^[:graph:]a]", "x ", true},
        {"x[^[:graph:]a]", "xb", false},
        {"x[^[:graph:]a]", "xa", false},
        /* an extglob at the end of another one's alternative is part of what is excluded */
        {"!(a|@(ts))", "ts", false},
        {"!(a|@(ts))", "b", true},
        /* an escaped backslash stays one when there are braces */
        {"{\\\\*,b}", "\\x", true},
        {"{\\\\*,b}", "*", false},
        /* braces hold newlines, and a group without a comma does not stop the next */
        {"{a\n,b}", "a\n", true},
        {"{a}{1..2}", "{a}1", true},
        /* a file is not below itself */
        {"a/**", "a", false},
        {"a/**", "ab", false},
        /* one character is one, beyond the 16-bit range too */
        {"?", "\xf0\x9f\x98\x80", true},
        {"??", "\xf0\x9f\x98\x80", false},
        {"[\xf0\x9f\x98\x80-\xf0\x9f\x98\x82]", "\xf0\x9f\x98\x81", true},
    };
    for (size_t i = 0; i < NSBX_LEN(cases); i++)
        check_match(cases[i].pattern, false, cases[i].path, cases[i].want);
}

static void classes_know_the_characters_of_unicode(void)
{
    static const struct {
        const char *class, *in, *out;
    } cases[] = {
        {"alpha", "aZ\xc3\xa9\xe6\x97\xa5\xce\xa9\xd0\x96", "1-_ \xe2\x82\xac"},
        {"lower", "az\xc3\xa9\xd0\xb6", "AZ1\xc3\x89\xe6\x97\xa5"},
        {"upper", "AZ\xc3\x89\xd0\x96", "az1\xc3\xa9\xe6\x97\xa5"},
        {"digit", "09\xd9\xa3", "a-\xc2\xb2"},
        {"alnum", "a9\xe6\x97\xa5\xd9\xa3", "-_ "},
        {"punct", "!-_.\xe2\x80\xa6", "a1+$ "},
        {"space", " \t\n\xc2\xa0\xe3\x80\x80", "a-"},
        {"blank", " \t\xc2\xa0", "\na"},
        {"cntrl", "\x01\x7f\n", "a \xc2\xad"},
        {"graph", "a!+\xe6\x97\xa5", " \t\x01\xc2\xa0"},
        {"print", "a !\xc2\xa0", "\t\x01\x7f"},
        {"word", "a9_\xe6\x97\xa5", "-! "},
        {"xdigit", "09afAF", "gG\xd9\xa3"},
        {"ascii", "a\x01~", "\xc3\xa9\xe6\x97\xa5"},
    };
    for (size_t i = 0; i < NSBX_LEN(cases); i++) {
        for (int out = 0; out < 2; out++) {
            const char *text = out ? cases[i].out : cases[i].in;
            for (size_t at = 0; text[at];) {
                size_t n = 1;
                while (((uint8_t)text[at + n] & 0xc0) == 0x80)
                    n++;
                char pattern[32], negated[32], path[8];
                snprintf(pattern, sizeof(pattern), "x[[:%s:]]", cases[i].class);
                snprintf(negated, sizeof(negated), "x[^[:%s:]]", cases[i].class);
                snprintf(path, sizeof(path), "x%.*s", (int)n, text + at);
                check_match(pattern, false, path, !out);
                check_match(negated, false, path, out);
                at += n;
            }
        }
    }
}

static void bytes_outside_utf8_match_one_by_one(void)
{
    check_match("?", false, "\xff", true);
    check_match("?", false, "\xe6\x97", false);
    check_match("??", false, "\xe6\x97", true);
    check_match("a*b", false,
                "a\xff\xfe"
                "b",
                true);
    check_match("[!a]", false, "\xff", true);
    check_match("[\xff]", false, "\xff", true);
    check_match("[\xfe-\xff]", false, "\xff", true);
    check_match("\xff*", false, "\xff\x80", true);
    check_match("\xff", false, "\xff", true);
    check_match("\xe9*", false, "\xc3\xa9x", false);
    check_match("[[:print:]]", false, "\xff", false);
    check_match("*\xa5", false, "\xe6\x97\xa5", false); /* a byte of a character is not a byte alone */
}

static void newlines_are_characters_like_others(void)
{
    check_match("a*b", false, "a\nb", true);
    check_match("a?b", false, "a\nb", true);
    check_match("**", false, "a\n/b\n", true);
    check_match("*.ts", false, "a\n.ts", true);
}

/* The path's directories that a walk enters, one bit each. */
static unsigned entered(const char *pattern, bool hidden, const char *path)
{
    struct nsbx_glob *g = compile(pattern, hidden);
    uint64_t state[4], next[4];
    if (!g || nsbx_glob_state_words(g) > NSBX_LEN(state))
        return ~0u;
    unsigned bits = 0;
    bool file;
    nsbx_glob_start(g, state);
    for (int level = 0; *path; level++) {
        size_t n = strcspn(path, "/");
        if (!nsbx_glob_step(g, state, path, n, next, &file))
            break;
        bits |= 1u << level;
        memcpy(state, next, sizeof(state));
        path += n + (path[n] == '/');
    }
    nsbx_glob_free(g);
    return bits;
}

static void only_directories_below_which_something_can_match_are_entered(void)
{
    CHECK_INT(entered("*", false, "a/b"), 0);
    CHECK_INT(entered("*.ts", false, "x.ts/b"), 0);
    CHECK_INT(entered("**.ts", false, "x.ts/b"), 0);
    CHECK_INT(entered("{*.ts,*.js}", false, "x.ts/b"), 0);
    CHECK_INT(entered("@(a|b).ts", false, "a.ts/b"), 0);
    CHECK_INT(entered("src/*.ts", false, "src/a/b"), 1);
    CHECK_INT(entered("src/*.ts", false, "lib/a"), 0);
    CHECK_INT(entered("src/*/x", false, "src/a/b"), 3);
    CHECK_INT(entered("src/**", false, "src/a/b"), 7);
    CHECK_INT(entered("src/**/x", false, "src/a/b"), 7);
    CHECK_INT(entered("**", false, "a/.git/b"), 1);
    CHECK_INT(entered("**", true, "a/.git/b"), 7);
    CHECK_INT(entered("**/.git/*", false, "a/.git/b"), 3);
    CHECK_INT(entered("**/.*/x", false, "a/.git/b"), 3);
    CHECK_INT(entered(".git/**", false, ".git/a/.b"), 3);
    CHECK_INT(entered("src/", false, "src"), 0);
    CHECK_INT(entered("src/./a", false, "src/a"), 0);
    CHECK_INT(entered("{a,b}/{c,d}/e", false, "b/c/e"), 3);
    CHECK_INT(entered("{a,b}/{c,d}/e", false, "b/e/e"), 1);
}

static void check_refused(const char *pattern, size_t len, const char *word)
{
    struct nsbx_glob *g = NULL;
    struct nsbx_err err = {0};
    CHECK_INT(nsbx_glob_compile(&g, pattern, len, false, &err), -NSBX_E_INVALID);
    CHECK(g == NULL);
    if (!strstr(err.message, word)) {
        fprintf(stderr, "%s: '%s' does not say '%s'\n", harness_case, err.message, word);
        harness_case_failed = 1;
    }
    nsbx_glob_free(g);
}

static void what_is_no_pattern_is_refused_by_name(void)
{
    static const char *const cases[][2] = {
        {"", "empty"},
        {"./", "empty"},
        {"././", "empty"},
        {"{,}", "empty"},
        {"{./,a}", "empty"},
        {"/a", "absolute"},
        {".//a", "absolute"},
        {"{a,/b}", "absolute"},
        {"{,a}/b", "absolute"},
        {"..", "'..'"},
        {"a/..", "'..'"},
        {"a/../b", "'..'"},
        {"./../a", "'..'"},
        {"{a,..}/b", "'..'"},
        {"{.,x}{.,y}/b", "'..'"},
        {"{1..257}", "256"},
        {"{1..999999999999999}", "256"},
        {"{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}", "256"},
        {"@(@(@(@(@(@(@(@(@(@(@(@(@(@(@(@(@(a)))))))))))))))))", "nest"},
    };
    for (size_t i = 0; i < NSBX_LEN(cases); i++)
        check_refused(cases[i][0], strlen(cases[i][0]), cases[i][1]);
    check_refused("a\0b", 3, "NUL");
}

static void limits_hold_to_the_character(void)
{
    static char text[3 * NSBX_GLOB_MAX_PATTERN + 3];
    memset(text, 'a', sizeof(text));
    struct nsbx_glob *g = NULL;
    CHECK_INT(nsbx_glob_compile(&g, text, NSBX_GLOB_MAX_PATTERN, false, NULL), 0);
    nsbx_glob_free(g);
    check_refused(text, NSBX_GLOB_MAX_PATTERN + 1, "4096");
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = "\xe6\x97\xa5"[i % 3];
    CHECK_INT(nsbx_glob_compile(&g, text, 3 * NSBX_GLOB_MAX_PATTERN, false, NULL), 0);
    nsbx_glob_free(g);
    check_refused(text, sizeof(text), "4096");
    g = compile("{1..256}", false);
    CHECK(matches_bytes(g, "256", 3));
    nsbx_glob_free(g);
    g = compile("{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}", false);
    CHECK(matches_bytes(g, "abababab", 8));
    CHECK_INT(nsbx_glob_state_words(g), 4);
    nsbx_glob_free(g);
    g = compile("@(@(@(@(@(@(@(@(@(@(@(@(@(@(@(@(a))))))))))))))))", false);
    CHECK(matches_bytes(g, "a", 1));
    nsbx_glob_free(g);
    memset(text, 'x', NSBX_GLOB_MAX_PATTERN);
    memcpy(text, "{1..200}", 8);
    check_refused(text, NSBX_GLOB_MAX_PATTERN, "bytes");
}

static void more_than_64_positions_keep_apart(void)
{
    char pattern[400] = "a";
    for (int i = 0; i < 99; i++)
        strcat(pattern, "/a");
    struct nsbx_glob *g = compile(pattern, false);
    CHECK_INT(nsbx_glob_state_words(g), 2);
    CHECK(matches_bytes(g, pattern, strlen(pattern)));
    CHECK(!matches_bytes(g, pattern, strlen(pattern) - 2));
    pattern[150] = 'b';
    CHECK(!matches_bytes(g, pattern, strlen(pattern)));
    nsbx_glob_free(g);
    char path[420];
    snprintf(path, sizeof(path), "%s/q/q/a", pattern);
    strcat(pattern, "/**/a");
    g = compile(pattern, false);
    CHECK(matches_bytes(g, path, strlen(path)));
    CHECK(!matches_bytes(g, path, strlen(path) - 2));
    nsbx_glob_free(g);
}

/* Patterns with which a backtracking matcher takes longer than the universe; the time here is nodes × characters. */
static void hostile_patterns_take_little_time(void)
{
    static const char *const patterns[] = {
        "*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b",
        "*(*(*(*(*(*(*(*(a))))))))b",
        "+(a|+(a|+(a|+(a|a))))b",
        "*(a|aa|aaa|aaaa)*(a|aa|aaa)*(a|aa)b",
        "!(!(!(!(!(!(a*)b)b)b)b)b)b",
        "*(!(a)b)*(!(a)b)*(!(a)b)c",
        "*(*(a)*(a)*(a)*(a))*(*(a)*(a))b",
        "+(*|*)+(?|*)b",
        "[[:alpha:]]*[[:alpha:]]*[[:alpha:]]*[[:alpha:]]*b",
    };
    char name[256], path[2 * 256];
    memset(name, 'a', 255);
    name[255] = 0;
    clock_t start = clock();
    for (size_t i = 0; i < NSBX_LEN(patterns); i++)
        if (strcmp(patterns[i], "!(!(!(!(!(!(a*)b)b)b)b)b)b") != 0)
            check_match(patterns[i], false, name, false);
        else
            matches(patterns[i], false, name);
    struct nsbx_glob *g = compile("**/**/a/**/**/a/**/a/**/a/**/a/**/a/**/b", false);
    for (size_t i = 0; i < sizeof(path); i++)
        path[i] = i % 2 ? '/' : 'a';
    CHECK(!matches_bytes(g, path, sizeof(path) - 1));
    nsbx_glob_free(g);
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    if (seconds > 2)
        fprintf(stderr, "%.1f s\n", seconds);
    CHECK(seconds < 2);
}

static void hostile_patterns_compile_or_are_refused_in_little_time(void)
{
    static const char *const units[] = {"{",        "{a",   "}",      "{}",         "{a}", "{{a}", "{a,", "{1..1}",
                                        "[",        "[a",   "[!",     "[[:alpha:]", "@(",  "@(a|", "!(",  "+(a)",
                                        "*(!(a)b)", "!(a)", "*",      "**",         "?",   "**/",  "a/",  "\\",
                                        "\\{",      "$",    "${a,b}", ",",          "(|)", "[]",   "@([", "é"};
    static char text[NSBX_GLOB_MAX_PATTERN];
    clock_t start = clock();
    for (size_t i = 0; i < NSBX_LEN(units) * 2; i++) {
        const char *unit = units[i / 2], *head = i % 2 ? "{a,b}{a,b}{a,b}" : "";
        size_t width = strlen(unit), n = sizeof(text) - width;
        for (size_t at = 0; at < n; at++)
            text[at] = unit[at % width];
        memcpy(text, head, strlen(head));
        struct nsbx_glob *g = NULL;
        struct nsbx_err err = {0};
        int rc = nsbx_glob_compile(&g, text, n, false, &err);
        CHECK(rc == 0 || (rc == -NSBX_E_INVALID && err.message[0]));
        if (g)
            matches_bytes(g, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 40);
        nsbx_glob_free(g);
    }
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    if (seconds > 5)
        fprintf(stderr, "%.1f s\n", seconds);
    CHECK(seconds < 5);
}

static void each_lack_of_memory_is_an_error_and_leaks_nothing(void)
{
    const char *pattern = "{a,b}/**/*.@(ts|!(x))/[a-c[:digit:]]/lit";
    struct nsbx_glob *g = NULL;
    struct nsbx_err err;
    for (unsigned long nth = 1;; nth++) {
        CHECK(nth < 1000);
        nsbx_alloc_fail_at(nth);
        err.code = 0;
        int rc = nsbx_glob_compile(&g, pattern, strlen(pattern), false, &err);
        if (rc == 0)
            break;
        CHECK_INT(rc, -NSBX_E_LIMIT);
        CHECK_INT(err.code, NSBX_E_LIMIT);
        if (harness_case_failed)
            break;
    }
    nsbx_alloc_fail_at(0);
    nsbx_glob_free(g);
}

int main(void)
{
    RUN(patterns_match_what_the_published_walk_matches);
    RUN(differences_are_on_purpose);
    RUN(classes_know_the_characters_of_unicode);
    RUN(bytes_outside_utf8_match_one_by_one);
    RUN(newlines_are_characters_like_others);
    RUN(only_directories_below_which_something_can_match_are_entered);
    RUN(what_is_no_pattern_is_refused_by_name);
    RUN(limits_hold_to_the_character);
    RUN(more_than_64_positions_keep_apart);
    RUN(hostile_patterns_take_little_time);
    RUN(hostile_patterns_compile_or_are_refused_in_little_time);
    RUN(each_lack_of_memory_is_an_error_and_leaks_nothing);
    return harness_done();
}
