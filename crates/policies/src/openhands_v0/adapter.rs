//! A view as the peer's, and its decision as an edit.

use std::collections::{BTreeSet, HashMap};

use condenser::event::{Action, EventKind, Role, Source};
use condenser::{Edit, EventId, RewriteOp, State};
use serde_json::Value;

use super::peer::{CONDENSE, Decision, Event, Kind, View};

/// The peer's view of a state. Ids are positions in the log; of several summaries the newest alone shows, as there.
pub(super) fn view(state: &State<'_>, request_on_overflow: bool) -> View {
    let is_over = state.budget.limit().is_some_and(|limit| state.tokens() > limit);
    let newest = newest_summary(state);
    let mut calls: HashMap<&str, (i64, &Action)> = HashMap::new();
    let mut events = Vec::with_capacity(state.view.len());
    for entry in state.view.iter() {
        let at = Some(entry.index());
        let id = i64::try_from(entry.seq()).ok();
        if let Some(text) = entry.summary() {
            if newest == Some(entry.index()) {
                let kind =
                    Kind::Observation { name: CONDENSE.to_owned(), content: text.to_owned(), url: String::new() };
                events.push(Event { id: None, source: "environment".to_owned(), kind, cause: None, at });
            }
            continue;
        }
        let Some(event) = state.event(entry.index()) else { continue };
        let foreign = |name: &str| event.foreign.get(name).and_then(Value::as_str);
        let source = match event.source {
            Source::Agent => "agent",
            Source::User => "user",
            _ => "environment",
        };
        let mut cause = None;
        let action = |name: &str, text: String| Kind::Action { name: name.to_owned(), text };
        let (source, kind) = match &event.kind {
            EventKind::SystemPrompt(_) => ("agent", action("system", String::new())),
            EventKind::Message(message) => {
                let source = match message.role {
                    Role::User => "user",
                    Role::Assistant => "agent",
                    _ => "environment",
                };
                let texts: Vec<&str> = message.content.iter().filter_map(|block| block.as_text()).collect();
                (source, action("message", texts.join("\n")))
            }
            EventKind::Action(call) => {
                calls.insert(&call.call_id, (id.unwrap_or(-1), call));
                let name = foreign("action").unwrap_or("call_tool_mcp");
                (source, action(name, if name == "recall" { argument(call, "query") } else { String::new() }))
            }
            EventKind::Observation(answer) => {
                let call = calls.get(answer.call_id.as_str());
                cause = call.map(|(id, _)| *id);
                let tool = match (answer.tool_name.as_str(), call) {
                    ("", Some((_, call))) => call.tool_name.as_str(),
                    (tool, _) => tool,
                };
                let is_page = tool.starts_with("browse");
                let name = foreign("observation").unwrap_or(if is_page { "browse" } else { "mcp" });
                let stored = event.foreign.get("extras").and_then(|extras| extras["url"].as_str());
                let url = match (stored, call) {
                    (Some(url), _) => url.to_owned(),
                    (None, Some((_, call))) if name == "browse" => argument(call, "url"),
                    _ => String::new(),
                };
                ("environment", Kind::Observation { name: name.to_owned(), content: String::new(), url })
            }
            _ => continue,
        };
        events.push(Event { id, source: source.to_owned(), kind, cause, at });
    }
    View { events, unhandled_request: state.view.has_unhandled_request() || request_on_overflow && is_over }
}

fn newest_summary(state: &State<'_>) -> Option<usize> {
    state.view.iter().filter(|entry| entry.is_summary()).max_by_key(|entry| entry.seq()).map(|entry| entry.index())
}

/// A text among a call's arguments.
fn argument(call: &Action, name: &str) -> String {
    let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
    arguments[name].as_str().unwrap_or_default().to_owned()
}

/// What a decision changes in the state's view. A summary goes to the offset returned.
pub(super) fn edit(state: &State<'_>, before: &View, decision: &Decision) -> (Edit, Option<(String, usize)>) {
    let mut edit = Edit::default();
    let id = |at: usize| state.view.get(at).map(|entry| entry.id().clone());
    let left: BTreeSet<usize> = decision.view.events.iter().filter_map(|event| event.at).collect();
    let gone = before.events.iter().filter_map(|event| event.at).filter(|at| !left.contains(at));
    edit.forget.extend(gone.filter_map(id));
    let had_id: BTreeSet<usize> =
        before.events.iter().filter(|event| event.id.is_some()).filter_map(|event| event.at).collect();
    for event in &decision.view.events {
        let (Some(at), Kind::Observation { content, .. }) = (event.at, &event.kind) else { continue };
        if event.id.is_none() && had_id.contains(&at) && !is_cleared(state, at, content) {
            edit.rewrites.extend(id(at).map(|id| (id, RewriteOp::Clear { text: content.clone() }.into())));
        }
    }
    let summary = decision.condensation.as_ref().and_then(|record| {
        let is_forgotten = |event: &&Event| event.id.is_some_and(|id| record.forgotten.contains(id));
        edit.forget.extend(before.events.iter().filter(is_forgotten).filter_map(|event| id(event.at?)));
        record.summary.clone()
    });
    if summary.is_some() {
        edit.forget.extend(state.view.iter().filter(|entry| entry.is_summary()).map(|entry| entry.id().clone()));
    }
    edit.rewrites.retain(|id: &EventId, _| !edit.forget.contains(id));
    (edit, summary)
}

fn is_cleared(state: &State<'_>, at: usize, content: &str) -> bool {
    let rewrite = state.view.get(at).and_then(|entry| entry.rewrite());
    rewrite.is_some_and(|(rewrite, _)| matches!(&rewrite.op, RewriteOp::Clear { text } if text == content))
}
