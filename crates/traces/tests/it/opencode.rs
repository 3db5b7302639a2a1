//! OpenCode sessions.

use serde_json::{Value, json};

use crate::common::json_of;
use crate::script::{check, check_folder, view_of};

fn user(id: &str, created: u64) -> Value {
    json!({"id": id, "sessionID": "ses", "role": "user", "time": {"created": created}})
}

fn answer(id: &str, created: u64) -> Value {
    json!({"id": id, "sessionID": "ses", "role": "assistant", "parentID": "msg_1", "modelID": "m", "time": {"created": created},
        "finish": "stop", "tokens": {"input": 10, "output": 2, "reasoning": 1, "cache": {"read": 4, "write": 3}}})
}

fn text(id: &str, text: &str) -> Value {
    json!({"id": id, "type": "text", "text": text})
}

fn tool(id: &str, call: &str, state: Value) -> Value {
    json!({"id": id, "type": "tool", "tool": "ls", "callID": call, "state": state})
}

fn export(messages: Value) -> Value {
    json!({"info": {"id": "ses", "parentID": "ses_0", "version": "1"}, "messages": messages})
}

#[test]
fn steps_of_a_message_are_responses_and_calls_hold_their_results() {
    let traces = check(
        &export(json!([
            {"info": answer("msg_2", 2), "parts": [
                {"id": "prt_1", "type": "step-start"}, text("prt_2", "look"),
                tool("prt_4", "c2", json!({"status": "error", "input": {}, "error": "gone"})),
                tool("prt_3", "c1", json!({"status": "completed", "input": {"p": "."}, "output": "x", "title": "t",
                    "attachments": [{"mime": "image/png", "url": "data:i"}]})),
                {"id": "prt_5", "type": "step-finish", "tokens": {"input": 5, "output": 1, "reasoning": 0, "cache": {"read": 0, "write": 0}}},
                {"id": "prt_6", "type": "step-start"}, {"id": "prt_7", "type": "reasoning", "text": "hm"},
                text("prt_8", "done"), tool("prt_9", "c3", json!({"status": "running", "input": {}}))]},
            {"info": user("msg_1", 1), "parts": [text("prt_0", "task"), {"id": "prt_0b", "type": "text", "text": "no", "ignored": true}]},
            {"info": {"id": "msg_3", "role": "assistant", "error": {"name": "APIError"}}, "parts": []}
        ])),
        "opencode",
        3,
        r#"
        session unknown session
        msg_1 user "task"
        msg_2 calls c1 ls {"p":"."} after "look" $5/0/0/1
        msg_2#1 calls c2 ls {}
        msg_2#2 result c1 ls "x", image data:i
        msg_2#3 result c2 ls error "gone"
        msg_2#4 calls c3 ls {} after "done" thinks "hm" of msg_2#step2
        msg_3 unknown message
        "#,
    );
    let trace = &traces[0];
    assert_eq!((trace.session.as_deref(), trace.parent.as_ref().unwrap().to.as_str()), (Some("ses"), "ses_0"));
    let events = json_of(trace);
    assert_eq!(events[2]["foreign"]["part"]["state"]["title"], "t");
    assert_eq!(events[2]["foreign"]["info"]["finish"], "stop");
    assert_eq!(events[1]["foreign"]["parts"][1]["text"], "no", "what is not sent is kept");
}

#[test]
fn a_summary_replaces_what_was_before_but_the_tail_it_names() {
    let mut summary = answer("msg_5", 5);
    (summary["summary"], summary["parentID"]) = (json!(true), json!("msg_4"));
    let messages = |tail: Value| {
        export(json!([
            {"info": user("msg_1", 1), "parts": [text("p1", "one")]}, {"info": answer("msg_2", 2), "parts": [text("p2", "two")]},
            {"info": user("msg_3", 3), "parts": [text("p3", "three")]},
            {"info": user("msg_4", 4), "parts": [{"id": "p4", "type": "compaction", "auto": true, "tail_start_id": tail}]},
            {"info": summary, "parts": [text("p5", "in short")]}, {"info": user("msg_6", 6), "parts": [text("p6", "next")]}
        ]))
    };
    let traces = check(
        &messages(json!("msg_3")),
        "opencode",
        6,
        r#"
        session unknown session
        msg_1 user "one"
        msg_2 says "two" $10/4/3/3
        msg_3 user "three"
        msg_4 unknown message
        msg_5 condenses -msg_1,msg_2 "in short"@0 $10/4/3/3
        msg_6 user "next"
        "#,
    );
    assert_eq!(view_of(&traces[0]), ["msg_5-summary", "msg_3", "msg_6"]);
    let traces = crate::common::read(messages(Value::Null).to_string());
    assert_eq!(view_of(&traces[0]), ["msg_5-summary", "msg_6"]);
}

#[test]
fn outputs_that_were_pruned_are_cleared_from_the_next_message_on() {
    let pruned = json!({"status": "completed", "input": {}, "output": "long", "time": {"compacted": 25}});
    check(
        &export(json!([
            {"info": user("msg_1", 1), "parts": [text("p1", "one")]},
            {"info": answer("msg_2", 20), "parts": [tool("p2", "c1", pruned)]},
            {"info": user("msg_3", 30), "parts": [text("p3", "two")]}
        ])),
        "opencode",
        3,
        r#"
        session unknown session
        msg_1 user "one"
        msg_2 calls c1 ls {} $10/4/3/3
        msg_2#1 result c1 ls "long"
        msg_2#1-prune condenses ~msg_2#1
        msg_3 user "two"
        "#,
    );
}

#[test]
fn rows_and_files_are_put_together_by_their_ids() {
    let row = |id: &str, message: &str, data: Value| json!({"id": id, "session_id": "ses", "message_id": message, "time_created": 1, "data": data.to_string()});
    let traces = check_folder(
        &[
            ("sessions.json", json!([{"id": "ses", "parent_id": null}, {"id": "child", "parent_id": "ses"}])),
            (
                "messages.json",
                json!([
                row("msg_2", "", json!({"role": "assistant"})), row("msg_1", "", json!({"role": "user"})),
                {"id": "msg_3", "session_id": "child", "data": "{broken"}]),
            ),
            (
                "parts.json",
                json!([
                    row("prt_1", "msg_1", json!({"type": "text", "text": "task"})),
                    row("prt_2", "msg_2", json!({"type": "text", "text": "done"})),
                    row("prt_9", "msg_9", json!({"type": "text", "text": "lost"}))
                ]),
            ),
        ],
        "opencode",
        8,
        r#"
        == folder#0
        session unknown session
        msg_1 user "task"
        msg_2 says "done"
        ! messages.json row 2: `data` is no object as JSON text; kept as it is
        ! parts: parts of messages that are not there, left out: 1
        == folder#1 < ses
        session unknown session
        msg_3 unknown message
        ! messages[0]: a message of no known role; kept as unknown
        "#,
    );
    assert_eq!(json_of(&traces[0])[1]["foreign"]["info"]["columns"]["time_created"], 1);
    check_folder(
        &[
            ("session/p/ses.json", json!({"id": "ses"})),
            ("message/ses/msg_1.json", json!({"id": "msg_1", "sessionID": "ses", "role": "user"})),
            ("part/msg_1/prt_1.json", json!({"id": "prt_1", "messageID": "msg_1", "type": "text", "text": "task"})),
        ],
        "opencode",
        3,
        "session unknown session\nmsg_1 user \"task\"",
    );
}

#[test]
fn messages_that_were_taken_back_are_not_shown() {
    let mut file = export(json!([
        {"info": user("msg_1", 1), "parts": [text("p1", "one")]}, {"info": user("msg_2", 2), "parts": [text("p2", "two")]}]));
    file["info"]["revert"] = json!({"messageID": "msg_2"});
    check(
        &file,
        "opencode",
        2,
        r#"
        session unknown session
        msg_1 user "one"
        msg_2 unknown message
        ! messages[1]: messages that were taken back, kept as unknown: 1 in the file, the first here
        "#,
    );
}
