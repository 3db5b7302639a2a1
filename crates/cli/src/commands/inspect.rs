//! `condenser inspect`: a trace under a policy, step by step, in the terminal.

mod draw;
mod panes;
mod recording;
mod screen;

use std::io::IsTerminal as _;
use std::path::PathBuf;

use condenser_harness::{Choice, Control};
use crossterm::event::{Event, KeyEventKind, read};

use crate::commands::view::read_one;
use crate::error::{CliError, Exit};
use crate::subjects::{MeasureArguments, Policies, parse_tokens};
use recording::Recording;
use screen::Screen;

#[derive(clap::Args, Debug)]
pub(crate) struct InspectArguments {
    /// A trace; `PATH#ROW` for one row of a file that holds several.
    path: PathBuf,
    /// The policy.
    #[arg(long, default_value = "condenser-default")]
    policy: String,
    /// A TOML file of policies with settings, and of pipelines.
    #[arg(long, value_name = "FILE")]
    policies: Option<PathBuf>,
    /// The step to begin with, counted from 1.
    #[arg(long, value_name = "N", default_value_t = 1)]
    step: usize,
    /// The model's context window.
    #[arg(long, value_name = "TOKENS", default_value = "32k", value_parser = parse_tokens)]
    window: condenser::Tokens,
    /// Read the file as this format instead of recognizing it.
    #[arg(long, value_name = "NAME")]
    input_format: Option<String>,
    #[command(flatten)]
    measure: MeasureArguments,
}

pub(crate) fn run(arguments: &InspectArguments) -> Result<Exit, CliError> {
    if !(std::io::stdin().is_terminal() && std::io::stdout().is_terminal()) {
        return Err(CliError::Usage("`inspect` needs a terminal; `condenser view` prints a step".into()));
    }
    let measure = arguments.measure.resolve()?;
    let policies = Policies::read(arguments.policies.as_deref())?;
    let choice = match policies.choose(std::slice::from_ref(&arguments.policy))?.as_slice() {
        [Choice::Control(Control::Oracle)] => {
            return Err(CliError::Usage(
                "`oracle` takes its records back at each step; `condenser view` shows one".into(),
            ));
        }
        [choice] => choice.clone(),
        _ => return Err(CliError::Usage("one policy is stepped through: name it with --policy".into())),
    };
    let trace = read_one(&arguments.path, arguments.input_format.as_deref())?;
    let recording = Recording::new(&trace, &choice, &measure, arguments.window);
    let n_steps = recording.steps.len();
    if n_steps == 0 {
        let message = format!("{}: no model has answered in it, so it has no steps", trace.name);
        return Err(CliError::Usage(message));
    }
    if !(1..=n_steps).contains(&arguments.step) {
        let message = format!("{}: there is no step {}; steps are 1 to {n_steps}", trace.name, arguments.step);
        return Err(CliError::Usage(message));
    }
    let mut screen = Screen::new(&recording, arguments.step - 1);
    let shown = ratatui::try_init().and_then(|mut terminal| show(&mut terminal, &mut screen));
    let restored = ratatui::try_restore();
    shown.and(restored).map_err(|source| CliError::Output { path: None, source })?;
    Ok(Exit::Ok)
}

fn show(terminal: &mut ratatui::DefaultTerminal, screen: &mut Screen<'_>) -> std::io::Result<()> {
    while !screen.is_over() {
        terminal.draw(|frame| {
            let area = frame.area();
            screen.resize(area.width, area.height);
            draw::draw(screen, area, frame.buffer_mut());
        })?;
        match read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => screen.key(key),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
