/* Ctrl-C, SIGTERM and SIGHUP end the recipe in order; a second one, or time, ends it at once. */
#ifndef NSBX_HOST_INTERRUPT_H
#define NSBX_HOST_INTERRUPT_H

/* Installs the handlers, but for signals that were ignored when the program started (nohup, a background job). */
void nsbx_interrupt_install(void);
/* The signal that came, or 0. */
int nsbx_interrupt_caught(void);
/* The exit status: 128 + the signal that came, else `status`. */
int nsbx_interrupt_status(int status);

#endif
