//! The peer as a policy.

use condenser::{
    Edit, EventId, Failure, Frame, NoPlan, Plan, Policy, Reason, Requirement, State, SummaryRequest, Tokens,
};
use serde::{Deserialize, Serialize};

use super::adapter::Path;
use super::peer::{self, Pi, Piece, Placed, Release, SUMMARY_AFTER, SUMMARY_BEFORE, Settings};
use crate::registry::{PolicyInfo, PolicyKind, SettingText};
use crate::summarizing::{guidance, label, unfenced};
use crate::turns::{begins_run, has_new_answer, n_prompts, size, turns};

const SUMMARY_PROMPT: &str = include_str!("../../prompts/pi-summary-v1.md");
const UPDATE_PROMPT: &str = include_str!("../../prompts/pi-update-v1.md");
const PREFIX_PROMPTS: [&str; 2] =
    [include_str!("../../prompts/pi-turn-prefix-v1.md"), include_str!("../../prompts/pi-v1-turn-prefix-v1.md")];
const PROMPT_VERSION: &str = "pi-v1";

/// Settings of [`PiPolicy`]: the peer's, and when it looks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PiSettings {
    /// The peer's.
    #[serde(flatten)]
    pub peer: Settings,
    /// Whether the size is looked at before each answer, and not only where a user spoke last.
    pub checks_inside_runs: bool,
}

impl PiSettings {
    /// The defaults of a release.
    pub fn of(release: Release) -> Self {
        Self { peer: Settings::of(release), checks_inside_runs: release == Release::V1 }
    }
}

/// The compaction of the Pi coding agent.
#[derive(Clone, Copy, Debug)]
pub struct PiPolicy {
    name: &'static str,
    pi: Pi,
    checks_inside_runs: bool,
}

impl PiPolicy {
    /// The policy of a release, as `pi` or `pi-v1`.
    pub fn new(release: Release, settings: PiSettings) -> Self {
        let name = match release {
            Release::V0 => "pi",
            Release::V1 => "pi-v1",
        };
        let PiSettings { peer, checks_inside_runs } = settings;
        Self { name, pi: Pi { release, settings: peer }, checks_inside_runs }
    }

    fn events(&self, state: &State<'_>, path: &Path, messages: &[Placed<'_>]) -> Vec<(EventId, String)> {
        let event = |placed: &Placed<'_>| {
            let index = *path.members(placed.entry).first()?;
            let text = peer::serialize([&*placed.message], &self.pi);
            if text.is_empty() {
                return None;
            }
            let label = state.event(index).map_or_else(|| "[summary]".to_owned(), |event| label(&event.kind));
            Some((state.view.get(index)?.id().clone(), unfenced(format!("{label}\n{text}"))))
        };
        messages.iter().filter_map(event).collect()
    }

    /// The requests behind a plan, each with the fixed text around it.
    fn request(&self, state: &State<'_>, path: &Path, plan: &peer::Plan<'_>) -> Option<SummaryRequest> {
        let mut after = SUMMARY_AFTER.to_owned();
        let mut next: Option<SummaryRequest> = None;
        for piece in peer::pieces(plan, &self.pi).into_iter().rev() {
            match piece {
                Piece::Text(text) => after.insert_str(0, &text),
                Piece::Answer { messages, previous, is_turn_prefix, max_tokens } => {
                    let instructions = match previous {
                        _ if is_turn_prefix => PREFIX_PROMPTS[self.pi.release as usize],
                        Some(_) => UPDATE_PROMPT,
                        None => SUMMARY_PROMPT,
                    };
                    let frame = Frame { before: String::new(), after: std::mem::take(&mut after), next };
                    next = Some(SummaryRequest {
                        instructions: instructions.to_owned(),
                        events: self.events(state, path, messages),
                        previous: previous.map(|previous| unfenced(previous.to_owned())),
                        guidance: guidance(state),
                        max_tokens: max_tokens.map(Tokens),
                        prompt_version: PROMPT_VERSION.to_owned(),
                        frame: Some(Box::new(frame)),
                        ..SummaryRequest::default()
                    });
                }
            }
        }
        let mut request = next?;
        request.frame.get_or_insert_default().before = format!("{SUMMARY_BEFORE}{after}");
        Some(request)
    }
}

impl Policy for PiPolicy {
    fn name(&self) -> &str {
        self.name
    }

    fn requirement(&self, state: &State<'_>) -> Requirement {
        if state.view.has_unhandled_request() {
            return Requirement::Hard(vec![Reason::Request]);
        }
        let tokens = size(state);
        if self.pi.settings.enabled && state.budget.limit().is_some_and(|limit| tokens > limit.0) {
            return Requirement::Hard(vec![Reason::Tokens]);
        }
        let is_large =
            state.budget.window.is_some_and(|window| peer::should_compact(tokens, window.0, &self.pi.settings));
        if !is_large {
            return Requirement::None;
        }
        let turns = turns(state);
        let looks = self.checks_inside_runs || begins_run(&turns);
        if looks && has_new_answer(state, &turns) { Requirement::Soft(vec![Reason::Tokens]) } else { Requirement::None }
    }

    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        if !tried.is_empty() {
            return Err(NoPlan::Exhausted);
        }
        let path = Path::new(state, self.pi.release);
        let plan = peer::prepare(&path.entries, &self.pi).ok_or(NoPlan::NoLegalCut)?;
        if plan.summarize.is_empty() && plan.turn_prefix.is_empty() {
            return Err(NoPlan::NoLegalCut);
        }
        let request = self.request(state, &path, &plan).ok_or(NoPlan::NoLegalCut)?;
        let forget = path.forget(state, plan.first_kept, self.pi.release);
        let prompts = state.view.iter().take(n_prompts(state)).filter(|entry| !forget.contains(entry.id())).count();
        Ok(Plan::Summarize { edit: Edit { forget, ..Edit::default() }, offset: prompts, request })
    }

    fn is_port(&self) -> bool {
        true
    }
}

const SOURCE: &str = "Pi 0.73.1 and 1.6.0";

const TEXTS: &[SettingText] = &[
    ("enabled", "switch", "whether anything is compacted but on request", SOURCE),
    ("reserve_tokens", "tokens", "what of the window stays free", SOURCE),
    ("keep_recent_tokens", "tokens", "the newest messages that stay", SOURCE),
    ("checks_inside_runs", "switch", "whether the size is looked at before each answer", SOURCE),
    ("characters_per_token", "characters", "what counts for a token when messages are sized", SOURCE),
    ("image_characters", "characters", "what counts for an image", SOURCE),
    ("user_image_characters", "characters", "what counts for an image of the user", SOURCE),
    ("result_characters", "characters", "the most of one tool result that the summarizer is shown", SOURCE),
    ("summary_share", "share of reserve_tokens", "the most of a summary; null is the model's own limit", SOURCE),
    ("turn_prefix_share", "share of reserve_tokens", "the same for the beginning of a split turn", SOURCE),
    (
        "branch_summary_share",
        "share of the budget",
        "up to which a summary may still exceed the budget of a branch",
        SOURCE,
    ),
];

/// Both releases.
pub(crate) fn policies() -> Vec<PolicyInfo> {
    vec![
        PolicyInfo::new(
            "pi",
            PolicyKind::Port,
            "Pi 0.73: a summary for all but the newest turns, checked where a user speaks",
            &PiSettings::of(Release::V0),
            TEXTS,
            |_, settings| Ok(Box::new(PiPolicy::new(Release::V0, settings))),
        ),
        PolicyInfo::new(
            "pi-v1",
            PolicyKind::Port,
            "Pi 1.6: the same before each answer, with the system prompt in force kept",
            &PiSettings::of(Release::V1),
            TEXTS,
            |_, settings| Ok(Box::new(PiPolicy::new(Release::V1, settings))),
        ),
    ]
}
