#include "ops.h"

#include "base/util.h"

#include <string.h>

static const char *const feature_names[] = {
#define FEATURE_NAME(name, text) text,
    NSBX_FEATURES(FEATURE_NAME)
#undef FEATURE_NAME
};

const char *nsbx_feature_name(enum nsbx_feature f)
{
    return (unsigned)f < NSBX_LEN(feature_names) ? feature_names[f] : NULL;
}

int nsbx_feature_of_name(const char *name)
{
    for (size_t i = 0; i < NSBX_LEN(feature_names); i++)
        if (strcmp(feature_names[i], name) == 0)
            return (int)i;
    return -1;
}

static const struct nsbx_op_row rows[] = {
    {.name = "healthz", .shape = NSBX_SHAPE_CONTROL, .without_token = true, .when_fenced = true},
    {.name = "reserve-execution", .shape = NSBX_SHAPE_CONTROL},
    {.name = "execute",
     .shape = NSBX_SHAPE_STREAM,
     .to_host = NSBX_DATA_DELTA,
     .to_guest = NSBX_DATA_STDIN,
     .to_guest_if = "stdinStream",
     .large = "stdin"},
    {.name = "cancel-execution", .shape = NSBX_SHAPE_CONTROL, .when_fenced = true},
    {.name = "signal-execution", .shape = NSBX_SHAPE_CONTROL},
    {.name = "read-file", .shape = NSBX_SHAPE_CONTROL, .reply_large = "content"},
    {.name = "read-file-stream", .shape = NSBX_SHAPE_STREAM, .to_host = NSBX_DATA_BASE64},
    {.name = "write-file", .shape = NSBX_SHAPE_CONTROL, .large = "content", .large_is_encoded = true},
    {.name = "walk", .shape = NSBX_SHAPE_STREAM},
};

const struct nsbx_op_row *nsbx_op_row(const char *name)
{
    for (size_t i = 0; i < NSBX_LEN(rows); i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}

const struct nsbx_op_row *nsbx_op_rows(size_t *count)
{
    *count = NSBX_LEN(rows);
    return rows;
}
