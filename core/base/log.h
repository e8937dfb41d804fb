/* Diagnostics on stderr, one line each: "<program>: <level>: <text>". Never holds a secret. */
#ifndef NSBX_BASE_LOG_H
#define NSBX_BASE_LOG_H

enum nsbx_log_level { NSBX_LOG_ERROR, NSBX_LOG_WARN, NSBX_LOG_INFO, NSBX_LOG_DEBUG };

void nsbx_log_init(const char *program, enum nsbx_log_level level); /* `program` is kept, not copied */
int nsbx_log_level_of(const char *name); /* -1 when it is none of error, warn, info, debug */
void nsbx_log(enum nsbx_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
