//! Synthetic runs with the shape of real ones: learning curves, switches, timing noise, plain decoding beside them.

#![allow(dead_code, reason = "every test file uses its part")]

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use runner::results::{
    ArmInfo, BuildInfo, Finish, MachineInfo, Manifest, Phase, PromptRow, RoundRow, RunStatus,
    RunWriter, StepLatency, StreamKind, UpdateRow,
};
use std::path::Path;

/// Draft length of every synthetic run.
const K: u32 = 4;

/// The arms in table order with (acceptance at the start, plateau gain, n-gram hits per step).
const ARMS: [(&str, f64, f64, f64); 5] = [
    ("autoregressive", 0.0, 0.0, 0.0),
    ("SpD_DM", 0.11, 0.0, 0.0),
    ("+ N-gram_pp", 0.12, 0.035, 0.3),
    ("L_DM", 0.11, 0.2, 0.0),
    ("L_DM + λ L_N-gram", 0.11, 0.3, 0.55),
];

/// One segment of a synthetic stream.
#[derive(Debug, Clone)]
pub struct Part {
    pub task: &'static str,
    pub target: &'static str,
    pub train: u32,
    pub test: u32,
    /// How well this segment can be learnt, 1 for the easiest.
    pub ease: f64,
}

/// A synthetic run.
#[derive(Debug, Clone)]
pub struct Run {
    pub name: &'static str,
    pub streams: StreamKind,
    pub seeds: Vec<u64>,
    pub arms: Vec<usize>,
    pub parts: Vec<Part>,
}

impl Run {
    /// Two tasks streamed one after the other, one seed, all arms.
    pub fn quickstart() -> Self {
        let part = |task, ease| Part {
            task,
            target: "mini-llama",
            train: 160,
            test: 24,
            ease,
        };
        Self {
            name: "quickstart",
            streams: StreamKind::Continual,
            seeds: vec![1],
            arms: (0..ARMS.len()).collect(),
            parts: vec![part("arithmetic", 1.0), part("code", 0.75)],
        }
    }

    /// Four tasks and two targets, three seeds, every segment from scratch.
    pub fn table1() -> Self {
        let tasks = [
            ("GSM8K", 1.0),
            ("MBPP+HumanEval", 0.62),
            ("Alpaca", 0.45),
            ("XSum", 0.5),
        ];
        let mut parts = Vec::new();
        for target in ["Llama3-mini", "Qwen2-mini"] {
            for (task, ease) in tasks {
                parts.push(Part {
                    task,
                    target,
                    train: 400,
                    test: 50,
                    ease,
                });
            }
        }
        Self {
            name: "table1",
            streams: StreamKind::Independent,
            seeds: vec![1, 2, 3],
            arms: (0..ARMS.len()).collect(),
            parts,
        }
    }

    /// Three targets in turn, three seeds, only the learning arms.
    pub fn target_drift() -> Self {
        let part = |target, ease| Part {
            task: "GSM8K",
            target,
            train: 300,
            test: 0,
            ease,
        };
        Self {
            name: "figure6",
            streams: StreamKind::Continual,
            seeds: vec![1, 2, 3],
            arms: vec![0, 3, 4],
            parts: vec![
                part("Qwen2.5-14B-like", 1.0),
                part("Qwen2.5-7B-like", 0.9),
                part("Qwen2.5-14B-like", 1.0),
            ],
        }
    }

    /// The manifest, with fixed machine, build and clock.
    pub fn manifest(&self) -> Manifest {
        let argv = vec![
            "omnidraft".into(),
            "run".into(),
            format!("{}.toml", self.name),
        ];
        let config = serde_json::json!({ "name": self.name });
        let mut manifest = Manifest::new(self.name, argv, config);
        manifest.arms = self
            .arms
            .iter()
            .map(|&arm| ArmInfo {
                name: ARMS[arm].0.into(),
                draft_length: if arm == 0 { 0 } else { K },
                temperature: 0.01,
            })
            .collect();
        manifest.streams = self.streams;
        manifest.seeds = self.seeds.clone();
        manifest
            .latencies
            .insert("mini-llama".into(), StepLatency::paper());
        manifest.build = BuildInfo {
            version: "0.1.0".into(),
            git_commit: "0123456789abcdef0123456789abcdef01234567".into(),
            git_dirty: Some(true),
            rustc: "rustc 1.95.0".into(),
            features: Vec::new(),
        };
        manifest.machine = MachineInfo {
            cpu: "Synthetic CPU".into(),
            cores: 2,
            memory_bytes: 24_000_000_000,
            os: "linux 6.1 x86_64".into(),
        };
        manifest.started = "2026-01-02T03:04:05Z".into();
        manifest
    }

    /// Records the run in `dir` and finishes it as complete.
    pub fn write(&self, dir: &Path) {
        let mut writer = RunWriter::create(dir, &self.manifest()).unwrap();
        self.record(&mut writer);
        writer.finish(RunStatus::Complete).unwrap();
    }

    /// Records every row of the run.
    pub fn record(&self, writer: &mut RunWriter) {
        for &seed in &self.seeds {
            for &arm in &self.arms {
                let mut state = Learner::default();
                let mut update = 0;
                let mut before = 0;
                for (segment, part) in self.parts.iter().enumerate() {
                    if self.streams == StreamKind::Independent {
                        (state, update, before) = (Learner::default(), 0, 0);
                    }
                    state.switch(part);
                    let mut rng = ChaCha8Rng::seed_from_u64(seed * 1000 + segment as u64);
                    for index in 0..part.train {
                        let row = prompt(
                            seed,
                            arm,
                            segment,
                            part,
                            Phase::Train,
                            index,
                            &state,
                            &mut rng,
                        );
                        state.learn(arm, row.new_tokens);
                        writer.push_round(&round(&row)).unwrap();
                        writer.push_prompt(&row).unwrap();
                        if arm >= 3 && index % 8 == 7 {
                            let row = updated(
                                seed,
                                arm,
                                segment,
                                update,
                                before + index + 1,
                                &state,
                                &mut rng,
                            );
                            writer.push_update(&row).unwrap();
                            update += 1;
                        }
                    }
                    before += part.train;
                    for index in 0..part.test {
                        let row = prompt(
                            seed,
                            arm,
                            segment,
                            part,
                            Phase::Test,
                            index,
                            &state,
                            &mut rng,
                        );
                        writer.push_prompt(&row).unwrap();
                    }
                }
            }
        }
    }
}

/// What a synthetic drafter has learnt of the current segment, from 0 to 1, and its cache.
#[derive(Debug, Default)]
struct Learner {
    skill: f64,
    ease: f64,
    tokens: f64,
    ngrams: f64,
}

impl Learner {
    fn switch(&mut self, part: &Part) {
        self.skill *= 0.3;
        self.ease = part.ease;
    }

    fn learn(&mut self, arm: usize, tokens: u32) {
        let pace = if arm == 2 { 0.02 } else { 0.03 };
        self.skill += pace * (1.0 - self.skill);
        self.tokens += f64::from(tokens);
        if ARMS[arm].3 > 0.0 {
            self.ngrams = 14.0 * self.tokens.powf(0.42);
        }
    }

    fn acceptance(&self, arm: usize) -> f64 {
        ARMS[arm].1 * (0.7 + 0.3 * self.ease) + ARMS[arm].2 * self.ease * self.skill
    }
}

#[allow(clippy::too_many_arguments)]
fn prompt(
    seed: u64,
    arm: usize,
    segment: usize,
    part: &Part,
    phase: Phase,
    index: u32,
    state: &Learner,
    rng: &mut ChaCha8Rng,
) -> PromptRow {
    const TARGET_STEP: f64 = 0.0100;
    const DRAFT_STEP: f64 = 0.0007;
    let mut around =
        |value: f64, spread: f64| value * (1.0 + spread * (rng.random::<f64>() * 2.0 - 1.0));
    let tokens = around(80.0, 0.5) as u32;
    let acceptance = around(state.acceptance(arm), 0.35);
    let noise = around(1.0, 0.06);
    let baseline_s = around(f64::from(tokens) * TARGET_STEP, 0.04);
    let per_step = 1.0 + f64::from(K) * acceptance * 1.02;
    let speculative = arm > 0;
    let rounds = if speculative {
        (f64::from(tokens) / per_step).ceil() as u32
    } else {
        tokens
    };
    let draft_tokens = if speculative { rounds * K } else { 0 };
    let step = if speculative {
        TARGET_STEP * 1.12 + f64::from(K) * DRAFT_STEP
    } else {
        TARGET_STEP
    };
    PromptRow {
        arm: ARMS[arm].0.into(),
        seed,
        segment: segment as u32,
        phase,
        task: part.task.into(),
        target: part.target.into(),
        prompt_index: index,
        prompt_id: format!("{}/{index}", part.task),
        prompt_tokens: 40,
        new_tokens: tokens,
        new_bytes: 4 * tokens,
        rounds,
        draft_tokens,
        proposed: draft_tokens,
        accepted: tokens.saturating_sub(rounds),
        ngram_hits: (f64::from(rounds) * ARMS[arm].3 * (0.3 + 0.7 * state.skill)) as u32,
        acceptance_rate: if speculative { acceptance } else { f64::NAN },
        seconds: f64::from(rounds) * step * noise,
        prefill_s: 0.02,
        learn_s: 0.0,
        baseline_s,
        baseline_tokens: tokens,
        cache_ngrams: state.ngrams as u32,
        cache_bytes: 40 * state.ngrams as u64,
        finish: if tokens > 100 {
            Finish::Length
        } else {
            Finish::End
        },
        tokens_hash: format!("{tokens:064x}"),
    }
}

fn round(prompt: &PromptRow) -> RoundRow {
    let plain = prompt.draft_tokens == 0;
    RoundRow {
        arm: prompt.arm.clone(),
        seed: prompt.seed,
        segment: prompt.segment,
        phase: prompt.phase,
        prompt_index: prompt.prompt_index,
        round: 0,
        draft_tokens: if plain { 0 } else { K },
        proposed: if plain { 0 } else { K },
        accepted: if plain { 0 } else { 2 },
        emitted: if plain { 1 } else { 3 },
        emitted_bytes: if plain { 4 } else { 12 },
        ngrams_proposed: 0,
        ngrams_accepted: 0,
        expected_acceptance: prompt.acceptance_rate,
        draft_s: 0.0028,
        translate_s: 0.0001,
        verify_s: 0.0112,
        commit_s: 0.0002,
    }
}

fn updated(
    seed: u64,
    arm: usize,
    segment: usize,
    update: u32,
    seen: u32,
    state: &Learner,
    rng: &mut ChaCha8Rng,
) -> UpdateRow {
    let mut around = |value: f64| value * (0.9 + 0.2 * rng.random::<f64>());
    let loss_dm = around(1.2 + 2.6 * (1.0 - state.skill));
    let loss_ngram = if arm == 4 {
        around(0.8 + 3.5 * (1.0 - state.skill))
    } else {
        0.0
    };
    UpdateRow {
        arm: ARMS[arm].0.into(),
        seed,
        segment: segment as u32,
        update,
        prompts_seen: seen,
        loss: loss_dm + 0.2 * loss_ngram,
        loss_dm,
        loss_ngram,
        dm_positions: 500,
        ngram_tokens: if arm == 4 { 90 } else { 0 },
        grad_norm: 1.0,
        seconds: 0.4,
    }
}
