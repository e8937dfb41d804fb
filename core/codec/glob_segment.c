/* One segment of a pattern: read into a tree of elements, then compiled to nodes from its end to its start. */
#include "glob_priv.h"
#include "utf8_priv.h"

#include "base/util.h"

#include <string.h>

enum kind {
    CHARACTER,
    ANY,
    STAR,
    LONE_STAR, /* with nothing but extglobs beside it, in the segment itself or in an alternative of !(…) */
    CLASS,
    IMPOSSIBLE,
    EXTGLOB,
    ALTERNATIVE
};

struct element {
    uint8_t kind;
    uint32_t arg; /* character, class, or the letter of an extglob */
    int child;    /* an extglob's last alternative, an alternative's last element */
    int before;   /* the element or alternative before this one */
};
enum { NONE = 0 }; /* the index of no element: the first is a dummy; failures are negative */

struct parser {
    struct nsbx_glob *g;
    const char *p;
    size_t n, at;
    bool plain;   /* an extglob without an end was met: no further ones are looked for */
    bool magic;   /* more than literal text */
    bool negates; /* there is a !(…) */
    bool lone;    /* there is a LONE_STAR */
    bool strict;  /* a LONE_STAR is compiled as one character at least */
    struct nsbx_buf elements;
    size_t first_node;
    struct nsbx_err *err;
};

/* --- reading --- */

static struct element *element_at(const struct parser *ps, int index)
{
    return (struct element *)nsbx_buf_data(&ps->elements) + index;
}

/* The index of a new element, negative without memory. */
static int add(struct parser *ps, enum kind kind, uint32_t arg, int child, int before)
{
    struct element element = {.kind = (uint8_t)kind, .arg = arg, .child = child, .before = before};
    ps->magic |= kind != CHARACTER;
    int rc = nsbx_buf_append(&ps->elements, &element, sizeof(element), ps->err);
    return rc ? rc : (int)(ps->elements.len / sizeof(element)) - 1;
}

static int add_character(struct parser *ps, uint32_t c, int before)
{
    uint8_t bytes[4] = {(uint8_t)(c - GLOB_BYTE)};
    size_t len = c >= GLOB_BYTE ? 1 : nsbx_utf8_encode(bytes, c);
    int rc = nsbx_buf_append(&ps->g->literals, bytes, len, ps->err);
    return rc ? rc : add(ps, CHARACTER, c, NONE, before);
}

static bool opens_extglob(const struct parser *ps, size_t at)
{
    return at + 1 < ps->n && ps->p[at + 1] == '(' && strchr("?*+@!", ps->p[at]) != NULL && ps->p[at] != 0;
}

/* The length of what stands at `at` and may hold brackets that are not its own: an escape, a class, else one byte. */
static long skip_one(const struct parser *ps, size_t at)
{
    struct glob_class class;
    size_t ranges = ps->g->ranges.len;
    if (ps->p[at] == '\\')
        return at + 1 < ps->n ? 2 : 1;
    long len =
        ps->p[at] == '[' ? nsbx_glob_class_parse(&class, ps->p + at, ps->n - at, &ps->g->ranges, ps->err) : 0;
    ps->g->ranges.len = ranges;
    return len ? len : 1;
}

/* 1 when the extglob that opens here has its end, 0 when not, negative without memory. */
static int extglob_ends(const struct parser *ps)
{
    size_t depth = 0;
    for (size_t at = ps->at; at < ps->n;) {
        if (opens_extglob(ps, at)) {
            depth++;
            at += 2;
        } else if (ps->p[at] == ')' && --depth == 0)
            return 1;
        else {
            long len = skip_one(ps, at);
            if (len < 0)
                return (int)len;
            at += (size_t)len;
        }
    }
    return 0;
}

static int read_sequence(struct parser *ps, int depth);

static void mark_lone_stars(struct parser *ps, int last)
{
    for (int at = last, after = NONE; at != NONE; after = at, at = element_at(ps, at)->before) {
        int before = element_at(ps, at)->before;
        if (element_at(ps, at)->kind == STAR && (before == NONE || element_at(ps, before)->kind == EXTGLOB) &&
            (after == NONE || element_at(ps, after)->kind == EXTGLOB)) {
            element_at(ps, at)->kind = LONE_STAR;
            ps->lone = true;
        }
    }
}

/* At the letter of an extglob that has its end. */
static int read_extglob(struct parser *ps, int depth, int before)
{
    if (depth >= NSBX_GLOB_MAX_NESTING)
        return nsbx_err_set(ps->err, NSBX_E_INVALID, "the pattern's extglobs nest deeper than %d",
                            NSBX_GLOB_MAX_NESTING);
    uint32_t letter = (uint8_t)ps->p[ps->at];
    int alternative = NONE;
    ps->at++; /* at the parenthesis, then at each bar */
    do {
        ps->at++;
        int last = read_sequence(ps, depth + 1);
        alternative = last < 0 ? last : add(ps, ALTERNATIVE, 0, last, alternative);
        if (alternative < 0)
            return alternative;
        if (letter == '!')
            mark_lone_stars(ps, last);
    } while (ps->p[ps->at] == '|');
    ps->at++;
    if (letter == '!' && element_at(ps, alternative)->child == NONE &&
        element_at(ps, alternative)->before == NONE) {
        /* !() is anything but nothing */
        int any = add(ps, ANY, 0, NONE, before);
        return any < 0 ? any : add(ps, STAR, 0, NONE, any);
    }
    ps->negates |= letter == '!';
    return add(ps, EXTGLOB, letter, alternative, before);
}

static int read_class(struct parser *ps, int before)
{
    struct glob_class class;
    long len = nsbx_glob_class_parse(&class, ps->p + ps->at, ps->n - ps->at, &ps->g->ranges, ps->err);
    if (len < 0)
        return (int)len;
    ps->at += len ? (size_t)len : 1;
    if (len == 0)
        return add_character(ps, '[', before);
    const struct glob_range *ranges = (const struct glob_range *)nsbx_buf_data(&ps->g->ranges);
    if (class.impossible)
        return add(ps, IMPOSSIBLE, 0, NONE, before);
    if (class.count == 1 && !class.named && !class.negated && ranges[class.first].low == ranges[class.first].high)
        return add_character(ps, ranges[class.first].low, before); /* [.] is an explicit dot */
    int rc = nsbx_buf_append(&ps->g->classes, &class, sizeof(class), ps->err);
    return rc ? rc : add(ps, CLASS, (uint32_t)(ps->g->classes.len / sizeof(class)) - 1, NONE, before);
}

static int read_element(struct parser *ps, int depth, int before)
{
    if (!ps->plain && opens_extglob(ps, ps->at)) {
        int ends = depth > 0 ? 1 : extglob_ends(ps);
        if (ends < 0)
            return ends;
        if (ends)
            return read_extglob(ps, depth, before);
        ps->plain = true;
    }
    uint32_t c;
    switch (ps->p[ps->at]) {
    case '*':
        ps->at++;
        if (before != NONE && element_at(ps, before)->kind == STAR)
            return before;
        return add(ps, STAR, 0, NONE, before);
    case '?':
        ps->at++;
        return add(ps, ANY, 0, NONE, before);
    case '[':
        return read_class(ps, before);
    case '\\':
        ps->at += ps->at + 1 < ps->n; /* at the end it stands for itself */
        break;
    default:
        break;
    }
    ps->at += nsbx_glob_char(ps->p + ps->at, ps->n - ps->at, &c);
    return add_character(ps, c, before);
}

/* Up to the end, and inside an extglob up to a bar or its parenthesis. The last element, NONE, or a failure. */
static int read_sequence(struct parser *ps, int depth)
{
    int last = NONE;
    while (last >= 0 && ps->at < ps->n && !(depth > 0 && (ps->p[ps->at] == '|' || ps->p[ps->at] == ')')))
        last = read_element(ps, depth, last);
    return last;
}

/* --- compiling --- */

/* A new node; its index within the segment, or a failure. */
static int emit(struct parser *ps, enum glob_op op, int next, uint32_t arg)
{
    struct glob_node node = {.op = (uint8_t)op, .next = (uint16_t)next, .arg = arg};
    size_t index = ps->g->nodes.len / sizeof(node) - ps->first_node;
    if (index >= NSBX_GLOB_MAX_NODES || ps->g->nodes.len + sizeof(node) > ps->g->nodes.max)
        return nsbx_err_set(ps->err, NSBX_E_INVALID,
                            "the pattern's extglobs make it too large; use fewer or nest them less");
    int rc = nsbx_buf_append(&ps->g->nodes, &node, sizeof(node), ps->err);
    return rc ? rc : (int)index;
}

static int compile_sequence(struct parser *ps, int last, int next, int once);

static int compile_alternatives(struct parser *ps, int alternative, int next, int once)
{
    int entry = compile_sequence(ps, element_at(ps, alternative)->child, next, once);
    while (entry >= 0 && (alternative = element_at(ps, alternative)->before) != NONE) {
        int other = compile_sequence(ps, element_at(ps, alternative)->child, next, once);
        entry = other < 0 ? other : emit(ps, GLOB_OR, other, (uint32_t)entry);
    }
    return entry;
}

static int compile_loop(struct parser *ps, const struct element *e, int next, int once)
{
    uint32_t letter = e->arg;
    int back = emit(ps, GLOB_BACK, 0, 0);
    int body = back < 0 ? back : compile_alternatives(ps, e->child, back, once);
    int leave = body < 0 ? body : emit(ps, GLOB_OR, next, (uint32_t)body);
    int loop = leave < 0 ? leave : emit(ps, GLOB_LOOP, leave, (uint32_t)back);
    return loop < 0 || letter == '*' ? loop : body;
}

/* What !(…) excludes is the rest of the name from here on: an alternative and then all that follows the extglob. */
static int compile_negation(struct parser *ps, const struct element *e, int next, int once)
{
    int excluded = compile_alternatives(ps, e->child, once, once);
    int star = excluded < 0 ? excluded : emit(ps, GLOB_STAR, next, 0);
    return star < 0 ? star : emit(ps, GLOB_NOT, star, (uint32_t)excluded);
}

static int compile_extglob(struct parser *ps, const struct element *e, int next, int once)
{
    int inner;
    switch (e->arg) {
    case '!':
        return compile_negation(ps, e, next, once);
    case '*':
    case '+':
        return compile_loop(ps, e, next, once);
    case '?':
        inner = compile_alternatives(ps, e->child, next, once);
        return inner < 0 ? inner : emit(ps, GLOB_OR, next, (uint32_t)inner);
    default: /* @ */
        return compile_alternatives(ps, e->child, next, once);
    }
}

/* The node for an element that `next` follows. `once` is what follows it when no enclosing loop goes round again: a
 * negation looks along that way, which leads forward only, so that no node can depend on its own negation. */
static int compile_element(struct parser *ps, const struct element *e, int next, int once)
{
    switch ((enum kind)e->kind) {
    case CHARACTER:
        return emit(ps, GLOB_CHAR, next, e->arg);
    case ANY:
        return emit(ps, GLOB_ANY, next, 0);
    case STAR:
        return emit(ps, GLOB_STAR, next, 0);
    case LONE_STAR:
        next = emit(ps, GLOB_STAR, next, 0);
        return next < 0 || !ps->strict ? next : emit(ps, GLOB_ANY, next, 0);
    case CLASS:
        return emit(ps, GLOB_CLASS, next, e->arg);
    case EXTGLOB:
        return compile_extglob(ps, e, next, once);
    case IMPOSSIBLE:
    case ALTERNATIVE:
        break;
    }
    return emit(ps, GLOB_FAIL, 0, 0);
}

/* The elements from `last` back to `stop`, which is not one of them. */
static int compile_range(struct parser *ps, int last, int stop, int next, int once)
{
    for (int at = last; next >= 0 && at != stop; at = element_at(ps, at)->before) {
        const struct element *e = element_at(ps, at);
        int forward = next != once && ps->negates ? compile_element(ps, e, once, once) : NONE;
        if (forward < 0)
            return forward;
        next = compile_element(ps, e, next, once);
        once = forward == NONE ? next : forward;
    }
    return next;
}

static int compile_sequence(struct parser *ps, int last, int next, int once)
{
    return compile_range(ps, last, NONE, next, once);
}

/* The last of the !(…) with which the sequence starts. */
static int leading_negation(const struct parser *ps, int last)
{
    int found = NONE;
    for (int at = last; at != NONE; at = element_at(ps, at)->before) {
        bool negation = element_at(ps, at)->kind == EXTGLOB && element_at(ps, at)->arg == '!';
        found = !negation ? NONE : found == NONE ? at : found;
    }
    return found;
}

/* What a leading !(…) excludes counts a lone star as one character at least, as published: !(a)* matches "a" and not
 * "ab". So it looks along a way of its own. */
static int compile(struct parser *ps, int last)
{
    int end = emit(ps, GLOB_END, 0, 0), lead = leading_negation(ps, last);
    if (end < 0)
        return end;
    int next = compile_range(ps, last, lead, end, end), once = next;
    if (next < 0 || lead == NONE)
        return next;
    ps->strict = ps->lone;
    if (ps->strict)
        once = compile_range(ps, last, lead, end, end);
    return once < 0 ? once : compile_range(ps, lead, NONE, next, once);
}

/* Of the literal text only the end stays, when the segment ends with some: a name that ends otherwise is refused
 * before any node is asked. */
static void keep_suffix(struct parser *ps, int last, size_t literal)
{
    uint8_t bytes[4];
    size_t n = 0;
    for (int at = last; at != NONE && element_at(ps, at)->kind == CHARACTER; at = element_at(ps, at)->before)
        n += element_at(ps, at)->arg >= GLOB_BYTE ? 1 : nsbx_utf8_encode(bytes, element_at(ps, at)->arg);
    struct nsbx_buf *literals = &ps->g->literals;
    if (n > 0)
        memmove(nsbx_buf_data(literals) + literal, nsbx_buf_data(literals) + literals->len - n, n);
    literals->len = literal + n;
}

int nsbx_glob_segment(struct nsbx_glob *g, const char *text, size_t n, struct glob_segment *out,
                      struct nsbx_err *err)
{
    struct parser ps = {.g = g, .p = text, .n = n, .err = err};
    size_t literal = g->literals.len;
    ps.first_node = g->nodes.len / sizeof(struct glob_node);
    nsbx_buf_init(&ps.elements, (n + 1) * 2 * sizeof(struct element)); /* at most two a byte: !() */
    int last = add(&ps, CHARACTER, 0, NONE, NONE);
    if (last == NONE)
        last = read_sequence(&ps, 0);
    if (last > NONE)
        mark_lone_stars(&ps, last);
    int entry = last < 0 || !ps.magic ? last : compile(&ps, last);
    *out = (struct glob_segment){.what = GLOB_LITERAL, .literal = (uint32_t)literal};
    if (entry >= 0 && ps.magic) {
        keep_suffix(&ps, last, literal);
        out->what = GLOB_NODES;
        out->entry = (uint16_t)entry;
        out->nodes = (uint32_t)ps.first_node;
        out->node_count = (uint16_t)(g->nodes.len / sizeof(struct glob_node) - ps.first_node);
    }
    out->literal_n = (uint32_t)(g->literals.len - literal);
    nsbx_buf_free(&ps.elements);
    return entry < 0 ? entry : 0;
}
