//! FreeCode's pruning, trigger, selection, summarizers and service, with explicit state.

use condenser::event::{CondensationRequest, Event, EventKind, Source};
use condenser::tokens::CharsPer4;
use condenser::{
    Budget, Condenser, OutcomeKind, Rules, Shown, Sizer, State, SummarizeError, Summarizer, Summary, SummaryRequest,
    View,
};
use condenser_policies::exact::utf16_len;
use condenser_policies::freecode::peer::{
    self, Candidate, Message, Pruning, Service, Settings, estimate, heuristic, keep, parse, select, should_compact,
};
use condenser_policies::freecode::{Freecode, FreecodeSettings};
use condenser_traces::{Document, format, read_document};
use serde_json::{Map, Value, json};

use super::Answer;

/// What the recorded model answers.
const LLM_SUMMARY: &str = "LLM summary body";

pub(super) fn freecode(case: &Value) -> Answer {
    let input = &case["input"];
    let settings = settings(&input["config"]);
    let previous = input["previousSummary"].as_str();
    let mut expected = case["expected"].clone();
    // The temperature is the host's; our requests have no place for one.
    expected.as_object_mut().map(|fields| fields.shift_remove("temperature"));
    let got = match case["kind"].as_str().unwrap_or_default() {
        "tokens" => json!({"tokens": estimate(input["text"].as_str().unwrap_or_default(), &settings)}),
        "should" => should(input),
        "select" => {
            let messages = messages(input);
            let selection = select(&messages, &settings);
            let ids = |messages: &[Message]| messages.iter().map(|message| message.id.clone()).collect::<Vec<_>>();
            json!({
                "summarizeIds": ids(selection.summarize),
                "preserveIds": ids(selection.preserve),
                "summarizeTokenCount": peer::tokens(selection.summarize),
                "preserveTokenCount": peer::tokens(selection.preserve),
            })
        }
        "heuristic" => {
            let summary = heuristic(&messages(input), previous, &settings);
            json!({
                "content": summary.content,
                "originalMessageCount": summary.n_messages,
                "originalTokenCount": summary.tokens_before,
                "summaryTokenCount": summary.tokens,
            })
        }
        "llm" => {
            let content = peer::read_reply(input["reply"].as_str());
            json!({
                "prompt": peer::prompt(&messages(input), previous),
                "maxTokens": settings.summary_tokens,
                "content": content,
                "error": content.is_none().then_some("provider returned an empty summary"),
            })
        }
        "service" => service(input, settings),
        "keep" => {
            let messages = list(&input["messages"]);
            let roles: Vec<&str> =
                messages.iter().map(|message| message["role"].as_str().unwrap_or_default()).collect();
            let kept = &messages[keep(&roles, input["n"].as_i64().unwrap_or_default())..];
            expected["by_policy"] = shown_of(messages, &expected["keptIds"]);
            json!({
                "keptIds": kept.iter().map(|message| &message["id"]).collect::<Vec<_>>(),
                "by_policy": keep_by_policy(messages, input["n"].as_u64().unwrap_or_default()),
            })
        }
        "prune" => {
            expected["by_policy"] = expected["sends"][0]["results"].clone();
            let mut got = prune(input);
            got["by_policy"] = prune_by_policy(input);
            got
        }
        _ => json!("unknown kind"),
    };
    Answer { expected, got }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn messages(input: &Value) -> Vec<Message> {
    serde_json::from_value(input["messages"].clone()).unwrap_or_default()
}

fn settings(config: &Value) -> Settings {
    let mut settings = Settings::default();
    if config.is_object() {
        let number = |name: &str| config[name].as_u64().unwrap_or_default();
        settings.auto_compact_buffer_tokens = number("autoCompactBufferTokens");
        settings.preserve_recent_turns = number("preserveRecentTurns") as usize;
        settings.max_preserve_recent_tokens = number("maxPreserveRecentTokens");
        settings.max_tool_output_chars = number("maxToolOutputChars") as usize;
    }
    settings
}

fn should(input: &Value) -> Value {
    let variable = |name: &str| input["env"][name].as_str().and_then(parse);
    let default = Settings::default();
    let settings = Settings {
        auto_compact_buffer_tokens: input["bufferTokens"].as_u64().unwrap_or_default(),
        auto_compact_tokens: variable("FREECODE_AUTO_COMPACT_TOKENS"),
        compact_target_tokens: variable("FREECODE_COMPACT_TARGET_TOKENS").unwrap_or(default.compact_target_tokens),
        ..default
    };
    let tokens = input["tokenCount"].as_u64().unwrap_or_default();
    json!({"compact": should_compact(tokens, input["contextLimit"].as_u64(), &settings)})
}

fn service(input: &Value, settings: Settings) -> Value {
    let mut service = Service::new(settings);
    let mut results = Vec::new();
    for step in list(&input["steps"]) {
        let text = |name: &str| step[name].as_str().unwrap_or_default();
        results.push(match text("op") {
            "add" => {
                let message = service.add(text("role"), text("content"));
                json!({"content": message.content, "tokenCount": message.token_count})
            }
            "should" => {
                let measured = step["measured"].as_u64().unwrap_or_default();
                json!({"compact": service.should_compact(step["contextLimit"].as_u64(), measured)})
            }
            _ => {
                let is_vetoed = step["veto"] == true;
                let done = service.compact(is_vetoed, |_, _| (text("llm") == "ok").then(|| LLM_SUMMARY.to_owned()));
                let numbers = |ids: &[String]| ids.iter().filter_map(|id| id.parse::<u64>().ok()).collect::<Vec<_>>();
                json!({
                    "success": !done.is_vetoed,
                    "blocked": done.is_vetoed,
                    "reason": done.is_vetoed.then_some("veto"),
                    "summary": done.summary,
                    "preserved": numbers(&done.preserved),
                    "compacted": numbers(&done.compacted),
                    "tokenCountBefore": done.tokens_before,
                    "tokenCountAfter": done.tokens_after,
                })
            }
        });
    }
    json!({"results": results, "tokenCount": service.token_count})
}

fn prune(input: &Value) -> Value {
    let budget = input["budgetChars"].as_u64().unwrap_or_default() as usize;
    let mut pruning = Pruning::default();
    let send = |length: &Value| {
        let history = &list(&input["history"])[..length.as_u64().unwrap_or_default() as usize];
        let last = history.iter().rposition(|message| message["role"] == "assistant");
        let candidates: Vec<(Candidate<'_>, String)> = history
            .iter()
            .enumerate()
            .flat_map(|(at, message)| list(&message["tools"]).iter().map(move |tool| (at, tool)))
            .filter_map(|(at, tool)| {
                let size = tool["resultChars"].as_u64().filter(|size| *size > 0)? as usize;
                let candidate = Candidate {
                    id: tool["id"].as_str()?,
                    tool: tool["tool"].as_str()?,
                    file: tool["filePath"].as_str(),
                    size,
                    is_protected: Some(at) == last,
                };
                Some((candidate, tool["fill"].as_str()?.repeat(size)))
            })
            .collect();
        let all: Vec<Candidate<'_>> = candidates.iter().map(|(candidate, _)| *candidate).collect();
        let pruned = pruning.send(&all, budget);
        let shown = |(candidate, whole): &(Candidate<'_>, String)| {
            let text = match pruning.replacement(candidate.id) {
                Some(marker) => marker.to_owned(),
                None if candidate.size > 60 => format!("whole:{}", candidate.size),
                None => whole.clone(),
            };
            (candidate.id.to_owned(), json!(text))
        };
        let results: Map<String, Value> = candidates.iter().map(shown).collect();
        json!({"historyLength": length, "results": results, "forgottenReads": pruned.forgotten_reads})
    };
    json!({"sends": list(&input["sendAtLengths"]).iter().map(send).collect::<Vec<_>>()})
}

/// The ids that a view shows: system messages are none of the store, so they are left out.
fn shown_of(messages: &[Value], ids: &Value) -> Value {
    let is_shown = |id: &&Value| messages.iter().any(|message| message["id"] == **id && message["role"] != "system");
    list(ids).iter().filter(is_shown).cloned().collect()
}

/// The turns that stay by way of import, policy, record and view, with the guards off.
fn keep_by_policy(messages: &[Value], n: u64) -> Value {
    let mut chat: Vec<Value> =
        messages.iter().map(|message| json!({"role": message["role"], "content": message["id"]})).collect();
    // A prompt that no answer followed is not stored yet, and these are.
    chat.push(json!({"role": "assistant", "content": "end"}));
    let settings = Settings { preserve_recent_turns: n as usize, ..Settings::default() };
    let (view, events) = after_policy(&chat, settings, true);
    let text = |entry: condenser::Entry<'_>| match &events[entry.seq()].kind {
        EventKind::Message(message) => Some(condenser::request::text_of(&EventKind::Message(message.clone()))),
        _ => None,
    };
    let ids: Vec<Value> = view.iter().filter_map(text).filter(|id| id != "end").map(Value::from).collect();
    shown_of(messages, &json!(ids))
}

/// The results of the first send by way of import, policy, record and view, with the guards off. A later send of a
/// run has no decision left: each answer is sent before the next comes, and what was sent whole stays whole.
fn prune_by_policy(input: &Value) -> Value {
    let length = input["sendAtLengths"][0].as_u64().unwrap_or_default() as usize;
    let mut chat = Vec::new();
    for message in &list(&input["history"])[..length] {
        let tools = list(&message["tools"]);
        if tools.is_empty() {
            chat.push(json!({"role": message["role"], "content": "go on"}));
            continue;
        }
        let call = |tool: &Value| json!({"id": tool["id"], "type": "function", "function": {"name": tool["tool"], "arguments": "{}"}});
        let calls: Vec<Value> = tools.iter().map(call).collect();
        chat.push(json!({"role": "assistant", "content": null, "tool_calls": calls}));
        for tool in tools {
            let size = tool["resultChars"].as_u64().unwrap_or_default() as usize;
            let text = tool["fill"].as_str().unwrap_or_default().repeat(size);
            chat.push(json!({"role": "tool", "tool_call_id": tool["id"], "content": text}));
        }
    }
    chat.push(json!({"role": "user", "content": "and now?"}));
    let budget = input["budgetChars"].as_u64().unwrap_or_default() as usize;
    let (view, events) =
        after_policy(&chat, Settings { tool_result_budget_chars: budget, ..Settings::default() }, false);
    let mut results = Map::new();
    for entry in view.iter() {
        let EventKind::Observation(observation) = &events[entry.seq()].kind else { continue };
        let size = utf16_len(&condenser::request::text_of(&events[entry.seq()].kind));
        let text = Shown::of(entry, &events).map(|shown| shown.text()).unwrap_or_default();
        let text = if entry.rewrite().is_none() && size > 60 { format!("whole:{size}") } else { text };
        if size > 0 {
            results.insert(observation.call_id.clone(), json!(text));
        }
    }
    Value::Object(results)
}

/// The view of a chat after the policy acted once.
fn after_policy(chat: &[Value], settings: Settings, with_request: bool) -> (View, Vec<Event>) {
    let document = Document::from_bytes("case.json".as_ref(), json!(chat).to_string().into_bytes());
    let traces = document.and_then(|document| read_document(document, format("openai-chat").ok()));
    let mut events = traces.ok().and_then(|traces| traces.into_iter().next()).map_or_else(Vec::new, |it| it.events);
    if with_request {
        let request = EventKind::CondensationRequest(CondensationRequest::default());
        events.push(Event::new("request", Source::User, request));
    }
    let mut view = View::new(Rules::OpenHands);
    for event in &events {
        view.push(event);
    }
    let sizer = Sizer::new(&CharsPer4);
    let state = State::new(&view, &events, &sizer, Budget::default());
    let policy = Freecode::new(FreecodeSettings { peer: settings, asks_model: false });
    if let OutcomeKind::Applied(record) =
        (Condenser { guards: false, ..Condenser::default() }).run(&policy, &state, &NoModel).result
    {
        let event = Event::new("record", Source::Agent, EventKind::Condensation(*record));
        view.push(&event);
        events.push(event);
    }
    (view, events)
}

struct NoModel;

impl Summarizer for NoModel {
    fn name(&self) -> &str {
        "none"
    }
    fn summarize(&self, _: &SummaryRequest) -> Result<Summary, SummarizeError> {
        Err(SummarizeError::Empty)
    }
}
