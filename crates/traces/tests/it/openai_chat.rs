//! OpenAI chat messages.

use condenser_traces::{ReadError, Trace};
use serde_json::{Value, json};

use crate::common::{check_trace, diagnostics, json_of, outline, read, read_one, try_read};

fn call(id: &str, name: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}})
}

fn calls(calls: &[Value]) -> Value {
    json!({"role": "assistant", "content": null, "tool_calls": calls})
}

fn result(id: &str, text: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": text})
}

fn chat(messages: &[Value]) -> Trace {
    let trace = read_one(json!(messages).to_string());
    check_trace(&trace);
    trace
}

/// `call id of each action and observation`.
fn call_ids(trace: &Trace) -> Vec<String> {
    json_of(trace).iter().filter_map(|event| event.get("call_id")?.as_str().map(str::to_owned)).collect()
}

#[test]
fn one_message_becomes_one_event_or_one_per_call() {
    let trace = chat(&[
        json!({"role": "system", "content": "s"}),
        json!({"role": "user", "content": "u", "name": "ann"}),
        json!({"role": "assistant", "content": "look", "reasoning_content": "why",
            "tool_calls": [call("c1", "f"), call("c2", "g")]}),
        result("c2", "two"),
        result("c1", "one"),
        json!({"role": "developer", "content": "d"}),
        json!({"role": "assistant", "content": "done", "refusal": null}),
    ]);
    assert_eq!(
        outline(&trace),
        [
            "m0 system_prompt",
            "m1 message",
            "m2 action",
            "m2#1 action",
            "m3 observation",
            "m4 observation",
            "m5 message",
            "m6 message"
        ]
    );
    assert_eq!((trace.records, diagnostics(&trace)), (7, vec![]));
    let json = json_of(&trace);
    assert_eq!(
        json[2],
        json!({
            "schema": 1, "id": "m2", "origin": {"record": "m2", "part": 0}, "source": "agent", "kind": "action",
            "call_id": "c1", "tool_name": "f", "arguments": "{}", "thought": [{"type": "text", "text": "look"}],
            "reasoning": "why", "response_id": "m2",
            "foreign": {"tool_call": {"type": "function", "function": {}}}
        })
    );
    assert_eq!(json[3].get("thought"), None);
    assert_eq!(json[3]["response_id"], json!("m2"));
    assert_eq!((&json[4]["call_id"], &json[4]["tool_name"]), (&json!("c2"), &json!("g")));
    assert_eq!((&json[6]["role"], &json[6]["foreign"]["role"]), (&json!("system"), &json!("developer")));
    assert_eq!(json[7]["foreign"], json!({"refusal": null}));
}

#[test]
fn a_list_and_a_message_a_line_give_the_same_events() {
    let messages = [json!({"role": "user", "content": "u"}), calls(&[call("c", "f")]), result("c", "r")];
    let lines: String = messages.iter().map(|message| format!("{message}\n")).collect();
    assert_eq!(read_one(&lines).events, chat(&messages).events);
    assert_eq!(read_one(&lines).records, 3);
    assert_eq!(outline(&read_one(messages[0].to_string())), ["m0 message"]);
}

#[test]
fn content_may_be_parts_text_or_null() {
    let trace = chat(&[
        json!({"role": "user", "content": [
            {"type": "text", "text": "t", "cache_control": {"type": "ephemeral"}},
            {"type": "image_url", "image_url": {"url": "data:x"}},
            {"type": "input_audio", "input_audio": {"data": "d"}}
        ]}),
        json!({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u", "detail": "low"}}]}),
        json!({"role": "assistant", "content": null, "content_parts": [{"type": "text", "text": "p"}]}),
        json!({"role": "assistant", "content": ""}),
    ]);
    let json = json_of(&trace);
    assert_eq!(
        json[0]["content"],
        json!([
            {"type": "text", "text": "t", "cache": true}, {"type": "image", "urls": ["data:x"]},
            {"type": "input_audio", "input_audio": {"data": "d"}}
        ])
    );
    assert_eq!(json[0]["foreign"], json!({"content_shape": "list"}));
    assert_eq!(json[1]["foreign"]["content"][0]["image_url"]["detail"], json!("low"));
    assert_eq!(json[2]["content"], json!([{"type": "text", "text": "p"}]));
    assert_eq!((&json[3]["content"], &json[3]["foreign"]), (&json!([]), &json!({"content": ""})));
}

#[test]
fn a_call_id_used_again_is_exchanged_and_its_result_follows() {
    let trace = chat(&[
        calls(&[call("c", "f")]),
        result("c", "1"),
        calls(&[call("c", "g"), call("c", "h")]),
        result("c", "2"),
        result("c", "3"),
    ]);
    assert_eq!(call_ids(&trace), ["c", "c", "call_1_made_up", "call_2_made_up", "call_1_made_up", "call_2_made_up"]);
    assert_eq!(diagnostics(&trace), Vec::<String>::new());
    let json = json_of(&trace);
    assert_eq!(json[2]["foreign"]["tool_call"]["id"], json!("c"));
    assert_eq!(json[2]["foreign"]["made_up_call_id"], json!(true));
    assert_eq!(json[4]["foreign"]["tool_call_id"], json!("c"));
    assert_eq!(json[5]["tool_name"], json!("h"));
}

#[test]
fn calls_without_ids_are_answered_in_order() {
    let no_id = |name: &str| json!({"function": {"name": name, "arguments": "{}"}, "id": null});
    let answer = |text: &str| json!({"role": "tool", "content": text, "tool_call_id": null});
    let trace = chat(&[calls(&[no_id("f"), no_id("g")]), answer("1"), answer("2"), answer("3")]);
    let id = ["call_1_made_up", "call_2_made_up"];
    assert_eq!(call_ids(&trace), [id[0], id[1], id[0], id[1], ""]);
    assert_eq!(diagnostics(&trace), ["messages[3]: a result that answers no earlier call; kept"]);

    let old = chat(&[
        json!({"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{}"}}),
        json!({"role": "function", "name": "f", "content": "r"}),
    ]);
    assert_eq!(call_ids(&old), [id[0], id[0]]);
    assert_eq!(json_of(&old)[1]["foreign"]["role"], json!("function"));
}

#[test]
fn results_without_a_call_and_second_results_are_kept_and_reported() {
    let trace = chat(&[result("x", "0"), calls(&[call("c", "f")]), result("c", "1"), result("c", "2")]);
    assert_eq!(call_ids(&trace), ["x", "c", "c", "c"]);
    assert_eq!(
        diagnostics(&trace),
        [
            "messages[0]: a result that answers no earlier call; kept",
            "messages[3]: a second result for a call; both are kept"
        ]
    );
}

#[test]
fn rows_are_traces_of_their_own_whatever_holds_the_messages() {
    let user = json!({"role": "user", "content": "u", "tool_calls": null, "name": null});
    let rows = [
        json!({"instance_id": "i", "messages": json!([user]).to_string(), "resolved": true}),
        json!({"task_id": 7, "traj": [user]}),
        json!({"trajectory": [user], "tools": json!([{"type": "function"}]).to_string()}),
        json!({"conversations": null}),
        json!({"other": 1}),
    ];
    let traces = read(rows.iter().map(|row| format!("{row}\n")).collect::<String>());
    let names: Vec<_> = traces.iter().map(|trace| (trace.name.as_str(), trace.task.as_deref())).collect();
    assert_eq!(names, [("t.json#0", Some("i")), ("t.json#1", Some("7")), ("t.json#2", None), ("t.json#3", None)]);
    assert!(traces.iter().all(|trace| trace.records == 5));
    assert_eq!(outline(&traces[0]), ["row unknown", "m0 message"]);
    assert_eq!(outline(&traces[2]), ["row unknown", "tools system_prompt", "m0 message"]);
    assert_eq!(json_of(&traces[0])[0]["payload"], json!({"instance_id": "i", "resolved": true}));
    assert_eq!(diagnostics(&traces[0]), ["line 5: no list of chat messages; the row is left out"]);
    traces.iter().for_each(check_trace);

    // The same rows as one list; a single row is a row too.
    assert_eq!(read(json!(rows[..3]).to_string()).len(), 3);
    assert_eq!(read_one(rows[1].to_string()).name, "t.json#0");
}

#[test]
fn a_logged_request_ends_with_the_message_of_its_response() {
    let log = |messages: Value| {
        json!({
            "messages": messages, "tools": [{"type": "function"}], "kwargs": {"temperature": 0},
            "response": {
                "id": "resp", "model": "m", "usage": {
                    "prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 6}},
                "choices": [{"finish_reason": "tool_calls", "message": calls(&[call("c", "f")])}]
            }
        })
    };
    let trace =
        read_one(log(json!([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}])).to_string());
    assert_eq!(outline(&trace), ["row unknown", "m0 system_prompt", "m1 message", "m2 action"]);
    assert_eq!((trace.name.as_str(), trace.records), ("t.json", 2));
    let json = json_of(&trace);
    assert_eq!(json[1]["tools"], json!([{"type": "function"}]));
    assert_eq!(json[3]["response_id"], json!("resp"));
    assert_eq!(json[3]["usage"], json!({"input_tokens": 4, "cache_read_tokens": 6, "output_tokens": 2, "model": "m"}));
    assert_eq!(json[0]["payload"]["response"]["choices"], json!([{"finish_reason": "tool_calls"}]));
    check_trace(&trace);

    // A logger that appends the answer to the messages does not make it happen twice.
    let appended = read_one(log(json!([{"role": "user", "content": "u"}, calls(&[call("c", "f")])])).to_string());
    assert_eq!(outline(&appended), ["row unknown", "tools system_prompt", "m0 message", "m1 action"]);
    assert_eq!(json_of(&appended)[3]["response_id"], json!("resp"));
}

#[test]
fn a_stored_completion_ends_with_its_first_choice() {
    let trace = read_one(
        json!({
            "object": "chat.completion", "id": "cmpl", "messages": [{"role": "user", "content": "u"}],
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "a"}}]
        })
        .to_string(),
    );
    assert_eq!(outline(&trace), ["row unknown", "m0 message", "m1 message"]);
    assert_eq!((json_of(&trace)[2]["response_id"].clone(), trace.records), (json!("cmpl"), 1));
}

#[test]
fn what_is_in_the_words_of_another_api_is_not_claimed() {
    let user = json!({"role": "user", "content": "u"});
    for other in [
        json!([user, {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}]),
        json!([user, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c"}]}]),
        json!({"system": "s", "messages": [user]}),
        json!({"sessionId": "s", "messages": [user]}),
        json!({"trajectory_format": "mini-swe-agent-1", "messages": [user]}),
        json!([{"role": "ai", "text": "x"}]),
        json!([{"role": "user", "content": "x", "type": "message"}]),
        json!({"messages": []}),
        json!([]),
    ] {
        let is_claimed = match try_read(other.to_string()) {
            Ok(traces) => traces.iter().any(|trace| trace.format == "openai-chat"),
            Err(ReadError::Unrecognized { .. }) => false,
            Err(error) => panic!("{error}"),
        };
        assert!(!is_claimed, "{other}");
    }
}
