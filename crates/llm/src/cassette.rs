//! What was asked and what was answered, kept in a file, so that a run can be repeated without a model.
//!
//! A line of JSON per answer: the digest of the request, the number of the sample, and the answer. The digest is
//! BLAKE3 over the API and the body as sent, with the members of objects in order, so the model and every setting that
//! the model sees are part of it; the server's address and the key are not. The body stands in the first sample's line,
//! for people to read.

use std::collections::HashMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use condenser::Tokens;
use condenser::request::Api;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::CallError;
use crate::wire::Reply;

/// Why a cassette cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CassetteError {
    /// The file cannot be read or written.
    #[error("cassette {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line is no entry.
    #[error("cassette {}, line {line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The answer is not there.
    #[error(
        "cassette {} has no sample {sample} of request {digest} to {model} ({bytes} bytes, {held} samples held); \
         record it with the model at hand",
        path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
        /// The request's digest.
        digest: String,
        /// The sample that is missing, counted from 0.
        sample: u32,
        /// The model.
        model: String,
        /// The size of the request's body.
        bytes: usize,
        /// How many samples of this request there are.
        held: usize,
    },
}

/// What came of a call and would come of it again.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Reply(Reply),
    TooLong { limit: Option<Tokens>, said: String },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    digest: String,
    sample: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request: Option<Value>,
    answer: Answer,
}

/// Recorded answers by request.
pub struct Cassette {
    path: PathBuf,
    /// `None`: nothing is added.
    file: Option<Mutex<File>>,
    answers: Mutex<HashMap<String, HashMap<u32, Answer>>>,
    sample: u32,
}

impl fmt::Debug for Cassette {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cassette").field("path", &self.path).field("sample", &self.sample).finish_non_exhaustive()
    }
}

impl Cassette {
    /// Opens a cassette to play it.
    ///
    /// # Errors
    /// [`CassetteError`] where the file is missing or holds something else.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, CassetteError> {
        let path = path.into();
        let answers = read(&path)?;
        Ok(Self { path, file: None, answers: Mutex::new(answers), sample: 0 })
    }

    /// Opens or makes a cassette to record on it. What it holds is played; what is missing is asked, and added.
    ///
    /// # Errors
    /// [`CassetteError`] where the file cannot be written, or holds something else.
    pub fn record(path: impl Into<PathBuf>) -> Result<Self, CassetteError> {
        let path = path.into();
        let failed = |source| CassetteError::Io { path: path.clone(), source };
        let file = OpenOptions::new().create(true).append(true).open(&path).map_err(failed)?;
        let answers = read(&path)?;
        Ok(Self { file: Some(Mutex::new(file)), path, answers: Mutex::new(answers), sample: 0 })
    }

    /// Plays or records this sample of each request, counted from 0: the same request may be answered in several ways.
    #[must_use]
    pub fn with_sample(self, sample: u32) -> Self {
        Self { sample, ..self }
    }

    pub(crate) fn records(&self) -> bool {
        self.file.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, HashMap<u32, Answer>>> {
        // Entries are whole whenever the lock is free.
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The recorded answer.
    pub(crate) fn play(&self, api: Api, body: &Value) -> Result<Reply, CallError> {
        let digest = digest(api, body);
        let answers = self.lock();
        let samples = answers.get(&digest);
        match samples.and_then(|samples| samples.get(&self.sample)) {
            Some(Answer::Reply(reply)) => Ok(reply.clone()),
            Some(Answer::TooLong { limit, said }) => Err(CallError::TooLong { limit: *limit, said: said.clone() }),
            None => Err(CallError::Cassette(CassetteError::Missing {
                path: self.path.clone(),
                digest,
                sample: self.sample,
                model: body.get("model").and_then(Value::as_str).unwrap_or_default().chars().take(100).collect(),
                bytes: body.to_string().len(),
                held: samples.map_or(0, HashMap::len),
            })),
        }
    }

    /// Adds an answer, unless it is one that may be another the next time.
    pub(crate) fn add(&self, api: Api, body: &Value, result: &Result<Reply, CallError>) -> Result<(), CassetteError> {
        let answer = match result {
            Ok(reply) => Answer::Reply(reply.clone()),
            Err(CallError::TooLong { limit, said }) => Answer::TooLong { limit: *limit, said: said.clone() },
            Err(_) => return Ok(()),
        };
        let Some(file) = &self.file else { return Ok(()) };
        let digest = digest(api, body);
        let mut answers = self.lock();
        let samples = answers.entry(digest.clone()).or_default();
        if samples.contains_key(&self.sample) {
            return Ok(());
        }
        let line = Line {
            digest,
            sample: self.sample,
            request: samples.is_empty().then(|| body.clone()),
            answer: answer.clone(),
        };
        let write = || -> io::Result<()> {
            let mut text = serde_json::to_string(&line)?;
            text.push('\n');
            file.lock().unwrap_or_else(PoisonError::into_inner).write_all(text.as_bytes())
        };
        write().map_err(|source| CassetteError::Io { path: self.path.clone(), source })?;
        samples.insert(self.sample, answer);
        Ok(())
    }
}

fn read(path: &Path) -> Result<HashMap<String, HashMap<u32, Answer>>, CassetteError> {
    let failed = |source| CassetteError::Io { path: path.to_owned(), source };
    let mut answers: HashMap<String, HashMap<u32, Answer>> = HashMap::new();
    for (index, text) in std::fs::read_to_string(path).map_err(failed)?.lines().enumerate() {
        if text.trim().is_empty() {
            continue;
        }
        let line: Line = serde_json::from_str(text).map_err(|error| CassetteError::Line {
            path: path.to_owned(),
            line: index + 1,
            reason: format!("it is no entry: {error}"),
        })?;
        answers.entry(line.digest).or_default().insert(line.sample, line.answer);
    }
    Ok(answers)
}

/// The digest of a request, in hexadecimal.
fn digest(api: Api, body: &Value) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(api.name().as_bytes());
    hasher.update(&[0]);
    hash(&mut hasher, body);
    hasher.finalize().to_hex().to_string()
}

/// Each value with its kind and length before it, so that no two values are hashed alike; members in order.
fn hash(hasher: &mut blake3::Hasher, value: &Value) {
    match value {
        Value::Array(items) => {
            hasher.update(format!("a{}:", items.len()).as_bytes());
            items.iter().for_each(|item| hash(hasher, item));
        }
        Value::Object(map) => {
            hasher.update(format!("o{}:", map.len()).as_bytes());
            let mut members: Vec<_> = map.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            for (name, value) in members {
                // One limit with two names, by server.
                let name = if name == "max_completion_tokens" { "max_tokens" } else { name.as_str() };
                hasher.update(format!("k{}:{name}", name.len()).as_bytes());
                hash(hasher, value);
            }
        }
        Value::String(text) => {
            hasher.update(format!("s{}:{text}", text.len()).as_bytes());
        }
        other => {
            hasher.update(format!("v{other};").as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_digest_tells_requests_apart_and_not_the_order_of_members() {
        let one = json!({"model": "m", "messages": [{"role": "user", "content": "a"}], "max_tokens": 1});
        let same = json!({"max_tokens": 1, "messages": [{"content": "a", "role": "user"}], "model": "m"});
        let of = |value: &Value| digest(Api::OpenAiChat, value);
        assert_eq!(of(&one), of(&same));
        for other in [
            json!({"model": "n", "messages": [{"role": "user", "content": "a"}], "max_tokens": 1}),
            json!({"model": "m", "messages": [{"role": "user", "content": "b"}], "max_tokens": 1}),
            json!({"model": "m", "messages": [{"role": "user", "content": "a"}], "max_tokens": "1"}),
            json!({"model": "m", "messages": [["role", "user", "content", "a"]], "max_tokens": 1}),
        ] {
            assert_ne!(of(&one), of(&other), "{other}");
        }
        assert_ne!(of(&one), digest(Api::Anthropic, &one));
    }
}
