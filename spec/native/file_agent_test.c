/* Files and walks on the real agent, over real sockets. */
#include "agent_rig.h"
#include "transport/file.h"
#include "transport/walk.h"

/* ---- files ---- */

static uint8_t *noise(size_t n)
{
    uint8_t *bytes = nsbx_malloc(n + 8);
    uint64_t x = 88172645463325252u;
    for (size_t i = 0; i < n; i += 8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        memcpy(bytes + i, &x, 8);
    }
    return bytes;
}

/* What sha256sum, run by the guest, says of a file; and of the same bytes given to it here. */
static void check_digest(const char *path, const uint8_t *bytes, size_t n)
{
    char script[128], theirs[65] = "", ours[65] = "";
    snprintf(script, sizeof script, "sha256sum < '%s'", path);
    CHECK_INT(run_shell(script).code, 0);
    snprintf(theirs, sizeof theirs, "%.64s", out);
    char name[128], command[160];
    snprintf(name, sizeof name, "%s/reference", guest_dir);
    FILE *f = fopen(name, "w");
    CHECK(f && fwrite(bytes, 1, n, f) == n);
    if (f)
        fclose(f);
    snprintf(command, sizeof command, "sha256sum < %s", name);
    f = popen(command, "r");
    CHECK(f && fread(ours, 1, 64, f) == 64);
    if (f)
        pclose(f);
    CHECK_STR(theirs, ours);
}

static void round_trip(const char *path, size_t n)
{
    uint8_t *bytes = noise(n);
    CHECK_INT(finish_op(nsbx_file_write(guest, path, bytes, n, 120000, NULL, NULL)).code, 0);
    check_digest(path, bytes, n);
    struct nsbx_op *op = nsbx_file_read(guest, path, -1, -1, 120000);
    WAIT_OP(op);
    struct nsbx_bytes *back = nsbx_op_result(op);
    CHECK(back && back->len == n && (n == 0 || memcmp(back->data, bytes, n) == 0));
    nsbx_op_unref(op);
    nsbx_free(bytes);
}

static void files_of_many_sizes(void)
{
    static const size_t sizes[] = {0, 1, 4095, 4096, 18432, 7 * MIB, 16 * MIB};
    for (int arm = NSBX_ARM_UNIX; arm <= (int)NSBX_ARM_TCP; arm++) {
        agent_rig_open((enum nsbx_arm)arm);
        for (size_t i = 0; i < NSBX_LEN(sizes); i++)
            round_trip("dir/some file", sizes[i]);
        CHECK_INT(run_shell("ls -A dir").code, 0);
        CHECK_STR(out, "some file\n"); /* no temporary file is left */
        agent_rig_close();
    }
}

static void a_large_file(void)
{
    agent_rig_open(NSBX_ARM_UNIX);
    round_trip("large", 200u * MIB);
    agent_rig_close();
}

static void odd_files(void)
{
    agent_rig_open(NSBX_ARM_UNIX);
    CHECK_INT(run_shell("mkdir d; mkfifo f; ln -s /etc/passwd out; ln -s d in; echo hi > d/x; chmod 640 d/x").code,
              0);
    static const struct {
        const char *path;
        int code;
    } cases[] = {{"missing", NSBX_E_NOT_FOUND},
                 {"d", NSBX_E_INVALID},
                 {"f", NSBX_E_INVALID},
                 {"out", NSBX_E_FORBIDDEN},
                 {"/etc/passwd", NSBX_E_FORBIDDEN},
                 {"../x", NSBX_E_FORBIDDEN},
                 {"in/x", 0},
                 {"d/x/y", NSBX_E_NOT_FOUND}};
    for (size_t i = 0; i < NSBX_LEN(cases); i++) {
        struct nsbx_err err = finish_op(nsbx_file_read(guest, cases[i].path, -1, -1, 5000));
        CHECK_STR(nsbx_code_name(err.code), nsbx_code_name(cases[i].code));
        if (harness_case_failed)
            fprintf(stderr, "    %s: %s\n", cases[i].path, err.message);
    }
    /* bytes that are no text in a name; the mode stays */
    CHECK_INT(finish_op(nsbx_file_write(guest, "d/\xff\xfe", (const uint8_t *)"x", 1, 5000, NULL, NULL)).code, 0);
    CHECK_INT(finish_op(nsbx_file_read(guest, "d/\xff\xfe", -1, -1, 5000)).code, 0);
    CHECK_INT(finish_op(nsbx_file_write(guest, "d/x", (const uint8_t *)"new", 3, 5000, NULL, NULL)).code, 0);
    CHECK_INT(run_shell("stat -c %a d/x; cat d/x").code, 0);
    CHECK_STR(out, "640\nnew");
    struct nsbx_op *op = nsbx_file_read(guest, "d/x", 1, 1, 5000);
    WAIT_OP(op);
    const struct nsbx_bytes *piece = nsbx_op_result(op);
    CHECK(piece && piece->len == 1 && piece->data[0] == 'e');
    nsbx_op_unref(op);
    agent_rig_close();
}

static void a_file_in_pieces(void)
{
    enum { SIZE = 20 * MIB };
    agent_rig_open(NSBX_ARM_UNIX);
    uint8_t *bytes = noise(SIZE);
    struct nsbx_file_stream *s;
    struct nsbx_err err;
    size_t got = 0;
    CHECK_INT(finish_op(nsbx_file_write(guest, "f", bytes, SIZE, 60000, NULL, NULL)).code, 0);
    REQUIRE(nsbx_file_stream_open(guest, "f", -1, -1, &s, &err) == 0);
    for (;;) {
        struct nsbx_op *op = nsbx_file_stream_next(s, 10000);
        WAIT_OP(op);
        const struct nsbx_bytes *piece = nsbx_op_result(op);
        bool ok = piece && got + piece->len <= SIZE && memcmp(piece->data, bytes + got, piece->len) == 0;
        got += piece ? piece->len : 0;
        bool end = nsbx_op_state(op) != NSBX_OP_DONE || !piece;
        CHECK(ok || (end && nsbx_op_state(op) == NSBX_OP_DONE));
        nsbx_op_unref(op);
        if (end || !ok)
            break;
    }
    CHECK_INT(got, SIZE);
    nsbx_file_stream_close(s);
    nsbx_free(bytes);
    agent_rig_close();
}

/* ---- walks ---- */

static struct nsbx_err walk_names(const struct nsbx_walk_request *request, size_t *count)
{
    struct nsbx_err err = {0};
    struct nsbx_walk *w;
    struct nsbx_entry entry;
    out[0] = '\0';
    *count = 0;
    if (nsbx_walk_open(guest, request, &w, &err) < 0)
        return err;
    do {
        err = finish_op(nsbx_walk_next(w, 10000));
        while (nsbx_walk_take(w, &entry)) {
            const char *name = strstr(entry.path, "/ws/");
            ++*count;
            snprintf(out + strlen(out), sizeof out - strlen(out), "%s:%s:%o ", name ? name + 4 : entry.path,
                     nsbx_entry_type_name(entry.type), entry.mode);
        }
    } while (err.code == 0 && !nsbx_walk_ended(w));
    nsbx_walk_close(w);
    return err;
}

static void walks(void)
{
    size_t n;
    agent_rig_open(NSBX_ARM_UNIX);
    CHECK_INT(run_shell("umask 022; mkdir -p t/b/c t/.h; echo 1 > t/a.c; echo 2 > t/b/d.c; echo 3 > t/b/c/e.h; "
                        "echo 4 > t/.h/f.c; ln -s a.c t/l")
                  .code,
              0);
    struct nsbx_walk_request r = {
        .path = "t", .sorted = true, .max_depth = -1, .max_entries = -1, .max_visited = -1};
    CHECK_INT(walk_names(&r, &n).code, 0);
    CHECK_STR(out, "t/a.c:file:644 t/b/c/e.h:file:644 t/b/d.c:file:644 ");
    r.pattern = "**/*.c";
    r.include_hidden = true;
    CHECK_INT(walk_names(&r, &n).code, 0);
    CHECK_STR(out, "t/.h/f.c:file:644 t/a.c:file:644 t/b/d.c:file:644 ");
    r = (struct nsbx_walk_request){
        .path = "t", .list = true, .max_depth = -1, .max_entries = -1, .max_visited = -1};
    CHECK_INT(walk_names(&r, &n).code, 0);
    CHECK_STR(out, "t/.h:directory:755 t/a.c:file:644 t/b:directory:755 t/l:symlink:777 ");
    char absolute[160];
    snprintf(absolute, sizeof absolute, "%s/ws/../ws/t/", guest_dir);
    r.path = absolute;
    CHECK_INT(walk_names(&r, &n).code, 0);
    CHECK_INT(n, 4);
    /* through a link that stays inside: the entries are told below the path that was asked for */
    CHECK_INT(run_shell("ln -s t in").code, 0);
    snprintf(absolute, sizeof absolute, "%s/ws/in", guest_dir);
    CHECK_INT(walk_names(&r, &n).code, 0);
    CHECK_STR(out, "in/.h:directory:755 in/a.c:file:644 in/b:directory:755 in/l:symlink:777 ");
    r.path = "none";
    CHECK_INT(walk_names(&r, &n).code, NSBX_E_NOT_FOUND);
    r.path = "t/a.c";
    CHECK_INT(walk_names(&r, &n).code, NSBX_E_NOT_FOUND);
    r.path = "/etc";
    CHECK_INT(walk_names(&r, &n).code, NSBX_E_FORBIDDEN);
    CHECK_INT(run_shell("mkdir many; cd many; seq 1 3000 | xargs touch").code, 0);
    r = (struct nsbx_walk_request){.path = "many", .max_depth = -1, .max_entries = -1, .max_visited = -1};
    CHECK_INT(walk_names(&r, &n).code, 0);
    CHECK_INT(n, 3000);
    r.max_entries = 100;
    CHECK_INT(walk_names(&r, &n).code, 0);
    CHECK_INT(n, 100);
    r.max_entries = -1;
    r.max_visited = 1000;
    CHECK_ERR(walk_names(&r, &n), NSBX_E_LIMIT, "walk_limit");
    agent_rig_close();
}

/* ---- tcp ---- */

static void the_token_is_wanted(void)
{
    agent_rig_open(NSBX_ARM_TCP);
    CHECK_INT(run_shell("echo ok").code, 0);
    CHECK_STR(out, "ok\n");
    nsbx_free(guest->token);
    guest->token = nsbx_strdup("another");
    CHECK_ERR(run_shell("echo ok"), NSBX_E_FORBIDDEN, "unauthorized");
    CHECK_ERR(finish_op(nsbx_file_read(guest, "x", -1, -1, 5000)), NSBX_E_FORBIDDEN, "unauthorized");
    CHECK_ERR(finish_op(nsbx_file_write(guest, "x", (const uint8_t *)"x", 1, 5000, NULL, NULL)), NSBX_E_FORBIDDEN,
              "unauthorized");
    agent_rig_close();
}

int main(void)
{
    guest_rig_main();
    RUN(files_of_many_sizes);
    RUN(a_large_file);
    RUN(odd_files);
    RUN(a_file_in_pieces);
    RUN(walks);
    RUN(the_token_is_wanted);
    return harness_done();
}
