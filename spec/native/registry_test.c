/* The registry of executions: names, states, expiry and capacity. */
#include "harness.h"

#include "agent/registry.h"
#include "base/alloc.h"

#include <errno.h>

static const char id_a[] = "exec_3b0f6c1a-2d44-4e0b-9c1e-5a7f00d1e2c3";
static const char id_b[] = "exec_3B0F6C1A-2D44-1E0B-8C1E-5A7F00D1E2C4";

static struct nsbx_registry *make(uint64_t lease, uint64_t terminal, uint64_t tracked)
{
    struct nsbx_registry_limits limits = {lease, terminal, tracked};
    struct nsbx_registry *r = NULL;
    CHECK_INT(nsbx_registry_new(&r, &limits, NULL), 0);
    return r;
}

static struct nsbx_record *reserve(struct nsbx_registry *r, const char *id)
{
    struct nsbx_record *rec = NULL;
    CHECK_INT(nsbx_registry_reserve(r, id, &rec, NULL), 0);
    return rec;
}

static void ids(void)
{
    CHECK(nsbx_execution_id_valid(id_a, strlen(id_a)));
    CHECK(nsbx_execution_id_valid(id_b, strlen(id_b)));
    static const char *const bad[] = {
        "",
        "exec_",
        "exec-3b0f6c1a-2d44-4e0b-9c1e-5a7f00d1e2c3",
        "Exec_3b0f6c1a-2d44-4e0b-9c1e-5a7f00d1e2c3",
        "exec_3b0f6c1a-2d44-4e0b-9c1e-5a7f00d1e2c",
        "exec_3b0f6c1a-2d44-4e0b-9c1e-5a7f00d1e2c33",
        "exec_3b0f6c1a-2d44-0e0b-9c1e-5a7f00d1e2c3",
        "exec_3b0f6c1a-2d44-6e0b-9c1e-5a7f00d1e2c3",
        "exec_3b0f6c1a-2d44-4e0b-7c1e-5a7f00d1e2c3",
        "exec_3b0f6c1a-2d44-4e0b-cc1e-5a7f00d1e2c3",
        "exec_3g0f6c1a-2d44-4e0b-9c1e-5a7f00d1e2c3",
        "exec_3b0f6c1a+2d44-4e0b-9c1e-5a7f00d1e2c3",
    };
    for (size_t i = 0; i < NSBX_LEN(bad); i++)
        CHECK(!nsbx_execution_id_valid(bad[i], strlen(bad[i])));
    char nul[sizeof id_a];
    memcpy(nul, id_a, sizeof nul);
    nul[20] = '\0';
    CHECK(!nsbx_execution_id_valid(nul, strlen(id_a)));
}

static void reserving(void)
{
    struct nsbx_registry *r = make(1000, 1000, 10);
    struct nsbx_record *named = reserve(r, id_a), *other = reserve(r, NULL);
    CHECK_STR(named->id, id_a);
    CHECK(nsbx_execution_id_valid(other->id, strlen(other->id)));
    CHECK_INT(named->state, NSBX_RECORD_RESERVED);
    CHECK(nsbx_registry_find(r, id_a) == named);
    CHECK(nsbx_registry_find(r, id_b) == NULL);
    struct nsbx_record *again = NULL;
    CHECK_INT(nsbx_registry_reserve(r, id_a, &again, NULL), -NSBX_E_EXISTS);
    CHECK_INT(nsbx_registry_count(r), 2);
    nsbx_registry_free(r);
}

static void states(void)
{
    struct nsbx_registry *r = make(1000, 1000, 10);
    struct nsbx_record *rec = reserve(r, id_a);
    static const enum nsbx_record_state way[] = {NSBX_RECORD_STARTING, NSBX_RECORD_RUNNING, NSBX_RECORD_EXITED};
    static const char *const names[] = {"starting", "running", "exited"};
    CHECK_STR(nsbx_record_state_name(rec->state), "reserved");
    for (int i = 0; i < 3; i++) {
        nsbx_registry_advance(rec, way[i]);
        CHECK_STR(nsbx_record_state_name(rec->state), names[i]);
        CHECK_INT(rec->expires_ms, 0);
    }
    nsbx_registry_settle(r, rec, NSBX_OUTCOME_FAILED, true, json_object(), json_string("why"));
    CHECK_STR(nsbx_record_state_name(rec->state), "terminal");
    CHECK_STR(nsbx_outcome_name(rec->outcome), "failed");
    CHECK(rec->expires_ms > 0 && rec->started);
    nsbx_registry_free(r);
}

static void expiry(void)
{
    struct nsbx_registry *r = make(30, 60, 10);
    struct nsbx_record *lease = reserve(r, NULL), *ended = reserve(r, id_b), *live = reserve(r, id_a);
    char lease_id[64];
    strcpy(lease_id, lease->id);
    nsbx_registry_advance(live, NSBX_RECORD_RUNNING);
    nsbx_registry_settle(r, ended, NSBX_OUTCOME_CANCELLED, false, NULL, NULL);
    usleep(40 * 1000);
    CHECK(nsbx_registry_find(r, lease_id) == NULL);
    CHECK(nsbx_registry_find(r, id_b) == ended);
    usleep(40 * 1000);
    CHECK(nsbx_registry_find(r, id_b) == NULL);
    CHECK(nsbx_registry_find(r, id_a) == live); /* what runs does not expire */
    CHECK_INT(nsbx_registry_count(r), 1);
    nsbx_registry_free(r);
}

static void capacity(void)
{
    struct nsbx_registry *r = make(100000, 100000, 3);
    struct nsbx_record *first = reserve(r, NULL), *second = reserve(r, NULL), *third = reserve(r, NULL),
                       *fourth = NULL;
    struct nsbx_err err = {0};
    char ids_[3][64];
    strcpy(ids_[0], first->id);
    strcpy(ids_[1], second->id);
    strcpy(ids_[2], third->id);
    CHECK_INT(nsbx_registry_reserve(r, NULL, &fourth, &err), -NSBX_E_CAPACITY);
    CHECK_STR(err.reason, "execution_capacity");
    nsbx_registry_settle(r, second, NSBX_OUTCOME_COMPLETED, true, NULL, NULL);
    nsbx_registry_settle(r, first, NSBX_OUTCOME_COMPLETED, true, NULL, NULL);
    reserve(r, NULL); /* the one that ended first goes first */
    CHECK(nsbx_registry_find(r, ids_[1]) == NULL);
    CHECK(nsbx_registry_find(r, ids_[0]) == first);
    reserve(r, NULL);
    CHECK(nsbx_registry_find(r, ids_[0]) == NULL);
    CHECK(nsbx_registry_find(r, ids_[2]) == third);
    CHECK_INT(nsbx_registry_reserve(r, NULL, &fourth, &err), -NSBX_E_CAPACITY);
    nsbx_registry_free(r);
}

static void many(void)
{
    struct nsbx_registry *r = make(100000, 100000, 1024);
    for (int i = 0; i < 20000; i++)
        nsbx_registry_settle(r, reserve(r, NULL), NSBX_OUTCOME_COMPLETED, true, json_object(), NULL);
    CHECK_INT(nsbx_registry_count(r), 1024);
    nsbx_registry_free(r);
}

static void no_memory(void)
{
    struct nsbx_registry *r = make(1000, 1000, 10);
    struct nsbx_record *rec;
    struct nsbx_err err;
    for (unsigned long n = 1; n <= 3; n++) {
        nsbx_alloc_fail_at(n);
        int rc = nsbx_registry_reserve(r, id_a, &rec, &err);
        nsbx_alloc_fail_at(0);
        CHECK(rc == -NSBX_E_LIMIT && err.sys == ENOMEM);
        CHECK_INT(nsbx_registry_count(r), 0);
    }
    CHECK_INT(nsbx_registry_reserve(r, id_a, &rec, NULL), 0);
    nsbx_registry_free(r);
}

int main(void)
{
    RUN(ids);
    RUN(reserving);
    RUN(states);
    RUN(expiry);
    RUN(capacity);
    RUN(many);
    RUN(no_memory);
    return harness_done();
}
