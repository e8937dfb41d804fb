#include "splits.h"

#include "base/util.h"
#include "codec/utf8.h"

enum { ROOM = 4096 };
#define R "\xef\xbf\xbd"

static void run(FILE *log, const struct splits_piece *pieces, size_t count)
{
    struct nsbx_utf8 text;
    struct nsbx_buf out;
    struct nsbx_err err;
    nsbx_utf8_init(&text);
    nsbx_buf_init(&out, ROOM);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = nsbx_utf8_feed(&text, pieces[i].bytes, pieces[i].n, &out, &err);
        if (text.n > 3 || !nsbx_utf8_valid(nsbx_buf_data(&out), out.len))
            fprintf(log, "[wrong]");
    }
    if (rc == 0)
        rc = nsbx_utf8_flush(&text, &out, &err);
    if (out.len)
        fwrite(nsbx_buf_data(&out), 1, out.len, log);
    fprintf(log, "|%" PRIu64 "%s", text.replaced, rc ? " failed" : "");
    nsbx_buf_free(&out);
}

/* The published rule: one U+FFFD for each maximal subpart of an ill-formed sequence. */
static void invalid_bytes_become_one_replacement_a_maximal_subpart(void)
{
    static const char *const cases[][2] = {
        {"", "|0"},
        {"plain ASCII text of some length, longer than a word",
         "plain ASCII text of some length, longer than a word|0"},
        {"\xc3\xa9 \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x98\x80",
         "\xc3\xa9 \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x98\x80|0"},
        {"\x80", R "|1"},
        {"\xff\xfe", R R "|2"},
        {"a\xc3", "a" R "|1"},
        {"\xc3(", R "(|1"},
        {"\xc0\xaf", R R "|2"},             /* overlong */
        {"\xe0\x80\xaf", R R R "|3"},       /* overlong */
        {"\xe0\xa0", R "|1"},               /* cut */
        {"\xed\xa0\x80", R R R "|3"},       /* a surrogate */
        {"\xed\x9f\xbf", "\xed\x9f\xbf|0"}, /* the last before them */
        {"\xef\xbf\xbf", "\xef\xbf\xbf|0"},
        {"\xf0\x80\x80\x80", R R R R "|4"},
        {"\xf0\x9f\x98", R "|1"},
        {"\xf0\x9f\x98x", R "x|1"},
        {"\xf0\x9f\xf0\x9f\x98\x80", R "\xf0\x9f\x98\x80|1"},
        {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf|0"}, /* U+10FFFF */
        {"\xf4\x90\x80\x80", R R R R "|4"},         /* beyond it */
        {"\xf5\x80", R R "|2"},
        {"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", R R R R "A|4"}, /* from the Unicode standard, table 3-11 */
        {"\xe6\x97\xe6\x97\xa5", R "\xe6\x97\xa5|1"},
        {R, R "|0"}, /* one that was there is none of ours */
    };
    for (size_t i = 0; i < NSBX_LEN(cases); i++)
        splits_check(run, cases[i][0], cases[i][1]);
    splits_check_bytes(run, "a\0\xff\0", 4, NULL);
}

static void a_full_buffer_is_an_error_and_not_a_cut(void)
{
    struct nsbx_utf8 text;
    struct nsbx_buf out;
    struct nsbx_err err = {0};
    nsbx_utf8_init(&text);
    nsbx_buf_init(&out, 4);
    CHECK_INT(nsbx_utf8_feed(&text, (const uint8_t *)"ab\xff", 3, &out, &err), -NSBX_E_LIMIT);
    CHECK_INT(err.code, NSBX_E_LIMIT);
    CHECK_INT(text.replaced, 0);
    nsbx_buf_free(&out);
}

static void validity_is_strict(void)
{
    static const char *const good[] = {
        "", "a", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xee\x80\x80", "\xf0\x90\x80\x80"};
    static const char *const bad[] = {"\x80",         "\xc1\xbf",         "\xc2",  "\xe0\x9f\xbf",
                                      "\xed\xbf\xbf", "\xf0\x8f\xbf\xbf", "ok\xf8"};
    for (size_t i = 0; i < NSBX_LEN(good); i++)
        CHECK(nsbx_utf8_valid((const uint8_t *)good[i], strlen(good[i])));
    for (size_t i = 0; i < NSBX_LEN(bad); i++)
        CHECK(!nsbx_utf8_valid((const uint8_t *)bad[i], strlen(bad[i])));
    CHECK(nsbx_utf8_valid((const uint8_t *)"\0", 1));
    CHECK(nsbx_utf8_valid(NULL, 0));
}

static void the_tail_is_an_incomplete_character_and_nothing_else(void)
{
    static const struct {
        const char *text;
        size_t tail;
    } cases[] = {
        {"", 0},         {"abc", 0},          {"abc\xc3", 1},      {"abc\xc3\xa9", 0},      {"\xe6", 1},
        {"\xe6\x97", 2}, {"\xe6\x97\xa5", 0}, {"\xf0\x9f\x98", 3}, {"\xf0\x9f\x98\x80", 0}, {"\x80\x80\x80", 0},
        {"a\xff", 0},    {"\xed\xa0", 0},     {"\xe0\x80", 0},     {"x\xf4\x90", 0},        {"\xc3\xa9\xc3", 1},
    };
    for (size_t i = 0; i < NSBX_LEN(cases); i++)
        CHECK_INT(nsbx_utf8_tail((const uint8_t *)cases[i].text, strlen(cases[i].text)), cases[i].tail);
}

static void a_replacement_is_found(void)
{
    CHECK(nsbx_utf8_has_replacement((const uint8_t *)"a" R "b", 5));
    CHECK(!nsbx_utf8_has_replacement((const uint8_t *)"a\xef\xbf\xbe", 4));
    CHECK(!nsbx_utf8_has_replacement((const uint8_t *)"\xef\xbf", 2));
    CHECK(!nsbx_utf8_has_replacement(NULL, 0));
}

static void check_escape(const char *text, size_t n, const char *want)
{
    struct nsbx_buf out;
    nsbx_buf_init(&out, ROOM);
    CHECK_INT(nsbx_json_escape(&out, (const uint8_t *)text, n, NULL), 0);
    CHECK_INT(nsbx_buf_append(&out, "", 1, NULL), 0);
    CHECK_STR((const char *)nsbx_buf_data(&out), want);
    nsbx_buf_free(&out);
}

static void json_escapes_are_those_of_the_published_peers(void)
{
    check_escape("", 0, "");
    check_escape("plain, with /slashes/ and 'quotes'", 34, "plain, with /slashes/ and 'quotes'");
    check_escape("\"\\\"\\", 4, "\\\"\\\\\\\"\\\\");
    check_escape("\b\t\n\f\r", 5, "\\b\\t\\n\\f\\r");
    check_escape("\0\1\x1f\x7f\v", 5, "\\u0000\\u0001\\u001f\x7f\\u000b");
    check_escape("\xe6\x97\xa5\n\xf0\x9f\x98\x80\"", 9, "\xe6\x97\xa5\\n\xf0\x9f\x98\x80\\\"");
    /* every place of a special byte in a word, between neighbours that carry into it */
    for (size_t at = 0; at < 24; at++) {
        char text[24], want[32];
        memset(text, ' ', sizeof(text));
        memset(want, ' ', sizeof(want));
        text[at] = '\n';
        memcpy(want + at, "\\n", 2);
        want[25] = 0;
        check_escape(text, sizeof(text), want);
    }
    struct nsbx_buf small;
    nsbx_buf_init(&small, 3);
    CHECK_INT(nsbx_json_escape(&small, (const uint8_t *)"a\1", 2, NULL), -NSBX_E_LIMIT);
    nsbx_buf_free(&small);
}

int main(void)
{
    RUN(invalid_bytes_become_one_replacement_a_maximal_subpart);
    RUN(a_full_buffer_is_an_error_and_not_a_cut);
    RUN(validity_is_strict);
    RUN(the_tail_is_an_incomplete_character_and_nothing_else);
    RUN(a_replacement_is_found);
    RUN(json_escapes_are_those_of_the_published_peers);
    return harness_done();
}
