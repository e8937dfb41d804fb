/* Running one child to its end, for the specs of nsbx_child_*. */
#ifndef NSBX_SPEC_SPAWN_RUN_H
#define NSBX_SPEC_SPAWN_RUN_H

#include "spawn_support.h"

struct result {
    bool ended;
    int calls;
    struct nsbx_exit exit;
};

static inline void on_exit_cb(void *ud, const struct nsbx_exit *exit)
{
    struct result *r = ud;
    r->ended = true;
    r->calls++;
    r->exit = *exit;
}

/* Runs it to its end. 0 or the error of the start. */
static inline int run(struct command *c, struct result *r, struct nsbx_err *err)
{
    struct nsbx_child *child;
    *r = (struct result){0};
    int rc = nsbx_child_start(loop, &c->spec, on_exit_cb, r, &child, err);
    if (rc)
        return rc;
    if (!turn_until(&r->ended, 10000))
        fprintf(stderr, "%s did not end in 10 s\n", c->argv[1]);
    nsbx_child_close(child);
    return 0;
}

/* Runs it with a pipe as its stdout and returns what it wrote; static. */
static inline const char *output_of(struct command *c)
{
    struct result r;
    struct nsbx_err err;
    struct pipe_ends out = make_pipe();
    map_fd(c, out.write, 1);
    int rc = run(c, &r, &err);
    if (rc)
        fprintf(stderr, "%s\n", err.message);
    return read_all(out);
}

#endif
