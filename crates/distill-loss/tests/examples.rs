//! Examples of verified answers: ends of turns, sampled columns, and how terms are weighted.

use std::path::Path;

use distill_loss::{
    Batch, Chunk, DirectLoss, Example, Losses, NgramLoss, Objective, PAPER_LAMBDA, Recorder,
    Response, TeacherRow, Terms, log_sum_exp,
};
use lm::{AdamWConfig, Checkpoint, LmConfig, random_checkpoint};
use spec_decode::testkit::{ToyVocab, toy_pair};
use spec_decode::{Pair, TeacherSink};
use streams::StreamRng;
use trainer::Trainer;
use vocab_align::{DraftId, TargetId};

/// Both know `<x>`, the target alone `<y>`.
const DRAFT: ToyVocab<'_> = ToyVocab {
    merges: &[],
    added: &[("<x>", true)],
};
const TARGET: ToyVocab<'_> = ToyVocab {
    merges: &[("a", "b")],
    added: &[("<x>", true), ("<y>", true)],
};

/// Eq. 4 as the paper has it.
fn hybrid() -> Terms {
    Terms::hybrid(DirectLoss::ReverseKl, NgramLoss::Nll, PAPER_LAMBDA)
}

fn drafts(pieces: &[&str]) -> Vec<DraftId> {
    let id = |piece: &&str| DraftId(DRAFT.id(piece).unwrap_or(DRAFT.end_of_turn()));
    pieces.iter().map(id).collect()
}

fn targets(pieces: &[&str]) -> Vec<TargetId> {
    let id = |piece: &&str| TargetId(TARGET.id(piece).unwrap_or(TARGET.end_of_turn()));
    pieces.iter().map(id).collect()
}

/// Logits without a pattern.
fn logits(len: usize, seed: u32) -> Vec<f32> {
    (0..len as u32)
        .map(|i| ((i.wrapping_mul(2_654_435_761) ^ (seed * 97)) % 1009) as f32 / 200.0)
        .collect()
}

/// A prompt of one token, and the answer `c`, `ab`, its end, in both vocabularies.
fn example(pair: &Pair, recorder: Recorder, terms: Terms, ends: bool) -> Example {
    without(pair, recorder, terms, ends, None)
}

/// The same, where the logits of one token are not known.
fn without(
    pair: &Pair,
    mut recorder: Recorder,
    terms: Terms,
    ends: bool,
    unknown: Option<usize>,
) -> Example {
    let response = targets(&["c", "ab", "<x>", "end"]);
    for (index, token) in response.iter().enumerate() {
        let mut row = logits(TARGET.len(), index as u32);
        if unknown == Some(index) {
            row.clear();
        }
        recorder.record(index, *token, &row);
    }
    let context = drafts(&["z", "c", "a", "b", "<x>", "end"]);
    let lengths = pair.draft.byte_lengths(&context[1..]);
    let response = Response {
        context: &context,
        lengths: &lengths,
        prompt_len: 1,
        tokens: &response,
    };
    Example::new(response, recorder, pair, terms, ends)
}

#[test]
fn the_end_of_a_turn_is_an_example_like_any_other() {
    let pair = toy_pair(&DRAFT, &TARGET).unwrap();
    let terms = hybrid();
    let taught = |ends| example(&pair, Recorder::new(&pair.alignment, terms), terms, ends);
    let spans = |example: &Example| -> Vec<_> {
        let chunks = example.chunks.iter();
        chunks
            .map(|c| (c.draft.clone(), c.targets, c.law.is_some()))
            .collect()
    };
    let text = [(1..2, 1, true), (2..4, 1, false)];
    let with = taught(true);
    assert_eq!(spans(&with)[..2], text);
    // Taught by their likelihood, so no law is kept.
    assert_eq!(spans(&with)[2..], [(4..5, 1, false), (5..6, 1, false)]);
    assert!(with.chunks[2..].iter().all(|chunk| chunk.special));
    let [mark, end] = [targets(&["<x>"])[0], targets(&["end"])[0]];
    assert_eq!(specials(&with), [(mark, true), (end, true)]);
    // The likelihood is that of the end, not of its neighbour.
    let row = logits(TARGET.len(), 3);
    let shift = log_sum_exp(&row);
    let wanted = f64::from(row[end.0 as usize]) - shift;
    assert!((with.chunks[3].log_prob - wanted).abs() < 1e-5);

    let without = taught(false);
    assert_eq!(spans(&without), text);
    assert_eq!(specials(&without), [(mark, false), (end, false)]);
}

/// As of a round that was verified elsewhere.
#[test]
fn a_token_without_logits_teaches_nothing_and_the_others_the_same() {
    let pair = toy_pair(&DRAFT, &TARGET).unwrap();
    let likelihoods = Terms::hybrid(DirectLoss::Nll, NgramLoss::Pointwise, PAPER_LAMBDA);
    for terms in [hybrid(), likelihoods, Terms::Alm { tau: 1.0 }] {
        let recorder = || Recorder::new(&pair.alignment, terms);
        let whole = example(&pair, recorder(), terms, true);
        assert_eq!(whole.chunks.len(), 4);
        for unknown in 0..4_usize {
            let mut rest = whole.clone();
            rest.chunks.remove(unknown);
            if let Some(special) = unknown.checked_sub(2) {
                rest.specials[special].learnt = false;
            }
            let found = without(&pair, recorder(), terms, true, Some(unknown));
            assert_eq!(found, rest, "{terms:?}, token {unknown}");
        }
    }
}

/// As of an engine that is narrower than its tokenizer.
#[test]
fn a_token_without_a_column_is_ruled_out() {
    let pair = toy_pair(&DRAFT, &TARGET).unwrap();
    let [c, end] = [targets(&["c"])[0], targets(&["end"])[0]];
    let taught = |row: &[f32]| {
        let mut recorder = Recorder::new(&pair.alignment, hybrid());
        recorder.record(0, c, row);
        recorder.record(1, end, row);
        recorder.taught().to_vec()
    };
    let (mut row, columns) = (logits(TARGET.len(), 1), end.0 as usize);
    row[columns..].fill(f32::NEG_INFINITY);
    let narrow = taught(&row[..columns]);
    assert_eq!(narrow, taught(&row));
    // The least that is recorded, so that losses stay finite.
    assert_eq!(narrow[1].log_prob, -100.0);
    assert!(narrow[0].log_prob > -100.0 && narrow[0].law == narrow[1].law);
}

fn specials(example: &Example) -> Vec<(TargetId, bool)> {
    let specials = example.specials.iter();
    specials.map(|s| (s.token, s.learnt)).collect()
}

#[test]
fn a_special_token_without_a_counterpart_is_listed_or_spelled() {
    let pair = toy_pair(&DRAFT, &TARGET).unwrap();
    let terms = hybrid();
    let teach = |response: &[TargetId], context: &[DraftId]| {
        let mut recorder = Recorder::new(&pair.alignment, terms);
        for (index, token) in response.iter().enumerate() {
            recorder.record(index, *token, &logits(TARGET.len(), 1));
        }
        let response = Response {
            context,
            lengths: &pair.draft.byte_lengths(&context[1..]),
            prompt_len: 1,
            tokens: response,
        };
        Example::new(response, recorder, &pair, terms, true)
    };
    // A marker is drafted by its name: an n-gram.
    let marker = targets(&["<y>"]);
    let example = teach(&marker, &drafts(&["z", "<", "y", ">"]));
    assert_eq!(specials(&example), [(marker[0], true)]);
    assert_eq!(example.chunks[0].draft, 1..4);
    assert!(!example.chunks[0].special);
    // Another special token of the drafter's stands where the end is due: not what was said.
    let end = targets(&["end"]);
    let example = teach(&end, &drafts(&["z", "<x>"]));
    assert_eq!(specials(&example), [(end[0], false)]);
    assert!(example.chunks.is_empty());
}

/// A law with `peaks` above all other columns, as an example of one token.
fn with_law(columns: usize, peaks: &[usize], other: impl Fn(usize) -> f32) -> (Vec<f32>, Example) {
    let mut law: Vec<f32> = (0..columns).map(other).collect();
    for (i, peak) in peaks.iter().enumerate() {
        law[*peak] = -1.5 - i as f32;
    }
    let chunk = Chunk {
        law: Some(TeacherRow::new(law.iter().copied())),
        log_prob: -1.0,
        draft: 0..1,
        targets: 1,
        own: None,
        special: false,
    };
    let example = Example {
        ids: vec![0],
        shared: (0..columns as u32).collect(),
        chunks: vec![chunk],
        ..Example::default()
    };
    (law, example)
}

#[test]
fn laws_of_few_tokens_take_little_and_read_the_same() {
    let peaks = [0, 7, 512, 999];
    let (few, small) = with_law(1000, &peaks, |_| -12.5);
    let (_, ruled_out) = with_law(1000, &peaks, |_| f32::NEG_INFINITY);
    let (all, large) = with_law(1000, &peaks, |i| -12.5 - (i % 8) as f32);
    let (_, empty) = with_law(0, &[], |_| 0.0);
    let read = |example: &Example| {
        let mut row = vec![7.0; 3];
        example.chunks[0].law.as_ref().unwrap().read(&mut row);
        row
    };
    assert_eq!((read(&small), read(&large)), (few, all));
    assert_eq!(read(&ruled_out)[..2], [-1.5, -100.0]);
    assert!(read(&empty).is_empty());
    let columns = |example: &Example| size_of_val(&example.shared[..]);
    let numbers = |example: &Example| example.bytes() - columns(example) - empty.bytes();
    assert_eq!(numbers(&small), peaks.len() * 6);
    assert_eq!(numbers(&large), 1000 * 2);
}

fn drafter() -> Checkpoint {
    let json = format!(
        r#"{{"model_type": "llama", "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": {}}}"#,
        DRAFT.len()
    );
    let config = LmConfig::from_json(&json, Path::new("config.json")).unwrap();
    random_checkpoint(&config, 3)
}

/// One update.
struct Update {
    losses: Losses,
    positions: usize,
    ngram_tokens: usize,
    grad_norm: f64,
}

/// One update on the example.
fn learn(pair: &Pair, terms: Terms) -> Update {
    let example = example(pair, Recorder::new(&pair.alignment, terms), terms, true);
    let batch = Batch::new([&example], [], terms);
    let mut trainer = Trainer::new(&drafter(), AdamWConfig::default()).unwrap();
    let graded = trainer.accumulate(&batch.sequences(), &batch).unwrap();
    Update {
        losses: batch.losses(graded),
        positions: batch.positions(),
        ngram_tokens: batch.ngram_tokens(),
        grad_norm: trainer.step(1e-3).unwrap(),
    }
}

#[test]
fn both_terms_share_one_normaliser() {
    let pair = toy_pair(&DRAFT, &TARGET).unwrap();
    let update = |ngram| {
        let terms = Terms::Hybrid {
            direct: Some(DirectLoss::ReverseKl),
            ngram,
            lambda: 0.7,
        };
        learn(&pair, terms)
    };
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-6 * b.abs(), "{a} {b}");
    // 3 direct positions and 2 tokens of an n-gram.
    let both = update(Some(NgramLoss::Nll));
    let (positions, spelled) = (both.positions as f64, both.ngram_tokens as f64);
    assert_eq!((positions, spelled), (3.0, 2.0));
    let means = both.losses;
    let eq_4 = (positions * means.direct + 0.7 * spelled * means.ngram) / (positions + spelled);
    close(means.loss, eq_4);
    // Without n-grams the positions are all there is.
    let alone = update(None);
    assert_eq!((alone.positions, alone.ngram_tokens), (3, 0));
    close(alone.losses.loss, means.direct);
    assert_ne!(alone.grad_norm, both.grad_norm);
}

#[test]
fn point_wise_n_grams_are_weighted_by_the_targets_probability() {
    let pair = toy_pair(&DRAFT, &TARGET).unwrap();
    let loss = |ngram, lambda| {
        let terms = Terms::Hybrid {
            direct: None,
            ngram: Some(ngram),
            lambda,
        };
        learn(&pair, terms).losses.loss
    };
    let row = logits(TARGET.len(), 1);
    let log_p = f64::from(row[TARGET.id("ab").unwrap() as usize]) - log_sum_exp(&row);
    let weighted = loss(NgramLoss::Nll, 1.0) * log_p.exp();
    for (ngram, lambda, expected) in [
        (NgramLoss::Pointwise, 0.2, weighted),
        (NgramLoss::Pointwise, 0.9, weighted),
        (NgramLoss::ScaledPointwise, 0.2, 0.2 * weighted),
    ] {
        let found = loss(ngram, lambda);
        assert!(
            (found - expected).abs() < 1e-5 * expected,
            "{ngram:?} {found} {expected}"
        );
    }
}

/// An example of several positions over `columns`, whose laws are far from flat.
fn taught(columns: u32) -> Example {
    let chunk = |i: usize| Chunk {
        law: Some(TeacherRow::new((0..columns).map(|c| {
            match (c * 7 + i as u32) % 50 {
                0 => -2.0,
                n => -4.0 - n as f32 / 5.0,
            }
        }))),
        log_prob: -1.0,
        draft: i..i + 1,
        targets: 1,
        own: None,
        special: false,
    };
    Example {
        ids: vec![0, 3, 777, 12],
        shared: (0..columns).collect(),
        chunks: (1..4).map(chunk).collect(),
        ..Example::default()
    }
}

#[test]
fn fewer_columns_estimate_the_sums_over_all() {
    let columns = 2000;
    let logit = |column: u32| ((column * 13 % 101) as f32 - 50.0) / 20.0;
    let whole: f64 = (0..columns).map(|c| f64::from(logit(c)).exp()).sum();
    let mass = |example: &Example, chunk: usize| -> f64 {
        let mut law = Vec::new();
        example.chunks[chunk].law.as_ref().unwrap().read(&mut law);
        let each = law.iter().zip(&example.stands_for);
        each.map(|(p, stands_for)| f64::from(p + stands_for).exp())
            .sum()
    };
    let mut full = taught(columns);
    full.narrow(
        0.9,
        usize::MAX,
        columns as usize,
        &mut StreamRng::new(1, "all"),
    );
    assert_eq!(full.shared.len(), columns as usize);
    assert!(full.stands_for.iter().all(|x| *x == 0.0));
    assert_eq!(full.chunks, taught(columns).chunks);

    let (mut sums, mut masses) = (Vec::new(), Vec::new());
    for seed in 0..400 {
        let mut few = taught(columns);
        few.narrow(
            0.05,
            100,
            columns as usize,
            &mut StreamRng::new(seed, "few"),
        );
        // Forty likely ones at each of three positions, the emitted ones, and the sample.
        assert!(
            (200..=223).contains(&few.shared.len()),
            "{}",
            few.shared.len()
        );
        assert!(few.shared.is_sorted() && few.shared.contains(&777));
        assert_eq!(few.stands_for.iter().filter(|x| **x > 0.0).count(), 100);
        let each = few.shared.iter().zip(&few.stands_for);
        let sum: f64 = each.map(|(c, s)| f64::from(logit(*c) + s).exp()).sum();
        sums.push(sum / whole);
        masses.push(mass(&few, 1) / mass(&full, 1));
    }
    for of in [sums, masses] {
        let mean = of.iter().sum::<f64>() / 400.0;
        let spread = (of.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 400.0).sqrt();
        assert!((mean - 1.0).abs() < 4.0 * spread / 20.0, "{mean}, {spread}");
        assert!(spread < 0.2, "{spread}");
    }
}

#[test]
fn n_grams_are_learnt_in_a_sample_of_the_columns() {
    let columns = 2000;
    let logit = |column: u32| ((column * 13 % 101) as f32 - 50.0) / 20.0;
    let mut example = taught(columns);
    let ngram = Chunk {
        draft: 1..3,
        law: None,
        ..example.chunks[0].clone()
    };
    example.chunks[0] = ngram;
    example.chunks.truncate(1);
    let loss = |example: &Example| -> f64 {
        let batch = Batch::new([example], [], hybrid());
        let scored = &batch.scored(0)[0];
        let ids: Vec<u32> = match scored.columns {
            Some(subset) => batch.columns()[subset].clone(),
            None => (0..columns).collect(),
        };
        assert!(ids.contains(&3) && ids.contains(&777));
        let rows = scored.positions.iter();
        let rows = rows.flat_map(|_| ids.iter().map(|id| logit(*id)));
        batch.grade(0, 0, &mut rows.collect::<Vec<f32>>()).terms[1]
    };
    let whole = loss(&example);
    let narrowed = |sampled: usize, seed: u64| {
        let mut narrowed = example.clone();
        let rng = &mut StreamRng::new(seed, "spelled");
        narrowed.narrow(0.05, sampled, columns as usize, rng);
        loss(&narrowed)
    };
    assert!((narrowed(usize::MAX, 1) - whole).abs() < 1e-6);
    let mean = (0..200).map(|seed| narrowed(200, seed)).sum::<f64>() / 200.0;
    assert!((mean - whole).abs() < 0.02 * whole, "{mean}, {whole}");
}

#[test]
fn the_columns_of_an_example_count_among_its_bytes() {
    let mut few = taught(2000);
    few.narrow(0.05, 100, 2000, &mut StreamRng::new(1, "few"));
    let (bytes, columns) = (few.bytes(), few.shared.len());
    assert!(columns > 200, "{columns}");
    few.shared = [].into();
    few.stands_for.clear();
    // A token and what it stands for take four bytes each.
    assert_eq!(bytes - few.bytes(), columns * 8);
}

/// A draft token of a later part may spell the end of an earlier one, whose likelihood its chunk
/// then has.
#[test]
fn a_part_keeps_the_likelihoods_before_it() {
    let pair = toy_pair(&DRAFT, &TARGET).unwrap();
    let mut recorder = Recorder::new(&pair.alignment, hybrid());
    for (index, token) in targets(&["c", "ab", "c", "ab"]).into_iter().enumerate() {
        recorder.record(index, token, &logits(TARGET.len(), index as u32));
    }
    let all = recorder.taught();
    let part = recorder.since(2).taught;
    for (own, whole) in part.iter().zip(all) {
        assert_eq!(own.log_prob, whole.log_prob);
        assert!(whole.log_prob < 0.0 && whole.law.is_some());
    }
    assert!(part[..2].iter().all(|taught| taught.law.is_none()));
    assert_eq!((&part[2..], part.len()), (&all[2..], 4));
    assert_eq!(recorder.since(9).taught.len(), 4);
}
