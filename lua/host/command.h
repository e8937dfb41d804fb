/* nsbx-lua's command line. */
#ifndef NSBX_HOST_COMMAND_H
#define NSBX_HOST_COMMAND_H

#include <stdbool.h>

struct nsbx_command {
    int script;      /* index in argv of the script ("-" = standard input); 0 = none */
    int n_options;   /* argv[1 .. n_options] are options and their values */
    bool has_chunks; /* there is an -e */
    bool show_version, show_help;
};

/* 0, or the index of the argument that is wrong. */
int nsbx_command_parse(struct nsbx_command *out, int argc, char **argv);
/* Walks the -e chunks in order: start with *at = 1; NULL at the end. */
const char *nsbx_command_chunk(const struct nsbx_command *c, char **argv, int *at);
void nsbx_command_usage(const char *wrong); /* on stderr; `wrong` is the refused argument or NULL */
void nsbx_command_help(void);               /* on stdout */
void nsbx_command_version(void);            /* on stdout */

#endif
