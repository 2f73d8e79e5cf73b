//! The engines of this crate keep the contract that they are made to test.

use crate::common;

use common::*;
use spec_decode::testkit::FakeModel;
use spec_decode::{PromptLookup, conformance};

#[test]
fn toy_models_keep_it() {
    let (draft, target) = hashed_models(5, 2.0);
    conformance::check(|| draft.clone()).unwrap();
    let short = || target.clone().with_max_len(30);
    conformance::check(short).unwrap();
    let pair = pair();
    let (draft, target): (FakeModel<_>, FakeModel<_>) = text_models(5, &pair, 0.3);
    conformance::check(|| draft.clone()).unwrap();
    conformance::check(|| target.clone()).unwrap();
}

#[test]
fn prompt_lookup_keeps_it() {
    // A small vocabulary, so that there is something to look up.
    conformance::check(|| PromptLookup::new(3)).unwrap();
    conformance::check_on(|| PromptLookup::new(10), &[5, 1, 2, 7, 5, 1, 2, 7, 3]).unwrap();
}
