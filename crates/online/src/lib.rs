//! The online loop:
//! `stream -> prompt -> draft -> translate -> verify -> commit -> learn -> record`.
//!
//! A job is a stream under one seed: its segments, one after the other, each prompt answered once
//! by every arm. The arms take turns to go first, so that a disturbance of the machine affects all
//! of them. Plain decoding of the same prompt in the same turn is the reference of every measured
//! speedup. [`run_job`] contains the loop itself.
//!
//! | term | meaning |
//! |---|---|
//! | arm | one method of the comparison: how it drafts, verifies, caches and learns |
//! | prompt | a question of a task, tokenised for drafter and target ([`EncodedPrompt`]) |
//! | state | what an arm knows ([`ArmState`]), of a job or of a server, with one layout on disk |
//! | example | training data for the drafter from one verified answer ([`distill_loss::Example`]) |
//! | update | one optimiser step on the examples since the last one (Algorithm 2) |

mod adaptive;
mod arm;
mod drafter_training;
mod error;
mod job;
mod learner;
mod lookups;
mod needs;
mod ngrams;
mod parts;
mod probe;
mod prompt;
mod question;
mod record;
mod relabel;
mod respond;
mod saved;
mod specials;
mod start_costs;
mod state;
mod target;
mod weights;

pub use adaptive::HeadUpdate;
pub use arm::{Answered, DraftingArm};
pub use drafter_training::Update;
pub use error::{Damage, OnlineError, in_full, passed_on};
pub use job::{JobSetting, Progress, run_job};
pub use learner::{Learner, Learnt};
pub use needs::Needs;
pub use probe::{Probe, ProbeOptions};
pub use prompt::{EncodedPrompt, Position};
pub use question::Question;
pub use saved::SavedDrafter;
pub use specials::Specials;
pub use start_costs::{seconds_of, start_costs};
pub use state::{
    AnswerSums, ArmState, Generation, LearntPart, Names, STRIDE, SavedState, StateFolder, Texts,
    Wanted, file_name,
};
pub use weights::LearntWeights;
