//! SWE-agent's history processors.

use std::path::Path;

use condenser::event::{Event, EventKind, Source};
use condenser::tokens::CharsPer4;
use condenser::{Budget, Condenser, OutcomeKind, Rules, Shown, Sizer, State, View};
use condenser_policies::Extractive;
use condenser_policies::swe_agent::peer::{
    ClosedWindow, DEFAULT_PATTERN, Entry, LastN, RemoveRegex, Tagger, closed_line,
};
use condenser_policies::swe_agent::{Processor, SweAgent};
use condenser_traces::{Document, read_document};
use serde_json::{Value, json};

use super::Answer;

pub(super) fn process(case: &Value) -> Answer {
    let (config, history) = (&case["config"], history(case));
    let got = match case["kind"].as_str() {
        Some("last_n_observations") => last_n(config, history),
        Some("closed_window") => closed_window(history, &case["expected"]),
        Some("remove_regex") => remove_regex(config, history),
        Some("tag_tool_call_observations") => {
            let tagger =
                Tagger { tags: texts(config, "tags", ""), function_names: texts(config, "function_names", "") };
            let tags = |entry: &Entry| {
                let mut tags = entry.get("tags").and_then(Value::as_array).cloned().unwrap_or_default();
                tags.sort_by_key(Value::to_string);
                Value::Array(tags)
            };
            json!({"tags": tagger.process(history).iter().map(tags).collect::<Value>()})
        }
        _ => json!({"error": "unknown kind"}),
    };
    let mut answer = Answer { expected: case["expected"].clone(), got };
    if let Some((sent, processor)) = sent(case) {
        // The processor's own answer has just been compared with the recorded one.
        answer.expected["through_policy"] = sent;
        answer.got["through_policy"] = through_policy(case, processor).unwrap_or_default();
    }
    answer
}

/// What is sent, a text an entry and null for one left out; and the processor. `None` for kinds that change no text.
fn sent(case: &Value) -> Option<(Value, Processor)> {
    let (config, history) = (&case["config"], history(case));
    let text = |entry: &Entry| match &entry["content"] {
        Value::Array(blocks) => {
            let texts: Vec<&str> = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
            json!(texts.join("\n"))
        }
        content => content.clone(),
    };
    match case["kind"].as_str()? {
        "last_n_observations" => {
            let last_n = elision(config);
            let sent = last_n.process(history).ok()?;
            Some((sent.iter().map(text).collect(), Processor::LastN(Tagger::default(), last_n)))
        }
        "closed_window" => {
            let windows = ClosedWindow::new().ok()?;
            let mut texts = vec![Value::Null; history.len()];
            windows.process(history).iter().for_each(|(at, entry)| texts[*at] = text(entry));
            Some((json!(texts), Processor::ClosedWindow(windows)))
        }
        "remove_regex" => {
            let remove = removal(config).ok()?;
            Some((remove.process(history).iter().map(text).collect(), Processor::RemoveRegex(remove)))
        }
        _ => None,
    }
}

/// The same by way of a trajectory file, its events, the policy with the condenser's guards off, and a record.
fn through_policy(case: &Value, processor: Processor) -> Option<Value> {
    let file = json!({"history": case["history"], "trajectory": [], "info": {}});
    let document = Document::from_bytes(Path::new("case.traj"), file.to_string().into_bytes()).ok()?;
    let format = condenser_traces::format("swe-agent").ok()?;
    let mut events = read_document(document, Some(format)).ok()?.pop()?.events;
    // Fed one by one, these rules keep entries that no request could hold.
    let mut view = View::new(Rules::OpenHands);
    for event in &events {
        view.push(event);
    }
    let sizer = Sizer::new(&CharsPer4);
    let policy = SweAgent::new("case", processor);
    let outcome = {
        let state = State::new(&view, &events, &sizer, Budget::default());
        Condenser::unguarded().run(&policy, &state, &Extractive::default())
    };
    if let OutcomeKind::Applied(record) = outcome.result {
        events.push(Event::new("record", Source::Agent, EventKind::Condensation(*record)));
        view.push(events.last()?);
    }
    let mut texts = vec![Value::Null; case["history"].as_array()?.len()];
    for entry in view.iter() {
        let record = &events.get(entry.seq())?.origin.as_ref()?.record;
        let at: usize = record.strip_prefix("history-")?.parse().ok()?;
        let Shown::Event(kind) = Shown::of(entry, &events)? else { return None };
        let blocks = match &*kind {
            EventKind::SystemPrompt(prompt) => &prompt.content,
            EventKind::Message(message) => &message.content,
            EventKind::Action(action) => &action.thought,
            EventKind::Observation(answer) => &answer.content,
            _ => return None,
        };
        let blocks: Vec<&str> = blocks.iter().filter_map(|block| block.as_text()).collect();
        texts[at] = json!(blocks.join("\n"));
    }
    Some(json!(texts))
}

fn history(case: &Value) -> Vec<Entry> {
    case["history"].as_array().into_iter().flatten().filter_map(Value::as_object).cloned().collect()
}

fn texts(config: &Value, name: &str, default: &str) -> Vec<String> {
    match config[name].as_array() {
        Some(texts) => texts.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        None => vec![default.to_owned()],
    }
}

fn elision(config: &Value) -> LastN {
    let number = |name: &str| config[name].as_u64().unwrap_or(1) as usize;
    LastN {
        n: number("n"),
        polling: number("polling"),
        keep: texts(config, "always_keep_output_for_tags", "keep_output"),
        remove: texts(config, "always_remove_output_for_tags", "remove_output"),
    }
}

fn removal(config: &Value) -> Result<RemoveRegex, impl std::error::Error> {
    let keep_last = config["keep_last"].as_u64().unwrap_or(0) as usize;
    RemoveRegex::new(&texts(config, "remove", DEFAULT_PATTERN), keep_last)
}

fn last_n(config: &Value, history: Vec<Entry>) -> Value {
    let last_n = elision(config);
    let candidates = last_n.candidates(&history);
    let Ok(sent) = last_n.process(history.clone()) else { return json!({"error": "no observation"}) };
    let entry = |(before, after): (&Entry, &Entry)| {
        if before == after {
            return json!({"kept": true});
        }
        let line = after["content"].as_str().unwrap_or_default();
        let number = |word: &str| {
            let end = line.find(&format!(" {word} omitted)"))?;
            line[line[..end].rfind('(')? + 1..end].parse::<u64>().ok()
        };
        json!({"lines": number("lines"), "images": number("images").unwrap_or(0)})
    };
    json!({"candidate_indices": candidates, "entries": history.iter().zip(&sent).map(entry).collect::<Value>()})
}

fn closed_window(history: Vec<Entry>, expected: &Value) -> Value {
    let Ok(windows) = ClosedWindow::new() else { return Value::Null };
    let sent = windows.process(history.clone());
    let entry = |(n, (at, entry)): (usize, &(usize, Entry))| {
        let content = entry["content"].as_str().unwrap_or_default();
        if history[*at]["content"] == entry["content"] {
            return json!({"index": at});
        }
        // The words of the line are ours, so its place is found by the recorded number.
        let n_lines = expected["entries"][n]["closed_lines"].as_u64().unwrap_or_default();
        match content.split_once(&closed_line(n_lines as usize)) {
            Some((before, after)) => json!({"index": at, "closed_lines": n_lines, "before": before, "after": after}),
            None => json!({"index": at, "content": content}),
        }
    };
    json!({"entries": sent.iter().enumerate().map(entry).collect::<Value>()})
}

fn remove_regex(config: &Value, history: Vec<Entry>) -> Value {
    match removal(config) {
        Ok(remove) => {
            json!({"contents": remove.process(history).into_iter().map(|mut e| e["content"].take()).collect::<Value>()})
        }
        Err(error) => json!({"error": error.to_string()}),
    }
}
