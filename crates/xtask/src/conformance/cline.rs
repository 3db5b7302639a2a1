//! Cline's compaction: budget, selection, projection, cut, and the state beside a session.

use condenser::event::{CondensationRequest, ContentBlock, Event, EventKind, Source};
use condenser::tokens::CharsPer4;
use condenser::{
    Budget, Condenser, OutcomeKind, Policy, Rules, Shown, Sizer, State, SummarizeError, Summarizer, Summary,
    SummaryRequest, Tokens, View,
};
use condenser_policies::cline::Cline;
use condenser_policies::cline::peer::{self, Files, Intent, Mode, ModelInfo, Notice, Settings, Sidecar};
use condenser_traces::{Document, format, read_document};
use serde_json::{Value, json};

use super::Answer;

pub(super) fn cline(case: &Value) -> Answer {
    let mut expected = case["expected"].clone();
    let settings = Settings::default();
    let messages = list(&case["messages"]);
    let number = |name: &str| case[name].as_u64().unwrap_or_default();
    let mut got = match case["kind"].as_str().unwrap_or_default() {
        "cline_basic" => {
            let (target, trigger) = (number("target_tokens"), number("trigger_tokens"));
            match peer::basic(messages, target, trigger, mode(&case["mode"]), &settings) {
                None => Value::Null,
                Some(basic) => json!({
                    "messages": basic.messages,
                    "budget": {
                        "policyIntent": "basic_compaction_projection",
                        "actionCount": basic.report.actions,
                        "warningCount": basic.report.warnings,
                        "liveTailHandling": basic.report.live_tail,
                    },
                }),
            }
        }
        "cline_projection" => {
            let intent: Intent = serde_json::from_value(case["intent"].clone()).unwrap_or(Intent::AgenticSummary);
            let target = case["target_tokens"].as_i64().unwrap_or_default();
            let done = peer::project(messages, target, intent, &settings);
            json!({
                "status": if done.is_ok { "ok" } else { "failed" },
                "estimated_tokens": done.tokens,
                "live_tail": done.live_tail,
                "warnings": done.warnings,
                "actions": done.actions,
                "messages": done.messages,
            })
        }
        "cline_cut" => {
            let cut = peer::cut(messages, number("preserve_recent_tokens"), &settings);
            json!({"cut": cut, "file_ops": Files::of(messages).details()})
        }
        "cline_sidecar" => {
            let source = list(&case["source"]);
            let n = number("compacted_count") as usize;
            let sidecar = Sidecar::new(source, source[..n].to_vec());
            let projected = sidecar.project(list(&case["later"]));
            json!({
                "source_message_count": sidecar.count,
                "source_prefix_hash": sidecar.hash,
                "source_last_message_key": sidecar.last_key,
                "projected_ids": projected.map(|it| it.iter().map(|message| message["id"].clone()).collect::<Value>()),
            })
        }
        "cline_budget" => budget(case, messages, &settings),
        _ => json!("unknown kind"),
    };
    let by_policy = match case["kind"].as_str() {
        Some("cline_basic") => basic_by_policy(case, messages),
        Some("cline_cut") => cut_by_policy(case, messages),
        _ => None,
    };
    if let Some((theirs, ours)) = by_policy {
        expected = json!({"expected": expected, "by_policy": theirs});
        got = json!({"expected": got, "by_policy": ours});
    }
    Answer { expected, got }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn mode(name: &Value) -> Mode {
    serde_json::from_value(name.clone()).unwrap_or(Mode::Auto)
}

fn budget(case: &Value, messages: &[Value], settings: &Settings) -> Value {
    let known = |name: &str| case["model_info"][name].as_u64();
    let model = ModelInfo {
        max_input: known("maxInputTokens"),
        window: known("contextWindow"),
        max_output: known("maxTokens"),
    };
    let mode = if case["overflow_recovery"] == true { Mode::OverflowRecovery } else { mode(&case["mode"]) };
    let system = case["system_prompt"].as_str().unwrap_or_default();
    let request = peer::request_tokens(system, messages, &case["tools"], settings);
    let share = case["manual_target_ratio"].as_f64();
    let Some(budget) = peer::budget(messages, request, model, mode, share, settings) else { return Value::Null };
    // A whole number is written as one.
    let number = |number: f64| if number.fract() == 0.0 { json!(number as u64) } else { json!(number) };
    json!({
        "mode": mode,
        "request": {
            "inputTokens": budget.request.input,
            "maxInputTokens": number(budget.max_input),
            "triggerTokens": number(budget.request.trigger),
            "targetTokens": budget.request.target,
            "overheadTokens": budget.overhead,
            "thresholdRatio": settings.trigger_share,
            "utilizationRatio": budget.request.input as f64 / budget.max_input,
        },
        "messages": {
            "inputTokens": budget.messages.input,
            "triggerTokens": number(budget.messages.trigger),
            "targetTokens": budget.messages.target,
        },
    })
}

/// A view that drops nothing on the events of a session.
struct Replay {
    events: Vec<Event>,
    view: View,
}

impl Replay {
    /// `None` where the reader gives an event another id than its message, or makes none of a message.
    fn new(messages: &[Value]) -> Option<Self> {
        let session = json!({"version": 1, "sessionId": "session", "system_prompt": "", "messages": messages});
        let document = Document::from_bytes("case.json".as_ref(), session.to_string().into_bytes()).ok()?;
        let trace = read_document(document, format("cline").ok()).ok()?.into_iter().next()?;
        let mut replay = Self { events: Vec::new(), view: View::new(Rules::OpenHands) };
        trace.events.into_iter().for_each(|event| replay.push(event));
        let is_there = |message: &Value| {
            message["id"].as_str().is_some_and(|id| replay.events.iter().any(|event| event.id.as_str() == id))
        };
        messages.iter().all(is_there).then_some(replay)
    }

    fn push(&mut self, event: Event) {
        self.view.push(&event);
        self.events.push(event);
    }

    /// One decision on request, with the guards off, and its record.
    fn condense(&mut self, policy: &dyn Policy, window: u64) {
        let request = EventKind::CondensationRequest(CondensationRequest::default());
        self.push(Event::new("request", Source::User, request));
        let sizer = Sizer::new(&CharsPer4);
        let budget = Budget { window: Some(Tokens(window)), reserve: Tokens::ZERO };
        let state = State::new(&self.view, &self.events, &sizer, budget);
        let outcome = Condenser::unguarded().run(policy, &state, &Canned);
        if let OutcomeKind::Applied(record) = outcome.result {
            self.push(Event::new("record", Source::Agent, EventKind::Condensation(*record)));
        }
    }

    /// What the view says, piece by piece.
    fn said(&self) -> Vec<String> {
        let mut said = Vec::new();
        for entry in self.view.iter() {
            let Some(Shown::Event(kind)) = Shown::of(entry, &self.events) else { continue };
            match &*kind {
                EventKind::Message(message) => {
                    message.content.iter().chain(&message.extended_content).for_each(|block| say(block, &mut said));
                }
                EventKind::Action(action) => {
                    action.thinking.iter().chain(&action.thought).for_each(|block| say(block, &mut said));
                    said.push(format!("call {}", action.call_id));
                }
                EventKind::Observation(observation) => {
                    said.push(format!("result {}", observation.call_id));
                    observation.content.iter().for_each(|block| say(block, &mut said));
                }
                _ => {}
            }
        }
        said
    }
}

struct Canned;

impl Summarizer for Canned {
    fn name(&self) -> &str {
        "canned"
    }
    fn summarize(&self, _: &SummaryRequest) -> Result<Summary, SummarizeError> {
        Ok(Summary { text: "What happened.".to_owned(), ..Summary::default() })
    }
}

fn say(block: &ContentBlock, said: &mut Vec<String>) {
    match block {
        ContentBlock::Text { text, .. } => said.extend(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        ContentBlock::Image { .. } => said.push("image".to_owned()),
        ContentBlock::Other { value } => said.push(value["type"].as_str().unwrap_or_default().to_owned()),
        _ => said.push("thinking".to_owned()),
    }
}

/// What stored messages say, likewise.
fn said(messages: &[Value]) -> Vec<String> {
    let mut said = Vec::new();
    for message in messages {
        match &message["content"] {
            Value::String(text) => say(&ContentBlock::text(text.as_str()), &mut said),
            content => list(content).iter().for_each(|block| said_by_block(block, &mut said)),
        }
    }
    said
}

fn said_by_block(block: &Value, said: &mut Vec<String>) {
    let text = |name: &str| block[name].as_str().unwrap_or_default();
    match text("type") {
        "text" => say(&ContentBlock::text(text("text")), said),
        "notice" => say(&ContentBlock::text(Notice::text(block)), said),
        "file" => {
            let (path, content) = (text("path"), text("content"));
            say(&ContentBlock::text(format!("<file_content path=\"{path}\">\n{content}\n</file_content>")), said);
        }
        "tool_use" => said.push(format!("call {}", text("id"))),
        "tool_result" => {
            said.push(format!("result {}", text("tool_use_id")));
            match &block["content"] {
                Value::String(text) => say(&ContentBlock::text(text.as_str()), said),
                parts => list(parts).iter().for_each(|part| said_by_block(part, said)),
            }
        }
        "redacted_thinking" => said.push("thinking".to_owned()),
        kind => said.push(kind.to_owned()),
    }
}

/// Basic compaction of a session without earlier ones: what the view says afterwards, since there prompts that follow
/// each other become one message, and here they stay events of their own.
fn basic_by_policy(case: &Value, messages: &[Value]) -> Option<(Value, Value)> {
    let number = |name: &str| case[name].as_u64().unwrap_or_default();
    if case["round"] != 1 {
        return None;
    }
    let mut replay = Replay::new(messages)?;
    let settings = Settings::default();
    let sum = settings.total(messages);
    let overhead = peer::request_tokens("", messages, &json!([]), &settings) - sum;
    // On request the target is a share of all messages, and the trigger what the window leaves for them.
    let settings = Settings {
        window_share: 1.0,
        trigger_share: 1.0,
        manual_target_share: (number("target_tokens") as f64 + 0.5) / sum as f64,
        least_manual_share: 0.0,
        most_manual_share: f64::MAX,
        ..settings
    };
    replay.condense(&Cline::basic(settings), number("trigger_tokens") + overhead);
    let theirs = match &case["expected"] {
        Value::Null => said(messages),
        expected => said(list(&expected["messages"])),
    };
    Some((json!(theirs), json!(replay.said())))
}

/// What stays behind a summary.
fn cut_by_policy(case: &Value, messages: &[Value]) -> Option<(Value, Value)> {
    // An import makes a summary a record that forgets all before it.
    if messages.iter().any(peer::is_summary) {
        return None;
    }
    let mut replay = Replay::new(messages)?;
    let settings = Settings {
        preserve_recent_tokens: case["preserve_recent_tokens"].as_u64()?,
        manual_target_share: 1.0,
        most_manual_share: 1.0,
        ..Settings::default()
    };
    replay.condense(&Cline::agentic(settings), 1_000_000);
    let cut = case["expected"]["cut"].as_u64()? as usize;
    Some((json!(said(&messages[cut..])), json!(replay.said())))
}
