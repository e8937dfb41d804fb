#include "bwrap.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/util.h"
#include "codec/path.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define DEFAULT_TMP_SIZE (UINT64_C(256) * 1024 * 1024)

void nsbx_args_free(struct nsbx_args *args)
{
    for (size_t i = 0; i < args->n; i++)
        nsbx_free(args->v[i]);
    nsbx_free(args->v);
    *args = (struct nsbx_args){0};
}

static void add(struct nsbx_args *args, const char *text)
{
    if (args->err.code)
        return;
    if (args->n + 2 > args->cap) {
        size_t cap = args->cap ? args->cap * 2 : 128;
        char **v = nsbx_realloc(args->v, cap * sizeof *v);
        if (!v) {
            nsbx_err_nomem(&args->err, "bubblewrap's arguments");
            return;
        }
        args->v = v;
        args->cap = cap;
    }
    char *copy = nsbx_strdup(text);
    if (!copy) {
        nsbx_err_nomem(&args->err, "bubblewrap's arguments");
        return;
    }
    args->v[args->n++] = copy;
    args->v[args->n] = NULL;
}

/* Up to NULL. */
static void add_all(struct nsbx_args *args, const char *first, ...)
{
    va_list ap;
    va_start(ap, first);
    for (const char *text = first; text; text = va_arg(ap, const char *))
        add(args, text);
    va_end(ap);
}

static void add_number(struct nsbx_args *args, const char *option, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    add_all(args, option, text, NULL);
}

/* The agent's extra roots: what is mounted is what file operations may reach. */
static void add_roots(struct nsbx_args *args, const char *variable, const struct nsbx_local_options *o,
                      bool readable)
{
    struct nsbx_buf roots;
    nsbx_buf_init(&roots, 64 * NSBX_PATH_MAX);
    int rc = 0;
    for (size_t i = 0; i < o->n_read_write && rc == 0; i++)
        rc = nsbx_buf_printf(&roots, &args->err, "%s%s", roots.len ? ":" : "", o->read_write[i].target);
    for (size_t i = 0; readable && i < o->n_read_only && rc == 0; i++)
        rc = nsbx_buf_printf(&roots, &args->err, "%s%s", roots.len ? ":" : "", o->read_only[i].target);
    if (rc == 0 && roots.len && nsbx_buf_append(&roots, "", 1, &args->err) == 0)
        add_all(args, "--setenv", variable, (char *)nsbx_buf_data(&roots), NULL);
    nsbx_buf_free(&roots);
}

static void add_environment(struct nsbx_args *args, const struct nsbx_local_options *o)
{
    const char *term = getenv("TERM");
    bool plain = term && term[0] && strlen(term) < 64;
    for (const char *p = term; plain && *p; p++)
        plain = isalnum((unsigned char)*p) || strchr("._+-", *p);
    add_all(args, "--clearenv", "--setenv", "PATH", DEFAULT_PATH, "--setenv", "HOME", NSBX_INSIDE_WORKSPACE,
            "--setenv", "LANG", "C.UTF-8", "--setenv", "TERM", plain ? term : "dumb", "--setenv",
            "NAMZU_AGENT_VSOCK_PORT", "1024", "--setenv", "NAMZU_SANDBOX_WORKSPACE", NSBX_INSIDE_WORKSPACE, NULL);
    add_roots(args, "NAMZU_SANDBOX_READ_ROOTS", o, true);
    add_roots(args, "NAMZU_SANDBOX_WRITE_ROOTS", o, false);
}

/* One entry of an image or of the host's root, as it is: a link stays a link. */
static void add_entry(struct nsbx_args *args, const char *root, const char *path)
{
    char source[NSBX_PATH_MAX], link[NSBX_PATH_MAX];
    int len = snprintf(source, sizeof source, "%s%s", root, path);
    if (len < 0 || (size_t)len >= sizeof source) {
        nsbx_err_set(&args->err, NSBX_E_INVALID, "root_fs: the path '%.100s…' is too long", source);
        return;
    }
    struct stat st;
    if (lstat(source, &st) < 0)
        return; /* the host has no /lib64, say */
    if (S_ISLNK(st.st_mode)) {
        ssize_t n = readlink(source, link, sizeof link - 1);
        if (n > 0) {
            link[n] = '\0';
            add_all(args, "--symlink", link, path, NULL);
        }
    } else if (S_ISDIR(st.st_mode) || S_ISREG(st.st_mode))
        add_all(args, "--ro-bind", source, path, NULL);
}

static bool is_one_of(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(name, *list) == 0)
            return true;
    return false;
}

static void add_children(struct nsbx_args *args, const char *root, const char *below, const char *const *except)
{
    char path[NSBX_PATH_MAX];
    snprintf(path, sizeof path, "%s%s", root, below);
    DIR *dir = opendir(path);
    if (!dir) {
        if (errno != ENOENT)
            nsbx_err_sys(&args->err, errno, "root_fs '%s'", path);
        return;
    }
    struct dirent *entry;
    while ((entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 || is_one_of(entry->d_name, except))
            continue;
        char child[NSBX_PATH_MAX];
        int n = snprintf(child, sizeof child, "%s/%s", below, entry->d_name);
        if (n > 0 && (size_t)n < sizeof child)
            add_entry(args, root, child);
    }
    closedir(dir);
}

static const char *const network_files[] = {"resolv.conf", "hosts", "nsswitch.conf", NULL};

static void add_host_system(struct nsbx_args *args)
{
    static const char *const top[] = {"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"};
    static const char *const etc[] = {"/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf",
                                      "/etc/ld.so.conf.d", "/etc/ssl/certs"};
    for (size_t i = 0; i < NSBX_LEN(top); i++)
        add_entry(args, "", top[i]);
    add_all(args, "--perms", "0755", "--dir", "/etc", NULL);
    for (size_t i = 0; i < NSBX_LEN(etc); i++)
        add_all(args, "--ro-bind-try", etc[i], etc[i], NULL);
    add_entry(args, "", "/etc/localtime");
}

static void add_image(struct nsbx_args *args, const char *root)
{
    static const char *const ours[] = {"proc", "dev", "tmp", "run", "workspace", "etc", NULL};
    static const char *const ours_in_etc[] = {"passwd", "group", "resolv.conf", "hosts", "nsswitch.conf", NULL};
    add_children(args, root, "", ours);
    add_all(args, "--perms", "0755", "--dir", "/etc", NULL);
    add_children(args, root, "/etc", ours_in_etc);
}

static void add_file_system(struct nsbx_args *args, const struct nsbx_local_options *o, const char *workspace)
{
    uint64_t size = o->tmp_size ? o->tmp_size : DEFAULT_TMP_SIZE;
    if (o->root_fs)
        add_image(args, o->root_fs);
    else
        add_host_system(args);
    char passwd[12], group[12], agent[12];
    snprintf(passwd, sizeof passwd, "%d", NSBX_BWRAP_PASSWD);
    snprintf(group, sizeof group, "%d", NSBX_BWRAP_GROUP);
    snprintf(agent, sizeof agent, "%d", NSBX_BWRAP_AGENT);
    add_all(args, "--perms", "0444", "--ro-bind-data", passwd, "/etc/passwd", "--perms", "0444", "--ro-bind-data",
            group, "/etc/group", NULL);
    for (size_t i = 0; o->network && network_files[i]; i++) {
        char path[64];
        snprintf(path, sizeof path, "/etc/%s", network_files[i]);
        add_all(args, "--ro-bind-try", path, path, NULL);
    }
    add_all(args, "--proc", "/proc", "--dev", "/dev", NULL);
    add_number(args, "--size", size);
    add_all(args, "--perms", "1777", "--tmpfs", "/dev/shm", NULL);
    add_number(args, "--size", size);
    add_all(args, "--perms", "1777", "--tmpfs", "/tmp", "--perms", "0755", "--dir", "/run", NULL);
    add_all(args, "--perms", "0555", "--ro-bind-data", agent, NSBX_INSIDE_AGENT, "--bind", workspace,
            NSBX_INSIDE_WORKSPACE, NULL);
    for (size_t i = 0; i < o->n_read_only; i++)
        add_all(args, "--ro-bind", o->read_only[i].source, o->read_only[i].target, NULL);
    for (size_t i = 0; i < o->n_read_write; i++)
        add_all(args, "--bind", o->read_write[i].source, o->read_write[i].target, NULL);
    /* What is left of the new root is a tmpfs without a bound: nobody may write there. */
    add_all(args, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", NSBX_INSIDE_WORKSPACE, NULL);
}

static void add_rlimits(struct nsbx_args *args, const struct nsbx_local_options *o)
{
    static const struct {
        int resource;
        const char *name;
    } names[] = {{RLIMIT_AS, "as"},
                 {RLIMIT_NPROC, "nproc"},
                 {RLIMIT_FSIZE, "fsize"},
                 {RLIMIT_CPU, "cpu"},
                 {RLIMIT_NOFILE, "nofile"}};
    for (size_t i = 0; i < o->n_rlimits; i++)
        for (size_t k = 0; k < NSBX_LEN(names); k++)
            if (names[k].resource == o->rlimits[i].resource) {
                char text[48];
                snprintf(text, sizeof text, "%s=%ju", names[k].name, (uintmax_t)o->rlimits[i].value.rlim_cur);
                add_all(args, "--rlimit", text, NULL);
            }
}

static int check_bind(const struct nsbx_local_bind *bind, const char *option, struct nsbx_err *err)
{
    static const char *const reserved[] = {"/proc", "/dev", NSBX_INSIDE_AGENT, "/etc/passwd", "/etc/group"};
    char norm[NSBX_PATH_MAX];
    if (bind->source[0] != '/' || bind->target[0] != '/')
        return nsbx_err_set(err, NSBX_E_INVALID, "%s: '%s' must be an absolute path", option,
                            bind->source[0] != '/' ? bind->source : bind->target);
    if (nsbx_path_resolve(norm, "/", bind->target, strlen(bind->target), err) < 0)
        return nsbx_err_wrap(err, "%s", option);
    if (strcmp(norm, bind->target) != 0 || strchr(norm, ':'))
        return nsbx_err_set(err, NSBX_E_INVALID, "%s: '%s' must be a plain path without '.', '..', '//' or ':'",
                            option, bind->target);
    if (strcmp(norm, "/") == 0 || strcmp(norm, NSBX_INSIDE_WORKSPACE) == 0)
        return nsbx_err_set(err, NSBX_E_INVALID, "%s: '%s' cannot be replaced (use root_fs or workspace)", option,
                            norm);
    for (size_t i = 0; i < NSBX_LEN(reserved); i++)
        if (nsbx_path_within(reserved[i], norm))
            return nsbx_err_set(err, NSBX_E_INVALID, "%s: '%s' cannot be replaced", option, norm);
    if (access(bind->source, F_OK) < 0)
        return nsbx_err_sys(err, errno, "%s: '%s'", option, bind->source);
    return 0;
}

static int check(const struct nsbx_local_options *o, struct nsbx_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < o->n_read_only && rc == 0; i++)
        rc = check_bind(&o->read_only[i], "read_only", err);
    for (size_t i = 0; i < o->n_read_write && rc == 0; i++)
        rc = check_bind(&o->read_write[i], "read_write", err);
    struct stat st;
    if (rc == 0 && o->root_fs) {
        if (o->root_fs[0] != '/')
            rc = nsbx_err_set(err, NSBX_E_INVALID, "root_fs: '%s' must be an absolute path", o->root_fs);
        else if (stat(o->root_fs, &st) < 0)
            rc = nsbx_err_sys(err, errno, "root_fs: '%s'", o->root_fs);
        else if (!S_ISDIR(st.st_mode))
            rc = nsbx_err_set(err, NSBX_E_INVALID, "root_fs: '%s' is not a directory: unpack the image first",
                              o->root_fs);
    }
    return rc;
}

int nsbx_bwrap_args(const struct nsbx_local_options *o, const char *workspace, struct nsbx_args *out,
                    struct nsbx_err *err)
{
    *out = (struct nsbx_args){0};
    int rc = check(o, err);
    if (rc < 0)
        return rc;
    char lifeline[12];
    snprintf(lifeline, sizeof lifeline, "%d", NSBX_BWRAP_LIFELINE);
    /* --unshare-user, never the -try form: without it the sandbox would run as the host's uid with the host's view. */
    add_all(out, "bwrap", "--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
            "--unshare-cgroup-try", "--die-with-parent", "--new-session", "--as-pid-1", "--hostname", "sandbox",
            NULL);
    add_number(out, "--uid", NSBX_INSIDE_UID);
    add_number(out, "--gid", NSBX_INSIDE_UID);
    if (!o->network)
        add(out, "--unshare-net");
    add_environment(out, o);
    add_file_system(out, o, workspace);
    add_all(out, "--", NSBX_INSIDE_AGENT, "--as-pid-1", "--lifeline-fd", lifeline, NULL);
    add_rlimits(out, o);
    if (out->err.code) {
        rc = nsbx_err_copy(err, &out->err);
        nsbx_args_free(out);
    }
    return rc;
}
