//! What there is, by name.

use condenser::Policy;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::folding::{Folding, FoldingSettings};
use crate::masking::{MaskingSettings, ObservationMasking};
use crate::none::NoPolicy;
use crate::recent::{RecentEvents, RecentSettings};
use crate::summarizing::{LlmSummarizing, SummarizingSettings};

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
}

/// Makes a policy from a name and settings by name; what is not named keeps its default.
type Build = fn(&str, &Map<String, Value>) -> Result<Box<dyn Policy>, BadSetting>;

/// A policy as lists show it. Other crates make their own and put them beside [`policies`].
#[derive(Clone, Debug, Serialize)]
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
    build: Build,
}

impl PolicyInfo {
    /// An entry for a list. `settings` gives unit and description by name, in order; the defaults are those of `S`.
    pub fn new<S: Default + Serialize>(
        name: &'static str,
        kind: PolicyKind,
        description: &'static str,
        settings: &[(&'static str, &'static str, &'static str)],
        build: Build,
    ) -> Self {
        let defaults = serde_json::to_value(S::default()).unwrap_or_default();
        let setting = |&(name, unit, description): &(&str, &'static str, &'static str)| Setting {
            name: name.to_owned(),
            default: defaults[name].clone(),
            unit,
            description,
        };
        Self { name, description, kind, settings: settings.iter().map(setting).collect(), build }
    }

    /// The policy with these settings; what is not named keeps its default.
    ///
    /// # Errors
    /// [`BadSetting`] for an unknown name or a value of the wrong type.
    pub fn build(&self, settings: &Map<String, Value>) -> Result<Box<dyn Policy>, BadSetting> {
        (self.build)(self.name, settings)
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

/// Reads settings by name into a struct whose missing fields have defaults.
///
/// # Errors
/// [`BadSetting`] for an unknown name or a value of the wrong type.
pub fn read_settings<S: DeserializeOwned>(policy: &str, settings: &Map<String, Value>) -> Result<S, BadSetting> {
    serde_json::from_value(Value::Object(settings.clone()))
        .map_err(|error| BadSetting { policy: policy.to_owned(), problem: error.to_string() })
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
    list.iter().find(|info| info.name == name).ok_or_else(|| {
        let wanted: String = name.to_lowercase().replace('_', "-").chars().take(60).collect();
        let likeness = |info: &PolicyInfo| strsim::jaro_winkler(&wanted, info.name);
        let nearest = list.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
        let nearest = nearest.filter(|info| likeness(info) > 0.7).map(|info| info.name);
        UnknownPolicy { name: name.to_owned(), nearest }
    })
}

/// A native policy with its defaults.
///
/// # Errors
/// [`UnknownPolicy`], with the nearest name.
pub fn by_name(name: &str) -> Result<Box<dyn Policy>, UnknownPolicy> {
    let list = policies();
    let info = find(&list, name)?;
    info.build(&Map::new()).map_err(|_| UnknownPolicy { name: name.to_owned(), nearest: None })
}

/// The native policies, simplest first.
pub fn policies() -> Vec<PolicyInfo> {
    use PolicyKind::Native;
    vec![
        PolicyInfo::new::<()>("none", Native, "never acts", &[], |name, settings| {
            read_settings::<NoSettings>(name, settings)?;
            Ok(Box::new(NoPolicy))
        }),
        PolicyInfo::new::<RecentSettings>(
            "recent-events",
            Native,
            "keeps the first and the newest events, without a summary",
            &[
                ("keep_first", "events", "the first events that stay"),
                ("max_events", "events", "the most events of a view"),
                ("target_share", "share of the limit", "what a request that is too large is brought down to"),
                ("max_addresses", "addresses", "the most addresses in the line that stands for what left"),
            ],
            |name, settings| Ok(Box::new(RecentEvents::new(read_settings(name, settings)?))),
        ),
        PolicyInfo::new::<MaskingSettings>(
            "observation-masking",
            Native,
            "replaces old tool results by placeholders, at any size",
            &[
                ("attention_window", "results", "the newest results that stay as they are"),
                ("polling", "results", "the edge moves every so many results"),
                ("minimum_tokens", "tokens", "a smaller request is left alone; 0 is off"),
                ("minimum_share", "share of the limit", "a smaller request is left alone; 0 is off"),
                ("minimum_saving", "tokens", "nothing is masked for a smaller gain; 0 is off"),
            ],
            |name, settings| Ok(Box::new(ObservationMasking::new(read_settings(name, settings)?))),
        ),
        PolicyInfo::new::<FoldingSettings>(
            "folding",
            Native,
            "folds finished work into files, commands, errors and the user's words, without a model",
            &[
                ("max_events", "events", "a longer view is folded"),
                ("keep_first", "events", "the first events that stay"),
                ("keep_last", "events", "the newest events that stay"),
                ("target_share", "share of the limit", "what a request that is too large is brought down to"),
                ("max_responses", "responses", "the most responses of one stretch"),
                ("max_tokens", "tokens", "the most of the fold, and never more than an eighth of the limit"),
                ("user_characters", "characters", "the most of one user message in the fold"),
                ("minimum_progress", "share of the request", "nothing is folded for less, unless it must be"),
            ],
            |name, settings| Ok(Box::new(Folding::new(read_settings(name, settings)?))),
        ),
        PolicyInfo::new::<SummarizingSettings>(
            "llm-summarizing",
            Native,
            "replaces the middle by a summary, as OpenHands does, with its defects mended",
            &[
                ("max_events", "events", "a longer view is condensed"),
                ("max_tokens", "tokens", "a larger request is condensed; null is the budget's trigger alone"),
                ("keep_first", "events", "the first events that stay"),
                ("minimum_progress", "share of the events", "nothing is condensed for less, unless it must be"),
                ("hard_reset_retries", "calls", "the most calls for a hard reset"),
                ("hard_reset_scaling", "factor", "what each failed call leaves of the longest event"),
                ("event_characters", "characters", "the most of one event that the summarizer is shown"),
                ("input_tokens", "tokens", "the most that the summarizer is shown; null is the budget's limit"),
                ("summary_tokens", "tokens", "the most of the summary, and never more than an eighth of the limit"),
            ],
            |name, settings| Ok(Box::new(LlmSummarizing::new(read_settings(name, settings)?))),
        ),
    ]
}

/// Takes no setting at all.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct NoSettings {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_built_by_its_name_and_lists_all_its_settings() {
        for info in policies() {
            assert_eq!(by_name(info.name).unwrap().name(), info.name);
            let named: Map<String, Value> =
                info.settings.iter().map(|setting| (setting.name.clone(), setting.default.clone())).collect();
            assert!(info.build(&named).is_ok(), "{}", info.name);
        }
        fn names<S: Default + Serialize>() -> Vec<String> {
            serde_json::to_value(S::default()).unwrap().as_object().unwrap().keys().cloned().collect()
        }
        let listed = |name| -> Vec<String> {
            let list = policies();
            find(&list, name).unwrap().settings.iter().map(|setting| setting.name.clone()).collect()
        };
        let sorted = |mut names: Vec<String>| {
            names.sort();
            names
        };
        assert_eq!(sorted(listed("recent-events")), sorted(names::<RecentSettings>()));
        assert_eq!(sorted(listed("observation-masking")), sorted(names::<MaskingSettings>()));
        assert_eq!(sorted(listed("folding")), sorted(names::<FoldingSettings>()));
        assert_eq!(sorted(listed("llm-summarizing")), sorted(names::<SummarizingSettings>()));
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
        let build = |settings: Value| {
            find(&list, "folding").unwrap().build(settings.as_object().unwrap()).err().unwrap().to_string()
        };
        let message = build(serde_json::json!({"keep_frist": 1}));
        assert!(message.starts_with("settings of policy `folding`: unknown field `keep_frist`"), "{message}");
        assert!(build(serde_json::json!({"keep_first": "x"})).contains("expected usize"));
    }
}
