//! `condenser reprice`: a run under other prices and cache rules, without a replay.

use std::collections::BTreeMap;
use std::path::PathBuf;

use condenser::Tokens;
use condenser_harness::{RowKey, SavedRun, charged};

use super::compare::{RunFormat, read_error, show};
use crate::error::{CliError, Exit};
use crate::models::profiles;
use crate::output::Output;
use crate::subjects::parse_tokens;
use crate::table::table;
use crate::tables::{dollars, share, tokens};

#[derive(clap::Args, Debug)]
pub(crate) struct RepriceArguments {
    /// A run that `condenser compare --out` wrote.
    run: PathBuf,
    /// The model: prices and cache rules (`condenser profiles`). Without it, that of the run.
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// A TOML file of profiles, over those that there are.
    #[arg(long, value_name = "FILE")]
    profiles: Option<PathBuf>,
    /// Instead of rows, each policy's requests by their length: the bounds between the groups, as 8k,32k,128k.
    #[arg(long, value_name = "TOKENS", value_delimiter = ',', value_parser = parse_tokens)]
    by_length: Vec<Tokens>,
    /// The form of the result.
    #[arg(long, value_enum, default_value = "table")]
    format: RunFormat,
    /// Write the result to a file.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The requests of one policy whose lengths lie between two bounds.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
struct Group {
    policy: String,
    window: Option<u64>,
    from: u64,
    to: Option<u64>,
    requests: u64,
    input_tokens: u64,
    cached_tokens: u64,
    input_usd: Option<f64>,
}

pub(crate) fn run(arguments: &RepriceArguments) -> Result<Exit, CliError> {
    let mut run = SavedRun::open(&arguments.run).map_err(read_error)?;
    if let Some(name) = &arguments.profile {
        let profiles = profiles(arguments.profiles.as_deref())?;
        let profile = profiles.get(name).map_err(|error| CliError::Usage(error.to_string()))?;
        run.reprice(&profile.model);
    }
    let mut output = Output::open(arguments.output.clone())?;
    if arguments.by_length.is_empty() {
        show(&run, arguments.format, &mut output)?;
    } else {
        let groups = groups(&run, &arguments.by_length);
        match arguments.format {
            RunFormat::Table | RunFormat::Markdown => output.text(&by_length(&groups))?,
            RunFormat::Json => output.json(&groups)?,
            RunFormat::Jsonl => groups.iter().try_for_each(|group| output.json_line(group))?,
            RunFormat::Csv => output.csv(&groups)?,
            #[cfg(feature = "parquet")]
            RunFormat::Parquet => output.with(|writer| crate::parquet::write(&groups, writer))?,
        }
    }
    output.finish()?;
    Ok(Exit::Ok)
}

fn groups(run: &SavedRun, bounds: &[Tokens]) -> Vec<Group> {
    let mut bounds: Vec<u64> = bounds.iter().map(|bound| bound.0).collect();
    bounds.sort_unstable();
    bounds.dedup();
    let prices = charged(&run.manifest.profile);
    let place = |row: &condenser_harness::Row| {
        let windows = run.manifest.windows.iter().position(|window| Some(*window) == row.window);
        let policies = run.manifest.policies.iter().position(|policy| policy.name == row.policy);
        (windows, policies)
    };
    let mut groups: BTreeMap<_, Group> = BTreeMap::new();
    for row in &run.rows {
        let idle = run.traces.get(&row.trace).map_or(&[][..], |facts| &facts.idle);
        let Some(saved) = run.steps.get(&RowKey::of(row)) else { continue };
        let cached = saved.steps.cached(idle, &run.manifest.profile);
        for (&length, cached) in saved.steps.tokens.iter().zip(cached) {
            let number = bounds.partition_point(|bound| *bound <= length);
            let group = groups.entry((place(row), number)).or_insert_with(|| Group {
                policy: row.policy.clone(),
                window: row.window,
                from: number.checked_sub(1).map_or(0, |before| bounds[before]),
                to: bounds.get(number).copied(),
                input_usd: prices.map(|_| 0.0),
                ..Group::default()
            });
            group.requests += 1;
            group.input_tokens += length;
            group.cached_tokens += cached.0;
            if let (Some(cost), Some(prices)) = (&mut group.input_usd, &prices) {
                let uncached = length.saturating_sub(cached.0);
                *cost += (cached.0 as f64 * prices.cache_read + uncached as f64 * prices.cache_write) / 1e6;
            }
        }
    }
    groups.into_values().collect()
}

fn by_length(groups: &[Group]) -> String {
    let header = ["policy", "window", "length", "requests", "input", "cached", "$ input"];
    table(
        &header,
        groups.iter().map(|group| {
            let to = group.to.map_or_else(|| "and more".to_owned(), |to| format!("to {}", tokens(to)));
            vec![
                group.policy.clone(),
                group.window.map_or_else(|| "–".to_owned(), tokens),
                format!("{} {to}", tokens(group.from)),
                group.requests.to_string(),
                tokens(group.input_tokens),
                share(group.cached_tokens, group.input_tokens),
                dollars(group.input_usd),
            ]
        }),
    )
}
