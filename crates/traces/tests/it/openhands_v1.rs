//! OpenHands V1 events.

use std::fs;

use condenser_traces::openhands_v1::{Mode, parse_event};
use condenser_traces::{Trace, read_path};
use serde_json::{Value, json};

use crate::common::{check_trace, diagnostics, json_of, outline, read, read_one};

/// The event of a stored value as its own JSON, without id and schema.
fn own(stored: Value) -> Value {
    let mut stored = stored;
    stored["id"] = json!("e");
    let mut own = serde_json::to_value(parse_event(stored, Mode::Lenient).unwrap()).unwrap();
    let map = own.as_object_mut().unwrap();
    assert_eq!(map.remove("id"), Some(json!("e")));
    map.remove("schema");
    own
}

fn lines(values: &[Value]) -> String {
    values.iter().map(|value| format!("{value}\n")).collect()
}

fn user(id: &str, text: &str) -> Value {
    json!({"id": id, "kind": "MessageEvent", "source": "user", "llm_message": {"role": "user", "content": text}})
}

#[test]
fn a_system_prompt_keeps_its_dynamic_context_and_tools() {
    assert_eq!(
        own(json!({
            "kind": "SystemPromptEvent", "source": "agent", "timestamp": "2026-01-01T00:00:00",
            "system_prompt": {"type": "text", "text": "p", "cache_prompt": true},
            "dynamic_context": {"type": "text", "text": "", "cache_prompt": false}, "tools": [{"kind": "T"}]
        })),
        json!({
            "timestamp": "2026-01-01T00:00:00", "source": "agent", "kind": "system_prompt",
            "content": [{"type": "text", "text": "p", "cache": true}],
            "dynamic_context": [{"type": "text", "text": ""}], "tools": [{"kind": "T"}],
            "foreign": {
                "kind": "SystemPromptEvent", "system_prompt_shape": "object", "dynamic_context_shape": "object"
            }
        })
    );
}

#[test]
fn a_message_keeps_thinking_first_and_what_has_no_place_in_foreign() {
    assert_eq!(
        own(json!({
            "kind": "MessageEvent", "source": "agent", "llm_response_id": "r", "activated_skills": ["s"],
            "extended_content": [{"type": "text", "text": "x", "cache_prompt": false}], "critic_result": null,
            "llm_message": {
                "role": "assistant", "name": "n", "tool_call_id": "c", "reasoning_content": "why",
                "content": [{"type": "image", "image_urls": ["u"], "cache_prompt": false}, {"type": "odd"}],
                "thinking_blocks": [
                    {"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "redacted_thinking", "data": "d"}
                ],
                "tool_calls": [{"id": "c1", "name": "f", "arguments": "{", "origin": "responses"}],
                "cache_enabled": false
            }
        })),
        json!({
            "source": "agent", "kind": "message", "role": "assistant", "name": "n", "call_id": "c", "response_id": "r",
            "reasoning": "why",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "redacted_thinking", "data": "d"},
                {"type": "image", "urls": ["u"]}, {"type": "odd"}
            ],
            "extended_content": [{"type": "text", "text": "x"}],
            "tool_calls": [{"id": "c1", "name": "f", "arguments": "{"}],
            "foreign": {
                "kind": "MessageEvent", "activated_skills": ["s"], "critic_result": null,
                "llm_message": {"cache_enabled": false, "tool_calls": [{"origin": "responses"}]}
            }
        })
    );
}

#[test]
fn no_calls_and_an_empty_list_of_calls_differ() {
    let calls = |message: Value| {
        let own = own(json!({"kind": "MessageEvent", "source": "user", "llm_message": message}));
        (own.get("tool_calls").cloned(), own["foreign"].get("llm_message").cloned())
    };
    let empty = Some(json!({"content": []}));
    assert_eq!(calls(json!({"role": "user", "content": []})), (None, empty.clone()));
    assert_eq!(calls(json!({"role": "user", "content": [], "tool_calls": []})), (Some(json!([])), empty));
    let null = json!({"role": "user", "tool_calls": null});
    assert_eq!(calls(null), (None, Some(json!({"tool_calls": null}))));
}

#[test]
fn text_content_may_be_plain_or_null_and_its_shape_is_remembered() {
    let parts = |content: Value| {
        let message = json!({"role": "user", "content": content});
        let own = own(json!({"kind": "MessageEvent", "llm_message": message}));
        (own["content"].clone(), own["foreign"]["llm_message"].clone(), own["source"].clone())
    };
    let text = json!([{"type": "text", "text": "hi"}]);
    assert_eq!(parts(json!("hi")), (text, json!({"content_shape": "string"}), json!("user")));
    assert_eq!(parts(Value::Null), (json!([]), json!({"content": null}), json!("user")));
    assert_eq!(parts(json!("")), (json!([]), json!({"content": ""}), json!("user")));
    // A part that says more than a block can is kept whole beside it.
    let more = json!([{"type": "text", "text": "hi", "mood": 1}]);
    assert_eq!(parts(more.clone()).0, json!([{"type": "text", "text": "hi"}]));
    assert_eq!(parts(more.clone()).1, json!({"content": more}));
}

#[test]
fn an_action_keeps_the_arguments_as_the_model_wrote_them_in_both_shapes() {
    let action = |tool_call: Value| {
        own(json!({
            "kind": "ActionEvent", "thought": [{"type": "text", "text": "t", "cache_prompt": false}],
            "reasoning_content": "r", "thinking_blocks": [], "action": {"kind": "A"}, "tool_name": "sh", "tool_call_id": "c",
            "tool_call": tool_call, "llm_response_id": "resp", "security_risk": "LOW"
        }))
    };
    let expected = |rest: Value| {
        json!({
            "source": "agent", "kind": "action", "call_id": "c", "tool_name": "sh", "arguments": "{ \"a\":1",
            "thought": [{"type": "text", "text": "t"}], "reasoning": "r", "response_id": "resp",
            "foreign": {
                "kind": "ActionEvent", "thinking_blocks": [], "action": {"kind": "A"}, "security_risk": "LOW",
                "tool_call": rest
            }
        })
    };
    assert_eq!(
        action(json!({"id": "c", "name": "sh", "arguments": "{ \"a\":1", "origin": "completion"})),
        expected(json!({"origin": "completion"}))
    );
    assert_eq!(
        action(
            json!({"index": 1, "function": {"arguments": "{ \"a\":1", "name": "sh"}, "id": "c", "type": "function"})
        ),
        expected(json!({"index": 1, "function": {}, "type": "function"}))
    );
    assert_eq!(
        action(json!({"id": "other", "name": "sh2", "arguments": "{ \"a\":1"})),
        expected(json!({"id": "other", "name": "sh2"}))
    );
}

#[test]
fn an_action_without_a_stored_call_gets_the_arguments_as_understood() {
    let own = own(json!({"kind": "ActionEvent", "tool_name": "sh", "action": {"kind": "A", "command": "ls"}}));
    assert_eq!(own["arguments"], json!("{\"command\":\"ls\"}"));
    assert_eq!(own["call_id"], json!(""));
}

#[track_caller]
fn check_observation(observation: Value, texts: &[&str], outcome: &str, rest: Value) {
    let own = own(json!({
        "kind": "ObservationEvent", "tool_name": "sh", "tool_call_id": "c", "action_id": "a", "observation": observation
    }));
    let found: Vec<_> =
        own["content"].as_array().unwrap().iter().map(|block| block["text"].as_str().unwrap()).collect();
    assert_eq!(found, texts);
    assert_eq!(own["outcome"], json!(outcome));
    assert_eq!(own["foreign"], json!({"kind": "ObservationEvent", "action_id": "a", "observation": rest}));
}

#[test]
fn observations_of_every_generation_give_their_texts_and_their_error() {
    check_observation(
        json!({"content": [{"type": "text", "text": "x", "cache_prompt": false}], "is_error": true, "kind": "T"}),
        &["x"],
        "error",
        json!({"is_error": true, "kind": "T"}),
    );
    check_observation(
        json!({"output": "out", "error": false, "kind": "B"}),
        &["out"],
        "ok",
        json!({"error": false, "kind": "B", "content_from": ["output"]}),
    );
    check_observation(
        json!({"output": "", "error": "no such file"}),
        &["no such file"],
        "error",
        json!({"output": "", "content_from": ["error"]}),
    );
    check_observation(
        json!({"output": "seen", "error": ""}),
        &["seen"],
        "ok",
        json!({"error": "", "content_from": ["output"]}),
    );
    check_observation(json!({"content": "logged"}), &["logged"], "ok", json!({"content_from": ["content"]}));
    check_observation(json!({"message": "done"}), &["done"], "ok", json!({"content_from": ["message"]}));
    check_observation(
        json!({"stdout": "o", "stderr": "e", "exit_code": 2}),
        &["o", "e"],
        "error",
        json!({"exit_code": 2, "content_from": ["stdout", "stderr"]}),
    );
    check_observation(json!({"path": "/x"}), &["{\"path\":\"/x\"}"], "ok", json!({"path": "/x", "content_from": []}));
}

#[test]
fn refusals_and_agent_errors_are_observations() {
    assert_eq!(
        own(json!({
            "kind": "UserRejectObservation", "tool_name": "sh", "tool_call_id": "c", "action_id": "a",
            "rejection_reason": "no", "rejection_source": "hook"
        })),
        json!({
            "source": "environment", "kind": "observation", "call_id": "c", "tool_name": "sh",
            "content": [{"type": "text", "text": "no"}], "outcome": "rejected",
            "foreign": {"kind": "UserRejectObservation", "action_id": "a", "rejection_source": "hook"}
        })
    );
    assert_eq!(
        own(json!({"kind": "AgentErrorEvent", "tool_name": "sh", "tool_call_id": "c", "error": "bad"})),
        json!({
            "source": "agent", "kind": "observation", "call_id": "c", "tool_name": "sh",
            "content": [{"type": "text", "text": "bad"}], "outcome": "error", "interim": true,
            "foreign": {"kind": "AgentErrorEvent"}
        })
    );
}

#[test]
fn condensations_and_what_is_never_shown_keep_their_words() {
    assert_eq!(
        own(json!({"kind": "Condensation", "forgotten_event_ids": ["b", "a"], "summary": "", "summary_offset": 2})),
        json!({
            "source": "environment", "kind": "condensation", "forgotten_event_ids": ["a", "b"], "summary": "",
            "summary_offset": 2, "foreign": {"kind": "Condensation"}
        })
    );
    assert_eq!(
        own(json!({"kind": "Condensation", "summary_offset": -1}))["foreign"],
        json!({"kind": "Condensation", "summary_offset": -1})
    );
    assert_eq!(own(json!({"kind": "CondensationRequest"}))["kind"], json!("condensation_request"));
    assert_eq!(own(json!({"kind": "CondensationSummaryEvent", "summary": "s"}))["role"], json!("user"));
    assert_eq!(
        own(json!({"kind": "NewEvent", "source": "hook", "parent_id": "__root__", "deep": {"x": null}})),
        json!({
            "parent": "__root__", "source": "hook", "kind": "unknown", "foreign_kind": "NewEvent",
            "payload": {"deep": {"x": null}}, "foreign": {"kind": "NewEvent"}
        })
    );
}

#[test]
fn a_page_a_list_and_json_lines_give_the_same_events() {
    let events = [user("a", "hi"), json!({"id": "b", "kind": "PauseEvent"})];
    let as_lines = read_one(lines(&events));
    for content in [json!(events), json!({"items": events, "next_page_id": null})] {
        let trace = read_one(content.to_string());
        assert_eq!(trace.events, as_lines.events);
        assert_eq!((trace.records, diagnostics(&trace)), (2, vec![]));
    }
    let page = read_one(json!({"items": events, "next_page_id": "x"}).to_string());
    assert_eq!(diagnostics(&page), ["file: the page has a successor that is not in the file"]);
    assert_eq!(outline(&page), ["a message", "b unknown"]);
}

#[test]
fn ids_are_made_unique_and_made_up_where_they_are_missing() {
    let trace = read_one(lines(&[
        user("a", "1"),
        user("a", "2"),
        user("a#dup1", "3"),
        user("a", "4"),
        json!({"id": 7, "kind": "PauseEvent"}),
        json!({"kind": "PauseEvent"}),
        json!({"id": "x"}),
        json!([1]),
    ]));
    assert_eq!(
        outline(&trace),
        [
            "a message",
            "a#dup1 message",
            "a#dup1#dup1 message",
            "a#dup2 message",
            "7 unknown",
            "event-5 unknown",
            "x unknown"
        ]
    );
    assert_eq!(
        diagnostics(&trace),
        [
            "line 2: the id a occurs again; called a#dup1",
            "line 3: the id a#dup1 occurs again; called a#dup1#dup1",
            "line 4: the id a occurs again; called a#dup2",
            "line 5: an event without a text as id; called 7",
            "line 6: an event without a text as id; called event-5",
            "line 7: an event without `kind`; kept as unknown",
            "line 8: not an object; left out",
        ]
    );
    assert_eq!(trace.records, 8);
    check_trace(&trace);
}

fn child(id: &str, parent: &str) -> Value {
    let mut event = user(id, id);
    event["parent_id"] = json!(parent);
    event
}

#[test]
fn events_of_other_branches_are_left_out_and_counted() {
    let state = json!({"id": "s", "kind": "ConversationStateUpdateEvent", "parent_id": "b"});
    let trace =
        read_one(lines(&[user("a", "a"), child("b", "a"), state, child("c", "b"), child("d", "a"), user("e", "e")]));
    assert_eq!(outline(&trace), ["a message", "s unknown", "d message", "e message"]);
    assert_eq!(diagnostics(&trace), ["file: 2 events stand on other branches and are left out"]);
    assert_eq!(trace.events[2].parent.as_ref().unwrap().as_str(), "a");

    let rooted = read_one(lines(&[user("a", "a"), child("b", "__root__")]));
    assert_eq!(outline(&rooted), ["b message"]);
}

#[test]
fn a_missing_parent_is_bridged_by_file_order() {
    let trace = read_one(lines(&[user("a", "a"), child("b", "gone"), child("c", "d"), child("d", "c")]));
    assert_eq!(outline(&trace), ["a message", "b message", "c message", "d message"]);
    let bridged = "parents that are no earlier event of the file, bridged by the event before";
    assert_eq!(diagnostics(&trace), [format!("line 2: {bridged}: 2 in the file, the first here")]);
}

#[test]
fn a_message_that_repeats_calls_or_answers_is_not_shown_twice() {
    let trace = read_one(lines(&[
        json!({"id": "m", "kind": "MessageEvent", "source": "agent", "llm_message": {
            "role": "assistant", "content": "I look", "tool_calls": [{"id": "c", "function": {"name": "sh"}}]}}),
        json!({"id": "a", "kind": "ActionEvent", "thought": [], "tool_name": "sh", "tool_call_id": "c",
            "tool_call": {"id": "c", "function": {"name": "sh", "arguments": "{}"}}}),
        json!({"id": "o", "kind": "ObservationEvent", "tool_name": "sh", "tool_call_id": "c",
            "observation": {"stdout": "x", "exit_code": 0}}),
        json!({"id": "t", "kind": "MessageEvent", "source": "environment", "llm_message": {
            "role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "{\"stdout\":\"x\"}"}]}}),
        json!({"id": "u", "kind": "MessageEvent", "source": "agent", "llm_message": {
            "role": "assistant", "content": "", "tool_calls": [{"id": "other", "function": {"name": "sh"}}]}}),
    ]));
    assert_eq!(outline(&trace), ["m unknown", "a action", "o observation", "t unknown", "u message"]);
    let json = serde_json::to_value(&trace.events).unwrap();
    assert_eq!(json[1]["thought"], json!([{"type": "text", "text": "I look"}]));
    assert_eq!(json[2]["content"], json!([{"type": "text", "text": "{\"stdout\":\"x\"}"}]));
    assert_eq!(json[2]["foreign"]["observation"], json!({"stdout": "x", "exit_code": 0}));
    assert_eq!(json[3]["payload"]["llm_message"]["role"], json!("tool"));
    assert_eq!(diagnostics(&trace).len(), 1);
    check_trace(&trace);
}

#[test]
fn evaluation_rows_get_their_task_as_the_first_message() {
    let action =
        json!({"id": "a", "kind": "ActionEvent", "tool_name": "sh", "tool_call_id": "c", "llm_response_id": "r"});
    let usage = json!({"token_usages": [
        {"response_id": "r", "prompt_tokens": 10, "cache_read_tokens": 4, "completion_tokens": 3, "model": "m"}
    ]});
    let traces = read(lines(&[
        json!({"instance_id": "i1", "instruction": "do it", "history": [action], "metrics": usage, "error": null}),
        json!({"instance_id": 2, "instruction": "and this", "history": [user("u", "and this")]}),
        json!({"instance_id": 3, "instruction": "none", "history": []}),
        json!({"instance_id": 4}),
    ]));
    let names: Vec<_> = traces.iter().map(|trace| (trace.name.as_str(), trace.task.as_deref().unwrap())).collect();
    assert_eq!(names, [("t.json#0", "i1"), ("t.json#1", "2"), ("t.json#2", "3")]);
    assert!(traces.iter().all(|trace| trace.records == 4));
    assert_eq!(outline(&traces[0]), ["row unknown", "instruction message", "a action"]);
    assert_eq!(outline(&traces[1]), ["row unknown", "u message"]);
    assert_eq!(outline(&traces[2]), ["row unknown", "instruction message"]);
    assert_eq!(
        serde_json::to_value(&traces[0].events[2].usage).unwrap(),
        json!({"input_tokens": 6, "cache_read_tokens": 4, "output_tokens": 3, "model": "m"})
    );
    assert_eq!(diagnostics(&traces[0]), ["line 4: a row without `history`; left out"]);
    traces.iter().for_each(check_trace);
}

/// A conversation folder with these files.
fn folder(files: &[(&str, &str)]) -> Trace {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("events")).unwrap();
    for (name, content) in files {
        fs::write(root.path().join(name), content).unwrap();
    }
    let mut traces = read_path(root.path(), None).unwrap();
    assert_eq!(traces.len(), 1);
    traces.remove(0)
}

#[test]
fn a_folder_is_read_by_number_and_its_gaps_and_damage_are_reported() {
    let pause = |id: &str| format!("{{\"id\":\"{id}\",\"kind\":\"PauseEvent\"}}");
    let trace = folder(&[
        ("events/event-00002-c.json", &pause("c")),
        ("events/event-00000-a.json", &pause("a")),
        ("events/event-100000-z.json", &pause("z")),
        ("events/event-00005-f.json", ""),
        ("events/event-00006-g.json", "{\"id\":"),
        ("events/event-00007-h.json", "\0\0"),
        ("events/event-00008-i.json", &pause("i").repeat(2)),
        ("events/event-00008-j.json", &pause("j")),
        ("events/.eventlog.lock", ""),
        ("events/notes.json", "{}"),
    ]);
    assert_eq!(outline(&trace), ["a unknown", "c unknown", "i unknown", "j unknown", "z unknown"]);
    assert_eq!(trace.records, 8);
    assert_eq!(
        diagnostics(&trace),
        [
            "event-00002-c.json: event 1 is missing before this one; read on",
            "event-00005-f.json: events 3 to 4 are missing before this one; read on",
            "event-00008-j.json: a second file has this number; both are kept, in order of their ids",
            "event-100000-z.json: events 9 to 99999 are missing before this one; read on",
            "event-00005-f.json: the event file is empty and left out",
            "event-00006-g.json line 1: not JSON: the text ends inside a value; the event is left out",
            "event-00007-h.json: a binary file, not an event; left out",
            "event-00008-i.json: more than one value in an event file; only the first is read",
        ]
    );
}

#[test]
fn the_state_beside_a_folder_gives_head_and_usage() {
    let action = |id: &str, response: &str| {
        json!({"id": id, "kind": "ActionEvent", "tool_call_id": id, "llm_response_id": response}).to_string()
    };
    let state = json!({"leaf_event_id": "b", "stats": {"usage_to_metrics": {"agent": {"token_usages": [
        {"response_id": "r", "prompt_tokens": 100, "cache_read_tokens": 90, "cache_write_tokens": 500, "completion_tokens": 1}
    ]}}}});
    let trace = folder(&[
        ("events/event-00000-a.json", &action("a", "r")),
        ("events/event-00001-b.json", &action("b", "r")),
        ("events/event-00002-c.json", &action("c", "q")),
        ("base_state.json", &state.to_string()),
    ]);
    assert_eq!(outline(&trace), ["a action", "b action"]);
    // Writes cannot be part of a prompt that is smaller than they are.
    let usage = trace.events[0].usage.as_ref().unwrap();
    assert_eq!((usage.input_tokens, usage.cache_write_tokens, usage.total_input()), (Some(10), Some(500), Some(600)));
    assert_eq!(trace.events[1].usage, None);
    assert_eq!(diagnostics(&trace), ["file: 1 events stand on other branches and are left out"]);
}

#[test]
fn a_forgotten_summary_is_named_as_views_name_it() {
    let condensation = |id: &str, forgotten: &[&str]| json!({"id": id, "kind": "Condensation", "forgotten_event_ids": forgotten, "summary": "s", "summary_offset": 0});
    let trace = read_one(lines(&[
        user("a", "a"),
        condensation("c1", &["a", "nowhere"]),
        user("b", "b"),
        condensation("c2", &["b", "random"]),
        condensation("c3", &["c2-summary"]),
        condensation("c4", &["x", "y"]),
    ]));
    let forgotten: Vec<_> =
        json_of(&trace).iter().filter_map(|event| event.get("forgotten_event_ids").cloned()).collect();
    assert_eq!(
        forgotten,
        [json!(["a", "nowhere"]), json!(["b", "c1-summary"]), json!(["c2-summary"]), json!(["x", "y"])]
    );
    assert_eq!(json_of(&trace)[3]["foreign"]["forgotten_summary_id"], json!("random"));
    assert_eq!(
        diagnostics(&trace),
        ["file: 1 condensations forget an earlier summary by an id that is not stored; read as that summary"]
    );
}
