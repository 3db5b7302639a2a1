//! JSON Schemas of events and condensation records, made from the types. Behind the feature `schema`.

use schemars::{JsonSchema, Schema, schema_for};
use serde_json::{Map, Value};

use crate::condensation::Condensation;
use crate::event::{EventId, EventKind, Origin, SCHEMA_VERSION, Source, Usage};

/// One event, as a line of a log. Fields that this version does not know are allowed and kept.
#[derive(JsonSchema)]
#[schemars(title = "Event")]
#[expect(dead_code, reason = "only its schema is used: the fields of an event stand flat in its JSON")]
struct EventJson {
    /// Major version of the event and record JSON.
    #[schemars(default, range(min = 0, max = SCHEMA_VERSION))]
    schema: u32,
    /// Unique in its log.
    id: EventId,
    /// The event before it on its branch; absent for a root, or where the log order is the branch.
    parent: Option<EventId>,
    /// The foreign record an imported event came from.
    origin: Option<Origin>,
    /// When it happened, as the source wrote it.
    timestamp: Option<String>,
    /// Who made it.
    source: Source,
    /// What happened.
    #[schemars(flatten)]
    kind: EventKind,
    /// What the provider reported for the response; on the first event of a response only.
    usage: Option<Usage>,
    /// Fields of the foreign record that have no place here, kept so that a writer can put them back.
    #[schemars(default)]
    foreign: Map<String, Value>,
}

/// The schema of an event.
pub fn event() -> Schema {
    schema_for!(EventJson)
}

/// The schema of a condensation record.
pub fn condensation() -> Schema {
    schema_for!(Condensation)
}

/// A block of any other type is kept as it is.
pub(crate) fn allow_foreign_blocks(schema: &mut Schema) {
    let Some(variants) = schema.get_mut("oneOf").and_then(Value::as_array_mut) else { return };
    let known: Vec<Value> =
        variants.iter().filter_map(|variant| variant.pointer("/properties/type/const").cloned()).collect();
    variants.push(serde_json::json!({
        "description": "Any block of another type, kept verbatim.",
        "type": "object",
        "properties": {"type": {"type": "string", "not": {"enum": known}}},
        "required": ["type"],
    }));
}
