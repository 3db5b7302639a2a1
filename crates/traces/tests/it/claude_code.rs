//! Claude Code sessions.

use condenser::view::{Rules, View};
use condenser_traces::Trace;
use serde_json::{Value, json};

use crate::common::{check_trace, diagnostics, json_of, outline, read_one, try_read};

fn session(records: &[Value]) -> Trace {
    let trace = read_one(records.iter().map(|record| format!("{record}\n")).collect::<String>());
    assert_eq!((trace.format, trace.records), ("claude-code", records.len() as u64));
    check_trace(&trace);
    trace
}

fn record(id: &str, parent: &str, more: Value) -> Value {
    let mut record = json!({"uuid": id, "parentUuid": parent, "sessionId": "s", "isSidechain": false});
    if parent.is_empty() {
        record["parentUuid"] = Value::Null;
    }
    record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    record
}

fn user(id: &str, parent: &str, content: Value) -> Value {
    record(id, parent, json!({"type": "user", "message": {"role": "user", "content": content}}))
}

fn answer(id: &str, parent: &str, response: &str, block: Value) -> Value {
    let usage = json!({"input_tokens": 1, "cache_read_input_tokens": 2, "output_tokens": id.len()});
    let message = json!({"id": response, "role": "assistant", "model": "m", "content": [block], "usage": usage});
    record(id, parent, json!({"type": "assistant", "message": message}))
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn thinking() -> Value {
    json!({"type": "thinking", "thinking": "hm", "signature": "sig"})
}

fn call(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "Read", "input": {"z": 1, "a": 2}})
}

fn result(id: &str, parent: &str, call: &str) -> Value {
    user(id, parent, json!([{"type": "tool_result", "tool_use_id": call, "content": call}]))
}

fn shown(trace: &Trace) -> Vec<String> {
    View::replay(&trace.events, Rules::Sound).ids().map(ToString::to_string).collect()
}

#[test]
fn records_of_one_answer_are_one_response_that_is_paid_once() {
    let trace = session(&[
        user("u", "", json!("hi")),
        answer("a", "u", "r", thinking()),
        answer("bb", "a", "r", text("look")),
        answer("ccc", "bb", "r", call("c1")),
        answer("dddd", "ccc", "r", call("c2")),
        result("e", "ccc", "c1"),
        result("f", "dddd", "c2"),
        answer("g", "f", "r2", thinking()),
        answer("h", "g", "r2", text("done")),
    ]);
    assert_eq!(
        outline(&trace),
        ["u message", "ccc action", "dddd action", "e observation", "f observation", "h message"]
    );
    assert_eq!(diagnostics(&trace), Vec::<String>::new());
    let events = json_of(&trace);
    let first = &events[1];
    assert_eq!(
        (&first["thought"], &first["thinking"], &first["arguments"], &first["response_id"]),
        (&json!([text("look")]), &json!([thinking()]), &json!("{\"z\":1,\"a\":2}"), &json!("r"))
    );
    let merged: Vec<&Value> = first["foreign"]["merged"].as_array().unwrap().iter().map(|old| &old["uuid"]).collect();
    assert_eq!(merged, [&json!("a"), &json!("bb")]);
    // The last record's figures count.
    assert_eq!(first["usage"], json!({"input_tokens": 1, "cache_read_tokens": 2, "output_tokens": 4, "model": "m"}));
    assert!(events[2].get("usage").is_none());
    assert_eq!(events[3]["tool_name"], "Read");
    assert_eq!((&events[5]["content"], &events[5]["response_id"]), (&json!([thinking(), text("done")]), &json!("r2")));
}

#[test]
fn results_tell_errors_refusals_and_images() {
    let blocks = json!([
        {"type": "tool_result", "tool_use_id": "c", "is_error": true, "content": [text("no")]},
        {"type": "tool_result", "tool_use_id": "d", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}]},
        text("and more"),
    ]);
    let mut refused = user("e", "b", blocks);
    refused["toolUseResult"] = json!("User rejected tool use");
    let trace = session(&[answer("a", "", "r", call("c")), answer("b", "a", "r", call("d")), refused]);
    assert_eq!(outline(&trace)[2..], ["e observation", "e#1 observation", "e#2 message"]);
    let events = json_of(&trace);
    assert_eq!((&events[2]["outcome"], &events[3]["outcome"]), (&json!("rejected"), &json!("ok")));
    assert_eq!(events[3]["content"][0]["urls"][0], "data:image/png;base64,AA");
    assert_eq!(events[2]["foreign"]["toolUseResult"], "User rejected tool use");
}

#[test]
fn a_rewind_leaves_the_old_branch_out_and_parallel_results_are_no_branch() {
    let trace = session(&[
        user("u", "", json!("hi")),
        answer("a", "u", "r", call("c1")),
        answer("b", "a", "r", call("c2")),
        result("rb", "b", "c2"),
        result("ra", "a", "c1"),
        answer("x", "ra", "r2", text("old")),
        user("y", "x", json!("first try")),
        answer("z", "y", "r3", text("old answer")),
        user("y2", "x", json!("second try")),
        answer("z2", "y2", "r4", text("new answer")),
    ]);
    assert_eq!(shown(&trace), ["u", "a", "b", "rb", "ra", "x", "y2", "z2"]);
    let left_out = "line 7: records abandoned by a rewind or a retry, left out: 2 in the file, the first here";
    assert_eq!(diagnostics(&trace), [left_out]);
}

#[test]
fn a_missing_parent_is_bridged_and_a_circle_is_cut() {
    let trace = session(&[user("a", "gone", json!("1")), user("b", "lost", json!("2")), user("c", "b", json!("3"))]);
    assert_eq!(shown(&trace), ["a", "b", "c"]);
    let bridged =
        "line 1: parents that are not in the file, bridged by the record before: 2 in the file, the first here";
    assert_eq!(diagnostics(&trace), [bridged]);
    let trace = session(&[user("a", "b", json!("1")), user("b", "a", json!("2"))]);
    assert_eq!(shown(&trace), ["a", "b"]);
}

#[test]
fn a_boundary_and_its_summary_are_one_condensation() {
    let boundary = |metadata: Value| {
        let mut boundary = record(
            "k",
            "",
            json!({"type": "system", "subtype": "compact_boundary",
            "logicalParentUuid": "b", "compactMetadata": {"trigger": "auto"}}),
        );
        boundary["compactMetadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        boundary
    };
    let mut summary = user("s", "k", json!("what was"));
    summary["isCompactSummary"] = json!(true);
    summary["isVisibleInTranscriptOnly"] = json!(true);
    for (metadata, expected) in [
        (json!({}), vec!["k-summary", "c"]),
        (json!({"preservedMessages": {"anchorUuid": "s", "uuids": ["b"]}}), vec!["k-summary", "b", "c"]),
        (
            json!({"preservedSegment": {"headUuid": "a", "anchorUuid": "s", "tailUuid": "b"}}),
            vec!["k-summary", "a", "b", "c"],
        ),
    ] {
        let trace = session(&[
            user("a", "", json!("1")),
            user("b", "a", json!("2")),
            boundary(metadata),
            summary.clone(),
            user("c", "s", json!("3")),
        ]);
        assert_eq!(shown(&trace), expected);
        assert_eq!(outline(&trace), ["a message", "b message", "k condensation", "c message"]);
        let condensation = &json_of(&trace)[2];
        assert_eq!((&condensation["summary"], &condensation["summary_offset"]), (&json!("what was"), &json!(0)));
        assert_eq!(condensation["foreign"]["summary_record"]["uuid"], "s");
        assert_eq!(condensation["foreign"]["boundary"]["compactMetadata"]["trigger"], "auto");
    }
}

#[test]
fn a_second_compaction_forgets_the_first_summary() {
    let boundary = |id: &str, before: &str| {
        record(id, "", json!({"type": "system", "subtype": "compact_boundary", "logicalParentUuid": before}))
    };
    let summary = |id: &str, parent: &str| {
        let mut summary = user(id, parent, json!(id));
        summary["isCompactSummary"] = json!(true);
        summary
    };
    let trace = session(&[
        user("a", "", json!("1")),
        boundary("k1", "a"),
        summary("s1", "k1"),
        user("b", "s1", json!("2")),
        boundary("k2", "b"),
        summary("s2", "k2"),
    ]);
    assert_eq!(shown(&trace), ["k2-summary"]);
    assert_eq!(json_of(&trace)[3]["forgotten_event_ids"], json!(["b", "k1-summary"]));
}

#[test]
fn a_microcompaction_clears_the_named_results() {
    let micro = record(
        "m",
        "ra",
        json!({"type": "system", "subtype": "microcompact_boundary",
        "microcompactMetadata": {"compactedToolIds": ["c", "elsewhere"]}}),
    );
    let trace = session(&[answer("a", "", "r", call("c")), result("ra", "a", "c"), micro]);
    assert_eq!(
        json_of(&trace)[2]["rewrites"],
        json!({"ra": {"op": "clear", "text": "[Old tool result content cleared]"}})
    );
    let unmatched = "line 3: cleared results that are not in the file: 1 in the file, the first here";
    assert_eq!(diagnostics(&trace), [unmatched]);
}

#[test]
fn what_no_model_saw_or_wrote_is_unknown() {
    let mut error = answer("x", "u", "r", text("API Error"));
    error["isApiErrorMessage"] = json!(true);
    let mut synthetic = answer("x", "u", "r", text("No response requested."));
    synthetic["message"]["model"] = json!("<synthetic>");
    for (record, kind) in [
        (error, "assistant"),
        (synthetic, "assistant"),
        (answer("x", "u", "r", thinking()), "assistant"),
        (record("x", "u", json!({"type": "progress", "data": {"type": "agent_progress"}})), "progress/agent_progress"),
        (record("x", "u", json!({"type": "system", "subtype": "turn_duration"})), "system/turn_duration"),
        (json!({"type": "summary", "summary": "title", "leafUuid": "x"}), "summary"),
        (json!({"type": "file-history-snapshot", "snapshot": {}}), "file-history-snapshot"),
    ] {
        let trace = session(&[user("u", "", json!("hi")), record.clone()]);
        let event = &json_of(&trace)[1];
        assert_eq!((&event["kind"], &event["foreign_kind"]), (&json!("unknown"), &json!(kind)));
        assert_eq!(event["payload"], record);
    }
    let mut meta = user("x", "u", json!([text("injected")]));
    meta["isMeta"] = json!(true);
    let trace = session(&[user("u", "", json!("hi")), meta]);
    assert_eq!(json_of(&trace)[1]["source"], "environment");
    assert_eq!(shown(&trace), ["u", "x"]);
}

#[test]
fn a_file_of_one_sub_agent_is_its_conversation() {
    let mut records = [user("u", "", json!("task")), answer("a", "u", "r", text("done"))];
    records.iter_mut().for_each(|record| record["isSidechain"] = json!(true));
    records.iter_mut().for_each(|record| record["agentId"] = json!("a1"));
    let trace = session(&records);
    assert_eq!(shown(&trace), ["u", "a"]);
    let to = trace.parent.as_ref().map(|link| link.to.as_str());
    assert_eq!((trace.session.as_deref(), to), (Some("a1"), Some("s")));
}

#[test]
fn sub_agents_in_a_session_are_linked_traces_after_it() {
    let task = |id: &str, parent: &str, call: &str, prompt: &str| {
        let block = json!({"type": "tool_use", "id": call, "name": "Task", "input": {"prompt": prompt}});
        answer(id, parent, id, block)
    };
    let side = |mut record: Value| {
        record["isSidechain"] = json!(true);
        record
    };
    let progress = |id: &str, message: Value| {
        record(
            id,
            "b",
            json!({"type": "progress", "parentToolUseID": "c2",
            "data": {"type": "agent_progress", "agentId": "x1", "prompt": "p", "message": message}}),
        )
    };
    let inner = |id: &str, kind: &str, content: Value| {
        json!({"type": kind, "uuid": id, "timestamp": "t",
            "message": {"id": "r9", "role": kind, "content": content, "usage": {"input_tokens": 2, "output_tokens": 1}}})
    };
    let traces = crate::script::lines(&[
        user("u", "", json!("hi")),
        task("a", "u", "c1", "look here"),
        side(user("s1", "", json!("look here"))),
        side(answer("s2", "s1", "rs", text("seen"))),
        result("ra", "a", "c1"),
        task("b", "ra", "c2", "p"),
        progress("p1", inner("i1", "user", json!([{"type": "text", "text": "p"}]))),
        progress("p2", inner("i2", "assistant", json!([text("found")]))),
        result("rb", "b", "c2"),
        answer("z", "rb", "rz", text("done")),
    ]);
    let links: Vec<_> = traces
        .iter()
        .map(|trace| {
            (
                trace.name.as_str(),
                trace.parent.as_ref().map(|link| (link.to.as_str(), link.call_id.as_deref().unwrap())),
            )
        })
        .collect();
    assert_eq!(
        links,
        [
            ("t.json", None),
            ("t.json#agent-side-0", Some(("t.json", "c1"))),
            ("t.json#agent-x1", Some(("t.json", "c2"))),
        ]
    );
    for trace in &traces {
        check_trace(trace);
        assert_eq!((trace.records, diagnostics(trace)), (10, vec![]), "{}", trace.name);
    }
    assert_eq!(shown(&traces[0]), ["u", "a", "ra", "b", "rb", "z"]);
    assert_eq!(shown(&traces[1]), ["s1", "s2"]);
    assert_eq!(shown(&traces[2]), ["i1", "i2"]);
    assert_eq!(json_of(&traces[2])[1]["usage"]["input_tokens"], 2, "a sub-agent is paid in its own trace");
    let kept = json_of(&traces[0]).into_iter().find(|event| event["id"] == "p1").unwrap();
    assert_eq!(kept["payload"]["data"], json!({"type": "agent_progress", "agentId": "x1", "prompt": "p"}));
}

#[test]
fn two_records_on_one_line_a_repeated_record_and_an_orphan_result_are_told() {
    let (first, orphan) = (user("u", "", json!("hi")), result("o", "u", "c"));
    let trace = read_one(format!("{first}{orphan}\n{first}"));
    check_trace(&trace);
    assert_eq!(trace.records, 3);
    assert_eq!(outline(&trace), ["u message", "o observation", "u#dup1 unknown"]);
    assert_eq!(
        diagnostics(&trace),
        [
            "line 1: results without an earlier call, kept, and shown by no view: 1 in the file, the first here",
            "line 2: record ids that were used before, `#dup<n>` appended: 1 in the file, the first here",
        ]
    );
}

#[test]
fn the_stream_protocol_is_not_taken_for_a_session() {
    assert!(try_read(json!({"type": "assistant", "session_id": "s", "message": {"content": []}}).to_string()).is_err());
}
