#include "command.h"

#include <lua.h>
#include <stdio.h>
#include <string.h>

#ifndef NSBX_VERSION
#define NSBX_VERSION "0.1.0"
#endif

static const char usage_line[] = "usage: nsbx-lua [options] [script [args]]\n";
static const char option_lines[] = "  -e STAT        run the Lua text STAT, before the script\n"
                                   "  -v, --version  show what this is\n"
                                   "  --help         show this\n"
                                   "  --             end of the options\n"
                                   "  -              run standard input\n";

/* How many arguments the option at argv[i] takes up; 0 when there is no such option. */
static int option_width(struct nsbx_command *c, char **argv, int i)
{
    const char *arg = argv[i];
    if (strcmp(arg, "-v") == 0 || strcmp(arg, "--version") == 0) {
        c->show_version = true;
        return 1;
    }
    if (strcmp(arg, "--help") == 0) {
        c->show_help = true;
        return 1;
    }
    if (arg[1] != 'e')
        return 0;
    c->has_chunks = true;
    if (arg[2] != 0)
        return 1; /* -eSTAT */
    return argv[i + 1] && argv[i + 1][0] != '-' ? 2 : 0;
}

int nsbx_command_parse(struct nsbx_command *out, int argc, char **argv)
{
    memset(out, 0, sizeof *out);
    int i = 1;
    while (i < argc && argv[i][0] == '-' && argv[i][1] != 0) {
        if (strcmp(argv[i], "--") == 0) {
            out->n_options = i++;
            out->script = i < argc ? i : 0;
            return 0;
        }
        int width = option_width(out, argv, i);
        if (width == 0)
            return i;
        i += width;
    }
    out->n_options = i - 1;
    out->script = i < argc ? i : 0;
    return 0;
}

const char *nsbx_command_chunk(const struct nsbx_command *c, char **argv, int *at)
{
    while (*at <= c->n_options) {
        const char *arg = argv[(*at)++];
        if (strncmp(arg, "-e", 2) != 0)
            continue;
        return arg[2] ? arg + 2 : argv[(*at)++];
    }
    return NULL;
}

void nsbx_command_usage(const char *wrong)
{
    if (wrong && wrong[0] == '-' && wrong[1] == 'e')
        fprintf(stderr, "nsbx-lua: '%s' needs argument\n", wrong);
    else if (wrong)
        fprintf(stderr, "nsbx-lua: unrecognized option '%s'\n", wrong);
    fprintf(stderr, "%sOptions:\n%s", usage_line, option_lines);
}

void nsbx_command_help(void)
{
    printf("%sRuns a Lua 5.4 recipe; require \"nsbx\" gives it sandboxes.\n%s", usage_line, option_lines);
}

void nsbx_command_version(void)
{
    printf("nsbx-lua %s, %s\n", NSBX_VERSION, LUA_RELEASE);
}
