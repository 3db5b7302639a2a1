//! Condensation policies for [`condenser`]: native ones, ports of the systems in use, and two summarizers that need
//! no model.
//!
//! Every policy is a plain, deterministic function of the state it is shown; the native ones are made for views under
//! the `sound` rules.
//! [`policies`] lists them, [`by_name`] makes one with its defaults; each has a settings struct for everything else.
//! What a policy must remember stands in the summaries and rewrites of its own records, never in the policy.
//!
//! A port is a module named after its system, of three layers:
//!
//! - `peer`: the original's message types and functions, exact, defects included; a crash or an endless loop of the
//!   original is a typed error. Recorded answers of the original drive this layer, with the guards off.
//! - `adapter`: a view as the peer would have stored it, with ids that lead back, and a decision of the peer as an edit.
//! - `policy`: the [`condenser::Policy`], with a settings struct. The module's `policies()` lists it and its presets,
//!   every constant a setting with default, unit and source.
//!
//! `exact` has what ports of JavaScript and Python programs share.
//!
//! ```
//! use condenser::event::{EventKind, Message, Role, Source};
//! use condenser::tokens::CharsPer4;
//! use condenser::{Budget, Condenser, Event, OutcomeKind, Rules, Sizer, State, Tokens, View};
//! use condenser_policies::{Extractive, by_name};
//!
//! let say = |n: usize| {
//!     let text = format!("Note {n}: the parser lives in src/parser.rs. ").repeat(20);
//!     Event::new(format!("e{n}"), Source::User, EventKind::Message(Message::text(Role::User, text)))
//! };
//! let log: Vec<Event> = (0..40).map(say).collect();
//! let view = View::replay(&log, Rules::Sound);
//! let sizer = Sizer::new(&CharsPer4);
//! let budget = Budget { window: Some(Tokens(8_000)), reserve: Tokens(1_000) };
//! let state = State::new(&view, &log, &sizer, budget);
//!
//! let policy = by_name("llm-summarizing").unwrap();
//! let outcome = Condenser::default().run(&*policy, &state, &Extractive::default());
//! assert!(matches!(outcome.result, OutcomeKind::Applied(_)));
//! ```

pub mod adk;
mod amortized;
pub mod anthropic;
pub mod cline;
pub mod codex;
pub mod complexity_trap;
mod condenser_default;
mod configuration;
pub mod craft;
pub mod deepagents;
pub mod exact;
mod extractive;
mod folding;
pub mod freecode;
mod heuristic;
mod hybrid;
mod layout;
mod masking;
mod none;
pub mod opencode;
pub mod openhands;
pub mod openhands_v0;
pub mod pi;
mod pipeline;
pub mod powercode;
mod recent;
mod registry;
mod summarizing;
pub mod swe_agent;
mod tools;
mod turns;
mod window;

pub use amortized::{AmortizedForgetting, AmortizedSettings};
pub use condenser_default::{CondenserDefault, DefaultSettings};
pub use configuration::{ConfigurationError, configure};
pub use craft::{Craft, CraftSettings};
pub use extractive::Extractive;
pub use folding::{Folding, FoldingSettings};
pub use heuristic::Heuristic;
pub use hybrid::{Hybrid, HybridSettings};
pub use masking::{MaskingSettings, ObservationMasking};
pub use none::NoPolicy;
pub use pipeline::Pipeline;
pub use recent::{RecentEvents, RecentSettings};
pub use registry::{
    BadSetting, Make, OWN, PolicyInfo, PolicyKind, Setting, SettingText, UnknownPolicy, by_name, find, nearest,
    policies,
};
pub use summarizing::{LlmSummarizing, SummarizingSettings};
pub use window::{ConversationWindow, WindowSettings};
