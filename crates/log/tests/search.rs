//! Search, forgotten events included, and the tool that gives it to a model.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use condenser::condensation::Condensation;
use condenser_log::{Access, Log, Options, Query, SearchError, SessionId, recall_tool};
use serde_json::json;

fn found(log: &Log, session: &SessionId, words: &str) -> String {
    let hits = log.search(session, &Query { limit: 100, ..Query::new(words) }).unwrap();
    let mut ids: Vec<_> = hits.hits.iter().map(|hit| hit.id.to_string()).collect();
    ids.sort();
    ids.join(" ")
}

#[test]
fn words_are_found_in_any_order_case_and_accent_on_every_branch_and_after_forgetting() {
    let log = Log::open_in_memory().unwrap();
    let s = session(&log, "s");
    let other = session(&log, "other");
    log.append(&other, &[message("o", "The build fails in Kvlog")]).unwrap();
    log.append(
        &s,
        &[
            message("a", "The build fails in kvlog::recover with `ImportError: no module`."),
            message("b", "Résumé of the build: nothing fails"),
            message("c", "compiling, compiled, compiler"),
        ],
    )
    .unwrap();
    log.append_condensation(&s, &Condensation { forgotten_event_ids: [id("a")].into(), ..Default::default() }, None)
        .unwrap();
    log.set_head(&s, Some(&id("a"))).unwrap();
    log.append(&s, &[message("d", "elsewhere the BUILD goes on")]).unwrap();
    for (words, expected) in [
        ("build", "a b d"),
        ("fails build", "a b"),
        ("resume", "b"),
        ("\"build fails\"", "a"),
        ("\"fails build\"", ""),
        ("compil*", "c"),
        ("compil", ""),
        ("kvlog::recover", "a"),
        ("OR", ""),
        ("text : build", ""),
        ("'; DROP TABLE search", ""),
        ("\u{0}build", "a b d"),
    ] {
        assert_eq!(found(&log, &s, words), expected, "{words}");
    }
    assert_eq!(found(&log, &other, "build"), "o");
    for nothing in ["", " ", "\"\"", "::", "*"] {
        assert!(matches!(log.search(&s, &Query::new(nothing)), Err(SearchError::NoWords)), "{nothing:?}");
    }
}

#[test]
fn a_hit_says_where_its_first_match_is() {
    let log = Log::open_in_memory().unwrap();
    let session = session(&log, "s");
    let text = format!("{}needle and {}", "añ🙂 hay ".repeat(1000), "hay ".repeat(1000));
    log.append(&session, &[message("e", &text)]).unwrap();
    let hits = log.search(&session, &Query::new("needle and")).unwrap().hits;
    let hit = &hits[0];
    assert_eq!((hit.position, hit.kind, hit.at), (0, "message", Some(text.find("needle").unwrap() as u64)));
    assert!(hit.snippet.contains("hay [needle] [and] hay") && hit.snippet.len() < 300, "{}", hit.snippet);
    let at = hit.at.unwrap();
    assert_eq!(log.text(&session, &hit.id, Some(at..at + 6)).unwrap().unwrap(), b"needle");
}

#[test]
fn pages_together_give_every_hit_once() {
    let log = Log::open_in_memory().unwrap();
    let session = session(&log, "s");
    log.append(&session, &messages("e", 57)).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for offset in (0..60).step_by(10) {
        let page = log.search(&session, &Query { offset, ..Query::new("text") }).unwrap();
        assert_eq!(page.has_more, offset < 50);
        seen.extend(page.hits.into_iter().map(|hit| hit.position));
    }
    assert_eq!(seen.len(), 57);
    assert_eq!(log.search(&session, &Query { limit: 0, ..Query::new("text") }).unwrap().hits.len(), 1);
}

#[test]
fn the_index_is_caught_up_by_the_first_search_and_never_by_an_append() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.db");
    let log = Log::open(&path, Options::default()).unwrap();
    let session = session(&log, "s");
    log.append(&session, &messages("e", 1500)).unwrap();
    assert_eq!(log.stats().unwrap().indexed, 0);
    let reader = Log::open(&path, Options { access: Access::Read, ..Options::default() }).unwrap();
    let behind = reader.search(&session, &Query::new("text")).unwrap();
    assert_eq!((behind.hits.len(), behind.not_indexed), (0, 1500));
    assert_eq!(log.index(&session).unwrap(), 1500);
    assert_eq!(log.index(&session).unwrap(), 0);
    log.append(&session, &messages("f", 3)).unwrap();
    let behind = reader.search(&session, &Query::new("text f")).unwrap();
    assert_eq!((behind.hits.len(), behind.not_indexed), (0, 3));
    assert_eq!(found(&log, &session, "text of f"), "f0 f1 f2");
    assert_eq!(reader.search(&session, &Query::new("text f")).unwrap().hits.len(), 3);
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute("UPDATE search_data SET block = x'00ff' WHERE id > 10", [])
        .unwrap();
    let damaged = Log::open(&path, Options::default()).unwrap().search(&session, &Query::new("text")).unwrap_err();
    assert!(matches!(damaged, SearchError::Index(_)), "{damaged:?}");
    assert!(damaged.to_string().contains("condenser log index --rebuild"), "{damaged}");
    log.drop_index().unwrap();
    assert_eq!(log.stats().unwrap().indexed, 0);
    assert_eq!(found(&log, &session, "text of f"), "f0 f1 f2");
    assert_eq!(log.verify(&session).unwrap().problems, []);
    assert_eq!(log.check_file().unwrap(), [""; 0]);
}

#[test]
fn the_recall_tool_answers_with_bytes_or_with_hits() {
    let log = Log::open_in_memory().unwrap();
    let session = session(&log, "s");
    log.append(&session, &[message("e", "0123456789"), message("long", &"x".repeat(100_000))]).unwrap();
    log.append(&session, &messages("m", 12)).unwrap();
    let answer = |arguments| log.answer_recall(&session, &arguments).unwrap();
    assert_eq!(answer(json!({"event_id": "e"})), "[event e] bytes 0 to 10 of 10:\n0123456789");
    assert_eq!(answer(json!({"event_id": "e", "start": 3, "end": 5})), "[event e] bytes 3 to 5 of 10:\n34");
    assert_eq!(answer(json!({"event_id": "e", "start": 30, "end": 5})), "[event e] bytes 10 to 10 of 10:\n");
    assert_eq!(answer(json!({"event_id": "no"})), "There is no [event no].");
    let long = answer(json!({"event_id": "long", "start": 5}));
    assert!(long.starts_with("[event long] bytes 5 to 32773 of 100000:\nx"), "{}", &long[..60]);
    let hits = answer(json!({"search": "text of m"}));
    assert_eq!(hits.lines().count(), 11);
    assert!(hits.starts_with("[event m") && hits.ends_with("There are more: page 2.\n"), "{hits}");
    assert_eq!(answer(json!({"search": "text of m", "page": 2})).lines().count(), 2);
    assert_eq!(answer(json!({"search": "absent"})), "No event contains these words.\n");
    for wrong in [json!({}), json!({"search": "::"}), json!({"event_id": "e", "search": "x"}), json!([1])] {
        assert!(log.answer_recall(&session, &wrong).unwrap_err().to_string().starts_with("give either `event_id`"));
    }
    let tool = recall_tool();
    assert_eq!(tool["name"], "recall");
    let properties = tool["parameters"]["properties"].as_object().unwrap();
    assert_eq!(properties.keys().collect::<Vec<_>>(), ["event_id", "start", "end", "search", "page"]);
}
