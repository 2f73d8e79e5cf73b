//! The rows of one synthetic cell.

use super::{Arm, Experiment, Job, K, PLAIN, Segment, Stage};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use results::{CellWriter, Finish, NgramRow, PromptRow, RoundRow, Split, UpdateRow, answer_text};

const TARGET_STEP: f64 = 0.0100;
const DRAFT_STEP: f64 = 0.0007;

/// Records every row of a cell.
pub fn record(experiment: &Experiment, stage: &Stage, job: &Job, writer: &mut CellWriter) {
    for (number, arm) in experiment.arms.iter().enumerate() {
        let mut state = Learner::default();
        let mut update = 0;
        let mut before = 0;
        for (index, segment) in job.segments.iter().enumerate() {
            state.switch(segment);
            let mut scene = Scene {
                job,
                arm,
                number,
                segment,
                index: index as u32,
                split: Split::Train,
                rng: ChaCha8Rng::seed_from_u64(job.seed * 1000 + index as u64),
            };
            // A stage that starts from a learnt state has nothing to stream.
            let streamed = if stage.train { segment.train } else { 0 };
            if !stage.train {
                (0..segment.train).for_each(|_| state.learn(arm, 60));
            }
            for at in 0..streamed {
                let row = scene.prompt(at, &state);
                state.learn(arm, row.new_tokens);
                scene.push(&row, writer);
                if arm.learns && at % 8 == 7 {
                    let row = scene.update(update, before + at + 1, &state);
                    writer.push_update(&row).unwrap();
                    update += 1;
                }
            }
            before += streamed;
            scene.split = Split::Test;
            for at in 0..if stage.test { segment.test } else { 0 } {
                let row = scene.prompt(at, &state);
                scene.push(&row, writer);
            }
        }
    }
    let caches = experiment.arms.iter().filter(|arm| arm.hits > 0.0);
    writer
        .write_ngrams(&caches.flat_map(ngrams).collect::<Vec<_>>())
        .unwrap();
}

/// The learnt share of the segment of a synthetic drafter, from 0 to 1, and its cache.
#[derive(Debug, Default)]
struct Learner {
    skill: f64,
    ease: f64,
    tokens: f64,
    ngrams: f64,
}

impl Learner {
    fn switch(&mut self, segment: &Segment) {
        self.skill *= 0.3;
        self.ease = segment.ease;
    }

    fn learn(&mut self, arm: &Arm, tokens: u32) {
        let pace = if arm.learns { 0.03 } else { 0.02 };
        self.skill += pace * (1.0 - self.skill);
        self.tokens += f64::from(tokens);
        if arm.hits > 0.0 {
            self.ngrams = 14.0 * self.tokens.powf(0.42);
        }
    }

    fn acceptance(&self, arm: &Arm) -> f64 {
        arm.start * (0.7 + 0.3 * self.ease) + arm.gain * self.ease * self.skill
    }
}

/// Position of a prompt.
struct Scene<'a> {
    job: &'a Job,
    arm: &'a Arm,
    number: usize,
    segment: &'a Segment,
    index: u32,
    split: Split,
    rng: ChaCha8Rng,
}

impl Scene<'_> {
    fn prompt(&mut self, at: u32, state: &Learner) -> PromptRow {
        let rng = &mut self.rng;
        let mut around =
            |value: f64, spread: f64| value * (1.0 + spread * (rng.random::<f64>() * 2.0 - 1.0));
        let tokens = around(60.0, 0.5) as u32;
        let acceptance = around(state.acceptance(self.arm), 0.35);
        let noise = around(1.0, 0.06);
        let speculative = self.arm.name != PLAIN;
        let per_round = 1.0 + f64::from(K) * acceptance * 1.02;
        let rounds = if speculative {
            (f64::from(tokens) / per_round).ceil() as u32
        } else {
            tokens
        };
        let draft_tokens = if speculative { rounds * K } else { 0 };
        let step = if speculative {
            TARGET_STEP * 1.12 + f64::from(K) * DRAFT_STEP
        } else {
            TARGET_STEP
        };
        let hits = self.arm.hits * (0.3 + 0.7 * state.skill);
        let hits = (f64::from(rounds) * hits) as u32;
        PromptRow {
            arm: self.arm.name.into(),
            seed: self.job.seed,
            segment: self.index,
            split: self.split,
            task: self.segment.task.into(),
            target: self.segment.target.into(),
            prompt_index: at,
            prompt_id: format!("{}/{}/{at}", self.segment.task, self.split.as_str()),
            prompt_tokens: 40,
            new_tokens: tokens,
            new_bytes: 4 * tokens,
            rounds,
            draft_tokens,
            proposed: draft_tokens,
            accepted: tokens.saturating_sub(rounds),
            ngrams_proposed: 2 * hits,
            ngram_hits: hits,
            acceptance_rate: if speculative { acceptance } else { f64::NAN },
            judged_rounds: if speculative { rounds } else { 0 },
            seconds: f64::from(rounds) * step * noise,
            prefill_s: 0.08,
            cache_ngrams: state.ngrams as u32,
            cache_bytes: 40 * state.ngrams as u64,
            finish: if tokens > 80 {
                Finish::Length
            } else {
                Finish::End
            },
            answer: answer_text(answer(at, tokens, self.number as u32)),
            tokens_hash: format!("{tokens:064x}"),
            ..PromptRow::default()
        }
    }

    fn push(&self, prompt: &PromptRow, writer: &mut CellWriter) {
        let timed = |us: u32| if prompt.draft_tokens > 0 { us } else { 0 };
        let speculative = prompt.draft_tokens > 0;
        for round in 0..if speculative { prompt.rounds } else { 0 } {
            let accepted = u32::from(round % 3 == 0) + u32::from(round % 7 == 0);
            writer
                .push_round(&RoundRow {
                    arm: prompt.arm.clone(),
                    segment: prompt.segment,
                    split: prompt.split,
                    prompt_index: prompt.prompt_index,
                    round,
                    draft_tokens: K,
                    proposed: K,
                    accepted,
                    emitted: accepted + 1,
                    emitted_bytes: 4 * (accepted + 1),
                    expected_acceptance: 0.25,
                    draft_us: timed(2800),
                    translate_us: timed(100),
                    verify_us: timed(11_200),
                    commit_us: timed(200),
                    ..RoundRow::default()
                })
                .unwrap();
        }
        writer.push_prompt(prompt).unwrap();
    }

    fn update(&mut self, update: u32, seen: u32, state: &Learner) -> UpdateRow {
        let mut around = |value: f64| value * (0.9 + 0.2 * self.rng.random::<f64>());
        let loss_dm = around(1.2 + 2.6 * (1.0 - state.skill));
        let caches = self.arm.hits > 0.0;
        let loss_ngram = if caches {
            around(0.8 + 3.5 * (1.0 - state.skill))
        } else {
            0.0
        };
        UpdateRow {
            arm: self.arm.name.into(),
            seed: self.job.seed,
            segment: self.index,
            update,
            prompts_seen: seen,
            loss: loss_dm + 0.2 * loss_ngram,
            loss_dm,
            loss_ngram,
            dm_positions: 500,
            ngram_tokens: if caches { 90 } else { 0 },
            grad_norm: 1.0,
            seconds: 0.4,
            agreed: None,
            agreed_first: None,
        }
    }
}

/// An answer: every third begins with the same formula, every fourth ends in a loop.
fn answer(at: u32, tokens: u32, arm: u32) -> Vec<u32> {
    let token = |i: u32| match (at % 3, at % 4) {
        (0, _) if i < 10 => 900 + i,
        (_, 0) if i > tokens / 2 => 700 + i % 3,
        _ => 1000 + (i * 7919 + at * 104_729 + arm * 31) % 20_000,
    };
    (0..tokens).map(token).collect()
}

fn ngrams(arm: &Arm) -> Vec<NgramRow> {
    let words = ["answer", "however", "total", "return", "minute", "thousand"];
    let row = |(rank, word): (usize, &&str)| {
        let (head, tail) = word.split_at(word.len() / 2);
        NgramRow {
            arm: arm.name.into(),
            target_text: format!(" {word}"),
            draft_texts: vec![format!(" {head}"), tail.to_owned()],
            count: 400 / (rank as u64 + 1).pow(2),
        }
    };
    let tail = (0..300).map(|rank: u64| NgramRow {
        arm: arm.name.into(),
        target_text: format!(" rare{rank}"),
        draft_texts: vec![" rare".to_owned(), rank.to_string()],
        count: 1 + 40 / (rank + 1),
    });
    words.iter().enumerate().map(row).chain(tail).collect()
}
