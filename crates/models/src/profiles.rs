//! Model profiles: a dated table, and what a user adds to it.

use std::sync::LazyLock;

use condenser::profile::{CacheRules, ModelProfile, Prices};
use condenser::tokens::Tokens;
use serde::Deserialize;

use crate::images::ImageRule;

const TABLE: &str = include_str!("../profiles.toml");

static BUILT_IN: LazyLock<Profiles> =
    LazyLock::new(|| Profiles { all: Vec::new() }.with_toml(TABLE).unwrap_or(Profiles { all: Vec::new() }));

/// No profile has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown profile {name:?};{} `condenser profiles` lists them", nearest.as_ref().map_or(String::new(), |name| format!(" did you mean `{name}`?")))]
pub struct UnknownProfile {
    /// The name that was asked for.
    pub name: String,
    /// The name it is nearest to, if any is near.
    pub nearest: Option<String>,
}

/// A table that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfilesError {
    /// It is no TOML, or holds fields that mean nothing here.
    #[error("{0}")]
    Toml(String),
    /// A number makes no sense.
    #[error("profile {name:?}: {reason}")]
    Value {
        /// The profile.
        name: String,
        /// What is wrong.
        reason: String,
    },
}

/// A model, and what [`ModelProfile`] has no place for. Unknown is `None`, never zero.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Window, limits, prices and cache rules.
    pub model: ModelProfile,
    /// When this was so: a year and a month.
    pub as_of: Option<String>,
    /// The beginnings of the names that the vendor's API has for the model.
    pub ids: Vec<String>,
    /// US dollars per million tokens written to a cache that lasts an hour, where there is such a tier.
    pub cache_write_1h: Option<f64>,
    /// How images are counted.
    pub images: Option<ImageRule>,
}

/// What a table says of one model; what it does not say stays as it was.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    as_of: Option<String>,
    ids: Option<Vec<String>>,
    context_window: Option<Tokens>,
    max_output: Option<Tokens>,
    tokenizer: Option<String>,
    prices: Option<EntryPrices>,
    cache: Option<EntryCache>,
    images: Option<ImageRule>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryPrices {
    input: f64,
    cache_read: f64,
    cache_write: f64,
    cache_write_1h: Option<f64>,
    output: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryCache {
    minimum: Tokens,
    block: Tokens,
    expiry_seconds: Option<u64>,
    charges_writes: bool,
}

impl Entry {
    fn check(&self) -> Result<(), String> {
        let prices = self.prices.iter().flat_map(|prices| {
            [prices.input, prices.cache_read, prices.cache_write, prices.output]
                .into_iter()
                .chain(prices.cache_write_1h)
        });
        if let Some(price) = prices.into_iter().find(|price| !(0.0..=1e6).contains(price)) {
            return Err(format!("{price} is no price in US dollars per million tokens"));
        }
        let numbers = [("context_window", self.context_window), ("max_output", self.max_output)];
        if let Some((name, _)) = numbers.iter().find(|(_, tokens)| *tokens == Some(Tokens::ZERO)) {
            return Err(format!("`{name}` is 0; leave it out where it is unknown"));
        }
        if self.cache.as_ref().is_some_and(|cache| cache.block == Tokens::ZERO) {
            return Err("`cache.block` is 0; it is 1 where any length is cached".to_owned());
        }
        Ok(())
    }
}

/// Where a text is no TOML, and why, without the excerpt that the error shows below.
fn in_one_line(error: &toml::de::Error) -> String {
    let text = error.to_string();
    format!("{}: {}", text.lines().next().unwrap_or_default(), error.message())
}

/// Profiles by name.
#[derive(Clone, Debug)]
pub struct Profiles {
    all: Vec<Profile>,
}

impl Profiles {
    /// The table that comes with this crate.
    pub fn built_in() -> &'static Self {
        &BUILT_IN
    }

    /// The same with a user's table over it: new names are added, known ones changed in the fields that are given.
    ///
    /// # Errors
    /// [`ProfilesError`], with the place.
    pub fn with_toml(mut self, text: &str) -> Result<Self, ProfilesError> {
        let table: toml::Table =
            toml::from_str(text).map_err(|error: toml::de::Error| ProfilesError::Toml(in_one_line(&error)))?;
        for (name, value) in table {
            let bad = |reason: String| ProfilesError::Value { name: name.clone(), reason };
            let entry: Entry = value.try_into().map_err(|error: toml::de::Error| bad(error.message().to_owned()))?;
            entry.check().map_err(bad)?;
            let at = self.all.iter().position(|profile| profile.model.name == name).unwrap_or_else(|| {
                self.all.push(Profile::unknown(&name));
                self.all.len() - 1
            });
            self.all[at].change(entry);
        }
        Ok(self)
    }

    /// All profiles, in the order of the table.
    pub fn iter(&self) -> impl Iterator<Item = &Profile> {
        self.all.iter()
    }

    /// The profile with this name, or else the one whose `ids` begin the name as the vendor's API has it (the longest
    /// wins; a prefix such as `anthropic/` is ignored).
    ///
    /// # Errors
    /// [`UnknownProfile`], with the nearest name.
    pub fn get(&self, name: &str) -> Result<&Profile, UnknownProfile> {
        if let Some(profile) = self.all.iter().find(|profile| profile.model.name == name) {
            return Ok(profile);
        }
        let id = name.rsplit('/').next().unwrap_or(name);
        let length =
            |profile: &Profile| profile.ids.iter().filter(|known| id.starts_with(*known)).map(String::len).max();
        let by_id = self.all.iter().filter_map(|profile| Some((length(profile)?, profile))).max_by_key(|(n, _)| *n);
        by_id.map(|(_, profile)| profile).ok_or_else(|| {
            let lower = name.to_lowercase();
            let scored = self.all.iter().map(|profile| {
                let known = profile.model.name.as_str();
                (known, strsim::jaro_winkler(&lower, known))
            });
            let nearest = scored.filter(|(_, score)| *score > 0.8).max_by(|a, b| a.1.total_cmp(&b.1));
            UnknownProfile {
                name: name.chars().take(60).collect(),
                nearest: nearest.map(|(known, _)| known.to_owned()),
            }
        })
    }
}

impl Profile {
    fn unknown(name: &str) -> Self {
        Self {
            model: ModelProfile {
                name: name.to_owned(),
                context_window: None,
                max_output: None,
                tokenizer: None,
                prices: None,
                cache: None,
            },
            as_of: None,
            ids: Vec::new(),
            cache_write_1h: None,
            images: None,
        }
    }

    fn change(&mut self, entry: Entry) {
        let model = &mut self.model;
        model.context_window = entry.context_window.or(model.context_window);
        model.max_output = entry.max_output.or(model.max_output);
        model.tokenizer = entry.tokenizer.or(model.tokenizer.take());
        if let Some(EntryPrices { input, cache_read, cache_write, cache_write_1h, output }) = entry.prices {
            model.prices = Some(Prices { input, cache_read, cache_write, output });
            self.cache_write_1h = cache_write_1h;
        }
        if let Some(EntryCache { minimum, block, expiry_seconds, charges_writes }) = entry.cache {
            model.cache = Some(CacheRules { minimum, block, expiry_seconds, charges_writes });
        }
        self.as_of = entry.as_of.or(self.as_of.take());
        self.ids = entry.ids.unwrap_or(std::mem::take(&mut self.ids));
        self.images = entry.images.or(self.images);
    }
}

/// The profile with this name, or of the model with this id, out of the table that comes with this crate.
///
/// `reference` is no model: it fixes prices and cache rules so that tables stay comparable, and states no window,
/// output limit or tokenizer.
///
/// # Errors
/// [`UnknownProfile`], with the nearest name.
pub fn profile(name: &str) -> Result<ModelProfile, UnknownProfile> {
    Profiles::built_in().get(name).map(|profile| profile.model.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TOKENIZERS;

    #[test]
    fn the_reference_profile_reads_prefixes_from_1024_tokens_on() {
        let cache = profile("reference").unwrap().cache.unwrap();
        for (prefix, cached) in [(0, 0), (1023, 0), (1024, 1024), (5001, 5001)] {
            assert_eq!(cache.cached(Tokens(prefix)), Tokens(cached));
        }
    }

    #[test]
    fn every_entry_of_the_table_is_dated_and_consistent() {
        assert!(Profiles::built_in().all.len() > 10);
        for Profile { model, as_of, ids, .. } in Profiles::built_in().iter() {
            let name = &model.name;
            let as_of = as_of.as_deref().unwrap();
            assert!(as_of.len() == 7 && ("2025-01".."2027-01").contains(&as_of), "{name}: {as_of}");
            if let Some(tokenizer) = &model.tokenizer {
                assert!(TOKENIZERS.contains(&tokenizer.as_str()), "{name}: {tokenizer}");
            }
            let prices = model.prices.unwrap();
            assert!(prices.cache_read <= prices.input && prices.input <= prices.cache_write, "{name}");
            assert!(prices.input < prices.output, "{name}");
            assert_eq!(
                model.cache.is_some_and(|cache| cache.charges_writes),
                prices.cache_write > prices.input,
                "{name}"
            );
            assert!(model.max_output.is_none_or(|most| Some(most) < model.context_window), "{name}");
            for id in ids {
                assert_eq!(Profiles::built_in().get(id).unwrap().model.name, *name, "{id}");
            }
        }
    }

    #[test]
    fn a_model_is_found_by_the_name_its_api_has_for_it() {
        for (id, expected) in [
            ("claude-opus-4-5-20251101", Some("claude-opus-4-5")),
            ("anthropic/claude-sonnet-4.5", Some("claude-sonnet-4-5")),
            ("gpt-5.1-codex", Some("gpt-5")),
            ("gpt-5-mini-2025-08-07", Some("gpt-5-mini")),
            ("gpt-4o-mini", Some("gpt-4o-mini")),
            ("some-model", None),
        ] {
            assert_eq!(profile(id).ok().map(|profile| profile.name).as_deref(), expected, "{id}");
        }
        let message = profile("refrence").unwrap_err().to_string();
        let expected = "unknown profile \"refrence\"; did you mean `reference`? `condenser profiles` lists them";
        assert_eq!(message, expected);
    }

    #[test]
    fn a_users_table_changes_what_it_gives_and_leaves_unknown_unknown() {
        let mine = "[claude-opus-4-5]\ncontext_window = 1_000_000\n\n[local]\nids = [\"local-7b\"]\nmax_output = 512\n";
        let profiles = Profiles::built_in().clone().with_toml(mine).unwrap();
        let opus = profiles.get("claude-opus-4-5").unwrap();
        assert_eq!(opus.model.context_window, Some(Tokens(1_000_000)));
        assert_eq!(opus.model.max_output, Some(Tokens(64_000)));
        let local = profiles.get("local-7b-instruct").unwrap();
        let expected = Profile {
            ids: vec!["local-7b".into()],
            model: ModelProfile { max_output: Some(Tokens(512)), ..Profile::unknown("local").model },
            ..Profile::unknown("local")
        };
        assert_eq!(local, &expected);
        for (text, expected) in [
            ("[a]\nwindow = 5", "profile \"a\": unknown field `window`"),
            ("[a]\ncontext_window = 0", "profile \"a\": `context_window` is 0; leave it out where it is unknown"),
            ("[a]\nprices = { input = -1, cache_read = 0, cache_write = 0, output = 0 }", "-1 is no price"),
            ("[a]\ncache = { minimum = 0, block = 0, charges_writes = false }", "`cache.block` is 0"),
            ("[a", "TOML parse error at line 1"),
            ("a = 5", "profile \"a\": invalid type: integer `5`"),
        ] {
            let error = Profiles::built_in().clone().with_toml(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
