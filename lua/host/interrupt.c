#include "interrupt.h"

#include "bind/bind.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

/* The recipe's tasks, `<close>` and sandboxes have this long to end. Then the process ends, and with it (by the lifeline)
 * its sandboxes. */
enum { LAST_RESORT_S = 30 };

static volatile sig_atomic_t caught;

static void on_interrupt(int signo)
{
    if (caught && signo == SIGPIPE)
        return; /* what `<close>` still prints goes nowhere, and must not cost the sandboxes */
    if (caught)
        _exit(128 + caught); /* the second one, or the alarm */
    caught = signo;
    alarm(LAST_RESORT_S);
    nsbx_sched_interrupt(signo);
}

void nsbx_interrupt_install(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGALRM};
    struct sigaction ours, theirs;
    memset(&ours, 0, sizeof ours);
    ours.sa_handler = on_interrupt;
    sigemptyset(&ours.sa_mask);
    ours.sa_flags = SA_RESTART;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        sigaddset(&ours.sa_mask, signals[i]);
    }
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        if (sigaction(signals[i], NULL, &theirs) == 0 && theirs.sa_handler != SIG_IGN)
            sigaction(signals[i], &ours, NULL);
    }
}

int nsbx_interrupt_caught(void)
{
    return caught;
}

int nsbx_interrupt_status(int status)
{
    return caught ? 128 + caught : status;
}
