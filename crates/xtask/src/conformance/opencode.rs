//! Both compactions of OpenCode, on cases written by hand.

use condenser_policies::opencode::estimate;
use condenser_policies::opencode::v1::peer as v1;
use condenser_policies::opencode::v2::peer as v2;
use serde_json::{Value, json};

use super::Answer;
use super::script::{answer, expanded, policy, settings};

pub(super) fn v1(case: &Value) -> Answer {
    if case["kind"] == "policy" {
        return policy(case);
    }
    let input = expanded(&case["input"]);
    answer(case, answer_v1(case["kind"].as_str().unwrap_or_default(), &input).unwrap_or_default())
}

fn ids(messages: impl IntoIterator<Item = Value>) -> Value {
    messages.into_iter().map(|message| message["info"]["id"].clone()).collect()
}

fn model(input: &Value) -> v1::Model {
    let number = |name: &str| input["model"][name].as_u64();
    v1::Model {
        context: number("context").unwrap_or_default(),
        input: number("input"),
        output: number("output").unwrap_or_default(),
    }
}

fn answer_v1(kind: &str, input: &Value) -> Option<Value> {
    let settings: v1::Settings = settings(&input["settings"])?;
    let messages = input["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let at = |index: usize| messages[index]["info"]["id"].clone();
    Some(match kind {
        "estimate" => json!({"tokens": estimate(input["text"].as_str()?)}),
        "usable" => json!({
            "usable": v1::usable(&model(input), &settings, true),
            "tail_budget": v1::tail_budget(&model(input), &settings),
        }),
        "overflow" => {
            let number = |name: &str| input["usage"][name].as_u64().unwrap_or_default();
            let usage = v1::Usage {
                total: number("total"),
                input: number("input"),
                output: number("output"),
                cache_read: number("cache_read"),
                cache_write: number("cache_write"),
            };
            json!({
                "count": usage.count(),
                "overflow": v1::is_overflow(usage.count(), &model(input), &settings),
            })
        }
        "prune" => {
            let mut marks = v1::prune(messages, &settings);
            marks.sort_unstable();
            let mark = |(message, part): &(usize, usize)| json!([at(*message), part]);
            json!({"marks": marks.iter().map(mark).collect::<Value>()})
        }
        "select" => {
            let selection = v1::select(messages, input["overflow"] == true, &model(input), &settings);
            json!({
                "head": selection.head.iter().map(|&index| at(index)).collect::<Value>(),
                "tail": selection.tail.map(|(_, id)| id),
                "previous": selection.previous,
                "replay": selection.replay.map(at),
            })
        }
        "filter" => {
            let newest_first: Vec<Value> = messages.iter().rev().cloned().collect();
            json!({"order": ids(v1::filter(&newest_first))})
        }
        "size" => json!({"tokens": v1::size(messages)}),
        "lower" => {
            let result_characters = input["result_characters"].as_u64().map(|most| most as usize);
            let how = v1::Lowering { labels: input["labels"] == true, result_characters };
            json!({"messages": v1::lower(messages, how)})
        }
        "outcome" => {
            let ended = match input["ended"].as_str()? {
                "compact" => v1::Ended::Compact,
                "error" => v1::Ended::Error,
                _ => v1::Ended::Done,
            };
            let replay = input.get("replay");
            let auto_continue = input["auto_continue"] != false;
            let written = v1::outcome(ended, replay, input["auto"] == true, input["overflow"] == true, auto_continue);
            // The words are ours, so a text that was made up stands as such.
            let part = |part: &Value| {
                let text = part["text"].as_str().unwrap_or_default();
                match (part["synthetic"] == true, text.starts_with(v1::GO_ON_WITHOUT_MEDIA)) {
                    (true, true) => json!("go on without media"),
                    (true, false) => json!("go on"),
                    _ => part.clone(),
                }
            };
            json!({
                "goes_on": written.goes_on,
                "error": written.error,
                "parts": written.parts.iter().map(part).collect::<Value>(),
            })
        }
        _ => return None,
    })
}

pub(super) fn v2(case: &Value) -> Answer {
    if case["kind"] == "policy" {
        return policy(case);
    }
    let input = expanded(&case["input"]);
    answer(case, answer_v2(case["kind"].as_str().unwrap_or_default(), &input).unwrap_or_default())
}

fn answer_v2(kind: &str, input: &Value) -> Option<Value> {
    let settings: v2::Settings = settings(&input["settings"])?;
    let number = |name: &str| input[name].as_u64().unwrap_or_default();
    let texts = |name: &str| -> Vec<String> {
        input[name].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let rows = input["rows"].as_array().map_or(&[][..], Vec::as_slice);
    let checkpoint = |value: &Value| {
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        value.is_object().then(|| v2::Checkpoint { summary: text("summary"), recent: text("recent") })
    };
    Some(match kind {
        "serialize" => json!({"text": v2::serialize(&input["row"], &settings)}),
        "trigger" => {
            let context = input["context"].as_u64();
            json!({"compact": v2::should_compact(number("size"), context, number("output"), &settings)})
        }
        "select" => {
            let selected = v2::select(&texts("strings"), &settings);
            json!({
                "head": selected.as_ref().map(|selected| &selected.head),
                "recent": selected.as_ref().map(|selected| &selected.recent),
            })
        }
        "plan" => {
            let selected = v2::select(&texts("strings"), &settings)?;
            let path = match input["path"].as_str()? {
                "overflow" => v2::Path::Overflow,
                "manual" => v2::Path::Manual,
                _ => v2::Path::Threshold,
            };
            match v2::plan(&selected, checkpoint(&input["previous"]).as_ref(), path) {
                Some(compaction) => json!({"context": compaction.context, "recent": compaction.recent}),
                None => json!({"context": null, "recent": null}),
            }
        }
        "fits" => {
            let output = number("output");
            json!({
                "fits": v2::fits(number("size"), number("context"), output, &settings),
                "summary_tokens": v2::summary_tokens(output, &settings),
            })
        }
        "prompt" => {
            let context = texts("context");
            json!({"prompt": v2::prompt(input["instructions"].as_str()?, input["previous"].as_str(), &context)})
        }
        "reply" => json!({"summary": v2::read_reply(input["reply"].as_str()?)}),
        "checkpoint" => {
            let checkpoint = checkpoint(&input["checkpoint"])?;
            let message = checkpoint.message();
            // The sentence is ours.
            let (before, rest) = message.split_once('\n')?;
            let rest = rest.split_once('\n').map(|(_, rest)| rest);
            json!({
                "outer": before,
                "rest": rest,
                "reads_back": v2::Checkpoint::read(&message).as_ref() == Some(&checkpoint),
            })
        }
        "history" => {
            let baseline = input["baseline"].as_i64();
            let seqs: Value = v2::history(rows, baseline).into_iter().map(|row| row["seq"].clone()).collect();
            let (next, is_anew) = v2::rebase(rows, baseline.unwrap_or(-1));
            json!({"seqs": seqs, "baseline": next, "told_anew": is_anew})
        }
        "recovers" => {
            let is = |name: &str| input[name] == true;
            json!({"recovers": v2::recovers(is("context_overflow"), is("output"), number("before") as u32)})
        }
        _ => return None,
    })
}
