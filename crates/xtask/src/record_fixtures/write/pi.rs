//! Pi session, version 3: a header, then entries chained by `parentId`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::clock::{Clock, iso_zulu};
use super::super::scenario::Op;
use super::super::workshop::{Answer, ROOT, shown};
use super::super::{Entry, Outcome, Played, Trace};
use super::{Dialect, MODEL, Meter, estimate};

const DIALECT: Dialect = Dialect {
    run: "bash",
    view: "read",
    write: "write",
    edit: "edit",
    path: "path",
    text: "content",
    old: "oldText",
    new: "newText",
};

struct Writer {
    program: String,
    clock: Clock,
    entries: Vec<Value>,
    parent: Value,
    meter: Meter,
    read: BTreeSet<String>,
    changed: BTreeSet<String>,
}

/// The lines of the session file.
pub(super) fn entries(trace: Trace) -> Vec<Value> {
    let Trace { scenario, entries, mut clock, .. } = trace;
    let start = scenario.start * 1_000_000;
    let header = json!({ "type": "session", "version": 3, "id": clock.uuid(), "timestamp": iso_zulu(start),
        "cwd": format!("{ROOT}/{}", scenario.program) });
    let mut writer = Writer {
        program: scenario.program,
        clock,
        entries: vec![header],
        parent: Value::Null,
        meter: Meter::default(),
        read: BTreeSet::new(),
        changed: BTreeSet::new(),
    };
    writer.push(start + 4_000, "model_change", json!({ "provider": "scripted", "modelId": MODEL }));
    writer.push(start + 5_000, "thinking_level_change", json!({ "thinkingLevel": "medium" }));
    for entry in entries {
        match entry {
            Entry::User { at, text } => {
                writer.meter.add(&text);
                writer.message(at, json!({ "role": "user", "content": [block(&text)] }));
            }
            Entry::Bang { at, command, answer } => {
                writer.meter.add(&answer.text);
                writer.message(
                    at,
                    json!({ "role": "bashExecution", "command": command, "output": answer.text,
                    "exitCode": answer.exit_code, "cancelled": false, "truncated": false }),
                );
            }
            Entry::Turn { at, think, say, calls } => writer.turn(at, think.as_deref(), say.as_deref(), &calls),
            Entry::Compact { at, keep_last, summary, .. } => writer.compact(at, keep_last, &summary),
        }
    }
    writer.push(writer.clock.micros() + 3_000, "session_info", json!({ "name": scenario.name }));
    writer.entries
}

impl Writer {
    fn push(&mut self, at: u64, kind: &str, fields: Value) {
        let id = self.clock.short_hex();
        let mut entry = json!({ "type": kind, "id": id, "parentId": self.parent, "timestamp": iso_zulu(at) });
        if let (Some(entry), Value::Object(fields)) = (entry.as_object_mut(), fields) {
            entry.extend(fields);
        }
        self.entries.push(entry);
        self.parent = json!(id);
    }

    fn message(&mut self, at: u64, mut message: Value) {
        message["timestamp"] = json!(at / 1000);
        self.push(at, "message", json!({ "message": message }));
    }

    fn turn(&mut self, at: u64, think: Option<&str>, say: Option<&str>, calls: &[Played]) {
        let (fresh, cached) = self.meter.request();
        let mut content = Vec::new();
        let mut output = estimate(think.unwrap_or("")) + estimate(say.unwrap_or(""));
        if let Some(thought) = think {
            content.push(json!({ "type": "thinking", "thinking": thought, "thinkingSignature": "c2NyaXB0ZWQ=" }));
        }
        content.extend(say.map(block));
        let mut asked = Vec::new();
        for call in calls {
            let (name, mut arguments) = DIALECT.call(&self.program, &call.op);
            if let Op::View { range: Some((from, to)), .. } = &call.op {
                arguments["offset"] = json!(from);
                arguments["limit"] = json!(to + 1 - from);
            }
            self.touch(&call.op);
            output += estimate(&arguments.to_string());
            let id = self.clock.token("call_");
            content.push(json!({ "type": "toolCall", "id": id, "name": name, "arguments": arguments }));
            asked.push((id, name));
        }
        let zero = json!({ "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0 });
        let stop = if calls.is_empty() { "stop" } else { "toolUse" };
        self.message(
            at,
            json!({ "role": "assistant", "content": content, "api": "scripted", "provider": "scripted",
            "model": MODEL, "usage": { "input": fresh, "output": output, "cacheRead": cached, "cacheWrite": 0,
            "totalTokens": fresh + cached + output, "cost": zero }, "stopReason": stop }),
        );
        self.meter.context += output;
        for (call, (id, name)) in calls.iter().zip(asked) {
            self.result(call, &id, &name);
        }
    }

    fn touch(&mut self, op: &Op) {
        match op {
            Op::View { path, .. } => self.read.insert(shown(&self.program, path)),
            Op::Write { path, .. } | Op::Edit { path, .. } => self.changed.insert(shown(&self.program, path)),
            Op::Run { .. } | Op::Bad { .. } => false,
        };
    }

    fn result(&mut self, call: &Played, id: &str, name: &str) {
        let rejected;
        let answer = match &call.outcome {
            Outcome::Open => return,
            Outcome::Answered(answer) => answer,
            Outcome::Rejected(reason) => {
                rejected = Answer { text: reason.clone(), is_error: true, ..Answer::default() };
                &rejected
            }
        };
        let mut text = match (&call.op, answer.text.as_str()) {
            (Op::Run { .. }, "") => "(no output)".to_owned(),
            (_, text) => text.to_owned(),
        };
        if let (Op::Run { .. }, true) = (&call.op, answer.is_error) {
            text.push_str(&format!("\n[exit code {}]", answer.exit_code));
        }
        self.meter.add(&text);
        let mut message =
            json!({ "role": "toolResult", "toolCallId": id, "toolName": name, "content": [block(&text)] });
        if let (Op::Edit { old, new, .. }, false) = (&call.op, answer.is_error) {
            let marked =
                |sign: char, text: &str| -> Vec<String> { text.lines().map(|line| format!("{sign}{line}")).collect() };
            let diff = [marked('-', old), marked('+', new)].concat().join("\n");
            message["details"] = json!({ "diff": diff });
        }
        message["isError"] = json!(answer.is_error);
        self.message(call.at, message);
    }

    /// Keeps the last entries from a message of the user or the model on.
    fn compact(&mut self, at: u64, keep_last: usize, summary: &str) {
        let before = self.meter.context;
        let starts = |entry: &Value| matches!(entry["message"]["role"].as_str(), Some("user" | "assistant"));
        let mut first = self.entries.len().saturating_sub(keep_last).max(1);
        while first > 1 && !starts(&self.entries[first]) {
            first -= 1;
        }
        let kept: u64 = self.entries[first..].iter().map(|entry| estimate(&entry["message"].to_string())).sum();
        self.meter.reset(kept + estimate(summary));
        let modified: Vec<&String> = self.changed.iter().collect();
        let read: Vec<&String> = self.read.difference(&self.changed).collect();
        let mut text = summary.to_owned();
        for (tag, paths) in [("read-files", &read), ("modified-files", &modified)] {
            if !paths.is_empty() {
                let paths: String = paths.iter().map(|path| format!("{path}\n")).collect();
                text.push_str(&format!("\n\n<{tag}>\n{paths}</{tag}>"));
            }
        }
        let first_kept = self.entries[first]["id"].clone();
        let details = json!({ "readFiles": read, "modifiedFiles": modified });
        self.push(
            at,
            "compaction",
            json!({ "summary": text, "firstKeptEntryId": first_kept, "tokensBefore": before,
            "details": details }),
        );
    }
}

fn block(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}
