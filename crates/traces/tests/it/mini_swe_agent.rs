//! mini-swe-agent trajectories.

use serde_json::{Value, json};

use crate::common::json_of;
use crate::script::check;

#[test]
fn calls_are_paid_by_their_raw_response_and_the_exit_is_not_shown() {
    let call =
        json!([{"id": "c", "type": "function", "function": {"name": "bash", "arguments": "{\"command\": \"ls\"}"}}]);
    let response = json!({"id": "r", "model": "m", "choices": [{"index": 0, "message": {"content": "look", "tool_calls": call}}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}});
    let traces = check(
        &json!({"trajectory_format": "mini-swe-agent-1.1", "instance_id": "i", "info": {"exit_status": "Submitted"}, "messages": [
            {"role": "system", "content": "you are"}, {"role": "user", "content": "task"},
            {"role": "assistant", "content": "look", "tool_calls": call, "function_call": null,
             "extra": {"response": response, "timestamp": 17.5, "cost": 0.1}},
            {"role": "tool", "tool_call_id": "c", "content": "<returncode>1</returncode>", "extra": {"returncode": 1}},
            {"role": "exit", "content": "diff", "extra": {"exit_status": "Submitted"}}
        ]}),
        "mini-swe-agent",
        5,
        r#"
        file unknown file
        m0 system "you are"
        m1 user "task"
        m2 calls c bash {"command": "ls"} after "look" of r $6/4/-/2
        m3 result c bash "<returncode>1</returncode>"
        m4 unknown exit
        "#,
    );
    assert_eq!(traces[0].task.as_deref(), Some("i"));
    let events = json_of(&traces[0]);
    assert_eq!(events[3]["timestamp"], "17.5");
    assert_eq!(events[3]["foreign"]["extra"]["response"]["choices"], json!([{"index": 0}]), "a copy is not kept");
}

fn in_text() -> Value {
    json!([
        {"role": "system", "content": "you are"}, {"role": "user", "content": "task"},
        {"role": "assistant", "content": "I look.\n\n```bash\nls -a\n```"},
        {"role": "user", "content": "<returncode>0</returncode>\n<output>\nx\n</output>"},
        {"role": "assistant", "content": "```bash\na\n```\n```bash\nb\n```"},
        {"role": "user", "content": "one action, please"}
    ])
}

const IN_TEXT: &str = r#"
    m0 system "you are"
    m1 user "task"
    m2 calls m2-call bash {"command":"ls -a"} after "I look."
    m3 result m2-call bash "<returncode>0</returncode>\n<output>\nx\n</output>"
    m4 says "```bash\na\n```\n```bash\nb\n```"
    m5 user "one action, please"
    "#;

#[test]
fn the_one_fenced_block_of_a_text_is_a_call() {
    let traces = check(&in_text(), "mini-swe-agent", 6, IN_TEXT);
    assert_eq!(json_of(&traces[0])[2]["foreign"]["content"], "I look.\n\n```bash\nls -a\n```");
    let file = json!({"trajectory_format": "mini-swe-agent-1", "info": {}, "messages": in_text()});
    check(&file, "mini-swe-agent", 6, &format!("file unknown file\n{}", IN_TEXT.trim()));
}

#[test]
fn messages_of_the_responses_api_are_items() {
    check(
        &json!({"trajectory_format": "mini-swe-agent-1.1", "messages": [
            {"role": "system", "content": "you are"}, {"role": "user", "content": "task"},
            {"object": "response", "id": "resp", "model": "m", "usage": {"input_tokens": 4, "output_tokens": 1}, "output": [
                {"type": "function_call", "id": "f", "name": "bash", "arguments": "{}", "call_id": "c"}]},
            {"type": "function_call_output", "call_id": "c", "output": "x", "extra": {"returncode": 0}}
        ]}),
        "mini-swe-agent",
        4,
        r#"
        file unknown file
        m0 system "you are"
        m1 user "task"
        f calls c bash {} of response-f $4/-/-/1
        m2 unknown response
        m3 result c bash "x"
        "#,
    );
}
