//! The Pi coding agent at two releases: every kind of case, with the guards off.

use condenser::event::{CondensationRequest, Event, EventKind, Source};
use condenser::tokens::CharsPer4;
use condenser::{
    Budget, Class, Condenser, OutcomeKind, Rules, Sizer, State, SummarizeError, Summarizer, Summary, SummaryRequest,
    View,
};
use condenser_policies::pi::peer::{self, Leaf, Pi, Piece, Placed, Release, Reply};
use condenser_policies::pi::{PiPolicy, PiSettings};
use condenser_traces::{Document, Trace, format, read_document};
use serde_json::{Value, json};

use super::Answer;

pub(super) fn v0(case: &Value) -> Answer {
    answer(case, Release::V0)
}

pub(super) fn v1(case: &Value) -> Answer {
    answer(case, Release::V1)
}

fn answer(case: &Value, release: Release) -> Answer {
    let input = &case["input"];
    let pi = &pi(input, release);
    let mut expected = case["expected"].clone();
    let entries = list(&input["entries"]);
    let messages = list(&input["messages"]);
    let number = |name: &str| input[name].as_u64().unwrap_or_default();
    let got = match case["kind"].as_str().unwrap_or_default() {
        "estimate" => json!({"tokens": peer::estimate(&input["message"], pi)}),
        "context_tokens" => {
            let tokens = peer::context_tokens(messages, pi);
            json!({
                "tokens": tokens.tokens,
                "usageTokens": tokens.usage_tokens,
                "trailingTokens": tokens.trailing_tokens,
                "lastUsageIndex": tokens.last_usage,
            })
        }
        "should" => {
            let compact = peer::should_compact(number("contextTokens"), number("contextWindow"), &pi.settings);
            json!({"compact": compact})
        }
        "serialize" => json!({"text": peer::serialize(messages, pi)}),
        "cut" => {
            let (start, end) = (number("startIndex") as usize, number("endIndex") as usize);
            let cut = peer::cut(entries, start, end, number("keepRecentTokens"), pi);
            json!({
                "firstKeptEntryIndex": cut.first_kept,
                "turnStartIndex": cut.turn_start.map_or(-1, |index| index as i64),
                "isSplitTurn": cut.turn_start.is_some(),
            })
        }
        "context" => {
            let mut got = context(input, entries, release);
            if let Some(events) = imported(input, entries) {
                let view = by_entry(&live(&events), &events).into_iter();
                got["view"] = view.map(|(id, is_prompt)| if is_prompt { "system".to_owned() } else { id }).collect();
                expected["view"] = each_once(&expected["llm"], &events);
            }
            got
        }
        "prepare" => {
            let mut got = prepare(entries, pi);
            let (before, after) = by_policy(entries, pi);
            expected = json!({"view_after": kept(entries, &expected, before, pi.release), "plan": expected});
            got = json!({"view_after": after, "plan": got});
            got
        }
        "compact" => {
            // The wording of an error is informative.
            if let Some(error) = expected.get_mut("error") {
                *error = json!(true);
            }
            compact(input, entries, pi)
        }
        "branch" => branch(input, entries, pi),
        "migrate" => {
            let (ours, theirs) = migrate(&input["lines"], &expected["entries"]);
            expected = theirs;
            ours
        }
        _ => json!("unknown kind"),
    };
    Answer { expected, got }
}

fn pi(input: &Value, release: Release) -> Pi {
    let given = &input["settings"];
    let mut pi = Pi::new(release);
    if given.is_object() {
        pi.settings.enabled = given["enabled"] == true;
        pi.settings.reserve_tokens = given["reserveTokens"].as_u64().unwrap_or_default();
        pi.settings.keep_recent_tokens = given["keepRecentTokens"].as_u64().unwrap_or_default();
    }
    pi
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn ids(entries: &[Value], placed: &[Placed<'_>]) -> Value {
    placed.iter().map(|placed| entries[placed.entry]["id"].clone()).collect()
}

fn context(input: &Value, entries: &[Value], release: Release) -> Value {
    let leaf = match input.get("leafId") {
        None => Leaf::Last,
        Some(Value::String(id)) => Leaf::Id(id),
        Some(_) => Leaf::Before,
    };
    let Ok(context) = peer::context(entries, leaf, release) else { return json!("a circle") };
    let show = |entry: usize, message: &Value| {
        let mut shown = json!({"role": message["role"], "entryId": entries[entry]["id"], "text": peer::text(message)});
        if peer::n_images(message) > 0 {
            shown["images"] = json!(peer::n_images(message));
        }
        shown
    };
    let messages: Vec<Value> = context.messages.iter().map(|placed| show(placed.entry, &placed.message)).collect();
    let lowered =
        context.messages.iter().filter_map(|placed| Some(show(placed.entry, &*peer::lower(&placed.message)?)));
    let mut got = json!({
        "messages": messages,
        "llm": lowered.collect::<Vec<_>>(),
        "thinkingLevel": context.thinking_level,
        "model": context.model.map(|(provider, model)| json!({"provider": provider, "modelId": model})),
    });
    if release == Release::V1 {
        got["contextEntryIds"] = context.entries.iter().map(|&at| entries[at]["id"].clone()).collect();
    }
    got
}

fn prepare(entries: &[Value], pi: &Pi) -> Value {
    let Some(plan) = peer::prepare(entries, pi) else { return Value::Null };
    let text = |placed: &[Placed<'_>]| peer::serialize(placed.iter().map(|placed| &*placed.message), pi);
    json!({
        "firstKeptEntryId": entries.get(plan.first_kept).map(|entry| &entry["id"]),
        "isSplitTurn": plan.is_split,
        "tokensBefore": plan.tokens_before,
        "previousSummary": plan.previous_summary,
        "summarizeIds": ids(entries, &plan.summarize),
        "turnPrefixIds": ids(entries, &plan.turn_prefix),
        "readFiles": plan.files.read(),
        "modifiedFiles": plan.files.changed(),
        "fileBlock": plan.files.block(),
        "conversation": text(&plan.summarize),
        "turnPrefixConversation": text(&plan.turn_prefix),
    })
}

/// The view by entries before and after the policy acted on a request: each entry once, the new summary as `summary`.
/// After is null where there is no record.
fn by_policy(entries: &[Value], pi: &Pi) -> (Vec<(String, bool)>, Value) {
    let Some(trace) = read(&session(entries)) else { return (Vec::new(), json!("unreadable")) };
    let mut events = trace.events;
    let request = EventKind::CondensationRequest(CondensationRequest::default());
    events.push(Event::new("request", Source::User, request));
    let view = live(&events);
    let before = by_entry(&view, &events);
    let settings = PiSettings { peer: pi.settings, ..PiSettings::of(pi.release) };
    let policy = PiPolicy::new(pi.release, settings);
    let sizer = Sizer::new(&CharsPer4);
    let state = State::new(&view, &events, &sizer, Budget::default());
    let outcome = Condenser::unguarded().run(&policy, &state, &Fixed);
    let after = match outcome.result {
        OutcomeKind::Applied(record) => {
            events.push(Event::new("record", Source::Agent, EventKind::Condensation(*record)));
            let view = live(&events);
            by_entry(&view, &events).into_iter().map(|(id, _)| id).collect()
        }
        _ => Value::Null,
    };
    (before, after)
}

/// The events of a session, where the leaf is the last entry: a reader knows no other.
fn imported(input: &Value, entries: &[Value]) -> Option<Vec<Event>> {
    let leaf = input.get("leafId");
    let last = entries.last()?;
    let is_last = leaf.is_none_or(|leaf| {
        leaf.is_string() && (last["id"] == *leaf || entries.iter().all(|entry| entry["id"] != *leaf))
    });
    Some(read(&session(entries)).filter(|_| is_last)?.events)
}

/// The entries behind messages, each once. The prompt that a compaction keeps is the compaction's at Pi, and stays
/// its own entry here. Where no entry holds it, it is not imported. An answer that broke off before it had any content is an empty message at Pi, and
/// shows nothing here.
fn each_once(messages: &Value, events: &[Event]) -> Value {
    let is_shown = |id: &Value| {
        let of_entry = |event: &&Event| event.origin.as_ref().is_some_and(|origin| *id == json!(origin.record));
        !events.iter().filter(of_entry).all(|event| matches!(event.kind, EventKind::Unknown(_)))
    };
    let has_prompt = events.iter().any(|event| matches!(event.kind, EventKind::SystemPrompt(_)));
    let name = |message: &Value| match message["role"] == "system" {
        true => has_prompt.then(|| json!("system")),
        false => is_shown(&message["entryId"]).then(|| message["entryId"].clone()),
    };
    let mut ids: Vec<Value> = list(messages).iter().filter_map(name).collect();
    ids.dedup();
    json!(ids)
}

fn session(entries: &[Value]) -> Value {
    let header = json!({"type": "session", "version": 3, "id": "session", "cwd": "."});
    std::iter::once(header).chain(entries.iter().cloned()).collect()
}

/// A view that drops nothing: Pi shows results without a call, and cuts where other rules would not.
fn live(events: &[Event]) -> View {
    let mut view = View::new(Rules::OpenHands);
    for event in events {
        view.push(event);
    }
    view
}

/// The entries behind a view, each once, and whether they are system prompts.
fn by_entry(view: &View, events: &[Event]) -> Vec<(String, bool)> {
    let mut ids: Vec<(String, bool)> = Vec::new();
    for entry in view.iter() {
        let origin = events[entry.seq()].origin.as_ref();
        let id = match origin {
            _ if entry.id().as_str() == "record-summary" => "summary".to_owned(),
            Some(origin) => origin.record.clone(),
            None => entry.id().to_string(),
        };
        // One record of Pi may hold a summary and a new system prompt.
        let named = (id, entry.class() == Class::SystemPrompt);
        if ids.last() != Some(&named) {
            ids.push(named);
        }
    }
    ids
}

/// What of the view before has to be there afterwards. Nothing changes where a plan summarizes nothing.
fn kept(entries: &[Value], plan: &Value, before: Vec<(String, bool)>, release: Release) -> Value {
    if list(&plan["summarizeIds"]).is_empty() && list(&plan["turnPrefixIds"]).is_empty() {
        return Value::Null;
    }
    let position = |id: &Value| entries.iter().position(|entry| entry["id"] == *id);
    let first = position(&plan["firstKeptEntryId"]).unwrap_or(entries.len());
    let newest_prompt = before.iter().rfind(|(_, is_prompt)| *is_prompt).filter(|_| release == Release::V1).cloned();
    let stays = |(id, is_prompt): &(String, bool)| {
        let entry = position(&json!(id));
        !is_prompt && entry.is_some_and(|at| at >= first && entries[at]["type"] != "compaction")
    };
    let others: Vec<String> = before.iter().filter(|it| stays(it)).map(|(id, _)| id.clone()).collect();
    newest_prompt.into_iter().map(|(id, _)| id).chain(["summary".to_owned()]).chain(others).collect()
}

struct Fixed;

impl Summarizer for Fixed {
    fn name(&self) -> &str {
        "fixed"
    }
    fn summarize(&self, _: &SummaryRequest) -> Result<Summary, SummarizeError> {
        Ok(Summary { text: "What happened.".to_owned(), ..Summary::default() })
    }
}

fn read(lines: &Value) -> Option<Trace> {
    let text: String = list(lines).iter().map(|line| format!("{line}\n")).collect();
    let document = Document::from_bytes("case.jsonl".as_ref(), text.into_bytes()).ok()?;
    read_document(document, format("pi").ok()).ok()?.into_iter().next()
}

fn compact(input: &Value, entries: &[Value], pi: &Pi) -> Value {
    let Some(plan) = peer::prepare(entries, pi) else { return json!("no plan") };
    let mut replies = list(&input["replies"]).iter();
    let mut requests = Vec::new();
    let mut summarize = |piece: &Piece<'_, '_>| {
        if let Piece::Answer { previous, max_tokens, .. } = piece {
            requests.push(json!({"maxTokens": max_tokens, "hasPreviousSummary": previous.is_some()}));
        }
        let reply = replies.next().unwrap_or(&Value::Null);
        Reply {
            texts: list(&reply["parts"]).iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            stop_reason: reply["stopReason"].as_str().unwrap_or_default().to_owned(),
            error: reply["errorMessage"].as_str().map(str::to_owned),
            has_call: reply["call"] == true,
        }
    };
    match peer::summary(&plan, pi, &mut summarize) {
        Err(_) => json!({"error": true}),
        Ok(summary) => json!({
            "summary": summary,
            "firstKeptEntryId": entries.get(plan.first_kept).map(|entry| &entry["id"]),
            "tokensBefore": plan.tokens_before,
            "details": {"readFiles": plan.files.read(), "modifiedFiles": plan.files.changed()},
            "requests": requests,
        }),
    }
}

fn branch(input: &Value, entries: &[Value], pi: &Pi) -> Value {
    let target = input["targetId"].as_str().unwrap_or_default();
    let budget = input["tokenBudget"].as_u64().unwrap_or_default();
    let Ok(branch) = peer::branch(entries, input["oldLeafId"].as_str(), target, budget, pi) else {
        return json!("a circle");
    };
    json!({
        "commonAncestorId": branch.ancestor.map(|at| &entries[at]["id"]),
        "entryIds": branch.entries.iter().map(|&at| &entries[at]["id"]).collect::<Vec<_>>(),
        "messageIds": ids(entries, &branch.messages),
        "totalTokens": branch.tokens,
        "readFiles": branch.files.read(),
        "modifiedFiles": branch.files.changed(),
    })
}

/// An old file through the trace reader, which reads all versions as they are and writes none: per entry its kind, the
/// one before it, its role, and for a compaction the entries that it takes out. What we answer, then what is expected.
fn migrate(lines: &Value, migrated: &Value) -> (Value, Value) {
    let Some(trace) = read(lines) else { return (json!("unreadable"), Value::Null) };
    let line_of = |record: &str| -> Option<usize> {
        match record.strip_prefix("line-") {
            Some(number) => number.parse::<usize>().ok()?.checked_sub(1),
            None => list(lines).iter().position(|line| line["id"] == record),
        }
    };
    let line = |event: &Event| line_of(&event.origin.as_ref()?.record);
    let mut ours: Vec<Value> = Vec::new();
    let mut before = None;
    for event in &trace.events {
        let at = line(event);
        if at == before || at == Some(0) {
            continue;
        }
        let mut entry = json!({"line": at, "parentIndex": before, "role": role(event)});
        if let EventKind::Condensation(record) = &event.kind {
            let forgotten: std::collections::BTreeSet<_> = trace
                .events
                .iter()
                .filter(|event| record.forgotten_event_ids.contains(&event.id))
                .filter_map(line)
                .collect();
            entry["forgets"] = json!(forgotten);
        }
        ours.push(entry);
        before = at;
    }
    let shown: std::collections::BTreeSet<usize> =
        trace.events.iter().filter(|event| event.kind.is_shown()).filter_map(line).collect();
    let expect = |(at, entry): (usize, &Value)| {
        let mut expected = json!({"line": at + 1, "parentIndex": entry["parentIndex"], "role": entry["role"]});
        if entry["type"] == "compaction" {
            let end = entry["firstKeptIndex"].as_u64().map_or(at + 1, |first| first as usize);
            expected["forgets"] = json!(shown.range(..end).collect::<Vec<_>>());
        }
        expected
    };
    (json!(ours), list(migrated).iter().enumerate().map(expect).collect())
}

/// The role that an entry was read as, by the words of version 3.
fn role(event: &Event) -> Option<&str> {
    let written = match &event.kind {
        EventKind::Unknown(unknown) => &unknown.payload["message"]["role"],
        _ => event.foreign.get("message").map_or(&Value::Null, |message| &message["role"]),
    };
    match (written.as_str(), event.source) {
        (Some("hookMessage"), Source::Environment) if event.kind.is_shown() => Some("custom"),
        (role, _) => role,
    }
}
