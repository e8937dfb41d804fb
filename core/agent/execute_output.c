/* The pipes of a command. What it says goes to the host as long as the host takes it, and no faster; when the host is gone, or has its
 * result, it is read and dropped, so that the command never waits for nobody. */
#include "execution.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* ---- output ---- */

static void watch_drain(struct nsbx_execution *x)
{
    if (x->answered || !x->leader_exited || x->drained || nsbx_timer_active(x->drain))
        return;
    if (x->cause != NSBX_CAUSE_NONE ? !x->tree_ended : x->request.wait_pipes)
        return;
    bool read_up = x->pipes[0].owed == 0 && x->pipes[1].owed == 0;
    if ((read_up || x->agent->stopping) &&
        !nsbx_execution_pipes_ended(x)) /* an agent that ends waits for no reader */
        nsbx_timer_start(x->drain, NSBX_EXEC_DRAIN_MS);
}

static void close_pipe(struct nsbx_exec_pipe *pipe)
{
    nsbx_stream_close(pipe->stream);
    pipe->stream = NULL;
    pipe->fd = -1;
    pipe->owed = 0;
}

/* A conversation that cannot take a message is over; the command is not. */
static void drop_channel(struct nsbx_execution *x, const struct nsbx_err *err)
{
    nsbx_log(NSBX_LOG_DEBUG, "execute: %s", err->message);
    nsbx_channel_close(x->ch);
    x->ch = NULL;
    nsbx_execution_input_end(x);
}

static void on_read(void *ud, const uint8_t *bytes, size_t n)
{
    struct nsbx_exec_pipe *pipe = ud;
    struct nsbx_execution *x = pipe->execution;
    struct nsbx_err err = {0};
    pipe->owed -= NSBX_MIN(pipe->owed, n);
    if (!x->answered) {
        uint64_t room = x->request.max_output - pipe->sent;
        if (n > room)
            pipe->truncated = true;
        n = (size_t)NSBX_MIN(n, room);
        pipe->sent += n;
        if (n && x->ch && nsbx_channel_data(x->ch, pipe->sub, bytes, n, -1, &err) != 0)
            drop_channel(x, &err);
    }
    nsbx_execution_pipes_flow(x);
    watch_drain(x);
}

static void on_eof(void *ud)
{
    struct nsbx_exec_pipe *pipe = ud;
    close_pipe(pipe);
    nsbx_execution_advance(pipe->execution);
}

static void on_error(void *ud, const struct nsbx_err *err)
{
    nsbx_log(NSBX_LOG_WARN, "a command's output: %s", err->message);
    on_eof(ud);
}

static const struct nsbx_stream_events output_events = {.on_read = on_read, .on_eof = on_eof, .on_error = on_error};

bool nsbx_execution_pipes_ended(const struct nsbx_execution *x)
{
    return !x->pipes[0].stream && !x->pipes[1].stream;
}

void nsbx_execution_pipes_flow(struct nsbx_execution *x)
{
    bool wanted = x->answered || !x->ch || nsbx_channel_room(x->ch) > 0;
    for (int i = 0; i < 2; i++) {
        if (!x->pipes[i].stream)
            continue;
        if (wanted)
            nsbx_stream_read_start(x->pipes[i].stream);
        else
            nsbx_stream_read_stop(x->pipes[i].stream);
    }
}

void nsbx_execution_pipes_measure(struct nsbx_execution *x)
{
    for (int i = 0; i < 2; i++) {
        int held = 0;
        if (x->pipes[i].stream && ioctl(x->pipes[i].fd, FIONREAD, &held) == 0)
            x->pipes[i].owed = (uint64_t)held;
    }
    watch_drain(x);
}

/* ---- input ---- */

static void input_consumed(struct nsbx_execution *x)
{
    size_t n = x->in_owed;
    x->in_owed = 0;
    if (n && x->ch)
        nsbx_channel_consumed(x->ch, n);
}

static void close_input(struct nsbx_execution *x)
{
    nsbx_stream_close(x->in);
    x->in = NULL;
    input_consumed(x);
}

/* The command reads no more, which is its right; what still comes for it is dropped. A host that streams is told, once. */
static void input_refused(struct nsbx_execution *x)
{
    struct nsbx_err err = {0};
    bool tell = x->request.stdin_stream && x->ch && !x->leader_exited;
    if (tell && nsbx_channel_send(x->ch, json_pack("{s:s}", "type", "stdin_closed"), &err) != 0)
        nsbx_log(NSBX_LOG_DEBUG, "execute: %s", err.message); /* the channel's own failure follows */
    close_input(x);
}

static void on_input_drain(void *ud)
{
    struct nsbx_execution *x = ud;
    if (x->in_ended)
        close_input(x);
    else
        input_consumed(x);
}

static void on_input_error(void *ud, const struct nsbx_err *err)
{
    (void)err;
    input_refused(ud);
}

static const struct nsbx_stream_events input_events = {.on_error = on_input_error, .on_drain = on_input_drain};

void nsbx_execution_input(struct nsbx_execution *x, const uint8_t *bytes, size_t n)
{
    x->in_owed += n;
    if (!x->in || x->in_ended)
        input_consumed(x);
    else if (nsbx_stream_write(x->in, bytes, n, NULL) != 0)
        input_refused(x);
    else if (nsbx_stream_queued(x->in) == 0)
        input_consumed(x);
}

void nsbx_execution_input_end(struct nsbx_execution *x)
{
    x->in_ended = true;
    if (x->in && (x->leader_exited || nsbx_stream_queued(x->in) == 0))
        close_input(x);
}

/* ---- birth and death ---- */

static int make_stream(struct nsbx_execution *x, int fd, struct nsbx_stream **out, struct nsbx_fault *fault)
{
    struct nsbx_err err = {0};
    if (nsbx_stream_from_fd(x->agent->loop, fd, out, &err) == 0)
        return 0;
    *out = NULL;
    return nsbx_fault_set(fault, "spawn %s: %s", x->request.argv[0], err.message);
}

static int open_pipe(struct nsbx_execution *x, int ends[2], struct nsbx_fault *fault)
{
    if (pipe2(ends, O_CLOEXEC) == 0)
        return 0;
    const char *name = nsbx_errno_name(errno);
    nsbx_fault_set(fault, "spawn %s %s", x->request.argv[0], name);
    fault->code = name;
    return -1;
}

int nsbx_execution_pipes_open(struct nsbx_execution *x, struct nsbx_fault *fault)
{
    static const enum nsbx_sub subs[] = {NSBX_SUB_STDOUT, NSBX_SUB_STDERR};
    int ends[2];
    for (int i = 0; i < 2; i++) {
        struct nsbx_exec_pipe *pipe = &x->pipes[i];
        pipe->execution = x;
        pipe->sub = subs[i];
        if (open_pipe(x, ends, fault) != 0)
            return -1;
        x->child_fds[1 + i] = ends[1];
        pipe->fd = ends[0];
        if (make_stream(x, ends[0], &pipe->stream, fault) != 0)
            return -1;
        nsbx_stream_set_events(pipe->stream, &output_events, pipe);
    }
    bool wanted = x->request.has_stdin || x->request.stdin_stream;
    if (!wanted && x->agent->has_null)
        return 0; /* /dev/null then */
    if (open_pipe(x, ends, fault) != 0)
        return -1;
    x->child_fds[0] = ends[0];
    if (!wanted) { /* in an image without devices: a pipe that is at its end */
        close(ends[1]);
        return 0;
    }
    if (make_stream(x, ends[1], &x->in, fault) != 0)
        return -1;
    nsbx_stream_set_events(x->in, &input_events, x);
    return 0;
}

void nsbx_execution_pipes_started(struct nsbx_execution *x)
{
    for (int i = 0; i < 3; i++)
        nsbx_cleanup_fd(&x->child_fds[i]);
}

void nsbx_execution_pipes_close(struct nsbx_execution *x)
{
    nsbx_execution_pipes_started(x);
    close_pipe(&x->pipes[0]);
    close_pipe(&x->pipes[1]);
    nsbx_stream_close(x->in);
    x->in = NULL;
}
