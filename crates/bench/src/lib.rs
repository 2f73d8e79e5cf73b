//! Measurements: the decode engine, rounds, padding, costs, and a test that the output has the
//! target's distribution.
//!
//! - [`mod@bench`]: speed of the engine, of rounds and of learning on this machine.
//! - [`lawtest`]: a test that the output of a pair has the target's distribution.
//! - [`pad`]: padding that gives two small models the paper's ratio of step times.
//! - [`doctor`]: a measurement of whether speculation pays with this pair, with advice.
//! - [`costs`]: costs of drafting and verifying in an experiment.

pub mod args;
pub mod bench;
pub mod costs;
pub mod doctor;
pub mod lawtest;
pub mod pad;

use adaptive_draft::{CopyOrDraft, CopyRecord, Costs};
use spec_decode::{ConstantLength, DraftPolicy};

use args::{DataArgs, flag, print, print_as};

/// Drafts of `k` tokens. With `explore`, looked-up text stands in front of them, or in their place,
/// where that has paid; a drafter that has not is tried in one of so many rounds or fewer.
pub fn drafts(k: usize, explore: Option<usize>) -> Box<dyn DraftPolicy> {
    let constant = ConstantLength(k);
    match explore {
        None => Box::new(constant),
        Some(_) => {
            let (worth, costs) = (CopyRecord::default(), Costs::default());
            Box::new(CopyOrDraft::new(constant, worth, costs, k, true, explore))
        }
    }
}
