//! Cline's compaction: budget, selection, projection, cut, and the state beside a session.

use condenser_policies::cline::peer::{self, Files, Intent, Mode, ModelInfo, Settings, Sidecar};
use serde_json::{Value, json};

use super::Answer;

pub(super) fn cline(case: &Value) -> Answer {
    let expected = case["expected"].clone();
    let settings = Settings::default();
    let messages = list(&case["messages"]);
    let number = |name: &str| case[name].as_u64().unwrap_or_default();
    let got = match case["kind"].as_str().unwrap_or_default() {
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
