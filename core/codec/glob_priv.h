/* A compiled pattern, shared by the files of glob: braces, classes, parsing of a segment, compiling, matching. */
#ifndef NSBX_CODEC_GLOB_PRIV_H
#define NSBX_CODEC_GLOB_PRIV_H

#include "glob.h"

#include "base/buf.h"
#include "base/limits.h"

/* A character is a code point, or a byte that belongs to none. */
#define GLOB_BYTE 0x110000u

/* --- classes: [a-z], [[:alpha:]] --- */

enum glob_kind { /* of a code point: the general categories that classes tell apart */
                 GLOB_X,
                 GLOB_L,
                 GLOB_LU,
                 GLOB_LL,
                 GLOB_LULL, /* a run in which capitals and their small letters alternate */
                 GLOB_ND,
                 GLOB_P,
                 GLOB_PC,
                 GLOB_Z,
                 GLOB_ZS,
                 GLOB_C,
                 GLOB_CC,
};
extern const uint32_t nsbx_glob_runs[];
extern const size_t nsbx_glob_run_count;

struct glob_range {
    uint32_t low, high;
};
struct glob_class {
    uint32_t first, count; /* ranges */
    uint16_t named;        /* bits of the POSIX classes */
    bool negated;
    bool impossible; /* it holds nothing ([z-a]) or a range to a class ([a-[:alpha:]]): it matches no name */
};
/* Reads the class at p[0] == '['; its ranges are appended. Returns its length; 0 when it has no end (the bracket stands
 * for itself); negative without memory. */
long nsbx_glob_class_parse(struct glob_class *class, const char *p, size_t n, struct nsbx_buf *ranges,
                           struct nsbx_err *err);
bool nsbx_glob_class_has(const struct glob_class *class, const struct glob_range *ranges, uint32_t c);
/* The character at p[0..n), n ≥ 1, and its length. */
size_t nsbx_glob_char(const char *p, size_t n, uint32_t *c);

/* --- braces --- */

/* Calls `branch` for each text that the braces of pattern[0..len) stand for, in order; stops at its first non-zero. */
int nsbx_glob_expand(const char *pattern, size_t len,
                     int (*branch)(void *ud, const char *text, size_t n, struct nsbx_err *err), void *ud,
                     struct nsbx_err *err);

/* --- segments --- */

enum glob_op {
    GLOB_END,   /* the name ends here */
    GLOB_CHAR,  /* the character `arg`, then `next` */
    GLOB_ANY,   /* a character, then `next` */
    GLOB_CLASS, /* one of class `arg`, then `next` */
    GLOB_FAIL,
    GLOB_STAR, /* any characters, then `next` */
    GLOB_OR,   /* `next` or `arg` */
    GLOB_NOT,  /* `next`, but not `arg` */
    GLOB_BACK, /* the end of a loop's body: what its GLOB_LOOP says */
    GLOB_LOOP, /* `next`; `arg` is the GLOB_BACK */
};
/* Each node says whether the rest of a name from some place on matches. `next` and `arg` name earlier nodes. */
struct glob_node {
    uint8_t op;
    uint16_t next;
    uint32_t arg;
};
enum glob_what { GLOB_LITERAL, GLOB_GLOBSTAR, GLOB_NODES };
struct glob_segment {
    uint8_t what;
    bool last;      /* of its branch */
    uint16_t entry; /* the node that stands for the whole segment */
    uint16_t node_count;
    uint32_t nodes;     /* the first */
    uint32_t literal;   /* the whole name, or with nodes what it must end with */
    uint32_t literal_n; /* bytes */
};

struct nsbx_glob {
    bool hidden;
    bool named;               /* there was a branch, if one that no name can match */
    struct nsbx_buf segments; /* struct glob_segment, branch by branch */
    struct nsbx_buf starts;   /* uint32_t: the first segment of each branch */
    struct nsbx_buf literals; /* text */
    struct nsbx_buf nodes;    /* struct glob_node */
    struct nsbx_buf classes;  /* struct glob_class */
    struct nsbx_buf ranges;   /* struct glob_range */
};
/* Compiles one segment that is not `**` into *out (`last` is left to the caller). */
int nsbx_glob_segment(struct nsbx_glob *g, const char *text, size_t n, struct glob_segment *out,
                      struct nsbx_err *err);

/* --- matching --- */

struct glob_name {
    const char *bytes;
    size_t n;
    bool dotted; /* wildcards must not match its leading dot */
    bool decoded;
    size_t count;                  /* characters, once a segment needed them */
    uint32_t chars[NSBX_PATH_MAX]; /* not initialised */
};
bool nsbx_glob_match(const struct nsbx_glob *g, const struct glob_segment *segment, struct glob_name *name);

#endif
