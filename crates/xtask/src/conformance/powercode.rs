//! One working memory of powercode, with a canned summary.

use condenser_policies::powercode::peer::{Memory, Session, Settings, cut, estimate, is_over};
use serde_json::{Value, json};

use super::Answer;

pub(super) fn memory(case: &Value) -> Answer {
    let input = &case["input"];
    let history = input["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let config = |name: &str| input["config"][name].as_u64().unwrap_or_default();
    let settings = Settings {
        reserve_tokens: config("reserveTokens"),
        keep_recent_tokens: config("keepRecentTokens"),
        ..Settings::default()
    };
    let window = config("contextWindow");
    let mut session = Session { compaction: compaction(&input["compaction"]), usage: usage(&input["usage"]) };
    let tokens = session.tokens(history, &settings);
    let cut_index = cut(session.pending(history), &settings);
    let mut asked = None;
    let memory = match session.memory(history, window, &settings) {
        Memory::Ready(messages) => messages,
        Memory::NeedsSummary { cut, input: question, recent, otherwise } => {
            asked = Some(question);
            if session.accept(input["summarizerReply"].as_str(), cut) {
                session.with_summary(recent)
            } else {
                otherwise
            }
        }
    };
    let got = json!({
        "messageTokens": history.iter().map(|message| estimate(message, &settings)).collect::<Vec<_>>(),
        "tokens": tokens,
        "usableTokens": window as i64 - settings.reserve_tokens as i64,
        "overBudget": is_over(tokens, window, &settings),
        "cutIndex": cut_index,
        "summarizerCalled": asked.is_some(),
        "summarizerInput": asked,
        "compaction": session.compaction.as_ref().map(|(summary, until)| {
            json!({"summary": summary, "compactedUntil": until})
        }),
        "usageAfter": session.usage.map(|(total, length)| json!({"totalTokens": total, "historyLength": length})),
        "workingMemory": memory,
    });
    // How many tools the summarizer is offered: our requests have no place for any.
    let mut expected = case["expected"].clone();
    expected.as_object_mut().map(|fields| fields.shift_remove("summarizerToolCount"));
    Answer { expected, got }
}

fn compaction(value: &Value) -> Option<(String, usize)> {
    Some((value["summary"].as_str()?.to_owned(), value["compactedUntil"].as_u64()? as usize))
}

fn usage(value: &Value) -> Option<(u64, usize)> {
    Some((value["totalTokens"].as_u64()?, value["historyLength"].as_u64()? as usize))
}
