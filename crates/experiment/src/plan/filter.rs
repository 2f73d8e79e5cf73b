//! Selection of jobs.

use super::Plan;
use crate::error::ExperimentError;
use crate::grid::folder_name;
use crate::job::Job;

impl Plan {
    /// The jobs with these coordinates: of one axis any of the values, of several axes all of them.
    ///
    /// # Errors
    /// [`ExperimentError::Filter`] for an axis or a value that does not exist, or if no job is
    /// left.
    pub fn only<S: AsRef<str>>(self, wanted: &[(S, S)]) -> Result<Self, ExperimentError> {
        for (axis, value) in wanted {
            self.check_choice(axis.as_ref(), value.as_ref())?;
        }
        let chosen = |job: &Job| {
            job.coordinates.iter().all(|(axis, own)| {
                let mut values = wanted
                    .iter()
                    .filter(|(name, _)| name.as_ref() == axis)
                    .map(|(_, value)| value.as_ref())
                    .peekable();
                values.peek().is_none() || values.any(|value| same(own, value))
            })
        };
        let text: Vec<String> = wanted
            .iter()
            .map(|(axis, value)| format!("{}={}", axis.as_ref(), value.as_ref()))
            .collect();
        self.keep(chosen, &text.join(", "))
    }

    /// The jobs of one stage.
    ///
    /// # Errors
    /// [`ExperimentError::Filter`] if there is no such stage.
    pub fn stage(self, name: &str) -> Result<Self, ExperimentError> {
        let stages = self
            .experiment
            .stages
            .iter()
            .map(|stage| stage.name.as_str());
        let stages: Vec<&str> = stages.collect();
        if !stages.contains(&name) {
            let stages = stages.join(", ");
            return Err(ExperimentError::Filter(format!(
                "there is no stage `{name}` (one of {stages})"
            )));
        }
        self.keep(|job| job.config.stage == name, name)
    }

    fn check_choice(&self, axis: &str, value: &str) -> Result<(), ExperimentError> {
        let axes = &self.experiment.axes;
        let Some(known) = axes.iter().find(|known| known.name == axis) else {
            let names: Vec<&str> = axes.iter().map(|axis| axis.name.as_str()).collect();
            return Err(ExperimentError::Filter(format!(
                "the grid has no axis `{axis}` (one of {})",
                names.join(", ")
            )));
        };
        if known.values.iter().any(|own| same(own, value)) {
            return Ok(());
        }
        Err(ExperimentError::Filter(format!(
            "axis `{axis}` has no value `{value}` (one of {})",
            known.values.join(", ")
        )))
    }

    fn keep(mut self, chosen: impl Fn(&Job) -> bool, what: &str) -> Result<Self, ExperimentError> {
        self.jobs.retain(chosen);
        if self.jobs.is_empty() {
            let axes = self.experiment.axes.iter();
            let axes: Vec<String> = axes
                .map(|axis| format!("{} = {}", axis.name, axis.values.join(", ")))
                .collect();
            return Err(ExperimentError::Filter(format!(
                "no job is left of {what}: the grid has {}",
                axes.join("; ")
            )));
        }
        Ok(self)
    }
}

/// True if `value` equals the written one, or its form in folder names.
fn same(own: &str, value: &str) -> bool {
    own == value || folder_name(own) == value
}
