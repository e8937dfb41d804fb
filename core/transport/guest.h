/* The host's view of one guest agent: where it is, what it can do, and the operations on it. One file per operation. */
#ifndef NSBX_TRANSPORT_GUEST_H
#define NSBX_TRANSPORT_GUEST_H

#include "base/err.h"
#include "channel/ops.h"
#include "loop/loop.h"
#include "loop/op.h"

#include <stdbool.h>
#include <stdint.h>

struct nsbx_guest;

enum nsbx_arm { NSBX_ARM_UNIX, NSBX_ARM_TCP };
struct nsbx_guest_options {
    enum nsbx_arm arm;
    const char *unix_path; /* or "/proc/self/fd/N" */
    const char *host;
    uint16_t port;
    const char *token;      /* sent on the tcp arm only, as published; NULL = none */
    int64_t dial_budget_ms; /* <0 = one attempt; 0 = NSBX_DIAL_BUDGET_MS */
};
/* Copies the options. No traffic. */
int nsbx_guest_new(struct nsbx_loop *loop, const struct nsbx_guest_options *options, struct nsbx_guest **out,
                   struct nsbx_err *err) __attribute__((warn_unused_result));
/* Operations under way keep it alive until they end. NULL is fine. */
void nsbx_guest_free(struct nsbx_guest *guest);
/* The owner knows that the guest has ended, with everything that ran in it: nothing is dialled or tried again from now on, and what is
 * under way fails with `why` (DESTROYED, GONE, …; copied) as soon as it notices, instead of an outcome that nobody can ask for any more.
 * The first reason stays. */
void nsbx_guest_gone(struct nsbx_guest *guest, const struct nsbx_err *why);
struct nsbx_loop *nsbx_guest_loop(const struct nsbx_guest *guest);

struct nsbx_health {
    bool ok, retiring;
    int64_t protocol_version;
    bool features[NSBX_FEATURE_COUNT];
};
/* Asks healthz; caches the features. Result: struct nsbx_health * (owned by the op). PROTOCOL when the version is not 2. */
struct nsbx_op *nsbx_guest_health(struct nsbx_guest *guest, int64_t timeout_ms);
/* The cached answer, or NULL when the guest was never asked. */
const struct nsbx_health *nsbx_guest_known(const struct nsbx_guest *guest);
/* The boot id last seen in a reply; "" when none yet. */
const char *nsbx_guest_boot_id(const struct nsbx_guest *guest);

#endif
