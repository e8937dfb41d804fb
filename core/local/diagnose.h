/* What went wrong when bubblewrap ended before the agent answered: its own words, and what mends it. */
#ifndef NSBX_LOCAL_DIAGNOSE_H
#define NSBX_LOCAL_DIAGNOSE_H

#include "base/err.h"

/* Fills err from bwrap's stderr (`said`, NUL-terminated, may be empty) and returns its negative code. `uid`: the host uid it ran as. */
int nsbx_diagnose_bwrap(const char *said, long uid, struct nsbx_err *err);
/* bwrap itself could not be started; err is filled by the spawn and gets the advice. */
int nsbx_diagnose_missing(struct nsbx_err *err);

#endif
