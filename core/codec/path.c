#include "path.h"

#include <string.h>

/* Appends the segments of text[0..len) to the normalised path of *n bytes in out ("" stands for "/"). */
static int add_segments(char out[NSBX_PATH_MAX], size_t *n, const char *text, size_t len)
{
    size_t at = 0;
    while (at < len) {
        const char *segment = text + at;
        const char *slash = memchr(segment, '/', len - at);
        size_t size = slash ? (size_t)(slash - segment) : len - at;
        at += size + 1;
        if (size == 0 || (size == 1 && segment[0] == '.'))
            continue;
        if (size == 2 && segment[0] == '.' && segment[1] == '.') {
            while (*n > 0 && out[--*n] != '/')
                ;
            continue;
        }
        if (*n + 1 + size >= NSBX_PATH_MAX)
            return -NSBX_E_LIMIT;
        out[(*n)++] = '/';
        memcpy(out + *n, segment, size);
        *n += size;
    }
    return 0;
}

int nsbx_path_resolve(char out[NSBX_PATH_MAX], const char *base, const char *path, size_t len, struct nsbx_err *err)
{
    if (len == 0)
        return nsbx_err_set(err, NSBX_E_INVALID, "the path is empty");
    if (memchr(path, 0, len))
        return nsbx_err_set(err, NSBX_E_INVALID,
                            "the path '%s' goes on after a NUL byte, which no file name can hold", path);
    size_t n = 0;
    int rc = path[0] == '/' ? 0 : add_segments(out, &n, base, strlen(base));
    if (rc == 0)
        rc = add_segments(out, &n, path, len);
    if (rc < 0)
        return nsbx_err_set(err, NSBX_E_LIMIT, "the path '%.*s…' is longer than %d bytes", len < 60 ? (int)len : 60,
                            path, NSBX_PATH_MAX - 1);
    if (n == 0)
        out[n++] = '/';
    out[n] = 0;
    return 0;
}

const char *nsbx_path_below(const char *root, const char *path)
{
    size_t n = strlen(root);
    if (n == 1) /* "/" ends with the slash that every other root lacks */
        n = 0;
    if (strncmp(root, path, n) != 0)
        return NULL;
    if (path[n] == 0)
        return path + n;
    return path[n] == '/' ? path + n + 1 : NULL;
}

bool nsbx_path_within(const char *root, const char *path)
{
    return nsbx_path_below(root, path) != NULL;
}

const char *nsbx_path_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}
