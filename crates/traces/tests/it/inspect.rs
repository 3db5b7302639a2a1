//! Inspect logs.

use serde_json::json;

use crate::script::check;

#[test]
fn samples_are_traces_with_their_attachments_tools_and_figures() {
    let model_event = json!({"event": "model", "tools": [{"name": "go", "parameters": {"type": "object"}}], "output": {
        "model": "m", "choices": [{"message": {"id": "a"}}],
        "usage": {"input_tokens": 50, "output_tokens": 5, "total_tokens": 55, "input_tokens_cache_read": 20}}});
    let traces = check(
        &json!({"version": 2, "eval": {"task": "t"}, "plan": {}, "samples": [
            {"id": 7, "uuid": "x", "attachments": {"h": "long text"}, "events": [model_event], "messages": [
                {"id": "u", "role": "user", "content": "attachment://h"},
                {"id": "a", "role": "assistant", "content": [{"type": "reasoning", "reasoning": "hm", "signature": "s"}],
                 "tool_calls": [{"id": "c", "function": "go", "arguments": {"url": "attachment://gone"}}]},
                {"id": "r", "role": "tool", "tool_call_id": "c", "function": "go", "content": "",
                 "error": {"type": "timeout", "message": "too slow"}}]},
            {"id": "two", "messages": [{"role": "system", "content": "be"}, {"role": "user", "content": "hi"}]}
        ]}),
        "inspect",
        5,
        r#"
        == t.json#0
        log unknown log
        sample unknown sample
        tools system nothing +1 tools
        u user "long text"
        a calls c go {"url":"attachment://gone"} after (hm) $30/20/-/5
        r result c go error "too slow"
        ! samples[0].messages[1]: attachments that are not in the sample's table, their names kept: 1 in the file, the first here
        == t.json#1
        sample unknown sample
        m0 system "be"
        m1 user "hi"
        "#,
    );
    let tasks: Vec<_> = traces.iter().map(|trace| trace.task.as_deref().unwrap()).collect();
    assert_eq!(tasks, ["7", "two"]);
}
