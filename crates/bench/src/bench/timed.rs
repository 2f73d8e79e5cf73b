//! An engine with a clock around its forwards.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

use spec_decode::{DeviceLogits, LanguageModel, ModelError};
use torch_engine::{TorchEngine, TorchError};

use super::subject::Subject;

/// Engine of a model in a timed round.
pub(super) enum Decoder {
    /// One of this program.
    Own(Subject),
    /// A sequence of a worker of PyTorch.
    Worker(Box<TorchEngine>),
}

impl Decoder {
    fn engine(&mut self) -> &mut dyn LanguageModel {
        match self {
            Self::Own(subject) => subject.decoder(),
            Self::Worker(engine) => engine.as_mut(),
        }
    }

    fn shown(&self) -> &dyn LanguageModel {
        match self {
            Self::Own(subject) => subject.shown(),
            Self::Worker(engine) => engine.as_ref(),
        }
    }

    /// The logits that the last forward left on a device.
    fn on_device(&mut self) -> Result<&mut dyn DeviceLogits, ModelError> {
        let none = || ModelError::new("this engine has its logits in memory");
        self.engine().device_logits(0).ok_or_else(none)
    }
}

/// An engine with a clock around its forwards.
pub(super) struct Timed {
    pub(super) decoder: Decoder,
    /// Seconds of all forwards so far.
    pub(super) seconds: Rc<Cell<f64>>,
    /// Size of the vocabulary; the model's further logits belong to no token.
    pub(super) tokens: usize,
    /// True if logits on a device may stay there.
    pub(super) keeps: bool,
    /// Least duration of a forward of an engine of this program, which waits for its end.
    pub(super) least: Duration,
}

impl Timed {
    /// Runs `work` with the clock on.
    fn clocked<T>(
        &mut self,
        work: impl FnOnce(&mut Decoder) -> Result<T, ModelError>,
    ) -> Result<T, ModelError> {
        let began = Instant::now();
        let done = work(&mut self.decoder);
        self.seconds
            .set(self.seconds.get() + began.elapsed().as_secs_f64());
        done
    }

    /// As [`clocked`](Self::clocked), for a forward: waits until `least` has passed.
    fn step<T>(
        &mut self,
        work: impl FnOnce(&mut Decoder) -> Result<T, ModelError>,
    ) -> Result<T, ModelError> {
        let least = self.least;
        self.clocked(|decoder| {
            let began = Instant::now();
            let done = work(decoder);
            if let Some(rest) = least.checked_sub(began.elapsed()) {
                std::thread::sleep(rest);
            }
            done
        })
    }

    /// Seconds that a worker spent in its model so far; `None` for an engine of this program, all
    /// of whose time is that of its model.
    pub(super) fn model_seconds(&self) -> Result<Option<f64>, TorchError> {
        match &self.decoder {
            Decoder::Own(_) => Ok(None),
            Decoder::Worker(engine) => engine.torch().model_seconds().map(Some),
        }
    }

    /// Bytes copied from a graphics device of this program's engine.
    pub(super) fn fetched_bytes(&self) -> u64 {
        match &self.decoder {
            Decoder::Own(subject) => subject.fetched_bytes(),
            Decoder::Worker(_) => 0,
        }
    }

    /// Masks logits that belong to no token.
    fn mask(&self, logits: &mut [f32]) {
        for row in logits.chunks_exact_mut(self.vocab_size()) {
            row[self.tokens..].fill(f32::NEG_INFINITY);
        }
    }
}

impl DeviceLogits for Timed {
    fn score(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        self.step(|decoder| decoder.on_device()?.score(ids))
    }

    fn best(&mut self, columns: &mut Vec<Option<u32>>) -> Result<(), ModelError> {
        self.clocked(|decoder| decoder.on_device()?.best(columns))?;
        // The best column of random weights may belong to no token; it is then replaced by one that
        // does.
        let tokens = self.tokens as u32;
        for column in columns.iter_mut().flatten() {
            *column %= tokens.max(1);
        }
        Ok(())
    }

    fn rows(&mut self, rows: Range<usize>, logits: &mut Vec<f32>) -> Result<(), ModelError> {
        self.clocked(|decoder| decoder.on_device()?.rows(rows, logits))?;
        self.mask(logits);
        Ok(())
    }
}

impl LanguageModel for Timed {
    fn vocab_size(&self) -> usize {
        self.decoder.shown().vocab_size()
    }

    fn len(&self) -> usize {
        self.decoder.shown().len()
    }

    fn max_len(&self) -> usize {
        self.decoder.shown().max_len()
    }

    fn truncate(&mut self, len: usize) {
        self.decoder.engine().truncate(len);
    }

    fn forward(&mut self, ids: &[u32], logits: &mut Vec<f32>) -> Result<(), ModelError> {
        let done = self.step(|decoder| decoder.engine().forward(ids, logits));
        self.mask(logits);
        done
    }

    fn device_logits(&mut self, tokens: usize) -> Option<&mut dyn DeviceLogits> {
        let keeps = self.keeps;
        let device = self.decoder.engine().device_logits(tokens);
        match device.filter(|_| keeps) {
            Some(_) => Some(self),
            None => None,
        }
    }
}
