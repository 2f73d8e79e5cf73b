//! The matrices of a block under PEFT's names.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};

use crate::LmConfig;

/// One matrix of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Projection {
    /// Queries.
    Query,
    /// Keys.
    Key,
    /// Values.
    Value,
    /// Output of attention, to the residual stream.
    Output,
    /// The MLP's gate.
    Gate,
    /// The MLP's inner values, which the gate multiplies.
    Up,
    /// Output of the MLP, to the residual stream.
    Down,
}

impl Projection {
    /// All projections, in the order of [`expected_tensors`](crate::expected_tensors).
    pub const ALL: [Self; 7] = [
        Self::Query,
        Self::Key,
        Self::Value,
        Self::Output,
        Self::Gate,
        Self::Up,
        Self::Down,
    ];

    /// Name of the module, as in `target_modules` of PEFT.
    pub fn name(self) -> &'static str {
        match self {
            Self::Query => "q_proj",
            Self::Key => "k_proj",
            Self::Value => "v_proj",
            Self::Output => "o_proj",
            Self::Gate => "gate_proj",
            Self::Up => "up_proj",
            Self::Down => "down_proj",
        }
    }

    /// Name of the module inside a block.
    pub(crate) fn part(self) -> String {
        let parent = match self {
            Self::Query | Self::Key | Self::Value | Self::Output => "self_attn",
            Self::Gate | Self::Up | Self::Down => "mlp",
        };
        format!("{parent}.{}", self.name())
    }

    /// Numbers of outputs and inputs, the rows and columns of its matrix in a model.
    pub(super) fn shape(self, config: &LmConfig) -> (usize, usize) {
        let (d, f) = (config.hidden_size, config.intermediate_size);
        match self {
            Self::Query => (config.q_width(), d),
            Self::Key | Self::Value => (config.kv_width(), d),
            Self::Output => (d, config.q_width()),
            Self::Gate | Self::Up => (f, d),
            Self::Down => (d, f),
        }
    }
}

/// A set of projections. In files it is a list of names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Projections(u8);

impl Projections {
    /// All seven projections.
    pub const ALL: Self = Self(0x7f);

    /// The members, always in the same order.
    pub fn iter(self) -> impl Iterator<Item = Projection> {
        Projection::ALL
            .into_iter()
            .filter(move |p| self.0 & (1 << *p as u8) != 0)
    }

    /// True if there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<Projection> for Projections {
    fn from_iter<I: IntoIterator<Item = Projection>>(members: I) -> Self {
        Self(members.into_iter().fold(0, |set, p| set | 1 << p as u8))
    }
}

impl fmt::Debug for Projections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl Serialize for Projections {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(Projection::name))
    }
}

impl<'de> Deserialize<'de> for Projections {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        let known = |name: &String| {
            let found = Projection::ALL.into_iter().find(|p| p.name() == name);
            found.ok_or_else(|| {
                let all = Projection::ALL.map(Projection::name).join(", ");
                D::Error::custom(format!("unknown projection `{name}` (one of {all})"))
            })
        };
        names.iter().map(known).collect()
    }
}
