//! `condenser log` as a user runs it.
#![expect(clippy::expect_used, reason = "helpers of tests fail by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// A folder with a log that holds one imported trace.
struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let fixture = Self { folder: tempfile::tempdir().expect("a temporary folder") };
        let imported = fixture.log(&["import", "DB", "fixtures/traces/kvlog-recovery.claude-code.jsonl"], 0);
        assert!(imported.contains("kvlog-recovery.claude-code.jsonl"), "{imported}");
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let in_folder = |name: &str| self.path(name).to_string_lossy().into_owned();
        let arguments = arguments.iter().map(|argument| match *argument {
            "DB" => in_folder("log.db"),
            argument => argument.strip_prefix("DIR/").map_or_else(|| argument.to_owned(), in_folder),
        });
        Command::new(env!("CARGO_BIN_EXE_condenser"))
            .arg("log")
            .args(arguments)
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
            .output()
            .expect("the command starts")
    }

    /// Standard output of a command that ends with this code.
    #[track_caller]
    fn log(&self, arguments: &[&str], code: i32) -> String {
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Standard error of a command that ends with this code, the folder's path taken out.
    #[track_caller]
    fn errors(&self, arguments: &[&str], code: i32) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).replace(&*self.folder.path().to_string_lossy(), "DIR")
    }

    #[track_caller]
    fn rows(&self, arguments: &[&str]) -> Vec<Value> {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--format", "jsonl"]).collect();
        self.log(&arguments, 0).lines().map(|line| serde_json::from_str(line).expect("a row")).collect()
    }

    fn ids(&self, arguments: &[&str]) -> Vec<String> {
        self.rows(arguments).iter().filter_map(|row| Some(row["id"].as_str()?.to_owned())).collect()
    }
}

#[test]
fn events_are_shown_searched_and_given_byte_for_byte() {
    let fixture = Fixture::new();
    let ids = fixture.ids(&["show", "DB"]);
    assert_eq!(ids.len(), 98);
    assert_eq!(fixture.ids(&["show", "DB", "--all"]), ids);
    assert_eq!(fixture.ids(&["show", "DB", "--head", &ids[9]]), ids[..10]);
    assert_eq!(fixture.log(&["show", "DB"], 0).lines().count(), 99);
    let view = fixture.log(&["show", "DB", "--view", "--format", "csv"], 0);
    assert!(view.starts_with("id,kind,source,text\n") && view.lines().count() > 10, "{view}");

    let hits = fixture.rows(&["search", "DB", "record*", "--limit", "3"]);
    assert_eq!(hits.len(), 3);
    let (id, at) = (hits[0]["id"].as_str().expect("an id"), hits[0]["at"].as_u64().expect("a place"));
    let found = fixture.log(&["show", "DB", id, "--bytes", &format!("{at}..{}", at + 6)], 0);
    assert_eq!(found.to_lowercase(), "record");
    let second = fixture.rows(&["search", "DB", "record*", "--limit", "3", "--page", "2"]);
    assert!(second.iter().all(|hit| !hits.contains(hit)));
    assert!(fixture.log(&["search", "DB", "record*", "--limit", "3"], 0).starts_with(" id"));
    assert_eq!(fixture.log(&["search", "DB", "nowordlikethis"], 0).lines().count(), 1);
    assert!(fixture.errors(&["search", "DB", "::"], 2).contains("there is nothing to search for"));
    assert!(fixture.log(&["index", "DB"], 0).starts_with("0 events"));
    assert!(fixture.log(&["index", "DB", "--rebuild"], 0).starts_with("98 events"));
    assert!(fixture.errors(&["show", "DB", "nothing"], 3).contains("no event nothing in session"));
    assert!(fixture.errors(&["show", "DB", &ids[0], "--bytes", "7"], 2).contains("a range of bytes is written"));
}

#[test]
fn branches_pins_and_undos_are_appended() {
    let fixture = Fixture::new();
    let ids = fixture.ids(&["show", "DB"]);
    fixture.log(&["branch", "DB", "--to", &ids[20]], 0);
    assert!(fixture.log(&["pin", "DB", &ids[0], &ids[1]], 0).contains(&format!("pins {} {}", ids[0], ids[1])));
    assert!(fixture.log(&["pin", "DB", &ids[1], "--undo"], 0).contains(" unpins "));
    let branches = fixture.rows(&["branch", "DB"]);
    assert_eq!(branches.len(), 2);
    assert_eq!((&branches[1]["fork"], &branches[1]["active"]), (&ids[20].clone().into(), &true.into()));
    assert_eq!(fixture.ids(&["show", "DB"]).len(), 23);
    assert!(fixture.errors(&["undo", "DB"], 3).contains("no condensation is in force on the active branch"));
    assert!(fixture.errors(&["pin", "DB", "nothing"], 3).contains("no event nothing"));
    fixture.log(&["branch", "DB", "--to-root"], 0);
    assert_eq!(fixture.ids(&["show", "DB"]).len(), 0);
    assert_eq!(fixture.ids(&["show", "DB", "--all"]).len(), 100);
}

#[test]
fn a_session_is_named_by_its_id_its_beginning_or_its_name() {
    let fixture = Fixture::new();
    fixture.log(&["import", "DB", "fixtures/traces/next-run.traj"], 0);
    let sessions = fixture.rows(&["list", "DB"]);
    let id = sessions[1]["session"].as_str().expect("an id");
    let name = sessions[1]["name"].as_str().expect("a name");
    let expected = fixture.ids(&["show", "DB", "--session", id]);
    assert_eq!(fixture.ids(&["show", "DB", "--session", name]), expected);
    assert!(fixture.errors(&["show", "DB"], 2).contains("the log has 2 sessions; choose one with --session"));
    assert!(fixture.errors(&["show", "DB", "--session", "0"], 2).contains("2 sessions are called \"0\""));
    assert!(fixture.errors(&["show", "DB", "--session", "zz"], 2).contains("no session \"zz\""));
    fixture.log(&["drop", "DB", "--session", id], 0);
    assert_eq!(fixture.rows(&["list", "DB"]).len(), 1);
}

#[test]
fn an_exported_session_is_imported_again_and_a_backup_is_a_log() {
    let fixture = Fixture::new();
    let session = fixture.rows(&["list", "DB"])[0]["session"].as_str().expect("an id").to_owned();
    fixture.log(&["export", "DB", "-o", "DIR/out.jsonl"], 0);
    let lines = fixture.log(&["export", "DB"], 0);
    assert_eq!(std::fs::read_to_string(fixture.path("out.jsonl")).expect("the export"), lines);
    assert!(fixture.errors(&["import", "DB", "DIR/out.jsonl"], 3).contains("the log already has session"));
    let imported = fixture.log(&["import", "DIR/other.db", "DIR/out.jsonl"], 0);
    assert!(imported.starts_with(&session) && imported.trim_end().ends_with("98 events"), "{imported}");
    assert_eq!(fixture.log(&["export", "DIR/other.db"], 0), lines);

    fixture.log(&["backup", "DB", "DIR/copy.db"], 0);
    assert_eq!(fixture.log(&["export", "DIR/copy.db"], 0), lines);
    assert!(
        fixture.errors(&["backup", "DB", "DIR/copy.db"], 2).starts_with("error: DIR/copy.db: there is a file already")
    );
    std::fs::write(fixture.path("cut.jsonl"), lines.lines().take(50).collect::<Vec<_>>().join("\n")).expect("a file");
    let cut = fixture.errors(&["import", "DIR/third.db", "DIR/cut.jsonl"], 3);
    assert!(cut.contains("cut.jsonl: the export is cut short before line 51"), "{cut}");
    assert_eq!(fixture.rows(&["list", "DIR/third.db"]).len(), 0);
}

#[test]
fn verify_tells_erased_events_from_damaged_ones() {
    let fixture = Fixture::new();
    let ids = fixture.ids(&["show", "DB"]);
    assert!(fixture.log(&["verify", "DB"], 0).contains(" 98 events, 0 problems\n"));
    assert!(fixture.log(&["erase", "DB", &ids[3], &ids[4]], 0).starts_with("2 events erased"));
    assert!(fixture.log(&["verify", "DB"], 0).contains(" 98 events, 2 erased, 0 problems\n"));
    let stats = fixture.rows(&["stats", "DB"]);
    let value = |what: &str| stats.iter().find(|row| row["what"] == what).map(|row| row["value"].clone());
    assert_eq!((value("erased events"), value("events")), (Some(2.into()), Some(98.into())));
    assert_eq!(value("journal mode"), Some("wal".into()));
    assert!(fixture.log(&["stats", "DB"], 0).contains("write-ahead log bytes"));

    let path = fixture.path("log.db");
    let mut bytes = std::fs::read(&path).expect("the log");
    let needle = format!("\"id\":\"{}\"", ids[7]);
    let places: Vec<usize> = bytes
        .windows(needle.len())
        .enumerate()
        .filter(|(_, window)| *window == needle.as_bytes())
        .map(|(place, _)| place)
        .collect();
    places.iter().for_each(|place| bytes[place + 1] = b'I');
    std::fs::write(&path, bytes).expect("the log is written");
    let found = fixture.log(&["verify", "DB"], 1);
    assert!(found.contains(" 98 events, 2 erased, 1 problems\n"), "{found}");
    assert!(
        found.contains(&format!("  event 7 ({}): the body, the hash or the event before it was changed", ids[7])),
        "{found}"
    );
    // What is damaged is rescued, and said to be.
    let errors = fixture.errors(&["export", "DB"], 1);
    assert!(errors.contains("1 events are damaged, and exported as they are"), "{errors}");
}

#[test]
fn an_empty_file_is_no_log_and_stays_as_it_is() {
    let fixture = Fixture::new();
    let path = fixture.path("log.db");
    std::fs::write(&path, "").expect("a file");
    for command in [&["search", "DB", "word"][..], &["erase", "DB", "id"], &["show", "DB"], &["verify", "DB"]] {
        fixture.log(command, 3);
        assert_eq!(std::fs::metadata(&path).map(|file| file.len()).ok(), Some(0), "{command:?}");
    }
}
