//! Measurement of the time of a decoding step of a drafter and of a target.

use std::path::Path;
use std::time::{Duration, Instant};

use lm::{EngineSettings, LanguageModel, LmConfig, ModelError, RandomWeights, StoredCheckpoint};
use serde::{Deserialize, Serialize};
use vocab_align::TokenId;

use crate::error::{ModelsError, Result};
use crate::{Engine, ModelFolder, Packed, TargetFolder};

/// Number of drafter steps between two target steps, as in a round with the paper's k.
const DRAFT_STEPS: usize = 4;
/// Number of tokens of a target forward that verifies such a draft.
const VERIFIED: usize = DRAFT_STEPS + 1;
/// Minimum number of rounds of a measurement. `DURATION`: its minimum duration.
const ROUNDS: usize = 25;
const DURATION: Duration = Duration::from_millis(300);
/// Context at which steps are timed, in tokens.
pub const STEP_CONTEXT: usize = 128;

/// Medians of one interleaved measurement, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StepTimes {
    /// Drafter, one token: the mean over a draft. Its first step finds the processor's caches as
    /// the target left them and costs more than the next ones.
    pub draft_s: f64,
    /// Target, one token.
    pub target_s: f64,
    /// Target, five tokens at once: the cost of verifying a draft of four.
    pub verify_s: f64,
}

impl StepTimes {
    /// Drafter step over target step, the paper's c (0.07 for Llama-68M and Llama3-8B on an A100).
    pub fn ratio(&self) -> f64 {
        self.draft_s / self.target_s
    }
}

/// A model with a context in its cache.
pub struct Stepper {
    engine: Engine,
    context: usize,
    ids: Vec<u32>,
    logits: Vec<f32>,
}

impl Stepper {
    /// Builds an engine of a model and reads `context` tokens (at least 1) into it.
    ///
    /// # Errors
    /// A context that leaves no room for a step; those of the engine.
    pub fn new<I: TokenId>(
        model: &ModelFolder<I>,
        settings: EngineSettings,
        context: usize,
    ) -> Result<Self> {
        let longest = model.config().max_position_embeddings;
        let settings = EngineSettings {
            context: Some(with_step(context, longest)?),
            ..settings
        };
        let engine = model.engine(settings)?;
        Ok(Self::of(engine, model.config().vocab_size, context)?)
    }

    /// As [`new`](Self::new), for a target.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn of_target(
        target: &TargetFolder,
        settings: EngineSettings,
        context: usize,
    ) -> Result<Self> {
        if let Some(folder) = target.folder() {
            return Self::new(folder, settings, context);
        }
        let settings = EngineSettings {
            context: Some(with_step(context, target.max_context())?),
            ..settings
        };
        Ok(Self::of(
            target.engine(settings)?,
            target.vocab_size(),
            context,
        )?)
    }

    /// Reads `context` tokens of a vocabulary of `vocab` into an engine with room for them and for
    /// a step.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn of(mut engine: Engine, vocab: usize, context: usize) -> Result<Self, ModelError> {
        // The time of a step does not depend on the tokens.
        let ids: Vec<u32> = (0..context + VERIFIED)
            .map(|i| (i * 7919 % vocab) as u32)
            .collect();
        engine.prefill(&ids[..context])?;
        Ok(Self {
            engine,
            context,
            ids,
            logits: Vec::new(),
        })
    }

    /// Scores `count` tokens after the context and returns the seconds.
    fn step(&mut self, count: usize) -> Result<f64, ModelError> {
        let ids = &self.ids[self.context..self.context + count];
        let began = Instant::now();
        self.engine.forward(ids, &mut self.logits)?;
        let seconds = began.elapsed().as_secs_f64();
        self.engine.truncate(self.context);
        Ok(seconds)
    }

    /// Mean seconds of a step of a whole draft.
    fn draft(&mut self) -> Result<f64, ModelError> {
        let mut seconds = 0.0;
        for _ in 0..DRAFT_STEPS {
            seconds += self.step(1)?;
        }
        Ok(seconds / DRAFT_STEPS as f64)
    }
}

/// Tokens of a context and of the longest step after it, in a model that holds `longest`.
fn with_step(context: usize, longest: usize) -> Result<usize> {
    let most = longest.saturating_sub(VERIFIED);
    match (1..=most).contains(&context) {
        true => Ok(context + VERIFIED),
        false => {
            let message =
                format!("a context of {context} tokens is outside 1..={most} of this model");
            Err(ModelsError::Refused(message))
        }
    }
}

/// Measures both models in turn (four drafter steps, one target step, four drafter steps, one
/// target forward over five tokens), so that a disturbance of the machine affects both, and each
/// finds the processor's cache as the other leaves it.
///
/// # Errors
/// Errors of the engines.
pub fn measure(drafter: &mut Stepper, target: &mut Stepper) -> Result<StepTimes, ModelError> {
    let (mut draft, mut single, mut verify) = (Vec::new(), Vec::new(), Vec::new());
    let began = Instant::now();
    let mut warm = false;
    while single.len() < ROUNDS || began.elapsed() < DURATION {
        draft.push(drafter.draft()?);
        single.push(target.step(1)?);
        draft.push(drafter.draft()?);
        verify.push(target.step(VERIFIED)?);
        if !warm {
            // The first round includes page faults.
            (draft, single, verify) = Default::default();
            warm = true;
        }
    }
    Ok(StepTimes {
        draft_s: median(draft),
        target_s: median(single),
        verify_s: median(verify),
    })
}

/// An engine with a random model in the shape of a known one ([`lm::known_shape`]), of a
/// `config.json` or of a folder with one, over `vocab` tokens if given. Its steps take the time of
/// such a model.
///
/// # Errors
/// An unknown name; errors of the engine.
pub fn shape_engine(shape: &str, vocab: Option<usize>, settings: EngineSettings) -> Result<Engine> {
    let mut config = match lm::known_shape(shape) {
        Some(config) => config?,
        None => shape_file(shape)?,
    };
    config.vocab_size = vocab.unwrap_or(config.vocab_size);
    let longest = settings.context.unwrap_or_default();
    config.max_position_embeddings = config.max_position_embeddings.max(longest);
    Packed::new(&RandomWeights::new(&config, 0), settings)?.engine(&config, settings)
}

fn shape_file(shape: &str) -> Result<LmConfig> {
    let path = Path::new(shape);
    let folder = match path.is_dir() {
        true => Some(path),
        false => path.parent().filter(|_| path.is_file()),
    };
    match folder {
        Some(folder) => Ok(StoredCheckpoint::read_config(folder)?),
        None => {
            let names: Vec<&str> = lm::shape_names().collect();
            let names = names.join(", ");
            let message = format!("`{shape}` is neither one of {names} nor a config.json");
            Err(ModelsError::Refused(message))
        }
    }
}

/// The median; the mean of the middle two of an even number; NaN of no values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let n = values.len();
    match n {
        0 => f64::NAN,
        _ => 0.5 * (values[(n - 1) / 2] + values[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_has_to_leave_room_for_a_step() {
        assert_eq!(with_step(3, 3 + VERIFIED).unwrap(), 3 + VERIFIED);
        for (context, longest) in [(0, 9), (4, 3 + VERIFIED), (1, 2), (usize::MAX, 9)] {
            let told = with_step(context, longest).unwrap_err().to_string();
            assert!(told.contains("is outside 1..="), "{told}");
        }
    }
}
