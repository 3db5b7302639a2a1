//! `craft` on its worked example, its failures, and its arithmetic.

#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod common;

use ::condenser::event::{Action, ContentBlock, Message, Observation, Role, Source, SystemPrompt};
use ::condenser::*;
use common::*;
use condenser_policies::craft::{PinnedBlock, cost};
use condenser_policies::{Craft, CraftSettings, Extractive, LlmSummarizing};

fn push(log: &mut Log, source: Source, kind: EventKind) {
    let n = log.events.len();
    log.events.push(Event::new(format!("e{n}"), source, kind));
}

fn say(log: &mut Log, text: &str) {
    push(log, Source::User, EventKind::Message(Message::text(Role::User, text)));
}

fn answer(log: &mut Log, text: &str) {
    push(log, Source::Agent, EventKind::Message(Message::text(Role::Assistant, text)));
}

fn call(log: &mut Log, id: &str, tool: &str, arguments: &str) {
    let action =
        Action { call_id: id.into(), tool_name: tool.into(), arguments: arguments.into(), ..Action::default() };
    push(log, Source::Agent, EventKind::Action(action));
}

fn result(log: &mut Log, id: &str, text: &str) {
    let content = vec![ContentBlock::text(text)];
    let observation = Observation { call_id: id.into(), content, ..Observation::default() };
    push(log, Source::Environment, EventKind::Observation(observation));
}

const TASK: &str = "Match the suppliers of the list with those of the books.";
const PROHIBITION: &str = "All of them. Do not write to the books, ever.";
const CORRECTION: &str = "No: the key is tax_id_v2 and not supplier_name, names repeat.";
const EXPORT: &str = "/data/exports/books-2026-11.csv";
const CLAIM: &str = "Item 19 looks like a second entry of item 7 (unverified).";

/// Two messages, an export, a wrong guess and its correction, forty turns of work, a claim, and a lookup in flight.
fn worked_example() -> Log {
    let mut log = Log::script("s");
    say(&mut log, TASK);
    answer(&mut log, "Shall I take every row?");
    say(&mut log, PROHIBITION);
    call(&mut log, "export", "export", r#"{"table": "suppliers"}"#);
    result(&mut log, "export", &format!("Export saved to {EXPORT}. 412 rows."));
    answer(&mut log, "I match by supplier_name, I guess.");
    say(&mut log, CORRECTION);
    for item in 1..=40 {
        call(&mut log, &format!("m{item}"), "match", &format!(r#"{{"item": {item}}}"#));
        result(&mut log, &format!("m{item}"), &format!("Item {item}: one row. {}", "column value ".repeat(30)));
    }
    answer(&mut log, "27 items are matched.\nItems 11 and 31 are flagged: no row has their key.");
    answer(&mut log, CLAIM);
    call(&mut log, "lookup-19", "lookup", r#"{"item": 19}"#);
    log
}

/// Repeats what it is asked.
struct Echo;

impl Summarizer for Echo {
    fn name(&self) -> &str {
        "echo"
    }
    fn summarize(&self, request: &SummaryRequest) -> Result<Summary, SummarizeError> {
        Ok(Summary { text: request.input(), ..Summary::default() })
    }
}

/// Says nothing.
struct Silent;

impl Summarizer for Silent {
    fn name(&self) -> &str {
        "silent"
    }
    fn summarize(&self, _: &SummaryRequest) -> Result<Summary, SummarizeError> {
        Ok(Summary::default())
    }
}

fn shows(log: &Log, text: &str) -> bool {
    let text = serde_json::to_string(text).unwrap();
    log.request().contains(text.trim_matches('"'))
}

fn entry_of(log: &Log, text: &str) -> Option<String> {
    log.with_state(|state| {
        let holds =
            |index: &usize| state.event(*index).is_some_and(|event| ::condenser::request::text_of(&event.kind) == text);
        (0..state.view.len()).find(holds).map(|index| state.view.get(index).unwrap().id().to_string())
    })
}

#[test]
fn the_worked_example_keeps_key_doubt_lookup_and_prohibition_through_five_rounds() {
    let misled = Scripted::new(&[Ok("The key is supplier_name. Item 19 is item 7. All is done."); 5]);
    let summarizers: [&dyn Summarizer; 4] = [&Echo, &Silent, &Extractive::default(), &misled];
    for summarizer in summarizers {
        for window in [None, Some(16_000)] {
            let mut log = worked_example();
            log.window = window;
            let policy = Craft::default();
            let digest = log.with_state(|state| PinnedBlock::of(state, 0.25).digest);
            for round in 0..5 {
                log.add("q");
                let outcome = log.condense(&policy, summarizer);
                let place = format!("{}, round {round}: {outcome:?}", summarizer.name());
                assert!(matches!(outcome.result, OutcomeKind::Applied(_)), "{place}");
                for said in [TASK, PROHIBITION, CORRECTION] {
                    assert!(entry_of(&log, said).is_some(), "{said} stands as it was said: {place}");
                }
                assert!(shows(&log, CLAIM) && shows(&log, EXPORT), "{place}");
                assert!(shows(&log, "Items 11 and 31 are flagged: no row has their key."), "{place}");
                let view = log.view();
                let lookup = view.iter().find(|entry| entry.is_open() && !entry.is_abandoned());
                assert!(lookup.is_some(), "the lookup is in flight: {place}");
                let notes = log.summary().unwrap();
                assert!(notes.contains(&format!("3 messages, digest {digest}.]")), "{notes}");
                for n in 0..3 {
                    let id = format!("more-{round}-{n}");
                    call(&mut log, &id, "match", r#"{"item": 50}"#);
                    result(&mut log, &id, &"column value ".repeat(60));
                }
            }
            result(&mut log, "lookup-19", "Item 19 is no second entry.");
            let facts = log.with_state(|state| state.request().facts);
            assert_eq!((facts.orphan_results, facts.filled_results), (0, 0));
            assert!(shows(&log, "Item 19 is no second entry."));
        }
    }
}

#[test]
fn a_model_alone_loses_prohibition_and_path() {
    let mut log = worked_example();
    log.add("q");
    let misled = Scripted::new(&[Ok("The key is supplier_name. All is done.")]);
    log.condense(&LlmSummarizing::default(), &misled);
    assert!(log.summary().is_some());
    assert!(!shows(&log, PROHIBITION) && !shows(&log, EXPORT));
    assert!(log.summary().unwrap().contains("The key is supplier_name."), "beside the correction");
}

#[test]
fn the_digest_changes_with_the_log_and_with_nothing_else() {
    let mut log = worked_example();
    let digest = |log: &Log| log.with_state(|state| PinnedBlock::of(state, 0.25).digest);
    let before = digest(&log);
    log.add("q");
    log.condense(&Craft::default(), &Silent);
    assert_eq!(digest(&log), before);
    log.add("a*30");
    assert_eq!(digest(&log), before, "what the agent says is no constraint");
    say(&mut log, "And leave item 31 alone.");
    let after = digest(&log);
    assert_ne!(after, before);
    log.add("q");
    log.condense(&Craft::default(), &Silent);
    assert_eq!(digest(&log), after);
}

#[test]
fn constraints_stand_in_the_order_they_came_in_before_the_notes() {
    let mut log = worked_example();
    log.add("q");
    log.condense(&Craft::default(), &Scripted::default());
    let order = |text: &str| log.request().find(&serde_json::to_string(text).unwrap()[1..20]).unwrap();
    let places = [TASK, PROHIBITION, CORRECTION, "[Notes in place of "].map(order);
    assert!(places.is_sorted(), "{places:?}");
}

/// A request over its trigger and within its limit, of which about a fifth may leave.
fn large() -> Log {
    let mut log = Log::script("s*4700 u c1 r1*180 c2 r2*180 c3 r3*180 c4 r4 a");
    log.window = Some(8_000);
    log
}

fn one_entry_stays() -> Craft {
    Craft::new(CraftSettings { keep_last: 1, ..CraftSettings::default() })
}

#[test]
fn a_failed_step_leaves_the_view_as_it_is_and_one_record() {
    let mut log = large();
    let before = log.request();
    let outcome = log.condense(&one_entry_stays(), &Silent);
    assert_eq!(outcome.result, OutcomeKind::Failed);
    assert_eq!(outcome.facts.tried.len(), 2, "{outcome:?}");
    assert_eq!(log.request(), before);
    let failed = outcome.refusal().unwrap();
    assert!(failed.reason.contains("the summarizer answered without text"), "{}", failed.reason);
    push(&mut log, Source::Environment, EventKind::CondensationFailed(failed));
    assert!(log.condense(&one_entry_stays(), &Silent).facts.waits_for.is_some(), "it waits for growth");
}

#[test]
fn a_summary_as_large_as_what_it_replaces_is_refused() {
    let settings = CraftSettings { keep_last: 1, ledger_tokens: Tokens(0), ..CraftSettings::default() };
    let (mut n_applied, mut sizes) = (0, Vec::new());
    for n in 500..900 {
        let mut log = large();
        let text = "x".repeat(4 * n);
        let scripted = Scripted::new(&[Ok(text.as_str()); 3]);
        let before = log.request();
        let outcome = log.condense(&Craft::new(settings), &scripted);
        if matches!(outcome.result, OutcomeKind::Applied(_)) {
            n_applied += 1;
            continue;
        }
        assert_eq!(outcome.result, OutcomeKind::NoGain);
        assert_eq!(log.request(), before);
        let [Failure::NoGain { before, after }] = outcome.facts.tried[..] else { panic!("{outcome:?}") };
        sizes.push(after.0 - before.0);
        if sizes.len() > 3 {
            break;
        }
    }
    assert!(n_applied > 0, "a smaller one is taken");
    assert_eq!(sizes[0], 0, "one of the same size is not");
}

#[test]
fn it_acts_at_a_boundary_before_the_trigger() {
    let acts = |script: &str| {
        let mut log = Log::script(script);
        log.window = Some(log.tokens().0 * 10 / 6);
        log.with_state(|state| Craft::default().requirement(state))
    };
    let work = "s u c1 r1*300 c2 r2*300";
    assert_eq!(acts(&format!("{work} a u")), Requirement::Soft(vec![Reason::Policy]));
    for elsewhere in ["", "a", "u", "a u c3 a u"] {
        assert_eq!(acts(&format!("{work} {elsewhere}")), Requirement::None, "{elsewhere}");
    }
    let mut small = Log::script(&format!("{work} a u"));
    small.window = Some(small.tokens().0 * 3);
    assert_eq!(small.with_state(|state| Craft::default().requirement(state)), Requirement::None);
}

#[test]
fn what_another_record_took_of_the_users_words_is_put_back_from_the_log() {
    let mut log = worked_example();
    let lost: Vec<EventId> = log.view().ids().skip(2).take(6).cloned().collect();
    let record = Condensation {
        forgotten_event_ids: lost.into_iter().collect(),
        summary: Some("The key is supplier_name.".into()),
        summary_offset: Some(2),
        ..Condensation::default()
    };
    push(&mut log, Source::Environment, EventKind::Condensation(record));
    assert!(!shows(&log, CORRECTION));
    for _ in 0..3 {
        log.add("a*20");
        log.add("q");
        log.condense(&Craft::default(), &Silent);
        let notes = log.summary().unwrap();
        assert!(
            notes.contains(&format!("[user] [event e3]\n{PROHIBITION}\n[user] [event e7]\n{CORRECTION}\n")),
            "{notes}"
        );
        assert!(shows(&log, EXPORT));
    }
}

#[test]
fn words_that_are_too_many_leave_oldest_first_but_for_the_task() {
    let mut log = Log::script("s");
    say(&mut log, TASK);
    for n in 0..30 {
        say(&mut log, &format!("Rule {n}: {}", "leave it as it is ".repeat(10)));
        log.add("a*20");
    }
    log.window = Some(4_000);
    log.add("q");
    let scripted = Scripted::default();
    log.condense(&Craft::default(), &scripted);
    assert!(entry_of(&log, TASK).is_some());
    let handed: Vec<String> = scripted.asked()[0].events.iter().map(|(_, text)| text.clone()).collect();
    assert!(handed.iter().any(|text| text.contains("Rule 0:")) && !handed.iter().any(|text| text.contains("Rule 29:")));
    assert!(log.summary().unwrap().contains("user: Rule"), "{:?}", log.summary());
}

#[test]
fn the_published_numbers_of_the_cost_model() {
    let run = cost::Run { prefix: 4_000, step: 3_000, n_steps: 30 };
    assert_eq!((run.total(), run.reads(30)), (1_425_000, 91_000));
    let reading = run.condensed(15, 8_000);
    let expected = cost::Reading { before: 375_000, call: 49_000, after: 435_000, last: 50_000 };
    assert_eq!((reading, reading.total()), (expected, 859_000));
    let saving = run.total() - reading.total();
    assert_eq!((saving, (saving as f64 / run.total() as f64 * 1000.0).round()), (566_000, 397.0));
    // Right after a rewrite of all but 4,000 tokens.
    assert_eq!(cost::price(8_000, 4_000, 0.1), 4_400.0);
    assert_eq!(cost::price(8_000, 0, 0.1), 8_000.0);
}

/// The same run as requests: a prefix of 4,000 tokens, and steps of 3,000.
#[test]
fn the_cost_model_is_what_requests_really_read() {
    let padded = |tokens: u64| "word".repeat(tokens as usize);
    let mut log = Log::new();
    let prompt = SystemPrompt { content: vec![ContentBlock::text(padded(3_991))], ..SystemPrompt::default() };
    push(&mut log, Source::Agent, EventKind::SystemPrompt(prompt));
    say(&mut log, "go");
    let run = cost::Run { prefix: 4_000, step: 3_000, n_steps: 30 };
    let step = |log: &mut Log, n: u64| {
        let before = log.tokens().0;
        call(log, &format!("c{n}"), "run", "{}");
        result(log, &format!("c{n}"), "");
        let overhead = log.tokens().0 - before;
        log.events.pop();
        // An empty result has no message of its own.
        result(log, &format!("c{n}"), &padded(3_000 - overhead));
        let excess = log.tokens().0 - before - 3_000;
        log.events.pop();
        result(log, &format!("c{n}"), &padded(3_000 - overhead - excess));
        assert_eq!(log.tokens().0, before + 3_000);
    };
    let mut condensed: Option<Log> = None;
    let mut reads = Vec::new();
    for n in 1..=30 {
        reads.push(log.tokens().0);
        step(&mut log, n);
        if n == 15 {
            condensed = Some(log.clone());
        }
    }
    assert_eq!((reads.iter().sum::<u64>(), reads[29]), (run.total(), 91_000));
    assert_eq!(reads[..15].iter().sum::<u64>(), 375_000);

    let mut log = condensed.unwrap();
    assert_eq!(log.tokens().0, 49_000, "what the summarizer's call reads");
    log.add("q");
    let policy = Craft::new(CraftSettings { keep_last: 1, ..CraftSettings::default() });
    let notes = padded(900);
    assert!(matches!(log.condense(&policy, &Scripted::new(&[Ok(notes.as_str())])).result, OutcomeKind::Applied(_)));
    let prefix = log.tokens().0;
    // The prefix, the summary with its ledger, and the raw step that stays.
    assert!((7_900..8_000).contains(&prefix), "{prefix}");
    let mut reads = Vec::new();
    for n in 16..=30 {
        reads.push(log.tokens().0);
        step(&mut log, n);
    }
    let reading = run.condensed(15, prefix);
    assert_eq!((reads.iter().sum::<u64>(), reads[14]), (reading.after, reading.last));
}
