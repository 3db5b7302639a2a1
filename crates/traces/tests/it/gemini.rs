//! Gemini CLI sessions.

use serde_json::json;

use crate::common::json_of;
use crate::script::check;

#[test]
fn calls_hold_their_results_and_notices_are_not_shown() {
    let traces = check(
        &json!({"sessionId": "s", "projectHash": "h", "startTime": "t", "messages": [
            {"id": "u", "timestamp": "t1", "type": "user", "content": [{"text": "task"}, {"inlineData": {"mimeType": "image/png", "data": "AA"}}]},
            {"id": "g", "type": "gemini", "content": "look", "thoughts": [{"subject": "S", "description": "d"}],
             "tokens": {"input": 100, "output": 10, "cached": 60, "thoughts": 5, "tool": 0, "total": 115}, "model": "m",
             "toolCalls": [
                {"id": "c1", "name": "ls", "args": {"p": "."}, "status": "success",
                 "result": [{"functionResponse": {"id": "c1", "name": "ls", "response": {"output": "a"}}}]},
                {"id": "c2", "name": "rm", "args": {}, "status": "cancelled",
                 "result": [{"functionResponse": {"id": "c2", "name": "rm", "response": {"error": "no"}}}]},
                {"id": "c3", "name": "cp", "args": {}, "status": "executing"}]},
            {"id": "i", "type": "info", "content": "update"},
            {"id": "x", "type": "user"}
        ]}),
        "gemini-cli",
        4,
        r#"
        file unknown file
        u user "task", image data:image/png;base64,AA
        g calls c1 ls {"p":"."} after "look" thinks "S: d" $40/60/-/15
        g#1 calls c2 rm {}
        g#2 calls c3 cp {}
        g#3 result c1 ls "a"
        g#4 result c2 rm rejected "{\"error\":\"no\"}"
        i unknown info
        x user nothing
        "#,
    );
    assert_eq!(traces[0].session.as_deref(), Some("s"));
    let events = json_of(&traces[0]);
    assert_eq!(events[2]["foreign"]["call"]["status"], "success");
    assert_eq!(events[2]["foreign"]["thoughts"][0]["subject"], "S");
}
