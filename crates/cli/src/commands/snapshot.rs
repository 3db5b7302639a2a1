//! `condenser snapshot`: pins what a policy makes of a folder of traces.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use condenser::Policy;
use condenser::render::Mode;
use condenser_harness::canaries::full_tokens;
use condenser_harness::{Choice, Control};
use condenser_snapshot::{Difference, PREFIX, Setup};
use condenser_traces::{Candidate, Trace};
use rayon::iter::{IntoParallelRefIterator as _, ParallelIterator as _};

use crate::error::{CliError, Exit};
use crate::input::{InputArguments, Met};
use crate::output::Output;
use crate::subjects::{Measure, MeasureArguments, Policies};
use crate::terminal::{note, printable};
use crate::window::{Window, parse_window};

/// What the names of snapshots end with.
const EXTENSION: &str = "snapshot";
/// The same for what a trace itself recorded.
const RECORDED: &str = "recorded.snapshot";
/// Differences that are shown; further ones are only named.
const MAX_SHOWN: usize = 10;

/// Writes one file per trace: each change that the policy made with its reasons, and what the model was shown at the last
/// step. Under version control, `--check` then fails where a change of a policy, of its settings or of a trace shows.
#[derive(clap::Args, Debug)]
pub(crate) struct SnapshotArguments {
    #[command(flatten)]
    input: InputArguments,
    /// The policy.
    #[arg(long, default_value = "condenser-default")]
    policy: String,
    /// A TOML file of policies with settings, and of pipelines.
    #[arg(long, value_name = "FILE")]
    policies: Option<PathBuf>,
    /// The folder of the snapshots; `snapshots` beside the first named path where none is named. A trace `a/b.jsonl` of
    /// the named folder has the file `a/b.jsonl.snapshot` in it.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write nothing: show how the stored snapshots differ, exit code 1 where any does, is missing, or has no trace.
    #[arg(long)]
    check: bool,
    /// Pin the condensations that the traces themselves recorded, the view before and after each, in files that end with
    /// `.recorded.snapshot`. No policy is asked.
    #[arg(long, conflicts_with = "policy")]
    recorded: bool,
    /// Write nothing: show where this policy decides differently than the traces recorded, asked at the same place with the
    /// same log before it; exit code 1 where it does. Words of summaries are not compared.
    #[arg(long, value_name = "POLICY", conflicts_with_all = ["policy", "check", "out"])]
    against: Option<String>,
    /// How much of each text is shown: kinds, redacted (lengths), full, or a number of characters.
    #[arg(long, value_name = "HOW", default_value_t = Mode::Prefix(PREFIX), value_parser = parse_mode, hide_default_value = true)]
    content: Mode,
    /// The context window: tokens, as 32k, or a share of each trace's last request, as 20%.
    #[arg(long, value_name = "SIZE", default_value = "32k", value_parser = parse_window)]
    window: Window,
    #[command(flatten)]
    measure: MeasureArguments,
}

fn parse_mode(text: &str) -> Result<Mode, String> {
    match text {
        "kinds" => Ok(Mode::Kinds),
        "redacted" => Ok(Mode::Redacted),
        "full" => Ok(Mode::Full),
        number => number
            .trim_start_matches("prefix ")
            .parse()
            .map(Mode::Prefix)
            .map_err(|_| "there are kinds, redacted, full, and a number of characters".to_owned()),
    }
}

/// What is made of each trace.
enum Work {
    Policy(Choice),
    Recorded,
    Against(Arc<dyn Policy>),
}

/// A snapshot, or what takes its place.
struct Made {
    name: String,
    text: String,
    same: usize,
    different: usize,
}

pub(crate) fn run(arguments: &SnapshotArguments) -> Result<Exit, CliError> {
    let measure = arguments.measure.resolve()?;
    let policies = Policies::read(arguments.policies.as_deref())?;
    let work = match &arguments.against {
        Some(name) => Work::Against(policies.policy(name)?),
        None if arguments.recorded => Work::Recorded,
        None => match policies.choose(std::slice::from_ref(&arguments.policy))?.as_slice() {
            [Choice::Control(Control::Oracle)] => {
                return Err(CliError::Usage("`oracle` decides anew at each step and leaves nothing to pin".into()));
            }
            [choice] => Work::Policy(choice.clone()),
            _ => return Err(CliError::Usage("a snapshot is of one policy: name it with --policy".into())),
        },
    };
    let folder = arguments.out.clone().unwrap_or_else(|| beside(&arguments.input.paths));
    let (candidates, mut met) = arguments.input.candidates()?;
    let is_trace = |candidate: &&Candidate| candidate.named || candidate.path.extension() != Some(EXTENSION.as_ref());
    let candidates: Vec<&Candidate> = candidates.iter().filter(is_trace).collect();
    let made: Vec<(Vec<Made>, Met)> =
        candidates.par_iter().map(|candidate| of_candidate(arguments, &measure, &work, candidate)).collect();
    let mut snapshots = BTreeMap::new();
    for (made, met_here) in made {
        met.add(met_here);
        for one in made {
            let mut name = one.name.clone();
            let mut n = 1;
            while snapshots.contains_key(&name) {
                n += 1;
                name = format!("{}~{n}", one.name);
            }
            snapshots.insert(name, one);
        }
    }
    let mut output = Output::open(None)?;
    let is_good = match work {
        Work::Against(policy) => show_against(&mut output, &snapshots, policy.name())?,
        _ if arguments.check => check(arguments, &mut output, &folder, &snapshots)?,
        _ => {
            write(&mut output, &folder, extension(arguments), &snapshots)?;
            true
        }
    };
    output.finish()?;
    Ok(if is_good { met.exit(arguments.input.strict) } else { Exit::Check })
}

fn extension(arguments: &SnapshotArguments) -> &'static str {
    if arguments.recorded { RECORDED } else { EXTENSION }
}

fn beside(paths: &[PathBuf]) -> PathBuf {
    match paths.first().filter(|path| path.exists()).and_then(|path| path.parent()) {
        Some(parent) => parent.join("snapshots"),
        None => PathBuf::from("snapshots"),
    }
}

fn of_candidate(
    arguments: &SnapshotArguments,
    measure: &Measure,
    work: &Work,
    candidate: &Candidate,
) -> (Vec<Made>, Met) {
    let (traces, met) = arguments.input.read(candidate);
    let made = |trace: &Trace| {
        let name = name_of(&arguments.input.paths, &candidate.path, &trace.name);
        let settings = measure.settings(condenser::Tokens::ZERO, 0);
        let mut setup = Setup {
            window: settings.window.unwrap_or_default(),
            reserve: settings.reserve,
            counter: measure.models.counter,
            summarizer: settings.summarizer,
            recall: settings.recall,
            rules: measure.rules,
            mode: arguments.content,
        };
        let is_recorded = matches!(work, Work::Recorded);
        if let Window::Tokens(tokens) = arguments.window {
            setup.window = tokens;
        } else if !is_recorded {
            (setup.window, setup.reserve) = arguments.window.of(full_tokens(&setup.prepare(trace)), setup.reserve);
        }
        let made = |text| Made { name: name.clone(), text, same: 0, different: 0 };
        match work {
            Work::Recorded => setup.of_recorded(trace).map(made),
            Work::Policy(choice) => Some(made(setup.of_choice(trace, choice))),
            Work::Against(policy) => {
                let against = setup.against(trace, &**policy);
                let n = against.same + against.different;
                (n > 0).then(|| Made { same: against.same, different: against.different, ..made(against.text) })
            }
        }
    };
    (traces.iter().filter_map(made).collect(), met)
}

/// The name of a snapshot without its ending: where the trace lies below the named path, and its row.
fn name_of(named: &[PathBuf], path: &Path, trace: &str) -> String {
    let below = named
        .iter()
        .filter(|named| named.is_dir())
        .find_map(|named| path.strip_prefix(named).ok().filter(|below| !below.as_os_str().is_empty()));
    let below = below.map(Path::to_owned).or_else(|| path.canonicalize().ok()?.file_name().map(PathBuf::from));
    let below = below.unwrap_or_else(|| PathBuf::from("trace"));
    let row = trace.strip_prefix(&*path.to_string_lossy()).unwrap_or_default();
    let plain = |c: char| if c.is_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let parts =
        below.components().map(|part| part.as_os_str().to_string_lossy().chars().map(plain).collect::<String>());
    let name = parts.collect::<Vec<String>>().join("/");
    name + &row.chars().map(plain).take(100).collect::<String>()
}

fn write(
    output: &mut Output,
    folder: &Path,
    extension: &str,
    snapshots: &BTreeMap<String, Made>,
) -> Result<(), CliError> {
    let mut written = 0;
    for (name, made) in snapshots {
        let path = folder.join(format!("{name}.{extension}"));
        if Difference::of_file(&path, &made.text) == Difference::None {
            continue;
        }
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)
                .map_err(|source| CliError::Output { path: Some(parent.to_owned()), source })?;
        }
        let mut file = Output::open(Some(path))?;
        file.text(&made.text)?;
        file.finish()?;
        written += 1;
    }
    let folder = printable(&folder.display().to_string());
    output.text(&format!("{folder}: {written} snapshots written, {} as they were\n", snapshots.len() - written))
}

fn check(
    arguments: &SnapshotArguments,
    output: &mut Output,
    folder: &Path,
    snapshots: &BTreeMap<String, Made>,
) -> Result<bool, CliError> {
    let extension = extension(arguments);
    let (mut same, mut changed, mut missing) = (0, 0, 0);
    for (name, made) in snapshots {
        let file = format!("{name}.{extension}");
        let text = match Difference::of_file(&folder.join(&file), &made.text) {
            Difference::None => {
                same += 1;
                continue;
            }
            Difference::Missing => {
                missing += 1;
                format!("{file}: missing\n")
            }
            Difference::Changed(diff) => {
                changed += 1;
                if changed > MAX_SHOWN { format!("{file}: differs\n") } else { format!("{file}: differs\n{diff}\n") }
            }
            Difference::Unusable(why) => {
                changed += 1;
                format!("{file}: no snapshot: {why}\n")
            }
            _ => continue,
        };
        output.text(&text)?;
    }
    let mut without_trace = 0;
    for file in stored(folder, arguments.recorded) {
        let name = file.strip_suffix(&format!(".{extension}")).unwrap_or(&file);
        if !snapshots.contains_key(name) {
            without_trace += 1;
            output.text(&format!("{}: there is no trace for it\n", printable(&file)))?;
        }
    }
    let mut line = format!("{same} as stored, {changed} differ, {missing} missing, {without_trace} without a trace");
    let is_good = changed + missing + without_trace == 0;
    if !is_good {
        let _ = write!(line, "; the same command without --check writes what is new");
    }
    output.text(&format!("{line}\n"))?;
    Ok(is_good)
}

/// The snapshots in a folder, by name below it.
fn stored(folder: &Path, recorded: bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(&next).into_iter().flatten().flatten() {
            let path = entry.path();
            // A link is no folder of ours, and may lead back up.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(path);
                continue;
            }
            let Ok(below) = path.strip_prefix(folder) else { continue };
            let parts: Vec<_> = below.components().map(|part| part.as_os_str().to_string_lossy()).collect();
            let name = parts.join("/");
            let is_recorded = name.ends_with(&format!(".{RECORDED}"));
            if name.ends_with(&format!(".{EXTENSION}")) && is_recorded == recorded {
                found.push(name);
            }
        }
    }
    found.sort_unstable();
    found
}

fn show_against(output: &mut Output, found: &BTreeMap<String, Made>, policy: &str) -> Result<bool, CliError> {
    let (mut same, mut different) = (0, 0);
    for (name, made) in found {
        same += made.same;
        different += made.different;
        output.text(&format!("{name}\n{}\n", made.text))?;
    }
    if found.is_empty() {
        note("no trace recorded a condensation");
    }
    let n = same + different;
    output.text(&format!("{} decides as recorded in {same} of {n} condensations\n", printable(policy)))?;
    Ok(different == 0)
}
