//! Suites recorded from the OpenHands SDK 1.58.2, under the `openhands` rules.
//!
//! A recorded Python exception is compared as "an error while loading"; its class name is Python's.

use condenser::event::Event;
use condenser::lower::openhands::{ChatOptions, event_messages, view_messages};
use condenser::tree::{Head, ROOT, Tree};
use condenser::{EventHeader, Property, Rules, View};
use condenser_traces::openhands_v1::{Mode, parse_event};
use serde_json::{Value, json};

use super::Answer;

pub(super) fn load(case: &Value) -> Option<Vec<Event>> {
    case["events"].as_array()?.iter().map(|event| parse_event(event.clone(), Mode::Strict).ok()).collect()
}

/// An answer where loading itself may be what fails.
fn answer(case: &Value, build: impl FnOnce(&[Event]) -> Value) -> Answer {
    let expect = &case["expect"];
    let expected = if expect["error"].is_string() { json!({"error": "loading"}) } else { expect.clone() };
    let got = load(case).map_or_else(|| json!({"error": "loading"}), |events| build(&events));
    Answer { expected, got }
}

pub(super) fn ids(view: &View) -> Value {
    view.ids().map(|id| id.as_str()).collect()
}

fn indices(view: &View) -> Value {
    view.manipulation_indices().collect()
}

fn summaries(view: &View) -> Value {
    view.iter()
        .filter_map(|entry| Some((entry, entry.summary()?)))
        .map(|(entry, text)| json!({"id": entry.id().as_str(), "position": entry.index(), "summary": text}))
        .collect()
}

fn property_name(property: Property) -> Value {
    serde_json::to_value(property).unwrap_or_default()
}

pub(super) fn view(case: &Value) -> Answer {
    answer(case, |events| {
        let view = View::replay(events, Rules::OpenHands);
        let dropped: Value = view
            .diagnostics()
            .dropped
            .iter()
            .map(|dropped| {
                let ids: Vec<&str> = dropped.ids.iter().map(|id| id.as_str()).collect();
                json!({"property": property_name(dropped.property), "dropped": ids})
            })
            .collect();
        json!({
            "view_event_ids": ids(&view),
            "summaries": summaries(&view),
            "unhandled_condensation_request": view.has_unhandled_request(),
            "manipulation_indices": indices(&view),
            "enforcement": dropped,
        })
    })
}

pub(super) fn append(case: &Value) -> Answer {
    answer(case, |events| {
        let every = case["config"]["checkpoint_every"].as_u64().unwrap_or(1).max(1) as usize;
        let mut view = View::new(Rules::OpenHands);
        let mut steps = Vec::new();
        for (i, event) in events.iter().enumerate() {
            view.push(event);
            if (i + 1) % every == 0 || i + 1 == events.len() {
                steps.push(json!({
                    "after": i + 1,
                    "view_event_ids": ids(&view),
                    "unhandled_condensation_request": view.has_unhandled_request(),
                    "manipulation_indices": indices(&view),
                }));
            }
        }
        json!({
            "steps": steps,
            "summaries": summaries(&view),
            "rebuilt_view_event_ids": ids(&View::replay(events, Rules::OpenHands)),
        })
    })
}

pub(super) fn indices_suite(case: &Value) -> Answer {
    answer(case, |events| {
        let mut view = View::new(Rules::OpenHands);
        for event in events.iter().filter(|event| event.class().is_shown()) {
            view.push(event);
        }
        let per_property: serde_json::Map<String, Value> = Property::ALL
            .into_iter()
            .map(|property| {
                let name = property_name(property).as_str().unwrap_or_default().to_owned();
                (name, json!(view.openhands_indices(property)))
            })
            .collect();
        let found: Value = case["config"]["find_next"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|threshold| {
                let from = usize::try_from(threshold.as_i64().unwrap_or_default()).unwrap_or(0);
                match view.next_index(from) {
                    Some(index) => json!({"threshold": threshold, "index": index}),
                    None => json!({"threshold": threshold, "error": "ValueError"}),
                }
            })
            .collect();
        json!({"manipulation_indices": indices(&view), "per_property": per_property, "find_next": found})
    })
}

pub(super) fn messages(case: &Value) -> Answer {
    let expect = &case["expect"];
    let stage = |error: &Value| if error == "ValidationError" { "loading" } else { "lowering" };
    let expected = if expect["error"].is_string() { json!({"error": stage(&expect["error"])}) } else { expect.clone() };
    let switch = |name: &str| case["config"]["chat"][name].as_bool().unwrap_or_default();
    let options = ChatOptions {
        cache_enabled: switch("cache_enabled"),
        vision_enabled: switch("vision_enabled"),
        function_calling_enabled: switch("function_calling_enabled"),
        force_string_serializer: switch("force_string_serializer"),
        send_reasoning_content: switch("send_reasoning_content"),
    };
    let lower = |events: &[Event]| {
        let messages = if case["config"]["source"] == "view" {
            view_messages(&View::replay(events, Rules::OpenHands), events)?
        } else {
            event_messages(events)?
        };
        messages.iter().map(|message| message.to_chat(options)).collect::<Result<Vec<_>, _>>()
    };
    let got = match load(case).map(|events| lower(&events)) {
        None => json!({"error": "loading"}),
        Some(Err(_)) => json!({"error": "lowering"}),
        Some(Ok(mut messages)) => {
            if case["config"]["digest"].as_bool() == Some(true) {
                messages.iter_mut().for_each(digest);
            }
            json!({"messages": messages})
        }
    };
    Answer { expected, got }
}

/// Kinds that the peer attaches to the tree without ever making them the head by default.
const NEVER_NEWEST_HEAD: [&str; 2] = ["ConversationStateUpdateEvent", "ConversationErrorEvent"];

pub(super) fn branch(case: &Value) -> Answer {
    let expect = &case["expect"];
    let config = &case["config"];
    let through_state = config["store"] == "state";
    let mut stored: Vec<Event> = Vec::new();
    let mut tree = Tree::default();
    let mut head = Head::Newest;
    let class = |event: &Event| event.foreign["kind"].as_str().unwrap_or_default().to_owned();
    let can_be_head = |events: &[Event], at: usize| !NEVER_NEWEST_HEAD.contains(&class(&events[at]).as_str());
    for (position, value) in case["events"].as_array().into_iter().flatten().enumerate() {
        for step in config["navigate"].as_array().into_iter().flatten().filter(|step| step["after"] == position) {
            head = step["leaf_event_id"].as_str().map_or(Head::Empty, |id| Head::At(id.into()));
        }
        let Ok(mut event) = parse_event(value.clone(), Mode::Strict) else {
            return Answer { expected: expect.clone(), got: json!({"error": "loading"}) };
        };
        if through_state && event.parent.is_none() {
            event.parent = match tree.resolve(&head, |at| can_be_head(&stored, at)) {
                Some(leaf) => Some(leaf.clone()),
                None => (!stored.is_empty()).then(|| ROOT.into()),
            };
        }
        if tree.append(&event.id, event.parent.as_ref()).is_err() {
            return Answer {
                expected: expect.clone(),
                got: json!({"error": "ValueError", "at": "append", "event": event.id.as_str()}),
            };
        }
        if through_state && class(&event) != "ConversationStateUpdateEvent" {
            head = Head::At(event.id.clone());
        }
        stored.push(event);
    }
    if config["leaf_event_id"] != "keep" {
        head = match (config["leaf_event_id"].as_str(), config["head_is_empty"].as_bool()) {
            (Some(id), _) => Head::At(id.into()),
            (None, Some(true)) => Head::Empty,
            _ => Head::Newest,
        };
    }
    let parents: Vec<Value> = stored
        .iter()
        .map(|event| json!([event.id.as_str(), event.parent.as_ref().map(|parent| parent.as_str())]))
        .collect();
    let leaf = tree.resolve(&head, |at| can_be_head(&stored, at));
    let path = leaf.map_or(Ok(Vec::new()), |leaf| tree.path(leaf));
    let mut got = json!({"parents": parents, "active_leaf": leaf.map(|leaf| leaf.as_str())});
    match path {
        Err(_) => got["error"] = json!("KeyError"),
        Ok(path) => {
            let limit = config["limit"].as_u64().map_or(path.len(), |limit| limit as usize);
            got["path"] = path[path.len().saturating_sub(limit)..].iter().map(|&at| stored[at].id.as_str()).collect();
            let view = View::replay(path.iter().map(|&at| &stored[at]), Rules::OpenHands);
            got["view_event_ids"] = ids(&view);
        }
    }
    Answer { expected: expect.clone(), got }
}

/// Replaces long texts by their length and ends, as the recording did.
fn digest(value: &mut Value) {
    match value {
        Value::String(text) if text.chars().count() > 1000 => {
            let characters: Vec<char> = text.chars().collect();
            let ends = |part: &[char]| part.iter().collect::<String>();
            *value = json!({
                "chars": characters.len(),
                "head": ends(&characters[..40]),
                "tail": ends(&characters[characters.len() - 40..]),
            });
        }
        Value::Array(items) => items.iter_mut().for_each(digest),
        Value::Object(fields) => fields.values_mut().for_each(digest),
        _ => {}
    }
}
