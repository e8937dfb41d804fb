/* Timers: neither early nor busy. */
#include "stream_rig.h"

struct ticker {
    struct nsbx_timer *t;
    int count;
    uint64_t ms;
};

static void tick(void *ud)
{
    struct ticker *k = ud;
    k->count++;
    nsbx_timer_start(k->t, k->ms);
}

static void a_zero_timer_does_not_spin(void)
{
    struct ticker a = {0}, b = {0};
    bool late = false;
    int p[2];
    struct end e = {0};
    rig_open();
    CHECK_INT(pipe2(p, O_CLOEXEC), 0);
    CHECK_INT(nsbx_stream_from_fd(loop, p[0], &e.s, NULL), 0);
    nsbx_stream_set_events(e.s, &end_events, &e);
    nsbx_stream_read_start(e.s);
    struct nsbx_timer *over = nsbx_timer_new(loop, note_late, &late);
    a.t = nsbx_timer_new(loop, tick, &a);
    b.t = nsbx_timer_new(loop, tick, &b); /* two that keep each other due */
    nsbx_timer_start(over, 50);
    nsbx_timer_start(a.t, 0);
    nsbx_timer_start(b.t, 0);
    CHECK_INT(write(p[1], &(uint8_t){pattern(0)}, 1), 1);
    uint64_t start = nsbx_now_ms();
    while (!late)
        nsbx_loop_turn(loop, NSBX_TURN_WAIT);
    uint64_t took = nsbx_now_ms() - start;
    CHECK(a.count >= 1);
    CHECK((uint64_t)a.count <= took + 2);
    CHECK((uint64_t)b.count <= took + 2);
    CHECK_INT(e.got, 1);
    nsbx_timer_close(a.t);
    nsbx_timer_close(b.t);
    nsbx_timer_close(over);
    nsbx_stream_close(e.s);
    close(p[1]);
    rig_close();
}

static void burn(uint64_t ms)
{
    uint64_t until = nsbx_now_ms() + ms;
    while (nsbx_now_ms() < until)
        ;
}

static void slow_tick(void *ud)
{
    burn(3);
    tick(ud);
}

static void slow_timers_that_keep_each_other_due_leave_room(void)
{
    struct ticker a = {0}, b = {0};
    int p[2];
    struct end e = {0};
    rig_open();
    CHECK_INT(pipe2(p, O_CLOEXEC), 0);
    CHECK_INT(nsbx_stream_from_fd(loop, p[0], &e.s, NULL), 0);
    nsbx_stream_set_events(e.s, &end_events, &e);
    nsbx_stream_read_start(e.s);
    a.t = nsbx_timer_new(loop, slow_tick, &a);
    b.t = nsbx_timer_new(loop, slow_tick, &b);
    nsbx_timer_start(a.t, 0);
    nsbx_timer_start(b.t, 0);
    CHECK_INT(write(p[1], &(uint8_t){pattern(0)}, 1), 1);
    for (int i = 0; i < 3; i++)
        nsbx_loop_turn(loop, NSBX_TURN_WAIT);
    CHECK_INT(e.got, 1);
    CHECK(a.count <= 6);
    nsbx_timer_close(a.t);
    nsbx_timer_close(b.t);
    nsbx_stream_close(e.s);
    close(p[1]);
    rig_close();
}

static void a_timer_is_not_early_after_a_long_computation(void)
{
    bool late = false;
    rig_open();
    struct nsbx_timer *t = nsbx_timer_new(loop, note_late, &late);
    nsbx_loop_turn(loop, NSBX_TURN_POLL);
    burn(40);
    uint64_t start = nsbx_now_ms();
    nsbx_timer_start(t, 30);
    while (!late)
        nsbx_loop_turn(loop, NSBX_TURN_WAIT);
    CHECK(nsbx_now_ms() - start >= 29);
    nsbx_timer_close(t);
    rig_close();
}

static struct nsbx_timer *victim;
static void close_victim(void *ud)
{
    (*(int *)ud)++;
    nsbx_timer_close(victim);
}

static void timers_stop_restart_and_close(void)
{
    int closed = 0;
    bool fired = false, weak = false;
    rig_open();
    struct nsbx_timer *t = nsbx_timer_new(loop, note_late, &fired);
    CHECK(!nsbx_timer_active(t));
    nsbx_timer_start(t, 1);
    CHECK(nsbx_timer_active(t));
    nsbx_timer_stop(t);
    nsbx_timer_stop(t);
    CHECK(!nsbx_timer_active(t));
    nsbx_timer_start(t, 1);
    nsbx_timer_start(t, 40); /* the later one counts */
    turn_for(10);
    CHECK(!fired);
    TURN_UNTIL(fired, 2000);
    CHECK(!nsbx_timer_active(t));
    fired = false;
    nsbx_timer_start(t, 1);
    nsbx_timer_close(t); /* no callback after it */
    turn_for(5);
    CHECK(!fired);
    victim = nsbx_timer_new(loop, close_victim, &closed); /* in its own callback */
    nsbx_timer_start(victim, 1);
    TURN_UNTIL(closed, 2000);
    t = nsbx_timer_new(loop, note_late, &weak);
    nsbx_timer_start(t, 60000);
    CHECK(nsbx_loop_turn(loop, NSBX_TURN_POLL));
    nsbx_timer_unref(t);
    CHECK(!nsbx_loop_turn(loop, NSBX_TURN_WAIT)); /* does not wait a minute */
    CHECK_INT(nsbx_loop_live(loop, NULL, NULL), 1);
    nsbx_timer_close(t);
    nsbx_timer_close(NULL);
    rig_close();
}

static void a_turn_comes_back_after_a_timer(void)
{
    bool late = false, much_later = false;
    rig_open();
    struct nsbx_timer *t = nsbx_timer_new(loop, note_late, &late);
    struct nsbx_timer *guard = nsbx_timer_new(loop, note_late, &much_later);
    nsbx_timer_start(guard, 3000);
    nsbx_timer_start(t, 1);
    usleep(3000);
    nsbx_loop_turn(loop,
                   NSBX_TURN_WAIT); /* the timer comes before the poll, which must not wait for another event */
    CHECK(late);
    CHECK(!much_later);
    nsbx_timer_close(t);
    nsbx_timer_close(guard);
    rig_close();
}

int main(void)
{
    rig_open();
    nsbx_loop_free(loop);
    RUN(a_turn_comes_back_after_a_timer);
    RUN(a_zero_timer_does_not_spin);
    RUN(slow_timers_that_keep_each_other_due_leave_room);
    RUN(a_timer_is_not_early_after_a_long_computation);
    RUN(timers_stop_restart_and_close);
    return harness_done();
}
