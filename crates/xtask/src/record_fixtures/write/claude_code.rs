//! Claude Code session: one record per content block, chained by `parentUuid`.

use serde_json::{Value, json};

use super::super::clock::{Clock, iso_zulu};
use super::super::scenario::Op;
use super::super::workshop::{Answer, ROOT, shown};
use super::super::{Entry, Outcome, Played, Trace};
use super::{Dialect, MODEL, Meter, estimate};

const DIALECT: Dialect = Dialect {
    run: "Bash",
    view: "Read",
    write: "Write",
    edit: "Edit",
    path: "file_path",
    text: "content",
    old: "old_string",
    new: "new_string",
};

struct Writer {
    program: String,
    session: String,
    clock: Clock,
    records: Vec<Value>,
    parent: Value,
    meter: Meter,
}

/// The lines of the session file.
pub(super) fn records(trace: Trace) -> Vec<Value> {
    let Trace { scenario, entries, mut clock, .. } = trace;
    let mut writer = Writer {
        program: scenario.program,
        session: clock.uuid(),
        clock,
        records: Vec::new(),
        parent: Value::Null,
        meter: Meter::default(),
    };
    for entry in entries {
        match entry {
            Entry::User { at, text } => {
                writer.meter.add(&text);
                let uuid = writer.user(at, json!(text), json!({}));
                writer.records.insert(
                    writer.records.len() - 1,
                    json!({ "type": "file-history-snapshot", "messageId": uuid, "snapshot": { "messageId": uuid,
                        "trackedFileBackups": {}, "timestamp": iso_zulu(at) }, "isSnapshotUpdate": false }),
                );
            }
            Entry::Bang { .. } => {}
            Entry::Turn { at, think, say, calls } => {
                let n_calls = calls.len();
                writer.turn(at, think.as_deref(), say.as_deref(), &calls);
                if n_calls == 0 {
                    writer.push(
                        at + 40_000,
                        "system",
                        json!({ "subtype": "turn_duration", "durationMs": 61_000,
                        "isMeta": false }),
                    );
                }
            }
            Entry::Compact { at, summary, .. } => {
                let tokens = writer.meter.context;
                writer.meter.reset(estimate(&summary));
                let logical = std::mem::take(&mut writer.parent);
                writer.push(
                    at,
                    "system",
                    json!({ "logicalParentUuid": logical, "subtype": "compact_boundary",
                    "content": "Conversation compacted", "isMeta": false, "level": "info",
                    "compactMetadata": { "trigger": "auto", "preTokens": tokens } }),
                );
                writer.user(at, json!(summary), json!({ "isVisibleInTranscriptOnly": true, "isCompactSummary": true }));
            }
        }
    }
    writer.records
}

impl Writer {
    /// Appends a chained record and returns its uuid.
    fn push(&mut self, at: u64, kind: &str, fields: Value) -> String {
        let uuid = self.clock.uuid();
        let mut record = json!({ "parentUuid": self.parent, "isSidechain": false, "userType": "external",
            "cwd": format!("{ROOT}/{}", self.program), "sessionId": self.session, "version": "2.1.1",
            "gitBranch": "main", "type": kind });
        if let (Some(record), Value::Object(fields)) = (record.as_object_mut(), fields) {
            record.extend(fields);
            record.insert("uuid".to_owned(), json!(uuid));
            record.insert("timestamp".to_owned(), json!(iso_zulu(at)));
        }
        self.records.push(record);
        self.parent = json!(uuid);
        uuid
    }

    fn user(&mut self, at: u64, content: Value, more: Value) -> String {
        let mut fields = json!({ "message": { "role": "user", "content": content } });
        if let (Some(fields), Value::Object(more)) = (fields.as_object_mut(), more) {
            fields.extend(more);
        }
        self.push(at, "user", fields)
    }

    fn turn(&mut self, at: u64, think: Option<&str>, say: Option<&str>, calls: &[Played]) {
        let (message_id, request) = (self.clock.token("msg_"), self.clock.token("req_"));
        let (fresh, cached) = self.meter.request();
        let mut blocks = Vec::new();
        if let Some(thought) = think {
            blocks.push(json!({ "type": "thinking", "thinking": thought, "signature": "c2NyaXB0ZWQ=" }));
        }
        if let Some(said) = say {
            blocks.push(json!({ "type": "text", "text": said }));
        }
        let mut ids = Vec::new();
        for call in calls {
            let (name, mut input) = DIALECT.call(&self.program, &call.op);
            match &call.op {
                Op::Run { note, .. } if !note.is_empty() => input["description"] = json!(note),
                Op::View { range: Some((from, to)), .. } => {
                    input["offset"] = json!(from);
                    input["limit"] = json!(to + 1 - from);
                }
                _ => {}
            }
            let id = self.clock.token("toolu_");
            blocks.push(json!({ "type": "tool_use", "id": id, "name": name, "input": input }));
            ids.push(id);
        }
        let output: u64 = blocks.iter().map(|block| estimate(&block.to_string())).sum();
        let mut uuids = Vec::new();
        for (index, block) in blocks.into_iter().enumerate() {
            let is_call = block["type"] == "tool_use";
            let uuid = self.push(
                at + 350_000 * index as u64,
                "assistant",
                json!({
                "message": { "model": MODEL, "id": message_id, "type": "message", "role": "assistant",
                    "content": [block], "stop_reason": null, "stop_sequence": null,
                    "usage": { "input_tokens": 3, "cache_creation_input_tokens": fresh.saturating_sub(3),
                        "cache_read_input_tokens": cached, "output_tokens": output } },
                "requestId": request }),
            );
            if is_call {
                uuids.push(uuid);
            }
        }
        self.meter.context += output;
        for (call, (id, uuid)) in calls.iter().zip(ids.iter().zip(&uuids)) {
            self.result(call, id, uuid);
        }
    }

    fn result(&mut self, call: &Played, id: &str, uuid: &str) {
        let (text, is_error, structured) = match &call.outcome {
            Outcome::Open => return,
            Outcome::Rejected(reason) => (reason.clone(), true, json!(format!("Error: {reason}"))),
            Outcome::Answered(answer) => self.answer(&call.op, answer),
        };
        self.meter.add(&text);
        let mut block = json!({ "tool_use_id": id, "type": "tool_result", "content": text });
        if is_error || matches!(call.op, Op::Run { .. }) {
            block["is_error"] = json!(is_error);
        }
        // The parent of a result is its own call, which makes a batch look like branches.
        self.parent = json!(uuid);
        self.user(call.at, json!([block]), json!({ "toolUseResult": structured, "sourceToolAssistantUUID": uuid }));
    }

    /// What the model reads, whether it is an error, and the structured copy.
    fn answer(&self, op: &Op, answer: &Answer) -> (String, bool, Value) {
        let text = answer.text.trim_end_matches('\n').to_owned();
        if answer.is_error {
            let text = match op {
                Op::Run { .. } => format!("Exit code {}\n{text}", answer.exit_code),
                _ => format!("<tool_use_error>{text}</tool_use_error>"),
            };
            let structured = json!(format!("Error: {text}"));
            return (text, true, structured);
        }
        let structured = match op {
            Op::Run { .. } => {
                json!({ "stdout": text, "stderr": "", "interrupted": false, "isImage": false })
            }
            Op::View { path, .. } => {
                let (start, total) = answer.lines.unwrap_or((1, 0));
                json!({ "type": "text", "file": { "filePath": shown(&self.program, path),
                    "numLines": text.lines().count(), "startLine": start, "totalLines": total } })
            }
            Op::Write { path, .. } => {
                json!({ "type": "create", "filePath": shown(&self.program, path), "structuredPatch": [] })
            }
            Op::Edit { path, .. } => {
                json!({ "filePath": shown(&self.program, path), "userModified": false, "replaceAll": false })
            }
            Op::Bad { .. } => Value::Null,
        };
        (text, false, structured)
    }
}
