//! `condenser profiles`: what is known of models.

use std::path::PathBuf;

use condenser_models::{ImageRule, Profile};
use serde::Serialize;

use crate::error::{CliError, Exit};
use crate::models::profiles;
use crate::output::{Output, OutputFormat};
use crate::table::table;

#[derive(clap::Args, Debug)]
pub(crate) struct ProfilesArguments {
    /// A TOML file of profiles, over those that there are.
    #[arg(long, value_name = "FILE")]
    profiles: Option<PathBuf>,
    /// The form of the list.
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
}

/// A profile in a row. What is unknown is null.
#[derive(Serialize)]
struct Line<'p> {
    profile: &'p str,
    as_of: Option<&'p str>,
    context_window: Option<u64>,
    max_output: Option<u64>,
    tokenizer: Option<&'p str>,
    input: Option<f64>,
    cache_read: Option<f64>,
    cache_write: Option<f64>,
    cache_write_1h: Option<f64>,
    output: Option<f64>,
    cache_minimum: Option<u64>,
    cache_block: Option<u64>,
    cache_expiry_seconds: Option<u64>,
    images: Option<&'static str>,
}

impl<'p> Line<'p> {
    fn new(profile: &'p Profile) -> Self {
        let Profile { model, as_of, cache_write_1h, images, .. } = profile;
        Self {
            profile: &model.name,
            as_of: as_of.as_deref(),
            context_window: model.context_window.map(|tokens| tokens.0),
            max_output: model.max_output.map(|tokens| tokens.0),
            tokenizer: model.tokenizer.as_deref(),
            input: model.prices.map(|prices| prices.input),
            cache_read: model.prices.map(|prices| prices.cache_read),
            cache_write: model.prices.map(|prices| prices.cache_write),
            cache_write_1h: *cache_write_1h,
            output: model.prices.map(|prices| prices.output),
            cache_minimum: model.cache.map(|cache| cache.minimum.0),
            cache_block: model.cache.map(|cache| cache.block.0),
            cache_expiry_seconds: model.cache.and_then(|cache| cache.expiry_seconds),
            images: images.map(|rule| match rule {
                ImageRule::Flat { .. } => "flat",
                ImageRule::Area { .. } => "area",
                ImageRule::Tiles { .. } => "tiles",
                _ => "other",
            }),
        }
    }

    fn cells(&self) -> Vec<String> {
        fn or_unknown(value: Option<impl ToString>) -> String {
            value.map_or("unknown".to_owned(), |value| value.to_string())
        }
        vec![
            self.profile.to_owned(),
            or_unknown(self.as_of),
            or_unknown(self.context_window),
            or_unknown(self.max_output),
            or_unknown(self.tokenizer),
            or_unknown(self.input),
            or_unknown(self.cache_read),
            or_unknown(self.cache_write),
            or_unknown(self.output),
            or_unknown(self.cache_minimum),
            or_unknown(self.cache_block),
            or_unknown(self.cache_expiry_seconds),
            or_unknown(self.images),
        ]
    }
}

pub(crate) fn run(arguments: &ProfilesArguments) -> Result<Exit, CliError> {
    let profiles = profiles(arguments.profiles.as_deref())?;
    let rows: Vec<Line<'_>> = profiles.iter().map(Line::new).collect();
    let mut output = Output::open(None)?;
    match arguments.format {
        OutputFormat::Table => output.text(&table(
            &[
                "profile",
                "as of",
                "window",
                "output",
                "tokenizer",
                "$ input",
                "$ read",
                "$ write",
                "$ output",
                "cached from",
                "block",
                "seconds",
                "images",
            ],
            rows.iter().map(Line::cells),
        ))?,
        OutputFormat::Json => output.json(&rows)?,
        OutputFormat::Jsonl => rows.iter().try_for_each(|row| output.json_line(row))?,
        OutputFormat::Csv => output.csv(&rows)?,
    }
    output.finish()?;
    Ok(Exit::Ok)
}
