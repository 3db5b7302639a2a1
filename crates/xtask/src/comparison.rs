//! `docs/COMPARISON.md` from the rows of a run.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use condenser_harness::statistics::{Finding, Resampling, Study, compare_rows};
use condenser_harness::{Basis, Row, SavedRun, charged, lift, means};

use crate::root;

/// Between these stands what people wrote. It is kept.
const MARKS: [&str; 2] = ["<!-- by hand -->", "<!-- end -->"];

/// Writes the page, or with `check` says whether it is as this run gives it.
pub(crate) fn command(run: &Path, check: bool) -> Result<bool> {
    let run = SavedRun::open(run)?;
    let path = root().join("docs/COMPARISON.md");
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    let by_hand = before.split_once(MARKS[0]).and_then(|(_, rest)| rest.split_once(MARKS[1])).map_or("\n", |it| it.0);
    let page = page(&run, by_hand)?;
    if check {
        if page != before {
            println!("docs/COMPARISON.md is not what this run gives");
        }
        return Ok(page == before);
    }
    std::fs::write(&path, page).with_context(|| path.display().to_string())?;
    Ok(true)
}

fn page(run: &SavedRun, by_hand: &str) -> Result<String> {
    let manifest = &run.manifest;
    let study = Study {
        baseline: "none".to_owned(),
        primary: manifest.primary.clone(),
        secondary: vec!["in_view".to_owned(), "in_view_or_summary".to_owned()],
        exploratory: Vec::new(),
        margin: None,
        resampling: Resampling::default(),
    };
    let findings = compare_rows(&run.rows, &study)?;
    let mut text = format!(
        "# All policies on all traces\n\n\
        Written by `cargo xtask comparison RUN` from the rows of `condenser compare --policy all --window 8k,32k,128k \
        --out RUN`, but for the part that says so.\n\n\
        Replay holds the recorded actions fixed: it says what the recorded agent would have been shown at each step, \
        and what that input would have cost. It does not estimate solve rate, run length or the detours a policy \
        causes.\n\n\
        {} traces with {} steps, {} policies and controls. Tokens by {}, summaries by {}{}, room kept for the answer \
        {} tokens, addresses {}, rules {}. Costs are of the mean trace, in US dollars; `tiered` charges writes to the \
        cache 1.25 and reads 0.1 of the price of input, `discount` charges reads only. Evidence is where the items of \
        an action's arguments were when the agent first used them; intervals are 95% of the mean over traces, by \
        drawing tasks 10,000 times. A star marks what the interval tells from `none`.\n\n## What it shows\n\n{}{by_hand}{}\n",
        run.traces.len(),
        run.traces.values().map(|facts| facts.output.len()).sum::<usize>(),
        manifest.policies.len(),
        manifest.tokenizer,
        manifest.summarizer,
        if manifest.is_model { "" } else { " (which picks lines and is no language model)" },
        manifest.reserve,
        if manifest.recall { "written" } else { "not written" },
        manifest.rules,
        MARKS[0],
        MARKS[1],
    );
    for &window in &manifest.windows {
        let rows: Vec<Row> = run.rows.iter().filter(|row| row.window == Some(window)).cloned().collect();
        let findings: Vec<&Finding> = findings.iter().filter(|finding| finding.window == Some(window)).collect();
        table(&mut text, run, window, &rows, &findings)?;
    }
    Ok(text)
}

fn table(text: &mut String, run: &SavedRun, window: u64, rows: &[Row], findings: &[&Finding]) -> Result<()> {
    let Some(prices) = charged(&run.manifest.profile) else { bail!("the run's profile has no prices") };
    write!(
        text,
        "\n## Window of {window} tokens\n\n\
        | policy | acted on | peak | $ uncached | $ discount | $ tiered | tiered, less that of `none` | in view | + summary | \
        far, in view | lost | re-reads | over | failed | invalid |\n\
        | --- | ---: | ---: | ---: | ---: | ---: | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
    )?;
    let means = means(rows, &prices);
    for mean in &means {
        let of = |metric: &str| {
            findings.iter().find(|it| it.policy == mean.policy && it.metric == metric)?.difference.as_ref()
        };
        let cost = of(&run.manifest.primary).map_or_else(
            || "–".to_owned(),
            |it| {
                let Some([low, high]) = it.interval else { return format!("{:+.3}", it.mean) };
                let star = if low > 0.0 || high < 0.0 { "\\*" } else { "" };
                format!("{:+.3}{star} ({low:+.3} to {high:+.3})", it.mean)
            },
        );
        let kept = of("in_view").map_or_else(
            || percent(mean.in_view),
            |it| match it.interval {
                Some([low, high]) if it.mean != 0.0 => {
                    let share = |value: f64| format!("{:.0}%", 100.0 * (it.baseline_mean + value));
                    format!("{} ({} to {})", share(it.mean), share(low), share(high))
                }
                _ => percent(Some(it.treatment_mean)),
            },
        );
        let lost = rows.iter().filter(|row| row.policy == mean.policy && row.evidence_total > 0);
        let lost: Vec<f64> = lost.map(|row| row.evidence_lost as f64 / row.evidence_total as f64).collect();
        let lost = (!lost.is_empty()).then(|| lost.iter().sum::<f64>() / lost.len() as f64);
        writeln!(
            text,
            "| `{}` | {} of {} | {:.0} | {:.3} | {:.3} | {:.3} | {cost} | {kept} | {} | {} | {} | {} | {} | {} | {} |",
            mean.policy,
            mean.fired,
            mean.n,
            mean.peak_tokens,
            mean.cost[Basis::Uncached as usize],
            mean.cost[Basis::Discount as usize],
            mean.cost[Basis::Tiered as usize],
            percent(mean.in_view_or_summary),
            percent(mean.far_in_view),
            percent(lost),
            mean.rereads_exposed,
            mean.over_window_steps,
            mean.failed_condensations,
            mean.invalid_requests,
        )?;
    }
    text.push('\n');
    let in_view = |name: &str| means.iter().find(|mean| mean.policy == name).and_then(|mean| mean.in_view);
    for (policy, random) in [("observation-masking", "random-masking"), ("recent-events", "random-forgetting")] {
        if let (Some(kept), Some(by_chance)) = (in_view(policy), in_view(random))
            && let Some(lift) = lift(kept, by_chance)
        {
            writeln!(text, "Lift of `{policy}` over `{random}`, evidence in view: {lift:+.2}.  ")?;
        }
    }
    above_oracle(text, run, window)
}

/// Rows that show more than the oracle at the size of `recent-events`, though they are no larger.
fn above_oracle(text: &mut String, run: &SavedRun, window: u64) -> Result<()> {
    let held = |row: &Row| row.evidence_in_view + row.evidence_in_summary;
    let mut above: Vec<(String, usize)> = Vec::new();
    for oracle in run.rows.iter().filter(|row| row.policy == "oracle" && row.window == Some(window)) {
        let others = run.rows.iter().filter(|row| {
            row.trace == oracle.trace
                && row.window == oracle.window
                && row.input_tokens <= oracle.input_tokens
                && held(row) > held(oracle)
        });
        for row in others {
            match above.iter_mut().find(|(policy, _)| *policy == row.policy) {
                Some((_, n)) => *n += 1,
                None => above.push((row.policy.clone(), 1)),
            }
        }
    }
    if !above.is_empty() {
        let listed: Vec<String> = above.iter().map(|(policy, n)| format!("`{policy}` ({n})")).collect();
        writeln!(
            text,
            "Traces on which a policy shows more than the oracle with no more input in all: {}. The oracle is held to \
            the size of `recent-events` step by step; these spend their tokens at other steps, or say in a summary or \
            an address what stood in a line.",
            listed.join(", ")
        )?;
    }
    Ok(())
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "–".to_owned(), |share| format!("{:.0}%", share * 100.0))
}
