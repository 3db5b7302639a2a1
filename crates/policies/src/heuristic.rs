//! `heuristic`: a summarizer that needs no model. It files what it recognizes under headings.
//!
//! Not a summary as a language model writes one, and its text says so. It knows the labels that native policies put
//! over each event, and makes of them: what the user said, which files were named in calls, which commands ran and how
//! the last run of each ended, which errors nothing later settled, and where the agent was. Whatever carries no such
//! label is left out.
//!
//! Headings of the previous notes are read back and go on, so that the size stays within its bound however often it is
//! done again. Where room is short the oldest lines go first, of the longest heading; the first word of the user stays.

use condenser::condensation::clip;
use condenser::request::TOKENS_PER_MESSAGE;
use condenser::tokens::CharsPer4;
use condenser::{SummarizeError, Summarizer, Summary, SummaryRequest, TokenCounter, Tokens};
use serde_json::{Map, Value};

const HEAD: &str = "[Notes on earlier events: filed by rules, without a model.]";
const HEADINGS: [&str; 5] = ["USER:", "FILES:", "COMMANDS:", "UNRESOLVED ERRORS:", "LAST SAID:"];
const MAX_LINE: usize = 240;
/// Arguments that name a file, and those that hold a command.
const PATH_ARGUMENTS: [&str; 5] = ["path", "file_path", "filename", "file", "notebook_path"];
const COMMAND_ARGUMENTS: [&str; 3] = ["command", "cmd", "script"];

/// Files what it recognizes. Sizes are characters divided by four.
#[derive(Clone, Copy, Debug)]
pub struct Heuristic {
    /// The most tokens of the notes, where the request does not ask for fewer.
    pub max_tokens: Tokens,
}

impl Default for Heuristic {
    fn default() -> Self {
        Self { max_tokens: Tokens(1000) }
    }
}

/// The lines under each heading, oldest first.
#[derive(Debug, Default)]
struct Notes {
    user: Vec<String>,
    files: Vec<String>,
    commands: Vec<String>,
    errors: Vec<String>,
    said: Vec<String>,
}

impl Notes {
    fn sections(&mut self) -> [&mut Vec<String>; 5] {
        [&mut self.user, &mut self.files, &mut self.commands, &mut self.errors, &mut self.said]
    }

    /// Takes up notes that this summarizer wrote; of others it keeps the beginning.
    fn read(previous: &str) -> Self {
        let mut notes = Self::default();
        let Some(own) = previous.strip_prefix(HEAD) else {
            notes.said.push(line(previous));
            return notes;
        };
        let mut heading = None;
        for text in own.lines() {
            if let Some(found) = HEADINGS.iter().position(|heading| *heading == text) {
                heading = Some(found);
            } else if let (Some(heading), Some(text)) = (heading, text.strip_prefix("- ")) {
                notes.sections()[heading].push(text.to_owned());
            }
        }
        notes
    }

    /// Adds a line as the newest, with what follows ` -> ` or ` (` as its state: an older line about the same goes.
    fn file(lines: &mut Vec<String>, subject: &str, state: &str) {
        lines.retain(|line| line.strip_prefix(subject).is_none_or(|rest| !rest.starts_with(" -> ")));
        lines.push(format!("{subject} -> {state}"));
    }

    fn add(&mut self, event: &str, last_call: &mut Option<String>) {
        let (label, body) = event.split_once('\n').unwrap_or((event, ""));
        let label = label.split(" [event ").next().unwrap_or(label);
        if label == "[user]" {
            let said = line(body);
            if !said.is_empty() && !self.user.contains(&said) {
                self.user.push(said);
            }
        } else if label == "[assistant]" {
            let said = line(body);
            if !said.is_empty() {
                self.said = vec![said];
            }
        } else if let Some(tool) = label.strip_prefix("[call of ") {
            let tool = tool.trim_end_matches(']');
            let arguments = arguments(body);
            let named = |names: &[&str]| names.iter().find_map(|name| arguments.get(*name)?.as_str());
            if let Some(path) = named(&PATH_ARGUMENTS) {
                Self::file(&mut self.files, &line(path), tool);
            }
            *last_call = match named(&COMMAND_ARGUMENTS) {
                Some(command) => Some(line(command)),
                None => Some(format!("{tool} {}", line(&Value::Object(arguments.clone()).to_string()))),
            };
            if let Some(command) = named(&COMMAND_ARGUMENTS) {
                Self::file(&mut self.commands, &line(command), "no result");
            }
        } else if let Some(result) = label.strip_prefix("[result of ") {
            let Some(call) = last_call.take() else { return };
            let error = result.ends_with(", an error]").then(|| first_error(body));
            let state = if error.is_some() { "error" } else { "ok" };
            if self.commands.iter().any(|line| line.strip_prefix(&call).is_some_and(|rest| rest.starts_with(" -> "))) {
                Self::file(&mut self.commands, &call, state);
            }
            match error {
                Some(error) => Self::file(&mut self.errors, &call, &error),
                None => {
                    self.errors.retain(|line| line.strip_prefix(&call).is_none_or(|rest| !rest.starts_with(" -> ")))
                }
            }
        }
    }

    fn render(&mut self) -> String {
        let mut text = HEAD.to_owned();
        for (heading, lines) in HEADINGS.into_iter().zip(self.sections()) {
            if !lines.is_empty() {
                text.push_str(&format!("\n{heading}"));
                lines.iter().for_each(|line| text.push_str(&format!("\n- {line}")));
            }
        }
        text
    }

    /// Drops lines until the notes fit. Whether they do.
    fn shorten(&mut self, most: Tokens) -> bool {
        while CharsPer4.count(&self.render()) > most {
            let size = |lines: &Vec<String>| lines.iter().map(String::len).sum::<usize>();
            let sections = self.sections().into_iter().enumerate();
            // The first line of the user is what it all is for.
            let droppable = sections.filter(|(index, lines)| lines.len() > usize::from(*index == 0));
            let Some((index, lines)) = droppable.max_by_key(|(_, lines)| size(lines)) else { return false };
            lines.remove(usize::from(index == 0));
        }
        true
    }
}

/// The JSON object in the text of a call: its last line that is one, else the text from the first brace on.
fn arguments(body: &str) -> Map<String, Value> {
    let whole = body.find('{').and_then(|at| serde_json::from_str(&body[at..]).ok());
    whole.or_else(|| body.lines().rev().find_map(|line| serde_json::from_str(line).ok())).unwrap_or_default()
}

fn first_error(body: &str) -> String {
    let is_error = |line: &&str| {
        let lower = line.to_lowercase();
        ["error", "exception", "panicked", "fatal", "failed", "no such", "denied"]
            .iter()
            .any(|word| lower.contains(word))
    };
    line(body.lines().find(is_error).unwrap_or(body))
}

/// A text on one line, its middle left out where it is long.
fn line(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    clip(&text, MAX_LINE * 2 / 3, MAX_LINE / 3).unwrap_or(text)
}

impl Summarizer for Heuristic {
    fn name(&self) -> &str {
        "heuristic"
    }

    fn summarize(&self, request: &SummaryRequest) -> Result<Summary, SummarizeError> {
        let mut notes = request.previous.as_deref().map(Notes::read).unwrap_or_default();
        let mut last_call = None;
        for (_, event) in &request.events {
            notes.add(event, &mut last_call);
        }
        let most = request.max_tokens.map_or(self.max_tokens, |most| most.min(self.max_tokens));
        if !notes.shorten(most) || notes.sections().iter().all(|lines| lines.is_empty()) {
            return Err(SummarizeError::Empty);
        }
        let text = notes.render();
        let input = CharsPer4.count(&request.instructions) + CharsPer4.count(&request.input());
        let output_tokens = CharsPer4.count(&text);
        Ok(Summary {
            text,
            input_tokens: input + TOKENS_PER_MESSAGE + TOKENS_PER_MESSAGE,
            output_tokens,
            ..Summary::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use condenser::EventId;

    fn summarize(events: &[&str], previous: Option<&str>, max_tokens: u64) -> Result<String, SummarizeError> {
        let request = SummaryRequest {
            events: events.iter().map(|text| (EventId::new("e"), (*text).to_owned())).collect(),
            previous: previous.map(str::to_owned),
            max_tokens: Some(Tokens(max_tokens)),
            ..SummaryRequest::default()
        };
        Heuristic::default().summarize(&request).map(|summary| summary.text)
    }

    #[test]
    fn what_is_recognized_stands_under_its_heading_in_its_newest_state() {
        let first = summarize(
            &[
                "[user] [event e1]\nMake the tests pass.\nNever touch src/api.rs.",
                "[call of bash] [event e2]\nI run them.\n{\"command\":\"cargo test\"}",
                "[result of bash, an error] [event e3]\nrunning 2 tests\nerror[E0308]: mismatched types\nmore",
                "[call of edit] [event e4]\n{\"path\":\"src/lib.rs\",\"old\":\"a\"}",
                "[result of edit]\ndone",
                "[call of bash]\n{\"command\":\"git push\"}",
                "[result of bash, an error]\nfatal: access denied",
                "[assistant]\nNow the tests again.",
            ],
            None,
            400,
        )
        .unwrap();
        let expected = "[Notes on earlier events: filed by rules, without a model.]\n\
            USER:\n- Make the tests pass. Never touch src/api.rs.\n\
            FILES:\n- src/lib.rs -> edit\n\
            COMMANDS:\n- cargo test -> error\n- git push -> error\n\
            UNRESOLVED ERRORS:\n- cargo test -> error[E0308]: mismatched types\n- git push -> fatal: access denied\n\
            LAST SAID:\n- Now the tests again.";
        assert_eq!(first, expected);
        let later = ["[call of bash]\n{\"command\":\"cargo test\"}", "[result of bash]\nok", "[assistant]\nAll pass."];
        let expected = expected
            .replace("- cargo test -> error\n- git push -> error", "- git push -> error\n- cargo test -> ok")
            .replace("- cargo test -> error[E0308]: mismatched types\n", "")
            .replace("Now the tests again.", "All pass.");
        assert_eq!(summarize(&later, Some(&first), 400).unwrap(), expected);
    }

    #[test]
    fn the_size_stays_within_its_bound_over_many_rounds_and_the_first_word_of_the_user_stays() {
        let mut previous: Option<String> = None;
        for round in 0..31 {
            let events = [
                format!("[user]\nRule {round} stands, in words enough for a line of its own."),
                format!("[call of bash]\n{{\"command\":\"make target-{round}\"}}"),
                "[result of bash, an error]\nmake: *** failed".to_owned(),
            ];
            let text = summarize(&events.each_ref().map(String::as_str), previous.as_deref(), 200).unwrap();
            assert!(CharsPer4.count(&text) <= Tokens(200));
            assert_eq!(text.matches(HEAD).count(), 1);
            assert!(text.contains("- Rule 0 stands") && text.contains(&format!("make target-{round} -> ")), "{text}");
            previous = Some(text);
        }
    }

    #[test]
    fn nothing_recognized_is_a_failed_call() {
        for events in [&[][..], &["a text without a label"][..], &["[user]\n \n"][..]] {
            assert_eq!(summarize(events, None, 100), Err(SummarizeError::Empty));
        }
        assert_eq!(summarize(&["[user]\nno room at all"], None, 5), Err(SummarizeError::Empty));
        assert!(summarize(&[], Some("notes that somebody else wrote"), 100).unwrap().contains("somebody else"));
    }
}
