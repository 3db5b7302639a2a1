//! Token counters by name.

use bpe_openai::Tokenizer;
use condenser::tokens::{BytesPer4, CharsPer4, TokenCounter, Tokens};

use crate::{Estimate, hint, nearest};

/// The names that [`tokenizer`] takes.
pub const TOKENIZERS: [&str; 5] = ["o200k", "cl100k", "estimate", "chars/4", "bytes/4"];

/// No token counter has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown tokenizer {name:?}{}", hint(.nearest, &TOKENIZERS))]
pub struct UnknownTokenizer {
    /// The name that was asked for.
    pub name: String,
    /// The name it is nearest to, if any is near.
    pub nearest: Option<&'static str>,
}

/// A byte-pair encoder. Special tokens are counted as the plain text they are written in.
struct BytePair {
    name: &'static str,
    encoder: fn() -> &'static Tokenizer,
}

impl TokenCounter for BytePair {
    fn name(&self) -> &str {
        self.name
    }

    fn count(&self, text: &str) -> Tokens {
        Tokens((self.encoder)().count(text) as u64)
    }
}

static O200K: BytePair = BytePair { name: "o200k", encoder: bpe_openai::o200k_base };
static CL100K: BytePair = BytePair { name: "cl100k", encoder: bpe_openai::cl100k_base };

/// The token counter with this name, one of [`TOKENIZERS`].
///
/// A vocabulary is unpacked on its counter's first count.
///
/// # Errors
/// [`UnknownTokenizer`], with the nearest name.
pub fn tokenizer(name: &str) -> Result<&'static dyn TokenCounter, UnknownTokenizer> {
    match name {
        "o200k" => Ok(&O200K),
        "cl100k" => Ok(&CL100K),
        "estimate" => Ok(&Estimate),
        "chars/4" => Ok(&CharsPer4),
        "bytes/4" => Ok(&BytesPer4),
        _ => Err(UnknownTokenizer { name: name.to_owned(), nearest: nearest(name, &TOKENIZERS) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(name: &str, text: &str) -> u64 {
        tokenizer(name).unwrap().count(text).0
    }

    #[test]
    fn known_strings_have_their_published_counts() {
        let cases = [
            ("", 0, 0, 0, 0, 0),
            ("hello world", 2, 2, 2, 3, 3),
            ("tiktoken is great!", 6, 6, 4, 5, 5),
            ("antidisestablishmentarianism", 6, 6, 7, 7, 7),
            ("2 + 2 = 4", 7, 7, 5, 3, 3),
            ("お誕生日おめでとう", 8, 9, 8, 3, 7),
        ];
        for (text, o200k, cl100k, estimate, chars, bytes) in cases {
            let counts = TOKENIZERS.map(|name| count(name, text));
            assert_eq!(counts, [o200k, cl100k, estimate, chars, bytes], "{text:?}");
        }
    }

    #[test]
    fn a_megabyte_of_anything_is_counted() {
        for pattern in
            ["a", " ", "\t", "\n", "漢", "🙂", "{\"a\":1},", "0123456789abcdef", "<|endoftext|>", "a b\u{301}"]
        {
            let text = pattern.repeat((1 << 20) / pattern.len());
            for name in TOKENIZERS {
                let counted = count(name, &text);
                assert!(counted > 0 && counted <= text.len() as u64, "{name} counts {counted} for {pattern:?}");
            }
        }
    }

    #[test]
    fn every_name_is_its_counters_own_name() {
        for name in TOKENIZERS {
            let counter = tokenizer(name).unwrap();
            assert_eq!(counter.name(), name);
            assert_eq!(counter.is_estimate(), name.ends_with("/4") || name == "estimate");
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest() {
        for (name, expected) in
            [("o200", Some("o200k")), ("O200K", Some("o200k")), ("cl100k_base", Some("cl100k")), ("llama", None)]
        {
            assert_eq!(tokenizer(name).err().and_then(|error| error.nearest), expected, "{name}");
        }
        let message = tokenizer("char/4").err().map(|error| error.to_string());
        let expected =
            "unknown tokenizer \"char/4\"; did you mean `chars/4`? There are o200k, cl100k, estimate, chars/4, bytes/4";
        assert_eq!(message.as_deref(), Some(expected));
    }
}
