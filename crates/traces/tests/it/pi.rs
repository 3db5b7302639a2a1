//! Pi sessions.

use condenser::event::EventKind;
use condenser::view::{Rules, View};
use condenser_traces::Trace;
use serde_json::{Value, json};

use crate::common::{check_trace, diagnostics, json_of, outline, read_one, shared, try_read};

fn session(entries: &[Value]) -> Trace {
    let header = json!({"type": "session", "id": "s", "version": 3, "timestamp": "t0", "cwd": "/w"});
    let lines: String = std::iter::once(&header).chain(entries).map(|line| format!("{line}\n")).collect();
    let trace = read_one(lines);
    assert_eq!(trace.format, "pi");
    check_trace(&trace);
    trace
}

fn entry(id: &str, parent: &str, more: Value) -> Value {
    let mut entry = json!({"id": id, "parentId": parent, "timestamp": format!("t-{id}")});
    if parent.is_empty() {
        entry["parentId"] = Value::Null;
    }
    entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    entry
}

fn message(id: &str, parent: &str, message: Value) -> Value {
    entry(id, parent, json!({"type": "message", "message": message}))
}

fn user(id: &str, parent: &str) -> Value {
    message(id, parent, json!({"role": "user", "content": id}))
}

fn shown(trace: &Trace) -> Vec<String> {
    View::replay(&trace.events, Rules::Sound).ids().map(ToString::to_string).collect()
}

#[test]
fn an_answer_becomes_an_action_a_call_and_what_follows_the_last_is_a_message() {
    let trace = session(&[
        message(
            "a",
            "",
            json!({"role": "assistant", "model": "m", "stopReason": "toolUse",
            "usage": {"input": 1, "output": 2, "cacheRead": 3, "cacheWrite": 4, "totalTokens": 10},
            "content": [
                {"type": "thinking", "thinking": "hm", "thinkingSignature": "sig"},
                {"type": "text", "text": "look"},
                {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"z": 1, "a": 2}, "partialJson": "{"},
                {"type": "toolCall", "id": "c2", "name": "ls", "arguments": {}},
                {"type": "text", "text": "done"}
            ]}),
        ),
        message(
            "r",
            "a",
            json!({"role": "toolResult", "toolCallId": "c1", "toolName": "read", "isError": true,
            "content": [{"type": "image", "data": "AA", "mimeType": "image/png"}], "details": {"x": 1}}),
        ),
    ]);
    assert_eq!(outline(&trace), ["s unknown", "a action", "a#1 action", "a#2 message", "r observation"]);
    let events = json_of(&trace);
    assert_eq!(
        events[1],
        json!({"schema": 1, "id": "a", "origin": {"record": "a", "part": 0}, "timestamp": "t-a", "source": "agent",
            "kind": "action", "call_id": "c1", "tool_name": "read", "arguments": "{\"z\":1,\"a\":2}",
            "thought": [{"type": "text", "text": "look"}],
            "thinking": [{"type": "thinking", "thinking": "hm", "signature": "sig"}], "response_id": "a",
            "usage": {"input_tokens": 1, "cache_read_tokens": 3, "cache_write_tokens": 4, "output_tokens": 2, "model": "m"},
            "foreign": {"block": {"partialJson": "{"}, "type": "message", "parentId": null, "message":
                {"role": "assistant", "model": "m", "stopReason": "toolUse", "usage": {"totalTokens": 10}}}})
    );
    assert_eq!((&events[2]["response_id"], &events[3]["response_id"]), (&json!("a"), &json!("a")));
    assert!(events[2].get("usage").is_none() && events[3].get("usage").is_none());
    assert_eq!(events[4]["outcome"], "error");
    assert_eq!(events[4]["content"][0]["urls"][0], "data:image/png;base64,AA");
    assert_eq!(events[4]["foreign"]["message"]["details"], json!({"x": 1}));
}

#[test]
fn cut_off_answers_without_text_or_call_are_noise() {
    let answer = |id: &str, stop: &str, content: Value| {
        message(id, "", json!({"role": "assistant", "stopReason": stop, "content": content}))
    };
    let thinking = json!([{"type": "thinking", "thinking": "hm"}]);
    for (stop, content, kind) in [
        ("aborted", json!([]), "unknown"),
        ("error", thinking.clone(), "unknown"),
        ("aborted", json!([{"type": "text", "text": "so"}]), "message"),
        ("aborted", json!([{"type": "toolCall", "id": "c", "name": "f", "arguments": {}}]), "action"),
        ("stop", thinking, "message"),
    ] {
        let trace = session(&[answer("a", stop, content)]);
        assert_eq!(outline(&trace)[1], format!("a {kind}"), "{stop}");
    }
}

#[test]
fn what_pi_words_for_the_model_is_worded_so() {
    let bash = |more: Value| {
        let mut bash = json!({"role": "bashExecution", "command": "ls", "output": "", "exitCode": 0,
            "cancelled": false, "truncated": false});
        bash.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        message("b", "", bash)
    };
    for (line, text) in [
        (bash(json!({})), "Ran `ls`\n(no output)"),
        (bash(json!({"output": "x", "exitCode": 2})), "Ran `ls`\n```\nx\n```\n\nCommand exited with code 2"),
        (bash(json!({"cancelled": true})), "Ran `ls`\n(no output)\n\n(command cancelled)"),
        (
            bash(json!({"output": "x", "truncated": true, "fullOutputPath": "/o"})),
            "Ran `ls`\n```\nx\n```\n\n[Output truncated. Full output: /o]",
        ),
        (entry("m", "", json!({"type": "custom_message", "customType": "t", "content": "hi", "display": true})), "hi"),
        (message("m", "", json!({"role": "hookMessage", "content": [{"type": "text", "text": "hook"}]})), "hook"),
        (
            entry("b", "", json!({"type": "branch_summary", "fromId": "root", "summary": "S"})),
            "The following is a summary of a branch that this conversation came back from:\n\n<summary>\nS</summary>",
        ),
    ] {
        let event = &json_of(&session(&[line]))[1];
        assert_eq!((&event["kind"], &event["role"]), (&json!("message"), &json!("user")));
        assert_eq!(event["content"], json!([{"type": "text", "text": text}]));
    }
    let hidden = [
        bash(json!({"excludeFromContext": true})),
        entry("b", "", json!({"type": "branch_summary", "fromId": "root", "summary": ""})),
        entry("b", "", json!({"type": "label", "targetId": "x", "label": "l"})),
        json!({"type": "custom", "customType": "state", "data": [1]}),
    ];
    for line in hidden {
        assert!(matches!(session(&[line]).events[1].kind, EventKind::Unknown(_)));
    }
}

#[test]
fn only_the_path_from_the_last_entry_to_its_root_is_read() {
    let trace = session(&[user("a", ""), user("b", "a"), user("c", "b"), user("d", "a"), user("e", "d")]);
    assert_eq!(outline(&trace), ["s unknown", "a message", "d message", "e message"]);
    assert_eq!((trace.records, diagnostics(&trace)), (6, vec!["file: entries on other branches, left out: 2".into()]));
}

#[test]
fn a_parent_that_is_missing_or_comes_later_is_bridged() {
    let trace = session(&[user("a", ""), user("b", "gone"), user("c", "b")]);
    assert_eq!(shown(&trace), ["a", "b", "c"]);
    let bridged = |line: u32, n: u32| {
        format!(
            "line {line}: parents that are no earlier entries, bridged by the entry before: {n} in the file, the first here"
        )
    };
    assert_eq!(diagnostics(&trace), [bridged(3, 1)]);

    let trace = session(&[user("a", "b"), user("b", "a")]);
    assert_eq!(shown(&trace), ["a", "b"]);
    assert_eq!(diagnostics(&trace), [bridged(2, 1)]);
}

#[test]
fn a_compaction_shows_its_summary_then_what_was_kept() {
    let compaction = |id: &str, parent: &str, kept: &str| {
        entry(id, parent, json!({"type": "compaction", "summary": id, "firstKeptEntryId": kept, "tokensBefore": 9}))
    };
    let trace = session(&[
        user("a", ""),
        user("b", "a"),
        compaction("k1", "b", "b"),
        user("c", "k1"),
        user("d", "c"),
        compaction("k2", "d", "d"),
        user("e", "d"),
        compaction("k3", "k2", "c"),
    ]);
    // The last path runs through k2, and an entry that is gone does not come back.
    assert_eq!(shown(&trace), ["k3-summary", "d"]);
    let trace = session(&[user("a", ""), user("b", "a"), compaction("k", "b", "b"), user("c", "k")]);
    assert_eq!(shown(&trace), ["k-summary", "b", "c"]);
    assert_eq!(json_of(&trace)[3]["foreign"]["tokensBefore"], 9);
    let trace = session(&[user("a", ""), compaction("k", "a", "gone"), user("c", "k")]);
    assert_eq!(shown(&trace), ["k-summary", "c"]);
}

#[test]
fn version_one_is_a_line_whose_compactions_count_records_with_the_header() {
    let user = |text: &str| json!({"type": "message", "message": {"role": "user", "content": text}}).to_string();
    let compaction = |kept: u32| json!({"type": "compaction", "summary": "S", "firstKeptEntryIndex": kept}).to_string();
    let check = |kept: u32, expected: &[&str]| {
        let header = json!({"type": "session", "id": "s"}).to_string();
        let trace = read_one([header, user("a"), user("b"), compaction(kept), user("c")].join("\n"));
        assert_eq!(shown(&trace), expected);
    };
    check(2, &["line-4-summary", "line-3", "line-5"]);
    check(0, &["line-4-summary", "line-5"]);
    check(4, &["line-4-summary", "line-5"]);
    check(99, &["line-4-summary", "line-5"]);
}

#[test]
fn the_system_message_that_a_compaction_stores_outlives_it() {
    let system = |id: &str, parent: &str| message(id, parent, json!({"role": "system", "content": "s"}));
    let trace = session(&[
        system("s1", ""),
        user("a", "s1"),
        entry(
            "k",
            "a",
            json!({"type": "compaction", "summary": "S", "firstKeptEntryId": "k",
            "systemMessage": {"role": "system", "content": "s"}}),
        ),
    ]);
    assert_eq!(shown(&trace), ["s1", "k-summary"]);
}

#[test]
fn context_edits_forget_or_replace_their_target() {
    let edit = |replacement: Value| {
        entry("x", "b", json!({"type": "context_edit", "targetId": "a", "replacement": replacement}))
    };
    let trace = session(&[user("a", ""), user("b", "a"), edit(Value::Null)]);
    assert_eq!(shown(&trace), ["b"]);
    let trace = session(&[user("a", ""), user("b", "a"), edit(json!({"content": "new"}))]);
    assert_eq!(
        json_of(&trace)[3]["rewrites"],
        json!({"a": {"op": "replace", "content": [{"type": "text", "text": "new"}]}})
    );
}

#[test]
fn another_harness_with_the_same_header_is_not_taken_for_pi() {
    for lines in [
        json!({"type": "session", "id": "s", "createdAt": 1}).to_string(),
        format!("{}\n{}", json!({"type": "session", "id": "s"}), json!({"type": "turn/start"})),
    ] {
        assert!(try_read(lines).is_err());
    }
}

/// The entries in view as Pi counts them: no rule drops anything, and an answer is one entry.
fn entries(trace: &Trace) -> Vec<String> {
    let mut view: Vec<(String, String)> = Vec::new();
    for event in &trace.events {
        let record = event.origin.as_ref().unwrap().record.clone();
        match &event.kind {
            EventKind::Condensation(condensation) => {
                view.retain(|(id, _)| !condensation.forgotten_event_ids.contains(id.as_str()));
                if let Some((_, offset)) = condensation.shown_summary() {
                    view.insert(offset, (event.id.summary_id().to_string(), record));
                }
            }
            kind if kind.is_shown() => view.push((event.id.to_string(), record)),
            _ => {}
        }
    }
    let mut entries: Vec<String> = view.into_iter().map(|(_, record)| record).collect();
    entries.dedup();
    entries
}

#[test]
fn the_view_of_a_session_is_the_context_that_pi_built() {
    let mut n_cases = 0;
    for file in ["context.jsonl", "v1/context.jsonl"] {
        let Some(path) = shared(&format!("conformance/pi/{file}")) else { return };
        for line in std::fs::read_to_string(path).unwrap().lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            let given = case["input"]["entries"].as_array().unwrap();
            // A file has no leaf other than its last entry.
            if case["input"].get("leafId").is_some() || given.is_empty() {
                continue;
            }
            n_cases += 1;
            // Pi leaves it to the provider's adapter to drop answers cut off before they said anything.
            let is_noise = |id: &str| {
                let entry = given.iter().find(|entry| entry["id"] == id).unwrap();
                matches!(entry["message"]["stopReason"].as_str(), Some("aborted" | "error"))
                    && entry["message"]["content"].as_array().unwrap().iter().all(|part| part["text"] == "")
            };
            let messages = case["expected"]["llm"].as_array().unwrap();
            let mut expected: Vec<&str> = messages.iter().map(|message| message["entryId"].as_str().unwrap()).collect();
            expected.dedup();
            expected.retain(|id| !is_noise(id));
            assert_eq!(entries(&session(given)), expected, "{}", case["id"]);
        }
    }
    assert!(n_cases >= 30, "{n_cases}");
}
