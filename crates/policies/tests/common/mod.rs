//! Logs, states and summarizers for the tests of all policies.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

use std::cell::RefCell;
use std::sync::Mutex;

use ::condenser::event::{
    Action, CondensationRequest, ContentBlock, Message, Observation, Outcome as Ending, Pin, Role, Source, SystemPrompt,
};
use ::condenser::request::openai::validate_openai_chat;
use ::condenser::tokens::CharsPer4;
use ::condenser::*;

pub(crate) static COUNTER: CharsPer4 = CharsPer4;

/// A log that grows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    pub(crate) events: Vec<Event>,
    pub(crate) window: Option<u64>,
    pub(crate) recall: bool,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self { recall: true, ..Self::default() }
    }

    /// One event a word: `s` system prompt, `u` user, `a` assistant, `d` system message, `c1` call, `r1` its answer,
    /// `e1` its failure, `t1` a call with thinking, `C1.x`/`T1.x` a call of response x, `p2` a pin of the event at
    /// position 2, `q` a request. Ids are positions: `e0`, `e1`, … A `*20` behind a word gives 20 more words of text.
    pub(crate) fn script(script: &str) -> Self {
        let mut log = Self::new();
        for word in script.split_whitespace() {
            log.add(word);
        }
        log
    }

    pub(crate) fn add(&mut self, word: &str) {
        let (word, more) = word.split_once('*').unwrap_or((word, "0"));
        let n = self.events.len();
        let more = "word ".repeat(more.parse().unwrap());
        let text = |what: &str| vec![ContentBlock::text(format!("{what} {n}. {more}"))];
        let (head, rest) = word.split_at(1);
        let message = |role, what: &str| EventKind::Message(Message { content: text(what), ..Message::text(role, "") });
        let call = |thinking: bool| {
            let (call, response) = rest.split_once('.').map_or((rest, None), |(call, response)| (call, Some(response)));
            EventKind::Action(Action {
                call_id: format!("call{call}"),
                tool_name: "bash".into(),
                arguments: format!(r#"{{"command": "run {n} {more}"}}"#),
                thinking: if thinking {
                    vec![ContentBlock::Thinking { thinking: "hm".into(), signature: Some("s".into()) }]
                } else {
                    vec![]
                },
                response_id: response.map(str::to_owned),
                ..Action::default()
            })
        };
        let answer = |outcome| {
            EventKind::Observation(Observation {
                call_id: format!("call{rest}"),
                tool_name: "bash".into(),
                content: text("answer"),
                outcome,
                interim: false,
                extended_content: vec![],
            })
        };
        let kind = match head {
            "s" => EventKind::SystemPrompt(SystemPrompt { content: text("prompt"), ..SystemPrompt::default() }),
            "u" => message(Role::User, "user"),
            "a" => message(Role::Assistant, "assistant"),
            "d" => message(Role::System, "standing"),
            "c" | "C" => call(false),
            "t" | "T" => call(true),
            "r" => answer(Ending::Ok),
            "e" => answer(Ending::Error),
            "p" => EventKind::Pin(Pin { ids: vec![EventId::new(format!("e{rest}"))] }),
            "q" => EventKind::CondensationRequest(CondensationRequest {
                requested_by: Some("user".into()),
                guidance: Some("mind the parser".into()),
            }),
            other => panic!("no such word: {other}"),
        };
        self.events.push(Event::new(format!("e{n}"), Source::Agent, kind));
    }

    pub(crate) fn view(&self) -> View {
        View::replay(&self.events, Rules::Sound)
    }

    pub(crate) fn with_state<T>(&self, then: impl FnOnce(&State<'_>) -> T) -> T {
        let view = self.view();
        let sizer = Sizer::new(&COUNTER);
        let budget = Budget { window: self.window.map(Tokens), reserve: Tokens(0) };
        let mut state = State::new(&view, &self.events, &sizer, budget);
        state.recall = self.recall;
        then(&state)
    }

    /// Ids of the view, with `S` for a summary.
    pub(crate) fn shown(&self) -> String {
        let name = |entry: Entry<'_>| if entry.is_summary() { "S".into() } else { entry.id().as_str()[1..].to_owned() };
        self.view().iter().map(name).collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn summary(&self) -> Option<String> {
        self.view().iter().rev().find_map(|entry| entry.summary().map(str::to_owned))
    }

    /// The text of the whole request.
    pub(crate) fn request(&self) -> String {
        self.with_state(|state| state.request().to_openai_chat().to_string())
    }

    pub(crate) fn tokens(&self) -> Tokens {
        self.with_state(|state| state.counted())
    }

    /// Runs a policy once, appends its record, and checks what holds after every run.
    pub(crate) fn condense(&mut self, policy: &dyn Policy, summarizer: &dyn Summarizer) -> Outcome {
        let before = self.tokens();
        let old = self.view();
        let outcome = self.with_state(|state| Condenser::default().run(policy, state, summarizer));
        for failure in &outcome.facts.tried {
            assert!(
                !matches!(failure, Failure::Illegal(_) | Failure::Pinned(_)),
                "{} proposed what it may not: {failure:?}",
                policy.name()
            );
        }
        if let OutcomeKind::Applied(record) = &outcome.result {
            let n = self.events.len();
            let kind = EventKind::Condensation((**record).clone());
            self.events.push(Event::new(format!("e{n}"), Source::Environment, kind));
            assert!(self.tokens() < before, "{} gained nothing", policy.name());
            let new = self.view();
            for entry in old.iter() {
                let is_listed = record.forgotten_event_ids.contains(entry.id());
                assert_eq!(new.position(entry.id()).is_none(), is_listed, "{} left without being listed", entry.id());
                if entry.is_pinned() {
                    let after = new.get(new.position(entry.id()).unwrap()).unwrap();
                    assert_eq!(after.rewrite(), entry.rewrite());
                }
            }
            let violations = validate_openai_chat(&self.with_state(|state| state.request().to_openai_chat()));
            assert!(violations.is_empty(), "{violations:?}");
        }
        outcome
    }
}

/// Answers from a list, then `short notes`, and remembers what it was asked.
#[derive(Debug, Default)]
pub(crate) struct Scripted {
    pub(crate) answers: Mutex<RefCell<Vec<Result<String, SummarizeError>>>>,
    pub(crate) asked: Mutex<RefCell<Vec<SummaryRequest>>>,
}

impl Scripted {
    pub(crate) fn new(answers: &[Result<&str, &str>]) -> Self {
        let answers = answers.iter().rev().map(|answer| match answer {
            Ok(text) => Ok((*text).to_owned()),
            Err(error) => Err(SummarizeError::Failed((*error).to_owned())),
        });
        Self { answers: Mutex::new(RefCell::new(answers.collect())), ..Self::default() }
    }

    pub(crate) fn asked(&self) -> Vec<SummaryRequest> {
        self.asked.lock().unwrap().borrow().clone()
    }
}

impl Summarizer for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }

    fn summarize(&self, request: &SummaryRequest) -> Result<Summary, SummarizeError> {
        self.asked.lock().unwrap().borrow_mut().push(request.clone());
        let answer = self.answers.lock().unwrap().borrow_mut().pop();
        answer.unwrap_or(Ok("short notes".into())).map(|text| Summary { text, ..Summary::default() })
    }
}

/// The ids of forgotten events, without the leading `e`.
pub(crate) fn forgotten(outcome: &Outcome) -> String {
    match &outcome.result {
        OutcomeKind::Applied(record) => {
            let mut ids: Vec<&str> = record.forgotten_event_ids.iter().map(|id| &id.as_str()[1..]).collect();
            ids.sort_by_key(|id| id.parse::<usize>().unwrap_or(usize::MAX));
            ids.join(" ")
        }
        other => format!("{other:?}"),
    }
}
