//! The process of a worker: started, watched and ended.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::TorchError;
use crate::options::Interpreter;

/// Reads the worker from standard input, first its length, and runs it. So the worker needs no
/// file, and `ps` shows a short command.
const BOOTSTRAP: &str = r#"
import os, sys
def read(count):
    data = b""
    while len(data) < count:
        part = os.read(0, count - len(data))
        if not part:
            sys.exit(0)
        data += part
    return data
if sys.path[:1] == [""]:
    del sys.path[0]
exec(compile(read(int.from_bytes(read(4), "little")), "torch_worker.py", "exec"))
"#;

/// Number of last lines of standard error that an error contains.
const SAID: usize = 20;
/// Time between two checks of the deadline and the process.
const TICK: Duration = Duration::from_millis(100);
/// Time that a process has to end by itself after its pipes were closed.
const GRACE: Duration = Duration::from_secs(2);

/// A running worker.
pub(crate) struct Process {
    /// Pipe to the worker.
    pub(crate) stdin: ChildStdin,
    /// Pipe from the worker.
    pub(crate) stdout: BufReader<ChildStdout>,
    watch: Arc<Watch>,
    said: Arc<Mutex<VecDeque<String>>>,
    hears: Option<thread::JoinHandle<()>>,
}

/// End of a worker.
pub(crate) struct End {
    /// True if it was killed because a call took too long.
    pub(crate) timed_out: bool,
    /// Exit code or signal.
    pub(crate) status: String,
    /// Last lines on standard error.
    pub(crate) said: Vec<String>,
}

/// State that the thread of the process shares with the callers.
#[derive(Default)]
struct Watch {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Time at which the process is killed; `None` for no limit.
    deadline: Option<Instant>,
    /// Time that the process has to end by itself before it is killed; `None` if it need not end.
    end: Option<Duration>,
    timed_out: bool,
    /// Result of the process; `None` while it runs.
    ended: Option<io::Result<ExitStatus>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Process {
    /// Starts a worker.
    pub(crate) fn start(interpreter: &Interpreter) -> Result<Self, TorchError> {
        let script = interpreter.script().map_err(|source| TorchError::Worker {
            path: interpreter.worker.clone().unwrap_or_default(),
            source,
        })?;
        let python = interpreter.python.to_string_lossy().into_owned();
        let failed = |source| TorchError::Python { python, source };
        Self::launch(interpreter, &script).map_err(failed)
    }

    fn launch(interpreter: &Interpreter, script: &str) -> io::Result<Self> {
        let mut command = Command::new(&interpreter.python);
        command.args(["-u", "-c", BOOTSTRAP]);
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let watch = Arc::new(Watch::default());
        let (started, starts) = mpsc::channel();
        let watching = Arc::clone(&watch);
        // This thread starts the process and outlives it: Linux ends a process that asked for it
        // when the thread ends that started it.
        thread::Builder::new()
            .name("torch-worker".to_owned())
            .spawn(move || match command.spawn() {
                Ok(mut child) => {
                    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
                    // Nobody receives them if the caller is gone; the process ends by that.
                    _ = started.send(Ok(pipes));
                    watching.over(child);
                }
                Err(error) => _ = started.send(Err(error)),
            })?;
        let pipes = starts.recv().map_err(io::Error::other)??;
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(io::Error::other("it has no pipes"));
        };
        let said = Arc::new(Mutex::new(VecDeque::new()));
        let heard = Arc::clone(&said);
        let hears = thread::Builder::new()
            .name("torch-worker-stderr".to_owned())
            .spawn(move || listen(stderr, &heard))?;
        let mut process = Self {
            stdin,
            stdout: BufReader::new(stdout),
            watch,
            said,
            hears: Some(hears),
        };
        // A process that is gone already is reported by the first call.
        _ = process.send(script);
        Ok(process)
    }

    fn send(&mut self, script: &str) -> io::Result<()> {
        let len = u32::try_from(script.len()).map_err(io::Error::other)?;
        self.stdin.write_all(&len.to_le_bytes())?;
        self.stdin.write_all(script.as_bytes())?;
        self.stdin.flush()
    }

    /// Sets the time at which the process is killed; `None` for no limit.
    pub(crate) fn deadline(&self, at: Option<Instant>) {
        lock(&self.watch.state).deadline = at;
    }

    /// Waits for the end of a process that no longer answers.
    pub(crate) fn end(mut self) -> End {
        let (timed_out, status) = self.watch.end(GRACE);
        if let Some(hears) = self.hears.take() {
            // Its standard error may be held open by a process that it started.
            let until = Instant::now() + GRACE;
            while !hears.is_finished() && Instant::now() < until {
                thread::sleep(Duration::from_millis(2));
            }
        }
        let said = lock(&self.said).iter().cloned().collect();
        End {
            timed_out,
            status,
            said,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.watch.end(Duration::ZERO);
    }
}

impl Watch {
    /// Waits until the process ends, or ends it at the deadline or on request.
    fn over(&self, mut child: Child) {
        let mut state = lock(&self.state);
        let grace = loop {
            if let Some(grace) = state.end {
                break grace;
            }
            if state.deadline.is_some_and(|at| at <= Instant::now()) {
                state.timed_out = true;
                break Duration::ZERO;
            }
            // It may end while no call waits for it; without this, it would stay a zombie.
            if !matches!(child.try_wait(), Ok(None)) {
                break Duration::ZERO;
            }
            let waited = self.changed.wait_timeout(state, TICK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        // A call that waits for it has the error.
        let idle = state.end.is_none() && state.deadline.is_none();
        drop(state);
        let ended = finish(&mut child, grace);
        if let (true, Ok(status)) = (idle, &ended) {
            tracing::warn!("the worker of PyTorch ended: {status}");
        }
        lock(&self.state).ended = Some(ended);
        self.changed.notify_all();
    }

    /// Ends the process: waits for `grace`, then kills it. Returns true if it had been killed at
    /// its deadline, and its exit code or signal.
    fn end(&self, grace: Duration) -> (bool, String) {
        let mut state = lock(&self.state);
        state.end.get_or_insert(grace);
        self.changed.notify_all();
        loop {
            match &state.ended {
                Some(Ok(status)) => return (state.timed_out, status.to_string()),
                Some(Err(error)) => return (state.timed_out, error.to_string()),
                None => {}
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Waits for a process to end, and kills it after `grace`.
fn finish(child: &mut Child, grace: Duration) -> io::Result<ExitStatus> {
    let until = Instant::now() + grace;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() >= until {
            child.kill()?;
            return child.wait();
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Keeps the last lines of standard error and logs all of them.
fn listen(stderr: ChildStderr, said: &Mutex<VecDeque<String>>) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    while let Ok(1..) = stderr.read_until(b'\n', &mut line) {
        let text = String::from_utf8_lossy(&line);
        // Of a progress bar only the last state counts.
        let text = text.trim_end().rsplit('\r').next().unwrap_or_default();
        if !text.is_empty() {
            tracing::debug!(target: "torch_worker", "{text}");
            let mut said = lock(said);
            if said.len() == SAID {
                said.pop_front();
            }
            said.push_back(text.to_owned());
        }
        line.clear();
    }
}
