//! Data sources, and the part of a task that a run streams.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{MiniTask, PaperSplit, Prompt, SourceError, StreamError, StreamRng, load_prompts};

/// Environment variable naming a folder that holds `datasets/`.
pub const DATA_ENV: &str = "OMNIDRAFT_SHARED";

/// One of the two halves of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Split {
    /// Prompts that are streamed once while the drafter learns.
    #[default]
    Train,
    /// Prompts that are held out for evaluation.
    Test,
}

impl Split {
    /// `train` or `test`: the stem of the split's file, and the name of its list in a split file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Test => "test",
        }
    }
}

/// Endings that the file of a split may have, in the order of preference.
const FORMS: [&str; 4] = ["jsonl", "jsonl.gz", "json", "json.gz"];

/// Path of the file of a split: the file that is named after it, or the only file of a folder in
/// which none is named after a split, as benchmarks are published.
fn data_file(folder: &Path, task: &str, split: Split) -> Result<PathBuf, StreamError> {
    let named = |split: Split| {
        let files = FORMS.map(|form| folder.join(format!("{}.{form}", split.name())));
        files.into_iter().find(|file| file.is_file())
    };
    if let Some(found) = named(split) {
        return Ok(found);
    }
    let missing = StreamError::MissingTask {
        task: task.to_owned(),
        path: folder.join(format!("{}.jsonl", split.name())),
    };
    if [Split::Train, Split::Test]
        .into_iter()
        .any(|split| named(split).is_some())
    {
        return Err(missing);
    }
    let mut files = prompt_files(folder)?;
    match files.len() {
        0 => Err(missing),
        1 => Ok(folder.join(files.remove(0))),
        _ => Err(StreamError::SeveralFiles {
            task: task.to_owned(),
            folder: folder.to_owned(),
            files,
        }),
    }
}

/// Names of the files in a task's folder that may hold prompts, in order.
fn prompt_files(folder: &Path) -> Result<Vec<String>, StreamError> {
    let failed = StreamError::read(folder);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let form = FORMS.iter().any(|form| name.ends_with(&format!(".{form}")));
        if form && name != PaperSplit::FILE && entry.path().is_file() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Prompts by conversation: a later turn stands after the turn before it.
fn conversations(prompts: Vec<Prompt>) -> Vec<Vec<Prompt>> {
    let mut all: Vec<Vec<Prompt>> = Vec::new();
    for prompt in prompts {
        match all.last_mut().filter(|_| !prompt.earlier.is_empty()) {
            Some(last) => last.push(prompt),
            None => all.push(vec![prompt]),
        }
    }
    all
}

/// A source of tasks that are in no folder yet, for example a hub that downloads them.
pub trait TaskSource: std::fmt::Debug + Send + Sync {
    /// Folder of the prepared tasks, with one subfolder per task. It need not exist yet.
    fn folder(&self) -> PathBuf;

    /// Path of the task's folder, prepared first if it is not there yet; `None` if this source does
    /// not know the task.
    ///
    /// # Errors
    /// The task cannot be prepared.
    fn prepare(&self, task: &str) -> Result<Option<PathBuf>, SourceError>;
}

/// A source of tasks: a data directory with one folder per task, or the embedded mini streams.
///
/// A folder holds `train.jsonl`, `test.jsonl` and, optionally, `paper_split.json`, whose lists then
/// decide which records belong to a split and in which order. A folder with one file of another
/// name is a benchmark as it was published: both splits are that file, unless `paper_split.json`
/// divides it. Files may also be JSON arrays (`.json`) or compressed by gzip (`.gz`).
#[derive(Debug, Clone, Default)]
pub struct DataSource {
    directory: Option<PathBuf>,
    source: Option<Arc<dyn TaskSource>>,
}

impl DataSource {
    /// A source with the embedded streams alone.
    pub fn embedded() -> Self {
        Self::default()
    }

    /// Tasks of `directory`. A name that has no folder there is looked up among the embedded
    /// streams.
    pub fn directory(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: Some(directory.into()),
            source: None,
        }
    }

    /// Tasks that `source` prepares, each at its first use.
    pub fn from_source(source: Arc<dyn TaskSource>) -> Self {
        Self {
            directory: Some(source.folder()),
            source: Some(source),
        }
    }

    /// A source for the directory `data_dir`. If `None`, `datasets/` under the folder that
    /// [`DATA_ENV`] names; without that variable, the embedded streams alone.
    pub fn resolve(data_dir: Option<PathBuf>) -> Self {
        let from_env = || {
            std::env::var_os(DATA_ENV)
                .filter(|v| !v.is_empty())
                .map(|v| Path::new(&v).join("datasets"))
        };
        Self {
            directory: data_dir.or_else(from_env),
            source: None,
        }
    }

    /// The data directory, if there is one.
    pub fn data_dir(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// True if no [`TaskSource`] would have to prepare a task: it is embedded, its folder is there,
    /// or there is no such source.
    pub fn is_here(&self, task: &str) -> bool {
        let folder = self.directory.as_ref().map(|folder| folder.join(task));
        folder.is_some_and(|folder| folder.is_dir())
            || self.source.is_none()
            || MiniTask::from_name(task).is_some()
    }

    /// All prompts of one split of a task, in file or split order.
    ///
    /// # Errors
    /// Unknown task, no data directory, or anything wrong in the task's files.
    pub fn load(&self, task: &str, split: Split) -> Result<Vec<Prompt>, StreamError> {
        match self.locate(task)? {
            Place::Embedded(mini) => mini.prompts(split),
            Place::Folder(folder) => {
                let data = data_file(&folder, task, split)?;
                let prompts = load_prompts(&data, task)?;
                let split_file = folder.join(PaperSplit::FILE);
                if !split_file.is_file() {
                    return Ok(prompts);
                }
                // A list names a conversation by its first prompt.
                let picked = PaperSplit::load(&split_file)?.pick(
                    split.name(),
                    conversations(prompts),
                    |talk| talk.first().map_or("", |prompt| &prompt.id),
                    &data.display().to_string(),
                )?;
                Ok(picked.into_iter().flatten().collect())
            }
        }
    }

    /// Path of the file that holds a split of a task, whatever its form; `None` if the task is
    /// embedded. `paper_split.json` may divide the file.
    ///
    /// # Errors
    /// Unknown task, no data directory, no file of the split, or several that may be it.
    pub fn file(&self, task: &str, split: Split) -> Result<Option<PathBuf>, StreamError> {
        match self.locate(task)? {
            Place::Embedded(_) => Ok(None),
            Place::Folder(folder) => data_file(&folder, task, split).map(Some),
        }
    }

    /// Every record of the task's training file, including those that its split file leaves out.
    /// Pretraining uses them.
    ///
    /// # Errors
    /// As [`load`](Self::load), except for faults of the split file.
    pub fn load_training_pool(&self, task: &str) -> Result<Vec<Prompt>, StreamError> {
        match self.locate(task)? {
            Place::Embedded(mini) => mini.prompts(Split::Train),
            Place::Folder(folder) => {
                let data = data_file(&folder, task, Split::Train)?;
                load_prompts(&data, task)
            }
        }
    }

    /// Ids that no training may see, with the split that reserves each: the test lists of every
    /// split file in the data directory, and the embedded test streams.
    ///
    /// # Errors
    /// A data directory or a split file that cannot be read; a split file without a test list.
    pub fn test_ids(&self) -> Result<HashMap<String, String>, StreamError> {
        let mut reserved = HashMap::new();
        for mini in MiniTask::ALL {
            let name = format!("{} test", mini.name());
            reserved.extend(
                mini.prompts(Split::Test)?
                    .into_iter()
                    .map(|p| (p.id, name.clone())),
            );
        }
        let Some(directory) = &self.directory else {
            return Ok(reserved);
        };
        let failed = StreamError::read(directory);
        let folders = match std::fs::read_dir(directory) {
            // Nothing has been downloaded yet.
            Err(e) if self.source.is_some() && e.kind() == std::io::ErrorKind::NotFound => {
                return Ok(reserved);
            }
            folders => folders.map_err(failed)?,
        };
        for folder in folders {
            let path = folder.map_err(failed)?.path().join(PaperSplit::FILE);
            if path.is_file() {
                let name = path.display().to_string();
                let split = PaperSplit::load(&path)?;
                reserved.extend(
                    split
                        .ids(Split::Test.name())?
                        .iter()
                        .map(|id| (id.clone(), name.clone())),
                );
            }
        }
        Ok(reserved)
    }

    fn locate(&self, task: &str) -> Result<Place, StreamError> {
        // A task is one folder name: no configuration may read outside the data directory.
        let plain = !task.is_empty()
            && task
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        if !plain || task.starts_with('.') {
            return Err(StreamError::BadTaskName(task.to_owned()));
        }
        if let Some(source) = &self.source
            && let Some(folder) = source.prepare(task)?
        {
            return Ok(Place::Folder(folder));
        }
        let folder = self.directory.as_ref().map(|d| d.join(task));
        match (MiniTask::from_name(task), folder) {
            (_, Some(folder)) if folder.is_dir() => Ok(Place::Folder(folder)),
            (Some(mini), _) => Ok(Place::Embedded(mini)),
            (None, Some(path)) => Err(StreamError::MissingTask {
                task: task.to_owned(),
                path,
            }),
            (None, None) => Err(StreamError::NoDataDir(task.to_owned())),
        }
    }
}

enum Place {
    Embedded(MiniTask),
    Folder(PathBuf),
}

/// Seed of the order of every held-out stream, whatever the seed of the run. All seeds and arms of
/// an experiment therefore answer the same prompts, and their answers can be compared in pairs.
/// Changing it changes the content of every limited held-out stream.
pub const TEST_ORDER_SEED: u64 = 0;

/// The prompts that a run streams: task, split, number and order.
///
/// Held-out prompts always come in the same shuffled order ([`TEST_ORDER_SEED`]). The first prompts
/// of a file may all be of one kind, so a limited stream in file order would not represent its
/// split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamSpec {
    /// Name of a folder of the data directory, or of an embedded mini stream.
    pub task: String,
    /// Split of the task.
    pub split: Split,
    /// Largest number of prompts, counted after ordering: a limited shuffled stream is a random
    /// sample.
    pub limit: Option<usize>,
    /// Number of prompts to skip first, after ordering. A task that comes back in a drifting stream
    /// continues where it stopped, because a repeated prompt would be answered from memory.
    pub skip: usize,
    /// True if the run's seed orders training prompts; otherwise they come in the file's order. The
    /// order of held-out prompts does not depend on it.
    pub shuffle: bool,
}

impl StreamSpec {
    /// All prompts of a split, training prompts in file order.
    pub fn new(task: impl Into<String>, split: Split) -> Self {
        Self {
            task: task.into(),
            split,
            limit: None,
            skip: 0,
            shuffle: false,
        }
    }

    /// Limits the stream to `limit` prompts.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Orders training prompts by the seed given to [`StreamSpec::load`].
    pub fn shuffled(mut self) -> Self {
        self.shuffle = true;
        self
    }

    /// Name of the stream: task and split. With the seed it determines the order.
    pub fn stream_name(&self) -> String {
        format!("{}:{}", self.task, self.split.name())
    }

    /// The seed that with the stream's name determines the order under a run's `seed`, a
    /// permutation of the whole split; `None` for the order of [`DataSource::load`]. The run's seed
    /// matters only for training prompts, and only if `shuffle` is set.
    pub fn order(&self, seed: u64) -> Option<u64> {
        match self.split {
            Split::Test => Some(TEST_ORDER_SEED),
            Split::Train => self.shuffle.then_some(seed),
        }
    }

    /// Loads the prompts in the order of [`StreamSpec::order`]: those after `skip`, at most
    /// `limit`.
    ///
    /// # Errors
    /// As [`DataSource::load`]; a limit of 0; with a `skip` above 0, a stream that has fewer
    /// prompts than `skip` and `limit` ask for. If `skip` is 0, a shorter stream gives all of its
    /// prompts.
    pub fn load(&self, source: &DataSource, seed: u64) -> Result<Vec<Prompt>, StreamError> {
        let mut prompts = source.load(&self.task, self.split)?;
        if let Some(seed) = self.order(seed) {
            let mut talks = conversations(prompts);
            StreamRng::new(seed, &self.stream_name()).shuffle(&mut talks);
            prompts = talks.into_iter().flatten().collect();
        }
        let available = prompts.len();
        if self.skip > 0 {
            let wanted = self.skip.saturating_add(self.limit.unwrap_or(1));
            if wanted > available {
                return Err(StreamError::StreamExhausted {
                    stream: self.stream_name(),
                    wanted,
                    available,
                });
            }
            prompts.drain(..self.skip);
        }
        prompts.truncate(self.limit.unwrap_or(usize::MAX));
        if prompts.is_empty() {
            return Err(StreamError::EmptyStream(self.stream_name()));
        }
        Ok(prompts)
    }
}
