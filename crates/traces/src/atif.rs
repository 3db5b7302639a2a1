//! ATIF, Harbor's interchange format: one object with `steps`, or a list of such objects.
//!
//! Step `n` is the record `step-<step_id>`. What stands beside the steps is the first event, `file`, never
//! shown; the tools of `agent.tool_definitions` are the system prompt's, or the event `tools` where there
//! is none.
//!
//! | step | event |
//! | --- | --- |
//! | `system`, the first step | the system prompt |
//! | `system` whose observation refers to other trajectories | a condensation: the harness handed over to a fresh context, which begins with the task |
//! | any other `system` | a system message, and a message a result |
//! | `user` | a user message |
//! | `agent` | an action a call, or a message; then an observation a result |
//!
//! A result without `source_call_id` answers the first call of its step that has no result, and is a
//! message where there is none. `foreign` holds the rest of the step (`message_shape` where the message
//! was plain text, `observation` without its results), of a call (`call`) and of a result (`result`, with
//! `call_from_position` where it named none).

use std::collections::HashSet;

use condenser::event::{EventKind, Message, Observation, Role, Source, SystemPrompt, Usage};
use serde_json::{Map, Value};

use crate::answer::{Answer, arguments};
use crate::blocks::block;
use crate::builder::Builder;
use crate::fields::{take_content, take_list, take_text};
use crate::{Diagnostic, Document, Format, Link, ReadError, Trace};

/// The format.
pub(crate) const FORMAT: Format = Format {
    name: "atif",
    description: "ATIF trajectories of Harbor, versions 1.0 to 1.7: trajectory.json",
    sniff: |document| match document.single() {
        Some(Value::Array(files)) => files.first().is_some_and(is_file),
        Some(file) => is_file(file),
        None => false,
    },
    read,
};

fn is_file(value: &Value) -> bool {
    value.get("schema_version").and_then(Value::as_str).is_some_and(|version| version.starts_with("ATIF-"))
        && value.get("steps").is_some_and(Value::is_array)
}

fn read(mut document: Document) -> Result<Vec<Trace>, ReadError> {
    if !(FORMAT.sniff)(&document) {
        return Err(document.unfit(FORMAT.name, "no `schema_version` of ATIF beside a list `steps`"));
    }
    let mut diagnostics = std::mem::take(&mut document.diagnostics);
    let (files, is_list) = match document.take_records().pop().map(|record| record.value) {
        Some(Value::Array(files)) => (files, true),
        file => (file.into_iter().collect(), false),
    };
    let steps = |file: &Value| file.get("steps").and_then(Value::as_array).map_or(0, Vec::len);
    let records = files.iter().map(steps).sum();
    let mut traces = Vec::new();
    for (row, file) in files.into_iter().enumerate() {
        let (name, lead) = match is_list {
            true => (document.row_name(row), format!("row[{row}] ")),
            false => (document.name(), String::new()),
        };
        match file {
            Value::Object(file) if file.get("steps").is_some_and(Value::is_array) => {
                traces.push(trajectory(file, name, &lead, records, std::mem::take(&mut diagnostics)));
            }
            _ => diagnostics.push(Diagnostic::new(format!("row[{row}]"), "no object with `steps`; left out")),
        }
    }
    if let Some(first) = traces.first_mut() {
        first.diagnostics.append(&mut diagnostics);
    }
    Ok(traces)
}

fn trajectory(
    mut file: Map<String, Value>,
    name: String,
    lead: &str,
    records: usize,
    diagnostics: Vec<Diagnostic>,
) -> Trace {
    let mut builder = Builder::new(diagnostics);
    let steps = take_list(&mut file, "steps").unwrap_or_default();
    let id = |key: &str| file.get(key).and_then(Value::as_str).map(str::to_owned);
    let session = id("trajectory_id").or_else(|| id("session_id"));
    let agent = file.get_mut("agent").and_then(Value::as_object_mut);
    let model = agent.as_ref().and_then(|agent| Some(agent.get("model_name")?.as_str()?.to_owned()));
    let parent = agent.as_ref().and_then(|agent| agent.get("extra")?.get("parent_session_id")?.as_str());
    let parent = parent.map(|parent| Link { to: parent.to_owned(), call_id: None });
    let mut tools = agent.and_then(|agent| take_list(agent, "tool_definitions")).unwrap_or_default();
    let totals = file.get("final_metrics").cloned();

    builder.begin("file", format!("{lead}file"), None);
    builder.add_unknown(Source::Environment, "file", Value::Object(file));
    let is_prompt = |step: Option<&Value>| step.and_then(|step| step.get("source")?.as_str()) == Some("system");
    if !tools.is_empty() && !is_prompt(steps.first()) {
        builder.begin("tools", format!("{lead}agent.tool_definitions"), None);
        let prompt = SystemPrompt { tools: std::mem::take(&mut tools), ..SystemPrompt::default() };
        builder.add(Source::Agent, EventKind::SystemPrompt(prompt));
    }
    let mut reader = Reader { builder, tools, model, task: None, prompt_tokens: 0 };
    for (at, step) in steps.into_iter().enumerate() {
        reader.add(at, format!("{lead}steps[{at}]"), step);
    }
    let Reader { mut builder, prompt_tokens, .. } = reader;
    let total = totals.as_ref().and_then(|totals| totals.get("total_prompt_tokens")?.as_u64());
    if let Some(total) = total.filter(|total| *total < prompt_tokens) {
        let what = format!("{total} prompt tokens in all are fewer than the {prompt_tokens} of the steps; these count");
        builder.note([Diagnostic::new(format!("{lead}final_metrics"), what)]);
    }
    Trace { session, parent, ..builder.finish(name, FORMAT.name, records) }
}

struct Reader {
    builder: Builder,
    /// Tools for the system prompt to come.
    tools: Vec<Value>,
    model: Option<String>,
    /// The record of the first user step: what a fresh context begins with.
    task: Option<String>,
    prompt_tokens: u64,
}

impl Reader {
    fn add(&mut self, at: usize, place: String, step: Value) {
        let id = match step.get("step_id") {
            Some(id) if !id.is_null() => format!("step-{}", id.as_str().map_or_else(|| id.to_string(), str::to_owned)),
            _ => format!("steps-{at}"),
        };
        let timestamp = step.get("timestamp").and_then(Value::as_str).map(str::to_owned);
        let record = self.builder.begin(&id, place, timestamp);
        let Value::Object(mut step) = step else {
            let place = self.builder.place().to_owned();
            self.builder.note([Diagnostic::new(place, "a step that is no object; kept as unknown")]);
            self.builder.add_unknown(Source::Environment, "step", step);
            return;
        };
        match step.get("source").and_then(Value::as_str) {
            Some("system") if at > 0 && refers_to_trajectories(&step) => {
                step.shift_remove("source");
                let task = self.task.clone();
                self.builder.add_compaction(None, true, |record| Some(record) == task.as_deref()).foreign = step.into();
            }
            Some("system") => {
                step.shift_remove("source");
                let content = take_content(&mut step, "message", block);
                let kind = match at {
                    0 => {
                        let tools = std::mem::take(&mut self.tools);
                        EventKind::SystemPrompt(SystemPrompt { content, tools, ..SystemPrompt::default() })
                    }
                    _ => EventKind::Message(Message { content, ..Message::text(Role::System, "") }),
                };
                let results = take_results(&mut step);
                self.builder.add(Source::Environment, kind).foreign = step.into();
                self.add_results(results, Vec::new());
            }
            Some("user") => {
                self.task.get_or_insert_with(|| record.as_str().to_owned());
                step.shift_remove("source");
                let content = take_content(&mut step, "message", block);
                let results = take_results(&mut step);
                let message = Message { content, ..Message::text(Role::User, "") };
                self.builder.add(Source::User, EventKind::Message(message)).foreign = step.into();
                self.add_results(results, Vec::new());
            }
            Some("agent") => self.add_answer(record.as_str(), step),
            _ => {
                let place = self.builder.place().to_owned();
                self.builder.note([Diagnostic::new(place, "a step of no known `source`; kept as unknown")]);
                self.builder.add_unknown(Source::Environment, "step", Value::Object(step));
            }
        }
    }

    fn add_answer(&mut self, record: &str, mut step: Map<String, Value>) {
        step.shift_remove("source");
        let mut answer = Answer::new(record);
        if let Some(reasoning) = take_text(&mut step, "reasoning_content") {
            answer.reason(reasoning);
        }
        answer.say(take_content(&mut step, "message", block));
        let mut open = Vec::new();
        for (at, call) in take_list(&mut step, "tool_calls").unwrap_or_default().into_iter().enumerate() {
            let mut call = match call {
                Value::Object(call) => call,
                other => Map::from_iter([("value".to_owned(), other)]),
            };
            let call_id = take_text(&mut call, "tool_call_id").unwrap_or_else(|| format!("{record}-call-{at}"));
            let tool_name = take_text(&mut call, "function_name").unwrap_or_default();
            let given = match call.get("arguments") {
                Some(Value::Null) => None,
                Some(_) => call.shift_remove("arguments"),
                None => {
                    call.insert("arguments_shape".to_owned(), Value::from("absent"));
                    None
                }
            };
            if given.as_ref().is_some_and(Value::is_string) {
                call.insert("arguments_shape".to_owned(), Value::from("string"));
            }
            let foreign = match call.is_empty() {
                true => Map::new(),
                false => Map::from_iter([("call".to_owned(), Value::Object(call))]),
            };
            open.push(call_id.clone());
            answer.call(call_id, tool_name, arguments(given), foreign);
        }
        let results = take_results(&mut step);
        let usage = self.usage(&step);
        answer.add_to(&mut self.builder, usage, step);
        self.add_results(results, open);
    }

    /// Adds the results of a step; `open` are the calls they may answer.
    fn add_results(&mut self, results: Vec<Value>, open: Vec<String>) {
        let named: HashSet<&str> = results.iter().filter_map(|result| result.get("source_call_id")?.as_str()).collect();
        let mut unnamed =
            open.iter().filter(|id| !named.contains(id.as_str())).cloned().collect::<Vec<_>>().into_iter();
        for result in results {
            let mut result = match result {
                Value::Object(result) => result,
                other => Map::from_iter([("value".to_owned(), other)]),
            };
            let mut foreign = Map::new();
            let call_id = take_text(&mut result, "source_call_id").or_else(|| {
                let next = unnamed.next()?;
                foreign.insert("call_from_position".to_owned(), Value::Bool(true));
                Some(next)
            });
            let content = take_content(&mut result, "content", block);
            foreign.insert("result".to_owned(), Value::Object(result));
            let kind = match call_id {
                Some(call_id) => EventKind::Observation(Observation { call_id, content, ..Observation::default() }),
                None if content.is_empty() => {
                    self.builder.add_unknown(Source::Environment, "result", Value::Null).foreign = foreign.into();
                    continue;
                }
                None => EventKind::Message(Message { content, ..Message::text(Role::User, "") }),
            };
            self.builder.add(Source::Environment, kind).foreign = foreign.into();
        }
    }

    /// The figures of a step; they stay in `foreign` too. `prompt_tokens` includes what was cached.
    fn usage(&mut self, step: &Map<String, Value>) -> Option<Usage> {
        let metrics = step.get("metrics")?;
        let count = |key: &str| metrics.get(key).and_then(Value::as_u64);
        let prompt = count("prompt_tokens")?;
        self.prompt_tokens = self.prompt_tokens.saturating_add(prompt);
        let cached = count("cached_tokens");
        Some(Usage {
            input_tokens: Some(prompt.saturating_sub(cached.unwrap_or(0))),
            cache_read_tokens: cached,
            cache_write_tokens: None,
            output_tokens: count("completion_tokens"),
            model: step.get("model_name").and_then(Value::as_str).map(str::to_owned).or_else(|| self.model.clone()),
        })
    }
}

/// Moves the results out of a step. The emptied observation stays.
fn take_results(step: &mut Map<String, Value>) -> Vec<Value> {
    step.get_mut("observation")
        .and_then(Value::as_object_mut)
        .and_then(|observation| take_list(observation, "results"))
        .unwrap_or_default()
}

fn refers_to_trajectories(step: &Map<String, Value>) -> bool {
    let results = step.get("observation").and_then(|observation| observation.get("results")?.as_array());
    results.into_iter().flatten().any(|result| {
        result.get("subagent_trajectory_ref").is_some_and(|reference| match reference {
            Value::Array(items) => !items.is_empty(),
            Value::Null => false,
            _ => true,
        })
    })
}
