//! Token counters and model profiles by name.
//!
//! The tokenizers are byte-pair encoders with the published vocabularies, linear in the length of any input.
//! [`Estimate`] stands in where a model's tokenizer is not known. Nothing here touches the network. A profile states what
//! one model holds, costs and caches, and since when; or it is an agreed reference.

mod estimate;
#[cfg(feature = "huggingface")]
mod huggingface;
mod images;
mod profiles;
mod tokenizers;

pub use estimate::Estimate;
#[cfg(feature = "huggingface")]
pub use huggingface::{HuggingFace, HuggingFaceError};
pub use images::{ImageRule, WithImages};
pub use profiles::{Profile, Profiles, ProfilesError, UnknownProfile, profile};
pub use tokenizers::{TOKENIZERS, UnknownTokenizer, tokenizer};

/// The name out of `known` that `name` was probably meant to be.
fn nearest(name: &str, known: &[&'static str]) -> Option<&'static str> {
    let name = name.to_lowercase();
    let scored = known.iter().map(|&known| (known, strsim::jaro_winkler(&name, known)));
    scored.filter(|(_, score)| *score > 0.7).max_by(|a, b| a.1.total_cmp(&b.1)).map(|(known, _)| known)
}

/// `; did you mean …?` and the names there are.
fn hint(nearest: &Option<&'static str>, known: &[&str]) -> String {
    let known = known.join(", ");
    match nearest {
        Some(name) => format!("; did you mean `{name}`? There are {known}"),
        None => format!("; there are {known}"),
    }
}
