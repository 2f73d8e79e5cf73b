//! Checks of prompts: enough of them, no held-out ones on the stream, and an arm that learns from
//! them.

use std::collections::{BTreeSet, HashMap};

use anyhow::Result;
use experiment::{Job, Plan, Segment};
use streams::{DataSource, Prompt, Split};

use super::Found;
use crate::cli::plan::Sizes;

/// Maximum number of ids in a message.
const SHOWN: usize = 5;

impl Found {
    pub(super) fn prompts(&mut self, plan: &Plan, jobs: &[&Job], data: &DataSource) -> Result<()> {
        let mut sizes = Sizes::new(data, false);
        for job in jobs {
            sizes.of_splits(&job.config)?;
        }
        for job in jobs {
            for split in [Split::Train, Split::Test] {
                self.enough(plan, job, split, &sizes.known);
            }
        }
        self.overlap(plan, jobs, data)?;
        self.teaches(jobs);
        Ok(())
    }

    /// Finds a job that wants more prompts of a split than there are. A task that occurs again
    /// continues its stream.
    fn enough(
        &mut self,
        plan: &Plan,
        job: &Job,
        split: Split,
        held: &HashMap<(String, Split), usize>,
    ) {
        let mut streamed: HashMap<&str, usize> = HashMap::new();
        for (index, segment) in job.config.segments.iter().enumerate() {
            let Some(&held) = held.get(&(segment.task.clone(), split)) else {
                continue;
            };
            let Some(limit) = count(segment, split).limit() else {
                streamed.insert(&segment.task, held);
                continue;
            };
            if limit == 0 {
                continue;
            }
            let earlier = match split {
                Split::Train => streamed.get(&*segment.task).copied().unwrap_or(0) + segment.skip,
                Split::Test => 0,
            };
            let wanted = limit.saturating_add(earlier);
            if wanted > held {
                let name = split.name();
                let of_segment = format!("segment.{index}.prompts.{name}");
                let key = match plan.says(&of_segment) {
                    true => of_segment,
                    false => format!("stage.{}.prompts.{name}", job.config.stage),
                };
                let before = match earlier {
                    0 => String::new(),
                    earlier => format!(" after the {earlier} of segments before"),
                };
                let message = format!(
                    "{limit} prompts{before}, and the {name} split of `{}` has {held}",
                    segment.task
                );
                let hint = match (split, earlier) {
                    (Split::Train, 1..) => {
                        "a task that comes back continues its stream, no prompt is repeated: lower the numbers"
                    }
                    _ => "write a smaller number, or \"all\"",
                };
                self.fault(plan, &key, message, hint.to_owned());
            }
            if let Split::Train = split {
                streamed.insert(&segment.task, wanted.saturating_sub(segment.skip));
            }
        }
    }

    /// Finds tasks whose held-out prompts are among the streamed ones.
    fn overlap(&mut self, plan: &Plan, jobs: &[&Job], data: &DataSource) -> Result<()> {
        let tasks = |split: Split| -> BTreeSet<&str> {
            let segments = plan.jobs.iter().flat_map(|job| &job.config.segments);
            let used = segments.filter(|segment| !count(segment, split).is_none());
            used.map(|segment| &*segment.task).collect()
        };
        let open: BTreeSet<&str> = jobs
            .iter()
            .flat_map(|job| &job.config.segments)
            .map(|segment| &*segment.task)
            .collect();
        for task in tasks(Split::Train).intersection(&tasks(Split::Test)) {
            if !open.contains(task) || !data.is_here(task) {
                continue;
            }
            let train = data.load(task, Split::Train)?;
            // What a later turn of a conversation asks may be asked in others too.
            let asked = |prompt: &Prompt| (prompt.earlier.clone(), prompt.prompt.trim().to_owned());
            let train: HashMap<_, &str> = train
                .iter()
                .map(|prompt| (asked(prompt), &*prompt.id))
                .collect();
            let test = data.load(task, Split::Test)?;
            let both: Vec<(&str, &str)> = test
                .iter()
                .filter_map(|prompt| Some((&*prompt.id, *train.get(&asked(prompt))?)))
                .collect();
            if both.is_empty() {
                continue;
            }
            let named = both
                .iter()
                .take(SHOWN)
                .map(|(test, train)| match test == train {
                    true => (*test).to_owned(),
                    false => format!("{test} (train: {train})"),
                });
            let more = match both.len().saturating_sub(SHOWN) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let message = format!(
                "{} of the {} held-out prompts of `{task}` are streamed prompts too: {}{more}",
                both.len(),
                test.len(),
                named.collect::<Vec<_>>().join(", ")
            );
            let hint = "a drafter would be tested on what it learnt: take them out of train.jsonl or of test.jsonl. Of a folder \
                        with one file, which is both, stream it or hold it out, or divide it by lists of ids in paper_split.json";
            let key = match plan.says("segment") {
                true => "segment",
                false => "grid.task",
            };
            self.fault(plan, key, message, hint.to_owned());
        }
        Ok(())
    }

    /// Finds stages without a stream and without an earlier state whose arms would learn.
    fn teaches(&mut self, jobs: &[&Job]) {
        for job in jobs {
            let config = &job.config;
            let streams = config.segments.iter().any(|own| !own.train.is_none());
            if streams || config.from.is_some() {
                continue;
            }
            let learn = config.arms.iter().filter(|arm| arm.changes());
            let learn: Vec<String> = learn.map(|arm| format!("`{}`", arm.name)).collect();
            if !learn.is_empty() {
                self.warn(format!(
                    "stage `{}` has held-out prompts only and no `from`: nothing is learnt before them by {}",
                    job.config.stage,
                    learn.join(", ")
                ));
            }
        }
    }
}

fn count(segment: &Segment, split: Split) -> experiment::Count {
    match split {
        Split::Train => segment.train,
        Split::Test => segment.test,
    }
}
