//! Shadow mode: what a policy would have done beside a host that condenses by itself.
//!
//! Nothing is recorded and nothing changes. Whatever goes wrong stands in the report, panics included.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::condensation::Condensation;
use crate::condenser::{Condenser, Outcome, OutcomeKind};
use crate::event::EventId;
use crate::policy::{Policy, State, Summarizer};
use crate::tokens::Tokens;

/// Our decision beside the host's.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ShadowReport {
    /// How our condensation would have ended, or the message of a panic.
    pub ours: Result<Outcome, String>,
    /// Size of the complete request as it stands.
    pub before: Tokens,
    /// Its size after our record; as it stands where we made none.
    pub after_ours: Tokens,
    /// Its size after the host's record; as it stands where it made none.
    pub after_host: Tokens,
    /// What both would forget.
    pub both: BTreeSet<EventId>,
    /// What only we would forget.
    pub only_ours: BTreeSet<EventId>,
    /// What only the host forgets.
    pub only_host: BTreeSet<EventId>,
}

/// Decides on a state as [`Condenser::run`] does and compares with what the host did on the same state; `None`: nothing.
pub fn shadow(
    condenser: &Condenser<'_>,
    policy: &dyn Policy,
    state: &State<'_>,
    summarizer: &dyn Summarizer,
    host: Option<&Condensation>,
) -> ShadowReport {
    let ours = catch_unwind(AssertUnwindSafe(|| condenser.run(policy, state, summarizer))).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a panic without a message".to_owned())
    });
    let record = match &ours {
        Ok(Outcome { result: OutcomeKind::Applied(record), .. }) => Some(&**record),
        _ => None,
    };
    let size = |record: Option<&Condensation>| match record {
        Some(record) => {
            let preview = state.view.preview(&EventId::new("shadow"), record);
            state.sizer.sizes(&preview, state.bodies).0
        }
        None => state.counted(),
    };
    let none = BTreeSet::new();
    let forgotten =
        |record: Option<&Condensation>| record.map_or(none.clone(), |record| record.forgotten_event_ids.clone());
    let (by_us, by_host) = (forgotten(record), forgotten(host));
    ShadowReport {
        before: state.counted(),
        after_ours: size(record),
        after_host: size(host),
        both: by_us.intersection(&by_host).cloned().collect(),
        only_ours: by_us.difference(&by_host).cloned().collect(),
        only_host: by_host.difference(&by_us).cloned().collect(),
        ours,
    }
}
