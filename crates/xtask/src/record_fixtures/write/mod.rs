//! Writers of the five formats.

mod claude_code;
mod openai_chat;
mod openhands;
mod pi;
mod swe_agent;

use std::path::PathBuf;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::scenario::Op;
use super::workshop::shown;
use super::{Files, Trace};

/// The name under which the scripted agent answers.
const MODEL: &str = "scripted-agent-1";

/// Renders a trace in its scenario's format.
pub(super) fn files(trace: Trace) -> Result<Files> {
    let name = trace.scenario.name.clone();
    let one = |extension: &str, text: String| Files::from([(PathBuf::from(format!("{name}.{extension}")), text)]);
    Ok(match trace.scenario.format.as_str() {
        "openhands-v1" => one("openhands.jsonl", lines(&openhands::events(trace))),
        "openhands-v1-dir" => openhands::directory(trace),
        "pi" => one("pi.jsonl", lines(&pi::entries(trace))),
        "swe-agent" => one("traj", pretty(&swe_agent::trajectory(trace))),
        "claude-code" => one("claude-code.jsonl", lines(&claude_code::records(trace))),
        "openai-chat" => one("chat.json", pretty(&openai_chat::log(trace))),
        other => bail!("no writer for format `{other}`"),
    })
}

fn lines(records: &[Value]) -> String {
    records.iter().map(|record| format!("{record}\n")).collect()
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// Characters / 4, rounded up: how usage is estimated, since no model was asked.
fn estimate(text: &str) -> u64 {
    (text.chars().count() as u64).div_ceil(4)
}

/// Running estimate of what a session has used.
#[derive(Debug, Default)]
struct Meter {
    /// Tokens of everything so far.
    context: u64,
    /// Tokens that the request before had already sent.
    cached: u64,
}

impl Meter {
    fn add(&mut self, text: &str) {
        self.context += estimate(text);
    }

    /// Fresh and cached input tokens of a request made now.
    fn request(&mut self) -> (u64, u64) {
        let cached = self.cached;
        self.cached = self.context;
        (self.context - cached, cached)
    }

    /// A compaction leaves only this much, and nothing of it cached.
    fn reset(&mut self, context: u64) {
        *self = Self { context, cached: 0 };
    }
}

/// Names that a format gives to tools and their arguments.
struct Dialect {
    run: &'static str,
    view: &'static str,
    write: &'static str,
    edit: &'static str,
    path: &'static str,
    text: &'static str,
    old: &'static str,
    new: &'static str,
}

impl Dialect {
    /// Tool name and arguments of a call; notes, ranges and editor commands are left to the writer.
    fn call(&self, program: &str, op: &Op) -> (String, Value) {
        let path = |path: &str| shown(program, path);
        match op {
            Op::Run { command, .. } => (self.run.to_owned(), json!({ "command": command })),
            Op::View { path: file, .. } => (self.view.to_owned(), json!({ self.path: path(file) })),
            Op::Write { path: file, text } => {
                (self.write.to_owned(), json!({ self.path: path(file), self.text: text }))
            }
            Op::Edit { path: file, old, new } => {
                (self.edit.to_owned(), json!({ self.path: path(file), self.old: old, self.new: new }))
            }
            Op::Bad { tool, arguments, .. } => {
                (tool.clone(), serde_json::from_str(arguments).unwrap_or_else(|_| json!(arguments)))
            }
        }
    }
}
