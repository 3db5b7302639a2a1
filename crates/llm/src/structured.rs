//! The summary as a call of a tool: the fields of OpenHands' `create_state_summary`, and the text they make.

use condenser::SummarizeError;
use condenser::request::Api;
use serde_json::{Map, Value, json};

/// The tool that is offered where a [`SummaryRequest`](condenser::SummaryRequest) asks for a call.
pub const STRUCTURED_TOOL: &str = "create_state_summary";

const PURPOSE: &str =
    "Records what has to be known to go on with the work. All fields are text; leave out what does not apply.";

/// Fields that the call must have.
const REQUIRED: [&str; 3] = ["user_context", "completed_tasks", "pending_tasks"];

/// A field's name, its label, and what belongs there.
type Field = (&'static str, &'static str, &'static str);

/// Sections of the text, each with its fields.
const SECTIONS: [(&str, &[Field]); 5] = [
    (
        "Core information",
        &[
            ("user_context", "User context", "What the user wants, with all requirements, goals and clarifications."),
            ("completed_tasks", "Completed tasks", "What is done, with results."),
            ("pending_tasks", "Pending tasks", "What is still to be done."),
            ("current_state", "Current state", "Variables, data and other state that matters now."),
        ],
    ),
    (
        "Code changes",
        &[
            ("files_modified", "Files modified", "Files that were created or changed, with exact paths."),
            ("function_changes", "Function changes", "Functions that were added or changed."),
            ("data_structures", "Data structures", "Data structures that were added or changed."),
            ("dependencies", "Dependencies", "Packages and tools that were added, or are needed."),
        ],
    ),
    (
        "Testing",
        &[
            ("tests_written", "Tests written", "Whether tests were written, and which."),
            ("tests_passing", "Tests passing", "Whether all tests pass."),
            ("failing_tests", "Failing tests", "Tests that fail, by name."),
            ("error_messages", "Error messages", "Error messages that still matter, word by word."),
        ],
    ),
    (
        "Version control",
        &[
            ("branch_created", "Branch created", "Whether a branch was created."),
            ("branch_name", "Branch name", "The branch that is worked on."),
            ("commits_made", "Commits made", "Whether commits were made."),
            ("pr_created", "PR created", "Whether a pull request was created."),
            ("pr_status", "PR status", "The state of the pull request."),
        ],
    ),
    (
        "Additional context",
        &[("other_relevant_context", "Other relevant context", "Anything else that has to be known.")],
    ),
];

fn fields() -> impl Iterator<Item = &'static Field> {
    SECTIONS.iter().flat_map(|(_, fields)| fields.iter())
}

/// Offers the tool, and asks for a call of it.
pub(crate) fn offer(api: Api, body: &mut Map<String, Value>) {
    let properties: Map<String, Value> =
        fields().map(|(name, _, what)| ((*name).to_owned(), json!({"type": "string", "description": what}))).collect();
    let schema = json!({"type": "object", "properties": properties, "required": REQUIRED});
    let (tool, choice) = match api {
        Api::Anthropic => (
            json!({"name": STRUCTURED_TOOL, "description": PURPOSE, "input_schema": schema}),
            json!({"type": "tool", "name": STRUCTURED_TOOL}),
        ),
        Api::OpenAiResponses => (
            json!({"type": "function", "name": STRUCTURED_TOOL, "description": PURPOSE, "parameters": schema,
                   "strict": false}),
            json!({"type": "function", "name": STRUCTURED_TOOL}),
        ),
        _ => {
            let function = json!({"name": STRUCTURED_TOOL, "description": PURPOSE, "parameters": schema});
            (
                json!({"type": "function", "function": function}),
                json!({"type": "function", "function": {"name": STRUCTURED_TOOL}}),
            )
        }
    };
    body.insert("tools".into(), json!([tool]));
    body.insert("tool_choice".into(), choice);
}

/// The text that a call of [`STRUCTURED_TOOL`] makes: a section per topic, a line per field that was given.
///
/// # Errors
/// [`SummarizeError::Failed`] where another tool was called, or the arguments are no object;
/// [`SummarizeError::Empty`] where every field is blank. (The original forgets the events all the same.)
pub fn structured_summary(tool: &str, arguments: &str) -> Result<String, SummarizeError> {
    if tool != STRUCTURED_TOOL {
        let shown: String = tool.chars().take(60).collect();
        return Err(SummarizeError::Failed(format!("the model called {shown:?} instead of {STRUCTURED_TOOL}")));
    }
    let given: Map<String, Value> = serde_json::from_str(arguments)
        .map_err(|_| SummarizeError::Failed(format!("the arguments of {STRUCTURED_TOOL} are no JSON object")))?;
    let text_of = |name: &str| match given.get(name)? {
        Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
        Value::Null => None,
        other => Some(other.to_string()),
    };
    let mut text = String::new();
    for (section, fields) in SECTIONS {
        let lines: Vec<String> = fields
            .iter()
            .filter_map(|(name, label, _)| text_of(name).map(|value| format!("**{label}**: {value}")))
            .collect();
        if !lines.is_empty() {
            text.push_str(&format!("\n\n## {section}\n\n{}", lines.join("\n\n")));
        }
    }
    if text.is_empty() { Err(SummarizeError::Empty) } else { Ok(format!("# State summary{text}")) }
}
