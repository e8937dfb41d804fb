/* An intrusive doubly linked list. A head and a node are the same type; an unlinked node points to itself. */
#ifndef NSBX_BASE_LIST_H
#define NSBX_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct nsbx_list {
    struct nsbx_list *next, *prev;
};

#define nsbx_container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

static inline void nsbx_list_init(struct nsbx_list *l)
{
    l->next = l->prev = l;
}
static inline bool nsbx_list_empty(const struct nsbx_list *l)
{
    return l->next == l;
}
static inline void nsbx_list_push(struct nsbx_list *head, struct nsbx_list *node) /* at the tail */
{
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}
static inline void nsbx_list_remove(struct nsbx_list *node) /* safe on an unlinked node */
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    nsbx_list_init(node);
}
static inline struct nsbx_list *nsbx_list_first(const struct nsbx_list *head) /* NULL when empty */
{
    return nsbx_list_empty(head) ? NULL : head->next;
}
static inline struct nsbx_list *nsbx_list_shift(
    struct nsbx_list *head) /* unlinks and returns the first; NULL when empty */
{
    struct nsbx_list *node = nsbx_list_first(head);
    if (node)
        nsbx_list_remove(node);
    return node;
}
/* `it` may be removed in the body; no other node may. */
#define nsbx_list_each(it, head)                                                                                   \
    for (struct nsbx_list *it = (head)->next, *it##_next = it->next; it != (head);                                 \
         it = it##_next, it##_next = it->next)

#endif
