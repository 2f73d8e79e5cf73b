//! Strings that tokenizers often get wrong, drawn from a seed.

/// Words of many scripts, symbols, control characters and signs with a meaning for tokenizers.
const PARTS: &[&str] = &[
    "the",
    "The",
    " visitor",
    "it's",
    "DON'T",
    "Straße",
    "naïve",
    "cafe\u{301}",
    "Å",
    "Å",
    "ﬁ",
    "x²",
    "Ελλάδα",
    "Привет",
    "שלום",
    "مرحبا",
    "नमस्ते",
    "สวัสดี",
    "日本語",
    "漢",
    "한국어",
    "\u{1112}\u{1161}\u{11ab}",
    "ქართული",
    "አማርኛ",
    "ଓଡ଼ିଆ",
    "தமிழ்",
    "Tiếng Việt",
    "e\u{327}\u{301}",
    "a\u{301}\u{327}",
    "ß",
    "ſ",
    "İ",
    "Ǆ",
    "😀",
    "👩‍👩‍👧",
    "🏳️‍🌈",
    "👍🏽",
    "🇩🇪",
    "☃",
    "𝔘𝔫𝔦",
    "①",
    "٣",
    "१२",
    "Ⅻ",
    "½",
    "\u{0}",
    "\u{7f}",
    "\u{85}",
    "\u{a0}",
    "\u{ad}",
    "\u{200b}",
    "\u{200d}",
    "\u{2028}",
    "\u{3000}",
    "\u{feff}",
    "\u{fffd}",
    "\u{10ffff}",
    "\t",
    "\n",
    "\r",
    "\r\n",
    "\n\n",
    " ",
    "  ",
    "    ",
    "<s>",
    "</s>",
    "<unk>",
    "a<s>b",
    "<s>x",
    "<|im_start|>",
    "<|im_end|>",
    "x<|endoftext|>y",
    "<|user|>",
    "<|begin_of_text|>",
    "<|eot_id|>",
    "<|im_",
    "end|>",
    "<0x0A>",
    "▁",
    "▁▁",
    "Ġ",
    "Ċ",
    "[INST]",
    ".",
    ",",
    "!",
    "...",
    "—",
    "“",
    "”",
    "(",
    ")",
    "{}",
    "[]",
    "==",
    "//",
    "#",
    "$",
    "%",
    "_",
    "\\",
    "'",
    "\"",
    "0",
    "7",
    "42",
    "2024",
    "3.14",
    "1,000,000",
    "def f(x):\n\treturn x",
    "http://a.b/c?d=e",
    "aaaa",
];

/// A random generator with good high bits.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

/// Text of up to a few hundred bytes.
pub fn string(dice: &mut Dice) -> String {
    let mut text = String::new();
    for _ in 0..dice.below(24) {
        match dice.below(12) {
            0 => text.push_str(&" ".repeat(1 + dice.below(40))),
            1 => {
                let digits = 1 + dice.below(40);
                text.extend((0..digits).map(|_| char::from(b'0' + dice.below(10) as u8)));
            }
            2 => text.extend(char::from_u32(dice.below(0x11_0000) as u32)),
            3 => {
                let run = PARTS[dice.below(PARTS.len())];
                text.push_str(&run.repeat(1 + dice.below(6)));
            }
            4 | 5 => {
                text.push(' ');
                text.push_str(PARTS[dice.below(PARTS.len())]);
            }
            _ => text.push_str(PARTS[dice.below(PARTS.len())]),
        }
    }
    text
}

pub fn strings(seed: u64, count: usize) -> Vec<String> {
    let mut dice = Dice::new(seed);
    (0..count).map(|_| string(&mut dice)).collect()
}
