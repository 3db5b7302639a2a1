//! Codex, Anthropic's clearing, ADK, the complexity-trap study, and the native `craft` and `hybrid`, on cases written by
//! hand.

use condenser_policies::adk::peer as adk;
use condenser_policies::anthropic::peer as anthropic;
use condenser_policies::codex::peer as codex;
use condenser_policies::complexity_trap::peer as complexity_trap;
use condenser_policies::craft::cost;
use serde_json::{Value, json};

use super::Answer;
use super::script::{answer, expanded, policy, settings};

type Suite = fn(&str, &Value) -> Option<Value>;

fn run(case: &Value, suite: Suite) -> Answer {
    let kind = case["kind"].as_str().unwrap_or_default();
    if kind == "policy" {
        return policy(case);
    }
    answer(case, suite(kind, &expanded(&case["input"])).unwrap_or_default())
}

pub(super) fn codex(case: &Value) -> Answer {
    run(case, |kind, input| {
        let settings: codex::Settings = settings(&input["settings"])?;
        let text = |name: &str| input[name].as_str().unwrap_or_default();
        let items = input["items"].as_array().map_or(&[][..], Vec::as_slice);
        Some(match kind {
            "limit" => {
                let limit = codex::token_limit(input["window"].as_u64(), &settings);
                json!({"limit": limit, "compact": codex::should_compact(input["total"].as_u64()?, limit)})
            }
            "tokens" => json!({"tokens": codex::tokens(text("text"), &settings)}),
            "users" => {
                let users = codex::user_messages(&items.iter().map(named).collect::<Vec<_>>());
                json!({"users": users})
            }
            "select" => {
                let messages: Vec<(usize, String)> =
                    items.iter().filter_map(Value::as_str).map(str::to_owned).enumerate().collect();
                let selected = codex::select(&messages, &settings);
                json!({"selected": selected.into_iter().map(|(_, text)| json!(text)).collect::<Value>()})
            }
            "cut" => json!({"text": codex::without_middle(text("text"), input["budget"].as_u64()?, &settings)}),
            "rebuild" => {
                let initial = input["initial"].as_array().map_or(&[][..], Vec::as_slice);
                let users: Vec<(usize, String)> =
                    items.iter().filter_map(Value::as_str).map(str::to_owned).enumerate().collect();
                let history = codex::rebuild(initial, &users, text("answer"));
                // The words around a summary are ours.
                let said = |item: &Value| match codex::text(item).strip_prefix(codex::SUMMARY_PREFIX) {
                    Some(summary) => {
                        json!({"summary": summary.strip_prefix('\n').map(|it| it == codex::NO_SUMMARY || it == text("answer"))})
                    }
                    None => json!(codex::text(item)),
                };
                json!({"history": history.iter().map(said).collect::<Value>()})
            }
            "drop" => {
                let sizes: Vec<u64> = items.iter().filter_map(Value::as_u64).collect();
                let room = input["room"].as_u64()?;
                json!({"dropped": codex::drop_oldest(sizes.len(), |from| sizes[from..].iter().sum::<u64>() <= room)})
            }
            _ => return None,
        })
    })
}

/// An item with our words where a case names them.
fn named(item: &Value) -> Value {
    let mut item = item.clone();
    if item["content"] == "SUMMARY" {
        item["content"] = json!(codex::summary("handoff"));
    }
    item
}

pub(super) fn anthropic(case: &Value) -> Answer {
    run(case, |kind, input| {
        let settings: anthropic::Settings = settings(&input["settings"])?;
        let uses: Vec<anthropic::ToolUse> = input["uses"]
            .as_array()?
            .iter()
            .map(|it| anthropic::ToolUse {
                tool: it["tool"].as_str().unwrap_or("bash").to_owned(),
                result_tokens: it["result"].as_u64().unwrap_or_default(),
                input_tokens: it["input"].as_u64().unwrap_or_default(),
                is_cleared: it["cleared"] == true,
            })
            .collect();
        let applied = anthropic::clear(&uses, input["tokens"].as_u64()?, &settings);
        match (kind, applied) {
            ("clear", Some(applied)) => Some(json!({
                "cleared": applied.cleared.iter().map(|(at, _)| json!(at)).collect::<Value>(),
                "inputs": applied.cleared.iter().filter(|(_, with)| *with).map(|(at, _)| json!(at)).collect::<Value>(),
                "tokens": applied.cleared_input_tokens,
            })),
            ("clear", None) => Some(json!({"cleared": null})),
            _ => None,
        }
    })
}

pub(super) fn adk(case: &Value) -> Answer {
    run(case, |kind, input| {
        let events = input["events"].as_array().map_or(&[][..], Vec::as_slice);
        let number = |name: &str| input[name].as_u64().map(|number| number as usize);
        let told = |range: Option<adk::Range>| match range {
            Some(range) => json!({"events": range.events, "previous": range.previous}),
            None => json!({"events": null, "previous": null}),
        };
        Some(match kind {
            "window" => told(adk::sliding_window(events, number("interval")?, number("overlap")?)),
            "tokens" => told(adk::token_threshold(events, number("retention")?)),
            "reached" => {
                let characters = input["characters"].as_u64().unwrap_or_default();
                json!({"reached": adk::is_reached(input["reported"].as_u64(), characters, input["threshold"].as_u64()?)})
            }
            "select" => {
                let settings: adk::Settings = settings(&input["settings"])?;
                told(adk::select(events, input["reached"] == true, input["ended"] == true, &settings))
            }
            "check" => {
                let settings: adk::Settings = settings(&input["settings"])?;
                json!({"valid": settings.check().is_ok()})
            }
            "view" => json!({"shown": adk::view(events)}),
            _ => return None,
        })
    })
}

pub(super) fn complexity_trap(case: &Value) -> Answer {
    use complexity_trap::Kind;
    run(case, |kind, input| {
        let mut settings = match input["arm"].as_str()? {
            "masking" => complexity_trap::Settings::MASKING,
            "summary" => complexity_trap::Settings::SUMMARY,
            _ => complexity_trap::Settings::HYBRID,
        };
        if let Some(raw) = input["raw_turns"].as_u64() {
            settings.raw_turns = raw as usize;
        }
        if let Some(folded) = input["folded_turns"].as_u64() {
            settings.folded_turns = Some(folded as usize);
        }
        let history: Vec<Kind> = input["history"]
            .as_str()?
            .chars()
            .map(|c| match c {
                'a' => Kind::Answer,
                'r' => Kind::Result,
                'S' => Kind::Summary,
                _ => Kind::Other,
            })
            .collect();
        (kind == "select").then(|| {
            json!({
                "masked": complexity_trap::masked(&history, &settings),
                "folded": complexity_trap::folded(&history, &settings),
            })
        })
    })
}

/// The native ones have no peer: their cases are logs, and the arithmetic of the cost model.
pub(super) fn native(case: &Value) -> Answer {
    run(case, |kind, input| {
        let number = |name: &str| input[name].as_u64();
        let run = cost::Run { prefix: number("prefix")?, step: number("step")?, n_steps: number("steps")? };
        match (kind, number("after").zip(number("new_prefix"))) {
            ("cost", None) => Some(json!({"total": run.total(), "last": run.reads(run.n_steps)})),
            ("cost", Some((after, prefix))) => {
                let reading = run.condensed(after, prefix);
                Some(json!({
                    "before": reading.before, "call": reading.call, "after": reading.after,
                    "total": reading.total(), "last": reading.last,
                    "saved": run.total() as i64 - reading.total() as i64,
                }))
            }
            _ => None,
        }
    })
}
