//! The learnt state of a server or a chat.

use std::path::Path;

use anyhow::{Result, bail};
use online::{STRIDE, SavedState};

use super::found::{Chosen, Found, one};

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
    let names = state.names()?;
    if names.is_empty() {
        bail!(
            "{}: its drafter has learnt nothing yet\nhint: it learns from answers of serve and chat; --learn-every says from how many",
            root.display()
        );
    }
    let name = one(&names, chosen.target, ("target", "--target"), root)?;
    // An adapter of a user is called `TARGET/USER`.
    let target = name.split('/').next().unwrap_or_default();
    let by = state.known().answers.get(target);
    Ok(Found {
        place: format!("the answers of a server (state {})", root.display()),
        name: name.clone(),
        heads: vec![name.clone()],
        targets: vec![name.clone()],
        tasks: Vec::new(),
        answers: Some(by.map_or(0, |by| by.answers)),
        acceptance: by.and_then(|by| Some((by.acceptance()?, STRIDE))),
        saved: state,
    })
}
