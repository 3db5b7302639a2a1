//! Against a real model server on this machine: `cargo xtask models` starts it and runs these.
//!
//! The model is small and writes nonsense, so answers are bound by a grammar where they have to come to an end. What is
//! tested is what goes over the wire: requests are accepted, refused, counted, cut and given up.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::panic, reason = "helpers of tests; figures are printed")]

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use condenser::event::{EventKind, Message, Role, Source, Usage};
use condenser::profile::{CacheRules, ModelProfile};
use condenser::request::Api;
use condenser::{
    Budget, BudgetSettings, Condenser, Event, EventId, Failure, OutcomeKind, Policy, Rejection, Request, Rules, Sizer,
    State, SummarizeError, TokenCounter, Tokens, View,
};
use condenser_harness::{Prepared, Settings, Subject, run_observed};
use condenser_llm::{CallError, Client, ModelSettings, condense};
use condenser_policies::{Extractive, LlmSummarizing, SummarizingSettings};
use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;

/// Steps of the session that outgrows its window.
const STEPS: usize = 20;
/// The window of the server.
const SERVED: u64 = 4096;

/// The server, where there is one.
struct Server {
    url: String,
    plain: Plain,
}

/// A few requests that are not for models, over a socket.
struct Plain {
    address: String,
}

impl Plain {
    fn send(&self, method: &str, path: &str, body: &str) -> String {
        use std::io::{Read as _, Write as _};
        let mut stream = std::net::TcpStream::connect(&self.address).unwrap();
        let request = format!(
            "{method} {path} HTTP/1.0\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(" 200 "), "{path}: {head} {body}");
        body.to_owned()
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        serde_json::from_str(&self.send("POST", path, &body.to_string())).unwrap()
    }
}

impl Server {
    /// `None`, and a word on why, where no server was started.
    fn find() -> Option<Self> {
        let Ok(url) = std::env::var("CONDENSER_MODEL_SERVER") else {
            println!("skipped: CONDENSER_MODEL_SERVER names no server; `cargo xtask models` starts one");
            return None;
        };
        let address = url.strip_prefix("http://").unwrap().to_owned();
        Some(Self { url, plain: Plain { address } })
    }

    /// A client whose answers are bound by this grammar.
    fn client(&self, grammar: Option<&str>) -> Client {
        let mut settings = ModelSettings::new(Api::OpenAiChat, "gemma");
        settings.base_url = Some(format!("{}/v1", self.url));
        settings.timeout_seconds = 600.0;
        settings.temperature = Some(0.0);
        if let Some(grammar) = grammar {
            settings.body.insert("grammar".into(), grammar.into());
        }
        Client::new(settings, None).unwrap()
    }

    fn tokens(&self, text: &str, add_special: bool) -> Vec<u64> {
        let body = json!({"content": text, "add_special": add_special, "parse_special": true});
        let tokens = self.plain.post("/tokenize", &body);
        tokens["tokens"].as_array().unwrap().iter().map(|token| token.as_u64().unwrap()).collect()
    }

    /// The tokens of a request as the server's own template writes it.
    fn prompt(&self, request: &Value) -> Vec<u64> {
        let prompt = self.plain.post("/apply-template", &json!({"messages": request["messages"]}));
        self.tokens(prompt["prompt"].as_str().unwrap(), true)
    }

    /// What the server counted since it started: tokens read that were not cached, and tokens written.
    fn totals(&self) -> [u64; 2] {
        let text = self.plain.send("GET", "/metrics", "");
        ["llamacpp:prompt_tokens_total ", "llamacpp:tokens_predicted_total "].map(|name| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().parse::<f64>().unwrap() as u64
        })
    }

    fn is_busy(&self) -> bool {
        let slots: Value = serde_json::from_str(&self.plain.send("GET", "/slots", "")).unwrap();
        slots[0]["is_processing"] == true
    }
}

/// The server's tokenizer, with what its template puts around a message: each message of these tests has one text.
struct Counter<'s> {
    server: &'s Server,
    around: u64,
    known: Mutex<HashMap<String, u64>>,
}

impl<'s> Counter<'s> {
    fn new(server: &'s Server) -> Self {
        let count = |n: usize| {
            let messages: Vec<Value> = (0..n).map(|_| json!({"role": "user", "content": "x"})).collect();
            server.prompt(&json!({"messages": messages})).len() as u64
        };
        let around = count(3) - count(2) - server.tokens("x", false).len() as u64;
        Self { server, around, known: Mutex::default() }
    }
}

impl TokenCounter for Counter<'_> {
    fn name(&self) -> &str {
        "server"
    }

    fn count(&self, text: &str) -> Tokens {
        if text.is_empty() {
            return Tokens::ZERO;
        }
        let mut known = self.known.lock().unwrap();
        let n = *known.entry(text.to_owned()).or_insert_with(|| self.server.tokens(text, false).len() as u64);
        // A request counts 4 tokens around each message.
        Tokens(n + self.around - 4)
    }
}

fn message(n: usize, role: Role, text: impl Into<String>, usage: Option<Usage>) -> Event {
    let source = if role == Role::User { Source::User } else { Source::Agent };
    let mut event = Event::new(format!("e{n}"), source, EventKind::Message(Message::text(role, text.into())));
    event.usage = usage;
    event
}

fn body(request: &Request<'_>) -> Map<String, Value> {
    let value = request.to_openai_chat();
    assert!(condenser::request::validate(Api::OpenAiChat, &value).is_empty(), "{value}");
    let Value::Object(body) = value else { panic!("{value}") };
    body
}

/// With a prompt that is soon read.
fn short() -> SummarizingSettings {
    SummarizingSettings { prompt: Some("Write notes on the events.".into()), ..SummarizingSettings::default() }
}

fn note(n: usize) -> String {
    format!("Step {n}: look at src/part{n}.rs, run the tests of part {n} and report what fails there, line by line.")
}

#[test]
fn a_session_outgrows_a_small_window_and_goes_on() {
    let Some(server) = Server::find() else { return };
    let runtime = Runtime::new().unwrap();
    let agent = server.client(Some("root ::= \"fine \" [a-z]{3,12}"));
    let summarizer = server.client(Some("root ::= \"Notes: \" [a-z ]{20,60}"));
    let counter = Counter::new(&server);
    let policy = LlmSummarizing::new(SummarizingSettings { keep_first: 1, summary_tokens: Tokens(60), ..short() });
    let budgets = BudgetSettings { window: Some(Tokens(600)), reserve: Some(Tokens(60)), ..BudgetSettings::default() };
    let budgets = budgets.resolve(None);
    let start = server.totals();
    let (mut recorded, mut condensations, mut largest) = (0, 0, 0);
    let mut events = vec![message(0, Role::User, "Keep to the rules: never touch src/api.rs.", None)];
    let mut view = View::replay(&events, Rules::Sound);
    for step in 1..=STEPS {
        let event = message(events.len(), Role::User, note(step), None);
        view.push(&event);
        events.push(event);
        let outcome = {
            let sizer = Sizer::new(&counter);
            let mut state = State::with_budgets(&view, &events, &sizer, budgets);
            state.reported = state.reported_size();
            state.recall = false;
            runtime.block_on(condense(&Condenser::default(), &policy, &state, &summarizer))
        };
        let refusal = outcome.refusal();
        match outcome.result {
            OutcomeKind::Applied(record) => {
                condensations += 1;
                let provenance = record.provenance.as_ref().unwrap();
                assert_eq!(provenance.summarizer.as_deref(), Some("openai/gemma"));
                assert!(record.summary.as_ref().unwrap().starts_with("Notes: "));
                recorded += provenance.summarizer_output_tokens;
                let event = Event::new(format!("c{step}"), Source::Agent, EventKind::Condensation(*record));
                view.push(&event);
                events.push(event);
            }
            OutcomeKind::NothingToDo => assert!(refusal.is_none()),
            _ => panic!("{}", outcome.explain()),
        }
        let before = server.totals();
        let reply = runtime.block_on(agent.send(body(&Request::build(&view, &events)), Some(Tokens(20)))).unwrap();
        let usage = reply.usage.unwrap();
        let after = server.totals();
        let [read, written] = [after[0] - before[0], after[1] - before[1]];
        assert_eq!((usage.input_tokens, usage.output_tokens), (Some(read), Some(written)), "as the server counted it");
        largest = largest.max(usage.total_input().unwrap());
        recorded += written;
        let event = message(events.len(), Role::Assistant, reply.text, Some(usage));
        view.push(&event);
        events.push(event);
    }
    let end = server.totals();
    println!("{condensations} condensations in {STEPS} steps, the largest request has {largest} tokens");
    assert!(condensations >= 3, "{condensations}");
    assert!(largest <= 600, "{largest}");
    assert_eq!(recorded, end[1] - start[1], "what was recorded as written is what the server wrote");
    let texts: Vec<&Event> = events.iter().filter(|event| event.id == EventId::new("e0")).collect();
    assert!(texts.len() == 1 && view.ids().any(|id| *id == texts[0].id), "the first message is still shown");
}

#[test]
fn a_request_that_is_too_long_is_refused_and_recovered_from() {
    let Some(server) = Server::find() else { return };
    let runtime = Runtime::new().unwrap();
    let agent = server.client(Some("root ::= \"fine\""));
    let summarizer = server.client(Some("root ::= \"Notes: \" [a-z ]{20,60}"));
    let counter = Counter::new(&server);
    let mut events: Vec<Event> = (0..40)
        .map(|n| message(n, if n % 2 == 0 { Role::User } else { Role::Assistant }, note(n).repeat(5), None))
        .collect();
    events.push(message(40, Role::User, "Go on.", None));
    let mut view = View::replay(&events, Rules::Sound);
    // The host is mistaken about the window.
    let budgets = BudgetSettings { window: Some(Tokens(100_000)), ..BudgetSettings::default() }.resolve(None);
    let error = runtime.block_on(agent.send(body(&Request::build(&view, &events)), Some(Tokens(4)))).unwrap_err();
    let CallError::TooLong { limit, .. } = &error else { panic!("{error}") };
    assert_eq!(*limit, Some(Tokens(SERVED)));

    let event = Event::new("refused", Source::Environment, Rejection::event());
    view.push(&event);
    events.push(event);
    let settings = SummarizingSettings { input_tokens: Some(Tokens(600)), event_characters: 200, ..short() };
    let policy = LlmSummarizing::new(SummarizingSettings { summary_tokens: Tokens(60), ..settings });
    let outcome = {
        let sizer = Sizer::new(&counter);
        let state = State::with_budgets(&view, &events, &sizer, budgets).rejected(error.rejection().unwrap());
        let condenser = Condenser {
            fallbacks: &[&condenser_policies::RecentEvents::default() as &dyn Policy],
            ..Default::default()
        };
        runtime.block_on(condense(&condenser, &policy, &state, &summarizer))
    };
    let explained = outcome.explain();
    let OutcomeKind::Applied(record) = outcome.result else { panic!("{explained}") };
    let event = Event::new("c", Source::Agent, EventKind::Condensation(*record));
    view.push(&event);
    events.push(event);
    let reply = runtime.block_on(agent.send(body(&Request::build(&view, &events)), Some(Tokens(4)))).unwrap();
    let input = reply.usage.unwrap().total_input().unwrap();
    println!("{error}; {explained}; accepted with {input} tokens");
    assert!(input < SERVED * 9 / 10);
}

#[test]
fn a_summary_cut_by_its_length_is_refused() {
    let Some(server) = Server::find() else { return };
    let runtime = Runtime::new().unwrap();
    let counter = Counter::new(&server);
    let events: Vec<Event> =
        (0..13).map(|n| message(n, if n % 2 == 0 { Role::User } else { Role::Assistant }, note(n), None)).collect();
    let view = View::replay(&events, Rules::Sound);
    let sizer = Sizer::new(&counter);
    // The grammar asks for more than the limit allows.
    let summarizer = server.client(Some("root ::= [a-z]{400,500}"));
    let settings = SummarizingSettings { max_events: Some(8), summary_tokens: Tokens(8), ..short() };
    let policy = LlmSummarizing::new(settings);
    let mut state = State::new(&view, &events, &sizer, Budget { window: Some(Tokens(4000)), reserve: Tokens(100) });
    state.recall = false;
    let outcome = runtime.block_on(condense(&Condenser::default(), &policy, &state, &summarizer));
    assert!(!matches!(outcome.result, OutcomeKind::Applied(_)), "{}", outcome.explain());
    assert!(!outcome.facts.tried.is_empty());
    for tried in &outcome.facts.tried {
        assert_eq!(*tried, Failure::Summarizer(SummarizeError::CutByLength));
    }
    assert_eq!(outcome.facts.summarizer_output_tokens, Tokens(8 * outcome.facts.summarizer_calls));
}

#[test]
fn a_call_that_is_cancelled_in_flight_records_nothing() {
    let Some(server) = Server::find() else { return };
    let runtime = Runtime::new().unwrap();
    let counter = Counter::new(&server);
    let events: Vec<Event> =
        (0..13).map(|n| message(n, if n % 2 == 0 { Role::User } else { Role::Assistant }, note(n), None)).collect();
    let view = View::replay(&events, Rules::Sound);
    let sizer = Sizer::new(&counter);
    let summarizer = server.client(Some("root ::= [a-z]{1500,1800}"));
    let settings = SummarizingSettings { max_events: Some(8), summary_tokens: Tokens(60), ..short() };
    let policy = LlmSummarizing::new(settings);
    let mut state = State::new(&view, &events, &sizer, Budget { window: Some(Tokens(4000)), reserve: Tokens(100) });
    state.recall = false;
    let poll = |wanted: bool| {
        let server = &server;
        async move {
            while server.is_busy() != wanted {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    };
    let request = Request::build(&view, &events).to_openai_chat();
    let condenser = Condenser::default();
    runtime.block_on(async {
        tokio::select! {
            outcome = condense(&condenser, &policy, &state, &summarizer) => panic!("{}", outcome.explain()),
            () = poll(true) => {}
        }
        // Dropped, and the connection with it. This server writes to its end all the same; nobody hears it.
        poll(false).await;
    });
    assert_eq!(Request::build(&view, &events).to_openai_chat(), request);
    assert_eq!(events.len(), 13);
}

/// A recorded session as plain messages of two sides in turn: the server's template knows no calls.
fn as_messages(events: &[Event]) -> Vec<Event> {
    let mut messages: Vec<(Role, String)> = Vec::new();
    for event in events {
        let role = match &event.kind {
            EventKind::Action(_) => Role::Assistant,
            EventKind::Message(message) if message.role == Role::Assistant => Role::Assistant,
            EventKind::Message(_) | EventKind::Observation(_) | EventKind::SystemPrompt(_) => Role::User,
            _ => continue,
        };
        let text: String = condenser::request::text_of(&event.kind).chars().take(500).collect();
        if text.trim().is_empty() {
            continue;
        }
        match messages.last_mut() {
            Some((last, all)) if *last == role => {
                all.push('\n');
                all.push_str(text.trim());
            }
            _ => messages.push((role, text.trim().to_owned())),
        }
    }
    messages.into_iter().enumerate().map(|(n, (role, text))| message(n, role, text, None)).collect()
}

#[test]
fn our_count_of_cached_tokens_is_the_servers() {
    let Some(server) = Server::find() else { return };
    let runtime = Runtime::new().unwrap();
    let counter = Counter::new(&server);
    let agent = server.client(None);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/traces/tally-csv.pi.jsonl");
    let trace = condenser_traces::read_path(path.as_ref(), None).unwrap().remove(0);
    let mut events = as_messages(&trace.events);
    // As much of it as is read in a minute or two.
    let mut size = Tokens::ZERO;
    let n = events.iter().take_while(|event| {
        size += counter.count(&condenser::request::text_of(&event.kind)) + Tokens(4);
        size < Tokens(2200)
    });
    let n = n.count();
    events.truncate(n);
    let subject = Subject { trace: "tally-csv", format: "pi", task: None, events: &events };
    let prepared = Prepared::new(subject, &counter, Rules::Sound);
    let cache = CacheRules { minimum: Tokens(0), block: Tokens(1), expiry_seconds: None, charges_writes: false };
    let profile = ModelProfile {
        name: "server".into(),
        context_window: None,
        max_output: None,
        tokenizer: None,
        prices: None,
        cache: Some(cache),
    };
    for (name, window) in [("none", 100_000), ("llm-summarizing", 1500), ("llm-summarizing", 1100)] {
        let policy = condenser_policies::by_name(name).unwrap();
        let summarizer = Extractive { max_tokens: Tokens(100) };
        let settings = Settings {
            window: Some(Tokens(window)),
            reserve: Tokens(100),
            profile: &profile,
            summarizer: &summarizer,
            seed: 0,
            recall: false,
        };
        // Whatever is cached from before is not of this run.
        let other = Map::from_iter([("messages".to_owned(), json!([{"role": "user", "content": name}]))]);
        runtime.block_on(agent.send(other, Some(Tokens(1)))).unwrap();
        let (mut ours, mut of_prompt, mut theirs, mut input, mut condensed) = (0, 0, 0, 0, 0);
        let mut previous: Vec<u64> = Vec::new();
        let mut is_first = true;
        run_observed(&prepared, &*policy, &settings, &mut |seen| {
            let body = body(seen.request);
            let prompt = server.prompt(&Value::Object(body.clone()));
            let usage = runtime.block_on(agent.send(body, Some(Tokens(1)))).unwrap().usage.unwrap();
            assert_eq!(usage.total_input(), Some(prompt.len() as u64));
            condensed += u64::from(seen.record.is_some());
            let shared = previous.iter().zip(&prompt).take_while(|(a, b)| a == b).count();
            previous = prompt;
            if std::mem::take(&mut is_first) {
                return;
            }
            // The newest token is always read: it has to be answered.
            of_prompt += shared.min(previous.len() - 1) as u64;
            ours += seen.cached.0;
            theirs += usage.cache_read_tokens.unwrap_or(0);
            input += previous.len() as u64;
        });
        let off = |ours: u64| (ours as f64 / theirs as f64 - 1.0) * 100.0;
        println!(
            "{name} in {window}: {condensed} condensations; of {input} tokens the server had {theirs} cached; the prefix of its tokens \
             is {of_prompt} ({:+.2}%), our count {ours} ({:+.2}%)",
            off(of_prompt),
            off(ours)
        );
        assert_eq!(condensed > 0, name != "none", "{name}");
        assert!(off(of_prompt).abs() <= 2.0 && off(ours).abs() <= 2.0, "{name}");
    }
}
