/* Turns, deferred functions, work, signals, borrowed loops. */
#include "stream_rig.h"

#include "loop/signal.h"
#include "loop/work.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <uv.h>

/* ---- deferred functions ---- */

struct note {
    struct nsbx_defer d;
    char name;
    int again; /* defers itself so many times more */
    int runs;
    struct note *other; /* deferred or cancelled by it */
    bool cancels;
};
static char order[64];

static void on_note(struct nsbx_defer *d)
{
    struct note *n = nsbx_container_of(d, struct note, d);
    size_t len = strlen(order);
    if (len + 1 < sizeof order)
        order[len] = n->name;
    n->runs++;
    if (n->again) {
        n->again--;
        nsbx_loop_defer(loop, d, on_note);
    }
    if (n->other && n->cancels)
        nsbx_defer_cancel(&n->other->d);
    else if (n->other)
        nsbx_loop_defer(loop, &n->other->d, on_note);
}

static void deferred_functions_run_once_and_in_order(void)
{
    struct note a = {.name = 'a'}, b = {.name = 'b'}, c = {.name = 'c'};
    memset(order, 0, sizeof order);
    rig_open();
    nsbx_loop_defer(loop, &a.d, on_note);
    nsbx_loop_defer(loop, &b.d, on_note);
    nsbx_loop_defer(loop, &a.d, on_note); /* pending already */
    nsbx_loop_defer(loop, &c.d, on_note);
    nsbx_defer_cancel(&b.d);
    nsbx_defer_cancel(&b.d);
    CHECK(!nsbx_loop_turn(loop, NSBX_TURN_WAIT));
    CHECK_STR(order, "ac");
    nsbx_defer_cancel(&a.d);
    rig_close();
}

static void a_deferred_function_may_cancel_and_defer_others(void)
{
    struct note c = {.name = 'c'}, b = {.name = 'b'}, d = {.name = 'd'};
    struct note a = {.name = 'a', .other = &b, .cancels = true};
    memset(order, 0, sizeof order);
    rig_open();
    c.other = &d;
    nsbx_loop_defer(loop, &a.d, on_note);
    nsbx_loop_defer(loop, &b.d, on_note);
    nsbx_loop_defer(loop, &c.d, on_note);
    CHECK(!nsbx_loop_turn(loop, NSBX_TURN_WAIT)); /* d too runs in this turn */
    CHECK_STR(order, "acd");
    rig_close();
}

static void deferring_for_ever_does_not_starve_the_rest(void)
{
    struct note a = {.name = 'a', .again = 1000000};
    bool late = false;
    rig_open();
    struct nsbx_timer *t = nsbx_timer_new(loop, note_late, &late);
    nsbx_timer_start(t, 5);
    nsbx_loop_defer(loop, &a.d, on_note);
    CHECK(nsbx_loop_turn(loop, NSBX_TURN_WAIT));
    CHECK(a.runs < 100);
    for (int i = 0; i < 1000000 && !late; i++)
        nsbx_loop_turn(loop, NSBX_TURN_WAIT);
    CHECK(late);
    CHECK(a.d.pending);
    nsbx_defer_cancel(&a.d);
    nsbx_timer_close(t);
    rig_close();
}

static void defer_note(void *ud)
{
    nsbx_loop_defer(loop, &((struct note *)ud)->d, on_note);
}

static void what_a_timer_defers_is_not_waited_for(void)
{
    struct note a = {.name = 'a'};
    bool late = false;
    rig_open();
    struct nsbx_timer *guard = nsbx_timer_new(loop, note_late, &late);
    struct nsbx_timer *t = nsbx_timer_new(loop, defer_note, &a);
    nsbx_timer_start(guard, 3000);
    nsbx_timer_start(t, 1);
    usleep(3000); /* so that it is due when the turn begins, before its poll */
    nsbx_loop_turn(loop, NSBX_TURN_WAIT);
    CHECK_INT(a.runs, 1);
    CHECK(!late);
    nsbx_timer_close(t);
    nsbx_timer_close(guard);
    rig_close();
}

static void a_waiting_turn_with_nothing_to_do_returns(void)
{
    rig_open();
    CHECK(!nsbx_loop_turn(loop, NSBX_TURN_WAIT));
    CHECK(!nsbx_loop_turn(loop, NSBX_TURN_POLL));
    rig_close();
}

/* ---- other threads ---- */

static void *wake_later(void *arg)
{
    (void)arg;
    usleep(20000);
    nsbx_loop_wake(loop);
    return NULL;
}

static void a_wake_from_another_thread_ends_the_wait(void)
{
    bool late = false;
    pthread_t thread;
    rig_open();
    struct nsbx_timer *t = nsbx_timer_new(loop, note_late, &late);
    nsbx_timer_start(t, 20000);
    pthread_create(&thread, NULL, wake_later, NULL);
    uint64_t start = nsbx_now_ms();
    CHECK(nsbx_loop_turn(loop, NSBX_TURN_WAIT));
    CHECK(nsbx_now_ms() - start < 15000);
    CHECK(nsbx_now_ms() - start >= 10);
    CHECK(!late);
    pthread_join(thread, NULL);
    nsbx_timer_close(t);
    rig_close();
}

struct job {
    pthread_t thread;
    int value, done;
    sigset_t mask;
    bool repeat;
};

static void job_work(void *ud)
{
    struct job *j = ud;
    j->thread = pthread_self();
    pthread_sigmask(SIG_BLOCK, NULL, &j->mask);
    j->value++;
}
static void job_done(void *ud)
{
    struct job *j = ud;
    j->done++;
    if (j->repeat && j->done < 100)
        CHECK_INT(nsbx_work(loop, job_work, job_done, j, NULL), 0);
}

static void work_runs_elsewhere_and_is_done_here(void)
{
    struct job jobs[20] = {{.repeat = true}};
    rig_open();
    for (int i = 0; i < 20; i++)
        CHECK_INT(nsbx_work(loop, job_work, job_done, &jobs[i], NULL), 0);
    CHECK_INT(nsbx_loop_live(loop, NULL, NULL), 20);
    TURN_UNTIL(jobs[0].done == 100, 10000);
    for (int i = 0; i < 20; i++) {
        TURN_UNTIL(jobs[i].done, 5000);
        CHECK_INT(jobs[i].value, jobs[i].done);
        CHECK(!pthread_equal(jobs[i].thread, pthread_self()));
        CHECK(sigismember(&jobs[i].mask, SIGTERM)); /* the embedder's handlers do not run there */
    }
    nsbx_alloc_fail_at(1);
    struct nsbx_err err = {0};
    CHECK_INT(nsbx_work(loop, job_work, job_done, &jobs[1], &err), -NSBX_E_LIMIT);
    nsbx_alloc_fail_at(0);
    turn_for(5);
    CHECK_INT(jobs[1].done, 1);
    rig_close();
}

/* ---- signals ---- */

static int signal_seen;
static void on_signal(void *ud, int signo)
{
    (*(int *)ud)++;
    signal_seen = signo;
}

static void a_signal_is_an_event_that_does_not_keep_the_loop(void)
{
    int count = 0;
    struct nsbx_signal *s = NULL;
    struct nsbx_err err = {0};
    struct sigaction before, after;
    rig_open();
    sigaction(SIGUSR1, NULL, &before);
    CHECK_INT(nsbx_signal_watch(loop, SIGUSR1, on_signal, &count, &s, &err), 0);
    CHECK(!nsbx_loop_turn(loop, NSBX_TURN_WAIT));
    kill(getpid(), SIGUSR1);
    TURN_UNTIL(count, 5000);
    CHECK_INT(signal_seen, SIGUSR1);
    nsbx_signal_close(s);
    sigaction(SIGUSR1, NULL, &after);
    CHECK(after.sa_handler == before.sa_handler);
    CHECK_INT(nsbx_signal_watch(loop, SIGKILL, on_signal, &count, &s, &err), -NSBX_E_INVALID);
    CHECK(strstr(err.message, "signal 9") != NULL);
    nsbx_signal_close(NULL);
    rig_close();
}

static pid_t signal_sender;
static struct nsbx_signal_from *watch_from;
static void on_signal_from(void *ud, int signo, pid_t sender)
{
    (*(int *)ud)++;
    signal_seen = signo;
    signal_sender = sender;
    nsbx_signal_from_close(watch_from);
    watch_from = NULL;
}

static void a_signal_says_who_sent_it(void)
{
    int count = 0;
    struct nsbx_err err = {0};
    sigset_t saved;
    rig_open();
    pthread_sigmask(SIG_BLOCK, NULL, &saved);
    CHECK_INT(nsbx_signal_watch_from(loop, SIGUSR2, on_signal_from, &count, &watch_from, &err), 0);
    pid_t pid = fork();
    if (pid == 0) {
        kill(getppid(), SIGUSR2);
        _exit(0);
    }
    TURN_UNTIL(count, 5000);
    waitpid(pid, NULL, 0);
    CHECK_INT(signal_seen, SIGUSR2);
    CHECK_INT(signal_sender, pid);
    nsbx_signal_from_close(NULL);
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
    rig_close();
}

/* ---- a loop of somebody else's ---- */

static void a_borrowed_loop_is_turned_by_either(void)
{
    uv_loop_t mine;
    struct note a = {.name = 'a', .again = 100}, b = {.name = 'b'};
    struct nsbx_err err = {0};
    uv_timer_t theirs;
    CHECK_INT(uv_loop_init(&mine), 0);
    uv_timer_init(&mine, &theirs);
    CHECK_INT(nsbx_loop_borrow(&loop, &mine, &err), 0);
    /* Its owner turns: nothing of ours keeps it going, what is deferred runs. */
    CHECK_INT(uv_run(&mine, UV_RUN_DEFAULT), 0);
    nsbx_loop_defer(loop, &a.d, on_note);
    CHECK_INT(uv_run(&mine, UV_RUN_DEFAULT), 0);
    CHECK_INT(a.runs, 101);
    /* A stream and a timer on it. */
    struct nsbx_timer *t = nsbx_timer_new(loop, defer_note, &b);
    nsbx_timer_start(t, 2);
    CHECK_INT(uv_run(&mine, UV_RUN_DEFAULT), 0);
    CHECK_INT(b.runs, 1);
    kind = &kinds[1];
    struct end x, y;
    make_ends(&x, &y);
    CHECK_INT(end_write(&x, 100), 0);
    CHECK_INT(end_shutdown(&x), 0);
    CHECK_INT(uv_run(&mine, UV_RUN_DEFAULT), 0); /* ends: after its end y waits for nothing */
    CHECK_INT(y.got, 100);
    CHECK_INT(y.eofs, 1);
    end_close(&x);
    end_close(&y);
    /* We turn it. */
    nsbx_timer_start(t, 1);
    TURN_UNTIL(b.runs == 2, 2000);
    nsbx_timer_close(t);
    nsbx_loop_free(loop);
    uv_close((uv_handle_t *)&theirs, NULL);
    CHECK_INT(uv_run(&mine, UV_RUN_DEFAULT), 0);
    CHECK_INT(uv_loop_close(&mine), 0); /* nothing of ours is left on it */
}

/* ---- live objects and misuse ---- */

static char live_text[256];
static void add_live(void *ud, const char *what)
{
    (void)ud;
    strncat(live_text, what, sizeof live_text - strlen(live_text) - 2);
    strcat(live_text, ";");
}

static void live_objects_are_counted_by_name(void)
{
    struct end a, b;
    struct nsbx_listener *l;
    struct nsbx_err err;
    rig_open();
    CHECK_INT(nsbx_loop_live(loop, add_live, NULL), 0);
    kind = &kinds[1];
    make_ends(&a, &b);
    CHECK_INT(nsbx_listen_tcp(loop, "127.0.0.1", 0, NULL, NULL, &l, &err), 0);
    struct nsbx_op *op = nsbx_op_new(loop, &(struct nsbx_op_spec){.name = "nap", .timeout_ms = -1});
    CHECK_INT(nsbx_loop_live(loop, add_live, NULL), 5);
    CHECK_STR(live_text, "unix stream;unix stream;timer;listener;op nap;");
    nsbx_op_unref(op);
    nsbx_listener_close(l);
    end_close(&a);
    CHECK_INT(nsbx_loop_live(loop, NULL, NULL), 1);
    end_close(&b);
    CHECK_INT(nsbx_loop_live(loop, NULL, NULL), 0);
    rig_close();
}

/* Runs `fn` in a process of its own; its end and what it said. */
static int in_child(void (*fn)(void), char *said, size_t size)
{
    int p[2];
    if (pipe2(p, O_CLOEXEC) != 0)
        return -1;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(p[1], STDERR_FILENO);
        fn();
        _exit(0);
    }
    close(p[1]);
    size_t len = 0;
    ssize_t n;
    while (len + 1 < size && (n = read(p[0], said + len, size - 1 - len)) > 0)
        len += (size_t)n;
    said[len] = '\0';
    close(p[0]);
    int status = -1;
    waitpid(pid, &status, 0);
    return status;
}

static void leak_a_timer(void)
{
    rig_open();
    struct nsbx_timer *t = nsbx_timer_new(loop, note_late, NULL);
    nsbx_timer_start(t, 1000);
    nsbx_loop_free(loop);
}

static void turn_again(struct nsbx_defer *d)
{
    (void)d;
    nsbx_loop_turn(loop, NSBX_TURN_POLL);
}

static void turn_inside_a_turn(void)
{
    static struct nsbx_defer d;
    rig_open();
    nsbx_loop_defer(loop, &d, turn_again);
    nsbx_loop_turn(loop, NSBX_TURN_POLL);
}

static void close_twice(void)
{
    struct nsbx_stream *s[2];
    rig_open();
    if (nsbx_stream_pair(loop, 1, 0, s, NULL) == 0) {
        nsbx_stream_close(s[0]);
        nsbx_stream_close(s[0]);
    }
}

static void programmers_errors_abort_with_a_word(void)
{
    char said[4096];
    CHECK_INT(WTERMSIG(in_child(turn_inside_a_turn, said, sizeof said)), SIGABRT);
    CHECK(strstr(said, "inside a turn") != NULL);
    CHECK_INT(WTERMSIG(in_child(close_twice, said, sizeof said)), SIGABRT);
    CHECK(strstr(said, "closed twice") != NULL);
    int status = in_child(leak_a_timer, said, sizeof said);
    CHECK(strstr(said, "still open when its loop was freed: timer") != NULL);
#ifdef NSBX_TESTING
    CHECK_INT(WTERMSIG(status), SIGABRT);
#else
    CHECK_INT(status, 0);
#endif
}

static void no_memory_for_a_loop_is_a_clean_error(void)
{
    int before = count_fds();
    for (unsigned long nth = 1; nth < 5; nth++) {
        struct nsbx_loop *l = NULL;
        struct nsbx_err err = {0};
        nsbx_alloc_fail_at(nth);
        int rc = nsbx_loop_new(&l, &err);
        bool reached = nsbx_alloc_count() >= nth;
        nsbx_alloc_fail_at(0);
        CHECK_INT(rc, reached ? -NSBX_E_LIMIT : 0);
        nsbx_loop_free(l);
    }
    CHECK_INT(count_fds(), before);
    nsbx_loop_free(NULL);
}

static void no_descriptors_for_a_loop_is_a_clean_error(void)
{
    struct rlimit old, tight;
    getrlimit(RLIMIT_NOFILE, &old);
    int before = count_fds();
    for (int room = 0; room < 8; room++) {
        struct nsbx_loop *l = NULL;
        struct nsbx_err err = {0};
        tight = old;
        int probe = dup(0);
        close(probe);
        tight.rlim_cur = (rlim_t)(probe + room);
        setrlimit(RLIMIT_NOFILE, &tight);
        int rc = nsbx_loop_new(&l, &err);
        setrlimit(RLIMIT_NOFILE, &old);
        if (rc) {
            CHECK_INT(rc, -NSBX_E_LIMIT);
            CHECK_INT(err.sys, EMFILE);
            CHECK(l == NULL);
        }
        if (room == 7)
            CHECK_INT(rc, 0);
        nsbx_loop_free(l);
    }
    CHECK_INT(count_fds(), before);
}

int main(void)
{
    rig_open();
    nsbx_loop_free(loop);
    RUN(deferred_functions_run_once_and_in_order);
    RUN(a_deferred_function_may_cancel_and_defer_others);
    RUN(deferring_for_ever_does_not_starve_the_rest);
    RUN(what_a_timer_defers_is_not_waited_for);
    RUN(a_waiting_turn_with_nothing_to_do_returns);
    RUN(a_wake_from_another_thread_ends_the_wait);
    RUN(work_runs_elsewhere_and_is_done_here);
    RUN(a_signal_is_an_event_that_does_not_keep_the_loop);
    RUN(a_signal_says_who_sent_it);
    RUN(a_borrowed_loop_is_turned_by_either);
    RUN(live_objects_are_counted_by_name);
    RUN(programmers_errors_abort_with_a_word);
    RUN(no_memory_for_a_loop_is_a_clean_error);
    RUN(no_descriptors_for_a_loop_is_a_clean_error);
    return harness_done();
}
