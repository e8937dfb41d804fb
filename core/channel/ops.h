/* The one table of operations: what the agent serves, what the host asks, what each looks like on the published wire and
 * what it needs. A new operation is one file on each side and one row here. docs/protocol.md is checked against it. */
#ifndef NSBX_CHANNEL_OPS_H
#define NSBX_CHANNEL_OPS_H

#include <stdbool.h>
#include <stddef.h>

/* Features in the order in which healthz advertises them: X(enumerator, wire string). Only implemented ones are listed. */
#define NSBX_FEATURES(X)                                                                                           \
    X(WRITE_FILE_PARTS, "write-file-parts") /* published */                                                        \
    X(READ_FILE_STREAM, "read-file-stream") /* published */                                                        \
    X(GUEST_BOOT_ID, "guest-boot-id")       /* published */                                                        \
    X(EXEC_BYTES, "exec-bytes")             /* execute takes encoding:"base64": byte-exact deltas */               \
    X(EXEC_WAIT, "exec-wait")               /* execute takes wait:"exit"|"pipes"; the result has pipesOpen */      \
    X(EXEC_STDIN, "exec-stdin")             /* execute takes stdinStream:true: stdin, stdin_end; stdin_closed */   \
    X(EXEC_STARTED, "exec-started")         /* execute takes started:true: a frame with the leader's pid */        \
    X(SIGNAL, "signal-execution")           /* op signal-execution */                                              \
    X(WALK, "walk")                         /* op walk */                                                          \
    X(BYTE_STRINGS, "byte-strings")         /* {"base64":…} where a string is not UTF-8 */

enum nsbx_feature {
#define NSBX_FEATURE_ENUM(name, text) NSBX_FEATURE_##name,
    NSBX_FEATURES(NSBX_FEATURE_ENUM)
#undef NSBX_FEATURE_ENUM
        NSBX_FEATURE_COUNT
};
const char *nsbx_feature_name(enum nsbx_feature f); /* the wire string */
int nsbx_feature_of_name(const char *name);         /* -1 when unknown */

enum nsbx_op_shape {
    NSBX_SHAPE_CONTROL, /* one reply object, FIN */
    NSBX_SHAPE_STREAM,  /* typed objects, a zero-length frame, FIN */
    NSBX_SHAPE_DUPLEX,  /* typed objects both ways, FIN without a terminator */
};

/* How raw data looks on the published wire: X(enumerator). */
enum nsbx_data_form {
    NSBX_DATA_NONE,
    NSBX_DATA_DELTA, /* {"type":"stdout_delta"|"stderr_delta","data":text, or base64 when the request said encoding:"base64"[,offset,nextOffset]} */
    NSBX_DATA_BASE64, /* {"type":"data","data":base64} */
    NSBX_DATA_STDIN,  /* host → guest: {"type":"stdin","data":base64}, its end {"type":"stdin_end"} */
};

/* The sub-stream of a piece of data. */
enum nsbx_sub { NSBX_SUB_MAIN = 0, NSBX_SUB_STDOUT = 1, NSBX_SUB_STDERR = 2 };

struct nsbx_op_row {
    const char *name;
    enum nsbx_op_shape shape;
    enum nsbx_data_form to_host;
    enum nsbx_data_form to_guest; /* data after the envelope */
    const char
        *large; /* body member that may be large and travels as data from the host (NULL: none): its string value
                                     arrives at the guest as data on NSBX_SUB_MAIN, and the body shows "" in its place */
    bool large_is_encoded; /* decode it as base64 when body.encoding is "base64" */
    const char *
        to_guest_if; /* body member that must be true for data to the guest to follow (NULL: it always may). Without it, or
                                     when the large member is there, the guest sees on_end after the envelope */
    const char
        *reply_large; /* member of a control reply that travels as data to the host in the same way (NULL: none) */
    bool without_token; /* healthz */
    bool when_fenced;   /* also served by a retiring guest */
};
const struct nsbx_op_row *nsbx_op_row(const char *name); /* NULL when unknown */
const struct nsbx_op_row *nsbx_op_rows(size_t *count);

#endif
