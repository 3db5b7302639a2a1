//! Whether the tests of the harness notice a metric that is counted wrongly.
//!
//! Each of these implementations is wrong in one place. It is built in a copy of the workspace, and a test has to fail.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

/// Metric, file in `crates/harness/src`, what stands there once, and what is wrong instead.
const MUTANTS: &[(&str, &str, &str, &str)] = &[
    ("input_tokens", "replay.rs", "row.input_tokens += tokens.0", "row.input_tokens = tokens.0"),
    ("peak_tokens", "replay.rs", "row.peak_tokens.max(tokens.0)", "tokens.0"),
    ("over_window_steps", "replay.rs", "limit.is_some_and(|limit| tokens > limit)", "limit.is_some()"),
    ("invalid_requests", "checks.rs", "                    None => true,", "                    None => false,"),
    (
        "condensations",
        "replay.rs",
        "            row.condensations += 1;\n            row.extended",
        "            row.extended",
    ),
    ("extended", "replay.rs", "u64::from(facts.extended > 0)", "0"),
    ("failed_condensations", "replay.rs", "is_failure && facts.waits_for.is_none()", "false"),
    ("pinned_changes", "replay.rs", "matches!(failure, Failure::Pinned(_))", "false"),
    ("inflations", "replay.rs", "matches!(failure, Failure::NoGain { .. })", "false"),
    (
        "summarizer_input_tokens",
        "replay.rs",
        "row.summarizer_input_tokens += facts.summarizer_input_tokens.0",
        "row.summarizer_input_tokens += facts.summarizer_output_tokens.0",
    ),
    (
        "summarizer_output_tokens",
        "replay.rs",
        "row.summarizer_output_tokens += facts.summarizer_output_tokens.0",
        "row.summarizer_output_tokens += facts.summarizer_input_tokens.0",
    ),
    (
        "evidence_in_view",
        "replay.rs",
        "|| shown.rewritten.any(item);",
        "|| shown.rewritten.any(item) || shown.summaries.any(item);",
    ),
    ("evidence_in_view of rewritten entries", "replay.rs", "|| shown.rewritten.any(item);", ";"),
    ("evidence_in_summary", "replay.rs", "!in_view && shown.summaries.any(item)", "false"),
    (
        "evidence_recoverable",
        "replay.rs",
        "sources.filter(|source| shown.addressed.any(*source))",
        "sources.filter(|_| true)",
    ),
    ("evidence_lost", "replay.rs", "Status::Lost\n            };", "Status::InView\n            };"),
    ("evidence_far_total", "evidence.rs", "steps_back >= FAR", "steps_back > 0"),
    ("self_carried", "replay.rs", "self.row.self_carried += uses.self_carried", "self.row.self_carried += 1"),
    (
        "rereads_habit",
        "replay.rs",
        "self.row.rereads_habit += u64::from(is_habit)",
        "self.row.rereads_habit += u64::from(!is_habit)",
    ),
    (
        "rereads_exposed",
        "rereads.rs",
        "Effect::Write(written) => reads.retain(|_, (targets, _)| !targets.depends_on(&written)),",
        "Effect::Write(_) => {}",
    ),
    ("cached_tokens", "prefix.rs", "return whole + self.common_inside(a, b, counter);", "return whole;"),
    ("cached_tokens after an expiry", "row.rs", "idle > expiry as f64", "idle < 0.0 * expiry as f64"),
    ("cache_write_tokens", "row.rs", "if charges_writes { uncached } else { 0 }", "uncached"),
    ("output_tokens", "replay.rs", "prepared.output.iter().sum()", "0"),
    (
        "cost_usd of cached input",
        "row.rs",
        "(self.cached_tokens, prices.cache_read)",
        "(self.cached_tokens, prices.input)",
    ),
    ("cost_usd of other input", "row.rs", "(uncached, prices.cache_write)", "(uncached, prices.input)"),
    (
        "cost_usd of summaries",
        "row.rs",
        "(self.summarizer_input_tokens, prices.input)",
        "(self.summarizer_input_tokens, prices.cache_read)",
    ),
    ("the basis tiered", "row.rs", "Self::Tiered => (0.1, 1.25)", "Self::Tiered => (0.1, 1.0)"),
    ("evidence_total without what is everywhere", "evidence.rs", "earlier.len() * 5 > n_shown", "false"),
    (
        "evidence_total without what is pinned",
        "evidence.rs",
        "|| earlier.iter().any(|event| pinned.contains(event))",
        "",
    ),
    (
        "oracle",
        "oracle.rs",
        "let Some(best) = best else { break };",
        "let Some(best) = best.filter(|_| false) else { break };",
    ),
];

/// Builds each mutant and runs the harness's tests. Whether all are caught.
pub(crate) fn command() -> anyhow::Result<bool> {
    let copy = crate::root().join("target/mutants");
    copy_workspace(&copy)?;
    ensure!(passes(&copy)?, "the tests fail as they are");
    let mut all_caught = true;
    for (metric, file, right, wrong) in MUTANTS {
        let path = copy.join("crates/harness/src").join(file);
        let text = std::fs::read_to_string(&path)?;
        let n = text.matches(right).count();
        ensure!(n == 1, "{metric}: {right:?} stands {n} times in {file}; the list of mutants is out of date");
        std::fs::write(&path, text.replace(right, wrong))?;
        let passed = passes(&copy);
        std::fs::write(&path, text)?;
        let is_caught = !passed?;
        all_caught &= is_caught;
        println!("{metric:40} {}", if is_caught { "caught" } else { "NOT CAUGHT" });
    }
    Ok(all_caught)
}

/// Copies what git knows of the workspace.
fn copy_workspace(to: &Path) -> anyhow::Result<()> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(crate::root()).output();
    let listed = listed.context("git lists the workspace's files")?;
    for name in String::from_utf8(listed.stdout)?.split('\0').filter(|name| !name.is_empty()) {
        let (from, to) = (crate::root().join(name), to.join(name));
        std::fs::create_dir_all(to.parent().context("a folder")?)?;
        let is_same = std::fs::read(&to).is_ok_and(|old| std::fs::read(&from).is_ok_and(|new| old == new));
        if !is_same {
            std::fs::copy(&from, &to).with_context(|| from.display().to_string())?;
        }
    }
    Ok(())
}

/// Whether the tests of the harness pass. What does not compile is no mutant.
fn passes(workspace: &Path) -> anyhow::Result<bool> {
    // Most mutants do not get past the first.
    for tests in [&["--lib", "--test", "replay"][..], &["--test", "cost", "--test", "controls"]] {
        let cargo = |arguments: &[&str]| {
            let mut command = Command::new(env!("CARGO"));
            command.args(["test", "--quiet", "--locked", "--package", "condenser-harness"]).args(tests).args(arguments);
            // Dependencies are built already; what a mutant leaves behind is of no use. No recorded traces stand
            // beside the copy.
            command.env("CARGO_INCREMENTAL", "0").env_remove("CONDENSER_SHARED");
            command.current_dir(workspace).env("CARGO_TARGET_DIR", crate::root().join("target")).output()
        };
        let built = cargo(&["--no-run"])?;
        ensure!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        if !cargo(&[])?.status.success() {
            return Ok(false);
        }
    }
    Ok(true)
}
