//! `condenser policies`: what can be compared, and what can be set.

use condenser_harness::Control;
use condenser_policies::{PolicyInfo, PolicyKind};
use serde_json::{Value, json};

use crate::error::{CliError, Exit};
use crate::output::{Output, OutputFormat};
use crate::subjects::Policies;
use crate::table::table;

#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct PoliciesArguments {
    #[command(subcommand)]
    command: Option<PoliciesCommand>,
    /// The form of the list.
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
}

#[derive(clap::Subcommand, Debug)]
enum PoliciesCommand {
    /// Show all settings of one policy: default, unit, and where the default comes from.
    Show {
        /// The policy.
        name: String,
        /// The form.
        #[arg(long, value_enum, default_value = "table")]
        format: OutputFormat,
    },
}

#[derive(serde::Serialize)]
struct Line {
    policy: &'static str,
    kind: &'static str,
    description: &'static str,
}

#[derive(serde::Serialize)]
struct SettingLine<'s> {
    setting: &'s str,
    default: String,
    unit: &'static str,
    source: &'static str,
    description: &'static str,
}

pub(crate) fn run(arguments: &PoliciesArguments) -> Result<Exit, CliError> {
    let policies = Policies::read(None)?;
    match &arguments.command {
        None => list(&policies, arguments.format),
        Some(PoliciesCommand::Show { name, format }) => show(policies.info(name)?, *format),
    }
}

fn list(policies: &Policies, format: OutputFormat) -> Result<Exit, CliError> {
    let mut output = Output::open(None)?;
    let lines: Vec<Line> = policies
        .registry()
        .iter()
        .map(|info| Line { policy: info.name, kind: kind(info.kind), description: info.description })
        .chain(Control::ALL.into_iter().map(|control| Line {
            policy: control.name(),
            kind: "control",
            description: control.what(),
        }))
        .collect();
    match format {
        OutputFormat::Table => {
            output.text(&table(
                &["policy", "kind", "what it does"],
                lines.iter().map(|line| [line.policy, line.kind, line.description].map(str::to_owned).to_vec()),
            ))?;
            output.text("\n`condenser policies show NAME` shows the settings of one, with their defaults.\n")?;
        }
        OutputFormat::Csv => output.csv(&lines)?,
        OutputFormat::Json | OutputFormat::Jsonl => {
            let registry = policies.registry();
            let objects: Vec<Value> = lines
                .iter()
                .map(|line| {
                    let settings = registry.iter().find(|info| info.name == line.policy).map(|info| &info.settings);
                    json!({
                        "policy": line.policy, "kind": line.kind, "description": line.description,
                        "settings": settings.map_or_else(|| json!([]), |settings| json!(settings)),
                    })
                })
                .collect();
            documents(&mut output, format, &objects)?;
        }
    }
    output.finish()?;
    Ok(Exit::Ok)
}

fn show(info: &PolicyInfo, format: OutputFormat) -> Result<Exit, CliError> {
    let mut output = Output::open(None)?;
    let lines: Vec<SettingLine<'_>> = info
        .settings
        .iter()
        .map(|setting| SettingLine {
            setting: &setting.name,
            default: if setting.default.is_null() { "off".to_owned() } else { setting.default.to_string() },
            unit: setting.unit,
            source: setting.source,
            description: setting.description,
        })
        .collect();
    match format {
        OutputFormat::Table => {
            output.text(&format!("{} ({}): {}\n", info.name, kind(info.kind), info.description))?;
            if lines.is_empty() {
                output.text("It has no settings.\n")?;
            } else {
                let cells = |line: &SettingLine<'_>| {
                    [line.setting, &line.default, line.unit, line.source, line.description].map(str::to_owned).to_vec()
                };
                let header = ["setting", "default", "unit", "default from", "what it is"];
                output.text("\n")?;
                output.text(&table(&header, lines.iter().map(cells)))?;
            }
        }
        OutputFormat::Csv => output.csv(&lines)?,
        OutputFormat::Json | OutputFormat::Jsonl => {
            let object = json!({
                "policy": info.name, "kind": kind(info.kind), "description": info.description,
                "settings": info.settings,
            });
            documents(&mut output, format, &[object])?;
        }
    }
    output.finish()?;
    Ok(Exit::Ok)
}

fn documents(output: &mut Output, format: OutputFormat, objects: &[Value]) -> Result<(), CliError> {
    match (format, objects) {
        (OutputFormat::Json, [object]) => output.json(object),
        (OutputFormat::Json, objects) => output.json(&objects),
        _ => objects.iter().try_for_each(|object| output.json_line(object)),
    }
}

fn kind(kind: PolicyKind) -> &'static str {
    match kind {
        PolicyKind::Native => "native",
        PolicyKind::Port => "port",
        _ => "control",
    }
}
