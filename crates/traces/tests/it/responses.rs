//! Items of the Responses API.

use serde_json::{Value, json};

use crate::common::json_of;
use crate::script::{check, check_traces, lines, view_of};

fn items() -> Vec<Value> {
    vec![
        json!({"id": "m1", "type": "message", "role": "user", "content": [{"type": "input_text", "text": "task"},
            {"type": "input_image", "image_url": "data:x"}]}),
        json!({"id": "r1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "created_by": "resp"}),
        json!({"id": "f1", "type": "function_call", "name": "ls", "arguments": "{}", "call_id": "c1", "created_by": "resp"}),
        json!({"id": "f1", "type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "x"}]}),
        json!({"id": "w1", "type": "web_search_call", "status": "completed"}),
        json!({"id": "m2", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done", "annotations": []}]}),
    ]
}

const EVENTS: &str = r#"
    m1 user "task", image data:x
    f1 calls c1 ls {} thinks "hm" of resp
    f1-output result c1 ls "x"
    m2 says {"id":"w1","type":"web_search_call","status":"completed"}, "done" of response-w1
    "#;

#[test]
fn a_page_a_list_and_lines_of_items_are_read_alike() {
    let page = |data: Vec<Value>| json!({"object": "list", "data": data, "has_more": false});
    let traces = check(&page(items()), "openai-responses", 6, &format!("file unknown file\n{}", EVENTS.trim()));
    assert_eq!(json_of(&traces[0])[2]["foreign"]["merged"][0]["summary"][0]["text"], "hm");
    check(&Value::Array(items()), "openai-responses", 6, EVENTS);
    check_traces(lines(&items()), "openai-responses", 6, EVENTS);
    let newest_first = page(items().into_iter().rev().collect());
    check(
        &newest_first,
        "openai-responses",
        6,
        &format!("file unknown file\n{}\n! file: the newest item stands first; read from the end", EVENTS.trim()),
    );
}

#[test]
fn a_request_and_its_response_are_one_conversation() {
    check(
        &json!({"model": "m", "instructions": "you are", "tools": [{"type": "function", "name": "ls"}],
            "input": [{"role": "user", "content": "task"}],
            "response": {"model": "m", "output": [
                {"id": "mc", "type": "mcp_call", "name": "find", "arguments": "{\"q\":1}", "output": "found"},
                {"id": "o", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}],
                "usage": {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 3}}}),
        "openai-responses",
        1,
        r#"
        file unknown file
        system system "you are" +1 tools
        item-0 user "task"
        mc calls mc find {"q":1} of response-mc $6/4/-/3
        mc#1 result mc find "found"
        o says "done" of response-mc
        "#,
    );
}

#[test]
fn an_encrypted_compaction_forgets_all_before_it() {
    let traces = check(
        &json!([items()[0], {"id": "k", "type": "compaction", "encrypted_content": "*"},
            {"id": "n", "type": "message", "role": "user", "content": [{"type": "input_text", "text": "next"}]}]),
        "openai-responses",
        3,
        r#"
        m1 user "task", image data:x
        k condenses -m1
        k#1 says (**)
        n user "next"
        "#,
    );
    assert_eq!(view_of(&traces[0]), ["k#1", "n"]);
}
