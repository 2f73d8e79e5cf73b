//! Words for names of experiments and metrics in figures.

use results::Metric;

/// Words for names of files and keys.
const WORDS: [(&str, &str); 29] = [
    ("gsm8k", "GSM8K"),
    ("mbpp_humaneval", "code"),
    ("alpaca", "Alpaca"),
    ("xsum", "XSum"),
    ("qwen", "Qwen2.5-Coder"),
    ("smollm2", "SmolLM2"),
    ("llama-3", "Llama-3 tokens"),
    ("qwen2", "Qwen2 tokens"),
    ("autoregressive", "plain decoding"),
    ("prompt-lookup", "prompt lookup"),
    ("stream-lookup", "copies from the stream"),
    ("automaton-lookup", "copies by the automaton"),
    ("L_DM+L_N-gram", "L_DM + L_N-gram"),
    ("L_DM+L_N-gram+lookup", "L_DM + L_N-gram + lookup"),
    ("L_DM+L_N-gram LoRA", "L_DM + L_N-gram with LoRA"),
    ("decode.k", "draft length k"),
    ("decode.gamma", "threshold gamma"),
    ("decode.temperature", "temperature"),
    ("decode.threshold", "threshold"),
    ("decode.lookup", "lookup"),
    ("decode.policy", "rule of the draft length"),
    ("learn.lambda", "lambda"),
    ("learn.lr", "learning rate"),
    ("learn.replay", "prompts replayed"),
    ("learn.lora.rank", "rank"),
    ("learn.direct", "direct loss"),
    ("learn.ngram", "n-gram loss"),
    ("cache.capacity", "size of the cache"),
    ("cache.policy", "entries dropped"),
];

/// Words for a name; the name itself if there are none.
pub fn words(name: &str) -> &str {
    let found = WORDS.iter().find(|(own, _)| *own == name);
    found.map_or(name, |(_, words)| words)
}

/// Words for the parts of a name, for an axis, a legend or a title. Parts are separated by commas
/// and arrows, values from keys by equals signs.
pub fn readable(text: &str) -> String {
    let part = |part: &str| match part.split_once('=') {
        Some((key, value)) => format!("{} {}", words(key.trim()), words(value.trim())),
        None => words(part).to_owned(),
    };
    let among = |text: &str| text.split(", ").map(part).collect::<Vec<_>>().join(", ");
    let switches: Vec<String> = match words(text) {
        same if same == text => text.split(" → ").map(among).collect(),
        known => return known.to_owned(),
    };
    switches.join(" → ")
}

/// Label of an axis, with its unit if there is one.
pub fn axis(metric: Metric) -> &'static str {
    match metric {
        Metric::Acceptance => "acceptance",
        Metric::TokensPerRound => "tokens a round",
        Metric::DraftLength => "drafted tokens a round",
        Metric::BytesPerRound => "bytes a round",
        Metric::HitsPerRound => "n-gram hits a round",
        Metric::HitsPerResponse => "n-gram hits an answer",
        Metric::NgramAcceptance => "acceptance of n-grams",
        Metric::Speedup => "speed over plain decoding",
        Metric::SpeedupEndToEnd => "speed over plain, end to end",
        Metric::ModelledSpeedup => "modelled speed over plain",
        Metric::ImpliedSpeedup => "modelled speed, implied price",
        Metric::CountedSpeedup => "counted speed over plain",
        Metric::TokensPerSecond => "tokens a second",
        Metric::CacheNgrams => "n-grams in the cache",
        other => other.title(),
    }
}

/// Value of a metric that plain decoding has by definition, for a reference line.
pub fn plain_level(metric: Metric) -> Option<f64> {
    let speeds = [
        Metric::TokensPerRound,
        Metric::Speedup,
        Metric::SpeedupEndToEnd,
        Metric::ModelledSpeedup,
        Metric::ImpliedSpeedup,
        Metric::CountedSpeedup,
    ];
    speeds.contains(&metric).then_some(1.0)
}

/// Capitalises the first letter; symbols of the paper stay as they are.
pub fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => String::new(),
    }
}

/// `a`, `a and b`, `a, b and c`.
pub fn listed(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_said_in_words() {
        assert_eq!(readable("mbpp_humaneval"), "code");
        assert_eq!(readable("L-8M, gsm8k"), "L-8M, GSM8K");
        assert_eq!(readable("gsm8k → mbpp_humaneval"), "GSM8K → code");
        assert_eq!(
            readable("gsm8k, decode.temperature=0.01"),
            "GSM8K, temperature 0.01"
        );
        assert_eq!(readable("decode.k = 4"), "draft length k 4");
        assert_eq!(
            readable("L_DM+L_N-gram, forward KL"),
            "L_DM + L_N-gram, forward KL"
        );
        assert_eq!(readable("something else"), "something else");
    }

    #[test]
    fn words_are_listed() {
        let words =
            |words: &[&str]| listed(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>());
        assert_eq!(words(&["a"]), "a");
        assert_eq!(words(&["a", "b", "c"]), "a, b and c");
        assert_eq!(sentence("ab"), "Ab");
    }
}
