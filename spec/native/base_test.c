#include "harness.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/list.h"
#include "base/strmap.h"
#include "base/util.h"

#include <ctype.h>
#include <errno.h>

static void every_code_has_a_name_that_leads_back(void)
{
    for (int code = 1; code < NSBX_CODE_COUNT; code++)
        CHECK_INT(nsbx_code_of_name(nsbx_code_name(code)), code);
    CHECK_INT(nsbx_code_of_name("ok_or_so"), 0);
    CHECK_STR(nsbx_code_name(NSBX_CODE_COUNT), "unknown");
    CHECK_STR(nsbx_code_name(-1), "unknown");
}

static void errnos_map_to_codes_and_names(void)
{
    CHECK_INT(nsbx_code_of_errno(ENOENT), NSBX_E_NOT_FOUND);
    CHECK_INT(nsbx_code_of_errno(EACCES), NSBX_E_FORBIDDEN);
    CHECK_INT(nsbx_code_of_errno(99999), NSBX_E_IO);
    CHECK_STR(nsbx_errno_name(ENOSPC), "ENOSPC");
    CHECK(nsbx_errno_name(99999) == NULL);
    CHECK_INT(nsbx_errno_of_name("EMFILE"), EMFILE);
    CHECK_INT(nsbx_errno_of_name("EWHAT"), 0);
}

static void an_error_is_filled_wrapped_and_cut(void)
{
    struct nsbx_err err = {0};
    CHECK_INT(nsbx_err_sys(&err, ENOENT, "open '%s'", "/x"), -NSBX_E_NOT_FOUND);
    CHECK_STR(err.message, "open '/x': No such file or directory");
    CHECK_INT(nsbx_err_wrap(&err, "read_file"), -NSBX_E_NOT_FOUND);
    CHECK_STR(err.message, "read_file: open '/x': No such file or directory");
    CHECK_INT(err.sys, ENOENT);
    CHECK_INT(nsbx_err_reason(&err, NSBX_E_REFUSED, "unauthorized", "no"), -NSBX_E_REFUSED);
    CHECK_STR(err.reason, "unauthorized");

    char big[4096];
    memset(big, 'x', sizeof big);
    big[sizeof big - 1] = '\0';
    nsbx_err_set(&err, NSBX_E_IO, "%s", big);
    CHECK_INT(strlen(err.message), NSBX_ERR_MESSAGE - 1);
    nsbx_err_wrap(&err, "%s", big);
    CHECK_INT(strlen(err.message), NSBX_ERR_MESSAGE - 1);
    CHECK_INT(nsbx_err_set(NULL, NSBX_E_IO, "nobody listens"), -NSBX_E_IO);
}

static void a_failing_error_needs_no_memory(void)
{
    struct nsbx_err err = {0};
    nsbx_alloc_fail_at(1);
    nsbx_err_nomem(&err, "a test");
    nsbx_err_wrap(&err, "outer");
    CHECK_INT(nsbx_alloc_count(), 0);
    nsbx_alloc_fail_at(0);
    CHECK_STR(err.message, "outer: out of memory for a test");
}

static void a_buffer_keeps_its_maximum(void)
{
    struct nsbx_buf b;
    struct nsbx_err err = {0};
    nsbx_buf_init(&b, 1000);
    char data[1001] = {0};
    CHECK_INT(nsbx_buf_append(&b, data, 1001, &err), -NSBX_E_LIMIT);
    CHECK_INT(b.len, 0);
    CHECK_INT(nsbx_buf_append(&b, data, 1000, &err), 0);
    CHECK_INT(nsbx_buf_append(&b, data, 1, &err), -NSBX_E_LIMIT);
    nsbx_buf_consume(&b, 1);
    CHECK_INT(nsbx_buf_append(&b, data, 1, &err), 0);
    CHECK_INT(b.len, 1000);
    nsbx_buf_free(&b);
    CHECK_INT(nsbx_buf_append(&b, "again", 5, &err), 0);
    nsbx_buf_free(&b);
}

/* Against a plain model: a window over a counted byte sequence. */
static void a_buffer_is_a_queue_under_any_order_of_calls(void)
{
    struct nsbx_buf b;
    struct nsbx_err err = {0};
    nsbx_buf_init(&b, 100000);
    unsigned seed = 12345;
    size_t in = 0, out = 0;
    for (int step = 0; step < 20000; step++) {
        seed = seed * 1103515245u + 12345u;
        size_t n = (seed >> 8) % 700;
        if (seed & 0x10000) {
            uint8_t *at = nsbx_buf_reserve(&b, n, &err);
            if (!at)
                continue;
            for (size_t i = 0; i < n; i++)
                at[i] = (uint8_t)((in + i) * 7 % 251);
            nsbx_buf_commit(&b, n);
            in += n;
        } else {
            n = NSBX_MIN(n, b.len);
            for (size_t i = 0; i < n; i++)
                if (nsbx_buf_data(&b)[i] != (uint8_t)((out + i) * 7 % 251)) {
                    CHECK(!"a byte moved");
                    break;
                }
            nsbx_buf_consume(&b, n);
            out += n;
        }
        if (b.len != in - out) {
            CHECK_INT(b.len, in - out);
            break;
        }
    }
    nsbx_buf_free(&b);
}

static void a_taken_buffer_is_the_callers(void)
{
    struct nsbx_buf b;
    nsbx_buf_init(&b, 100);
    CHECK_INT(nsbx_buf_append(&b, "xxhello", 7, NULL), 0);
    nsbx_buf_consume(&b, 2);
    CHECK_INT(nsbx_buf_printf(&b, NULL, " %d", 42), 0);
    size_t n;
    uint8_t *p = nsbx_buf_take(&b, &n);
    CHECK(n == 8 && memcmp(p, "hello 42", 8) == 0);
    nsbx_free(p);
    CHECK(nsbx_buf_take(&b, &n) == NULL);
    CHECK_INT(n, 0);
}

static void a_map_finds_what_was_put_in(void)
{
    struct nsbx_strmap m;
    nsbx_strmap_init(&m);
    static int values[5000];
    char key[32];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 5000; i++) {
            snprintf(key, sizeof key, "key-%d", i);
            CHECK_INT(nsbx_strmap_set(&m, key, &values[i], NULL), 0);
        }
        CHECK_INT(nsbx_strmap_count(&m), 5000);
        size_t pos = 0, seen = 0;
        while (nsbx_strmap_next(&m, &pos, NULL))
            seen++;
        CHECK_INT(seen, 5000);
        for (int i = 0; i < 5000; i++) {
            snprintf(key, sizeof key, "key-%d", i);
            CHECK(nsbx_strmap_get(&m, key) == &values[i]);
            CHECK(nsbx_strmap_remove(&m, key) == &values[i]);
            CHECK(nsbx_strmap_get(&m, key) == NULL);
            CHECK(nsbx_strmap_remove(&m, key) == NULL);
        }
        CHECK_INT(nsbx_strmap_count(&m), 0);
    }
    CHECK(m.cap <= 16384);
    nsbx_strmap_free(&m);
}

static void a_map_survives_each_failing_allocation(void)
{
    for (unsigned long nth = 1; nth < 40; nth++) {
        struct nsbx_strmap m;
        nsbx_strmap_init(&m);
        int failed = 0, put = 0;
        nsbx_alloc_fail_at(nth);
        for (int i = 0; i < 20; i++) {
            char key[16];
            snprintf(key, sizeof key, "k%d", i);
            if (nsbx_strmap_set(&m, key, &m, NULL) < 0)
                failed++;
            else
                put++;
        }
        nsbx_alloc_fail_at(0);
        CHECK(failed <= 1);
        CHECK_INT(nsbx_strmap_count(&m), put);
        nsbx_strmap_free(&m);
    }
}

static void a_list_can_lose_the_node_at_hand(void)
{
    struct item {
        struct nsbx_list node;
        int n;
    } items[5];
    struct nsbx_list head;
    nsbx_list_init(&head);
    for (int i = 0; i < 5; i++) {
        items[i].n = i;
        nsbx_list_push(&head, &items[i].node);
    }
    nsbx_list_each (it, &head)
        if (nsbx_container_of(it, struct item, node)->n % 2)
            nsbx_list_remove(it);
    int sum = 0;
    nsbx_list_each (it, &head)
        sum = sum * 10 + nsbx_container_of(it, struct item, node)->n;
    CHECK_INT(sum, 24);
    nsbx_list_remove(&items[1].node); /* unlinked already */
    CHECK(nsbx_list_shift(&head) == &items[0].node);
}

static void a_uuid_is_random_and_of_version_4(void)
{
    char a[NSBX_UUID_LEN + 1], b[NSBX_UUID_LEN + 1];
    CHECK_INT(nsbx_uuid4(a, NULL), 0);
    CHECK_INT(nsbx_uuid4(b, NULL), 0);
    CHECK_INT(strlen(a), NSBX_UUID_LEN);
    CHECK(strcmp(a, b) != 0);
    CHECK(a[14] == '4' && strchr("89ab", a[19]) && a[8] == '-' && a[23] == '-');
    for (int i = 0; i < NSBX_UUID_LEN; i++)
        CHECK(a[i] == '-' || isxdigit((unsigned char)a[i]));
}

int main(void)
{
    RUN(every_code_has_a_name_that_leads_back);
    RUN(errnos_map_to_codes_and_names);
    RUN(an_error_is_filled_wrapped_and_cut);
    RUN(a_failing_error_needs_no_memory);
    RUN(a_buffer_keeps_its_maximum);
    RUN(a_buffer_is_a_queue_under_any_order_of_calls);
    RUN(a_taken_buffer_is_the_callers);
    RUN(a_map_finds_what_was_put_in);
    RUN(a_map_survives_each_failing_allocation);
    RUN(a_list_can_lose_the_node_at_hand);
    RUN(a_uuid_is_random_and_of_version_4);
    return harness_done();
}
