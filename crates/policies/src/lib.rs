//! Condensation policies for [`condenser`]: native ones, ports of the systems in use, and a summarizer that needs
//! no model.
//!
//! Every policy is a plain, deterministic function of the state it is shown; the native ones are made for views under
//! the `sound` rules.
//! [`policies`] lists them, [`by_name`] makes one with its defaults; each has a settings struct for everything else.

mod extractive;
mod folding;
mod layout;
mod masking;
mod none;
pub mod openhands;
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
