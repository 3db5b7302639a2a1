//! Tokenizers from `tokenizer.json` files.

use std::path::{Path, PathBuf};

use condenser::tokens::{BytesPer4, TokenCounter, Tokens};
use tokenizers::Tokenizer;

/// Why a file is no tokenizer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: it cannot be used as a tokenizer: {reason}", path.display())]
pub struct HuggingFaceError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub reason: String,
}

/// The tokenizer of a `tokenizer.json`, as Hugging Face's library reads it. What a template adds to a whole prompt is
/// left out: texts are parts of one.
pub struct HuggingFace {
    name: String,
    tokenizer: Tokenizer,
}

impl std::fmt::Debug for HuggingFace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HuggingFace").field("name", &self.name).finish_non_exhaustive()
    }
}

impl HuggingFace {
    /// Reads a file. The counter's name is the name of the file's folder, and a digest of the file.
    ///
    /// # Errors
    /// [`HuggingFaceError`].
    pub fn open(path: &Path) -> Result<Self, HuggingFaceError> {
        let bad = |reason: String| HuggingFaceError { path: path.to_owned(), reason };
        let bytes = std::fs::read(path).map_err(|error| bad(error.to_string()))?;
        let mut tokenizer = Tokenizer::from_bytes(&bytes).map_err(|error| bad(error.to_string()))?;
        // Settings of a training run, which would cut or fill up what is counted.
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| bad(error.to_string()))?;
        let folder = path.parent().and_then(Path::file_name).map_or("tokenizer".into(), |name| name.to_string_lossy());
        let digest = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Ok(Self { name: format!("{folder}-{digest:016x}"), tokenizer })
    }
}

impl TokenCounter for HuggingFace {
    fn name(&self) -> &str {
        &self.name
    }

    fn count(&self, text: &str) -> Tokens {
        // A vocabulary without a piece for every byte may refuse a text.
        self.tokenizer.encode_fast(text, false).map_or_else(|_| BytesPer4.count(text), |it| Tokens(it.len() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn write(folder: &Path, content: &Value) -> PathBuf {
        let path = folder.join("tokenizer.json");
        std::fs::write(&path, content.to_string()).unwrap();
        path
    }

    #[test]
    fn a_file_counts_by_its_own_vocabulary() {
        let dir = tempfile::tempdir().unwrap();
        let path = write(
            dir.path(),
            &json!({
                "version": "1.0", "added_tokens": [], "normalizer": null, "decoder": null,
                "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
                "padding": null, "post_processor": null,
                "pre_tokenizer": {"type": "Whitespace"},
                "model": {"type": "BPE", "dropout": null, "unk_token": "?", "continuing_subword_prefix": null,
                          "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
                          "vocab": {"?": 0, "a": 1, "b": 2, "ab": 3, "abab": 4},
                          "merges": ["a b", "ab ab"]}
            }),
        );
        let counter = HuggingFace::open(&path).unwrap();
        for (text, expected) in [("", 0), ("abab", 1), ("abab ab a", 3), ("abc", 2), ("aaaa", 4)] {
            assert_eq!(counter.count(text), Tokens(expected), "{text:?}");
        }
        assert_eq!(counter.count(&"ab".repeat(1 << 19)), Tokens(1 << 18));
        assert!(!counter.is_estimate());
        let again = HuggingFace::open(&path).unwrap();
        assert_eq!(again.name(), counter.name());
    }

    #[test]
    fn what_is_no_tokenizer_is_refused_with_its_path() {
        let dir = tempfile::tempdir().unwrap();
        for path in [dir.path().join("none.json"), write(dir.path(), &json!({"model": 5}))] {
            let error = HuggingFace::open(&path).unwrap_err().to_string();
            let expected = format!("{}: it cannot be used as a tokenizer: ", path.display());
            assert!(error.starts_with(&expected), "{error}");
        }
    }
}
