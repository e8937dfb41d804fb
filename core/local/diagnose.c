#include "diagnose.h"

#include "base/util.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A number in a /proc/sys file; -1 when it is not there. */
static long sysctl_value(const char *path)
{
    NSBX_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    char text[32];
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (n <= 0)
        return -1;
    text[n] = '\0';
    return strtol(text, NULL, 10);
}

static const char *userns_advice(void)
{
    if (sysctl_value("/proc/sys/kernel/unprivileged_userns_clone") == 0)
        return "user namespaces are switched off: sysctl -w kernel.unprivileged_userns_clone=1";
    if (sysctl_value("/proc/sys/user/max_user_namespaces") == 0)
        return "user namespaces are switched off: sysctl -w user.max_user_namespaces=10000";
    if (sysctl_value("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1)
        return "AppArmor restricts user namespaces: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or a "
               "profile for bwrap";
    return "user namespaces are refused here, by a seccomp filter as containers have it, or by a limit (sysctl "
           "user.max_user_namespaces)";
}

int nsbx_diagnose_bwrap(const char *said, long uid, struct nsbx_err *err)
{
    char words[320];
    size_t len = strcspn(said, "");
    while (len > 0 && (said[len - 1] == '\n' || said[len - 1] == ' '))
        len--;
    /* The last lines say what ended it. */
    const char *from = len < sizeof words ? said : said + len - (sizeof words - 1);
    snprintf(words, sizeof words, "%.*s", (int)(said + len - from), from);
    for (char *p = words; *p; p++)
        if (*p == '\n')
            *p = ' ';

    if (strstr(words, "namespace") && (strstr(words, "ermission") || strstr(words, "not permitted") ||
                                       strstr(words, "ENOSPC") || strstr(words, "No space left")))
        return nsbx_err_reason(err, NSBX_E_UNSUPPORTED, "userns", "bubblewrap could not isolate: \"%s\"; %s", words,
                               userns_advice());
    if (strstr(words, "disable-userns") || strstr(words, "Unknown option"))
        return nsbx_err_reason(err, NSBX_E_UNSUPPORTED, "bubblewrap_too_old",
                               "bubblewrap said: \"%s\"; install the package bubblewrap, 0.8 or newer", words);
    if (strstr(words, "mount proc") || strstr(words, "/newroot/proc"))
        return nsbx_err_reason(err, NSBX_E_UNSUPPORTED, "masked_proc",
                               "bubblewrap could not mount /proc: \"%s\"; the /proc here is masked, as in a "
                               "container: run it with an unmasked /proc",
                               words);
    if (strstr(words, "source path"))
        return nsbx_err_reason(
            err, NSBX_E_FORBIDDEN, "unreachable_path",
            "bubblewrap said: \"%s\"; the sandbox runs as host uid %ld, which must be able to reach that path",
            words, uid);
    if (words[0])
        return nsbx_err_reason(err, NSBX_E_IO, "bubblewrap",
                               "the sandbox ended before it answered; it said: \"%s\"", words);
    return nsbx_err_reason(err, NSBX_E_IO, "bubblewrap", "the sandbox ended before it answered, without a word");
}

int nsbx_diagnose_missing(struct nsbx_err *err)
{
    if (err && err->code == NSBX_E_NOT_FOUND)
        return nsbx_err_reason(
            err, NSBX_E_UNSUPPORTED, "bubblewrap_missing",
            "the local backend needs bubblewrap, and there is no bwrap on PATH: install the package bubblewrap");
    return nsbx_err_wrap(err, "start bubblewrap");
}
