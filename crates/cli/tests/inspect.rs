//! `condenser inspect` in a real pseudo-terminal.
#![expect(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

use std::io::{Read as _, Write};
use std::num::NonZeroU16;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use serde_json::json;

/// How long the next output may take before the test fails. Nothing waits for it otherwise.
const PATIENCE: Duration = Duration::from_secs(120);
/// Bytes after which what is waited for does not come any more.
const MAX_BYTES: usize = 32 << 20;

struct Session {
    master: Box<dyn MasterPty + Send>,
    child: Box<dyn Child + Send + Sync>,
    writer: Box<dyn Write + Send>,
    output: Receiver<Vec<u8>>,
    terminal: vt100::Parser,
}

fn size(rows: u16, cols: u16) -> PtySize {
    PtySize { rows, cols, pixel_width: 0, pixel_height: 0 }
}

fn cells(n: u16) -> NonZeroU16 {
    NonZeroU16::new(n).expect("a size")
}

impl Session {
    fn start(trace: &Path, arguments: &[&str]) -> Self {
        let pair = native_pty_system().openpty(size(24, 80)).expect("a pseudo-terminal");
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_condenser"));
        command.arg("inspect");
        command.arg(trace);
        command.args(arguments);
        command.env("TERM", "xterm-256color");
        command.env("NO_COLOR", "1");
        let child = pair.slave.spawn_command(command).expect("the command starts");
        drop(pair.slave);
        let mut reader = pair.master.try_clone_reader().expect("the terminal's output");
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Linux ends a terminal without programs with an error.
            while let Ok(n @ 1..) = reader.read(&mut bytes) {
                if sender.send(bytes[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        let writer = pair.master.take_writer().expect("the terminal's input");
        Self { master: pair.master, child, writer, output, terminal: vt100::Parser::new(cells(24), cells(80), 0) }
    }

    fn contents(&self) -> String {
        self.terminal.screen().contents()
    }

    /// Reads until the screen is as wanted.
    #[track_caller]
    fn until(&mut self, wanted: impl Fn(&vt100::Screen) -> bool, what: &str) {
        let mut n_bytes = 0;
        while !wanted(self.terminal.screen()) {
            match self.output.recv_timeout(PATIENCE) {
                Ok(bytes) => {
                    n_bytes += bytes.len();
                    self.terminal.process(&bytes);
                }
                Err(error) => panic!("{what:?} does not come ({error}):\n{}", self.contents()),
            }
            assert!(n_bytes < MAX_BYTES, "{what:?} does not come:\n{}", self.contents());
        }
    }

    #[track_caller]
    fn shows(&mut self, text: &str) {
        self.until(|screen| screen.contents().contains(text), text);
    }

    fn press(&mut self, keys: &str) {
        self.writer.write_all(keys.as_bytes()).expect("the terminal takes keys");
        self.writer.flush().expect("the terminal takes keys");
    }

    /// Reads to the end. The exit code.
    fn end(mut self) -> u32 {
        while let Ok(bytes) = self.output.recv_timeout(PATIENCE) {
            self.terminal.process(&bytes);
        }
        let code = self.child.wait().expect("the command ends").exit_code();
        assert!(!self.terminal.screen().alternate_screen(), "the terminal is not as it was:\n{}", self.contents());
        assert!(!self.terminal.screen().hide_cursor());
        code
    }
}

fn fixture() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/traces/kvlog-recovery.claude-code.jsonl")
}

#[test]
fn a_session_in_a_terminal_steps_searches_helps_resizes_and_quits() {
    let mut session = Session::start(&fixture(), &["--policy", "recent-events", "--window", "12k"]);
    session.shows("step 1 of 30  recent-events");
    session.shows("left/right step");
    session.press("j\u{1b}[C");
    session.shows("step 3 of 30");
    session.press("c");
    session.shows("step 19 of 30");
    session.shows("summary #");
    session.press("\t");
    session.shows("[Log]");
    session.press("\t");
    session.shows("why: tokens");
    session.press("/observation\r");
    session.shows(">- [");
    session.press("/nowhere to be seen\r");
    session.shows("not found in this pane: nowhere to be seen");
    session.press("?");
    session.shows("Any key closes this.");
    session.press("x");
    session.until(|screen| !screen.contents().contains("Any key closes this."), "the pane again");
    let has_colours = (0..24).flat_map(|row| (0..80).map(move |column| (row, column))).any(|(row, column)| {
        let cell = session.terminal.screen().cell(row, column);
        cell.is_some_and(|cell| cell.fgcolor() != vt100::Color::Default || cell.bgcolor() != vt100::Color::Default)
    });
    assert!(!has_colours);
    for (rows, cols) in [(10, 40), (3, 12), (1, 1), (50, 160)] {
        session.terminal.screen_mut().set_size(cells(rows), cells(cols));
        session.master.resize(size(rows, cols)).expect("another size");
        // What is drawn next is drawn for the new size.
        session.press("j");
        session.press("k");
    }
    session.until(
        |screen| screen.rows(0, 160).nth(49).is_some_and(|row| row.starts_with("left/right step")),
        "the keys in the last row",
    );
    session.press("q");
    assert_eq!(session.end(), 0);
}

#[test]
fn escape_and_control_c_leave_the_terminal_as_it_was() {
    for keys in ["\u{1b}", "\u{3}"] {
        let mut session = Session::start(&fixture(), &["--policy", "none", "--step", "30"]);
        session.shows("step 30 of 30  none");
        session.press(keys);
        assert_eq!(session.end(), 0);
    }
}

#[test]
fn a_hostile_trace_does_nothing_in_a_terminal() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("hostile.jsonl");
    let hostile = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{1b}[31mred\u{1b}[?1049l \u{202e}gnp.exe \u{0}nul <script>\u{9b}2J";
    let call = json!([{"id": "c", "type": "function", "function": {"name": hostile, "arguments": hostile}}]);
    let lines = [
        json!({"role": "user", "content": format!("{hostile}{}", "x".repeat(10 << 20))}),
        json!({"role": "assistant", "content": hostile, "tool_calls": call}),
        json!({"role": "tool", "tool_call_id": "c", "content": hostile.repeat(100)}),
        json!({"role": "assistant", "content": "done"}),
    ];
    std::fs::write(&path, lines.map(|line| line.to_string()).join("\n")).expect("the trace is written");
    let mut session = Session::start(&path, &["--policy", "observation-masking", "--window", "2k"]);
    session.shows("step 1 of 2");
    session.shows("\\u{1b}]0;owned\\u{7}\\u{1b}[2J");
    session.press("j");
    session.shows("step 2 of 2");
    for pane in ["[Log]", "[Change]", "[Sizes]"] {
        session.press("\t");
        session.shows(pane);
    }
    let screen = session.terminal.screen();
    assert!(screen.alternate_screen());
    assert!(!screen.contents().contains('\u{202e}'));
    session.press("q");
    assert_eq!(session.end(), 0);
}

#[test]
fn without_a_terminal_there_is_one_clear_message() {
    let output = Command::new(env!("CARGO_BIN_EXE_condenser")).arg("inspect").arg(fixture()).output();
    let output = output.expect("the command starts");
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(errors, "error: `inspect` needs a terminal; `condenser view` prints a step\n");
}
