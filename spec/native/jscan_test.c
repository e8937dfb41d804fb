#include "splits.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "base/util.h"
#include "codec/jscan.h"

#include <jansson.h>

enum { MIB = 1024 * 1024, HOSTILE = 8 * MIB, PIECE = 64 * 1024 };
#define R "\xef\xbf\xbd"

static const char *const watch[] = {"op", "token", "body.path", NULL};
static const char *const large[] = {"data", "body.content", "body.part.data", NULL};

struct seen {
    FILE *log;
    char *text; /* of the string that the sink is getting */
    size_t len;
    FILE *sink;
    int stop; /* what the callbacks return */
};

static int on_watch(void *ud, size_t index, const char *value, size_t n)
{
    struct seen *seen = ud;
    fprintf(seen->log, "%s=", watch[index]);
    if (!value)
        fputs("(none)", seen->log);
    else if (value[n] != 0)
        fputs("(no NUL behind it)", seen->log);
    else
        fwrite(value, 1, n, seen->log);
    fputs("; ", seen->log);
    return seen->stop;
}

static int on_large(void *ud, size_t index, const uint8_t *bytes, size_t n, bool begin, bool end)
{
    struct seen *seen = ud;
    if (begin != !seen->sink)
        fputs("(a wrong begin)", seen->log);
    if (!seen->sink)
        seen->sink = open_memstream(&seen->text, &seen->len);
    fwrite(bytes, 1, n, seen->sink);
    if (end) {
        fclose(seen->sink);
        fprintf(seen->log, "%s<", large[index]);
        fwrite(seen->text, 1, seen->len, seen->log);
        fputs(">; ", seen->log);
        free(seen->text);
        seen->sink = NULL;
    }
    return seen->stop;
}

static void forget(struct seen *seen)
{
    if (!seen->sink)
        return;
    fclose(seen->sink);
    free(seen->text);
    seen->sink = NULL;
}

static struct nsbx_jscan *scanner(struct seen *seen, size_t max_rest, bool drop)
{
    struct nsbx_jscan_config config = {.max_rest = max_rest,
                                       .max_depth = 5,
                                       .watch = watch,
                                       .large = large,
                                       .drop_rest = drop,
                                       .on_watch = on_watch,
                                       .on_large = on_large,
                                       .ud = seen};
    return nsbx_jscan_new(&config);
}

/* The rest must be what a strict parser takes. */
static void check_strict(FILE *log, const char *rest, size_t len)
{
    json_error_t error;
    json_t *value = json_loadb(rest, len, JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
    if (!value)
        fprintf(log, " (jansson: %s)", error.text);
    json_decref(value);
}

static void run_with(FILE *log, const struct splits_piece *pieces, size_t count, bool drop)
{
    struct seen seen = {.log = log};
    struct nsbx_jscan *s = scanner(&seen, 1000, drop);
    struct nsbx_err err = {0};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = nsbx_jscan_feed(s, pieces[i].bytes, pieces[i].n, &err);
    const char *rest = NULL;
    size_t len = 0;
    if (rc == 0)
        rc = nsbx_jscan_end(s, &rest, &len, &err);
    if (rc == 0) {
        fputs("| ", log);
        fwrite(rest, 1, len, log);
        if (!drop)
            check_strict(log, rest, len);
    } else {
        fprintf(log, "! %s: %s", nsbx_code_name(-rc), err.message);
        struct nsbx_err again = {0};
        if (nsbx_jscan_feed(s, (const uint8_t *)" ", 1, &again) != rc || strcmp(again.message, err.message) != 0 ||
            nsbx_jscan_end(s, &rest, &len, NULL) != rc)
            fputs(" (but not for good)", log);
    }
    forget(&seen);
    nsbx_jscan_free(s);
}

static void run(FILE *log, const struct splits_piece *pieces, size_t count)
{
    run_with(log, pieces, count, false);
}

static void run_dropping(FILE *log, const struct splits_piece *pieces, size_t count)
{
    run_with(log, pieces, count, true);
}

struct row {
    const char *input, *want;
};

static void check_rows(splits_run how, const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        splits_check(how, rows[i].input, rows[i].want);
}
#define CHECK_ROWS(...)                                                                                            \
    do {                                                                                                           \
        static const struct row rows[] = {__VA_ARGS__};                                                            \
        check_rows(run, rows, NSBX_LEN(rows));                                                                     \
    } while (0)

static void any_value_is_kept_without_its_white_space(void)
{
    CHECK_ROWS({"{}", "| {}"}, {" { } \n", "| {}"}, {"[]", "| []"}, {"\t[ 1 , 2,\r3 ]", "| [1,2,3]"},
               {"true", "| true"}, {" false ", "| false"}, {"null", "| null"}, {"\"a\"", "| \"a\""},
               {"\"\"", "| \"\""},
               {"{\"a\" : {\"b\":[{}, [ ], \"c\", null,true,false ,0]}}",
                "| {\"a\":{\"b\":[{},[],\"c\",null,true,false,0]}}"},
               {"{\"\":1,\"\":2}", "| {\"\":1,\"\":2}"});
}

static void watched_strings_are_reported_where_their_path_is(void)
{
    CHECK_ROWS(
        {"{\"op\":\"execute\",\"token\":\"t\"}", "op=execute; token=t; | {\"op\":\"execute\",\"token\":\"t\"}"},
        {"{\"token\":\"\",\"x\":{\"op\":\"no\"},\"op\":\"yes\"}",
         "token=; op=yes; | {\"token\":\"\",\"x\":{\"op\":\"no\"},\"op\":\"yes\"}"},
        {"{\"body\":{\"path\":\"p\",\"op\":\"no\"}}", "body.path=p; | {\"body\":{\"path\":\"p\",\"op\":\"no\"}}"},
        {"{\"body.path\":\"no\",\"path\":\"no\"}", "| {\"body.path\":\"no\",\"path\":\"no\"}"},
        {"{\"x\":{\"body\":{\"path\":\"no\"}}}", "| {\"x\":{\"body\":{\"path\":\"no\"}}}"},
        {"{\"body\":{\"x\":{\"path\":\"no\"}}}", "| {\"body\":{\"x\":{\"path\":\"no\"}}}"},
        {"{\"body\":[{\"path\":\"no\"}]}", "| {\"body\":[{\"path\":\"no\"}]}"},
        {"{\"body\":{\"x\":[{\"path\":\"no\"}],\"path\":\"p\"}}",
         "body.path=p; | {\"body\":{\"x\":[{\"path\":\"no\"}],\"path\":\"p\"}}"},
        {"{\"body\":{},\"path\":\"no\"}", "| {\"body\":{},\"path\":\"no\"}"},
        {"{\"body\":{},\"x\":{\"path\":\"no\"}}", "| {\"body\":{},\"x\":{\"path\":\"no\"}}"},
        {"[{\"op\":\"no\"}]", "| [{\"op\":\"no\"}]"}, {"[\"op\",\"no\"]", "| [\"op\",\"no\"]"},
        {"{\"bod\":{\"path\":\"no\"},\"bodyy\":{\"path\":\"no\"}}",
         "| {\"bod\":{\"path\":\"no\"},\"bodyy\":{\"path\":\"no\"}}"},
        {"{\"\\u006fp\":\"a\\u0062\\n\"}", "op=ab\n; | {\"op\":\"ab\\n\"}"});
}

static void a_watched_member_that_is_no_string_is_reported_as_absent(void)
{
    CHECK_ROWS({"{\"op\":1}", "op=(none); | {\"op\":1}"}, {"{\"op\":null}", "op=(none); | {\"op\":null}"},
               {"{\"op\":{\"op\":\"no\"}}", "op=(none); | {\"op\":{\"op\":\"no\"}}"},
               {"{\"op\":[\"no\"]}", "op=(none); | {\"op\":[\"no\"]}"},
               {"{\"body\":{\"path\":false}}", "body.path=(none); | {\"body\":{\"path\":false}}"});
}

static void duplicates_are_all_reported_in_order(void)
{
    CHECK_ROWS({"{\"op\":\"a\",\"op\":\"b\"}", "op=a; op=b; | {\"op\":\"a\",\"op\":\"b\"}"},
               {"{\"data\":\"a\",\"data\":\"bc\"}", "data<a>; data<bc>; | {\"data\":\"\",\"data\":\"\"}"},
               {"{\"data\":\"a\",\"data\":7}", "data<a>; | {\"data\":\"\",\"data\":7}"},
               {"{\"body\":{\"path\":\"a\"},\"body\":{\"path\":\"b\"}}",
                "body.path=a; body.path=b; | {\"body\":{\"path\":\"a\"},\"body\":{\"path\":\"b\"}}"});
}

static void large_strings_go_to_the_sink_and_leave_an_empty_one(void)
{
    CHECK_ROWS(
        {"{\"data\":\"\"}", "data<>; | {\"data\":\"\"}"},
        {"{\"data\":\"aGk=\",\"x\":\"y\"}", "data<aGk=>; | {\"data\":\"\",\"x\":\"y\"}"},
        {"{\"body\":{\"content\":\"a\\\"b\\\\c\\/\\b\\f\\n\\r\\t\\u0041\",\"part\":{\"data\":\"z\"}}}",
         "body.content<a\"b\\c/\b\f\n\r\tA>; body.part.data<z>; | "
         "{\"body\":{\"content\":\"\",\"part\":{\"data\":\"\"}}}"},
        {"{\"x\":{\"data\":\"kept\"},\"content\":\"kept\"}", "| {\"x\":{\"data\":\"kept\"},\"content\":\"kept\"}"},
        {"{\"data\":{\"data\":\"kept\"}}", "| {\"data\":{\"data\":\"kept\"}}"},
        {"{\"data\":[\"kept\"]}", "| {\"data\":[\"kept\"]}"},
        {"{\"data\":\"\\ud83d\\ude00\\ud83d \xf0\x9f\x98 \xff\"}",
         "data<\xf0\x9f\x98\x80" R " " R " " R ">; | {\"data\":\"\"}"});
}

static void strings_become_valid_utf8(void)
{
    CHECK_ROWS({"\"\xe6\x97\xa5 \xf0\x9f\x98\x80 \\u65e5\\uD83D\\uDE00\"",
                "| \"\xe6\x97\xa5 \xf0\x9f\x98\x80 \xe6\x97\xa5\xf0\x9f\x98\x80\""},
               {"\"\\ud800\"", "| \"" R "\""}, {"\"\\udc00\"", "| \"" R "\""}, {"\"\\ud800x\"", "| \"" R "x\""},
               {"\"\\ud800\\n\"", "| \"" R "\\n\""}, {"\"\\ud800\\u0041\"", "| \"" R "A\""},
               {"\"\\ud800\\ud800\"", "| \"" R R "\""},
               {"\"\\ud800\\ud83d\\ude00\"", "| \"" R "\xf0\x9f\x98\x80\""},
               {"\"\\ude00\\ud83d\"", "| \"" R R "\""}, {"\"\\ud800\xff\"", "| \"" R R "\""},
               {"\"\\ud83d\xe6\x97\xa5\"", "| \"" R "\xe6\x97\xa5\""},
               {"\"\\uDBFF\\uDFFF\\uffff\\ufeff\"", "| \"\xf4\x8f\xbf\xbf\xef\xbf\xbf\xef\xbb\xbf\""},
               {"\"\xe6\x97\"", "| \"" R "\""}, {"\"\xf0\x9f\x98\\n\"", "| \"" R "\\n\""},
               {"\"\xed\xa0\x80\xc0\x80\"", "| \"" R R R R R "\""},
               {"\"\xf0\x9f\xf0\x9f\x98\x80\"", "| \"" R "\xf0\x9f\x98\x80\""},
               {"{\"k\xff\":\"\xc3\",\"\\ud800\":1}", "| {\"k" R "\":\"" R "\",\"" R "\":1}"});
}

static void control_characters_and_nul_survive_as_escapes(void)
{
    CHECK_ROWS(
        {"\"\\u0000\\u0001\\u001F\\u007f\\u0022\\u005c\\u002f\"", "| \"\\u0000\\u0001\\u001f\x7f\\\"\\\\/\""},
        {"\"\\b\\f\\n\\r\\t\\\"\\\\\\/\"", "| \"\\b\\f\\n\\r\\t\\\"\\\\/\""},
        {"{\"a\\u0000b\":1}", "| {\"a" R "b\":1}"}, /* no parser that keeps keys as C strings takes it */
        {"{\"\\u006f\\u0070\\u0000\":\"no\"}", "| {\"op" R "\":\"no\"}"});
    struct splits_piece piece = splits_copy((const uint8_t *)"{\"op\":\"a\\u0000b\"}", 17);
    char *text;
    size_t len;
    FILE *log = open_memstream(&text, &len);
    run(log, &piece, 1);
    fclose(log);
    free(piece.bytes);
    CHECK(len == 27 && memcmp(text, "op=a\0b; | {\"op\":\"a\\u0000b\"}", 27) == 0);
    free(text);
}

static void numbers_stay_what_they_are_where_a_strict_parser_holds_them(void)
{
    CHECK_ROWS({"[0,-0,1,-1,10,9007199254740991]", "| [0,-0,1,-1,10,9007199254740991]"},
               {"[0.5,-0.0,1e5,1E+5,1e-5,0e0,0.0e-0,1.25e308]", "| [0.5,-0.0,1e5,1E+5,1e-5,0e0,0.0e-0,1.25e308]"},
               {"[9223372036854775807,-9223372036854775808]", "| [9223372036854775807,-9223372036854775808]"},
               {"[1.7976931348623157e308,1e-400,0e999999999999999999999]",
                "| [1.7976931348623157e308,1e-400,0e999999999999999999999]"},
               {"1", "| 1"}, {"-1.5 ", "| -1.5"}, {"12e3", "| 12e3"});
}

static void numbers_beyond_it_become_the_nearest_double(void)
{
    CHECK_ROWS({"9223372036854775808", "| 9223372036854775808.0"},
               {"-9223372036854775809", "| -9223372036854775809.0"},
               {"[100000000000000000000]", "| [100000000000000000000.0]"}, {"1e309", "| 1.7976931348623157e308"},
               {"[-1e309,1e999999999999999999999]", "| [-1.7976931348623157e308,1.7976931348623157e308]"},
               {"1.7976931348623159e308", "| 1.7976931348623157e308"}, {"0.00000018e314", "| 0.00000018e314"},
               {"0.00000018e315", "| 1.7976931348623157e308"}, {"17976931348623157e292", "| 17976931348623157e292"},
               {"17976931348623158e292", "| 1.7976931348623157e308"},
               {"1e-9999999999999999999", "| 1e-9999999999999999999"});
    char digits[400];
    memset(digits, '1', sizeof(digits));
    digits[309] = 0;
    splits_check(run, digits,
                 "| 111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111"
                 "11111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111"
                 "11111111111111111111111111111111111111111111111111111111111111111111111111111111111111111111"
                 "11111111111111111111111111111111111.0");
    digits[309] = '1';
    digits[310] = 0;
    splits_check(run, digits, "| 1.7976931348623157e308");
}

static void what_is_not_json_is_refused_with_its_place(void)
{
#define BAD(at, why) "! protocol: not JSON at byte " #at ": " why
    CHECK_ROWS(
        {"", BAD(0, "the text ends inside a value")}, {"  ", BAD(2, "the text ends inside a value")},
        {"{", BAD(1, "the text ends inside a value")}, {"{\"a\":1", BAD(6, "the text ends inside a value")},
        {"\"abc", BAD(4, "the text ends inside a value")}, {"tru", BAD(3, "the text ends inside a value")},
        {"[1", BAD(2, "the text ends inside a value")}, {"-", BAD(1, "a number is incomplete")},
        {"{}x", BAD(2, "the value has ended and something follows")},
        {"{} {}", BAD(3, "the value has ended and something follows")},
        {"1 2", BAD(2, "the value has ended and something follows")},
        {"00", BAD(1, "the value has ended and something follows")},
        {"01", BAD(1, "the value has ended and something follows")}, {"[01]", BAD(2, "a comma or ] must follow")},
        {"[1.]", BAD(3, "a number is incomplete")}, {"[1e]", BAD(3, "a number is incomplete")},
        {"[1e+]", BAD(4, "a number is incomplete")}, {"[-]", BAD(2, "a number is incomplete")},
        {"[-a]", BAD(2, "a number is incomplete")}, {"[.5]", BAD(1, "a value must start here")},
        {"[+1]", BAD(1, "a value must start here")}, {"[1.5.5]", BAD(4, "a comma or ] must follow")},
        {"[0x10]", BAD(2, "a comma or ] must follow")}, {"[1,]", BAD(3, "a value must start here")},
        {"[,1]", BAD(1, "a value must start here")}, {"[1 2]", BAD(3, "a comma or ] must follow")},
        {"[1}", BAD(2, "a comma or ] must follow")}, {"{\"a\"}", BAD(4, "a colon must follow a key")},
        {"{\"a\":}", BAD(5, "a value must start here")}, {"{\"a\":1,}", BAD(7, "a key must start here")},
        {"{,}", BAD(1, "a key must start here")}, {"{a:1}", BAD(1, "a key must start here")},
        {"{'a':1}", BAD(1, "a key must start here")}, {"{1:1}", BAD(1, "a key must start here")},
        {"{\"a\":1]", BAD(6, "a comma or } must follow")}, {"{\"a\" \"b\"}", BAD(5, "a colon must follow a key")},
        {"]", BAD(0, "a value must start here")}, {"nul]", BAD(3, "true, false and null are the only words")},
        {"True", BAD(0, "a value must start here")}, {"nullx", BAD(4, "the value has ended and something follows")},
        {"NaN", BAD(0, "a value must start here")}, {"-Infinity", BAD(1, "a number is incomplete")},
        {"\"a\nb\"", BAD(2, "a control character in a string must be escaped")},
        {"\"\x1f\"", BAD(1, "a control character in a string must be escaped")},
        {"\"\\x41\"", BAD(2, "there is no such escape")}, {"\"\\U0041\"", BAD(2, "there is no such escape")},
        {"\"\\u00g0\"", BAD(5, "\\u wants four hex digits")}, {"\"\\u12\"", BAD(5, "\\u wants four hex digits")},
        {"\xef\xbb\xbf{}", BAD(0, "a value must start here")}, /* a byte order mark */
        {"\xc2\xa0{}", BAD(0, "a value must start here")},
        {"{}\xff", BAD(2, "the value has ended and something follows")},
        {"/**/{}", BAD(0, "a value must start here")},
        {"{\"op\":\"x\",", "op=x; " BAD(10, "the text ends inside a value")});
    splits_check_bytes(run, "{}\0", 3, BAD(2, "the value has ended and something follows"));
    splits_check_bytes(run, "\"a\0\"", 4, BAD(2, "a control character in a string must be escaped"));
    splits_check_bytes(run, "\"\\\0\"", 4, BAD(2, "there is no such escape"));
}

static void dropping_the_rest_changes_no_event(void)
{
    static const struct row rows[] = {
        {"{\"op\":\"a\",\"x\":[1,\"long\",{}],\"data\":\"bc\",\"token\":\"t\"}", "op=a; data<bc>; token=t; | "},
        {"[1e999,123456789012345678901234567890]", "| "},
        {"7", "| "},
        {"[1.]", "! protocol: not JSON at byte 3: a number is incomplete"},
        {"[[[[[[", "! limit: a message nests deeper than 5 levels (at byte 5)"},
    };
    check_rows(run_dropping, rows, NSBX_LEN(rows));
}

static void depth_and_length_of_the_rest_are_bounded(void)
{
    CHECK_ROWS(
        {"[[[[[]]]]]", "| [[[[[]]]]]"}, {"[[[[[[", "! limit: a message nests deeper than 5 levels (at byte 5)"},
        {"{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{", "! limit: a message nests deeper than 5 levels (at byte 25)"});
    char text[1100];
    memset(text, 'a', sizeof(text));
    text[0] = '"';
    text[999] = '"';
    struct seen seen = {.log = stderr};
    const char *rest = NULL;
    size_t len = 0;
    for (int extra = 0; extra < 2; extra++) {
        struct nsbx_jscan *s = scanner(&seen, 1000 - (size_t)extra, false);
        int rc = nsbx_jscan_feed(s, (uint8_t *)text, 1000, NULL);
        CHECK_INT(rc, extra ? -NSBX_E_LIMIT : 0);
        if (rc == 0) {
            CHECK_INT(nsbx_jscan_end(s, &rest, &len, NULL), 0);
            CHECK_INT(len, 1000);
        }
        nsbx_jscan_free(s);
    }
}

static void the_number_of_objects_and_arrays_is_bounded(void)
{
    struct seen seen = {.log = stderr};
    for (int extra = 0; extra < 4; extra++) {
        bool drop = extra & 2;
        struct nsbx_jscan *s = scanner(&seen, MIB, drop);
        struct nsbx_err err = {0};
        int rc = nsbx_jscan_feed(s, (const uint8_t *)"[0", 2, &err);
        for (int i = 1; rc == 0 && i < NSBX_MAX_MESSAGE_CONTAINERS + (extra & 1); i++)
            rc = nsbx_jscan_feed(s, (const uint8_t *)(i % 2 ? ",[]" : ",{}"), 3, &err);
        CHECK_INT(rc, (extra & 1) && !drop ? -NSBX_E_LIMIT : 0);
        if (rc)
            CHECK_STR(err.message, "a message holds more than 32768 objects and arrays");
        nsbx_jscan_free(s);
    }
}

static void an_overlong_watched_value_is_absent_and_a_full_one_is_not(void)
{
    for (size_t n = NSBX_JSCAN_WATCH_MAX - 1; n <= NSBX_JSCAN_WATCH_MAX + 1; n++) {
        char *text, *log_text;
        size_t len, log_len;
        FILE *out = open_memstream(&text, &len), *log = open_memstream(&log_text, &log_len);
        fprintf(out, "{\"op\":\"%0*d\"}", (int)n, 7);
        fclose(out);
        struct splits_piece piece = {(uint8_t *)text, len};
        run(log, &piece, 1);
        fclose(log);
        bool fits = n <= NSBX_JSCAN_WATCH_MAX;
        CHECK(strncmp(log_text, fits ? "op=00" : "op=(none); |", fits ? 5 : 12) == 0);
        CHECK_INT(log_len, fits ? n + 5 + 2 + len : 13 + len);
        free(text);
        free(log_text);
    }
}

static void a_watched_value_is_reported_before_the_rest_came(void)
{
    char *text;
    size_t len;
    struct seen seen = {.log = open_memstream(&text, &len)};
    struct nsbx_jscan *s = scanner(&seen, 1000, false);
    CHECK_INT(nsbx_jscan_feed(s, (const uint8_t *)"{\"op\":\"x\"", 9, NULL), 0);
    fflush(seen.log);
    CHECK_STR(text, "op=x; ");
    CHECK_INT(nsbx_jscan_feed(s, (const uint8_t *)",\"data\":\"ab", 11, NULL), 0);
    fflush(seen.sink);
    CHECK_INT(seen.len, 2);
    forget(&seen);
    nsbx_jscan_free(s);
    fclose(seen.log);
    free(text);
}

static void a_callback_stops_the_scan_with_its_return(void)
{
    struct seen seen = {.log = fopen("/dev/null", "w"), .stop = -77};
    static const char *const inputs[] = {"{\"op\":\"x\"}", "{\"op\":1}", "{\"data\":\"x\"}", "{\"data\":\"\"}"};
    for (size_t i = 0; i < NSBX_LEN(inputs); i++) {
        struct nsbx_jscan *s = scanner(&seen, 1000, false);
        struct nsbx_err err = {.code = 0};
        CHECK_INT(nsbx_jscan_feed(s, (const uint8_t *)inputs[i], strlen(inputs[i]), &err), -77);
        CHECK_INT(nsbx_jscan_feed(s, (const uint8_t *)inputs[i], strlen(inputs[i]), &err), -77);
        CHECK_INT(err.code, 0);
        forget(&seen);
        nsbx_jscan_free(s);
    }
    fclose(seen.log);
}

static void a_reset_scanner_starts_over(void)
{
    static const char *const starts[] = {"{\"body\":{\"part\":{\"x\":[1,\"\\ud8", "{\"data\":\"\xf0\x9f", "nope",
                                         "{\"op\":1.", "[[[[[["};
    for (size_t i = 0; i < NSBX_LEN(starts); i++) {
        char *text;
        size_t len;
        struct seen seen = {.log = open_memstream(&text, &len)};
        struct nsbx_jscan *s = scanner(&seen, 1000, false);
        nsbx_jscan_feed(s, (const uint8_t *)starts[i], strlen(starts[i]), NULL);
        forget(&seen);
        fflush(seen.log);
        size_t before = len;
        nsbx_jscan_reset(s);
        const char *input = "{\"op\":\"again\",\"data\":\"d\"}", *rest;
        CHECK_INT(nsbx_jscan_feed(s, (const uint8_t *)input, strlen(input), NULL), 0);
        CHECK_INT(nsbx_jscan_end(s, &rest, &len, NULL), 0);
        CHECK_INT(len, 24);
        CHECK(memcmp(rest, "{\"op\":\"again\",\"data\":\"\"}", 24) == 0);
        fclose(seen.log);
        CHECK_STR(text + before, "op=again; data<d>; ");
        free(text);
        nsbx_jscan_free(s);
    }
}

/* --- hostile messages of the length that an unauthenticated peer may announce --- */

static size_t sunk;
static int count_bytes(void *ud, size_t index, const uint8_t *bytes, size_t n, bool begin, bool end)
{
    (void)ud, (void)index, (void)bytes, (void)begin, (void)end;
    sunk += n;
    return 0;
}
static int ignore(void *ud, size_t index, const char *value, size_t n)
{
    (void)ud, (void)index, (void)value, (void)n;
    return 0;
}

/* Feeds `head`, then `unit` over and over up to 8 MiB; what the scanner said in *rc. */
static struct nsbx_jscan *feed_hostile(const char *head, const char *unit, bool drop, int *rc)
{
    struct nsbx_jscan_config config = {.max_rest = MIB,
                                       .max_depth = NSBX_MAX_MESSAGE_DEPTH,
                                       .watch = watch,
                                       .large = large,
                                       .drop_rest = drop,
                                       .on_watch = ignore,
                                       .on_large = count_bytes};
    struct nsbx_jscan *s = nsbx_jscan_new(&config);
    static uint8_t piece[PIECE];
    size_t width = strlen(unit), per_piece = PIECE / width * width;
    for (size_t i = 0; i < per_piece; i++)
        piece[i] = (uint8_t)unit[i % width];
    sunk = 0;
    *rc = nsbx_jscan_feed(s, (const uint8_t *)head, strlen(head), NULL);
    for (size_t fed = 0; *rc == 0 && fed < HOSTILE; fed += per_piece)
        *rc = nsbx_jscan_feed(s, piece, per_piece, NULL);
    return s;
}

static void hostile_messages_cost_no_more_than_the_limit(void)
{
    static const struct {
        const char *head, *unit;
        int kept, dropped; /* what a scan says that keeps the rest, and one that drops it */
    } cases[] = {
        {"", "[", -NSBX_E_LIMIT, -NSBX_E_LIMIT},
        {"", "{\"a\":", -NSBX_E_LIMIT, -NSBX_E_LIMIT},
        {"\"", "x", -NSBX_E_LIMIT, 0},
        {"{\"op\":\"", "x", -NSBX_E_LIMIT, 0},
        {"{\"", "key", -NSBX_E_LIMIT, 0},
        {"{\"k\":0", ",\"k\":0", -NSBX_E_LIMIT, 0},
        {"[0", ",[],{}", -NSBX_E_LIMIT, 0},
        {"[", "1", -NSBX_E_LIMIT, 0},
        {"[1.", "0", -NSBX_E_LIMIT, 0},
        {"\"", "\\ud800", -NSBX_E_LIMIT, 0},
        {"\"", "\xff", -NSBX_E_LIMIT, 0},
        {"\"", "\\u0000", -NSBX_E_LIMIT, 0},
        {"", " ", 0, 0},
        {"{\"data\":\"", "QUJD", 0, 0},
        {"{\"data\":\"", "\\n", 0, 0},
        {"{\"data\":\"", "\xff", 0, 0},
        {"{\"data\":\"\"", ",\"data\":\"\"", -NSBX_E_LIMIT, 0},
    };
    for (size_t i = 0; i < NSBX_LEN(cases) * 2; i++) {
        bool drop = i % 2;
        int rc;
        unsigned long before;
        nsbx_alloc_fail_at(0);
        before = nsbx_alloc_count();
        struct nsbx_jscan *s = feed_hostile(cases[i / 2].head, cases[i / 2].unit, drop, &rc);
        if (rc != (drop ? cases[i / 2].dropped : cases[i / 2].kept))
            fprintf(stderr, "%s%s…: %d\n", cases[i / 2].head, cases[i / 2].unit, rc);
        CHECK_INT(rc, drop ? cases[i / 2].dropped : cases[i / 2].kept);
        /* one allocation for the scanner, and with the rest its doublings from 256 bytes to 1 MiB */
        CHECK(nsbx_alloc_count() - before <= (drop ? 1 : 1 + 13));
        nsbx_jscan_free(s);
    }
}

static void a_large_member_of_any_length_passes_through(void)
{
    int rc;
    struct nsbx_jscan *s = feed_hostile("{\"body\":{\"content\":\"", "QUJDREVGR0g\\/", false, &rc);
    CHECK_INT(rc, 0);
    CHECK_INT(nsbx_jscan_feed(s, (const uint8_t *)"\"},\"op\":\"o\"}", 12, NULL), 0);
    const char *rest = NULL;
    size_t len = 0;
    CHECK_INT(nsbx_jscan_end(s, &rest, &len, NULL), 0);
    CHECK_INT(len, 32);
    CHECK(memcmp(rest, "{\"body\":{\"content\":\"\"},\"op\":\"o\"}", 32) == 0);
    size_t unit = 13, per_piece = PIECE / unit * unit, pieces = (HOSTILE + per_piece - 1) / per_piece;
    CHECK_INT(sunk, pieces * (per_piece / unit) * 12);
    nsbx_jscan_free(s);
}

static void a_lack_of_memory_is_an_error(void)
{
    struct seen seen = {.log = stderr};
    nsbx_alloc_fail_at(1);
    CHECK(scanner(&seen, 1000, false) == NULL);
    struct nsbx_jscan *s = scanner(&seen, 1000, false);
    struct nsbx_err err = {0};
    nsbx_alloc_fail_at(1);
    CHECK_INT(nsbx_jscan_feed(s, (const uint8_t *)"[]", 2, &err), -NSBX_E_LIMIT);
    CHECK_INT(err.code, NSBX_E_LIMIT);
    nsbx_alloc_fail_at(0);
    nsbx_jscan_free(s);
    nsbx_jscan_free(NULL);
}

int main(void)
{
    RUN(any_value_is_kept_without_its_white_space);
    RUN(watched_strings_are_reported_where_their_path_is);
    RUN(a_watched_member_that_is_no_string_is_reported_as_absent);
    RUN(duplicates_are_all_reported_in_order);
    RUN(large_strings_go_to_the_sink_and_leave_an_empty_one);
    RUN(strings_become_valid_utf8);
    RUN(control_characters_and_nul_survive_as_escapes);
    RUN(numbers_stay_what_they_are_where_a_strict_parser_holds_them);
    RUN(numbers_beyond_it_become_the_nearest_double);
    RUN(what_is_not_json_is_refused_with_its_place);
    RUN(dropping_the_rest_changes_no_event);
    RUN(depth_and_length_of_the_rest_are_bounded);
    RUN(the_number_of_objects_and_arrays_is_bounded);
    RUN(an_overlong_watched_value_is_absent_and_a_full_one_is_not);
    RUN(a_watched_value_is_reported_before_the_rest_came);
    RUN(a_callback_stops_the_scan_with_its_return);
    RUN(a_reset_scanner_starts_over);
    RUN(hostile_messages_cost_no_more_than_the_limit);
    RUN(a_large_member_of_any_length_passes_through);
    RUN(a_lack_of_memory_is_an_error);
    return harness_done();
}
