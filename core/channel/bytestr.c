#include "bytestr.h"

#include "base/alloc.h"
#include "base/util.h"
#include "codec/base64.h"
#include "codec/utf8.h"

#include <string.h>

bool nsbx_bytestr_plain(const void *bytes, size_t n)
{
    return !memchr(bytes, 0, n) && nsbx_utf8_valid(bytes, n);
}

json_t *nsbx_bytestr_make(const void *bytes, size_t n)
{
    if (nsbx_bytestr_plain(bytes, n))
        return json_stringn_nocheck(bytes, n);
    NSBX_AUTO_FREE char *text = nsbx_malloc(nsbx_base64_len(n));
    if (!text)
        return NULL;
    size_t len = nsbx_base64_encode(text, bytes, n);
    json_t *object = json_object();
    if (object && json_object_set_new_nocheck(object, "base64", json_stringn_nocheck(text, len)) != 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}

int nsbx_bytestr_read(const json_t *value, const char *what, char **out, size_t *n, struct nsbx_err *err)
{
    if (json_is_string(value)) {
        size_t len = json_string_length(value);
        char *copy = nsbx_malloc(len + 1);
        if (!copy)
            return nsbx_err_nomem(err, what);
        memcpy(copy, json_string_value(value), len + 1);
        *out = copy;
        *n = len;
        return 0;
    }
    const json_t *coded = json_object_get(value, "base64");
    if (!json_is_string(coded) || json_object_size(value) != 1)
        return nsbx_err_set(err, NSBX_E_INVALID, "%s must be a string or {\"base64\":\"…\"}", what);
    size_t len = json_string_length(coded);
    uint8_t *bytes = nsbx_malloc(len / 4 * 3 + 3 + 1);
    if (!bytes)
        return nsbx_err_nomem(err, what);
    struct nsbx_base64_decoder decoder;
    nsbx_base64_decoder_init(&decoder);
    size_t got = nsbx_base64_decode(&decoder, bytes, (const uint8_t *)json_string_value(coded), len);
    got += nsbx_base64_decode_end(&decoder, bytes + got);
    bytes[got] = 0;
    *out = (char *)bytes;
    *n = got;
    return 0;
}
