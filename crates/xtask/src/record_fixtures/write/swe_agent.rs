//! SWE-agent 1.x trajectory with function calling. The prompt per step (`query`), which grows with the square of the
//! length, is left out.

use serde_json::{Value, json};

use super::super::scenario::Op;
use super::super::workshop::{ROOT, shown};
use super::super::{Entry, Outcome, Trace};
use super::{Meter, estimate};

const EDITOR: &str = "str_replace_editor";

/// The whole file.
pub(super) fn trajectory(trace: Trace) -> Value {
    let Trace { scenario, entries, diff, mut clock } = trace;
    let home = shown(&scenario.program, "").trim_end_matches('/').to_owned();
    let mut history =
        vec![json!({ "role": "system", "content": scenario.system, "agent": "main", "message_type": "system_prompt" })];
    let mut steps = Vec::new();
    let mut meter = Meter::default();
    let (mut sent, mut received, mut n_calls) = (0, 0, 0u64);
    let mut open_file = "n/a".to_owned();
    meter.add(&scenario.system);
    for entry in entries {
        match entry {
            Entry::User { text, .. } => {
                meter.add(&text);
                history
                    .push(json!({ "role": "user", "content": text, "agent": "main", "message_type": "observation" }));
            }
            Entry::Turn { at, say, calls, .. } => {
                let said = say.unwrap_or_default();
                n_calls += 1;
                sent += meter.context;
                let mut item = json!({ "role": "assistant", "content": said, "thought": said, "action": "",
                    "agent": "main" });
                for call in &calls {
                    let (name, arguments, action) = call_of(&scenario.program, &call.op);
                    let id = clock.token("call_");
                    received += estimate(&said) + estimate(&arguments);
                    meter.add(&said);
                    meter.add(&arguments);
                    item["action"] = json!(action);
                    item["tool_calls"] = json!([{ "function": { "arguments": arguments, "name": name }, "id": id,
                        "type": "function" }]);
                    item["message_type"] = json!("action");
                    history.push(item.clone());
                    if let Op::View { path, .. } | Op::Write { path, .. } | Op::Edit { path, .. } = &call.op {
                        open_file = shown(&scenario.program, path);
                    }
                    let observation = match &call.outcome {
                        Outcome::Open => None,
                        Outcome::Rejected(reason) => Some(reason.clone()),
                        Outcome::Answered(answer) => Some(answer.text.clone()),
                    };
                    let shown = observation.as_deref().unwrap_or("");
                    steps.push(json!({ "action": action, "observation": shown, "response": said, "thought": said,
                        "execution_time": (call.at - at) as f64 / 1e6,
                        "state": { "open_file": open_file, "working_dir": home } }));
                    if let Some(observation) = observation {
                        meter.add(&observation);
                        let content = if observation.is_empty() {
                            "The command ran and printed nothing.".to_owned()
                        } else {
                            format!("OBSERVATION:\n{observation}")
                        };
                        history.push(json!({ "role": "tool", "content": content, "agent": "main",
                            "message_type": "observation", "tool_call_ids": [id] }));
                    }
                }
                if calls.is_empty() {
                    received += estimate(&said);
                    meter.add(&said);
                    item["message_type"] = json!("action");
                    history.push(item);
                }
            }
            Entry::Bang { .. } | Entry::Compact { .. } => {}
        }
    }
    json!({
        "trajectory": steps,
        "history": history,
        "info": { "submission": diff, "exit_status": "submitted (exit_cost)",
            "model_stats": { "instance_cost": 0, "tokens_sent": sent, "tokens_received": received,
            "api_calls": n_calls } },
        "replay_config": json!({ "env": { "repo": { "repo_name": scenario.program, "type": "preexisting" },
            "name": "main" }, "agent": { "name": scenario.name } }).to_string(),
        "environment": format!("main ({ROOT})"),
    })
}

/// Function name, JSON arguments, and the command line that the trajectory shows.
fn call_of(program: &str, op: &Op) -> (String, String, String) {
    let path = |path: &str| shown(program, path);
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "'\"'\"'"));
    let (arguments, action) = match op {
        Op::Run { command, .. } => {
            return ("bash".to_owned(), json!({ "command": command }).to_string(), command.clone());
        }
        Op::Bad { tool, arguments, .. } => return (tool.clone(), arguments.clone(), tool.clone()),
        Op::View { path: file, range } => {
            let mut arguments = json!({ "command": "view", "path": path(file) });
            let mut action = format!("{EDITOR} view {}", path(file));
            if let Some((from, to)) = range {
                arguments["view_range"] = json!([from, to]);
                action.push_str(&format!(" --view_range {from} {to}"));
            }
            (arguments, action)
        }
        Op::Write { path: file, text } => (
            json!({ "command": "create", "path": path(file), "file_text": text }),
            format!("{EDITOR} create {} --file_text {}", path(file), quoted(text)),
        ),
        Op::Edit { path: file, old, new } => (
            json!({ "command": "str_replace", "path": path(file), "old_str": old, "new_str": new }),
            format!("{EDITOR} str_replace {} --old_str {} --new_str {}", path(file), quoted(old), quoted(new)),
        ),
    };
    (EDITOR.to_owned(), arguments.to_string(), action)
}
