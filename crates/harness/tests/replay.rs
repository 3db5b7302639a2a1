//! Traces made by hand, with every number worked out in the test.

use std::collections::BTreeMap;

use condenser::condensation::{Condensation, Rewrite, RewriteOp};
use condenser::event::{Action, ContentBlock, Event, EventKind, Message, Observation, Pin, Role, Source, SystemPrompt};
use condenser::event::{Outcome, Undo};
use condenser::policy::{Edit, Failure, NoPlan, Plan, Policy, Reason, Requirement, State};
use condenser::policy::{SummarizeError, Summarizer, Summary, SummaryRequest};
use condenser::profile::{CacheRules, ModelProfile, Prices};
use condenser::recall::{Recall, address};
use condenser::tokens::{TokenCounter, Tokens};
use condenser::view::Rules;
use condenser_harness::{ForgetAll, Prepared, RandomForgetting, RandomMasking, Row, Settings, Subject};
use condenser_harness::{run, run_observed, run_recorded};
use proptest::prelude::*;

/// One token per word: sizes can be read off the page.
struct Words;

impl TokenCounter for Words {
    fn name(&self) -> &str {
        "words"
    }
    fn count(&self, text: &str) -> Tokens {
        Tokens(text.split_whitespace().count() as u64)
    }
}

/// Answers every request with the same text.
struct Says(&'static str);

impl Summarizer for Says {
    fn name(&self) -> &str {
        "says"
    }
    fn summarize(&self, _: &SummaryRequest) -> Result<Summary, SummarizeError> {
        Ok(Summary { text: self.0.into(), input_tokens: Tokens(100), output_tokens: Tokens(7), ..Summary::default() })
    }
}

/// What a test policy does with the observations it picks.
#[derive(Clone, Copy)]
enum Way {
    Keep,
    /// Replaces the content; `@` stands for the event's address.
    Mask(&'static str),
    Forget,
    Summarize,
}

/// Treats all observations but the newest few in one way.
struct Old {
    way: Way,
    spared: usize,
}

impl Policy for Old {
    fn name(&self) -> &str {
        "old"
    }
    fn requirement(&self, _: &State<'_>) -> Requirement {
        if matches!(self.way, Way::Keep) { Requirement::None } else { Requirement::Soft(vec![Reason::Policy]) }
    }
    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        if !tried.is_empty() {
            return Err(NoPlan::Exhausted);
        }
        let mut old: Vec<usize> = (0..state.view.len())
            .filter(|&index| matches!(state.event(index).map(|event| &event.kind), Some(EventKind::Observation(_))))
            .collect();
        old.truncate(old.len().saturating_sub(self.spared));
        let mut edit = Edit::default();
        for entry in old.into_iter().filter_map(|index| state.view.get(index)) {
            match self.way {
                Way::Keep => {}
                Way::Mask(text) if entry.rewrite().is_none() => {
                    let text = text.replace('@', &address(entry.id()));
                    edit.rewrites.insert(entry.id().clone(), RewriteOp::Clear { text }.into());
                }
                Way::Mask(_) => {}
                Way::Forget | Way::Summarize => {
                    let group = state.view.iter().filter(|other| other.group() == entry.group());
                    edit.forget.extend(group.map(|other| other.id().clone()));
                }
            }
        }
        if edit.is_empty() {
            return Ok(Plan::Keep);
        }
        match self.way {
            Way::Summarize => Ok(Plan::Summarize { edit, offset: 2, request: SummaryRequest::default() }),
            _ => Ok(Plan::Edit(edit)),
        }
    }
}

const NONE: Old = Old { way: Way::Keep, spared: 0 };

fn profile() -> ModelProfile {
    ModelProfile {
        name: "test".into(),
        context_window: None,
        max_output: None,
        tokenizer: None,
        prices: Some(Prices { input: 1e6, cache_read: 1e5, cache_write: 2e6, output: 1e7 }),
        cache: Some(CacheRules { minimum: Tokens(5), block: Tokens(1), expiry_seconds: None, charges_writes: true }),
    }
}

fn system(text: &str) -> Event {
    let content = vec![ContentBlock::text(text)];
    let prompt = SystemPrompt { content, ..SystemPrompt::default() };
    Event::new("s", Source::Environment, EventKind::SystemPrompt(prompt))
}

fn user(id: &str, text: &str) -> Event {
    Event::new(id, Source::User, EventKind::Message(Message::text(Role::User, text)))
}

fn says(id: &str, text: &str) -> Event {
    Event::new(id, Source::Agent, EventKind::Message(Message::text(Role::Assistant, text)))
}

fn call(id: &str, tool: &str, arguments: &str) -> Event {
    let action = Action {
        call_id: format!("call-{id}"),
        tool_name: tool.into(),
        arguments: arguments.into(),
        response_id: Some(format!("response-{id}")),
        ..Action::default()
    };
    Event::new(id, Source::Agent, EventKind::Action(action))
}

fn result(id: &str, of: &str, text: &str) -> Event {
    let observation = Observation {
        call_id: format!("call-{of}"),
        content: vec![ContentBlock::text(text)],
        ..Observation::default()
    };
    Event::new(id, Source::Environment, EventKind::Observation(observation))
}

fn prepare(events: &[Event]) -> Prepared<'_> {
    Prepared::new(Subject { trace: "t", format: "f", task: None, events }, &Words, Rules::Sound)
}

fn row_with(events: &[Event], policy: &dyn Policy, profile: &ModelProfile, window: Option<u64>) -> Row {
    let settings = Settings {
        window: window.map(Tokens),
        reserve: Tokens(0),
        profile,
        summarizer: &Says("see src/lib.rs"),
        seed: 0,
        recall: true,
    };
    run(&prepare(events), policy, &settings).row
}

fn row(events: &[Event], policy: &dyn Policy) -> Row {
    row_with(events, policy, &profile(), None)
}

/// Two calls and a last word. A head of a message is 4 tokens, a call is its name and its arguments.
fn small() -> Vec<Event> {
    vec![
        system("be good"),                   // 6
        user("u", "please fix it"),          // 7
        call("a", "bash", "ls"),             // 6, output 2
        result("b", "a", "one two three"),   // 7
        call("c", "bash", "cat"),            // 6, output 2
        result("d", "c", "four five six !"), // 8
        says("e", "all done"),               // output 2
    ]
}

#[test]
fn a_trace_that_only_grows_is_read_from_the_cache_but_for_its_tail() {
    let row = row(&small(), &NONE);
    assert_eq!((row.steps, row.condensations, row.fired()), (3, 0, false));
    // Requests of 13, 26 and 40 tokens.
    assert_eq!((row.input_tokens, row.peak_tokens), (79, 40));
    assert_eq!(row.cached_tokens, 13 + 26);
    assert_eq!(row.cache_write_tokens, 79 - 39);
    assert_eq!(row.output_tokens, 2 + 2 + 2);
    assert_eq!(row.cost_usd, Some(39.0 * 0.1 + 40.0 * 2.0 + 6.0 * 10.0));
    assert_eq!(row.invalid_requests, 0);
}

#[test]
fn a_rewritten_entry_ends_the_cached_prefix_inside_itself() {
    // The third request masks result b: `one gone` shares the word `one`, then differs.
    let row = row(&small(), &Old { way: Way::Mask("one gone"), spared: 1 });
    // The first request holds nothing to mask, the second spares its only result, the third is 40 - 1 tokens.
    assert_eq!((row.condensations, row.input_tokens), (1, 13 + 26 + 39));
    // Before the result's text stand 13 + 6 tokens and the head of 4; then one equal word.
    assert_eq!(row.cached_tokens, 13 + (13 + 6 + 4 + 1));
}

#[test]
fn the_peak_is_the_largest_request_and_not_the_last() {
    let mut events = small();
    events[3] = result("b", "a", &"word ".repeat(20));
    // The second request is 13 + 6 + 24 tokens; the third has lost the first call with its result.
    let row = row(&events, &Old { way: Way::Forget, spared: 1 });
    assert_eq!((row.input_tokens, row.peak_tokens, row.condensations), (13 + 43 + 27, 43, 1));
}

/// A port that names the first result and not its call.
struct Tearing;

impl Policy for Tearing {
    fn name(&self) -> &str {
        "tearing"
    }
    fn requirement(&self, state: &State<'_>) -> Requirement {
        if state.view.len() > 5 { Requirement::Soft(vec![Reason::Policy]) } else { Requirement::None }
    }
    fn plan(&self, _: &State<'_>, _: &[Failure]) -> Result<Plan, NoPlan> {
        Ok(Plan::Edit(Edit { forget: ["b".into()].into(), ..Edit::default() }))
    }
    fn is_port(&self) -> bool {
        true
    }
}

#[test]
fn a_record_that_takes_a_call_along_is_counted() {
    let row = row(&small(), &Tearing);
    assert_eq!((row.condensations, row.extended, row.input_tokens), (1, 1, 13 + 26 + 27));
}

#[test]
fn cache_rules_of_the_profile_apply() {
    let cached = |change: &dyn Fn(&mut CacheRules), events: &[Event]| {
        let mut profile = profile();
        let mut cache = profile.cache.unwrap();
        change(&mut cache);
        profile.cache = Some(cache);
        let row = row_with(events, &NONE, &profile, None);
        (row.cached_tokens, row.cache_write_tokens)
    };
    assert_eq!(cached(&|cache| cache.minimum = Tokens(14), &small()), (26, 53));
    assert_eq!(cached(&|cache| cache.block = Tokens(10), &small()), (10 + 20, 49));
    assert_eq!(cached(&|cache| cache.charges_writes = false, &small()), (39, 0));
    let mut timed = small();
    for (event, time) in [(2, "2025-01-01T10:00:00Z"), (4, "2025-01-01T10:05:01Z"), (6, "2025-01-01T10:06:00Z")] {
        timed[event].timestamp = Some(time.into());
    }
    assert_eq!(cached(&|cache| cache.expiry_seconds = Some(300), &timed), (26, 53));
    assert_eq!(cached(&|cache| cache.expiry_seconds = Some(301), &timed), (39, 40));
    timed[4].timestamp = Some("yesterday".into());
    assert_eq!(cached(&|cache| cache.expiry_seconds = Some(1), &timed).0, 39, "unknown times expire nothing");
}

#[test]
fn a_profile_without_prices_or_cache_gives_no_cost_and_no_cached_tokens() {
    let profile = ModelProfile { prices: None, cache: None, ..profile() };
    let row = row_with(&small(), &NONE, &profile, None);
    assert_eq!((row.cost_usd, row.cached_tokens, row.cache_write_tokens), (None, 0, 0));
}

#[test]
fn steps_over_the_window_are_counted() {
    for (window, expected) in [(40, 0), (39, 1), (25, 2), (12, 3)] {
        assert_eq!(row_with(&small(), &NONE, &profile(), Some(window)).over_window_steps, expected, "{window}");
    }
}

#[test]
fn text_and_calls_of_one_response_are_one_step() {
    let mut events = small();
    let mut before = says("t", "let me look");
    if let EventKind::Message(message) = &mut before.kind {
        message.response_id = Some("response-a".into());
    }
    events.insert(2, before);
    let mut beside = call("x", "bash", "pwd");
    if let EventKind::Action(action) = &mut beside.kind {
        action.response_id = Some("response-a".into());
    }
    events.insert(5, beside); // after the first result of the same response
    let row = row(&events, &NONE);
    assert_eq!((row.steps, row.output_tokens), (3, 6 + 3 + 2));
}

#[test]
fn summarizer_calls_are_counted_and_priced_on_their_own() {
    let mut events = small();
    events[3] = result("b", "a", "one two three four five six seven eight nine ten");
    let row = row(&events, &Old { way: Way::Summarize, spared: 1 });
    assert_eq!((row.condensations, row.summarizer_calls), (1, 1));
    assert_eq!((row.summarizer_input_tokens, row.summarizer_output_tokens), (100, 7));
    let agent = row.cached_tokens as f64 * 0.1 + row.cache_write_tokens as f64 * 2.0 + 60.0;
    assert_eq!(row.cost_usd, Some(agent + 100.0 + 70.0));
    assert_eq!(row.summarizer, "says");
}

#[test]
fn plans_that_inflate_or_touch_pins_are_refused_and_counted() {
    let long = Old { way: Way::Mask("a placeholder that is longer than the result it replaces"), spared: 0 };
    let inflated = row(&small(), &long);
    assert_eq!((inflated.condensations, inflated.inflations, inflated.failed_condensations), (0, 2, 0));
    let mut events = small();
    events.insert(4, Event::new("p", Source::User, EventKind::Pin(Pin { ids: vec!["b".into()] })));
    let pinned = row(&events, &Old { way: Way::Mask("x"), spared: 0 });
    assert_eq!((pinned.condensations, pinned.pinned_changes, pinned.failed_condensations), (0, 2, 2));
}

/// Eleven steps. The path in the listing of step 1 is used at steps 2 and 8, another of its names only at step 9; a
/// user's word is used at step 10.
fn evidence_trace() -> Vec<Event> {
    let mut events = vec![system("tools: known_tool"), user("u", "look at given_file")];
    events.extend([call("p", "look", "{}"), result("q", "p", "nothing much")]);
    let listing = "src/lib.rs\nnotes_old.md\ngiven_file\nknown_tool";
    let uses = ["{}", r#"{"path": "src/lib.rs"}"#, "{}", "{}", "{}", "{}", "{}"];
    for (step, arguments) in uses.into_iter().enumerate() {
        events.push(call(&format!("a{step}"), "look", arguments));
        events.push(result(&format!("o{step}"), &format!("a{step}"), if step == 0 { listing } else { "nothing much" }));
    }
    for (step, arguments) in [
        (7, r#"{"path": "src/lib.rs", "other": "given_file"}"#),
        (8, r#"{"path": "notes_old.md", "other": ["known_tool", "unheard_of"]}"#),
    ] {
        events.push(call(&format!("a{step}"), "look", arguments));
        events.push(result(&format!("o{step}"), &format!("a{step}"), "nothing much"));
    }
    events.push(user("u2", "no, use the_other one"));
    events.push(call("a9", "look", r#"{"what": "the_other"}"#));
    events
}

#[test]
fn evidence_is_what_an_action_used_from_what_it_was_shown() {
    let row = row(&evidence_trace(), &NONE);
    // First uses: src/lib.rs at step 2 (one step back), notes_old.md at step 9 (eight), the_other at step 10 (one).
    assert_eq!((row.evidence_total, row.evidence_in_view), (3, 3));
    assert_eq!((row.evidence_far_total, row.evidence_far_in_view), (1, 1));
    // src/lib.rs at step 8. given_file and known_tool stand in the first message and the system prompt.
    assert_eq!(row.self_carried, 1);
}

#[test]
fn evidence_has_one_of_four_states() {
    let statuses = |policy: &dyn Policy| {
        let row = row(&evidence_trace(), policy);
        assert!(row.fired());
        assert_eq!(row.evidence_total, 3);
        assert_eq!(row.self_carried, 1);
        let near = [row.evidence_in_view, row.evidence_in_summary, row.evidence_recoverable, row.evidence_lost];
        let far = [
            row.evidence_far_in_view,
            row.evidence_far_in_summary,
            row.evidence_far_recoverable,
            row.evidence_far_lost,
        ];
        (near, far)
    };
    let spare = |way| Old { way, spared: 1 };
    assert_eq!(statuses(&spare(Way::Mask("x"))), ([2, 0, 0, 1], [0, 0, 0, 1]));
    assert_eq!(statuses(&spare(Way::Mask("@"))), ([2, 0, 1, 0], [0, 0, 1, 0]));
    assert_eq!(statuses(&spare(Way::Mask("notes_old.md"))), ([3, 0, 0, 0], [1, 0, 0, 0]));
    assert_eq!(statuses(&spare(Way::Mask("see.notes_old.md"))), ([2, 0, 0, 1], [0, 0, 0, 1]), "no whole token");
    assert_eq!(statuses(&spare(Way::Forget)), ([2, 0, 0, 1], [0, 0, 0, 1]));
    // Without a spared result, src/lib.rs is gone at step 2; the summary `see src/lib.rs` holds it.
    assert_eq!(statuses(&Old { way: Way::Mask("x"), spared: 0 }), ([1, 0, 0, 2], [0, 0, 0, 1]));
    let summarized = statuses(&Old { way: Way::Summarize, spared: 0 });
    assert_eq!(summarized, ([1, 1, 0, 1], [0, 0, 0, 1]));
}

#[test]
fn items_in_more_than_a_fifth_of_the_earlier_events_are_no_evidence() {
    let with = |n_other: usize| {
        let mut events = vec![user("u", "go")];
        for step in 0..n_other {
            events.push(call(&format!("a{step}"), "look", "{}"));
            events.push(result(&format!("o{step}"), &format!("a{step}"), if step == 0 { "some_name" } else { "." }));
        }
        events.push(call("z", "look", r#"{"x": "some_name"}"#));
        row(&events, &NONE).evidence_total
    };
    assert_eq!(with(1), 0, "one of three events");
    assert_eq!(with(2), 1, "one of five is exactly a fifth");
}

#[test]
fn pinned_events_and_results_of_the_same_step_are_no_evidence() {
    let mut events = evidence_trace();
    events.insert(6, Event::new("pin", Source::User, EventKind::Pin(Pin { ids: vec!["o0".into()] })));
    assert_eq!(row(&events, &NONE).evidence_total, 1, "only the user's word is left");
    let mut events = evidence_trace();
    // The action that used src/lib.rs first belongs to the response before it: its source is of its own step.
    if let EventKind::Action(action) = &mut events[6].kind {
        action.response_id = Some("response-a0".into());
    }
    let merged = row(&events, &NONE);
    assert_eq!((merged.evidence_total, merged.self_carried), (2, 1));
}

#[test]
fn forget_all_leaves_only_what_the_newest_step_brought() {
    let row = row(&evidence_trace(), &ForgetAll);
    assert_eq!((row.evidence_total, row.evidence_in_view, row.evidence_lost), (3, 2, 1));
    assert_eq!(row.evidence_far_lost, 1);
    assert_eq!(row.invalid_requests, 0);
    let mut views = Vec::new();
    let events = evidence_trace();
    let profile = profile();
    let settings =
        Settings { window: None, reserve: Tokens(0), profile: &profile, summarizer: &Says(""), seed: 0, recall: true };
    run_observed(&prepare(&events), &ForgetAll, &settings, &mut |seen| {
        views.push(seen.view.ids().map(|id| id.to_string()).collect::<Vec<_>>().join(" "));
    });
    assert_eq!(views[..3], ["s u", "s u p q", "s u a0 o0"]);
    assert_eq!(views[10], "s u a8 o8 u2");
}

/// Reads a file, lets time pass, and reads it again.
fn rereading(between: Event) -> Vec<Event> {
    let read = r#"{"path": "src/lib.rs"}"#;
    vec![
        user("u", "go"),
        call("a", "read", read),
        result("b", "a", "the whole text of the file"),
        between,
        result("d", "c", "ok"),
        call("e", "read", read),
        result("f", "e", "the whole text of the file"),
    ]
}

#[test]
fn reading_again_is_habit_in_view_and_exposed_when_removed() {
    let masked = Old { way: Way::Mask("x"), spared: 1 };
    let check = |between: Event, policy: &dyn Policy, expected: (u64, u64), what: &str| {
        let row = row(&rereading(between), policy);
        assert_eq!((row.rereads_exposed, row.rereads_habit), expected, "{what}");
    };
    let harmless = || call("c", "read", r#"{"path": "other"}"#);
    check(harmless(), &NONE, (0, 1), "in view");
    check(harmless(), &masked, (1, 0), "masked");
    check(harmless(), &Old { way: Way::Forget, spared: 1 }, (1, 0), "forgotten");
    check(harmless(), &Old { way: Way::Mask("x"), spared: 2 }, (0, 1), "spared");
    for (tool, arguments) in [
        ("edit", r#"{"path": "/repo/src/lib.rs", "new": "x"}"#),
        ("bash", r#"{"command": "cargo fmt"}"#),
        ("bash", r#"{"command": "echo > src/lib.rs"}"#),
    ] {
        check(call("c", tool, arguments), &masked, (0, 0), arguments);
    }
    check(call("c", "edit", r#"{"path": "b.rs"}"#), &masked, (1, 0), "another file was written");
    let mut failed = rereading(harmless());
    if let EventKind::Observation(observation) = &mut failed[2].kind {
        observation.outcome = Outcome::Error;
    }
    let row = row(&failed, &masked);
    assert_eq!((row.rereads_exposed, row.rereads_habit), (0, 0), "a failed read showed nothing");
}

#[test]
fn recorded_condensations_are_left_out_and_applied_only_by_their_own_policy() {
    let mut events = small();
    let record = Condensation {
        forgotten_event_ids: ["a".into(), "b".into()].into(),
        summary: Some("listed it".into()),
        summary_offset: Some(2),
        ..Condensation::default()
    };
    events.insert(4, Event::new("r", Source::Agent, EventKind::Condensation(record)));
    events.insert(5, user("copy", "listed it"));
    let prepared = prepare(&events);
    assert!(prepared.has_recorded_condensations());
    assert_eq!(row(&events, &NONE).input_tokens, 79, "as if there had been none");
    let profile = profile();
    let settings =
        Settings { window: None, reserve: Tokens(0), profile: &profile, summarizer: &Says(""), seed: 0, recall: true };
    let recorded = |events: &[Event]| run_recorded(&prepare(events), &settings).row;
    // Call and result, 13 tokens, gave way to 2 in the user's message.
    let applied = recorded(&events);
    assert_eq!((applied.policy.as_str(), applied.condensations), ("recorded", 1));
    assert_eq!(applied.input_tokens, 79 - 2 * (13 - 2));
    events.insert(7, Event::new("n", Source::User, EventKind::Undo(Undo { condensation: "r".into() })));
    assert_eq!(recorded(&events).input_tokens, 79 - (13 - 2), "undone before the last step");
}

#[test]
fn record_ids_never_meet_ids_of_the_trace() {
    let mut events = small();
    events[3].id = "condensation-1".into();
    let row = row(&events, &Old { way: Way::Mask("x"), spared: 0 });
    assert_eq!(row.condensations, 2);
}

#[test]
fn recall_reads_ranges_of_stored_text() {
    let events = small();
    let prepared = prepare(&events);
    for (range, expected) in [
        (None, "one two three"),
        (Some(4..7), "two"),
        (Some(8..99), "three"),
        (Some(20..30), ""),
        (Some(std::ops::Range { start: 7, end: 4 }), ""),
    ] {
        assert_eq!(prepared.bytes(&"b".into(), range), Some(expected.as_bytes().to_vec()));
    }
    assert_eq!(prepared.bytes(&"nobody".into(), None), None);
}

fn wordy(n_steps: usize) -> Vec<Event> {
    let mut events = vec![system("be good"), user("u", "go")];
    for step in 0..n_steps {
        events.push(call(&format!("a{step}"), "look", "{}"));
        events.push(result(&format!("o{step}"), &format!("a{step}"), &"word ".repeat(10 + step * 7 % 30)));
    }
    events
}

#[test]
fn random_controls_are_as_large_as_what_they_match_and_repeat_themselves() {
    let events = wordy(40);
    let prepared = prepare(&events);
    let profile = profile();
    let settings =
        Settings { window: None, reserve: Tokens(0), profile: &profile, summarizer: &Says(""), seed: 3, recall: false };
    let matched = run(&prepared, &Old { way: Way::Mask("[all the output was left out]"), spared: 5 }, &settings);
    let check = |control: &dyn Fn(u64) -> Box<dyn Policy>, name: &str| {
        let first = run(&prepared, &*control(3), &settings);
        assert_eq!(first.row.policy, name);
        assert!(first.row.fired());
        for (step, (a, b)) in first.steps.tokens.iter().zip(&matched.steps.tokens).enumerate() {
            assert!(a.abs_diff(*b) <= 30, "{name} at step {step}: {a} and {b}");
        }
        let again = run(&prepared, &*control(3), &settings);
        assert_eq!(Row { wall_ms: 0.0, ..again.row }, Row { wall_ms: 0.0, ..first.row.clone() });
        assert_ne!(run(&prepared, &*control(4), &settings).steps.tokens, first.steps.tokens);
    };
    check(&|seed| Box::new(RandomMasking::matching(&prepared, &matched, seed)), "random-masking(old)");
    check(&|seed| Box::new(RandomForgetting::matching(&prepared, &matched, seed)), "random-forgetting(old)");
}

/// A random trace, written with few names so that they meet.
fn any_trace() -> impl Strategy<Value = Vec<Event>> {
    let piece = (0..5u8, 0..6usize, 0..4u8);
    proptest::collection::vec(piece, 0..60).prop_map(|pieces| {
        let mut events = vec![system("be good"), user("u", "go")];
        for (index, (kind, name, extra)) in pieces.into_iter().enumerate() {
            let id = format!("e{index}");
            let name = format!("name_{name}");
            match kind {
                0 => events.push(user(&id, &name)),
                1 => events.push(says(&id, "thinking about it")),
                2 => events.push(Event::new(
                    id,
                    Source::User,
                    EventKind::Pin(Pin { ids: vec![format!("r{}", index / 2).into()] }),
                )),
                _ => {
                    events.push(call(&id, "read", &format!(r#"{{"path": "{name}"}}"#)));
                    if extra > 0 {
                        let other = format!("name_{} x name_{}{}", extra + 1, index % 9, " y".repeat(extra.into()));
                        events.push(result(&format!("r{index}"), &id, &other));
                    }
                }
            }
        }
        events
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn evidence_is_the_same_for_every_policy(events in any_trace()) {
        let none = row(&events, &NONE);
        prop_assert_eq!(none.evidence_in_view, none.evidence_total);
        prop_assert_eq!(none.evidence_far_in_view, none.evidence_far_total);
        prop_assert_eq!(none.rereads_exposed, 0);
        let old = |way, spared| Old { way, spared };
        let policies: [&dyn Policy; 5] = [
            &ForgetAll, &old(Way::Mask("@"), 0), &old(Way::Mask("x"), 2), &old(Way::Forget, 1), &old(Way::Summarize, 1),
        ];
        for policy in policies {
            let row = row(&events, policy);
            prop_assert_eq!(row.evidence_total, none.evidence_total);
            prop_assert_eq!(row.evidence_far_total, none.evidence_far_total);
            prop_assert_eq!(row.self_carried, none.self_carried);
            let parts = [row.evidence_in_view, row.evidence_in_summary, row.evidence_recoverable, row.evidence_lost];
            prop_assert_eq!(parts.iter().sum::<u64>(), row.evidence_total);
            prop_assert_eq!(row.rereads_exposed + row.rereads_habit, none.rereads_habit);
            prop_assert_eq!(row.output_tokens, none.output_tokens);
            prop_assert!(row.cached_tokens <= row.input_tokens);
            prop_assert_eq!(row.cached_tokens + row.cache_write_tokens, row.input_tokens);
            prop_assert_eq!(row.invalid_requests, 0);
            prop_assert!(row.input_tokens <= none.input_tokens);
        }
    }

    #[test]
    fn only_the_time_taken_differs_between_two_runs(events in any_trace()) {
        let once = || Row { wall_ms: 0.0, ..row(&events, &Old { way: Way::Summarize, spared: 1 }) };
        prop_assert_eq!(once(), once());
    }
}

#[test]
fn an_empty_trace_and_one_without_steps_give_empty_rows() {
    for events in [vec![], vec![system("x"), user("u", "hello")]] {
        let row = row(&events, &ForgetAll);
        assert_eq!((row.steps, row.input_tokens, row.evidence_total, row.cost_usd), (0, 0, 0, Some(0.0)));
    }
}

#[test]
fn rewrites_of_a_record_stay_what_they_are() {
    // A record that names what is not there changes nothing.
    let rewrites = BTreeMap::from([("nobody".into(), Rewrite::from(RewriteOp::Clear { text: "x".into() }))]);
    let mut events = small();
    let record = Condensation { rewrites, ..Condensation::default() };
    events.insert(4, Event::new("r", Source::Agent, EventKind::Condensation(record)));
    let profile = profile();
    let settings =
        Settings { window: None, reserve: Tokens(0), profile: &profile, summarizer: &Says(""), seed: 0, recall: true };
    assert_eq!(run_recorded(&prepare(&events), &settings).row.input_tokens, 79);
}
