/* The Lua modules of lua/nsbx, compiled into the program as text (the build writes embedded.c from the files). */
#ifndef NSBX_BIND_EMBEDDED_H
#define NSBX_BIND_EMBEDDED_H

#include <stddef.h>

struct nsbx_embedded {
    const char *name; /* "nsbx/flow" */
    const char *text;
    size_t len;
};
extern const struct nsbx_embedded nsbx_embedded[]; /* ended by a NULL name */

#endif
