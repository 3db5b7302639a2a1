//! Pi, powercode and FreeCode as policies.

mod common;

use ::condenser::event::{Action, CondensationFailed, Observation, Role, Source};
use ::condenser::*;
use common::*;
use condenser_policies::freecode::{Freecode, FreecodeSettings, peer as freecode};
use condenser_policies::pi::{PiPolicy, PiSettings, peer::Release};
use condenser_policies::powercode::{Powercode, PowercodeSettings};

/// A script in which user messages come from a user.
fn chat(script: &str) -> Log {
    let mut log = Log::script(script);
    speak(&mut log);
    log
}

fn speak(log: &mut Log) {
    for event in &mut log.events {
        if matches!(&event.kind, EventKind::Message(message) if message.role == Role::User) {
            event.source = Source::User;
        }
    }
}

fn add(log: &mut Log, script: &str) {
    script.split_whitespace().for_each(|word| log.add(word));
    speak(log);
}

fn ask_for(log: &mut Log, tool: &str, path: &str) {
    let n = log.events.len();
    let action = Action {
        call_id: format!("call-{n}"),
        tool_name: tool.into(),
        arguments: format!(r#"{{"path": "{path}"}}"#),
        ..Action::default()
    };
    let answer = Observation {
        call_id: format!("call-{n}"),
        content: vec![ContentBlock::text("done ".repeat(30))],
        ..Observation::default()
    };
    log.events.push(Event::new(format!("e{n}"), Source::Agent, EventKind::Action(action)));
    log.events.push(Event::new(format!("e{}", n + 1), Source::Environment, EventKind::Observation(answer)));
}

fn pi(release: Release, keep: u64) -> PiPolicy {
    let mut settings = PiSettings::of(release);
    settings.peer.keep_recent_tokens = keep;
    settings.peer.reserve_tokens = 100;
    PiPolicy::new(release, settings)
}

fn texts(request: &SummaryRequest) -> String {
    request.events.iter().map(|(id, _)| id.as_str()[1..].to_owned()).collect::<Vec<_>>().join(" ")
}

#[test]
fn pi_keeps_the_newest_turns_behind_a_summary_and_the_system_prompt() {
    for release in [Release::V0, Release::V1] {
        let mut log = chat("s u*100 c1 r1*100 a u*40 c2 r2*40 a q");
        let scripted = Scripted::default();
        log.condense(&pi(release, 100), &scripted);
        assert_eq!(log.shown(), "0 S 5 6 7 8");
        assert_eq!(texts(&scripted.asked()[0]), "1 2 3 4");
        let summary = log.summary().unwrap();
        assert!(summary.starts_with("The conversation history before this point was compacted"), "{summary}");
        assert!(summary.ends_with("short notes\n</summary>"), "{summary}");
    }
}

#[test]
fn pi_summarizes_the_beginning_of_a_split_turn_apart() {
    let mut log = chat("s u*100 a u*10 c1 r1*60 c2 r2*60 c3 r3*60 q");
    let scripted = Scripted::new(&[Ok("the history"), Ok("the turn")]);
    log.condense(&pi(Release::V0, 100), &scripted);
    assert_eq!(log.shown(), "0 S 8 9");
    let [history, prefix] = &scripted.asked()[..] else { panic!("{:?}", scripted.asked()) };
    assert_eq!((texts(history), texts(prefix)), ("1 2".to_owned(), "3 4 5 6 7".to_owned()));
    assert_eq!((history.max_tokens, prefix.max_tokens), (Some(Tokens(80)), Some(Tokens(50))));
    let summary = log.summary().unwrap();
    assert!(summary.contains("the history\n\n---\n\n**Turn Context (split turn):**\n\nthe turn"), "{summary}");
}

#[test]
fn a_failed_half_of_a_split_turn_changes_nothing() {
    let mut log = chat("s u*100 a u*10 c1 r1*60 c2 r2*60 c3 r3*60 q");
    let scripted = Scripted::new(&[Ok("the history"), Err("overloaded")]);
    let outcome = log.condense(&pi(Release::V0, 100), &scripted);
    assert_eq!(outcome.result, OutcomeKind::Failed);
    assert_eq!(scripted.asked().len(), 2);
}

/// Releases before 0.73 began behind the compaction, and what it had kept was in no summary once it aged out.
#[test]
fn what_one_compaction_of_pi_kept_is_in_the_next_summary() {
    for release in [Release::V0, Release::V1] {
        let mut log = chat("s u*100 a u*40 c2 r2*40 a q");
        log.condense(&pi(release, 100), &Scripted::default());
        assert_eq!(log.shown(), "0 S 3 4 5 6");
        add(&mut log, "u*40 c3 r3*40 a q");
        let scripted = Scripted::default();
        log.condense(&pi(release, 100), &scripted);
        let request = &scripted.asked()[0];
        assert_eq!(texts(request), "3 4 5 6");
        assert_eq!(request.previous.as_deref(), Some("short notes"), "without the words around it");
        assert_eq!(log.shown(), "0 S 9 10 11 12");
    }
}

#[test]
fn pi_lists_files_behind_the_summary_and_takes_them_over() {
    let mut log = chat("s u");
    ask_for(&mut log, "read", "src/b.rs");
    ask_for(&mut log, "edit", "src/a.rs");
    add(&mut log, "a u*40 c2 r2*40 a q");
    log.condense(&pi(Release::V0, 100), &Scripted::default());
    let lists =
        "\n\n<read-files>\nsrc/b.rs\n</read-files>\n\n<modified-files>\nsrc/a.rs\n</modified-files>\n</summary>";
    assert!(log.summary().unwrap().ends_with(lists), "{:?}", log.summary());
    ask_for(&mut log, "write", "src/b.rs");
    add(&mut log, "a u*40 c3 r3*40 a q");
    log.condense(&pi(Release::V0, 100), &Scripted::default());
    let lists = "\n\n<modified-files>\nsrc/a.rs\nsrc/b.rs\n</modified-files>\n</summary>";
    assert!(log.summary().unwrap().ends_with(lists), "{:?}", log.summary());
}

#[test]
fn pi_looks_where_a_user_speaks_and_its_next_major_before_each_answer() {
    let mut inside = chat("s u*100 a u*100 c1 r1*40");
    inside.window = Some(inside.tokens().0 + 10);
    let mut at_prompt = chat("s u*100 a u*100 c1 r1*40 a u");
    at_prompt.window = Some(at_prompt.tokens().0 + 10);
    let acts = |log: &Log, release| log.with_state(|state| pi(release, 100).requirement(state).is_some());
    assert_eq!((acts(&inside, Release::V0), acts(&inside, Release::V1)), (false, true));
    assert_eq!((acts(&at_prompt, Release::V0), acts(&at_prompt, Release::V1)), (true, true));
    // A request over the limit is refused by the provider, whoever spoke last.
    inside.window = Some(inside.tokens().0 - 1);
    assert!(acts(&inside, Release::V0));
}

#[test]
fn pi_asks_for_no_summary_of_nothing() {
    let mut log = chat("s u*10 a q");
    let scripted = Scripted::default();
    let outcome = log.condense(&pi(Release::V0, 10_000), &scripted);
    assert_eq!(outcome.facts.no_plan, Some(NoPlan::NoLegalCut));
    assert!(scripted.asked().is_empty());
}

fn powercode(keep: u64) -> Powercode {
    Powercode::new(PowercodeSettings { keep_recent_tokens: keep, reserve_tokens: 0, ..PowercodeSettings::default() })
}

#[test]
fn powercode_cuts_at_a_message_of_the_user() {
    let mut log = chat("s u*100 c1 r1*100 u*10 c2 r2*100 a q");
    let scripted = Scripted::default();
    log.condense(&powercode(100), &scripted);
    assert_eq!(log.shown(), "0 S 4 5 6 7");
    assert_eq!(log.summary().unwrap(), "[System-generated summary of earlier session]\nshort notes");
    add(&mut log, "u*100 a q");
    let scripted = Scripted::default();
    log.condense(&powercode(100), &scripted);
    assert_eq!(scripted.asked()[0].previous.as_deref(), Some("short notes"));
    assert_eq!(log.shown(), "0 S 10 11");
}

#[test]
fn powercode_takes_the_middle_out_of_long_results_where_it_cannot_cut_or_gets_no_summary() {
    let mut long_turn = chat("s u c1 r1*2000 c2 r2*10 q");
    let scripted = Scripted::default();
    let OutcomeKind::Applied(record) = long_turn.condense(&powercode(100), &scripted).result else { panic!() };
    assert!(scripted.asked().is_empty());
    assert_eq!(record.rewrites.keys().map(EventId::as_str).collect::<Vec<_>>(), ["e3"]);
    assert!(long_turn.request().contains("...[Middle tool output truncated]..."));

    let mut no_summary = chat("s u c1 r1*2000 u*100 a q");
    let outcome = no_summary.condense(&powercode(100), &Scripted::new(&[Err("overloaded")]));
    assert_eq!(forgotten(&outcome), "");
    assert_eq!(no_summary.shown(), "0 1 2 3 4 5");
    assert!(no_summary.request().contains("...[Middle tool output truncated]..."));
}

fn free(change: impl FnOnce(&mut FreecodeSettings)) -> Freecode {
    let mut settings = FreecodeSettings::default();
    change(&mut settings);
    Freecode::new(settings)
}

fn pruned(log: &Log) -> Vec<usize> {
    log.view().iter().filter(|entry| entry.rewrite().is_some()).map(|entry| entry.seq()).collect()
}

#[test]
fn freecode_prunes_the_largest_results_where_a_run_begins() {
    let policy = free(|settings| settings.peer.tool_result_budget_chars = 3_100);
    let mut log = chat("s u c1 r1*200 c2 r2*400 c3 r3*300 a c4 r4*400");
    assert_eq!(log.condense(&policy, &Scripted::default()).result, OutcomeKind::NothingToDo, "inside a run");
    add(&mut log, "u");
    log.condense(&policy, &Scripted::default());
    assert_eq!(pruned(&log), [5, 7], "the largest, but for those of the last answer");
    assert!(log.request().contains("[tool result omitted to save context — 2010 chars."), "{}", log.request());
    assert_eq!(log.condense(&policy, &Scripted::default()).result, OutcomeKind::NothingToDo);
}

#[test]
fn freecode_keeps_two_turns_and_the_prompt_that_comes_now() {
    let policy = free(|settings| settings.peer.auto_compact_tokens = Some(100));
    let mut log = chat("s u*100 a*100 u*100 c1 r1*100 u*10 a u");
    let scripted = Scripted::default();
    log.condense(&policy, &scripted);
    assert_eq!(log.shown(), "0 S 3 4 5 6 7 8");
    assert_eq!(texts(&scripted.asked()[0]), "1 2");
    assert_eq!(scripted.asked()[0].max_tokens, Some(Tokens(1024)));
}

#[test]
fn where_the_model_fails_freecode_summarizes_by_rules() {
    let policy = free(|settings| settings.peer.auto_compact_tokens = Some(100));
    let mut log = chat("s u*100 a*400 u*100 a u*10 a u");
    let OutcomeKind::Applied(record) = log.condense(&policy, &Scripted::new(&[Err("overloaded")])).result else {
        panic!()
    };
    assert_eq!(record.provenance.unwrap().fallbacks, ["heuristic"]);
    assert!(log.summary().unwrap().contains("## Recent Progress\n- assistant 2. word"), "{:?}", log.summary());

    let mut log = chat("s u*100 a*400 u*100 a u*10 a u");
    let scripted = Scripted::default();
    let rules = free(|settings| {
        settings.peer.auto_compact_tokens = Some(100);
        settings.asks_model = false;
    });
    assert!(matches!(log.condense(&rules, &scripted).result, OutcomeKind::Applied(_)));
    assert!(scripted.asked().is_empty());
}

#[test]
fn a_refused_compaction_of_freecode_waits_for_growth() {
    let policy = free(|settings| {
        settings.peer.auto_compact_tokens = Some(100);
        settings.peer.retry_growth_tokens = 50;
    });
    let mut log = chat("s u*100 a*100 u*100 a u*10 a u");
    let acts = |log: &Log| log.with_state(|state| policy.requirement(state).is_some());
    assert!(acts(&log));
    let failed = CondensationFailed {
        policy: "freecode".into(),
        reason: "refused by a hook".into(),
        tokens_before: Some(log.tokens().0),
        ..CondensationFailed::default()
    };
    let n = log.events.len();
    log.events.push(Event::new(format!("e{n}"), Source::Environment, EventKind::CondensationFailed(failed)));
    assert!(!acts(&log));
    add(&mut log, "a u*100");
    assert!(acts(&log), "it grew by enough");
}

#[test]
fn an_overflow_is_what_providers_say_of_a_request_that_is_too_large_and_is_retried_three_times() {
    assert!(freecode::is_overflow(None, "This model's maximum Context Length is 8192 tokens"));
    assert!(freecode::is_overflow(Some(413), "prompt is too long: 210000 tokens"));
    assert!(!freecode::is_overflow(Some(500), "prompt is too long"));
    assert!(!freecode::is_overflow(Some(400), "invalid tool schema"));
    let mut retry = freecode::Retry::default();
    let most = freecode::Settings::default().overflow_retries;
    assert_eq!([(); 4].map(|()| retry.compact(most)), [true, true, true, false]);
    retry.succeed();
    assert!(retry.compact(most));
}

#[test]
fn pi_counts_utf16_units_and_images_and_refuses_parents_in_a_circle() {
    use condenser_policies::pi::peer::{Leaf, Pi, context, estimate};
    let message = serde_json::json!({"role": "user", "content": [{"type": "text", "text": "😀😀"}, {"type": "image"}]});
    assert_eq!(estimate(&message, &Pi::new(Release::V0)), 1);
    assert_eq!(estimate(&message, &Pi::new(Release::V1)), 1201);
    let looped = [
        serde_json::json!({"type": "message", "id": "a", "parentId": "b", "message": {"role": "user", "content": ""}}),
        serde_json::json!({"type": "message", "id": "b", "parentId": "a", "message": {"role": "user", "content": ""}}),
    ];
    let error = context(&looped, Leaf::Last, Release::V0).unwrap_err();
    assert_eq!(error.to_string(), "the parents of entry \"b\" form a circle");
}
