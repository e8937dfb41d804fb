/* Every maximum has a name, and the name is here. Bytes and milliseconds unless the name says otherwise.
 * Those marked [wire] are the published protocol's and must not change. */
#ifndef NSBX_BASE_LIMITS_H
#define NSBX_BASE_LIMITS_H

/* --- frames and messages --- */
#define NSBX_MAX_FRAME (256u * 1024 * 1024) /* [wire] announced length once authenticated */
#define NSBX_MAX_PREAUTH_FRAME                                                                                     \
    (8u * 1024 * 1024) /* [wire] before that, in a token mode; also the host's tcp envelope */
#define NSBX_MAX_PREAUTH_BUFFER (32u * 1024 * 1024) /* [wire] all unauthenticated connections together */
#define NSBX_MAX_PREAUTH_CONNECTIONS 64             /* [wire] */
#define NSBX_MAX_MESSAGE_REST (1024u * 1024)        /* a message without its large member, as JSON text */
#define NSBX_MAX_MESSAGE_DEPTH 64                   /* nesting of a message */
#define NSBX_MAX_MESSAGE_CONTAINERS 32768 /* its objects and arrays: a parsed one costs a hundred times its text */
#define NSBX_MAX_REPLY_FRAME (512u * 1024 * 1024) /* announced length that the host accepts from a guest */
#define NSBX_MAX_HELD_DATA                                                                                         \
    (16u * 1024 * 1024) /* data of one message that must wait for the message's end (its offset may follow) */
#define NSBX_SPOOL_MEMORY (1024u * 1024) /* a large member is held in memory up to here, in a file beyond */
#define NSBX_PREAUTH_IDLE_MS 10000       /* [wire] without a byte, before the token */
#define NSBX_PREAUTH_DEADLINE_MS 10000   /* [wire] from accept to the token */
#define NSBX_REFUSAL_FLUSH_MS 1000       /* [wire] to send a refusal */

/* --- streams and channels --- */
#define NSBX_STREAM_READ_CHUNK (256u * 1024)         /* one read of a socket or pipe, at most */
#define NSBX_STREAM_QUEUE (64u * 1024 * 1024 + 4096) /* hard bound of unsent bytes of one stream */
#define NSBX_CHANNEL_WINDOW                                                                                        \
    (1024u * 1024) /* received and not yet consumed bytes of one channel; also its send queue's high water */
#define NSBX_DATA_CHUNK (64u * 1024)  /* raw bytes of one data message */
#define NSBX_FILE_CHUNK (256u * 1024) /* [wire] raw bytes of one read-file-stream message */

#define NSBX_LINGER_STALL_MS                                                                                       \
    1800000 /* a finished connection whose peer takes none of what is left for so long is given up */

/* --- executions --- */
#define NSBX_EXEC_TIMEOUT_MS 300000               /* [wire] default */
#define NSBX_EXEC_TIMEOUT_CEILING_MS 1800000      /* [wire] default ceiling */
#define NSBX_EXEC_MAX_OUTPUT (100u * 1024 * 1024) /* [wire] default per stream */
#define NSBX_EXEC_DRAIN_MS 250          /* pipes still open this long after the leader's end: the result says so */
#define NSBX_EXEC_MAX_ARGS 65536        /* argv entries */
#define NSBX_EXEC_LEASE_MS 30000        /* [wire] unused reservation */
#define NSBX_EXEC_TERMINAL_TTL_MS 60000 /* [wire] finished record */
#define NSBX_EXEC_MAX_TRACKED 1024      /* [wire] */
#define NSBX_CANCEL_GRACE_MS 250        /* [wire] TERM → KILL */
#define NSBX_CANCEL_CONFIRM_MS 5000     /* [wire] */
#define NSBX_SHUTDOWN_DEADLINE_MS 15000 /* [wire] SIGTERM to exit */

/* --- files and walks --- */
#define NSBX_READ_RANGE (1024u * 1024)                          /* [wire] ranged read-file */
#define NSBX_READ_WHOLE ((NSBX_MAX_REPLY_FRAME - 4096) / 4 * 3) /* guest: what a reply holds as base64 */
#define NSBX_READ_HELD                                                                                             \
    (8u * 1024 * 1024) /* guest: a file read as text, or one that tells no size (procfs), is held whole */
#define NSBX_WORK_CHUNK (1024u * 1024)            /* bytes of one blocking step */
#define NSBX_MAX_WRITE_FILE (1024u * 1024 * 1024) /* [wire] host: a written body */
#define NSBX_MAX_READ_FILE (1024u * 1024 * 1024)  /* host: a file read into one string */
#define NSBX_MAX_ENV_VALUE (128u * 1024)          /* one NAME=value, as the kernel has it */
#define NSBX_PATH_MAX 4096                        /* bytes with the NUL */
#define NSBX_JAIL_MAX_LINKS 40
#define NSBX_WALK_MAX_VISITED 20000 /* [wire] default */
#define NSBX_WALK_OPEN_DIRS 32      /* open at a time by one walk; those above are opened again in their turn */
#define NSBX_WALK_HELD (64u * 1024 * 1024)   /* names that a sorted walk holds at a time */
#define NSBX_WALK_BATCH_TEXT (128u * 1024)   /* paths of one message */
#define NSBX_WALK_BATCH 256                  /* entries of one blocking step */
#define NSBX_GLOB_MAX_PATTERN 4096           /* [wire] characters */
#define NSBX_GLOB_MAX_BRANCHES 256           /* [wire] */
#define NSBX_GLOB_MAX_EXPANDED (128u * 1024) /* bytes of all branches of a pattern together */
#define NSBX_GLOB_MAX_NESTING 16             /* extglobs within each other */
#define NSBX_GLOB_MAX_NODES 8192             /* of one compiled segment; two bytes each while a name is matched */

/* --- host --- */
#define NSBX_LINE_MAX (64u * 1024 * 1024) /* a line of a process's output, read by lines */
#define NSBX_DIAL_ATTEMPT_MS 5000         /* [wire] */
#define NSBX_DIAL_BUDGET_MS 30000         /* [wire] */
#define NSBX_DIAL_PAUSE_MS 100            /* [wire] */
#define NSBX_REPLY_IDLE_MS 60000          /* [wire] control replies, read-file-stream */
#define NSBX_CLOSE_WAIT_MS 1000           /* [wire] peer's FIN after a finished reply */
#define NSBX_CONTROL_REQUEST_MS 2000      /* [wire] one reserve or cancel request */
#define NSBX_CANCEL_WINDOW_MS 8000        /* [wire] */
#define NSBX_CANCEL_PAUSE_MS 50           /* [wire] */
#define NSBX_CANCEL_DRAIN_MS 1500         /* [wire] data stream after a confirmed cancel */
#define NSBX_CANCEL_DRAIN_WHOLE_MS                                                                                 \
    10000 /* the same when data keeps coming: all of the time in which the guest, not the reader, was waited for */
#define NSBX_CANCEL_DRAIN_BYTES (256u * 1024 * 1024) /* and all of that data: more than any guest has held back */
#define NSBX_LIST_MAX_ENTRIES 1000000                /* of one list_files, which holds them all */
#define NSBX_LIST_MAX_TEXT (256u * 1024 * 1024)      /* bytes of their paths together */
#define NSBX_EXEC_OBSERVE_MS 500                     /* [wire] beyond the timeout, before the host cancels */

#endif
