//! Budgets: how much a request, its recent part, a summary and the summarizer's input may hold.
//!
//! Five numbers stay apart: the **request** (the window less the output reserve), the **trigger**, the **retained**
//! recent context, the **summary input** and the **summary output**. Each is given as bounds; of several the strictest
//! binds. An explicit value is stronger than the model's own, and that one than a default. Unknown is never zero:
//! without a window there is no share of it, and a bound of zero is none.

use serde::{Deserialize, Serialize};

use crate::profile::ModelProfile;
use crate::tokens::Tokens;

/// How much the next request may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// The model's context window. `None`: unknown, and no token trigger fires.
    pub window: Option<Tokens>,
    /// Room kept for the answer.
    pub reserve: Tokens,
}

impl Budget {
    /// The most tokens of a complete request: the window less the reserve, which is clamped to half the window.
    pub fn limit(&self) -> Option<Tokens> {
        self.window.map(|window| window - self.reserve.min(Tokens(window.0 / 2)))
    }

    /// The size above which native policies act: 0.8 of the limit.
    pub fn trigger(&self) -> Option<Tokens> {
        self.limit().map(|limit| limit.share(TRIGGER_SHARE))
    }
}

const TRIGGER_SHARE: f64 = 0.8;
/// What stays of a request that is too large, as a share of the trigger.
const RETAINED_SHARE: f64 = 0.625;
const SUMMARY_TOKENS: Tokens = Tokens(1000);
/// A default summary takes no larger share of the request.
const SUMMARY_SHARE: f64 = 0.125;
/// The reserve where neither the host nor the model says more; half the window at most.
const RESERVE: Tokens = Tokens(4000);

/// One way to say how much.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Tokens.
    Tokens(Tokens),
    /// A share of the window, 0 to 1. Unknown while the window is.
    Share(f64),
    /// Entries of the view.
    Events(usize),
}

/// Where a number in force comes from, weakest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A default of this crate.
    #[default]
    Default,
    /// The model's profile.
    Model,
    /// The host set it.
    Set,
    /// It was lowered, or shortened, so that it goes with another one.
    Clamped,
}

impl Origin {
    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Model => "model",
            Self::Set => "set",
            Self::Clamped => "clamped",
        }
    }
}

/// What a host sets. Empty lists and `None` leave the model's value or the default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetSettings {
    /// The context window; stronger than the model's.
    pub window: Option<Tokens>,
    /// Room kept for the answer. Default: the model's largest answer, else 4,000; half the window at most.
    pub reserve: Option<Tokens>,
    /// The complete request. Default: the window less the reserve.
    pub request: Vec<Bound>,
    /// When policies act. Default: 0.8 of the request.
    pub trigger: Vec<Bound>,
    /// What a condensation leaves. Default: 0.625 of the trigger.
    pub retained: Vec<Bound>,
    /// What the summarizer is shown. Default: its own window less the summary, else the request.
    pub summary_input: Vec<Bound>,
    /// The summary. Default: 1,000 tokens, an eighth of the request at most.
    pub summary_output: Vec<Bound>,
    /// The window of the summarizer's model, where it is another one.
    pub summarizer_window: Option<Tokens>,
}

/// A number in force and where it comes from. `None`: unknown, and nothing is limited by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// Tokens.
    pub tokens: Option<Tokens>,
    /// Entries of the view.
    pub events: Option<usize>,
    /// Where `tokens`, or without it `events`, comes from.
    pub origin: Origin,
}

impl Limit {
    fn known(tokens: Tokens, origin: Origin) -> Self {
        Self { tokens: Some(tokens), events: None, origin }
    }

    /// The strictest of the bounds; where none of them says tokens, `fallback`.
    fn of(bounds: &[Bound], window: Option<Tokens>, fallback: Self) -> Self {
        let tokens = bounds.iter().filter_map(|bound| match bound {
            Bound::Tokens(tokens) => Some(*tokens),
            Bound::Share(share) => window.map(|window| window.share(*share)),
            Bound::Events(_) => None,
        });
        let events = bounds.iter().filter_map(|bound| match bound {
            Bound::Events(events) => Some(*events),
            _ => None,
        });
        let events = events.filter(|events| *events > 0).min();
        match tokens.filter(|tokens| *tokens > Tokens::ZERO).min() {
            Some(tokens) => Self { tokens: Some(tokens), events, origin: Origin::Set },
            // A count alone switches the token limit off: the two are separate switches.
            None if events.is_some() => Self { tokens: None, events, origin: Origin::Set },
            None => fallback,
        }
    }

    /// At most this many tokens. An unknown number stays unknown.
    fn clamped(self, most: Option<Tokens>) -> Self {
        match (self.tokens, most) {
            (Some(tokens), Some(most)) if tokens > most => Self { tokens: Some(most), origin: Origin::Clamped, ..self },
            _ => self,
        }
    }
}

/// The budgets in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Budgets {
    /// The context window.
    pub window: Limit,
    /// Room kept for the answer.
    pub reserve: Limit,
    /// The complete request.
    pub request: Limit,
    /// Above it policies act.
    pub trigger: Limit,
    /// What a condensation leaves.
    pub retained: Limit,
    /// What the summarizer is shown.
    pub summary_input: Limit,
    /// The summary.
    pub summary_output: Limit,
}

impl BudgetSettings {
    /// The numbers in force with this model.
    pub fn resolve(&self, model: Option<&ModelProfile>) -> Budgets {
        let sourced = |set: Option<Tokens>, of_model: Option<Tokens>| {
            let known = |tokens: Option<Tokens>, origin| {
                tokens.filter(|tokens| *tokens > Tokens::ZERO).map(|tokens| Limit::known(tokens, origin))
            };
            known(set, Origin::Set).or(known(of_model, Origin::Model))
        };
        let window = sourced(self.window, model.and_then(|model| model.context_window)).unwrap_or_default();
        let half = window.tokens.map(|window| Tokens(window.0 / 2));
        let reserve = match self.reserve {
            Some(reserve) => Limit::known(reserve, Origin::Set),
            None => sourced(None, model.and_then(|model| model.max_output))
                .unwrap_or(Limit::known(RESERVE, Origin::Default)),
        }
        .clamped(half);
        let budget = Budget { window: window.tokens, reserve: reserve.tokens.unwrap_or_default() };
        let whole = Limit { tokens: budget.limit(), events: None, origin: window.origin };
        let request = Limit::of(&self.request, window.tokens, whole).clamped(whole.tokens);
        let share = |share: f64, of: Limit| Limit {
            tokens: of.tokens.map(|tokens| tokens.share(share)),
            events: None,
            origin: Origin::Default,
        };
        let output = match share(SUMMARY_SHARE, request).tokens {
            Some(most) => Limit::known(SUMMARY_TOKENS.min(most), Origin::Default),
            None => Limit::known(SUMMARY_TOKENS, Origin::Default),
        };
        let summary_output = Limit::of(&self.summary_output, window.tokens, output)
            .clamped(request.tokens.map(|request| Tokens(request.0 / 2)));
        let output = summary_output.tokens.unwrap_or_default();
        // The default is not lowered for the summary: a fifth of the request is more than it takes.
        let trigger = Limit::of(&self.trigger, window.tokens, share(TRIGGER_SHARE, request))
            .clamped(request.tokens.map(|request| (request - output).max(request.share(TRIGGER_SHARE))));
        let retained = Limit::of(&self.retained, window.tokens, share(RETAINED_SHARE, trigger))
            .clamped(trigger.tokens.map(|trigger| (trigger - output).max(Tokens(trigger.0 / 2))));
        let input = match self.summarizer_window {
            Some(window) => Limit::known(window - output.min(Tokens(window.0 / 2)), Origin::Set),
            None => Limit { origin: Origin::Default, ..request },
        };
        let summary_input =
            Limit::of(&self.summary_input, window.tokens, input).clamped(self.summarizer_window.and(input.tokens));
        Budgets { window, reserve, request, trigger, retained, summary_input, summary_output }
    }
}

impl From<Budget> for Budgets {
    fn from(budget: Budget) -> Self {
        let mut budgets =
            BudgetSettings { window: budget.window, reserve: Some(budget.reserve), ..BudgetSettings::default() }
                .resolve(None);
        // A window of zero holds nothing; it is no unknown one.
        if budget.window == Some(Tokens::ZERO) {
            budgets = budgets.within(Tokens::ZERO);
        }
        budgets
    }
}

impl Budgets {
    /// The window and the reserve that leave as much for a request as these do.
    pub fn budget(&self) -> Budget {
        match (self.window.tokens, self.request.tokens) {
            (Some(window), Some(request)) if window - request <= Tokens(window.0 / 2) => {
                Budget { window: Some(window), reserve: window - request }
            }
            (_, request) => Budget { window: request, reserve: Tokens::ZERO },
        }
    }

    /// The same for a request of at most `limit`: every number that depends on it shrinks with it.
    pub fn within(&self, limit: Tokens) -> Self {
        let mut within = *self;
        let lower = |number: &mut Limit, most: Tokens| {
            *number = match number.tokens {
                Some(_) => number.clamped(Some(most)),
                None => Limit { tokens: Some(most), events: number.events, origin: Origin::Clamped },
            }
        };
        lower(&mut within.request, limit);
        lower(&mut within.trigger, limit.share(TRIGGER_SHARE));
        lower(&mut within.retained, limit.share(TRIGGER_SHARE * RETAINED_SHARE));
        lower(&mut within.summary_input, limit);
        lower(&mut within.summary_output, limit.share(SUMMARY_SHARE));
        within
    }

    /// The five budgets by name, in the order of a request's life.
    pub fn named(&self) -> [(&'static str, Limit); 5] {
        [
            ("request", self.request),
            ("trigger", self.trigger),
            ("retained", self.retained),
            ("summary input", self.summary_input),
            ("summary output", self.summary_output),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(window: u64, output: Option<u64>) -> ModelProfile {
        ModelProfile {
            name: "m".into(),
            context_window: Some(Tokens(window)),
            max_output: output.map(Tokens),
            tokenizer: None,
            prices: None,
            cache: None,
        }
    }

    fn shown(budgets: &Budgets) -> String {
        let number = |limit: &Limit| {
            let tokens = limit.tokens.map_or("?".to_owned(), |tokens| tokens.to_string());
            let events = limit.events.map_or(String::new(), |events| format!("/{events}e"));
            format!("{tokens}{events} {}", limit.origin.name())
        };
        let all = [&budgets.window, &budgets.reserve].into_iter().map(number).collect::<Vec<_>>().join(", ");
        let named = budgets.named().iter().map(|(_, limit)| number(limit)).collect::<Vec<_>>().join(", ");
        format!("{all} | {named}")
    }

    #[track_caller]
    fn check(settings: BudgetSettings, model: Option<&ModelProfile>, expected: &str) {
        assert_eq!(shown(&settings.resolve(model)), expected);
    }

    fn set() -> BudgetSettings {
        BudgetSettings::default()
    }

    #[test]
    fn an_unknown_window_limits_nothing_and_is_not_zero() {
        let unknown = "? default, 4000 default | ? default, ? default, ? default, ? default, 1000 default";
        check(set(), None, unknown);
        check(BudgetSettings { window: Some(Tokens(0)), trigger: vec![Bound::Share(0.5)], ..set() }, None, unknown);
    }

    #[test]
    fn a_reserve_as_large_as_the_window_leaves_half_of_it() {
        check(
            set(),
            Some(&model(131_072, Some(131_072))),
            "131072 model, 65536 clamped | 65536 model, 52428 default, 32767 default, 65536 default, 1000 default",
        );
    }

    #[test]
    fn an_explicit_window_is_stronger_than_the_models_and_a_missing_output_limit_is_not_zero() {
        check(
            BudgetSettings { window: Some(Tokens(32_768)), ..set() },
            Some(&model(1_000_000, None)),
            "32768 set, 4000 default | 28768 set, 23014 default, 14383 default, 28768 default, 1000 default",
        );
    }

    #[test]
    fn the_strictest_of_several_bounds_binds_and_counts_are_a_switch_of_their_own() {
        let trigger = vec![Bound::Share(0.5), Bound::Tokens(Tokens(30_000)), Bound::Events(200), Bound::Events(90)];
        check(
            BudgetSettings { window: Some(Tokens(100_000)), trigger, reserve: Some(Tokens(0)), ..set() },
            None,
            "100000 set, 0 set | 100000 set, 30000/90e set, 18750 default, 100000 default, 1000 default",
        );
        let only_events = BudgetSettings { window: Some(Tokens(8000)), trigger: vec![Bound::Events(9)], ..set() };
        assert_eq!(only_events.resolve(None).trigger, Limit { tokens: None, events: Some(9), origin: Origin::Set });
    }

    #[test]
    fn a_trigger_leaves_room_for_the_summary_and_the_answer() {
        let settings = BudgetSettings {
            window: Some(Tokens(100_000)),
            reserve: Some(Tokens(8000)),
            trigger: vec![Bound::Share(0.99)],
            retained: vec![Bound::Share(0.98)],
            summary_output: vec![Bound::Tokens(Tokens(8000))],
            summarizer_window: Some(Tokens(50_000)),
            ..set()
        };
        check(settings, None, "100000 set, 8000 set | 92000 set, 84000 clamped, 76000 clamped, 42000 set, 8000 set");
    }

    #[test]
    fn budgets_and_the_plain_budget_agree() {
        for (window, reserve) in [(None, 5), (Some(0), 0), (Some(9), 100), (Some(32_000), 4000)] {
            let budget = Budget { window: window.map(Tokens), reserve: Tokens(reserve) };
            let budgets = Budgets::from(budget);
            assert_eq!(budgets.request.tokens, budget.limit());
            assert_eq!(budgets.trigger.tokens, budget.trigger());
            assert_eq!(budgets.budget().limit(), budget.limit());
        }
    }
}
