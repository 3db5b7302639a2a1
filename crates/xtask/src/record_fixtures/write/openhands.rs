//! OpenHands SDK V1 events, 2026 shape, without null fields.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::super::clock::{Clock, iso_local};
use super::super::scenario::Op;
use super::super::workshop::{Answer, ROOT, shown};
use super::super::{Entry, Files, Outcome, Played, Trace};
use super::{MODEL, Meter, estimate, lines, pretty};

/// What the model still sees: an id, and the response that the entry must not be parted from.
struct Seen {
    id: String,
    batch: Option<String>,
}

struct Writer {
    program: String,
    clock: Clock,
    events: Vec<Value>,
    view: Vec<Seen>,
    meter: Meter,
    usages: Vec<Value>,
}

/// All events in log order.
pub(super) fn events(trace: Trace) -> Vec<Value> {
    write(trace).events
}

/// The folder that the SDK keeps: `base_state.json` and one file per event.
pub(super) fn directory(trace: Trace) -> Files {
    let name = PathBuf::from(&trace.scenario.name);
    let mut writer = write(trace);
    let state = json!({
        "id": writer.clock.uuid(),
        "agent": { "kind": "Agent", "llm": { "model": MODEL, "usage_id": "agent" },
            "tools": [{ "name": "terminal", "params": {} }, { "name": "file_editor", "params": {} }] },
        "workspace": { "kind": "LocalWorkspace", "working_dir": shown(&writer.program, "").trim_end_matches('/') },
        "max_iterations": 500,
        "stuck_detection": true,
        "execution_status": "paused",
        "confirmation_policy": { "kind": "AlwaysConfirm" },
        "activated_knowledge_skills": [],
        "blocked_actions": {},
        "blocked_messages": {},
        "stats": { "usage_to_metrics": { "agent": {
            "model_name": MODEL,
            "accumulated_cost": 0.0,
            "token_usages": writer.usages,
        } } },
    });
    let mut files = Files::from([(name.join("base_state.json"), pretty(&state))]);
    for (index, event) in writer.events.iter().enumerate() {
        let id = event["id"].as_str().unwrap_or_default();
        let file = name.join("events").join(format!("event-{index:05}-{id}.json"));
        files.insert(file, lines(std::slice::from_ref(event)));
    }
    files
}

fn write(trace: Trace) -> Writer {
    let Trace { scenario, entries, mut clock, .. } = trace;
    let start = scenario.start * 1_000_000;
    let mut writer = Writer {
        program: scenario.program,
        events: Vec::new(),
        view: Vec::new(),
        meter: Meter::default(),
        usages: Vec::new(),
        clock: {
            clock.uuid();
            clock
        },
    };
    writer.meter.add(&scenario.system);
    let tools = tools();
    let dynamic = format!("The working directory is {ROOT}/{}. Today is a weekday.", writer.program);
    writer.push(
        start,
        "agent",
        "SystemPromptEvent",
        None,
        json!({
        "system_prompt": text(&scenario.system), "tools": tools, "dynamic_context": text(&dynamic) }),
    );
    let mut running = false;
    let mut last = start;
    for entry in entries {
        match entry {
            Entry::User { at, text: said } => {
                writer.meter.add(&said);
                writer.push(
                    at,
                    "user",
                    "MessageEvent",
                    None,
                    json!({
                    "llm_message": { "role": "user", "content": [text(&said)], "thinking_blocks": [] },
                    "activated_skills": [], "extended_content": [] }),
                );
                if !running {
                    writer.state(at + 900, "execution_status", json!("running"));
                    running = true;
                }
                last = at;
            }
            Entry::Bang { .. } => {}
            Entry::Turn { at, think, say, calls } => {
                last = calls.last().map_or(at, |call| call.at);
                running = !calls.is_empty();
                writer.turn(at, think.as_deref(), say.as_deref(), &calls);
                if !running {
                    writer.state(at + 1_700, "execution_status", json!("finished"));
                }
            }
            Entry::Compact { at, keep_first, keep_last, summary } => {
                writer.compact(at, keep_first, keep_last, &summary);
                last = at;
            }
        }
    }
    if running {
        writer.push(last + 2_000_000, "user", "PauseEvent", None, json!({}));
        writer.state(last + 2_000_600, "execution_status", json!("paused"));
    }
    writer
}

impl Writer {
    /// Appends an event and returns its id.
    fn push(&mut self, at: u64, source: &str, kind: &str, batch: Option<&str>, fields: Value) -> String {
        let id = self.clock.uuid();
        let mut event = json!({ "id": id, "timestamp": iso_local(at), "source": source });
        if let (Some(event), Value::Object(fields)) = (event.as_object_mut(), fields) {
            event.extend(fields);
            event.insert("kind".to_owned(), json!(kind));
        }
        self.events.push(event);
        let shown = ["SystemPromptEvent", "MessageEvent", "ActionEvent", "ObservationEvent", "AgentErrorEvent"];
        if shown.contains(&kind) || kind == "UserRejectObservation" {
            self.view.push(Seen { id: id.clone(), batch: batch.map(str::to_owned) });
        }
        id
    }

    fn state(&mut self, at: u64, key: &str, value: Value) {
        self.push(at, "environment", "ConversationStateUpdateEvent", None, json!({ "key": key, "value": value }));
    }

    fn turn(&mut self, at: u64, think: Option<&str>, say: Option<&str>, calls: &[Played]) {
        let response = self.clock.token("chatcmpl-");
        let (fresh, cached) = self.meter.request();
        let thinking: Vec<Value> = think
            .iter()
            .map(|thought| json!({ "type": "thinking", "thinking": thought, "signature": "c2NyaXB0ZWQ=" }))
            .collect();
        let said: Vec<Value> = say.iter().map(|said| text(said)).collect();
        let mut output = estimate(think.unwrap_or("")) + estimate(say.unwrap_or(""));
        if calls.is_empty() {
            let mut message = json!({ "role": "assistant", "content": said });
            if let Some(thought) = think {
                message["reasoning_content"] = json!(thought);
            }
            message["thinking_blocks"] = json!(thinking);
            self.push(
                at,
                "agent",
                "MessageEvent",
                None,
                json!({ "llm_message": message,
                "llm_response_id": response, "activated_skills": [], "extended_content": [] }),
            );
        }
        let mut actions = Vec::new();
        for (index, call) in calls.iter().enumerate() {
            let (tool, arguments, action) = self.call(&call.op);
            output += estimate(&arguments);
            let call_id = self.clock.token("toolu_");
            let first = index == 0;
            let mut fields = json!({ "thought": if first { said.clone() } else { Vec::new() } });
            if let (true, Some(thought)) = (first, think) {
                fields["reasoning_content"] = json!(thought);
            }
            fields["thinking_blocks"] = json!(if first { thinking.clone() } else { Vec::new() });
            if let Some(action) = action {
                fields["action"] = action;
            }
            fields["tool_name"] = json!(tool);
            fields["tool_call_id"] = json!(call_id);
            fields["tool_call"] =
                json!({ "id": call_id, "name": tool, "arguments": arguments, "origin": "completion" });
            fields["llm_response_id"] = json!(response);
            fields["security_risk"] = json!("LOW");
            if let Op::Run { note, .. } = &call.op
                && !note.is_empty()
            {
                fields["summary"] = json!(note);
            }
            let id = self.push(at + 1_000 * index as u64, "agent", "ActionEvent", Some(&response), fields);
            actions.push((id, call_id, tool));
        }
        let mut order: Vec<usize> = (0..calls.len()).collect();
        if calls.len() > 2 {
            // Long batches are answered as they finish, not as they were asked.
            order.rotate_left(1);
        }
        for index in order {
            let (action, call_id, tool) = &actions[index];
            self.result(&calls[index], &response, action, call_id, tool);
        }
        self.meter.context += output;
        self.usages.push(json!({ "model": MODEL, "prompt_tokens": fresh + cached, "completion_tokens": output,
            "cache_read_tokens": cached, "cache_write_tokens": 0, "reasoning_tokens": estimate(think.unwrap_or("")),
            "context_window": 128_000, "per_turn_token": fresh + cached + output, "response_id": response }));
    }

    /// Tool, arguments as the model wrote them, and the parsed action.
    fn call(&self, op: &Op) -> (String, String, Option<Value>) {
        let path = |path: &str| shown(&self.program, path);
        let (tool, arguments, kind) = match op {
            Op::Run { command, .. } => ("terminal", json!({ "command": command }), "TerminalAction"),
            Op::View { path: file, range } => {
                let mut arguments = json!({ "command": "view", "path": path(file) });
                if let Some((from, to)) = range {
                    arguments["view_range"] = json!([from, to]);
                }
                ("file_editor", arguments, "FileEditorAction")
            }
            Op::Write { path: file, text } => {
                let arguments = json!({ "command": "create", "path": path(file), "file_text": text });
                ("file_editor", arguments, "FileEditorAction")
            }
            Op::Edit { path: file, old, new } => {
                let arguments = json!({ "command": "str_replace", "path": path(file), "old_str": old, "new_str": new });
                ("file_editor", arguments, "FileEditorAction")
            }
            Op::Bad { tool, arguments, .. } => return (tool.clone(), arguments.clone(), None),
        };
        let text = arguments.to_string();
        let mut action = arguments;
        if kind == "TerminalAction" {
            action["is_input"] = json!(false);
            action["reset"] = json!(false);
        }
        action["kind"] = json!(kind);
        (tool.to_owned(), text, Some(action))
    }

    fn result(&mut self, call: &Played, batch: &str, action: &str, call_id: &str, tool: &str) {
        let mut fields = json!({ "tool_name": tool, "tool_call_id": call_id });
        let (source, kind) = match &call.outcome {
            Outcome::Open => return,
            Outcome::Rejected(reason) => {
                self.meter.add(reason);
                fields["action_id"] = json!(action);
                fields["rejection_reason"] = json!(reason);
                fields["rejection_source"] = json!("user");
                ("environment", "UserRejectObservation")
            }
            Outcome::Answered(answer) => {
                self.meter.add(&answer.text);
                if let Op::Bad { .. } = call.op {
                    fields["error"] = json!(answer.text);
                    ("agent", "AgentErrorEvent")
                } else {
                    fields["observation"] = self.observation(&call.op, answer);
                    fields["action_id"] = json!(action);
                    ("environment", "ObservationEvent")
                }
            }
        };
        self.push(call.at, source, kind, Some(batch), fields);
    }

    fn observation(&self, op: &Op, answer: &Answer) -> Value {
        let content = json!([text(&answer.text)]);
        let (command, path) = match op {
            Op::Run { command, .. } => {
                let code = answer.exit_code;
                let folder = shown(&self.program, "");
                return json!({ "content": content, "is_error": false, "command": command, "exit_code": code,
                    "timeout": false, "metadata": { "exit_code": code, "pid": -1, "username": "agent",
                    "hostname": "sandbox", "working_dir": folder.trim_end_matches('/'), "prefix": "",
                    "suffix": format!("\n[exit code {code}]") }, "kind": "TerminalObservation" });
            }
            Op::Write { path, .. } => ("create", path),
            Op::Edit { path, .. } => ("str_replace", path),
            Op::View { path, .. } | Op::Bad { tool: path, .. } => ("view", path),
        };
        json!({ "content": content, "is_error": answer.is_error, "command": command,
            "path": shown(&self.program, path), "prev_exist": !answer.text.starts_with("created "),
            "kind": "FileEditorObservation" })
    }

    /// Forgets the middle of the view, a former summary included, and puts a summary there.
    fn compact(&mut self, at: u64, keep_first: usize, keep_last: usize, summary: &str) {
        let mut end = self.view.len().saturating_sub(keep_last);
        while end > keep_first
            && self.view.get(end).is_some_and(|next| next.batch.is_some() && next.batch == self.view[end - 1].batch)
        {
            end -= 1;
        }
        let mut forgotten: Vec<String> = self.view.drain(keep_first..end).map(|seen| seen.id).collect();
        forgotten.sort();
        let kept: Vec<&str> = self.view.iter().map(|seen| seen.id.as_str()).collect();
        let remaining: u64 = self
            .events
            .iter()
            .filter(|event| event["id"].as_str().is_some_and(|id| kept.contains(&id)))
            .map(|event| estimate(&event.to_string()))
            .sum();
        self.meter.reset(remaining + estimate(summary));
        let response = self.clock.token("chatcmpl-");
        let id = self.push(
            at,
            "environment",
            "Condensation",
            None,
            json!({ "forgotten_event_ids": forgotten,
            "summary": summary, "summary_offset": keep_first, "llm_response_id": response }),
        );
        self.view.insert(keep_first, Seen { id: format!("{id}-summary"), batch: None });
    }
}

fn text(text: &str) -> Value {
    json!({ "cache_prompt": false, "type": "text", "text": text })
}

fn tools() -> Value {
    let annotations = |title: &str, read_only: bool, open_world: bool| {
        json!({ "title": title, "readOnlyHint": read_only, "destructiveHint": !read_only, "idempotentHint": false,
            "openWorldHint": open_world })
    };
    json!([
        { "description": "Runs a shell command in the working directory and returns what it prints, with its exit code.",
          "action_type": "TerminalAction", "observation_type": "TerminalObservation",
          "annotations": annotations("terminal", false, true), "kind": "TerminalTool", "title": "terminal" },
        { "description": "Views a file or some of its lines, creates a file, or replaces a text that occurs once in a file.",
          "action_type": "FileEditorAction", "observation_type": "FileEditorObservation",
          "annotations": annotations("file_editor", false, false), "kind": "FileEditorTool", "title": "file_editor" },
        { "description": "Ends the task with a message to the user.",
          "action_type": "FinishAction", "observation_type": "FinishObservation",
          "annotations": annotations("finish", true, false), "kind": "FinishTool", "title": "finish" },
    ])
}
