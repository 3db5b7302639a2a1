//! `condenser condense`: one condensation of a session, with what went.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use condenser::event::{CondensationRequest, Event, EventKind, Source};
use condenser::{Condensation, Condenser, OutcomeKind, Policy, Sizer, Tokens};
use condenser_log::Access;
use condenser_policies::{Folding, RecentEvents};
use serde_json::{Value, json};

use crate::commands::status::StatusFormat;
use crate::error::{CliError, Exit};
use crate::output::Output;
use crate::session::{Session, SessionArguments, failed};
use crate::subjects::Policies;
use crate::table::table;
use crate::terminal::{printable, printable_lines};

#[derive(clap::Args, Debug)]
pub(crate) struct CondenseArguments {
    #[command(flatten)]
    session: SessionArguments,
    /// The policy (`condenser policies`).
    #[arg(long)]
    policy: String,
    /// A file of policies with settings, and of pipelines.
    #[arg(long, value_name = "FILE", conflicts_with = "prompt")]
    policies: Option<PathBuf>,
    /// What a summary should care about.
    #[arg(long, value_name = "TEXT")]
    guidance: Option<String>,
    /// A file with the summarizer's instructions, for policies with the setting `prompt`.
    #[arg(long, value_name = "FILE")]
    prompt: Option<PathBuf>,
    /// Act only where the policy itself sees a reason. Otherwise the user asks, and that is recorded.
    #[arg(long, conflicts_with = "guidance")]
    if_needed: bool,
    /// Show what would go, and record nothing.
    #[arg(long)]
    dry_run: bool,
    /// The form.
    #[arg(long, value_enum, default_value = "table")]
    format: StatusFormat,
}

pub(crate) fn run(arguments: &CondenseArguments) -> Result<Exit, CliError> {
    let policy = match &arguments.prompt {
        Some(path) => with_prompt(&arguments.policy, path)?,
        None => Policies::read(arguments.policies.as_deref())?.policy(&arguments.policy)?,
    };
    let models = arguments.session.models.resolve()?;
    let budgets = arguments.session.budgets(&models);
    let access = if arguments.dry_run { Access::Read } else { Access::Write };
    let mut session = Session::open(&arguments.session.db, &arguments.session.session, access)?;
    if !arguments.if_needed {
        let asked = CondensationRequest { requested_by: Some("user".into()), guidance: arguments.guidance.clone() };
        append(&mut session, EventKind::CondensationRequest(asked), arguments.dry_run)?;
    }
    let sizer = Sizer::new(models.counter);
    let started = Instant::now();
    let fallbacks: [&dyn Policy; 2] = [&Folding::default(), &RecentEvents::default()];
    let condenser = Condenser { fallbacks: &fallbacks, redact: Some(&*models.secrets), ..Condenser::default() };
    let outcome = condenser.run(&*policy, &session.state(&sizer, budgets), models.summarizer.get());
    let milliseconds = started.elapsed().as_secs_f64() * 1e3;
    models.summarizer.note_missing();
    let refusal = outcome.refusal();
    let mut output = Output::open(None)?;
    let OutcomeKind::Applied(record) = &outcome.result else {
        if let Some(failed) = refusal {
            append(&mut session, EventKind::CondensationFailed(failed), arguments.dry_run)?;
        }
        let has_failed = !matches!(outcome.result, OutcomeKind::NothingToDo);
        match arguments.format {
            StatusFormat::Json => output.json(&json!({
                "session": session.id.as_str(), "policy": policy.name(), "recorded": null,
                "tokens_before": outcome.facts.tokens, "outcome": outcome.explain(),
            }))?,
            StatusFormat::Table => output.text(&format!("{}\n", printable(&outcome.explain())))?,
        }
        output.finish()?;
        return Ok(if has_failed { Exit::Check } else { Exit::Ok });
    };
    let went = went(&session, &sizer, record);
    let mut recorded = None;
    if !arguments.dry_run {
        let basis = record.provenance.as_ref().and_then(|provenance| provenance.basis.as_ref());
        recorded = Some(session.log.append_condensation(&session.id, record, basis).map_err(failed)?);
    }
    match arguments.format {
        StatusFormat::Json => {
            let mut document = json!({
                "session": session.id.as_str(),
                "recorded": recorded.as_ref().map(|id| id.as_str()),
                "milliseconds": milliseconds,
                "went": went.iter().map(Went::document).collect::<Vec<_>>(),
            });
            if let (Some(document), Ok(Value::Object(record))) =
                (document.as_object_mut(), serde_json::to_value(record))
            {
                document.extend(record);
            }
            output.json(&document)?;
        }
        StatusFormat::Table => {
            output.text(&text(record, &went, milliseconds))?;
            output.text(&match recorded {
                Some(id) => format!("\nrecorded as {id}\n"),
                None => "\nnothing was recorded\n".to_owned(),
            })?;
        }
    }
    output.finish()?;
    Ok(Exit::Ok)
}

fn with_prompt(policy: &str, path: &Path) -> Result<Arc<dyn Policy>, CliError> {
    let prompt =
        std::fs::read_to_string(path).map_err(|error| CliError::Input(format!("{}: {error}", path.display())))?;
    let policies = Policies::read(None)?;
    let settings = [("prompt".to_owned(), Value::String(prompt))].into_iter().collect();
    Ok(policies.info(policy)?.build(&settings).map_err(|error| CliError::Usage(error.to_string()))?.into())
}

/// Adds an event to the session, and to its log unless this is a trial.
fn append(session: &mut Session, kind: EventKind, is_trial: bool) -> Result<(), CliError> {
    let id = session.log.new_event_id().map_err(failed)?;
    let event = Event::new(id, Source::User, kind);
    if !is_trial {
        session.log.append(&session.id, std::slice::from_ref(&event)).map_err(failed)?;
    }
    session.show(event);
    Ok(())
}

/// An entry that left or changed.
struct Went {
    id: String,
    kind: &'static str,
    before: Tokens,
    /// Its size now; `None` where it left.
    after: Option<Tokens>,
}

impl Went {
    fn document(&self) -> Value {
        json!({"id": self.id, "kind": self.kind, "tokens_before": self.before, "tokens_after": self.after})
    }
}

fn went(session: &Session, sizer: &Sizer<'_>, record: &Condensation) -> Vec<Went> {
    let sizes = session.state(sizer, condenser::Budgets::default()).entry_tokens().to_vec();
    let changed = session.view.iter().zip(sizes).filter_map(|(entry, before)| {
        let after = match record.rewrites.get(entry.id()) {
            Some(rewrite) => Some(rewrite.tokens.map_or(before, Tokens)),
            None if record.forgotten_event_ids.contains(entry.id()) => None,
            None => return None,
        };
        Some(Went { id: entry.id().to_string(), kind: session.kind(entry.id()), before, after })
    });
    changed.collect()
}

fn text(record: &Condensation, went: &[Went], milliseconds: f64) -> String {
    let mut text = String::new();
    let Some(provenance) = record.provenance.as_deref() else { return text };
    let number = |tokens: Option<u64>| tokens.map_or("?".to_owned(), |tokens| tokens.to_string());
    let mut facts = vec![
        ("policy", provenance.policy.clone()),
        ("reasons", provenance.reasons.join(", ")),
        ("tokens before", number(provenance.tokens_before)),
        ("tokens after", number(provenance.tokens_after)),
        ("counted by", provenance.counter.clone().unwrap_or_default()),
        ("entries forgotten", record.forgotten_event_ids.len().to_string()),
        ("entries rewritten", record.rewrites.len().to_string()),
        ("milliseconds", format!("{milliseconds:.1}")),
    ];
    if provenance.summarizer_calls > 0 {
        facts.push(("summarizer", provenance.summarizer.clone().unwrap_or_default()));
        facts.push(("its calls", provenance.summarizer_calls.to_string()));
        facts.push(("its input tokens", provenance.summarizer_input_tokens.to_string()));
        facts.push(("its output tokens", provenance.summarizer_output_tokens.to_string()));
    }
    if !provenance.fallbacks.is_empty() {
        facts.push(("fallbacks", provenance.fallbacks.join(", ")));
    }
    for (name, count) in [
        ("added to make it legal", provenance.extended),
        ("left out to make it legal", provenance.clamped),
        ("forgotten without a summary", provenance.unseen.len() as u64),
        ("images that left", provenance.images),
        ("secrets taken out", provenance.redacted),
    ] {
        if count > 0 {
            facts.push((name, count.to_string()));
        }
    }
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    for (name, value) in facts {
        let _ = writeln!(text, "{name:width$}  {}", printable(&value));
    }
    text.push('\n');
    let rows = went.iter().map(|went| {
        let after = went.after.map_or("gone".to_owned(), |after| after.to_string());
        vec![went.id.clone(), went.kind.to_owned(), went.before.to_string(), after]
    });
    text.push_str(&table(&["entry", "kind", "tokens", "now"], rows));
    if let Some((summary, offset)) = record.shown_summary() {
        let _ = write!(text, "\nsummary at entry {offset}:\n{}\n", printable_lines(summary));
    }
    text
}
