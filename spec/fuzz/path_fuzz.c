/* A base and a path, a line each: what resolves is normalised, and resolving it again changes nothing. */
#include "fuzz.h"

#include "codec/path.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *line = size ? memchr(data, '\n', size) : NULL;
    if (!line || memchr(data, 0, (size_t)(line - data)))
        return 0;
    size_t base_n = (size_t)(line - data), n = size - base_n - 1;
    char *base = malloc(base_n + 2);
    uint8_t *path = fuzz_copy(line + 1, n);
    base[0] = '/'; /* a base is absolute */
    memcpy(base + 1, data, base_n);
    base[base_n + 1] = 0;
    char out[NSBX_PATH_MAX] = "", again[NSBX_PATH_MAX];
    struct nsbx_err err = {0};
    int rc = memchr(path, 0, n) ? 0 : nsbx_path_resolve(out, base, (char *)path, n, &err);
    if (memchr(path, 0, n) == NULL && rc == 0) {
        size_t len = strlen(out);
        WANT(n > 0 && out[0] == '/' && !strstr(out, "//") && !strstr(out, "/./") && !strstr(out, "/../"));
        WANT(len == 1 || (out[len - 1] != '/' && strcmp(nsbx_path_base(out), ".") != 0 &&
                          strcmp(nsbx_path_base(out), "..") != 0));
        WANT(nsbx_path_resolve(again, "/elsewhere", out, len, NULL) == 0 && strcmp(out, again) == 0);
        WANT(nsbx_path_within("/", out) && nsbx_path_within(out, out) && nsbx_path_below(out, out)[0] == 0);
        if (len > 1) {
            const char *below = nsbx_path_below("/", out);
            WANT(nsbx_path_resolve(again, "/", below, strlen(below), NULL) == 0 && strcmp(out, again) == 0);
        }
    } else if (rc)
        WANT((rc == -NSBX_E_INVALID || rc == -NSBX_E_LIMIT) && err.code == -rc && err.message[0]);
    free(base);
    free(path);
    return 0;
}
