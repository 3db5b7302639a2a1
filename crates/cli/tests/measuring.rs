//! The commands that measure beside `compare`: probes, canaries, foreign texts, pairs, statistics.
#![expect(clippy::expect_used, reason = "helpers of tests fail by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

const LEDGER: &str = "fixtures/traces/ledger-currencies.openhands.jsonl";
const WRAP: &str = "fixtures/traces/wrap-columns.chat.json";

fn condenser(arguments: &[&str]) -> Output {
    let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Command::new(env!("CARGO_BIN_EXE_condenser"))
        .args(arguments)
        .current_dir(root)
        .output()
        .expect("the command starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    stdout(output).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[track_caller]
fn refused(arguments: &[&str], code: i32, expected: &str) {
    let output = condenser(arguments);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains(expected), "{told}");
    assert_eq!(output.status.code(), Some(code), "{told}");
}

/// Files that tests may name.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_string_lossy().into_owned()
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::create_dir_all(Path::new(&path).parent().expect("a folder")).expect("the folder is made");
        std::fs::write(&path, text).expect("the file is written");
        path
    }
}

// ---- probe

#[test]
fn probes_are_all_answered_under_none_and_the_table_has_a_line_per_kind() {
    let of_all = ["probe", "fixtures/traces", "--probes", "fixtures/probes", "--policy", "none,forget-all"];
    let rows = lines(&condenser(&[&of_all[..], &["--format", "jsonl"]].concat()));
    let of = |policy: &str| rows.iter().filter(|row| row["policy"] == policy).collect::<Vec<_>>();
    assert!(of("none").len() >= 40);
    assert!(of("none").iter().all(|row| row["status"] == "in_view"));
    assert!(of("forget-all").iter().filter(|row| row["kind"] != "constraint").all(|row| row["status"] == "lost"));
    let table = stdout(&condenser(&of_all));
    for kind in ["recall", "artifact", "continuation", "decision", "constraint"] {
        assert_eq!(table.matches(&format!(" {kind} ")).count(), 2, "{table}");
    }
    assert!(table.contains("summarizer extractive (not an LLM summary)"), "{table}");
}

#[test]
fn a_trace_without_probes_is_left_out_and_a_bad_file_of_probes_is_named() {
    let folder = Folder::new();
    refused(&["probe", LEDGER, "--probes", &folder.path("")], 1, "left out: there is no file of probes for it");
    let bad = folder.file("bad.json", r#"{"probes": [{"id": "a", "kind": "memory"}]}"#);
    refused(&["probe", LEDGER, "--probes", &bad], 3, "bad.json: probe \"a\", `kind`: unknown; known are recall, ");
    let elsewhere = json!({"probes": [{"id": "a", "kind": "recall", "after": "x", "question": "?", "answer": ["1"], "sources": ["x"]}]});
    let elsewhere = folder.file("elsewhere.json", &elsewhere.to_string());
    refused(&["probe", LEDGER, "--probes", &elsewhere], 3, "probe \"a\", `after`: the trace shows no event \"x\"");
    refused(&["probe", LEDGER, "--probes", &bad, "--window", "0%"], 2, "a share of a trace is like 20%");
    refused(&["probe", LEDGER, "--probes", &bad, "--ask", "m.toml"], 2, "name a file with --answers");
}

// ---- score

#[test]
fn a_text_of_another_product_is_graded_and_a_check_fails_on_what_is_missing() {
    let folder = Folder::new();
    let probes = "fixtures/probes/wrap-columns.chat.json";
    let good = "Only src/wrap.rs was changed; long.txt can go. Default width is 78 (mail gateway). Don't change the samples. \
        plain rustc, no cargo. Numbered items must hang: numbered items. The panic was: WIDTH is a number: ParseIntError { kind: InvalidDigit }. \
        Wide: U+1100–U+115F, U+2E80–U+A4CF, U+AC00–U+D7A3, U+F900–U+FAFF, U+FF00–U+FF60, U+1F300–U+1FAFF.";
    let cases = [
        ("good.txt", good.to_owned(), 0, "7 of 7 probes are answered"),
        ("good.json", json!({"messages": [{"role": "user", "content": good}]}).to_string(), 0, "7 of 7"),
        ("worse.txt", good.replace("78", "map_or(80"), 1, "6 of 7"),
        ("polarity.txt", good.replace("Don't change", "Change"), 1, "lost, value without its polarity"),
        ("empty.txt", String::new(), 1, "0 of 7"),
    ];
    for (name, text, code, expected) in cases {
        let file = folder.file(name, &text);
        let output = condenser(&["score", "--compacted", &file, "--probes", probes, "--check"]);
        assert!(stdout(&output).contains(expected), "{name}: {}", stdout(&output));
        assert_eq!(output.status.code(), Some(code), "{name}");
    }
    let file = folder.file("stale.txt", &good.replace("78", "map_or(80"));
    let rows = lines(&condenser(&["score", "--compacted", &file, "--probes", probes, "--format", "jsonl"]));
    let width = rows.iter().find(|row| row["probe"] == "default-width").expect("a row");
    assert_eq!((&width["status"], &width["stale"], &width["found"]), (&json!("lost"), &json!("alone"), &json!(1)));
    refused(&["score", "--compacted", &folder.path("none"), "--probes", probes], 3, "none: ");
    refused(&["score", "--compacted", &file, "--probes", &file], 3, "stale.txt: no file of probes");
}

// ---- canaries

#[test]
fn canaries_are_planted_the_same_again_and_shown_per_kind_and_round() {
    let of = |more: &[&str]| {
        condenser(&[&["canaries", LEDGER, "--seeds", "1", "--policy", "recent-events,craft"], more].concat())
    };
    let table = stdout(&of(&[]));
    assert_eq!(table, stdout(&of(&[])));
    assert_eq!(table.matches("exact_list").count(), 2, "{table}");
    assert!(table.contains("extractive (not an LLM summary)") && table.contains("round 5"), "{table}");
    let rows = lines(&of(&["--window", "10%,30%", "--format", "jsonl"]));
    let windows: std::collections::BTreeSet<u64> = rows.iter().filter_map(|row| row["window"].as_u64()).collect();
    let windows: Vec<u64> = windows.into_iter().collect();
    assert_eq!(windows.len(), 2);
    assert!(windows[0] * 3 - windows[1] <= 3, "shares of one size: {windows:?}");
    let survivors = |policy: &str| -> u64 {
        let last =
            rows.iter().filter(|row| row["policy"] == policy && row["round"] == 5 && row["kind"] == "safety_rule");
        last.map(|row| row["in_view"].as_u64().expect("a number") + row["in_summary"].as_u64().expect("a number")).sum()
    };
    assert!(survivors("craft") > survivors("recent-events"));
}

#[test]
fn what_is_too_short_for_canaries_is_said() {
    let folder = Folder::new();
    let chat = folder
        .file("chat.jsonl", "{\"role\":\"user\",\"content\":\"hi\"}\n{\"role\":\"assistant\",\"content\":\"hello\"}\n");
    refused(&["canaries", &chat], 1, "left out: the trace has 1 steps before which a user could speak");
    refused(&["canaries", LEDGER, "--depths", "2"], 2, "a depth is a number from 0 to 1, and not 2");
}

// ---- pairs

/// A run of a task as an OpenAI chat, with this many calls.
fn run(calls: usize) -> String {
    let mut messages = vec![json!({"role": "user", "content": "go"})];
    for n in 0..calls {
        let call = json!({"id": format!("c{n}"), "type": "function", "function": {"name": "bash", "arguments": "{\"command\": \"ls\"}"}});
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
        messages.push(json!({"role": "tool", "tool_call_id": format!("c{n}"), "content": "a.rs"}));
    }
    messages.push(json!({"role": "assistant", "content": "done"}));
    json!({ "messages": messages }).to_string()
}

#[test]
fn arms_are_paired_by_name_where_traces_name_no_task() {
    let folder = Folder::new();
    for task in 1..=4 {
        folder.file(&format!("a/task{task}.json"), &run(task + 2));
        folder.file(&format!("b/task{task}.json"), &run(task));
    }
    folder.file("b/task9.json", &run(1));
    let resolved = folder.file("resolved.json", r#"{"resolved_ids": ["task1", "task2"]}"#);
    let (a, b) = (folder.path("a"), folder.path("b"));
    let output = condenser(&["pairs", &a, &b]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("4 traces name no task and are left out; --by name pairs them by name"), "{told}");
    assert_eq!(output.status.code(), Some(1));

    let by_name = ["pairs", &a, &b, "--by", "name", "--resolved-a", &resolved, "--resolved-b", &resolved];
    let report: Value =
        serde_json::from_str(&stdout(&condenser(&[&by_name[..], &["--format", "json"]].concat()))).expect("JSON");
    let pairs = report["pairs"].as_array().expect("pairs");
    assert_eq!(pairs.len(), 4);
    assert_eq!((&pairs[2]["task"], &pairs[2]["first_divergent_step"]), (&json!("task3"), &json!(4)));
    assert_eq!((&pairs[0]["a"]["resolved"], &pairs[3]["a"]["resolved"]), (&json!(true), &json!(false)));
    assert_eq!(report["only_b"].as_array().expect("a list").len(), 1);
    let steps = &report["contrasts"][0];
    assert_eq!((&steps["metric"], &steps["difference"]["mean"]), (&json!("steps"), &json!(-2.0)));
    let table = stdout(&condenser(&by_name));
    for expected in ["5 → 3", "yes → yes", "1 runs of the second arm have no partner", "Second arm less first"] {
        assert!(table.contains(expected), "{expected}: {table}");
    }
    refused(&["pairs", &a, &b, "--resolved-a", &folder.file("bad.json", "{}")], 3, "it holds no list `resolved_ids`");
}

// ---- stats

#[test]
fn rows_of_a_comparison_are_compared_with_a_baseline() {
    let folder = Folder::new();
    let rows = folder.path("rows.jsonl");
    let compare =
        ["compare", "fixtures/traces", "--window", "8k", "--reserve", "1k", "--policy", "none,observation-masking"];
    assert!(condenser(&[&compare[..], &["--format", "jsonl", "-o", &rows]].concat()).status.success());
    let stats =
        ["stats", &rows, "--resamples", "500", "--metric", "input_tokens", "--also", "in_view", "--explore", "lost"];
    let findings = lines(&condenser(&[&stats[..], &["--format", "jsonl"]].concat()));
    assert_eq!(findings.len(), 3);
    assert_eq!(findings[0]["role"], "primary");
    assert_eq!((&findings[0]["difference"]["n_traces"], &findings[0]["verdict"]), (&json!(6), &json!("better")));
    assert_eq!(findings[2]["verdict"], "untested");
    let table = stdout(&condenser(&stats));
    for expected in
        ["input_tokens (primary)", "in_view (secondary, p adjusted)", "nothing is called equal without --margin"]
    {
        assert!(table.contains(expected), "{expected}: {table}");
    }
    assert!(table.contains("6 traces name no task; each counts as a task of its own"), "{table}");
    refused(&["stats", &rows, "--metric", "costs"], 2, "no metric \"costs\"; known are cost_usd, ");
    refused(&["stats", &rows, "--baseline", "craft"], 2, "name one of none, observation-masking as the baseline");
    refused(
        &["stats", &folder.file("bad.jsonl", "{}\n")],
        3,
        "bad.jsonl, line 1: no row of `condenser compare --format jsonl`",
    );
}

#[cfg(not(feature = "llm"))]
#[test]
fn without_the_feature_no_model_is_asked() {
    let arguments = ["probe", WRAP, "--probes", "fixtures/probes", "--ask", "m.toml", "--answers", "answers.jsonl"];
    refused(&arguments, 2, "this build knows nothing of models that answer; build it with `--features llm`");
}

#[cfg(feature = "llm")]
mod models {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    /// A server that answers what it finds in the request: judges say yes, everything else is answered by `text`.
    fn server(text: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let mut request = Vec::new();
                let mut chunk = [0; 65_536];
                while !is_complete(&request) {
                    let n = stream.read(&mut chunk).expect("a request");
                    request.extend_from_slice(&chunk[..n]);
                }
                let is_judge = String::from_utf8_lossy(&request).contains("You check an answer");
                let answer = if is_judge { "Yes." } else { text };
                let body = json!({
                    "id": "r", "choices": [{"message": {"content": answer}, "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": 100, "completion_tokens": 5}
                })
                .to_string();
                let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
                stream.write_all(format!("{head}{body}").as_bytes()).expect("an answer");
            }
        });
        url
    }

    fn is_complete(request: &[u8]) -> bool {
        let Some(end) = request.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
        let head = String::from_utf8_lossy(&request[..end]).into_owned();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
        request.len() - end - 4 >= length.parse::<usize>().expect("a number")
    }

    fn model(folder: &Folder, url: &str, record: bool) -> String {
        let text = format!(
            "api = \"openai\"\nmodel = \"small\"\nbase_url = \"{url}\"\nkey_env = \"\"\n\
             cassette = {{ path = \"tape.jsonl\", record = {record} }}\n"
        );
        folder.file("model.toml", &text)
    }

    #[test]
    fn a_model_is_asked_several_times_judged_and_played_again() {
        let folder = Folder::new();
        let url = server("The default width is seventy-eight columns; samples stay: don't change the samples.");
        let answers = folder.path("answers.jsonl");
        let ask = |record: bool| {
            let file = model(&folder, &url, record);
            let arguments = [
                "probe",
                WRAP,
                "--probes",
                "fixtures/probes",
                "--policy",
                "none",
                "--repeats",
                "2",
                "--ask",
                &file,
                "--judge",
                &file,
                "--answers",
                &answers,
            ];
            let output = condenser(&arguments);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let kept = std::fs::read_to_string(&answers).expect("the answers");
            let kept: Vec<Value> = kept.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
            (stdout(&output), kept)
        };
        let (table, live) = ask(true);
        assert_eq!(live.len(), 7 * 2, "seven probes, twice");
        let of = |probe: &str| live.iter().find(|answer| answer["probe"] == probe).expect("an answer");
        let width = of("default-width");
        assert_eq!(
            (&width["exact"], &width["judged"], &width["passes"]),
            (&json!(false), &json!("Yes."), &json!(true))
        );
        let samples = of("samples");
        assert_eq!(
            (&samples["exact"], &samples["judge"]),
            (&json!(true), &json!(null)),
            "an exact answer has no judge"
        );
        let panic = of("panic");
        assert_eq!((&panic["passes"], &panic["judge"]), (&json!(false), &json!(null)), "facts have no judge");
        assert!(table.contains("judged right"), "{table}");
        assert_eq!(ask(false), (table, live), "the cassette gives the same");

        std::fs::write(folder.path("tape.jsonl"), "").expect("an empty tape");
        let file = model(&folder, &url, false);
        let arguments =
            ["probe", WRAP, "--probes", "fixtures/probes", "--policy", "none", "--ask", &file, "--answers", &answers];
        refused(&arguments, 1, "questions got no answer or no judgement; --answers says why");
        assert!(std::fs::read_to_string(&answers).expect("the answers").contains("has no sample 0"));
    }
}
