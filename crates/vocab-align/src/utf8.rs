//! Text of tokens as they come.

/// Decoder of a stream of bytes to whole characters, each of which may take several tokens.
#[derive(Debug, Default)]
pub struct Utf8Stream {
    pending: Vec<u8>,
}

impl Utf8Stream {
    /// Adds bytes and takes the text that they complete. Bytes that cannot be part of a character
    /// become U+FFFD.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let last = self.pending.utf8_chunks().last();
        let last = last.map_or(&[][..], |chunk| chunk.invalid());
        let waiting = match std::str::from_utf8(last) {
            Err(error) if error.error_len().is_none() => last.len(),
            _ => 0,
        };
        let rest = self.pending.split_off(self.pending.len() - waiting);
        let whole = std::mem::replace(&mut self.pending, rest);
        String::from_utf8_lossy(&whole).into_owned()
    }

    /// Takes the rest, U+FFFD for a character without its end.
    pub fn end(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::Utf8Stream;

    #[test]
    fn a_character_comes_whole() {
        let mut stream = Utf8Stream::default();
        assert_eq!(stream.push(b"a\xC3"), "a");
        assert_eq!(stream.push(b"\xA9b"), "\u{e9}b");
        assert_eq!(stream.push(b"\xFFc"), "\u{fffd}c");
        assert_eq!(stream.push(b"\xFF\xE2\x82"), "\u{fffd}");
        assert_eq!(stream.push(b"\xAC\xE2\x82"), "\u{20ac}");
        assert_eq!(stream.end(), "\u{fffd}");
        assert_eq!(stream.end(), "");
    }
}
