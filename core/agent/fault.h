/* What the guest tells a host that it refuses or that failed: a text, and the errno's name where one is behind it. A fault has a
 * fixed size, so that failing never allocates; its texts have the published form. */
#ifndef NSBX_AGENT_FAULT_H
#define NSBX_AGENT_FAULT_H

#include "base/limits.h"
#include "channel/channel.h"

#include <jansson.h>

enum { NSBX_FAULT_TEXT = 2 * NSBX_PATH_MAX + 256 }; /* a rename names two paths */

struct nsbx_fault {
    const char *code; /* static: "ENOENT", "ERR_FILE_WALK_LIMIT"; NULL when there is none */
    char text[NSBX_FAULT_TEXT];
};

/* All of these return -1. The text is cut to fit. */
int nsbx_fault_set(struct nsbx_fault *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "ENOENT: no such file or directory, open '/path'"; `path` may be NULL: "ENOSPC: no space left on device, write". */
int nsbx_fault_sys(struct nsbx_fault *f, int sys, const char *call, const char *path);
/* "…, rename '/from' -> '/to'" */
int nsbx_fault_sys2(struct nsbx_fault *f, int sys, const char *call, const char *from, const char *to);
/* Puts `prefix` before the text. */
int nsbx_fault_prefix(struct nsbx_fault *f, const char *prefix);

/* The text as a JSON string: new reference, NULL without memory. Bytes that are no UTF-8 show as U+FFFD. */
json_t *nsbx_fault_text(const struct nsbx_fault *f);
/* {"ok":false,…} for a control operation, {"type":"error",…} for the others. New reference, NULL without memory. */
json_t *nsbx_fault_message(const struct nsbx_op_row *row, const struct nsbx_fault *f);

#endif
