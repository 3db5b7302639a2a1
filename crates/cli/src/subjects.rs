//! What is compared: policies and controls by name, and the settings of a run.

use condenser::profile::ModelProfile;
use condenser::{Policy, Rules, TokenCounter, Tokens};
use condenser_harness::{ForgetAll, Prepared, RandomForgetting, RandomMasking, Replay, Seen, Settings};
use condenser_policies::{Extractive, PolicyKind};

use crate::error::CliError;

/// How a replay is measured.
#[derive(clap::Args, Debug)]
pub(crate) struct MeasureArguments {
    /// Room kept for the answer; half the window at most.
    #[arg(long, value_name = "TOKENS", default_value = "4k", value_parser = parse_tokens)]
    pub(crate) reserve: Tokens,
    /// What counts tokens: o200k, cl100k, chars/4 or bytes/4.
    #[arg(long, value_name = "NAME", default_value = "o200k")]
    pub(crate) tokenizer: String,
    /// Prices and cache rules.
    #[arg(long, value_name = "NAME", default_value = "reference")]
    pub(crate) profile: String,
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
    pub(crate) counter: &'static dyn TokenCounter,
    pub(crate) profile: ModelProfile,
    pub(crate) summarizer: Extractive,
    pub(crate) rules: Rules,
    reserve: Tokens,
    recall: bool,
}

impl MeasureArguments {
    pub(crate) fn resolve(&self) -> Result<Measure, CliError> {
        let usage = |error: &dyn std::error::Error| CliError::Usage(error.to_string());
        Ok(Measure {
            counter: condenser_models::tokenizer(&self.tokenizer).map_err(|error| usage(&error))?,
            profile: condenser_models::profile(&self.profile).map_err(|error| usage(&error))?,
            summarizer: Extractive::default(),
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
    pub(crate) fn settings(&self, window: Tokens, seed: u64) -> Settings<'_> {
        Settings {
            window: Some(window),
            reserve: self.reserve,
            profile: &self.profile,
            summarizer: &self.summarizer,
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

/// A control, or a policy by its registered name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// A policy of the registry.
    Policy(&'static str),
    /// Forgets all it may.
    ForgetAll,
    /// Masks at random, as much as another policy removes.
    RandomMasking,
    /// Forgets at random, as much as another policy removes.
    RandomForgetting,
    /// Applies the condensations that the trace recorded.
    Recorded,
}

/// A control's name, what it is, and its choice.
pub(crate) const CONTROLS: [(&str, &str, Choice); 4] = [
    (
        "random-masking",
        "masks random tool results, as much as observation-masking or --match removes",
        Choice::RandomMasking,
    ),
    (
        "random-forgetting",
        "forgets random events, as much as recent-events or --match removes",
        Choice::RandomForgetting,
    ),
    ("forget-all", "forgets everything but prompts, the first user message and the newest step", Choice::ForgetAll),
    ("recorded", "applies the condensations that the trace itself recorded", Choice::Recorded),
];

/// Finds what `--policy` names. `default` is every native policy and control, `all` adds the ports.
pub(crate) fn choose(names: &[String]) -> Result<Vec<Choice>, CliError> {
    let registry = condenser_policies::policies();
    let mut chosen: Vec<Choice> = Vec::new();
    let mut add = |choice| {
        if !chosen.contains(&choice) {
            chosen.push(choice);
        }
    };
    for name in names {
        if name == "default" || name == "all" {
            let wanted = |kind| name == "all" || kind == PolicyKind::Native;
            registry.iter().filter(|info| wanted(info.kind)).for_each(|info| add(Choice::Policy(info.name)));
            CONTROLS.iter().for_each(|(_, _, choice)| add(*choice));
        } else if let Some((_, _, choice)) = CONTROLS.iter().find(|(control, _, _)| control == name) {
            add(*choice);
        } else if let Some(info) = registry.iter().find(|info| info.name == name) {
            add(Choice::Policy(info.name));
        } else {
            return Err(unknown_policy(name));
        }
    }
    Ok(chosen)
}

fn unknown_policy(name: &str) -> CliError {
    if CONTROLS.iter().any(|(control, _, _)| *control == name) {
        return CliError::Usage(format!("`{name}` is a control; --match takes a policy"));
    }
    let registry = condenser_policies::policies();
    let known: Vec<&str> =
        registry.iter().map(|info| info.name).chain(CONTROLS.iter().map(|(control, _, _)| *control)).collect();
    let similar = |known: &&str| strsim::jaro_winkler(name, known);
    let nearest = known.iter().max_by(|a, b| similar(a).total_cmp(&similar(b))).filter(|known| similar(known) > 0.7);
    let shown: String = name.chars().take(60).collect();
    CliError::Usage(match nearest {
        Some(nearest) => {
            format!("unknown policy {shown:?}; did you mean `{nearest}`? (`condenser policies` lists them)")
        }
        None => format!("unknown policy {shown:?}; `condenser policies` lists them"),
    })
}

/// A policy of the registry, with its defaults.
pub(crate) fn build(name: &str) -> Result<Box<dyn Policy>, CliError> {
    condenser_policies::by_name(name).map_err(|_| unknown_policy(name))
}

/// Replays a trace under a choice. `matched` names what random controls match, where not their default.
pub(crate) fn replay(
    prepared: &Prepared<'_>,
    choice: Choice,
    settings: &Settings<'_>,
    matched: Option<&str>,
    observe: &mut dyn FnMut(&Seen<'_>),
) -> Result<Replay, CliError> {
    let other = |default: &str| -> Result<Replay, CliError> {
        Ok(condenser_harness::run(prepared, &*build(matched.unwrap_or(default))?, settings))
    };
    let policy: Box<dyn Policy> = match choice {
        Choice::Recorded => return Ok(condenser_harness::run_recorded(prepared, settings, observe)),
        Choice::Policy(name) => build(name)?,
        Choice::ForgetAll => Box::new(ForgetAll),
        Choice::RandomMasking => {
            Box::new(RandomMasking::matching(prepared, &other("observation-masking")?, settings.seed))
        }
        Choice::RandomForgetting => {
            Box::new(RandomForgetting::matching(prepared, &other("recent-events")?, settings.seed))
        }
    };
    Ok(condenser_harness::run_observed(prepared, &*policy, settings, observe))
}
