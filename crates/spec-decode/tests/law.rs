//! The output distribution by exact enumeration, over thousands of random cases: logits with zeros
//! and ties, disjoint supports, caches, draft lengths, temperatures, sampling options, special
//! tokens, stop tokens, one and two rounds.

use crate::cases;

use cases::random::{Family, MIXED, Rough, across, lookup, within};
use cases::{Setting, TOLERANCE};
use spec_decode::{LanguageModel, VerifyMode};

fn assert_exact<D: LanguageModel + Clone>(
    cases: std::ops::Range<u64>,
    setting: impl Fn(u64) -> Setting<D>,
) {
    for case in cases {
        let off = setting(case).deviation();
        assert!(off < TOLERANCE, "case {case}: off by {off:e}");
    }
}

#[test]
fn exact() {
    assert_exact(0..8000, |case| across(case, MIXED, VerifyMode::Exact));
}

#[test]
fn blocks() {
    assert_exact(0..8000, |case| {
        across(case, MIXED, VerifyMode::Exact).block()
    });
    assert_exact(0..3000, |case| across(case, MIXED, VerifyMode::Tli).block());
    assert_exact(0..2000, |case| within(case, VerifyMode::Tli).block());
    assert_exact(0..2000, |case| within(case, VerifyMode::Exact).block());
    assert_exact(0..3000, |case| lookup(case).block());
    assert_exact(0..4000, |case| {
        across(case, MIXED, VerifyMode::Exact)
            .state_driven(case)
            .block()
    });
}

#[test]
fn sparse_drafts() {
    for mode in [VerifyMode::Exact, VerifyMode::Tli] {
        assert_exact(0..1500, |case| {
            across(case, MIXED, mode).sparse(case as usize % 4)
        });
        assert_exact(0..1500, |case| {
            across(case, MIXED, mode).sparse(case as usize % 4).block()
        });
    }
    assert_exact(0..1000, |case| {
        let setting = across(case, MIXED, VerifyMode::Exact).copying(case);
        setting.sparse(2).block()
    });
    assert_exact(0..1000, |case| {
        let setting = across(case, MIXED, VerifyMode::Exact).state_driven(case);
        setting.sparse(2).block()
    });
    assert_exact(0..1000, |case| within(case, VerifyMode::Exact).sparse(2));
}

#[test]
fn drafts_that_begin_with_copied_text() {
    for mode in [VerifyMode::Exact, VerifyMode::Tli, VerifyMode::Slem] {
        assert_exact(0..4000, |case| across(case, MIXED, mode).copying(case));
        assert_exact(0..2000, |case| {
            across(case, MIXED, mode).copying(case).block()
        });
    }
    assert_exact(0..2000, |case| {
        within(case, VerifyMode::Exact).copying(case).block()
    });
}

#[test]
fn drafts_that_begin_with_what_followed_most_often() {
    for mode in [VerifyMode::Exact, VerifyMode::Tli, VerifyMode::Slem] {
        assert_exact(0..2000, |case| {
            across(case, MIXED, mode).copying_often(case)
        });
        assert_exact(0..1000, |case| {
            across(case, MIXED, mode).copying_often(case).block()
        });
    }
    assert_exact(0..2000, |case| {
        within(case, VerifyMode::Exact).copying_often(case).block()
    });
    assert_exact(0..1000, |case| {
        let setting = across(case, MIXED, VerifyMode::Exact).copying_often(case);
        setting.sparse(2).block()
    });
}

#[test]
fn copied_text_is_proposed() {
    let family = Family {
        temperature: Some(0.3),
        ..MIXED
    };
    let setting = |case| across(case, family, VerifyMode::Exact);
    let latest = (0..200).map(|case| setting(case).copying(case).copies_accepted());
    let often = (0..200).map(|case| setting(case).copying_often(case).copies_accepted());
    let accepted: [f64; 2] = [latest.sum(), often.sum()];
    assert!(accepted.iter().all(|sum| *sum > 20.0), "{accepted:?}");
}

#[test]
fn blocks_never_emit_fewer_tokens() {
    let family = Family {
        temperature: Some(1.0),
        ..MIXED
    };
    let (mut sums, mut more) = ([0.0; 2], 0);
    for case in 0..1500 {
        let setting = || match case % 3 {
            0 => across(case, family, VerifyMode::Tli),
            1 => within(case, VerifyMode::Exact),
            _ => across(case, family, VerifyMode::Exact).one_spelling(),
        };
        let (token, block) = (
            setting().expected_tokens(),
            setting().block().expected_tokens(),
        );
        assert!(block > token - TOLERANCE, "case {case}: {block} < {token}");
        more += usize::from(block > token + TOLERANCE);
        sums[0] += token;
        sums[1] += block;
    }
    assert!(more > 80, "only {more} cases gain: {sums:?}");
}

#[test]
fn scores_say_how_often_a_proposal_stands() {
    for mode in [VerifyMode::Exact, VerifyMode::Tli, VerifyMode::Slem] {
        let mut by_choice = 0;
        for case in 0..3000 {
            let (off, own) = across(case, MIXED, mode).scores_off();
            assert!(off < 1e-9, "{mode}, case {case}: off by {off:e}");
            by_choice += own;
        }
        let differs = by_choice > 500;
        assert_eq!(differs, mode == VerifyMode::Exact, "{mode}: {by_choice}");
    }
}

#[test]
fn tli() {
    assert_exact(0..3000, |case| across(case, MIXED, VerifyMode::Tli));
}

#[test]
fn slem() {
    assert_exact(0..3000, |case| across(case, MIXED, VerifyMode::Slem));
}

#[test]
fn one_vocabulary() {
    assert_exact(0..2000, |case| within(case, VerifyMode::Tli));
    assert_exact(0..2000, |case| within(case, VerifyMode::Exact));
}

#[test]
fn drafts_that_the_drafters_state_cuts_short() {
    for mode in [VerifyMode::Exact, VerifyMode::Tli, VerifyMode::Slem] {
        let cases = if mode == VerifyMode::Exact {
            6000
        } else {
            2000
        };
        assert_exact(0..cases, |case| {
            across(case, MIXED, mode).state_driven(case)
        });
    }
    assert_exact(0..2000, |case| {
        within(case, VerifyMode::Exact).state_driven(case)
    });
}

#[test]
fn prompt_lookup() {
    assert_exact(0..3000, lookup);
}

#[test]
fn the_papers_rule_fails_at_temperature_1() {
    let family = Family {
        rough: Rough::Ties,
        temperature: Some(1.0),
    };
    let off = |case| across(case, family, VerifyMode::Paper).deviation();
    let far = (0..200).filter(|&case| off(case) > 1e-3).count();
    assert!(far > 30, "only {far} of 200 cases are off");
}

#[test]
fn the_papers_rule_passes_as_the_temperature_vanishes() {
    // Without ties: among equally probable tokens the paper's rule draws wrongly at any
    // temperature.
    let family = Family {
        rough: Rough::Smooth,
        temperature: Some(1e-6),
    };
    for case in 0..200 {
        let off = across(case, family, VerifyMode::Paper).deviation();
        assert!(off < TOLERANCE, "case {case}: off by {off:e}");
    }
}

#[test]
fn at_temperature_0_every_mode_decodes_greedily() {
    let family = Family {
        temperature: Some(0.0),
        ..MIXED
    };
    for mode in VerifyMode::ALL {
        // Caches also hold n-grams that occur in no text; their proposals are rejected.
        assert_exact(0..3000, |case| across(case, family, mode));
        assert_exact(0..2000, |case| across(case, family, mode).copying(case));
        assert_exact(0..1000, |case| {
            across(case, family, mode).copying_often(case)
        });
        assert_exact(0..1000, |case| across(case, family, mode).block());
    }
}
