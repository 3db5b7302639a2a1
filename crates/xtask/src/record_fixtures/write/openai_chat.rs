//! OpenAI chat: one object with the offered tools and the list of messages.

use serde_json::{Value, json};

use super::super::scenario::Op;
use super::super::{Entry, Outcome, Trace};
use super::{Dialect, MODEL};

const DIALECT: Dialect = Dialect {
    run: "run_command",
    view: "read_file",
    write: "write_file",
    edit: "replace_in_file",
    path: "path",
    text: "content",
    old: "old_text",
    new: "new_text",
};

/// The whole file.
pub(super) fn log(trace: Trace) -> Value {
    let Trace { scenario, entries, mut clock, .. } = trace;
    let mut messages = vec![json!({ "role": "system", "content": scenario.system })];
    for entry in entries {
        match entry {
            Entry::User { text, .. } => messages.push(json!({ "role": "user", "content": text })),
            Entry::Bang { .. } | Entry::Compact { .. } => {}
            Entry::Turn { say, calls, .. } => {
                let mut message = json!({ "role": "assistant", "content": say });
                let mut results = Vec::new();
                let mut asked = Vec::new();
                for call in &calls {
                    let (name, mut arguments) = DIALECT.call(&scenario.program, &call.op);
                    if let Op::View { range: Some((from, to)), .. } = &call.op {
                        arguments["first_line"] = json!(from);
                        arguments["last_line"] = json!(to);
                    }
                    let arguments = match &call.op {
                        Op::Bad { arguments, .. } => arguments.clone(),
                        _ => arguments.to_string(),
                    };
                    let id = clock.token("call_");
                    asked.push(json!({ "id": id, "type": "function",
                        "function": { "name": name, "arguments": arguments } }));
                    let content = match &call.outcome {
                        Outcome::Open => continue,
                        Outcome::Rejected(reason) => format!("The user refused this call: {reason}"),
                        Outcome::Answered(answer) => match call.op {
                            Op::Run { .. } => format!("exit code {}\n{}", answer.exit_code, answer.text),
                            _ if answer.is_error => format!("error: {}", answer.text),
                            _ => answer.text.clone(),
                        },
                    };
                    results.push(json!({ "role": "tool", "tool_call_id": id, "content": content }));
                }
                if !asked.is_empty() {
                    message["tool_calls"] = json!(asked);
                }
                messages.push(message);
                messages.extend(results);
            }
        }
    }
    json!({ "model": MODEL, "tools": tools(), "messages": messages })
}

fn tools() -> Value {
    let tool = |name: &str, description: &str, members: &[(&str, &str)], required: &[&str]| {
        let properties: Value =
            members.iter().map(|(member, kind)| ((*member).to_owned(), json!({ "type": kind }))).collect();
        json!({ "type": "function", "function": { "name": name, "description": description,
            "parameters": { "type": "object", "properties": properties, "required": required } } })
    };
    let (path, text) = (("path", "string"), "string");
    json!([
        tool(DIALECT.run, "Runs a shell command.", &[("command", text)], &["command"]),
        tool(
            DIALECT.view,
            "Reads a file, or the lines from first_line to last_line.",
            &[path, ("first_line", "integer"), ("last_line", "integer")],
            &["path"]
        ),
        tool(DIALECT.write, "Writes a file.", &[path, (DIALECT.text, text)], &["path", DIALECT.text]),
        tool(
            DIALECT.edit,
            "Replaces a text that occurs exactly once in a file.",
            &[path, (DIALECT.old, text), (DIALECT.new, text)],
            &["path", DIALECT.old, DIALECT.new]
        ),
    ])
}
