//! The agent loop of `docs/EMBEDDING.md` as it stands there, run against scripted models.

use condenser::{BudgetSettings, request::openai::validate_openai_chat};

use super::*;

const SOURCE: &str = include_str!("main.rs");
const GUIDE: &str = include_str!("../../../../docs/EMBEDDING.md");

#[test]
fn the_guide_shows_the_loop_that_is_tested_here() {
    let start = SOURCE.find("/// What a model answers.").unwrap();
    let end = SOURCE.find("fn main()").unwrap();
    assert!(GUIDE.contains(SOURCE[start..end].trim_end()), "copy the loop from the example into the guide");
    main().unwrap();
}

fn agent(log: &Log, window: u64) -> Agent<'_> {
    let rules = condenser_log::RuleSet::of(Rules::Sound);
    let session = condenser_log::NewSession { name: "loop".into(), rules, meta: Default::default() };
    let session = log.create_session(session).unwrap();
    reopen(log, session, window)
}

fn reopen(log: &Log, session: SessionId, window: u64) -> Agent<'_> {
    let budgets = BudgetSettings { window: Some(Tokens(window)), reserve: Some(Tokens(0)), ..Default::default() };
    Agent::open(log, session, condenser_policies::by_name("llm-summarizing").unwrap(), budgets.resolve(None)).unwrap()
}

fn user(agent: &mut Agent<'_>, text: &str) {
    agent.append(Source::User, EventKind::Message(Message::text(Role::User, text))).unwrap();
}

fn call(n: usize, tool_name: &str, arguments: String) -> Reply {
    Reply::Call(Action { call_id: format!("c{n}"), tool_name: tool_name.into(), arguments, ..Action::default() })
}

#[test]
fn a_long_run_stays_within_its_window_and_what_left_is_recalled_byte_for_byte() {
    let log = Log::open_in_memory().unwrap();
    let mut agent = agent(&log, 2000);
    user(&mut agent, "Find the key in the first file.");
    let mut n = 0;
    let mut recalled = None;
    let mut model = |request: &Value| {
        assert_eq!(validate_openai_chat(request), vec![]);
        n += 1;
        match n {
            1..40 => call(n, "read", format!("{{\"file\": {n}}}")),
            40 => {
                let first =
                    log.search(&log.sessions().unwrap()[0].id, &condenser_log::Query::new("\"key 1\"")).unwrap();
                call(n, RECALL_TOOL, format!("{{\"event_id\": \"{}\"}}", first.hits[0].id))
            }
            _ => {
                let last = request["messages"].as_array().unwrap().last().unwrap();
                recalled = Some(last["content"].as_str().unwrap().to_owned());
                Reply::Say("Here it is.".into())
            }
        }
    };
    let mut tool = |action: &Action| {
        let n = serde_json::from_str::<Value>(&action.arguments).unwrap()["file"].clone();
        format!("key {n} is {n}{n}{n}; {}", "filler ".repeat(60))
    };
    while agent.step(&mut model, &mut tool).unwrap().is_none() {}
    assert!(recalled.unwrap().contains("key 1 is 111;"));
    assert!(agent.view.records().len() > 3);
    let request = Request::build(&agent.view, &agent.events);
    assert!(request.tokens(&agent.sizer) < Tokens(2000));
}

#[test]
fn a_refused_request_is_condensed_harder_and_sent_again() {
    let log = Log::open_in_memory().unwrap();
    let mut agent = agent(&log, 100_000);
    user(&mut agent, "Read the files.");
    let mut sizes = Vec::new();
    let mut n = 0;
    // A provider that takes 2,000 tokens though its window is said to be larger.
    let mut model = |request: &Value| {
        let size = request.to_string().len() / 4;
        sizes.push(size);
        n += 1;
        match n {
            _ if size > 2000 => Reply::TooLong(None),
            1..40 => call(n, "read", "{}".into()),
            _ => Reply::Say("Done.".into()),
        }
    };
    let mut tool = |_: &Action| "filler ".repeat(60);
    while agent.step(&mut model, &mut tool).unwrap().is_none() {}
    let n_refused = sizes.iter().filter(|size| **size > 2000).count();
    let n_asked = agent.events.iter().filter(|event| event.kind.name() == "condensation_request").count();
    assert!(n_refused > 0);
    assert_eq!((n_asked, agent.view.records().len()), (n_refused, n_refused), "once each, and every one helped");
}

#[test]
fn a_model_that_always_refuses_ends_in_a_typed_error_with_sizes_also_after_reopening() {
    let log = Log::open_in_memory().unwrap();
    let mut agent = agent(&log, 100_000);
    user(&mut agent, "Read the files.");
    for n in 0..30 {
        let mut model = |_: &Value| call(n, "read", "{}".into());
        agent.step(&mut model, &mut |_: &Action| "filler ".repeat(60)).unwrap();
    }
    let tries = |agent: &mut Agent<'_>| {
        let mut n_asked = 0;
        let mut refuse = |_: &Value| {
            n_asked += 1;
            Reply::TooLong(None)
        };
        let error = agent.step(&mut refuse, &mut |_: &Action| String::new()).unwrap_err().to_string();
        (n_asked, error)
    };
    let (n_asked, error) = tries(&mut agent);
    assert!((1..=4).contains(&n_asked), "{n_asked} requests");
    assert!(error.contains("tokens") && error.contains("is the most"), "{error}");
    let session = agent.session.clone();
    let n_records = agent.view.records().len();
    let mut reopened = reopen(&log, session, 100_000);
    let (n_asked, again) = tries(&mut reopened);
    assert_eq!((n_asked, reopened.view.records().len()), (1, n_records), "{again}");
    // A response ends the row.
    let step = |agent: &mut Agent<'_>, mut answers: Vec<Reply>| {
        agent
            .step(&mut |_: &Value| answers.pop().unwrap_or(Reply::TooLong(None)), &mut |_: &Action| "word ".repeat(900))
    };
    step(&mut reopened, vec![call(99, "read", "{}".into())]).unwrap();
    let Ok(Some(text)) = step(&mut reopened, vec![Reply::Say("Done.".into()), Reply::TooLong(None)]) else { panic!() };
    assert_eq!(text, "Done.");
}
