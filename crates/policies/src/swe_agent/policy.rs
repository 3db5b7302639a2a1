//! The peer as policies.

use std::rc::Rc;

use condenser::{Edit, Failure, NoPlan, Plan, Policy, Reason, Requirement, State};
use serde::{Deserialize, Serialize};

use super::adapter;
use super::peer::{ClosedWindow, DEFAULT_PATTERN, Entry, LastN, ProcessError, RemoveRegex, Tagger};
use crate::registry::{OWN, PolicyInfo, PolicyKind};

/// A history processor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Processor {
    /// Tags, then elides old outputs.
    LastN(Tagger, LastN),
    /// Closes all but the newest window on each file.
    ClosedWindow(ClosedWindow),
    /// Deletes what matches.
    RemoveRegex(RemoveRegex),
}

/// A history processor of SWE-agent as a policy.
#[derive(Clone, Debug)]
pub struct SweAgent {
    name: String,
    /// The processor and its settings, as text.
    key: String,
    processor: Processor,
}

impl SweAgent {
    /// The policy of this processor.
    pub fn new(name: impl Into<String>, processor: Processor) -> Self {
        Self { name: name.into(), key: format!("{processor:?}"), processor }
    }

    fn edit(&self, state: &State<'_>) -> Rc<Result<Edit, ProcessError>> {
        state.once(&self.key, || self.processed(state))
    }

    fn processed(&self, state: &State<'_>) -> Result<Edit, ProcessError> {
        let history = adapter::history(state);
        let entries: Vec<&Entry> = history.iter().map(|(_, stored)| &stored.entry).collect();
        let size = |at: usize| history[at].1.size();
        let changes = match &self.processor {
            Processor::LastN(tagger, last_n) if tagger.function_names.is_empty() => last_n.changes(&entries, size)?,
            Processor::LastN(tagger, last_n) => {
                last_n.changes(&tagger.process(entries.into_iter().cloned().collect()), size)?
            }
            Processor::RemoveRegex(remove) => remove.changes(&entries),
            Processor::ClosedWindow(windows) => windows.changes(&entries),
        };
        Ok(adapter::edit(state, &history, &changes))
    }
}

impl Policy for SweAgent {
    fn name(&self) -> &str {
        &self.name
    }

    fn requirement(&self, state: &State<'_>) -> Requirement {
        match &*self.edit(state) {
            Ok(edit) if edit.is_empty() => Requirement::None,
            _ => Requirement::Soft(vec![Reason::Policy]),
        }
    }

    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        if !tried.is_empty() {
            return Err(NoPlan::Exhausted);
        }
        let edit = (*self.edit(state)).clone().map_err(|_| NoPlan::NoLegalCut)?;
        Ok(if edit.is_empty() { Plan::Keep } else { Plan::Edit(edit) })
    }

    fn is_port(&self) -> bool {
        true
    }
}

const SOURCE: &str = "SWE-agent 3ea751c0";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LastNSettings {
    n: usize,
    polling: usize,
    always_keep_output_for_tags: Vec<String>,
    always_remove_output_for_tags: Vec<String>,
    tags: Vec<String>,
    function_names: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoSettings {}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RemoveSettings {
    remove: Vec<String>,
    keep_last: usize,
}

/// The history processors.
pub(crate) fn policies() -> Vec<PolicyInfo> {
    use PolicyKind::Port;
    vec![
        PolicyInfo::new(
            "swe-agent-last-n",
            Port,
            "SWE-agent: elides all outputs but the first and the newest",
            &LastNSettings {
                n: 10,
                polling: 1,
                always_keep_output_for_tags: vec!["keep_output".to_owned()],
                always_remove_output_for_tags: vec!["remove_output".to_owned()],
                tags: Vec::new(),
                function_names: Vec::new(),
            },
            &[
                ("n", "outputs", "the newest outputs that stay", "arXiv 2508.21433; the original has no default"),
                ("polling", "outputs", "the edge moves every so many outputs", SOURCE),
                ("always_keep_output_for_tags", "tags", "entries with one of them stay", SOURCE),
                ("always_remove_output_for_tags", "tags", "entries with one of them are elided, however new", SOURCE),
                ("tags", "tags", "tags for calls of `function_names`", OWN),
                ("function_names", "names", "the tools whose calls get `tags`; their outputs do not", OWN),
            ],
            |name, settings| {
                if settings.n == 0 || settings.polling == 0 {
                    return Err("`n` and `polling` must be at least 1".to_owned());
                }
                let tagger = Tagger { tags: settings.tags, function_names: settings.function_names };
                let last_n = LastN {
                    n: settings.n,
                    polling: settings.polling,
                    keep: settings.always_keep_output_for_tags,
                    remove: settings.always_remove_output_for_tags,
                };
                Ok(Box::new(SweAgent::new(name, Processor::LastN(tagger, last_n))))
            },
        ),
        PolicyInfo::new(
            "swe-agent-closed-window",
            Port,
            "SWE-agent: closes all but the newest window on each file",
            &NoSettings {},
            &[],
            |name, _| {
                let windows = ClosedWindow::new().map_err(|error| error.to_string())?;
                Ok(Box::new(SweAgent::new(name, Processor::ClosedWindow(windows))))
            },
        ),
        PolicyInfo::new(
            "swe-agent-remove-regex",
            Port,
            "SWE-agent: deletes what matches from all texts but the newest",
            &RemoveSettings { remove: vec![DEFAULT_PATTERN.to_owned()], keep_last: 0 },
            &[
                ("remove", "patterns", "what is deleted; a dot matches line ends", SOURCE),
                ("keep_last", "entries", "the newest entries that stay as they are", SOURCE),
            ],
            |name, RemoveSettings { remove, keep_last }| {
                let remove = RemoveRegex::new(&remove, keep_last).map_err(|error| format!("`remove`: {error}"))?;
                Ok(Box::new(SweAgent::new(name, Processor::RemoveRegex(remove))))
            },
        ),
    ]
}
