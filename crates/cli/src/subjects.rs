//! What is compared: policies and controls by name, and the settings of a run.

use std::path::Path;
use std::sync::Arc;

use condenser::{Policy, Rules, Tokens};
use condenser_harness::{Choice, Control, Settings};
use condenser_policies::{PolicyInfo, PolicyKind, configure, nearest};
use serde_json::{Map, Value};

use crate::error::{CliError, toml_error};
use crate::models::{ModelArguments, Models};

/// How a replay is measured.
#[derive(clap::Args, Debug)]
pub(crate) struct MeasureArguments {
    /// Room kept for the answer; half the window at most.
    #[arg(long, value_name = "TOKENS", default_value = "4k", value_parser = parse_tokens)]
    pub(crate) reserve: Tokens,
    #[command(flatten)]
    pub(crate) models: ModelArguments,
    /// Whether native policies write the addresses of what they remove.
    #[arg(long, value_enum, default_value = "on")]
    pub(crate) recall: Switch,
    /// Where views may be cut: sound, or exactly as OpenHands does.
    #[arg(long, value_enum, default_value = "sound")]
    pub(crate) rules: RulesArgument,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RulesArgument {
    Sound,
    Openhands,
}

/// The measure, with every name looked up.
pub(crate) struct Measure {
    pub(crate) models: Models,
    pub(crate) rules: Rules,
    reserve: Tokens,
    recall: bool,
}

impl MeasureArguments {
    pub(crate) fn resolve(&self) -> Result<Measure, CliError> {
        Ok(Measure {
            models: self.models.resolve()?,
            rules: match self.rules {
                RulesArgument::Sound => Rules::Sound,
                RulesArgument::Openhands => Rules::OpenHands,
            },
            reserve: self.reserve,
            recall: self.recall == Switch::On,
        })
    }
}

impl Measure {
    pub(crate) fn recall(&self) -> bool {
        self.recall
    }

    pub(crate) fn settings(&self, window: Tokens, seed: u64) -> Settings<'_> {
        Settings {
            window: Some(window),
            reserve: self.reserve,
            profile: &self.models.profile,
            summarizer: self.models.summarizer.get(),
            seed,
            recall: self.recall,
        }
    }
}

/// `32k`, `1.5m` or a plain number.
pub(crate) fn parse_tokens(text: &str) -> Result<Tokens, String> {
    let (digits, factor) = match text.trim().to_ascii_lowercase() {
        lower if lower.ends_with('k') => (lower[..lower.len() - 1].to_owned(), 1e3),
        lower if lower.ends_with('m') => (lower[..lower.len() - 1].to_owned(), 1e6),
        lower => (lower, 1.0),
    };
    match digits.parse::<f64>() {
        Ok(number) if number.is_finite() && (0.0..=1e9).contains(&(number * factor)) => {
            Ok(Tokens((number * factor).round() as u64))
        }
        _ => Err("a number of tokens is like 32000, 32k or 1m".to_owned()),
    }
}

/// The policies that there are: the registry's, and those of a file.
pub(crate) struct Policies {
    registry: Vec<PolicyInfo>,
    of_file: Vec<Arc<dyn Policy>>,
}

impl Policies {
    /// Reads a file of policies, where one is named.
    pub(crate) fn read(file: Option<&Path>) -> Result<Self, CliError> {
        let registry = condenser_policies::policies();
        let Some(file) = file else { return Ok(Self { registry, of_file: Vec::new() }) };
        let shown = file.display();
        let text = std::fs::read_to_string(file).map_err(|error| CliError::Input(format!("{shown}: {error}")))?;
        let table: Map<String, Value> =
            toml::from_str(&text).map_err(|error| CliError::Usage(format!("{shown}: {}", toml_error(&error))))?;
        let reserved = |name: &&String| Control::named(name).is_some() || ["default", "all"].contains(&name.as_str());
        if let Some(name) = table.keys().find(reserved) {
            return Err(CliError::Usage(format!(
                "{shown}: `{name}` has a meaning of its own; name the entry otherwise"
            )));
        }
        if table.is_empty() {
            return Err(CliError::Usage(format!("{shown}: there is no policy in it")));
        }
        let of_file = configure(&registry, &table).map_err(|error| CliError::Usage(format!("{shown}: {error}")))?;
        Ok(Self { registry, of_file })
    }

    /// What `--policy` names: without names the policies of the file, or else `default`. `default` is every native
    /// policy and control, `all` adds the ports and the file.
    pub(crate) fn choose(&self, names: &[String]) -> Result<Vec<Choice>, CliError> {
        let mut chosen: Vec<Choice> = Vec::new();
        let mut add = |choice: Choice| {
            if chosen.iter().all(|other| other.name() != choice.name()) {
                chosen.push(choice);
            }
        };
        if names.is_empty() && !self.of_file.is_empty() {
            self.of_file.iter().cloned().map(Choice::Policy).for_each(&mut add);
        }
        let default = ["default".to_owned()];
        let names = if names.is_empty() && self.of_file.is_empty() { &default } else { names };
        for name in names {
            if name == "default" || name == "all" {
                let is_wanted = |info: &&PolicyInfo| name == "all" || info.kind == PolicyKind::Native;
                for info in self.registry.iter().filter(is_wanted) {
                    add(Choice::Policy(self.policy(info.name)?));
                }
                Control::ALL.into_iter().map(Choice::Control).for_each(&mut add);
                self.of_file.iter().filter(|_| name == "all").cloned().map(Choice::Policy).for_each(&mut add);
            } else if let Some(control) = Control::named(name) {
                add(Choice::Control(control));
            } else {
                add(Choice::Policy(self.policy(name)?));
            }
        }
        Ok(chosen)
    }

    /// A policy of the file, or of the registry with its defaults.
    pub(crate) fn policy(&self, name: &str) -> Result<Arc<dyn Policy>, CliError> {
        if let Some(policy) = self.of_file.iter().find(|policy| policy.name() == name) {
            return Ok(Arc::clone(policy));
        }
        match self.registry.iter().find(|info| info.name == name) {
            Some(info) => Ok(info.build(&Map::new()).map_err(|error| CliError::Usage(error.to_string()))?.into()),
            None => Err(self.unknown(name)),
        }
    }

    /// The entry of the registry.
    pub(crate) fn info(&self, name: &str) -> Result<&PolicyInfo, CliError> {
        self.registry.iter().find(|info| info.name == name).ok_or_else(|| self.unknown(name))
    }

    pub(crate) fn registry(&self) -> &[PolicyInfo] {
        &self.registry
    }

    fn unknown(&self, name: &str) -> CliError {
        if Control::named(name).is_some() {
            return CliError::Usage(format!("`{name}` is a control; a policy is wanted here"));
        }
        let of_file = self.of_file.iter().map(|policy| policy.name());
        let controls = Control::ALL.iter().map(|control| control.name());
        let registry = self.registry.iter().map(|info| -> &str { info.name });
        let known = registry.chain(of_file).chain(controls);
        let shown: String = name.chars().take(60).collect();
        CliError::Usage(match nearest(name, known) {
            Some(nearest) => {
                format!("unknown policy {shown:?}; did you mean `{nearest}`? (`condenser policies` lists them)")
            }
            None => format!("unknown policy {shown:?}; `condenser policies` lists them"),
        })
    }
}
