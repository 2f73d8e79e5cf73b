//! Time of the verification of one round, compared with plain passes over the target's logits.
//!
//! ```text
//! cargo bench --locked -p runner -p spec-decode --bench verify
//! ```
//!
//! One *pass* is the least cost of sampling from one position: the softmax of its logits. A round
//! of m proposals has m + 1 positions. The last lines give the cost of a round in passes over the
//! positions that it verified.

use std::hint::black_box;
use std::time::Instant;

use criterion::Criterion;
use ngram_cache::{CacheConfig, NgramCache};
use spec_decode::{
    Acceptance, Dice, DirectMap, Draft, DraftLaw, Evidence, Groups, Lexicon, Proposal, Purpose,
    Rows, Sampling, StreamName, VerifyMode, translate, verify,
};
use vocab_align::{DraftId, TargetId};

/// Number of entries of both vocabularies.
const VOCAB: usize = 128_000;
/// Number of direct pairs: draft token i and target token i.
const DIRECT: u32 = 90_000;
const NGRAMS: u32 = 20_000;
const K: usize = 4;
/// At temperature 1 every exponential is computed.
const TEMPERATURE: f64 = 1.0;

fn dice(seed: u64) -> Dice {
    StreamName::new(seed, 0).dice(Purpose::Plain)
}

fn below(dice: &mut Dice, n: u32) -> u32 {
    (dice.uniform() * f64::from(n)) as u32
}

/// A round of four draft tokens, of which the middle two are an n-gram.
struct Round {
    direct: DirectMap,
    cache: NgramCache,
    draft: Draft,
    sampling: Sampling,
}

impl Round {
    fn new() -> Self {
        let pairs: Vec<_> = (0..DIRECT).map(|i| (DraftId(i), TargetId(i))).collect();
        let mut dice = dice(1);
        let mut cache = NgramCache::new(CacheConfig::default());
        let ids = [11, 12, 13, 14].map(DraftId).to_vec();
        cache.insert(&ids[1..3], TargetId(DIRECT));
        while cache.len() < NGRAMS as usize {
            // Few first tokens begin many n-grams, as spaces and beginnings of words do.
            let first = (dice.uniform().powi(3) * 20_000.0) as u32;
            let length = 1 + below(&mut dice, 3);
            let mut spelling = vec![DraftId(first)];
            spelling.extend((0..length).map(|_| DraftId(below(&mut dice, VOCAB as u32))));
            let target = DIRECT + below(&mut dice, VOCAB as u32 - DIRECT);
            cache.insert(&spelling, TargetId(target));
        }
        let sampling = Sampling::new(TEMPERATURE).expect("valid");
        let mut law = Vec::new();
        let laws = ids
            .iter()
            .map(|&id| {
                let row = logits(&mut dice, id.0);
                sampling.law(&row, &mut law).expect("a law");
                DraftLaw::new(law.clone())
            })
            .collect();
        Self {
            direct: DirectMap::from_pairs(&pairs, VOCAB, VOCAB),
            cache,
            draft: Draft { ids, laws },
            sampling,
        }
    }
}

/// A row in which one token is likely.
fn logits(dice: &mut Dice, likely: u32) -> Vec<f32> {
    let mut row: Vec<f32> = (0..VOCAB).map(|_| (dice.uniform() * 8.0) as f32).collect();
    row[likely as usize] = 30.0;
    row
}

/// The target's rows, with which every proposal is likely, or the last one is impossible.
fn rows(proposals: &[Proposal], reject: bool) -> Vec<f32> {
    let mut dice = dice(2);
    let last = proposals.len() - 1;
    let likely = proposals.iter().map(|proposal| proposal.target.0);
    let mut all: Vec<f32> = likely
        .chain([5])
        .flat_map(|t| logits(&mut dice, t))
        .collect();
    if reject {
        all[last * VOCAB + proposals[last].target.0 as usize] = f32::NEG_INFINITY;
    }
    all
}

/// Median seconds of two calls that alternate, so that disturbances of the machine affect both.
fn seconds(mut first: impl FnMut(), mut second: impl FnMut()) -> (f64, f64) {
    let timed = |call: &mut dyn FnMut()| {
        let began = Instant::now();
        call();
        began.elapsed().as_secs_f64()
    };
    let (mut firsts, mut seconds): (Vec<f64>, Vec<f64>) = (0..201)
        .map(|_| (timed(&mut first), timed(&mut second)))
        .unzip();
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    (median(&mut firsts), median(&mut seconds))
}

fn main() {
    let round = Round::new();
    let cached = Lexicon::new(&round.direct, Some(&round.cache));
    let bare = Lexicon::new(&round.direct, None);
    let mut criterion = Criterion::default().configure_from_args().sample_size(30);

    let row = logits(&mut dice(3), 7);
    let mut law = Vec::new();
    criterion.bench_function("softmax pass, one position", |bencher| {
        bencher.iter(|| round.sampling.law(black_box(&row), &mut law));
    });
    criterion.bench_function("argmax pass, one position", |bencher| {
        bencher.iter(|| spec_decode::argmax(black_box(&row)));
    });
    criterion.bench_function("groups, from nothing", |bencher| {
        bencher.iter(|| Groups::new(black_box(&cached), VOCAB));
    });
    let learnt: Vec<DraftId> = [21, 22].map(DraftId).to_vec();
    let mut grown = round.cache.clone();
    grown.insert(&learnt, TargetId(DIRECT + 1));
    let mut groups = Groups::new(&cached, VOCAB);
    criterion.bench_function("groups, one n-gram learnt", |bencher| {
        bencher.iter(|| groups.insert(black_box(&grown), &learnt, TargetId(DIRECT + 1)));
    });
    let mut lines = Vec::new();
    let block = [VerifyMode::Tli, VerifyMode::Exact].map(|mode| (mode, Acceptance::Block));
    let token = VerifyMode::ALL.map(|mode| (mode, Acceptance::Token));
    for (mode, acceptance) in token.into_iter().chain(block) {
        let lexicon = if mode.uses_cache() { cached } else { bare };
        let proposals = translate(&round.draft.ids, &lexicon);
        let groups = Groups::new(&lexicon, VOCAB);
        for reject in [false, true] {
            let all = rows(&proposals, reject);
            let rows = Rows::new(&all, VOCAB, proposals.len() + 1).expect("whole rows");
            let evidence = Evidence {
                draft: &round.draft,
                proposals: &proposals,
                rows,
                lexicon,
                groups: &groups,
                sampling: round.sampling,
            };
            let mut dice = dice(4);
            let outcome = verify(mode, acceptance, &evidence, &mut dice).expect("a verdict");
            let positions = proposals.len() + usize::from(!reject);
            let name = format!(
                "{mode}, {acceptance}, k = {K}, m = {}, {}",
                proposals.len(),
                if reject {
                    "last rejected"
                } else {
                    "all accepted"
                }
            );
            assert_eq!(outcome.accepted, positions - 1, "{name}");
            criterion.bench_function(&name, |bencher| {
                bencher.iter(|| verify(mode, acceptance, black_box(&evidence), &mut dice));
            });
            let (time, passes) = seconds(
                || {
                    verify(mode, acceptance, black_box(&evidence), &mut dice).expect("a verdict");
                },
                || {
                    for position in 0..positions {
                        let row = black_box(rows.row(position));
                        round.sampling.law(row, &mut law).expect("a law");
                    }
                },
            );
            lines.push(format!(
                "{name}: {:.3} ms, a pass over {positions} positions {:.3} ms: {:.2} passes",
                time * 1e3,
                passes * 1e3,
                time / passes
            ));
        }
    }
    println!();
    lines.iter().for_each(|line| println!("{line}"));
    criterion.final_summary();
}
