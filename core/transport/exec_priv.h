/* An execution as its files share it: exec.c (the object and its operations), exec_request.c (what is sent),
 * exec_controller.c (what follows from what), exec_output.c, exec_stdin.c, exec_signal.c. */
#ifndef NSBX_TRANSPORT_EXEC_PRIV_H
#define NSBX_TRANSPORT_EXEC_PRIV_H

#include "confirm_priv.h"
#include "exec.h"
#include "exec_output_priv.h"
#include "guest_priv.h"
#include "loop/timer.h"

/* ASK → RESERVE → RUN → (DRAIN | RECONCILE) → OVER; see the table in exec_controller.c. */
enum nsbx_exec_state {
    NSBX_EXEC_ASK,       /* what can the guest do? */
    NSBX_EXEC_RESERVE,   /* an id is being reserved; nothing runs */
    NSBX_EXEC_RUN,       /* the execute connection is open */
    NSBX_EXEC_DRAIN,     /* the end is confirmed by id; the rest of the stream is waited for */
    NSBX_EXEC_RECONCILE, /* the stream is lost; the end is being confirmed by id */
    NSBX_EXEC_OVER,      /* the outcome is known */
    NSBX_EXEC_STATES
};

struct nsbx_exec_stdin_queue {
    bool stream;             /* this execution streams its stdin */
    bool ended;              /* no more is accepted: close was asked */
    bool refused;            /* by the command, which closed it */
    size_t queued;           /* bytes not handed on yet */
    struct nsbx_list writes; /* in order; see exec_stdin.c */
};

/* DRAIN: what the rest of the stream has cost so far. */
struct nsbx_exec_drain {
    uint64_t since; /* the guest is waited for since then; 0 = the reader is */
    uint64_t waited_ms, bytes;
};

struct nsbx_exec {
    struct nsbx_guest *guest;
    enum nsbx_exec_state state;
    bool closed; /* the owner let go */

    /* what was asked */
    json_t *body;
    char name[48];       /* the command, for messages */
    char odd_string[64]; /* which of its strings is not text, or "" */
    enum nsbx_exec_stdin stdin_kind;
    uint8_t *stdin_bytes;
    size_t stdin_len;
    int64_t timeout_ms;
    bool wait_pipes;

    /* how it goes */
    struct nsbx_feature_wait ask;
    struct nsbx_call *reserve;
    char id[NSBX_EXEC_ID_LEN + 1]; /* "" until reserved */
    struct nsbx_channel *channel;
    struct nsbx_timer *clock; /* RUN: the observation bound; DRAIN: the rest of the stream */
    struct nsbx_confirm confirm;
    struct nsbx_exec_ack ack; /* DRAIN */
    struct nsbx_err cause;    /* RECONCILE: why the stream was given up */
    bool cause_is_command;    /* … because the guest said the command failed */
    bool asked_cancel;        /* somebody wants it ended */
    bool overdue;             /* the observation bound passed */
    bool heard;               /* the guest has said something about it */
    bool ran;                 /* the guest has said that it runs, or ran: no refusal can follow */
    bool started, has_result;
    struct nsbx_exec_drain drain;
    int64_t pid;
    struct nsbx_err outcome; /* OVER: code 0 = `result` is the outcome */
    struct nsbx_exec_result result;

    struct nsbx_exec_output output;
    struct nsbx_exec_stdin_queue in;
    struct nsbx_list signals;
    struct nsbx_waits starting, reading, waiting, cancelling;
};

/* exec_request.c: what needs no guest is made and checked at once, the rest when its features are known. */
int nsbx_exec_make_body(struct nsbx_exec *x, const struct nsbx_exec_request *request, struct nsbx_err *err);
int nsbx_exec_fit_body(struct nsbx_exec *x, struct nsbx_err *err);
struct nsbx_channel *nsbx_exec_open_channel(struct nsbx_exec *x, const struct nsbx_channel_events *events,
                                            struct nsbx_err *err);

/* exec_controller.c: the events that come from outside it. */
int nsbx_exec_controller_init(struct nsbx_exec *x, struct nsbx_err *err);
void nsbx_exec_begin(struct nsbx_exec *x);
void nsbx_exec_end(struct nsbx_exec *x);    /* cancel: confirm the end by id, whatever the state */
void nsbx_exec_let_go(struct nsbx_exec *x); /* closed: nobody wants the stream any more; x may be gone after it */
const struct nsbx_err *nsbx_exec_cancel_outcome(const struct nsbx_exec *x); /* OVER: NULL = nothing of it runs */
void nsbx_exec_output_taken(struct nsbx_exec *x, size_t n);

/* exec.c */
void nsbx_exec_maybe_free(struct nsbx_exec *x); /* when it is closed, over and nothing is confirmed any more */

/* exec_stdin.c */
void nsbx_exec_stdin_init(struct nsbx_exec_stdin_queue *in);
/* All of it is known: it is streamed, then the end. Takes `bytes` over, also on failure. */
int nsbx_exec_stdin_give(struct nsbx_exec *x, uint8_t *bytes, size_t n, struct nsbx_err *err);
void nsbx_exec_stdin_pump(struct nsbx_exec *x);
void nsbx_exec_stdin_closed(struct nsbx_exec *x); /* the command closed it, and runs on */
/* Ends what waits: with err, or, when it is NULL, because the command has ended. */
void nsbx_exec_stdin_drop(struct nsbx_exec *x, const struct nsbx_err *err);

/* exec_signal.c */
void nsbx_exec_signals_send(struct nsbx_exec *x); /* it has started, or is over: nothing stands in their way */
void nsbx_exec_signals_drop(struct nsbx_exec *x, const struct nsbx_err *err);

#endif
