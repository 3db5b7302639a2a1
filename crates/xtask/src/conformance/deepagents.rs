//! Deep Agents' middleware and LangChain's helpers, each kind of case, with a scripted model and file system.

use std::collections::{BTreeMap, HashMap};

use std::sync::Arc;

use condenser::attempts::Rejection;
use condenser::event::{ContentBlock, Event, EventKind, Source, SystemPrompt};
use condenser::tokens::CharsPer4;
use condenser::{
    Budget, Condensation, Condenser, OutcomeKind, Policy, RewriteOp, Rules, Sizer, State as LogState, SummarizeError,
    Summarizer, Summary, SummaryRequest, Tokens, View,
};
use condenser_policies::deepagents::peer::{
    self, Approximate, Arguments, Backend, CallError, Clause, Clearing, Clip, Counter, Eviction, Exhausted, Handler,
    Middleware, Preview, Size, State, Stored, Thrown,
};
use condenser_policies::deepagents::{
    ClearToolUses, ClearingSettings, DeepAgents, DeepAgentsSettings, LangChainSettings,
};
use condenser_policies::exact::{PythonJson, python_json};
use condenser_traces::{Document, format, read_document};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::Answer;

/// The share of the limit that a complete request may have.
const REQUEST_SHARE: f64 = 0.95;

pub(super) fn deepagents(case: &Value) -> Answer {
    let mut expected = case["expected"].clone();
    let messages = list(&case["messages"]);
    let limit = case["max_input_tokens"].as_u64();
    let number = |name: &str| case[name].as_u64().unwrap_or_default();
    let mut got = match case["kind"].as_str().unwrap_or_default() {
        "cutoff" => json!(match case["op"].as_str() {
            Some("keep") => peer::cutoff(messages, size(&case["keep"]), limit, &CaseCounter::default()),
            _ => peer::safe_point(messages, number("index") as usize),
        }),
        "count" => {
            let counter = Approximate {
                characters_per_token: case["chars_per_token"].as_f64().unwrap_or_default(),
                ..Approximate::default()
            };
            json!(if case["usage_scaling"] == true { counter.scaled(messages) } else { counter.tokens(messages) })
        }
        "trigger" => {
            let reported = peer::reported(messages, case["model_provider"].as_str());
            json!(peer::is_met(&clauses(&case["trigger"]), messages.len(), number("total_tokens"), reported, limit))
        }
        "apply" => {
            let list = peer::effective(messages, event(&case["event"]).as_ref());
            list.iter().map(applied).collect()
        }
        "translate" => {
            let event = Some(&case["event"]).filter(|event| !event.is_null());
            json!(peer::translate(event, number("effective_cutoff") as usize))
        }
        "rounds" => {
            expected = case["rounds"].as_array().into_iter().flatten().map(|round| round["expected"].clone()).collect();
            rounds(case)
        }
        "truncate_args" => truncate(case, messages, limit),
        "budget" => {
            let fields = |name: &str| case[name].as_object().cloned().unwrap_or_default();
            let output = peer::output_tokens(&fields("request_settings"), &fields("model_attrs"));
            let budget = peer::request_budget(case["max_input_tokens"].as_i64(), REQUEST_SHARE, output);
            json!({"budget": budget, "over": budget.is_some_and(|budget| number("count") > budget)})
        }
        "clip" => clipped(case, messages, limit),
        "evict" => evict(case),
        "trim" => {
            let kept = match case["limit"].as_u64() {
                Some(limit) => peer::trim(messages, limit, &CaseCounter::default()),
                None => messages.to_vec(),
            };
            let show = |message: &Value| {
                let mut shown = json!({"id": message["id"]});
                if !messages.contains(message) {
                    shown["content"] = message["content"].clone();
                }
                shown
            };
            kept.iter().map(show).collect()
        }
        "offload" => {
            let mut files = Files::new(case);
            let path = peer::offload(messages, case["session_id"].as_str().unwrap_or_default(), &mut files);
            let file = format!("{}{}.md", peer::HISTORY_FOLDER, case["session_id"].as_str().unwrap_or_default());
            json!({"path": path, "ops": files.operations, "file": files.files.get(&file)})
        }
        "clear_tool_uses" => clear(case, messages),
        "wrap" => wrap(case, messages, limit),
        _ => json!("unknown kind"),
    };
    if let Some((theirs, ours)) = by_policy(case) {
        expected = json!({"expected": expected, "by_policy": theirs});
        got = json!({"expected": got, "by_policy": ours});
    }
    Answer { expected, got }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn size(pair: &Value) -> Size {
    match (pair[0].as_str(), pair[1].as_u64(), pair[1].as_f64()) {
        (Some("tokens"), Some(tokens), _) => Size::Tokens(tokens),
        (Some("fraction"), _, Some(share)) => Size::Fraction(share),
        (_, messages, _) => Size::Messages(messages.unwrap_or_default()),
    }
}

fn clauses(value: &Value) -> Vec<Clause> {
    list(value).iter().filter_map(|clause| serde_json::from_value(clause.clone()).ok()).collect()
}

/// The cases' own counter: 3 and a quarter of the characters of each message, but for summaries and stubs.
#[derive(Clone, Default)]
struct CaseCounter {
    summary: Option<u64>,
    stub: Option<u64>,
    /// The texts of results as they are stored, by id.
    stored: HashMap<String, Value>,
}

impl Counter for CaseCounter {
    fn tokens(&self, messages: &[Value]) -> u64 {
        messages.iter().map(|message| self.message(message)).sum()
    }
}

impl CaseCounter {
    fn message(&self, message: &Value) -> u64 {
        if let Some(tokens) = self.summary.filter(|_| peer::is_summary(message)) {
            return tokens;
        }
        let id = message["id"].as_str().unwrap_or_default();
        if let Some(tokens) = self.stub
            && message["role"] == "tool"
            && self.stored.get(id).is_some_and(|stored| *stored != message["content"])
        {
            return tokens;
        }
        let mut characters = peer::content_text(&message["content"]).chars().count();
        for call in list(&message["tool_calls"]) {
            let arguments = call["function"]["arguments"].as_str().map(serde_json::from_str::<Value>);
            let style = PythonJson { compact: true, unicode: true };
            let arguments = arguments.and_then(Result::ok).map(|it| python_json(&it, style)).unwrap_or_default();
            characters += call["function"]["name"].as_str().unwrap_or_default().chars().count();
            characters += arguments.chars().count();
        }
        characters += peer::call_id(message).chars().count();
        3 + characters.div_ceil(4) as u64
    }
}

fn event(value: &Value) -> Option<Value> {
    let mut event = value.as_object()?.clone();
    if let Some(summary) = event.get("summary").and_then(Value::as_str) {
        event.insert("summary_message".to_owned(), peer::summary_message(summary));
    }
    Some(Value::Object(event))
}

fn applied(message: &Value) -> Value {
    if peer::is_summary(message) {
        return json!({"summary": true});
    }
    let mut shown = json!({"id": message["id"]});
    if let Value::Array(blocks) = &message["content"] {
        shown["block_types"] = blocks.iter().map(|block| block["type"].clone()).collect();
    }
    shown
}

fn names(messages: &[Value]) -> Value {
    let name = |message: &Value| match peer::is_summary(message) {
        true => json!({"summary": true}),
        false => json!({"id": message["id"]}),
    };
    messages.iter().map(name).collect()
}

fn rounds(case: &Value) -> Value {
    let counter = CaseCounter { summary: case["summary_tokens"].as_u64(), ..CaseCounter::default() };
    let (mut raw, mut event, mut rounds): (Vec<Value>, Option<Value>, Vec<Value>) = (Vec::new(), None, Vec::new());
    for round in list(&case["rounds"]) {
        raw.extend_from_slice(list(&round["append"]));
        let before = peer::effective(&raw, event.as_ref());
        let cutoff = peer::cutoff(&before, size(&case["keep"]), None, &counter);
        let mut shown = json!({"before": names(&before), "cutoff": cutoff});
        if cutoff > 0 {
            let state_cutoff = peer::translate(event.as_ref(), cutoff);
            event = Some(json!({
                "cutoff_index": state_cutoff,
                "summary_message": peer::summary_message("S"),
                "created_at_index": raw.len(),
            }));
            let offloaded: Vec<Value> =
                before[..cutoff].iter().filter(|message| !peer::is_summary(message)).cloned().collect();
            shown["state_cutoff"] = json!(state_cutoff);
            shown["summarized"] = names(&before[..cutoff]);
            shown["offloaded"] = names(&offloaded);
            shown["after"] = names(&peer::effective(&raw, event.as_ref()));
        }
        rounds.push(shown);
    }
    json!(rounds)
}

fn arguments(settings: &Value) -> Option<Arguments> {
    let settings = settings.as_object()?;
    let get = |name: &str| settings.get(name).filter(|value| !value.is_null());
    let default = Arguments::default();
    Some(Arguments {
        trigger: get("trigger").map(size),
        keep: get("keep").map_or(default.keep, size),
        max_length: get("max_length").and_then(Value::as_u64).map_or(default.max_length, |it| it as usize),
        text: get("truncation_text").and_then(Value::as_str).map_or(default.text, str::to_owned),
        ..Arguments::default()
    })
}

fn truncate(case: &Value, messages: &[Value], limit: Option<u64>) -> Value {
    let Some(arguments) = arguments(&case["settings"]) else { return Value::Null };
    let counter = CaseCounter::default();
    let should = arguments.is_due(messages.len(), case["total_tokens"].as_u64().unwrap_or_default(), limit);
    let (after, changed) =
        if should { arguments.cut(messages, limit, &counter) } else { (messages.to_vec(), Vec::new()) };
    let show = |&at: &usize| json!({"index": at, "tool_calls": after[at]["tool_calls"]});
    json!({
        "should": should,
        "cutoff": arguments.protected(messages, limit, &counter),
        "modified": !changed.is_empty(),
        "changed": changed.iter().map(show).collect::<Value>(),
    })
}

/// A file system that fails as a case says.
struct Files {
    mode: String,
    failing: Vec<String>,
    files: BTreeMap<String, String>,
    operations: Vec<[String; 2]>,
}

impl Files {
    fn new(case: &Value) -> Self {
        let mut files = BTreeMap::new();
        if let (Some(old), Some(session)) = (case["existing"].as_str(), case["session_id"].as_str()) {
            files.insert(format!("{}{session}.md", peer::HISTORY_FOLDER), old.to_owned());
        }
        Self {
            mode: case["backend"].as_str().unwrap_or("ok").to_owned(),
            failing: list(&case["failing_paths"]).iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            files,
            operations: Vec::new(),
        }
    }

    fn put(&mut self, operation: &str, path: &str, text: String) -> Result<Stored, Thrown> {
        self.operations.push([operation.to_owned(), path.to_owned()]);
        match self.mode.as_str() {
            _ if self.failing.iter().any(|failing| failing == path) => Ok(Stored::Refused),
            "error" => Ok(Stored::Refused),
            "none" => Ok(Stored::Nothing),
            "raise" => Err(Thrown("scripted".to_owned())),
            _ => {
                self.files.insert(path.to_owned(), text);
                Ok(Stored::Done)
            }
        }
    }
}

impl Backend for Files {
    fn read(&mut self, path: &str) -> Result<Option<Vec<u8>>, Thrown> {
        if self.mode == "download_raises" {
            return Err(Thrown("scripted".to_owned()));
        }
        Ok(self.files.get(path).map(|text| text.clone().into_bytes()))
    }

    fn write(&mut self, path: &str, text: &str) -> Result<Stored, Thrown> {
        self.put("write", path, text.to_owned())
    }

    fn edit(&mut self, path: &str, old: &str, new: &str) -> Result<Stored, Thrown> {
        let text = self.files.get(path).map(|text| text.replacen(old, new, 1)).unwrap_or_default();
        self.put("edit", path, text)
    }

    fn now(&mut self) -> String {
        "TIMESTAMP".to_owned()
    }

    fn random(&mut self) -> String {
        "0".repeat(32)
    }
}

fn sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn clipped(case: &Value, messages: &[Value], limit: Option<u64>) -> Value {
    let settings = Clip { keep: size(&case["keep"]), ..Clip::default() };
    let counter = CaseCounter::default();
    let mut files = Files::new(case);
    let Ok((after, replaced)) = peer::clip(messages, &settings, limit, &counter, &mut files) else {
        return json!("thrown");
    };
    let show = |(before, after): (&Value, &Value)| {
        let mut shown = json!({"id": after["id"], "form": form(before, after)});
        let text = peer::content_text(&before["content"]);
        match shown["form"].as_str() {
            Some("head_clip") => {
                let head: String = text.chars().take(settings.head_characters).collect();
                shown["head_chars"] = json!(head.chars().count());
                shown["head_sha256"] = json!(sha256(&head));
            }
            Some("offloaded") => {
                let path = files.files.iter().find(|(path, stored)| {
                    **stored == text && peer::content_text(&after["content"]).contains(path.as_str())
                });
                shown["path"] = json!(path.map(|(path, _)| path));
                shown["stored_sha256"] = json!(path.map(|(_, stored)| sha256(stored)));
            }
            _ => {}
        }
        shown
    };
    let start = peer::tail_start(messages);
    json!({
        "threshold": peer::threshold(&settings, limit),
        "tail_start": start,
        "tail_tokens": start.map_or(0, |start| counter.tokens(&messages[start..])),
        "result": messages.iter().zip(&after).map(show).collect::<Value>(),
        "replacement_ids": replaced.iter().map(|message| &message["id"]).collect::<Vec<_>>(),
        "writes": files.operations,
    })
}

/// How a message is sent.
fn form(before: &Value, after: &Value) -> &'static str {
    let (old, new) = (peer::content_text(&before["content"]), peer::content_text(&after["content"]));
    if before["tool_calls"] != after["tool_calls"] {
        "args_truncated"
    } else if before["content"] == after["content"] {
        "raw"
    } else if new.contains(peer::RESULTS_FOLDER) && !old.contains(peer::RESULTS_FOLDER) {
        "offloaded"
    } else {
        "head_clip"
    }
}

fn evict(case: &Value) -> Value {
    let message = json!({"role": "tool", "content": case["content"], "tool_call_id": case["tool_call_id"]});
    let settings = Eviction { tokens: case["token_limit"].as_u64(), ..Eviction::default() };
    let mut files = Files::new(case);
    let evicted = peer::evict_result(&message, &settings, Preview::default(), &mut files);
    let mut got = json!({"evicted": matches!(evicted, Ok(Some(_))), "writes": files.operations});
    match evicted {
        Ok(Some(evicted)) => {
            let stored = files.files.get(&evicted.path).map_or("", String::as_str);
            got["preview"] = json!(evicted.preview);
            got["lines_omitted"] = json!(evicted.lines_omitted);
            got["lines_clipped"] = json!(evicted.lines_clipped);
            got["shown_tool_call_id"] = json!(peer::shown_id(peer::call_id(&message), Preview::default()));
            got["stored"] = json!(stored);
            if case["expected"]["stored"].is_object() {
                got["stored"] = json!({"sha256": sha256(stored)});
            }
            if let Value::Array(blocks) = &evicted.message["content"] {
                got["block_types"] = blocks.iter().map(|block| block["type"].clone()).collect();
            }
        }
        Ok(None) => {}
        Err(_) => got["error"] = json!(true),
    }
    got
}

fn clear(case: &Value, messages: &[Value]) -> Value {
    let Ok(settings) = serde_json::from_value::<Clearing>(case["config"].clone()) else { return json!("settings") };
    let counter = CaseCounter::default();
    let cleared = peer::clear(messages, case["total_tokens"].as_u64().unwrap_or_default(), &settings, &counter);
    let inputs: Map<String, Value> = cleared
        .inputs
        .iter()
        .filter_map(|(&at, calls)| Some((messages[at]["id"].as_str()?.to_owned(), json!(calls))))
        .collect();
    json!({
        "cleared_ids": cleared.results.iter().map(|&at| &messages[at]["id"]).collect::<Vec<_>>(),
        "cleared_inputs": inputs,
        "tokens_after": counter.tokens(&cleared.messages),
    })
}

/// A model that answers as a case says.
struct Script<'c> {
    outcomes: &'c [Value],
    n_calls: usize,
}

/// What a provider says of a request that is too long.
const OVERFLOW: &str = "This model's maximum context length is exceeded.";

impl Handler for Script<'_> {
    fn call(&mut self, _: &[Value]) -> Result<(), CallError> {
        let outcome = self.outcomes.get(self.n_calls).or(self.outcomes.last()).and_then(Value::as_str);
        self.n_calls += 1;
        let error = |status| CallError { is_overflow: false, status, text: OVERFLOW.to_owned() };
        match outcome {
            Some("ok") => Ok(()),
            Some("overflow") => Err(CallError { is_overflow: true, ..CallError::default() }),
            Some("http400") => Err(error(Some(400))),
            Some("http500") => Err(error(Some(500))),
            _ => Err(CallError { text: "scripted".to_owned(), ..CallError::default() }),
        }
    }

    fn summarize(&mut self, _: &[Value]) -> String {
        "S1".to_owned()
    }
}

fn wrap(case: &Value, messages: &[Value], limit: Option<u64>) -> Value {
    let stored =
        messages.iter().filter_map(|it| Some((it["id"].as_str()?.to_owned(), it["content"].clone()))).collect();
    let counter = CaseCounter { summary: case["summary_tokens"].as_u64(), stub: case["stub_tokens"].as_u64(), stored };
    let mut old = case["event"].clone();
    if old.is_object() {
        old["summary_message"] = peer::summary_message("S0");
    }
    let old = Some(&old).filter(|event| event.is_object());
    let trigger: Vec<Clause> =
        Some(&case["trigger"]).filter(|it| !it.is_null()).map(|it| size(it).into()).into_iter().collect();
    let arguments = arguments(&case["truncate_args"]);
    let output = case["configured_output"].as_i64().unwrap_or_default();
    let middleware = Middleware {
        trigger: &trigger,
        keep: size(&case["keep"]),
        arguments: arguments.as_ref(),
        clip: &Clip::default(),
        limit,
        budget: peer::request_budget(case["max_input_tokens"].as_i64(), REQUEST_SHARE, output),
        provider: None,
        counter: &counter,
    };
    let system = case["system"].as_str().map(|text| json!({"role": "system", "content": text}));
    let state = State { raw: messages, event: old, session: old.map(|_| "session_known"), system: system.as_ref() };
    let mut script = Script { outcomes: list(&case["handler"]), n_calls: 0 };
    let mut files = Files::new(case);
    let done = middleware.wrap(&state, &mut script, &mut files);
    let by_id = |id: &Value| messages.iter().find(|message| message["id"] == *id).unwrap_or(&Value::Null);
    let show = |message: &Value| match peer::is_summary(message) {
        true => json!({"summary": if message["content"] == "S0" { "old" } else { "new" }}),
        false => json!({"id": message["id"], "form": form(by_id(&message["id"]), message)}),
    };
    let calls: Value = done.calls.iter().map(|call| call.iter().map(show).collect::<Value>()).collect();
    let ids = |messages: &[Value]| messages.iter().map(|message| message["id"].clone()).collect::<Value>();
    let mut got = json!({
        "outcome": match &done.end {
            None => "ok",
            Some(Exhausted::StillRefused) => "exhausted",
            Some(Exhausted::AboveBudget { .. }) => "above_budget",
            Some(_) => "other_error",
        },
        "calls": calls,
        "offloaded_ids": done.summarized.as_ref().map(|it| ids(&it.offloaded)),
    });
    if done.end.is_none() {
        if let Some(summarized) = &done.summarized {
            let event = &summarized.event;
            got["event"] = json!({
                "cutoff_index": event["cutoff_index"],
                "created_at_index": event["created_at_index"],
                "has_file_path": !event["file_path"].is_null(),
            });
            got["session_id"] = json!(if summarized.session == "session_known" { "kept" } else { "new" });
        }
        if !done.replaced.is_empty() {
            got["replaced_ids"] = ids(&done.replaced);
        }
    }
    got
}

/// A log of a case's messages, and the view on it.
struct Replay {
    events: Vec<Event>,
    view: View,
    recall: bool,
    budget: Budget,
    reported: Option<u64>,
}

impl Replay {
    fn new(limit: Option<u64>) -> Self {
        let budget = Budget { window: limit.map(Tokens), reserve: Tokens::ZERO };
        Self { events: Vec::new(), view: View::new(Rules::OpenHands), recall: true, budget, reported: None }
    }

    fn push(&mut self, event: Event) {
        self.view.push(&event);
        self.events.push(event);
    }

    /// Imports the messages behind the first `known`; their events get their ids. False where the reader makes no event
    /// of one.
    fn import(&mut self, messages: &[Value], known: usize) -> bool {
        let document = Document::from_bytes("case.json".as_ref(), json!(messages).to_string().into_bytes());
        let traces = document.ok().and_then(|document| read_document(document, format("openai-chat").ok()).ok());
        let Some(trace) = traces.and_then(|traces| traces.into_iter().next()) else { return messages.is_empty() };
        let mut seen = 0;
        for mut event in trace.events {
            let Some(origin) = &event.origin else { continue };
            let Some(at) = origin.record.strip_prefix('m').and_then(|number| number.parse::<usize>().ok()) else {
                continue;
            };
            let Some(id) = messages.get(at).and_then(|message| message["id"].as_str()) else { continue };
            seen += usize::from(origin.part == 0);
            if at < known {
                continue;
            }
            // The reader gives a result without an id to an open call, and the original to none.
            if let EventKind::Observation(observation) = &mut event.kind
                && messages[at]["tool_call_id"] == ""
            {
                observation.call_id.clear();
            }
            event.id = if origin.part == 0 { id.into() } else { format!("{id}#{}", origin.part).into() };
            self.push(event);
        }
        seen == messages.len()
    }

    /// Stands for a compaction that was made before.
    fn summarized(&mut self, cutoff: usize, messages: &[Value]) {
        let old: Vec<&str> = messages[..cutoff].iter().filter_map(|message| message["id"].as_str()).collect();
        let is_old = |event: &&Event| old.contains(&message_id(event));
        let record = Condensation {
            forgotten_event_ids: self.events.iter().filter(is_old).map(|event| event.id.clone()).collect(),
            summary: Some("S0".to_owned()),
            summary_offset: Some(0),
            ..Condensation::default()
        };
        self.push(Event::new("older", Source::Agent, EventKind::Condensation(record)));
    }

    /// One decision of the policy with the guards off, and its record.
    fn condense(&mut self, policy: &dyn Policy) {
        let sizer = Sizer::new(&CharsPer4);
        let mut state = LogState::new(&self.view, &self.events, &sizer, self.budget);
        state.recall = self.recall;
        state.reported = self.reported.map(Tokens);
        let outcome = Condenser::unguarded().run(policy, &state, &Canned);
        if let OutcomeKind::Applied(record) = outcome.result {
            let id = format!("record{}", self.events.len());
            self.push(Event::new(id, Source::Agent, EventKind::Condensation(*record)));
        }
    }

    /// The messages of the view, each once, and how they are sent.
    fn shown(&self) -> Value {
        let mut shown: Vec<Value> = Vec::new();
        for entry in self.view.iter() {
            if entry.is_summary() {
                shown.push(json!({"summary": if entry.id().as_str() == "older-summary" { "old" } else { "new" }}));
                continue;
            }
            let event = &self.events[entry.seq()];
            if matches!(event.kind, EventKind::SystemPrompt(_)) {
                continue;
            }
            let form = match entry.rewrite().map(|(rewrite, _)| &rewrite.op) {
                None => "raw",
                Some(RewriteOp::Arguments { .. }) => "args_truncated",
                Some(RewriteOp::Replace { content }) if content.iter().any(is_stub) => "offloaded",
                Some(_) => "head_clip",
            };
            let item = json!({"id": message_id(event), "form": form});
            match shown.last_mut() {
                Some(last) if last["id"] == item["id"] => {
                    if form != "raw" {
                        *last = item;
                    }
                }
                _ => shown.push(item),
            }
        }
        json!(shown)
    }
}

fn message_id(event: &Event) -> &str {
    let id = event.id.as_str();
    id.split_once('#').map_or(id, |(id, _)| id)
}

fn is_stub(block: &ContentBlock) -> bool {
    block.as_text().is_some_and(|text| text.contains("is at [event "))
}

struct Canned;

impl Summarizer for Canned {
    fn name(&self) -> &str {
        "canned"
    }
    fn summarize(&self, _: &SummaryRequest) -> Result<Summary, SummarizeError> {
        Ok(Summary { text: "S1".to_owned(), ..Summary::default() })
    }
}

/// What of a case a policy decides, as recorded and by way of import, policy, record and view. `None` where it decides
/// nothing, or the answer hangs on more than one decision.
fn by_policy(case: &Value) -> Option<(Value, Value)> {
    let messages = list(&case["messages"]);
    let limit = case["max_input_tokens"].as_u64();
    // A system message is the system prompt when imported, which is none of the list.
    if messages.iter().any(|message| message["role"] == "system") {
        return None;
    }
    match case["kind"].as_str()? {
        "cutoff" if case["op"] == "keep" => {
            let keep = size(&case["keep"]);
            let trigger = vec![Size::Messages(1).into()];
            let settings = LangChainSettings { trigger, keep, trim_tokens: None, ..LangChainSettings::default() };
            let policy = DeepAgents::langchain(settings).ok()?.with_counter(Arc::new(CaseCounter::default()));
            let mut replay = Replay::new(limit);
            if !replay.import(messages, 0) {
                return None;
            }
            replay.condense(&policy);
            let cut = case["expected"].as_u64()? as usize;
            let kept = messages[cut..].iter().map(|message| json!({"id": message["id"], "form": "raw"}));
            let summary = (cut > 0).then(|| json!({"summary": "new"}));
            Some((summary.into_iter().chain(kept).collect(), replay.shown()))
        }
        "rounds" => rounds_by_policy(case),
        "truncate_args" => truncate_by_policy(case, messages, limit),
        "clear_tool_uses" => clear_by_policy(case, messages),
        "wrap" => wrap_by_policy(case, messages, limit),
        _ => None,
    }
}

fn rounds_by_policy(case: &Value) -> Option<(Value, Value)> {
    let keep = size(&case["keep"]);
    let trigger = vec![Size::Messages(1).into()];
    let settings = DeepAgentsSettings {
        trigger_unknown: trigger,
        keep_unknown: keep,
        arguments_trigger_unknown: None,
        evict_tokens: None,
        ..DeepAgentsSettings::default()
    };
    let counter = CaseCounter { summary: case["summary_tokens"].as_u64(), ..CaseCounter::default() };
    let policy = DeepAgents::new(settings).ok()?.with_counter(Arc::new(counter));
    let mut replay = Replay::new(None);
    let (mut raw, mut theirs, mut ours) = (Vec::new(), Vec::new(), Vec::new());
    for round in list(&case["rounds"]) {
        let known = raw.len();
        raw.extend_from_slice(list(&round["append"]));
        if !replay.import(&raw, known) {
            return None;
        }
        replay.condense(&policy);
        let expected = &round["expected"];
        let after = if expected["after"].is_array() { &expected["after"] } else { &expected["before"] };
        let name = |item: &Value| if item["summary"].is_null() { item["id"].clone() } else { json!("summary") };
        theirs.push(list(after).iter().map(name).collect::<Value>());
        ours.push(list(&replay.shown()).iter().map(name).collect::<Value>());
    }
    Some((json!(theirs), json!(ours)))
}

fn truncate_by_policy(case: &Value, messages: &[Value], limit: Option<u64>) -> Option<(Value, Value)> {
    let arguments = arguments(&case["settings"])?;
    let settings = DeepAgentsSettings {
        trigger: Vec::new(),
        trigger_unknown: Vec::new(),
        arguments_trigger: arguments.trigger,
        arguments_trigger_unknown: arguments.trigger,
        arguments_keep: arguments.keep,
        arguments_keep_unknown: arguments.keep,
        arguments_characters: arguments.max_length,
        arguments_text: arguments.text,
        // Nothing else is to happen.
        request_share: 1e9,
        evict_tokens: None,
        ..DeepAgentsSettings::default()
    };
    let policy = DeepAgents::new(settings).ok()?.with_counter(Arc::new(CaseCounter::default()));
    let mut replay = Replay::new(limit);
    if !replay.import(messages, 0) {
        return None;
    }
    replay.condense(&policy);
    let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let mut ours = Map::new();
    for entry in replay.view.iter() {
        if let Some(RewriteOp::Arguments { text }) = entry.rewrite().map(|(rewrite, _)| &rewrite.op)
            && let EventKind::Action(action) = &replay.events[entry.seq()].kind
        {
            ours.insert(action.call_id.clone(), parsed(text));
        }
    }
    let mut theirs = Map::new();
    for changed in list(&case["expected"]["changed"]) {
        let old = &messages[changed["index"].as_u64()? as usize];
        for (old, new) in list(&old["tool_calls"]).iter().zip(list(&changed["tool_calls"])) {
            let arguments = |call: &Value| parsed(call["function"]["arguments"].as_str().unwrap_or_default());
            if arguments(old) != arguments(new) {
                theirs.insert(new["id"].as_str()?.to_owned(), arguments(new));
            }
        }
    }
    Some((Value::Object(theirs), Value::Object(ours)))
}

fn clear_by_policy(case: &Value, messages: &[Value]) -> Option<(Value, Value)> {
    let peer = serde_json::from_value::<Clearing>(case["config"].clone()).ok()?;
    let settings = ClearingSettings { peer, ..ClearingSettings::default() };
    let policy = ClearToolUses::new(settings).with_counter(Arc::new(CaseCounter::default()));
    let mut replay = Replay::new(None);
    replay.reported = case["total_tokens"].as_u64();
    if !replay.import(messages, 0) {
        return None;
    }
    replay.condense(&policy);
    let (mut ids, mut inputs) = (Vec::new(), Map::new());
    for entry in replay.view.iter() {
        let event = &replay.events[entry.seq()];
        match (entry.rewrite().map(|(rewrite, _)| &rewrite.op), &event.kind) {
            (Some(RewriteOp::Clear { .. }), _) => ids.push(message_id(event)),
            (Some(RewriteOp::Arguments { .. }), EventKind::Action(action)) => {
                let calls = inputs.entry(message_id(event).to_owned()).or_insert_with(|| json!([]));
                calls.as_array_mut()?.push(json!(action.call_id));
            }
            _ => {}
        }
    }
    let theirs = json!({"ids": case["expected"]["cleared_ids"], "inputs": case["expected"]["cleared_inputs"]});
    Some((theirs, json!({"ids": ids, "inputs": inputs})))
}

/// Cases that one decision answers: the model's first call succeeds or there is none, or it was refused before anything
/// was done.
fn wrap_by_policy(case: &Value, messages: &[Value], limit: Option<u64>) -> Option<(Value, Value)> {
    let expected = &case["expected"];
    let calls = list(&expected["calls"]);
    let is_done = |call: &Value| {
        list(call).iter().any(|it| it["summary"] == "new" || it["form"] == "offloaded" || it["form"] == "head_clip")
    };
    let is_refused = match (calls.first(), case["handler"][0].as_str()) {
        (None, _) | (_, Some("ok")) => false,
        (Some(call), Some("overflow" | "http400")) if !is_done(call) && case["handler"][1] == "ok" => true,
        _ => return None,
    };
    let arguments = arguments(&case["truncate_args"]).unwrap_or_default();
    let trigger: Vec<Clause> =
        Some(&case["trigger"]).filter(|it| !it.is_null()).map(|it| size(it).into()).into_iter().collect();
    let keep = size(&case["keep"]);
    let settings = DeepAgentsSettings {
        trigger: trigger.clone(),
        trigger_unknown: trigger,
        keep,
        keep_unknown: keep,
        arguments_trigger: arguments.trigger,
        arguments_trigger_unknown: arguments.trigger,
        arguments_keep: arguments.keep,
        arguments_keep_unknown: arguments.keep,
        arguments_characters: arguments.max_length,
        arguments_text: arguments.text,
        evict_tokens: None,
        ..DeepAgentsSettings::default()
    };
    let stored =
        messages.iter().filter_map(|it| Some((it["id"].as_str()?.to_owned(), it["content"].clone()))).collect();
    let counter = CaseCounter { summary: case["summary_tokens"].as_u64(), stub: case["stub_tokens"].as_u64(), stored };
    let policy = DeepAgents::new(settings).ok()?.with_counter(Arc::new(counter));
    let mut replay = Replay::new(limit);
    replay.budget.reserve = Tokens(case["configured_output"].as_u64().unwrap_or_default());
    replay.recall = case["backend"] == "ok";
    if let Some(text) = case["system"].as_str() {
        let prompt = SystemPrompt { content: vec![ContentBlock::text(text)], ..SystemPrompt::default() };
        replay.push(Event::new("prompt", Source::Agent, EventKind::SystemPrompt(prompt)));
    }
    if !replay.import(messages, 0) {
        return None;
    }
    if let Some(cutoff) = case["event"]["cutoff_index"].as_u64() {
        replay.summarized(cutoff as usize, messages);
    }
    let before = replay.shown();
    if is_refused {
        replay.push(Event::new("refused", Source::Environment, Rejection::event()));
    }
    replay.condense(&policy);
    let theirs = match calls.last() {
        Some(call) if expected["outcome"] == "ok" => call.clone(),
        // What came to nothing is not stored.
        _ => before,
    };
    Some((theirs, replay.shown()))
}
