//! The distribution of sampled output, with the shipped random number generator, by G-tests.

use crate::common;

use common::*;
use spec_decode::goodness::{GTest, LEAST_EXPECTED, Partition, g_test, holm};
use spec_decode::{
    ConstantLength, DraftPolicy, LanguageModel, NoSink, Pair, PlainConfig, Prompt, PromptLookup,
    Sampling, SamplingOptions, Session, SessionConfig, StreamName, VerifyMode, decode_plain,
};
use vocab_align::TargetId;

/// Probability of a false alarm over all tests together. Fixed seeds make the outcome final.
const ALPHA: f64 = 0.01;
const SAMPLES: u32 = 6_000;
const LEN: usize = 3;

fn options(temperature: f64, truncated: bool) -> Sampling {
    let mut options = SamplingOptions {
        temperature,
        ..SamplingOptions::default()
    };
    if truncated {
        (options.top_k, options.top_p, options.min_p) = (6, 0.93, 0.02);
        options.repetition_penalty = 1.2;
    }
    Sampling::with_options(options).expect("valid options")
}

fn partition(seed: u64, sampling: Sampling) -> Partition {
    let (_, mut target) = text_models(seed, &pair(), 1.0);
    let least = LEAST_EXPECTED / f64::from(SAMPLES);
    Partition::new(&mut target, PROMPT.target, sampling, &stop(), LEN, least).expect("a partition")
}

fn test(partition: &Partition, mut sample: impl FnMut(StreamName) -> Vec<TargetId>) -> GTest {
    let total: f64 = partition.law().iter().sum();
    assert!((total - 1.0).abs() < 1e-12, "{total}");
    let mut counts = vec![0; partition.law().len()];
    for number in 0..SAMPLES {
        let name = StreamName {
            sample: number,
            ..StreamName::new(1, 0)
        };
        counts[partition.bucket(&sample(name))] += 1;
    }
    g_test(&counts, partition.law())
}

fn speculate<D: LanguageModel>(
    drafter: D,
    pair: Pair,
    seed: u64,
    mode: VerifyMode,
    sampling: Sampling,
) -> GTest {
    let config = SessionConfig {
        sampling,
        stop: stop(),
        learn_ngrams: false,
        ..SessionConfig::new(mode, LEN)
    };
    let (_, target) = text_models(seed, &common::pair(), 1.0);
    let mut session = Session::new(drafter, target, pair, config).expect("a session");
    let mut cache = true_cache();
    test(&partition(seed, sampling), |name| {
        let k = &mut ConstantLength(3);
        let done = session.generate(PROMPT, name, Some(&mut cache), k, &mut NoSink);
        done.expect("generates").tokens
    })
}

/// Policy that drafts in some rounds and not in others, as a controller does, whose decisions do
/// not depend on the target's draws.
struct OnAndOff(u32);

impl DraftPolicy for OnAndOff {
    fn next_len(&mut self) -> usize {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        [0, 3, 1, 0, 2][(self.0 >> 16) as usize % 5]
    }
}

/// A test with a drafter that reads the prompt only when it is first asked for a draft.
fn rests(seed: u64, mode: VerifyMode, sampling: Sampling) -> GTest {
    let config = SessionConfig {
        sampling,
        stop: stop(),
        learn_ngrams: false,
        drafter_reads: false,
        ..SessionConfig::new(mode, LEN)
    };
    let (drafter, target) = text_models(seed, &common::pair(), 1.0);
    let mut session = Session::new(drafter, target, pair(), config).expect("a session");
    let mut cache = true_cache();
    let mut policy = OnAndOff(7);
    test(&partition(seed, sampling), |name| {
        let done = session.generate(PROMPT, name, Some(&mut cache), &mut policy, &mut NoSink);
        done.expect("generates").tokens
    })
}

/// A test with a cache that learns from every sample, which changes the drafts and not the law.
fn learns(seed: u64, sampling: Sampling) -> GTest {
    let config = SessionConfig {
        sampling,
        stop: stop(),
        learn_ngrams: true,
        ..SessionConfig::new(VerifyMode::Exact, LEN)
    };
    let models = text_models(seed, &pair(), 1.0);
    let mut session = session(models, pair(), config);
    let mut cache = cache_of(&[]);
    let found = test(&partition(seed, sampling), |name| {
        let k = &mut ConstantLength(3);
        let done = session.generate(PROMPT, name, Some(&mut cache), k, &mut NoSink);
        done.expect("generates").tokens
    });
    assert!(!cache.is_empty(), "nothing was learnt");
    found
}

#[test]
fn samples_follow_the_targets_law_except_the_papers() {
    let mut names = Vec::new();
    let mut tests = Vec::new();
    for (seed, temperature, truncated) in [(1, 1.0, false), (2, 0.7, false), (3, 1.3, true)] {
        let sampling = options(temperature, truncated);
        for mode in [VerifyMode::Exact, VerifyMode::Tli, VerifyMode::Slem] {
            let (drafter, _) = text_models(seed, &pair(), 1.0);
            names.push(format!("{mode}, T = {temperature}, truncated {truncated}"));
            tests.push(speculate(drafter, pair(), seed, mode, sampling));
            names.push(format!("{mode}, T = {temperature}, with rests"));
            tests.push(rests(seed, mode, sampling));
        }
        names.push(format!("exact, T = {temperature}, learning n-grams"));
        tests.push(learns(seed, sampling));
        let shared = Pair::shared(pair().target);
        let drafter = PromptLookup::new(TARGET.len());
        names.push(format!("prompt-lookup, T = {temperature}"));
        tests.push(speculate(drafter, shared, seed, VerifyMode::Tli, sampling));
        let (_, mut target) = text_models(seed, &pair(), 1.0);
        let config = PlainConfig {
            sampling,
            max_new_tokens: LEN,
            stop: stop(),
        };
        names.push(format!("plain, T = {temperature}"));
        tests.push(test(&partition(seed, sampling), |name| {
            decode_plain(&mut target, PROMPT.target, &config, name, &mut NoSink)
                .expect("decodes")
                .tokens
        }));
    }
    let p_values: Vec<f64> = tests.iter().map(|test| test.p_value).collect();
    for ((rejected, name), test) in holm(&p_values, ALPHA).iter().zip(&names).zip(&tests) {
        println!("{name}: {test}");
        assert!(test.degrees >= 20, "{name}: the test has no power, {test}");
        assert!(!rejected, "{name}: {test}");
    }

    // The control: the same test distinguishes the paper's rule from the target's distribution.
    let (drafter, _) = text_models(1, &pair(), 1.0);
    let paper = speculate(drafter, pair(), 1, VerifyMode::Paper, options(1.0, false));
    println!("paper, T = 1: {paper}");
    assert!(paper.p_value < 1e-9, "{paper}");
}

#[test]
fn a_partition_assigns_every_response() {
    let sampling = options(1.0, false);
    let partition = partition(5, sampling);
    let impossible = [TargetId(0), TargetId(1)].map(|token| partition.bucket(&[token]));
    assert_eq!(impossible[0], impossible[1]);
    assert_ne!(partition.bucket(&[t("ab"), t("ab"), t("ab")]), 0);
    let (_, mut target) = text_models(5, &pair(), 1.0);
    let all = Partition::new(
        &mut target,
        PROMPT.target,
        sampling,
        &stop(),
        LEN,
        f64::MIN_POSITIVE,
    )
    .expect("a partition");
    assert!(all.law().len() > partition.law().len());
    let total: f64 = all.law().iter().sum();
    assert!((total - 1.0).abs() < 1e-12, "{total}");
    let empty = Prompt {
        target: &[],
        ..PROMPT
    };
    assert!(Partition::new(&mut target, empty.target, sampling, &stop(), LEN, 0.1).is_err());
}
