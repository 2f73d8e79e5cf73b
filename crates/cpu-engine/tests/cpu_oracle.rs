//! The CPU engine and the reference agree as implementations of the engine trait.

use crate::cpu_support;

use cpu_engine::{CpuEngine, EngineOptions};
use cpu_support::*;
use lm::{LanguageModel, ReferenceEngine};

#[test]
fn the_same_calls_give_the_same_logits() {
    for shape in [EVEN, ODD, WIDE] {
        let checkpoint = shape.checkpoint(31);
        let ids = tokens(shape.vocab, 40, 31);
        let options = EngineOptions {
            max_len: 64,
            ..EngineOptions::default()
        };
        let mut engines: [Box<dyn LanguageModel>; 2] = [
            Box::new(CpuEngine::new(&checkpoint, options).unwrap()),
            Box::new(ReferenceEngine::new(&checkpoint, 64).unwrap()),
        ];
        // Length that the cache is cut to, and number of tokens appended after it.
        for (cut, count) in [(0, 12), (12, 1), (9, 5), (14, 9), (3, 20)] {
            let [cpu, reference] = engines.each_mut().map(|engine| {
                let mut logits = Vec::new();
                engine.truncate(cut);
                engine.forward(&ids[cut..cut + count], &mut logits).unwrap();
                logits
            });
            let error = max_difference(&cpu, &reference);
            assert!(error < 2e-4, "{shape:?} after {cut}: {error}");
        }
    }
}
