//! What there is, by name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use condenser::condenser::digest;
use condenser::{Failure, NoPlan, Plan, Policy, Requirement, State};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::amortized::{AmortizedForgetting, AmortizedSettings};
use crate::condenser_default::{CondenserDefault, DefaultSettings};
use crate::craft::{Craft, CraftSettings};
use crate::folding::{Folding, FoldingSettings};
use crate::hybrid::{Hybrid, HybridSettings};
use crate::masking::{MaskingSettings, ObservationMasking};
use crate::none::NoPolicy;
use crate::recent::{RecentEvents, RecentSettings};
use crate::summarizing::{LlmSummarizing, SummarizingSettings};
use crate::window::{ConversationWindow, WindowSettings};
use crate::{
    adk, anthropic, cline, codex, complexity_trap, deepagents, freecode, opencode, openhands, openhands_v0, pi,
    powercode, swe_agent,
};

/// Where a policy comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PolicyKind {
    /// Made for condenser.
    Native,
    /// A yardstick for others.
    Control,
    /// Another system's policy.
    Port,
}

/// One setting of a policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// The name, as in the settings struct.
    pub name: String,
    /// The default; `null` is off.
    pub default: Value,
    /// What it counts.
    pub unit: &'static str,
    /// What it does.
    pub description: &'static str,
    /// Where the default was read, or who chose it.
    pub source: &'static str,
}

/// What a list says about a setting: its name, its unit, what it does, and where its default comes from.
pub type SettingText = (&'static str, &'static str, &'static str, &'static str);

/// The source of defaults that were chosen here.
pub const OWN: &str = "condenser";

/// Makes a policy of the name and the settings, or says what is wrong with them.
pub type Make<S> = fn(&'static str, S) -> Result<Box<dyn Policy>, String>;

type Build = dyn Fn(Map<String, Value>) -> Result<Box<dyn Policy>, BadSetting> + Send + Sync;

/// A policy as lists show it. Other crates make their own and put them beside [`policies`].
#[derive(Clone, Serialize)]
#[non_exhaustive]
pub struct PolicyInfo {
    /// The stable name.
    pub name: &'static str,
    /// What it does, in a line.
    pub description: &'static str,
    /// Where it comes from.
    pub kind: PolicyKind,
    /// What can be set.
    pub settings: Vec<Setting>,
    #[serde(skip)]
    build: Arc<Build>,
}

impl fmt::Debug for PolicyInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyInfo").field("name", &self.name).field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl PolicyInfo {
    /// An entry for a list. `texts` speaks of each field of `defaults`, in the order that lists show.
    ///
    /// Two entries with one settings type and other defaults are presets of one policy. `build` is given the name, and
    /// says what is wrong with values that are out of bounds.
    pub fn new<S: Serialize + DeserializeOwned + 'static>(
        name: &'static str,
        kind: PolicyKind,
        description: &'static str,
        defaults: &S,
        texts: &[SettingText],
        build: Make<S>,
    ) -> Self {
        let defaults = match serde_json::to_value(defaults) {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
        };
        // A field that no text speaks of is listed too, so that the lack of a text is seen.
        let missing = defaults.keys().filter(|name| texts.iter().all(|(text, ..)| text != name));
        let missing: Vec<(String, [&'static str; 3])> = missing.map(|name| (name.clone(), [""; 3])).collect();
        let settings: Vec<Setting> = texts
            .iter()
            .map(|&(setting, unit, description, source)| (setting.to_owned(), [unit, description, source]))
            .chain(missing)
            .map(|(name, [unit, description, source])| Setting {
                default: defaults.get(&name).cloned().unwrap_or_default(),
                name,
                unit,
                description,
                source,
            })
            .collect();
        let names: Vec<String> = settings.iter().map(|setting| setting.name.clone()).collect();
        let build =
            move |given| build(name, read(name, &names, &defaults, given)?).map_err(|problem| bad(name, problem));
        Self { name, description, kind, settings, build: Arc::new(build) }
    }

    /// The policy with these settings; what is not named keeps its default.
    ///
    /// # Errors
    /// [`BadSetting`] for an unknown name, and for a value of the wrong type or out of bounds.
    pub fn build(&self, settings: &Map<String, Value>) -> Result<Box<dyn Policy>, BadSetting> {
        let policy = (self.build)(settings.clone())?;
        let defaults = self.settings.iter().map(|setting| (setting.name.as_str(), &setting.default));
        let all: BTreeMap<&str, &Value> =
            defaults.chain(settings.iter().map(|(name, value)| (name.as_str(), value))).collect();
        let parts = all.into_iter().flat_map(|(name, value)| [name.to_owned(), value.to_string()]);
        let digest = digest([self.name.to_owned()].into_iter().chain(parts));
        Ok(Box::new(Configured { policy, digest }))
    }
}

/// A policy that knows its settings.
struct Configured {
    policy: Box<dyn Policy>,
    digest: String,
}

impl Policy for Configured {
    fn name(&self) -> &str {
        self.policy.name()
    }

    fn requirement(&self, state: &State<'_>) -> Requirement {
        self.policy.requirement(state)
    }

    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        self.policy.plan(state, tried)
    }

    fn config_digest(&self) -> Option<String> {
        Some(self.digest.clone())
    }

    fn is_port(&self) -> bool {
        self.policy.is_port()
    }
}

/// A setting that a policy does not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("settings of policy `{policy}`: {problem}")]
pub struct BadSetting {
    /// The policy.
    pub policy: String,
    /// What is wrong, and what is expected instead.
    pub problem: String,
}

fn bad(policy: &str, problem: impl Into<String>) -> BadSetting {
    BadSetting { policy: policy.to_owned(), problem: problem.into() }
}

/// Characters of a message about a value.
const SHOWN: usize = 300;

/// Reads settings over their defaults.
fn read<S: DeserializeOwned>(
    policy: &str,
    names: &[String],
    defaults: &Map<String, Value>,
    given: Map<String, Value>,
) -> Result<S, BadSetting> {
    let with = |changes: Map<String, Value>| {
        let mut all = defaults.clone();
        all.extend(changes);
        serde_json::from_value::<S>(Value::Object(all))
    };
    for (name, value) in &given {
        if !names.contains(name) {
            let nearest = match nearest(name, names.iter().map(String::as_str)) {
                Some(nearest) => format!("; did you mean `{nearest}`?"),
                None => String::new(),
            };
            let known =
                if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) };
            return Err(bad(policy, format!("there is no setting {:?}{nearest} ({known})", start(name, 60))));
        }
        if let Err(error) = with(Map::from_iter([(name.clone(), value.clone())])) {
            return Err(bad(policy, format!("`{name}`: {}", start(&error.to_string(), SHOWN))));
        }
    }
    with(given).map_err(|error| bad(policy, start(&error.to_string(), SHOWN)))
}

fn start(text: &str, length: usize) -> String {
    text.chars().take(length).collect()
}

/// The most similar of some names, if any is similar.
pub fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let wanted = start(&name.to_lowercase().replace('_', "-"), 60);
    let likeness = |known: &str| strsim::jaro_winkler(&wanted, &known.replace('_', "-"));
    names
        .map(|known| (likeness(known), known))
        .filter(|(likeness, _)| *likeness > 0.7)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known)
}

/// A name that no policy of a list has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct UnknownPolicy {
    /// The name.
    pub name: String,
    /// The most similar name there is, if any is similar.
    pub nearest: Option<&'static str>,
}

impl std::fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name: String = self.name.chars().take(60).collect();
        write!(f, "unknown policy {name:?}")?;
        match self.nearest {
            Some(nearest) => write!(f, "; did you mean `{nearest}`?"),
            None => Ok(()),
        }
    }
}

/// Finds a policy in a list by its exact name.
///
/// # Errors
/// [`UnknownPolicy`], with the nearest name.
pub fn find<'l>(list: &'l [PolicyInfo], name: &str) -> Result<&'l PolicyInfo, UnknownPolicy> {
    list.iter().find(|info| info.name == name).ok_or_else(|| UnknownPolicy {
        name: name.to_owned(),
        nearest: nearest(name, list.iter().map(|info| info.name)),
    })
}

/// A policy with its defaults.
///
/// # Errors
/// [`UnknownPolicy`], with the nearest name.
pub fn by_name(name: &str) -> Result<Box<dyn Policy>, UnknownPolicy> {
    let list = policies();
    let info = find(&list, name)?;
    info.build(&Map::new()).map_err(|_| UnknownPolicy { name: name.to_owned(), nearest: None })
}

/// All policies: the native ones, simplest first, then the ports by system.
pub fn policies() -> Vec<PolicyInfo> {
    let mut all = native();
    all.extend(openhands::policies());
    all.extend(openhands_v0::policies());
    all.extend(swe_agent::policies());
    all.extend(pi::policies());
    all.extend(powercode::policies());
    all.extend(freecode::policies());
    all.extend(deepagents::policies());
    all.extend(cline::policies());
    all.extend(opencode::policies());
    all.extend(codex::policies());
    all.extend(anthropic::policies());
    all.extend(adk::policies());
    all.extend(complexity_trap::policies());
    all
}

fn native() -> Vec<PolicyInfo> {
    use PolicyKind::Native;
    vec![
        PolicyInfo::new("none", Native, "never acts", &NoSettings {}, &[], |_, _| Ok(Box::new(NoPolicy))),
        PolicyInfo::new(
            "condenser-default",
            Native,
            "forgets the middle at once, but for the user's words; the one to begin with",
            &DefaultSettings::default(),
            &[
                ("keep_first", "events", "the first events that stay", OWN),
                ("target_share", "share of the limit", "what a request that is too large is brought down to", OWN),
                ("user_share", "share of the limit", "how much later messages of the user may fill", OWN),
                ("max_addresses", "addresses", "the most addresses in the line that stands for what left", OWN),
            ],
            |_, settings| Ok(Box::new(CondenserDefault::new(settings))),
        ),
        PolicyInfo::new(
            "recent-events",
            Native,
            "keeps the first and the newest events, without a summary",
            &RecentSettings::default(),
            &[
                ("keep_first", "events", "the first events that stay", "OpenHands 0.x, configuration"),
                ("max_events", "events", "the most events of a view", "OpenHands 0.x, configuration"),
                ("target_share", "share of the limit", "what a request that is too large is brought down to", OWN),
                ("max_addresses", "addresses", "the most addresses in the line that stands for what left", OWN),
            ],
            |_, settings| Ok(Box::new(RecentEvents::new(settings))),
        ),
        PolicyInfo::new(
            "amortized-forgetting",
            Native,
            "forgets the middle, half of the most at once, without a summary",
            &AmortizedSettings::default(),
            &[
                ("keep_first", "events", "the first events that stay", "OpenHands 0.x, configuration"),
                (
                    "max_events",
                    "events",
                    "a longer view is brought down to half of this",
                    "OpenHands 0.x, configuration",
                ),
                ("target_share", "share of the limit", "what a request that is too large is brought down to", OWN),
                ("max_addresses", "addresses", "the most addresses in the line that stands for what left", OWN),
            ],
            |_, settings| Ok(Box::new(AmortizedForgetting::new(settings))),
        ),
        PolicyInfo::new(
            "conversation-window",
            Native,
            "forgets the older half but prompts and task, when asked or when the request grows too large",
            &WindowSettings::default(),
            &[
                ("keep_share", "share of the events", "the newest part that stays", "OpenHands 0.x, class"),
                ("max_addresses", "addresses", "the most addresses in the line that stands for what left", OWN),
            ],
            |_, settings| Ok(Box::new(ConversationWindow::new(settings))),
        ),
        PolicyInfo::new(
            "observation-masking",
            Native,
            "replaces old tool results by placeholders, at any size",
            &MaskingSettings::default(),
            &[
                ("attention_window", "results", "the newest results that stay as they are", "arXiv 2508.21433"),
                ("polling", "results", "the edge moves every so many results", "SWE-agent 3ea751c0"),
                ("minimum_tokens", "tokens", "a smaller request is left alone; 0 is off", OWN),
                ("minimum_share", "share of the limit", "a smaller request is left alone; 0 is off", OWN),
                ("minimum_saving", "tokens", "nothing is masked for a smaller gain; 0 is off", OWN),
            ],
            |_, settings| Ok(Box::new(ObservationMasking::new(settings))),
        ),
        PolicyInfo::new(
            "folding",
            Native,
            "folds finished work into files, commands, errors and the user's words, without a model",
            &FoldingSettings::default(),
            &[
                ("max_events", "events", "a longer view is folded", "OpenHands SDK 1.58.2"),
                ("keep_first", "events", "the first events that stay", "OpenHands SDK 1.58.2"),
                ("keep_last", "events", "the newest events that stay", OWN),
                ("target_share", "share of the limit", "what a request that is too large is brought down to", OWN),
                ("max_responses", "responses", "the most responses of one stretch", OWN),
                ("max_tokens", "tokens", "the most of the fold, and never more than an eighth of the limit", OWN),
                ("user_characters", "characters", "the most of one user message in the fold", OWN),
                (
                    "minimum_progress",
                    "share of the request",
                    "nothing is folded for less, unless it must be",
                    "OpenHands SDK 1.58.2",
                ),
            ],
            |_, settings| Ok(Box::new(Folding::new(settings))),
        ),
        PolicyInfo::new(
            "llm-summarizing",
            Native,
            "replaces the middle by a summary, as OpenHands does, with its defects mended",
            &SummarizingSettings::default(),
            &[
                ("max_events", "events", "a longer view is condensed", "OpenHands SDK 1.58.2"),
                (
                    "max_tokens",
                    "tokens",
                    "a larger request is condensed; null is the budget's trigger alone",
                    "OpenHands SDK 1.58.2",
                ),
                ("keep_first", "events", "the first events that stay", "OpenHands SDK 1.58.2"),
                (
                    "minimum_progress",
                    "share of the events",
                    "nothing is condensed for less, unless it must be",
                    "OpenHands SDK 1.58.2",
                ),
                ("hard_reset_retries", "calls", "the most calls for a hard reset", "OpenHands SDK 1.58.2"),
                (
                    "hard_reset_scaling",
                    "factor",
                    "what each failed call leaves of the longest event",
                    "OpenHands SDK 1.58.2",
                ),
                (
                    "event_characters",
                    "characters",
                    "the most of one event that the summarizer is shown",
                    "OpenHands 0.x, configuration",
                ),
                ("carry", "tools", "those whose newest call is carried over word for word", OWN),
                ("input_tokens", "tokens", "the most that the summarizer is shown; null is the budget's limit", OWN),
                (
                    "summary_tokens",
                    "tokens",
                    "the most of the summary, and never more than an eighth of the limit",
                    OWN,
                ),
                ("prompt", "text", "the summarizer's instructions; null is the prompt that comes with it", OWN),
            ],
            |_, settings| Ok(Box::new(LlmSummarizing::new(settings))),
        ),
        PolicyInfo::new(
            "craft",
            Native,
            "keeps the user's words and a ledger by rule, and the rest in a summary of six sections",
            &CraftSettings::default(),
            &[
                ("boundary_share", "share of the limit", "from which size on a boundary counts; 0 is off", OWN),
                ("boundary_progress", "share of the request", "nothing happens at a boundary for less", OWN),
                ("minimum_progress", "share of the request", "nothing happens for less, unless it must", OWN),
                ("keep_last", "events", "the newest events that stay", OWN),
                ("tail_share", "share of the limit", "the most that they may fill", OWN),
                ("target_share", "share of the limit", "what a request that is too large is brought down to", OWN),
                (
                    "pinned_share",
                    "share of the limit",
                    "the most that the user's words may fill, but for the task",
                    OWN,
                ),
                ("ledger_tokens", "tokens", "the most of the ledger, and never more than an eighth of the limit", OWN),
                (
                    "summary_tokens",
                    "tokens",
                    "the most of the summary, and never more than an eighth of the limit",
                    OWN,
                ),
                ("event_characters", "characters", "the most of one event that the summarizer is shown", OWN),
            ],
            |_, settings| Ok(Box::new(Craft::new(settings))),
        ),
        PolicyInfo::new(
            "hybrid",
            Native,
            "masks old tool results, and summarizes the middle only where that cannot reach the budget",
            &HybridSettings::default(),
            &[
                ("attention_window", "results", "the newest results that stay as they are", "arXiv 2508.21433"),
                ("polling", "results", "the edge moves every so many results", OWN),
                ("target_share", "share of the limit", "what masks have to reach; else a summary follows", OWN),
                (
                    "minimum_progress",
                    "share of the request",
                    "nothing is masked for less, unless a summary follows",
                    OWN,
                ),
                ("keep_first", "events", "the first events that stay in front of a summary", "OpenHands SDK 1.58.2"),
                (
                    "summary_tokens",
                    "tokens",
                    "the most of the summary, and never more than an eighth of the limit",
                    OWN,
                ),
                (
                    "event_characters",
                    "characters",
                    "the most of one event that the summarizer is shown",
                    "OpenHands 0.x, configuration",
                ),
            ],
            |_, settings| Ok(Box::new(Hybrid::new(settings))),
        ),
    ]
}

/// Takes no setting at all.
#[derive(Serialize, Deserialize)]
struct NoSettings {}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeSet;

    #[test]
    fn every_policy_is_built_by_its_name_and_says_all_of_each_setting() {
        let mut digests = BTreeSet::new();
        for info in policies() {
            assert_eq!(by_name(info.name).unwrap().name(), info.name);
            assert_eq!(policies().iter().filter(|other| other.name == info.name).count(), 1, "{}", info.name);
            let named: Map<String, Value> =
                info.settings.iter().map(|setting| (setting.name.clone(), setting.default.clone())).collect();
            let digest = info.build(&named).unwrap().config_digest();
            assert_eq!(digest, by_name(info.name).unwrap().config_digest(), "{}", info.name);
            assert!(digests.insert(digest), "{}", info.name);
            for Setting { name, unit, description, source, .. } in &info.settings {
                assert!([unit, description, source].iter().all(|text| !text.is_empty()), "{} {name}", info.name);
            }
        }
    }

    #[test]
    fn other_settings_have_another_digest() {
        let list = policies();
        let masking = find(&list, "observation-masking").unwrap();
        let with = |settings: Value| masking.build(settings.as_object().unwrap()).unwrap().config_digest();
        assert_ne!(with(json!({})), with(json!({"attention_window": 7})));
        assert_eq!(with(json!({"attention_window": 7})), with(json!({"attention_window": 7})));
    }

    #[test]
    fn an_unknown_name_suggests_the_nearest() {
        let error = by_name("observation_maskin").err().unwrap();
        assert_eq!(error.to_string(), "unknown policy \"observation_maskin\"; did you mean `observation-masking`?");
        assert_eq!(by_name("zzz").err().unwrap().nearest, None);
        assert_eq!(find(&[], "none").err().unwrap().nearest, None);
    }

    #[test]
    fn an_unknown_setting_or_a_wrong_type_is_named() {
        let list = policies();
        let build = |policy: &str, settings: Value| {
            find(&list, policy).unwrap().build(settings.as_object().unwrap()).err().unwrap().to_string()
        };
        assert_eq!(
            build("observation-masking", json!({"polling": 2, "atention_window": 1})),
            "settings of policy `observation-masking`: there is no setting \"atention_window\"; did you mean \
             `attention_window`? (it has attention_window, polling, minimum_tokens, minimum_share, minimum_saving)"
        );
        assert_eq!(
            build("none", json!({"x": 1})),
            "settings of policy `none`: there is no setting \"x\" (it has none)"
        );
        assert_eq!(
            build("folding", json!({"keep_first": "x"})),
            "settings of policy `folding`: `keep_first`: invalid type: string \"x\", expected usize"
        );
    }
}
