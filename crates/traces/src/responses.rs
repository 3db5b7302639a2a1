//! Items of the OpenAI Responses API: a conversation's page, a request, a response, a list, an item a line.
//!
//! | item | event |
//! | --- | --- |
//! | `message` of role user; of role system or developer | a user message; a system message, or the system prompt where it is first |
//! | `reasoning`, `message` of role assistant | join the next call of the response as reasoning and thought, or are a message where none follows |
//! | `function_call`, `custom_tool_call`, `local_shell_call` and the like | an action |
//! | `…_output` | an observation |
//! | `mcp_call`, `code_interpreter_call` | an action and its observation: the provider ran it |
//! | other `…_call` | part of the answer, kept verbatim |
//! | `compaction` | a condensation that forgets all before; what stands for it is encrypted |
//! | anything else | unknown |
//!
//! Items between two inputs are one response; `created_by` names it where it is there. An event has the id
//! of the item that completed it; `foreign` holds the rest of that item and, in `merged`, the rests of those
//! that joined it. `instructions` and `tools` beside the items are the event `system`, the rest is `file`.

use std::collections::HashMap;

use condenser::event::{ContentBlock, EventKind, Message, Observation, Outcome, Role, Source, SystemPrompt, Usage};
use serde_json::{Map, Value, json};

use crate::answer::{Answer, arguments};
use crate::blocks::block;
use crate::builder::Builder;
use crate::fields::{take_content, take_list, take_object, take_text};
use crate::{Diagnostic, Document, Format, ReadError, Trace};

/// The format.
pub(crate) const FORMAT: Format = Format {
    name: "openai-responses",
    description: "OpenAI Responses items: a conversation's page, requests, responses, lists, JSON lines",
    sniff,
    read,
};

/// So many records, or members of a list, are looked at.
const SNIFFED: usize = 50;

fn sniff(document: &Document) -> bool {
    match document.single() {
        Some(Value::Array(items)) => is_items(items.iter()),
        Some(file) if is_own_item(file) => true,
        Some(file) => match list_key(file) {
            Some("data") => file["data"].as_array().is_some_and(|items| is_items(items.iter())),
            Some("input") => {
                file.get("model").is_some() && file["input"].as_array().is_some_and(|items| is_input(items))
            }
            Some(_) => true,
            None => false,
        },
        None => is_items(document.records().iter().map(|record| &record.value)),
    }
}

/// The member that holds a file's items.
fn list_key(file: &Value) -> Option<&'static str> {
    let is_list = |key: &str| file.get(key).is_some_and(Value::is_array);
    match file.get("object").and_then(Value::as_str) {
        Some("list") if is_list("data") => Some("data"),
        Some("response") if is_list("output") => Some("output"),
        _ if is_list("input") => Some("input"),
        _ => None,
    }
}

fn is_items<'a>(items: impl Iterator<Item = &'a Value> + Clone) -> bool {
    let head = || items.clone().take(SNIFFED);
    head().any(is_own_item) && head().all(is_item)
}

fn is_input(items: &[Value]) -> bool {
    !items.is_empty() && items.iter().take(SNIFFED).all(is_item)
}

/// Whether a value can only be an item of this API.
fn is_own_item(value: &Value) -> bool {
    let has = |key: &str| value.get(key).is_some();
    match kind_of(value) {
        "message" => {
            has("role")
                && value.get("content").is_some_and(|content| {
                    content.as_array().is_some_and(|parts| {
                        parts.iter().any(|part| matches!(kind_of(part), "input_text" | "output_text" | "input_image"))
                    })
                })
        }
        "reasoning" => has("summary"),
        "function_call" | "custom_tool_call" => has("call_id") && has("name"),
        "function_call_output" | "custom_tool_call_output" => has("call_id") && has("output"),
        _ => false,
    }
}

fn is_item(value: &Value) -> bool {
    match value.get("type") {
        None => value.get("role").is_some_and(Value::is_string) && value.get("content").is_some(),
        Some(kind) => kind.is_string() && value.get("tool_calls").is_none(),
    }
}

fn kind_of(value: &Value) -> &str {
    value.get("type").and_then(Value::as_str).unwrap_or_default()
}

fn read(mut document: Document) -> Result<Vec<Trace>, ReadError> {
    let mut builder = Builder::new(std::mem::take(&mut document.diagnostics));
    let mut usage = None;
    let mut n_records = None;
    let mut session = None;
    let mut records = document.take_records();
    let numbered = |key: &str, items: Vec<Value>| -> Vec<(String, Value)> {
        items.into_iter().enumerate().map(|(at, item)| (format!("{key}[{at}]"), item)).collect()
    };
    let mut items = match records.as_mut_slice() {
        [record] if record.value.is_array() => match record.value.take() {
            Value::Array(items) => numbered("items", items),
            _ => Vec::new(),
        },
        [record] if list_key(&record.value).is_some() => {
            let key = list_key(&record.value).unwrap_or_default();
            let Value::Object(mut file) = record.value.take() else { return Ok(Vec::new()) };
            let mut items = numbered(key, take_list(&mut file, key).unwrap_or_default());
            n_records = Some(items.len());
            session = file.get("conversation").and_then(|id| id.get("id").unwrap_or(id).as_str()).map(str::to_owned);
            usage = add_file(&mut builder, file, &mut items);
            items
        }
        _ => records.into_iter().map(|record| (format!("line {}", record.line), record.value)).collect(),
    };
    let n_records = n_records.unwrap_or(items.len());
    if !items.iter().any(|(_, item)| is_item(item)) {
        return Err(document.unfit(FORMAT.name, "no list of items with a `type`"));
    }
    if is_descending(&items) {
        builder.note([Diagnostic::new("file", "the newest item stands first; read from the end")]);
        items.reverse();
    }
    let has_shown = builder.events().iter().any(|event| event.kind.is_shown());
    let mut reader = Items { has_shown, ..Items::default() };
    for (at, (place, item)) in items.into_iter().enumerate() {
        let id = item.get("id").and_then(Value::as_str).filter(|id| !id.is_empty());
        let id = id.map_or_else(|| format!("item-{at}"), str::to_owned);
        reader.push(&mut builder, id, place, None, item);
    }
    reader.flush(&mut builder);
    if let Some(usage) = usage {
        reader.pay(&mut builder, usage);
    }
    Ok(vec![Trace { session, ..builder.finish(document.name(), FORMAT.name, n_records) }])
}

/// Adds what surrounds the items, and to these the output of a response beside them.
fn add_file(builder: &mut Builder, mut file: Map<String, Value>, items: &mut Vec<(String, Value)>) -> Option<Usage> {
    let mut response = take_object(&mut file, "response");
    let from = response.as_mut().unwrap_or(&mut file);
    let output = take_list(from, "output").unwrap_or_default();
    items.extend(output.into_iter().enumerate().map(|(at, item)| (format!("output[{at}]"), item)));
    let usage = from.get("usage").and_then(|figures| usage(figures, from.get("model").and_then(Value::as_str)));
    file.extend(response.map(|response| ("response".to_owned(), Value::Object(response))));

    let content = take_content(&mut file, "instructions", block);
    let tools = take_list(&mut file, "tools").unwrap_or_default();
    builder.begin("file", "file".to_owned(), None);
    builder.add_unknown(Source::Environment, "file", Value::Object(file));
    if !content.is_empty() || !tools.is_empty() {
        builder.begin("system", "instructions".to_owned(), None);
        let prompt = SystemPrompt { content, tools, ..SystemPrompt::default() };
        builder.add(Source::Agent, EventKind::SystemPrompt(prompt));
    }
    usage
}

/// Whether a page begins with its newest item.
fn is_descending(items: &[(String, Value)]) -> bool {
    let mut calls = HashMap::new();
    let mut outputs = HashMap::new();
    for (at, (_, item)) in items.iter().enumerate() {
        if let Some(id) = item.get("call_id").and_then(Value::as_str) {
            let seen = if kind_of(item).ends_with("_output") { &mut outputs } else { &mut calls };
            seen.entry(id).or_insert(at);
        }
    }
    let mut pairs = calls.iter().filter_map(|(id, call)| Some(outputs.get(id)? < call)).peekable();
    match pairs.peek() {
        Some(_) => pairs.all(|is_before| is_before),
        None => {
            let is_answer = |item: Option<&(String, Value)>| item.is_some_and(|(_, item)| Part::of(item).is_answer());
            items.len() > 1 && is_answer(items.first()) && !is_answer(items.last()) && calls.is_empty()
        }
    }
}

/// Figures in this API's words; `input_tokens` includes what was read from the cache.
pub(crate) fn usage(figures: &Value, model: Option<&str>) -> Option<Usage> {
    let count = |key: &str| figures.get(key).and_then(Value::as_u64);
    let input = count("input_tokens")?;
    let read = figures
        .get("input_tokens_details")
        .and_then(|details| details.get("cached_tokens")?.as_u64())
        .or_else(|| count("cached_input_tokens"));
    let write = count("cache_write_input_tokens");
    let fresh = input.saturating_sub(read.unwrap_or(0));
    Some(Usage {
        input_tokens: Some(fresh.checked_sub(write.unwrap_or(0)).unwrap_or(fresh)),
        cache_read_tokens: read,
        cache_write_tokens: write,
        output_tokens: count("output_tokens"),
        model: model.map(str::to_owned),
    })
}

/// What an item is in the conversation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    User,
    System,
    Text,
    Reasoning,
    Call,
    /// A call that the provider ran, with its output.
    Ran,
    /// Something of the answer that is neither text nor a call of the client's.
    Piece,
    Output,
    Compaction,
    /// A message of another agent.
    Agent,
    Other,
}

impl Part {
    fn of(item: &Value) -> Self {
        match kind_of(item) {
            "" | "message" => match item.get("role").and_then(Value::as_str) {
                Some("assistant") => Self::Text,
                Some("system" | "developer") => Self::System,
                Some("user") => Self::User,
                _ => Self::Other,
            },
            "reasoning" => Self::Reasoning,
            "mcp_call" | "code_interpreter_call" => Self::Ran,
            "compaction" | "compaction_summary" => Self::Compaction,
            "agent_message" => Self::Agent,
            kind if kind.ends_with("_output") => Self::Output,
            kind if kind.ends_with("_call") => match item.get("call_id") {
                Some(id) if id.is_string() => Self::Call,
                _ => Self::Piece,
            },
            _ => Self::Other,
        }
    }

    fn is_answer(self) -> bool {
        matches!(self, Self::Text | Self::Reasoning | Self::Call | Self::Ran | Self::Piece)
    }
}

/// Text and reasoning that wait for a call or for the end of their response.
struct Waiting {
    id: String,
    place: String,
    timestamp: Option<String>,
    response: String,
    reasoning: Option<String>,
    blocks: Vec<ContentBlock>,
    rests: Vec<Map<String, Value>>,
}

/// Turns items into events, one after another.
#[derive(Default)]
pub(crate) struct Items {
    waiting: Option<Waiting>,
    /// The response that the items of the current run belong to.
    response: Option<String>,
    /// The first event of the newest response that nothing was paid for yet.
    unpaid: Option<usize>,
    /// Whether there was anything that a model sees: a later instruction is no system prompt.
    pub(crate) has_shown: bool,
    /// Record ids of calls, by call id.
    calls: HashMap<String, String>,
    /// Whether the items are what a compaction left: one that is encrypted is then part of that.
    pub(crate) is_replacement: bool,
}

impl Items {
    /// Adds the next item. Its record has the id as given, or with `-output` where its call has the same.
    pub(crate) fn push(
        &mut self,
        builder: &mut Builder,
        id: String,
        place: String,
        timestamp: Option<String>,
        item: Value,
    ) {
        let part = Part::of(&item);
        let Value::Object(mut item) = item else {
            self.flush(builder);
            builder.begin(&id, place.clone(), timestamp);
            builder.note([Diagnostic::new(place, "an item that is no object; kept as unknown")]);
            builder.add_unknown(Source::Environment, "item", item);
            return;
        };
        if !part.is_answer() {
            // What no model saw does not end a response.
            if part != Part::Other {
                self.flush(builder);
                self.response = None;
            }
            return self.push_input(builder, part, id, place, timestamp, item);
        }
        let named = item.get("created_by").and_then(Value::as_str).map(str::to_owned);
        if named.is_some() && self.response.is_some() && named != self.response {
            self.flush(builder);
            self.response = None;
        }
        if self.response.is_none() {
            self.response = Some(named.unwrap_or_else(|| format!("response-{id}")));
            self.unpaid = None;
        }
        self.has_shown = true;
        let response = self.response.clone().unwrap_or_default();
        if matches!(part, Part::Call | Part::Ran) {
            return self.push_call(builder, part, id, place, timestamp, item);
        }
        let waiting = self.waiting.get_or_insert_with(|| Waiting {
            id: String::new(),
            place: String::new(),
            timestamp: None,
            response,
            reasoning: None,
            blocks: Vec::new(),
            rests: Vec::new(),
        });
        match part {
            Part::Reasoning => {
                let text = reasoning_text(&item);
                if !text.is_empty() {
                    let before = waiting.reasoning.take().map(|before| format!("{before}\n\n")).unwrap_or_default();
                    waiting.reasoning = Some(before + &text);
                }
            }
            Part::Text => waiting.blocks.extend(take_message(&mut item)),
            _ => waiting.blocks.push(piece(&item)),
        }
        (waiting.place, waiting.timestamp) = (place, timestamp);
        item.insert("id".to_owned(), Value::from(id.as_str()));
        waiting.id = id;
        waiting.rests.push(item);
    }

    /// Ends the response: text that no call followed is a message; reasoning alone is unknown.
    pub(crate) fn flush(&mut self, builder: &mut Builder) {
        let Some(mut waiting) = self.waiting.take() else { return };
        builder.begin(&waiting.id, waiting.place, waiting.timestamp);
        let mut rest = waiting.rests.pop().unwrap_or_default();
        rest.shift_remove("id");
        merge(&mut rest, waiting.rests);
        let at = builder.events().len();
        if waiting.blocks.is_empty() {
            builder.add_unknown(Source::Agent, "reasoning", Value::Object(rest));
        } else {
            let mut answer = Answer::new(waiting.response);
            waiting.reasoning.into_iter().for_each(|text| answer.reason(text));
            answer.say(waiting.blocks);
            answer.add_to(builder, None, rest);
        }
        self.unpaid.get_or_insert(at);
    }

    /// Whether an event may still change: its response is not complete, or not paid for.
    pub(crate) fn is_open(&self) -> bool {
        self.waiting.is_some() || self.unpaid.is_some()
    }

    /// Ends the response as one that nothing is paid for.
    pub(crate) fn end_unpaid(&mut self, builder: &mut Builder) {
        self.close(builder);
        self.response = None;
    }

    /// Gives up waiting for what the newest response cost.
    pub(crate) fn close(&mut self, builder: &mut Builder) {
        self.flush(builder);
        self.unpaid = None;
    }

    /// Says what the newest response cost. False where no response waits for it.
    pub(crate) fn pay(&mut self, builder: &mut Builder, usage: Usage) -> bool {
        self.flush(builder);
        match self.unpaid.take() {
            Some(at) => {
                builder.set_usage_of(at, usage);
                self.response = None;
                true
            }
            None => false,
        }
    }

    fn push_call(
        &mut self,
        builder: &mut Builder,
        part: Part,
        id: String,
        place: String,
        timestamp: Option<String>,
        mut item: Map<String, Value>,
    ) {
        let record = builder.begin(&id, place, timestamp);
        let call_id = take_text(&mut item, "call_id").unwrap_or_else(|| record.as_str().to_owned());
        self.calls.insert(call_id.clone(), record.as_str().to_owned());
        let kind = item.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let (tool_name, given) = match kind.as_str() {
            "custom_tool_call" => {
                let name = take_text(&mut item, "name").unwrap_or_default();
                // Free text; a call's arguments are an object.
                let input = take_text(&mut item, "input").unwrap_or_default();
                (name, Some(json!({ "input": input })))
            }
            "local_shell_call" => ("local_shell".to_owned(), item.shift_remove("action")),
            "code_interpreter_call" => ("code_interpreter".to_owned(), {
                let code = item.shift_remove("code");
                Some(json!({ "code": code }))
            }),
            _ => {
                let name = take_text(&mut item, "name");
                let name = name.unwrap_or_else(|| kind.trim_end_matches("_call").to_owned());
                let given = item.shift_remove("arguments").or_else(|| item.shift_remove("action"));
                (name, given)
            }
        };
        let output = match part {
            Part::Ran => Some(
                ["output", "outputs", "error"]
                    .into_iter()
                    .find_map(|key| item.shift_remove(key).filter(|value| !value.is_null()).map(|value| (key, value))),
            ),
            _ => None,
        };
        let mut answer = Answer::new(self.response.clone().unwrap_or_default());
        if let Some(waiting) = self.waiting.take() {
            waiting.reasoning.into_iter().for_each(|text| answer.reason(text));
            answer.say(waiting.blocks);
            merge(&mut item, waiting.rests);
        }
        answer.call(call_id.clone(), tool_name, arguments(given), Map::new());
        let at = builder.events().len();
        answer.add_to(builder, None, item);
        self.unpaid.get_or_insert(at);
        if let Some(output) = output {
            let (key, value) = output.unwrap_or(("output", Value::Null));
            let mut holder = Map::from_iter([("output".to_owned(), value)]);
            let content = take_output(&mut holder);
            let outcome = if key == "error" { Outcome::Error } else { Outcome::Ok };
            let observation = Observation { call_id, content, outcome, ..Observation::default() };
            builder.add(Source::Environment, EventKind::Observation(observation)).foreign = holder.into();
        }
    }

    fn push_input(
        &mut self,
        builder: &mut Builder,
        part: Part,
        id: String,
        place: String,
        timestamp: Option<String>,
        mut item: Map<String, Value>,
    ) {
        let of_call = |call: Option<&str>| call.and_then(|call| self.calls.get(call)).is_some_and(|call| *call == id);
        let id = match part {
            Part::Output if of_call(item.get("call_id").and_then(Value::as_str)) => format!("{id}-output"),
            _ => id,
        };
        builder.begin(&id, place, timestamp);
        match part {
            Part::System if !self.has_shown => {
                let content = take_message(&mut item);
                let prompt = SystemPrompt { content, ..SystemPrompt::default() };
                builder.add(Source::Environment, EventKind::SystemPrompt(prompt)).foreign = item.into();
            }
            Part::System | Part::User | Part::Agent => {
                let (role, source) = match part {
                    Part::System => (Role::System, Source::Environment),
                    Part::Agent => (Role::User, Source::Environment),
                    _ if is_injected(&item) => (Role::User, Source::Environment),
                    _ => (Role::User, Source::User),
                };
                let name = if part == Part::Agent { take_text(&mut item, "author") } else { None };
                let content = take_message(&mut item);
                let message = Message { content, name, ..Message::text(role, "") };
                builder.add(source, EventKind::Message(message)).foreign = item.into();
            }
            Part::Output => {
                let call_id = take_text(&mut item, "call_id").unwrap_or_default();
                let refused = item.get("output").and_then(|output| output.get("success")) == Some(&Value::Bool(false));
                let outcome = if refused { Outcome::Error } else { Outcome::Ok };
                let content = take_output(&mut item);
                let observation = Observation { call_id, content, outcome, ..Observation::default() };
                builder.add(Source::Environment, EventKind::Observation(observation)).foreign = item.into();
            }
            Part::Compaction => {
                let data = item.get("encrypted_content").and_then(Value::as_str).map(str::to_owned);
                let mut rest = Some(item);
                if !self.is_replacement {
                    builder.add_compaction(None, true, |_| false).foreign = rest.take().unwrap_or_default().into();
                }
                let content = data.map(|data| ContentBlock::RedactedThinking { data }).into_iter().collect();
                let message = Message { content, ..Message::text(Role::Assistant, "") };
                builder.add(Source::Environment, EventKind::Message(message)).foreign = rest.unwrap_or_default().into();
            }
            _ => {
                let kind = item.get("type").and_then(Value::as_str).unwrap_or("item").to_owned();
                builder.add_unknown(Source::Environment, &kind, Value::Object(item));
            }
        }
        self.has_shown |= part != Part::Other;
    }
}

fn merge(rest: &mut Map<String, Value>, rests: Vec<Map<String, Value>>) {
    if !rests.is_empty() {
        rest.insert("merged".to_owned(), rests.into_iter().map(Value::Object).collect());
    }
}

/// Whether a message of the role user was put there by the client.
fn is_injected(item: &Map<String, Value>) -> bool {
    const MARKS: [&str; 5] = [
        "<environment_context>",
        "<user_instructions>",
        "# AGENTS.md instructions",
        "<permissions instructions>",
        "<turn_aborted>",
    ];
    let text = match item.get("content") {
        Some(Value::String(text)) => Some(text.as_str()),
        Some(Value::Array(parts)) => parts.first().and_then(|part| part.get("text")?.as_str()),
        _ => None,
    };
    text.is_some_and(|text| MARKS.iter().any(|mark| text.trim_start().starts_with(mark)))
}

/// The summaries and the text of a reasoning item.
fn reasoning_text(item: &Map<String, Value>) -> String {
    let texts = ["summary", "content"].into_iter().filter_map(|key| item.get(key)?.as_array()).flatten();
    texts.filter_map(|part| part.get("text")?.as_str()).collect::<Vec<_>>().join("\n\n")
}

/// The content of a message item. Its type and role are told by the event, unless the role is `developer`.
fn take_message(item: &mut Map<String, Value>) -> Vec<ContentBlock> {
    if item.get("role").is_some_and(|role| role != "developer") {
        item.shift_remove("role");
    }
    take_content(item, "content", part)
}

/// What a call gave: text, parts, one part, or any other value as its JSON text.
fn take_output(item: &mut Map<String, Value>) -> Vec<ContentBlock> {
    let key = ["output", "tools", "result"].into_iter().find(|key| item.contains_key(*key)).unwrap_or("output");
    take_content(item, key, |value| match value.get("content").and_then(Value::as_str) {
        Some(text) if value.get("type").is_none() => (ContentBlock::text(text), false),
        _ => part(value),
    })
}

/// A part of the answer that is kept verbatim; an image that the provider made is shown.
fn piece(item: &Map<String, Value>) -> ContentBlock {
    match (item.get("type").and_then(Value::as_str), item.get("result").and_then(Value::as_str)) {
        (Some("image_generation_call"), Some(data)) => {
            ContentBlock::Image { urls: vec![format!("data:image/png;base64,{data}")], cache: false }
        }
        _ => ContentBlock::Other { value: Value::Object(item.clone()) },
    }
}

/// A content part, and whether the block says everything that the part did.
pub(crate) fn part(value: &Value) -> (ContentBlock, bool) {
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let only = |known: &[&str]| {
        value
            .as_object()
            .is_some_and(|map| map.iter().all(|(key, value)| value.is_null() || known.contains(&key.as_str())))
    };
    match kind_of(value) {
        "input_text" | "output_text" | "text" | "summary_text" | "inputText" => match text("text") {
            Some(text) => (ContentBlock::text(text), only(&["type", "text"])),
            None => block(value),
        },
        "refusal" => match text("refusal") {
            Some(text) => (ContentBlock::text(text), false),
            None => block(value),
        },
        "input_image" => match value.get("image_url").and_then(|url| url.get("url").unwrap_or(url).as_str()) {
            Some(url) => {
                (ContentBlock::Image { urls: vec![url.to_owned()], cache: false }, only(&["type", "image_url"]))
            }
            None => block(value),
        },
        _ => block(value),
    }
}
