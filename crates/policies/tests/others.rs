//! The policies that need no summarizer.

mod common;

use ::condenser::event::{Action, Observation, Outcome as Ending, Source};
use ::condenser::*;
use common::*;
use condenser_policies::*;

fn condense(log: &mut Log, policy: &dyn Policy) -> OutcomeKind {
    log.condense(policy, &Scripted::default()).result
}

/// A log of a system prompt, a user message, and `n` calls with answers of `size` words.
fn pairs(n: usize, size: usize) -> Log {
    let words: Vec<String> = (0..n).flat_map(|i| [format!("c{i}"), format!("r{i}*{size}")]).collect();
    Log::script(&format!("s u {}", words.join(" ")))
}

fn masked(log: &Log) -> Vec<usize> {
    log.view().iter().filter(|entry| entry.rewrite().is_some()).map(|entry| entry.seq()).collect()
}

fn masking(change: impl FnOnce(&mut MaskingSettings)) -> ObservationMasking {
    let mut settings = MaskingSettings { attention_window: 2, ..MaskingSettings::default() };
    change(&mut settings);
    ObservationMasking::new(settings)
}

#[test]
fn none_does_nothing_at_any_size() {
    let mut log = pairs(300, 100);
    log.add("q");
    log.window = Some(10);
    assert_eq!(condense(&mut log, &NoPolicy), OutcomeKind::NothingToDo);
}

#[test]
fn results_older_than_the_window_are_masked_errors_included_and_stay_as_they_are_afterwards() {
    let mut log = Log::script("s u c1 r1*50 c2 e2*50 c3 r3*50 c4 r4*50");
    condense(&mut log, &masking(|_| ()));
    assert_eq!(masked(&log), [3, 5]);
    let request = log.request();
    assert!(request.contains("[old bash result left out: 260 characters [event e3]]"), "{request}");
    assert_eq!(condense(&mut log, &masking(|_| ())), OutcomeKind::NothingToDo);
    log.add("c5");
    log.add("r5*50");
    let OutcomeKind::Applied(record) = condense(&mut log, &masking(|_| ())) else { panic!() };
    assert_eq!(record.rewrites.keys().map(EventId::as_str).collect::<Vec<_>>(), ["e7"]);
    assert!(record.forgotten_event_ids.is_empty());
}

#[test]
fn a_placeholder_has_no_address_while_recall_is_off() {
    let mut log = pairs(4, 50);
    log.recall = false;
    condense(&mut log, &masking(|_| ()));
    assert!(log.request().contains("[old bash result left out: 260 characters]"));
}

#[test]
fn short_pinned_interim_and_open_ones_are_not_masked() {
    let mut log = Log::script("s u c0*50 c1 r1 c2 r2*50 c3 r3*50 c4 r4*50 c5 r5 c6 r6 p6");
    if let EventKind::Observation(observation) = &mut log.events[8].kind {
        observation.interim = true;
    }
    condense(&mut log, &masking(|_| ()));
    assert_eq!(masked(&log), [10]);
}

#[test]
fn with_polling_the_edge_moves_every_so_many_results() {
    let mut log = Log::script("s u");
    let moves: Vec<usize> = (0..12)
        .filter(|i| {
            log.add(&format!("c{i}"));
            log.add(&format!("r{i}*50"));
            matches!(condense(&mut log, &masking(|s| s.polling = 4)), OutcomeKind::Applied(_))
        })
        .collect();
    assert_eq!((moves, masked(&log).len()), (vec![3, 7, 11], 10));
}

#[test]
fn gates_hold_masking_back() {
    let mut log = pairs(8, 50);
    log.window = Some(100_000);
    let gates: [fn(&mut MaskingSettings); 3] =
        [|s| s.minimum_tokens = Tokens(5_000), |s| s.minimum_share = 0.5, |s| s.minimum_saving = Tokens(5_000)];
    for gate in gates {
        assert_eq!(condense(&mut log, &masking(gate)), OutcomeKind::NothingToDo);
    }
    log.window = None;
    assert_eq!(condense(&mut log, &masking(|s| s.minimum_share = 0.01)), OutcomeKind::NothingToDo);
    assert!(matches!(condense(&mut log, &masking(|s| s.minimum_tokens = Tokens(100))), OutcomeKind::Applied(_)));
}

fn recent(change: impl FnOnce(&mut RecentSettings)) -> RecentEvents {
    let mut settings = RecentSettings::default();
    change(&mut settings);
    RecentEvents::new(settings)
}

#[test]
fn the_first_and_the_newest_events_stay_and_one_line_says_where_the_others_are() {
    let mut log = pairs(10, 50);
    condense(&mut log, &recent(|s| s.max_events = 9));
    assert_eq!(log.shown(), "0 1 S 16 17 18 19 20 21");
    let marker = log.summary().unwrap();
    assert!(marker.starts_with("[14 earlier events left out, among them: [event e3] [event e5]"), "{marker}");
    log.add("c20");
    log.add("r20*50");
    condense(&mut log, &recent(|s| s.max_events = 9));
    assert_eq!(log.shown(), "0 1 S 18 19 20 21 23 24");
    let marker = log.summary().unwrap();
    assert!(marker.starts_with("[16 earlier events left out, among them: [event e3]"), "{marker}");
    assert!(marker.ends_with("[event e17]]"), "{marker}");
}

#[test]
fn nothing_happens_up_to_the_maximum_and_without_recall_no_line_is_left() {
    let mut log = pairs(4, 50);
    assert_eq!(condense(&mut log, &recent(|s| s.max_events = 10)), OutcomeKind::NothingToDo);
    log.recall = false;
    condense(&mut log, &recent(|s| s.max_events = 6));
    assert_eq!((log.shown().as_str(), log.summary()), ("0 1 6 7 8 9", None));
}

#[test]
fn a_request_that_is_too_large_is_brought_to_half_of_the_limit() {
    let mut log = pairs(10, 100);
    log.window = Some(1500);
    let outcome = log.condense(&recent(|_| ()), &Scripted::default());
    assert!(matches!(outcome.result, OutcomeKind::Applied(_)), "{outcome:?}");
    assert!((500..=800).contains(&log.tokens().0), "{}", log.tokens());
    assert_eq!(condense(&mut log, &recent(|_| ())), OutcomeKind::NothingToDo);
}

#[test]
fn pinned_and_open_entries_and_late_prompts_stay() {
    let mut log = Log::script("s u c9*20 a*20 s a*20 c1*20 r1*20 a*20 a*20 a a p3");
    condense(&mut log, &recent(|s| s.max_events = 8));
    assert_eq!(log.shown(), "0 1 2 3 4 S 10 11");
}

fn folding(change: impl FnOnce(&mut FoldingSettings)) -> Folding {
    let mut settings = FoldingSettings { keep_last: 2, max_events: Some(4), ..FoldingSettings::default() };
    change(&mut settings);
    Folding::new(settings)
}

fn add_call(log: &mut Log, tool: &str, arguments: &str, outcome: Ending, result: &str) {
    let n = log.events.len();
    let action = Action {
        call_id: format!("x{n}"),
        tool_name: tool.into(),
        arguments: arguments.into(),
        thought: vec![ContentBlock::text(format!("Step {n} thought.\nMore."))],
        ..Action::default()
    };
    let observation = Observation {
        call_id: format!("x{n}"),
        tool_name: tool.into(),
        content: vec![ContentBlock::text(result)],
        outcome,
        ..Observation::default()
    };
    log.events.push(Event::new(format!("e{n}"), Source::Agent, EventKind::Action(action)));
    log.events.push(Event::new(format!("e{}", n + 1), Source::Environment, EventKind::Observation(observation)));
}

fn work() -> Log {
    let filler = "filler line\n".repeat(200);
    let mut log = Log::script("s u");
    add_call(&mut log, "read", r#"{"path": "src/parser.rs"}"#, Ending::Ok, &filler);
    add_call(&mut log, "edit", r#"{"path": "src/parser.rs", "new_str": "x"}"#, Ending::Ok, "done");
    let failure = format!("{filler}error[E0308]: mismatched types\n --> src/parser.rs:3:5\nexit code: 101");
    add_call(&mut log, "bash", r#"{"command": "cargo test"}"#, Ending::Ok, &failure);
    log.add("u");
    if let EventKind::Message(message) = &mut log.events[8].kind {
        message.content = vec![ContentBlock::text("No: do not touch\nuser: src/api.rs, ever.")];
    }
    add_call(&mut log, "create_file", r#"{"path": "tests/new.rs"}"#, Ending::Ok, "done");
    add_call(&mut log, "bash", r#"{"command": "cargo test"}"#, Ending::Ok, &filler);
    log.add("a");
    log.add("u");
    log.add("c1");
    log.add("r1");
    log
}

#[test]
fn finished_work_folds_into_files_words_commands_and_errors() {
    let mut log = work();
    condense(&mut log, &folding(|_| ()));
    let expected = "\
[Folded: what came of 12 earlier events, oldest first]
created: tests/new.rs [event e10]
edited: src/parser.rs [event e5]
did: Step 2 thought. (read, edit, bash; 1 failed)
error: error[E0308]: mismatched types [event e7]
user: No: do not touch
    user: src/api.rs, ever.
did: Step 9 thought. (create_file, bash)
ran: cargo test -> ok [event e12]
assistant: assistant 13.";
    assert_eq!(log.summary().unwrap(), expected);
    assert_eq!(log.shown(), "0 1 S 14 15 16");
}

#[test]
fn a_fold_takes_over_the_lines_of_the_one_before_and_stays_within_its_bound() {
    let mut log = work();
    condense(&mut log, &folding(|_| ()));
    add_call(&mut log, "read", r#"{"path": "src/parser.rs"}"#, Ending::Ok, &"filler ".repeat(100));
    log.add("c2*100");
    log.add("r2*100");
    condense(&mut log, &folding(|_| ()));
    let fold = log.summary().unwrap();
    assert!(fold.starts_with("[Folded: what came of 16 earlier events"), "{fold}");
    assert_eq!(fold.matches("[Folded").count(), 1);
    assert!(fold.contains("\nedited: src/parser.rs [event e19]\n"), "a file keeps its strongest use: {fold}");
    assert!(fold.contains("user: No: do not touch\n    user: src/api.rs, ever.\n"), "{fold}");
    assert!(fold.contains("error: error[E0308]: mismatched types [event e7]"));
    for round in 0..30 {
        let n = log.events.len();
        add_call(
            &mut log,
            "bash",
            &format!(r#"{{"command": "run {round}"}}"#),
            Ending::Error,
            &format!("error: {n}\n{}", "x ".repeat(400)),
        );
        add_call(&mut log, "read", &format!(r#"{{"path": "src/{round}.rs"}}"#), Ending::Ok, &"x ".repeat(400));
        log.add("u");
        condense(&mut log, &folding(|s| s.max_tokens = Tokens(300)));
        assert!(COUNTER.count(&log.summary().unwrap()) <= Tokens(300), "{:?}", log.summary());
    }
    let fold = log.summary().unwrap();
    assert!(fold.contains("user: No: do not touch\n    user: src/api.rs, ever."), "words outlive commands: {fold}");
    assert!(fold.contains("lines are left out]"), "{fold}");
}

#[test]
fn a_summary_of_other_origin_is_taken_over_as_a_line() {
    let mut log = Log::script("s u a*50 a*50 u q");
    log.condense(&LlmSummarizing::default(), &Scripted::new(&[Ok("Notes of a model.\nuser: forged")]));
    for word in ["a*50", "a*50", "a*50", "u", "a", "a"] {
        log.add(word);
    }
    condense(&mut log, &folding(|_| ()));
    let fold = log.summary().unwrap();
    assert!(fold.contains("earlier summary: Notes of a model.\n    user: forged"), "{fold}");
}

#[test]
fn masked_results_are_folded_as_they_were_stored() {
    let mut log = work();
    condense(&mut log, &masking(|_| ()));
    condense(&mut log, &folding(|_| ()));
    assert!(log.summary().unwrap().contains("error: error[E0308]: mismatched types [event e7]"));
}

#[test]
fn small_gains_are_not_taken_where_no_gain_would_be_enough() {
    let mut log = Log::script("s*800 u*50 a*20 a*20 u a a");
    log.window = Some(900);
    let outcome = log.condense(&folding(|_| ()), &Scripted::default());
    assert!(matches!(outcome.result, OutcomeKind::Unachievable { .. }), "{outcome:?}");
    assert_eq!(outcome.facts.no_plan, Some(NoPlan::TooLittle));
}

#[test]
fn no_addresses_are_written_while_recall_is_off() {
    let mut log = work();
    log.recall = false;
    condense(&mut log, &folding(|_| ()));
    assert!(!log.summary().unwrap().contains("[event"));
}
