//! Who writes summaries, by name or by file.
#![expect(clippy::expect_used, reason = "helpers of tests fail by panicking")]

use std::path::Path;
use std::process::{Command, Output};

const SECRET: &str = "sk-ant-a1B2a1B2a1B2a1B2a1B2";

/// A folder with a log of one session, which holds a secret.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let lines: String = (0..60)
        .map(|n| {
            let role = if n % 2 == 0 { "user" } else { "assistant" };
            let text = format!("message {n} with {SECRET}: the parser lives in src/parser.rs. {}", "more ".repeat(40));
            format!("{}\n", serde_json::json!({"role": role, "content": text}))
        })
        .collect();
    std::fs::write(folder.path().join("chat.jsonl"), lines).expect("the trace is written");
    assert!(run(folder.path(), &["log", "import", "log.db", "chat.jsonl"]).status.success());
    folder
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_condenser"));
    command.args(arguments).current_dir(folder).env("MODEL_KEY", "the-key-of-the-model").output().expect("it starts")
}

fn condense(folder: &Path, summarizer: &str) -> Output {
    let arguments = [
        "condense",
        "log.db",
        "--session",
        "chat.jsonl",
        "--policy",
        "llm-summarizing",
        "--window",
        "8k",
        "--dry-run",
        "--format",
        "json",
        "--summarizer",
        summarizer,
    ];
    run(folder, &arguments)
}

fn record(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[track_caller]
fn refused(output: &Output, expected: &str) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains(expected), "{error}");
}

#[test]
fn two_summarizers_need_no_model_and_no_summary_holds_a_secret() {
    let folder = folder();
    for (name, head) in [("extractive", "[Extract of"), ("heuristic", "[Notes on earlier events")] {
        let record = record(&condense(folder.path(), name));
        assert_eq!(record["provenance"]["summarizer"], name);
        let summary = record["summary"].as_str().expect("a summary");
        assert!(summary.starts_with(head) && !summary.contains(SECRET), "{summary}");
        assert!(record["provenance"]["redacted"].as_u64().is_some_and(|n| n > 10), "{record}");
    }
    refused(
        &condense(folder.path(), "abstractive"),
        "unknown summarizer \"abstractive\"; it is extractive, heuristic, or a file",
    );
}

#[test]
fn profiles_are_listed_and_what_is_unknown_is_said_to_be() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("mine.toml"), "[local]\nmax_output = 512\n").expect("a file");
    let output = run(folder.path(), &["profiles", "--profiles", "mine.toml", "--format", "json"]);
    let all = record(&output);
    let local = all.as_array().and_then(|all| all.last()).expect("the newest is last");
    assert_eq!((&local["profile"], &local["max_output"]), (&"local".into(), &512.into()));
    assert!(local["context_window"].is_null() && local["input"].is_null() && local["as_of"].is_null());
    let table = run(folder.path(), &["profiles", "--profiles", "mine.toml"]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    let line = table.lines().find(|line| line.trim_start().starts_with("local")).expect("a line");
    assert_eq!(line.matches("unknown").count(), 11, "{line}");
    std::fs::write(folder.path().join("mine.toml"), "[local]\nwindow = 512\n").expect("a file");
    refused(
        &run(folder.path(), &["profiles", "--profiles", "mine.toml"]),
        "mine.toml: profile \"local\": unknown field `window`",
    );
}

#[cfg(not(feature = "llm"))]
#[test]
fn a_build_without_the_feature_says_how_to_get_it() {
    let folder = folder();
    refused(&condense(folder.path(), "summaries.toml"), "build it with `--features llm`");
    let arguments = ["compare", "chat.jsonl", "--tokenizer", "x/tokenizer.json"];
    refused(&run(folder.path(), &arguments), "build it with `--features llm`");
}

#[cfg(feature = "llm")]
mod llm {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A server that gives the same answer to all, and what it was sent.
    fn server() -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let received = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&received);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let mut text = String::new();
                let mut chunk = [0; 65_536];
                while !complete(&text) {
                    let n = stream.read(&mut chunk).expect("a request");
                    text.push_str(&String::from_utf8_lossy(&chunk[..n]));
                }
                all.lock().expect("no panic").push(text);
                let body = serde_json::json!({
                    "id": "r1", "choices": [{"message": {"content": "The parser is in src/parser.rs."}, "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": 4321, "completion_tokens": 9}
                })
                .to_string();
                let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
                stream.write_all(format!("{head}{body}").as_bytes()).expect("an answer");
            }
        });
        (url, received)
    }

    fn complete(text: &str) -> bool {
        let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
        body.len() >= length.parse().expect("a number")
    }

    #[test]
    fn a_model_is_asked_recorded_and_played_again() {
        let folder = folder();
        let (url, received) = server();
        let write = |record: bool, sample: u32| {
            let text = format!(
                "api = \"openai\"\nmodel = \"small\"\nbase_url = \"{url}\"\nkey_env = \"MODEL_KEY\"\nsecrets = [\"message (\\\\d+)\"]\n\
                 cassette = {{ path = \"tape.jsonl\", record = {record}, sample = {sample} }}\n"
            );
            std::fs::write(folder.path().join("summaries.toml"), text).expect("a file");
        };
        write(true, 0);
        let live = record(&condense(folder.path(), "summaries.toml"));
        assert_eq!(live["summary"], "The parser is in src/parser.rs.");
        assert_eq!(live["provenance"]["summarizer"], "openai/small");
        assert_eq!(live["provenance"]["summarizer_input_tokens"], 4321);
        let sent = received.lock().expect("no panic").clone();
        assert_eq!(sent.len(), 1);
        let (head, body) = sent[0].split_once("\r\n\r\n").expect("a body");
        assert!(head.contains("authorization: Bearer the-key-of-the-model"));
        assert!(body.contains("message REDACTED_SECRET with REDACTED_SECRET") && !body.contains(SECRET), "{body}");

        // Without the server's answer, and without its key.
        write(false, 0);
        let played = record(&condense(folder.path(), "summaries.toml"));
        assert_eq!(
            (&played["summary"], &played["forgotten_event_ids"]),
            (&live["summary"], &live["forgotten_event_ids"])
        );
        write(false, 2);
        let output = condense(folder.path(), "summaries.toml");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.contains("has no sample 2 of request"), "{told}");
        assert_eq!(record(&output)["provenance"]["fallbacks"][0], "folding");
        assert_eq!(received.lock().expect("no panic").len(), 1);

        let compare = [
            "compare",
            "chat.jsonl",
            "--policy",
            "llm-summarizing",
            "--window",
            "4k",
            "--summarizer",
            "summaries.toml",
        ];
        let output = run(folder.path(), &compare);
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stdout).contains("summarizer openai/small, recall on"));
        assert!(String::from_utf8_lossy(&output.stderr).contains("summaries are not on the cassette"));

        let tape = std::fs::read_to_string(folder.path().join("tape.jsonl")).expect("a cassette");
        for secret in [SECRET, "the-key-of-the-model"] {
            for (name, text) in [("cassette", tape.as_str()), ("record", &live.to_string()), ("what is said", &told)] {
                assert!(!text.contains(secret), "{secret} stands in the {name}");
            }
        }
    }

    #[test]
    fn canaries_go_through_summaries_that_a_small_model_wrote() {
        let folder = folder();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let tape = root.join("fixtures/models/gemma-3-270m.canaries.jsonl");
        // Nothing listens there: every answer is played.
        let text = format!(
            "api = \"openai\"\nmodel = \"gemma-3-270m\"\nbase_url = \"http://127.0.0.1:9/v1\"\nkey_env = \"\"\n\
             window = 4096\nmax_output = 64\nbody = {{ stop = [\"\\n\"] }}\ncassette = {{ path = {tape:?} }}\n"
        );
        let summaries = folder.path().join("summaries.toml");
        std::fs::write(&summaries, text).expect("a file");
        let canaries = |window: &str| {
            let summaries = summaries.display().to_string();
            let arguments = [
                "canaries",
                "fixtures/traces/tally-csv.pi.jsonl",
                "--policy",
                "llm-summarizing",
                "--seeds",
                "1",
                "--depths",
                "0.1",
                "--window",
                window,
                "--tokenizer",
                "chars/4",
                "--summarizer",
                &summaries,
                "--format",
                "json",
            ];
            run(&root, &arguments)
        };
        let cells = record(&canaries("30%"));
        let cells = cells.as_array().expect("a list");
        // Eight kinds, five rounds.
        assert_eq!(cells.len(), 40);
        for cell in cells {
            assert_eq!((&cell["summarizer"], &cell["n"]), (&"openai/gemma-3-270m".into(), &1.into()));
            // It answers with scraps of its prompt.
            assert_eq!(cell["in_summary"], 0, "{cell}");
        }
        let output = canaries("50%");
        assert!(String::from_utf8_lossy(&output.stderr).contains("summaries are not on the cassette"));
    }

    #[test]
    fn a_file_that_cannot_be_used_is_refused_with_its_name() {
        let folder = folder();
        for (text, expected) in [
            ("api = \"openai\"\nmodel = \"m\"\nurl = \"x\"\n", "unknown field `url`"),
            ("api = \"soap\"\nmodel = \"m\"\n", "known are openai, responses and anthropic"),
            ("api = \"openai\"\nmodel = \"m\"\nkey_env = \"NO_SUCH_KEY\"\n", "NO_SUCH_KEY holds no key"),
            ("api = \"openai\"\nmodel = \"m\"\nsecrets = [\"(\"]\n", "the pattern \"(\" cannot be used"),
            ("api = \"openai\"\nmodel = \"m\"\ncassette = { path = \"none.jsonl\" }\n", "none.jsonl"),
            ("api = ", "TOML parse error"),
        ] {
            std::fs::write(folder.path().join("summaries.toml"), text).expect("a file");
            refused(&condense(folder.path(), "summaries.toml"), expected);
        }
        refused(&condense(folder.path(), "absent.toml"), "absent.toml: ");
    }
}
