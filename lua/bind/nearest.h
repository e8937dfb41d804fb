/* The nearest of some names to a mistyped one. No allocation, no Lua. */
#ifndef NSBX_BIND_NEAREST_H
#define NSBX_BIND_NEAREST_H

enum { NSBX_NEAREST_MAX = 48 };

struct nsbx_nearest {
    const char *wanted; /* borrowed while offering */
    unsigned distance;
    char best[NSBX_NEAREST_MAX]; /* a copy; "" when nothing was near enough */
};
void nsbx_nearest_init(struct nsbx_nearest *n, const char *wanted);
void nsbx_nearest_offer(struct nsbx_nearest *n, const char *name);

#endif
