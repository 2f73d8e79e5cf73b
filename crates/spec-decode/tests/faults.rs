//! Errors of a round: impossible logits, failing models, bad prompts.

use crate::common;

use std::sync::Arc;

use common::*;
use spec_decode::testkit::{FakeModel, RowFn};
use spec_decode::{
    ConstantLength, LawError, NoSink, Prompt, Role, SpecError, StreamName, VerifyMode,
};
use vocab_align::{DraftId, TargetId};

/// The same row at every position.
fn constant<I: 'static>(row: Vec<f32>) -> RowFn<I> {
    Arc::new(move |_: &[I]| row.clone())
}

fn broken(mode: VerifyMode, temperature: f64, draft: f32, target: f32) -> SpecError {
    let models = (
        FakeModel::new(DRAFT.len(), constant::<DraftId>(vec![draft; DRAFT.len()])),
        FakeModel::new(
            TARGET.len(),
            constant::<TargetId>(vec![target; TARGET.len()]),
        ),
    );
    let mut session = session(models, pair(), config(mode, temperature, 5));
    session
        .start(PROMPT, StreamName::new(0, 0))
        .expect("starts");
    let error = session
        .round(None, &mut ConstantLength(2), &mut NoSink)
        .expect_err("impossible logits");
    let again = session.round(None, &mut ConstantLength(2), &mut NoSink);
    assert!(
        matches!(again, Err(SpecError::NotRunning)),
        "an error ends the response"
    );
    error
}

#[test]
fn impossible_logits_name_the_round_and_the_model() {
    for mode in VerifyMode::ALL {
        for temperature in [0.0, 1.0] {
            let drafter = broken(mode, temperature, f32::NAN, 0.0);
            assert!(
                matches!(
                    drafter,
                    SpecError::Law {
                        round: 0,
                        role: Role::Drafter,
                        source: LawError::Logit { .. }
                    }
                ),
                "{drafter:?}"
            );
            let target = broken(mode, temperature, 0.0, f32::NAN);
            assert!(
                matches!(
                    target,
                    SpecError::Law {
                        round: 0,
                        role: Role::Target,
                        source: LawError::Logit { .. }
                    }
                ),
                "{target:?}"
            );
            let empty = broken(mode, temperature, 0.0, f32::NEG_INFINITY);
            assert!(
                matches!(
                    empty,
                    SpecError::Law {
                        source: LawError::NoMass { .. },
                        ..
                    }
                ),
                "{empty:?}"
            );
        }
    }
}

#[test]
fn failing_models_are_named_with_their_round() {
    let pair = pair();
    let run = |drafter_after, target_after| {
        let (mut drafter, mut target) = text_models(3, &pair, 0.5);
        (drafter.fail_after, target.fail_after) = (drafter_after, target_after);
        let mut session = session(
            (drafter, target),
            pair.clone(),
            config(VerifyMode::Tli, 0.0, 30),
        );
        let k = &mut ConstantLength(2);
        session
            .generate(PROMPT, StreamName::new(0, 0), None, k, &mut NoSink)
            .expect_err("a model fails")
    };
    let error = run(None, Some(3));
    assert!(
        matches!(
            error,
            SpecError::Model {
                round: 2,
                role: Role::Target,
                ..
            }
        ),
        "{error:?}"
    );
    let error = run(Some(3), None);
    assert!(
        matches!(
            error,
            SpecError::Model {
                round: 1,
                role: Role::Drafter,
                ..
            }
        ),
        "{error:?}"
    );
    let error = run(Some(0), None);
    assert!(
        matches!(
            error,
            SpecError::Prefill {
                role: Role::Drafter,
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn bad_prompts_are_errors() {
    let pair = pair();
    let (drafter, target) = text_models(3, &pair, 0.5);
    let models = (drafter, target.with_max_len(1));
    let mut session = session(models, pair, config(VerifyMode::Tli, 0.0, 3));
    let name = StreamName::new(0, 0);
    let empty = Prompt {
        draft: &[],
        ..PROMPT
    };
    assert!(matches!(
        session.start(empty, name),
        Err(SpecError::EmptyPrompt(Role::Drafter))
    ));
    assert!(matches!(
        session.start(PROMPT, name),
        Err(SpecError::PromptTooLong {
            role: Role::Target,
            tokens: 2,
            max_len: 1
        })
    ));
    let round = session.round(None, &mut ConstantLength(1), &mut NoSink);
    assert!(matches!(round, Err(SpecError::NotRunning)));
}
