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
    /* Only the name that the caller gave may be a link. */
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (*below ? O_NOFOLLOW : 0));
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        int sys = errno;
        if (fd >= 0)
            close(fd);
        struct stat st;
        if (sys == ENOENT)
            return;
        if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode) && *below)
            nsbx_err_set(&args->err, NSBX_E_INVALID,
                         "root_fs: '%s' is a link, and an image's links could lead out of it: make it a directory",
                         path);
        else
            nsbx_err_sys(&args->err, sys, "root_fs '%s'", path);
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

/* What an image has there does not come along. */
static const char *const ours[] = {"proc", "dev", "tmp", "run", "workspace", "etc", NULL};

static void add_image(struct nsbx_args *args, const char *root)
{
    static const char *const ours_in_etc[] = {"passwd", "group", "resolv.conf", "hosts", "nsswitch.conf", NULL};
    add_children(args, root, "", ours);
    add_all(args, "--perms", "0755", "--dir", "/etc", NULL);
    add_children(args, root, "/etc", ours_in_etc);
}

struct mount {
    const char *option;
    const struct nsbx_local_bind *bind;
};

static int by_target(const void *a, const void *b)
{
    const struct mount *x = a, *y = b;
    return strcmp(x->bind->target, y->bind->target);
}

/* The outer ones first: they would hide the ones inside of them. */
static void add_binds(struct nsbx_args *args, const struct nsbx_local_options *o)
{
    size_t n = 0;
    struct mount *mounts = nsbx_calloc(o->n_read_only + o->n_read_write + 1, sizeof *mounts);
    if (!mounts) {
        if (!args->err.code)
            nsbx_err_nomem(&args->err, "bubblewrap's arguments");
        return;
    }
    for (size_t i = 0; i < o->n_read_only; i++)
        mounts[n++] = (struct mount){"--ro-bind", &o->read_only[i]};
    for (size_t i = 0; i < o->n_read_write; i++)
        mounts[n++] = (struct mount){"--bind", &o->read_write[i]};
    qsort(mounts, n, sizeof *mounts, by_target);
    for (size_t i = 0; i < n; i++)
        add_all(args, mounts[i].option, mounts[i].bind->source, mounts[i].bind->target, NULL);
    nsbx_free(mounts);
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
    add_binds(args, o);
    /* What is left of the new root is a tmpfs without a bound: nobody may write there. */
    add_all(args, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", NSBX_INSIDE_WORKSPACE, NULL);
}

struct limit_names {
    int resource;
    const char *agent;  /* in the agent's --rlimit */
    const char *option; /* in the recipe's limits */
    const char *ulimit; /* the shell's word for the host's bound */
};

static const struct limit_names *names_of_limit(int resource)
{
    static const struct limit_names names[] = {{RLIMIT_AS, "as", "memory_per_process", "-Hv (in KiB)"},
                                               {RLIMIT_NPROC, "nproc", "processes", "-Hu"},
                                               {RLIMIT_FSIZE, "fsize", "file_size", "-Hf (in blocks)"},
                                               {RLIMIT_CPU, "cpu", "cpu_seconds", "-Ht"},
                                               {RLIMIT_NOFILE, "nofile", "open_files", "-Hn"}};
    for (size_t i = 0; i < NSBX_LEN(names); i++)
        if (names[i].resource == resource)
            return &names[i];
    return NULL;
}

static void add_rlimits(struct nsbx_args *args, const struct nsbx_local_options *o)
{
    for (size_t i = 0; i < o->n_rlimits; i++) {
        char text[48];
        snprintf(text, sizeof text, "%s=%ju", names_of_limit(o->rlimits[i].resource)->agent,
                 (uintmax_t)o->rlimits[i].value.rlim_cur);
        add_all(args, "--rlimit", text, NULL);
    }
}

/* A sandbox has no privilege to raise what this process bounds it to: every command of it would fail to start. */
static int check_limit(const struct nsbx_rlimit *wanted, struct nsbx_err *err)
{
    const struct limit_names *names = names_of_limit(wanted->resource);
    struct rlimit host;
    if (!names)
        return nsbx_err_set(err, NSBX_E_INVALID, "limits: there is no limit for resource %d", wanted->resource);
    if (getrlimit(wanted->resource, &host) < 0)
        return nsbx_err_sys(err, errno, "limits: the host's bound of %s", names->option);
    if (wanted->value.rlim_cur <= host.rlim_max) /* RLIM_INFINITY is the largest of all */
        return 0;
    return nsbx_err_set(err, NSBX_E_INVALID,
                        "limits: %s = %ju is more than the %ju that the host allows this program (ulimit %s)",
                        names->option, (uintmax_t)wanted->value.rlim_cur, (uintmax_t)host.rlim_max, names->ulimit);
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
        if (nsbx_path_within(reserved[i], norm) || nsbx_path_within(norm, reserved[i]))
            return nsbx_err_set(err, NSBX_E_INVALID, "%s: '%s' cannot be replaced", option, norm);
    if (access(bind->source, F_OK) < 0)
        return nsbx_err_sys(err, errno, "%s: '%s'", option, bind->source);
    return 0;
}

/* No part of `below`, which starts with '/', may be a link in the host's `tree`. */
static int check_way(const char *tree, const char *below, const char *option, struct nsbx_err *err)
{
    char path[NSBX_PATH_MAX];
    int n = snprintf(path, sizeof path, "%s%s", tree, below);
    if (n < 0 || (size_t)n >= sizeof path)
        return nsbx_err_set(err, NSBX_E_INVALID, "%s: the path '%.100s…' is too long", option, path);
    for (char *end = path + strlen(tree); end;) {
        end = strchr(end + 1, '/');
        if (end)
            *end = '\0';
        struct stat st;
        if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode))
            return nsbx_err_set(
                err, NSBX_E_INVALID,
                "%s: '%s' is a link, and nothing is mounted through a link: name another place inside", option,
                path);
        if (end)
            *end = '/';
    }
    return 0;
}

/* bubblewrap follows links on its way to a place to mount on, and makes what is missing there, while the host's files are
 * still in reach. So what an image, or a directory that a sandbox may have written, has on that way must not be one. */
static int check_target(const struct nsbx_local_options *o, const char *workspace, const char *target,
                        const char *option, struct nsbx_err *err)
{
    char top[NSBX_PATH_MAX];
    snprintf(top, sizeof top, "%.*s", (int)strcspn(target + 1, "/"), target + 1);
    int rc = 0;
    if (o->root_fs && (strcmp(top, "etc") == 0 || !is_one_of(top, ours)))
        rc = check_way(o->root_fs, target, option, err);
    if (rc == 0 && nsbx_path_within(NSBX_INSIDE_WORKSPACE, target))
        rc = check_way(workspace, target + strlen(NSBX_INSIDE_WORKSPACE), option, err);
    for (size_t i = 0; i < o->n_read_only + o->n_read_write && rc == 0; i++) {
        const struct nsbx_local_bind *outer =
            i < o->n_read_only ? &o->read_only[i] : &o->read_write[i - o->n_read_only];
        if (strcmp(target, outer->target) != 0 && nsbx_path_within(outer->target, target))
            rc = check_way(outer->source, target + strlen(outer->target), option, err);
    }
    return rc;
}

static int check(const struct nsbx_local_options *o, const char *workspace, struct nsbx_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < o->n_read_only && rc == 0; i++)
        rc = check_bind(&o->read_only[i], "read_only", err);
    for (size_t i = 0; i < o->n_read_write && rc == 0; i++)
        rc = check_bind(&o->read_write[i], "read_write", err);
    for (size_t i = 0; i < o->n_read_only && rc == 0; i++)
        rc = check_target(o, workspace, o->read_only[i].target, "read_only", err);
    for (size_t i = 0; i < o->n_read_write && rc == 0; i++)
        rc = check_target(o, workspace, o->read_write[i].target, "read_write", err);
    for (size_t i = 0; i < o->n_rlimits && rc == 0; i++)
        rc = check_limit(&o->rlimits[i], err);
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
    int rc = check(o, workspace, err);
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
