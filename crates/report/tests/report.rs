//! The page of a small run, unpacked again.
#![expect(clippy::expect_used, reason = "helpers of tests fail by panicking")]

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use condenser::event::{Action, ContentBlock, Event, EventKind, Message, Observation, Pin, Role, Source as By};
use condenser::policy::Policy;
use condenser::profile::{ModelProfile, Prices};
use condenser::tokens::{CharsPer4, Tokens};
use condenser::view::Rules;
use condenser_harness::{
    ForgetAll, Manifest, ManifestPolicy, Prepared, RowKey, RunWriter, SavedRun, Settings, Subject, digest_of, run,
};
use condenser_policies::{Extractive, NoPolicy, ObservationMasking};
use condenser_report::{CanaryLine, Source, visible, write};
use serde_json::Value;

const HOSTILE: &str = "</script><script>alert(1)</script>\u{1b}[31m\u{202e}\0\u{2028}<!--";

fn message(id: &str, role: Role, text: &str) -> Event {
    let by = if role == Role::User { By::User } else { By::Agent };
    Event::new(id, by, EventKind::Message(Message::text(role, text)))
}

fn call(id: &str, tool: &str, arguments: &str) -> Event {
    let action = Action {
        call_id: format!("call-{id}"),
        tool_name: tool.into(),
        arguments: arguments.into(),
        response_id: Some(format!("response-{id}")),
        ..Action::default()
    };
    Event::new(id, By::Agent, EventKind::Action(action))
}

fn result(id: &str, of: &str, text: &str) -> Event {
    let observation = Observation {
        call_id: format!("call-{of}"),
        content: vec![ContentBlock::text(text)],
        ..Observation::default()
    };
    Event::new(id, By::Environment, EventKind::Observation(observation))
}

/// Calls and results that name each other's values, the last one much later.
fn small() -> Vec<Event> {
    let mut events = vec![message("u", Role::User, "please fix it")];
    events.push(Event::new("p", By::User, EventKind::Pin(Pin { ids: vec!["u".into()] })));
    for n in 0..12 {
        let lines = "a line of no use to anybody here\n".repeat(20);
        let arguments =
            if n == 11 { r#"{"command":"cat value_0"}"#.into() } else { format!(r#"{{"command":"step {n}"}}"#) };
        events.push(call(&format!("c{n}"), "bash", &arguments));
        events.push(result(&format!("r{n}"), &format!("c{n}"), &format!("value_{n}\n{lines}")));
    }
    events.push(message("end", Role::Assistant, "done"));
    events
}

fn profile() -> ModelProfile {
    let prices = Prices { input: 3.0, cache_read: 0.3, cache_write: 3.75, output: 15.0 };
    ModelProfile {
        name: "test".into(),
        context_window: None,
        max_output: None,
        tokenizer: None,
        prices: Some(prices),
        cache: None,
    }
}

/// A run of three policies over traces, as it is saved and read again.
fn saved(traces: &[(&str, &[Event])]) -> SavedRun {
    let folder = tempfile::tempdir().expect("a folder");
    let policies: [&dyn Policy; 3] = [&NoPolicy, &ObservationMasking::default(), &ForgetAll];
    let (version, condenser) = Manifest::versions();
    let manifest = Manifest {
        version,
        condenser,
        policies: policies
            .iter()
            .map(|policy| ManifestPolicy { name: policy.name().to_owned(), config_digest: None })
            .collect(),
        windows: vec![2_000],
        reserve: 100,
        tokenizer: "chars/4".into(),
        is_estimate: true,
        summarizer: "extractive".into(),
        is_model: false,
        recall: true,
        rules: "sound".into(),
        matched: None,
        seeds: 1,
        profile: profile(),
        primary: "cost_usd".into(),
        probes: None,
        shard: None,
        finished: true,
    };
    let writer = RunWriter::open(folder.path(), &manifest).expect("a new run");
    for (trace, events) in traces {
        let subject = Subject { trace, format: "f", task: None, events };
        let prepared = Prepared::new(subject, &CharsPer4, Rules::Sound).keep_views();
        writer.begin(&prepared.facts()).expect("a trace");
        for policy in policies {
            let settings = Settings {
                window: Some(Tokens(2_000)),
                reserve: Tokens(100),
                profile: &profile(),
                summarizer: &Extractive::default(),
                seed: 0,
                recall: true,
            };
            let mut replay = run(&prepared, policy, &settings);
            replay.row.wall_ms = 0.0;
            writer.add(&replay, Vec::new()).expect("a row");
        }
    }
    writer.finish().expect("the run")
}

fn page(run: &SavedRun, events: &[Event], canaries: &[CanaryLine]) -> String {
    let mut page = Vec::new();
    let mut source = |name: &str| {
        assert_eq!(run.traces[name].digest, digest_of(events));
        Source::Found(events.to_vec())
    };
    write(run, canaries, &mut source, &mut page).expect("writing into memory");
    String::from_utf8(page).expect("text")
}

/// The content of the element with an id.
fn element<'p>(page: &'p str, id: &str) -> &'p str {
    let (_, rest) = page.split_once(&format!("id=\"{id}\">")).expect("the element");
    rest.split_once("</script>").expect("its end").0
}

fn data(page: &str) -> Value {
    serde_json::from_str(element(page, "data")).expect("JSON")
}

fn block(page: &str, number: usize) -> Value {
    let packed = STANDARD.decode(element(page, &format!("trace-{number}"))).expect("base64");
    let mut json = String::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut json).expect("gzip");
    serde_json::from_str(&json).expect("JSON")
}

/// JSON with a line for each element of an array of the top level.
fn lines(value: &Value) -> String {
    let mut text = String::new();
    for (key, value) in value.as_object().into_iter().flatten() {
        match value.as_array() {
            Some(all) => {
                text.push_str(&format!("{key}:\n"));
                all.iter().for_each(|value| text.push_str(&format!("  {value}\n")));
            }
            None => text.push_str(&format!("{key}: {value}\n")),
        }
    }
    text
}

#[test]
fn the_data_of_a_small_run() {
    let events = small();
    let run = saved(&[("small.jsonl", &events)]);
    let line = r#"{"trace":"t","policy":"forget-all","window":2000,"kind":"fact","round":1,"n":4,"in_view":1,"in_summary":1,
        "recoverable":0,"lost":2,"stale":0,"steps":9}"#;
    let canaries: CanaryLine = serde_json::from_str(line).expect("a line");
    let page = page(&run, &events, &[canaries.clone(), canaries]);
    let mut data = data(&page);
    data["columns"] = Value::Null;
    insta::assert_snapshot!(lines(&data));
    let block = block(&page, 0);
    assert_eq!(block["events"].as_array().expect("events").len(), events.len());
    assert_eq!(block["pins"], serde_json::json!([[0, 1, null]]));
    let masked = &block["rows"][1];
    assert_eq!(run.views.len(), 3);
    insta::assert_snapshot!(lines(&serde_json::json!({
        "uses": block["uses"], "texts": block["texts"], "views": masked["views"], "facts": masked["facts"],
    })));
    // What the last step used was masked then.
    assert_eq!((masked["uses"].as_str(), block["rows"][2]["uses"].as_str()), (Some("r"), Some("l")));
}

#[test]
fn a_run_without_views_and_a_trace_that_is_gone_still_have_a_page() {
    let events = small();
    let mut run = saved(&[("small.jsonl", &events)]);
    run.views.clear();
    let mut page = Vec::new();
    let mut gone = |_: &str| Source::Missing(format!("it is gone {HOSTILE}"));
    write(&run, &[], &mut gone, &mut page).expect("writing into memory");
    let page = String::from_utf8(page).expect("text");
    assert_eq!(data(&page)["traces"][0]["missing"], format!("it is gone {}", visible(HOSTILE)));
    let block = block(&page, 0);
    assert_eq!(block["events"], serde_json::json!([]));
    assert_eq!(block["rows"][0]["views"], Value::Null);
    let key = RowKey::of(&run.rows[0]);
    assert_eq!(block["rows"][0]["tokens"].as_array().map(Vec::len), Some(run.steps[&key].steps.tokens.len()));
}

#[test]
fn hostile_traces_are_escaped_and_bounded() {
    let tool = format!("<b>{HOSTILE}</b>").repeat(1_000);
    let long = "x<y>".repeat(2_500_000);
    let mut events = vec![message("u", Role::User, HOSTILE)];
    for n in 0..1_200 {
        events.push(call(&format!("{HOSTILE}{n}"), &tool[..if n % 100 == 0 { tool.len() } else { 40 }], HOSTILE));
        let text = if n == 1_195 { &long } else { HOSTILE };
        events.push(result(&format!("r{n}"), &format!("{HOSTILE}{n}"), text));
    }
    let name = format!("{HOSTILE}.jsonl");
    let run = saved(&[(&name, &events)]);
    let page = page(&run, &events, &[]);
    assert!(page.len() < 3_000_000, "{}", page.len());
    let before_scripts = page.find("id=\"trace-0\"").expect("the block");
    let from = &page[before_scripts..page.find("id=\"data\"").expect("the data")];
    assert!(from.matches("</script>").count() == 1, "only its own end");
    assert!(!element(&page, "data").contains('<'));
    for c in ['\u{1b}', '\u{202e}', '\0', '\u{2028}'] {
        assert!(!page.contains(c), "{c:?}");
    }
    let block = block(&page, 0);
    let shown = block["events"][2 * 1_195 + 2].as_array().expect("an event");
    assert_eq!(shown[0], "result");
    let length = |value: &Value| value.as_str().map_or(0, |text| text.chars().count());
    assert!(length(&shown[3]) + length(&shown[5]) < 800 && shown[4].as_u64() > Some(9_000_000));
    assert!(length(&block["events"][1][1]) < 300, "a name is cut: {}", block["events"][1][1]);
    assert_eq!(data(&page)["traces"][0]["name"], visible(&name));
}
