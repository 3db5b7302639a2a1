//! What holds for every policy, on random logs and over several rounds.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod common;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::condenser::event::{
    Action, ContentBlock, Message, Observation, Outcome as Ending, Pin, Role, Source, SystemPrompt,
};
use ::condenser::*;
use common::*;
use condenser_policies::*;
use proptest::prelude::*;
use serde_json::json;

/// One random event, by numbers: what it is, which call or event it names, how long it is.
type Seed = (u8, u8, u8, u16);

fn event(n: usize, (what, which, flags, size): Seed) -> Event {
    let text =
        |what: &str| vec![ContentBlock::text(format!("{what} src/file_{which}.rs {n} {}", "x y ".repeat(size.into())))];
    let call_id = format!("call{}", which % 12);
    let message = |role, what: &str| EventKind::Message(Message { content: text(what), ..Message::text(role, "") });
    let kind = match what % 32 {
        0 if n > 0 => EventKind::SystemPrompt(SystemPrompt { content: text("late prompt"), ..SystemPrompt::default() }),
        0..=3 => message(Role::User, "please do"),
        4 | 5 => message(Role::Assistant, "done"),
        6 => message(Role::System, "rule"),
        7 => EventKind::Pin(Pin { ids: vec![EventId::new(format!("e{}", usize::from(which) % (n + 1)))] }),
        8 => EventKind::Unpin(Pin { ids: vec![EventId::new(format!("e{}", usize::from(which) % (n + 1)))] }),
        9 => EventKind::CondensationRequest(Default::default()),
        10..=20 => EventKind::Action(Action {
            call_id,
            tool_name: ["bash", "edit", "read"][usize::from(flags) % 3].into(),
            arguments: match flags % 5 {
                0 => "{broken".into(),
                1 => format!(r#"{{"path": "src/file_{which}.rs", "new_str": "x"}}"#),
                _ => format!(r#"{{"command": "run {which}"}}"#),
            },
            thought: if flags & 16 == 0 { text("thought") } else { vec![] },
            thinking: if flags & 3 == 3 {
                vec![ContentBlock::Thinking { thinking: "hm".into(), signature: None }]
            } else {
                vec![]
            },
            response_id: (flags & 32 == 0).then(|| format!("response{}", which % 5)),
            ..Action::default()
        }),
        _ => EventKind::Observation(Observation {
            call_id,
            tool_name: "bash".into(),
            content: text(if flags & 1 == 0 { "error: it broke\nline two" } else { "result" }),
            outcome: [Ending::Ok, Ending::Error, Ending::Rejected][usize::from(flags) % 3],
            interim: flags & 24 == 24,
            extended_content: vec![],
        }),
    };
    Event::new(format!("e{n}"), Source::Agent, kind)
}

fn all_policies() -> Vec<Box<dyn Policy>> {
    let list = policies();
    let mut policies: Vec<Box<dyn Policy>> = list.iter().map(|info| info.build(&Default::default()).unwrap()).collect();
    policies.push(Box::new(ObservationMasking::new(MaskingSettings {
        attention_window: 2,
        polling: 3,
        ..MaskingSettings::default()
    })));
    policies.push(Box::new(RecentEvents::new(RecentSettings { keep_first: 3, max_events: 12, ..Default::default() })));
    policies.push(Box::new(RecentEvents::new(RecentSettings { keep_first: 0, max_events: 1, ..Default::default() })));
    policies.push(Box::new(Folding::new(FoldingSettings {
        max_events: Some(10),
        keep_first: 1,
        keep_last: 3,
        max_responses: 2,
        max_tokens: Tokens(150),
        ..FoldingSettings::default()
    })));
    policies.push(Box::new(LlmSummarizing::new(SummarizingSettings {
        max_events: Some(12),
        ..SummarizingSettings::default()
    })));
    policies.push(Box::new(LlmSummarizing::new(SummarizingSettings {
        max_events: Some(5),
        max_tokens: Some(Tokens(300)),
        keep_first: 0,
        input_tokens: Some(Tokens(1200)),
        ..SummarizingSettings::default()
    })));
    policies.push(Box::new(AmortizedForgetting::new(AmortizedSettings { max_events: 12, ..Default::default() })));
    policies.push(Box::new(ConversationWindow::new(WindowSettings { keep_share: 0.2, max_addresses: 3 })));
    // Ports with sizes that these logs reach.
    for (name, settings) in [
        ("openhands", json!({"max_size": 12, "keep_first": 1})),
        ("openhands-v0-recent", json!({"keep_first": 2, "max_events": 9})),
        ("openhands-v0-masking", json!({"attention_window": 6})),
        ("openhands-v0-amortized", json!({"max_size": 12})),
        ("openhands-v0-attention", json!({"max_size": 12, "keep_first": 0})),
        ("openhands-v0-summarizing", json!({"max_size": 12})),
        ("openhands-v0-structured", json!({"max_size": 6, "request_on_overflow": false})),
        ("openhands-v0-server", json!({"max_size": 14})),
        ("swe-agent-last-n", json!({"n": 2, "polling": 3, "tags": ["remove_output"], "function_names": ["edit"]})),
        ("swe-agent-remove-regex", json!({"remove": ["x y"], "keep_last": 3})),
        (
            "deepagents",
            json!({
                "trigger": [{"messages": 12}, {"tokens": 900}],
                "trigger_unknown": [{"messages": 12}],
                "keep": {"messages": 4},
                "arguments_trigger": {"messages": 4},
                "arguments_keep": {"tokens": 60},
                "arguments_characters": 12,
                "arguments_head": 3,
                "arguments_tools": ["edit"],
                "evict_tokens": 30,
                "evict_user_tokens": 30,
                "preview_lines": 1,
                "clip_head": 20,
            }),
        ),
        ("langchain-summarization", json!({"trigger": [{"messages": 12}], "keep": {"messages": 4}, "trim_tokens": 90})),
        ("cline-basic", json!({"default_max_input_tokens": 1500, "characters_per_token": 4})),
        ("cline-agentic", json!({"default_max_input_tokens": 1500, "preserve_recent_tokens": 200, "long_turns": 1})),
        (
            "langchain-clear-tool-uses",
            json!({"trigger": 300, "clear_at_least": 90, "keep": 2, "clear_tool_inputs": true, "exclude_tools": ["read"]}),
        ),
        (
            "opencode-v1",
            json!({
                "prune_protect_tokens": 60, "prune_minimum_tokens": 20, "protected_tools": ["read"],
                "preserve_recent_least": 50, "preserve_recent_most": 200,
            }),
        ),
        ("craft", json!({"keep_last": 2, "ledger_tokens": 60, "boundary_share": 0.1, "boundary_progress": 0.05})),
        ("craft", json!({"keep_last": 5, "pinned_share": 0.02, "event_characters": 100, "minimum_progress": 0.0})),
        ("condenser-default", json!({"keep_first": 0, "target_share": 0.2, "user_share": 0.5, "max_addresses": 1})),
        ("hybrid", json!({"attention_window": 2, "polling": 2, "minimum_progress": 0.0})),
        ("hybrid", json!({"attention_window": 1, "polling": 1, "target_share": 0.05, "keep_first": 0})),
        ("codex", json!({"token_limit": 300, "user_tokens": 80})),
        (
            "anthropic-clear-tool-uses",
            json!({"trigger_tokens": 300, "keep": 1, "clear_at_least": 20, "clear_tool_inputs": ["edit"]}),
        ),
        ("adk", json!({"token_threshold": 600, "event_retention_size": 4})),
        ("complexity-trap-masking", json!({"raw_turns": 2})),
        ("complexity-trap-summary", json!({"raw_turns": 2, "folded_turns": 8})),
        ("complexity-trap-hybrid", json!({"raw_turns": 1, "folded_turns": 9})),
        ("opencode-v2", json!({"buffer": 200, "keep_tokens": 100})),
    ] {
        policies.push(find(&list, name).unwrap().build(settings.as_object().unwrap()).unwrap());
    }
    let members = ["observation-masking", "recent-events", "llm-summarizing"].map(|name| by_name(name).unwrap().into());
    policies.push(Box::new(Pipeline::new("pipeline", members.into())));
    policies
}

/// A summarizer that checks that it was handed all that leaves, and that writes nothing twice.
struct Checked<'l>(&'l dyn Summarizer);

impl Summarizer for Checked<'_> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn summarize(&self, request: &SummaryRequest) -> Result<Summary, SummarizeError> {
        let ids: BTreeSet<_> = request.events.iter().map(|(id, _)| id).collect();
        assert_eq!(ids.len(), request.events.len(), "an event is handed over twice");
        assert!(!request.events.is_empty());
        assert!(request.kept.iter().all(|(id, _)| !ids.contains(id)), "what is summarized does not stay");
        self.0.summarize(request)
    }
}

fn run(seeds: &[Seed], window: Option<u64>, recall: bool, failures: u8, policy: &dyn Policy) -> Vec<Event> {
    let mut log = Log { events: vec![], window, recall };
    if failures & 64 == 0 {
        log.add("s");
    }
    for (round, chunk) in seeds.chunks(24).enumerate() {
        for &seed in chunk {
            let n = log.events.len();
            log.events.push(event(n, seed));
        }
        let scripted = Scripted::new(&[Err("down"), Ok(" "), Ok("notes"), Err("down")][..usize::from(failures % 5)]);
        let summarizer: &dyn Summarizer = if round % 2 == 0 { &scripted } else { &Extractive::default() };
        for _again in 0..4 {
            let old = log.view();
            let outcome = log.condense(policy, &Checked(summarizer));
            let OutcomeKind::Applied(record) = &outcome.result else { break };
            let lost: BTreeSet<EventId> = old
                .iter()
                .filter(|e| !e.is_summary())
                .map(|e| e.id().clone())
                .filter(|id| record.forgotten_event_ids.contains(id))
                .collect();
            // A fold tells of what left by itself.
            let is_fold = record.provenance.as_ref().is_some_and(|provenance| !provenance.fallbacks.is_empty());
            let is_asked = round % 2 == 0 && policy.name() == "llm-summarizing" && !is_fold;
            if let Some(request) = scripted.asked().last().filter(|_| is_asked) {
                let handed: BTreeSet<EventId> = request.events.iter().map(|(id, _)| id.clone()).collect();
                assert_eq!(lost, handed, "the summary speaks of exactly what left");
                let had_summary = old.iter().any(|e| e.is_summary() && record.forgotten_event_ids.contains(e.id()));
                assert_eq!(request.previous.is_some(), had_summary);
            }
        }
    }
    log.events
}

/// Writes notes that can be told apart over a whole run, and remembers what it was asked.
#[derive(Default)]
struct Numbered(Mutex<Vec<SummaryRequest>>, AtomicUsize);

impl Summarizer for Numbered {
    fn name(&self) -> &str {
        "numbered"
    }

    fn summarize(&self, request: &SummaryRequest) -> Result<Summary, SummarizeError> {
        self.0.lock().unwrap().push(request.clone());
        Ok(Summary { text: format!("(notes {})", self.1.fetch_add(1, Ordering::Relaxed)), ..Summary::default() })
    }
}

/// Condenses in rounds: what stood in the view stands in the next one, or was handed to the summary that took its
/// place, or is listed as forgotten without one.
fn check_handed_on(policy: &dyn Policy, seeds: &[Seed], window: Option<u64>) {
    // A pipeline may hold members that forget without a summary; a port may do so as its original does.
    let is_pipeline = policy.name() == "pipeline";
    let is_strict = !is_pipeline && !policy.is_port();
    let mut log = Log { events: vec![], window, recall: true };
    log.add("s");
    let summarizer = Numbered::default();
    for chunk in seeds.chunks(20) {
        for &seed in chunk {
            let n = log.events.len();
            log.events.push(event(n, seed));
        }
        log.add("q");
        let old = log.view();
        let outcome = log.condense(policy, &summarizer);
        let asked = std::mem::take(&mut *summarizer.0.lock().unwrap());
        let OutcomeKind::Applied(record) = outcome.result else { continue };
        let new = log.view();
        let provenance = record.provenance.as_deref().unwrap();
        let is_summarized = !asked.is_empty() && provenance.fallbacks.is_empty();
        let asked_of = |id: &EventId| asked.iter().flat_map(|request| &request.events).any(|(other, _)| other == id);
        for entry in old.iter() {
            let id = entry.id();
            if new.position(id).is_some() {
                continue;
            }
            assert!(record.forgotten_event_ids.contains(id), "{}: {id} is gone and not listed", policy.name());
            if !is_summarized {
                continue;
            }
            match entry.summary() {
                None => {
                    let is_unseen = provenance.unseen.contains(id);
                    assert!(asked_of(id) != is_unseen, "{}: {id} is neither handed on nor listed", policy.name());
                    assert!(!is_strict || !is_unseen, "{}: {id} is not handed on", policy.name());
                }
                Some(text) => {
                    let times =
                        |request: &SummaryRequest| (request.system() + &request.input()).matches(text.trim()).count();
                    let most = asked.iter().map(times).max().unwrap_or(0);
                    // A port finds the summary that its original would have made; here other policies made some too.
                    assert!(!is_strict || most > 0, "{}: a summary is not handed on", policy.name());
                    assert!(!is_strict || most == 1, "{}: a summary is handed on twice", policy.name());
                }
            }
        }
    }
}

proptest! {
    // Each case runs every policy: an eighth of the usual number, PROPTEST_CASES included.
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 8,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_policy_is_legal_bounded_and_deterministic_on_any_log(
        seeds in prop::collection::vec((any::<u8>(), any::<u8>(), any::<u8>(), 0u16..60), 0..90),
        window in prop::option::of(0u64..4000),
        recall in any::<bool>(),
        failures in any::<u8>(),
    ) {
        for policy in all_policies() {
            let events = run(&seeds, window, recall, failures, &*policy);
            prop_assert_eq!(&events, &run(&seeds, window, recall, failures, &*policy));
        }
    }

    #[test]
    fn what_one_condensation_kept_is_kept_again_or_handed_to_the_next_summary(
        seeds in prop::collection::vec((any::<u8>(), any::<u8>(), any::<u8>(), 0u16..60), 0..120),
        window in prop::option::of(1000u64..8000),
    ) {
        for policy in all_policies() {
            check_handed_on(&*policy, &seeds, window);
        }
    }

    #[test]
    fn condensing_again_and_again_comes_to_rest(
        seeds in prop::collection::vec((any::<u8>(), any::<u8>(), any::<u8>(), 0u16..60), 0..90),
        window in prop::option::of(500u64..4000),
    ) {
        // Rounds that each make the request strictly smaller come to an end, also where the summarizer's input is
        // bounded and each round takes up a few events only.
        for policy in all_policies() {
            let mut log = Log { events: seeds.iter().enumerate().map(|(n, &seed)| event(n, seed)).collect(), window, recall: true };
            let n_rounds = (0..20)
                .take_while(|_| matches!(log.condense(&*policy, &Scripted::default()).result, OutcomeKind::Applied(_)))
                .count();
            prop_assert!(n_rounds < 16, "{}: {} rounds", policy.name(), n_rounds);
        }
    }
}
