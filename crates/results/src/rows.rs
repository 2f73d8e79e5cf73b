//! The rows of the tables. The structs are the schema of journal keys, parquet columns and
//! documentation.

use crate::bootstrap::PromptKey;
use crate::schema::{row, text_enum};
use serde::{Deserialize, Serialize};

text_enum! {
    /// The part of its task that a prompt comes from.
    Split {
        /// The stream the drafter may learn from.
        #[default]
        Train = "train",
        /// Held-out prompts, drafter frozen.
        Test = "test",
    }
}

text_enum! {
    /// The reason for the end of an answer.
    Finish {
        /// The target emitted an end token.
        #[default]
        End = "end",
        /// The token limit or the model's context was reached.
        Length = "length",
    }
}

row! {
    /// One speculative round: draft, translate, verify, commit. Plain decoding has none.
    RoundRow in "rounds" {
        /// Arm (method) that answered.
        arm: String,
        /// Segment of the stream, counted from 0.
        segment: u32,
        /// `train` (the stream) or `test` (held-out prompts).
        split: Split,
        /// Position of the prompt within its segment and split, counted from 0.
        prompt_index: u32,
        /// Round within the prompt, counted from 0.
        round: u32,
        /// Draft tokens proposed by the drafter before translation.
        draft_tokens: u32,
        /// Target tokens put to the target for verification, after translation.
        proposed: u32,
        /// Proposed target tokens that were accepted.
        accepted: u32,
        /// Target tokens committed: accepted ones, the target's own token, and those after it as far as it was scored as an alternative.
        emitted: u32,
        /// Bytes of text of the committed tokens; special tokens have none.
        emitted_bytes: u32,
        /// Proposed target tokens that came from the n-gram cache.
        ngrams_proposed: u32,
        /// Accepted target tokens that came from the n-gram cache.
        ngrams_accepted: u32,
        /// Proposed target tokens that were looked up, in front of drafted ones; older tables lack this column.
        looked_up: Option<u32>,
        /// Tokens of alternatives that were scored along with the draft; older tables lack this column.
        alternatives: Option<u32>,
        /// Expected acceptance: mean over the judged tokens of their chance of acceptance (min(1, p / q'), in mode `exact` that of the group rule), the label of acceptance heads, to four digits; NaN when nothing was proposed.
        expected_acceptance: f64,
        /// Microseconds in the drafter's forwards and sampling; as the three below, 0 in stages that are not timed.
        draft_us: u32,
        /// Microseconds of translation to target tokens.
        translate_us: u32,
        /// Microseconds of the target's forward and the acceptance test.
        verify_us: u32,
        /// Microseconds of committing: caches rolled back, text re-tokenised, n-grams inserted.
        commit_us: u32,
    }
}

row! {
    /// One prompt and its answer. Plain decoding of a prompt is the row of the arm that verifies
    /// nothing, with the same segment, split and index.
    PromptRow in "prompts" {
        /// Arm (method) that answered.
        arm: String,
        /// Seed of the cell.
        seed: u64,
        /// Segment of the stream, counted from 0.
        segment: u32,
        /// `train` (the stream) or `test` (held-out prompts).
        split: Split,
        /// Name of the task, as shown in tables.
        task: String,
        /// Name of the target model, as shown in tables.
        target: String,
        /// Position of the prompt within its segment and split, counted from 0.
        prompt_index: u32,
        /// The prompt's own identifier in its data file.
        prompt_id: String,
        /// Prompt length in target tokens.
        prompt_tokens: u32,
        /// Target tokens generated.
        new_tokens: u32,
        /// Bytes of text generated; special tokens have none.
        new_bytes: u32,
        /// Forwards of the target after the prompt: one a round, for plain decoding one a token.
        rounds: u32,
        /// Draft tokens over all rounds.
        draft_tokens: u32,
        /// Proposed target tokens over all rounds.
        proposed: u32,
        /// Accepted target tokens over all rounds.
        accepted: u32,
        /// Proposed target tokens that came from the n-gram cache, over all rounds.
        ngrams_proposed: u32,
        /// Accepted target tokens that came from the n-gram cache, over all rounds.
        ngram_hits: u32,
        /// Proposed tokens that end a text or turn, over all rounds; older tables lack this column.
        ends_proposed: Option<u32>,
        /// Accepted ones of those; older tables lack this column.
        ends_accepted: Option<u32>,
        /// Cost of its rounds at `decode.costs`, in steps of the target; older tables lack this column.
        cost: Option<f64>,
        /// Mean of accepted / proposed over the rounds with proposals; NaN without any.
        acceptance_rate: f64,
        /// Number of rounds with proposals: the weight of `acceptance_rate`.
        judged_rounds: u32,
        /// Fresh rounds, as `modelled, fresh` defines them; this column and the four below are filled where publishing leaves the rounds behind, other tables lack them.
        fresh_rounds: Option<u32>,
        /// Target tokens committed in fresh rounds.
        fresh_tokens: Option<u32>,
        /// Draft tokens of fresh rounds.
        fresh_drafted: Option<u32>,
        /// Fresh rounds that proposed.
        fresh_judged: Option<u32>,
        /// Sum of accepted / proposed over those.
        fresh_acceptance: Option<f64>,
        /// Seconds of decoding, prefill and learning apart.
        seconds: f64,
        /// Seconds of the prompt's prefill in target and drafter.
        prefill_s: f64,
        /// Seconds by which this answer delayed the stream beyond prompt and rounds: learning, and what an arm does between rounds and after the last.
        learn_s: f64,
        /// Decision of the controller for this answer: `plain`, `copies`, `frozen` or `learner`; none without one, and in older tables.
        way: Option<String>,
        /// Seconds that the arm's answers saved compared with plain decoding up to this prompt, costs of learning included, by the controller; none without one, and in older tables.
        saved_s: Option<f64>,
        /// Entries of the n-gram cache after the prompt.
        cache_ngrams: u32,
        /// Memory of the n-gram cache after the prompt, bytes.
        cache_bytes: u64,
        /// `end` or `length`.
        finish: Finish,
        /// The generated target ids, decimal, with spaces between them; see [`crate::publish`] for published ones.
        answer: String,
        /// SHA-256 over the generated target ids (little-endian u32), hexadecimal; published: its first 8 digits, in older runs 16.
        tokens_hash: String,
    }
}

row! {
    /// One optimiser update of the drafter (Algorithm 2).
    UpdateRow in "updates" {
        /// Arm (method) that learnt.
        arm: String,
        /// Seed of the cell.
        seed: u64,
        /// Segment of the stream, counted from 0.
        segment: u32,
        /// Update within the arm, counted from 0.
        update: u32,
        /// Prompts of the stream seen before this update.
        prompts_seen: u32,
        /// The minimised loss: L_DM + lambda L_N-gram, or ALM.
        loss: f64,
        /// Direct term in nats per position, whatever the loss is divided by; reverse KL (Eq. 4) unless configured otherwise; for ALM, divergence per chunk.
        loss_dm: f64,
        /// N-gram term in nats per draft token, whatever the loss is divided by; negative log-likelihood (Eq. 4) unless configured otherwise.
        loss_ngram: f64,
        /// Positions that contributed to the direct term; for ALM, chunks.
        dm_positions: u32,
        /// Draft tokens that contributed to L_N-gram.
        ngram_tokens: u32,
        /// Norm of the gradient before clipping.
        grad_norm: f64,
        /// Seconds of the update.
        seconds: f64,
        /// Share of fresh positions at which the drafter agreed with the target before this update: in greedy text the emitted token was its best one among the columns of the update, in drawn text the mass that both laws have in common there. Only if the last blocks alone learn, and not in the first update; older tables lack this column.
        agreed: Option<f64>,
        /// The same of the weights that the drafter had at first, at the same positions; older tables lack this column.
        agreed_first: Option<f64>,
    }
}

row! {
    /// A training step of an acceptance head (Algorithms 3 and 4). The columns from `fresh` to
    /// `calibration_error` are about verified draft tokens that the head has not been trained on.
    /// In published folders losses and means are NaN before the last quarter of the steps.
    HeadRow in "heads" {
        /// Arm (method) that learnt.
        arm: String,
        /// Seed of the cell.
        seed: u64,
        /// Segment of the stream, counted from 0.
        segment: u32,
        /// First step of the turn within the arm, counted from 0.
        step: u32,
        /// Prompts of the stream seen before this step.
        prompts_seen: u32,
        /// Judged draft tokens that step was taken on.
        examples: u32,
        /// Weighted cross-entropy on them before the step, nats.
        loss: f64,
        /// Judged draft tokens that came in since the turn before.
        fresh: u32,
        /// Weighted cross-entropy on those, nats; NaN, as the next three, when there were none.
        fresh_loss: f64,
        /// Mean predicted acceptance.
        predicted: f64,
        /// Mean label min(1, p / q').
        accepted: f64,
        /// Mean distance between predicted and true acceptance over ten bins of prediction.
        calibration_error: f64,
        /// Seconds of the turn.
        seconds: f64,
    }
}

row! {
    /// The columns of a round that acceptance rates need; read from `rounds` without the others.
    JudgedRound in "rounds" {
        /// As in [`RoundRow`].
        arm: String,
        /// As in [`RoundRow`].
        segment: u32,
        /// As in [`RoundRow`].
        split: Split,
        /// As in [`RoundRow`].
        prompt_index: u32,
        /// As in [`RoundRow`].
        round: u32,
        /// As in [`RoundRow`].
        draft_tokens: u32,
        /// As in [`RoundRow`].
        proposed: u32,
        /// As in [`RoundRow`].
        accepted: u32,
        /// As in [`RoundRow`].
        emitted: u32,
    }
}

/// One entry of an arm's n-gram cache when its cell ended: a line of `ngrams.jsonl`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NgramRow {
    /// Arm (method) that holds the cache.
    pub arm: String,
    /// Text of the target token.
    pub target_text: String,
    /// Texts of the draft tokens that spell it, in order.
    pub draft_texts: Vec<String>,
    /// Number of times that the entry was seen in accepted text; in older files accepted proposals
    /// count once more.
    pub count: u64,
}

impl PromptRow {
    /// Seconds of decoding, prefill and learning.
    pub fn all_seconds(&self) -> f64 {
        self.seconds + self.prefill_s + self.learn_s
    }

    /// Identity of the prompt across arms and seeds.
    pub fn key(&self) -> PromptKey {
        (self.segment, self.prompt_id.clone())
    }
}

/// The generated ids of [`PromptRow::answer`], up to the first text that is not a number.
pub fn answer_ids(answer: &str) -> Vec<u32> {
    answer
        .split_ascii_whitespace()
        .map_while(|id| id.parse().ok())
        .collect()
}

/// The text of [`PromptRow::answer`].
pub fn answer_text(ids: impl IntoIterator<Item = u32>) -> String {
    let ids: Vec<String> = ids.into_iter().map(|id| id.to_string()).collect();
    ids.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Field;
    use crate::{ColumnData, Row};

    fn update(loss: f64) -> UpdateRow {
        UpdateRow {
            arm: "L_DM".into(),
            seed: 7,
            segment: 1,
            update: 3,
            prompts_seen: 32,
            loss,
            loss_dm: 1.5,
            loss_ngram: 0.0,
            dm_positions: 40,
            ngram_tokens: 0,
            grad_norm: 0.25,
            seconds: 0.125,
            agreed: Some(0.5),
            agreed_first: None,
        }
    }

    #[test]
    fn a_wrong_column_is_named_by_its_index() {
        let mut columns = UpdateRow::to_columns(&[update(1.0)]);
        columns[5] = ColumnData::U32(vec![1]);
        assert_eq!(UpdateRow::from_columns(columns), Err(5));
        let mut columns = UpdateRow::to_columns(&[update(1.0)]);
        columns[2] = ColumnData::U32(vec![1, 2]);
        assert_eq!(UpdateRow::from_columns(columns), Err(2));
    }

    #[test]
    fn a_diverged_loss_survives_json() {
        let json = serde_json::to_string(&update(f64::NAN)).unwrap();
        assert!(json.contains(r#""loss":null"#), "{json}");
        let row: UpdateRow = serde_json::from_str(&json).unwrap();
        assert!(row.loss.is_nan());
    }

    #[test]
    fn unknown_text_values_are_refused() {
        assert_eq!(Split::unpack(ColumnData::Text(vec!["valid".into()])), None);
        assert_eq!(
            Finish::unpack(ColumnData::Text(vec!["end".into()])),
            Some(vec![Finish::End])
        );
    }
}
