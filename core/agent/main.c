/* nsbx-agent: the program inside a sandbox that serves its host. */
#include "base/log.h"
#include "base/util.h"
#include "config.h"
#include "life.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { OPT_AS_PID_1 = 256, OPT_LIFELINE, OPT_RLIMIT, OPT_HELP, OPT_VERSION };

static const struct option options[] = {
    {"as-pid-1", no_argument, NULL, OPT_AS_PID_1},   {"lifeline-fd", required_argument, NULL, OPT_LIFELINE},
    {"rlimit", required_argument, NULL, OPT_RLIMIT}, {"help", no_argument, NULL, OPT_HELP},
    {"version", no_argument, NULL, OPT_VERSION},     {NULL, 0, NULL, 0},
};

static const char usage[] =
    "usage: nsbx-agent [--as-pid-1] [--lifeline-fd N] [--rlimit NAME=N]... [--help] [--version]\n"
    "\n"
    "  --as-pid-1       be the init of a pid namespace: reap what nobody waits for\n"
    "  --lifeline-fd N  end everything when this pipe's other end is closed\n"
    "  --rlimit NAME=N  limit executed commands: as, nproc, fsize, cpu or nofile\n"
    "\n"
    "It listens where NAMZU_AGENT_UNIX_PATH, NAMZU_AGENT_VSOCK_PORT (a listening socket as\n"
    "descriptor 3) or NAMZU_AGENT_TCP_PORT says; its files are in NAMZU_SANDBOX_WORKSPACE.\n";

static int parse_fd(const char *text)
{
    char *end;
    errno = 0;
    long fd = strtol(text, &end, 10);
    return errno || end == text || *end || fd < 0 || fd > INT_MAX ? -1 : (int)fd;
}

/* 0: go on; else the exit status plus one. */
static int parse_options(int argc, char **argv, struct nsbx_agent_config *config)
{
    struct nsbx_err err = {0};
    int c;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case OPT_AS_PID_1:
            config->as_pid_1 = true;
            break;
        case OPT_LIFELINE:
            config->lifeline_fd = parse_fd(optarg);
            if (config->lifeline_fd < 0) {
                nsbx_log(NSBX_LOG_ERROR, "--lifeline-fd %s: want the number of a descriptor", optarg);
                return EXIT_FAILURE + 1;
            }
            break;
        case OPT_RLIMIT:
            if (nsbx_agent_config_rlimit(config, optarg, &err) != 0) {
                nsbx_log(NSBX_LOG_ERROR, "%s", err.message);
                return EXIT_FAILURE + 1;
            }
            break;
        case OPT_HELP:
            fputs(usage, stdout);
            return EXIT_SUCCESS + 1;
        case OPT_VERSION:
            puts("nsbx-agent " NSBX_VERSION);
            return EXIT_SUCCESS + 1;
        default:
            fputs(usage, stderr);
            return EXIT_FAILURE + 1;
        }
    }
    if (optind < argc) {
        nsbx_log(NSBX_LOG_ERROR, "%s: no arguments are expected", argv[optind]);
        return EXIT_FAILURE + 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (!nsbx_open_standard_fds())
        return EXIT_FAILURE;
    struct nsbx_agent_config config = {.lifeline_fd = -1};
    struct nsbx_err err = {0};
    nsbx_log_init("nsbx-agent", NSBX_LOG_WARN);
    int status = parse_options(argc, argv, &config);
    if (status)
        return status - 1;
    if (config.as_pid_1 && getpid() != 1) {
        nsbx_log(NSBX_LOG_ERROR, "--as-pid-1: this is process %d, not the first of a pid namespace", (int)getpid());
        return EXIT_FAILURE;
    }
    if (nsbx_agent_config_load(&config, &err) != 0) {
        nsbx_agent_config_wipe(&config);
        nsbx_log(NSBX_LOG_ERROR, "%s", err.message);
        return EXIT_FAILURE;
    }
    return nsbx_agent_run(&config);
}
