//! Torn and changed files: an error or diagnostics, never a panic.

use std::path::Path;

use condenser_traces::{Document, FORMATS, Reader, read_document};
use serde_json::json;

use crate::common::check_trace;

/// One file per way of wrapping.
fn samples() -> Vec<String> {
    let events = [
        json!({"id": "s", "kind": "SystemPromptEvent", "system_prompt": {"type": "text", "text": "p"}, "tools": []}),
        json!({"id": "u", "kind": "MessageEvent", "source": "user", "llm_message": {"role": "user", "content": "h\u{e9}"}}),
        json!({"id": "a", "kind": "ActionEvent", "parent_id": "u", "thought": [], "tool_name": "sh", "tool_call_id": "c",
            "tool_call": {"id": "c", "name": "sh", "arguments": "{}"}, "llm_response_id": "r"}),
        json!({"id": "o", "kind": "ObservationEvent", "tool_call_id": "c", "observation": {"output": "x", "error": ""}}),
        json!({"id": "k", "kind": "Condensation", "forgotten_event_ids": ["a"], "summary": "s", "summary_offset": 1}),
    ];
    let messages = [
        json!({"role": "system", "content": "s"}),
        json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}),
        json!({"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "\u{1f600}"}]}),
    ];
    let lines = |values: &[serde_json::Value]| values.iter().map(|value| format!("{value}\n")).collect::<String>();
    let pi = [
        json!({"type": "session", "id": "s", "version": 3}),
        json!({"type": "message", "id": "u", "parentId": null, "message": {"role": "user", "content": "h"}}),
        json!({"type": "message", "id": "a", "parentId": "u", "message": {"role": "assistant", "usage": {"input": 1},
            "content": [{"type": "toolCall", "id": "c", "name": "f", "arguments": {"x": 1}}, {"type": "text", "text": "t"}]}}),
        json!({"type": "message", "id": "r", "parentId": "a", "message": {"role": "toolResult", "toolCallId": "c",
            "content": [{"type": "text", "text": "x"}]}}),
        json!({"type": "compaction", "id": "k", "parentId": "r", "summary": "s", "firstKeptEntryId": "a"}),
        json!({"type": "context_edit", "id": "e", "parentId": "k", "targetId": "r", "replacement": null}),
    ];
    let call = json!({"type": "tool_use", "id": "c", "name": "f", "input": {}});
    let claude = [
        json!({"type": "user", "uuid": "u", "parentUuid": null, "sessionId": "s", "message": {"content": "h"}}),
        json!({"type": "assistant", "uuid": "a", "parentUuid": "u", "message": {"id": "m", "content": [call], "usage": {}}}),
        json!({"type": "user", "uuid": "r", "parentUuid": "a", "message": {"content": [
            {"type": "tool_result", "tool_use_id": "c", "content": "x"}, {"type": "text", "text": "y"}]}}),
        json!({"type": "system", "subtype": "microcompact_boundary", "uuid": "m", "parentUuid": "r",
            "microcompactMetadata": {"compactedToolIds": ["c"]}}),
        json!({"type": "system", "subtype": "compact_boundary", "uuid": "k", "parentUuid": null, "logicalParentUuid": "m",
            "compactMetadata": {"preservedMessages": {"uuids": ["r"]}}}),
        json!({"type": "user", "uuid": "s", "parentUuid": "k", "isCompactSummary": true, "message": {"content": "s"}}),
    ];
    let action = json!({"role": "assistant", "content": "t", "thought": "t", "action": "ls"});
    let history = [
        json!({"role": "user", "content": "h", "agent": "main"}),
        action.clone(),
        json!({"role": "user", "content": "o"}),
    ];
    let step = json!({"action": "ls", "messages": [history[0], action, {"role": "user", "content": "elided"}]});
    vec![
        lines(&pi),
        lines(&claude),
        json!({"history": history, "trajectory": [step], "info": {}}).to_string(),
        lines(&events),
        json!({"items": events}).to_string(),
        lines(&[json!({"instance_id": "i", "instruction": "t", "history": events, "metrics": {}})]),
        lines(&messages),
        json!({"messages": messages, "tools": [], "choices": [{"message": messages[1]}]}).to_string(),
        lines(&[json!({"task_id": 1, "traj": messages}), json!({"task_id": 2, "traj": messages})]),
    ]
}

fn feed(bytes: &[u8]) {
    for format in FORMATS.iter().map(Some).chain([None]) {
        let Ok(document) = Document::from_bytes(Path::new("t"), bytes.to_vec()) else { return };
        let Ok(traces) = read_document(document, format) else { continue };
        traces.iter().for_each(check_trace);
        // Record by record the same events come out.
        let streamed = Reader::of_stream(Path::new("t"), bytes, format.map(|format| format.name)).unwrap();
        let streamed = streamed.into_traces().unwrap();
        assert!(traces.iter().map(|trace| &trace.events).eq(streamed.iter().map(|trace| &trace.events)));
    }
}

#[test]
fn every_prefix_of_a_file_is_survived() {
    for sample in samples() {
        (0..sample.len()).for_each(|end| feed(&sample.as_bytes()[..end]));
    }
}

#[test]
fn changed_bytes_are_survived() {
    // A fixed sequence of numbers: the same changes in every run.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    for sample in samples() {
        for _ in 0..400 {
            let mut bytes = sample.clone().into_bytes();
            for _ in 0..=next(3) {
                let at = next(bytes.len());
                match next(4) {
                    0 => bytes[at] = u8::try_from(next(256)).unwrap(),
                    1 => bytes[at] = b"{}[]\",:0n\\"[next(10)],
                    2 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, b"{}[]\",:\n"[next(8)]),
                }
            }
            feed(&bytes);
        }
    }
}
