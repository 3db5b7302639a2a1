//! What runs cost: a worked example to the token, and what a rewritten prefix costs on real traces.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "these are tests")]

use std::path::PathBuf;

use condenser::event::{Action, ContentBlock, Event, EventKind, Message, Observation, Role, Source, SystemPrompt};
use condenser::header::Class;
use condenser::policy::{
    Edit, Failure, NoPlan, Plan, Policy, Reason, Requirement, State, SummarizeError, Summarizer, Summary,
    SummaryRequest,
};
use condenser::profile::{CacheRules, ModelProfile, Prices};
use condenser::request::TOKENS_PER_MESSAGE;
use condenser::tokens::{CharsPer4, TokenCounter, Tokens};
use condenser::view::Rules;
use condenser_harness::{Basis, Prepared, Row, Settings, Subject, charged, run};
use condenser_policies::{Extractive, policies};
use condenser_traces::{Reader, find};
use serde_json::{Value, json};

/// One token per word.
struct Words;

impl TokenCounter for Words {
    fn name(&self) -> &str {
        "words"
    }
    fn count(&self, text: &str) -> Tokens {
        Tokens(text.split_whitespace().count() as u64)
    }
}

fn words(n: u64) -> String {
    vec!["w"; n as usize].join(" ")
}

/// Traces with fewer steps say little about caches.
const LONG: usize = 100;

const N: u64 = 30;
const PREFIX: u64 = 4_000;
const STEP: u64 = 3_000;
const AFTER: u64 = 15;

/// Forgets all calls and results once there are fifteen, for a summary of 4,000 tokens.
struct Once;

impl Policy for Once {
    fn name(&self) -> &str {
        "once"
    }
    fn requirement(&self, state: &State<'_>) -> Requirement {
        let n_results = state.view.iter().filter(|entry| entry.class() == Class::Observation).count() as u64;
        let is_due = n_results == AFTER && state.view.records().len() == 0;
        if is_due { Requirement::Soft(vec![Reason::Policy]) } else { Requirement::None }
    }
    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        if !tried.is_empty() {
            return Err(NoPlan::Exhausted);
        }
        let steps = state.view.iter().filter(|entry| matches!(entry.class(), Class::Action | Class::Observation));
        let forget = steps.map(|entry| entry.id().clone()).collect();
        let edit = Edit { forget, ..Edit::default() };
        Ok(Plan::Summarize { edit, offset: 2, request: SummaryRequest::default() })
    }
}

struct Writes;

impl Summarizer for Writes {
    fn name(&self) -> &str {
        "writes"
    }
    fn summarize(&self, _: &SummaryRequest) -> Result<Summary, SummarizeError> {
        // The call reads the request as it stands after fifteen steps.
        let input_tokens = Tokens(PREFIX + STEP * AFTER);
        Ok(Summary { text: words(4_000), input_tokens, output_tokens: Tokens(4_000), ..Summary::default() })
    }
}

fn profile() -> ModelProfile {
    ModelProfile {
        name: "reference".to_owned(),
        context_window: None,
        max_output: None,
        tokenizer: None,
        prices: Some(Prices { input: 3.0, cache_read: 0.3, cache_write: 3.75, output: 15.0 }),
        cache: Some(CacheRules { minimum: Tokens(1024), block: Tokens(1), expiry_seconds: None, charges_writes: true }),
    }
}

/// A run of thirty steps: 4,000 tokens before the first, and 3,000 more with each.
fn worked_example() -> Vec<Event> {
    let per_message = TOKENS_PER_MESSAGE.0;
    let event = |id: String, kind| Event::new(id.as_str(), Source::Agent, kind);
    let system = SystemPrompt {
        content: vec![ContentBlock::text(words(PREFIX - 100 - 2 * per_message))],
        ..SystemPrompt::default()
    };
    let user = Message::text(Role::User, words(100));
    let mut events = vec![
        event("system".to_owned(), EventKind::SystemPrompt(system)),
        Event::new("user", Source::User, EventKind::Message(user)),
    ];
    for step in 0..N {
        let call = format!("call-{step}");
        // The tool's name is one word, its arguments another.
        let action: Action = serde_json::from_value(json!({
            "call_id": call, "tool_name": "look", "arguments": "{}", "response_id": format!("r{step}"),
        }))
        .unwrap();
        let observation: Observation = serde_json::from_value(json!({
            "call_id": call, "tool_name": "look",
            "content": [{"type": "text", "text": words(STEP - 2 - 2 * per_message)}],
        }))
        .unwrap();
        events.push(event(format!("a{step}"), EventKind::Action(action)));
        events.push(event(format!("o{step}"), EventKind::Observation(observation)));
    }
    events
}

#[test]
fn the_worked_example_costs_what_was_worked_out() {
    let events = worked_example();
    let subject = Subject { trace: "worked", format: "own", task: None, events: &events };
    let prepared = Prepared::new(subject, &Words, Rules::Sound);
    let profile = profile();
    let settings =
        Settings { window: None, reserve: Tokens(0), profile: &profile, summarizer: &Writes, seed: 0, recall: false };
    let none = policies().into_iter().find(|info| info.name == "none").unwrap();
    let whole = run(&prepared, &*none.build(&serde_json::Map::new()).unwrap(), &settings);
    assert_eq!(whole.row.input_tokens, 1_425_000);
    assert_eq!(whole.steps.tokens[29], 91_000);

    let once = run(&prepared, &Once, &settings);
    let (before, after) = once.steps.tokens.split_at(AFTER as usize);
    assert_eq!((before.iter().sum::<u64>(), after.iter().sum::<u64>()), (375_000, 435_000));
    assert_eq!((once.steps.tokens[29], once.row.summarizer_input_tokens), (50_000, 49_000));
    assert_eq!(once.row.input_tokens + once.row.summarizer_input_tokens, 859_000);
    // After the record the requests share the prefix only; each later one shares all of the one before.
    assert_eq!(once.steps.shared[AFTER as usize], PREFIX);
    assert_eq!(once.steps.shared[AFTER as usize + 1..], once.steps.tokens[AFTER as usize..29]);
}

#[test]
fn masking_at_every_step_saves_tokens_and_costs_money_where_prefixes_are_cached() {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let shared = std::env::var_os("CONDENSER_SHARED").map_or_else(|| root.join("../shared"), PathBuf::from);
    let folder = shared.join("traces");
    if !folder.is_dir() {
        println!("skipped: the recorded traces are not here");
        return;
    }
    let (profile, summarizer) = (profile(), Extractive::default());
    let settings = Settings {
        window: Some(Tokens(128_000)),
        reserve: Tokens(4_000),
        profile: &profile,
        summarizer: &summarizer,
        seed: 0,
        recall: true,
    };
    let policy = |name: &str, polling: Option<u64>| {
        let info = policies().into_iter().find(|info| info.name == name).unwrap();
        info.build(&polling.map(|n| ("polling".to_owned(), Value::from(n))).into_iter().collect()).unwrap()
    };
    let mut shown = Vec::new();
    for candidate in find(&folder).unwrap() {
        let Ok(Ok(traces)) = Reader::open(&candidate.path, None).map(Reader::into_traces) else { continue };
        for trace in traces {
            let subject = Subject { trace: &trace.name, format: trace.format, task: None, events: &trace.events };
            let prepared = Prepared::new(subject, &CharsPer4, Rules::Sound);
            if prepared.n_steps() < LONG {
                continue;
            }
            let row = |policy: &dyn Policy| run(&prepared, policy, &settings).row;
            let cost = |row: &Row, basis: Basis| row.price(&basis.prices(&charged(&profile).unwrap()));
            let none = row(&*policy("none", None));
            let always = row(&*policy("observation-masking", Some(1)));
            let polled = row(&*policy("observation-masking", Some(10)));
            let both = |basis| [&none, &always, &polled].map(|row| cost(row, basis));
            let ([none_plain, always_plain, _], [none_tiered, always_tiered, polled_tiered]) =
                (both(Basis::Uncached), both(Basis::Tiered));
            println!(
                "{}, {} steps: uncached none {none_plain:.2}, always {always_plain:.2}; tiered none {none_tiered:.2}, \
                 always {always_tiered:.2}, polled {polled_tiered:.2}",
                candidate.path.file_name().unwrap().display(),
                prepared.n_steps(),
            );
            assert!(polled_tiered < always_tiered, "{}", trace.name);
            if always_plain < none_plain && always_tiered > none_tiered {
                shown.push(trace.name.clone());
            }
        }
    }
    assert!(!shown.is_empty(), "no long trace shows it");
}
