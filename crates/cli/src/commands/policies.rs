//! `condenser policies`: what can be compared.

use serde_json::json;

use crate::error::{CliError, Exit};
use crate::output::{Output, OutputFormat};
use crate::subjects::CONTROLS;
use crate::table::table;

#[derive(clap::Args, Debug)]
pub(crate) struct PoliciesArguments {
    /// The form of the list.
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
}

#[derive(serde::Serialize)]
struct Line {
    policy: &'static str,
    kind: String,
    description: &'static str,
}

pub(crate) fn run(arguments: &PoliciesArguments) -> Result<Exit, CliError> {
    let mut output = Output::open(None)?;
    let registry = condenser_policies::policies();
    let kind = |kind| serde_json::to_value(kind).ok().and_then(|kind| kind.as_str().map(str::to_owned));
    let lines: Vec<Line> = registry
        .iter()
        .map(|info| Line {
            policy: info.name,
            kind: kind(info.kind).unwrap_or_default(),
            description: info.description,
        })
        .chain(CONTROLS.iter().map(|(policy, description, _)| Line { policy, kind: "control".into(), description }))
        .collect();
    match arguments.format {
        OutputFormat::Table => {
            output.text(&table(
                &["policy", "kind", "what it does"],
                lines.iter().map(|line| vec![line.policy.to_owned(), line.kind.clone(), line.description.to_owned()]),
            ))?;
            let settings = registry.iter().flat_map(|info| {
                info.settings.iter().map(|setting| {
                    vec![
                        info.name.to_owned(),
                        setting.name.clone(),
                        if setting.default.is_null() { "off".to_owned() } else { setting.default.to_string() },
                        setting.unit.to_owned(),
                        setting.description.to_owned(),
                    ]
                })
            });
            output.text("\n")?;
            output.text(&table(&["policy", "setting", "default", "unit", "what it does"], settings))?;
        }
        OutputFormat::Csv => output.csv(&lines)?,
        OutputFormat::Json | OutputFormat::Jsonl => {
            let objects: Vec<_> = lines
                .iter()
                .map(|line| {
                    let settings = registry.iter().find(|info| info.name == line.policy).map(|info| &info.settings);
                    json!({
                        "policy": line.policy, "kind": line.kind, "description": line.description,
                        "settings": settings.map_or_else(|| json!([]), |settings| json!(settings)),
                    })
                })
                .collect();
            if arguments.format == OutputFormat::Json {
                output.json(&objects)?;
            } else {
                objects.iter().try_for_each(|object| output.json_line(object))?;
            }
        }
    }
    output.finish()?;
    Ok(Exit::Ok)
}
