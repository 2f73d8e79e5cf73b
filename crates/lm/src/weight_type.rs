//! How an engine stores weights, keys and values.

/// How the engine stores weights, and what it rounds the inputs of projections to. The residual
/// stream, attention and the sums over groups of inputs are f32 always.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WeightType {
    /// Exactly the checkpoint's values. Those that bf16 holds may be stored in less: see
    /// `cpu_engine::Compact`.
    #[default]
    F32,
    /// Projections, their inputs and the embedding rounded to nearest even bf16; half the memory
    /// traffic, or less: see `cpu_engine::Compact`.
    Bf16,
    /// Projections in 8 bits with a scale per 64 inputs, itself in 8 bits against the largest of its
    /// output; their inputs in 8 bits with an f32 scale per 64; embedding in bf16.
    Int8,
    /// The same in 4 bits with a scale per 32 inputs; inputs in 8 bits with a scale per 32.
    Int4,
}

impl WeightType {
    /// All of them, the widest first.
    pub const ALL: [Self; 4] = [Self::F32, Self::Bf16, Self::Int8, Self::Int4];

    /// Name in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
            Self::Int4 => "int4",
        }
    }
}

impl std::fmt::Display for WeightType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// How the engine stores keys and values. What is computed from them is f32 either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum KvType {
    /// As they were computed.
    #[default]
    F32,
    /// Rounded to half precision, those beyond 65504 to that: half the memory. Logits differ a little
    /// from those with [`KvType::F32`], alike for every batch.
    F16,
}

impl std::fmt::Display for KvType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
        })
    }
}

/// How a model is to be decoded, whichever engine does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineSettings {
    /// Storage of the weights.
    pub weights: WeightType,
    /// Storage of keys and values.
    pub kv: KvType,
    /// Threads.
    pub threads: usize,
    /// Most tokens of prompt and answer; the model's `max_position_embeddings` if that is less or none
    /// is given.
    pub context: Option<usize>,
}

impl EngineSettings {
    /// Weights in this storage, on so many threads; keys and values in f32, no bound on the context but
    /// the model's own.
    pub fn new(weights: WeightType, threads: usize) -> Self {
        Self {
            weights,
            kv: KvType::F32,
            threads,
            context: None,
        }
    }
}
