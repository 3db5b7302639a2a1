//! Deep Agents, LangChain and Cline as policies.

#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod common;

use ::condenser::attempts::Rejection;
use ::condenser::event::{Action, Observation, Role, Source};
use ::condenser::*;
use common::*;
use condenser_policies::*;
use serde_json::{Value, json};

fn build(name: &str, settings: Value) -> Box<dyn Policy> {
    find(&policies(), name).unwrap().build(settings.as_object().unwrap()).unwrap()
}

/// The view, with changed entries in brackets and summaries as `S`.
fn shown(log: &Log) -> String {
    let view = log.view();
    let name = |entry: Entry<'_>| match (entry.is_summary(), entry.rewrite()) {
        (true, _) => "S".to_owned(),
        (false, Some(_)) => format!("[{}]", &entry.id().as_str()[1..]),
        (false, None) => entry.id().as_str()[1..].to_owned(),
    };
    view.iter().map(name).collect::<Vec<_>>().join(" ")
}

/// Adds a call of a tool and its result.
fn call(log: &mut Log, tool: &str, arguments: Value, result: &str) {
    let n = log.events.len();
    let call_id = format!("call-{n}");
    let action = Action {
        call_id: call_id.clone(),
        tool_name: tool.into(),
        arguments: arguments.to_string(),
        ..Action::default()
    };
    let answer = Observation {
        call_id,
        tool_name: tool.into(),
        content: vec![ContentBlock::text(result)],
        ..Observation::default()
    };
    log.events.push(Event::new(format!("e{n}"), Source::Agent, EventKind::Action(action)));
    log.events.push(Event::new(format!("e{}", n + 1), Source::Environment, EventKind::Observation(answer)));
}

/// A prompt, a task, and five calls with their answers: entries 0 to 11.
const PAIRS: &str = "s u c1 r1*50 c2 r2*50 c3 r3*50 c4 r4*50 c5 r5*50";

fn deepagents(keep: u64) -> Value {
    json!({"trigger_unknown": [{"messages": 11}], "keep_unknown": {"messages": keep}, "trigger": [{"messages": 11}],
           "keep": {"messages": keep}, "arguments_trigger_unknown": null})
}

#[test]
fn deepagents_keeps_the_newest_messages_and_says_where_the_others_are() {
    let mut log = Log::script(PAIRS);
    let policy = build("deepagents", deepagents(3));
    let scripted = Scripted::new(&[Err("down"), Err("down"), Ok("what happened")]);
    log.condense(&*policy, &scripted);
    // Three messages begin at a result, so its call stays too.
    assert_eq!(shown(&log), "0 S 8 9 10 11");
    let summary = log.summary().unwrap();
    assert!(summary.contains("[event e1] to [event e7], the largest between them [event e"), "{summary}");
    assert!(summary.ends_with("<summary>\nwhat happened\n</summary>"), "{summary}");
    assert_eq!(scripted.asked().len(), 3);

    // The next summary covers this one, and its pointer still begins with the first message.
    for n in 20..24 {
        log.add(&format!("c{n}"));
        log.add(&format!("r{n}*30"));
    }
    let scripted = Scripted::default();
    log.condense(&*policy, &scripted);
    assert_eq!(shown(&log), "0 S 17 18 19 20");
    assert!(log.summary().unwrap().contains("[event e1] to [event e16]"), "{:?}", log.summary());
    assert!(scripted.asked()[0].previous.as_deref().unwrap().contains("what happened"));
}

#[test]
fn a_summary_has_no_pointer_without_recall_or_at_langchain() {
    let mut log = Log::script(PAIRS);
    log.recall = false;
    log.condense(&*build("deepagents", deepagents(4)), &Scripted::default());
    assert_eq!(log.summary().as_deref(), Some("A summary of the conversation so far:\n\nshort notes"));
    let mut log = Log::script(PAIRS);
    let settings = json!({"trigger": [{"messages": 11}], "keep": {"messages": 4}});
    log.condense(&*build("langchain-summarization", settings), &Scripted::default());
    assert_eq!(log.summary().as_deref(), Some("A summary of the conversation so far:\n\nshort notes"));
}

#[test]
fn langchain_asks_no_model_where_no_user_speaks_in_what_it_may_read() {
    let mut log = Log::script(PAIRS);
    let settings = json!({"trigger": [{"messages": 11}], "keep": {"messages": 4}, "trim_tokens": 100});
    let scripted = Scripted::default();
    log.condense(&*build("langchain-summarization", settings), &scripted);
    assert_eq!((shown(&log).as_str(), scripted.asked().len()), ("0 S 8 9 10 11", 0));
    assert!(log.summary().unwrap().ends_with("Nothing of the earlier conversation fits into a summary."));
}

#[test]
fn all_thresholds_of_a_clause_have_to_be_met() {
    for (trigger, is_met) in [
        (json!([]), false),
        (json!([{"messages": 11, "tokens": 1_000_000}]), false),
        (json!([{"messages": 11, "tokens": 100}]), true),
        (json!([{"tokens": 1_000_000}, {"messages": 11}]), true),
        (json!([{"fraction": 0.5}]), false),
    ] {
        let mut log = Log::script(PAIRS);
        let settings = json!({"trigger": trigger, "keep": {"messages": 4}});
        log.condense(&*build("langchain-summarization", settings), &Scripted::default());
        assert_eq!(log.summary().is_some(), is_met, "{trigger}");
    }
}

#[test]
fn deepagents_compacts_on_request_from_half_of_its_trigger_on() {
    for (trigger, expected) in [(22, "0 S 8 9 10 11"), (30, "0 1 2 3 4 5 6 7 8 9 10 11")] {
        let mut log = Log::script(&format!("{PAIRS} q"));
        let mut settings = deepagents(4);
        settings["trigger_unknown"] = json!([{"messages": trigger}]);
        log.condense(&*build("deepagents", settings), &Scripted::default());
        assert_eq!(shown(&log), expected);
    }
}

#[test]
fn deepagents_cuts_old_arguments_of_writing_calls() {
    let mut log = Log::script("s u");
    let text = "x".repeat(3000);
    call(&mut log, "write_file", json!({"file_path": "/a", "content": text}), "ok");
    call(&mut log, "execute", json!({"command": text}), "ok");
    for n in 0..10 {
        log.add(&format!("c{n}"));
        log.add(&format!("r{n}"));
    }
    log.condense(&*build("deepagents", json!({})), &Scripted::default());
    assert!(shown(&log).starts_with("0 1 [2] 3 4 5 6"), "{}", shown(&log));
    assert!(log.request().contains("xxxxxxxxxxxxxxxxxxxx...(argument truncated)"));
    let again = log.condense(&*build("deepagents", json!({})), &Scripted::default());
    assert_eq!(again.result, OutcomeKind::NothingToDo);
}

#[test]
fn deepagents_evicts_long_results_and_the_last_long_prompt() {
    let mut log = Log::script("s u");
    let lines = |n: usize| (1..=n).map(|n| format!("line {n}\n")).collect::<String>();
    call(&mut log, "execute", json!({}), &lines(40));
    call(&mut log, "grep", json!({}), &lines(40));
    log.add("u*300");
    let settings = json!({"evict_tokens": 50, "evict_user_tokens": 50, "arguments_trigger_unknown": null});
    log.condense(&*build("deepagents", settings.clone()), &Scripted::default());
    assert_eq!(shown(&log), "0 1 2 [3] 4 5 [6]");
    let request = log.request();
    for text in ["[event e3]", "[event e6]", " 1  line 1", "... [30 lines truncated] ...", "40  line 40"] {
        let text = text.trim();
        assert!(request.contains(text), "{text} in {request}");
    }
    log.add("a");
    let again = log.condense(&*build("deepagents", settings), &Scripted::default());
    assert_eq!(again.result, OutcomeKind::NothingToDo);
}

#[test]
fn after_a_refusal_deepagents_clips_the_results_at_the_end() {
    let mut log = Log::script("s u");
    let text = "a line of text that is not short\n".repeat(300);
    call(&mut log, "read_file", json!({"file_path": "/src/a.rs"}), &text);
    log.events.push(Event::new("refused", Source::Environment, Rejection::event()));
    log.condense(&*build("deepagents", json!({"keep_unknown": {"messages": 9}})), &Scripted::default());
    assert_eq!(shown(&log), "0 1 2 [3]");
    assert!(log.request().contains("Only the first 4000 characters of /src/a.rs are kept here."));

    // Where nothing at the end can be made smaller, the original fails for good.
    let mut log = Log::script("s u a");
    log.events.push(Event::new("refused", Source::Environment, Rejection::event()));
    let outcome = log.condense(&*build("deepagents", json!({"keep_unknown": {"messages": 9}})), &Scripted::default());
    assert_eq!(outcome.facts.no_plan, Some(NoPlan::Exhausted));
}

#[test]
fn a_size_of_zero_or_a_share_above_one_is_no_setting() {
    for (settings, message) in [
        (json!({"keep": {"messages": 0}}), "`keep` must be above 0"),
        (json!({"trigger": [{"fraction": 1.5}]}), "`trigger` must be above 0, and at most 1"),
        (json!({"keep": {"words": 3}}), "`keep`: unknown variant `words`"),
    ] {
        for name in ["deepagents", "langchain-summarization"] {
            let error = find(&policies(), name).unwrap().build(settings.as_object().unwrap()).err().unwrap();
            assert!(error.to_string().contains(message), "{error}");
        }
    }
}

#[test]
fn langchain_clears_old_results_and_stops_once_enough_is_saved() {
    let check = |settings: Value, expected: &str| {
        let mut log = Log::script(PAIRS);
        log.condense(&*build("langchain-clear-tool-uses", settings), &Scripted::default());
        assert_eq!(shown(&log), expected);
    };
    check(json!({"trigger": 100_000}), "0 1 2 3 4 5 6 7 8 9 10 11");
    check(json!({"trigger": 10}), "0 1 2 [3] 4 [5] 6 7 8 9 10 11");
    check(json!({"trigger": 10, "keep": 1, "clear_at_least": 80}), "0 1 2 [3] 4 [5] 6 7 8 9 10 11");
    check(json!({"trigger": 10, "exclude_tools": ["bash"]}), "0 1 2 3 4 5 6 7 8 9 10 11");
    check(json!({"trigger": 10, "clear_tool_inputs": true}), "0 1 [2] [3] [4] [5] 6 7 8 9 10 11");
}

/// A session in Cline's tools: two turns of the user.
fn session() -> Log {
    let mut log = Log::script("s u");
    call(
        &mut log,
        "read_files",
        json!({"files": [{"path": "/a.ts", "start_line": 1, "end_line": 9}]}),
        &"text ".repeat(80),
    );
    call(&mut log, "editor", json!({"path": "/b.ts", "new_text": "new"}), "-12: old\n+12: new\n+15: more");
    call(&mut log, "run_commands", json!({"commands": [" cargo test "]}), &"out ".repeat(80));
    log.add("a");
    log.add("u");
    call(&mut log, "search", json!({"query": "x"}), &"hit ".repeat(80));
    log.add("q");
    for event in &mut log.events {
        if matches!(&event.kind, EventKind::Message(message) if message.role == Role::User) {
            event.source = Source::User;
        }
    }
    log
}

#[test]
fn cline_keeps_prompts_and_tells_of_the_work_between_them() {
    let mut log = session();
    let policy = build("cline-basic", json!({"manual_target_share": 0.5}));
    log.condense(&*policy, &Scripted::default());
    assert_eq!(shown(&log), "0 [1] 8 9 10 11");
    let request = log.request();
    for text in ["/a.ts:1-9", "/b.ts:12-15", "- cargo test\\n"] {
        assert!(request.contains(text), "{text} in {request}");
    }
    // What stayed once beside the prompts stays for ever. Notices stand behind prompts alone, so nothing is told of what
    // left behind another message.
    call(&mut log, "run_commands", json!({"commands": ["cargo doc"]}), &"out ".repeat(200));
    log.add("u");
    log.add("q");
    log.condense(&*policy, &Scripted::default());
    assert_eq!(shown(&log), "0 [1] 8 9 10 11 16");
    assert!(log.request().contains("- cargo test") && !log.request().contains("cargo doc"));
}

#[test]
fn cline_summarizes_with_lists_of_files_and_carries_them_on() {
    let mut log = session();
    let policy = build("cline-agentic", json!({"preserve_recent_tokens": 10}));
    log.condense(&*policy, &Scripted::new(&[Ok("first notes")]));
    assert_eq!(shown(&log), "0 S 9 10 11");
    assert_eq!(log.summary().as_deref(), Some("first notes\n\n## Files read\n- /a.ts\n\n## Files modified\n- /b.ts"));
    call(&mut log, "read_files", json!({"file_paths": ["/c.ts"]}), &"text ".repeat(80));
    log.add("u");
    log.add("q");
    let scripted = Scripted::new(&[Ok("second notes")]);
    log.condense(&*policy, &scripted);
    assert_eq!(scripted.asked()[0].previous.as_deref(), Some("first notes"));
    assert_eq!(
        log.summary().as_deref(),
        Some("second notes\n\n## Files read\n- /a.ts\n- /c.ts\n\n## Files modified\n- /b.ts")
    );
}

#[test]
fn where_its_summarizer_fails_or_the_provider_refuses_cline_falls_back_to_its_rules() {
    let policy = build("cline-agentic", json!({"preserve_recent_tokens": 10}));
    let fallbacks = |outcome: Outcome| match outcome.result {
        OutcomeKind::Applied(record) => record.provenance.unwrap().fallbacks,
        other => panic!("{other:?}"),
    };
    let mut log = session();
    assert_eq!(fallbacks(log.condense(&*policy, &Scripted::new(&[Err("down")]))), ["cline-basic"]);
    assert_eq!(shown(&log), "0 [1] 8 9 10 11");
    let mut log = session();
    log.events.push(Event::new("refused", Source::Environment, Rejection::event()));
    let never = Scripted::default();
    assert_eq!(fallbacks(log.condense(&*policy, &never)), ["cline-basic"]);
    assert!(never.asked().is_empty());
    // An answer without text is no failure there: nothing happens.
    let mut log = session();
    let before = shown(&log);
    log.condense(&*policy, &Scripted::new(&[Ok("")]));
    assert_eq!(shown(&log), before);
}
