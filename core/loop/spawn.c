#include "spawn.h"

#include "base/util.h"
#include "spawn_priv.h"

#include <stdio.h>
#include <string.h>

static const char default_search[] = "/usr/local/bin:/usr/bin:/bin";

void nsbx_spawn_init(struct nsbx_spawn *s)
{
    *s = (struct nsbx_spawn){.cwd_fd = -1, .controlling_tty = -1};
}

static const char *search_path(const struct nsbx_spawn *spec)
{
    if (!*spec->file || strchr(spec->file, '/'))
        return NULL;
    for (const char *const *entry = spec->envp; *entry; entry++)
        if (strncmp(*entry, "PATH=", 5) == 0)
            return *entry + 5;
    return default_search;
}

static bool maps_twice(const struct nsbx_spawn *spec, size_t upto, int to)
{
    for (size_t i = 0; i < upto; i++)
        if (spec->fds[i].to == to)
            return true;
    return false;
}

static int check_fds(const struct nsbx_spawn *spec, struct nsbx_err *err)
{
    if (spec->n_fds > NSBX_SPAWN_MAX_FDS)
        return nsbx_err_set(err, NSBX_E_INVALID, "%zu descriptors for a child; at most %d", spec->n_fds,
                            NSBX_SPAWN_MAX_FDS);
    for (size_t i = 0; i < spec->n_fds; i++) {
        struct nsbx_fd_map map = spec->fds[i];
        if (map.from < 0 || map.to < 0)
            return nsbx_err_set(err, NSBX_E_INVALID, "descriptor %d cannot become %d in a child", map.from, map.to);
        if (maps_twice(spec, i, map.to))
            return nsbx_err_set(err, NSBX_E_INVALID, "two descriptors for %d in a child", map.to);
    }
    int tty = spec->controlling_tty;
    if (tty >= 0 && (!spec->new_session || (tty > 2 && !maps_twice(spec, spec->n_fds, tty))))
        return nsbx_err_set(
            err, NSBX_E_INVALID,
            "descriptor %d cannot be a child's terminal: it needs a session of its own and that descriptor", tty);
    return 0;
}

int nsbx_spawn_plan(struct nsbx_spawn_plan *plan, const struct nsbx_spawn *spec, struct nsbx_err *err)
{
    if (!spec->file || !spec->argv || !spec->argv[0] || !spec->envp)
        return nsbx_err_set(err, NSBX_E_INVALID, "a child needs a file, arguments and an environment");
    if (spec->n_rlimits > NSBX_SPAWN_MAX_RLIMITS)
        return nsbx_err_set(err, NSBX_E_INVALID, "%zu limits for a child; at most %d", spec->n_rlimits,
                            NSBX_SPAWN_MAX_RLIMITS);
    int rc = check_fds(spec, err);
    if (rc)
        return rc;
    *plan = (struct nsbx_spawn_plan){.spec = spec, .search = search_path(spec), .first_free = 3};
    for (size_t i = 0; i < spec->n_fds; i++)
        plan->first_free = NSBX_MAX(plan->first_free, spec->fds[i].to + 1);
    return 0;
}

void nsbx_spawn_names(struct nsbx_spawn_names *names, const struct nsbx_spawn *spec)
{
    snprintf(names->file, sizeof names->file, "%s", *spec->file ? spec->file : "\"\"");
    snprintf(names->cwd, sizeof names->cwd, "%s",
             spec->cwd_fd >= 0 ? "the given descriptor"
             : spec->cwd       ? spec->cwd
                               : ".");
}

static int exec_error(int sys, const char *file, struct nsbx_err *err)
{
    if (sys == ENOEXEC)
        return nsbx_err_sys(err, sys,
                            "cannot run %s, neither a program for this machine nor a script with a #! line", file);
    if (sys == ENOENT && !strchr(file, '/'))
        return nsbx_err_sys(err, sys, "cannot run %s, which is in no directory of PATH", file);
    return nsbx_err_sys(err, sys, "cannot run %s", file);
}

int nsbx_spawn_error(const struct nsbx_spawn_report *report, const struct nsbx_spawn_names *names,
                     struct nsbx_err *err)
{
    const char *file = names->file;
    int sys = report->sys;
    switch ((enum nsbx_spawn_stage)report->stage) {
    case NSBX_SPAWN_STAGE_FORK:
        return nsbx_err_sys(err, sys, "cannot make a process for %s", file);
    case NSBX_SPAWN_STAGE_SESSION:
        return nsbx_err_sys(err, sys, "cannot make a session for %s", file);
    case NSBX_SPAWN_STAGE_DESCRIPTORS:
        return nsbx_err_sys(err, sys, "cannot place the descriptors of %s", file);
    case NSBX_SPAWN_STAGE_TERMINAL:
        return nsbx_err_sys(err, sys, "cannot give %s its terminal", file);
    case NSBX_SPAWN_STAGE_LIMITS:
        return nsbx_err_sys(err, sys, "cannot set the limits of %s", file);
    case NSBX_SPAWN_STAGE_KEYRING:
        return nsbx_err_sys(err, sys, "cannot make a session keyring for %s", file);
    case NSBX_SPAWN_STAGE_IDENTITY:
        return nsbx_err_sys(err, sys, "cannot change the user and group of %s", file);
    case NSBX_SPAWN_STAGE_DIRECTORY:
        return nsbx_err_sys(err, sys, "cannot run %s in the directory %s", file, names->cwd);
    case NSBX_SPAWN_STAGE_PARENT:
        return nsbx_err_sys(err, sys, "cannot bind %s to the life of its parent", file);
    case NSBX_SPAWN_STAGE_EXEC:
        return exec_error(sys, file, err);
    case NSBX_SPAWN_STAGE_NONE:
        break;
    }
    return nsbx_err_set(err, NSBX_E_PROTOCOL, "a report of stage %d from the child that should run %s",
                        report->stage, file);
}
