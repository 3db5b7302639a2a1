//! What the log says about earlier attempts to condense. Nothing is remembered outside it, so a session that is
//! opened again goes on where it stood.

use crate::event::{CondensationRequest, EventKind, Role};
use crate::policy::{Reason, Requirement, State};
use crate::tokens::Tokens;

/// Most times in a row that a request which the provider refused is condensed again, without a response between.
pub const MAX_OVERFLOWS: u32 = 3;

/// Who asked, in the [`CondensationRequest`] that stands for a request the provider refused as too long.
pub const OVERFLOW: &str = "overflow";

/// The provider refused the request as too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rejection {
    /// The most tokens of a request, where the provider named it.
    pub limit: Option<Tokens>,
}

impl Rejection {
    /// The event that a host appends first: refusals in a row are counted by it.
    pub fn event() -> EventKind {
        let asked = CondensationRequest { requested_by: Some(OVERFLOW.to_owned()), guidance: None };
        EventKind::CondensationRequest(asked)
    }
}

/// Earlier attempts, as far as they bear on the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempts {
    /// Failed attempts since the newest condensation or undo.
    pub failed: u32,
    /// The size of the request at the newest of them.
    pub failed_at: Option<Tokens>,
    /// The size that the newest condensation left, where it acted on the size and is not undone.
    pub left: Option<Tokens>,
    /// Whether somebody asked for a condensation after all that.
    pub is_asked: bool,
    /// Requests in a row that the provider refused as too long.
    pub overflows: u32,
}

impl Attempts {
    /// Reads the log backwards, to the newest condensation and the newest response of the model.
    pub fn of(state: &State<'_>) -> Self {
        let mut attempts = Self::default();
        let (mut is_answered, mut is_settled) = (false, false);
        for seq in (0..state.view.n_pushed()).rev() {
            if is_answered && is_settled {
                break;
            }
            match state.bodies.event(seq).map(|event| &event.kind) {
                Some(EventKind::Action(_)) => is_answered = true,
                Some(EventKind::Message(message)) if message.role == Role::Assistant => is_answered = true,
                Some(EventKind::CondensationRequest(request)) => {
                    let is_overflow = request.requested_by.as_deref() == Some(OVERFLOW);
                    attempts.overflows += u32::from(is_overflow && !is_answered);
                    attempts.is_asked |= !is_settled && attempts.failed == 0;
                }
                Some(EventKind::CondensationFailed(failed)) if !is_settled => {
                    attempts.failed += 1;
                    attempts.failed_at = attempts.failed_at.or(failed.tokens_before.map(Tokens));
                }
                Some(EventKind::Condensation(record)) if !is_settled => {
                    is_settled = true;
                    let provenance = record.provenance.as_deref();
                    attempts.left = provenance
                        .filter(|provenance| provenance.reasons.iter().any(|reason| reason == Reason::Tokens.name()))
                        .and_then(|provenance| provenance.tokens_after)
                        .map(Tokens);
                }
                Some(EventKind::Undo(_)) => is_settled = true,
                _ => {}
            }
        }
        attempts
    }

    /// The size that the request has to grow to before another attempt is worth making; `None`: now.
    ///
    /// A failed attempt is not repeated, and a condensation that left the request over its trigger is not followed by
    /// another, until the request has grown by a sixteenth of the limit; unless somebody asked since, or a request that
    /// no longer fits was not tried yet.
    pub fn wait(&self, state: &State<'_>, requirement: &Requirement) -> Option<Tokens> {
        if self.is_asked {
            return None;
        }
        let now = state.tokens();
        let limit = state.budgets.request.tokens;
        let growth = Tokens(limit.unwrap_or(now).0 / 16).max(Tokens(1));
        let is_over = |size: Tokens| limit.is_some_and(|limit| size > limit);
        let until = if let Some(failed_at) = self.failed_at {
            (is_over(failed_at) || !is_over(now)).then_some(failed_at + growth)
        } else {
            let left = self.left.filter(|left| state.budgets.trigger.tokens.is_some_and(|trigger| *left > trigger));
            let is_size = requirement.reasons().contains(&Reason::Tokens);
            left.filter(|_| is_size && !is_over(now)).map(|left| left + growth)
        };
        until.filter(|until| now < *until)
    }
}
