//! Where the OpenHands SDK's answer is a defect, the `sound` rules do better. One test per defect of its view; those of
//! condensing are tested with the policy `llm-summarizing`.
//!
//! A log is a line of words: `u` a user message, `s` a system prompt, `p` something never shown, `a1` the call 1 of a
//! response of its own, `a1/r` of response r, `a1*` with thinking, `o1` its answer, `o1?` an interim answer,
//! `c-x-y` a condensation that forgets entries x and y, `c+n` one that puts a summary at offset n. The id of an event is
//! its word, or `id=word` where one is given.

use condenser::event::{Action, ContentBlock, Message, Observation, Role, Source, SystemPrompt, Unknown};
use condenser::request::Facts;
use condenser::{Condensation, Event, EventKind, Request, Rules, View};

fn event(word: &str) -> Event {
    let (id, word) = word.split_once('=').unwrap_or((word, word));
    let kind = match word.as_bytes()[0] {
        b'u' => EventKind::Message(Message::text(Role::User, word)),
        b's' => EventKind::SystemPrompt(SystemPrompt { content: vec![ContentBlock::text(word)], ..Default::default() }),
        b'p' => EventKind::Unknown(Unknown { foreign_kind: "PauseEvent".into(), payload: serde_json::Value::Null }),
        b'a' => {
            let (call, response) = word[1..].split_once('/').unwrap_or((&word[1..], word));
            let thinking = word.ends_with('*');
            EventKind::Action(Action {
                call_id: call.trim_end_matches('*').into(),
                tool_name: "tool".into(),
                arguments: "{}".into(),
                response_id: Some(response.trim_end_matches('*').into()),
                thinking: if thinking {
                    vec![ContentBlock::Thinking { thinking: "hm".into(), signature: None }]
                } else {
                    Vec::new()
                },
                ..Default::default()
            })
        }
        b'o' => EventKind::Observation(Observation {
            call_id: word[1..].trim_end_matches('?').into(),
            tool_name: "tool".into(),
            content: vec![ContentBlock::text(word)],
            interim: word.ends_with('?'),
            ..Default::default()
        }),
        _ => {
            let mut record = Condensation::default();
            if let Some((_, offset)) = word.split_once('+') {
                record.summary = Some("in short".into());
                record.summary_offset = offset.parse().ok();
            } else {
                record.forgotten_event_ids = word.split('-').skip(1).map(Into::into).collect();
            }
            EventKind::Condensation(record)
        }
    };
    Event::new(id, Source::Agent, kind)
}

fn log(script: &str) -> Vec<Event> {
    script.split_whitespace().map(event).collect()
}

fn shown(view: &View) -> String {
    view.ids().map(|id| id.as_str()).collect::<Vec<_>>().join(" ")
}

/// Checks the view of a log, fed one by one and rebuilt.
#[track_caller]
fn check(script: &str, expected: &str) -> View {
    let events = log(script);
    let rebuilt = View::replay(&events, Rules::Sound);
    assert_eq!(shown(&rebuilt), expected);
    let mut live = View::new(Rules::Sound);
    for event in &events {
        live.push(event);
    }
    assert_eq!(shown(&live), expected, "a live view is the rebuilt one");
    rebuilt
}

#[track_caller]
fn check_cuts(script: &str, expected: &[usize]) {
    let view = View::replay(&log(script), Rules::Sound);
    assert_eq!(view.manipulation_indices().collect::<Vec<_>>(), expected);
}

#[test]
fn an_answer_before_its_call_is_left_out_and_the_call_stays_open() {
    let view = check("u o1 a1 x=u", "u a1 x");
    assert_eq!(view.diagnostics().orphan_answers, 1);
    assert!(view.get(1).is_some_and(|entry| entry.is_open()));
}

#[test]
fn a_late_second_answer_in_a_thinking_loop_costs_only_itself() {
    let view = check("u a1* o1 a2 o2 again=o1 x=u", "u a1* o1 a2 o2 x");
    assert_eq!(view.diagnostics().duplicate_answers, 1);
}

#[test]
fn an_unanswered_call_in_a_thinking_loop_is_kept_pending_and_costs_nothing() {
    let view = check("u a1* o1 a2 x=u", "u a1* o1 a2 x");
    assert!(view.get(3).is_some_and(|entry| entry.is_open()));
    let facts = Request::build(&view, &log("u a1* o1 a2 x=u")).facts;
    assert_eq!(facts, Facts { filled_results: 1, ..Facts::default() });
}

#[test]
fn a_second_event_with_an_id_is_refused_and_the_first_stays() {
    let view = check("u a1 x=o1 x=o1 a2 o2", "u a1 x a2 o2");
    assert_eq!(view.diagnostics().duplicate_ids, 1);
}

#[test]
fn a_batch_is_its_whole_span_though_answers_stand_between_its_calls() {
    check_cuts("u a1/r o1 a2/r o2 x=u", &[0, 1, 5, 6]);
    check("u a1/r o1 a2/r o2 c-a1/r-o1", "u");
}

#[test]
fn a_response_id_used_again_far_away_is_another_batch() {
    check("u a1/r o1 x=u a2/r o2 c-a1/r-o1", "u x a2/r o2");
}

#[test]
fn what_is_never_shown_does_not_end_a_loop_and_a_summary_does_not_tear_it() {
    check_cuts("u a1* o1 p a2 o2 x=u", &[0, 1, 5, 6]);
    check_cuts("u a1* o1 c-none a2 o2 x=u", &[0, 1, 5, 6]);
}

#[test]
fn a_loop_whose_head_was_forgotten_loses_the_rest_and_one_that_lost_a_later_batch_keeps_it() {
    check("u a1* o1 a2 o2 a3 o3 c-a1*-o1", "u");
    check("u a1* o1 a2 o2 a3 o3 c-a2-o2", "u a1* o1 a3 o3");
}

#[test]
fn an_open_call_strikes_no_later_cut_and_its_late_answer_finds_it() {
    check_cuts("u a1 x=u a2 o2 y=u", &[0, 1, 2, 3, 5, 6]);
    let view = check("u a1 x=u y=u o1", "u a1 x y o1");
    assert_eq!(view.manipulation_indices().collect::<Vec<_>>(), [0, 1, 5]);
}

#[test]
fn an_interim_answer_gives_way_to_the_final_one_in_its_place() {
    let view = check("u a1 o1? x=u final=o1", "u a1 final x");
    assert_eq!(view.diagnostics().replaced_answers, 1);
}

#[test]
fn a_call_id_used_again_is_a_new_call_and_no_duplicate() {
    check("u a1/r o1 b=a1/q late=o1", "u a1/r o1 b late");
}

#[test]
fn a_summary_goes_behind_the_system_prompt_whatever_its_offset() {
    let view = check("s u c+0", "s c+0-summary u");
    assert_eq!(view.diagnostics().moved_summaries, 1);
}

#[test]
fn an_id_that_appears_only_later_is_not_forgotten() {
    let view = check("u c-x x=u", "u x");
    assert_eq!(view.diagnostics().unknown_ids, 1);
}

#[test]
fn a_call_that_nobody_waits_for_any_more_gives_its_loop_free() {
    let protected = |n_later: usize, end: &str| {
        let later: String = (2..2 + n_later).map(|n| format!(" a{n} o{n}")).collect();
        let view = View::replay(&log(&format!("u a1* x=u{later}{end}")), Rules::Sound);
        let call = view.get(1).unwrap();
        (call.is_open(), call.is_abandoned(), call.is_protected())
    };
    assert_eq!(protected(15, ""), (true, false, true));
    assert_eq!(protected(16, ""), (true, true, false), "16 later runs are enough");
    assert_eq!(protected(16, " o1"), (false, false, false), "a late answer still finds it");
}
