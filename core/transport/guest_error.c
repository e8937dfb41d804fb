#include "base/limits.h"
#include "base/util.h"
#include "codec/utf8.h"
#include "guest_priv.h"

#include <ctype.h>
#include <string.h>

#define NOT_REGULAR "it is not a regular file but a directory, a FIFO, a socket or a device"
#define NUMBER_TEXT(n) #n
#define NUMBER(n) NUMBER_TEXT(n)

enum { TEXT_MAX = 384 }; /* of the guest's text in a message: leaves room for our own words */

/* The words with which a guest refuses, or a part of them that says what kind it is, and what each means to a user; the first that fits
 * counts. A word that is not here is REFUSED. */
static const struct {
    const char *part;
    int code;
} words[] = {
    {"unauthorized", NSBX_E_FORBIDDEN},
    {"unknown_op", NSBX_E_UNSUPPORTED},
    {"unknown_execution", NSBX_E_GONE},
    {"execution_cancelled", NSBX_E_CANCELLED},
    {"execution_lost", NSBX_E_STREAM_LOST},
    {"too_many_unauthenticated_connections", NSBX_E_CAPACITY},
    {"preauth_buffer_exhausted", NSBX_E_CAPACITY},
    {"_capacity", NSBX_E_CAPACITY},
    {"too_large", NSBX_E_LIMIT},
    {"walk_limit", NSBX_E_LIMIT},
    {"short_write", NSBX_E_IO},
    {"offset_mismatch", NSBX_E_IO},
    {"invalid_", NSBX_E_INVALID},
    {"missing_", NSBX_E_INVALID},
    {"requires_base64", NSBX_E_INVALID},
    {"not_a_regular_file", NSBX_E_INVALID},
    {"not_a_temp_file", NSBX_E_INVALID},
};

/* What the words say to a person, who has the word itself as the reason. */
static const struct {
    const char *word, *sentence;
} sentences[] = {
    {"read_file_not_a_regular_file", NOT_REGULAR},
    {"read_file_stream_not_a_regular_file", NOT_REGULAR},
    {"write_file_not_a_regular_file", NOT_REGULAR},
    {"invalid_cwd", "the working directory (cwd) is refused"},
    {"walk_invalid_limit", "a limit of the walk is refused"},
    {"walk_invalid_pattern", "the pattern is refused"},
    {"execution_capacity",
     "the guest keeps track of " NUMBER(NSBX_EXEC_MAX_TRACKED) " commands at most, and all of these still run"},
    {"agent_retiring", "the agent is about to end and takes no new request"},
};

/* The leading word of "word", "word: more" or "word more"; "" when it does not begin with one. */
static void leading_word(char out[NSBX_ERR_REASON], const char *text)
{
    size_t n = 0;
    while (n < NSBX_ERR_REASON - 1 &&
           (islower((unsigned char)text[n]) || isdigit((unsigned char)text[n]) || text[n] == '_'))
        n++;
    bool ends = text[n] == '\0' || text[n] == ':';
    memcpy(out, text, ends ? n : 0);
    out[ends ? n : 0] = '\0';
}

/* The errno that a published text names: in front ("ENOENT: no such file…"), after the guest's word ("mkdir_failed: EACCES: …"), or,
 * of a program, at the end ("spawn foo ENOENT"). 0 when none. */
static int errno_in_text(const char *text, const char *word)
{
    char name[16];
    const char *at = text;
    if (*word && text[strlen(word)] == ':')
        at += strlen(word) + 1 + strspn(text + strlen(word) + 1, " ");
    else if (strncmp(text, "spawn ", 6) == 0 && strrchr(text, ' '))
        at = strrchr(text, ' ') + 1;
    size_t n = strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789");
    if (n == 0 || n >= sizeof name || (at[n] != ':' && at[n] != '\0'))
        return 0;
    memcpy(name, at, n);
    name[n] = '\0';
    return nsbx_errno_of_name(name);
}

void nsbx_guest_one_line(char *out, size_t size, const char *text)
{
    size_t n = strnlen(text, size - 1);
    if (text[n] != '\0')
        n -= nsbx_utf8_tail((const uint8_t *)text, n);
    for (size_t i = 0; i < n; i++)
        out[i] = iscntrl((unsigned char)text[i]) ? '?' : text[i];
    out[n] = '\0';
}

static int code_of_word(const char *word)
{
    for (size_t i = 0; i < NSBX_LEN(words); i++)
        if (strstr(word, words[i].part))
            return words[i].code;
    return NSBX_E_REFUSED;
}

/* The sentence for a word; NULL: the word stands for itself. */
static const char *sentence_of(const char *word)
{
    for (size_t i = 0; i < NSBX_LEN(sentences); i++)
        if (strcmp(word, sentences[i].word) == 0)
            return sentences[i].sentence;
    return NULL;
}

int nsbx_guest_refusal(const json_t *refusal, struct nsbx_err *err)
{
    const char *text = json_string_value(json_object_get(refusal, "error"));
    const char *more = json_string_value(json_object_get(refusal, "message"));
    const char *name = json_string_value(json_object_get(refusal, "code"));
    if (!text)
        return nsbx_err_set(err, NSBX_E_PROTOCOL, "the guest refused without saying why");
    char word[NSBX_ERR_REASON], line[TEXT_MAX], rest[TEXT_MAX];
    leading_word(word, text);
    const char *sentence = sentence_of(word);
    nsbx_guest_one_line(line, sizeof line, sentence ? text + strlen(word) : text);
    nsbx_guest_one_line(rest, sizeof rest, more ? more : "");
    int sys = name ? nsbx_errno_of_name(name) : 0;
    if (!sys)
        sys = errno_in_text(text, word);
    int code = sys ? nsbx_code_of_errno(sys) : code_of_word(word);
    const char *reason = *word ? word : name ? name : sys ? nsbx_errno_name(sys) : "";
    if (strstr(text, "escapes the workspace")) { /* the jail's texts carry no word */
        code = NSBX_E_FORBIDDEN;
        reason = *word ? word : "outside_workspace";
    }
    nsbx_err_reason(err, code, reason ? reason : "", "%s%s%s%s", sentence ? sentence : "", line, *rest ? ": " : "",
                    rest);
    if (err)
        err->sys = sys;
    return -code;
}
