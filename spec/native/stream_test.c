/* The conformance suite of streams: every case runs on every kind. */
#include "stream_rig.h"

#include <signal.h>

/* ---- whole transfers ---- */

/* Writes in pieces of changing size as long as nothing is queued; the rest on drain. */
static void send_more(struct end *e, char what)
{
    if (what != 'd' && what != 's')
        return;
    while (e->s && e->sent < e->to_send && nsbx_stream_queued(e->s) == 0) {
        size_t n = 1 + (size_t)(e->sent * 7919 % 200003);
        if (end_write(e, NSBX_MIN(n, e->to_send - e->sent)) != 0)
            break;
    }
    if (e->s && e->sent == e->to_send && nsbx_stream_can_shutdown(e->s))
        CHECK_INT(end_shutdown(e), 0);
}

static void a_long_transfer_arrives_byte_for_byte(void)
{
    struct end a, b;
    rig_open();
    make_ends(&a, &b);
    CHECK_STR(nsbx_stream_kind(a.s), kind->name);
    a.to_send = kind->bulk;
    a.hook = send_more;
    send_more(&a, 's');
    TURN_UNTIL(b.eofs, 60000);
    CHECK_INT(b.got, kind->bulk);
    CHECK_INT(b.errors, 0);
    CHECK_INT(a.errors, 0);
    end_pair(&a, &b);
}

static void both_directions_at_one_time(void)
{
    struct end a, b;
    rig_open();
    make_ends(&a, &b);
    end_start(&a);
    a.to_send = b.to_send = kind->bulk / 8;
    a.hook = b.hook = send_more;
    send_more(&a, 's');
    send_more(&b, 's');
    TURN_UNTIL(a.eofs && b.eofs, 60000);
    CHECK_INT(a.got, kind->bulk / 8);
    CHECK_INT(b.got, kind->bulk / 8);
    end_pair(&a, &b);
}

static void one_write_as_large_as_the_queue(void)
{
    struct end a, b;
    rig_open();
    make_ends(&a, &b);
    nsbx_stream_read_stop(b.s);
    CHECK_INT(end_write(&a, NSBX_STREAM_QUEUE + 1), -NSBX_E_LIMIT);
    CHECK_INT(nsbx_stream_queued(a.s), 0);
    CHECK_INT(end_write(&a, NSBX_STREAM_QUEUE), 0);
    size_t queued = nsbx_stream_queued(a.s);
    CHECK(queued > 0);
    /* Exactly what is free, and not a byte more. */
    CHECK_INT(end_write(&a, NSBX_STREAM_QUEUE - queued + 1), -NSBX_E_LIMIT);
    uint8_t *more = malloc(NSBX_STREAM_QUEUE - queued + 1);
    fill(more, NSBX_STREAM_QUEUE - queued, a.sent);
    CHECK_INT(nsbx_stream_write2(a.s, more, 1, more, NSBX_STREAM_QUEUE - queued, NULL), -NSBX_E_LIMIT);
    CHECK_INT(nsbx_stream_queued(a.s), queued);
    CHECK_INT(nsbx_stream_write2(a.s, more, 1, more + 1, NSBX_STREAM_QUEUE - queued - 1, NULL), 0);
    free(more);
    CHECK_INT(nsbx_stream_queued(a.s), NSBX_STREAM_QUEUE);
    a.sent += NSBX_STREAM_QUEUE - queued;
    if (kind->bulk < NSBX_STREAM_QUEUE) { /* byte by byte it would take a minute */
        end_pair(&a, &b);
        return;
    }
    end_start(&b);
    TURN_UNTIL(b.got == a.sent, 60000);
    TURN_UNTIL(a.drains == 1, 1000);
    CHECK_INT(nsbx_stream_queued(a.s), 0);
    end_pair(&a, &b);
}

static void two_part_writes_in_every_split(void)
{
    struct end a, b;
    rig_open();
    make_ends(&a, &b);
    uint8_t bytes[40];
    for (size_t split = 0; split <= sizeof bytes; split++) {
        fill(bytes, sizeof bytes, a.sent);
        CHECK_INT(nsbx_stream_write2(a.s, bytes, split, bytes + split, sizeof bytes - split, NULL), 0);
        a.sent += sizeof bytes;
    }
    CHECK_INT(nsbx_stream_write2(a.s, NULL, 0, NULL, 0, NULL), 0);
    CHECK_INT(nsbx_stream_write(a.s, NULL, 0, NULL), 0);
    TURN_UNTIL(b.got == a.sent, 5000);
    end_pair(&a, &b);
}

/* ---- back-pressure ---- */

/* Writes until something stays queued: the kernel may find room for more a little later. No drain has been counted then. */
static void stuff(struct end *a)
{
    for (int quiet = 0; quiet < 3; quiet++) {
        while (nsbx_stream_queued(a->s) == 0)
            CHECK_INT(end_write(a, kind->bulk / 64), 0);
        size_t before = nsbx_stream_queued(a->s);
        turn_for(strcmp(kind->name, "tcp") == 0 ? 45 : 3); /* tcp may acknowledge 40 ms later */
        if (nsbx_stream_queued(a->s) != before)
            quiet = -1;
    }
    a->drains = 0;
}

static void a_stopped_reader_bounds_the_writer(void)
{
    struct end a, b;
    rig_open();
    make_ends(&a, &b);
    nsbx_stream_read_stop(b.s);
    /* A writer that keeps the rule (nothing more while something is queued) is held up soon. */
    a.to_send = 1u << 30;
    a.hook = send_more;
    send_more(&a, 's');
    uint64_t before = 0;
    for (int i = 0; i < 50 && a.sent != before; i++) { /* the kernel may find room for more a little later */
        before = a.sent;
        turn_for(20);
    }
    CHECK_INT(a.sent, before);
    CHECK(nsbx_stream_queued(a.s) > 0);
    CHECK(nsbx_stream_queued(a.s) <= 200003);
    CHECK(a.sent < 16u << 20);
    CHECK_INT(b.reads, 0);
    a.to_send = a.sent;
    end_start(&b);
    TURN_UNTIL(b.got == before, 20000);
    end_pair(&a, &b);
}

static void drain_comes_exactly_when_due(void)
{
    struct end a, b;
    rig_open();
    make_ends(&a, &b);
    CHECK_INT(end_write(&a, 1), 0); /* fits in each kind */
    CHECK_INT(nsbx_stream_queued(a.s), 0);
    TURN_UNTIL(b.got == 1, 5000);
    turn_for(5);
    CHECK_INT(a.drains, 0);
    for (int round = 1; round <= 3; round++) {
        nsbx_stream_read_stop(b.s);
        stuff(&a);
        CHECK_INT(end_write(&a, 10), 0);
        turn_for(5);
        CHECK_INT(a.drains, nsbx_stream_queued(a.s) == 0);
        end_start(&b);
        TURN_UNTIL(b.got == a.sent, 20000);
        TURN_UNTIL(a.drains, 1000);
        turn_for(3);
        CHECK_INT(a.drains, 1);
        CHECK_INT(a.queued_at_drain, 0);
    }
    end_pair(&a, &b);
}

static void read_stop_inside_on_read_is_honoured(void)
{
    struct end a, b;
    rig_open();
    make_ends(&a, &b);
    b.stop_each = true;
    CHECK_INT(end_write(&a, NSBX_MIN(kind->bulk / 64, 1000000)), 0);
    int rounds = 0;
    while (b.got < a.sent && rounds < 100000) {
        int reads = b.reads;
        TURN_UNTIL(b.reads > reads, 5000);
        for (int i = 0; i < 3; i++)
            nsbx_loop_turn(loop, NSBX_TURN_POLL);
        CHECK_INT(b.reads, reads + 1);
        if (harness_case_failed)
            break;
        end_start(&b);
        rounds++;
    }
    CHECK_INT(b.got, a.sent);
    end_pair(&a, &b);
}

/* ---- half-close ---- */

static void half_close_ends_one_direction_only(void)
{
    struct end a, b;
    rig_open();
    make_ends(&a, &b);
    CHECK_INT(nsbx_stream_can_shutdown(a.s), true);
    CHECK_INT(end_write(&a, 100), 0);
    CHECK_INT(end_shutdown(&a), 0);
    CHECK_INT(end_shutdown(&a), 0);
    CHECK_INT(end_write(&a, 1), -NSBX_E_INVALID);
    TURN_UNTIL(b.eofs, 5000);
    CHECK_INT(b.got, 100);
    if (kind->duplex) {
        end_start(&a);
        CHECK_INT(end_write(&b, kind->bulk / 64), 0);
        CHECK_INT(end_shutdown(&b), 0);
        TURN_UNTIL(a.eofs, 20000);
        CHECK_INT(a.got, kind->bulk / 64);
        CHECK_INT(end_write(&b, 1), -NSBX_E_INVALID);
    } else {
        struct nsbx_err err = {0};
        CHECK_INT(nsbx_stream_can_shutdown(b.s), false);
        CHECK_INT(nsbx_stream_shutdown(b.s, &err), -NSBX_E_UNSUPPORTED);
        CHECK_INT(err.code, NSBX_E_UNSUPPORTED);
        CHECK_INT(end_write(&b, 1), -NSBX_E_INVALID);
    }
    CHECK_INT(a.errors + b.errors, 0);
    end_pair(&a, &b);
}

static void half_close_waits_for_the_queue(void)
{
    struct end a, b;
    rig_open();
    make_ends(&a, &b);
    nsbx_stream_read_stop(b.s);
    stuff(&a);
    CHECK_INT(end_shutdown(&a), 0);
    CHECK_INT(end_write(&a, 1), -NSBX_E_INVALID);
    turn_for(3);
    CHECK_INT(b.eofs, 0);
    end_start(&b);
    TURN_UNTIL(b.eofs, 20000);
    CHECK_INT(b.got, a.sent);
    CHECK_INT(a.drains, 1);
    end_pair(&a, &b);
}

static void nothing_is_read_after_the_end(void)
{
    struct end a, b;
    rig_open();
    make_ends(&a, &b);
    CHECK_INT(end_write(&a, 10), 0);
    CHECK_INT(end_shutdown(&a), 0);
    TURN_UNTIL(b.eofs, 5000);
    for (int i = 0; i < 3; i++) {
        nsbx_stream_read_stop(b.s);
        end_start(&b);
        turn_for(2);
    }
    end_close(&a);
    turn_for(3);
    end_start(&b);
    turn_for(3);
    CHECK_INT(b.eofs, 1);
    CHECK_INT(b.reads, kind->io ? (10 + (int)kind->io - 1) / (int)kind->io : kind->capacity == 1 ? 10 : 1);
    CHECK_INT(b.errors, 0);
    end_pair(&a, &b);
}

static void the_end_waits_for_a_stopped_reader(void)
{
    struct end a, b;
    rig_open();
    make_ends(&a, &b);
    nsbx_stream_read_stop(b.s);
    CHECK_INT(end_write(&a, 1), 0);
    CHECK_INT(end_shutdown(&a), 0);
    turn_for(5);
    CHECK_INT(b.reads + b.eofs, 0);
    b.stop_each = true;
    end_start(&b);
    TURN_UNTIL(b.got == 1, 5000);
    turn_for(5);
    CHECK_INT(b.eofs, 0);
    end_start(&b);
    TURN_UNTIL(b.eofs, 5000);
    end_pair(&a, &b);
}

/* ---- the end of a stream ---- */

static void close_drops_the_queue_and_all_callbacks(void)
{
    struct end a, b;
    rig_open();
    make_ends(&a, &b);
    nsbx_stream_read_stop(b.s);
    stuff(&a);
    uint64_t unsent = nsbx_stream_queued(a.s);
    end_close(&a);
    end_start(&b);
    TURN_UNTIL(b.eofs || b.errors, 20000);
    CHECK_INT(b.got, a.sent - unsent);
    CHECK_INT(a.drains, 0);
    end_pair(&a, &b);
}

static void writer_learns_that_its_reader_is_gone(void)
{
    struct end a, b;
    rig_open();
    make_ends(&a, &b);
    end_close(&b);
    int rc = 0;
    for (int i = 0; i < 50 && rc == 0; i++) { /* tcp takes the first, until the reset arrives */
        rc = end_write(&a, 100);
        turn_for(1);
    }
    CHECK_INT(rc, -NSBX_E_STREAM_LOST);
    TURN_UNTIL(a.errors, 5000);
    CHECK_INT(a.code, NSBX_E_STREAM_LOST);
    struct nsbx_err err = {0};
    CHECK_INT(nsbx_stream_write(a.s, "x", 1, &err), -NSBX_E_STREAM_LOST);
    CHECK_INT(err.code, NSBX_E_STREAM_LOST);
    CHECK(err.message[0]);
    CHECK_INT(nsbx_stream_shutdown(a.s, &err), -NSBX_E_STREAM_LOST);
    CHECK_INT(nsbx_stream_queued(a.s), 0);
    turn_for(5);
    CHECK_INT(a.errors, 1);
    end_pair(&a, &b);
}

static void queued_writer_learns_that_its_reader_is_gone(void)
{
    struct end a, b;
    rig_open();
    make_ends(&a, &b);
    nsbx_stream_read_stop(b.s);
    stuff(&a);
    end_close(&b);
    TURN_UNTIL(a.errors, 5000);
    CHECK_INT(a.code, NSBX_E_STREAM_LOST);
    CHECK_INT(a.drains, 0);
    CHECK_INT(end_write(&a, 1), -NSBX_E_STREAM_LOST);
    end_pair(&a, &b);
}

/* Closes b so that the other side sees a broken connection, not an end: with a byte unread. */
static void reset_by(struct end *b)
{
    CHECK_INT(end_write(b->peer, 1), 0);
    turn_for(3); /* it has arrived */
    end_close(b);
}

/* A pipe's reader has nothing to be reset by. */
static void a_reset_is_an_error_after_the_bytes_before_it(void)
{
    struct end a, b;
    rig_open();
    make_ends(&a, &b);
    nsbx_stream_read_stop(b.s);
    size_t n = NSBX_MIN(kind->capacity ? kind->capacity : 5000, kind->io ? kind->io : 5000);
    CHECK_INT(end_write(&b, n), 0);
    reset_by(&b);
    turn_for(3);
    CHECK_INT(a.errors, 0);
    end_start(&a);
    TURN_UNTIL(a.errors, 5000);
    CHECK_INT(a.got, n);
    CHECK_INT(a.eofs, 0);
    CHECK_INT(a.code, NSBX_E_STREAM_LOST);
    CHECK_INT(end_write(&a, 1), -NSBX_E_STREAM_LOST);
    end_start(&a);
    turn_for(3);
    end_pair(&a, &b);
}

static void failed_write_does_not_lose_what_came_before(void)
{
    struct end a, b;
    rig_open();
    make_ends(&a, &b);
    nsbx_stream_read_stop(b.s);
    size_t n = NSBX_MIN(kind->capacity ? kind->capacity : 5000, kind->io ? kind->io : 5000);
    end_start(&a);
    a.stop_each = true; /* this reader is a slow one */
    CHECK_INT(end_write(&b, n), 0);
    nsbx_stream_read_stop(a.s);
    reset_by(&b);
    int rc = 0;
    for (int i = 0; i < 50 && rc == 0; i++) {
        rc = end_write(&a, 100);
        turn_for(1);
    }
    CHECK_INT(rc, -NSBX_E_STREAM_LOST);
    turn_for(3);
    CHECK_INT(a.errors, 0); /* the bytes wait for the reader, and so does the error */
    CHECK_INT(a.got, 0);
    while (a.got < n && !harness_case_failed) {
        uint64_t got = a.got;
        end_start(&a);
        TURN_UNTIL(a.got > got, 5000);
    }
    turn_for(3);
    CHECK_INT(a.errors, 0);
    end_start(&a);
    TURN_UNTIL(a.errors, 5000);
    CHECK_INT(a.got, n);
    CHECK_INT(a.eofs, 0);
    end_pair(&a, &b);
}

static void dropped_queue_wakes_a_writer_who_does_not_read(void)
{
    struct end a, b;
    rig_open();
    make_ends(&a, &b);
    end_start(&a);
    nsbx_stream_read_stop(a.s);
    nsbx_stream_read_stop(b.s);
    stuff(&a);
    end_close(&b);
    TURN_UNTIL(a.drains, 5000);
    CHECK_INT(a.errors, 0);
    CHECK_INT(end_write(&a, 1), -NSBX_E_STREAM_LOST);
    end_start(&a);
    TURN_UNTIL(a.errors, 5000);
    CHECK_INT(a.drains, 1);
    end_pair(&a, &b);
}

/* ---- callbacks that do things ---- */

static void echo(struct end *e, char what)
{
    if (what == 'r' && e->got > e->sent) {
        int rc = end_write(e, e->got - e->sent);
        CHECK_INT(rc, 0);
        if (nsbx_stream_queued(e->s))
            nsbx_stream_read_stop(e->s);
    }
    if (what == 'd')
        end_start(e);
    if (what == 'e')
        CHECK_INT(end_shutdown(e), 0);
}

static void an_echo_with_back_pressure(void)
{
    struct end a, b;
    rig_open();
    make_ends(&a, &b);
    end_start(&a);
    b.hook = echo;
    a.to_send = kind->bulk / 4;
    a.hook = send_more;
    send_more(&a, 's');
    TURN_UNTIL(a.eofs, 60000);
    CHECK_INT(a.got, a.to_send);
    end_pair(&a, &b);
}

static char close_on;
static bool close_both;

static void close_inside(struct end *e, char what)
{
    if (what != close_on)
        return;
    if (close_both && e->peer->s)
        end_close(e->peer);
    end_close(e);
}

static void each_callback_may_close(void)
{
    static const char whats[] = "rexd";
    for (int i = 0; i < 8; i++) {
        struct end a, b;
        close_on = whats[i % 4];
        close_both = i >= 4;
        if (close_on == 'x' && !kind->duplex)
            continue;
        rig_open();
        make_ends(&a, &b);
        struct end *e = close_on == 'd' || close_on == 'x' ? &a : &b;
        e->hook = close_inside;
        if (close_on == 'x') {
            end_start(&a);
            nsbx_stream_read_stop(b.s);
            end_write(&b, 1);
            reset_by(&b);
        } else {
            nsbx_stream_read_stop(b.s);
            stuff(&a);
            if (close_on == 'e')
                CHECK_INT(end_shutdown(&a), 0);
            end_start(&b);
        }
        TURN_UNTIL(!e->s, 20000);
        end_pair(&a, &b);
    }
}

static void sigpipe_is_never_raised(void)
{
    /* Its default disposition ends the process, so arriving here at all is most of the check. */
    struct end a, b;
    signal(SIGPIPE, SIG_DFL);
    rig_open();
    make_ends(&a, &b);
    end_close(&b);
    for (int i = 0; i < 20; i++) {
        (void)end_write(&a, 1000);
        turn_for(1);
    }
    sigset_t now;
    pthread_sigmask(SIG_BLOCK, NULL, &now);
    CHECK(!sigismember(&now, SIGPIPE));
    sigpending(&now);
    CHECK(!sigismember(&now, SIGPIPE));
    end_pair(&a, &b);
}

static void stream_without_events_is_written(void)
{
    struct end a, b;
    rig_open();
    make_ends(&a, &b);
    nsbx_stream_set_events(a.s, NULL, NULL);
    nsbx_stream_read_stop(b.s);
    stuff(&a);
    end_start(&b);
    TURN_UNTIL(b.got == a.sent, 20000);
    end_close(&b);
    int rc = 0;
    for (int i = 0; i < 50 && rc == 0; i++) {
        rc = end_write(&a, 100);
        turn_for(1);
    }
    CHECK_INT(rc, -NSBX_E_STREAM_LOST);
    end_pair(&a, &b);
}

/* One stream that always has something must not hold up another. */
static void streams_are_served_in_turn(void)
{
    struct end a, b, c, d;
    rig_open();
    make_ends(&a, &b);
    make_ends(&c, &d);
    a.to_send = UINT64_MAX;
    a.hook = send_more;
    b.hook = send_more; /* does nothing but count */
    send_more(&a, 's');
    TURN_UNTIL(b.got > kind->bulk / 8, 20000);
    uint64_t before = b.got;
    CHECK_INT(end_write(&c, 1), 0);
    TURN_UNTIL(d.got, 5000);
    CHECK(b.got - before < 32u << 20);
    end_close(&c);
    end_close(&d);
    end_pair(&a, &b);
}

int main(void)
{
    rig_open(); /* libuv's process-wide descriptors are made by the first loop */
    nsbx_loop_free(loop);
    RUN_KINDS(a_long_transfer_arrives_byte_for_byte);
    RUN_DUPLEX_KINDS(both_directions_at_one_time);
    RUN_KINDS(one_write_as_large_as_the_queue);
    RUN_KINDS(two_part_writes_in_every_split);
    RUN_KINDS(a_stopped_reader_bounds_the_writer);
    RUN_KINDS(drain_comes_exactly_when_due);
    RUN_KINDS(read_stop_inside_on_read_is_honoured);
    RUN_KINDS(half_close_ends_one_direction_only);
    RUN_KINDS(half_close_waits_for_the_queue);
    RUN_KINDS(nothing_is_read_after_the_end);
    RUN_KINDS(the_end_waits_for_a_stopped_reader);
    RUN_KINDS(close_drops_the_queue_and_all_callbacks);
    RUN_KINDS(writer_learns_that_its_reader_is_gone);
    RUN_KINDS(queued_writer_learns_that_its_reader_is_gone);
    RUN_DUPLEX_KINDS(a_reset_is_an_error_after_the_bytes_before_it);
    RUN_DUPLEX_KINDS(failed_write_does_not_lose_what_came_before);
    RUN_DUPLEX_KINDS(dropped_queue_wakes_a_writer_who_does_not_read);
    RUN_DUPLEX_KINDS(an_echo_with_back_pressure);
    RUN_KINDS(each_callback_may_close);
    RUN_KINDS(sigpipe_is_never_raised);
    RUN_KINDS(stream_without_events_is_written);
    RUN_KINDS(streams_are_served_in_turn);
    return harness_done();
}
