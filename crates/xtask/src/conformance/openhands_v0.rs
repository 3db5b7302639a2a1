//! The views and condensers of the older OpenHands application. Its cases were written by hand from a description.

use condenser_policies::openhands_v0::peer::{
    CONDENSE, CallFailed, Condensation, CondenseError, Condenser, Event, Forgotten, Kind, Models, Sizes, View,
};
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
    answer(case, decide(case))
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
