//! One working memory of powercode, with a canned summary.

use condenser::event::{Event, EventKind, Source};
use condenser::tokens::CharsPer4;
use condenser::{
    Budget, Condensation, Condenser, OutcomeKind, Rules, Sizer, State, SummarizeError, Summarizer, Summary,
    SummaryRequest, Tokens, View,
};
use condenser_policies::powercode::Powercode;
use condenser_policies::powercode::peer::{Memory, SUMMARY_LABEL, Session, Settings, cut, estimate, is_over};
use condenser_traces::{Document, format, read_document};
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
    let mut got = json!({
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
    expected["by_policy"] = outline(history, case["expected"]["workingMemory"].as_array());
    got["by_policy"] = by_policy(input, &settings, tokens).unwrap_or_default();
    Answer { expected, got }
}

/// What a working memory holds: a summary's text, else the number of a message, marked where its content is another.
fn outline(history: &[Value], memory: Option<&Vec<Value>>) -> Value {
    let memory = memory.map_or(&[][..], Vec::as_slice);
    let is_summary = |message: &&Value| message["content"].as_str().is_some_and(|it| it.starts_with(SUMMARY_LABEL));
    let n_summaries = memory.iter().take(1).filter(is_summary).count();
    let first = history.len() + n_summaries - memory.len();
    let show = |(at, message): (usize, &Value)| match at.checked_sub(n_summaries) {
        None => message["content"].clone(),
        Some(at) if *message == history[first + at] => json!(first + at),
        Some(at) => json!(format!("{} changed", first + at)),
    };
    memory.iter().enumerate().map(show).collect()
}

/// The same by way of import, policy, record and view, with the guards off.
fn by_policy(input: &Value, settings: &Settings, tokens: u64) -> Option<Value> {
    let document = Document::from_bytes("case.json".as_ref(), input["messages"].to_string().into_bytes()).ok()?;
    let mut events = read_document(document, format("openai-chat").ok()).ok()?.into_iter().next()?.events;
    let number = |event: &Event| event.origin.as_ref()?.record.strip_prefix('m')?.parse::<usize>().ok();
    if let Some((summary, until)) = compaction(&input["compaction"]) {
        let old = events.iter().filter(|event| number(event).is_some_and(|number| number < until));
        let record = Condensation {
            forgotten_event_ids: old.map(|event| event.id.clone()).collect(),
            summary: (!summary.is_empty()).then(|| format!("{SUMMARY_LABEL}\n{summary}")),
            summary_offset: Some(0),
            ..Condensation::default()
        };
        events.push(Event::new("older", Source::Agent, EventKind::Condensation(record)));
    }
    let mut view = View::new(Rules::OpenHands);
    events.iter().for_each(|event| {
        view.push(event);
    });
    let sizer = Sizer::new(&CharsPer4);
    let window = input["config"]["contextWindow"].as_u64().map(Tokens);
    let mut state = State::new(&view, &events, &sizer, Budget { window, reserve: Tokens::ZERO });
    state.reported = Some(Tokens(tokens));
    let summarizer = Canned(input["summarizerReply"].as_str());
    let outcome =
        Condenser { guards: false, ..Condenser::default() }.run(&Powercode::new(*settings), &state, &summarizer);
    if let OutcomeKind::Applied(record) = outcome.result {
        let event = Event::new("newer", Source::Agent, EventKind::Condensation(*record));
        view.push(&event);
        events.push(event);
    }
    let mut shown: Vec<Value> = Vec::new();
    for entry in view.iter() {
        let item = match (entry.summary(), number(&events[entry.seq()])) {
            // The original trims what the summarizer answers.
            (Some(text), _) => json!(text.trim_end().replacen("\n  ", "\n", 1)),
            (None, Some(number)) if entry.rewrite().is_some() => json!(format!("{number} changed")),
            (None, Some(number)) => json!(number),
            (None, None) => continue,
        };
        // An answer with several calls is several entries.
        if shown.last() != Some(&item) {
            shown.push(item);
        }
    }
    Some(json!(shown))
}

struct Canned<'a>(Option<&'a str>);

impl Summarizer for Canned<'_> {
    fn name(&self) -> &str {
        "canned"
    }
    fn summarize(&self, _: &SummaryRequest) -> Result<Summary, SummarizeError> {
        // With its guards off the condenser takes a blank answer for a summary.
        let text = self.0.filter(|text| !text.trim().is_empty());
        text.map(|text| Summary { text: text.to_owned(), ..Summary::default() }).ok_or(SummarizeError::Empty)
    }
}

fn compaction(value: &Value) -> Option<(String, usize)> {
    Some((value["summary"].as_str()?.to_owned(), value["compactedUntil"].as_u64()? as usize))
}

fn usage(value: &Value) -> Option<(u64, usize)> {
    Some((value["totalTokens"].as_u64()?, value["historyLength"].as_u64()? as usize))
}
