//! Developer commands: `cargo xtask COMMAND`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command's output is its product")]

mod browser;
mod comparison;
mod conformance;
mod models;
mod prove;
mod python;
mod record_fixtures;
mod sample;
mod schema;
mod test;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// As in the command: what is proved of its speed holds for it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Developer commands of the condenser workspace")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run all tests that this machine can run, and say what was left out.
    Test {
        /// Groups that must not be left out: shared, python, models, sample, browser.
        #[arg(long, value_delimiter = ',')]
        require: Vec<String>,
    },
    /// Run recorded answers of the real peers, and cases written by hand, against the ports, a line per file.
    Conformance {
        /// The folder of suites [default: $CONDENSER_SHARED/conformance and fixtures/conformance].
        dir: Option<PathBuf>,
    },
    /// Install a small model with its server on this machine, and run the tests against it.
    Models {
        /// Only this.
        what: Option<models::What>,
    },
    /// Build the wheel of the Python module and run its tests, as `test --require python` does.
    Python,
    /// Run the tests of the report in Chromium, as `test --require browser` does. Installs Chromium where root may.
    Browser,
    /// Run the scripted sessions and write what they give to fixtures/traces. Needs sh, git and the usual tools.
    RecordFixtures {
        /// Compare with what is there instead of writing; the first difference ends it.
        #[arg(long)]
        check: bool,
        /// Names of scenarios [default: all].
        scenarios: Vec<String>,
    },
    /// Run a proof that is too heavy for every change: requests, policies, kill, memory, sqlx, sdk, cache, tokens, harness,
    /// mutants.
    Prove {
        /// Which one.
        name: String,
        /// For policies: traces [default: all that are at hand]. For sdk: a Python with openhands-sdk.
        paths: Vec<PathBuf>,
    },
    /// Write docs/COMPARISON.md from a run that `condenser compare --policy all --out RUN` made.
    Comparison {
        /// The run's folder.
        run: PathBuf,
        /// Compare with what is there instead of writing.
        #[arg(long)]
        check: bool,
    },
    /// Write the JSON Schemas of events and records to docs/schema.
    Schema {
        /// Compare with what is there instead of writing.
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.command {
        Command::Test { require } => test::command(&require),
        Command::Conformance { dir } => conformance::command(dir),
        Command::Models { what } => models::command(what),
        Command::Python => python::command(),
        Command::Browser => browser::command(),
        Command::RecordFixtures { check, scenarios } => record_fixtures::command(check, &scenarios),
        Command::Prove { name, paths } => prove::command(&name, &paths),
        Command::Comparison { run, check } => comparison::command(&run, check),
        Command::Schema { check } => schema::command(check),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the workspace.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The folder with recorded cases and traces that is kept outside the repository.
///
/// # Errors
/// A set `CONDENSER_SHARED` that names nothing.
fn shared() -> anyhow::Result<PathBuf> {
    match std::env::var_os("CONDENSER_SHARED") {
        None => Ok(root().join("../shared")),
        Some(path) => {
            let path = PathBuf::from(path);
            anyhow::ensure!(path.is_dir(), "CONDENSER_SHARED names {}, which is not a folder", path.display());
            Ok(path)
        }
    }
}
