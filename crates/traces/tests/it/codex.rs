//! Codex rollouts.

use serde_json::{Value, json};

use crate::common::json_of;
use crate::script::{check_traces, lines, view_of};

fn meta() -> Value {
    json!({"timestamp": "t0", "type": "session_meta", "payload": {
        "id": "s", "cwd": "/x", "base_instructions": {"text": "you are"}, "source": {"subagent": {"thread_spawn": {"parent_thread_id": "p"}}}}})
}

fn item(payload: Value) -> Value {
    json!({"timestamp": "t", "type": "response_item", "payload": payload})
}

fn said(role: &str, id: &str, text: &str) -> Value {
    let kind = if role == "assistant" { "output_text" } else { "input_text" };
    json!({"type": "message", "role": role, "id": id, "content": [{"type": kind, "text": text}]})
}

fn call(id: &str, call: &str) -> Value {
    item(
        json!({"type": "function_call", "id": id, "name": "shell", "arguments": "{\"command\":[\"ls\"]}", "call_id": call}),
    )
}

fn output(call: &str, output: Value) -> Value {
    item(json!({"type": "function_call_output", "call_id": call, "output": output}))
}

fn count(total: u64, last: u64) -> Value {
    json!({"type": "event_msg", "payload": {"type": "token_count", "info": {
        "total_token_usage": {"total_tokens": total},
        "last_token_usage": {"input_tokens": last - 10, "cached_input_tokens": 5, "output_tokens": 10, "total_tokens": last}}}})
}

fn event(kind: &str, message: &str) -> Value {
    json!({"type": "event_msg", "payload": {"type": kind, "message": message}})
}

#[test]
fn items_are_the_conversation_and_what_the_interface_was_told_is_not() {
    let records = [
        meta(),
        json!({"type": "turn_context", "payload": {"model": "m"}}),
        item(said("developer", "d", "rules")),
        item(said("user", "e", "<environment_context>x</environment_context>")),
        item(said("user", "u", "task")),
        event("user_message", "task"),
        item(
            json!({"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "*"}),
        ),
        item(said("assistant", "a", "look")),
        call("f", "c1"),
        call("g", "c2"),
        count(100, 100),
        count(100, 100),
        output("c2", json!({"content": "no", "success": false})),
        output("c1", json!([{"type": "input_text", "text": "yes"}])),
        item(json!({"type": "custom_tool_call", "id": "k", "name": "patch", "input": "*** Begin", "call_id": "c3"})),
        item(json!({"type": "custom_tool_call_output", "id": "k", "call_id": "c3", "output": "{\"output\":\"ok\"}"})),
        count(150, 50),
        item(said("assistant", "z", "done")),
        event("agent_message", "done"),
        count(160, 20),
    ];
    let traces = check_traces(
        lines(&records),
        "codex",
        20,
        r#"
        line-1 system "you are"
        line-2 unknown turn_context
        d instructs "rules"
        e user "<environment_context>x</environment_context>"
        u user "task"
        line-6 unknown event_msg/user_message
        f calls c1 shell {"command":["ls"]} after "look" thinks "hm" of response-r $85/5/-/10
        g calls c2 shell {"command":["ls"]} of response-r
        line-11 unknown event_msg/token_count
        line-12 unknown event_msg/token_count
        line-13 result c2 shell error "no"
        line-14 result c1 shell "yes"
        k calls c3 patch {"input":"*** Begin"} of response-k $35/5/-/10
        k-output result c3 patch "{\"output\":\"ok\"}"
        line-17 unknown event_msg/token_count
        line-19 unknown event_msg/agent_message
        z says "done" of response-z $5/5/-/10
        line-20 unknown event_msg/token_count
        ! line 20: running totals that do not grow by the figures of their response; these count: 1 in the file, the first here
        "#,
    );
    let trace = &traces[0];
    assert_eq!((trace.session.as_deref(), trace.parent.as_ref().unwrap().to.as_str()), (Some("s"), "p"));
    let events = json_of(trace);
    assert_eq!(events[6]["foreign"]["merged"][0]["encrypted_content"], "*");
    assert_eq!(events[6]["usage"]["model"], "m");
    assert_eq!(events[3]["source"], "environment");
}

#[test]
fn a_replaced_history_keeps_what_was_said_and_ends_with_its_summary() {
    let compacted =
        |history: Value| json!({"type": "compacted", "payload": {"message": "all", "replacement_history": history}});
    let traces = check_traces(
        lines(&[
            meta(),
            item(said("user", "u1", "one")),
            call("f", "c1"),
            output("c1", json!("x")),
            item(said("user", "u2", "two")),
            item(said("assistant", "a", "done")),
            compacted(json!([said("user", "", "one"), said("user", "", "two"), said("user", "", "summary: all")])),
            item(said("user", "u3", "three")),
            compacted(
                json!([said("user", "", "two"), said("user", "", "fresh"), {"type": "compaction", "encrypted_content": "*"}]),
            ),
        ]),
        "codex",
        9,
        r#"
        line-1 system "you are"
        u1 user "one"
        f calls c1 shell {"command":["ls"]} of response-f
        line-4 result c1 shell "x"
        u2 user "two"
        a says "done" of response-a
        line-7 condenses -a,f,line-4 "summary: all"@3
        u3 user "three"
        line-9 condenses -line-7-summary,u1,u3
        line-9/0 user "fresh"
        line-9/1 says (**)
        "#,
    );
    assert_eq!(view_of(&traces[0]), ["line-1", "u2", "line-9/0", "line-9/1"]);
}

#[test]
fn a_compaction_without_a_history_keeps_what_the_user_said() {
    let traces = check_traces(
        lines(&[
            meta(),
            item(said("user", "u1", "one")),
            item(said("assistant", "a", "done")),
            json!({"type": "compacted", "payload": {"message": "all"}}),
            item(said("user", "u2", "two")),
        ]),
        "codex",
        5,
        r#"
        line-1 system "you are"
        u1 user "one"
        a says "done" of response-a
        line-4 condenses -a "all"@2
        u2 user "two"
        "#,
    );
    assert_eq!(view_of(&traces[0]), ["line-1", "u1", "line-4-summary", "u2"]);
}

#[test]
fn where_only_the_interface_was_recorded_its_messages_are_the_conversation() {
    check_traces(
        lines(&[meta(), event("user_message", "task"), event("agent_message", "done"), event("error", "x")]),
        "codex",
        4,
        r#"
        line-1 system "you are"
        line-2 user "task"
        line-3 says "done"
        line-4 unknown event_msg/error
        "#,
    );
}

#[test]
fn figures_of_each_response_count_and_running_totals_only_check() {
    let answers = [(100, 100), (150, 50), (40, 15), (60, 20)];
    let mut records = vec![meta()];
    for (at, (total, last)) in answers.into_iter().enumerate() {
        records.push(item(said("user", &format!("u{at}"), "go")));
        records.push(item(said("assistant", &format!("a{at}"), "ok")));
        records.push(count(total, last));
    }
    let traces = lines(&records);
    let usage = traces[0].events.iter().filter_map(|event| event.usage.as_ref());
    let sum: u64 = usage.map(|usage| usage.total_input().unwrap_or(0) + usage.output_tokens.unwrap()).sum();
    assert_eq!(sum, 185);
    assert_eq!(traces[0].diagnostics.len(), 1);
}

#[test]
fn what_a_forked_file_repeats_of_its_parent_is_paid_for_there() {
    let numbered = |ordinal: u64, mut record: Value| {
        record["ordinal"] = json!(ordinal);
        record
    };
    let mut first = meta();
    first["payload"]["subagent_history_start_ordinal"] = json!(4);
    let traces = lines(&[
        first,
        numbered(1, meta()),
        numbered(2, item(said("assistant", "a", "of the parent"))),
        numbered(3, count(100, 100)),
        numbered(4, item(said("assistant", "b", "own"))),
        numbered(5, count(150, 50)),
    ]);
    let paid: Vec<&str> =
        traces[0].events.iter().filter(|event| event.usage.is_some()).map(|event| event.id.as_str()).collect();
    assert_eq!(paid, ["b"]);
    assert_eq!(traces[0].events[1].kind.name(), "unknown", "a second session_meta does not open the file");
}

#[test]
fn rollouts_of_2025_are_bare_items_after_a_header() {
    check_traces(
        lines(&[
            json!({"id": "s", "timestamp": "t", "instructions": "be brief", "git": {}}),
            json!({"record_type": "state"}),
            json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "task"}]}),
            json!({"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c"}),
            json!({"type": "function_call_output", "call_id": "c", "output": "x"}),
        ]),
        "codex",
        5,
        r#"
        line-1 system "be brief"
        line-2 unknown
        line-3 user "task"
        line-4 calls c shell {} of response-line-4
        line-5 result c shell "x"
        "#,
    );
}
