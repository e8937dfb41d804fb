/* The byte form of strings that may hold any byte (path, command, args, env, cwd, names): a JSON string when the bytes are
 * valid UTF-8 without NUL, else the object {"base64":"…"} (feature byte-strings). */
#ifndef NSBX_CHANNEL_BYTESTR_H
#define NSBX_CHANNEL_BYTESTR_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

bool nsbx_bytestr_plain(const void *bytes, size_t n);   /* fits a JSON string as it is */
json_t *nsbx_bytestr_make(const void *bytes, size_t n); /* new reference; NULL without memory */
/* Reads either form. *out is NUL-terminated (free with nsbx_free), *n its length without the NUL. -NSBX_E_INVALID when it is neither
 * form; `what` names it in the message. */
int nsbx_bytestr_read(const json_t *value, const char *what, char **out, size_t *n, struct nsbx_err *err)
    __attribute__((warn_unused_result));

#endif
