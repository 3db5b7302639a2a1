//! FreeCode's pruning, trigger, selection, summarizers and service, with explicit state.

use condenser_policies::freecode::peer::{
    self, Candidate, Message, Pruning, Service, Settings, estimate, heuristic, keep, parse, select, should_compact,
};
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
            json!({"keptIds": kept.iter().map(|message| &message["id"]).collect::<Vec<_>>()})
        }
        "prune" => prune(input),
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
