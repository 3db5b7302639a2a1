//! Inputs of the benchmarks, as event JSON of the OpenHands SDK, so that the peer can be given the same file.

use serde_json::{Value, json};

/// A log of paired calls, a third of them with thinking, with a user message now and then.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The number of events, condensations not counted.
    pub n_events: usize,
    /// A condensation after this many events, which forgets the view up to a loop's beginning near its end and leaves a
    /// summary, as the SDK's own condenser does. 0: none.
    pub condense_every: usize,
}

/// The events of a log, one JSON object each.
pub fn openhands_events(shape: Shape) -> Vec<Value> {
    let mut events = vec![json!({
        "id": id(0), "timestamp": timestamp(0), "source": "agent", "kind": "SystemPromptEvent",
        "system_prompt": text("You work on a repository."), "tools": [],
    })];
    // What a view shows now, and whether it may be cut before it.
    let mut shown = vec![(id(0), true)];
    let mut n_condensations = 0;
    let mut call = 0_usize;
    while events.len() - n_condensations < shape.n_events {
        let n = events.len();
        if call.is_multiple_of(40) {
            events.push(user(n, call));
            shown.push((id(n), true));
        }
        let n = events.len();
        events.push(action(n, call));
        events.push(observation(n + 1, call));
        shown.extend([(id(n), call.is_multiple_of(3)), (id(n + 1), false)]);
        call += 1;
        let n_plain = events.len() - n_condensations;
        if shape.condense_every > 0 && n_plain / shape.condense_every > n_condensations {
            let n = events.len();
            let near_end = shown.len().saturating_sub(26).max(2);
            let keep = (near_end..shown.len()).find(|&index| shown[index].1).unwrap_or(2);
            let summary = (format!("{}-summary", id(n)), true);
            let forgotten: Vec<String> = shown.splice(2..keep, [summary]).map(|(id, _)| id).collect();
            events.push(json!({
                "id": id(n), "timestamp": timestamp(n), "source": "environment", "kind": "Condensation",
                "forgotten_event_ids": forgotten, "summary": "Work went on.", "summary_offset": 2,
                "llm_response_id": format!("condense-{n}"),
            }));
            n_condensations += 1;
        }
    }
    events
}

fn id(n: usize) -> String {
    format!("{n:08x}-0000-4000-8000-{n:012x}")
}

fn timestamp(n: usize) -> String {
    format!("2026-01-01T{:02}:{:02}:{:02}", n / 3600 % 24, n / 60 % 60, n % 60)
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text, "cache_prompt": false})
}

fn user(n: usize, call: usize) -> Value {
    json!({
        "id": id(n), "timestamp": timestamp(n), "source": "user", "kind": "MessageEvent",
        "llm_message": {"role": "user", "content": [text(&format!("Now do part {call}."))], "thinking_blocks": []},
        "activated_skills": [], "extended_content": [],
    })
}

fn action(n: usize, call: usize) -> Value {
    let thinking = if call.is_multiple_of(3) {
        json!([{"type": "thinking", "thinking": "The file has to be read first.", "signature": format!("sig-{call}")}])
    } else {
        json!([])
    };
    json!({
        "id": id(n), "timestamp": timestamp(n), "source": "agent", "kind": "ActionEvent",
        "thought": [text("I look at the next file.")], "thinking_blocks": thinking,
        "action": {"kind": "ThinkAction", "thought": format!("about {call}")},
        "tool_name": "think", "tool_call_id": format!("call_{call}"),
        "tool_call": {
            "id": format!("call_{call}"), "name": "think", "origin": "completion",
            "arguments": format!("{{\"thought\": \"about {call}\"}}"),
        },
        "llm_response_id": format!("resp_{call}"), "security_risk": "UNKNOWN",
    })
}

fn observation(n: usize, call: usize) -> Value {
    json!({
        "id": id(n), "timestamp": timestamp(n), "source": "environment", "kind": "ObservationEvent",
        "tool_name": "think", "tool_call_id": format!("call_{call}"), "action_id": id(n - 1),
        "observation": {"kind": "ThinkObservation", "content": [text("Your thought has been logged.")], "is_error": false},
        "extended_content": [],
    })
}
