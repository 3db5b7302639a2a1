//! Whether an API would refuse the requests of a run.

use condenser::request::{Body, Request, Speaker};

/// Checks one request after another, and of each only the turns that are not as in the one before.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    /// By turn of the newest request: whether a rule is broken there.
    broken: Vec<bool>,
}

impl Checks {
    /// Takes in the next request: the first `n_turns` turns of the one before, and these. Whether it is refused.
    ///
    /// The rules are those of [`validate_openai_chat`](condenser::request::openai::validate_openai_chat) about which
    /// turn stands where and holds what. Names, ids and schemas are made to fit when a request is rendered.
    pub(crate) fn is_refused(&mut self, n_turns: usize, tail: &Request<'_>) -> bool {
        self.broken.truncate(n_turns);
        let mut open: Vec<&str> = Vec::new();
        for turn in &tail.turns {
            let is_answer = matches!(turn.speaker, Speaker::Tool { .. });
            let mut is_broken = !is_answer && !open.is_empty();
            if !is_answer {
                open.clear();
            }
            let mut is_empty = true;
            for part in &turn.parts {
                match &part.body {
                    Body::Text(text) => is_broken |= text.trim_start().is_empty(),
                    Body::Image(_) => {}
                    Body::Thinking(_) => continue,
                    Body::Call { .. } if turn.speaker != Speaker::Assistant => continue,
                    Body::Call { id, .. } => {
                        is_broken |= id.is_empty() || open.contains(&id.as_str());
                        open.push(id);
                    }
                }
                is_empty = false;
            }
            is_broken |= match &turn.speaker {
                Speaker::Tool { call_id, .. } => match open.iter().position(|call| call == call_id) {
                    Some(position) => {
                        open.swap_remove(position);
                        false
                    }
                    None => true,
                },
                _ => is_empty,
            };
            self.broken.push(is_broken);
        }
        // Turns stay only behind a turn of the user.
        let has_user = n_turns > 0 || tail.turns.iter().any(|turn| turn.speaker == Speaker::User);
        !has_user || !open.is_empty() || self.broken.contains(&true)
    }
}

#[cfg(test)]
mod tests {
    use condenser::event::Outcome;
    use condenser::request::openai::validate_openai_chat;
    use condenser::request::{Part, Turn};
    use proptest::prelude::*;

    use super::*;

    fn part(body: Body<'static>) -> Part<'static> {
        Part { entry: None, key: None, body }
    }

    fn call(id: &str) -> Part<'static> {
        part(Body::Call { id: id.to_owned(), name: "shell".into(), arguments: "{}".into() })
    }

    fn answer(id: &str) -> Speaker {
        Speaker::Tool { call_id: id.to_owned(), name: "shell".to_owned(), outcome: Outcome::Ok }
    }

    /// Turns of all kinds in any order, most of them as they should be.
    fn turn() -> impl Strategy<Value = Turn<'static>> {
        let text = || part(Body::Text("Fix the build.".into()));
        let image = || part(Body::Image("https://example.com/a.png".into()));
        let parts = prop::collection::vec(prop_oneof![4 => Just(text()), 1 => Just(image())], 0..3);
        let calls = prop::collection::vec(prop_oneof![5 => Just("a"), 5 => Just("b"), 1 => Just("")], 0..3);
        let speaker = prop_oneof![
            1 => Just(Speaker::System),
            3 => Just(Speaker::User),
            5 => Just(Speaker::Assistant),
            5 => prop_oneof![Just("a"), Just("b")].prop_map(answer),
        ];
        (speaker, parts, calls).prop_map(|(speaker, mut parts, calls)| {
            if speaker == Speaker::Assistant {
                parts.extend(calls.into_iter().map(call));
            }
            Turn { speaker, parts }
        })
    }

    proptest! {
        #[test]
        fn a_request_is_refused_where_the_api_refuses_it(turns in prop::collection::vec(turn(), 0..5)) {
            let request = Request { turns, ..Request::default() };
            let violations = validate_openai_chat(&request.to_openai_chat());
            prop_assert_eq!(Checks::default().is_refused(0, &request), !violations.is_empty(), "{:?}", violations);
        }
    }

    #[test]
    fn what_is_broken_in_the_turns_that_stay_is_broken_in_the_next_request() {
        let text = |speaker, text: &'static str| Turn { speaker, parts: vec![part(Body::Text(text.into()))] };
        let request = |turns| Request { turns, ..Request::default() };
        let mut checks = Checks::default();
        assert!(!checks.is_refused(0, &request(vec![text(Speaker::User, "go")])));
        assert!(checks.is_refused(1, &request(vec![text(Speaker::User, " "), text(Speaker::User, "on")])));
        assert!(checks.is_refused(3, &request(vec![text(Speaker::Assistant, "done")])));
        assert!(!checks.is_refused(1, &request(vec![text(Speaker::Assistant, "done")])));
        assert!(checks.is_refused(2, &request(vec![Turn { speaker: Speaker::Assistant, parts: vec![call("a")] }])));
        assert!(checks.is_refused(2, &request(vec![Turn { speaker: answer("a"), parts: Vec::new() }])));
    }
}
