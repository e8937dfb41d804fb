/* How an operation answers, and how it reads the numbers of a request. */
#include "agent.h"

#include "base/alloc.h"
#include "base/log.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SAFE_INTEGER 9007199254740991.0 /* the published peers' numbers are doubles */

void nsbx_agent_answer(struct nsbx_channel *ch, json_t *message)
{
    struct nsbx_err err = {0};
    if (nsbx_channel_send(ch, message, &err) != 0 || nsbx_channel_end(ch, &err) != 0)
        nsbx_log(NSBX_LOG_DEBUG, "an answer to %s was not sent: %s", nsbx_channel_op(ch)->name, err.message);
    nsbx_channel_close(ch);
}

void nsbx_agent_refuse(struct nsbx_channel *ch, const struct nsbx_fault *fault)
{
    nsbx_agent_answer(ch, nsbx_fault_message(nsbx_channel_op(ch), fault));
}

void nsbx_agent_refuse_text(struct nsbx_channel *ch, const char *text)
{
    struct nsbx_fault fault;
    nsbx_fault_set(&fault, "%s", text);
    nsbx_agent_refuse(ch, &fault);
}

void nsbx_agent_fence(struct nsbx_agent *agent, const char *why)
{
    if (!agent->retiring)
        nsbx_log(NSBX_LOG_ERROR, "retiring: %s", why);
    agent->retiring = true;
}

static double number_of_text(const char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    if (*text == '\0')
        return 0; /* as the published coercion has it */
    char *end;
    double value = strtod(text, &end);
    while (isspace((unsigned char)*end))
        end++;
    return *end ? NAN : value;
}

bool nsbx_agent_number(const json_t *body, const char *key, double *value)
{
    const json_t *member = json_object_get(body, key);
    if (!member)
        return false;
    switch (json_typeof(member)) {
    case JSON_INTEGER:
    case JSON_REAL:
        *value = json_number_value(member);
        break;
    case JSON_STRING:
        *value = number_of_text(json_string_value(member));
        break;
    case JSON_NULL:
    case JSON_FALSE:
        *value = 0;
        break;
    case JSON_TRUE:
        *value = 1;
        break;
    default:
        *value = NAN;
    }
    return true;
}

char *nsbx_agent_json_text(const json_t *value)
{
    enum { FLAGS = JSON_ENCODE_ANY | JSON_COMPACT };
    size_t n = json_dumpb(value, NULL, 0, FLAGS);
    char *text = n ? nsbx_malloc(n + 1) : NULL;
    if (text)
        text[json_dumpb(value, text, n, FLAGS)] = '\0';
    return text;
}

int64_t nsbx_agent_safe_integer(const json_t *value)
{
    if (!json_is_number(value))
        return -1;
    double number = json_number_value(value);
    return number >= 0 && number <= MAX_SAFE_INTEGER && number >= trunc(number) && number <= trunc(number)
               ? (int64_t)number
               : -1;
}
