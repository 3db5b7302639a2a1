//! The command `condenser`: compare condensation policies on recorded agent traces.

mod commands;
mod error;
mod gate;
mod input;
mod models;
mod output;
#[cfg(feature = "parquet")]
mod parquet;
mod session;
mod shard;
mod subjects;
mod table;
mod tables;
mod terminal;
mod window;

use std::process::ExitCode;

/// A replay makes and drops very many small texts, on all threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use clap::{Parser, Subcommand};

use crate::commands::{
    canaries, compare, condense, convert, formats, log, merge, pairs, policies, probe, profiles, report, reprice,
    score, snapshot, stats, status, traces, view,
};
use crate::terminal::note;

/// What each way of shortening an agent's history costs, and what it loses.
///
/// Exit codes: 0 all went well, 1 a check failed, 2 the command was misused, 3 a named input was unreadable, 4 there were diagnostics
/// under --strict, 5 the output failed.
#[derive(Parser)]
#[command(name = "condenser", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Replay traces under policies: tokens, cost, evidence kept and lost.
    Compare(compare::CompareArguments),
    /// Ask whether the next request still answers authored questions.
    Probe(probe::ProbeArguments),
    /// Plant values in traces, and see how many rounds of condensation they survive.
    Canaries(canaries::CanariesArguments),
    /// Grade what another product made of a session.
    Score(score::ScoreArguments),
    /// Put recorded arms of the same tasks side by side.
    Pairs(pairs::PairsArguments),
    /// Put the parts of a run together.
    Merge(merge::MergeArguments),
    /// Show a run under other prices and cache rules.
    Reprice(reprice::RepriceArguments),
    /// Say what differences between policies are worth: intervals, wins, the smallest that could have been shown.
    Stats(stats::StatsArguments),
    /// Write a run as one HTML page: tables, charts, and each trace with its log beside what the model was shown.
    Report(report::ReportArguments),
    /// Show what the model would have been shown at a step.
    View(view::ViewArguments),
    /// Pin what a policy makes of traces, or check what was pinned.
    Snapshot(snapshot::SnapshotArguments),
    /// Step through a trace under a policy, in the terminal.
    #[cfg(feature = "inspect")]
    Inspect(commands::inspect::InspectArguments),
    /// Condense a session of a log, and show what went.
    Condense(condense::CondenseArguments),
    /// Show what a session of a log holds and may hold.
    Status(status::StatusArguments),
    /// Write traces in another format.
    Convert(convert::ConvertArguments),
    /// Say what is in trace files.
    #[command(subcommand)]
    Traces(traces::TracesCommand),
    /// List the policies.
    Policies(policies::PoliciesArguments),
    /// List what is known of models: windows, prices, cache rules.
    Profiles(profiles::ProfilesArguments),
    /// List the trace formats that can be read.
    Formats(formats::FormatsArguments),
    /// Keep sessions in an event log.
    #[command(subcommand)]
    Log(log::LogCommand),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.command {
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Probe(arguments) => probe::run(&arguments),
        Command::Canaries(arguments) => canaries::run(&arguments),
        Command::Score(arguments) => score::run(&arguments),
        Command::Pairs(arguments) => pairs::run(&arguments),
        Command::Merge(arguments) => merge::run(&arguments),
        Command::Reprice(arguments) => reprice::run(&arguments),
        Command::Stats(arguments) => stats::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::View(arguments) => view::run(&arguments),
        Command::Snapshot(arguments) => snapshot::run(&arguments),
        #[cfg(feature = "inspect")]
        Command::Inspect(arguments) => commands::inspect::run(&arguments),
        Command::Condense(arguments) => condense::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Convert(arguments) => convert::run(&arguments),
        Command::Traces(command) => traces::run(&command),
        Command::Policies(arguments) => policies::run(&arguments),
        Command::Profiles(arguments) => profiles::run(&arguments),
        Command::Formats(arguments) => formats::run(&arguments),
        Command::Log(command) => log::run(command),
    };
    let exit = result.unwrap_or_else(|error| {
        let exit = error.exit();
        if exit != error::Exit::Ok {
            note(&format!("error: {error}"));
        }
        exit
    });
    ExitCode::from(exit as u8)
}
