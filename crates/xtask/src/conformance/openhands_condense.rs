//! One decision of the OpenHands SDK's condensers, with a scripted summarizer and the guards off.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use condenser::event::{Event, EventKind, Source};
use condenser::lower::openhands::{ChatMessage, LowerError};
use condenser::tokens::CharsPer4;
use condenser::{
    Budget, Condensation, OutcomeKind, Policy, Reason, Requirement, Rules, Sizer, State, SummarizeError, Summarizer,
    Summary, SummaryRequest, Tokens, View,
};
use condenser_policies::openhands::peer::{CondenseError, Condenser, Decision, Models, Settings, prefix, requirement};
use condenser_policies::openhands::{MessageCounter, OpenHands, OpenHandsSettings};
use condenser_policies::{NoPolicy, Pipeline};
use serde_json::{Value, json};

use super::Answer;
use super::openhands::{ids, load};

pub(super) fn condense(case: &Value) -> Answer {
    let mut expected = case["expect"].clone();
    // Lengths of event texts depend on how Python prints an event, so only the arithmetic between them is checked.
    let lengths = expected.as_object_mut().and_then(|fields| fields.shift_remove("event_text_chars"));
    expected["text_lengths"] = json!(lengths.is_none_or(|lengths| follows_the_arithmetic(case, &lengths)));
    let through_policy = recorded(&expected);
    let mut got = decide(case).unwrap_or_else(|error| error);
    got["text_lengths"] = json!(true);
    let is_mended = case["id"].as_str().is_some_and(|id| MENDED.contains(&id));
    expected["through_policy"] = if is_mended { Value::Null } else { through_policy };
    got["through_policy"] = condense_by_policy(case).unwrap_or_default();
    Answer { expected, got }
}

/// Cases where the policy makes no record and the peer does: an answer without text is a failed call.
const MENDED: [&str; 2] = ["condense-edge-summary-reply-is-image", "condense-edge-summary-reply-without-content"];

/// What of a recorded answer a policy can give: the record and the view after it, or null for no record.
fn recorded(expected: &Value) -> Value {
    let record = &expected["condensation"];
    if record.is_null() {
        return Value::Null;
    }
    json!({
        "forgotten_event_ids": record["forgotten_event_ids"],
        "summary": record["summary"],
        "summary_offset": record["summary_offset"],
        "view_after": expected["view_after"],
    })
}

/// The same decision by way of the policy, the condenser with its guards off, and a record. `None` for no record.
fn condense_by_policy(case: &Value) -> Option<Value> {
    let config = &case["config"];
    let condenser = condenser(&config["condenser"])?;
    let events = load(case)?;
    let view = input_view(config, &events);
    let agent = &config["agent_llm"];
    let policy = policy(config, &condenser);
    let sizer = Sizer::new(&CharsPer4);
    let budget = Budget { window: agent["max_input_tokens"].as_u64().map(Tokens), reserve: Tokens::ZERO };
    let state = State::new(&view, &events, &sizer, budget);
    let summarizer = ScriptedSummarizer { config, n_calls: AtomicU64::new(0) };
    match condenser::Condenser::unguarded().run(&*policy, &state, &summarizer).result {
        OutcomeKind::Applied(record) => Some(json!({
            "forgotten_event_ids": record.forgotten_event_ids,
            "summary": record.summary,
            "summary_offset": record.summary_offset,
            "view_after": ids(&after(events.clone(), *record)),
        })),
        _ => None,
    }
}

fn policy(config: &Value, condenser: &Condenser) -> Box<dyn Policy> {
    match condenser {
        Condenser::NoOp => Box::new(NoPolicy),
        Condenser::Pipeline(members) => {
            Box::new(Pipeline::new("pipeline", members.iter().map(|member| policy(config, member).into()).collect()))
        }
        Condenser::LlmSummarizing(settings) => {
            // Without an agent model the peer has no token limit at all.
            let max_tokens = settings.max_tokens.filter(|_| config["agent_llm"].is_object());
            let counter = Arc::new(Counter(config.clone()));
            let peer = Settings { max_tokens, ..*settings };
            match OpenHands::new(OpenHandsSettings { peer, ..OpenHandsSettings::default() }) {
                Ok(policy) => Box::new(policy.with_counter(counter)),
                Err(_) => Box::new(NoPolicy),
            }
        }
    }
}

struct Counter(Value);

impl MessageCounter for Counter {
    fn tokens(&self, messages: &[ChatMessage], tools: &[Value]) -> i64 {
        tokens(&self.0, messages, tools)
    }
}

struct ScriptedSummarizer<'a> {
    config: &'a Value,
    n_calls: AtomicU64,
}

impl Summarizer for ScriptedSummarizer<'_> {
    fn name(&self) -> &str {
        "scripted"
    }

    fn summarize(&self, _: &SummaryRequest) -> Result<Summary, SummarizeError> {
        let script = &self.config["llm"];
        if self.n_calls.fetch_add(1, Ordering::Relaxed) < script["fail_first"].as_u64().unwrap_or_default() {
            return Err(SummarizeError::Failed("scripted".to_owned()));
        }
        let text = script["summary"].as_str().filter(|_| script["reply"].is_null());
        text.map(|text| Summary { text: text.to_owned(), ..Summary::default() }).ok_or(SummarizeError::Empty)
    }
}

fn input_view(config: &Value, events: &[Event]) -> View {
    if config["view"] != "append" {
        return View::replay(events, Rules::OpenHands);
    }
    let mut view = View::new(Rules::OpenHands);
    for event in events {
        view.push(event);
    }
    view
}

fn decide(case: &Value) -> Result<Value, Value> {
    let config = &case["config"];
    let condenser =
        condenser(&config["condenser"]).ok_or_else(|| json!({"error": "ValidationError", "at": "config"}))?;
    let events = load(case).ok_or_else(|| json!({"error": "ValidationError"}))?;
    let view = input_view(config, &events);
    let mut models = Scripted { config, view: &view, events: &events, calls: 0 };
    let mut answer = json!({"input_view": ids(&view)});
    if let Condenser::LlmSummarizing(settings) = &condenser {
        match requirement(settings, &view, &models) {
            Ok(requirement) => {
                answer["reasons"] = reasons(&requirement);
                answer["requirement"] = match requirement {
                    Requirement::None => Value::Null,
                    Requirement::Soft(_) => json!("soft"),
                    Requirement::Hard(_) => json!("hard"),
                };
            }
            Err(_) => {
                answer["error"] = json!("AssertionError");
                answer["at"] = json!("reasons");
                return Ok(answer);
            }
        }
    }
    if models.agent_limit().is_some() {
        let tokens = models.prefix_tokens(view.len()).map_err(|_| json!({"error": "AssertionError"}))?;
        answer["total_tokens"] = json!(tokens);
    }
    match condenser.condense(&view, &mut models) {
        Ok(Decision::Keep) => answer["view"] = ids(&view),
        Ok(Decision::Condense(record)) => {
            answer["condensation"] = json!({
                "forgotten_event_ids": record.forgotten_event_ids,
                "summary": record.summary,
                "summary_offset": record.summary_offset,
            });
            answer["view_after"] = ids(&after(events.clone(), record));
        }
        Err(error) => {
            answer["error"] = json!(match error {
                CondenseError::NotAvailable => "NoCondensationAvailableException",
                CondenseError::EmptyView => "ValueError",
                _ => "AssertionError",
            });
        }
    }
    answer["summary_calls"] = json!(models.calls);
    Ok(answer)
}

fn after(mut events: Vec<Event>, record: Condensation) -> View {
    events.push(Event::new("cnew", Source::Environment, EventKind::Condensation(record)));
    View::replay(&events, Rules::OpenHands)
}

fn reasons(requirement: &Requirement) -> Value {
    let mut names: Vec<&str> = requirement.reasons().iter().copied().map(Reason::name).collect();
    names.sort_unstable();
    json!(names)
}

fn condenser(spec: &Value) -> Option<Condenser> {
    match spec["type"].as_str()? {
        "noop" => Some(Condenser::NoOp),
        "pipeline" => {
            spec["condensers"].as_array()?.iter().map(condenser).collect::<Option<_>>().map(Condenser::Pipeline)
        }
        "llm_summarizing" => {
            let default = Settings::default();
            let integer = |name: &str, default: i64| spec[name].as_i64().unwrap_or(default);
            let share = |name: &str, default: f64| spec[name].as_f64().unwrap_or(default);
            let settings = Settings {
                max_size: integer("max_size", default.max_size),
                max_tokens: spec["max_tokens"].as_i64(),
                keep_first: integer("keep_first", default.keep_first),
                minimum_progress: share("minimum_progress", default.minimum_progress),
                hard_context_reset_max_retries: integer(
                    "hard_context_reset_max_retries",
                    default.hard_context_reset_max_retries,
                ),
                hard_context_reset_context_scaling: share(
                    "hard_context_reset_context_scaling",
                    default.hard_context_reset_context_scaling,
                ),
            };
            settings.check().ok().map(|()| Condenser::LlmSummarizing(settings))
        }
        _ => None,
    }
}

struct Scripted<'a> {
    config: &'a Value,
    view: &'a View,
    events: &'a [Event],
    calls: u64,
}

impl Models for Scripted<'_> {
    fn agent_limit(&self) -> Option<Option<i64>> {
        let agent = &self.config["agent_llm"];
        agent.is_object().then(|| agent["max_input_tokens"].as_i64())
    }

    fn prefix_tokens(&self, length: usize) -> Result<i64, LowerError> {
        let (messages, tools) = prefix(self.view, self.events, length)?;
        Ok(tokens(self.config, &messages, tools))
    }

    fn event_text(&self, index: usize) -> String {
        format!("event {index}")
    }

    fn summarize(&mut self, _: &[String]) -> Result<Option<String>, ()> {
        self.calls += 1;
        let script = &self.config["llm"];
        if self.calls <= script["fail_first"].as_u64().unwrap_or_default() {
            return Err(());
        }
        Ok(script["summary"].as_str().filter(|_| script["reply"].is_null()).map(str::to_owned))
    }
}

/// The recording's counter.
fn tokens(config: &Value, messages: &[ChatMessage], tools: &[Value]) -> i64 {
    let rate = |name: &str| config["token_counter"][name].as_i64().unwrap_or_default();
    let mut total = rate("per_tool") * tools.len() as i64;
    for message in messages {
        let mut characters = 0;
        let mut images = 0;
        for block in &message.content {
            match block {
                condenser::ContentBlock::Text { text, .. } => characters += text.chars().count(),
                condenser::ContentBlock::Image { urls, .. } => images += urls.len(),
                _ => {}
            }
        }
        for call in message.tool_calls.iter().flatten() {
            characters += call.name.chars().count() + call.arguments.chars().count();
        }
        total += rate("per_message") + characters.div_ceil(4) as i64 + images as i64 * rate("per_image");
    }
    total
}

/// Whether the recorded lengths of a hard reset's tries follow from those of its first one.
///
/// Only where the longest text is among them, which is not known behind a system prompt.
fn follows_the_arithmetic(case: &Value, lengths: &Value) -> bool {
    let config = &case["config"]["condenser"];
    let has_prompt = case["events"].as_array().into_iter().flatten().any(|event| event["kind"] == "SystemPromptEvent");
    let calls: Vec<Vec<u64>> = lengths
        .as_array()
        .into_iter()
        .flatten()
        .map(|call| call.as_array().into_iter().flatten().filter_map(Value::as_u64).collect())
        .collect();
    let n_view = case["expect"]["input_view"].as_array().map_or(0, Vec::len);
    let mut resets: Vec<&Vec<u64>> = calls.iter().filter(|call| call.len() == n_view).collect();
    if resets.len() > 1 && resets[0] == resets[1] {
        // The planned range was the whole view too.
        resets.remove(0);
    }
    if config["type"] != "llm_summarizing" || has_prompt || resets.len() < 2 {
        return true;
    }
    let scaling = config["hard_context_reset_context_scaling"].as_f64().unwrap_or(0.8);
    let mut cap = resets[0].iter().copied().max().unwrap_or(0);
    resets.iter().skip(1).all(|call| {
        cap = (cap as f64 * scaling) as u64;
        call.iter().zip(resets[0]).all(|(length, full)| *length == if cap == 0 { *full } else { (*full).min(cap) })
    })
}
