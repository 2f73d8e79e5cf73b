//! How an engine stores weights.

/// How the engine stores weights, and what it rounds the inputs of projections to. The residual
/// stream, the KV cache, attention and the sums over groups of inputs are f32 always.
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

impl std::fmt::Display for WeightType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
            Self::Int4 => "int4",
        })
    }
}
