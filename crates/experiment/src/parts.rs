//! The parsed parts of an experiment, between reading and expansion.

use crate::file::SegmentFile;
use crate::grid::Grid;
use crate::lineup::ArmDef;
use crate::load::Node;
use crate::settings::ModelsConfig;
use crate::stage::StageDef;
use crate::when::When;

/// The parsed parts of an experiment before expansion.
pub(crate) struct Parts {
    pub(crate) name: String,
    pub(crate) models: ModelsConfig,
    /// `decode`, `learn`, `cache`, `head` and `models` as written.
    pub(crate) defaults: Node,
    pub(crate) grid: Grid,
    pub(crate) whens: Vec<When>,
    pub(crate) segments: Vec<SegmentFile>,
    pub(crate) stages: Vec<StageDef>,
    pub(crate) arms: Vec<ArmDef>,
}
