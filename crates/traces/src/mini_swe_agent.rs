//! mini-swe-agent trajectories: one object with `messages` and `trajectory_format`, or the list of messages
//! of its first exports.
//!
//! With tool calls the messages are OpenAI's and become what the format `openai-chat` makes of them; without,
//! the one fenced block of an answer is a call of `bash`, and the user text after it its observation; the
//! whole text stays in `foreign.content`. Messages with `type` instead of `role` are Responses items. A message
//! of role `exit` is unknown: no model saw it. What surrounds the messages is the event `file`.
//!
//! `extra.response` is the raw response: its usage counts, and its copy of the message is not kept where it
//! says the same.

use condenser::event::{ContentBlock, EventKind, Message, Observation, Role, Source, SystemPrompt};
use serde_json::{Map, Value, json};

use crate::answer::Answer;
use crate::blocks::block;
use crate::builder::Builder;
use crate::fields::{self, take_content, take_list};
use crate::openai_chat::messages::{Mapper, Response};
use crate::responses::Items;
use crate::{Document, Format, ReadError, Trace};

/// The format.
pub(crate) const FORMAT: Format = Format {
    name: "mini-swe-agent",
    description: "mini-swe-agent trajectories, with calls or actions in text: *.traj.json",
    sniff: |document| match document.single() {
        Some(Value::Array(messages)) => is_bare(messages),
        Some(file) => is_file(file),
        None => false,
    },
    read,
};

fn is_file(file: &Value) -> bool {
    let format = file.get("trajectory_format").and_then(Value::as_str);
    format.is_some_and(|format| format.starts_with("mini-swe-agent-"))
        && file.get("messages").is_some_and(Value::is_array)
}

/// Whether a list holds nothing but texts, with at least one action that its result answers.
fn is_bare(messages: &[Value]) -> bool {
    let text = |message: &Value, key: &str| message.get(key).and_then(Value::as_str).map(str::to_owned);
    let is_text = |message: &Value| {
        let role = text(message, "role");
        message.as_object().is_some_and(|map| map.len() == 2)
            && role.is_some_and(|role| ["system", "user", "assistant"].contains(&role.as_str()))
            && text(message, "content").is_some()
    };
    let is_answered = |pair: &[Value]| {
        let [answer, result] = pair else { return false };
        text(answer, "content").is_some_and(|content| command(&content).is_some())
            && text(result, "content").is_some_and(|content| content.starts_with("<returncode>"))
    };
    messages.iter().all(is_text) && messages.windows(2).any(is_answered)
}

fn read(mut document: Document) -> Result<Vec<Trace>, ReadError> {
    if !(FORMAT.sniff)(&document) {
        return Err(document.unfit(FORMAT.name, "no `trajectory_format` of mini-swe-agent beside `messages`"));
    }
    let mut builder = Builder::new(std::mem::take(&mut document.diagnostics));
    let mut task = None;
    let messages = match document.take_records().pop().map(|record| record.value) {
        Some(Value::Array(messages)) => messages,
        Some(Value::Object(mut file)) => {
            let messages = take_list(&mut file, "messages").unwrap_or_default();
            task = file.get("instance_id").and_then(Value::as_str).map(str::to_owned);
            builder.begin("file", "file".to_owned(), None);
            builder.add_unknown(Source::Environment, "file", Value::Object(file));
            messages
        }
        _ => Vec::new(),
    };
    let records = messages.len();
    let name = document.name();
    let has = |key: &str| messages.iter().any(|message| message.get(key).is_some_and(|value| !value.is_null()));
    let trace = if has("tool_calls") {
        with_calls(messages, builder, name)
    } else if has("type") || has("output") {
        with_items(messages, builder, name)
    } else {
        in_text(messages, builder, name)
    };
    Ok(vec![Trace { task, records: records as u64, ..trace }])
}

/// When a message was made, as the source wrote it.
fn time(message: &Value) -> Option<String> {
    message.get("extra")?.get("timestamp").filter(|time| time.is_number()).map(Value::to_string)
}

fn with_calls(messages: Vec<Value>, builder: Builder, name: String) -> Trace {
    let mut trace = builder.finish(name, FORMAT.name, 0);
    let mut mapper = Mapper::new(Vec::new(), std::mem::take(&mut trace.diagnostics));
    for (at, mut message) in messages.into_iter().enumerate() {
        mapper.set_time(time(&message));
        match message.get("role").and_then(Value::as_str) {
            Some("exit") => mapper.add_unknown("exit", message),
            _ => {
                let response = take_response(&mut message);
                mapper.add(&format!("messages[{at}]"), message, response);
            }
        }
    }
    let (events, diagnostics) = mapper.finish();
    trace.events.extend(events);
    trace.diagnostics = diagnostics;
    trace
}

/// The id and figures of the raw response, whose copy of the message is dropped where it is one.
fn take_response(message: &mut Value) -> Option<Response> {
    let said = ["content", "tool_calls"].map(|key| message.get(key).cloned());
    let response = message.get_mut("extra")?.get_mut("response")?;
    let id = response.get("id").and_then(Value::as_str).map(str::to_owned);
    let model = response.get("model").and_then(Value::as_str);
    let usage = response.get("usage").and_then(|figures| fields::usage(figures, model));
    let choice = response.get_mut("choices").and_then(|choices| choices.get_mut(0)?.as_object_mut());
    if let Some(choice) = choice {
        let copy = choice.get("message");
        if copy.is_some_and(|copy| ["content", "tool_calls"].map(|key| copy.get(key).cloned()) == said) {
            choice.shift_remove("message");
        }
    }
    Some(Response { id, usage })
}

fn with_items(messages: Vec<Value>, mut builder: Builder, name: String) -> Trace {
    let mut items = Items::default();
    for (at, message) in messages.into_iter().enumerate() {
        let place = format!("messages[{at}]");
        let time = time(&message);
        let Value::Object(mut message) = message else {
            items.push(&mut builder, format!("m{at}"), place, time, message);
            continue;
        };
        // A whole response: its output, then what surrounds that.
        let output = take_list(&mut message, "output");
        let Some(output) = output else {
            items.push(&mut builder, format!("m{at}"), place, time, Value::Object(message));
            continue;
        };
        for (part, item) in output.into_iter().enumerate() {
            let id = item.get("id").and_then(Value::as_str).map_or_else(|| format!("m{at}/{part}"), str::to_owned);
            items.push(&mut builder, id, place.clone(), time.clone(), item);
        }
        let model = message.get("model").and_then(Value::as_str).map(str::to_owned);
        let usage = message.get("usage").and_then(|figures| crate::responses::usage(figures, model.as_deref()));
        items.flush(&mut builder);
        if let Some(usage) = usage {
            items.pay(&mut builder, usage);
        }
        builder.begin(&format!("m{at}"), place, time);
        builder.add_unknown(Source::Agent, "response", Value::Object(message));
    }
    items.flush(&mut builder);
    builder.finish(name, FORMAT.name, 0)
}

fn in_text(messages: Vec<Value>, mut builder: Builder, name: String) -> Trace {
    let mut open: Option<String> = None;
    for (at, message) in messages.into_iter().enumerate() {
        let record = builder.begin(&format!("m{at}"), format!("messages[{at}]"), time(&message));
        let Value::Object(mut message) = message else {
            builder.add_unknown(Source::Environment, "message", message);
            continue;
        };
        let role = message.get("role").and_then(Value::as_str).unwrap_or_default().to_owned();
        let text = message.get("content").and_then(Value::as_str).map(str::to_owned);
        let call = open.take();
        match (role.as_str(), call) {
            ("assistant", _) => {
                let mut raw = Value::Object(message);
                let response = take_response(&mut raw);
                let Value::Object(mut message) = raw else { continue };
                message.shift_remove("role");
                let (id, usage) = response.map_or((None, None), |response| (response.id, response.usage));
                let mut answer = Answer::new(id.unwrap_or_else(|| record.as_str().to_owned()));
                match text.as_deref().and_then(command) {
                    Some((thought, command)) => {
                        let call_id = format!("{record}-call");
                        answer.say((!thought.is_empty()).then(|| ContentBlock::text(thought)));
                        let args = json!({ "command": command }).to_string();
                        answer.call(call_id.clone(), "bash".to_owned(), args, Map::new());
                        open = Some(call_id);
                    }
                    None => answer.say(take_content(&mut message, "content", block)),
                }
                answer.add_to(&mut builder, usage, message);
            }
            ("user", Some(call_id)) => {
                message.shift_remove("role");
                let content = take_content(&mut message, "content", block);
                let observation = Observation { call_id, content, ..Observation::default() };
                builder.add(Source::Environment, EventKind::Observation(observation)).foreign = message.into();
            }
            ("system", _) if at == 0 => {
                message.shift_remove("role");
                let content = take_content(&mut message, "content", block);
                let prompt = SystemPrompt { content, ..SystemPrompt::default() };
                builder.add(Source::Environment, EventKind::SystemPrompt(prompt)).foreign = message.into();
            }
            ("user" | "system", _) => {
                message.shift_remove("role");
                let (role, source) =
                    if role == "user" { (Role::User, Source::User) } else { (Role::System, Source::Environment) };
                let content = take_content(&mut message, "content", block);
                builder.add(source, EventKind::Message(Message { content, ..Message::text(role, "") })).foreign =
                    message.into();
            }
            _ => drop(builder.add_unknown(Source::Environment, &role, Value::Object(message))),
        }
    }
    builder.finish(name, FORMAT.name, 0)
}

/// The one command in a fenced block of a text, with the text before it.
fn command(text: &str) -> Option<(&str, &str)> {
    const FENCES: [&str; 3] = ["```bash\n", "```sh\n", "```mswea_bash_command\n"];
    let (at, fence) = FENCES.iter().find_map(|fence| Some((text.find(fence)?, fence)))?;
    let (command, after) = text[at + fence.len()..].split_once("\n```")?;
    // Two actions, or none that is complete, are answered with an error.
    let is_one = !FENCES.iter().any(|fence| after.contains(fence));
    is_one.then(|| (text[..at].trim_end(), command))
}
