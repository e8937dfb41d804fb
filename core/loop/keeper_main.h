/* The keeper's side: the process between the program and one command. Only the calls of scripts/signal_safe.txt.
 * Private to the spawn files. */
#ifndef NSBX_LOOP_KEEPER_MAIN_H
#define NSBX_LOOP_KEEPER_MAIN_H

#include "spawn_child.h"

/* One datagram of the control socket, a SOCK_SEQPACKET pair. The end of file tells the keeper that the program is gone. */
enum nsbx_keeper_type {
    /* from the keeper */
    NSBX_KEEPER_STARTED = 1, /* a = the leader's pid */
    NSBX_KEEPER_FAILED,      /* a = enum nsbx_spawn_stage, b = errno; the keeper ends */
    NSBX_KEEPER_LEADER_EXIT, /* a = code or -1, b = signal or 0 */
    NSBX_KEEPER_TREE_END,    /* the keeper ends */
    /* to the keeper */
    NSBX_KEEPER_SIGNAL,  /* a = signal, b = 1 for the whole tree, 0 for the leader's group */
    NSBX_KEEPER_END,     /* a = grace in milliseconds */
    NSBX_KEEPER_RELEASE, /* the end of file that follows is no reason to end the tree */
};
struct nsbx_keeper_msg {
    int32_t type, a, b;
};

/* The life of a keeper, called in the forked process with every signal blocked. `control` is its end of the socket. */
_Noreturn void nsbx_keeper_main(const struct nsbx_spawn_plan *plan, int control);

#endif
