/* A keeper and what it tells, for the specs of nsbx_keeper_*. */
#ifndef NSBX_SPEC_KEEPER_SUPPORT_H
#define NSBX_SPEC_KEEPER_SUPPORT_H

#include "spawn_support.h"

/* What a keeper told, in order. */
struct story {
    struct nsbx_keeper *keeper;
    bool started, failed, leader_ended, tree_ended, lost, over;
    int events;
    pid_t leader;
    struct nsbx_exit exit;
    struct nsbx_err err;
    char close_at; /* closes the keeper in this event: s, f, l, t, x */
    uint64_t leader_at, end_at;
};

static inline void maybe_close(struct story *s, char event)
{
    s->events++;
    if (s->close_at != event)
        return;
    nsbx_keeper_close(s->keeper, true);
    s->keeper = NULL;
}

static inline void on_started(void *ud, pid_t leader)
{
    struct story *s = ud;
    CHECK(!s->events);
    s->started = true;
    s->leader = leader;
    maybe_close(s, 's');
}

static inline void on_failed(void *ud, const struct nsbx_err *err)
{
    struct story *s = ud;
    CHECK(!s->events);
    s->failed = s->over = true;
    s->err = *err;
    maybe_close(s, 'f');
}

static inline void on_leader_exit(void *ud, const struct nsbx_exit *exit)
{
    struct story *s = ud;
    CHECK(s->started && !s->leader_ended && !s->over);
    s->leader_ended = true;
    s->exit = *exit;
    s->leader_at = nsbx_now_ms();
    maybe_close(s, 'l');
}

static inline void on_tree_end(void *ud)
{
    struct story *s = ud;
    CHECK(s->leader_ended && !s->over);
    s->tree_ended = s->over = true;
    s->end_at = nsbx_now_ms();
    maybe_close(s, 't');
}

static inline void on_lost(void *ud, const struct nsbx_err *err)
{
    struct story *s = ud;
    CHECK(!s->over);
    s->lost = s->over = true;
    s->err = *err;
    maybe_close(s, 'x');
}

static const struct nsbx_keeper_events events = {on_started, on_failed, on_leader_exit, on_tree_end, on_lost};

static inline bool begin(struct story *s, const struct command *c)
{
    struct nsbx_err err;
    int rc = nsbx_keeper_start(loop, &c->spec, &events, s, &s->keeper, &err);
    if (rc)
        fprintf(stderr, "%s\n", err.message);
    return rc == 0;
}

static inline void end(struct story *s, uint32_t grace_ms)
{
    struct nsbx_err err;
    CHECK_INT(nsbx_keeper_end(s->keeper, grace_ms, &err), 0);
}

static inline void finish(struct story *s)
{
    CHECK(turn_until(&s->over, 20000));
    nsbx_keeper_close(s->keeper, true);
    s->keeper = NULL;
}

/* Nothing is left: no process of ours, nothing on the loop. */
static inline void check_clean(const char *name)
{
    bool none = false;
    for (int i = 0; !(none = childless()) && i < 400; i++) /* a closed keeper may just be ending */
        turn_until(NULL, 5);
    CHECK(none);
    if (name)
        CHECK_INT(alive(name), 0);
    CHECK_INT(nsbx_loop_live(loop, NULL, NULL), 0);
}

#endif
