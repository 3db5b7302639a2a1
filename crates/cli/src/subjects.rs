//! What is compared: policies and controls by name, and the settings of a run.

use std::path::Path;
use std::sync::Arc;

use condenser::{Policy, Rules, Tokens};
use condenser_harness::{ForgetAll, Prepared, RandomForgetting, RandomMasking, Replay, Seen, Settings};
use condenser_policies::{ObservationMasking, PolicyInfo, PolicyKind, RecentEvents, configure, nearest};
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

/// A control, or a policy.
#[derive(Clone)]
pub(crate) enum Choice {
    /// A policy of the registry or of a file.
    Policy(Arc<dyn Policy>),
    /// Forgets all it may.
    ForgetAll,
    /// Masks at random, as much as another policy removes.
    RandomMasking,
    /// Forgets at random, as much as another policy removes.
    RandomForgetting,
    /// Knows what comes next, at the sizes of another policy.
    Oracle,
    /// Applies the condensations that the trace recorded.
    Recorded,
}

impl Choice {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Policy(policy) => policy.name(),
            control => control.control_name(),
        }
    }

    /// The name of a control; empty for a policy.
    pub(crate) fn control_name(&self) -> &'static str {
        match self {
            Self::Policy(_) => "",
            Self::ForgetAll => "forget-all",
            Self::RandomMasking => "random-masking",
            Self::RandomForgetting => "random-forgetting",
            Self::Oracle => "oracle",
            Self::Recorded => "recorded",
        }
    }

    /// The policy whose sizes a control has, where no other is named.
    pub(crate) fn default_match(&self) -> Option<&'static str> {
        match self {
            Self::RandomMasking => Some("observation-masking"),
            Self::RandomForgetting | Self::Oracle => Some("recent-events"),
            _ => None,
        }
    }

    /// The digest of the settings.
    pub(crate) fn config_digest(&self) -> Option<String> {
        match self {
            Self::Policy(policy) => policy.config_digest(),
            _ => None,
        }
    }

    /// Whether a run of it depends on the seed.
    pub(crate) fn draws(&self) -> bool {
        matches!(self, Self::RandomMasking | Self::RandomForgetting)
    }
}

/// A control's choice, and what it is.
pub(crate) const CONTROLS: [(Choice, &str); 5] = [
    (Choice::RandomMasking, "masks random tool results, as much as observation-masking or --match removes"),
    (Choice::RandomForgetting, "forgets random events, as much as recent-events or --match removes"),
    (Choice::ForgetAll, "forgets everything but prompts, the first user message and the newest step"),
    (Choice::Oracle, "keeps the lines that the next action uses, at the sizes of recent-events or --match"),
    (Choice::Recorded, "applies the condensations that the trace itself recorded"),
];

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
        let reserved = |name: &&String| name_of_control(name) || ["default", "all"].contains(&name.as_str());
        if let Some(name) = table.keys().find(reserved) {
            return Err(CliError::Usage(format!(
                "{shown}: `{name}` has a meaning of its own; name the entry otherwise"
            )));
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
                CONTROLS.iter().for_each(|(choice, _)| add(choice.clone()));
                self.of_file.iter().filter(|_| name == "all").cloned().map(Choice::Policy).for_each(&mut add);
            } else if let Some((choice, _)) = CONTROLS.iter().find(|(choice, _)| choice.name() == name) {
                add(choice.clone());
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
        if name_of_control(name) {
            return CliError::Usage(format!("`{name}` is a control; a policy is wanted here"));
        }
        let of_file = self.of_file.iter().map(|policy| policy.name());
        let controls = CONTROLS.iter().map(|(choice, _)| choice.name());
        let known = self.registry.iter().map(|info| info.name).chain(of_file).chain(controls);
        let shown: String = name.chars().take(60).collect();
        CliError::Usage(match nearest(name, known) {
            Some(nearest) => {
                format!("unknown policy {shown:?}; did you mean `{nearest}`? (`condenser policies` lists them)")
            }
            None => format!("unknown policy {shown:?}; `condenser policies` lists them"),
        })
    }
}

fn name_of_control(name: &str) -> bool {
    CONTROLS.iter().any(|(choice, _)| choice.name() == name)
}

/// Replays a trace under a choice. `matched` is what random controls match, where not their default.
pub(crate) fn replay(
    prepared: &Prepared<'_>,
    choice: &Choice,
    settings: &Settings<'_>,
    matched: Option<&dyn Policy>,
    observe: Option<&mut dyn FnMut(&Seen<'_>)>,
) -> Replay {
    let other = |default: &dyn Policy| condenser_harness::run(prepared, matched.unwrap_or(default), settings);
    let seed = settings.seed;
    let policy: &dyn Policy = match choice {
        Choice::Recorded => {
            return match observe {
                Some(observe) => condenser_harness::run_recorded_observed(prepared, settings, observe),
                None => condenser_harness::run_recorded(prepared, settings),
            };
        }
        Choice::Oracle => {
            let matched = other(&RecentEvents::default());
            return match observe {
                Some(observe) => condenser_harness::run_oracle_observed(prepared, &matched, settings, observe),
                None => condenser_harness::run_oracle(prepared, &matched, settings),
            };
        }
        Choice::Policy(policy) => &**policy,
        Choice::ForgetAll => &ForgetAll,
        Choice::RandomMasking => &RandomMasking::matching(prepared, &other(&ObservationMasking::default()), seed),
        Choice::RandomForgetting => &RandomForgetting::matching(prepared, &other(&RecentEvents::default()), seed),
    };
    match observe {
        Some(observe) => condenser_harness::run_observed(prepared, policy, settings, observe),
        None => condenser_harness::run(prepared, policy, settings),
    }
}
