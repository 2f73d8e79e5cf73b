//! Bytes of tokens as text, as they come.

/// Bytes on their way to whole characters: a character may take several tokens.
#[derive(Default)]
pub(crate) struct Characters {
    pending: Vec<u8>,
}

impl Characters {
    /// Adds bytes and takes what they complete. Bytes that can become no character are U+FFFD.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.pending) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => self.pending.len(),
        };
        let text = String::from_utf8_lossy(&self.pending[..whole]).into_owned();
        self.pending.drain(..whole);
        text
    }

    /// Takes the rest, U+FFFD for a character without its end.
    pub(crate) fn end(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::Characters;

    #[test]
    fn a_character_comes_whole() {
        let mut characters = Characters::default();
        assert_eq!(characters.push(b"a\xC3"), "a");
        assert_eq!(characters.push(b"\xA9b"), "\u{e9}b");
        assert_eq!(characters.push(b"\xFFc"), "\u{fffd}c");
        assert_eq!(characters.push(b"\xE2\x82"), "");
        assert_eq!(characters.end(), "\u{fffd}");
    }
}
