//! Checks that drafters have the blocks, ranks and columns that their arms train.

use experiment::{ArmConfig, Job, Plan, SweptFrom};
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
            for arm in job.config.arms.iter().filter(|arm| arm.learns()) {
                for (key, message, hint) in wrongs(arm, &config) {
                    self.arm_fault(plan, arm, key, message, hint);
                }
            }
        }
    }

    fn arm_fault(
        &mut self,
        plan: &Plan,
        arm: &ArmConfig,
        key: &str,
        message: String,
        hint: String,
    ) {
        let arms = plan.experiment.arms.iter();
        let mut names: Vec<&str> = arms
            .map(|own| in_file(&own.name, own.swept_from.as_ref()))
            .collect();
        // The arms of a sweep are next to each other, and one in the file.
        names.dedup();
        let name = in_file(&arm.name, arm.swept_from.as_ref());
        let index = names.iter().position(|own| *own == name);
        let index = index.unwrap_or_default();
        let mut swept = arm.swept_from.iter().flat_map(|from| &from.values);
        let places = match swept.any(|(own, _)| own == key) {
            // A sweep of its own takes the place of the general one.
            true => [format!("arm.{index}.sweep.{key}"), format!("sweep.{key}")],
            false => [format!("arm.{index}.set.{key}"), key.to_owned()],
        };
        // A default may be more than a small drafter has.
        let Some(place) = places.into_iter().find(|place| plan.says(place)) else {
            return;
        };
        let message = format!("arm `{}`: {message}", arm.name);
        self.fault_at(plan.place(&place), key, message, hint);
    }
}

/// The name of an arm in the file, without the values of a sweep.
fn in_file<'a>(name: &'a str, swept: Option<&'a SweptFrom>) -> &'a str {
    swept.map_or(name, |from| from.arm.as_str())
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
