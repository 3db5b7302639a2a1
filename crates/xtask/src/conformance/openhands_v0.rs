//! The views and condensers of the older OpenHands application. Its cases were written by hand from a description.

use std::sync::Arc;

use condenser::event::{Action, ContentBlock, EventKind, Message, Observation, Role, Source, SystemPrompt};
use condenser::tokens::CharsPer4;
use condenser::{
    Budget, Condensation as OwnCondensation, Entry, Event as OwnEvent, OutcomeKind, RewriteOp, Rules, Sizer, State,
    SummarizeError, Summarizer, Summary, SummaryRequest, View as OwnView,
};
use condenser_policies::openhands_v0::peer::{
    CONDENSE, CallFailed, Condensation, CondenseError, Condenser, Event, Forgotten, Kind, Models, Sizes, View,
    render_state,
};
use condenser_policies::openhands_v0::{OpenHandsV0, Ranker};
use serde_json::{Map, Value, json};

use super::Answer;

/// The id of the condensation that a case decides on.
const NEW: i64 = 1_000_000;

fn answer(case: &Value, got: Result<Value, Value>) -> Answer {
    Answer { expected: case["expect"].clone(), got: got.unwrap_or_else(|error| error) }
}

fn load(case: &Value) -> Result<Vec<Event>, Value> {
    let events = case["events"].as_array().into_iter().flatten();
    events.map(Event::parse).collect::<Result<_, _>>().map_err(|_| json!({"error": "load"}))
}

fn shown(view: &View) -> Value {
    let event = |event: &Event| match &event.kind {
        Kind::Observation { name, content, .. } if name == CONDENSE => json!({"condense": content}),
        _ => json!(event.id),
    };
    view.events.iter().map(event).collect()
}

pub(super) fn view(case: &Value) -> Answer {
    answer(
        case,
        load(case).map(|events| {
            let view = View::of(&events);
            json!({"view": shown(&view), "unhandled_request": view.unhandled_request})
        }),
    )
}

pub(super) fn condense(case: &Value) -> Answer {
    let mut answer = answer(case, decide(case));
    if case["id"].as_str().is_none_or(|id| !OTHERWISE.contains(&id)) {
        // A policy gives a record or none: where the peer fails, and where it changes nothing, the view stays.
        answer.expected["through_policy"] = match (&answer.expected["view_after"], &answer.expected["view"]) {
            (Value::Null, Value::Null) => by_policy(case, false).unwrap_or_default(),
            (Value::Null, view) => view.clone(),
            (view, _) => view.clone(),
        };
        answer.got["through_policy"] = by_policy(case, true).unwrap_or_default();
    }
    answer
}

/// Cases where the view after the policy's record is another than the peer's.
const OTHERWISE: [&str; 7] = [
    // An entry stands in a view once.
    "condense-recent-overlap-shows-the-head-twice",
    "condense-recent-longer-than-the-view-shows-it-twice-from-the-head",
    "condense-recent-tail-of-none-is-everything",
    // A summary is no observation and keeps its place.
    "condense-masking-takes-a-summary-for-an-observation",
    "condense-amortized-a-summary-stretches-the-range-over-the-head",
    // An answer without text is a failed call.
    "condense-summarizing-an-empty-answer-is-a-summary",
    // A ranker cannot fail.
    "condense-attention-a-failed-call-escapes",
];

/// The view that the same events give, after the record of the policy where `acts`, with the condenser's guards off.
fn by_policy(case: &Value, acts: bool) -> Option<Value> {
    let mut events: Vec<OwnEvent> = case["events"].as_array()?.iter().map(own).collect::<Option<_>>()?;
    // Fed one by one, these rules keep entries that no request could hold.
    let mut view = OwnView::new(Rules::OpenHands);
    for event in &events {
        view.push(event);
    }
    if acts && let Some(condenser) = condenser(&case["config"]["condenser"]) {
        let script = &case["config"]["llm"];
        let policy = OpenHandsV0::new("case", condenser).with_ranker(Arc::new(Fixed(script["ids"].clone())));
        let sizer = Sizer::new(&CharsPer4);
        let outcome = {
            let state = State::new(&view, &events, &sizer, Budget::default());
            condenser::Condenser { guards: false, ..Default::default() }.run(&policy, &state, &Writer(script))
        };
        if let OutcomeKind::Applied(record) = outcome.result {
            events.push(OwnEvent::new("record", Source::Agent, EventKind::Condensation(*record)));
            view.push(events.last()?);
        }
    }
    let shown = |entry: Entry<'_>| match (entry.summary(), entry.rewrite().map(|(rewrite, _)| &rewrite.op)) {
        (Some(text), _) => json!({"condense": text}),
        // What a condensation leaves is masked again at the next step.
        (None, Some(RewriteOp::Clear { text })) if case["expect"]["view"].is_array() => json!({"condense": text}),
        _ => json!(entry.id().as_str().parse::<i64>().ok()),
    };
    Some(view.iter().map(shown).collect())
}

/// An event of a case as ours.
fn own(value: &Value) -> Option<OwnEvent> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let args = &value["args"];
    let content = ContentBlock::text(text(&args["content"]));
    let kind = match (value["action"].as_str(), value["observation"].as_str()) {
        (Some("system"), _) => {
            EventKind::SystemPrompt(SystemPrompt { content: vec![content], ..SystemPrompt::default() })
        }
        (Some("message"), _) => {
            let role = if value["source"] == "user" { Role::User } else { Role::Assistant };
            EventKind::Message(Message { content: vec![content], ..Message::text(role, "") })
        }
        (Some("condensation_request"), _) => EventKind::CondensationRequest(Default::default()),
        (Some("condensation"), _) => EventKind::Condensation(OwnCondensation {
            forgotten_event_ids: args["forgotten_event_ids"]
                .as_array()?
                .iter()
                .map(|id| id.to_string().into())
                .collect(),
            summary: args["summary"].as_str().map(str::to_owned),
            summary_offset: args["summary_offset"].as_u64().map(|offset| offset as usize),
            ..OwnCondensation::default()
        }),
        (Some(name), _) => EventKind::Action(Action {
            call_id: value["id"].to_string(),
            tool_name: name.to_owned(),
            arguments: args.to_string(),
            ..Action::default()
        }),
        (None, Some(name)) => EventKind::Observation(Observation {
            call_id: value["cause"].to_string(),
            tool_name: name.to_owned(),
            content: vec![ContentBlock::text(text(&value["content"]))],
            ..Observation::default()
        }),
        _ => return None,
    };
    let mut event = OwnEvent::new(value["id"].to_string(), Source::Agent, kind);
    let kept = ["action", "observation", "extras"].map(|name| (name, &value[name]));
    event
        .foreign
        .extend(kept.into_iter().filter(|(_, it)| !it.is_null()).map(|(name, it)| (name.to_owned(), it.clone())));
    Some(event)
}

struct Fixed(Value);

impl Ranker for Fixed {
    fn rank(&self, _: &[Event]) -> Vec<i64> {
        self.0.as_array().into_iter().flatten().filter_map(Value::as_i64).collect()
    }
}

/// Writes the summary of the script; of fields, as the peer lays them out.
struct Writer<'a>(&'a Value);

impl Summarizer for Writer<'_> {
    fn name(&self) -> &str {
        "scripted"
    }

    fn summarize(&self, _: &SummaryRequest) -> Result<Summary, SummarizeError> {
        let fields = || self.0["state"].as_object().map(render_state);
        let text = self.0["summary"].as_str().map(str::to_owned).or_else(fields);
        text.map(|text| Summary { text, ..Summary::default() }).ok_or(SummarizeError::Empty)
    }
}

fn decide(case: &Value) -> Result<Value, Value> {
    let condenser = condenser(&case["config"]["condenser"]).ok_or_else(|| json!({"error": "settings"}))?;
    let mut events = load(case)?;
    let mut models = Scripted { script: &case["config"]["llm"], asked: None };
    let decision = condenser.condense(View::of(&events), &mut models).map_err(|error| match error {
        CondenseError::NothingToForget => json!({"error": "nothing_to_forget"}),
        CondenseError::NoSummaryPlace => json!({"error": "no_summary_place"}),
        CondenseError::CallFailed(CallFailed) => json!({"error": "call_failed"}),
        error => json!({"error": error.to_string()}),
    })?;
    let Some(record) = decision.condensation else { return Ok(json!({"view": shown(&decision.view)})) };
    let mut answer = json!({"condensation": written(&record)});
    if let Some((asked, previous)) = models.asked {
        answer["asked"] = asked;
        answer["previous"] = previous;
    }
    events.push(Event {
        id: Some(NEW),
        source: "agent".to_owned(),
        kind: Kind::Condensation(record),
        cause: None,
        at: None,
    });
    answer["view_after"] = shown(&View::of(&events));
    Ok(answer)
}

fn written(record: &Condensation) -> Value {
    let mut value = match &record.forgotten {
        Forgotten::Ids(ids) => json!({"ids": ids}),
        Forgotten::Range(start, end) => json!({"range": [start, end]}),
    };
    if let Some((text, offset)) = &record.summary {
        value["summary"] = json!(text);
        value["summary_offset"] = json!(offset);
    }
    value
}

/// A condenser with the defaults of the configuration; `None` for settings that the original refuses.
fn condenser(spec: &Value) -> Option<Condenser> {
    let number = |name: &str, default: usize| spec[name].as_u64().map_or(default, |number| number as usize);
    let sizes = || {
        let sizes = Sizes { max_size: number("max_size", 100), keep_first: number("keep_first", 1) };
        sizes.check().ok().map(|()| sizes)
    };
    Some(match spec["type"].as_str()? {
        "noop" => Condenser::NoOp,
        "recent" => Condenser::Recent { keep_first: number("keep_first", 1), max_events: number("max_events", 100) },
        "observation_masking" => Condenser::Masking { attention_window: number("attention_window", 100) },
        "browser_output_masking" => Condenser::Browser { attention_window: number("attention_window", 1) },
        "amortized" => Condenser::Amortized(sizes()?),
        "conversation_window" => Condenser::Window,
        "llm" => Condenser::Summarizing(sizes()?),
        "llm_attention" => Condenser::Attention(sizes()?),
        "structured" => Condenser::Structured(sizes()?),
        "pipeline" => {
            let members = spec["condensers"].as_array()?.iter().map(condenser).collect::<Option<_>>()?;
            Condenser::Pipeline(members)
        }
        _ => return None,
    })
}

struct Scripted<'a> {
    script: &'a Value,
    asked: Option<(Value, Value)>,
}

impl Scripted<'_> {
    fn ask(&mut self, previous: Option<&str>, events: &[Event]) {
        self.asked = Some((events.iter().map(|event| json!(event.id)).collect(), json!(previous)));
    }
}

impl Models for Scripted<'_> {
    fn summarize(&mut self, previous: Option<&str>, events: &[Event]) -> Result<String, CallFailed> {
        self.ask(previous, events);
        self.script["summary"].as_str().map(str::to_owned).ok_or(CallFailed)
    }

    fn state(&mut self, previous: Option<&str>, events: &[Event]) -> Result<Map<String, Value>, CallFailed> {
        self.ask(previous, events);
        self.script["state"].as_object().cloned().ok_or(CallFailed)
    }

    fn rank(&mut self, _: &[Event]) -> Result<Vec<i64>, CallFailed> {
        let ids = self.script["ids"].as_array().ok_or(CallFailed)?;
        Ok(ids.iter().filter_map(Value::as_i64).collect())
    }
}
