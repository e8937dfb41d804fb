/* What runs between fork and exec, in a process that may have been copied from a program with many threads: only the
 * calls of scripts/signal_safe.txt, no allocation, no lock. Private to the spawn files. */
#ifndef NSBX_LOOP_SPAWN_CHILD_H
#define NSBX_LOOP_SPAWN_CHILD_H

#include "spawn.h"

/* Where a start failed. */
enum nsbx_spawn_stage {
    NSBX_SPAWN_STAGE_NONE,
    NSBX_SPAWN_STAGE_FORK,
    NSBX_SPAWN_STAGE_SESSION,
    NSBX_SPAWN_STAGE_DESCRIPTORS,
    NSBX_SPAWN_STAGE_TERMINAL,
    NSBX_SPAWN_STAGE_LIMITS,
    NSBX_SPAWN_STAGE_KEYRING,
    NSBX_SPAWN_STAGE_IDENTITY,
    NSBX_SPAWN_STAGE_DIRECTORY,
    NSBX_SPAWN_STAGE_PARENT,
    NSBX_SPAWN_STAGE_EXEC,
};

struct nsbx_spawn_report {
    int stage; /* enum nsbx_spawn_stage */
    int sys;   /* errno */
};

/* A spec made ready before the fork, see nsbx_spawn_plan. */
struct nsbx_spawn_plan {
    const struct nsbx_spawn *spec;
    const char *search; /* directories to try, separated by ':'; NULL: spec->file is used as it is */
    bool own_group;     /* without a session of its own: at least a process group */
    int first_free;     /* above 2 and every target descriptor */
};

/* Turns the calling process, in which every signal is blocked, into the program. Returns only when that failed, with the
 * reason in *report. `parent` is the process that must still be the parent when parent_death_signal is asked for.
 * `keep_fd` (≥ plan->first_free, close-on-exec) stays open until the exec; -1 for none. */
void nsbx_spawn_exec(const struct nsbx_spawn_plan *plan, pid_t parent, int keep_fd,
                     struct nsbx_spawn_report *report);

/* The same for a forked process, which writes the report, one struct nsbx_spawn_report, to `report_fd` and ends when that
 * failed. The exec closes it. */
_Noreturn void nsbx_spawn_child_main(const struct nsbx_spawn_plan *plan, pid_t parent, int report_fd);

/* Closes every descriptor but those n, which it sorts; negative ones and repetitions are fine. 0 or an errno. */
int nsbx_spawn_close_except(int *keep, size_t n);

/* Sets a signal's disposition to the default one. */
void nsbx_spawn_default_signal(int signo);
/* All of them, libc's own two too, or none. */
void nsbx_spawn_block_signals(bool block);

#endif
