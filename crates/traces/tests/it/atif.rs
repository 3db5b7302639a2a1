//! ATIF trajectories.

use serde_json::{Value, json};

use crate::common::json_of;
use crate::script::{check, view_of};

fn file(steps: Value) -> Value {
    json!({"schema_version": "ATIF-v1.5", "session_id": "s", "agent": {"name": "a", "model_name": "m"}, "steps": steps})
}

#[test]
fn a_step_becomes_its_calls_and_their_results() {
    let mut file = file(json!([
        {"step_id": 1, "source": "system", "message": "you are"},
        {"step_id": 2, "source": "user", "message": "task"},
        {"step_id": 3, "source": "agent", "message": "look", "reasoning_content": "hm", "timestamp": "t",
         "tool_calls": [
            {"tool_call_id": "c1", "function_name": "ls", "arguments": {"b": 1, "a": 2}},
            {"tool_call_id": "c2", "function_name": "cat", "arguments": {}}],
         "observation": {"results": [{"source_call_id": "c2", "content": "two"}, {"content": "one"}]},
         "metrics": {"prompt_tokens": 100, "cached_tokens": 60, "completion_tokens": 7}},
        {"step_id": 4, "source": "system", "message": "note"},
        {"step_id": 5, "source": "agent", "message": "done", "observation": {"results": [{"content": "screen"}]}}
    ]));
    file["agent"]["tool_definitions"] = json!([{"type": "function", "function": {"name": "ls"}}]);
    file["final_metrics"] = json!({"total_prompt_tokens": 90});
    let traces = check(
        &file,
        "atif",
        5,
        r#"
        file unknown file
        step-1 system "you are" +1 tools
        step-2 user "task"
        step-3 calls c1 ls {"b":1,"a":2} after "look" thinks "hm" $40/60/-/7
        step-3#1 calls c2 cat {}
        step-3#2 result c2 cat "two"
        step-3#3 result c1 ls "one"
        step-4 instructs "note"
        step-5 says "done"
        step-5#1 user "screen"
        ! final_metrics: 90 prompt tokens in all are fewer than the 100 of the steps; these count
        "#,
    );
    assert_eq!(traces[0].session.as_deref(), Some("s"));
    let events = json_of(&traces[0]);
    assert_eq!(events[0]["payload"]["agent"]["name"], "a");
    assert_eq!(events[3]["foreign"]["metrics"]["cached_tokens"], 60);
    assert_eq!(events[3]["timestamp"], "t");
    assert_eq!(events[6]["foreign"], json!({"call_from_position": true, "result": {"content_shape": "string"}}));
}

#[test]
fn a_handover_to_a_fresh_context_keeps_the_task_only() {
    let traces = check(
        &file(json!([
            {"step_id": 1, "source": "user", "message": "task"},
            {"step_id": 2, "source": "agent", "message": "a"},
            {"step_id": 3, "source": "system", "message": "summarized",
             "observation": {"results": [{"subagent_trajectory_ref": [{"session_id": "s-1"}]}]}},
            {"step_id": 4, "source": "user", "message": "answers"}
        ])),
        "atif",
        4,
        r#"
        file unknown file
        step-1 user "task"
        step-2 says "a"
        step-3 condenses -step-2
        step-4 user "answers"
        "#,
    );
    assert_eq!(view_of(&traces[0]), ["step-1", "step-4"]);
    assert_eq!(json_of(&traces[0])[3]["foreign"]["message"], "summarized");
}

#[test]
fn a_list_holds_a_trace_a_member_and_a_child_names_its_parent() {
    let mut child = file(json!([{"step_id": 1, "source": "user", "message": "x"}, {"step_id": 1, "source": "robot"}]));
    child["agent"]["extra"] = json!({"parent_session_id": "s"});
    let mut parent = file(json!([{"source": "user", "message": [{"type": "text", "text": "y"}]}, 7]));
    parent["agent"].as_object_mut().unwrap().remove("model_name");
    check(
        &json!([parent, child]),
        "atif",
        4,
        r#"
        == t.json#0
        file unknown file
        steps-0 user "y"
        steps-1 unknown step
        ! row[0] steps[1]: a step that is no object; kept as unknown
        == t.json#1 < s
        file unknown file
        step-1 user "x"
        step-1#dup1 unknown step
        ! row[1] steps[1]: a step of no known `source`; kept as unknown
        ! row[1] steps[1]: record ids that were used before, `#dup<n>` appended: 1 in the file, the first here
        "#,
    );
}
