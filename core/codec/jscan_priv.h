/* The scanner's inside, shared by its three files: structure (jscan.c), strings and numbers. */
#ifndef NSBX_CODEC_JSCAN_PRIV_H
#define NSBX_CODEC_JSCAN_PRIV_H

#include "jscan.h"

enum { JSCAN_PATHS = 8, JSCAN_SCRATCH = 1024 };

enum jscan_state {
    JSCAN_VALUE,        /* a value must follow */
    JSCAN_VALUE_OR_END, /* after `[` */
    JSCAN_KEY,          /* after a comma in an object */
    JSCAN_KEY_OR_END,   /* after `{` */
    JSCAN_COLON,
    JSCAN_NEXT, /* after a value in a container: a comma or its end */
    JSCAN_STRING,
    JSCAN_NUMBER,
    JSCAN_WORD, /* true, false, null */
    JSCAN_DONE, /* the top value is complete: white space only */
};

/* Where the string that is being read goes. */
enum jscan_role {
    JSCAN_PLAIN,   /* to the rest */
    JSCAN_NAME,    /* a key: to the rest and to `word` */
    JSCAN_WATCHED, /* the same for a watched value */
    JSCAN_LARGE,   /* to the sink */
};

struct jscan_string {
    enum jscan_role role;
    bool escape;      /* a backslash was the last byte */
    uint8_t hex_left; /* digits of \uXXXX still to come */
    uint16_t unit;    /* those that came */
    uint16_t high;    /* an escaped high surrogate that waits for its low one; 0 = none */
    uint8_t held[4];  /* an incomplete character at the end of the last piece */
    uint8_t held_n;
    bool begun;    /* the sink was called for this string */
    bool overlong; /* `word` did not hold it */
    size_t word_n;
    size_t scratch_n;
    char word[NSBX_JSCAN_WATCH_MAX + 1];
    uint8_t scratch[JSCAN_SCRATCH]; /* short pieces for the sink, put together */
};

struct nsbx_jscan {
    struct nsbx_jscan_config config;
    const char *paths[2 * JSCAN_PATHS]; /* watch, then large */
    size_t watches, all;
    enum jscan_state state;
    uint64_t offset; /* of the next byte in the message */
    int failed;      /* what every further call returns */
    struct nsbx_err failure;
    struct nsbx_buf rest;

    size_t containers; /* opened so far */
    int depth;
    uint8_t deep[2 * JSCAN_PATHS]; /* components of each path that the enclosing objects are */
    uint32_t follow;               /* paths (bits) that the member being read is a further component of */
    int watch, large;              /* what the member's value is, or -1 */

    struct jscan_string string;
    enum jscan_number {
        JSCAN_NUM_NONE,
        JSCAN_NUM_MINUS,
        JSCAN_NUM_ZERO,
        JSCAN_NUM_INT,
        JSCAN_NUM_POINT,
        JSCAN_NUM_FRACTION,
        JSCAN_NUM_E,
        JSCAN_NUM_SIGN,
        JSCAN_NUM_EXPONENT,
    } number;
    size_t number_start; /* in rest */
    const char *word;    /* what is left of the literal */
    uint8_t objects[];   /* a bit a level: it is an object */
};

/* Appends to the rest, within its maximum. */
int nsbx_jscan_put(struct nsbx_jscan *s, const void *bytes, size_t n);
/* Fails with PROTOCOL: `what` is wrong `at` bytes after s->offset. */
int nsbx_jscan_reject(struct nsbx_jscan *s, size_t at, const char *what);

void nsbx_jscan_string_begin(struct nsbx_jscan *s, enum jscan_role role);
/* Bytes inside a string: *used of them were taken; *closed when the last of these was its quote. */
int nsbx_jscan_string(struct nsbx_jscan *s, const uint8_t *p, size_t n, size_t *used, bool *closed);
/* Hands the sink what waits for it. */
int nsbx_jscan_string_flush(struct nsbx_jscan *s, bool end);

/* The state after the first byte of a number, which is a digit or a minus. */
enum jscan_number nsbx_jscan_number_begin(uint8_t first);
/* Further bytes of a number; *used < n when it ended before p[*used]. */
int nsbx_jscan_number(struct nsbx_jscan *s, const uint8_t *p, size_t n, size_t *used);
/* Its end, `at` bytes after s->offset: what a strict parser with 64-bit integers and finite reals would refuse is
 * written another way. */
int nsbx_jscan_number_end(struct nsbx_jscan *s, size_t at);

#endif
