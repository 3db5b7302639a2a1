//! The screen without a terminal: keys in, cells out.

use std::path::Path;

use clap::Parser as _;
use condenser_traces::{Trace, read_path};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::json;

use super::recording::Recording;
use super::screen::{Mode, Screen};
use super::{InspectArguments, draw};
use crate::subjects::{Measure, Policies};

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    arguments: InspectArguments,
}

fn measure() -> Measure {
    Line::parse_from(["inspect", "trace"]).arguments.measure.resolve().unwrap()
}

fn fixture(name: &str) -> Trace {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/traces").join(name);
    let mut trace = read_path(&path, None).unwrap().remove(0);
    trace.name = name.to_owned();
    trace
}

fn recording<'t>(trace: &'t Trace, policy: &str, window: u64) -> Recording<'t> {
    let choices = Policies::read(None).unwrap().choose(&[policy.to_owned()]).unwrap();
    Recording::new(trace, &choices[0], &measure(), condenser::Tokens(window))
}

fn key(c: char) -> KeyEvent {
    KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE)
}

fn code(code: KeyCode) -> KeyEvent {
    KeyEvent::new(code, KeyModifiers::NONE)
}

/// What a terminal of this size shows.
fn shown(screen: &mut Screen<'_>, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| {
            screen.resize(width, height);
            draw::draw(screen, frame.area(), frame.buffer_mut());
        })
        .unwrap();
    terminal.backend().to_string()
}

#[test]
fn each_pane_says_its_part_at_80_by_24() {
    let trace = fixture("kvlog-recovery.claude-code.jsonl");
    let recording = recording(&trace, "recent-events", 12_000);
    let mut screen = Screen::new(&recording, 0);
    insta::assert_snapshot!("first_step", shown(&mut screen, 80, 24));
    screen.key(key('c'));
    insta::assert_snapshot!("view_after_a_change", shown(&mut screen, 80, 24));
    for name in ["log", "change", "sizes"] {
        screen.key(code(KeyCode::Tab));
        insta::assert_snapshot!(name, shown(&mut screen, 80, 24));
    }
    screen.key(key('?'));
    insta::assert_snapshot!("help", shown(&mut screen, 80, 24));
    screen.key(key('x'));
    assert_eq!(screen.mode, Mode::Steps);
}

#[test]
fn keys_walk_between_first_and_last_step_and_between_changes() {
    let trace = fixture("kvlog-recovery.claude-code.jsonl");
    let recording = recording(&trace, "recent-events", 12_000);
    let last = recording.steps.len() - 1;
    let changed: Vec<usize> = (0..=last).filter(|step| recording.steps[*step].has_record).collect();
    assert!(changed.len() >= 2, "{changed:?}");
    let mut screen = Screen::new(&recording, 0);
    for (pressed, step) in [
        (code(KeyCode::Right), 1),
        (key('j'), 2),
        (key('k'), 1),
        (code(KeyCode::Left), 0),
        (key('k'), 0),
        (key('c'), changed[0]),
        (key('c'), changed[1]),
        (key('C'), changed[0]),
        (key('C'), changed[0]),
        (key('G'), last),
        (key('j'), last),
        (key('g'), 0),
        (key('C'), 0),
    ] {
        screen.key(pressed);
        assert_eq!(screen.step, step, "{pressed:?}");
    }
    assert_eq!(screen.message.as_deref(), Some("no earlier change"));
}

#[test]
fn a_step_shows_the_same_whichever_way_it_is_reached() {
    let trace = fixture("ledger-currencies.openhands.jsonl");
    for policy in ["recent-events", "observation-masking", "recorded"] {
        let recording = recording(&trace, policy, 10_000);
        let mut screen = Screen::new(&recording, 0);
        for step in 0..recording.steps.len() {
            assert_eq!(recording.steps[step].n_entries, recording.show(step, None).view.len(), "{policy}, step {step}");
            let walked = shown(&mut screen, 80, 24);
            assert_eq!(walked, shown(&mut Screen::new(&recording, step), 80, 24), "{policy}, step {step}");
            screen.key(key('j'));
            screen.key(code(KeyCode::Home));
        }
    }
}

#[test]
fn a_search_goes_round_and_says_when_there_is_nothing() {
    let trace = fixture("kvlog-recovery.claude-code.jsonl");
    let recording = recording(&trace, "none", 12_000);
    let mut screen = Screen::new(&recording, 20);
    let search = |screen: &mut Screen<'_>, text: &str| {
        screen.key(key('/'));
        text.chars().for_each(|c| screen.key(key(c)));
        screen.key(code(KeyCode::Enter));
        screen.found
    };
    let first = search(&mut screen, "CHECKSUM mismatch").unwrap();
    assert!(screen.rows[first].to_lowercase().contains("checksum mismatch"));
    screen.key(key('n'));
    let second = screen.found.unwrap();
    assert!(second > first);
    screen.key(key('N'));
    assert_eq!(screen.found, Some(first));
    screen.key(key('N'));
    let newest = screen.found.unwrap();
    assert!(newest >= second);
    screen.key(key('n'));
    assert_eq!(screen.found, Some(first));
    assert!((screen.top..screen.top + screen.page()).contains(&first));
    assert_eq!(search(&mut screen, "no such words"), None);
    assert_eq!(screen.message.as_deref(), Some("not found in this pane: no such words"));
}

#[test]
fn no_key_at_no_size_panics_or_shows_what_steers_a_terminal() {
    let hostile =
        "\u{1b}[31mred\u{1b}]8;;http://x\u{7} \u{202e}gnp.exe \u{0}nul \u{200b}<script>\u{9b}2J 日本語 e\u{301}";
    let call = json!([{"id": "c", "type": "function", "function": {"name": hostile, "arguments": hostile}}]);
    let lines = [
        json!({"role": "system", "content": hostile}),
        json!({"role": "user", "content": format!("{hostile}{}", "x".repeat(1 << 20))}),
        json!({"role": "assistant", "content": hostile, "tool_calls": call}),
        json!({"role": "tool", "tool_call_id": "c", "content": hostile.repeat(100)}),
        json!({"role": "assistant", "content": "done"}),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hostile.jsonl");
    std::fs::write(&path, lines.map(|line| line.to_string()).join("\n")).unwrap();
    let mut trace = read_path(&path, None).unwrap().remove(0);
    trace.name = format!("{hostile}.jsonl");
    let recording = recording(&trace, "observation-masking", 2000);
    let mut screen = Screen::new(&recording, 0);
    let keys: Vec<KeyEvent> = "jkgGcC nN/?xe"
        .chars()
        .map(key)
        .chain(
            [
                KeyCode::Up,
                KeyCode::Down,
                KeyCode::PageUp,
                KeyCode::PageDown,
                KeyCode::Home,
                KeyCode::End,
                KeyCode::Tab,
                KeyCode::BackTab,
                KeyCode::Enter,
                KeyCode::Backspace,
            ]
            .map(code),
        )
        .collect();
    // A fixed sequence that looks like chance.
    let mut state = 1_u32;
    let mut next = |below: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % below
    };
    for n in 0..600 {
        screen.key(keys[next(keys.len())]);
        // TestBackend itself needs a cell.
        let (width, height) = if n % 3 == 0 { (80, 24) } else { (1 + next(100) as u16, 1 + next(40) as u16) };
        let cells = shown(&mut screen, width, height);
        let steers = |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{200b}' | '\u{202a}'..='\u{202e}');
        assert!(!cells.contains(steers), "{cells:?}");
    }
    draw::draw(&screen, ratatui::layout::Rect::ZERO, &mut ratatui::buffer::Buffer::empty(ratatui::layout::Rect::ZERO));
}
