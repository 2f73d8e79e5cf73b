//! The parent of workers: it counts, and starts the next one after an input that killed the last.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::worker::{self, Line};
use crate::{LONGEST_S, MOST_MEMORY, Reader};

/// Inputs of one worker; a fresh one now and then keeps leaks of libraries from adding up.
const INPUTS: u64 = 20_000;
/// Number of failures after which a reader is left: more of them would show nothing new.
const MOST_FAILURES: usize = 50;

/// Kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The reader panicked.
    Panic,
    /// The process was killed: stack, memory, abort.
    Abort,
    /// It took longer than [`LONGEST_S`].
    Hang,
    /// It took more than [`MOST_MEMORY`].
    Memory,
}

/// An input that failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Its number.
    pub index: u64,
    /// Kind of the failure.
    pub kind: Kind,
    /// Message and place of a panic, end of the process, seconds or bytes.
    pub message: String,
}

/// Counts of a reader's inputs by their outcome.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// The reader.
    pub reader: String,
    /// Kind of files that it reads.
    pub what: String,
    /// Inputs tried.
    pub executions: u64,
    /// Of them read.
    pub accepted: u64,
    /// Of them refused with an error.
    pub refused: u64,
    /// Longest time of one input, in seconds.
    pub longest_s: f64,
    /// Largest memory of one input, in bytes.
    pub most_bytes: usize,
    /// Inputs that failed; the reader is left after `MOST_FAILURES` of them.
    pub failures: Vec<Failure>,
}

impl Tally {
    /// Nothing tried yet.
    pub fn new(reader: &Reader) -> Self {
        Self {
            reader: reader.name.to_owned(),
            what: reader.what.to_owned(),
            ..Self::default()
        }
    }

    fn fail(&mut self, index: u64, kind: Kind, message: String) {
        self.failures.push(Failure {
            index,
            kind,
            message,
        });
    }

    fn take(&mut self, index: u64, line: Line) {
        match line {
            Line::Begin(_) => self.executions += 1,
            Line::Panic(message) => self.fail(index, Kind::Panic, message),
            Line::End {
                accepted,
                seconds,
                bytes,
            } => {
                self.accepted += u64::from(accepted);
                self.refused += u64::from(!accepted);
                self.longest_s = self.longest_s.max(seconds);
                self.most_bytes = self.most_bytes.max(bytes);
                if bytes > MOST_MEMORY {
                    self.fail(index, Kind::Memory, format!("{bytes} bytes"));
                }
            }
        }
    }
}

/// Tries inputs of a reader in processes of `program`.
///
/// # Errors
/// A program that cannot be started or fails before its first input.
pub fn run(
    program: &Path,
    reader: &Reader,
    seed: u64,
    executions: u64,
    mut progress: impl FnMut(u64),
) -> Result<Tally> {
    let mut tally = Tally::new(reader);
    let mut next = 0;
    while next < executions && tally.failures.len() < MOST_FAILURES {
        let end = executions.min(next + INPUTS);
        let mut worker = Worker::start(program, reader, seed, next, end)?;
        let (reached, whole) = worker.watch(&mut tally, &mut progress)?;
        ensure!(
            whole || reached.is_some(),
            "the worker of `{}` ended before its first input",
            reader.name
        );
        next = match reached {
            Some(index) if !whole => index + 1,
            _ => end,
        };
    }
    Ok(tally)
}

struct Worker {
    child: Child,
    lines: mpsc::Receiver<Result<Line>>,
    _scratch: tempfile::TempDir,
}

impl Worker {
    fn start(program: &Path, reader: &Reader, seed: u64, from: u64, to: u64) -> Result<Self> {
        let scratch = scratch_folder()?;
        let mut command = Command::new(program);
        command
            .args(["worker", reader.name, "--seed", &seed.to_string()])
            .args(["--from", &from.to_string(), "--to", &to.to_string()])
            .arg("--scratch")
            .arg(scratch.path());
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| program.display().to_string())?;
        let out = child.stdout.take().context("a worker without output")?;
        let (send, lines) = mpsc::sync_channel(1024);
        thread::spawn(move || {
            for line in worker::lines(out) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self {
            child,
            lines,
            _scratch: scratch,
        })
    }

    /// Follows the worker to its end. Returns the number of the last input begun, and true if the
    /// process ended without a failure.
    fn watch(
        &mut self,
        tally: &mut Tally,
        progress: &mut impl FnMut(u64),
    ) -> Result<(Option<u64>, bool)> {
        let mut at = None;
        let mut open = false;
        loop {
            match self.lines.recv_timeout(Duration::from_secs_f64(LONGEST_S)) {
                Ok(line) => {
                    let line = line?;
                    open = matches!(line, Line::Begin(_));
                    if let Line::Begin(index) = line {
                        at = Some(index);
                        progress(tally.executions);
                    }
                    tally.take(at.unwrap_or_default(), line);
                }
                Err(RecvTimeoutError::Timeout) if open => {
                    let index = at.unwrap_or_default();
                    tally.fail(index, Kind::Hang, format!("more than {LONGEST_S} s"));
                    // An error means that it has ended already; the next line waits for it either
                    // way.
                    let _ = self.child.kill();
                    self.child.wait()?;
                    return Ok((at, false));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait()?;
                    if open {
                        tally.fail(at.unwrap_or_default(), Kind::Abort, status.to_string());
                    }
                    return Ok((at, status.success()));
                }
            }
        }
    }
}

/// In memory where the system has such a place: inputs are files, and there are many.
fn scratch_folder() -> Result<tempfile::TempDir> {
    let memory = PathBuf::from("/dev/shm");
    let folder = match memory.is_dir() {
        true => tempfile::tempdir_in(memory),
        false => tempfile::tempdir(),
    };
    Ok(folder?)
}
