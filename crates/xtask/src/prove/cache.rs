//! The provider's own count of cached tokens in recorded sessions, beside ours.
//!
//! Twice: as the harness counts, which is all that is known of a trace without usage; and in the provider's units, where
//! the request before has the size that was reported for it, and only what our prefix leaves out of it is counted by us.
//! Then what stands in no trace, a system prompt and tools, is in it, and the tokenizer matters little.

use std::path::Path;

use anyhow::ensure;
use condenser::Rules;
use condenser::profile::CacheRules;
use condenser::tokens::{TokenCounter, Tokens};
use condenser_harness::{Prepared, Settings, Subject, run_recorded_observed};
use condenser_models::{Profiles, WithImages};
use condenser_policies::Extractive;
use condenser_traces::Trace;

/// The formats whose sessions record what was read from the cache.
const FORMATS: [&str; 2] = ["claude-code", "pi"];
/// A shortfall below this share of the request before is no miss: the prefix merely ends a little earlier.
const MISS: f64 = 0.5;

/// A step with reported usage.
#[derive(Clone, Copy, Default)]
struct Step {
    /// Reported: the whole input, and what was read from the cache.
    input: f64,
    read: f64,
    /// Counted: the request, and the prefix that it shares with the one before, whatever its size or age.
    tokens: f64,
    common: f64,
    /// Whether the entry had expired.
    is_late: bool,
    /// Whether a recorded condensation stands before it.
    is_condensed: bool,
}

/// Where the difference of a session comes from, in tokens: reported less expected.
#[derive(Default)]
struct Causes {
    first: f64,
    late: (usize, f64),
    condensed: (usize, f64),
    missed: (usize, f64),
    rest: f64,
}

/// Prints a line per session. Whether there was one, and none of them lacks usage.
pub(crate) fn command() -> anyhow::Result<bool> {
    let folder = crate::shared()?.join("traces");
    ensure!(folder.is_dir(), "no traces at {}; set CONDENSER_SHARED", folder.display());
    println!(
        "{:34} {:>5} {:>9}  {:>9} {:>7}  {:>9} {:>7}  explained by (tokens)",
        "session", "steps", "recorded", "counted", "error", "in units", "error"
    );
    let mut n_sessions = 0;
    let (mut total, mut total_expected) = (0.0, 0.0);
    for format in FORMATS {
        for candidate in condenser_traces::find(&folder.join(format))? {
            // A file holds a session, and the sub-agents that it started: these have requests of their own.
            let traces = condenser_traces::read_path(&candidate.path, None)?;
            let Some(trace) = traces.iter().max_by_key(|trace| trace.events.len()) else { continue };
            let is_hour = lasts_an_hour(&candidate.path)?;
            let (recorded, expected) = session(trace, &candidate.path, is_hour)?;
            n_sessions += 1;
            total += recorded;
            total_expected += expected;
        }
    }
    println!(
        "{n_sessions} sessions: {:.1}M tokens read as recorded, {:+.1}% in units",
        total / 1e6,
        (total_expected / total - 1.0) * 100.0
    );
    Ok(n_sessions > 0)
}

/// Whether the session wrote cache entries that last an hour.
fn lasts_an_hour(path: &Path) -> anyhow::Result<bool> {
    let text = std::fs::read_to_string(path)?;
    let mut counts = text.split("\"ephemeral_1h_input_tokens\":").skip(1);
    Ok(counts.any(|rest| rest.trim_start().starts_with(|c: char| ('1'..='9').contains(&c))))
}

/// Prints a session's line. What was recorded, and what we expect in the provider's units.
fn session(trace: &Trace, path: &Path, is_hour: bool) -> anyhow::Result<(f64, f64)> {
    let usage = trace.events.iter().filter_map(|event| event.usage.as_ref());
    let model = usage.filter(|usage| usage.total_input().is_some()).find_map(|usage| usage.model.clone());
    let model = model.unwrap_or_default();
    let profile = Profiles::built_in().get(&model)?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let counter = condenser_models::tokenizer("o200k")?;
    let with_images = profile.images.map(|rule| WithImages::new(counter, rule));
    let counter: &dyn TokenCounter = with_images.as_ref().map_or(counter, |counter| counter);
    let subject = Subject { trace: &trace.name, format: trace.format, task: None, events: &trace.events };
    let prepared = Prepared::new(subject, counter, Rules::Sound);
    let rules = profile.model.cache.unwrap_or(CacheRules {
        minimum: Tokens(0),
        block: Tokens(1),
        expiry_seconds: None,
        charges_writes: false,
    });
    let rules = CacheRules { expiry_seconds: if is_hour { Some(3600) } else { rules.expiry_seconds }, ..rules };
    let run = |rules: CacheRules| {
        let mut profile = profile.model.clone();
        profile.cache = Some(rules);
        let summarizer = Extractive::default();
        let settings = Settings {
            window: None,
            reserve: Tokens::ZERO,
            profile: &profile,
            summarizer: &summarizer,
            seed: 0,
            recall: false,
        };
        let mut seen_steps: Vec<(Tokens, Tokens, bool)> = Vec::new();
        run_recorded_observed(&prepared, &settings, &mut |seen| {
            seen_steps.push((seen.tokens, seen.cached, seen.record.is_some()))
        });
        seen_steps
    };
    let counted = run(rules);
    let endless = run(CacheRules { minimum: Tokens(0), block: Tokens(1), expiry_seconds: None, ..rules });
    let short = run(CacheRules { minimum: Tokens(0), block: Tokens(1), ..rules });
    let mut steps: Vec<Step> = Vec::new();
    let mut ours = 0.0;
    for (index, ((tokens, cached, is_condensed), (_, common, _))) in counted.iter().zip(&endless).enumerate() {
        let Some((input, usage)) = prepared.usage(index).and_then(|usage| Some((usage.total_input()?, usage))) else {
            continue;
        };
        ours += cached.0 as f64;
        steps.push(Step {
            input: input as f64,
            read: usage.cache_read_tokens.unwrap_or(0) as f64,
            tokens: tokens.0 as f64,
            common: common.0 as f64,
            is_late: short[index].1 < *common,
            is_condensed: *is_condensed,
        });
    }
    ensure!(steps.len() > 1, "{name} reports no usage");
    let (hidden, scale) = fit(&steps);
    let mut causes = Causes::default();
    let (mut recorded, mut expected) = (0.0, 0.0);
    for (index, step) in steps.iter().enumerate() {
        recorded += step.read;
        let Some(before) = index.checked_sub(1).map(|before| steps[before]) else {
            causes.first += step.read;
            continue;
        };
        let held = (before.input - scale * (before.tokens - step.common).max(0.0)).max(0.0);
        let most = rules.cached(Tokens(held as u64)).0 as f64;
        let ours = if step.is_late { 0.0 } else { most };
        expected += ours;
        let off = step.read - ours;
        let cause = if step.is_late {
            &mut causes.late
        } else if step.is_condensed {
            &mut causes.condensed
        } else if step.read < most * MISS {
            &mut causes.missed
        } else {
            causes.rest += off;
            continue;
        };
        *cause = (cause.0 + 1, cause.1 + off);
    }
    let error = |count: f64| (count / recorded - 1.0) * 100.0;
    println!(
        "{:34} {:>5} {:>9}  {:>9} {:>6.1}%  {:>9} {:>6.1}%  first request {:+.0}; {} after a pause {:+.0}; {} after a condensation {:+.0}; {} missed {:+.0}; other {:+.0}; \
         unrecorded prompt about {hidden:.0}, {scale:.2} of its tokens to one of ours ({model}{})",
        name,
        steps.len(),
        recorded,
        ours,
        error(ours),
        expected,
        error(expected),
        causes.first,
        causes.late.0,
        causes.late.1,
        causes.condensed.0,
        causes.condensed.1,
        causes.missed.0,
        causes.missed.1,
        causes.rest,
        if is_hour { ", an hour" } else { "" },
    );
    Ok((recorded, expected))
}

/// The line through reported and counted sizes: what is in no trace, and the provider's tokens to one of ours. The
/// median of the slopes between neighbours that grew, so that a condensation in between does no harm.
fn fit(steps: &[Step]) -> (f64, f64) {
    let median = |mut numbers: Vec<f64>| {
        numbers.sort_by(f64::total_cmp);
        numbers.get(numbers.len() / 2).copied()
    };
    let grown = steps.windows(2).filter(|pair| pair[1].tokens > pair[0].tokens + 100.0);
    let slopes = grown.map(|pair| (pair[1].input - pair[0].input) / (pair[1].tokens - pair[0].tokens));
    let scale = median(slopes.filter(|slope| *slope > 0.0).collect()).unwrap_or(1.0);
    let hidden = median(steps.iter().map(|step| step.input - scale * step.tokens).collect()).unwrap_or(0.0);
    (hidden, scale)
}
