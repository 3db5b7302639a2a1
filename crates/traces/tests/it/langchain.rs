//! LangChain messages and LangSmith runs.

use serde_json::{Value, json};

use crate::common::json_of;
use crate::script::{check, check_traces, lines, view_of};

fn flat() -> Vec<Value> {
    vec![
        json!({"type": "system", "content": "you are", "id": "s"}),
        json!({"type": "human", "content": "task", "id": "h"}),
        json!({"type": "ai", "id": "a", "content": [
            {"type": "text", "text": "look"}, {"type": "tool_use", "id": "c1", "name": "ls", "input": {}}],
            "tool_calls": [{"name": "ls", "args": {"p": "."}, "id": "c1", "type": "tool_call"}],
            "invalid_tool_calls": [{"name": "cat", "args": "{broken", "id": "c2", "error": "no JSON"}],
            "response_metadata": {"id": "msg", "model_name": "m"},
            "usage_metadata": {"input_tokens": 100, "output_tokens": 9, "input_token_details": {"cache_read": 60, "cache_creation": 30}}}),
        json!({"type": "tool", "content": "x", "tool_call_id": "c1", "name": "ls", "id": "t1", "status": "error"}),
        json!({"type": "tool", "content": "y", "tool_call_id": "c2", "id": "t2"}),
        json!({"type": "remove", "id": "h", "content": ""}),
    ]
}

const EVENTS: &str = r#"
    s system "you are"
    h user "task"
    a calls c1 ls {"p":"."} after "look" of msg $10/60/30/9
    a#1 calls c2 cat {broken of msg
    t1 result c1 ls error "x"
    t2 result c2 cat "y"
    remove-5 condenses -h
    "#;

#[test]
fn the_three_spellings_say_the_same() {
    let traces = check(&Value::Array(flat()), "langchain", 6, EVENTS);
    assert_eq!(json_of(&traces[0])[3]["foreign"]["tool_call"]["error"], "no JSON");
    assert_eq!(view_of(&traces[0])[0..2], ["s", "a"]);
    let class = |message: &Value| match message["type"].as_str().unwrap() {
        "human" => "HumanMessage",
        "ai" => "AIMessage",
        "system" => "SystemMessage",
        "tool" => "ToolMessage",
        _ => "RemoveMessage",
    };
    let constructors = flat().into_iter().map(
        |message| json!({"lc": 1, "type": "constructor", "id": ["langchain", "schema", class(&message)], "kwargs": message}),
    );
    check(&constructors.collect(), "langchain", 6, EVENTS);
    let dicts = flat().into_iter().map(|message| json!({"type": message["type"], "data": message}));
    check(&dicts.collect(), "langchain", 6, EVENTS);
    check_traces(lines(&flat()), "langchain", 6, EVENTS);
    check(&json!({"messages": flat(), "step": 1}), "langchain", 6, &format!("file unknown file\n{}", EVENTS.trim()));
}

#[test]
fn runs_tell_what_is_new_and_what_is_gone() {
    let run = |id: &str, order: &str, sent: Vec<Value>, got: Value| {
        json!({"id": id, "trace_id": "t", "run_type": "llm", "dotted_order": order,
            "inputs": {"messages": [sent]}, "outputs": {"generations": [[{"message": got}]]}})
    };
    let ai =
        |text: &str| json!({"type": "ai", "content": text, "usage_metadata": {"input_tokens": 5, "output_tokens": 1}});
    let human = |text: &str| json!({"type": "human", "content": text});
    let system = json!({"type": "system", "content": "s"});
    let traces = check(
        &json!([
            run("r2", "2", vec![system.clone(), human("1"), ai("a"), human("2")], ai("b")),
            run("r1", "1", vec![system.clone(), human("1")], ai("a")),
            {"id": "tool", "trace_id": "t", "run_type": "tool", "dotted_order": "15", "inputs": {}, "outputs": {}},
            run("r3", "3", vec![system, human("in short"), human("2"), ai("b"), human("3")], ai("c")),
        ]),
        "langchain",
        4,
        r#"
        r1 unknown run/llm
        r1/1 system "s"
        r1/1#1 user "1"
        r1/2 says "a" of r1 $5/-/-/1
        tool unknown run/tool
        r2 unknown run/llm
        r2/1 user "2"
        r2/2 says "b" of r2 $5/-/-/1
        r3 unknown run/llm
        r3/1 condenses -r1/1#1,r1/2 "in short"@1
        r3/1#1 user "3"
        r3/2 says "c" of r3 $5/-/-/1
        "#,
    );
    assert_eq!(view_of(&traces[0]), ["r1/1", "r3/1-summary", "r2/1", "r2/2", "r3/1#1", "r3/2"]);
    assert_eq!(traces[0].session.as_deref(), Some("t"));
}
