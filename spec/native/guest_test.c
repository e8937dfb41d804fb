/* Guests, their features and their refusals, against a scripted guest. */
#include "guest_rig.h"
#include "transport/exec_output_priv.h"
#include "transport/exec_result_priv.h"

enum { FAST = 5 }; /* the clocks run that much faster */

/* ---- guests ---- */

static void health_tells_and_fills_the_cache(void)
{
    guest_rig_open(NSBX_ARM_UNIX, 1, "{\"features\":[\"walk\",\"time-travel\",\"exec-bytes\",7]}");
    CHECK(nsbx_guest_known(guest) == NULL);
    struct nsbx_op *op = nsbx_guest_health(guest, 5000);
    WAIT_OP(op);
    REQUIRE(nsbx_op_state(op) == NSBX_OP_DONE);
    const struct nsbx_health *health = nsbx_op_result(op);
    CHECK(health->ok && !health->retiring && health->protocol_version == 2);
    CHECK(health->features[NSBX_FEATURE_WALK] && health->features[NSBX_FEATURE_EXEC_BYTES]);
    CHECK(!health->features[NSBX_FEATURE_SIGNAL]);
    nsbx_op_unref(op);
    REQUIRE(nsbx_guest_known(guest) != NULL);
    CHECK(nsbx_guest_known(guest)->features[NSBX_FEATURE_WALK]);
    CHECK_INT(finish_op(nsbx_guest_health(guest, 5000)).code, 0); /* asks anew */
    CHECK_INT(ASKED("healthz"), 2);
    guest_rig_close();
}

static void health_of_odd_guests(void)
{
    guest_rig_open(
        NSBX_ARM_UNIX, FAST,
        ON("healthz",
           "{\"send\":{\"ok\":false,\"protocolVersion\":2,\"features\":[\"walk\"],\"retiring\":true}}," FIN));
    struct nsbx_op *op = nsbx_guest_health(guest, 5000);
    WAIT_OP(op);
    REQUIRE(nsbx_op_state(op) == NSBX_OP_DONE);
    const struct nsbx_health *health = nsbx_op_result(op);
    CHECK(!health->ok && health->retiring && health->features[NSBX_FEATURE_WALK]);
    nsbx_op_unref(op);
    guest_rig_close();

    static const struct {
        const char *script;
        int code;
    } odd[] = {
        {ON("healthz", REFUSE("too_many_unauthenticated_connections: limit 64")), NSBX_E_CAPACITY},
        {ON("healthz", "{\"send\":{\"ok\":true,\"protocolVersion\":1}}," FIN), NSBX_E_PROTOCOL},
        {ON("healthz", "{\"send\":{\"ok\":true}}," FIN), NSBX_E_PROTOCOL},
        {ON("healthz", "{\"send\":{\"ok\":true,\"protocolVersion\":2}},{\"send\":{\"ok\":true}}," FIN),
         NSBX_E_PROTOCOL},
        {ON("healthz", "{\"raw\":\"HTTP/1.1 400 Bad Request\\r\\n\\r\\n\"}," FIN), NSBX_E_PROTOCOL},
        {ON("healthz", FIN), NSBX_E_STREAM_LOST},
        {ON("healthz", END "," FIN), NSBX_E_PROTOCOL},
        {ON("healthz", SILENCE), NSBX_E_TIMEOUT},
    };
    for (size_t i = 0; i < NSBX_LEN(odd); i++) {
        guest_rig_open(NSBX_ARM_UNIX, FAST, odd[i].script);
        struct nsbx_err err = finish_op(nsbx_guest_health(guest, 700));
        CHECK_INT(err.code, odd[i].code);
        CHECK(err.message[0]);
        CHECK(nsbx_guest_known(guest) == NULL);
        guest_rig_close();
    }
}

/* Two wait for one answer; one gives up. The other still gets it, and when both give up the question is taken back. */
static void one_question_for_all(void)
{
    guest_rig_open(NSBX_ARM_UNIX, 1, ON("healthz", "{\"sleep\":0.2},{\"builtin\":true}"));
    struct nsbx_op *one = nsbx_guest_health(guest, 50), *two = nsbx_guest_health(guest, 5000);
    CHECK_INT(finish_op(one).code, NSBX_E_TIMEOUT);
    CHECK_INT(finish_op(two).code, 0);
    CHECK_INT(ASKED("healthz"), 1);
    one = nsbx_guest_health(guest, 50);
    two = nsbx_guest_health(guest, 50);
    CHECK_INT(finish_op(one).code, NSBX_E_TIMEOUT);
    nsbx_op_cancel(two);
    CHECK(finish_op(two).code != 0);
    CHECK(guest->probe == NULL);
    guest_rig_close();
}

static void another_boot_id_is_another_guest(void)
{
    json_t *first = json_pack("{s:s}", "guestBootId", "aaaa"), *second = json_pack("{s:s}", "guestBootId", "bbbb");
    guest_rig_open(NSBX_ARM_UNIX, 1, "{}");
    CHECK_STR(nsbx_guest_boot_id(guest), "");
    CHECK_INT(finish_op(nsbx_guest_health(guest, 5000)).code, 0);
    nsbx_guest_saw(guest, first);
    CHECK_STR(nsbx_guest_boot_id(guest), "aaaa");
    CHECK(nsbx_guest_known(guest) != NULL);
    nsbx_guest_saw(guest, first);
    CHECK(nsbx_guest_known(guest) != NULL);
    nsbx_guest_saw(guest, second);
    CHECK_STR(nsbx_guest_boot_id(guest), "bbbb");
    CHECK(nsbx_guest_known(guest) == NULL);
    json_decref(first);
    json_decref(second);
    guest_rig_close();
}

static void addresses_are_checked(void)
{
    struct nsbx_err err;
    struct nsbx_guest *g = NULL;
    rig_open();
    struct nsbx_guest_options none = {.arm = NSBX_ARM_UNIX}, no_port = {.arm = NSBX_ARM_TCP, .host = "127.0.0.1"};
    CHECK_INT(nsbx_guest_new(loop, &none, &g, &err), -NSBX_E_INVALID);
    CHECK_INT(nsbx_guest_new(loop, &no_port, &g, &err), -NSBX_E_INVALID);
    rig_close();
}

/* ---- refusals ---- */

static void refusals_become_errors(void)
{
    static const struct {
        const char *json;
        int code, sys;
        const char *reason, *has;
    } cases[] = {
        {"{\"error\":\"unauthorized\"}", NSBX_E_FORBIDDEN, 0, "unauthorized", "unauthorized"},
        {"{\"error\":\"unknown_op: walk\"}", NSBX_E_UNSUPPORTED, 0, "unknown_op", "walk"},
        {"{\"error\":\"ENOENT: no such file or directory, open '/x/EACCES: y'\"}", NSBX_E_NOT_FOUND, ENOENT,
         "ENOENT", "no such file"},
        {"{\"error\":\"EISDIR: illegal operation on a directory, read\"}", NSBX_E_INVALID, EISDIR, "EISDIR",
         "illegal"},
        {"{\"error\":\"spawn EACCES ENOENT\"}", NSBX_E_NOT_FOUND, ENOENT, "ENOENT", "spawn"},
        {"{\"error\":\"mkdir_failed: EACCES: permission denied\"}", NSBX_E_FORBIDDEN, EACCES, "mkdir_failed",
         "denied"},
        {"{\"error\":\"whatever broke\",\"code\":\"ENOSPC\"}", 0, ENOSPC, "ENOSPC", "whatever"},
        {"{\"error\":\"walk_limit: more than 5\",\"code\":\"ERR_FILE_WALK_LIMIT\"}", NSBX_E_LIMIT, 0, "walk_limit",
         "more than 5"},
        {"{\"error\":\"path escapes the workspace\"}", NSBX_E_FORBIDDEN, 0, "outside_workspace", "escapes"},
        {"{\"error\":\"symlink escapes the workspace\"}", NSBX_E_FORBIDDEN, 0, "outside_workspace", "symlink"},
        {"{\"error\":\"cancellation_unconfirmed\",\"message\":\"a group is left\"}", NSBX_E_REFUSED, 0,
         "cancellation_unconfirmed", "a group is left"},
        {"{\"error\":\"invalid_something_new: x\"}", NSBX_E_INVALID, 0, "invalid_something_new", "x"},
        {"{\"error\":\"walk_invalid_pattern: it is empty\"}", NSBX_E_INVALID, 0, "walk_invalid_pattern",
         "the pattern is refused: it is empty"},
        {"{\"error\":\"execution_capacity\"}", NSBX_E_CAPACITY, 0, "execution_capacity", "1024 commands at most"},
        {"{\"error\":\"agent_retiring\",\"message\":\"soon\"}", NSBX_E_REFUSED, 0, "agent_retiring",
         "request: soon"},
        {"{\"error\":\"invalid_cwd: path escapes the workspace\"}", NSBX_E_FORBIDDEN, 0, "invalid_cwd",
         "(cwd) is refused: path escapes"},
        {"{\"error\":\"read_file_too_large: a file that tells no size\"}", NSBX_E_LIMIT, 0, "read_file_too_large",
         "size"},
        {"{\"error\":\"write_file_not_a_regular_file\"}", NSBX_E_INVALID, 0, "write_file_not_a_regular_file",
         "it is not a regular file but a directory"},
        {"{\"error\":\"a\\u001b[31mred\\nb\\u0000c\"}", NSBX_E_REFUSED, 0, "", "a?[31mred?b"},
        {"{\"error\":5}", NSBX_E_PROTOCOL, 0, "", "without saying why"},
        {"{}", NSBX_E_PROTOCOL, 0, "", "without saying why"},
    };
    for (size_t i = 0; i < NSBX_LEN(cases); i++) {
        struct nsbx_err err = {0};
        json_t *frame = json_loads(cases[i].json, JSON_ALLOW_NUL, NULL);
        int code = cases[i].code ? cases[i].code : nsbx_code_of_errno(cases[i].sys);
        CHECK_INT(nsbx_guest_refusal(frame, &err), -code);
        CHECK_ERR(err, code, cases[i].reason);
        CHECK_INT(err.sys, cases[i].sys);
        CHECK_HAS(err.message, cases[i].has);
        json_decref(frame);
    }
    char text[2000], line[64];
    memset(text, 'x', sizeof text);
    memcpy(text + 62, "\xc3\xa9", 2);
    text[sizeof text - 1] = '\0';
    nsbx_guest_one_line(line, sizeof line, text); /* the cut would halve a character */
    CHECK_INT(strlen(line), 62);
}

static void reservations_are_checked(void)
{
    static const char *const bad[] = {
        "exec_3b0f6c1a-2d44-4e0b-9c1e-5a7f00d1e2c",  "exec_3b0f6c1a-2d44-4e0b-9c1e-5a7f00d1e2c30",
        "exec_3b0f6c1a-2d44-6e0b-9c1e-5a7f00d1e2c3", "exec_3b0f6c1a-2d44-4e0b-7c1e-5a7f00d1e2c3",
        "exec-3b0f6c1a-2d44-4e0b-9c1e-5a7f00d1e2c3", "exec_3b0f6c1a_2d44-4e0b-9c1e-5a7f00d1e2c3",
        "exec_3b0f6c1g-2d44-4e0b-9c1e-5a7f00d1e2c3", "",
    };
    char id[NSBX_EXEC_ID_LEN + 1];
    struct nsbx_err err;
    json_t *good = json_pack("{s:i,s:s,s:f}", "protocolVersion", 2, "executionId",
                             "exec_3B0F6c1a-2d44-1e0b-Bc1e-5a7f00d1e2c3", "leaseExpiresAt", 1.5e12);
    CHECK_INT(nsbx_exec_read_reservation(good, id, &err), 0);
    CHECK_STR(id, "exec_3B0F6c1a-2d44-1e0b-Bc1e-5a7f00d1e2c3");
    for (size_t i = 0; i < NSBX_LEN(bad); i++) {
        json_object_set_new(good, "executionId", json_string(bad[i]));
        CHECK_INT(nsbx_exec_read_reservation(good, id, &err), -NSBX_E_PROTOCOL);
    }
    json_decref(good);
}

/* U+FFFD is seen wherever the pieces are cut, and only it. */
static void lost_bytes_are_noticed_at_every_cut(void)
{
    static const char *const texts[] = {"ab\xef\xbf\xbd-cd", "\xef\xbf\xbd",
                                        "caf\xc3\xa9\xef\xbf\xbc\xe2\xbf\xbdplain"};
    struct nsbx_exec_request request = {.command = "x", .collect = true};
    for (size_t t = 0; t < NSBX_LEN(texts); t++) {
        size_t n = strlen(texts[t]), settled;
        for (size_t a = 0; a <= n; a++) {
            for (size_t b = a; b <= n; b++) {
                struct nsbx_exec_output o;
                struct nsbx_err err;
                size_t cuts[] = {0, a, b, n};
                nsbx_exec_output_init(&o, &request);
                o.text = true;
                for (int i = 0; i < 3; i++)
                    if (cuts[i + 1] > cuts[i])
                        CHECK_INT(nsbx_exec_output_push(&o, NSBX_SUB_STDOUT, (const uint8_t *)texts[t] + cuts[i],
                                                        cuts[i + 1] - cuts[i], &settled, &err),
                                  0);
                CHECK_INT(o.replaced, t < 2);
                nsbx_exec_output_free(&o);
            }
        }
    }
}

int main(void)
{
    guest_rig_main();
    RUN(health_tells_and_fills_the_cache);
    RUN(health_of_odd_guests);
    RUN(one_question_for_all);
    RUN(another_boot_id_is_another_guest);
    RUN(addresses_are_checked);
    RUN(refusals_become_errors);
    RUN(reservations_are_checked);
    RUN(lost_bytes_are_noticed_at_every_cut);
    return harness_done();
}
