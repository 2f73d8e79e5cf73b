//! Presets of arms: the paper's methods, and methods for comparison.

use crate::load::Node;

/// A preset: its name, its description, and the keys that it sets.
pub(crate) struct Preset {
    pub(crate) name: &'static str,
    pub(crate) meaning: &'static str,
    pub(crate) keys: &'static [(&'static str, &'static str)],
}

/// All presets, in the order of tables.
pub(crate) const PRESETS: [Preset; 10] = [
    Preset {
        name: "autoregressive",
        meaning: "The target alone: the reference of every speedup.",
        keys: &[
            ("decode.verify", "none"),
            ("cache.use", "none"),
            ("learn.objective", "none"),
            ("head.training", "none"),
        ],
    },
    Preset {
        name: "prompt-lookup",
        meaning: "Drafts looked up in prompt and response, no drafter.",
        keys: &[
            ("decode.verify", "tli"),
            ("decode.draft", "prompt-lookup"),
            ("cache.use", "none"),
            ("learn.objective", "none"),
            ("head.training", "none"),
        ],
    },
    Preset {
        name: "stream-lookup",
        meaning: "Drafts looked up in prompt, response and the stream before them, as long as pays; no drafter.",
        keys: &[
            ("decode.verify", "tli"),
            ("decode.draft", "prompt-lookup"),
            ("decode.lookup", "stream"),
            ("cache.use", "none"),
            ("learn.objective", "none"),
            ("head.training", "none"),
        ],
    },
    Preset {
        name: "automaton-lookup",
        meaning: "As `stream-lookup`, with what followed the longest match in these texts most often.",
        keys: &[
            ("decode.verify", "tli"),
            ("decode.draft", "prompt-lookup"),
            ("decode.lookup", "automaton"),
            ("cache.use", "none"),
            ("learn.objective", "none"),
            ("head.training", "none"),
        ],
    },
    Preset {
        name: "SpD_DM",
        meaning: "The drafter as it comes, directly mapped tokens only.",
        keys: &[
            ("decode.verify", "tli"),
            ("cache.use", "none"),
            ("learn.objective", "none"),
        ],
    },
    Preset {
        name: "N-gram_pp",
        meaning: "The drafter as it comes, n-grams cached while it streams and merged.",
        keys: &[
            ("decode.verify", "paper"),
            ("cache.use", "online"),
            ("learn.objective", "none"),
        ],
    },
    Preset {
        name: "static n-grams",
        meaning: "The drafter as it comes, n-grams of the vocabularies merged.",
        keys: &[
            ("decode.verify", "paper"),
            ("cache.use", "static"),
            ("learn.objective", "none"),
        ],
    },
    Preset {
        name: "L_DM",
        meaning: "Learns from directly mapped tokens.",
        keys: &[
            ("decode.verify", "tli"),
            ("cache.use", "none"),
            ("learn.objective", "hybrid"),
            ("learn.direct", "reverse-kl"),
            ("learn.ngram", "none"),
        ],
    },
    Preset {
        name: "L_DM+L_N-gram",
        meaning: "OmniDraft: learns from directly mapped tokens and from n-grams, which it caches and merges.",
        keys: &[
            ("decode.verify", "paper"),
            ("cache.use", "online"),
            ("learn.objective", "hybrid"),
            ("learn.direct", "reverse-kl"),
            ("learn.ngram", "nll"),
        ],
    },
    Preset {
        name: "L_DM+L_N-gram+lookup",
        meaning: "OmniDraft with looked-up text in front of its drafts or in their place, judged in blocks, exactly.",
        keys: &[
            ("decode.verify", "exact"),
            ("decode.lookup", "stream"),
            ("decode.acceptance", "block"),
            ("cache.use", "online"),
            ("learn.objective", "hybrid"),
            ("learn.direct", "reverse-kl"),
            ("learn.ngram", "nll"),
        ],
    },
];

/// The keys of a preset as a patch.
pub(crate) fn patch(name: &str) -> Option<Node> {
    let preset = PRESETS.iter().find(|preset| preset.name == name)?;
    let mut patch = Node::table(None);
    for (key, value) in preset.keys {
        patch.put(key, Node::leaf(*value));
    }
    Some(patch)
}

pub(crate) fn names() -> String {
    PRESETS
        .map(|preset| format!("`{}`", preset.name))
        .join(", ")
}
