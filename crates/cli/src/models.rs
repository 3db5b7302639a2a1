//! What counts, what it costs, and who writes summaries: names and files of the command line, looked up.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use condenser::profile::ModelProfile;
use condenser::{Summarizer, TokenCounter, Tokens};
use condenser_models::{Profile, Profiles, WithImages};
use condenser_policies::{Extractive, Heuristic};
use condenser_traces::Secrets;

use crate::error::CliError;
#[cfg(feature = "llm")]
use crate::terminal::note;

/// Counters, profiles and summarizers by name.
#[derive(clap::Args, Debug)]
pub(crate) struct ModelArguments {
    /// What counts tokens: o200k, cl100k, estimate, chars/4, bytes/4, or (with the feature `llm`) a tokenizer.json.
    #[arg(long, value_name = "NAME", default_value = "o200k")]
    pub(crate) tokenizer: String,
    /// The model: prices, cache rules, limits, image sizes (`condenser profiles`).
    #[arg(long, value_name = "NAME", default_value = "reference")]
    profile: String,
    /// A TOML file of profiles, over those that there are.
    #[arg(long, value_name = "FILE")]
    profiles: Option<PathBuf>,
    /// Who writes summaries: extractive, heuristic, or (with the feature `llm`) a TOML file that names a model.
    #[arg(long, value_name = "NAME|FILE", default_value = "extractive")]
    summarizer: String,
}

/// The same, looked up.
pub(crate) struct Models {
    pub(crate) counter: &'static dyn TokenCounter,
    pub(crate) profile: ModelProfile,
    pub(crate) summarizer: WhoSummarizes,
    /// What no model is shown.
    pub(crate) secrets: Arc<Secrets>,
}

/// A summarizer, and what a command wants to know of it.
pub(crate) struct WhoSummarizes {
    summarizer: Box<dyn Summarizer>,
    /// Whether it is a language model.
    is_model: bool,
    /// Its window, where it is known.
    pub(crate) window: Option<Tokens>,
    #[cfg(feature = "llm")]
    client: Option<Arc<llm::Asked>>,
}

impl WhoSummarizes {
    pub(crate) fn get(&self) -> &dyn Summarizer {
        &*self.summarizer
    }

    pub(crate) fn is_model(&self) -> bool {
        self.is_model
    }

    /// The name, and a word where it is no language model.
    pub(crate) fn described(&self) -> String {
        let kind = if self.is_model { "" } else { " (not an LLM summary)" };
        format!("{}{kind}", self.summarizer.name())
    }

    /// Says what a cassette did not have. Whether there was such.
    pub(crate) fn note_missing(&self) -> bool {
        #[cfg(feature = "llm")]
        if let Some((n, first)) = self.client.as_ref().and_then(|client| client.missing()) {
            note(&format!("{n} summaries are not on the cassette; the first: {first}"));
            return true;
        }
        false
    }

    fn without_model(summarizer: impl Summarizer + 'static) -> Self {
        Self {
            summarizer: Box::new(summarizer),
            is_model: false,
            window: None,
            #[cfg(feature = "llm")]
            client: None,
        }
    }
}

/// The profiles that there are, with those of a file.
pub(crate) fn profiles(file: Option<&Path>) -> Result<Profiles, CliError> {
    let built_in = Profiles::built_in().clone();
    let Some(path) = file else { return Ok(built_in) };
    built_in.with_toml(&read(path)?).map_err(|error| CliError::Usage(format!("{}: {error}", path.display())))
}

fn read(path: &Path) -> Result<String, CliError> {
    std::fs::read_to_string(path).map_err(|error| CliError::Input(format!("{}: {error}", path.display())))
}

/// What is secret wherever it stands: known shapes, and what the environment keeps secret.
fn secrets() -> Secrets {
    let variables =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    Secrets::default().with_variables(variables)
}

/// The model that a file names. Where the file names a cassette, this sample of it is played or recorded.
#[cfg(feature = "llm")]
pub(crate) fn model(file: &Path, sample: u32) -> Result<Box<dyn Summarizer>, CliError> {
    let (client, _) = llm::client(file, secrets(), Some(sample))?;
    Ok(Box::new(llm::Shared(Arc::new(client))))
}

#[cfg(not(feature = "llm"))]
pub(crate) fn model(_: &Path, _: u32) -> Result<Box<dyn Summarizer>, CliError> {
    Err(without_feature("models that answer"))
}

impl ModelArguments {
    /// Looks everything up.
    pub(crate) fn resolve(&self) -> Result<Models, CliError> {
        let profiles = profiles(self.profiles.as_deref())?;
        let profile = profiles.get(&self.profile).map_err(|error| CliError::Usage(error.to_string()))?;
        let secrets = secrets();
        let (summarizer, secrets) = match self.summarizer.as_str() {
            "extractive" => (WhoSummarizes::without_model(Extractive::default()), Arc::new(secrets)),
            "heuristic" => (WhoSummarizes::without_model(Heuristic::default()), Arc::new(secrets)),
            file => self.by_model(Path::new(file), &profiles, secrets)?,
        };
        Ok(Models { counter: self.counter(profile)?, profile: profile.model.clone(), summarizer, secrets })
    }

    fn counter(&self, profile: &Profile) -> Result<&'static dyn TokenCounter, CliError> {
        let counter = counter(&self.tokenizer)?;
        // Made once and used until the command ends.
        Ok(match profile.images {
            Some(rule) => Box::leak(Box::new(WithImages::new(counter, rule))),
            None => counter,
        })
    }

    #[cfg(feature = "llm")]
    fn by_model(
        &self,
        file: &Path,
        profiles: &Profiles,
        secrets: Secrets,
    ) -> Result<(WhoSummarizes, Arc<Secrets>), CliError> {
        let (client, secrets) = llm::client(file, secrets, None)?;
        let window = client.window().or_else(|| profiles.get(client.model()).ok()?.model.context_window);
        let client = Arc::new(client);
        let summarizer = Box::new(llm::Shared(Arc::clone(&client)));
        Ok((WhoSummarizes { summarizer, is_model: true, window, client: Some(client) }, secrets))
    }

    #[cfg(not(feature = "llm"))]
    fn by_model(&self, file: &Path, _: &Profiles, _: Secrets) -> Result<(WhoSummarizes, Arc<Secrets>), CliError> {
        let is_file = file.extension().is_some_and(|extension| extension == "toml");
        Err(if is_file { without_feature("a summarizer that is a model") } else { unknown_summarizer(file) })
    }
}

/// What counts tokens, by its name or file.
pub(crate) fn counter(name: &str) -> Result<&'static dyn TokenCounter, CliError> {
    if name.ends_with(".json") {
        return by_file(Path::new(name));
    }
    condenser_models::tokenizer(name).map_err(|error| CliError::Usage(error.to_string()))
}

#[cfg(feature = "llm")]
fn by_file(path: &Path) -> Result<&'static dyn TokenCounter, CliError> {
    let counter = condenser_models::HuggingFace::open(path).map_err(|error| CliError::Input(error.to_string()))?;
    // Made once and used until the command ends.
    Ok(Box::leak(Box::new(counter)))
}

#[cfg(not(feature = "llm"))]
fn by_file(_: &Path) -> Result<&'static dyn TokenCounter, CliError> {
    Err(without_feature("a tokenizer.json"))
}

#[cfg(not(feature = "llm"))]
fn without_feature(what: &str) -> CliError {
    CliError::Usage(format!("this build knows nothing of {what}; build it with `--features llm`"))
}

fn unknown_summarizer(name: &Path) -> CliError {
    let shown: String = name.display().to_string().chars().take(60).collect();
    CliError::Usage(format!(
        "unknown summarizer {shown:?}; it is extractive, heuristic, or a file FILE.toml that names a model"
    ))
}

#[cfg(feature = "llm")]
mod llm {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use condenser::{SummarizeError, Summarizer, Summary, SummaryRequest, Tokens};
    use condenser_llm::{Blocking, Cassette, Client, ModelSettings};
    use condenser_traces::Secrets;
    use serde::Deserialize;

    use super::{read, unknown_summarizer};
    use crate::error::CliError;

    /// What a file may say besides the settings of the model.
    #[derive(Default, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Beside {
        cassette: Option<Tape>,
        /// Further patterns of what is secret.
        #[serde(default)]
        secrets: Vec<String>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Tape {
        /// From the folder of the file that names it.
        path: PathBuf,
        /// Whether what is missing is asked and added. Otherwise nothing is asked.
        #[serde(default)]
        record: bool,
        #[serde(default)]
        sample: u32,
    }

    /// A model that is asked.
    pub(super) struct Asked(Blocking<Client>);

    impl Asked {
        pub(super) fn missing(&self) -> Option<(u64, String)> {
            self.0.inner().missing()
        }

        pub(super) fn window(&self) -> Option<Tokens> {
            self.0.inner().settings().window
        }

        pub(super) fn model(&self) -> &str {
            &self.0.inner().settings().model
        }
    }

    pub(super) struct Shared(pub(super) Arc<Asked>);

    impl Summarizer for Shared {
        fn name(&self) -> &str {
            self.0.0.name()
        }

        fn summarize(&self, request: &SummaryRequest) -> Result<Summary, SummarizeError> {
            self.0.0.summarize(request)
        }
    }

    /// The model that a file names; `sample` takes the place of the file's own.
    pub(super) fn client(
        file: &Path,
        mut secrets: Secrets,
        sample: Option<u32>,
    ) -> Result<(Asked, Arc<Secrets>), CliError> {
        if file.extension().is_none_or(|extension| extension != "toml") {
            return Err(unknown_summarizer(file));
        }
        let usage = |error: &dyn std::fmt::Display| {
            CliError::Usage(format!("{}: {}", file.display(), error.to_string().trim()))
        };
        let mut table: toml::Table = toml::from_str(&read(file)?).map_err(|error| usage(&error))?;
        let beside: toml::Table =
            ["cassette", "secrets"].into_iter().filter_map(|name| table.remove_entry(name)).collect();
        let beside: Beside = beside.try_into().map_err(|error| usage(&error))?;
        let settings: ModelSettings = table.try_into().map_err(|error| usage(&error))?;
        for pattern in &beside.secrets {
            secrets = secrets.with_pattern(pattern).map_err(|error| usage(&error))?;
        }
        let secrets = Arc::new(secrets);
        let client = match beside.cassette {
            None => live(settings).map_err(|error| usage(&error))?,
            Some(tape) => {
                let path = file.parent().unwrap_or(Path::new("")).join(&tape.path);
                let opened = if tape.record { Cassette::record(path) } else { Cassette::open(path) };
                let cassette = opened
                    .map_err(|error| CliError::Input(error.to_string()))?
                    .with_sample(sample.unwrap_or(tape.sample));
                match tape.record {
                    true => live(settings).map_err(|error| usage(&error))?.with_cassette(cassette),
                    false => Client::replaying(settings, cassette),
                }
            }
        };
        let client = client.with_redact(Arc::clone(&secrets) as _);
        Ok((Asked(Blocking::new(client).map_err(|error| usage(&error))?), secrets))
    }

    fn live(settings: ModelSettings) -> Result<Client, condenser_llm::ClientError> {
        let key = settings.key()?;
        Client::new(settings, key)
    }
}
