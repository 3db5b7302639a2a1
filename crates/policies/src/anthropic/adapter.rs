//! A view as tool uses, and what is cleared of them as an edit.

use std::collections::HashMap;

use condenser::event::EventKind;
use condenser::{Edit, RewriteOp, State};

use super::peer::{Applied, CLEARED, NO_INPUT, ToolUse};

/// The answered calls of a view, in the order of their results, each with the positions of call and result.
pub(super) fn uses(state: &State<'_>) -> (Vec<(usize, usize)>, Vec<ToolUse>) {
    let mut calls: HashMap<&str, usize> = HashMap::new();
    let (mut places, mut uses) = (Vec::new(), Vec::new());
    for index in 0..state.view.len() {
        match state.event(index).map(|event| &event.kind) {
            Some(EventKind::Action(action)) => {
                calls.insert(&action.call_id, index);
            }
            Some(EventKind::Observation(observation)) => {
                let Some(call) = calls.remove(observation.call_id.as_str()) else { continue };
                let Some(EventKind::Action(action)) = state.event(call).map(|event| &event.kind) else { continue };
                let freed = |tokens: condenser::Tokens, text: &str| (tokens - state.sizer.text(text)).0;
                places.push((call, index));
                uses.push(ToolUse {
                    tool: action.tool_name.clone(),
                    result_tokens: freed(state.entry_tokens()[index], CLEARED),
                    input_tokens: freed(state.sizer.text(&action.arguments), NO_INPUT),
                    is_cleared: state.view.get(index).is_some_and(|entry| entry.rewrite().is_some()),
                });
            }
            _ => {}
        }
    }
    (places, uses)
}

pub(super) fn edit(state: &State<'_>, places: &[(usize, usize)], applied: &Applied) -> Edit {
    let mut edit = Edit::default();
    for (at, with_input) in &applied.cleared {
        let (call, result) = places[*at];
        let mut rewrite = |index: usize, op: RewriteOp| {
            edit.rewrites.extend(state.view.get(index).map(|entry| (entry.id().clone(), op.into())));
        };
        rewrite(result, RewriteOp::Clear { text: CLEARED.to_owned() });
        if *with_input {
            rewrite(call, RewriteOp::Arguments { text: NO_INPUT.to_owned() });
        }
    }
    edit
}
