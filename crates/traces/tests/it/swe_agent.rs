//! SWE-agent trajectories.

use condenser::event::EventId;
use condenser::view::{Rules, View};
use condenser_traces::Trace;
use serde_json::{Value, json};

use crate::common::{check_trace, diagnostics, json_of, outline, read_one, try_read};

fn trajectory(file: &Value) -> Trace {
    let trace = read_one(file.to_string());
    assert_eq!(trace.format, "swe-agent");
    check_trace(&trace);
    trace
}

fn item(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content, "agent": "main"})
}

fn text_action(content: &str, action: &str) -> Value {
    json!({"role": "assistant", "content": content, "thought": "hm", "action": action, "agent": "primary"})
}

fn call(id: &str, content: &str) -> Value {
    json!({"role": "assistant", "content": content, "thought": content, "action": "ls -F", "agent": "main",
        "tool_calls": [{"type": "function", "id": id, "function": {"name": "bash", "arguments": "{\"command\": \"ls -F\"}"}}]})
}

fn result(id: &str, content: &str) -> Value {
    json!({"role": "tool", "content": content, "agent": "main", "tool_call_ids": [id]})
}

#[test]
fn actions_in_text_are_calls_answered_by_the_user_text_after_them() {
    let mut demo = item("user", "a demonstration");
    demo["is_demo"] = json!("true");
    let trace = trajectory(&json!({
        "environment": "swe_main", "info": {"exit_status": "submitted", "model_stats": {"api_calls": 2}},
        "history": [item("system", "s"), demo, item("user", "task"), text_action("hm\n```\nls -a\n```", "ls -a\n"),
            item("user", "out"), item("assistant", "I give up"), item("user", "go on"), text_action("x", "submit")],
        "trajectory": [
            {"action": "ls -a\n", "observation": "out", "response": "hm\n```\nls -a\n```", "thought": "hm", "state": "{}"},
            {"action": "submit", "observation": "diff", "response": "x", "thought": "hm", "state": "{}"}],
    }));
    assert_eq!(
        outline(&trace),
        [
            "history-0 system_prompt",
            "history-1 message",
            "history-2 message",
            "history-3 action",
            "history-4 observation",
            "history-5 message",
            "history-6 message",
            "history-7 action",
        ]
    );
    assert_eq!((trace.records, diagnostics(&trace)), (8, vec![]));
    let events = json_of(&trace);
    assert_eq!(events[0]["foreign"]["file"]["info"]["model_stats"]["api_calls"], 2);
    assert_eq!((&events[1]["role"], &events[1]["foreign"]["is_demo"]), (&json!("user"), &json!("true")));
    assert_eq!(
        (&events[3]["tool_name"], &events[3]["arguments"], &events[3]["thought"][0]["text"]),
        (&json!("ls"), &json!("{\"command\":\"ls -a\\n\"}"), &json!("hm"))
    );
    assert_eq!(events[3]["call_id"], events[4]["call_id"]);
    assert_eq!(events[4]["tool_name"], "ls");
    assert_eq!(events[3]["foreign"]["step"], json!({"state": "{}"}));
    assert_eq!(events[7]["foreign"]["step"], json!({"observation": "diff", "state": "{}"}));
}

#[test]
fn a_history_alone_is_a_demonstration_with_calls() {
    let trace = trajectory(
        &json!({"history": [item("system", "s"), item("user", "task"), call("c", "look"), result("c", "f")]}),
    );
    assert_eq!(
        outline(&trace),
        ["history-0 system_prompt", "history-1 message", "history-2 action", "history-3 observation"]
    );
    let events = json_of(&trace);
    assert_eq!(
        (&events[2]["call_id"], &events[2]["arguments"], &events[2]["thought"][0]["text"]),
        (&json!("c"), &json!("{\"command\": \"ls -F\"}"), &json!("look"))
    );
    assert_eq!((&events[3]["call_id"], &events[3]["tool_name"]), (&json!("c"), &json!("bash")));
}

#[test]
fn outputs_that_a_recorded_prompt_elides_are_rewritten_from_there_on() {
    let history = vec![item("user", "task"), call("c", "1"), result("c", "long"), call("c", "2"), result("c", "short")];
    let mut elided = history.clone();
    elided[2]["content"] = json!("Old environment output: (1 lines omitted)");
    let step = |prompt: &[Value]| json!({"action": "ls -F", "state": {}, "messages": prompt});
    let trace =
        trajectory(&json!({"history": history, "trajectory": [step(&history[..3]), step(&elided)], "info": {}}));
    let events = json_of(&trace);
    assert_eq!(outline(&trace)[5], "trajectory-1 condensation");
    assert_eq!(
        events[5]["rewrites"],
        json!({"history-2": {"op": "replace", "content": [{"type": "text", "text": "Old environment output: (1 lines omitted)"}]}})
    );
    let view = View::replay(&trace.events, Rules::Sound);
    let at = view.position(&EventId::from("history-2")).unwrap();
    assert!(view.get(at).unwrap().rewrite().is_some());
}

#[test]
fn steps_that_no_answer_has_are_kept() {
    let trace = trajectory(&json!({
        "history": [item("user", "task")], "trajectory": [{"action": "ls", "query": [1], "state": 1}], "info": {}}));
    assert_eq!(outline(&trace), ["history-0 message", "trajectory-0 unknown"]);
    assert_eq!(json_of(&trace)[1]["payload"], json!({"action": "ls", "state": 1}));
}

#[test]
fn other_objects_with_a_history_are_not_taken() {
    for file in [json!({"history": []}), json!({"history": [{"role": "user", "content": "x"}]})] {
        assert!(try_read(file.to_string()).is_err());
    }
}

#[test]
fn rows_of_a_dataset_are_traces_whose_fenced_blocks_are_actions() {
    let item = |role: &str, text: &str| json!({"role": role, "text": text, "system_prompt": null, "mask": false});
    let row = |id: &str| {
        json!({"instance_id": id, "model_name": "m", "exit_status": "submitted", "trajectory": [
            {"role": "system", "text": null, "system_prompt": "you are"}, item("user", "task"),
            item("ai", "I look.\n\n```\nls -a\n```\n"), item("user", "x"), item("ai", "no action"), item("user", "go on")]})
    };
    let events = r#"
        row unknown row
        trajectory-0 system "you are"
        trajectory-1 user "task"
        trajectory-2 calls trajectory-2-call ls {"command":"ls -a\n"} after "I look."
        trajectory-3 result trajectory-2-call ls "x"
        trajectory-4 says "no action"
        trajectory-5 user "go on"
        "#;
    let expected = format!("== t.json#0\n{}\n== t.json#1\n{}", events.trim(), events.trim());
    let rows = [row("a"), row("b")];
    let traces = crate::script::check(&Value::from(rows.to_vec()), "swe-agent", 2, &expected);
    let tasks: Vec<_> = traces.iter().map(|trace| trace.task.as_deref().unwrap()).collect();
    assert_eq!(tasks, ["a", "b"]);
    crate::script::check_traces(crate::script::lines(&rows), "swe-agent", 2, &expected);
}
