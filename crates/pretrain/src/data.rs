//! Documents as token sequences of one length. Sequences are addressed by number, so that training
//! can resume anywhere.

use std::collections::BTreeMap;

use rayon::prelude::*;
use vocab_align::{TargetId, TokenId, Vocabulary};

use crate::error::{PretrainError, Result};
use crate::{Corpus, Document};
use streams::StreamRng;

/// Largest number of held-out sequences measured per source.
const HELD_OUT_SEQUENCES: usize = 24;

/// The training documents in tokens, and held-out sequences per source.
pub struct TokenData {
    documents: Vec<Vec<u32>>,
    /// Tasks and recorded targets in the order of their names, each with its documents that have a
    /// prompt: index of the document, and number of the prompt's tokens.
    prompts: Vec<(String, Vec<(usize, usize)>)>,
    sequence: usize,
    per_epoch: usize,
    seed: u64,
    epoch: Option<(usize, Vec<u32>)>,
    /// Held-out sequences by source, in name order.
    pub held_out: Vec<(String, Vec<Vec<u32>>)>,
}

impl TokenData {
    /// Tokenises the corpus on all cores.
    ///
    /// # Errors
    /// A text that the tokenizer cannot encode; a corpus shorter than one sequence.
    pub fn new(
        corpus: &Corpus,
        vocabulary: &Vocabulary<TargetId>,
        bos: u32,
        sequence: usize,
        seed: u64,
    ) -> Result<Self> {
        let encode_all = |documents: &[&Document]| {
            documents
                .par_iter()
                .map(|d| tokens_of(d, vocabulary, bos))
                .collect::<Result<Vec<_>>>()
        };
        let training: Vec<&Document> = corpus.training.iter().collect();
        let mut by_task: BTreeMap<&str, Vec<(usize, usize)>> = BTreeMap::new();
        let mut documents = Vec::with_capacity(training.len());
        for (place, (ids, prompt)) in encode_all(&training)?.into_iter().enumerate() {
            if training[place].prompt.is_some() {
                let own = by_task.entry(&training[place].source).or_default();
                own.push((place, prompt));
            }
            documents.push(ids);
        }
        let total: usize = documents.iter().map(Vec::len).sum();
        let per_epoch = total.saturating_sub(1) / sequence;
        if per_epoch == 0 {
            return Err(PretrainError::Fault(format!(
                "the training corpus has {total} tokens, fewer than one sequence of {sequence}"
            )));
        }
        let mut sources: Vec<&str> = corpus.held_out.iter().map(|d| &*d.source).collect();
        sources.sort_unstable();
        sources.dedup();
        let held_out = sources
            .into_iter()
            .map(|source| {
                let own = corpus.held_out.iter().filter(|d| d.source == source);
                let own: Vec<_> = own.collect();
                let stream: Vec<u32> = encode_all(&own)?
                    .into_iter()
                    .flat_map(|(ids, _)| ids)
                    .collect();
                let sequences = stream
                    .windows(sequence + 1)
                    .step_by(sequence)
                    .take(HELD_OUT_SEQUENCES);
                Ok((
                    source.to_owned(),
                    sequences.map(<[u32]>::to_vec).collect::<Vec<_>>(),
                ))
            })
            .filter(|entry| !matches!(entry, Ok((_, sequences)) if sequences.is_empty()))
            .collect::<Result<_>>()?;
        Ok(Self {
            documents,
            prompts: by_task
                .into_iter()
                .map(|(task, own)| (task.to_owned(), own))
                .collect(),
            sequence,
            per_epoch,
            seed,
            epoch: None,
            held_out,
        })
    }

    /// Number of tokens that one pass over the documents trains on. They are in whole sequences;
    /// tokens at the end that fill none are left out.
    pub fn tokens_per_epoch(&self) -> usize {
        self.per_epoch * self.sequence
    }

    /// The `count` prompts of step `step`, in tokens, with the opening token. For each, one of
    /// `tasks` is drawn (of all tasks and recorded targets, if `tasks` is empty), then one of its
    /// prompts. Empty if none of these has prompts.
    pub fn prompts(&self, step: u64, count: usize, tasks: &[String]) -> Vec<&[u32]> {
        let named = |task: &String| tasks.is_empty() || tasks.contains(task);
        let drawn = self.prompts.iter().filter(|(task, _)| named(task));
        let drawn: Vec<&[(usize, usize)]> = drawn.map(|(_, own)| own.as_slice()).collect();
        let mut rng = StreamRng::new(self.seed, &format!("pretrain prompts {step}"));
        let mut draw = || {
            let task = drawn.get(rng.below(drawn.len().max(1)))?;
            let (document, tokens) = *task.get(rng.below(task.len()))?;
            Some(&self.documents[document][..tokens])
        };
        (0..count).filter_map(|_| draw()).collect()
    }

    /// Sequence number `index` of the whole training, `[sequence + 1]` tokens.
    pub fn sequence(&mut self, index: u64) -> Vec<u32> {
        let (epoch, place) = (
            (index as usize) / self.per_epoch,
            (index as usize) % self.per_epoch,
        );
        if self
            .epoch
            .as_ref()
            .is_none_or(|(current, _)| *current != epoch)
        {
            let mut order: Vec<usize> = (0..self.documents.len()).collect();
            StreamRng::new(self.seed, &format!("pretrain epoch {epoch}")).shuffle(&mut order);
            let stream = order
                .into_iter()
                .flat_map(|i| self.documents[i].iter().copied())
                .collect();
            self.epoch = Some((epoch, stream));
        }
        let stream = self.epoch.as_ref().map_or(&[][..], |(_, stream)| stream);
        let start = place * self.sequence;
        stream[start..start + self.sequence + 1].to_vec()
    }
}

/// Tokens of a document, and the number of those of the opening token and the prompt.
fn tokens_of(
    document: &Document,
    vocabulary: &Vocabulary<TargetId>,
    bos: u32,
) -> Result<(Vec<u32>, usize)> {
    let mut ids = Vec::new();
    // The prompt is tokenised as at run time; the answer starts with a new token.
    if let Some(prompt) = &document.prompt {
        let read = vocabulary.encode_around(&prompt.text, &prompt.bodies, false)?;
        ids.extend(read);
    }
    let prompt = 1 + ids.len();
    ids.extend(vocabulary.encode(&document.content)?);
    ids.extend(vocabulary.encode_with_specials(&document.end_of_turn)?);
    let ids = ids.into_iter().map(TokenId::get);
    Ok((std::iter::once(bos).chain(ids).collect(), prompt))
}
