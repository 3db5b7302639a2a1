//! Files of probes.

use condenser::event::EventId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Unit;

/// The largest file of probes, in bytes.
const MAX_FILE: usize = 1 << 20;
/// The most probes of a file.
const MAX_PROBES: usize = 1_000;
/// The most entries of a list, and the most characters of a text.
const MAX_ENTRIES: usize = 100;
const MAX_TEXT: usize = 1_000;
const FIELDS: [&str; 7] = ["id", "kind", "after", "question", "answer", "stale", "sources"];

/// What a probe asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeKind {
    /// An exact fact: an error's text, a number.
    Recall,
    /// Files, and what was done to them.
    Artifact,
    /// What is to be done next.
    Continuation,
    /// What was decided, and why.
    Decision,
    /// What must not, or must, be done.
    Constraint,
}

impl ProbeKind {
    /// All kinds, in the order of the tables.
    pub const ALL: [Self; 5] = [Self::Recall, Self::Artifact, Self::Continuation, Self::Decision, Self::Constraint];

    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Recall => "recall",
            Self::Artifact => "artifact",
            Self::Continuation => "continuation",
            Self::Decision => "decision",
            Self::Constraint => "constraint",
        }
    }
}

/// A question with a known answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Unique in its file.
    pub id: String,
    /// What it asks for.
    pub kind: ProbeKind,
    /// The event after which it is asked: the first request that follows is tested.
    pub after: EventId,
    /// The question, for a model.
    pub question: String,
    /// The values that the answer needs, all of them. Of a constraint the first is the value, and the others are wordings
    /// of its polarity, one of which has to stand in the same sentence; one alone holds its polarity itself.
    pub answer: Vec<String>,
    /// Values that no longer hold.
    pub stale: Vec<String>,
    /// The events that hold the answer.
    pub sources: Vec<EventId>,
}

impl Probe {
    pub(crate) fn units(&self) -> Vec<Unit> {
        match (self.kind, self.answer.split_first()) {
            (ProbeKind::Constraint, Some((value, wordings))) if !wordings.is_empty() => {
                vec![Unit::Constraint { value: value.clone(), wordings: wordings.to_vec() }]
            }
            _ => self.answer.iter().cloned().map(Unit::Value).collect(),
        }
    }
}

/// The probes of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probes {
    /// In the order of the file.
    pub probes: Vec<Probe>,
}

/// Why probes cannot be used. Nothing longer than 60 characters is repeated from a file or a trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbesError {
    /// The file is not of the form.
    #[error(
        "no file of probes: {0}; it is {{\"probes\": [{{\"id\", \"kind\", \"after\", \"question\", \"answer\", \"stale\", \"sources\"}}]}}"
    )]
    Form(String),
    /// A probe is not of the form, or does not fit the trace.
    #[error("probe {probe:?}, `{field}`: {reason}")]
    Probe {
        /// The probe's id, or its position in the file where it has none.
        probe: String,
        /// The field.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl ProbesError {
    pub(crate) fn probe(probe: &str, field: &str, reason: &str) -> Self {
        let short = |text: &str| text.chars().take(60).collect::<String>();
        Self::Probe { probe: short(probe), field: short(field), reason: reason.to_owned() }
    }
}

impl Probes {
    /// Reads a file's text: at most 1 MiB, 1,000 probes, lists of 100 entries and texts of 1,000 characters.
    ///
    /// # Errors
    /// [`ProbesError`], with the probe and the field.
    pub fn parse(text: &str) -> Result<Self, ProbesError> {
        let form = |reason: &str| ProbesError::Form(reason.to_owned());
        if text.len() > MAX_FILE {
            return Err(form("it is larger than 1 MiB"));
        }
        let file: Map<String, Value> = serde_json::from_str(text).map_err(|error| form(&error.to_string()))?;
        let Some(Value::Array(list)) = file.get("probes") else { return Err(form("it has no list `probes`")) };
        if list.len() > MAX_PROBES {
            return Err(form("it has more than 1,000 probes"));
        }
        let mut probes: Vec<Probe> = Vec::with_capacity(list.len());
        for (index, value) in list.iter().enumerate() {
            let probe = Fields::new(index, value)?.probe()?;
            if probes.iter().any(|other| other.id == probe.id) {
                return Err(ProbesError::probe(&probe.id, "id", "an earlier probe has it; ids are unique"));
            }
            probes.push(probe);
        }
        Ok(Self { probes })
    }
}

/// The fields of one probe as they stand in the file.
struct Fields<'v> {
    name: String,
    map: &'v Map<String, Value>,
}

impl<'v> Fields<'v> {
    fn new(index: usize, value: &'v Value) -> Result<Self, ProbesError> {
        let place = format!("number {}", index + 1);
        let Value::Object(map) = value else { return Err(ProbesError::probe(&place, "id", "it is no object")) };
        let name = map.get("id").and_then(Value::as_str).map_or(place, str::to_owned);
        if let Some(field) = map.keys().find(|field| !FIELDS.contains(&field.as_str())) {
            let known = FIELDS.join(", ");
            return Err(ProbesError::probe(&name, field, &format!("there is no such field; there are {known}")));
        }
        Ok(Self { name, map })
    }

    fn wrong(&self, field: &str, reason: &str) -> ProbesError {
        ProbesError::probe(&self.name, field, reason)
    }

    fn probe(&self) -> Result<Probe, ProbesError> {
        let ids = |texts: Vec<String>| texts.into_iter().map(EventId::from).collect();
        let probe = Probe {
            id: self.text("id")?,
            kind: self.kind()?,
            after: self.text("after")?.into(),
            question: self.text("question")?,
            answer: self.list("answer")?,
            stale: self.list("stale")?,
            sources: ids(self.list("sources")?),
        };
        for (field, is_empty) in [("answer", probe.answer.is_empty()), ("sources", probe.sources.is_empty())] {
            if is_empty {
                return Err(self.wrong(field, "it is empty; name at least one"));
            }
        }
        if let Some(both) = probe.stale.iter().find(|stale| probe.answer.contains(stale)) {
            return Err(self.wrong("stale", &format!("{both:?} is an answer as well")));
        }
        Ok(probe)
    }

    fn kind(&self) -> Result<ProbeKind, ProbesError> {
        let name = self.text("kind")?;
        ProbeKind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            let known = ProbeKind::ALL.map(ProbeKind::name).join(", ");
            self.wrong("kind", &format!("unknown; known are {known}"))
        })
    }

    fn text(&self, field: &str) -> Result<String, ProbesError> {
        self.bounded(field, self.map.get(field))
    }

    fn bounded(&self, field: &str, value: Option<&Value>) -> Result<String, ProbesError> {
        match value {
            Some(Value::String(text)) if text.trim().is_empty() => Err(self.wrong(field, "a text is blank")),
            Some(Value::String(text)) if text.chars().count() > MAX_TEXT => {
                Err(self.wrong(field, "a text is longer than 1,000 characters"))
            }
            Some(Value::String(text)) => Ok(text.trim().to_owned()),
            Some(_) => Err(self.wrong(field, "a text is wanted")),
            None => Err(self.wrong(field, "it is missing")),
        }
    }

    /// A list of texts; empty where it is missing.
    fn list(&self, field: &str) -> Result<Vec<String>, ProbesError> {
        match self.map.get(field) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) if items.len() > MAX_ENTRIES => {
                Err(self.wrong(field, "it has more than 100 entries"))
            }
            Some(Value::Array(items)) => items.iter().map(|item| self.bounded(field, Some(item))).collect(),
            Some(_) => Err(self.wrong(field, "a list of texts is wanted")),
        }
    }
}
