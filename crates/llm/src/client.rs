//! A model that can be asked.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use condenser::recall::Redact;
use condenser::{SummarizeError, Summary, SummaryRequest, Tokens};
use serde_json::{Map, Value};

use crate::cassette::Cassette;
use crate::driver::AsyncSummarizer;
use crate::error::{CallError, ClientError};
use crate::http::Http;
use crate::key::Key;
use crate::settings::ModelSettings;
use crate::wire::{self, Reply};

/// One model behind one API, over HTTP or from a cassette.
pub struct Client {
    settings: ModelSettings,
    name: String,
    /// `None`: only what the cassette holds is answered.
    http: Option<Http>,
    key: Option<Key>,
    cassette: Option<Cassette>,
    redact: Option<Arc<dyn Redact>>,
    redacted: AtomicU64,
    /// How often the cassette did not have what was asked, and the first time in words.
    missing: Mutex<Option<(u64, String)>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("settings", &self.settings)
            .field("http", &self.http)
            .field("cassette", &self.cassette)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A client that asks the server.
    ///
    /// # Errors
    /// [`ClientError`] where the settings or the key cannot be used.
    pub fn new(settings: ModelSettings, key: Option<Key>) -> Result<Self, ClientError> {
        let http = Http::new(&settings, key.as_ref())?;
        Ok(Self { http: Some(http), key, ..Self::silent(settings) })
    }

    /// A client that only plays a cassette: no key, no network.
    pub fn replaying(settings: ModelSettings, cassette: Cassette) -> Self {
        Self { cassette: Some(cassette), ..Self::silent(settings) }
    }

    fn silent(settings: ModelSettings) -> Self {
        Self {
            name: format!("{}/{}", settings.api, settings.model),
            settings,
            http: None,
            key: None,
            cassette: None,
            redact: None,
            redacted: AtomicU64::new(0),
            missing: Mutex::new(None),
        }
    }

    /// Answers from a cassette what it holds, and records on it what the server answers.
    #[must_use]
    pub fn with_cassette(self, cassette: Cassette) -> Self {
        Self { cassette: Some(cassette), ..self }
    }

    /// Takes secrets out of all that is sent and all that comes back.
    #[must_use]
    pub fn with_redact(self, redact: Arc<dyn Redact>) -> Self {
        Self { redact: Some(redact), ..self }
    }

    /// The settings.
    pub fn settings(&self) -> &ModelSettings {
        &self.settings
    }

    /// The secrets that were taken out so far. What [`Condenser::redact`](condenser::Condenser::redact) found before
    /// stands in the record.
    pub fn redacted(&self) -> u64 {
        self.redacted.load(Ordering::Relaxed)
    }

    /// How often the cassette did not have what was asked, and the first of these errors; `None`: never.
    pub fn missing(&self) -> Option<(u64, String)> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks the model: `body` is a request as [`Request::render`](condenser::Request::render) gives it for the API of
    /// the settings. The model, the limit of the answer and the settings' own fields are added.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn send(&self, body: Map<String, Value>, max_tokens: Option<Tokens>) -> Result<Reply, CallError> {
        let body = self.clean_value(Value::Object(body));
        let body = if let Value::Object(body) = body { body } else { Map::new() };
        self.exchange(&wire::complete(&self.settings, body, max_tokens)).await
    }

    async fn exchange(&self, body: &Value) -> Result<Reply, CallError> {
        if let Some(cassette) = &self.cassette {
            match cassette.play(self.settings.api, body) {
                Err(error @ CallError::Cassette(_)) if self.http.is_none() || !cassette.records() => {
                    let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
                    missing.get_or_insert_with(|| (0, error.to_string())).0 += 1;
                    return Err(error);
                }
                Err(CallError::Cassette(_)) => {}
                held => return held,
            }
        }
        let Some(http) = &self.http else {
            return Err(CallError::Malformed("there is neither a server nor a cassette".to_owned()));
        };
        let result = match http.post(body, &|text| self.clean(text)).await {
            Ok(answer) => wire::reply(self.settings.api, &answer).map_err(CallError::Malformed),
            Err(error) => Err(error),
        };
        let result = result.map(|reply| self.clean_reply(reply));
        if let Some(cassette) = &self.cassette {
            cassette.add(self.settings.api, body, &result)?;
        }
        result
    }

    /// A text without the key and without secrets.
    fn clean(&self, text: &str) -> String {
        let text = self.key.as_ref().map_or_else(|| text.to_owned(), |key| key.scrub(text));
        let Some(redact) = &self.redact else { return text };
        let (cleaned, n) = redact.redact(&text);
        self.redacted.fetch_add(n as u64, Ordering::Relaxed);
        cleaned.into_owned()
    }

    fn clean_value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.clean(&text)),
            Value::Array(items) => items.into_iter().map(|item| self.clean_value(item)).collect(),
            Value::Object(map) => map.into_iter().map(|(name, value)| (name, self.clean_value(value))).collect(),
            other => other,
        }
    }

    fn clean_reply(&self, mut reply: Reply) -> Reply {
        reply.text = self.clean(&reply.text);
        for call in &mut reply.calls {
            call.arguments = self.clean(&call.arguments);
        }
        reply
    }
}

impl AsyncSummarizer for Client {
    fn name(&self) -> &str {
        &self.name
    }

    async fn summarize(&self, request: &SummaryRequest) -> Result<Summary, SummarizeError> {
        let body = wire::summary_body(&self.settings, request, &|text| self.clean(text));
        self.exchange(&body).await?.summary(request, &body)
    }
}
