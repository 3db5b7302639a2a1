//! What can be compared: policies, and the controls they are held against.

use std::sync::Arc;

use condenser::Policy;
use condenser_policies::{ObservationMasking, RecentEvents};

use crate::controls::{ForgetAll, RandomForgetting, RandomMasking};
use crate::replay::{
    Replay, Seen, Settings, run, run_observed, run_oracle, run_oracle_observed, run_recorded, run_recorded_observed,
};
use crate::trace::Prepared;

/// A policy, or a control.
#[derive(Clone)]
pub enum Choice {
    /// A policy.
    Policy(Arc<dyn Policy>),
    /// A control.
    Control(Control),
}

/// A yardstick beside the policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Control {
    /// Masks random tool results, as much as another policy removes.
    RandomMasking,
    /// Forgets random events, as much as another policy removes.
    RandomForgetting,
    /// Forgets all it may.
    ForgetAll,
    /// Knows what comes next, at the sizes of another policy.
    Oracle,
    /// Applies the condensations that the trace recorded.
    Recorded,
}

impl Control {
    /// All, in the order of the tables.
    pub const ALL: [Self; 5] =
        [Self::RandomMasking, Self::RandomForgetting, Self::ForgetAll, Self::Oracle, Self::Recorded];

    /// The name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::RandomMasking => "random-masking",
            Self::RandomForgetting => "random-forgetting",
            Self::ForgetAll => "forget-all",
            Self::Oracle => "oracle",
            Self::Recorded => "recorded",
        }
    }

    /// What it does, in a line.
    pub fn what(self) -> &'static str {
        match self {
            Self::RandomMasking => "masks random tool results, as much as observation-masking or --match removes",
            Self::RandomForgetting => "forgets random events, as much as recent-events or --match removes",
            Self::ForgetAll => "forgets everything but prompts, the first user message and the newest step",
            Self::Oracle => "keeps the lines that the next action uses, at the sizes of recent-events or --match",
            Self::Recorded => "applies the condensations that the trace itself recorded",
        }
    }

    /// The control of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|control| control.name() == name)
    }

    /// The policy whose sizes it has, where no other is named.
    pub fn default_match(self) -> Option<&'static str> {
        match self {
            Self::RandomMasking => Some("observation-masking"),
            Self::RandomForgetting | Self::Oracle => Some("recent-events"),
            Self::ForgetAll | Self::Recorded => None,
        }
    }

    /// Whether a run of it depends on the seed.
    pub fn draws(self) -> bool {
        matches!(self, Self::RandomMasking | Self::RandomForgetting)
    }
}

impl std::fmt::Debug for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Choice").field(&self.name()).finish()
    }
}

impl Choice {
    /// The name in rows. Controls that match another policy than their default have it in parentheses there.
    pub fn name(&self) -> &str {
        match self {
            Self::Policy(policy) => policy.name(),
            Self::Control(control) => control.name(),
        }
    }

    /// The control, if it is one.
    pub fn control(&self) -> Option<Control> {
        match self {
            Self::Policy(_) => None,
            Self::Control(control) => Some(*control),
        }
    }

    /// The digest of the settings, where a policy has one.
    pub fn config_digest(&self) -> Option<String> {
        match self {
            Self::Policy(policy) => policy.config_digest(),
            Self::Control(_) => None,
        }
    }

    /// Whether a run of it depends on the seed.
    pub fn draws(&self) -> bool {
        self.control().is_some_and(Control::draws)
    }

    /// Replays a trace. `matched` is the policy whose sizes controls have, where it is not their default. Each step is
    /// shown to `observe`.
    pub fn replay(
        &self,
        prepared: &Prepared<'_>,
        settings: &Settings<'_>,
        matched: Option<&dyn Policy>,
        observe: Option<&mut dyn FnMut(&Seen<'_>)>,
    ) -> Replay {
        let other = |default: &dyn Policy| run(prepared, matched.unwrap_or(default), settings);
        let seed = settings.seed;
        let policy: &dyn Policy = match self {
            Self::Control(Control::Recorded) => {
                return match observe {
                    Some(observe) => run_recorded_observed(prepared, settings, observe),
                    None => run_recorded(prepared, settings),
                };
            }
            Self::Control(Control::Oracle) => {
                let matched = other(&RecentEvents::default());
                return match observe {
                    Some(observe) => run_oracle_observed(prepared, &matched, settings, observe),
                    None => run_oracle(prepared, &matched, settings),
                };
            }
            Self::Policy(policy) => &**policy,
            Self::Control(Control::ForgetAll) => &ForgetAll,
            Self::Control(Control::RandomMasking) => {
                &RandomMasking::matching(prepared, &other(&ObservationMasking::default()), seed)
            }
            Self::Control(Control::RandomForgetting) => {
                &RandomForgetting::matching(prepared, &other(&RecentEvents::default()), seed)
            }
        };
        match observe {
            Some(observe) => run_observed(prepared, policy, settings, observe),
            None => run(prepared, policy, settings),
        }
    }
}
