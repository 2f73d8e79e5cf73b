//! Inputs of a job: models, recordings, prompts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use experiment::JobConfig;
use models::{ModelFolder, ModelsError, template_variables};
use results::{InputFile, Manifest, RecordedTarget, TorchTarget};
use streams::{DataSource, Prompt, Split, StreamSpec};

use super::{Job, SPLITS, Tally};
use crate::error::{OnlineError, Result};
use crate::state::SavedState;
use crate::target::{Streamed, Target, streamed};

impl<'a> Job<'a> {
    pub(super) fn load(config: &'a JobConfig, data: &'a DataSource) -> Result<Self> {
        let arms: Vec<_> = config.arms.iter().map(|arm| &arm.decode).collect();
        if arms.is_empty() {
            return Err(OnlineError::Lacking("the job has no arms"));
        }
        let own = &config.models.drafter;
        let mut drafter = ModelFolder::load(&own.path)?;
        let system = own.system.as_deref();
        let variables = template_variables(&own.chat_template_kwargs);
        let asked = drafter.text.asked_with(&variables, system, false);
        asked.map_err(ModelsError::from)?;
        let mut targets = BTreeMap::new();
        for (name, target) in &config.models.targets {
            let target = Target::load(
                &config.models,
                target,
                &drafter,
                &arms,
                &streams_of(config, name),
            );
            let target = target.map_err(OnlineError::at(format!("target `{name}`")))?;
            targets.insert(name.clone(), target);
        }
        Ok(Self {
            config,
            data,
            drafter,
            targets,
            tally: Tally::default(),
        })
    }

    /// The prompts of one split of a segment; empty if the configuration wants none.
    pub(super) fn prompts(&self, index: usize, split: Split) -> Result<Vec<Prompt>> {
        let segments = &self.config.segments;
        let segment = &segments[index];
        // A task that occurs again continues after its earlier prompts: no prompt is streamed
        // twice.
        let earlier = segments[..index].iter().filter(|s| s.task == segment.task);
        let before = earlier.map(|own| own.train.limit().unwrap_or(usize::MAX));
        let before = before.fold(segment.skip, usize::saturating_add);
        let (count, skip) = match split {
            Split::Train => (segment.train, before),
            Split::Test => (segment.test, 0),
        };
        if count.is_none() {
            return Ok(Vec::new());
        }
        let spec = StreamSpec {
            task: segment.task.clone(),
            split,
            limit: count.limit(),
            skip,
            shuffle: split == Split::Train,
        };
        Ok(spec.load(self.data, self.config.seed)?)
    }

    /// Reads every stream once, so that bad data is reported before anything is written, and lists
    /// the input files.
    pub(super) fn inputs(&mut self, start: Option<&Path>) -> Result<Vec<InputFile>> {
        let mut inputs = Vec::new();
        for path in model_files(&self.drafter.path)? {
            inputs.push(InputFile::hash("drafter", &path)?);
        }
        for (name, target) in &self.targets {
            let files = match &target.recorded {
                Some(recorded) => recorded.files.clone(),
                None => model_files(&target.text.path)?,
            };
            for path in files {
                inputs.push(InputFile::hash(name, &path)?);
            }
        }
        for arm in &self.config.arms {
            if let Some(path) = &arm.head.path {
                inputs.push(InputFile::hash("acceptance head", path)?);
            }
        }
        for (index, segment) in self.config.segments.iter().enumerate() {
            for split in SPLITS {
                let prompts = self.prompts(index, split)?;
                self.tally.of += prompts.len();
                let name = format!("{} {}", segment.task, split.name());
                let content = serde_json::to_vec(&prompts)?;
                inputs.push(InputFile::stream(&name, &content, prompts.len() as u64));
            }
        }
        if let Some(root) = start {
            let saved = SavedState::of_job(root);
            for arm in saved.map_err(OnlineError::at("the state it starts from"))? {
                for path in arm.files()? {
                    inputs.push(InputFile::hash("state", &path)?);
                }
            }
        }
        Ok(inputs)
    }

    /// The targets that are recordings, by name.
    pub(super) fn recorded(&self) -> impl Iterator<Item = (String, RecordedTarget)> {
        self.targets.iter().filter_map(|(name, target)| {
            Some((name.clone(), target.recorded.as_ref()?.described.clone()))
        })
    }

    /// The targets that a PyTorch worker decodes, by name.
    pub(super) fn workers(&self) -> impl Iterator<Item = (String, TorchTarget)> {
        let targets = self.targets.iter();
        targets.filter_map(|(name, target)| Some((name.clone(), target.torch.clone()?)))
    }

    /// Measures the step times of padded models on this machine.
    pub(super) fn measure_steps(&self, manifest: &mut Manifest) -> Result<()> {
        let arms = &self.config.arms;
        let drafting = arms.iter().find(|arm| !arm.is_plain());
        let Some(arm) = drafting.or(arms.first()) else {
            return Ok(());
        };
        for (name, target) in &self.targets {
            if let Some(padded) = &target.padded {
                let models = &self.config.models;
                let measured = padded.measure(&self.drafter, models, &arm.decode)?;
                manifest.padding.insert(name.clone(), measured);
            }
        }
        Ok(())
    }
}

/// The tasks and splits that a job uses with a target.
fn streams_of(config: &JobConfig, target: &str) -> Streamed {
    let segments = config.segments.iter().filter(|own| own.target == target);
    segments
        .flat_map(|own| {
            let splits = [(Split::Train, own.train), (Split::Test, own.test)];
            let asked = splits.into_iter().filter(|(_, count)| !count.is_none());
            asked.map(|(split, _)| streamed(&own.task, split))
        })
        .collect()
}

/// Files of a model, in the order of their names: weights in any format, and what says how they
/// compute and how text is read and written.
fn model_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(OnlineError::io(folder))? {
        let path = entry.map_err(OnlineError::io(folder))?.path();
        let kind = path.extension().and_then(|kind| kind.to_str());
        let text = matches!(kind, Some("json" | "jinja" | "model"));
        if path.is_file() && (text || models::is_weight_file(&path)) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
