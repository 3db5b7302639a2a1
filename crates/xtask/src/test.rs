//! `cargo xtask test`: every group of tests that this machine can run, and a word on each that it cannot.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context as _, bail};

/// A group that needs more than Rust.
struct Group {
    name: &'static str,
    /// Runs the group. `Err` says what is missing and which command brings it.
    run: fn(is_required: bool) -> Result<anyhow::Result<bool>, String>,
}

const GROUPS: [Group; 5] = [
    Group { name: "shared", run: |_| recorded() },
    Group { name: "python", run: crate::python::group },
    Group { name: "models", run: |_| crate::models::group() },
    Group { name: "sample", run: |_| Ok(crate::sample::group()) },
    Group { name: "browser", run: crate::browser::group },
];

/// Runs the tests. A group in `required` that cannot run is an error.
pub(crate) fn command(required: &[String]) -> anyhow::Result<bool> {
    for name in required {
        if !GROUPS.iter().any(|group| group.name == *name) {
            let known: Vec<&str> = GROUPS.iter().map(|group| group.name).collect();
            bail!("unknown group {name:?}; groups are {}", known.join(", "));
        }
    }
    let required: BTreeSet<&str> = required.iter().map(String::as_str).collect();
    let mut passes = cargo(&["test", "--workspace", "--locked", "--no-fail-fast"])?;
    let mut skipped = Vec::new();
    for group in &GROUPS {
        match (group.run)(required.contains(group.name)) {
            Ok(result) => passes &= result?,
            Err(missing) => skipped.push((group.name, missing)),
        }
    }
    for (name, missing) in skipped {
        println!("skipped {name}: {missing}");
        passes &= !required.contains(name);
    }
    Ok(passes)
}

fn cargo(arguments: &[&str]) -> anyhow::Result<bool> {
    let status = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(crate::root())
        .status()
        .with_context(|| format!("running cargo {}", arguments.join(" ")))?;
    Ok(status.success())
}

/// The peers' recorded answers, and the requests of recorded traces.
fn recorded() -> Result<anyhow::Result<bool>, String> {
    let dir = match crate::shared() {
        Ok(shared) => shared.join("conformance"),
        Err(error) => return Ok(Err(error)),
    };
    if !dir.is_dir() {
        return Err(format!(
            "no recorded cases at {}; set CONDENSER_SHARED to the folder that holds `conformance` and `traces`",
            dir.display()
        ));
    }
    Ok(crate::conformance::command(Some(dir)).and_then(|passes| Ok(crate::prove::requests()? && passes)))
}
