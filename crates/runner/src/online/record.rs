//! From what happened to rows of the results folder.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use ngram_cache::NgramCache;
use sha2::{Digest, Sha256};
use spec_decode::{Finish as Ended, Generation, PlainGeneration};
use vocab_align::{TargetId, TokenId, Vocabulary};

use super::prompt::Ready;
use super::{HeadUpdate, Update};
use crate::arm::Arm;
use crate::config::{RunConfig, StreamMode};
use crate::results::{
    ArmInfo, Finish, HeadRow, InputFile, Manifest, Phase, PromptRow, RoundRow, RunWriter,
    StreamKind, UpdateRow,
};

/// Where rows of one segment and phase go.
pub(super) struct Recording<'a> {
    pub(super) writer: &'a mut RunWriter,
    pub(super) arms: &'a [Arm],
    pub(super) seed: u64,
    pub(super) segment: usize,
    pub(super) phase: Phase,
    pub(super) task: &'a str,
    pub(super) target: &'a str,
    /// The target's.
    pub(super) vocabulary: Vocabulary<TargetId>,
}

impl Recording<'_> {
    /// Plain decoding of a prompt, if a plain arm was asked for.
    pub(super) fn plain(
        &mut self,
        ready: &Ready,
        position: usize,
        done: &PlainGeneration,
    ) -> Result<()> {
        let Some(arm) = self.arms.iter().find(|arm| arm.verify.is_none()) else {
            return Ok(());
        };
        let row = PromptRow {
            rounds: done.tokens.len() as u32,
            seconds: done.decode_seconds,
            prefill_s: done.prefill_seconds,
            baseline_s: done.decode_seconds,
            baseline_tokens: done.tokens.len() as u32,
            ..self.prompt_row(&arm.name, ready, position, &done.tokens, done.finish)
        };
        Ok(self.writer.push_prompt(&row)?)
    }

    /// One arm's answer: its rounds, then the prompt.
    #[expect(
        clippy::too_many_arguments,
        reason = "one call site, and every argument is a different fact"
    )]
    pub(super) fn answer(
        &mut self,
        arm: &str,
        ready: &Ready,
        position: usize,
        done: &Generation,
        plain: Option<&PlainGeneration>,
        cache: Option<&NgramCache>,
        learn_seconds: f64,
    ) -> Result<()> {
        for outcome in &done.rounds {
            let timings = &outcome.timings;
            self.writer.push_round(&RoundRow {
                arm: arm.to_owned(),
                seed: self.seed,
                segment: self.segment as u32,
                phase: self.phase,
                prompt_index: position as u32,
                round: outcome.round as u32,
                draft_tokens: outcome.draft.len() as u32,
                proposed: outcome.proposed() as u32,
                accepted: outcome.accepted as u32,
                emitted: outcome.emitted.len() as u32,
                emitted_bytes: outcome.emitted_bytes as u32,
                ngrams_proposed: outcome.ngrams_proposed() as u32,
                ngrams_accepted: outcome.ngrams_accepted() as u32,
                expected_acceptance: rounded(
                    outcome.expected_acceptance().unwrap_or(f64::NAN),
                    1e4,
                ),
                draft_s: rounded(timings.draft, 1e6),
                translate_s: rounded(timings.translate, 1e6),
                verify_s: rounded(timings.target + timings.verify, 1e6),
                commit_s: rounded(timings.commit, 1e6),
            })?;
        }
        let totals = &done.totals;
        let row = PromptRow {
            rounds: totals.rounds as u32,
            draft_tokens: totals.drafted as u32,
            proposed: totals.proposed as u32,
            accepted: totals.accepted as u32,
            ngram_hits: totals.ngrams_accepted as u32,
            acceptance_rate: totals.acceptance_rate(),
            seconds: totals.timings.total(),
            prefill_s: done.prefill.draft + done.prefill.target,
            learn_s: learn_seconds,
            baseline_s: plain.map_or(f64::NAN, |p| p.decode_seconds),
            baseline_tokens: plain.map_or(0, |p| p.tokens.len() as u32),
            cache_ngrams: cache.map_or(0, |c| c.len() as u32),
            cache_bytes: cache.map_or(0, |c| c.memory_bytes() as u64),
            ..self.prompt_row(arm, ready, position, &done.tokens, done.finish)
        };
        Ok(self.writer.push_prompt(&row)?)
    }

    /// One update of one arm's drafter.
    pub(super) fn update(&mut self, arm: &str, update: &Update) -> Result<()> {
        Ok(self.writer.push_update(&UpdateRow {
            arm: arm.to_owned(),
            seed: self.seed,
            segment: self.segment as u32,
            update: update.number,
            prompts_seen: update.prompts_seen,
            loss: update.loss,
            loss_dm: update.direct,
            loss_ngram: update.ngram,
            dm_positions: update.direct_positions as u32,
            ngram_tokens: update.ngram_tokens as u32,
            grad_norm: update.grad_norm,
            seconds: update.seconds,
        })?)
    }

    /// One step of one arm's acceptance head.
    pub(super) fn head(&mut self, arm: &str, step: &HeadUpdate) -> Result<()> {
        let report = &step.report;
        Ok(self.writer.push_head(&HeadRow {
            arm: arm.to_owned(),
            seed: self.seed,
            segment: self.segment as u32,
            step: report.number as u32,
            prompts_seen: step.prompts_seen,
            examples: report.examples as u32,
            loss: report.loss,
            fresh: report.fresh as u32,
            fresh_loss: report.fresh_loss,
            predicted: report.predicted,
            accepted: report.accepted,
            calibration_error: report.calibration_error,
            seconds: step.seconds,
        })?)
    }

    fn prompt_row(
        &self,
        arm: &str,
        ready: &Ready,
        position: usize,
        tokens: &[TargetId],
        finish: Ended,
    ) -> PromptRow {
        PromptRow {
            arm: arm.to_owned(),
            seed: self.seed,
            segment: self.segment as u32,
            phase: self.phase,
            task: self.task.to_owned(),
            target: self.target.to_owned(),
            prompt_index: position as u32,
            prompt_id: ready.record.id.clone(),
            prompt_tokens: ready.target.len() as u32,
            new_tokens: tokens.len() as u32,
            new_bytes: self.vocabulary.decode_bytes(tokens).len() as u32,
            rounds: 0,
            draft_tokens: 0,
            proposed: 0,
            accepted: 0,
            ngram_hits: 0,
            acceptance_rate: f64::NAN,
            seconds: 0.0,
            prefill_s: 0.0,
            learn_s: 0.0,
            baseline_s: f64::NAN,
            baseline_tokens: 0,
            cache_ngrams: 0,
            cache_bytes: 0,
            finish: if matches!(finish, Ended::Stop(_)) {
                Finish::End
            } else {
                Finish::Length
            },
            tokens_hash: hash(tokens),
        }
    }
}

/// `value` to the nearest multiple of `1 / steps`: digits below what can be measured would make up
/// most of a results folder.
fn rounded(value: f64, steps: f64) -> f64 {
    (value * steps).round() / steps
}

fn hash(tokens: &[TargetId]) -> String {
    let mut hasher = Sha256::new();
    for token in tokens {
        hasher.update(token.get().to_le_bytes());
    }
    hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The manifest of a run about to start.
pub(super) fn manifest<'a>(
    config: &RunConfig,
    arms: &[Arm],
    drafter: &'a Path,
    targets: impl Iterator<Item = (&'a str, &'a Path)>,
    argv: Vec<String>,
) -> Result<Manifest> {
    let mut manifest = Manifest::new(&config.name, argv, serde_json::to_value(config)?);
    manifest.arms = arms
        .iter()
        .map(|arm| ArmInfo {
            name: arm.name.clone(),
            draft_length: if arm.verify.is_some() {
                arm.draft.k.unwrap_or(config.decode.k) as u32
            } else {
                0
            },
            temperature: config.decode.temperature,
        })
        .collect();
    manifest.streams = match config.streams {
        StreamMode::Independent => StreamKind::Independent,
        StreamMode::Continual => StreamKind::Continual,
    };
    manifest.seeds = config.seeds.clone();
    let folders = std::iter::once(("drafter", drafter)).chain(targets);
    for (role, folder) in folders {
        for path in model_files(folder)? {
            manifest.inputs.push(InputFile::hash(role, &path, None)?);
        }
    }
    if let Some(path) = &config.head.path {
        let input = InputFile::hash("acceptance head", path, None)?;
        manifest.inputs.push(input);
    }
    Ok(manifest)
}

/// Weights, in shards or whole, and tokenizer, in order of their names.
fn model_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let read = |e| anyhow!("{}: {e}", folder.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(read)? {
        let path = entry.map_err(read)?.path();
        let weights = path.extension().is_some_and(|e| e == "safetensors");
        if weights
            || path
                .file_name()
                .is_some_and(|name| name == "tokenizer.json")
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
