//! SWE-agent's history processors.

use condenser_policies::swe_agent::peer::{
    ClosedWindow, DEFAULT_PATTERN, Entry, LastN, RemoveRegex, Tagger, closed_line,
};
use serde_json::{Value, json};

use super::Answer;

pub(super) fn process(case: &Value) -> Answer {
    let entries = case["history"].as_array().into_iter().flatten();
    let history: Vec<Entry> = entries.filter_map(Value::as_object).cloned().collect();
    let config = &case["config"];
    let got = match case["kind"].as_str() {
        Some("last_n_observations") => last_n(config, history),
        Some("closed_window") => closed_window(history, &case["expected"]),
        Some("remove_regex") => remove_regex(config, history),
        Some("tag_tool_call_observations") => {
            let tagger =
                Tagger { tags: texts(config, "tags", ""), function_names: texts(config, "function_names", "") };
            let tags = |entry: &Entry| {
                let mut tags = entry.get("tags").and_then(Value::as_array).cloned().unwrap_or_default();
                tags.sort_by_key(Value::to_string);
                Value::Array(tags)
            };
            json!({"tags": tagger.process(history).iter().map(tags).collect::<Value>()})
        }
        _ => json!({"error": "unknown kind"}),
    };
    Answer { expected: case["expected"].clone(), got }
}

fn texts(config: &Value, name: &str, default: &str) -> Vec<String> {
    match config[name].as_array() {
        Some(texts) => texts.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        None => vec![default.to_owned()],
    }
}

fn last_n(config: &Value, history: Vec<Entry>) -> Value {
    let number = |name: &str| config[name].as_u64().unwrap_or(1) as usize;
    let last_n = LastN {
        n: number("n"),
        polling: number("polling"),
        keep: texts(config, "always_keep_output_for_tags", "keep_output"),
        remove: texts(config, "always_remove_output_for_tags", "remove_output"),
    };
    let candidates = last_n.candidates(&history);
    let Ok(sent) = last_n.process(history.clone()) else { return json!({"error": "no observation"}) };
    let entry = |(before, after): (&Entry, &Entry)| {
        if before == after {
            return json!({"kept": true});
        }
        let line = after["content"].as_str().unwrap_or_default();
        let number = |word: &str| {
            let end = line.find(&format!(" {word} omitted)"))?;
            line[line[..end].rfind('(')? + 1..end].parse::<u64>().ok()
        };
        json!({"lines": number("lines"), "images": number("images").unwrap_or(0)})
    };
    json!({"candidate_indices": candidates, "entries": history.iter().zip(&sent).map(entry).collect::<Value>()})
}

fn closed_window(history: Vec<Entry>, expected: &Value) -> Value {
    let Ok(windows) = ClosedWindow::new() else { return Value::Null };
    let sent = windows.process(history.clone());
    let entry = |(n, (at, entry)): (usize, &(usize, Entry))| {
        let content = entry["content"].as_str().unwrap_or_default();
        if history[*at]["content"] == entry["content"] {
            return json!({"index": at});
        }
        // The words of the line are ours, so its place is found by the recorded number.
        let n_lines = expected["entries"][n]["closed_lines"].as_u64().unwrap_or_default();
        match content.split_once(&closed_line(n_lines as usize)) {
            Some((before, after)) => json!({"index": at, "closed_lines": n_lines, "before": before, "after": after}),
            None => json!({"index": at, "content": content}),
        }
    };
    json!({"entries": sent.iter().enumerate().map(entry).collect::<Value>()})
}

fn remove_regex(config: &Value, history: Vec<Entry>) -> Value {
    let keep_last = config["keep_last"].as_u64().unwrap_or(0) as usize;
    match RemoveRegex::new(&texts(config, "remove", DEFAULT_PATTERN), keep_last) {
        Ok(remove) => {
            json!({"contents": remove.process(history).into_iter().map(|mut e| e["content"].take()).collect::<Value>()})
        }
        Err(error) => json!({"error": error.to_string()}),
    }
}
