/* The processes below this one: finding them and signalling them. Runs in a keeper: only the calls of
 * scripts/signal_safe.txt. Private to the spawn files.
 *
 * A descendant that is our own child cannot lose its number to another process, because only we reap it: plain kill is
 * exact. Any other one is held by a pidfd while its start time is compared, and signalled through that.
 *
 * Where /proc is missing, belongs to another pid namespace or hides processes, what is left is our own children (waitid
 * knows them without /proc) and their process groups. Deeper descendants become our children when what is above them dies:
 * such a tree is ended layer by layer, and one that forks faster than that goes on. */
#ifndef NSBX_LOOP_PROC_TREE_H
#define NSBX_LOOP_PROC_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Zero it once; it belongs to the process that uses it first. */
struct nsbx_tree {
    pid_t self; /* 0: not used yet */
    int proc;   /* directory /proc, or -1 */
    /* One slot for every number there can be: a tree never has too many processes. Address space only, but for the pages of
     * what was met. NULL when there is none to have: then our own children are all that is known, and none is remembered. */
    struct nsbx_tree_slot *slots;
    pid_t low, high; /* of what was met */
    uint32_t round;  /* counts nsbx_tree_forget */
    uint32_t walk;   /* counts the walks */
};

/* Before the first walk too. */
void nsbx_tree_forget(struct nsbx_tree *t);
/* One walk over all descendants. Each that was not met since nsbx_tree_forget gets `signo`; where nothing can be remembered,
 * SIGSTOP becomes SIGKILL. Returns how many were new, 0 where the next walk would know no better. */
size_t nsbx_tree_signal_new(struct nsbx_tree *t, int signo);
/* Everything met since nsbx_tree_forget. */
void nsbx_tree_signal_all(struct nsbx_tree *t, int signo);

/* Calls `fn` for each of our own children, dead or alive; it may reap it, and returns whether it was one of those looked for
 * (where a search is expensive, it goes on until there was one). One may be left out when others are reaped. */
void nsbx_tree_children(struct nsbx_tree *t, bool (*fn)(void *ud, pid_t pid), void *ud);

#endif
