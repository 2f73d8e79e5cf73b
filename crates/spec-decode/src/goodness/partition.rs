//! Buckets for the first tokens of a response, with their exact probabilities.

use std::collections::{BTreeMap, BTreeSet};

use vocab_align::{TargetId, TokenId, raw_ids};

use crate::LanguageModel;
use crate::error::{Role, SpecError};
use crate::model::Rows;
use crate::sampling::Sampling;
use crate::session::read_prompt;

/// A partition of all continuations of a prompt by a given number of tokens.
///
/// Every continuation that is probable enough is a bucket of its own. Of the others, those with the
/// longest common beginning that together are probable enough share a bucket. The remaining ones
/// are in bucket 0. The partition depends only on the target's distribution. A continuation ends
/// early after a stop token.
#[derive(Clone, Debug)]
pub struct Partition {
    len: usize,
    stop: BTreeSet<TargetId>,
    whole: BTreeMap<Vec<TargetId>, usize>,
    /// Buckets of the other continuations that begin like this.
    rest: BTreeMap<Vec<TargetId>, usize>,
    law: Vec<f64>,
}

impl Partition {
    /// Enumerates the target's processed distribution after `prompt`, `len` tokens deep, down to
    /// continuations of probability `least`. It takes one target forward per beginning that is at
    /// least that probable: at most `len / least`.
    ///
    /// # Errors
    /// An empty or too long prompt, a failing model, impossible logits (the "round" is the depth).
    pub fn new<T: LanguageModel>(
        target: &mut T,
        prompt: &[TargetId],
        sampling: Sampling,
        stop: &BTreeSet<TargetId>,
        len: usize,
        least: f64,
    ) -> Result<Self, SpecError> {
        read_prompt(target, Role::Target, prompt, 0)?;
        let mut partition = Self {
            len,
            stop: stop.clone(),
            whole: BTreeMap::new(),
            rest: BTreeMap::new(),
            law: vec![0.0],
        };
        let mut walk = Walk {
            target,
            prompt,
            sampling,
            least,
            prefix: Vec::new(),
        };
        let left = partition.expand(&mut walk, 1.0)?;
        partition.law[0] = left;
        Ok(partition)
    }

    /// Divides the continuations of the walk's prefix into buckets. Returns the mass that is in no
    /// bucket.
    fn expand<T: LanguageModel>(
        &mut self,
        walk: &mut Walk<'_, T>,
        mass: f64,
    ) -> Result<f64, SpecError> {
        let law = walk.law()?;
        let mut left = 0.0;
        for (column, &p) in law.iter().enumerate() {
            if mass * p < walk.least {
                left += mass * p;
                continue;
            }
            let token = TargetId::new(column as u32);
            walk.prefix.push(token);
            if walk.prefix.len() == self.len || self.stop.contains(&token) {
                self.whole.insert(walk.prefix.clone(), self.law.len());
                self.law.push(mass * p);
            } else {
                left += self.expand(walk, mass * p)?;
            }
            walk.prefix.pop();
        }
        if left < walk.least {
            return Ok(left);
        }
        self.rest.insert(walk.prefix.clone(), self.law.len());
        self.law.push(left);
        Ok(0.0)
    }

    /// Probability of every bucket.
    pub fn law(&self) -> &[f64] {
        &self.law
    }

    /// Bucket of a response. Only its first tokens count.
    pub fn bucket(&self, response: &[TargetId]) -> usize {
        let response = &response[..response.len().min(self.len)];
        if let Some(&bucket) = self.whole.get(response) {
            return bucket;
        }
        (0..response.len())
            .rev()
            .find_map(|end| self.rest.get(&response[..end]).copied())
            .unwrap_or(0)
    }
}

struct Walk<'a, T> {
    target: &'a mut T,
    prompt: &'a [TargetId],
    sampling: Sampling,
    least: f64,
    prefix: Vec<TargetId>,
}

impl<T: LanguageModel> Walk<'_, T> {
    /// Distribution of the token after the prefix.
    fn law(&mut self) -> Result<Vec<f64>, SpecError> {
        let round = self.prefix.len();
        let read = self.prompt.len() - 1;
        let input = [&self.prompt[read..], &self.prefix].concat();
        let mut logits = Vec::new();
        self.target.truncate(read);
        let scored = self.target.forward(&raw_ids(&input), &mut logits);
        scored.map_err(SpecError::model(Role::Target, round))?;
        let vocab = self.target.vocab_size();
        let fault = SpecError::law(Role::Target, round);
        Rows::checked(&logits, vocab, input.len()).map_err(fault)?;
        let row = &mut logits[vocab * (input.len() - 1)..];
        if self.sampling.penalises() {
            let context = self.prompt.iter().chain(&self.prefix);
            self.sampling.penalise(row, &context.copied().collect());
        }
        let mut law = Vec::new();
        self.sampling.law(row, &mut law).map_err(fault)?;
        Ok(law)
    }
}
