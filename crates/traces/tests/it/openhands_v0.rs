//! OpenHands trajectories before the SDK.

use serde_json::{Value, json};

use crate::common::json_of;
use crate::script::{check, check_traces, lines, view_of};

fn action(id: u64, kind: &str, args: Value) -> Value {
    json!({"id": id, "timestamp": "t", "source": "agent", "message": "shown", "action": kind, "args": args})
}

fn observation(id: u64, cause: u64, kind: &str, content: &str) -> Value {
    json!({"id": id, "source": "agent", "message": "shown", "observation": kind, "content": content, "cause": cause, "extras": {}})
}

fn message(id: u64, text: &str) -> Value {
    json!({"id": id, "source": "user", "message": text, "action": "message", "args": {"content": text}})
}

/// An event of one response with two calls.
fn of_response(mut event: Value, call: &str) -> Value {
    let calls = ["toolu_01", "toolu_02"].map(
        |id| json!({"id": id, "function": {"name": "execute_bash", "arguments": format!("{{\"of\": \"{id}\"}}")}}),
    );
    event["tool_call_metadata"] = json!({"function_name": "execute_bash", "tool_call_id": call, "total_calls_in_response": 2,
        "model_response": {"id": "r", "model": "m", "choices": [{"message": {"content": "look", "tool_calls": calls}}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 2}}});
    event
}

#[test]
fn a_response_is_one_turn_and_observations_answer_their_cause() {
    let mut failed = of_response(observation(6, 3, "run", "oops"), "toolu_01");
    failed["extras"] = json!({"metadata": {"exit_code": 2, "suffix": "[exit 2]"}});
    let traces = check(
        &json!([
            action(0, "system", json!({"content": "you are", "tools": [{"type": "function", "function": {"name": "execute_bash"}}]})),
            message(1, "task"),
            {"id": 2, "source": "environment", "message": "", "observation": "agent_state_changed", "content": "", "extras": {}},
            of_response(action(3, "run", json!({"command": "a", "thought": "look"})), "toolu_01"),
            of_response(action(4, "run", json!({"command": "b", "thought": ""})), "toolu_02"),
            of_response(observation(5, 4, "run", "fine"), "toolu_02"),
            failed,
            action(7, "think", json!({"thought": {"default": "hm", "reasoning_content": "deep"}})),
            observation(8, 7, "think", "noted"),
            action(9, "message", json!({"content": "done"})),
            observation(10, 9, "null", ""),
            {"id": 11, "source": "agent", "message": "", "observation": "error", "content": "lost", "extras": {}}
        ]),
        "openhands-v0",
        12,
        r#"
        0 system "you are" +1 tools
        1 user "task"
        2 unknown agent_state_changed
        3 calls toolu_01 execute_bash {"of": "toolu_01"} after "look" of r $10/-/-/2
        4 calls toolu_02 execute_bash {"of": "toolu_02"} of r
        5 result toolu_02 execute_bash "fine"
        6 result toolu_01 execute_bash error "oops"
        7 calls 7-call think {} after "hm" thinks "deep"
        8 result 7-call think "noted"
        9 says "done"
        10 unknown null
        11 user "lost"
        "#,
    );
    let events = json_of(&traces[0]);
    let response = |at: usize| &events[at]["foreign"]["tool_call_metadata"]["model_response"];
    assert!(response(3).is_object() && response(4).is_null() && response(5).is_null(), "a response is kept once");
    assert_eq!(events[6]["extended_content"][0]["text"], "[exit 2]");
}

#[test]
fn rows_hold_their_history_flat_or_in_pairs() {
    let absent = json!({"observation": "null", "content": "", "extras": {}, "message": "No observation"});
    let mut result = observation(4, 3, "run", "x");
    result.as_object_mut().unwrap().remove("cause");
    let pairs = json!([[message(0, "task"), absent], [action(3, "run", json!({"command": "ls"})), result]]);
    let flat = json!([action(3, "run", json!({"command": "ls"})), observation(4, 3, "run", "x")]);
    check_traces(
        lines(&[
            json!({"id": "one", "history": pairs, "instruction": "task"}),
            json!({"instance_id": "two", "history": flat, "instruction": "do", "metrics": {"accumulated_cost": 1}}),
            json!({"error": "no history"}),
        ]),
        "openhands-v0",
        3,
        r#"
        == t.json#0
        row unknown row
        0 user "task"
        row 0 history[0][1] unknown null
        3 calls 3-call run {"command":"ls"}
        4 result 3-call run "x"
        ! line 3: a row without `history`; left out
        == t.json#1
        row unknown row
        instruction user "do"
        3 calls 3-call run {"command":"ls"}
        4 result 3-call run "x"
        "#,
    );
}

#[test]
fn condensations_count_what_the_peer_shows() {
    let recall = json!({"id": 1, "source": "user", "message": "", "action": "recall", "args": {}});
    let condense = |id: u64, args: Value| action(id, "condensation", args);
    let traces = check(
        &json!([
            message(0, "task"),
            recall,
            message(2, "a"),
            message(3, "b"),
            message(4, "c"),
            condense(
                5,
                json!({"forgotten_events_start_id": 2, "forgotten_events_end_id": 3, "summary": "s1", "summary_offset": 2})
            ),
            message(6, "d"),
            condense(7, json!({"forgotten_event_ids": [4, 5], "summary": "s2", "summary_offset": 1}))
        ]),
        "openhands-v0",
        8,
        r#"
        0 user "task"
        1 unknown recall
        2 user "a"
        3 user "b"
        4 user "c"
        5 condenses -2,3 "s1"@1
        6 user "d"
        7 condenses -4,5-summary "s2"@1
        "#,
    );
    assert_eq!(view_of(&traces[0]), ["0", "7-summary", "6"]);
}

#[test]
fn the_work_of_a_delegate_is_a_linked_trace() {
    check(
        &json!([
            message(0, "task"),
            action(1, "delegate", json!({"agent": "Browser"})),
            action(2, "browse", json!({"url": "u"})),
            observation(3, 2, "browse", "page"),
            observation(4, 1, "delegate", "found"),
            action(5, "finish", json!({}))
        ]),
        "openhands-v0",
        6,
        r#"
        == t.json
        0 user "task"
        1 calls 1-call delegate {"agent":"Browser"}
        4 result 1-call delegate "found"
        5 calls 5-call finish {}
        == t.json.delegate-0 < t.json 1-call
        2 calls 2-call browse {"url":"u"}
        3 result 2-call browse "page"
        "#,
    );
}

#[test]
fn what_a_user_runs_is_told_to_the_agent() {
    let mut run = action(0, "run", json!({"command": "ls"}));
    run["source"] = json!("user");
    check(
        &json!([run, observation(1, 0, "run", "x")]),
        "openhands-v0",
        2,
        r#"
        0 user "User executed the command:\nls"
        1 user "x"
        "#,
    );
}
