//! Models whose logits are a pure function of the tokens before.

use std::sync::Arc;

use engine::{Alternative, LanguageModel, ModelError, check_call};
use vocab_align::{TokenId, Vocabulary};

/// Function from the tokens before to the logits of the next token.
pub type RowFn<I> = Arc<dyn Fn(&[I]) -> Vec<f32> + Send + Sync>;

/// A language model given by a function. It records its forwards.
#[derive(Clone)]
pub struct FakeModel<I> {
    row: RowFn<I>,
    vocab: usize,
    max_len: usize,
    ids: Vec<I>,
    /// Number of positions of every forward so far (prefill included).
    pub forwards: Vec<usize>,
    /// Last row of the last forward, shown as the model's state, with 0 in place of `-inf`.
    state: Vec<f32>,
    /// Texts before the alternatives of the last forward, and these.
    scored: Vec<(Vec<I>, Vec<I>)>,
    /// Number of forwards that succeed before one fails; `None` if none fails.
    pub fail_after: Option<usize>,
}

impl<I: TokenId> FakeModel<I> {
    /// A model with rows of `vocab` logits.
    pub fn new(vocab: usize, row: RowFn<I>) -> Self {
        Self {
            row,
            vocab,
            max_len: 4096,
            ids: Vec::new(),
            forwards: Vec::new(),
            state: Vec::new(),
            scored: Vec::new(),
            fail_after: None,
        }
    }

    /// The same model with room for fewer tokens.
    pub fn with_max_len(self, max_len: usize) -> Self {
        Self { max_len, ..self }
    }

    /// The tokens in the cache.
    pub fn ids(&self) -> &[I] {
        &self.ids
    }

    /// The row after some tokens, whatever the cache holds.
    pub fn row(&self, ids: &[I]) -> Vec<f32> {
        (self.row)(ids)
    }
}

impl<I: TokenId> LanguageModel for FakeModel<I> {
    fn vocab_size(&self) -> usize {
        self.vocab
    }

    fn len(&self) -> usize {
        self.ids.len()
    }

    fn max_len(&self) -> usize {
        self.max_len
    }

    fn truncate(&mut self, len: usize) {
        self.ids.truncate(len);
        self.scored.clear();
    }

    fn alternatives(&self, tokens: usize) -> usize {
        self.max_len.saturating_sub(self.ids.len() + tokens)
    }

    fn forward_with(
        &mut self,
        ids: &[u32],
        alternatives: &[Alternative<'_>],
        logits: &mut Vec<f32>,
    ) -> Result<(), ModelError> {
        let start = self.ids.len();
        self.forward(ids, logits)?;
        for own in alternatives {
            let before = self.ids[..start + own.after].to_vec();
            let run: Vec<I> = own.ids.iter().map(|&id| I::new(id)).collect();
            for end in 1..=run.len() {
                logits.extend((self.row)(&[&before, &run[..end]].concat()));
            }
            self.scored.push((before, run));
        }
        Ok(())
    }

    fn take_alternative(&mut self, alternative: usize, tokens: usize) -> Result<(), ModelError> {
        let scored = self.scored.get(alternative);
        let Some((before, run)) =
            scored.and_then(|(before, run)| Some((before, run.get(..tokens)?)))
        else {
            return Err(ModelError::new("not scored"));
        };
        self.ids = [before, run].concat();
        self.scored.clear();
        Ok(())
    }

    fn forward(&mut self, ids: &[u32], logits: &mut Vec<f32>) -> Result<(), ModelError> {
        if self.fail_after == Some(self.forwards.len()) {
            return Err(ModelError::new("made to fail"));
        }
        check_call(ids, self.ids.len(), self.max_len, self.vocab)?;
        self.forwards.push(ids.len());
        self.scored.clear();
        logits.clear();
        for &id in ids {
            self.ids.push(I::new(id));
            logits.extend((self.row)(&self.ids));
        }
        self.state.clear();
        let last = logits.len().saturating_sub(self.vocab);
        self.state.extend(
            logits[last..]
                .iter()
                .map(|x| if x.is_finite() { *x } else { 0.0 }),
        );
        Ok(())
    }

    fn state(&self) -> &[f32] {
        &self.state
    }
}

/// Pseudo-random logits in `[-spread, spread)` for the tokens in `active`, and `-inf` elsewhere.
/// They are a function of the seed, all tokens before, and the token.
pub fn hashed_rows<I: TokenId>(seed: u64, vocab: usize, active: Vec<u32>, spread: f32) -> RowFn<I> {
    Arc::new(move |ids: &[I]| {
        let state = ids
            .iter()
            .fold(mix(seed), |state, id| mix(state ^ u64::from(id.get())));
        let mut row = vec![f32::NEG_INFINITY; vocab];
        for &token in &active {
            row[token as usize] = spread * noise(state ^ (u64::from(token) << 32));
        }
        row
    })
}

/// Logits from a process over the text: two models with the same `seed` agree about the text
/// whatever their tokens are, up to their own `disagreement`. A token's logit is the log-likelihood
/// of its bytes plus 1 for every byte, so that long tokens are preferred as in canonical text;
/// tokens without bytes get a low one.
pub fn text_rows<I: TokenId>(
    seed: u64,
    vocabulary: Vocabulary<I>,
    active: Vec<u32>,
    disagreement: f32,
) -> RowFn<I> {
    let vocab = vocabulary.len();
    Arc::new(move |ids: &[I]| {
        let tail = &ids[ids.len().saturating_sub(4)..];
        let text = vocabulary.decode_bytes(tail);
        let own = ids
            .iter()
            .fold(mix(!seed), |state, id| mix(state ^ u64::from(id.get())));
        let mut row = vec![f32::NEG_INFINITY; vocab];
        for &token in &active {
            let likelihood = match vocabulary.bytes(I::new(token)) {
                Some(bytes) => text_likelihood(seed, &text, bytes) + bytes.len() as f32,
                None => -2.0,
            };
            row[token as usize] = likelihood + disagreement * noise(own ^ (u64::from(token) << 32));
        }
        row
    })
}

fn text_likelihood(seed: u64, text: &[u8], bytes: &[u8]) -> f32 {
    let mut text = text.to_vec();
    let mut sum = 0.0;
    for &byte in bytes {
        let last = &text[text.len().saturating_sub(2)..];
        let state = last
            .iter()
            .fold(mix(seed), |state, &b| mix(state ^ u64::from(b)));
        sum += 3.0 * noise(state ^ (u64::from(byte) << 32)) - 1.0;
        text.push(byte);
    }
    sum
}

/// SplitMix64's finaliser.
fn mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Pseudo-random number in `[-1, 1)`.
fn noise(state: u64) -> f32 {
    (mix(state) >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}
