//! Condensation policies for [`condenser`]: native ones, ports of the systems in use, and a summarizer that needs
//! no model.
//!
//! Every policy is a plain, deterministic function of the state it is shown; the native ones are made for views under
//! the `sound` rules.
//! [`policies`] lists them, [`by_name`] makes one with its defaults; each has a settings struct for everything else.
//! What a policy must remember stands in the summaries and rewrites of its own records, never in the policy.
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

pub mod exact;
mod extractive;
mod folding;
pub mod freecode;
mod layout;
mod masking;
mod none;
pub mod openhands;
pub mod pi;
pub mod powercode;
mod recent;
mod registry;
mod summarizing;
mod tools;

pub use extractive::Extractive;
pub use folding::{Folding, FoldingSettings};
pub use masking::{MaskingSettings, ObservationMasking};
pub use none::NoPolicy;
pub use recent::{RecentEvents, RecentSettings};
pub use registry::{
    BadSetting, PolicyInfo, PolicyKind, Setting, UnknownPolicy, by_name, find, policies, read_settings,
};
pub use summarizing::{LlmSummarizing, SummarizingSettings};
