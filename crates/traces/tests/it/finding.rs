//! Paths, folders and names.

use std::fs;
use std::path::Path;

use condenser_traces::{FORMATS, ReadError, find, format, read_path};

const PAUSE: &str = r#"{"id":"00000000","kind":"PauseEvent"}"#;

/// A folder of traces, of one that is a folder itself, and of other things.
fn folder() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &str| {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    write("b.jsonl", PAUSE);
    write("a/run/events/event-00000-00000000.json", PAUSE);
    write("a/run/base_state.json", "{}");
    write("a/z.json", "[]");
    write("notes.md", "not a trace");
    write(".hidden/c.jsonl", PAUSE);
    write(".d.jsonl", PAUSE);
    root
}

#[test]
fn a_folder_is_expanded_in_order_and_a_trace_folder_is_one_candidate() {
    let root = folder();
    let found = find(root.path()).unwrap();
    let names: Vec<_> =
        found.iter().map(|candidate| candidate.path.strip_prefix(root.path()).unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["a/run", "a/z.json", "b.jsonl", "notes.md"]);
    assert!(found.iter().all(|candidate| !candidate.named));

    for named in ["a/run", "a/run/events", "b.jsonl", "notes.md"] {
        let path = root.path().join(named);
        let found = find(&path).unwrap();
        assert_eq!(found.len(), 1, "{named}");
        assert!(found[0].named && found[0].path == path, "{named}");
    }
}

#[test]
fn a_link_back_up_does_not_go_on_for_ever() {
    let root = folder();
    #[cfg(unix)]
    std::os::unix::fs::symlink(root.path(), root.path().join("a/up")).unwrap();
    assert_eq!(find(root.path()).unwrap().len(), 4);
}

#[test]
fn what_cannot_be_read_is_refused_with_its_path_and_the_reason() {
    let root = tempfile::tempdir().unwrap();
    let check = |name: &str, content: Option<&[u8]>, expected: &str| {
        let path = root.path().join(name);
        if let Some(content) = content {
            fs::write(&path, content).unwrap();
        }
        let error = read_path(&path, None).unwrap_err().to_string();
        assert_eq!(error, format!("{}: {expected}", path.display()));
    };
    check("none.json", None, "no such file or folder");
    check("empty.json", Some(b""), "the file is empty");
    check("blank.json", Some(b"\xef\xbb\xbf \n"), "the file is empty");
    check("zip.json", Some(b"PK\x03\x04rest"), "a ZIP archive, not JSON text; unpack or convert it first");
    check("zero.json", Some(b"ab\0cd"), "a binary file, not JSON text; unpack or convert it first");
    check("words.json", Some(b"hello"), "line 1: not JSON: a value was expected");
    check(
        "other.json",
        Some(br#"{"b": 1, "a": 2}"#),
        "not a known trace format (first keys: b, a); `condenser formats` lists the known ones",
    );
    check(
        "list.json",
        Some(br#"[{"x": 1}]"#),
        "not a known trace format (a list; first keys: x); `condenser formats` lists the known ones",
    );
    fs::create_dir(root.path().join("folder")).unwrap();
    assert!(matches!(find(&root.path().join("folder")), Err(ReadError::NoFiles { .. })));
    assert!(matches!(find(&root.path().join("gone")), Err(ReadError::NotFound { .. })));
}

#[test]
fn a_format_can_be_named_and_a_misspelt_name_gets_the_nearest() {
    let root = folder();
    let path = root.path().join("b.jsonl");
    assert_eq!(read_path(&path, Some("openhands-v1")).unwrap().len(), 1);
    assert!(matches!(read_path(&path, Some("openai-chat")), Err(ReadError::Unfit { .. })));
    assert_eq!(
        format("openhand-v1").unwrap_err().to_string(),
        "no trace format is called \"openhand-v1\"; did you mean \"openhands-v1\"?"
    );
    assert!(format("xyzzy").unwrap_err().to_string().contains("known are openhands-v1"));
}

#[test]
fn format_names_are_unique_and_every_reader_refuses_what_is_not_its_own() {
    let mut names: Vec<_> = FORMATS.iter().map(|format| format.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), FORMATS.len());
    let root = tempfile::tempdir().unwrap();
    for content in ["{}", "[]", "[1]", "{}\n{}", "[[]]\n[]"] {
        let path = root.path().join("t");
        fs::write(&path, content).unwrap();
        for format in FORMATS {
            let result = read_path(&path, Some(format.name));
            assert!(matches!(result, Err(ReadError::Unfit { .. })), "{} {content}: {result:?}", format.name);
        }
    }
    for format in FORMATS {
        let result = read_path(Path::new(root.path()), Some(format.name));
        assert!(matches!(result, Err(ReadError::Unfit { .. })), "{}: {result:?}", format.name);
    }
}
