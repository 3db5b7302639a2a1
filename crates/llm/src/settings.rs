//! Which model is asked, and how.

use std::time::Duration;

use condenser::request::Api;
use condenser::{Tokens, request};
use reqwest::Url;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::error::ClientError;
use crate::key::Key;

/// Longest time that can be set, in seconds.
const MOST_SECONDS: f64 = 86_400.0;

/// A model and the server that has it. No key: that comes from the environment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSettings {
    /// The API: `openai`, `responses` or `anthropic`.
    #[serde(serialize_with = "api_to", deserialize_with = "api_from")]
    pub api: Api,
    /// The model's name, as the server takes it.
    pub model: String,
    /// Where the API begins, version included: `http://127.0.0.1:8080/v1`. `None`: the vendor's own.
    #[serde(default)]
    pub base_url: Option<String>,
    /// The environment variable that holds the key; empty for a server that takes none. `None`: the vendor's usual one.
    #[serde(default)]
    pub key_env: Option<String>,
    /// The model's context window, in tokens.
    #[serde(default)]
    pub window: Option<Tokens>,
    /// The most tokens of an answer, where the summary request does not ask for fewer. `None`: 4,096.
    #[serde(default)]
    pub max_output: Option<Tokens>,
    /// Sent as it is; `None`: the server's default.
    #[serde(default)]
    pub temperature: Option<f64>,
    /// Seconds for one try, from connecting to the last byte.
    #[serde(default = "timeout")]
    pub timeout_seconds: f64,
    /// Seconds for connecting.
    #[serde(default = "connect_timeout")]
    pub connect_timeout_seconds: f64,
    /// Tries after the first, where the server is busy (408, 409, 429, 5xx) or the connection fails. A try that timed
    /// out is not repeated.
    #[serde(default = "retries")]
    pub retries: u32,
    /// Seconds before the second try; doubled for each further one, with a random part.
    #[serde(default = "first_wait")]
    pub first_wait_seconds: f64,
    /// Longest wait between two tries, in seconds. A server that asks for a longer one is not asked again.
    #[serde(default = "longest_wait")]
    pub longest_wait_seconds: f64,
    /// Further fields of the request's body, stronger than ours.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub body: Map<String, Value>,
}

fn timeout() -> f64 {
    120.0
}
fn connect_timeout() -> f64 {
    10.0
}
fn retries() -> u32 {
    3
}
fn first_wait() -> f64 {
    1.0
}
fn longest_wait() -> f64 {
    60.0
}

fn api_to<S: Serializer>(api: &Api, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(api.name())
}

fn api_from<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Api, D::Error> {
    let name = String::deserialize(deserializer)?;
    name.parse().map_err(|error: request::UnknownApi| serde::de::Error::custom(error))
}

impl ModelSettings {
    /// The settings for a model, with all defaults.
    pub fn new(api: Api, model: impl Into<String>) -> Self {
        Self {
            api,
            model: model.into(),
            base_url: None,
            key_env: None,
            window: None,
            max_output: None,
            temperature: None,
            timeout_seconds: timeout(),
            connect_timeout_seconds: connect_timeout(),
            retries: retries(),
            first_wait_seconds: first_wait(),
            longest_wait_seconds: longest_wait(),
            body: Map::new(),
        }
    }

    /// The environment variable that holds the key; empty where none is taken.
    pub fn key_variable(&self) -> &str {
        match (&self.key_env, self.api) {
            (Some(name), _) => name,
            (None, Api::Anthropic) => "ANTHROPIC_API_KEY",
            (None, _) => "OPENAI_API_KEY",
        }
    }

    /// Reads the key from the environment.
    ///
    /// # Errors
    /// [`ClientError::NoKey`] where one is wanted and none is there.
    pub fn key(&self) -> Result<Option<Key>, ClientError> {
        match self.key_variable() {
            "" => Ok(None),
            name => {
                let key = std::env::var(name).ok().and_then(|text| Key::new(&text));
                key.map(Some).ok_or_else(|| ClientError::NoKey(name.to_owned()))
            }
        }
    }

    /// Whether the server is OpenAI's own: it takes a newer name for the limit of an answer.
    pub(crate) fn is_openai(&self) -> bool {
        self.base_url.is_none() || self.base_url.as_deref().is_some_and(|url| url.contains("//api.openai.com"))
    }

    pub(crate) fn url(&self) -> Result<Url, ClientError> {
        let base = self.base_url.as_deref().unwrap_or(match self.api {
            Api::Anthropic => "https://api.anthropic.com/v1",
            _ => "https://api.openai.com/v1",
        });
        let path = match self.api {
            Api::Anthropic => "messages",
            Api::OpenAiResponses => "responses",
            _ => "chat/completions",
        };
        // Of an URL with a password in it nothing is repeated.
        let refused = |shown: &str, reason: String| ClientError::Url { url: shown.chars().take(100).collect(), reason };
        let url = Url::parse(&format!("{}/{path}", base.trim_end_matches('/')))
            .map_err(|error| refused(base.rsplit('@').next().unwrap_or_default(), error.to_string()))?;
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
            let shown = url.host_str().unwrap_or_default();
            return Err(refused(shown, "it may hold no user, password or query; a key comes from `key_env`".into()));
        }
        if !matches!(url.scheme(), "http" | "https") {
            return Err(refused(base, "it has to begin with http:// or https://".into()));
        }
        Ok(url)
    }

    pub(crate) fn seconds(name: &'static str, value: f64) -> Result<Duration, ClientError> {
        if value > 0.0 && value <= MOST_SECONDS {
            Ok(Duration::from_secs_f64(value))
        } else {
            Err(ClientError::Number { name, value, most: MOST_SECONDS })
        }
    }
}
