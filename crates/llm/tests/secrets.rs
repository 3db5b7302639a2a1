//! Nothing that is secret gets out: not into what is sent, logged, recorded or said in an error.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod common;

use std::borrow::Cow;
use std::sync::{Arc, Mutex};

use common::{Act, Stub, answer, ok, session};
use condenser::event::{EventKind, Message, Role, Source};
use condenser::recall::Redact;
use condenser::request::Api;
use condenser::tokens::CharsPer4;
use condenser::{Budget, Condenser, Event, OutcomeKind, Rules, Sizer, State, Tokens, View};
use condenser_llm::{AsyncSummarizer as _, Cassette, Client, ModelSettings, condense};

/// Everything that any library logs, at every level.
struct Logged(Mutex<String>);

impl log::Log for Logged {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        self.0.lock().unwrap().push_str(&format!("{} {}\n", record.target(), record.args()));
    }
    fn flush(&self) {}
}

static LOGGED: Logged = Logged(Mutex::new(String::new()));

/// Takes out what begins with `planted-`.
struct Planted;

impl Redact for Planted {
    fn redact<'a>(&self, text: &'a str) -> (Cow<'a, str>, usize) {
        let n = text.matches("planted-").count();
        if n == 0 {
            return (Cow::Borrowed(text), 0);
        }
        let is_end = |c: char| !(c.is_alphanumeric() || c == '-');
        let mut parts = text.split("planted-");
        let mut clean = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            clean.push_str("[gone]");
            clean.push_str(part.find(is_end).map_or("", |at| &part[at..]));
        }
        (Cow::Owned(clean), n)
    }
}

#[tokio::test]
async fn a_planted_secret_is_found_nowhere_but_in_the_header_and_the_log() {
    log::set_logger(&LOGGED).unwrap();
    log::set_max_level(log::LevelFilter::Trace);
    let key = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.jsonl");
    let mut texts: Vec<(&str, String)> = Vec::new();
    let mut events = session(30);
    let say = format!("The password is planted-in-transcript, the key {key}.");
    events[9] = Event::new("e9", Source::User, EventKind::Message(Message::text(Role::User, say)));
    let before = events.clone();

    // Servers that repeat the key: in an answer, in an error, in the words of a broken one.
    let echo = format!("Notes: {key} and planted-in-answer. The parser is written.");
    let error =
        |status| Act::Answer(status, "", format!("{{\"error\": {{\"message\": \"bad key {key} planted-in-error\"}}}}"));
    for api in Api::ALL {
        for act in
            [ok(answer(api, &echo)), error(401), error(500), Act::Answer(502, "", key.clone()), ok(&key), Act::Close]
        {
            let stub = Stub::start([act]).await;
            // The key comes from the environment, as a user's would.
            let mut settings = stub.settings(api);
            settings.key_env = Some("CARGO_MANIFEST_DIR".into());
            settings.retries = 1;
            let from_env = settings.key().unwrap();
            texts
                .push(("settings", format!("{settings:?} {from_env:?} {}", serde_json::to_string(&settings).unwrap())));
            let client = Client::new(settings, from_env).unwrap();
            let client = client.with_redact(Arc::new(Planted)).with_cassette(Cassette::record(&path).unwrap());
            texts.push(("client", format!("{client:?}")));

            let view = View::replay(&events, Rules::Sound);
            let sizer = Sizer::new(&CharsPer4);
            let budget = Budget { window: Some(Tokens(7000)), reserve: Tokens(500) };
            let state = State::new(&view, &events, &sizer, budget);
            let policy = condenser_policies::by_name("llm-summarizing").unwrap();
            let condenser = Condenser { redact: Some(&Planted), ..Condenser::default() };
            let outcome = condense(&condenser, &*policy, &state, &client).await;
            texts.push(("outcome", format!("{outcome:?} {} {:?}", outcome.explain(), outcome.refusal())));
            if let OutcomeKind::Applied(record) = &outcome.result {
                texts.push(("record", serde_json::to_string(record).unwrap()));
                assert!(record.provenance.as_ref().unwrap().redacted > 0, "what was taken out is counted");
            }
            let mut request = common::asked();
            request.guidance = Some("Mind planted-in-guidance.".into());
            texts.push(("call", format!("{:?}", client.summarize(&request).await)));
            assert!(client.redacted() > 0);
            for received in stub.received() {
                let mut headers = received.headers.clone();
                let header = if api == Api::Anthropic { "x-api-key" } else { "authorization" };
                assert!(headers.remove(header).unwrap().ends_with(&key), "the server is given the key");
                texts.push(("sent", format!("{headers:?} {} {}", received.path, received.body)));
            }
        }
    }
    let unreachable = ModelSettings {
        base_url: Some("http://127.0.0.1:1/v1".into()),
        key_env: Some("CARGO_MANIFEST_DIR".into()),
        retries: 0,
        ..ModelSettings::new(Api::OpenAiChat, "m")
    };
    let unreachable_key = unreachable.key().unwrap();
    let client = Client::new(unreachable, unreachable_key).unwrap();
    texts.push(("call", format!("{:?}", client.summarize(&common::asked()).await)));
    texts.push(("cassette", std::fs::read_to_string(&path).unwrap()));
    texts.push(("logged", LOGGED.0.lock().unwrap().clone()));

    for name in ["settings", "client", "outcome", "record", "call", "sent", "cassette", "logged"] {
        assert!(texts.iter().any(|(other, text)| *other == name && !text.is_empty()), "{name} was looked at");
    }
    for (name, text) in &texts {
        for secret in [key.as_str(), "planted-"] {
            let at = text.find(secret).map(|at| text[..at].chars().rev().take(80).collect::<String>());
            assert_eq!(at, None, "{secret} stands in {name}");
        }
    }
    assert_eq!(events, before, "the log is untouched");
}
