/* What the jail's two files share: the roots (jail.c) and the walk of components below one (trail.c). */
#ifndef NSBX_AGENT_JAIL_PRIV_H
#define NSBX_AGENT_JAIL_PRIV_H

#include "jail.h"

struct nsbx_jail_root {
    int fd;                   /* O_PATH, -1 = not opened yet (or removed since) */
    char path[NSBX_PATH_MAX]; /* as configured, normalised */
    char real[NSBX_PATH_MAX]; /* without links, "" until opened: absolute links may name the root so too */
};

/* A walk under way. `dir` is always a directory that was reached from the root by names alone, never through a link. */
struct nsbx_trail {
    const struct nsbx_jail_root *root;
    int root_fd, dir; /* O_PATH, owned */
    bool make;    /* missing directories are made, those that the path itself names, not those that a link does */
    size_t own;   /* bytes at the end of todo that are the path's own */
    bool of_link; /* the name at hand is a link's */
    unsigned links, steps;
    char done[NSBX_PATH_MAX];     /* the names that lead from the root to dir: "a/b", "" */
    char todo[2 * NSBX_PATH_MAX]; /* what is still to be walked */
    int link_dir; /* where the first name in last place was, link or not; owned; -1 = none was reached */
    char link_name[NAME_MAX + 1];
};
/* Takes `root_fd` over. */
int nsbx_trail_begin(struct nsbx_trail *t, const struct nsbx_jail_root *root, int root_fd, const char *below,
                     bool make);
/* Walks up to the last name, following it too while it is a link: `name` is then no link in t->dir, or is missing there, or is ".".
 * -EXDEV: a link leads out. -ELOOP: too many links. Other -errno. */
int nsbx_trail_walk(struct nsbx_trail *t, char name[NAME_MAX + 1]);
void nsbx_trail_end(struct nsbx_trail *t);

#endif
