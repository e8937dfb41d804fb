/* What the two fuzz targets of the published carrier share: a loop that lives on, and one end made of the input's bytes. */
#ifndef NSBX_SPEC_CHANNEL_FUZZ_H
#define NSBX_SPEC_CHANNEL_FUZZ_H

#include "base/limits.h"
#include "base/util.h"
#include "channel/single.h"
#include "loop/stream.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static struct nsbx_loop *loop;

static inline void fuzz_loop(void)
{
    if (!loop && nsbx_loop_new(&loop, NULL) != 0)
        abort();
}

/* The first byte of an input says how its bytes travel. */
enum { BYTEWISE = 1, RESET = 2, LINGER = 4, TOKEN = 8, FIRST_USE = 16, STOPPED = 32 };

struct fuzz_peer {
    struct nsbx_stream *s;
    bool over;
};

static inline void fuzz_on_read(void *ud, const uint8_t *bytes, size_t n)
{
    (void)ud;
    assert(n > 0 && bytes);
}
static inline void fuzz_on_eof(void *ud)
{
    ((struct fuzz_peer *)ud)->over = true;
}
static inline void fuzz_on_error(void *ud, const struct nsbx_err *err)
{
    assert(err->code);
    ((struct fuzz_peer *)ud)->over = true;
}

static inline void fuzz_peer_take(struct fuzz_peer *peer, struct nsbx_stream *s, unsigned how)
{
    static const struct nsbx_stream_events events = {fuzz_on_read, fuzz_on_eof, fuzz_on_error, NULL};
    peer->s = s;
    peer->over = false;
    nsbx_stream_set_events(s, &events, peer);
    if (!(how & STOPPED))
        nsbx_stream_read_start(s);
}

static inline void fuzz_turn(int turns)
{
    for (int i = 0; i < turns; i++)
        nsbx_loop_turn(loop, NSBX_TURN_POLL);
}

/* All of the input, then the end that it asks for. */
static inline void fuzz_peer_send(struct fuzz_peer *peer, const uint8_t *bytes, size_t n, unsigned how)
{
    struct nsbx_err err;
    if (nsbx_stream_write(peer->s, bytes, n, &err) != 0)
        return;
    for (int i = 0; i < 100000 && nsbx_stream_queued(peer->s) && !peer->over; i++)
        nsbx_loop_turn(loop, NSBX_TURN_POLL);
    fuzz_turn(2);
    if (!(how & (RESET | LINGER)) && nsbx_stream_shutdown(peer->s, &err) == 0)
        fuzz_turn(4);
}

static inline void fuzz_peer_close(struct fuzz_peer *peer)
{
    nsbx_stream_close(peer->s);
    peer->s = NULL;
    fuzz_turn(4);
}

static inline void fuzz_pair(unsigned how, struct nsbx_stream *ends[2])
{
    if (nsbx_stream_pair(loop, 4096, how & BYTEWISE ? 1 : 0, ends, NULL) != 0)
        abort();
}

#endif
