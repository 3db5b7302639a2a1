//! `none`: what happens without a policy.

use condenser::{Failure, NoPlan, Plan, Policy, Requirement, State};

/// Never acts.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPolicy;

impl Policy for NoPolicy {
    fn name(&self) -> &str {
        "none"
    }

    fn requirement(&self, _: &State<'_>) -> Requirement {
        Requirement::None
    }

    fn plan(&self, _: &State<'_>, _: &[Failure]) -> Result<Plan, NoPlan> {
        Ok(Plan::Keep)
    }
}
