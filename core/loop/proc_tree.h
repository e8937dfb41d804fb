/* The processes below this one: finding them and signalling them. Runs in a keeper: only the calls of
 * scripts/signal_safe.txt. Private to the spawn files.
 *
 * A descendant that is our own child cannot lose its number to another process, because only we reap it: plain kill is
 * exact. Any other one is held by a pidfd while its start time is compared, and signalled through that.
 *
 * Where /proc is missing, belongs to another pid namespace or hides processes, what is left is our own children (waitid
 * knows them without /proc) and their process groups. Deeper descendants become our children when what is above them dies. */
#ifndef NSBX_LOOP_PROC_TREE_H
#define NSBX_LOOP_PROC_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A power of two; three quarters of it are used. A larger tree is ended in several rounds: what dies in one makes room. */
enum { NSBX_TREE_SLOTS = 8192 };

struct nsbx_tree_slot {
    pid_t pid;     /* 0: free */
    bool own;      /* our own child */
    unsigned walk; /* the last one that met it */
    uint64_t start;
};
/* Large: make it static. Zero it once; it belongs to the process that uses it first. */
struct nsbx_tree {
    pid_t self; /* 0: not used yet */
    int proc;   /* directory /proc, or -1 */
    unsigned walk;
    size_t used;
    struct nsbx_tree_slot slots[NSBX_TREE_SLOTS];
};

/* Before the first walk too. */
void nsbx_tree_forget(struct nsbx_tree *t);
/* One walk over all descendants. Each that was not met since nsbx_tree_forget gets `signo`; with SIGSTOP its process group
 * gets it too, which unlike a walk is not outrun by forks. Returns how many were new. */
size_t nsbx_tree_signal_new(struct nsbx_tree *t, int signo);
/* Everything met since nsbx_tree_forget. */
void nsbx_tree_signal_all(struct nsbx_tree *t, int signo);

/* Calls `fn` for each of our own children, dead or alive; `fn` may reap it. One may be left out when others are reaped. */
void nsbx_tree_children(struct nsbx_tree *t, void (*fn)(void *ud, pid_t pid), void *ud);

#endif
