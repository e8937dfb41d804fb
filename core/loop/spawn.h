/* Processes: the one spawn file of both programs. No uv_spawn, no SIGCHLD handler: a child is awaited by its pidfd.
 *
 * nsbx_child_*  starts one program and awaits it (the host's bubblewrap).
 * nsbx_keeper_* starts a command under a keeper: a tiny subreaper process that starts the command and holds it unreaped, so
 *               that every descendant, `setsid` or double-forked, stays below it and can be ended exactly. One per execution.
 *
 * Between fork and exec, and in the keeper, only the async-signal-safe calls that scripts/check lists are made. The child
 * starts with no inherited descriptor beyond those named, an empty signal mask and default dispositions, its own session
 * when asked, and the given limits; a failed exec's errno comes back through a close-on-exec pipe. */
#ifndef NSBX_LOOP_SPAWN_H
#define NSBX_LOOP_SPAWN_H

#include "base/err.h"
#include "loop.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

struct nsbx_fd_map {
    int from; /* a descriptor of this process */
    int to;   /* its number in the child */
};
struct nsbx_rlimit {
    int resource; /* RLIMIT_… */
    struct rlimit value;
};
enum { NSBX_SPAWN_MAX_FDS = 16, NSBX_SPAWN_MAX_RLIMITS = 8 };

/* All pointers are borrowed for the call. */
struct nsbx_spawn {
    /* With a slash: that file; without: searched on PATH of `envp`, or on /usr/local/bin:/usr/bin:/bin when it has none. */
    const char *file;
    const char *const *argv; /* NULL-terminated, argv[0] included */
    const char *const *envp; /* NULL-terminated, complete: nothing is inherited */
    const char *cwd;         /* NULL = unchanged */
    int cwd_fd;              /* used instead when ≥ 0 */
    /* 0, 1 and 2 default to /dev/null; any permutation is fine, a number in `to` twice is not. */
    struct nsbx_fd_map fds[NSBX_SPAWN_MAX_FDS];
    size_t n_fds;
    struct nsbx_rlimit rlimits[NSBX_SPAWN_MAX_RLIMITS];
    size_t n_rlimits;
    bool new_session; /* setsid: pgid = sid = pid */
    /* A session keyring of its own, empty, instead of the parent's, whose keys the child could read and change. Where the
     * kernel has no keyrings, or a filter refuses them, there is nothing to part from: the child has that filter too. */
    bool new_keyring;
    bool drop; /* become uid and gid below, all supplementary groups cleared, before exec */
    uid_t uid;
    gid_t gid;
    int parent_death_signal; /* 0 = none; follows the spawning thread, or the keeper */
    /* ≥ 0: this descriptor number of the child (after mapping) becomes the controlling terminal, which wants new_session;
     * else -1. */
    int controlling_tty;
};
void nsbx_spawn_init(struct nsbx_spawn *s); /* zero, cwd_fd and controlling_tty -1 */

struct nsbx_exit {
    bool known; /* false: somebody else took the status */
    int code;   /* exit code, or -1 when a signal ended it */
    int signal; /* 0, or the signal */
};

struct nsbx_child;
/* Starts and waits (briefly, blocking) for the exec to succeed: -NSBX_E_NOT_FOUND, … with the errno when it did not. */
int nsbx_child_start(struct nsbx_loop *loop, const struct nsbx_spawn *spec,
                     void (*on_exit)(void *ud, const struct nsbx_exit *exit), void *ud, struct nsbx_child **out,
                     struct nsbx_err *err) __attribute__((warn_unused_result));
pid_t nsbx_child_pid(const struct nsbx_child *c);
int nsbx_child_kill(struct nsbx_child *c, int signo, struct nsbx_err *err); /* by pidfd; 0 also when it has ended */
/* Forgets it (a zombie is still reaped when it ends, as long as the loop is turned); no callback after; NULL is fine. */
void nsbx_child_close(struct nsbx_child *c);

struct nsbx_keeper;
/* All from the loop, in this order; each at most once. Exactly one of on_started and on_failed, unless on_lost comes first.
 * The last one is on_failed, on_tree_end or on_lost. Any of them may close the keeper. */
struct nsbx_keeper_events {
    void (*on_started)(void *ud, pid_t leader); /* exec succeeded */
    /* exec (or what comes before) failed; the keeper is gone; close it */
    void (*on_failed)(void *ud, const struct nsbx_err *err);
    /* the leader ended; it is still unreaped while anything else of the tree lives */
    void (*on_leader_exit)(void *ud, const struct nsbx_exit *exit);
    void (*on_tree_end)(void *ud); /* nothing of the tree is left (ECHILD), the keeper has ended */
    /* the keeper itself was killed: what is below it is unknown */
    void (*on_lost)(void *ud, const struct nsbx_err *err);
};
int nsbx_keeper_start(struct nsbx_loop *loop, const struct nsbx_spawn *spec,
                      const struct nsbx_keeper_events *events, void *ud, struct nsbx_keeper **out,
                      struct nsbx_err *err) __attribute__((warn_unused_result));
/* To the leader's process group (safe: the leader is held unreaped), or to every process of the tree (SIGKILL: ends it).
 * No effect after the tree's end. -NSBX_E_INVALID for what is no signal. */
int nsbx_keeper_signal(struct nsbx_keeper *k, int signo, bool tree, struct nsbx_err *err);
/* Ends the tree: TERM (and CONT, for what is stopped) to the leader's group, grace, STOP until two walks agree, KILL, reap.
 * on_tree_end follows. Without grace there is no TERM. Idempotent; a shorter grace shortens a running one. */
int nsbx_keeper_end(struct nsbx_keeper *k, uint32_t grace_ms, struct nsbx_err *err);
/* Kills a keeper that is stopped (a command of its own user can do that again and again): on_lost follows. False: it is not. */
bool nsbx_keeper_give_up(struct nsbx_keeper *k);
/* No callback after it. What still runs lives on (kill=false), or is ended without grace (kill=true); the keeper ends with
 * it. NULL is fine. */
void nsbx_keeper_close(struct nsbx_keeper *k, bool kill);
pid_t nsbx_keeper_pid(const struct nsbx_keeper *k);

/* For a PID 1 (or subreaper) program: reaps ended processes that are none of our children or keepers (orphans of a keeper that
 * was killed). Call it on SIGCHLD. Never takes the status of a known child. Returns how many. */
size_t nsbx_reap_strangers(void);
/* For a PID 1 at its own end: kills every other process of its pid namespace and waits until there is none. Blocks. Does nothing
 * in any other process. */
void nsbx_end_namespace(void);

const char *nsbx_signal_name(int signo);   /* "SIGTERM", "SIGRTMIN+3"; NULL when unknown */
int nsbx_signal_of_name(const char *name); /* "SIGTERM" or "TERM" in any case; 0 when unknown */

#endif
