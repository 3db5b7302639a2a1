//! Cases that were written by hand: the short forms they use, and a log that goes all the way of a policy.
//!
//! `{"repeat": TEXT, "times": N}` stands for a text. A log is a list: a text of words, or one event with its text,
//! `{"user": TEXT}`, `{"assistant": TEXT}`, `{"call": [ID, TOOL, ARGUMENTS]}`, `{"result": [ID, TEXT]}`. The words are `s`
//! system prompt, `d` system message, `u` user, `a` assistant, `c1` call, `C1.x` call of response x, `r1` its answer, `e1` its
//! failure, `p2` a pin of the event at position 2, `q` a request; `*20` behind a word gives 20 more words of text. The text
//! of a message is its role and its position, of a result `answer` and its position.

use condenser::event::{
    Action, CondensationRequest, ContentBlock, Message, Observation, Outcome, Pin, Role, Source, SystemPrompt,
};
use condenser::tokens::CharsPer4;
use condenser::{
    Bodies, Budget, Condenser, Event, EventId, EventKind, OutcomeKind, Rules, Shown, Sizer, State, SummarizeError,
    Summarizer, Summary, SummaryRequest, Tokens, View,
};
use condenser_policies::{Extractive, find, policies};
use serde_json::{Map, Value, json};
use std::sync::Mutex;

use super::Answer;

/// Puts texts in the place of their short forms.
pub(super) fn expanded(value: &Value) -> Value {
    match value {
        Value::Object(fields) => match (fields.get("repeat").and_then(Value::as_str), fields.get("times")) {
            (Some(text), Some(times)) => json!(text.repeat(times.as_u64().unwrap_or_default() as usize)),
            _ => fields.iter().map(|(key, value)| (key.clone(), expanded(value))).collect::<Map<_, _>>().into(),
        },
        Value::Array(items) => items.iter().map(expanded).collect(),
        other => other.clone(),
    }
}

/// Settings over their defaults.
pub(super) fn settings<S: serde::Serialize + serde::de::DeserializeOwned + Default>(given: &Value) -> Option<S> {
    let mut all = serde_json::to_value(S::default()).ok()?;
    for (key, value) in given.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    serde_json::from_value(all).ok()
}

/// What a case expects of the fields that it names.
pub(super) fn answer(case: &Value, got: Value) -> Answer {
    let expected = expanded(&case["expected"]);
    let got = match (expected.as_object(), got) {
        (Some(named), Value::Object(mut fields)) => named
            .keys()
            .map(|key| (key.clone(), fields.shift_remove(key).unwrap_or_default()))
            .collect::<Map<_, _>>()
            .into(),
        (_, got) => got,
    };
    Answer { expected, got }
}

/// Runs the policy that the case names over its log, once after each of its parts; a port without guards.
pub(super) fn policy(case: &Value) -> Answer {
    answer(case, run(&expanded(&case["input"])).unwrap_or_else(|problem| json!({"error": problem})))
}

fn run(input: &Value) -> Result<Value, String> {
    let given = input["settings"].as_object().cloned().unwrap_or_default();
    let list = policies();
    let name = input["policy"].as_str().unwrap_or_default();
    let info = find(&list, name).map_err(|error| error.to_string())?;
    let policy = info.build(&given).map_err(|error| error.to_string())?;
    let condenser = if policy.is_port() { Condenser::unguarded() } else { Condenser::default() };
    let sizer = Sizer::new(&CharsPer4);
    let budget = Budget {
        window: input["window"].as_u64().map(Tokens),
        reserve: Tokens(input["reserve"].as_u64().unwrap_or_default()),
    };
    let summarizer = Canned {
        answers: Mutex::new(input["answers"].as_array().cloned().unwrap_or_default()),
        is_extractive: input["summarizer"] == "extractive",
        asked: Mutex::default(),
    };
    let mut events: Vec<Event> = Vec::new();
    let (mut views, mut outcomes, mut tokens) = (Vec::new(), Vec::new(), Vec::new());
    for part in input["log"].as_array().into_iter().flatten() {
        for step in part.as_array().map_or(std::slice::from_ref(part), Vec::as_slice) {
            add(&mut events, step)?;
        }
        let view = View::replay(&events, Rules::Sound);
        let mut state = State::new(&view, &events, &sizer, budget);
        state.recall = input["recall"] == true;
        tokens.push(state.counted().0);
        let outcome = condenser.run(&*policy, &state, &summarizer);
        outcomes.push(match &outcome.result {
            OutcomeKind::Applied(_) => "applied",
            OutcomeKind::NothingToDo => "nothing",
            OutcomeKind::NoGain => "no gain",
            OutcomeKind::Unachievable { .. } => "unachievable",
            _ => "failed",
        });
        if let OutcomeKind::Applied(record) = outcome.result {
            push(&mut events, Source::Environment, EventKind::Condensation(*record));
        }
        views.push(shown(&events));
    }
    let view = View::replay(&events, Rules::Sound);
    let asked = summarizer.asked.into_inner().unwrap_or_default();
    let ids = |request: &SummaryRequest| {
        json!(request.events.iter().map(|(id, _)| id.as_str().trim_start_matches('e')).collect::<Vec<_>>().join(" "))
    };
    let text = |entry: condenser::Entry<'_>| Shown::of(entry, &events).map_or(Value::Null, |shown| json!(shown.text()));
    Ok(json!({
        "view": views.last(),
        "views": views,
        "outcome": outcomes.last(),
        "outcomes": outcomes,
        "tokens": tokens,
        "summary": view.iter().rev().find_map(|entry| entry.summary()),
        "texts": view.iter().map(text).collect::<Value>(),
        "asked": asked.iter().map(ids).collect::<Value>(),
        "told": asked.iter().map(|request| request.events.iter().map(|(_, text)| json!(text)).collect::<Value>()).collect::<Value>(),
        "previous": asked.iter().map(|request| json!(request.previous)).collect::<Value>(),
        "max_tokens": asked.iter().map(|request| json!(request.max_tokens)).collect::<Value>(),
    }))
}

/// Positions in the log, `S` for a summary, rewritten entries in brackets.
fn shown(events: &Vec<Event>) -> String {
    let view = View::replay(events, Rules::Sound);
    let name = |entry: condenser::Entry<'_>| match (entry.is_summary(), entry.rewrite()) {
        (true, _) => "S".to_owned(),
        (false, Some(_)) => format!("[{}]", entry.seq()),
        (false, None) => entry.seq().to_string(),
    };
    view.iter().map(name).collect::<Vec<_>>().join(" ")
}

fn push(events: &mut Vec<Event>, source: Source, kind: EventKind) {
    events.push(Event::new(format!("e{}", events.len()), source, kind));
}

fn add(events: &mut Vec<Event>, step: &Value) -> Result<(), String> {
    if let Some(words) = step.as_str() {
        return words.split_whitespace().try_for_each(|word| add_word(events, word));
    }
    let text = |at: usize, key: &str| step[key][at].as_str().unwrap_or_default().to_owned();
    let (source, kind) = if let Some(said) = step["user"].as_str() {
        (Source::User, EventKind::Message(Message::text(Role::User, said)))
    } else if let Some(said) = step["assistant"].as_str() {
        (Source::Agent, EventKind::Message(Message::text(Role::Assistant, said)))
    } else if step["call"].is_array() {
        let arguments = step["call"][2].as_str().map_or_else(|| step["call"][2].to_string(), str::to_owned);
        (Source::Agent, call(text(0, "call"), &text(1, "call"), arguments, None))
    } else if step["result"].is_array() {
        (Source::Environment, result(text(0, "result"), text(1, "result"), Outcome::Ok, events))
    } else {
        return Err(format!("no such event: {step}"));
    };
    push(events, source, kind);
    Ok(())
}

fn call(call_id: String, tool: &str, arguments: String, response_id: Option<String>) -> EventKind {
    EventKind::Action(Action { call_id, tool_name: tool.to_owned(), arguments, response_id, ..Action::default() })
}

fn result(call_id: String, text: String, outcome: Outcome, events: &Vec<Event>) -> EventKind {
    let tool_name = (0..events.len()).rev().find_map(|seq| match &events.event(seq)?.kind {
        EventKind::Action(action) if action.call_id == call_id => Some(action.tool_name.clone()),
        _ => None,
    });
    let content = vec![ContentBlock::text(text)];
    let tool_name = tool_name.unwrap_or_default();
    EventKind::Observation(Observation { call_id, tool_name, content, outcome, ..Observation::default() })
}

fn add_word(events: &mut Vec<Event>, word: &str) -> Result<(), String> {
    let (word, more) = word.split_once('*').unwrap_or((word, "0"));
    let more = "word ".repeat(more.parse().map_err(|_| format!("no number: {more}"))?);
    let n = events.len();
    let say = |role, what: &str| EventKind::Message(Message::text(role, format!("{what} {n}. {more}")));
    let (head, rest) = word.split_at(1);
    let (id, response) = rest.split_once('.').map_or((rest, None), |(id, response)| (id, Some(response.to_owned())));
    let answer = |outcome| result(format!("call{id}"), format!("answer {n}. {more}"), outcome, events);
    let (source, kind) = match head {
        "s" => {
            let content = vec![ContentBlock::text(format!("prompt {n}. {more}"))];
            (Source::Agent, EventKind::SystemPrompt(SystemPrompt { content, ..SystemPrompt::default() }))
        }
        "d" => (Source::Environment, say(Role::System, "standing")),
        "u" => (Source::User, say(Role::User, "user")),
        "a" => (Source::Agent, say(Role::Assistant, "assistant")),
        "c" | "C" => {
            let arguments = format!(r#"{{"command":"run {n} {more}"}}"#);
            (Source::Agent, call(format!("call{id}"), "bash", arguments, response))
        }
        "r" => (Source::Environment, answer(Outcome::Ok)),
        "e" => (Source::Environment, answer(Outcome::Error)),
        "p" => (Source::User, EventKind::Pin(Pin { ids: vec![EventId::new(format!("e{rest}"))] })),
        "q" => (Source::User, EventKind::CondensationRequest(CondensationRequest::default())),
        _ => return Err(format!("no such word: {word}")),
    };
    push(events, source, kind);
    Ok(())
}

/// Answers from a list, null for a failed call, then `notes`.
struct Canned {
    answers: Mutex<Vec<Value>>,
    is_extractive: bool,
    asked: Mutex<Vec<SummaryRequest>>,
}

impl Summarizer for Canned {
    fn name(&self) -> &str {
        "canned"
    }

    fn summarize(&self, request: &SummaryRequest) -> Result<Summary, SummarizeError> {
        if let Ok(mut asked) = self.asked.lock() {
            asked.push(request.clone());
        }
        if self.is_extractive {
            return Extractive::default().summarize(request);
        }
        let next = self.answers.lock().ok().filter(|answers| !answers.is_empty()).map(|mut answers| answers.remove(0));
        let text = match next {
            None => "notes".to_owned(),
            Some(Value::String(text)) => text,
            Some(_) => return Err(SummarizeError::Failed("down".to_owned())),
        };
        Ok(Summary { text, ..Summary::default() })
    }
}
