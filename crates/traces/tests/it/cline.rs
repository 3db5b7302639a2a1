//! Cline sessions and tasks.

use serde_json::{Value, json};

use crate::common::json_of;
use crate::script::{check, check_folder, view_of};

#[test]
fn a_session_keeps_its_files_and_its_figures() {
    let traces = check(
        &json!({"version": 1, "agent": "lead", "sessionId": "s", "system_prompt": "you are", "messages": [
            {"id": "u", "role": "user", "ts": 5, "content": [
                {"type": "text", "text": "see"}, {"type": "file", "path": "/a", "content": "text"}]},
            {"id": "a", "role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "ls", "input": {}}],
             "modelInfo": {"id": "m"},
             "metrics": {"inputTokens": 100, "cacheReadTokens": 80, "cacheWriteTokens": 5, "outputTokens": 7}},
            {"id": "r", "role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c", "name": "ls", "content": [{"query": "q", "result": "r"}]}]},
            {"id": "x", "role": "robot", "content": ""}
        ]}),
        "cline",
        4,
        r#"
        file unknown file
        system system "you are"
        u user "see", "<file_content path=\"/a\">\ntext\n</file_content>"
        a calls c ls {} $15/80/5/7
        r result c ls {"query":"q","result":"r"}
        x unknown message
        ! messages[3]: no message of the role user or assistant; kept as unknown
        "#,
    );
    assert_eq!(traces[0].session.as_deref(), Some("s"));
    assert_eq!(json_of(&traces[0])[2]["timestamp"], "5");
}

#[test]
fn a_rewritten_copy_begins_with_a_condensation() {
    let session = |message: Value| {
        json!({"version": 1, "sessionId": "s", "system_prompt": "p",
            "messages": [message, {"id": "u", "role": "user", "content": "hello"}]})
    };
    let traces = check(
        &session(json!({"id": "s", "role": "user", "content": [{"type": "text", "text": "Context summary: all"}],
            "metadata": {"kind": "compaction_summary", "summary": "all", "tokensBefore": 9}})),
        "cline",
        2,
        r#"
        file unknown file
        system system "p"
        s condenses "Context summary: all"@1
        u user "hello"
        "#,
    );
    assert_eq!(view_of(&traces[0]), ["system", "s-summary", "u"]);
    check(
        &session(json!({"id": "k", "role": "user", "content": "task",
            "metadata": {"kind": "compaction", "messagesRemoved": 4}})),
        "cline",
        2,
        r#"
        file unknown file
        system system "p"
        k condenses
        k#1 user "task"
        u user "hello"
        ! messages[0]: 4 messages were removed before this copy was written, and are not in it
        "#,
    );
}

#[test]
fn ranges_that_were_no_longer_sent_are_condensations() {
    let history: Vec<Value> = (0..40)
        .map(|n| json!({"role": if n % 2 == 0 { "user" } else { "assistant" }, "content": format!("text {n}")}))
        .collect();
    let ui = json!([
        {"type": "say", "conversationHistoryIndex": 12, "conversationHistoryDeletedRange": [2, 5]},
        {"type": "say", "conversationHistoryIndex": 13, "conversationHistoryDeletedRange": [2, 5]},
        {"type": "say", "conversationHistoryIndex": 30, "conversationHistoryDeletedRange": [2, 21]}]);
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("api_conversation_history.json"), Value::Array(history).to_string()).unwrap();
    std::fs::write(root.path().join("ui_messages.json"), ui.to_string()).unwrap();
    for path in [root.path().to_owned(), root.path().join("api_conversation_history.json")] {
        let traces = condenser_traces::read_path(&path, None).unwrap();
        let trace = &traces[0];
        assert_eq!((trace.format, trace.records, trace.diagnostics.len()), ("cline", 40, 0));
        let messages = trace.events.iter().filter(|event| event.kind.name() == "message").count();
        assert_eq!((messages, view_of(trace).len()), (40, 20));
        let at = |id: &str| trace.events.iter().position(|event| event.id.as_str() == id).unwrap();
        assert_eq!(at("deleted-2-5"), at("m12") + 1);
        assert_eq!(at("deleted-2-21"), at("m30") + 1);
    }
}

#[test]
fn calls_written_as_xml_are_calls_answered_by_the_text_that_names_the_tool() {
    let traces = check_folder(
        &[(
            "api_conversation_history.json",
            json!([
                {"role": "user", "content": [{"type": "text", "text": "<task>fix</task>"}]},
                {"role": "assistant", "content": [{"type": "text",
                    "text": "I look.\n\n<write_to_file>\n<path>a</path>\n<content>x</content>y</content>\n</write_to_file>"}]},
                {"role": "user", "content": [
                    {"type": "text", "text": "[write_to_file for 'a'] Result:"}, {"type": "text", "text": "written"},
                    {"type": "text", "text": "<environment_details>\nnow\n</environment_details>"}]},
                {"role": "assistant", "content": "no call"}
            ]),
        )],
        "cline",
        4,
        r#"
        m0 user "<task>fix</task>"
        m1 calls m1-call write_to_file {"path":"a","content":"x</content>y"} after "I look."
        m2 result m1-call write_to_file "[write_to_file for 'a'] Result:", "written"
        m2#1 user "<environment_details>\nnow\n</environment_details>"
        m3 says "no call"
        "#,
    );
    let text = json_of(&traces[0])[1]["foreign"]["content"][0]["text"].as_str().unwrap().to_owned();
    assert!(text.starts_with("I look.\n\n<write_to_file>"), "the text as it was stays: {text}");
}
