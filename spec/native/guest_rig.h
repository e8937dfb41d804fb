/* For tests of the host side: a guest that follows a script (spec/support/scripted_guest.py) behind a real socket. */
#ifndef NSBX_SPEC_GUEST_RIG_H
#define NSBX_SPEC_GUEST_RIG_H

#include "channel/ops.h"
#include "loop/op.h"
#include "stream_rig.h"
#include "transport/guest.h"
#include "transport/guest_priv.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

/* Steps of a script, see scripted_guest.py. */
#define FIN "{\"fin\":true}"
#define END "{\"end\":true}"
#define RST "{\"rst\":true}"
#define SILENCE "{\"silence\":true}"
#define REFUSE(word) "{\"send\":{\"ok\":false,\"error\":\"" word "\"}}," FIN
#define ON(op, steps) "{\"ops\":{\"" op "\":[[" steps "]]}}"

#define GUEST_TOKEN "a-secret"

static struct nsbx_guest *guest;
static pid_t guest_pid;
static char guest_dir[64], guest_log[96], guest_socket[96];

static inline int listen_somewhere(enum nsbx_arm arm, uint16_t *port)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof in;
    bool is_unix = arm == NSBX_ARM_UNIX;
    int fd = socket(is_unix ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memcpy(un.sun_path, guest_socket, strlen(guest_socket) + 1);
    int rc = is_unix ? bind(fd, (struct sockaddr *)&un, sizeof un) : bind(fd, (struct sockaddr *)&in, sizeof in);
    if (rc != 0 || listen(fd, 64) != 0) {
        perror("a listening socket");
        abort();
    }
    if (!is_unix && getsockname(fd, (struct sockaddr *)&in, &len) == 0)
        *port = ntohs(in.sin_port);
    return fd;
}

/* Starts the scripted guest on the socket and waits until it serves, so that no clock of a test runs while an interpreter starts;
 * returns its pid. The script goes by its stdin. */
static inline pid_t start_scripted(int listener, const char *script)
{
    int pipefd[2], ready[2];
    const char *program = SPEC_DIR "/support/scripted_guest.py";
    if (pipe2(pipefd, O_CLOEXEC) != 0 || pipe2(ready, O_CLOEXEC) != 0)
        abort();
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);       /* a test that is cut short leaves nothing running */
        int low = fcntl(listener, F_DUPFD, 20); /* 3 may be taken by one of the pipes' ends */
        dup2(pipefd[0], 0);
        dup2(ready[1], 1);
        dup2(low, 3);
        execl("/usr/bin/python3", "python3", "-IS", program, guest_log, (char *)NULL); /* not a wrapper on PATH */
        execlp("python3", "python3", "-IS", program, guest_log, (char *)NULL);
        _exit(127);
    }
    close(pipefd[0]);
    size_t n = strlen(script);
    if (write(pipefd[1], script, n) != (ssize_t)n)
        abort();
    close(pipefd[1]);
    close(ready[1]);
    char word[16];
    if (read(ready[0], word, sizeof word) <= 0)
        abort();
    close(ready[0]);
    return pid;
}

static inline void guest_rig_dir(void)
{
    snprintf(guest_dir, sizeof guest_dir, "/tmp/nsbx-guest-rig-XXXXXX");
    if (!mkdtemp(guest_dir))
        abort();
    snprintf(guest_log, sizeof guest_log, "%s/log", guest_dir);
    snprintf(guest_socket, sizeof guest_socket, "%s/socket", guest_dir);
}

/* `divisor`: the controller's clocks run that much faster. */
static inline void guest_rig_open(enum nsbx_arm arm, unsigned divisor, const char *script)
{
    struct nsbx_err err;
    uint16_t port = 0;
    rig_open();
    guest_rig_dir();
    int listener = listen_somewhere(arm, &port);
    guest_pid = start_scripted(listener, script);
    close(listener);
    struct nsbx_guest_options options = {
        .arm = arm, .unix_path = guest_socket, .host = "127.0.0.1", .port = port, .token = GUEST_TOKEN};
    if (nsbx_guest_new(loop, &options, &guest, &err) < 0)
        abort();
    nsbx_guest_scale_clocks(guest, divisor);
}

static inline void stop_guest(void)
{
    if (guest_pid > 0) {
        kill(guest_pid, SIGKILL);
        waitpid(guest_pid, NULL, 0);
    }
    guest_pid = 0;
}

/* Lets everything that runs in the background come to its end; then nothing may be left. */
static inline void guest_rig_close(void)
{
    nsbx_guest_free(guest);
    guest = NULL;
    TURN_UNTIL(nsbx_loop_live(loop, NULL, NULL) <= 1, 15000); /* the guard of this very line may be the one */
    rig_close();
    stop_guest();
    unlink(guest_log);
    unlink(guest_socket);
    rmdir(guest_dir);
}

/* What main does before the first case. */
static inline void guest_rig_main(void)
{
    json_set_alloc_funcs(nsbx_malloc, nsbx_free); /* so that its allocations can be made to fail too */
    alarm(280);
    rig_open(); /* libuv's process-wide descriptors are made by the first loop */
    nsbx_loop_free(loop);
}

/* Lines of the guest's log that hold the text. */
static inline int logged(const char *text)
{
    char *line = NULL;
    size_t cap = 0;
    int n = 0;
    FILE *f = fopen(guest_log, "r");
    while (f && getline(&line, &cap, f) > 0)
        n += strstr(line, text) != NULL;
    free(line);
    if (f)
        fclose(f);
    return n;
}
#define ASKED(op) logged("\"op\": \"" op "\"")

/* For what another process does: turns and looks, again and again. */
#define POLL_UNTIL(cond, ms)                                                                                       \
    do {                                                                                                           \
        uint64_t until_ = nsbx_now_ms() + (ms);                                                                    \
        while (!(cond) && nsbx_now_ms() < until_) {                                                                \
            nsbx_loop_turn(loop, NSBX_TURN_POLL);                                                                  \
            usleep(2000);                                                                                          \
        }                                                                                                          \
        CHECK(cond);                                                                                               \
    } while (0)
#define WAIT_OP(op) TURN_UNTIL(nsbx_op_state(op) != NSBX_OP_PENDING, 20000)

/* Waits, copies the error (code 0 = done) and drops the op. */
static inline struct nsbx_err finish_op(struct nsbx_op *op)
{
    struct nsbx_err err = {0};
    if (!op) {
        nsbx_err_nomem(&err, "an operation");
        return err;
    }
    WAIT_OP(op);
    nsbx_err_copy(&err, nsbx_op_err(op));
    nsbx_op_unref(op);
    return err;
}

/* As finish_op, with nothing allocated here. */
static inline struct nsbx_err finish_op_bare(struct nsbx_op *op)
{
    struct nsbx_err err = {0};
    if (!op)
        nsbx_err_nomem(&err, "an operation");
    while (op && nsbx_op_state(op) == NSBX_OP_PENDING)
        nsbx_loop_turn(loop, NSBX_TURN_WAIT);
    if (op)
        nsbx_err_copy(&err, nsbx_op_err(op));
    nsbx_op_unref(op);
    return err;
}

/* Does `once` as it is, then with each of its allocations failing in turn: it must end every time, with what it should give or with an
 * error that says something, and leave nothing behind. */
static inline void without_memory(struct nsbx_err (*once)(void))
{
    unsigned long count = 0, done = 0;
    for (unsigned long nth = 0; nth <= count; nth++) {
        guest->known = false;
        nsbx_alloc_fail_at(nth);
        struct nsbx_err err = once();
        if (nth == 0) {
            count = nsbx_alloc_count();
            CHECK_INT(err.code, 0);
        }
        nsbx_alloc_fail_at(0);
        done += err.code == 0;
        CHECK(err.code == 0 || err.message[0]);
        TURN_UNTIL(nsbx_loop_live(loop, NULL, NULL) <= 1, 15000);
    }
    fprintf(stderr, "%s: %lu allocations, %lu done\n", harness_case, count, done);
    CHECK(count > 50 && done < count);
}

#define CHECK_ERR(got_err, want_code, want_reason)                                                                 \
    do {                                                                                                           \
        struct nsbx_err got_err_ = (got_err);                                                                      \
        CHECK_STR(nsbx_code_name(got_err_.code), nsbx_code_name(want_code));                                       \
        CHECK_STR(got_err_.reason, want_reason);                                                                   \
        if (harness_case_failed)                                                                                   \
            fprintf(stderr, "    message: %s\n", got_err_.message);                                                \
    } while (0)
#define CHECK_HAS(text, part)                                                                                      \
    do {                                                                                                           \
        if (!strstr((text), (part))) {                                                                             \
            fprintf(stderr, "%s:%d: in %s: \"%s\" does not hold \"%s\"\n", __FILE__, __LINE__, harness_case,       \
                    (text), (part));                                                                               \
            harness_case_failed = 1;                                                                               \
        }                                                                                                          \
    } while (0)

#endif
