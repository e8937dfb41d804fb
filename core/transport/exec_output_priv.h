/* An execution's output on its way to whoever reads it: a queue of pieces, or, when it is collected, one text per stream. */
#ifndef NSBX_TRANSPORT_EXEC_OUTPUT_PRIV_H
#define NSBX_TRANSPORT_EXEC_OUTPUT_PRIV_H

#include "base/buf.h"
#include "base/list.h"
#include "exec.h"

enum { NSBX_SUBS = 3 };

struct nsbx_exec_output {
    bool collect, combine, discard;
    bool text;     /* the guest sends text: U+FFFD may stand for bytes that are lost */
    bool replaced; /* one was seen */
    uint64_t max;  /* collected bytes of each stream */
    size_t held;   /* bytes in the queue */
    struct nsbx_list pieces;
    struct nsbx_buf gathered[NSBX_SUBS];
    uint64_t kept[NSBX_SUBS];
    bool truncated[NSBX_SUBS];
    uint8_t tail[NSBX_SUBS][2]; /* the last bytes of text, where a U+FFFD may be cut */
    uint8_t tail_len[NSBX_SUBS];
};

void nsbx_exec_output_init(struct nsbx_exec_output *o, const struct nsbx_exec_request *request);
void nsbx_exec_output_free(struct nsbx_exec_output *o);
/* Copies. *settled: how many bytes are dealt with already, so that the peer may send as many more; the others are when they are taken. */
int nsbx_exec_output_push(struct nsbx_exec_output *o, enum nsbx_sub sub, const uint8_t *bytes, size_t n,
                          size_t *settled, struct nsbx_err *err) __attribute__((warn_unused_result));
bool nsbx_exec_output_take(struct nsbx_exec_output *o, enum nsbx_sub *sub, uint8_t **bytes, size_t *n);
/* Drops what is held and what will come; returns how many bytes were held. */
size_t nsbx_exec_output_discard(struct nsbx_exec_output *o);
/* Moves what was collected into the result, with the flags that only this side knows. */
void nsbx_exec_output_settle(struct nsbx_exec_output *o, struct nsbx_exec_result *result);

#endif
