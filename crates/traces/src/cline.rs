//! Cline: session files of its SDK, and task folders of the extension before it.
//!
//! A **session** is one object with `messages` and `system_prompt`; messages are Anthropic's, with a time, a
//! model and metrics. A compaction there rewrites the file: the messages that were removed are only in an
//! older copy. A message of kind `compaction_summary` is a condensation with that summary; one of kind
//! `compaction` stays a message, after a condensation that forgets nothing.
//!
//! A **task** is a folder with `api_conversation_history.json`, a list of Anthropic messages. Ranges of
//! messages that were no longer sent stand in `ui_messages.json` (`conversationHistoryDeletedRange`, first and
//! last, counted from 0): each new one is a condensation, after the message that was the last then
//! (`conversationHistoryIndex`). Calls written as XML in the text, and answered by a text that begins with
//! `[<tool> for …] Result:`, are actions and observations; the text as it was stays in `foreign.content`.
//! The files beside it are unknown events.
//!
//! Foreign fields are those of the format `anthropic`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use condenser::condensation::Condensation;
use condenser::event::{ContentBlock, EventKind, Message, Observation, Role, Source, SystemPrompt, Usage};
use serde_json::{Map, Value};

use crate::answer::Answer;
use crate::anthropic::{add_message, is_message};
use crate::blocks::block;
use crate::builder::Builder;
use crate::fields::{take_content, take_list};
use crate::{Diagnostic, Document, Format, ReadError, Trace};

/// The format.
pub(crate) const FORMAT: Format = Format {
    name: "cline",
    description: "Cline: session files of the SDK (*.messages.json), and task folders of the extension",
    sniff,
    read,
};

const HISTORY: &str = "api_conversation_history.json";
/// Files beside a history, kept as they are.
const BESIDE: [&str; 3] = ["ui_messages.json", "task_metadata.json", "context_history.json"];

fn sniff(document: &Document) -> bool {
    if document.is_directory() {
        return document.path.join(HISTORY).is_file();
    }
    match document.single() {
        Some(Value::Array(messages)) => {
            let is_cline = |message: &Value| {
                message.get("ts").is_some_and(Value::is_number)
                    && (message.get("metrics").is_some() || message.get("modelInfo").is_some())
            };
            !messages.is_empty()
                && messages.iter().all(is_message)
                && (document.path.ends_with(HISTORY) || messages.iter().any(is_cline))
        }
        Some(file) => is_session(file),
        None => false,
    }
}

fn is_session(file: &Value) -> bool {
    file.get("sessionId").is_some_and(Value::is_string)
        && file.get("system_prompt").is_some()
        && file.get("version").is_some()
        && file.get("messages").is_some_and(Value::is_array)
}

fn read(mut document: Document) -> Result<Vec<Trace>, ReadError> {
    let is_session = document.single().is_some_and(is_session);
    if !is_session && !sniff(&document) {
        return Err(document.unfit(FORMAT.name, format!("neither a session file nor a folder with {HISTORY}")));
    }
    if is_session {
        let diagnostics = std::mem::take(&mut document.diagnostics);
        let Some(Value::Object(file)) = document.take_records().pop().map(|record| record.value) else {
            return Ok(Vec::new());
        };
        return Ok(vec![session(file, document.name(), diagnostics)]);
    }
    let folder = match document.is_directory() {
        true => Some(document.path.clone()),
        false if document.path.ends_with(HISTORY) => document.path.parent().map(PathBuf::from),
        false => None,
    };
    let name = document.name();
    if document.is_directory() {
        document = Document::open(&document.path.join(HISTORY))?;
    }
    let mut diagnostics = std::mem::take(&mut document.diagnostics);
    let Some(Value::Array(messages)) = document.take_records().pop().map(|record| record.value) else {
        return Err(document.unfit(FORMAT.name, format!("{HISTORY} is no list of messages")));
    };
    let beside = folder.map(|folder| beside(&folder, &mut diagnostics)).unwrap_or_default();
    Ok(vec![task(messages, beside, name, diagnostics)])
}

/// The files beside a history.
fn beside(folder: &std::path::Path, diagnostics: &mut Vec<Diagnostic>) -> Vec<(&'static str, Value)> {
    let mut found = Vec::new();
    for name in BESIDE {
        match Document::open(&folder.join(name)) {
            Ok(mut file) => found.extend(file.take_records().pop().map(|record| (name, record.value))),
            Err(ReadError::NotFound { .. }) => {}
            Err(error) => {
                diagnostics.push(Diagnostic::new(name, "cannot be read; the messages are read without it"));
                drop(error);
            }
        }
    }
    found
}

fn session(mut file: Map<String, Value>, name: String, diagnostics: Vec<Diagnostic>) -> Trace {
    let mut builder = Builder::new(diagnostics);
    let messages = take_list(&mut file, "messages").unwrap_or_default();
    let session = file.get("sessionId").and_then(Value::as_str).map(str::to_owned);
    let content = take_content(&mut file, "system_prompt", block);
    file.shift_remove("system_prompt_shape");
    builder.begin("file", "file".to_owned(), None);
    builder.add_unknown(Source::Environment, "file", Value::Object(file));
    if !content.is_empty() {
        builder.begin("system", "system_prompt".to_owned(), None);
        builder.add(Source::Agent, EventKind::SystemPrompt(SystemPrompt { content, ..SystemPrompt::default() }));
    }
    let records = messages.len();
    for (at, message) in messages.into_iter().enumerate() {
        begin(&mut builder, at, &message);
        let Some(message) = as_message(&mut builder, message) else { continue };
        let metadata = |key: &str| message.get("metadata").and_then(|metadata| metadata.get(key));
        match metadata("kind").and_then(Value::as_str) {
            Some("compaction_summary") => {
                let mut message = message;
                // The text that was shown; the metadata repeats it without its heading.
                let content = take_content(&mut message, "content", block);
                let texts: Vec<&str> = content.iter().filter_map(ContentBlock::as_text).collect();
                let event = builder.add_compaction_at_end(Some(texts.join("\n")), true, |_| true);
                event.foreign = message.into();
            }
            Some("compaction") => {
                if let Some(removed) = metadata("messagesRemoved").and_then(Value::as_u64) {
                    let what =
                        format!("{removed} messages were removed before this copy was written, and are not in it");
                    let place = builder.place().to_owned();
                    builder.note([Diagnostic::new(place, what)]);
                }
                builder.add_condensation(Condensation::default());
                add_message(&mut builder, message, part, usage);
            }
            _ => add_message(&mut builder, message, part, usage),
        }
    }
    Trace { session, ..builder.finish(name, FORMAT.name, records) }
}

/// Begins the record of a message.
fn begin(builder: &mut Builder, at: usize, message: &Value) {
    let id = message.get("id").and_then(Value::as_str).filter(|id| !id.is_empty());
    let time = message.get("ts").filter(|time| time.is_number()).map(Value::to_string);
    builder.begin(&id.map_or_else(|| format!("m{at}"), str::to_owned), format!("messages[{at}]"), time);
}

fn as_message(builder: &mut Builder, message: Value) -> Option<Map<String, Value>> {
    match message {
        Value::Object(map) if is_role(&map) => Some(map),
        other => {
            let place = builder.place().to_owned();
            builder.note([Diagnostic::new(place, "no message of the role user or assistant; kept as unknown")]);
            builder.add_unknown(Source::Environment, "message", other);
            None
        }
    }
}

fn is_role(message: &Map<String, Value>) -> bool {
    matches!(message.get("role").and_then(Value::as_str), Some("user" | "assistant"))
}

/// The ranges of messages that are no longer sent, each with the last message before it took hold.
fn deletions(ui: &Value, messages: usize) -> BTreeMap<usize, (usize, usize)> {
    let number = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok());
    let mut found = BTreeMap::new();
    let mut known = None;
    for entry in ui.as_array().into_iter().flatten() {
        let range = entry.get("conversationHistoryDeletedRange").and_then(Value::as_array);
        let Some([first, last]) = range.map(Vec::as_slice) else { continue };
        let Some(range) = number(first).zip(number(last)) else { continue };
        if known == Some(range) {
            continue;
        }
        known = Some(range);
        let at = entry.get("conversationHistoryIndex").and_then(number);
        // It cannot have been in force before its last message was there.
        let at = at.unwrap_or(usize::MAX).max(range.1).min(messages.saturating_sub(1));
        found.insert(at, range);
    }
    found
}

fn task(messages: Vec<Value>, beside: Vec<(&'static str, Value)>, name: String, diagnostics: Vec<Diagnostic>) -> Trace {
    let mut builder = Builder::new(diagnostics);
    let records = messages.len();
    let mut deletions = beside
        .iter()
        .find(|(name, _)| *name == "ui_messages.json")
        .map(|(_, ui)| deletions(ui, records))
        .unwrap_or_default();
    for (name, value) in beside {
        builder.begin(name, name.to_owned(), None);
        builder.add_unknown(Source::Environment, name.trim_end_matches(".json"), value);
    }
    let mut messages = messages.into_iter().enumerate().peekable();
    let mut open = None;
    // The events of each message.
    let mut spans = Vec::new();
    while let Some((at, message)) = messages.next() {
        begin(&mut builder, at, &message);
        let first = builder.events().len();
        if let Some(message) = as_message(&mut builder, message) {
            let next = messages.peek().and_then(|(_, next)| answered_tool(next));
            open = add_task_message(&mut builder, message, open.take(), next);
        }
        spans.push(first..builder.events().len());
        if let Some((first, last)) = deletions.remove(&at) {
            let forgotten_event_ids: BTreeSet<_> = spans
                .get(first..=last)
                .unwrap_or_default()
                .iter()
                .flat_map(|span| &builder.events()[span.clone()])
                .filter(|event| event.kind.is_shown())
                .map(|event| event.id.clone())
                .collect();
            builder.begin(&format!("deleted-{first}-{last}"), format!("messages[{at}]"), None);
            builder.add_condensation(Condensation { forgotten_event_ids, ..Condensation::default() });
        }
    }
    builder.finish(name, FORMAT.name, records)
}

/// Adds a message of a task; `open` is the call in text right before it, `next` the tool that the next message
/// answers. Returns the call this message makes in text.
fn add_task_message(
    builder: &mut Builder,
    mut message: Map<String, Value>,
    open: Option<(String, String)>,
    next: Option<String>,
) -> Option<(String, String)> {
    if message.get("role").and_then(Value::as_str) == Some("assistant") {
        let call = next.and_then(|tool| Some((text_call(&message, &tool)?, tool)));
        let Some((TextCall { thought, arguments }, tool)) = call else {
            add_message(builder, message, part, usage);
            return None;
        };
        message.shift_remove("role");
        let response = builder.record().as_str().to_owned();
        let call_id = format!("{response}-call");
        let mut answer = Answer::new(response);
        answer.say((!thought.is_empty()).then(|| ContentBlock::text(thought)));
        answer.call(call_id.clone(), tool.clone(), arguments, Map::new());
        let usage = usage(&message);
        answer.add_to(builder, usage, message);
        return Some((call_id, tool));
    }
    let tool = answered_tool(&Value::Object(message.clone()));
    let Some((call_id, tool_name)) = open.filter(|(_, open)| tool.as_ref() == Some(open)) else {
        add_message(builder, message, part, usage);
        return None;
    };
    message.shift_remove("role");
    let blocks = match message.get("content") {
        Some(Value::Array(parts)) => parts.iter().map(|value| part(value).0).collect(),
        Some(Value::String(text)) => vec![ContentBlock::text(text.as_str())],
        _ => Vec::new(),
    };
    let is_own = |block: &ContentBlock| !block.as_text().is_some_and(|text| text.starts_with("<environment_details>"));
    let n_own = blocks.iter().take_while(|block| is_own(block)).count();
    let mut content = blocks;
    let rest = content.split_off(n_own);
    let observation = Observation { call_id, tool_name, content, ..Observation::default() };
    builder.add(Source::Environment, EventKind::Observation(observation)).foreign = message.into();
    if !rest.is_empty() {
        let message = Message { content: rest, ..Message::text(Role::User, "") };
        builder.add(Source::Environment, EventKind::Message(message));
    }
    None
}

/// The tool that a message answers in text: `[<tool> for …] Result:` or `[<tool>] Result:`.
fn answered_tool(message: &Value) -> Option<String> {
    if message.get("role")?.as_str()? != "user" {
        return None;
    }
    let text = match message.get("content")? {
        Value::String(text) => text.as_str(),
        Value::Array(parts) => parts.first()?.get("text")?.as_str()?,
        _ => return None,
    };
    let (head, _) = text.strip_prefix('[')?.split_once("] Result:")?;
    let tool = head.split([' ', ']']).next()?;
    let is_name = !tool.is_empty() && tool.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    (is_name && !head.contains('\n')).then(|| tool.to_owned())
}

/// A call written as XML in a text.
struct TextCall {
    thought: String,
    arguments: String,
}

fn text_call(message: &Map<String, Value>, tool: &str) -> Option<TextCall> {
    let texts: Vec<&str> = match message.get("content")? {
        Value::String(text) => vec![text],
        Value::Array(parts) => parts.iter().map(|part| part.get("text")?.as_str()).collect::<Option<_>>()?,
        _ => return None,
    };
    let text = texts.join("\n");
    let (before, body) = text.split_once(&format!("<{tool}>"))?;
    let (body, _) = body.rsplit_once(&format!("</{tool}>")).unwrap_or((body, ""));
    let mut arguments = Map::new();
    let mut rest = body;
    while let Some((_, tagged)) = rest.split_once('<') {
        let Some((name, value)) = tagged.split_once('>') else { break };
        let close = format!("</{name}>");
        // A file's text may hold anything, its own tag too.
        let parts = match name {
            "content" | "diff" => value.rsplit_once(&close),
            _ => value.split_once(&close),
        };
        let Some((value, after)) = parts else { break };
        arguments.insert(name.to_owned(), Value::from(value));
        rest = after;
    }
    Some(TextCall { thought: before.trim_end().to_owned(), arguments: Value::Object(arguments).to_string() })
}

/// A content block; a file is shown as Cline shows it to the model.
fn part(value: &Value) -> (ContentBlock, bool) {
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    match (text("type"), text("path"), text("content")) {
        (Some("file"), Some(path), Some(content)) => {
            (ContentBlock::text(format!("<file_content path=\"{path}\">\n{content}\n</file_content>")), false)
        }
        _ => block(value),
    }
}

/// The figures of an answer. The SDK's `inputTokens` includes what was read from and written to the cache.
fn usage(message: &Map<String, Value>) -> Option<Usage> {
    let metrics = message.get("metrics")?;
    let model = message.get("modelInfo").and_then(|info| info.get("id").or_else(|| info.get("modelId"))?.as_str());
    let count = |key: &str| metrics.get(key).and_then(Value::as_u64);
    if let Some(tokens) = metrics.get("tokens") {
        let count = |key: &str| tokens.get(key).and_then(Value::as_u64);
        return Some(Usage {
            input_tokens: count("prompt"),
            cache_read_tokens: count("cached"),
            cache_write_tokens: None,
            output_tokens: count("completion"),
            model: model.map(str::to_owned),
        });
    }
    let (read, write) = (count("cacheReadTokens"), count("cacheWriteTokens"));
    let cached = read.unwrap_or(0).saturating_add(write.unwrap_or(0));
    Some(Usage {
        input_tokens: Some(count("inputTokens")?.saturating_sub(cached)),
        cache_read_tokens: read,
        cache_write_tokens: write,
        output_tokens: count("outputTokens"),
        model: model.map(str::to_owned),
    })
}
