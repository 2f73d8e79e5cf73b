//! Prompts with text that is difficult for tokenizers.

use anyhow::Result;
use spec_decode::{Purpose, StreamName};

use streams::{DataSource, MiniTask, Split, StreamSpec};

/// Texts that different tokenizers split very differently.
const PIECES: [&str; 28] = [
    "Größe, naïveté, œuvre, smörgåsbord",
    "Привет, как дела?",
    "漢字とかな、カタカナ",
    "你好，世界！今天天气很好。",
    "안녕하세요 여러분",
    "مرحبا بالعالم",
    "שלום עולם",
    "नमस्ते दुनिया",
    "สวัสดีชาวโลก",
    "Ελληνικά: αβγ",
    "👩‍👩‍👧‍👦 🏳️‍🌈 🧑🏽‍💻",
    "😀😃😄 👍🏿 ❤️‍🔥 🇩🇪🇯🇵",
    "e\u{301}a\u{308} combined, ﬁ ligature, Å",
    "zero\u{200b}width and soft\u{ad}hyphen",
    "½ + ⅓ = ⅚, x² ≥ 0, ∀ε>0 ∃δ",
    "“quotes” ‘nested’ — dash… ellipsis",
    "fn main() { println!(\"{:?}\", v.iter().map(|x| x?)); }",
    "def f(x):\n\treturn x ** 2  # squared\n",
    "for (int i = 0; i < n; ++i) { a[i] <<= 3; }",
    "SELECT name, COUNT(*) FROM users WHERE age >= 18 GROUP BY name;",
    "<div class=\"a b\">&nbsp;</div> <!-- end -->",
    "{\"key\": [1, 2.5e-10, null, true], \"ключ\": \"値\"}",
    "\\frac{\\partial f}{\\partial x} = \\sum_{i=1}^{n} x_i",
    "<|im_end|> </s> <think> are only words here",
    "3.14159 1,000,000 0xDEADBEEF 1e-9 ١٢٣",
    "tabs\tand   many    spaces \r\n  and line breaks\n\n\n",
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝓂𝒶𝓉𝒽 ＦＵＬＬｗｉｄｔｈ",
];

const REQUESTS: [&str; 4] = [
    "Repeat this exactly: ",
    "Explain: ",
    "Translate and continue: ",
    "",
];

/// `count` prompts: a fifth from each mini stream, a fifth of mixed texts.
pub(super) fn prompts(count: usize, seed: u64) -> Result<Vec<String>> {
    let kinds = MiniTask::ALL.len() + 1;
    let mut streams = Vec::new();
    for task in MiniTask::ALL {
        let spec = StreamSpec::new(task.name(), Split::Train)
            .limit(count.div_ceil(kinds))
            .shuffled();
        let loaded = spec.load(&DataSource::embedded(), seed)?;
        streams.push(loaded.into_iter().map(|prompt| prompt.prompt));
    }
    let prompts = (0..count).map(|number| {
        let stream = streams.get_mut(number % kinds);
        // A stream that has ended is continued by mixed texts.
        stream
            .and_then(Iterator::next)
            .unwrap_or_else(|| mixed(seed, number as u64))
    });
    Ok(prompts.collect())
}

/// Two or three pieces in a row.
fn mixed(seed: u64, number: u64) -> String {
    let mut dice = StreamName::new(seed, number).dice(Purpose::Plain);
    let mut below = |n: usize| (dice.uniform() * n as f64) as usize;
    let mut text = REQUESTS[below(REQUESTS.len())].to_owned();
    for part in 0..2 + below(2) {
        if part > 0 {
            text.push(' ');
        }
        text.push_str(PIECES[below(PIECES.len())]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_many_and_distinct() {
        let asked = prompts(500, 0).unwrap();
        assert_eq!(asked.len(), 500);
        let distinct: std::collections::BTreeSet<_> = asked.iter().collect();
        assert!(distinct.len() > 480, "{}", distinct.len());
        assert!(asked.iter().filter(|text| !text.is_ascii()).count() > 70);
    }
}
