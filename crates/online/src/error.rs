//! Errors of jobs, arms, learners and states.

use std::error::Error;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use adaptive_draft::HeadError;
use distill_loss::MissingStates;
use experiment::PolicyFault;
use lm::{LmError, ModelError};
use models::ModelsError;
use ngram_cache::CacheError;
use results::ResultsError;
use spec_decode::{CorpusError, LawError, SamplingError, SpecError};
use streams::StreamError;
use trace::TraceError;

use crate::state::part::{FORMAT, LearntPart};

pub(crate) type Result<T, E = OnlineError> = std::result::Result<T, E>;

/// Fault in the description of a state.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// It is missing, or is not text.
    #[error(transparent)]
    File(#[from] std::io::Error),
    /// It is not JSON, or lacks a value.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// A number that is too large, or of which later sums would not be finite.
    #[error("{key} is {value:e}, beyond {limit:e}")]
    OutOfBounds {
        /// Names that lead to the number, with dots between them.
        key: String,
        /// The number.
        value: f64,
        /// Largest magnitude of a number.
        limit: f64,
    },
}

/// Reason for which a job cannot run, an arm cannot answer or learn, or a state cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnlineError {
    /// A model folder cannot be opened, or its engine cannot be built or used.
    #[error(transparent)]
    Models(#[from] ModelsError),
    /// Weights or an adapter cannot be read, written or trained.
    #[error(transparent)]
    Lm(#[from] LmError),
    /// An engine failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// An answer failed.
    #[error(transparent)]
    Decode(#[from] SpecError),
    /// The prompts of a stream cannot be read.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// Rows, a manifest or an input file cannot be read or written.
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// A recording cannot be read, or does not suit the job.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// An n-gram cache cannot be read or written.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// Texts to copy from cannot be read.
    #[error(transparent)]
    Corpus(#[from] CorpusError),
    /// A distribution is impossible.
    #[error(transparent)]
    Law(#[from] LawError),
    /// An acceptance head cannot be read, written or trained.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// A draft policy cannot be constructed.
    #[error(transparent)]
    Policy(#[from] PolicyFault),
    /// A sampling option is outside its range.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// An example lacks the states that the last blocks learn from.
    #[error(transparent)]
    States(#[from] MissingStates),
    /// The system refused an operation.
    #[error(transparent)]
    System(#[from] std::io::Error),
    /// A value cannot be written as JSON.
    #[error(transparent)]
    Encode(#[from] serde_json::Error),
    /// An error with the place that it concerns.
    #[error("{place}")]
    At {
        /// A file, a key of the configuration, a target, an arm, a segment, a prompt, ...
        place: String,
        /// The cause.
        source: Box<Self>,
    },
    /// A job, a learner or a state lacks something; the value says what.
    #[error("{0}")]
    Lacking(&'static str),
    /// A job that is to be probed names a target that its models lack; the value is the name.
    #[error("models.targets: there is no `{0}`")]
    NoModel(String),
    /// A segment names a target that the job has not loaded; the value is the name.
    #[error("there is no target `{0}`")]
    NoTarget(String),
    /// A job has ended before all of its prompts were answered.
    #[error("{done} of {of} prompts were answered")]
    Unanswered {
        /// Number of prompts answered.
        done: usize,
        /// Number of all prompts.
        of: usize,
    },
    /// A checkpoint is that of another job, program or machine; the value says of which.
    #[error("its checkpoint {0}")]
    OtherCheckpoint(&'static str),
    /// A file has changed since a checkpoint.
    #[error("{role}: `{name}` has changed since its checkpoint")]
    OtherInput {
        /// Role of the file.
        role: String,
        /// Its name, without the folder.
        name: String,
    },
    /// An acceptance head was trained for another drafter.
    #[error("head.path: the head reads {head} features, the drafter has {drafter}")]
    Features {
        /// Number of features that the head reads.
        head: usize,
        /// Number of features that the drafter has.
        drafter: usize,
    },
    /// A state lacks an acceptance head; the value is its name.
    #[error("no acceptance head of `{0}`")]
    NoHead(String),
    /// A learner cannot be used, for example during an update; the value says why.
    #[error("{0}")]
    Learner(&'static str),
    /// The loss of an update is not finite; the value is the loss.
    #[error("the distillation loss is {0}; lower learn.lr")]
    Diverged(f64),
    /// A learnt weight is not finite.
    #[error(
        "tensor `{tensor}` holds {value} at {at}, which is no number\nhint: a lower rate of learning keeps numbers in bounds"
    )]
    NotFinite {
        /// Name of the tensor.
        tensor: String,
        /// The value.
        value: f32,
        /// Its index.
        at: usize,
    },
    /// The file `current` names no generation; the value is its path.
    #[error(
        "{}: names no generation of a state\nhint: write the name of the newest generation-N beside it there, or remove the folder to begin anew",
        .0.display()
    )]
    NoGeneration(PathBuf),
    /// A folder has generations of a state and no file `current`; the value is the folder.
    #[error(
        "{}: holds generations of a state, and no file `current` says which of them counts\nhint: write the name of the newest generation-N into a file `current` there, or remove the folder to begin anew",
        .0.display()
    )]
    NoCurrent(PathBuf),
    /// Another process has locked a state; the value is its folder.
    #[error(
        "{}: another process uses this state\nhint: end it, or give each its own --state",
        .0.display()
    )]
    InUse(PathBuf),
    /// A new generation of a state is too large.
    #[error(
        "the state has {bytes} bytes, more than {limit}\nhint: raise --state-mb, or lower --ngram-mb, --lookup-mb or --adapter-rank"
    )]
    TooLarge {
        /// Size of the generation in bytes.
        bytes: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A state has another layout.
    #[error(
        "{}: of another version of this program: format {format}, not {FORMAT}\nhint: begin a new state in another folder",
        path.display()
    )]
    OtherFormat {
        /// The file.
        path: PathBuf,
        /// Version of its layout.
        format: u32,
    },
    /// The description of a state is missing or cut, or a number in it is out of bounds.
    #[error(
        "{}: damaged: {fault}\nhint: put back a copy of the state, or begin a new one in another folder",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The first fault.
        fault: Damage,
    },
    /// A folder holds no state; the value is its path.
    #[error(
        "{}: holds no state of this version of the program (format {FORMAT})\nhint: run the stage that wrote it again",
        .0.display()
    )]
    NoState(PathBuf),
    /// A state is that of another drafter.
    #[error(
        "{}: learnt by another drafter than {}, which was {}\nhint: name that one with --drafter, or begin another state",
        state.display(),
        drafter.display(),
        learnt.display()
    )]
    OtherDrafter {
        /// Folder of the state.
        state: PathBuf,
        /// Folder of the present drafter.
        drafter: PathBuf,
        /// Folder of the drafter that learnt.
        learnt: PathBuf,
    },
    /// In a state another part of the drafter learnt.
    #[error(
        "{}: {learnt} learnt, not {wanted}\nhint: go on with --adapter-rank {} --learn-blocks {} (in a run: learn.lora.rank, learn.blocks), or begin another state",
        state.display(),
        learnt.rank,
        learnt.blocks
    )]
    OtherPart {
        /// Folder of the state.
        state: PathBuf,
        /// The part that learnt.
        learnt: LearntPart,
        /// The part that is to learn.
        wanted: LearntPart,
    },
    /// A saved acceptance head is that of another drafter; the value is its file.
    #[error("{}: belongs to another drafter", .0.display())]
    OtherHead(PathBuf),
    /// A state holds n-grams that the targets of a job do not use.
    #[error(
        "{}: n-grams between other vocabularies than those of this job, whose file would be {}",
        path.display(),
        known.join(" or ")
    )]
    OtherVocabularies {
        /// The file.
        path: PathBuf,
        /// Names of the files of the job's vocabularies.
        known: Vec<String>,
    },
    /// A state lacks weights of a name.
    #[error("{}: no weights for `{name}`", folder.display())]
    NoWeights {
        /// Folder of the weights.
        folder: PathBuf,
        /// The name.
        name: String,
    },
    /// A file holds the weights of other blocks than those that learn.
    #[error(
        "{}: holds {}, and {} are to learn\nhint: learn.blocks = {found} goes on with it",
        path.display(),
        last_blocks(*found),
        last_blocks(*wanted)
    )]
    OtherBlocks {
        /// The file.
        path: PathBuf,
        /// Number of last blocks in the file; 0 for all weights.
        found: usize,
        /// Number of last blocks that learn; 0 for all weights.
        wanted: usize,
    },
    /// The file of an optimiser lacks the number of its steps; the value is the file.
    #[error("{}: tensor `steps` is missing", .0.display())]
    NoSteps(PathBuf),
    /// A fault of this program, which no input leads to; the value is its description.
    #[error("{0}")]
    Internal(&'static str),
}

impl OnlineError {
    pub(crate) fn at<E: Into<Self>>(place: impl Display) -> impl FnOnce(E) -> Self {
        move |error| Self::At {
            place: place.to_string(),
            source: Box::new(error.into()),
        }
    }

    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        Self::at::<std::io::Error>(path.display())
    }

    /// True if files that were read are damaged, incomplete, or of another job or program, so that
    /// reading them again would find the same. False for every other fault, as of the system or of
    /// an engine: the files may then be as good as ever.
    pub(crate) fn is_of_the_files(&self) -> bool {
        let mut causes = causes(self).map(passed_on);
        let system = causes.find_map(|cause| cause.downcast_ref::<std::io::Error>());
        let was_read = system.is_none_or(|error| {
            use std::io::ErrorKind::{InvalidData, NotFound, UnexpectedEof};
            matches!(error.kind(), InvalidData | NotFound | UnexpectedEof)
        });
        match self {
            Self::At { source, .. } => source.is_of_the_files(),
            // A journal is shorter than it was at the checkpoint.
            Self::Results(ResultsError::Io {
                action: "resume", ..
            }) => true,
            Self::Results(ResultsError::Io { .. }) | Self::System(_) | Self::Corpus(_) => was_read,
            Self::Cache(error) => was_read && !matches!(error, CacheError::Tokenise { .. }),
            Self::Lm(error) | Self::Head(HeadError::Lm(error)) => {
                was_read
                    && matches!(
                        error,
                        LmError::Io { .. }
                            | LmError::Config { .. }
                            | LmError::Weights(_)
                            | LmError::MissingTensor { .. }
                            | LmError::LeftoverTensors { .. }
                            | LmError::NotFinite { .. }
                            | LmError::Shape { .. }
                            | LmError::Adapter { .. }
                            | LmError::OtherModel
                    )
            }
            Self::Encode(error) => !error.is_io(),
            Self::Head(_)
            | Self::OtherCheckpoint(_)
            | Self::OtherInput { .. }
            | Self::NoHead(_)
            | Self::NotFinite { .. }
            | Self::NoGeneration(_)
            | Self::NoCurrent(_)
            | Self::OtherFormat { .. }
            | Self::Damaged { .. }
            | Self::NoState(_)
            | Self::OtherDrafter { .. }
            | Self::OtherPart { .. }
            | Self::OtherHead(_)
            | Self::OtherVocabularies { .. }
            | Self::NoWeights { .. }
            | Self::OtherBlocks { .. }
            | Self::NoSteps(_) => true,
            Self::Models(_)
            | Self::Model(_)
            | Self::Decode(_)
            | Self::Stream(_)
            | Self::Results(_)
            | Self::Trace(_)
            | Self::Law(_)
            | Self::Policy(_)
            | Self::Sampling(_)
            | Self::States(_)
            | Self::Lacking(_)
            | Self::NoModel(_)
            | Self::NoTarget(_)
            | Self::Unanswered { .. }
            | Self::Features { .. }
            | Self::Learner(_)
            | Self::Diverged(_)
            | Self::InUse(_)
            | Self::TooLarge { .. }
            | Self::Internal(_) => false,
        }
    }
}

/// An error and its causes, the outermost first.
pub(crate) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&cause| cause.source())
}

/// The messages of an error and its causes in one line.
pub fn in_full(error: &(dyn Error + 'static)) -> String {
    let messages: Vec<String> = causes(error).map(|cause| cause.to_string()).collect();
    messages.join(": ")
}

/// The last blocks of a drafter, all weights if there are 0 of them.
fn last_blocks(blocks: usize) -> LearntPart {
    LearntPart { rank: 0, blocks }
}

/// The error that an [`OnlineError`] or a [`ModelsError`] passes on unchanged; any other cause
/// itself. A chain of causes leaves such errors out, as they have the same text.
pub fn passed_on<'a>(cause: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    models::passed_on(models::inner_error!(
        cause,
        OnlineError: Models Lm Model Decode Stream Results Trace Cache Corpus Law Head Policy
            Sampling States System Encode
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_passed_on_is_found_in_a_chain() {
        let error = OnlineError::at("learn.blocks")(LmError::OtherModel);
        let inner = LmError::OtherModel.to_string();
        assert_eq!(in_full(&error), format!("learn.blocks: {inner}"));
        let found: Vec<bool> = causes(&error)
            .map(|cause| passed_on(cause).is::<LmError>())
            .collect();
        assert_eq!(found, [false, true]);
        let error = OnlineError::from(ModelsError::from(LmError::OtherModel));
        assert!(passed_on(&error).is::<LmError>());
        assert_eq!(in_full(&error), inner);
    }

    /// A checkpoint is given up for what its files say, and for nothing else.
    #[test]
    fn what_files_say_is_told_from_other_faults() {
        use std::io::ErrorKind;
        let path = PathBuf::from("weights.safetensors");
        let of_system = |kind: ErrorKind| OnlineError::io(&path)(kind.into());
        let of_weights = |kind: ErrorKind| {
            OnlineError::at("state of arm `a`")(LmError::Io {
                path: path.clone(),
                source: kind.into(),
            })
        };
        for (kind, said) in [
            (ErrorKind::NotFound, true),
            (ErrorKind::InvalidData, true),
            (ErrorKind::UnexpectedEof, true),
            (ErrorKind::PermissionDenied, false),
            (ErrorKind::OutOfMemory, false),
            (ErrorKind::Other, false),
        ] {
            assert_eq!(of_system(kind).is_of_the_files(), said, "{kind}");
            assert_eq!(of_weights(kind).is_of_the_files(), said, "{kind}");
        }
        let started = LmError::Threads {
            threads: 2,
            source: ErrorKind::NotFound.into(),
        };
        for error in [
            OnlineError::from(started),
            OnlineError::from(ModelError::new("no memory")),
            OnlineError::Learner("an update is under way"),
        ] {
            assert!(!error.is_of_the_files(), "{error}");
        }
        for error in [
            OnlineError::from(LmError::OtherModel),
            OnlineError::NoState(path),
        ] {
            assert!(error.is_of_the_files(), "{error}");
        }
    }
}
