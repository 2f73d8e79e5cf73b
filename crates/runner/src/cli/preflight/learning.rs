//! Checks that drafters have the blocks, ranks and columns that their arms train.

use experiment::{ArmConfig, Job, Plan};
use hub::{is_model_name, local_copy};
use lm::{LmConfig, StoredCheckpoint, first_of_last};

use super::Found;

impl Found {
    /// Finds arms that train more than their drafter has. A drafter that is not here is skipped.
    pub(super) fn learning(&mut self, plan: &Plan, jobs: &[&Job]) {
        for job in jobs {
            let path = &job.config.models.drafter.path;
            let folder = match is_model_name(path) {
                true => local_copy(path).ok().flatten(),
                false => Some(path.clone()),
            };
            let config = folder.and_then(|folder| StoredCheckpoint::read_config(&folder).ok());
            let Some(config) = config else { continue };
            let arms = job.config.arms.iter().enumerate();
            for (index, arm) in arms.filter(|(_, arm)| arm.learns()) {
                for (key, message, hint) in wrongs(arm, &config) {
                    // A default may be more than a small drafter has.
                    let Some(place) = plan.learn_place(job, index, key) else {
                        continue;
                    };
                    let message = format!("arm `{}`: {message}", arm.name);
                    self.fault_at(Some(place), key, message, hint);
                }
            }
        }
    }
}

/// Faults: key, message and advice.
fn wrongs(arm: &ArmConfig, drafter: &LmConfig) -> Vec<(&'static str, String, String)> {
    let learn = &arm.learn;
    let mut found = Vec::new();
    if learn.blocks > 0
        && let Err(error) = first_of_last(drafter, learn.blocks)
    {
        let hint = format!("1 to {}, or 0 for all weights", drafter.num_layers);
        found.push(("learn.blocks", error.to_string(), hint));
    } else if let Some(Err(error)) = learn.adapters().map(|lora| lora.check(drafter)) {
        let hint = "a smaller rank, or other projections".to_owned();
        found.push(("learn.lora.rank", error.to_string(), hint));
    }
    if learn.likely > 0.0 && learn.sampled > drafter.vocab_size {
        let message = format!(
            "{} columns are to be drawn of the {} that the drafter has",
            learn.sampled, drafter.vocab_size
        );
        let hint = "draw fewer, or set learn.likely = 0 for all of them".to_owned();
        found.push(("learn.sampled", message, hint));
    }
    found
}
