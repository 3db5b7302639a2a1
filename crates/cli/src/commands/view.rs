//! `condenser view`: what the model would have been shown at a step.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use condenser::request::{Api, Body, Part, Request, Speaker};
use condenser::{Tokens, View};
use condenser_harness::{Choice, Prepared, Seen, Subject};
use condenser_traces::{Trace, read_path};
use serde_json::{Value, json};

use crate::error::{CliError, Exit, chain};
use crate::output::Output;
use crate::subjects::{MeasureArguments, Policies, parse_tokens};
use crate::terminal::{note, printable, printable_lines};

#[derive(clap::Args, Debug)]
pub(crate) struct ViewArguments {
    /// A trace; `PATH#ROW` for one row of a file that holds several.
    path: PathBuf,
    /// The policy.
    #[arg(long, default_value = "none")]
    policy: String,
    /// A TOML file of policies with settings, and of pipelines.
    #[arg(long, value_name = "FILE")]
    policies: Option<PathBuf>,
    /// Which model response, counted from 1: its request is shown. The last one where none is named.
    #[arg(long, value_name = "N")]
    step: Option<usize>,
    /// Say what differs between the views of two steps instead of showing one.
    #[arg(long, num_args = 2, value_names = ["N", "M"], conflicts_with = "step")]
    diff: Option<Vec<usize>>,
    /// The form.
    #[arg(long, value_enum, default_value = "text")]
    format: ViewFormat,
    /// The API whose request `--format json` shows: openai, responses or anthropic.
    #[arg(long, default_value = "openai")]
    api: Api,
    /// The model's context window.
    #[arg(long, value_name = "TOKENS", default_value = "32k", value_parser = parse_tokens)]
    window: Tokens,
    /// Read the file as this format instead of recognizing it.
    #[arg(long, value_name = "NAME")]
    input_format: Option<String>,
    #[command(flatten)]
    measure: MeasureArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ViewFormat {
    Text,
    Json,
}

pub(crate) fn run(arguments: &ViewArguments) -> Result<Exit, CliError> {
    let measure = arguments.measure.resolve()?;
    let policies = Policies::read(arguments.policies.as_deref())?;
    let choice = match policies.choose(std::slice::from_ref(&arguments.policy))?.as_slice() {
        [choice] => choice.clone(),
        _ => return Err(CliError::Usage("a view is of one policy: name it with --policy".into())),
    };
    let trace = read_one(&arguments.path, arguments.input_format.as_deref())?;
    let subject =
        Subject { trace: &trace.name, format: trace.format, task: trace.task.as_deref(), events: &trace.events };
    let prepared = Prepared::new(subject, measure.models.counter, measure.rules);
    let n_steps = prepared.n_steps();
    let settings = measure.settings(arguments.window, 0);
    let exists = |step: usize| {
        let message = || match n_steps {
            0 => format!("{}: no model has answered in it, so it has no steps", trace.name),
            _ => format!("{}: there is no step {step}; steps are 1 to {n_steps}", trace.name),
        };
        if (1..=n_steps).contains(&step) { Ok(step) } else { Err(CliError::Usage(message())) }
    };
    if let Some([from, to]) = arguments.diff.as_deref() {
        let (from, to) = (exists(*from)?, exists(*to)?);
        let mut views = [None, None];
        choice.replay(
            &prepared,
            &settings,
            None,
            Some(&mut |seen| {
                for (view, step) in views.iter_mut().zip([from, to]) {
                    if seen.step + 1 == step {
                        *view = Some(seen.view.clone());
                    }
                }
            }),
        );
        let [Some(before), Some(after)] = views else { return Ok(Exit::Ok) };
        return show_diff(arguments, (from, &before), (to, &after));
    }
    let step = exists(arguments.step.unwrap_or(n_steps))?;
    let mut shown = None;
    choice.replay(
        &prepared,
        &settings,
        None,
        Some(&mut |seen| {
            if seen.step + 1 == step {
                shown = Some(match arguments.format {
                    ViewFormat::Text => text(arguments, seen, n_steps, &choice, &trace),
                    ViewFormat::Json => format!("{:#}\n", document(arguments, seen, n_steps, &trace)),
                });
                report(step, seen);
            }
        }),
    );
    let mut output = Output::open(None)?;
    output.text(&shown.unwrap_or_default())?;
    output.finish()?;
    Ok(Exit::Ok)
}

/// Says what was odd in the log behind a view, and what its request had to repair.
fn report(step: usize, seen: &Seen<'_>) {
    let counts = [
        ("the log", serde_json::to_value(seen.view.diagnostics())),
        ("the request", serde_json::to_value(seen.request.facts)),
    ];
    for (of, counts) in counts {
        let Ok(Value::Object(counts)) = counts else { continue };
        let odd: Vec<String> = counts
            .iter()
            .filter(|(_, count)| count.as_u64().is_some_and(|count| count > 0))
            .map(|(name, count)| format!("{} {count}", name.replace('_', " ")))
            .collect();
        if !odd.is_empty() {
            note(&format!("step {step}, {of}: {}", odd.join(", ")));
        }
    }
}

fn show_diff(
    arguments: &ViewArguments,
    (from, before): (usize, &View),
    (to, after): (usize, &View),
) -> Result<Exit, CliError> {
    let diff = before.diff(after);
    let mut output = Output::open(None)?;
    match arguments.format {
        ViewFormat::Json => output.json(&json!({
            "from": from, "to": to, "common_prefix": diff.common_prefix,
            "left": diff.left, "came": diff.came, "rewritten": diff.rewritten,
        }))?,
        ViewFormat::Text => {
            let mut text = format!(
                "step {from} has {} entries, step {to} has {}; the first {} are the same\n",
                before.len(),
                after.len(),
                diff.common_prefix
            );
            for (mark, ids) in [('-', &diff.left), ('+', &diff.came), ('~', &diff.rewritten)] {
                for id in ids {
                    let _ = writeln!(text, "{mark} {}", printable(id.as_str()));
                }
            }
            output.text(&text)?;
        }
    }
    output.finish()?;
    Ok(Exit::Ok)
}

/// The one trace that a path names; `PATH#ROW` is one of several.
pub(crate) fn read_one(named: &Path, format: Option<&str>) -> Result<Trace, CliError> {
    if let Some(name) = format {
        condenser_traces::format(name).map_err(|error| CliError::Usage(error.to_string()))?;
    }
    let text = named.to_string_lossy();
    let (path, row) = match text.rsplit_once('#') {
        Some((path, row)) if !named.exists() => (PathBuf::from(path), Some(row.to_owned())),
        _ => (named.to_owned(), None),
    };
    let mut traces = read_path(&path, format).map_err(|error| CliError::Input(chain(&error)))?;
    for diagnostic in traces.iter().flat_map(|trace| &trace.diagnostics) {
        note(&format!("{}: {diagnostic}", path.display()));
    }
    if let Some(row) = row {
        let wanted = format!("#{row}");
        let names = traces.len();
        return traces.into_iter().find(|trace| trace.name.ends_with(&wanted)).ok_or_else(|| {
            CliError::Usage(format!("{}: there is no row {row}; it holds {names} traces", path.display()))
        });
    }
    match (traces.pop(), traces.len()) {
        (Some(trace), 0) => Ok(trace),
        (_, others) => Err(CliError::Usage(format!(
            "{} holds {} traces; name one as {}#0",
            path.display(),
            others + 1,
            path.display()
        ))),
    }
}

fn document(arguments: &ViewArguments, seen: &Seen<'_>, n_steps: usize, trace: &Trace) -> Value {
    json!({
        "trace": trace.name,
        "policy": arguments.policy,
        "step": seen.step + 1,
        "steps": n_steps,
        "tokens": seen.tokens,
        "view": seen.view.ids().map(|id| id.as_str()).collect::<Vec<_>>(),
        "facts": seen.request.facts,
        "diagnostics": seen.view.diagnostics(),
        "api": arguments.api.name(),
        "request": seen.request.render(arguments.api),
    })
}

fn text(arguments: &ViewArguments, seen: &Seen<'_>, n_steps: usize, choice: &Choice, trace: &Trace) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{}, step {} of {n_steps} under {}: {} tokens ({}), {} entries, {} condensations",
        printable(&trace.name),
        seen.step + 1,
        arguments.policy,
        seen.tokens,
        arguments.measure.models.tokenizer,
        seen.view.len(),
        if choice.name() == "none" { 0 } else { seen.view.records().len() },
    );
    if let Some((_, tools)) = seen.request.tools {
        let _ = writeln!(text, "{} tools", tools.len());
    }
    turns(&mut text, seen.request, seen.view);
    text
}

fn turns(text: &mut String, request: &Request<'_>, view: &View) {
    for turn in &request.turns {
        let speaker = match &turn.speaker {
            Speaker::System => "system".to_owned(),
            Speaker::User => "user".to_owned(),
            Speaker::Assistant => "assistant".to_owned(),
            Speaker::Tool { call_id, name, outcome } => {
                format!("tool {name} ({call_id}, {})", format!("{outcome:?}").to_lowercase())
            }
        };
        let _ = writeln!(text, "\n--- {}", printable(&speaker));
        for part in &turn.parts {
            let mark = mark(part, view);
            match &part.body {
                Body::Text(body) => {
                    let _ = writeln!(text, "{mark}{}", printable_lines(body).trim_end());
                }
                Body::Image(_) => {
                    let _ = writeln!(text, "{mark}[image]");
                }
                Body::Thinking(_) => {}
                Body::Call { id, name, arguments } => {
                    let (id, name) = (printable(id), printable(name));
                    let _ = writeln!(text, "{mark}call {name} ({id}) {}", printable_lines(arguments));
                }
            }
        }
    }
}

/// Says of an entry that it is not as it was stored.
fn mark(part: &Part<'_>, view: &View) -> &'static str {
    match part.entry.and_then(|index| view.get(index)) {
        Some(entry) if entry.is_summary() => "[summary] ",
        Some(entry) if entry.rewrite().is_some() => "[rewritten] ",
        _ => "",
    }
}
