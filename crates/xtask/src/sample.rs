//! The program in `fixtures/sample`, which pins its compaction with one line of insta.

use std::process::Command;

use anyhow::Context as _;

/// What its pinned text and the new one say about the first change, as insta prints a difference.
const DIFF: [&str; 2] = ["│-request: 6435 to 4266 tokens", "│+request: 6435 to 1439 tokens"];

/// Its test passes as it is, and fails with a diff that names what changed once the policy keeps less.
pub(crate) fn group() -> anyhow::Result<bool> {
    let (passes, printed) = test(&[])?;
    if !passes {
        println!("sample: its test fails as it is\n{printed}");
        return Ok(false);
    }
    let (still_passes, printed) = test(&["--features", "hasty"])?;
    let missing: Vec<&str> = DIFF.into_iter().filter(|line| !printed.contains(line)).collect();
    if still_passes || !missing.is_empty() {
        println!("sample: under the feature `hasty` its test has to fail and say {missing:?}\n{printed}");
        return Ok(false);
    }
    println!("sample: passes as it is; with another policy it fails with {} lines of diff", printed.lines().count());
    Ok(true)
}

fn test(arguments: &[&str]) -> anyhow::Result<(bool, String)> {
    let root = crate::root();
    let output = Command::new(env!("CARGO"))
        .args(["test", "--locked", "--test", "compaction", "--manifest-path"])
        .arg(root.join("fixtures/sample/Cargo.toml"))
        // What the workspace has built of the same crates is taken from there.
        .arg("--target-dir")
        .arg(root.join("target"))
        .args(arguments)
        .envs([("INSTA_UPDATE", "no"), ("INSTA_FORCE_PASS", "0"), ("NO_COLOR", "1")])
        .output()
        .context("running the sample's test")?;
    let printed = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    Ok((output.status.success(), printed))
}
