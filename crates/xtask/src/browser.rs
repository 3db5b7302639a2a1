//! The tests of the report in a real browser: Debian's Chromium, driven by playwright-core under Node.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, ensure};

const CHROMIUM: &str = "/usr/bin/chromium";
/// The oldest Node whose test runner the tests use.
const OLDEST_NODE: u32 = 20;

/// The group by itself.
pub(crate) fn command() -> anyhow::Result<bool> {
    group(true).map_err(anyhow::Error::msg)?
}

/// The group `browser` of the tests. It installs what is missing only when it is asked for.
pub(crate) fn group(is_required: bool) -> Result<anyhow::Result<bool>, String> {
    let node = node();
    if node.is_none_or(|version| version < OLDEST_NODE) {
        return Err(format!("it needs Node {OLDEST_NODE} or newer, with npm"));
    }
    if !Path::new(CHROMIUM).exists() {
        if !is_required {
            return Err(format!("there is no {CHROMIUM}; `cargo xtask browser` installs it where it can"));
        }
        if let Err(error) = install() {
            return Err(format!("there is no {CHROMIUM}, and it cannot be installed here: {error:#}"));
        }
    }
    if !is_required && !folder().join("node_modules/playwright-core").exists() {
        return Err("it is run by `cargo xtask browser` (installs playwright-core from npm)".into());
    }
    Ok(test())
}

/// The major version of the Node that is installed.
fn node() -> Option<u32> {
    let output = Command::new("node").arg("--version").output().ok().filter(|output| output.status.success())?;
    let version = String::from_utf8(output.stdout).ok()?;
    version.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

fn folder() -> PathBuf {
    crate::root().join("target/browser")
}

/// Debian's package, as the user that may install it.
fn install() -> anyhow::Result<()> {
    let user = Command::new("id").arg("-u").output().context("asking who this is")?;
    ensure!(user.stdout.trim_ascii() == b"0", "only root may run apt-get; install the package chromium");
    run(Command::new("apt-get").args(["update", "-qq"]), "apt-get update")?;
    let mut apt = Command::new("apt-get");
    apt.args(["install", "-y", "-qq", "--no-install-recommends", "chromium"]).env("DEBIAN_FRONTEND", "noninteractive");
    run(&mut apt, "apt-get install chromium")?;
    ensure!(Path::new(CHROMIUM).exists(), "the package brought no {CHROMIUM}");
    Ok(())
}

fn run(command: &mut Command, what: &str) -> anyhow::Result<()> {
    ensure!(passes(command, what)?, "{what} failed");
    Ok(())
}

fn passes(command: &mut Command, what: &str) -> anyhow::Result<bool> {
    let started = Instant::now();
    let status = command.status().with_context(|| format!("running {what}"))?;
    println!("browser: {what}, {:.1} s", started.elapsed().as_secs_f64());
    Ok(status.success())
}

fn test() -> anyhow::Result<bool> {
    let sources = crate::root().join("crates/report/tests/browser");
    let folder = folder();
    std::fs::create_dir_all(&folder)?;
    // Node looks for packages above the tests, so the tests go where these are.
    for entry in std::fs::read_dir(&sources)? {
        let path = entry?.path();
        if let Some(name) = path.file_name().filter(|_| path.is_file()) {
            std::fs::copy(&path, folder.join(name))?;
        }
    }
    run(
        Command::new("npm").args(["ci", "--no-audit", "--no-fund", "--loglevel=error"]).current_dir(&folder),
        "npm ci",
    )?;
    run(
        Command::new(env!("CARGO"))
            .args(["build", "-p", "condenser-cli", "--locked", "--quiet"])
            .current_dir(crate::root()),
        "building the command",
    )?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| crate::root().join("target"), PathBuf::from);
    let mut node = Command::new("node");
    node.args(["--test", "--test-reporter=spec", "report.test.mjs"]).current_dir(&folder);
    node.env("CONDENSER", std::fs::canonicalize(target.join("debug/condenser"))?);
    node.env("CONDENSER_ROOT", std::fs::canonicalize(crate::root())?);
    if let Ok(shared) = crate::shared()
        && let Ok(traces) = std::fs::canonicalize(shared.join("traces"))
    {
        node.env("CONDENSER_TRACES", traces);
    }
    passes(&mut node, "the tests")
}
