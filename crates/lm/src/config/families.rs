//! The table from `model_type` to the features of a decoder family, and to the default values of
//! its `config.json`.

use super::{Activation, Architecture, Norms, QkNorm};

/// Layers with an attention window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Windows {
    /// No layer. Keys that set a window are refused.
    Never,
    /// All layers, if `sliding_window` or, without that key, its default is a number.
    All,
    /// The layers that `layer_types` names or, without it, those from `max_window_layers` on; only
    /// if `use_sliding_window` is set.
    Above,
    /// The layers that `layer_types` names or, without it, all but every
    /// `sliding_window_pattern`-th.
    AllBut {
        /// Default of the pattern.
        pattern: usize,
    },
    /// The layers that `layer_types` names or, without it, those without rotation; only if
    /// `use_sliding_window` is set.
    Unrotated,
}

/// Features of the decoders of a `model_type`.
pub(super) struct Family {
    pub(super) model_type: &'static str,
    pub(super) architecture: Architecture,
    /// Class of the model in transformers.
    pub(super) class: &'static str,

    // Features of the computation.
    pub(super) norms: Norms,
    pub(super) norm_offset: bool,
    pub(super) qk_norm: QkNorm,
    /// Biases on queries, keys and values, whatever `attention_bias` says.
    pub(super) qkv_bias: bool,
    /// True if `attention_bias` is a key: biases on all four projections of attention.
    pub(super) attention_bias: bool,
    /// True if `mlp_bias` is a key.
    pub(super) mlp_bias: bool,
    /// Key of the activation, and its default.
    pub(super) activation: (&'static str, Activation),
    pub(super) windows: Windows,
    /// True if a part of each head may stay unrotated.
    pub(super) partial_rotary: bool,
    /// Gemma: the embedding is multiplied by the root of the width, there is
    /// `query_pre_attn_scalar`, and there are soft caps with these defaults (of scores, of logits).
    pub(super) gemma: Option<[Option<f64>; 2]>,
    /// Granite: true if there are the four multipliers.
    pub(super) multipliers: bool,
    /// Phi-3: true if old files call LongRoPE `yarn`.
    pub(super) yarn_is_longrope: bool,

    // Defaults of keys that are left out.
    pub(super) heads: Option<usize>,
    pub(super) kv_heads: Option<usize>,
    pub(super) head_dim: Option<usize>,
    pub(super) vocab_size: Option<usize>,
    pub(super) max_positions: usize,
    pub(super) eps: f64,
    pub(super) theta: f64,
    pub(super) window: Option<usize>,
    /// Number of positions of the training, for scaled rotations.
    pub(super) original_positions: Option<usize>,
    pub(super) tied: bool,
}

const LLAMA: Family = Family {
    model_type: "llama",
    architecture: Architecture::Llama,
    class: "LlamaForCausalLM",
    norms: Norms::Before,
    norm_offset: false,
    qk_norm: QkNorm::None,
    qkv_bias: false,
    attention_bias: true,
    mlp_bias: true,
    activation: ("hidden_act", Activation::Silu),
    windows: Windows::Never,
    partial_rotary: false,
    gemma: None,
    multipliers: false,
    yarn_is_longrope: false,
    heads: None,
    kv_heads: None,
    head_dim: None,
    vocab_size: None,
    max_positions: 2048,
    eps: 1e-6,
    theta: 10_000.0,
    window: None,
    original_positions: None,
    tied: false,
};

const GEMMA2: Family = Family {
    model_type: "gemma2",
    architecture: Architecture::Gemma2,
    class: "Gemma2ForCausalLM",
    norms: Norms::Around,
    norm_offset: true,
    mlp_bias: false,
    activation: ("hidden_activation", Activation::GeluTanh),
    windows: Windows::AllBut { pattern: 2 },
    gemma: Some([Some(50.0), Some(30.0)]),
    kv_heads: Some(4),
    head_dim: Some(256),
    max_positions: 8192,
    window: Some(4096),
    tied: true,
    ..LLAMA
};

/// Every family. Llama comes first, and the others are given by their differences from it.
const FAMILIES: [Family; 10] = [
    LLAMA,
    Family {
        model_type: "mistral",
        architecture: Architecture::Mistral,
        class: "MistralForCausalLM",
        attention_bias: false,
        mlp_bias: false,
        windows: Windows::All,
        kv_heads: Some(8),
        max_positions: 131_072,
        window: Some(4096),
        ..LLAMA
    },
    Family {
        model_type: "qwen2",
        architecture: Architecture::Qwen2,
        class: "Qwen2ForCausalLM",
        qkv_bias: true,
        attention_bias: false,
        mlp_bias: false,
        windows: Windows::Above,
        max_positions: 32_768,
        window: Some(4096),
        ..LLAMA
    },
    Family {
        model_type: "qwen3",
        architecture: Architecture::Qwen3,
        class: "Qwen3ForCausalLM",
        qk_norm: QkNorm::Head,
        mlp_bias: false,
        windows: Windows::Above,
        head_dim: Some(128),
        max_positions: 32_768,
        window: Some(4096),
        ..LLAMA
    },
    Family {
        model_type: "phi3",
        architecture: Architecture::Phi3,
        class: "Phi3ForCausalLM",
        attention_bias: false,
        mlp_bias: false,
        windows: Windows::All,
        partial_rotary: true,
        yarn_is_longrope: true,
        max_positions: 4096,
        original_positions: Some(4096),
        eps: 1e-5,
        ..LLAMA
    },
    GEMMA2,
    Family {
        model_type: "gemma3_text",
        architecture: Architecture::Gemma3,
        class: "Gemma3ForCausalLM",
        qk_norm: QkNorm::Head,
        windows: Windows::AllBut { pattern: 6 },
        gemma: Some([None, None]),
        heads: Some(8),
        vocab_size: Some(262_208),
        max_positions: 131_072,
        theta: 1_000_000.0,
        ..GEMMA2
    },
    Family {
        model_type: "smollm3",
        architecture: Architecture::SmolLM3,
        class: "SmolLM3ForCausalLM",
        windows: Windows::Unrotated,
        kv_heads: Some(4),
        max_positions: 32_768,
        theta: 2_000_000.0,
        tied: true,
        ..LLAMA
    },
    Family {
        model_type: "olmo2",
        architecture: Architecture::Olmo2,
        class: "Olmo2ForCausalLM",
        norms: Norms::After,
        qk_norm: QkNorm::Full,
        mlp_bias: false,
        eps: 1e-5,
        ..LLAMA
    },
    Family {
        model_type: "granite",
        architecture: Architecture::Granite,
        class: "GraniteForCausalLM",
        multipliers: true,
        ..LLAMA
    },
];

/// Model types whose files have their decoder in the object `text_config`, each with the model type
/// of that decoder.
const NESTED: [(&str, &str); 1] = [("gemma3", "gemma3_text")];

impl Family {
    /// The family of a `model_type`.
    pub(super) fn named(model_type: &str) -> Option<&'static Self> {
        FAMILIES
            .iter()
            .find(|family| family.model_type == model_type)
    }

    /// The family of the text model of a `model_type` that contains other models too.
    pub(super) fn nested_in(model_type: &str) -> Option<&'static Self> {
        let (_, inner) = NESTED.iter().find(|(outer, _)| *outer == model_type)?;
        Self::named(inner)
    }

    /// Key of the rotation base of windowed layers, if the family has a separate one.
    pub(super) fn local_rope(&self) -> Option<&'static str> {
        (self.architecture == Architecture::Gemma3).then_some("rope_local_base_freq")
    }

    /// The family of an architecture.
    pub(super) fn of(architecture: Architecture) -> &'static Self {
        let found = FAMILIES.iter().find(|f| f.architecture == architecture);
        found.unwrap_or(&FAMILIES[0])
    }
}

/// Every supported `model_type`, for messages.
pub(super) fn known_model_types() -> String {
    let direct = FAMILIES.iter().map(|family| family.model_type);
    let nested = NESTED.iter().map(|(outer, _)| *outer);
    direct.chain(nested).collect::<Vec<_>>().join(", ")
}
