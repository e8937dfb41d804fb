#include "spawn.h"

#include "base/util.h"

#include <signal.h>
#include <string.h>
#include <strings.h>

/* The first name of a number is the one that is shown. */
static const struct {
    int signo;
    const char *name;
} signals[] = {
#define ROW(name)                                                                                                  \
    {                                                                                                              \
        name, #name                                                                                                \
    }
    ROW(SIGHUP),  ROW(SIGINT),    ROW(SIGQUIT), ROW(SIGILL),  ROW(SIGTRAP),   ROW(SIGABRT), ROW(SIGBUS),
    ROW(SIGFPE),  ROW(SIGKILL),   ROW(SIGUSR1), ROW(SIGSEGV), ROW(SIGUSR2),   ROW(SIGPIPE), ROW(SIGALRM),
    ROW(SIGTERM), ROW(SIGSTKFLT), ROW(SIGCHLD), ROW(SIGCONT), ROW(SIGSTOP),   ROW(SIGTSTP), ROW(SIGTTIN),
    ROW(SIGTTOU), ROW(SIGURG),    ROW(SIGXCPU), ROW(SIGXFSZ), ROW(SIGVTALRM), ROW(SIGPROF), ROW(SIGWINCH),
    ROW(SIGIO),   ROW(SIGPWR),    ROW(SIGSYS),  ROW(SIGIOT),  ROW(SIGPOLL),   ROW(SIGCLD),
#undef ROW
};

const char *nsbx_signal_name(int signo)
{
    for (size_t i = 0; i < NSBX_LEN(signals); i++)
        if (signals[i].signo == signo)
            return signals[i].name;
    return NULL;
}

int nsbx_signal_of_name(const char *name)
{
    for (size_t i = 0; i < NSBX_LEN(signals); i++)
        if (strcasecmp(name, signals[i].name) == 0 || strcasecmp(name, signals[i].name + 3) == 0)
            return signals[i].signo;
    return 0;
}
