//! A small `tokenizer.model`, made in code.

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn field(out: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    varint(out, number << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn flag(out: &mut Vec<u8>, number: u64, value: u64) {
    varint(out, number << 3);
    varint(out, value);
}

/// A model of byte tokens and some words, of kind `kind`, that keeps or removes extra spaces.
pub fn model(kind: u64, remove: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut piece = |text: &str, score: f32, kind: u64| {
        let mut inner = Vec::new();
        field(&mut inner, 1, text.as_bytes());
        varint(&mut inner, 2 << 3 | 5);
        inner.extend_from_slice(&score.to_le_bytes());
        flag(&mut inner, 3, kind);
        field(&mut out, 1, &inner);
    };
    piece("<unk>", 0.0, 2);
    piece("<s>", 0.0, 3);
    piece("</s>", 0.0, 3);
    for byte in 0..=255 {
        piece(&format!("<0x{byte:02X}>"), 0.0, 6);
    }
    let words = [
        "▁", "h", "e", "l", "o", "w", "r", "d", "he", "ll", "llo", "hello", "▁hello", "▁w", "or",
        "▁wor", "ld", "▁world", "lo",
    ];
    for (i, word) in words.into_iter().enumerate() {
        piece(word, -(i as f32), 1);
    }
    let (mut trainer, mut normalizer) = (Vec::new(), Vec::new());
    flag(&mut trainer, 3, kind);
    flag(&mut trainer, 35, 1);
    flag(&mut normalizer, 3, 1);
    flag(&mut normalizer, 4, u64::from(remove));
    flag(&mut normalizer, 5, 1);
    field(&mut out, 2, &trainer);
    field(&mut out, 3, &normalizer);
    out
}
