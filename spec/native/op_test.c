/* Operations: exactly one end, whatever happens in whatever order. */
#include "stream_rig.h"

#include <signal.h>
#include <sys/wait.h>

/* ---- an owner and a waiter that keep the record ---- */

enum at_stop { LATER, AT_ONCE, WITH_TRUTH, UNREF_TOO };
static struct {
    int stops;
    enum nsbx_op_stop why;
    enum at_stop how;
    int finishes;
    enum nsbx_op_state state;
    int code;
    char message[NSBX_ERR_MESSAGE];
    bool in_call; /* the finisher's frame */
    bool called_inside;
    int freed;
} seen;

static void on_stop(struct nsbx_op *op, void *owner, enum nsbx_op_stop why)
{
    CHECK(owner == &seen);
    seen.stops++;
    seen.why = why;
    CHECK(nsbx_op_stopping(op));
    CHECK_INT(nsbx_op_state(op), NSBX_OP_PENDING);
    if (seen.how == AT_ONCE || seen.how == UNREF_TOO)
        nsbx_op_finish_stopped(op);
    if (seen.how == WITH_TRUTH)
        nsbx_op_finish(op, NULL);
    if (seen.how == UNREF_TOO)
        nsbx_op_unref(op);
}

static void on_finish(struct nsbx_op *op, void *ud)
{
    CHECK(ud == &seen);
    if (seen.in_call)
        seen.called_inside = true;
    seen.finishes++;
    seen.state = nsbx_op_state(op);
    seen.code = nsbx_op_err(op) ? nsbx_op_err(op)->code : 0;
    snprintf(seen.message, sizeof seen.message, "%s", nsbx_op_err(op) ? nsbx_op_err(op)->message : "");
}

static void free_result(void *result)
{
    CHECK(result == &seen.freed);
    seen.freed++;
}

static struct nsbx_op *make(int64_t timeout_ms, bool with_stop, enum at_stop how)
{
    memset(&seen, 0, sizeof seen);
    seen.how = how;
    rig_open();
    struct nsbx_op_spec spec = {
        .name = "exec", .timeout_ms = timeout_ms, .stop = with_stop ? on_stop : NULL, .owner = &seen};
    return nsbx_op_new(loop, &spec);
}

static void wait_for(struct nsbx_op *op)
{
    nsbx_op_on_finish(op, on_finish, &seen);
}

static void expect(struct nsbx_op *op, enum nsbx_op_state state, int code)
{
    TURN_UNTIL(seen.finishes, 3000);
    turn_for(3);
    CHECK_INT(seen.finishes, 1);
    CHECK_INT(seen.state, state);
    CHECK_INT(seen.code, code);
    CHECK_INT(nsbx_op_state(op), state);
    CHECK(!seen.called_inside);
}

/* ---- ends ---- */

static void done_and_failed(void)
{
    for (int fails = 0; fails < 2; fails++) {
        struct nsbx_op *op = make(-1, true, LATER);
        CHECK_STR(nsbx_op_name(op), "exec");
        CHECK_INT(nsbx_op_state(op), NSBX_OP_PENDING);
        CHECK(nsbx_op_err(op) == NULL);
        CHECK(!nsbx_op_stopping(op));
        wait_for(op);
        struct nsbx_err err;
        nsbx_err_reason(&err, NSBX_E_NOT_FOUND, "no_such_file", "x: no such file");
        seen.in_call = true;
        nsbx_op_finish(op, fails ? &err : NULL);
        err.message[0] = '\0'; /* it was copied */
        seen.in_call = false;
        expect(op, fails ? NSBX_OP_FAILED : NSBX_OP_DONE, fails ? NSBX_E_NOT_FOUND : 0);
        CHECK_STR(seen.message, fails ? "x: no such file" : "");
        if (fails)
            CHECK_STR(nsbx_op_err(op)->reason, "no_such_file");
        nsbx_op_cancel(op); /* too late for anything */
        CHECK_INT(seen.stops, 0);
        CHECK(!nsbx_op_stopping(op));
        nsbx_op_unref(op);
        rig_close();
    }
}

static void codes_set_states(void)
{
    static const struct {
        int code;
        enum nsbx_op_state state;
    } rows[] = {
        {NSBX_E_TIMEOUT, NSBX_OP_TIMED_OUT}, {NSBX_E_CANCELLED, NSBX_OP_CANCELLED}, {NSBX_E_IO, NSBX_OP_FAILED}};
    for (size_t i = 0; i < NSBX_LEN(rows); i++) {
        struct nsbx_op *op = make(-1, true, LATER);
        struct nsbx_err err;
        nsbx_err_set(&err, rows[i].code, "so it was");
        wait_for(op);
        nsbx_op_finish(op, &err);
        expect(op, rows[i].state, rows[i].code);
        nsbx_op_unref(op);
        rig_close();
    }
}

static void waiting_after_the_end_is_told_too(void)
{
    struct nsbx_op *op = make(-1, true, LATER);
    nsbx_op_finish(op, NULL);
    seen.in_call = true;
    wait_for(op);
    seen.in_call = false;
    expect(op, NSBX_OP_DONE, 0);
    wait_for(op); /* a next waiter */
    TURN_UNTIL(seen.finishes == 2, 1000);
    nsbx_op_unref(op);
    rig_close();
}

static void a_wait_is_taken_back(void)
{
    struct nsbx_op *op = make(-1, true, LATER);
    wait_for(op);
    nsbx_op_on_finish(op, NULL, NULL); /* before the end */
    nsbx_op_finish(op, NULL);
    turn_for(2);
    CHECK_INT(seen.finishes, 0);
    wait_for(op);
    nsbx_op_on_finish(op, NULL, NULL); /* after it, before the call */
    nsbx_op_on_finish(op, NULL, NULL);
    turn_for(2);
    CHECK_INT(seen.finishes, 0);
    wait_for(op);
    expect(op, NSBX_OP_DONE, 0);
    nsbx_op_unref(op);
    rig_close();
}

/* ---- stopping: who asks × how the owner answers × when ---- */

static void every_stop_ends_exactly_once(void)
{
    static const enum at_stop hows[] = {LATER, AT_ONCE, WITH_TRUTH, UNREF_TOO};
    for (int i = 0; i < 2 * 4 * 3; i++) {
        bool by_deadline = i & 1;
        enum at_stop how = hows[(i >> 1) % 4];
        int when = i / 8; /* 0 before anybody waits, 1 while somebody does, 2 after a turn */
        struct nsbx_op *op = make(by_deadline ? 5 : -1, true, how);
        if (how == UNREF_TOO)
            nsbx_op_ref(op); /* the owner's own, which it drops */
        if (when > 0)
            wait_for(op);
        if (when > 1)
            turn_for(2);
        if (!by_deadline) {
            nsbx_op_cancel(op);
            nsbx_op_cancel(op);
        }
        if (when == 0)
            wait_for(op);
        TURN_UNTIL(seen.stops, 2000);
        if (how == LATER) {
            turn_for(10);
            CHECK_INT(seen.finishes, 0);
            CHECK_INT(nsbx_op_state(op), NSBX_OP_PENDING);
            nsbx_op_cancel(op);
            nsbx_op_finish_stopped(op);
        }
        enum nsbx_op_state stopped = by_deadline ? NSBX_OP_TIMED_OUT : NSBX_OP_CANCELLED;
        int code = by_deadline ? NSBX_E_TIMEOUT : NSBX_E_CANCELLED;
        expect(op, how == WITH_TRUTH ? NSBX_OP_DONE : stopped, how == WITH_TRUTH ? 0 : code);
        CHECK_INT(seen.stops, 1);
        CHECK_INT(seen.why, by_deadline ? NSBX_STOP_TIMEOUT : NSBX_STOP_CANCEL);
        if (how != WITH_TRUTH)
            CHECK_STR(seen.message, by_deadline ? "exec timed out after 5 ms" : "exec was cancelled");
        nsbx_op_cancel(op);
        turn_for(10); /* nor does the deadline come after the end */
        CHECK_INT(seen.stops, 1);
        nsbx_op_unref(op);
        rig_close();
    }
}

static void without_a_stop_function_it_ends_on_the_spot(void)
{
    struct nsbx_op *op = make(5, false, LATER);
    wait_for(op);
    expect(op, NSBX_OP_TIMED_OUT, NSBX_E_TIMEOUT);
    nsbx_op_unref(op);
    rig_close();
    op = make(-1, false, LATER);
    wait_for(op);
    nsbx_op_cancel(op);
    CHECK_INT(nsbx_op_state(op), NSBX_OP_CANCELLED);
    CHECK_INT(seen.finishes, 0);
    expect(op, NSBX_OP_CANCELLED, NSBX_E_CANCELLED);
    nsbx_op_unref(op);
    rig_close();
}

static void a_deadline_of_zero_is_the_next_turn(void)
{
    struct nsbx_op *op = make(0, true, AT_ONCE);
    wait_for(op);
    CHECK_INT(seen.stops, 0);
    expect(op, NSBX_OP_TIMED_OUT, NSBX_E_TIMEOUT);
    nsbx_op_unref(op);
    rig_close();
}

static void the_end_before_the_deadline_ends_the_deadline(void)
{
    struct nsbx_op *op = make(20, true, AT_ONCE);
    wait_for(op);
    nsbx_op_finish(op, NULL);
    expect(op, NSBX_OP_DONE, 0);
    CHECK_INT(nsbx_loop_live(loop, NULL, NULL), 1); /* the op; its timer is gone */
    turn_for(40);
    CHECK_INT(seen.stops, 0);
    nsbx_op_unref(op);
    rig_close();
}

static void finish_stopped_without_a_stop_is_a_cancel(void)
{
    struct nsbx_op *op = make(-1, true, LATER);
    wait_for(op);
    nsbx_op_finish_stopped(op);
    expect(op, NSBX_OP_CANCELLED, NSBX_E_CANCELLED);
    CHECK_INT(seen.stops, 0);
    nsbx_op_unref(op);
    rig_close();
}

static void a_disowned_one_is_not_asked(void)
{
    for (int by_deadline = 0; by_deadline < 2; by_deadline++) {
        struct nsbx_op *op = make(by_deadline ? 2 : -1, true, AT_ONCE);
        wait_for(op);
        nsbx_op_disown(op);
        if (!by_deadline)
            nsbx_op_cancel(op);
        turn_for(10);
        CHECK_INT(seen.stops, 0);
        CHECK_INT(nsbx_op_state(op), NSBX_OP_PENDING);
        CHECK(nsbx_op_stopping(op));
        nsbx_op_finish_stopped(op);
        expect(op, by_deadline ? NSBX_OP_TIMED_OUT : NSBX_OP_CANCELLED,
               by_deadline ? NSBX_E_TIMEOUT : NSBX_E_CANCELLED);
        nsbx_op_unref(op);
        rig_close();
    }
}

/* ---- references ---- */

static void the_waiter_may_go_before_the_end(void)
{
    struct nsbx_op *op = make(-1, true, LATER);
    nsbx_op_ref(op);
    wait_for(op);
    nsbx_op_on_finish(op, NULL, NULL);
    nsbx_op_unref(op); /* the waiter is gone; the owner goes on */
    nsbx_op_set_result(op, &seen.freed, free_result);
    nsbx_op_finish(op, NULL);
    nsbx_op_unref(op);
    CHECK_INT(seen.freed, 1);
    rig_close();
    CHECK_INT(seen.finishes, 0);
}

static void the_last_reference_may_go_before_the_call(void)
{
    struct nsbx_op *op = make(-1, true, LATER);
    wait_for(op);
    nsbx_op_finish(op, NULL);
    nsbx_op_unref(op); /* the call under way holds its own */
    TURN_UNTIL(seen.finishes, 1000);
    CHECK_INT(seen.state, NSBX_OP_DONE);
    rig_close();
}

static void a_pending_one_without_an_owner_is_freed(void)
{
    struct nsbx_op *op = make(1000, false, LATER);
    nsbx_op_set_result(op, &seen.freed, free_result);
    nsbx_op_unref(op);
    CHECK_INT(seen.freed, 1);
    nsbx_op_unref(NULL);
    rig_close();
}

static struct nsbx_op *dropped;
static void drop_in_callback(struct nsbx_op *op, void *ud)
{
    on_finish(op, ud);
    nsbx_op_unref(op);
    dropped = NULL;
}

static void the_callback_may_drop_the_last_reference(void)
{
    dropped = make(-1, true, LATER);
    nsbx_op_on_finish(dropped, drop_in_callback, &seen);
    nsbx_op_finish(dropped, NULL);
    TURN_UNTIL(!dropped, 1000);
    rig_close();
}

static void results_are_owned_by_somebody(void)
{
    struct nsbx_op *op = make(-1, true, LATER);
    CHECK(nsbx_op_result(op) == NULL);
    nsbx_op_set_result(op, &seen.freed, free_result);
    nsbx_op_set_result(op, &seen.freed, free_result); /* replaces */
    CHECK_INT(seen.freed, 1);
    CHECK(nsbx_op_result(op) == &seen.freed);
    nsbx_op_finish(op, NULL);
    CHECK(nsbx_op_take_result(op) == &seen.freed);
    CHECK(nsbx_op_take_result(op) == NULL);
    nsbx_op_unref(op);
    CHECK_INT(seen.freed, 1); /* whoever took it frees it */
    rig_close();
    op = make(-1, true, LATER);
    nsbx_op_set_result(op, &seen.freed, NULL);
    nsbx_op_unref(op);
    CHECK_INT(seen.freed, 0);
    rig_close();
}

/* ---- the programmer's errors ---- */

static void finish_twice(void)
{
    struct nsbx_op *op = make(-1, true, LATER);
    nsbx_op_finish(op, NULL);
    nsbx_op_finish_stopped(op);
}
static void wait_twice(void)
{
    struct nsbx_op *op = make(-1, true, LATER);
    wait_for(op);
    wait_for(op);
}
static void set_after_the_end(void)
{
    struct nsbx_op *op = make(-1, true, LATER);
    nsbx_op_finish(op, NULL);
    nsbx_op_set_result(op, &seen, NULL);
}

static void misuse_aborts(void)
{
    static void (*const wrongs[])(void) = {finish_twice, wait_twice, set_after_the_end};
    for (size_t i = 0; i < NSBX_LEN(wrongs); i++) {
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0) {
            dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
            wrongs[i]();
            _exit(0);
        }
        int status = 0;
        waitpid(pid, &status, 0);
        CHECK(WIFSIGNALED(status));
        CHECK_INT(WTERMSIG(status), SIGABRT);
    }
}

static void no_memory_is_null(void)
{
    for (unsigned long nth = 1; nth < 4; nth++) {
        rig_open();
        nsbx_alloc_fail_at(nth);
        struct nsbx_op *op = nsbx_op_new(loop, &(struct nsbx_op_spec){.name = "exec", .timeout_ms = 5});
        bool reached = nsbx_alloc_count() >= nth;
        nsbx_alloc_fail_at(0);
        CHECK_INT(op == NULL, reached);
        nsbx_op_unref(op);
        rig_close();
    }
}

int main(void)
{
    rig_open();
    nsbx_loop_free(loop);
    RUN(done_and_failed);
    RUN(codes_set_states);
    RUN(waiting_after_the_end_is_told_too);
    RUN(a_wait_is_taken_back);
    RUN(every_stop_ends_exactly_once);
    RUN(without_a_stop_function_it_ends_on_the_spot);
    RUN(a_deadline_of_zero_is_the_next_turn);
    RUN(the_end_before_the_deadline_ends_the_deadline);
    RUN(finish_stopped_without_a_stop_is_a_cancel);
    RUN(a_disowned_one_is_not_asked);
    RUN(the_waiter_may_go_before_the_end);
    RUN(the_last_reference_may_go_before_the_call);
    RUN(a_pending_one_without_an_owner_is_freed);
    RUN(the_callback_may_drop_the_last_reference);
    RUN(results_are_owned_by_somebody);
    RUN(misuse_aborts);
    RUN(no_memory_is_null);
    return harness_done();
}
