//! `[report]` and `[launcher]`: what is made of the rows, and who runs the jobs.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What `omnidraft report` makes of the rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReportConfig {
    /// The stage whose rows the tables show; left out, the last one.
    pub stage: Option<String>,
    /// What goes down: axes of the grid, `arm`, `target`, `task`, `stage` or `segment`.
    pub rows: Vec<String>,
    /// What goes across; left out, one column for each entry of `cell`.
    pub columns: Option<String>,
    /// Metrics shown in a cell, in order.
    pub cell: Vec<String>,
    /// Arms shown, in order, by name or by the name that a sweep took values for; left out, all.
    pub arms: Vec<String>,
    /// Pairs of arms: the first over the second, prompt by prompt, with an interval. The name that a
    /// sweep took values for stands for the best of them, chosen after the fact; the page says so. Titles of `speed` and
    /// `saved` are about the first arm of the first pair.
    pub ratios: Vec<(String, String)>,
    /// Smallest difference that counts, as a share: a claim holds where the interval of its ratio lies above 1
    /// and this.
    pub smallest_effect: f64,
    /// The paper's numbers (TOML), shown beside ours; relative to the file that names it.
    pub paper: Option<PathBuf>,
    /// What that file calls targets, tasks and arms that have other names here: `{ llama-3 = "L" }`.
    pub paper_names: BTreeMap<String, String>,
    /// Figures drawn, and some tables beside the first; left out, `positions` alone.
    pub figures: Vec<FigureName>,
    /// Files written.
    pub formats: Vec<ReportFormat>,
}

impl Default for ReportConfig {
    fn default() -> Self {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Self {
            stage: None,
            rows: words(&["target", "task", "arm"]),
            columns: None,
            cell: words(&["acceptance", "tokens_per_round", "speedup"]),
            arms: Vec::new(),
            ratios: Vec::new(),
            smallest_effect: 0.01,
            paper: None,
            paper_names: BTreeMap::new(),
            figures: vec![FigureName::Positions],
            formats: vec![ReportFormat::Md],
        }
    }
}

/// A figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FigureName {
    /// Acceptance over streamed prompts, tokens a round where drafts differ in length (Figures 2 and 4).
    Curves,
    /// Speed over streamed prompts, by the clock with learning in, or counted (Figures 2 to 4).
    Speed,
    /// Seconds saved against plain decoding since the stream began, or counted steps.
    Saved,
    /// Acceptance over a stream whose task or target changes (Figures 5 and 6).
    Drift,
    /// Losses over updates.
    Losses,
    /// Cache size, and its growth per streamed token (Figure 9).
    Cache,
    /// N-gram hits over streamed prompts (Figure 8).
    Hits,
    /// N-grams by how often they occurred (Figure 7).
    Frequencies,
    /// The metric of the page's claim over a swept key.
    Sweep,
    /// Examples of merged n-grams, task by task (Table 13).
    Merges,
    /// How many proposed tokens are n-grams, and how often those are accepted beside the others.
    Ngrams,
    /// Acceptance by position in the draft, and tokens a round: a table.
    Positions,
}

impl fmt::Display for FigureName {
    /// The name as a file writes it, which is that of the picture.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Curves => "curves",
            Self::Speed => "speed",
            Self::Saved => "saved",
            Self::Drift => "drift",
            Self::Losses => "losses",
            Self::Cache => "cache",
            Self::Hits => "hits",
            Self::Frequencies => "frequencies",
            Self::Sweep => "sweep",
            Self::Merges => "merges",
            Self::Ngrams => "ngrams",
            Self::Positions => "positions",
        })
    }
}

/// A file format of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReportFormat {
    /// Markdown.
    Md,
    /// Comma-separated values: one file, a number a line.
    Csv,
    /// LaTeX: `table-ID.tex` and `figure-ID.tex` for `\input` (they need booktabs and graphicx), and
    /// `report.tex`, a document of all of them.
    Tex,
    /// One self-contained page, figures as vectors in it.
    Html,
    /// Figures as vectors in files of their own, beside the PNGs that are always made.
    Svg,
}

/// Options of launchers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LauncherConfig {
    /// Options of `sbatch` without their dashes: `partition = "gpu"`, `time = "4:00:00"`,
    /// `cpus-per-task = 2`; `true` for an option without a value.
    pub slurm: BTreeMap<String, LauncherValue>,
}

/// The value of an option.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(title = "string, integer or boolean")]
pub enum LauncherValue {
    /// `true` for an option without a value, `false` for leaving it out.
    Flag(bool),
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
}
