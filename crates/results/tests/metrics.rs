//! Every metric, computed by hand.

use std::sync::Arc;

use results::text::FreshRounds;
use results::{Answer, Finish, Metric, PromptRow, StepLatency, Sums, TextFacts};

fn prompt() -> Answer {
    Answer {
        row: PromptRow {
            new_tokens: 20,
            new_bytes: 80,
            rounds: 10,
            draft_tokens: 40,
            proposed: 32,
            accepted: 11,
            ngrams_proposed: 8,
            ngram_hits: 5,
            ends_proposed: Some(4),
            ends_accepted: Some(1),
            cost: Some(13.0),
            acceptance_rate: 0.25,
            judged_rounds: 8,
            seconds: 2.0,
            prefill_s: 0.5,
            learn_s: 1.5,
            cache_ngrams: 100,
            cache_bytes: 4000,
            finish: Finish::Length,
            ..PromptRow::default()
        },
        plain: Some(Arc::new(PromptRow {
            new_tokens: 30,
            cost: Some(30.0),
            seconds: 6.0,
            prefill_s: 1.5,
            ..PromptRow::default()
        })),
        text: None,
        is_plain: false,
        plain_step: 1.0,
        timed: true,
        looks_up: false,
        latency_ratio: 0.25,
        round_overhead: 0.5,
        end_ngrams: 120,
        end_bytes: 5_000_000,
    }
}

fn value(metric: Metric, prompts: &[Answer]) -> Option<f64> {
    Sums::total(prompts.iter().filter_map(|p| metric.sums(p)))
}

#[test]
fn every_metric_by_hand() {
    let expected = [
        (Metric::Acceptance, 0.25),
        (Metric::TokensPerRound, 2.0),
        (Metric::DraftLength, 4.0),
        (Metric::BytesPerRound, 8.0),
        (Metric::HitsPerRound, 0.5),
        (Metric::HitsPerResponse, 5.0),
        (Metric::NgramAcceptance, 0.625),
        (Metric::NgramShare, 0.25),
        (Metric::OtherAcceptance, 0.25),
        (Metric::EndAcceptance, 0.25),
        // 10 tokens a second against 5.
        (Metric::Speedup, 2.0),
        // 20 tokens for 13 steps against 30 for 30.
        (Metric::CountedSpeedup, 20.0 / 13.0),
        // 20 tokens in 4 s against 30 in 7.5 s.
        (Metric::SpeedupEndToEnd, 1.25),
        // 20 / (10 + 40 / 4).
        (Metric::ModelledSpeedup, 1.0),
        // The same with half a step for each of the 8 rounds that drafted.
        (Metric::ImpliedSpeedup, 20.0 / 24.0),
        (Metric::TokensPerSecond, 10.0),
        (Metric::Cut, 1.0),
        (Metric::LearningShare, 0.375),
        (Metric::CacheNgrams, 120.0),
        (Metric::CacheMegabytes, 5.0),
    ];
    for (metric, expected) in expected {
        let found = value(metric, &[prompt()]).unwrap();
        assert!(
            (found - expected).abs() < 1e-12,
            "{}: {found}",
            metric.name()
        );
    }
    // The others need the text of the answer, or its end.
    let others = |metric: &Metric| expected.iter().all(|(known, _)| known != metric);
    for metric in Metric::ALL.into_iter().filter(others) {
        assert_eq!(value(metric, &[prompt()]), None, "{}", metric.name());
    }
}

#[test]
fn ends_are_counted_where_they_are_known() {
    let mut ended = prompt();
    ended.row.finish = Finish::End;
    let mut by_target = ended.clone();
    by_target.row.ends_accepted = Some(0);
    // An answer at the limit has no end that could have been drafted.
    let three = [ended.clone(), by_target, prompt()];
    assert_eq!(value(Metric::EndsDrafted, &three), Some(0.5));
    let mut older = ended;
    (older.row.ends_proposed, older.row.ends_accepted) = (None, None);
    for metric in [Metric::EndAcceptance, Metric::EndsDrafted] {
        assert_eq!(value(metric, std::slice::from_ref(&older)), None);
    }
}

#[test]
fn text_metrics_by_hand() {
    let fresh = FreshRounds {
        rounds: 8,
        fresh: 2,
        acceptance: 0.5,
        all_fresh: 3,
        tokens: 6,
        drafted: 4,
    };
    let text = TextFacts {
        tokens: 20,
        repeated: 5,
        copies: 4,
        fresh: Some(fresh),
    };
    let prompt = Answer {
        text: Some(text),
        ..prompt()
    };
    let expected = [
        (Metric::FreshAcceptance, 0.25),
        (Metric::FreshModelledSpeedup, 1.5),
        (Metric::FreshShare, 0.25),
        (Metric::Looping, 0.25),
        (Metric::Distinct, 0.25),
    ];
    for (metric, expected) in expected {
        assert_eq!(
            value(metric, std::slice::from_ref(&prompt)),
            Some(expected),
            "{}",
            metric.name()
        );
    }
}

#[test]
fn acceptance_is_a_mean_over_rounds() {
    // One round of 1/1 and four of 0: 0.2. The mean over prompts would be 0.5.
    let mut prompts = [prompt(), prompt()];
    (prompts[0].row.acceptance_rate, prompts[0].row.judged_rounds) = (1.0, 1);
    (prompts[1].row.acceptance_rate, prompts[1].row.judged_rounds) = (0.0, 4);
    assert_eq!(value(Metric::Acceptance, &prompts), Some(0.2));
    // A prompt without proposals does not count.
    let mut silent = prompt();
    (silent.row.acceptance_rate, silent.row.judged_rounds) = (f64::NAN, 0);
    let with = [prompts[0].clone(), prompts[1].clone(), silent.clone()];
    assert_eq!(value(Metric::Acceptance, &with), Some(0.2));
    assert_eq!(value(Metric::Acceptance, &[silent]), None);
}

#[test]
fn speedup_is_a_ratio_of_totals() {
    // 40 tokens in 2 s against 4 s: a long answer that gains outweighs a short one that loses.
    let of = |tokens: u32, seconds: f64, plain: f64| {
        let mut prompt = prompt();
        (prompt.row.new_tokens, prompt.row.seconds) = (tokens, seconds);
        prompt.plain = Some(Arc::new(PromptRow {
            new_tokens: tokens,
            seconds: plain,
            ..PromptRow::default()
        }));
        prompt
    };
    let prompts = [of(30, 1.0, 3.0), of(10, 1.0, 1.0)];
    assert_eq!(value(Metric::Speedup, &prompts), Some(2.0));
    let untimed = Answer {
        timed: false,
        ..prompts[0].clone()
    };
    assert_eq!(value(Metric::Speedup, &[untimed]), None);
    let alone = Answer {
        plain: None,
        ..prompts[0].clone()
    };
    // Without plain decoding of the prompt, its own time does not count either.
    assert_eq!(
        value(Metric::Speedup, &[alone, prompts[0].clone()]),
        Some(3.0)
    );
}

#[test]
fn the_modelled_speedup_of_the_paper() {
    // 2.19 tokens a round at k = 4 on the latencies of Table 8: 2.19 / (1 + 4 * 0.0713).
    let mut prompt = prompt();
    (prompt.row.new_tokens, prompt.row.rounds) = (219, 100);
    prompt.row.draft_tokens = 400;
    prompt.latency_ratio = StepLatency::paper().ratio();
    let found = value(Metric::ModelledSpeedup, &[prompt]).unwrap();
    assert!((found - 1.7038).abs() < 1e-3, "{found}");
}

#[test]
fn copies_take_no_forward_of_the_drafter() {
    let mut copying = Answer {
        looks_up: true,
        ..prompt()
    };
    copying.text = Some(TextFacts {
        fresh: Some(FreshRounds {
            rounds: 8,
            fresh: 4,
            acceptance: 1.0,
            all_fresh: 5,
            tokens: 6,
            drafted: 12,
        }),
        ..TextFacts::default()
    });
    // Every round costs one step, whatever it proposed.
    for (metric, expected) in [
        (Metric::ModelledSpeedup, 2.0),
        (Metric::ImpliedSpeedup, 2.0),
        (Metric::FreshModelledSpeedup, 1.2),
        (Metric::FreshImpliedSpeedup, 1.2),
    ] {
        assert_eq!(
            value(metric, std::slice::from_ref(&copying)),
            Some(expected),
            "{metric:?}"
        );
    }
    // A drafter's fresh rounds: 6 / (5 + 12 / 4) and half a step for each of the four that drafted.
    let drafting = Answer {
        looks_up: false,
        ..copying
    };
    let found = value(
        Metric::FreshModelledSpeedup,
        std::slice::from_ref(&drafting),
    );
    assert_eq!(found, Some(0.75));
    assert_eq!(value(Metric::FreshImpliedSpeedup, &[drafting]), Some(0.6));
    // If most rounds copied, the number of drafting rounds is at most that of forwards.
    let mut both = prompt();
    both.row.draft_tokens = 2;
    let found = value(Metric::ImpliedSpeedup, &[both]);
    assert_eq!(found, Some(20.0 / (10.0 + 0.5 + 1.0)));
}

#[test]
fn plain_decoding_has_no_draft() {
    let plain = [Answer {
        is_plain: true,
        ..prompt()
    }];
    assert_eq!(value(Metric::DraftLength, &plain), None);
    assert_eq!(value(Metric::HitsPerRound, &plain), None);
    assert_eq!(value(Metric::CacheNgrams, &plain), None);
}

#[test]
fn names_are_distinct_and_parse() {
    for metric in Metric::ALL {
        assert_eq!(Metric::parse(metric.name()), Some(metric));
        assert!(!metric.definition().is_empty() && !metric.title().is_empty());
    }
    assert_eq!(Metric::parse("accuracy"), None);
    assert_eq!(Metric::Speedup.format(1.256), "1.26x");
    assert_eq!(Metric::Acceptance.format(0.333), "0.33");
}
