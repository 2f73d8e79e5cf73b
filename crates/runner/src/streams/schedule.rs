//! Drift schedules as data: which task is streamed to which target, and for how long (Figures 5 and 6).

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::{DataSource, Prompt, Split, StreamError, StreamSpec};

/// A target by its place in the config's list or by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TargetRef {
    /// Index from 0.
    Index(usize),
    /// Name.
    Name(String),
}

/// A stretch of a schedule during which neither the task nor the target changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Segment {
    /// The task streamed.
    pub task: String,
    /// How many of its prompts.
    pub prompts: usize,
    /// The target they are decoded for; the run's only or first one where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetRef>,
}

/// Segments in order.
///
/// A task that comes back continues its stream where it stopped: the paper streams every prompt once, and a repeated
/// prompt would be answered from memory.
///
/// ```
/// use runner::streams::{DataSource, DriftSchedule, Split};
///
/// let schedule: DriftSchedule = toml::from_str(
///     r#"
///     segments = [
///         { task = "mini-math", prompts = 2, target = "large" },
///         { task = "mini-code", prompts = 1, target = "small" },
///         { task = "mini-math", prompts = 2, target = 0 },
///     ]
///     "#,
/// )?;
/// let stream = schedule.load(&DataSource::embedded(), Split::Train, None)?;
/// let segments: Vec<usize> = stream.iter().map(|s| s.segment).collect();
/// assert_eq!(segments, [0, 0, 1, 2, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriftSchedule {
    /// The segments in the order they are streamed.
    pub segments: Vec<Segment>,
}

/// A prompt with its place in a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledPrompt {
    /// Place in the whole stream, from 0.
    pub position: usize,
    /// Index of its segment, from 0.
    pub segment: usize,
    /// Place within the segment, from 0; 0 marks the switch.
    pub offset: usize,
    /// The segment's target.
    pub target: Option<TargetRef>,
    /// The prompt.
    pub prompt: Prompt,
}

impl DriftSchedule {
    /// How many prompts of each task the schedule consumes.
    pub fn demand(&self) -> BTreeMap<&str, usize> {
        let mut demand = BTreeMap::new();
        for segment in &self.segments {
            let prompts: &mut usize = demand.entry(segment.task.as_str()).or_default();
            *prompts = prompts.saturating_add(segment.prompts);
        }
        demand
    }

    /// Positions at which a segment begins, the first (0) included.
    pub fn switches(&self) -> Vec<usize> {
        let mut position = 0usize;
        let begin = |segment: &Segment| {
            let at = position;
            position = position.saturating_add(segment.prompts);
            at
        };
        self.segments.iter().map(begin).collect()
    }

    /// Loads every task once and lays its prompts out; with a seed each task's stream is shuffled by it first.
    ///
    /// # Errors
    /// As [`DataSource::load`] and [`DriftSchedule::lay_out`].
    pub fn load(
        &self,
        source: &DataSource,
        split: Split,
        shuffle_seed: Option<u64>,
    ) -> Result<Vec<ScheduledPrompt>, StreamError> {
        let mut streams = HashMap::new();
        for task in self.demand().into_keys() {
            let mut spec = StreamSpec::new(task, split);
            spec.shuffle = shuffle_seed.is_some();
            streams.insert(
                task.to_owned(),
                spec.load(source, shuffle_seed.unwrap_or_default())?,
            );
        }
        self.lay_out(&streams)
    }

    /// The flat stream, from one list of prompts per task.
    ///
    /// # Errors
    /// No segment, a segment without prompts, or a task whose stream is too short or absent.
    pub fn lay_out(
        &self,
        streams: &HashMap<String, Vec<Prompt>>,
    ) -> Result<Vec<ScheduledPrompt>, StreamError> {
        if self.segments.is_empty() {
            return Err(StreamError::EmptySegment { segment: 0 });
        }
        let mut used: HashMap<&str, usize> = HashMap::new();
        let mut out = Vec::new();
        for (index, segment) in self.segments.iter().enumerate() {
            if segment.prompts == 0 {
                return Err(StreamError::EmptySegment { segment: index });
            }
            let stream = streams
                .get(&segment.task)
                .map(Vec::as_slice)
                .unwrap_or_default();
            let begin = used.entry(&segment.task).or_default();
            let end = begin.saturating_add(segment.prompts);
            let prompts =
                stream
                    .get(*begin..end)
                    .ok_or_else(|| StreamError::ScheduleExhausted {
                        segment: index,
                        task: segment.task.clone(),
                        wanted: end,
                        available: stream.len(),
                    })?;
            *begin = end;
            for (offset, prompt) in prompts.iter().enumerate() {
                let target = segment.target.clone();
                out.push(ScheduledPrompt {
                    position: out.len(),
                    segment: index,
                    offset,
                    target,
                    prompt: prompt.clone(),
                });
            }
        }
        Ok(out)
    }
}
