//! Copies among the ways of a controller.

use adaptive_draft::{Controller, ControllerConfig, RoundCost, Way};

/// Number of first answers, in which every way may be tried.
const FIRST: usize = 8;

/// Copies alone make a token per round; the drafter's rounds make three in `1.5` plain steps.
#[test]
fn copies_are_not_tried_behind_a_drafter_that_saves_more() {
    let mut controller = Controller::new(ControllerConfig {
        copies: true,
        learns: false,
        frozen: false,
        ..ControllerConfig::default()
    });
    controller.turn_to("target", "task");
    for _ in 0..4 * FIRST {
        let mut answer = controller.open();
        assert_ne!(answer.way(), Way::Copies);
        for _ in 0..40 {
            let k = if answer.speculates() { 4 } else { 0 };
            answer.observe(&RoundCost {
                positions: 1 + k,
                drafted: k,
                tokens: if k > 0 { 3 } else { 1 },
                draft: 0.1 * k as f64,
                rest: 1.0 + 0.025 * k as f64,
            });
        }
        controller.close(answer, 1);
    }
}

/// Short answers to long prompts: a drafter that reads them loses as much as an answer takes, and
/// copies make three tokens in two rounds.
#[test]
fn copies_are_found_behind_a_drafter_that_loses_every_answer() {
    for learns in [false, true] {
        let mut controller = Controller::new(ControllerConfig {
            copies: true,
            learns,
            frozen: learns,
            ..ControllerConfig::default()
        });
        controller.turn_to("target", "task");
        let mut ways = Vec::new();
        for _ in 0..4 * FIRST {
            let mut answer = controller.open();
            let way = answer.way();
            ways.push(way);
            let drafts = matches!(way, Way::Learner | Way::Frozen);
            if drafts {
                answer.read(30.0);
            }
            for round in 0..20 {
                let k = if answer.speculates() { 2 } else { 0 };
                answer.observe(&RoundCost {
                    positions: 1 + k,
                    drafted: if drafts { k } else { 0 },
                    tokens: if k > 0 { 1 + round % 2 } else { 1 },
                    draft: if drafts { 0.3 * k as f64 } else { 0.0 },
                    rest: 1.0 + 0.05 * k as f64,
                });
            }
            if controller.close(answer, 1) {
                controller.learnt("target", 25.0, None);
            }
        }
        let drafted = ways
            .iter()
            .filter(|way| !matches!(way, Way::Copies | Way::Plain));
        assert!(drafted.count() <= 5, "{ways:?}");
        assert!(
            ways[FIRST..].iter().all(|way| *way == Way::Copies),
            "{ways:?}"
        );
    }
}
