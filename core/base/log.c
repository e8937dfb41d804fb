#include "log.h"

#include "util.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *program_name = "nsbx";
static enum nsbx_log_level threshold = NSBX_LOG_WARN;
static const char *const level_names[] = {"error", "warn", "info", "debug"};

void nsbx_log_init(const char *program, enum nsbx_log_level level)
{
    program_name = program;
    threshold = level;
}

int nsbx_log_level_of(const char *name)
{
    for (size_t i = 0; i < NSBX_LEN(level_names); i++)
        if (strcmp(level_names[i], name) == 0)
            return (int)i;
    return -1;
}

void nsbx_log(enum nsbx_log_level level, const char *fmt, ...)
{
    if (level > threshold)
        return;
    /* One write a line, so that lines of several processes on one stderr stay whole. */
    char line[1024];
    int at = snprintf(line, sizeof line, "%s: %s: ", program_name, level_names[level]);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line + at, sizeof line - (size_t)at, fmt, ap);
    va_end(ap);
    size_t len = NSBX_MIN((size_t)at + (size_t)NSBX_MAX(n, 0), sizeof line - 2);
    line[len++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, len);
    (void)written; /* nobody is left to tell */
}
