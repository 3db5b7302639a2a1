//! Runs on disk: a folder with what a comparison was made with and what it gave, row by row as rows are finished.
//!
//! | file | holds |
//! | --- | --- |
//! | `manifest.json` | the [`Manifest`], written before anything is replayed |
//! | `traces.jsonl` | a [`TraceFacts`] a line |
//! | `rows.jsonl` | a [`Row`] a line |
//! | `steps.jsonl` | a [`SavedSteps`] a line |
//! | `views.jsonl` | a [`SavedViews`] a line; a run that an earlier version wrote has none |
//!
//! A row counts once its line in `rows.jsonl` is whole; those of its steps and views are written before. What a killed run left
//! half-written is dropped when the run goes on. At the end all files are sorted, so that a run that was interrupted
//! and one that was not give the same files, but for `wall_ms`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use condenser::profile::ModelProfile;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::probes::Verdict;
use crate::replay::Replay;
use crate::row::{Row, Steps};
use crate::views::Views;

/// The version of the folder's files.
const VERSION: u32 = 1;
const MANIFEST: &str = "manifest.json";
const TRACES: &str = "traces.jsonl";
const ROWS: &str = "rows.jsonl";
const STEPS: &str = "steps.jsonl";
const VIEWS: &str = "views.jsonl";

/// What a run is made with. Two runs with equal manifests over equal traces give equal rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of the folder's files.
    pub version: u32,
    /// The version of this crate.
    pub condenser: String,
    /// The policies, with the digests of their settings where they are known, in the order of the tables.
    pub policies: Vec<ManifestPolicy>,
    /// The context windows, in tokens.
    pub windows: Vec<u64>,
    /// Room kept for the answer, in tokens.
    pub reserve: u64,
    /// The token counter.
    pub tokenizer: String,
    /// Whether it estimates.
    pub is_estimate: bool,
    /// The summarizer.
    pub summarizer: String,
    /// Whether that is a language model.
    pub is_model: bool,
    /// Whether policies write addresses.
    pub recall: bool,
    /// The rules by which views are cut.
    pub rules: String,
    /// The policy that random controls match, where it is not their default.
    pub matched: Option<String>,
    /// Under how many seeds random controls run.
    pub seeds: u64,
    /// Prices and cache rules.
    pub profile: ModelProfile,
    /// The metric that decides, named before the rows are looked at.
    pub primary: String,
    /// A digest of the probes that were graded, where there were any.
    pub probes: Option<String>,
    /// Which part of the traces this is: number and count.
    pub shard: Option<(u64, u64)>,
    /// Whether all rows are there.
    #[serde(default)]
    pub finished: bool,
}

/// A policy of a [`Manifest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestPolicy {
    /// Its name.
    pub name: String,
    /// The digest of its settings.
    pub config_digest: Option<String>,
}

impl Manifest {
    /// The version that this build writes, for the fields of the same names.
    pub fn versions() -> (u32, String) {
        (VERSION, env!("CARGO_PKG_VERSION").to_owned())
    }

    /// The first field in which the two differ, whether they are finished left aside.
    fn difference(&self, other: &Self) -> Option<String> {
        self.differs_in(other, |field| field != "finished")
    }

    /// The first setting in which the two differ that has a part in every number: not which policies, windows and
    /// traces there are.
    pub fn other_measure(&self, other: &Self) -> Option<String> {
        const MEASURE: [&str; 6] = ["reserve", "tokenizer", "summarizer", "recall", "rules", "profile"];
        self.differs_in(other, |field| MEASURE.contains(&field))
    }

    fn differs_in(&self, other: &Self, is_wanted: impl Fn(&str) -> bool) -> Option<String> {
        let fields = |manifest: &Self| match serde_json::to_value(manifest) {
            Ok(serde_json::Value::Object(fields)) => fields,
            _ => serde_json::Map::new(),
        };
        let (ours, theirs) = (fields(self), fields(other));
        let differs = |(name, value): &(String, serde_json::Value)| is_wanted(name) && theirs.get(name) != Some(value);
        ours.into_iter().find(differs).map(|(name, _)| name)
    }
}

/// What a run keeps of a trace: the same for every row of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceFacts {
    /// The trace's name.
    pub trace: String,
    /// Its format.
    pub format: String,
    /// The task it belongs to.
    pub task: Option<String>,
    /// A digest of all its events.
    pub digest: String,
    /// Events that a request can show.
    pub events: u64,
    /// Whether the agent itself ran with condensations, so that what `none` shows was never sent.
    pub has_condensations: bool,
    /// By step: how many replayed events come before it. Empty in a run that an earlier version wrote.
    #[serde(default)]
    pub starts: Vec<u64>,
    /// By step: the tokens that the agent wrote.
    pub output: Vec<u64>,
    /// By step: the seconds since the step before, where both are known.
    pub idle: Vec<Option<f64>>,
    /// The first uses of evidence, in the order of the steps.
    pub uses: Vec<UseFact>,
}

/// One first use of evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UseFact {
    /// The step, counted from 0.
    pub step: u64,
    /// What was used, 200 characters at most.
    pub item: String,
    /// The event where the agent had it from.
    pub source: String,
    /// The number of that event among the replayed ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
    /// Whether that is five steps back or more.
    pub far: bool,
}

/// The steps of one row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedSteps {
    /// The row's trace.
    pub trace: String,
    /// Its policy.
    pub policy: String,
    /// Its window.
    pub window: Option<u64>,
    /// Its seed.
    pub seed: u64,
    /// The steps.
    #[serde(flatten)]
    pub steps: Steps,
    /// What became of the probes, where there were any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<Verdict>,
}

impl SavedSteps {
    /// Of a finished replay.
    pub fn of(replay: &Replay, probes: Vec<Verdict>) -> Self {
        let RowKey { trace, window, policy, seed } = RowKey::of(&replay.row);
        Self { trace, policy, window, seed, steps: replay.steps.clone(), probes }
    }
}

/// What the requests of one row show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedViews {
    /// The row's trace.
    pub trace: String,
    /// Its policy.
    pub policy: String,
    /// Its window.
    pub window: Option<u64>,
    /// Its seed.
    pub seed: u64,
    /// The views.
    #[serde(flatten)]
    pub views: Views,
}

impl SavedViews {
    /// Of a finished replay, where it kept them.
    fn of(replay: &Replay) -> Option<Self> {
        let RowKey { trace, window, policy, seed } = RowKey::of(&replay.row);
        Some(Self { trace, policy, window, seed, views: replay.views.clone()? })
    }

    fn key(&self) -> RowKey {
        RowKey { trace: self.trace.clone(), window: self.window, policy: self.policy.clone(), seed: self.seed }
    }
}

/// What names a row in its run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey {
    /// The trace.
    pub trace: String,
    /// The window.
    pub window: Option<u64>,
    /// The policy.
    pub policy: String,
    /// The seed.
    pub seed: u64,
}

impl RowKey {
    /// The key of a row.
    pub fn of(row: &Row) -> Self {
        Self { trace: row.trace.clone(), window: row.window, policy: row.policy.clone(), seed: row.seed }
    }

    fn of_saved(steps: &SavedSteps) -> Self {
        Self { trace: steps.trace.clone(), window: steps.window, policy: steps.policy.clone(), seed: steps.seed }
    }
}

/// Why a run cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The file system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The folder holds no run.
    #[error("{}: there is no run here; `condenser compare --out` writes one", path.display())]
    NoRun {
        /// The folder.
        path: PathBuf,
    },
    /// The folder holds rows and does not say what they were made with.
    #[error("{}: there are rows here and no manifest.json; name another folder for a new run", path.display())]
    NoManifest {
        /// The folder.
        path: PathBuf,
    },
    /// Another version of this program wrote the folder.
    #[error("{}: a run of version {version}; this build reads version {VERSION}", path.display())]
    OtherVersion {
        /// The folder.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// A row's steps are missing or belong to another run.
    #[error("{}: {trace} under {policy}: the steps of this row are missing or do not fit it", path.display())]
    NoSteps {
        /// The folder.
        path: PathBuf,
        /// The row's trace.
        trace: String,
        /// The row's policy.
        policy: String,
    },
    /// A run, or a part of one, that is not finished.
    #[error("{}: this run is not finished; `condenser compare --out` with its settings goes on with it", path.display())]
    Unfinished {
        /// The folder.
        path: PathBuf,
    },
    /// The parts are not all, or not of one split.
    #[error("these are not all parts of one run: {reason}")]
    Parts {
        /// What is missing or too much.
        reason: String,
    },
    /// A line is not what its file holds.
    #[error("{}, line {line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// The run was begun with other settings.
    #[error("{}: this run was begun with another `{field}`; repeat its settings, or name another folder", path.display())]
    OtherSettings {
        /// The folder.
        path: PathBuf,
        /// The first setting that differs.
        field: String,
    },
    /// A trace is not as it was.
    #[error("{trace}: not the trace that the run was begun with; name another folder for a new run")]
    OtherTrace {
        /// The trace.
        trace: String,
    },
    /// Another process writes this run.
    #[error("{}: another process is writing this run", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// Parts of a run that do not belong together.
    #[error("{}: not a part of the same run as {}: another `{field}`", path.display(), first.display())]
    OtherPart {
        /// The part.
        path: PathBuf,
        /// The part that it was compared with.
        first: PathBuf,
        /// The first setting that differs.
        field: String,
    },
    /// A row is there twice, or in two parts.
    #[error("{}: has a row that was there before: {trace} under {policy}", path.display())]
    TwoRows {
        /// The part.
        path: PathBuf,
        /// The row's trace.
        trace: String,
        /// The row's policy.
        policy: String,
    },
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> RunError {
    let path = path.to_owned();
    move |source| RunError::Io { path, source }
}

/// A run as it stands on disk.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedRun {
    /// The folder.
    pub path: PathBuf,
    /// What it was made with.
    pub manifest: Manifest,
    /// Its traces, by name.
    pub traces: BTreeMap<String, TraceFacts>,
    /// Its rows.
    pub rows: Vec<Row>,
    /// The steps of each row.
    pub steps: HashMap<RowKey, SavedSteps>,
    /// What the requests of each row show, where the run has it.
    pub views: HashMap<RowKey, SavedViews>,
}

impl SavedRun {
    /// A run without rows and without a folder.
    pub fn new(manifest: Manifest) -> Self {
        Self {
            path: PathBuf::new(),
            manifest,
            traces: BTreeMap::new(),
            rows: Vec::new(),
            steps: HashMap::new(),
            views: HashMap::new(),
        }
    }

    /// Reads a finished run.
    ///
    /// # Errors
    /// [`RunError`] names file and line, or the row that is twice or without its steps; [`RunError::Unfinished`].
    pub fn open(path: &Path) -> Result<Self, RunError> {
        let run = Self::read(path)?;
        if !run.manifest.finished {
            return Err(RunError::Unfinished { path: path.to_owned() });
        }
        let mut seen = HashSet::new();
        for row in &run.rows {
            let key = RowKey::of(row);
            let (trace, policy) = (row.trace.clone(), row.policy.clone());
            if !run.steps.get(&key).is_some_and(|saved| fits(row, saved)) || !run.traces.contains_key(&row.trace) {
                return Err(RunError::NoSteps { path: path.to_owned(), trace, policy });
            }
            if !seen.insert(key) {
                return Err(RunError::TwoRows { path: path.to_owned(), trace, policy });
            }
        }
        Ok(run)
    }

    /// Reads what there is of a run. A half-written last line is left out.
    fn read(path: &Path) -> Result<Self, RunError> {
        let manifest = manifest(path)?.ok_or_else(|| RunError::NoRun { path: path.to_owned() })?;
        let facts: Vec<TraceFacts> = lines(&path.join(TRACES))?;
        let rows: Vec<Row> = lines(&path.join(ROWS))?;
        let steps: Vec<SavedSteps> = lines(&path.join(STEPS))?;
        let views: Vec<SavedViews> = lines(&path.join(VIEWS))?;
        Ok(Self {
            path: path.to_owned(),
            manifest,
            traces: facts.into_iter().map(|facts| (facts.trace.clone(), facts)).collect(),
            rows,
            steps: steps.into_iter().map(|saved| (RowKey::of_saved(&saved), saved)).collect(),
            views: views.into_iter().map(|saved| (saved.key(), saved)).collect(),
        })
    }

    /// The same rows under other prices and cache rules, without a replay.
    pub fn reprice(&mut self, profile: &ModelProfile) {
        for row in &mut self.rows {
            let idle = self.traces.get(&row.trace).map_or(&[][..], |facts| &facts.idle);
            if let Some(saved) = self.steps.get(&RowKey::of(row)) {
                row.charge(&saved.steps, idle, profile);
            }
        }
        self.manifest.profile = profile.clone();
    }

    /// Puts the parts of one run together.
    ///
    /// # Errors
    /// [`RunError::OtherPart`] and [`RunError::TwoRows`].
    pub fn merge(parts: Vec<Self>) -> Result<Option<Self>, RunError> {
        let shards: Vec<Option<(u64, u64)>> = parts.iter().map(|part| part.manifest.shard).collect();
        let mut parts = parts.into_iter();
        let Some(mut all) = parts.next() else { return Ok(None) };
        all.manifest.shard = None;
        let mut seen: HashSet<RowKey> = all.rows.iter().map(RowKey::of).collect();
        for mut part in parts {
            part.manifest.shard = None;
            if let Some(field) = all.manifest.difference(&part.manifest) {
                return Err(RunError::OtherPart { path: part.path, first: all.path, field });
            }
            if let Some(row) = part.rows.iter().find(|row| !seen.insert(RowKey::of(row))) {
                return Err(RunError::TwoRows {
                    path: part.path,
                    trace: row.trace.clone(),
                    policy: row.policy.clone(),
                });
            }
            all.traces.append(&mut part.traces);
            all.rows.append(&mut part.rows);
            all.steps.extend(part.steps);
            all.views.extend(part.views);
        }
        complete(&shards).map_err(|reason| RunError::Parts { reason })?;
        all.sort();
        Ok(Some(all))
    }

    /// Writes the run into a folder, which is made where it is not there. Each file takes its place whole.
    ///
    /// # Errors
    /// [`RunError::Io`].
    pub fn write(&self, path: &Path) -> Result<(), RunError> {
        fs::create_dir_all(path).map_err(io_error(path))?;
        self.write_rows(path)?;
        write_manifest(path, &self.manifest)
    }

    fn write_rows(&self, path: &Path) -> Result<(), RunError> {
        replace(&path.join(TRACES), self.traces.values())?;
        let steps = self.rows.iter().filter_map(|row| self.steps.get(&RowKey::of(row)));
        replace(&path.join(STEPS), steps)?;
        let views = self.rows.iter().filter_map(|row| self.views.get(&RowKey::of(row)));
        replace(&path.join(VIEWS), views)?;
        replace(&path.join(ROWS), self.rows.iter())
    }

    /// Rows by trace, then as the manifest names windows and policies, then by seed.
    pub fn sort(&mut self) {
        let Manifest { windows, policies, .. } = &self.manifest;
        let window = |row: &Row| windows.iter().position(|window| Some(*window) == row.window);
        let policy = |row: &Row| policies.iter().position(|policy| policy.name == row.policy);
        self.rows.sort_by_cached_key(|row| {
            (row.trace.clone(), window(row), row.window, policy(row), row.policy.clone(), row.seed)
        });
    }
}

/// Whether the steps can be those of the row.
fn fits(row: &Row, saved: &SavedSteps) -> bool {
    let steps = &saved.steps;
    let n = row.steps as usize;
    (steps.tokens.len(), steps.shared.len(), steps.uses.len() as u64) == (n, n, row.evidence_total)
        && steps.tokens.iter().sum::<u64>() == row.input_tokens
        && steps.shared.iter().zip(&steps.tokens).all(|(shared, tokens)| shared <= tokens)
}

/// What is wrong with parts that should be all of one split. Runs of which none is a part go together as they are.
fn complete(shards: &[Option<(u64, u64)>]) -> Result<(), String> {
    let parts: Vec<(u64, u64)> = shards.iter().copied().flatten().collect();
    let Some(&(_, of)) = parts.first() else { return Ok(()) };
    if parts.len() < shards.len() || parts.iter().any(|part| part.1 != of) {
        return Err("they are of different splits".to_owned());
    }
    let missing: Vec<String> =
        (1..=of).filter(|number| !parts.contains(&(*number, of))).map(|number| format!("{number}/{of}")).collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("{} is missing", missing.join(", "))) }
}

fn manifest(folder: &Path) -> Result<Option<Manifest>, RunError> {
    let path = folder.join(MANIFEST);
    let text = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        result => result.map_err(io_error(&path))?,
    };
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    if let Ok(Versioned { version }) = serde_json::from_slice(&text)
        && version != VERSION
    {
        return Err(RunError::OtherVersion { path: folder.to_owned(), version });
    }
    let read = serde_json::from_slice(&text);
    read.map(Some).map_err(|error| RunError::Line { path, line: error.line(), reason: error.to_string() })
}

fn write_manifest(folder: &Path, manifest: &Manifest) -> Result<(), RunError> {
    let path = folder.join(MANIFEST);
    let mut text = serde_json::to_vec_pretty(manifest).map_err(|error| io_error(&path)(error.into()))?;
    text.push(b'\n');
    whole(&path, |file| file.write_all(&text))
}

/// Writes a file beside its place, and then puts it there.
fn whole(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<(), RunError> {
    let beside = path.with_extension("part");
    let written = File::create(&beside).map(BufWriter::new).and_then(|mut file| {
        write(&mut file)?;
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
    });
    written.and_then(|()| fs::rename(&beside, path)).map_err(io_error(path))
}

fn replace<T: Serialize>(path: &Path, values: impl Iterator<Item = T>) -> Result<(), RunError> {
    whole(path, |file| {
        for value in values {
            serde_json::to_writer(&mut *file, &value)?;
            file.write_all(b"\n")?;
        }
        Ok(())
    })
}

/// The values of a file, a half-written last line left out. A file that is not there is empty.
fn lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, RunError> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        result => result.map_err(io_error(path))?,
    };
    let mut values = Vec::new();
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        reader.read_until(b'\n', &mut line).map_err(io_error(path))?;
        // A line is whole with its end.
        if line.last() != Some(&b'\n') {
            return Ok(values);
        }
        values.push(serde_json::from_slice(&line).map_err(|error| RunError::Line {
            path: path.to_owned(),
            line: values.len() + 1,
            reason: format!("not a line of this file: {error}"),
        })?);
    }
}

/// A run that is being made. Any number of threads may add to it.
#[derive(Debug)]
pub struct RunWriter {
    path: PathBuf,
    done: HashMap<RowKey, Row>,
    files: Mutex<Files>,
    /// Held as long as the run is written.
    _lock: File,
}

#[derive(Debug)]
struct Files {
    digests: HashMap<String, String>,
    traces: File,
    rows: File,
    steps: File,
    views: File,
}

impl RunWriter {
    /// Begins a run in a folder, or goes on with the one that is there.
    ///
    /// # Errors
    /// [`RunError::OtherSettings`] where a run with another manifest is there, [`RunError::InUse`] where another
    /// process writes it.
    pub fn open(path: &Path, manifest: &Manifest) -> Result<Self, RunError> {
        fs::create_dir_all(path).map_err(io_error(path))?;
        let lock_path = path.join(".lock");
        let lock = OpenOptions::new().create(true).append(true).open(&lock_path).map_err(io_error(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(RunError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => return Err(RunError::Io { path: lock_path, source }),
        }
        match self::manifest(path)? {
            None if path.join(ROWS).exists() => return Err(RunError::NoManifest { path: path.to_owned() }),
            None => {}
            Some(begun) => {
                if let Some(field) = manifest.difference(&begun) {
                    return Err(RunError::OtherSettings { path: path.to_owned(), field });
                }
            }
        }
        write_manifest(path, &Manifest { finished: false, ..manifest.clone() })?;
        let mut begun = SavedRun::read(path)?;
        // Only whole rows count, each once.
        let mut seen = HashSet::new();
        let (steps, traces, views) = (&begun.steps, &begun.traces, &begun.views);
        begun.rows.retain(|row| {
            let key = RowKey::of(row);
            let is_whole = steps.get(&key).is_some_and(|saved| fits(row, saved))
                && (views.is_empty()
                    || views.get(&key).is_some_and(|saved| saved.views.steps.len() as u64 == row.steps));
            is_whole && traces.contains_key(&row.trace) && seen.insert(key)
        });
        begun.write_rows(path)?;
        let append = |name: &str| {
            let path = path.join(name);
            OpenOptions::new().append(true).open(&path).map_err(io_error(&path))
        };
        let (facts, rows) = (begun.traces, begun.rows);
        let (traces, row_file, steps, views) = (append(TRACES)?, append(ROWS)?, append(STEPS)?, append(VIEWS)?);
        let digests = facts.into_values().map(|facts| (facts.trace, facts.digest)).collect();
        Ok(Self {
            path: path.to_owned(),
            done: rows.into_iter().map(|row| (RowKey::of(&row), row)).collect(),
            files: Mutex::new(Files { digests, traces, rows: row_file, steps, views }),
            _lock: lock,
        })
    }

    /// The rows that were there when the run was opened.
    pub fn done(&self) -> &HashMap<RowKey, Row> {
        &self.done
    }

    /// Takes note of a trace, before its rows.
    ///
    /// # Errors
    /// [`RunError::OtherTrace`] where the run knows another trace of that name.
    pub fn begin(&self, facts: &TraceFacts) -> Result<(), RunError> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        match files.digests.get(&facts.trace) {
            Some(digest) if *digest == facts.digest => Ok(()),
            Some(_) => Err(RunError::OtherTrace { trace: facts.trace.clone() }),
            None => {
                files.digests.insert(facts.trace.clone(), facts.digest.clone());
                append(&mut files.traces, facts).map_err(io_error(&self.path.join(TRACES)))
            }
        }
    }

    /// The digest of a trace that the run knows.
    pub fn digest(&self, trace: &str) -> Option<String> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).digests.get(trace).cloned()
    }

    /// Adds a finished row, and what became of its probes.
    ///
    /// # Errors
    /// [`RunError::Io`].
    pub fn add(&self, replay: &Replay, probes: Vec<Verdict>) -> Result<(), RunError> {
        let saved = SavedSteps::of(replay, probes);
        let views = SavedViews::of(replay);
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(views) = views {
            append(&mut files.views, &views).map_err(io_error(&self.path.join(VIEWS)))?;
        }
        append(&mut files.steps, &saved).map_err(io_error(&self.path.join(STEPS)))?;
        append(&mut files.rows, &replay.row).map_err(io_error(&self.path.join(ROWS)))
    }

    /// Ends the run: sorts its files.
    ///
    /// # Errors
    /// [`RunError`], where the files cannot be read back or written.
    pub fn finish(self) -> Result<SavedRun, RunError> {
        let mut run = SavedRun::read(&self.path)?;
        run.sort();
        run.manifest.finished = true;
        run.write(&self.path)?;
        Ok(run)
    }
}

/// One line in one write, so that a kill leaves at most the last line half-written.
fn append(file: &mut File, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    file.write_all(&line)
}
