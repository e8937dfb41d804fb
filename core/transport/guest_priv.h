/* What the operations of this folder share of a guest: its address, one way to open a channel, the feature question that
 * concurrent operations ask once, and the reading of a refusal. */
#ifndef NSBX_TRANSPORT_GUEST_PRIV_H
#define NSBX_TRANSPORT_GUEST_PRIV_H

#include "base/limits.h"
#include "base/list.h"
#include "channel/single.h"
#include "guest.h"
#include "waits_priv.h"

#include <jansson.h>

enum { NSBX_BOOT_ID_MAX = 64 };

struct nsbx_guest {
    struct nsbx_loop *loop;
    size_t refs;
    enum nsbx_arm arm;
    char *unix_path, *host, *token;
    uint16_t port;
    int64_t dial_budget_ms;
    size_t max_frame;       /* the largest envelope that it takes */
    unsigned clock_divisor; /* testing: every constant of the controller is that much shorter */
    struct nsbx_health health;
    bool known;
    char boot_id[NSBX_BOOT_ID_MAX];
    struct nsbx_call *probe; /* the healthz under way, or NULL */
    struct nsbx_list asking; /* struct nsbx_feature_wait */
    struct nsbx_err gone;    /* code 0 while the guest may be there */
};

struct nsbx_guest *nsbx_guest_ref(struct nsbx_guest *guest);
void nsbx_guest_unref(struct nsbx_guest *guest); /* NULL is fine */

/* Testing: divides the clocks of everything that is started on this guest from now on. */
void nsbx_guest_scale_clocks(struct nsbx_guest *guest, unsigned divisor);
int64_t nsbx_guest_ms(const struct nsbx_guest *guest,
                      int64_t ms); /* a constant by that scale, at least 1; negative stays */

/* Fills the guest's part of a request: token, frame limit, dial budget. */
void nsbx_guest_address(const struct nsbx_guest *guest, struct nsbx_single_request *request);
/* One dial attempt; an nsbx_dial_fn with a guest as its ud. */
struct nsbx_op *nsbx_guest_dial(void *guest, struct nsbx_loop *loop, int64_t timeout_ms);
/* nsbx_single_open with the guest's dial and address filled in. The caller keeps a reference to the guest while the channel is open. */
struct nsbx_channel *nsbx_guest_open(struct nsbx_guest *guest, struct nsbx_single_request *request,
                                     const struct nsbx_channel_events *events, void *ud, struct nsbx_err *err);

/* Remembers the guestBootId of a reply, if it has one. Another one than before is another guest: what it can do is unknown again. */
void nsbx_guest_saw(struct nsbx_guest *guest, const json_t *reply);

/* When the owner said that the guest is gone, that is why a connection to it broke or could not be made; else `err` itself. */
const struct nsbx_err *nsbx_guest_truth(const struct nsbx_guest *guest, const struct nsbx_err *err);

/* ---- features ---- */
struct nsbx_feature_wait {
    struct nsbx_list node;                              /* nsbx_list_init once */
    void (*done)(void *ud, const struct nsbx_err *err); /* from the loop, once; err NULL: guest->health is known */
    void *ud;
};
/* 1: known already, `done` is not called. 0: asked (one question for all who ask meanwhile). Negative: not asked. */
int nsbx_guest_ask(struct nsbx_guest *guest, struct nsbx_feature_wait *wait, struct nsbx_err *err)
    __attribute__((warn_unused_result));
void nsbx_guest_unask(struct nsbx_guest *guest, struct nsbx_feature_wait *wait); /* safe when not asking */
bool nsbx_guest_has(const struct nsbx_guest *guest, enum nsbx_feature feature);  /* false also when unknown */
/* 0 when the known guest has it, else UNSUPPORTED naming the feature and `what` needs it. */
int nsbx_guest_require(const struct nsbx_guest *guest, enum nsbx_feature feature, const char *what,
                       struct nsbx_err *err);
/* The JSON form of a string that may hold any byte. NULL with err set: no memory, or INVALID naming `what` when the guest has no byte
 * form. */
json_t *nsbx_guest_string(const struct nsbx_guest *guest, const char *text, const char *what, struct nsbx_err *err);

/* ---- refusals (guest_error.c) ---- */
/* Fills err from a refusal or an error frame {error, message?, code?}: the code by what went wrong, the guest's own word as reason
 * and its text as message, cut and cleared of control characters. Returns -err->code. */
int nsbx_guest_refusal(const json_t *refusal, struct nsbx_err *err);
/* What a stranger wrote, for one line of a message: cut to `size` - 1 bytes between characters, control characters replaced. */
void nsbx_guest_one_line(char *out, size_t size, const char *text);

#endif
