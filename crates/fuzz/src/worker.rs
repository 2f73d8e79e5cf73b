//! The process that tries inputs. It tells its parent what it is about to do, so that the parent
//! knows which input it died of.

use std::cell::RefCell;
use std::io::{self, BufRead, Write};
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::{Corpus, Reader};

/// A line of JSON from a worker to its parent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Line {
    /// The input of this number is tried next.
    Begin(u64),
    /// An input was read or refused.
    End {
        /// True if it was read, and what was read was used; false if an error was returned.
        accepted: bool,
        /// Time it took, in seconds.
        seconds: f64,
        /// Largest number of bytes held at once, over those before.
        bytes: usize,
    },
    /// An input made the reader panic, with this message and place.
    Panic(String),
}

/// Memory of this process as its allocator counts it.
#[derive(Debug, Clone, Copy)]
pub struct Meter {
    /// Bytes held now.
    pub live: fn() -> usize,
    /// Largest number of bytes held since the last call, which starts anew.
    pub peak: fn() -> usize,
}

thread_local! {
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Tries inputs one after the other and writes [`Line`]s to stdout. The folder `scratch` is emptied
/// before each.
///
/// # Errors
/// Seeds that cannot be made, a folder that cannot be emptied, a parent that has gone.
pub fn run(
    reader: &'static Reader,
    seed: u64,
    inputs: Range<u64>,
    scratch: &Path,
    meter: Meter,
) -> Result<()> {
    panic::set_hook(Box::new(|info| {
        LAST_PANIC.with(|last| *last.borrow_mut() = info.to_string().replace('\n', " "));
    }));
    let corpus = Corpus::of(reader)?;
    let mut out = io::stdout().lock();
    let mut say = |line: &Line| -> io::Result<()> {
        serde_json::to_writer(&mut out, line)?;
        out.write_all(b"\n")?;
        out.flush()
    };
    for index in inputs {
        let input = corpus.input(seed, index);
        empty(scratch)?;
        say(&Line::Begin(index))?;
        let before = (meter.live)();
        (meter.peak)();
        let start = Instant::now();
        let read = || (reader.read)(scratch, &input).is_ok();
        let read = panic::catch_unwind(AssertUnwindSafe(read));
        let seconds = start.elapsed().as_secs_f64();
        let bytes = (meter.peak)().saturating_sub(before);
        say(&match read {
            Ok(accepted) => Line::End {
                accepted,
                seconds,
                bytes,
            },
            Err(_) => Line::Panic(LAST_PANIC.with(RefCell::take)),
        })?;
    }
    Ok(())
}

/// The lines of a worker.
pub fn lines(from: impl io::Read) -> impl Iterator<Item = Result<Line>> {
    let lines = io::BufReader::new(from).lines();
    lines.map(|line| {
        let line = line?;
        serde_json::from_str(&line).with_context(|| format!("a worker said `{line}`"))
    })
}

fn empty(folder: &Path) -> Result<()> {
    let failed = || folder.display().to_string();
    for entry in std::fs::read_dir(folder).with_context(failed)? {
        let path = entry.with_context(failed)?.path();
        match path.is_dir() {
            true => std::fs::remove_dir_all(&path).with_context(failed)?,
            false => std::fs::remove_file(&path).with_context(failed)?,
        }
    }
    Ok(())
}
