//! Ports and pipelines on logs, with the guards on.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod common;

use ::condenser::*;
use common::*;
use condenser_policies::*;
use serde_json::{Value, json};

fn build(name: &str, settings: Value) -> Box<dyn Policy> {
    find(&policies(), name).unwrap().build(settings.as_object().unwrap()).unwrap()
}

/// What a policy with these settings leaves of a log, masked entries in brackets.
fn check(script: &str, name: &str, settings: Value, expected: &str) -> Log {
    let mut log = Log::script(script);
    let policy = build(name, settings);
    log.condense(&*policy, &Scripted::default());
    assert_eq!(shown(&log), expected, "{name}");
    log
}

fn shown(log: &Log) -> String {
    let view = log.view();
    let name = |entry: Entry<'_>| match (entry.is_summary(), entry.rewrite()) {
        (true, _) => "S".to_owned(),
        (false, Some(_)) => format!("[{}]", &entry.id().as_str()[1..]),
        (false, None) => entry.id().as_str()[1..].to_owned(),
    };
    view.iter().map(name).collect::<Vec<_>>().join(" ")
}

/// A prompt, a task, and five calls with their answers: entries 0 to 11.
const PAIRS: &str = "s u c1 r1*50 c2 r2*50 c3 r3*50 c4 r4*50 c5 r5*50";

#[test]
fn openhands_summarizes_the_middle() {
    check(PAIRS, "openhands", json!({"max_size": 10, "keep_first": 2}), "0 1 S 10 11");
    check(PAIRS, "openhands", json!({"max_size": 12, "keep_first": 2}), "0 1 2 3 4 5 6 7 8 9 10 11");
    // A request on a short view ends in the hard reset, which takes the task too.
    check("s u*50 q", "openhands", json!({}), "0 S");
}

#[test]
fn openhands_gives_the_older_summary_on_as_such_and_tries_harder_after_failures() {
    let mut log = Log::script(PAIRS);
    let policy = build("openhands", json!({"max_size": 10, "event_preview": 10}));
    log.condense(&*policy, &Scripted::default());
    for n in 20..24 {
        log.add(&format!("c{n}*30"));
        log.add(&format!("r{n}*30"));
    }
    let scripted = Scripted::new(&[Err("down"), Err("down"), Ok("anew")]);
    let outcome = log.condense(&*policy, &scripted);
    // Too many events are a soft reason: after one failure nothing happens.
    assert_eq!(outcome.result, OutcomeKind::Failed);
    log.add("q");
    let outcome = log.condense(&*policy, &scripted);
    assert!(matches!(outcome.result, OutcomeKind::Applied(_)), "{outcome:?}");
    assert_eq!((log.shown().as_str(), log.summary().as_deref()), ("0 S", Some("anew")));
    let asked = scripted.asked();
    assert_eq!(asked.len(), 3);
    assert_eq!(asked[0].previous.as_deref(), Some("short note..."));
    assert!(asked[0].events.iter().all(|(_, text)| text.chars().count() < 40), "{:?}", asked[0].events);
    assert_eq!(asked[2].events.len(), 11, "the hard reset takes everything behind the prompt");
}

#[test]
fn the_older_openhands_condensers_do_as_their_names_say() {
    check(PAIRS, "openhands-v0-recent", json!({"max_events": 5}), "0 8 9 10 11");
    check(PAIRS, "openhands-v0-masking", json!({"attention_window": 6}), "0 1 2 [3] 4 [5] 6 7 8 9 10 11");
    check(PAIRS, "openhands-v0-amortized", json!({"max_size": 10}), "0 8 9 10 11");
    check(PAIRS, "openhands-v0-window", json!({}), "0 1 2 3 4 5 6 7 8 9 10 11");
    check(&format!("{PAIRS} q"), "openhands-v0-window", json!({}), "0 1 8 9 10 11");
    check(PAIRS, "openhands-v0-summarizing", json!({"max_size": 10}), "0 S 10 11");
    check(PAIRS, "openhands-v0-structured", json!({"max_size": 10}), "0 S 10 11");
    // What the user said comes first, then the newest; half of a pair takes the other half with it.
    check(PAIRS, "openhands-v0-attention", json!({"max_size": 10}), "0 1 10 11");
}

#[test]
fn the_older_openhands_masks_all_pages_but_the_newest() {
    let mut log = Log::script("s u c1 r1*50 c2 r2*50 c3 r3*50");
    for event in &mut log.events {
        match &mut event.kind {
            EventKind::Action(action) if action.call_id != "call2" => {
                action.tool_name = "browser".into();
                action.arguments = r#"{"url": "https://example.org/a"}"#.into();
            }
            EventKind::Observation(answer) if answer.call_id != "call2" => answer.tool_name = "browser".into(),
            _ => {}
        }
    }
    log.condense(&*build("openhands-v0-browser", json!({})), &Scripted::default());
    assert_eq!(shown(&log), "0 1 2 [3] 4 5 6 7");
    assert!(log.request().contains("Visited https://example.org/a"));
}

#[test]
fn the_next_summary_of_the_older_openhands_takes_the_place_of_the_last() {
    let mut log = Log::script(PAIRS);
    let policy = build("openhands-v0-summarizing", json!({"max_size": 10}));
    log.condense(&*policy, &Scripted::default());
    for n in 20..24 {
        log.add(&format!("c{n}*30"));
        log.add(&format!("r{n}*30"));
    }
    let scripted = Scripted::new(&[Ok("the second notes")]);
    log.condense(&*policy, &scripted);
    assert_eq!((log.shown().as_str(), log.summary().as_deref()), ("0 S 19 20", Some("the second notes")));
    assert_eq!(scripted.asked()[0].previous.as_deref(), Some("short notes"));
}

#[test]
fn where_the_older_openhands_crashes_there_is_no_plan() {
    for (script, name) in [
        ("s u*50 q", "openhands-v0-amortized"),
        ("s u*50 q", "openhands-v0-summarizing"),
        ("s q", "openhands-v0-structured"),
    ] {
        let mut log = Log::script(script);
        let outcome = log.condense(&*build(name, json!({})), &Scripted::default());
        assert_eq!((outcome.result, outcome.facts.no_plan), (OutcomeKind::NothingToDo, Some(NoPlan::NoLegalCut)));
    }
}

#[test]
fn a_request_over_its_limit_counts_as_asked_unless_told_otherwise() {
    let mut log = Log::script(PAIRS);
    log.window = Some(300);
    assert!(log.tokens() > Tokens(300));
    let off = build("openhands-v0-window", json!({"request_on_overflow": false}));
    assert_eq!(log.condense(&*off, &Scripted::default()).result, OutcomeKind::NothingToDo);
    log.condense(&*build("openhands-v0-window", json!({})), &Scripted::default());
    assert_eq!(log.shown(), "0 1 8 9 10 11");
}

#[test]
fn swe_agent_elides_old_outputs_but_the_task() {
    let log = check(PAIRS, "swe-agent-last-n", json!({"n": 2}), "0 1 2 [3] 4 [5] 6 [7] 8 9 10 11");
    assert!(log.request().contains("Old environment output: (1 lines omitted)"));
    // The edge moves every two outputs, and the task is one of six.
    check(PAIRS, "swe-agent-last-n", json!({"n": 2, "polling": 4}), "0 1 2 [3] 4 5 6 7 8 9 10 11");
    let tagged = json!({"n": 2, "tags": ["remove_output"], "function_names": ["bash"]});
    let mut log = Log::script(PAIRS);
    // The original tags the calls, which are no outputs, and fails.
    let outcome = log.condense(&*build("swe-agent-last-n", tagged), &Scripted::default());
    assert_eq!(outcome.facts.no_plan, Some(NoPlan::NoLegalCut));
}

#[test]
fn swe_agent_deletes_what_matches_from_older_texts() {
    let log = check("u*3 u*3", "swe-agent-remove-regex", json!({"remove": ["word "], "keep_last": 1}), "[0] 1");
    assert_eq!(log.request().matches("word").count(), 3);
    let wrong = find(&policies(), "swe-agent-remove-regex")
        .unwrap()
        .build(json!({"remove": ["(?=a)"]}).as_object().unwrap())
        .err()
        .unwrap();
    assert!(wrong.to_string().contains("`remove`: regex parse error"), "{wrong}");
}

#[test]
fn amortized_forgetting_halves_and_says_where_the_rest_is() {
    let log = check(PAIRS, "amortized-forgetting", json!({"max_events": 10}), "0 1 S 10 11");
    assert!(log.summary().unwrap().starts_with("[8 earlier events left out"), "{:?}", log.summary());
    check(PAIRS, "amortized-forgetting", json!({"max_events": 12}), "0 1 2 3 4 5 6 7 8 9 10 11");
    // The original fails on a short view that is asked to condense.
    check("s u*50 a*50 a*50 u q", "amortized-forgetting", json!({}), "0 S 4");
}

#[test]
fn the_conversation_window_keeps_prompt_task_and_the_newer_half() {
    check(PAIRS, "conversation-window", json!({}), "0 1 2 3 4 5 6 7 8 9 10 11");
    let log = check(&format!("{PAIRS} q"), "conversation-window", json!({}), "0 1 S 8 9 10 11");
    assert!(log.summary().unwrap().starts_with("[6 earlier events left out"), "{:?}", log.summary());
    let mut large = Log::script(PAIRS);
    large.window = Some(300);
    large.condense(&*build("conversation-window", json!({"keep_share": 0.9})), &Scripted::default());
    assert_eq!(large.shown(), "0 1 S 8 9 10 11", "the half is smaller where it would not fit");
}

#[test]
fn a_pipeline_puts_what_its_members_do_into_one_record() {
    let members = |names: [&str; 2]| -> Pipeline {
        let list = policies();
        let settings = json!({"observation-masking": {"attention_window": 2}, "llm-summarizing": {"max_events": 10}});
        let build = |name: &str| {
            let settings = settings[name].as_object().cloned().unwrap_or_default();
            find(&list, name).unwrap().build(&settings).unwrap().into()
        };
        Pipeline::new("both", names.map(build).into())
    };
    let mut log = Log::script(PAIRS);
    let scripted = Scripted::default();
    let outcome = log.condense(&members(["observation-masking", "llm-summarizing"]), &scripted);
    let OutcomeKind::Applied(record) = outcome.result else { panic!("{outcome:?}") };
    assert_eq!((shown(&log).as_str(), record.provenance.unwrap().policy.as_str()), ("0 1 S 10 11", "both"));
    assert!(scripted.asked()[0].events.iter().any(|(_, text)| text.contains("old bash result left out")));

    // What the first member does stands where the second fails, and the other way around.
    let mut log = Log::script(PAIRS);
    let down = Scripted::new(&[Err("down"); 8]);
    log.condense(&members(["observation-masking", "llm-summarizing"]), &down);
    assert_eq!(shown(&log), "0 1 2 [3] 4 [5] 6 [7] 8 9 10 11");
    let mut log = Log::script(&format!("{PAIRS} q"));
    log.condense(&members(["none", "llm-summarizing"]), &Scripted::default());
    assert_eq!(shown(&log).as_str(), "0 1 S 10 11");
    assert!(!members(["none", "folding"]).is_port() && members(["none", "openhands"]).is_port());
}
