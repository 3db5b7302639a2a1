//! Scenarios: what a scripted agent says and does, as text.
//!
//! A line that starts with `@word` opens a block; the lines up to the next such line are its body.
//! `\@` at the start of a body line stands for `@`. Header blocks:
//!
//! | block | meaning |
//! | --- | --- |
//! | `@name N`, `@format F`, `@program P`, `@start SECONDS` | name of the fixture, its format, the folder worked in, the first time stamp (Unix seconds) |
//! | `@system` | system prompt |
//! | `@file PATH` | a file that exists at the start |
//! | `@setup` | shell commands run before the trace starts |
//!
//! Then the conversation. `@think` and `@say` open a model response; every call closes the one before it unless
//! it is written `@+run`, `@+view` and so on: those are parallel calls of the same response.
//!
//! | block | meaning |
//! | --- | --- |
//! | `@user` | a user message |
//! | `@run NOTE` | shell command in the body |
//! | `@view PATH [A-B]` | read a file or a range of its lines |
//! | `@write PATH` | write the body |
//! | `@edit PATH` | replace the text before the line `====` by the text after it |
//! | `@bad TOOL` | a call that cannot be run: first body line are the raw arguments, the rest is the error |
//! | `@reject WHY` | the user refuses the call above |
//! | `@open` | the call above is never answered |
//! | `@bang` | the user runs a shell command |
//! | `@compact FIRST LAST` | a recorded compaction that keeps so many entries at both ends; the body is the summary |

use anyhow::{Context, Result, bail};

/// A parsed scenario.
#[derive(Debug, Default)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) format: String,
    pub(crate) program: String,
    pub(crate) start: u64,
    pub(crate) system: String,
    pub(crate) files: Vec<(String, String)>,
    pub(crate) setup: Vec<String>,
    pub(crate) steps: Vec<Step>,
}

/// One step of the conversation.
#[derive(Debug)]
pub(crate) enum Step {
    User(String),
    Turn(Turn),
    Bang(String),
    Compact { keep_first: usize, keep_last: usize, summary: String },
}

/// One model response.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    pub(crate) think: Option<String>,
    pub(crate) say: Option<String>,
    pub(crate) calls: Vec<Call>,
}

/// One tool call of a response.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) op: Op,
    pub(crate) fate: Fate,
}

/// What a call does.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Run { note: String, command: String },
    View { path: String, range: Option<(usize, usize)> },
    Write { path: String, text: String },
    Edit { path: String, old: String, new: String },
    Bad { tool: String, arguments: String, error: String },
}

/// What becomes of a call.
#[derive(Clone, Debug)]
pub(crate) enum Fate {
    Carried,
    Rejected(String),
    Open,
}

impl Scenario {
    /// Parses the text of a scenario; errors name the line of the block.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut scenario = Self::default();
        for block in blocks(text) {
            scenario.take(&block).with_context(|| format!("line {}: @{}", block.line, block.word))?;
        }
        Ok(scenario)
    }

    fn take(&mut self, block: &Block) -> Result<()> {
        let argument = block.argument.to_owned();
        let body = block.body.trim_end_matches('\n').to_owned();
        match block.word {
            "#" => {}
            "name" => self.name = argument,
            "format" => self.format = argument,
            "program" => self.program = argument,
            "start" => self.start = argument.parse()?,
            "system" => self.system = body,
            "file" => self.files.push((argument, body + "\n")),
            "setup" => self.setup.push(body),
            "user" => self.steps.push(Step::User(body)),
            "bang" => self.steps.push(Step::Bang(body)),
            "compact" => {
                let (first, last) = argument.split_once(' ').context("two numbers are needed")?;
                let (keep_first, keep_last) = (first.parse()?, last.parse()?);
                self.steps.push(Step::Compact { keep_first, keep_last, summary: body });
            }
            "think" => self.turn(true, true).think = Some(body),
            "say" => self.turn(true, true).say = Some(body),
            "reject" => self.last_call()?.fate = Fate::Rejected(argument),
            "open" => self.last_call()?.fate = Fate::Open,
            word => {
                let parallel = word.starts_with('+');
                let op = match word.trim_start_matches('+') {
                    "run" => Op::Run { note: argument, command: body },
                    "view" => view(&argument)?,
                    "write" => Op::Write { path: argument, text: body + "\n" },
                    "edit" => {
                        let (old, new) = body.split_once("\n====").context("no line ==== between old and new")?;
                        let new = new.strip_prefix('\n').unwrap_or(new);
                        Op::Edit { path: argument, old: old.to_owned(), new: new.to_owned() }
                    }
                    "bad" => {
                        let (arguments, error) = body.split_once('\n').context("arguments and error are needed")?;
                        Op::Bad { tool: argument, arguments: arguments.to_owned(), error: error.to_owned() }
                    }
                    _ => bail!("unknown block"),
                };
                self.turn(!parallel, false).calls.push(Call { op, fate: Fate::Carried });
            }
        }
        Ok(())
    }

    /// The response that is being written: the last step, or a new one if that is closed.
    ///
    /// `fresh` closes a response that has calls, `first` also one that has text.
    fn turn(&mut self, fresh: bool, first: bool) -> &mut Turn {
        let usable = matches!(self.steps.last(), Some(Step::Turn(turn))
            if (!fresh || turn.calls.is_empty()) && (!first || turn.say.is_none()));
        if !usable {
            self.steps.push(Step::Turn(Turn::default()));
        }
        match self.steps.last_mut() {
            Some(Step::Turn(turn)) => turn,
            _ => unreachable!("a turn was pushed above"),
        }
    }

    fn last_call(&mut self) -> Result<&mut Call> {
        match self.steps.last_mut() {
            Some(Step::Turn(turn)) => turn.calls.last_mut().context("no call above"),
            _ => bail!("no call above"),
        }
    }
}

fn view(argument: &str) -> Result<Op> {
    let (path, range) = match argument.split_once(' ') {
        None => (argument, None),
        Some((path, range)) => {
            let (from, to) = range.split_once('-').context("a range is A-B")?;
            (path, Some((from.parse()?, to.parse()?)))
        }
    };
    Ok(Op::View { path: path.to_owned(), range })
}

struct Block<'a> {
    line: usize,
    word: &'a str,
    argument: &'a str,
    body: String,
}

fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(head) = line.strip_prefix('@') {
            let (word, argument) = head.split_once(' ').unwrap_or((head, ""));
            blocks.push(Block { line: index + 1, word, argument: argument.trim(), body: String::new() });
        } else if let Some(block) = blocks.last_mut() {
            block.body.push_str(line.strip_prefix('\\').filter(|rest| rest.starts_with('@')).unwrap_or(line));
            block.body.push('\n');
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plus_joins_a_call_to_the_response_above() {
        let scenario = Scenario::parse("@say\nlook\n@run list\nls\n@+view a.txt 1-2\n@run\npwd\n@user\nhi").unwrap();
        let calls: Vec<usize> = scenario
            .steps
            .iter()
            .map(|step| match step {
                Step::Turn(turn) => turn.calls.len(),
                _ => 0,
            })
            .collect();
        assert_eq!(calls, [2, 1, 0]);
    }

    #[test]
    fn an_unknown_block_is_named_with_its_line() {
        let error = Scenario::parse("@name x\n@jump y").unwrap_err();
        assert_eq!(format!("{error:#}"), "line 2: @jump: unknown block");
    }
}
