/* Requests to the guest's end in every split, and what may follow them. */
#include "channel_guest_rig.h"

/* ---- requests ---- */

static void requests_in_every_split(void)
{
    check_frame(
        (struct exchange){.sent = "{\"op\":\"healthz\"}", .replied = OK_FRAME, .opened = "open healthz -\nend\n"});
    check_frame((struct exchange){
        .sent = "{\"op\":\"read-file-stream\",\"body\":{\"path\":\"/workspace/a.txt\",\"offset\":6}}",
        .replied = DONE_FRAME,
        .opened = "open read-file-stream {\"path\":\"/workspace/a.txt\",\"offset\":6}\nend\n"});
    check_frame((struct exchange){
        .sent = "{\"op\":\"write-file\",\"body\":{\"path\":\"a\",\"content\":\"aGVsbG8g\",\"encoding\":\"base64\","
                "\"part\":{\"offset\":0,\"final\":false}}}",
        .replied = OK_FRAME,
        .opened =
            "open write-file "
            "{\"path\":\"a\",\"content\":\"\",\"encoding\":\"base64\",\"part\":{\"offset\":0,\"final\":false}}\n"
            "data 0 hello \nend\n"});
    check_frame((struct exchange){
        .sent = "{\"body\":{\"content\":\"aGVs\\nbG8g\"},\"op\":\"write-file\",\"more\":[null,1e3]}",
        .replied = OK_FRAME,
        .opened = "open write-file {\"content\":\"\"}\ndata 0 aGVs\nbG8g\nend\n"});
    check_frame(
        (struct exchange){.sent = "{\"op\":\"write-file\",\"body\":{\"content\":\"first\",\"content\":\"second\"}}",
                          .replied = OK_FRAME,
                          .opened = "open write-file {\"content\":\"\"}\ndata 0 second\nend\n"});
    check_frame((struct exchange){
        .sent = "{\"op\":\"execute\",\"body\":{\"command\":\"cat\",\"stdin\":\"\\u00e4\\ud83d\\ude00\\ud83d\"}}",
        .replied = DONE_FRAME,
        .opened = "open execute {\"command\":\"cat\",\"stdin\":\"\"}\ndata 0 "
                  "\xc3\xa4\xf0\x9f\x98\x80\xef\xbf\xbd\nend\n"});
}

static void what_is_no_large_member_of_the_operation_is_left_out(void)
{
    check_frame((struct exchange){.sent = "{\"op\":\"write-file\",\"body\":{\"stdin\":\"x\",\"content\":\"y\"}}",
                                  .replied = OK_FRAME,
                                  .opened = "open write-file {\"stdin\":\"\",\"content\":\"\"}\ndata 0 y\nend\n"});
    check_frame((struct exchange){.sent = "{\"body\":{\"stdin\":\"x\",\"content\":\"y\"},\"op\":\"execute\"}",
                                  .replied = DONE_FRAME,
                                  .opened = "open execute {\"stdin\":\"\",\"content\":\"\"}\ndata 0 x\nend\n"});
    check_frame((struct exchange){.sent = "{\"body\":{\"content\":\"y\"},\"op\":\"walk\"}",
                                  .replied = DONE_FRAME,
                                  .opened = "open walk {\"content\":\"\"}\nend\n"});
    check_frame((struct exchange){.sent = "{\"op\":\"write-file\",\"body\":{\"content\":5}}",
                                  .replied = OK_FRAME,
                                  .opened = "open write-file {\"content\":5}\nend\n"});
}

static void odd_requests(void)
{
    check_frame((struct exchange){
        .sent = "{\"op\":\"walk\",\"body\":\"text\"}", .replied = DONE_FRAME, .opened = "open walk -\nend\n"});
    check_frame((struct exchange){.sent = "{\"op\":\"flush\"}", .replied = REFUSED("unknown_op: flush")});
    check_frame((struct exchange){.sent = "{\"op\":\"wal\\u0000k\"}", .replied = REFUSED("unknown_op: wal")});
    check_frame((struct exchange){.sent = "{\"op\":5}", .replied = REFUSED("unknown_op: undefined")});
    check_frame((struct exchange){.sent = "[]", .replied = REFUSED("unknown_op: undefined")});
    check_frame((struct exchange){.sent = "null", .replied = REFUSED("unknown_op: undefined")});
}

static void a_first_frame_that_is_none_gets_no_reply(void)
{
    static const char *const sent[] = {
        "00000000\n",         "0000000g\n{}", "00000002 {}",
        "000000002\n{}",      "0x000002\n{}", "00000002\n{]",
        "00000003\n{}x",      "00000001\n{",  "00000010\n{\"op\":healthz}",
        "00000002\n\xff\xff",
    };
    for (size_t i = 0; i < NSBX_LEN(sent); i++) {
        check_exchange(&(struct exchange){.sent = sent[i], .replied = ""});
        check_exchange(&(struct exchange){.sent = sent[i], .replied = "", .token = TOKEN});
    }
}

/* ---- fences ---- */

static void a_fence_refuses_in_its_shape(void)
{
    for (int as_stream = 0; as_stream < 2; as_stream++) {
        channel_rig_open();
        rig.serve = answer;
        rig.fence = nsbx_op_row("walk");
        rig.fence_as_stream = as_stream != 0;
        rig_serve();
        ask_once("{\"op\":\"walk\"}",
                 as_stream ? "00000025\n" REFUSED("agent_retiring") "00000000\n" : REFUSED("agent_retiring"));
        ask_once("{\"op\":\"execute\"}", DONE_FRAME);
        channel_rig_close();
    }
}

static void refuse(struct heard *h, char what)
{
    if (what != 'o')
        return;
    h->in_call = true;
    CHECK_INT(nsbx_channel_refuse(h->ch, json_pack("{s:b,s:s}", "ok", 0, "error", "no"), NULL), 0);
    CHECK_INT(nsbx_channel_send(h->ch, json_object(), NULL), -NSBX_E_INVALID);
    h->in_call = false;
    heard_close(h);
}

static void an_operation_refuses_in_control_shape(void)
{
    channel_rig_open();
    rig.serve = refuse;
    rig_serve();
    ask_once("{\"op\":\"execute\"}", REFUSED("no"));
    CHECK_STR(text_of(&rig.served[0]->log), "open execute -\n");
    channel_rig_close();
}

int main(void)
{
    rig_open(); /* libuv's process-wide descriptors are made by the first loop */
    nsbx_loop_free(loop);
    RUN(requests_in_every_split);
    RUN(what_is_no_large_member_of_the_operation_is_left_out);
    RUN(odd_requests);
    RUN(a_first_frame_that_is_none_gets_no_reply);
    RUN(a_fence_refuses_in_its_shape);
    RUN(an_operation_refuses_in_control_shape);
    return harness_done();
}
