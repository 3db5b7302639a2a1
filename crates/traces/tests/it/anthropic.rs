//! Anthropic messages.

use serde_json::{Value, json};

use crate::common::json_of;
use crate::script::{check, check_traces, lines};

fn turn() -> Vec<Value> {
    vec![
        json!({"role": "user", "content": "task"}),
        json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "look"},
            {"type": "tool_use", "id": "c1", "name": "ls", "input": {"b": 1, "a": 2}},
            {"type": "tool_use", "id": "c2", "name": "cat", "input": {}, "cache_control": {"type": "ephemeral"}}]}),
        json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": "one"},
            {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "two"}], "is_error": true},
            {"type": "text", "text": "go on"}]}),
    ]
}

const TURN: &str = r#"
    m0 user "task"
    m1 calls c1 ls {"b":1,"a":2} after (hm), "look"
    m1#1 calls c2 cat {}
    m2 result c1 ls "one"
    m2#1 result c2 cat error "two"
    m2#2 user "go on"
    "#;

#[test]
fn blocks_become_events_in_their_order() {
    let traces = check(&Value::Array(turn()), "anthropic", 3, TURN);
    let events = json_of(&traces[0]);
    assert_eq!(events[0]["foreign"], json!({"content_shape": "string"}));
    assert_eq!(events[2]["foreign"], json!({"block": {"cache_control": {"type": "ephemeral"}}}));
    assert_eq!(events[4]["foreign"], json!({"block": {"is_error": true}}));
    check_traces(lines(&turn()), "anthropic", 3, TURN);
}

#[test]
fn a_request_brings_its_system_prompt_its_tools_and_the_answer_beside_it() {
    let answer = json!({"type": "message", "id": "msg", "role": "assistant", "model": "claude",
        "content": [{"type": "text", "text": "done", "citations": [1]}],
        "usage": {"input_tokens": 3, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2, "output_tokens": 9}});
    let traces = check(
        &json!({"model": "claude", "system": [{"type": "text", "text": "you are"}], "tools": [{"name": "ls"}],
            "messages": [{"role": "user", "content": "task"}], "response": answer}),
        "anthropic",
        1,
        r#"
        file unknown file
        system system "you are" +1 tools
        m0 user "task"
        m1 says "done" of msg $3/5/2/9
        "#,
    );
    let events = json_of(&traces[0]);
    assert_eq!(events[0]["payload"], json!({"model": "claude"}));
    assert_eq!(events[3]["foreign"]["content"], answer["content"], "a block that says more is kept");
}

#[test]
fn an_answer_that_the_messages_end_with_is_not_added_twice() {
    let content = json!([{"type": "text", "text": "done"}]);
    check(
        &json!({"system": "s", "messages": [{"role": "user", "content": "t"}, {"role": "assistant", "content": content}],
            "response": {"type": "message", "role": "assistant", "content": content}}),
        "anthropic",
        2,
        r#"
        file unknown file
        system system "s"
        m0 user "t"
        m1 says "done"
        "#,
    );
}
