#include "spawn.h"

#include "base/util.h"

#include <ctype.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Of Linux, whose first two the C library keeps for itself: a command may be built with another one. */
enum { RT_FIRST = 32, RT_MIN = 34, RT_MAX = 64 };

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

/* As shells name them: the nearer end counts. */
static const char *const real_time[RT_MAX - RT_FIRST + 1] = {
    "SIG32",       "SIG33",       "SIGRTMIN",    "SIGRTMIN+1",  "SIGRTMIN+2",  "SIGRTMIN+3",  "SIGRTMIN+4",
    "SIGRTMIN+5",  "SIGRTMIN+6",  "SIGRTMIN+7",  "SIGRTMIN+8",  "SIGRTMIN+9",  "SIGRTMIN+10", "SIGRTMIN+11",
    "SIGRTMIN+12", "SIGRTMIN+13", "SIGRTMIN+14", "SIGRTMIN+15", "SIGRTMAX-14", "SIGRTMAX-13", "SIGRTMAX-12",
    "SIGRTMAX-11", "SIGRTMAX-10", "SIGRTMAX-9",  "SIGRTMAX-8",  "SIGRTMAX-7",  "SIGRTMAX-6",  "SIGRTMAX-5",
    "SIGRTMAX-4",  "SIGRTMAX-3",  "SIGRTMAX-2",  "SIGRTMAX-1",  "SIGRTMAX",
};

const char *nsbx_signal_name(int signo)
{
    if (signo >= RT_FIRST && signo <= RT_MAX)
        return real_time[signo - RT_FIRST];
    for (size_t i = 0; i < NSBX_LEN(signals); i++)
        if (signals[i].signo == signo)
            return signals[i].name;
    return NULL;
}

/* "RTMIN", "RTMIN+3", "RTMAX-20"; 0 for anything else. */
static int real_time_of_name(const char *name)
{
    bool up = strncasecmp(name, "RTMIN", 5) == 0;
    if (!up && strncasecmp(name, "RTMAX", 5) != 0)
        return 0;
    name += 5;
    if (!*name)
        return up ? RT_MIN : RT_MAX;
    if (*name != (up ? '+' : '-') || !isdigit((unsigned char)name[1]))
        return 0;
    char *end;
    long n = strtol(name + 1, &end, 10);
    if (*end || n > RT_MAX - RT_MIN)
        return 0;
    return up ? RT_MIN + (int)n : RT_MAX - (int)n;
}

int nsbx_signal_of_name(const char *name)
{
    const char *bare = strncasecmp(name, "SIG", 3) == 0 ? name + 3 : name;
    for (size_t i = 0; i < NSBX_LEN(signals); i++)
        if (strcasecmp(bare, signals[i].name + 3) == 0)
            return signals[i].signo;
    if (strcmp(bare, "32") == 0 || strcmp(bare, "33") == 0)
        return bare == name ? 0 : RT_FIRST + (bare[1] - '2');
    return real_time_of_name(bare);
}
