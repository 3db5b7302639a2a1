//! A server that answers by a script, and a session that outgrows its window.
#![allow(dead_code, reason = "each test file uses its part")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use condenser::event::{EventKind, Message, Role, Source};
use condenser::request::Api;
use condenser::{Event, SummaryRequest, Tokens};
use condenser_llm::{Client, Key, ModelSettings};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// What the server does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Status, further headers, body.
    Answer(u16, &'static str, String),
    /// Half of an answer, then the end of the connection.
    Truncate(String),
    /// Nothing, until the other side hangs up.
    Hang,
    /// The end of the connection.
    Close,
}

pub(crate) fn ok(body: impl ToString) -> Act {
    Act::Answer(200, "", body.to_string())
}

#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) path: String,
    /// By name in lower case.
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Value,
}

pub(crate) struct Stub {
    pub(crate) url: String,
    pub(crate) received: Arc<Mutex<Vec<Received>>>,
    /// Told when a request of [`Act::Hang`] has come, and when its sender hung up.
    pub(crate) arrived: Arc<Notify>,
    pub(crate) hung_up: Arc<Notify>,
}

impl Stub {
    /// Acts by the script, and goes on with its last act.
    pub(crate) async fn start(script: impl IntoIterator<Item = Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let received = Arc::new(Mutex::new(Vec::new()));
        let (arrived, hung_up) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let script: Vec<Act> = script.into_iter().collect();
        let stub = Self { url, received, arrived, hung_up };
        let (received, arrived, hung_up) = (stub.received.clone(), stub.arrived.clone(), stub.hung_up.clone());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (received, script) = (received.clone(), script.clone());
                let (arrived, hung_up) = (arrived.clone(), hung_up.clone());
                tokio::spawn(async move {
                    while let Some(request) = read(&mut stream).await {
                        let n = {
                            let mut received = received.lock().unwrap();
                            received.push(request);
                            received.len()
                        };
                        match &script[(n - 1).min(script.len() - 1)] {
                            Act::Answer(status, headers, body) => {
                                let head = format!(
                                    "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n",
                                    body.len()
                                );
                                let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
                            }
                            Act::Truncate(body) => {
                                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len() * 2);
                                let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
                                return;
                            }
                            Act::Hang => {
                                arrived.notify_one();
                                while stream.read(&mut [0; 64]).await.is_ok_and(|n| n > 0) {}
                                hung_up.notify_one();
                                return;
                            }
                            Act::Close => return,
                        }
                    }
                });
            }
        });
        stub
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    pub(crate) fn settings(&self, api: Api) -> ModelSettings {
        let mut settings = ModelSettings::new(api, "small-model");
        settings.base_url = Some(self.url.clone());
        settings.first_wait_seconds = 0.001;
        settings.timeout_seconds = 20.0;
        settings
    }

    pub(crate) fn client(&self, api: Api) -> Client {
        Client::new(self.settings(api), Key::new("key-of-the-test")).unwrap()
    }
}

async fn read(stream: &mut TcpStream) -> Option<Received> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk).await {
            Ok(n) if n > 0 => bytes.extend_from_slice(&chunk[..n]),
            _ => return None,
        }
    };
    let text = String::from_utf8(bytes[..head].to_vec()).unwrap();
    let path = text.split(' ').nth(1).unwrap().to_owned();
    let headers: HashMap<String, String> = text
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let mut body = bytes[head + 4..].to_vec();
    let length: usize = headers["content-length"].parse().unwrap();
    let have = body.len();
    body.resize(length, 0);
    stream.read_exact(&mut body[have..]).await.ok()?;
    Some(Received { path, headers, body: serde_json::from_slice(&body).unwrap() })
}

/// What a policy would ask.
pub(crate) fn asked() -> SummaryRequest {
    SummaryRequest {
        instructions: "Write notes.".into(),
        events: vec![("e1".into(), "[user]\nFix the build.".into())],
        max_tokens: Some(Tokens(500)),
        ..SummaryRequest::default()
    }
}

/// A good answer of each API.
pub(crate) fn answer(api: Api, text: &str) -> Value {
    use serde_json::json;
    match api {
        Api::Anthropic => json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "small-model",
            "content": [{"type": "text", "text": text}], "stop_reason": "end_turn",
            "usage": {"input_tokens": 70, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 10,
                      "output_tokens": 5}
        }),
        Api::OpenAiResponses => json!({
            "id": "resp_1", "object": "response", "status": "completed", "model": "small-model",
            "output": [{"type": "reasoning", "summary": []},
                       {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}],
            "usage": {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 20}, "output_tokens": 5}
        }),
        _ => json!({
            "id": "chatcmpl-1", "object": "chat.completion", "model": "small-model",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 20}}
        }),
    }
}

/// A session of so many messages, by turns of both sides.
pub(crate) fn session(n: usize) -> Vec<Event> {
    let say = |n: usize| {
        let role = if n.is_multiple_of(2) { Role::User } else { Role::Assistant };
        let source = if role == Role::User { Source::User } else { Source::Agent };
        let text = format!("Note {n}: the parser lives in src/parser.rs. ").repeat(20);
        Event::new(format!("e{n}"), source, EventKind::Message(Message::text(role, text)))
    };
    (0..n).map(say).collect()
}
