//! The learnt state of a server or a chat.

use std::path::Path;

use anyhow::{Result, bail};
use serve::SavedState;

use super::found::{Chosen, Found, Proof, one};

/// The part of `state`, in the folder `root`, for the chosen target.
pub(super) fn find(root: &Path, state: SavedState, chosen: Chosen<'_>) -> Result<Found> {
    for (option, given) in [("--arm", chosen.arm), ("--task", chosen.task)] {
        if given.is_some() {
            bail!(
                "{option}: {} is the state of a server, which has none\nhint: a run has arms and tasks",
                root.display()
            );
        }
    }
    if state.names().is_empty() {
        bail!(
            "{}: its drafter has learnt nothing yet\nhint: it learns from answers of serve and chat; --learn-every says from how many",
            root.display()
        );
    }
    let name = one(state.names(), chosen.target, ("target", "--target"), root)?;
    let (learnt, adapter) = state.learnt(name);
    let by = state.learnt_by(name);
    Ok(Found {
        learnt,
        adapter,
        drafter: state.drafter().map(Path::to_owned),
        place: format!("the answers of a server (state {})", root.display()),
        target: name.clone(),
        tasks: Vec::new(),
        answers: Some(by.answers),
        acceptance: by.acceptance,
        proof: Proof::State(Box::new(state)),
    })
}
