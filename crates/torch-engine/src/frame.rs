//! Frames between program and worker.
//!
//! A frame is its kind and the number of bytes that follow, both u32, and these bytes. All numbers
//! are little-endian.

use std::io::{self, Read, Write};

/// Version of the protocol. `VERSION` of the worker has to be the same.
pub(crate) const VERSION: u32 = 1;
/// First bytes of a worker's greeting, before its version.
pub(crate) const MAGIC: &[u8; 8] = b"omniwork";

/// Largest body of an answer that is not logits, in bytes.
const LONGEST_TEXT: usize = 1 << 24;

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// Loads a model. JSON; the answer is JSON.
    Load = 1,
    /// Begins a sequence. Its number.
    Begin = 2,
    /// Ends a sequence. Its number.
    End = 3,
    /// Truncates a sequence and appends tokens. Its number, the number of tokens kept, the number
    /// of last rows of logits to keep on the device, 1 if these rows are the answer and 0 for none,
    /// then the tokens.
    Forward = 4,
    /// Best columns of all rows that are kept. The sequence's number; the answer is an i64 a row,
    /// -1 for a row without a best column.
    Best = 5,
    /// Fetches rows that are kept. The sequence's number, the first row and the one after the last;
    /// the answer is their logits, f32.
    Rows = 6,
    /// Seconds of all forwards so far, an f64.
    Clock = 7,
}

impl Call {
    /// Name in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Load => "loading",
            Self::Begin | Self::End | Self::Clock => "bookkeeping",
            Self::Forward => "a forward",
            Self::Best | Self::Rows => "reading logits",
        }
    }
}

/// Kind of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The result.
    Done,
    /// JSON that says why there is none.
    Failed,
    /// The greeting.
    Hello,
}

/// Writes a frame.
pub(crate) fn write(to: &mut impl Write, kind: u32, body: &[u8]) -> io::Result<()> {
    let len = u32::try_from(body.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut frame = Vec::with_capacity(8 + body.len());
    frame.extend(kind.to_le_bytes());
    frame.extend(len.to_le_bytes());
    frame.extend(body);
    to.write_all(&frame)?;
    to.flush()
}

/// Reads the head of an answer: its kind, if it is known, and the number of bytes that follow.
pub(crate) fn head(from: &mut impl Read) -> io::Result<(Option<Answer>, usize)> {
    let mut head = [[0; 4]; 2];
    from.read_exact(head.as_flattened_mut())?;
    let [kind, len] = head.map(u32::from_le_bytes);
    let kind = match kind {
        0 => Some(Answer::Done),
        1 => Some(Answer::Failed),
        2 => Some(Answer::Hello),
        _ => None,
    };
    Ok((kind, len as usize))
}

/// Reads a body of so many bytes; `None`, with nothing read, if it is too long for a text.
pub(crate) fn text(from: &mut impl Read, len: usize) -> io::Result<Option<Vec<u8>>> {
    if len > LONGEST_TEXT {
        return Ok(None);
    }
    let mut body = vec![0; len];
    from.read_exact(&mut body)?;
    Ok(Some(body))
}

/// Reads numbers.
pub(crate) fn floats(from: &mut impl Read, numbers: &mut [f32]) -> io::Result<()> {
    from.read_exact(bytemuck::cast_slice_mut(numbers))?;
    if cfg!(target_endian = "big") {
        for number in numbers {
            *number = f32::from_bits(number.to_bits().swap_bytes());
        }
    }
    Ok(())
}
