#include "nearest.h"

#include "base/util.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

void nsbx_nearest_init(struct nsbx_nearest *n, const char *wanted)
{
    size_t len = strlen(wanted);
    n->wanted = wanted;
    n->best[0] = 0;
    /* One edit in a short word, one more for each five letters; beyond it is another word. */
    n->distance = (unsigned)NSBX_MIN(len, NSBX_NEAREST_MAX) / 5 + 2;
}

/* Edits to make one of the other, where a swap of neighbours is one edit (optimal string alignment); the case is ignored. */
static unsigned distance(const char *a, size_t an, const char *b, size_t bn)
{
    unsigned rows[3][NSBX_NEAREST_MAX + 1];
    unsigned *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= bn; j++)
        last[j] = before[j] = (unsigned)j;
    for (size_t i = 1; i <= an; i++) {
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= bn; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            row[j] = NSBX_MIN(NSBX_MIN(last[j], row[j - 1]) + 1, last[j - 1] + (x != y));
            bool swapped =
                i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) && y == tolower((unsigned char)a[i - 2]);
            if (swapped)
                row[j] = NSBX_MIN(row[j], before[j - 2] + 1);
        }
        unsigned *spare = before;
        before = last;
        last = row;
        row = spare;
    }
    return last[bn];
}

void nsbx_nearest_offer(struct nsbx_nearest *n, const char *name)
{
    size_t an = strlen(n->wanted), bn = strlen(name);
    if (an > NSBX_NEAREST_MAX || bn >= NSBX_NEAREST_MAX)
        return;
    unsigned d = distance(n->wanted, an, name, bn);
    if (d < n->distance) {
        n->distance = d;
        snprintf(n->best, sizeof n->best, "%s", name);
    }
}
