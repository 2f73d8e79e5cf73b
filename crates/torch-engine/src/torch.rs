//! A worker with a loaded model.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::{ModelFault, TorchError};
use crate::frame::{self, Answer, Call, MAGIC, VERSION};
use crate::options::{Interpreter, TorchOptions};
use crate::process::Process;

/// Factor by which loading may take longer than other calls.
const LOADING: u32 = 10;

/// Description of a loaded model.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Facts {
    /// Number of columns of a row of logits.
    pub vocab_size: usize,
    /// Largest number of tokens of a sequence.
    pub max_len: usize,
    /// Class of the model in transformers.
    pub architecture: String,
    /// Type of the weights, as PyTorch names it.
    pub dtype: String,
    /// Devices of the weights, as PyTorch names them.
    pub device: String,
    /// Number of parameters; a tied head counts once, and matrices in GPTQ or AWQ do not count.
    pub parameters: u64,
    /// Number of threads of the processor.
    pub threads: usize,
    /// Version of PyTorch.
    pub torch: String,
    /// Version of transformers.
    pub transformers: String,
}

/// A worker that holds a model. A clone shares it; the process ends with the last clone and the
/// last [`TorchEngine`](crate::TorchEngine).
#[derive(Clone)]
pub struct Torch {
    inner: Arc<Inner>,
}

struct Inner {
    facts: Facts,
    worker: Mutex<Worker>,
}

/// A process, and what became of it.
pub(crate) struct Worker {
    process: Option<Process>,
    /// Time that a call may take.
    limit: Duration,
    /// Message of the error that ended the process.
    ended: String,
    python: String,
    sequences: HashSet<u32>,
}

/// Options of a worker's `Load`.
#[derive(Serialize)]
struct Load<'a> {
    model: &'a str,
    dtype: &'a str,
    device_map: &'a str,
    max_len: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    threads: Option<usize>,
    /// Least seconds of a forward; `None` if they are not counted.
    clock: Option<f64>,
}

/// Reason of a worker for having no result.
#[derive(Deserialize)]
#[serde(tag = "code", rename_all = "snake_case")]
enum Failure {
    Package {
        package: String,
        message: String,
    },
    Model {
        model: String,
        fault: ModelFault,
        message: String,
    },
    Device {
        device_map: String,
        message: String,
    },
    Cache {
        architecture: String,
        layer: String,
        message: String,
    },
    Memory {
        message: String,
    },
    Failed {
        message: String,
    },
}

impl Torch {
    /// Starts a worker with the [usual interpreter](Interpreter::from_env) and loads a model.
    ///
    /// # Errors
    /// A Python that does not start or lacks packages; a model that cannot be held, or whose KV
    /// cache cannot be truncated; a device without enough memory.
    pub fn load(options: &TorchOptions) -> Result<Self, TorchError> {
        Self::load_with(&Interpreter::from_env(), options)
    }

    /// As [`load`](Self::load), with this interpreter.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    pub fn load_with(
        interpreter: &Interpreter,
        options: &TorchOptions,
    ) -> Result<Self, TorchError> {
        let mut worker = Worker {
            process: Some(Process::start(interpreter)?),
            limit: options.timeout.saturating_mul(LOADING),
            ended: String::new(),
            python: interpreter.python.to_string_lossy().into_owned(),
            sequences: HashSet::new(),
        };
        worker.greet()?;
        Self::with_worker(worker, options)
    }

    /// Loads another model into the process, in place of this one. It saves the seconds in which
    /// Python reads its libraries.
    ///
    /// # Errors
    /// As for [`load`](Self::load); [`TorchError::Shared`] if a clone or a sequence still uses the
    /// present model, which then stays.
    pub fn load_another(self, options: &TorchOptions) -> Result<Self, TorchError> {
        let inner = Arc::try_unwrap(self.inner).map_err(|_| TorchError::Shared)?;
        let worker = inner.worker.into_inner();
        Self::with_worker(worker.unwrap_or_else(PoisonError::into_inner), options)
    }

    /// Has a worker load a model.
    fn with_worker(mut worker: Worker, options: &TorchOptions) -> Result<Self, TorchError> {
        worker.limit = options.timeout.saturating_mul(LOADING);
        let load = Load {
            model: &options.model,
            dtype: options.dtype.name(),
            device_map: &options.device_map,
            max_len: options.max_len,
            threads: options.threads,
            clock: options.clock.map(|least| least.as_secs_f64()),
        };
        let load = serde_json::to_vec(&load).map_err(|error| TorchError::Failed {
            during: Call::Load.name(),
            message: error.to_string(),
        })?;
        let facts = worker.text(Call::Load, &load)?;
        let facts: Facts =
            serde_json::from_slice(&facts).map_err(|error| TorchError::Protocol {
                during: Call::Load.name(),
                message: format!("facts that are none: {error}"),
            })?;
        worker.limit = options.timeout;
        let worker = Mutex::new(worker);
        Ok(Self {
            inner: Arc::new(Inner { facts, worker }),
        })
    }

    /// Description of the model.
    pub fn facts(&self) -> &Facts {
        &self.inner.facts
    }

    /// Begins an empty sequence. Returns its number.
    pub(crate) fn begin(&self) -> Result<u32, TorchError> {
        let mut worker = self.worker();
        let taken = &worker.sequences;
        let free = (0..=u32::MAX).find(|id| !taken.contains(id));
        let id = free.ok_or_else(|| TorchError::Failed {
            during: Call::Begin.name(),
            message: "there are too many sequences".to_owned(),
        })?;
        worker.empty(Call::Begin, &id.to_le_bytes())?;
        worker.sequences.insert(id);
        Ok(id)
    }

    /// Ends a sequence. Its memory becomes free.
    pub(crate) fn end(&self, id: u32) {
        let mut worker = self.worker();
        worker.sequences.remove(&id);
        // With the worker its sequences ended too.
        _ = worker.empty(Call::End, &id.to_le_bytes());
    }

    /// Seconds that the forwards of all sequences took in the worker so far, for options with a
    /// [`clock`](TorchOptions::clock); otherwise 0.
    ///
    /// # Errors
    /// A call that fails.
    pub fn model_seconds(&self) -> Result<f64, TorchError> {
        let bytes = self.worker().text(Call::Clock, &[])?;
        let seconds = bytes.as_slice().try_into().map(f64::from_le_bytes);
        seconds.map_err(|_| TorchError::Protocol {
            during: Call::Clock.name(),
            message: format!("a time of {} bytes", bytes.len()),
        })
    }

    /// The worker, for calls that wait for each other.
    pub(crate) fn worker(&self) -> MutexGuard<'_, Worker> {
        let worker = self.inner.worker.lock();
        worker.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Worker {
    /// Reads the worker's greeting.
    fn greet(&mut self) -> Result<(), TorchError> {
        let found = self.exchange("starting", |process| {
            let (answer, len) = frame::head(&mut process.stdout)?;
            let text = frame::text(&mut process.stdout, len)?;
            Ok(text.filter(|_| answer == Some(Answer::Hello)))
        })?;
        let version = found.as_deref().and_then(|found| {
            let version = found.strip_prefix(MAGIC)?.first_chunk()?;
            Some(u32::from_le_bytes(*version))
        });
        match version {
            Some(VERSION) => Ok(()),
            Some(found) => Err(TorchError::Version {
                found,
                expected: VERSION,
            }),
            None => Err(TorchError::Protocol {
                during: "starting",
                message: "no greeting".to_owned(),
            }),
        }
    }

    /// A call without a result.
    pub(crate) fn empty(&mut self, call: Call, body: &[u8]) -> Result<(), TorchError> {
        self.floats(call, body, &mut [])
    }

    /// A call whose result are bytes.
    pub(crate) fn text(&mut self, call: Call, body: &[u8]) -> Result<Vec<u8>, TorchError> {
        self.call(call, body, |process, len| {
            frame::text(&mut process.stdout, len)
        })
    }

    /// A call whose result are as many numbers as there is room for.
    pub(crate) fn floats(
        &mut self,
        call: Call,
        body: &[u8],
        numbers: &mut [f32],
    ) -> Result<(), TorchError> {
        self.call(call, body, |process, len| {
            if len != size_of_val(numbers) {
                return Ok(None);
            }
            frame::floats(&mut process.stdout, numbers)?;
            Ok(Some(()))
        })
    }

    /// A call and its answer. `read` reads the body of the answer, or returns nothing if it has
    /// another length than it must have.
    fn call<T>(
        &mut self,
        call: Call,
        body: &[u8],
        read: impl FnOnce(&mut Process, usize) -> io::Result<Option<T>>,
    ) -> Result<T, TorchError> {
        let during = call.name();
        let answer = self.exchange(during, |process| {
            frame::write(&mut process.stdin, call as u32, body)?;
            let (kind, len) = frame::head(&mut process.stdout)?;
            Ok(match kind {
                Some(Answer::Done) => read(process, len)?.map(Ok).ok_or((kind, len)),
                Some(Answer::Failed) => {
                    let text = frame::text(&mut process.stdout, len)?;
                    text.map(Err).ok_or((kind, len))
                }
                _ => Err((kind, len)),
            })
        })?;
        match answer {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(text)) => Err(self.failure(during, &text)),
            Err((kind, len)) => {
                let kind = kind.map_or("unknown".to_owned(), |kind| format!("{kind:?}"));
                let message = format!("a frame of {len} bytes that cannot be (kind: {kind})");
                // Nobody knows where the next answer begins.
                self.ended.clone_from(&message);
                self.process = None;
                Err(TorchError::Protocol { during, message })
            }
        }
    }

    /// Runs an exchange of frames within the limit. The worker ends if that fails.
    fn exchange<T>(
        &mut self,
        during: &'static str,
        exchange: impl FnOnce(&mut Process) -> io::Result<T>,
    ) -> Result<T, TorchError> {
        let Some(mut process) = self.process.take() else {
            let message = self.ended.clone();
            return Err(TorchError::Ended { message });
        };
        let limit = self.limit;
        // A limit beyond the clock is none.
        process.deadline(Instant::now().checked_add(limit));
        let done = exchange(&mut process);
        process.deadline(None);
        if let Ok(result) = done {
            self.process = Some(process);
            return Ok(result);
        }
        let end = process.end();
        let said = end.said;
        let error = match end.timed_out {
            true => TorchError::TimedOut {
                during,
                limit,
                said,
            },
            false => TorchError::Died {
                during,
                status: end.status,
                said,
            },
        };
        self.ended = error.to_string();
        Err(error)
    }

    fn failure(&self, during: &'static str, text: &[u8]) -> TorchError {
        let failure = serde_json::from_slice(text);
        match failure {
            Ok(Failure::Package { package, message }) => TorchError::Package {
                python: self.python.clone(),
                package,
                message,
            },
            Ok(Failure::Model {
                model,
                fault,
                message,
            }) => TorchError::Model {
                model,
                fault,
                message,
            },
            Ok(Failure::Device {
                device_map,
                message,
            }) => TorchError::Device {
                device_map,
                message,
            },
            Ok(Failure::Cache {
                architecture,
                layer,
                message,
            }) => TorchError::Cache {
                architecture,
                layer,
                message,
            },
            Ok(Failure::Memory { message }) => TorchError::Memory { during, message },
            Ok(Failure::Failed { message }) => TorchError::Failed { during, message },
            Err(error) => TorchError::Protocol {
                during,
                message: format!("an error that is none: {error}"),
            },
        }
    }
}
