//! An agent loop that keeps its history in a log, condenses it, and survives a request that is too long.
//!
//!     cargo run -p condenser-cli --example agent_loop

#[cfg(test)]
mod tests;

use std::error::Error;

use condenser::event::{Action, EventKind, Message, Observation, Role, Source};
use condenser::tokens::CharsPer4;
use condenser::{
    Budgets, Condenser, ContentBlock, Event, OutcomeKind, Policy, Rejection, Request, Rules, Sizer, State, Tokens, View,
};
use condenser_log::{CondensationError, Log, RECALL_TOOL, SessionId};
use condenser_policies::{Extractive, Folding, RecentEvents};
use serde_json::Value;

/// What a model answers.
enum Reply {
    Say(String),
    Call(Action),
    /// The provider refused the request, and may have said how much it takes.
    TooLong(Option<Tokens>),
}

struct Agent<'l> {
    log: &'l Log,
    session: SessionId,
    events: Vec<Event>,
    view: View,
    policy: Box<dyn Policy>,
    budgets: Budgets,
    sizer: Sizer<'static>,
}

impl<'l> Agent<'l> {
    /// Opens a session where it was left: nothing has to be remembered besides the log.
    fn open(
        log: &'l Log,
        session: SessionId,
        policy: Box<dyn Policy>,
        budgets: Budgets,
    ) -> Result<Self, Box<dyn Error>> {
        let events = log.branch(&session, None)?.collect::<Result<Vec<_>, _>>()?;
        let view = View::replay(&events, Rules::Sound);
        Ok(Self { log, session, events, view, policy, budgets, sizer: Sizer::new(&CharsPer4) })
    }

    fn append(&mut self, source: Source, kind: EventKind) -> Result<(), Box<dyn Error>> {
        let event = Event::new(self.log.new_event_id()?, source, kind);
        self.log.append(&self.session, std::slice::from_ref(&event))?;
        self.view.push(&event);
        self.events.push(event);
        Ok(())
    }

    /// Asks the model until it has answered, and carries one call out. The text, once it calls nothing any more.
    fn step(
        &mut self,
        model: &mut dyn FnMut(&Value) -> Reply,
        tool: &mut dyn FnMut(&Action) -> String,
    ) -> Result<Option<String>, Box<dyn Error>> {
        self.condense(None)?;
        loop {
            match model(&Request::build(&self.view, &self.events).to_openai_chat()) {
                Reply::TooLong(limit) => self.condense(Some(Rejection { limit }))?,
                Reply::Say(text) => {
                    self.append(Source::Agent, EventKind::Message(Message::text(Role::Assistant, text.clone())))?;
                    return Ok(Some(text));
                }
                Reply::Call(action) => {
                    self.append(Source::Agent, EventKind::Action(action.clone()))?;
                    let answer = match action.tool_name.as_str() {
                        RECALL_TOOL => {
                            self.log.answer_recall(&self.session, &serde_json::from_str(&action.arguments)?)?
                        }
                        _ => tool(&action),
                    };
                    let (call_id, content) = (action.call_id, vec![ContentBlock::text(answer)]);
                    let result =
                        Observation { call_id, tool_name: action.tool_name, content, ..Observation::default() };
                    self.append(Source::Environment, EventKind::Observation(result))?;
                    return Ok(None);
                }
            }
        }
    }

    /// Condenses where the policy wants to, and harder where the provider refused the request as it stands.
    fn condense(&mut self, rejection: Option<Rejection>) -> Result<(), Box<dyn Error>> {
        if rejection.is_some() {
            self.append(Source::Environment, Rejection::event())?;
        }
        let mut state = State::with_budgets(&self.view, &self.events, &self.sizer, self.budgets);
        state.reported = state.reported_size();
        if let Some(rejection) = rejection {
            state = state.rejected(rejection);
        }
        let fallbacks: [&dyn Policy; 2] = [&Folding::default(), &RecentEvents::default()];
        let condenser = Condenser { fallbacks: &fallbacks, ..Condenser::default() };
        let outcome = condenser.run(&*self.policy, &state, &Extractive::default());
        if let OutcomeKind::Applied(record) = &outcome.result {
            let basis = record.provenance.as_ref().and_then(|provenance| provenance.basis.as_ref());
            match self.log.append_condensation(&self.session, record, basis) {
                Ok(id) => {
                    self.events.push(Event::new(id, Source::Environment, EventKind::Condensation((**record).clone())));
                    self.view.push(&self.events[self.events.len() - 1]);
                }
                Err(CondensationError::Stale { .. }) => {} // Somebody else was first: decide again at the next step.
                Err(error) => return Err(error.into()),
            }
        } else if let Some(failed) = outcome.refusal() {
            self.append(Source::Environment, EventKind::CondensationFailed(failed))?;
        }
        match outcome.result {
            OutcomeKind::Unachievable { .. } => Err(outcome.explain().into()),
            _ => Ok(()),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let log = Log::open_in_memory()?;
    let rules = condenser_log::RuleSet::of(Rules::Sound);
    let session =
        log.create_session(condenser_log::NewSession { name: "demo".into(), rules, meta: Default::default() })?;
    let budgets =
        condenser::BudgetSettings { window: Some(Tokens(3000)), reserve: Some(Tokens(500)), ..Default::default() };
    let policy = condenser_policies::by_name("llm-summarizing")?;
    let mut agent = Agent::open(&log, session, policy, budgets.resolve(None))?;
    agent.append(Source::User, EventKind::Message(Message::text(Role::User, "Count to forty.")))?;
    let mut n = 0;
    // A provider that takes less than its window is said to hold.
    let mut model = |request: &Value| {
        if request.to_string().len() > 6000 {
            return Reply::TooLong(None);
        }
        n += 1;
        let (call_id, arguments) = (format!("c{n}"), format!("{{\"n\": {n}}}"));
        let call = Action { call_id, tool_name: "count".into(), arguments, ..Action::default() };
        if n > 40 { Reply::Say("Forty.".into()) } else { Reply::Call(call) }
    };
    let mut tool = |action: &Action| format!("counted {} ", action.arguments).repeat(20);
    while agent.step(&mut model, &mut tool)?.is_none() {}
    assert!(agent.view.records().len() > 0 && agent.sizer.counter().name() == "chars/4");
    Ok(())
}
