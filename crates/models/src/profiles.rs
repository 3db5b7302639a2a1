//! Model profiles by name.

use condenser::profile::{CacheRules, ModelProfile, Prices};
use condenser::tokens::Tokens;

use crate::{hint, nearest};

/// The names that [`profile`] takes.
pub const PROFILES: [&str; 1] = ["reference"];

/// No profile has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown profile {name:?}{}", hint(.nearest, &PROFILES))]
pub struct UnknownProfile {
    /// The name that was asked for.
    pub name: String,
    /// The name it is nearest to, if any is near.
    pub nearest: Option<&'static str>,
}

/// The profile with this name, one of [`PROFILES`].
///
/// `reference` is no model: it fixes prices and cache rules so that tables stay comparable, and states no window,
/// output limit or tokenizer.
///
/// # Errors
/// [`UnknownProfile`], with the nearest name.
pub fn profile(name: &str) -> Result<ModelProfile, UnknownProfile> {
    match name {
        "reference" => Ok(ModelProfile {
            name: name.to_owned(),
            context_window: None,
            max_output: None,
            tokenizer: None,
            prices: Some(Prices { input: 3.00, cache_read: 0.30, cache_write: 3.75, output: 15.00 }),
            cache: Some(CacheRules {
                minimum: Tokens(1024),
                block: Tokens(1),
                expiry_seconds: None,
                charges_writes: true,
            }),
        }),
        _ => Err(UnknownProfile { name: name.to_owned(), nearest: nearest(name, &PROFILES) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_profile_reads_prefixes_from_1024_tokens_on() {
        let cache = profile("reference").unwrap().cache.unwrap();
        for (prefix, cached) in [(0, 0), (1023, 0), (1024, 1024), (5001, 5001)] {
            assert_eq!(cache.cached(Tokens(prefix)), Tokens(cached));
        }
    }

    #[test]
    fn an_unknown_profile_is_answered_with_the_nearest() {
        assert_eq!(
            profile("refrence").unwrap_err().to_string(),
            "unknown profile \"refrence\"; did you mean `reference`? There are reference"
        );
    }
}
