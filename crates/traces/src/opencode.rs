//! OpenCode sessions: an export (`{info, messages}`), the rows of its database, the files of its old storage.
//!
//! Rows stand in a folder as `sessions.json`, `messages.json` and `parts.json`, each a list whose members have
//! their object as JSON text in `data`. Old storage is a folder with `session`, `message` and `part`, a
//! file an object. Each session is a trace; messages and parts are sorted by id, as time is.
//!
//! | part | event |
//! | --- | --- |
//! | `text` and `file` of a user message | one user message |
//! | `text`, `reasoning`, `file` of an answer | go with the next call of the step, or are a message where none follows |
//! | `tool` | an action, and an observation after the step's actions where it ended |
//! | `step-start` | begins the next response of the message |
//! | the text of an answer with `summary: true` | a condensation that forgets everything before, but the tail the compaction names |
//! | outputs marked `time.compacted` | a condensation that clears them, before the next message after that time |
//!
//! All events of a message have it as their record. `foreign` of the first holds the rest of the message (`info`)
//! and, in `parts`, what is left of the parts that are no events. The session itself is the event `session`,
//! never shown. Answers that failed before they said anything, and messages that were taken back, are unknown.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::Path;

use condenser::condensation::{Condensation, Rewrite, RewriteOp};
use condenser::event::{ContentBlock, EventId, EventKind, Message, Observation, Outcome, Role, Source, Usage};
use serde_json::{Map, Value};

use crate::answer::{Answer, arguments};
use crate::builder::{Builder, Count};
use crate::fields::{take_list, take_object, take_text};
use crate::{Diagnostic, Document, Format, Link, ReadError, Trace};

/// The format.
pub(crate) const FORMAT: Format = Format {
    name: "opencode",
    description: "OpenCode sessions: an export, the rows of its database, the files of its old storage",
    sniff,
    read,
};

/// What stands for an output that is no longer sent.
const CLEARED: &str = "[Old tool result content cleared]";

fn sniff(document: &Document) -> bool {
    if document.is_directory() {
        return is_rows(&document.path) || is_storage(&document.path);
    }
    document.single().is_some_and(is_export)
}

fn is_rows(folder: &Path) -> bool {
    folder.join("messages.json").is_file() && folder.join("parts.json").is_file()
}

fn is_storage(folder: &Path) -> bool {
    ["session", "message", "part"].iter().all(|name| folder.join(name).is_dir())
}

fn is_export(file: &Value) -> bool {
    let is_message = |message: &Value| {
        message.get("info").is_some_and(Value::is_object) && message.get("parts").is_some_and(Value::is_array)
    };
    file.get("info").is_some_and(Value::is_object)
        && file.get("messages").and_then(Value::as_array).is_some_and(|messages| messages.iter().all(is_message))
}

/// One session with its messages and their parts, ids inside.
#[derive(Default)]
struct Stored {
    session: Map<String, Value>,
    messages: Vec<Said>,
}

/// A message and its parts.
type Said = (Map<String, Value>, Vec<Map<String, Value>>);

fn read(mut document: Document) -> Result<Vec<Trace>, ReadError> {
    let mut diagnostics = std::mem::take(&mut document.diagnostics);
    let (sessions, records) = if document.is_directory() {
        if is_rows(&document.path) {
            rows(&document.path, &mut diagnostics)?
        } else if is_storage(&document.path) {
            storage(&document.path, &mut diagnostics)
        } else {
            return Err(
                document.unfit(FORMAT.name, "the folder has neither messages.json and parts.json nor message and part")
            );
        }
    } else {
        if !document.single().is_some_and(is_export) {
            return Err(document.unfit(FORMAT.name, "not one object with `info` and messages of `info` and `parts`"));
        }
        let Some(Value::Object(mut file)) = document.take_records().pop().map(|record| record.value) else {
            return Ok(Vec::new());
        };
        let messages = take_list(&mut file, "messages").unwrap_or_default();
        let records = messages.len();
        let messages = messages.into_iter().filter_map(as_object).map(|mut message| {
            let parts =
                take_list(&mut message, "parts").unwrap_or_default().into_iter().filter_map(as_object).collect();
            (take_object(&mut message, "info").unwrap_or_default(), parts)
        });
        let messages = messages.collect();
        let mut session = take_object(&mut file, "info").unwrap_or_default();
        // Beside the two there is nothing in an export; whatever there is stays.
        session.extend((!file.is_empty()).then(|| ("file".to_owned(), Value::Object(file))));
        (vec![Stored { session, messages }], records)
    };
    if sessions.is_empty() {
        return Err(document.unfit(FORMAT.name, "there is no message"));
    }
    let is_one = sessions.len() == 1;
    let mut traces = Vec::new();
    for (row, stored) in sessions.into_iter().enumerate() {
        let name = if is_one { document.name() } else { document.row_name(row) };
        traces.push(trace(stored, name, records, std::mem::take(&mut diagnostics)));
    }
    Ok(traces)
}

fn as_object(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(map) => Some(map),
        _ => None,
    }
}

/// The rows of a table, with the object in `data` unpacked around the columns.
fn table(folder: &Path, name: &str, diagnostics: &mut Vec<Diagnostic>) -> Result<Vec<Map<String, Value>>, ReadError> {
    let mut file = match Document::open(&folder.join(name)) {
        Ok(file) => file,
        Err(ReadError::NotFound { .. }) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let found = std::mem::take(&mut file.diagnostics);
    diagnostics.extend(found.into_iter().map(|odd| Diagnostic::new(format!("{name} {}", odd.place), odd.message)));
    let values = file.take_records().into_iter().flat_map(|record| match record.value {
        Value::Array(rows) => rows,
        other => vec![other],
    });
    let mut rows = Vec::new();
    for (at, row) in values.enumerate() {
        let Value::Object(mut row) = row else {
            diagnostics.push(Diagnostic::new(format!("{name} row {at}"), "a row that is no object; left out"));
            continue;
        };
        let data = match row.get("data") {
            Some(Value::String(text)) => serde_json::from_str(text).ok(),
            Some(Value::Object(_)) => row.shift_remove("data"),
            None => Some(Value::Object(Map::new())),
            Some(_) => None,
        };
        match data {
            Some(Value::Object(data)) => {
                row.shift_remove("data");
                let columns = std::mem::replace(&mut row, data);
                row.insert("columns".to_owned(), Value::Object(columns));
            }
            _ => diagnostics
                .push(Diagnostic::new(format!("{name} row {at}"), "`data` is no object as JSON text; kept as it is")),
        }
        rows.push(row);
    }
    Ok(rows)
}

/// A field of an object, or the column of its row.
fn field<'a>(map: &'a Map<String, Value>, keys: &[&str]) -> Option<&'a Value> {
    let columns = map.get("columns").and_then(Value::as_object);
    let mut found = keys.iter().filter_map(|key| map.get(*key).or_else(|| columns?.get(*key)));
    found.find(|value| !value.is_null())
}

fn text_of<'a>(map: &'a Map<String, Value>, keys: &[&str]) -> &'a str {
    field(map, keys).and_then(Value::as_str).unwrap_or_default()
}

fn rows(folder: &Path, diagnostics: &mut Vec<Diagnostic>) -> Result<(Vec<Stored>, usize), ReadError> {
    let sessions = table(folder, "sessions.json", diagnostics)?;
    let messages = table(folder, "messages.json", diagnostics)?;
    let parts = table(folder, "parts.json", diagnostics)?;
    let records = sessions.len() + messages.len() + parts.len();
    Ok((join(sessions, messages, parts, diagnostics), records))
}

fn storage(folder: &Path, diagnostics: &mut Vec<Diagnostic>) -> (Vec<Stored>, usize) {
    let mut objects = |kind: &str| {
        let mut files = Vec::new();
        let mut open = vec![folder.join(kind)];
        while let Some(next) = open.pop() {
            let entries = fs::read_dir(&next).into_iter().flatten().flatten();
            for entry in entries {
                let path = entry.path();
                // Links could lead back up.
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => open.push(path),
                    Ok(kind) if kind.is_file() && path.extension().is_some_and(|end| end == "json") => files.push(path),
                    _ => {}
                }
            }
        }
        files.sort_unstable();
        let mut objects = Vec::new();
        for path in files {
            let place = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
            match Document::open(&path).map(|mut file| file.take_records().pop().map(|record| record.value)) {
                Ok(Some(Value::Object(object))) => objects.push(object),
                Ok(_) => diagnostics.push(Diagnostic::new(place, "no object; left out")),
                Err(_) => diagnostics.push(Diagnostic::new(place, "cannot be read; left out")),
            }
        }
        objects
    };
    let (sessions, messages, parts) = (objects("session"), objects("message"), objects("part"));
    let records = sessions.len() + messages.len() + parts.len();
    (join(sessions, messages, parts, diagnostics), records)
}

/// Puts parts to their messages and messages to their sessions.
fn join(
    sessions: Vec<Map<String, Value>>,
    messages: Vec<Map<String, Value>>,
    parts: Vec<Map<String, Value>>,
    diagnostics: &mut Vec<Diagnostic>,
) -> Vec<Stored> {
    let mut of_message: HashMap<String, Vec<Map<String, Value>>> = HashMap::new();
    for part in parts {
        of_message.entry(text_of(&part, &["messageID", "message_id"]).to_owned()).or_default().push(part);
    }
    let mut order = Vec::new();
    let mut stored: HashMap<String, Stored> = HashMap::new();
    for session in sessions {
        let id = text_of(&session, &["id"]).to_owned();
        order.push(id.clone());
        stored.entry(id).or_default().session = session;
    }
    for message in messages {
        let id = text_of(&message, &["sessionID", "session_id"]).to_owned();
        let parts = of_message.remove(text_of(&message, &["id"])).unwrap_or_default();
        if !stored.contains_key(&id) {
            order.push(id.clone());
        }
        stored.entry(id).or_default().messages.push((message, parts));
    }
    let lost: usize = of_message.values().map(Vec::len).sum();
    if lost > 0 {
        diagnostics.push(Diagnostic::new("parts", format!("parts of messages that are not there, left out: {lost}")));
    }
    order.into_iter().filter_map(|id| stored.remove(&id)).collect()
}

fn trace(stored: Stored, name: String, records: usize, diagnostics: Vec<Diagnostic>) -> Trace {
    let Stored { session, mut messages } = stored;
    let id = text_of(&session, &["id"]).to_owned();
    let parent = text_of(&session, &["parentID", "parent_id"]).to_owned();
    let parent = (!parent.is_empty()).then_some(Link { to: parent, call_id: None });
    let revert = match field(&session, &["revert"]) {
        Some(Value::String(text)) => serde_json::from_str(text).ok(),
        other => other.cloned(),
    };
    let reverted = revert.and_then(|revert: Value| Some(revert.get("messageID")?.as_str()?.to_owned()));

    messages.sort_by(|(a, _), (b, _)| text_of(a, &["id"]).cmp(text_of(b, &["id"])));
    let tails = tails(&messages);
    let mut builder = Builder::new(diagnostics);
    builder.begin("session", "session".to_owned(), None);
    builder.add_unknown(Source::Environment, "session", Value::Object(session));
    let mut reader = Reader { builder, prunes: Vec::new(), order: Vec::new(), tails, taken_back: Count::default() };
    for (at, (info, mut parts)) in messages.into_iter().enumerate() {
        parts.sort_by(|a, b| text_of(a, &["id"]).cmp(text_of(b, &["id"])));
        let is_back = reverted.as_deref().is_some_and(|first| text_of(&info, &["id"]) >= first);
        reader.add(at, info, parts, is_back);
    }
    reader.prune(u64::MAX);
    let Reader { mut builder, taken_back, .. } = reader;
    builder.note(taken_back.report("messages that were taken back, kept as unknown"));
    let session = (!id.is_empty()).then_some(id);
    Trace { session, parent, ..builder.finish(name, FORMAT.name, records) }
}

/// Where the messages begin that compactions keep, by the id of the message that asked for one.
fn tails(messages: &[Said]) -> HashMap<String, Option<String>> {
    let mut tails = HashMap::new();
    for (info, parts) in messages {
        if let Some(part) = parts.iter().find(|part| text_of(part, &["type"]) == "compaction") {
            let tail = text_of(part, &["tail_start_id", "tailStartID"]);
            tails.insert(text_of(info, &["id"]).to_owned(), (!tail.is_empty()).then(|| tail.to_owned()));
        }
    }
    tails
}

struct Reader {
    builder: Builder,
    /// Outputs that are no longer sent, by the time from which.
    prunes: Vec<(u64, EventId)>,
    /// Message ids with the record ids they got.
    order: Vec<(String, EventId)>,
    tails: HashMap<String, Option<String>>,
    taken_back: Count,
}

impl Reader {
    fn add(&mut self, at: usize, mut info: Map<String, Value>, parts: Vec<Map<String, Value>>, is_taken_back: bool) {
        let id = text_of(&info, &["id"]).to_owned();
        let id = if id.is_empty() { format!("m{at}") } else { id };
        let created = info.get("time").and_then(|time| time.get("created"));
        let created = created.or_else(|| field(&info, &["time_created"]));
        let time = created.filter(|time| time.is_number()).map(Value::to_string);
        if let Some(now) = created.and_then(Value::as_u64) {
            self.prune(now);
        }
        let record = self.builder.begin(&id, format!("messages[{at}]"), time);
        self.order.push((id, record));
        if is_taken_back {
            self.taken_back.add(|| format!("messages[{at}]"));
            return self.add_whole(Source::Environment, "message", info, parts);
        }
        match info.get("role").and_then(Value::as_str) {
            Some("user") => {
                info.shift_remove("role");
                self.add_user(info, parts);
            }
            Some("assistant") => self.add_answer(info, parts),
            _ => {
                let place = self.builder.place().to_owned();
                self.builder.note([Diagnostic::new(place, "a message of no known role; kept as unknown")]);
                self.add_whole(Source::Environment, "message", info, parts);
            }
        }
    }

    /// Adds a message that no model saw, with its parts.
    fn add_whole(&mut self, source: Source, kind: &str, info: Map<String, Value>, parts: Vec<Map<String, Value>>) {
        self.builder.add_unknown(source, kind, whole(info, parts));
    }

    fn add_user(&mut self, info: Map<String, Value>, parts: Vec<Map<String, Value>>) {
        let mut content = Vec::new();
        let mut rest = Vec::new();
        for mut part in parts {
            let is_left_out = part.get("ignored").and_then(Value::as_bool) == Some(true);
            match text_of(&part, &["type"]) {
                "text" if !is_left_out => content.extend(take_text(&mut part, "text").map(ContentBlock::text)),
                "file" => content.push(file(&part)),
                "subtask" => content.extend(part.get("prompt").and_then(Value::as_str).map(ContentBlock::text)),
                _ => {}
            }
            rest.push(part);
        }
        // A request to compact shows nothing of its own.
        if content.is_empty() {
            return self.add_whole(Source::User, "message", info, rest);
        }
        let message = Message { content, ..Message::text(Role::User, "") };
        self.builder.add(Source::User, EventKind::Message(message)).foreign = leftover(info, rest).into();
    }

    fn add_answer(&mut self, mut info: Map<String, Value>, parts: Vec<Map<String, Value>>) {
        let is_said = |part: &Map<String, Value>| matches!(text_of(part, &["type"]), "text" | "tool" | "file");
        let error = info.get("error").filter(|error| !error.is_null());
        let is_aborted =
            error.is_some_and(|error| error.get("name").and_then(Value::as_str) == Some("MessageAbortedError"));
        if !parts.iter().any(is_said) || (error.is_some() && !is_aborted) {
            let usage = self.usage(&info, &parts);
            self.add_whole(Source::Agent, "message", info, parts);
            self.builder.set_usage(usage);
            return;
        }
        let is_summary = info.get("summary").and_then(Value::as_bool) == Some(true);
        if is_summary && error.is_none() && info.get("finish").is_some_and(Value::is_string) {
            return self.add_compaction(info, parts);
        }
        info.shift_remove("role");
        let record = self.builder.record().as_str().to_owned();
        let mut steps: Vec<Vec<Map<String, Value>>> = vec![Vec::new()];
        for part in parts {
            if text_of(&part, &["type"]) == "step-start" && steps.last().is_some_and(|step| step.iter().any(is_said)) {
                steps.push(Vec::new());
            }
            if let Some(step) = steps.last_mut() {
                step.push(part);
            }
        }
        let mut info = Some(info);
        for (number, step) in steps.into_iter().enumerate() {
            let response = if number == 0 { record.clone() } else { format!("{record}#step{}", number + 1) };
            let usage = match &info {
                Some(info) => self.usage(info, &step),
                None => step_usage(&step, None),
            };
            self.add_step(response, usage, info.take().unwrap_or_default(), step);
        }
    }

    fn add_step(
        &mut self,
        response: String,
        usage: Option<Usage>,
        info: Map<String, Value>,
        parts: Vec<Map<String, Value>>,
    ) {
        let mut answer = Answer::new(response.as_str());
        let mut rest = Vec::new();
        let mut results = Vec::new();
        for (at, mut part) in parts.into_iter().enumerate() {
            match text_of(&part, &["type"]) {
                "text" if part.get("ignored").and_then(Value::as_bool) != Some(true) => {
                    answer.say(take_text(&mut part, "text").map(ContentBlock::text));
                }
                "reasoning" => {
                    let signature =
                        part.get("metadata").and_then(|data| data.get("anthropic")?.get("signature")?.as_str());
                    let signature = signature.map(str::to_owned);
                    match (take_text(&mut part, "text"), signature) {
                        (Some(thinking), Some(signature)) => {
                            answer.say([ContentBlock::Thinking { thinking, signature: Some(signature) }]);
                        }
                        (Some(text), None) if !text.is_empty() => answer.reason(text),
                        _ => {}
                    }
                }
                "file" => answer.say([file(&part)]),
                "tool" => {
                    let call_id = take_text(&mut part, "callID").unwrap_or_else(|| format!("{response}-call-{at}"));
                    let tool_name = take_text(&mut part, "tool").unwrap_or_default();
                    let mut state = take_object(&mut part, "state").unwrap_or_default();
                    let input = match state.get("input").and_then(Value::as_object) {
                        // What a pending call has so far.
                        Some(input) if input.is_empty() && state.get("raw").is_some_and(Value::is_string) => {
                            state.get("raw").cloned()
                        }
                        _ => state.shift_remove("input"),
                    };
                    let result = take_result(&mut state);
                    let pruned = state.get("time").and_then(|time| time.get("compacted")?.as_u64());
                    if let Some((content, outcome)) = result {
                        let observation = Observation {
                            call_id: call_id.clone(),
                            tool_name: tool_name.clone(),
                            content,
                            outcome,
                            ..Observation::default()
                        };
                        results.push((observation, pruned));
                    }
                    part.shift_remove("type");
                    part.insert("state".to_owned(), Value::Object(state));
                    let foreign = Map::from_iter([("part".to_owned(), Value::Object(part))]);
                    answer.call(call_id, tool_name, arguments(input), foreign);
                    continue;
                }
                _ => {}
            }
            rest.push(part);
        }
        if answer.is_empty() {
            self.builder.add_unknown(Source::Agent, "parts", whole(info, rest));
            self.builder.set_usage(usage);
            return;
        }
        answer.add_to(&mut self.builder, usage, leftover(info, rest));
        for (observation, pruned) in results {
            let id = self.builder.add(Source::Environment, EventKind::Observation(observation)).id.clone();
            self.prunes.extend(pruned.map(|time| (time, id)));
        }
    }

    /// The summary takes the place of all before it, but the tail that its request names.
    fn add_compaction(&mut self, info: Map<String, Value>, parts: Vec<Map<String, Value>>) {
        let texts = parts.iter().filter(|part| text_of(part, &["type"]) == "text");
        let texts: Vec<&str> = texts.filter_map(|part| part.get("text")?.as_str()).collect();
        let summary = texts.join("\n");
        let request = text_of(&info, &["parentID"]).to_owned();
        let tail = self.tails.get(&request).cloned().flatten();
        let kept: HashSet<String> = match &tail {
            Some(tail) => {
                let from = self.order.iter().skip_while(|(id, _)| id != tail);
                from.take_while(|(id, _)| *id != request).map(|(_, record)| record.as_str().to_owned()).collect()
            }
            None => HashSet::new(),
        };
        let usage = self.usage(&info, &parts);
        let event = self.builder.add_compaction(Some(summary), true, |record| kept.contains(record));
        event.foreign = leftover(info, parts).into();
        event.usage = usage;
    }

    /// Clears the outputs that are no longer sent at this time.
    fn prune(&mut self, now: u64) {
        let due: BTreeMap<EventId, Rewrite> = self
            .prunes
            .extract_if(.., |(time, _)| *time <= now)
            .map(|(_, id)| (id, RewriteOp::Clear { text: CLEARED.to_owned() }.into()))
            .collect();
        if let Some(first) = due.keys().next() {
            self.builder.begin(&format!("{first}-prune"), self.builder.place().to_owned(), None);
            self.builder.add_condensation(Condensation { rewrites: due, ..Condensation::default() });
        }
    }

    /// The figures of a message's first step: those of the step, or else of the message.
    fn usage(&self, info: &Map<String, Value>, parts: &[Map<String, Value>]) -> Option<Usage> {
        let model = field(info, &["modelID"]).and_then(Value::as_str);
        step_usage(parts, model).or_else(|| tokens(info.get("tokens")?, model))
    }
}

fn step_usage(parts: &[Map<String, Value>], model: Option<&str>) -> Option<Usage> {
    let finish = parts.iter().find(|part| text_of(part, &["type"]) == "step-finish")?;
    tokens(finish.get("tokens")?, model)
}

/// Figures in OpenCode's words, all disjoint; reasoning is output.
fn tokens(figures: &Value, model: Option<&str>) -> Option<Usage> {
    let count = |pointer: &str| figures.pointer(pointer).and_then(Value::as_u64);
    Some(Usage {
        input_tokens: Some(count("/input")?),
        cache_read_tokens: count("/cache/read"),
        cache_write_tokens: count("/cache/write"),
        output_tokens: count("/output").map(|output| output.saturating_add(count("/reasoning").unwrap_or(0))),
        model: model.map(str::to_owned),
    })
}

/// A message with its parts, as an export has it.
fn whole(info: Map<String, Value>, parts: Vec<Map<String, Value>>) -> Value {
    Value::Object(leftover(info, parts))
}

fn leftover(info: Map<String, Value>, parts: Vec<Map<String, Value>>) -> Map<String, Value> {
    let mut rest = Map::new();
    if !info.is_empty() {
        rest.insert("info".to_owned(), Value::Object(info));
    }
    if !parts.is_empty() {
        rest.insert("parts".to_owned(), parts.into_iter().map(Value::Object).collect());
    }
    rest
}

/// What a call gave, if it ended.
fn take_result(state: &mut Map<String, Value>) -> Option<(Vec<ContentBlock>, Outcome)> {
    let (key, outcome) = match state.get("status").and_then(Value::as_str) {
        Some("completed") => ("output", Outcome::Ok),
        Some("error") => ("error", Outcome::Error),
        _ => return None,
    };
    let mut content: Vec<ContentBlock> = match state.get(key) {
        Some(Value::String(_)) => take_text(state, key).map(ContentBlock::text).into_iter().collect(),
        Some(other) if !other.is_null() => vec![ContentBlock::text(other.to_string())],
        _ => Vec::new(),
    };
    let attachments = state.get("attachments").and_then(Value::as_array);
    content.extend(attachments.into_iter().flatten().filter_map(Value::as_object).map(file));
    Some((content, outcome))
}

/// A file as the model was shown it: an image, or whatever it is, kept verbatim.
fn file(part: &Map<String, Value>) -> ContentBlock {
    let is_image = text_of(part, &["mime"]).starts_with("image/");
    match text_of(part, &["url"]) {
        url if is_image && !url.is_empty() => ContentBlock::Image { urls: vec![url.to_owned()], cache: false },
        _ => ContentBlock::Other { value: Value::Object(part.clone()) },
    }
}
