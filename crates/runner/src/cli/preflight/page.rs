//! Checks that the experiment provides the data of its page, before hours are spent.

use experiment::{ArmConfig, FigureName, Plan};
use results::Metric;

use super::Found;

impl Found {
    pub(super) fn page(&mut self, plan: &Plan) {
        let report = &plan.experiment.report;
        if plan.says("report.cell") {
            let metrics = report.cell.iter().filter_map(|name| Metric::parse(name));
            let timed: Vec<&str> = metrics
                .filter(|metric| metric.is_timed())
                .map(Metric::name)
                .collect();
            let stages = &plan.experiment.stages;
            let shown = stages
                .iter()
                .find(|own| Some(&own.name) == report.stage.as_ref());
            if let Some(stage) = shown.filter(|stage| !stage.exclusive && !timed.is_empty()) {
                self.warn(format!(
                    "report.cell asks for {}, and stage `{}` is not `exclusive`: the page will say \"not timed\"",
                    timed.join(", "),
                    stage.name
                ));
            }
            let relative = report.cell.iter().any(|name| name.contains("speedup"));
            if relative && !plan.experiment.arms.iter().any(ArmConfig::is_plain) {
                self.warn(
                    "report.cell asks for a speedup, and no arm decodes plainly (preset = \"autoregressive\"): \
                     there is nothing to be faster than"
                        .to_owned(),
                );
            }
        }
        let drawn = plan.says("report.figures").then_some(&report.figures);
        for figure in drawn.into_iter().flatten() {
            if let Some(needs) = lacks(plan, *figure) {
                self.warn(format!(
                    "report.figures: `{figure}` will not be drawn: it needs {needs}"
                ));
            }
        }
    }
}

/// The rows that a figure needs and the experiment does not have.
fn lacks(plan: &Plan, figure: FigureName) -> Option<&'static str> {
    let configs = || plan.jobs.iter().map(|job| &job.config);
    let arms = |has: fn(&ArmConfig) -> bool| configs().any(|job| job.arms.iter().any(has));
    let streams = configs().any(|job| job.segments.iter().any(|own| !own.train.is_none()));
    let learns = streams && arms(ArmConfig::learns);
    let caches = streams && arms(ArmConfig::inserts_ngrams);
    let several = configs().any(|job| job.segments.len() > 1);
    let (has, needs) = match figure {
        FigureName::Drift => (several, "a stream that changes: several [[segment]] tables"),
        FigureName::Losses => (learns, "an arm that learns, and streamed prompts"),
        FigureName::Cache | FigureName::Hits | FigureName::Frequencies | FigureName::Merges => (
            caches,
            "an arm with cache.use = \"online\", and streamed prompts",
        ),
        FigureName::Ngrams => (arms(ArmConfig::uses_cache), "an arm that merges n-grams"),
        FigureName::Positions => (arms(|arm| !arm.is_plain()), "an arm that drafts"),
        FigureName::Sweep => (
            plan.experiment
                .arms
                .iter()
                .any(|arm| arm.swept_from.is_some()),
            "a [sweep], or an arm with one",
        ),
        // Curves over the stream.
        _ => (streams, "a stage with streamed prompts (prompts.train)"),
    };
    (!has).then_some(needs)
}
