/* What the spawn files share on the parent's side. */
#ifndef NSBX_LOOP_SPAWN_PRIV_H
#define NSBX_LOOP_SPAWN_PRIV_H

#include "loop_priv.h"
#include "spawn_child.h"

/* Checks the spec, which is borrowed for as long as the plan is used. -NSBX_E_INVALID. */
int nsbx_spawn_plan(struct nsbx_spawn_plan *plan, const struct nsbx_spawn *spec, struct nsbx_err *err)
    __attribute__((warn_unused_result));

/* The texts of a spec that an error names, for when the spec itself is gone; cut to fit. */
struct nsbx_spawn_names {
    char file[160];
    char cwd[160];
};
void nsbx_spawn_names(struct nsbx_spawn_names *names, const struct nsbx_spawn *spec);
/* The error of a report from the child; returns its -code. */
int nsbx_spawn_error(const struct nsbx_spawn_report *report, const struct nsbx_spawn_names *names,
                     struct nsbx_err *err);

/* ---- a process that this program forked; a keeper is one too ---- */

/* `kind` as for nsbx_object_open. `on_exit` is called from the loop, once. */
int nsbx_child_new(struct nsbx_loop *loop, const char *kind,
                   void (*on_exit)(void *ud, const struct nsbx_exit *exit), void *ud, struct nsbx_child **out,
                   struct nsbx_err *err) __attribute__((warn_unused_result));
/* Forks, without the handlers of pthread_atfork; every signal is blocked in the child. Returns 0 there, the pid here, or an
 * error. With `exit_signal` 0 the end of a child that does not exec raises no signal, and only waits that ask for it
 * (__WALL) see it: an embedder's wait for any child does not. */
pid_t nsbx_child_fork(struct nsbx_child *c, int exit_signal, struct nsbx_err *err)
    __attribute__((warn_unused_result));
/* From now on its end is looked for. */
int nsbx_child_await(struct nsbx_child *c, struct nsbx_err *err) __attribute__((warn_unused_result));
/* Waits, blocking, for one that is known to be ending, before nsbx_child_await. */
void nsbx_child_reap_now(struct nsbx_child *c);

/* It is there, but a signal has stopped it. */
bool nsbx_child_stopped(const struct nsbx_child *c);

#endif
