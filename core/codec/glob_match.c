/* Matching a name against one segment. For each place in the name, from its end to its start, each node says whether
 * the rest of the name from there matches; a node looks at earlier nodes of the same place and at the place behind it,
 * so the time is nodes × length. Only a loop looks at a later node, its own start: where that turns out true, its body is
 * gone through again (a loop is false until then, and nothing in its body depends on it through a negation). */
#include "glob_priv.h"

#include <assert.h>
#include <string.h>

static size_t decode(struct glob_name *name)
{
    size_t at = 0;
    while (at < name->n && name->count < NSBX_PATH_MAX)
        at += nsbx_glob_char(name->bytes + at, name->n - at, &name->chars[name->count++]);
    name->decoded = true;
    return at;
}

struct place {
    const struct nsbx_glob *g;
    const struct glob_node *nodes;
    bool end;     /* behind the last character */
    bool wild;    /* wildcards may stand here: not at a leading dot */
    uint32_t c;   /* the character here */
    uint8_t *now; /* what each node says here, and one character later */
    const uint8_t *later;
};

static bool node_holds(const struct place *at, size_t index)
{
    const struct glob_node *node = &at->nodes[index];
    switch ((enum glob_op)node->op) {
    case GLOB_END:
        return at->end;
    case GLOB_CHAR:
        return !at->end && at->c == node->arg && at->later[node->next];
    case GLOB_ANY:
        return !at->end && at->wild && at->later[node->next];
    case GLOB_CLASS:
        return !at->end && at->wild && at->later[node->next] &&
               nsbx_glob_class_has((const struct glob_class *)nsbx_buf_data(&at->g->classes) + node->arg,
                                   (const struct glob_range *)nsbx_buf_data(&at->g->ranges), at->c);
    case GLOB_FAIL:
        return false;
    case GLOB_STAR:
        return at->wild && (at->now[node->next] || (!at->end && at->later[index]));
    case GLOB_OR:
        return at->now[node->next] || at->now[node->arg];
    case GLOB_NOT:
        return at->now[node->next] && !at->now[node->arg];
    case GLOB_BACK:
        return at->now[index];
    case GLOB_LOOP:
        return at->now[node->next];
    }
    return false;
}

static void fill(const struct place *at, size_t count)
{
    memset(at->now, 0, count);
    for (size_t i = 0; i < count; i++) {
        at->now[i] = node_holds(at, i);
        size_t back = at->nodes[i].arg;
        if (at->nodes[i].op == GLOB_LOOP && at->now[i] && !at->now[back]) {
            at->now[back] = true;
            i = back;
        }
    }
}

static bool match_nodes(const struct nsbx_glob *g, const struct glob_segment *segment, struct glob_name *name)
{
    uint8_t rows[2][NSBX_GLOB_MAX_NODES];
    if (!name->decoded && decode(name) < name->n)
        return false; /* longer than any path */
    const struct glob_node *nodes = (const struct glob_node *)nsbx_buf_data(&g->nodes);
    assert(nodes);
    struct place at = {.g = g, .nodes = nodes + segment->nodes, .end = true};
    for (size_t i = name->count + 1; i-- > 0; at.end = false) {
        at.now = rows[i % 2];
        at.later = rows[(i + 1) % 2];
        at.wild = i > 0 || !name->dotted;
        at.c = at.end ? 0 : name->chars[i];
        fill(&at, segment->node_count);
    }
    return rows[0][segment->entry];
}

bool nsbx_glob_match(const struct nsbx_glob *g, const struct glob_segment *segment, struct glob_name *name)
{
    size_t n = segment->literal_n;
    if (segment->what == GLOB_GLOBSTAR)
        return !name->dotted;
    if (n > name->n || (segment->what == GLOB_LITERAL && n < name->n))
        return false;
    if (n > 0 && memcmp(name->bytes + name->n - n, nsbx_buf_data(&g->literals) + segment->literal, n) != 0)
        return false;
    return segment->what == GLOB_LITERAL || match_nodes(g, segment, name);
}
