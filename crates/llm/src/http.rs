//! Requests over HTTP: time-outs, retries, bounds.

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use backon::{ExponentialBuilder, Retryable as _};
use condenser::request::Api;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Response, Url};
use serde_json::Value;

use crate::error::{CallError, ClientError};
use crate::key::Key;
use crate::settings::ModelSettings;
use crate::wire;

/// Longest answer that is read.
const MOST_BYTES: usize = 16 << 20;
const ANTHROPIC_VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");

/// Takes the key and secrets out of a text.
pub(crate) type Clean<'c> = &'c (dyn Fn(&str) -> String + Sync);

/// One endpoint.
pub(crate) struct Http {
    client: reqwest::Client,
    url: Url,
    timeout: Duration,
    backoff: ExponentialBuilder,
    longest_wait: Duration,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").field("url", &self.url.as_str()).finish_non_exhaustive()
    }
}

impl Http {
    pub(crate) fn new(settings: &ModelSettings, key: Option<&Key>) -> Result<Self, ClientError> {
        let url = settings.url()?;
        let timeout = ModelSettings::seconds("timeout_seconds", settings.timeout_seconds)?;
        let connect = ModelSettings::seconds("connect_timeout_seconds", settings.connect_timeout_seconds)?;
        let first_wait = ModelSettings::seconds("first_wait_seconds", settings.first_wait_seconds)?;
        let longest_wait = ModelSettings::seconds("longest_wait_seconds", settings.longest_wait_seconds)?;
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Somebody else may have been first meanwhile, which is as good.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let mut client = reqwest::Client::builder()
            .default_headers(headers(settings.api, key)?)
            .user_agent(concat!("condenser/", env!("CARGO_PKG_VERSION")))
            .timeout(timeout)
            .connect_timeout(connect)
            // A key is not carried to where somebody else points.
            .redirect(reqwest::redirect::Policy::none());
        if is_loopback(&url) {
            client = client.no_proxy();
        }
        let client = client.build().map_err(|error| ClientError::Setup(root_of(&error)))?;
        let backoff = ExponentialBuilder::default()
            .with_min_delay(first_wait)
            .with_max_delay(longest_wait)
            .with_max_times(usize::try_from(settings.retries).unwrap_or(usize::MAX))
            .with_jitter();
        Ok(Self { client, url, timeout, backoff, longest_wait })
    }

    /// Sends a request until it is answered, refused for good, or tried as often as it may be.
    pub(crate) async fn post(&self, body: &Value, clean: Clean<'_>) -> Result<Value, CallError> {
        let body = body.to_string();
        let mut tries = 0;
        let attempt = || {
            tries += 1;
            self.once(&body, clean)
        };
        let answer = attempt
            .retry(self.backoff)
            .sleep(tokio::time::sleep)
            .when(CallError::is_passing)
            .adjust(|error, planned| wait(planned?, error.retry_after(), self.longest_wait))
            .await;
        answer.map_err(|error| error.after(tries))
    }

    async fn once(&self, body: &str, clean: Clean<'_>) -> Result<Value, CallError> {
        let request = self.client.post(self.url.clone()).header(CONTENT_TYPE, "application/json");
        let response = request.body(body.to_owned()).send().await.map_err(|error| self.failed(&error))?;
        let status = response.status();
        let retry_after = retry_after(response.headers(), SystemTime::now());
        let bytes = self.read(response).await?;
        let text = String::from_utf8_lossy(&bytes);
        if !status.is_success() {
            return Err(wire::refusal(status.as_u16(), &text, retry_after, clean));
        }
        let answer: Value =
            serde_json::from_str(&text).map_err(|error| CallError::Malformed(format!("it is no JSON: {error}")))?;
        // Some servers in between answer 200 and say inside what went wrong.
        match answer.get("error") {
            Some(error) if !error.is_null() => {
                let code = error.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
                let status = code.filter(|code| (400..600).contains(code)).unwrap_or(status.as_u16());
                Err(wire::refusal(status, &text, retry_after, clean))
            }
            _ => Ok(answer),
        }
    }

    async fn read(&self, mut response: Response) -> Result<Vec<u8>, CallError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.failed(&error))? {
            if bytes.len() + chunk.len() > MOST_BYTES {
                return Err(CallError::Malformed(format!("it is longer than {MOST_BYTES} bytes")));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    fn failed(&self, error: &reqwest::Error) -> CallError {
        if error.is_timeout() && !error.is_connect() {
            return CallError::TimedOut(self.timeout);
        }
        CallError::Connection { tries: 1, reason: root_of(error) }
    }
}

fn headers(api: Api, key: Option<&Key>) -> Result<HeaderMap, ClientError> {
    let mut headers = HeaderMap::new();
    if let Some(key) = key {
        let (name, text) = match api {
            Api::Anthropic => (HeaderName::from_static("x-api-key"), key.expose().to_owned()),
            _ => (AUTHORIZATION, format!("Bearer {}", key.expose())),
        };
        let mut value = HeaderValue::from_str(&text).map_err(|_| ClientError::BadKey)?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    if api == Api::Anthropic {
        headers.insert("anthropic-version", ANTHROPIC_VERSION);
    }
    Ok(headers)
}

fn is_loopback(url: &Url) -> bool {
    url.host_str().is_some_and(|host| {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    })
}

/// The innermost cause: the outer ones repeat the URL.
fn root_of(error: &dyn std::error::Error) -> String {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}

/// How long the server asked to be left alone: in seconds or as a date, or in milliseconds in a header of its own.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let seconds = |text: &str, unit: f64| {
        let number: f64 = text.parse().ok()?;
        Duration::try_from_secs_f64(number * unit).ok()
    };
    if let Some(found) = text(HeaderName::from_static("retry-after-ms")).and_then(|text| seconds(text, 1e-3)) {
        return Some(found);
    }
    let text = text(RETRY_AFTER)?;
    seconds(text, 1.0).or_else(|| Some(httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default()))
}

/// The wait before the next try, or `None` where the server asks for a longer one than we would wait.
fn wait(planned: Duration, asked: Option<Duration>, longest: Duration) -> Option<Duration> {
    let wait = asked.map_or(planned.min(longest), |asked| asked.max(planned.min(longest)));
    (wait <= longest).then_some(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_left_alone_as_long_as_it_asks() {
        let now = httpdate::parse_http_date("Sun, 29 Nov 2026 08:00:00 GMT").unwrap();
        let seconds = Duration::from_secs;
        for (name, value, expected) in [
            ("retry-after", "7", Some(seconds(7))),
            ("retry-after", "0.5", Some(Duration::from_millis(500))),
            ("retry-after", "Sun, 29 Nov 2026 08:00:30 GMT", Some(seconds(30))),
            ("retry-after", "Sun, 29 Nov 2026 07:00:00 GMT", Some(seconds(0))),
            ("retry-after-ms", "250", Some(Duration::from_millis(250))),
            ("retry-after", "-1", None),
            ("retry-after", "soon", None),
            ("x-other", "7", None),
        ] {
            let headers = HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static(value))]);
            assert_eq!(retry_after(&headers, now), expected, "{name}: {value}");
        }
    }

    #[test]
    fn the_wait_is_the_longer_one_and_bounded() {
        let seconds = Duration::from_secs;
        for (planned, asked, expected) in [
            (2, None, Some(2)),
            (2, Some(9), Some(9)),
            (4, Some(1), Some(4)),
            (90, None, Some(60)),
            (1, Some(60), Some(60)),
            (1, Some(61), None),
        ] {
            let wait = wait(seconds(planned), asked.map(seconds), seconds(60));
            assert_eq!(wait, expected.map(seconds), "{planned} planned, {asked:?} asked");
        }
    }

    #[test]
    fn only_this_machine_is_asked_without_a_proxy() {
        for (url, expected) in [
            ("http://127.0.0.1:8080/v1", true),
            ("http://localhost/v1", true),
            ("http://[::1]:1/", true),
            ("https://api.openai.com/v1", false),
            ("http://localhost.example.com/", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(url).unwrap()), expected, "{url}");
        }
    }
}
