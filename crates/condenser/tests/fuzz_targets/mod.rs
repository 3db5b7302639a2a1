//! What is fuzzed. The fuzz crate feeds these functions with made-up inputs, the tests with kept ones.

use condenser::event::{Action, Message, Observation, Outcome, Pin, Role, Source, SystemPrompt, Undo};
use condenser::render::{Mode, Rendering};
use condenser::request::{Api, validate};
use condenser::{Condensation, ContentBlock, Event, EventId, EventKind, Pushed, Request, RewriteOp, Rules, View};

/// An event that is read is written and read again as itself.
pub(crate) fn event_json(data: &[u8]) {
    if let Ok(event) = serde_json::from_slice::<Event>(data) {
        let written = serde_json::to_string(&event).unwrap();
        let read: Event = serde_json::from_str(&written).unwrap();
        assert_eq!(read, event);
        assert_eq!(serde_json::to_string(&read).unwrap(), written);
    }
    if let Ok(record) = serde_json::from_slice::<Condensation>(data) {
        let written = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Condensation>(&written).unwrap(), record);
    }
}

/// A log in any state is replayed, lowered and rendered.
pub(crate) fn replay(data: &[u8]) {
    let events = if data.starts_with(b"{") { read(data) } else { decode(data) };
    for rules in [Rules::Sound, Rules::OpenHands] {
        let rebuilt = View::replay(&events, rules);
        check(&rebuilt, &events);
        let mut live = View::new(rules);
        let mut is_current = true;
        for event in &events {
            is_current &= live.push(event) != Pushed::ReplayNeeded;
        }
        check(&live, &events);
        let undoes = events.iter().any(|event| matches!(event.kind, EventKind::Undo(_)));
        if rules == Rules::Sound && is_current && !undoes {
            assert!(live.ids().eq(rebuilt.ids()));
            assert!(live.manipulation_indices().eq(rebuilt.manipulation_indices()));
            assert_eq!(live.diagnostics(), rebuilt.diagnostics());
            assert!(live.diff(&rebuilt).is_empty());
        }
    }
}

fn check(view: &View, events: &[Event]) {
    assert!(view.manipulation_indices().all(|cut| cut <= view.len()));
    let request = Request::build(view, events);
    for api in Api::ALL {
        let json = request.render(api);
        assert_eq!(validate(api, &json), vec![], "{api}: {json}");
    }
    let tool_messages = view
        .iter()
        .filter(|entry| !entry.is_summary())
        .filter(|entry| matches!(&events[entry.seq()].kind, EventKind::Message(message) if message.role == Role::Tool))
        .count() as u64;
    if view.rules() == Rules::Sound {
        assert_eq!(request.facts.orphan_results, tool_messages);
    }
    let text = Rendering::new(Mode::Full).view(view, events) + &Rendering::new(Mode::Prefix(2)).request(&request);
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'));
}

/// Events as JSON lines; what is no event is left out.
fn read(data: &[u8]) -> Vec<Event> {
    data.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

/// Bytes as a script: one says what happens, the next ones fill it in.
fn decode(data: &[u8]) -> Vec<Event> {
    let mut bytes = data.iter().copied();
    let mut events = Vec::new();
    while let Some(op) = bytes.next() {
        if events.len() == 100 {
            break;
        }
        let mut next = || bytes.next().unwrap_or(0);
        let position = events.len();
        let mut id = EventId::new(format!("e{position}"));
        let text = |kind: u8| match kind % 4 {
            0 => ContentBlock::text(format!("text {position} ")),
            1 => ContentBlock::text("\n"),
            2 => ContentBlock::Image { urls: vec!["data:image/png;base64,QUJD".into()], cache: false },
            _ => ContentBlock::Thinking { thinking: "hm".into(), signature: (kind & 4 == 0).then(|| "s".into()) },
        };
        let named = |n: u8| EventId::new(format!("e{}{}", n & 63, if n > 200 { "-summary" } else { "" }));
        let call_id = |n: u8| ["a", "b", "c.d", "c_d", "", "f", "a_2", "call_1"][n as usize % 8].to_owned();
        let kind = match op % 14 {
            0 => EventKind::SystemPrompt(SystemPrompt { content: vec![text(next())], ..SystemPrompt::default() }),
            1 | 2 => {
                let (role, kind) = (next(), next());
                EventKind::Message(Message {
                    content: vec![text(kind)],
                    ..Message::text([Role::User, Role::Assistant, Role::System, Role::Tool][role as usize % 4], "")
                })
            }
            3..=5 => {
                let (call, response, thinking) = (next(), next(), next());
                EventKind::Action(Action {
                    call_id: call_id(call),
                    tool_name: ["ls", "", "a.b"][thinking as usize % 3].into(),
                    arguments: ["{}", "{", "[]"][response as usize % 3].into(),
                    thinking: if thinking & 3 == 0 { vec![text(3 | (thinking & 4))] } else { Vec::new() },
                    thought: if thinking & 8 == 0 { vec![text(thinking)] } else { Vec::new() },
                    response_id: (response & 7 != 0).then(|| format!("r{}", response & 7)),
                    ..Action::default()
                })
            }
            6..=8 => {
                let (call, kind, flags) = (next(), next(), next());
                EventKind::Observation(Observation {
                    call_id: call_id(call),
                    content: vec![text(kind)],
                    outcome: [Outcome::Ok, Outcome::Error, Outcome::Rejected][flags as usize % 3],
                    interim: flags & 8 != 0,
                    ..Observation::default()
                })
            }
            9 => {
                let (n, offset, rewritten) = (next(), next(), next());
                EventKind::Condensation(Condensation {
                    forgotten_event_ids: (0..n & 15).map(|_| named(next())).collect(),
                    summary: (offset & 1 == 0).then(|| if offset & 2 == 0 { "summary".into() } else { String::new() }),
                    summary_offset: (offset & 4 == 0).then_some(usize::from(offset >> 3)),
                    rewrites: (0..rewritten & 3)
                        .map(|_| {
                            let op = match next() % 4 {
                                0 => RewriteOp::Clear { text: "cleared".into() },
                                1 => RewriteOp::Clip { head: 1, tail: 1 },
                                2 => RewriteOp::Arguments { text: "{\"n\": 1}".into() },
                                _ => RewriteOp::Replace { content: Vec::new() },
                            };
                            (named(next()), op.into())
                        })
                        .collect(),
                    ..Condensation::default()
                })
            }
            10 => EventKind::Pin(Pin { ids: vec![named(next())] }),
            11 => EventKind::Unpin(Pin { ids: vec![named(next())] }),
            12 => EventKind::Undo(Undo { condensation: named(next()) }),
            _ => match events.get(next() as usize) {
                Some(event) => {
                    let event: &Event = event;
                    id = event.id.clone();
                    event.kind.clone()
                }
                None => EventKind::CondensationRequest(Default::default()),
            },
        };
        events.push(Event::new(id, Source::Agent, kind));
    }
    events
}
