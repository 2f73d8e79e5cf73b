//! Conversion of a token's string in `tokenizer.json` to its bytes.

/// SentencePiece's sign for a space, U+2581.
pub(crate) const SPACE_SIGN: char = '▁';

/// The byte-level alphabet's sign for a space, U+0120.
pub(crate) const BYTE_LEVEL_SPACE: char = 'Ġ';

/// Encoding of bytes as strings in a vocabulary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spelling {
    /// Every byte is one printable character (GPT-2, Llama-3, Qwen2).
    ByteLevel,
    /// Text as it is, with `▁` for a space (SentencePiece).
    SpaceSign,
    /// Text as it is.
    Plain,
}

impl Spelling {
    /// The character for a word-initial space in this encoding.
    pub(crate) fn space(self) -> char {
        match self {
            Self::ByteLevel => BYTE_LEVEL_SPACE,
            Self::SpaceSign => SPACE_SIGN,
            Self::Plain => ' ',
        }
    }

    /// The bytes of a model token. Byte-fallback tokens are handled by [`fallback_byte`].
    pub(crate) fn bytes_of(self, content: &str, out: &mut Vec<u8>) {
        out.clear();
        match self {
            Self::Plain => out.extend_from_slice(content.as_bytes()),
            Self::SpaceSign => {
                for (i, part) in content.split(SPACE_SIGN).enumerate() {
                    if i > 0 {
                        out.push(b' ');
                    }
                    out.extend_from_slice(part.as_bytes());
                }
            }
            Self::ByteLevel => {
                for c in content.chars() {
                    match byte_of_char(c) {
                        Some(byte) => out.push(byte),
                        // A token outside the alphabet stands for its own text.
                        None => {
                            out.clear();
                            out.extend_from_slice(content.as_bytes());
                            return;
                        }
                    }
                }
            }
        }
    }
}

/// The byte-level alphabet: printable Latin-1 bytes stand for themselves, the others are moved to
/// U+0100 and up in ascending order.
pub fn char_of_byte(byte: u8) -> char {
    let code = match byte {
        0x00..=0x20 => 0x100 + u32::from(byte),
        0x7F..=0xA0 => 0x121 + u32::from(byte - 0x7F),
        0xAD => 0x143,
        printable => u32::from(printable),
    };
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The inverse of [`char_of_byte`].
pub(crate) fn byte_of_char(c: char) -> Option<u8> {
    match u32::from(c) {
        code @ 0x100..=0x120 => Some((code - 0x100) as u8),
        code @ 0x121..=0x142 => Some((code - 0x121) as u8 + 0x7F),
        0x143 => Some(0xAD),
        code @ (0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF) => Some(code as u8),
        _ => None,
    }
}

/// The byte of a byte-fallback token `<0xNN>`.
pub(crate) fn fallback_byte(content: &str) -> Option<u8> {
    let hex = content.strip_prefix("<0x")?.strip_suffix('>')?;
    (hex.len() == 2 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
        .then(|| u8::from_str_radix(hex, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_is_a_bijection_with_the_known_signs() {
        let chars: std::collections::BTreeSet<char> = (0..=255).map(char_of_byte).collect();
        assert_eq!(chars.len(), 256);
        assert!((0..=255).all(|b| byte_of_char(char_of_byte(b)) == Some(b)));
        assert_eq!(char_of_byte(b' '), 'Ġ');
        assert_eq!(char_of_byte(b'\n'), 'Ċ');
        assert_eq!(char_of_byte(b'\t'), 'ĉ');
        assert_eq!(char_of_byte(0xFF), 'ÿ');
        assert_eq!(byte_of_char('▁'), None);
    }

    #[test]
    fn spellings_of_the_same_text() {
        let bytes = |spelling: Spelling, content: &str| {
            let mut out = vec![1];
            spelling.bytes_of(content, &mut out);
            out
        };
        assert_eq!(bytes(Spelling::ByteLevel, "ĠcafÃ©Ċ"), " café\n".as_bytes());
        assert_eq!(bytes(Spelling::SpaceSign, "▁▁café"), "  café".as_bytes());
        assert_eq!(bytes(Spelling::Plain, "▁é"), "▁é".as_bytes());
        assert_eq!(bytes(Spelling::ByteLevel, "▁"), "▁".as_bytes());
    }

    #[test]
    fn only_two_hex_digits_make_a_byte_token() {
        assert_eq!(fallback_byte("<0x0A>"), Some(b'\n'));
        assert_eq!(fallback_byte("<0xfF>"), Some(255));
        for other in ["<0x0>", "<0x00A>", "<0x+A>", "0x0A", "<0xGG>", ""] {
            assert_eq!(fallback_byte(other), None, "{other}");
        }
    }
}
