//! `[report]` and `[launcher]`: the page made from the rows, and options for schedulers.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The page that `omnidraft report` makes from the rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReportConfig {
    /// The stage whose rows the tables show; left out, the last one.
    pub stage: Option<String>,
    /// Axes of the rows: axes of the grid, `arm`, `target`, `task`, `stage` or `segment`.
    pub rows: Vec<String>,
    /// Axis of the columns; left out, one column for each entry of `cell`.
    pub columns: Option<String>,
    /// Metrics shown in a cell, in order.
    pub cell: Vec<String>,
    /// Arms shown, in the order of the file, by name or by the name of a swept arm; left out, all.
    pub arms: Vec<String>,
    /// Pairs of arms: the ratio of the first to the second, prompt by prompt, with an interval. The
    /// name of a swept arm stands for its best variant, chosen after the fact; the page says so.
    /// Titles of `speed` and `saved` are about the first arm of the first pair.
    pub ratios: Vec<(String, String)>,
    /// Smallest effect that counts, as a share: a claim holds if the interval of its ratio lies
    /// above 1 plus this share.
    pub smallest_effect: f64,
    /// The paper's numbers (TOML), shown beside ours; relative to the file that names it.
    pub paper: Option<PathBuf>,
    /// Names in that file for targets, tasks and arms that have other names here: `{ llama-3 = "L"
    /// }`.
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
    /// Acceptance rate over streamed prompts, or tokens per round if drafts differ in length
    /// (Figures 2 and 4).
    Curves,
    /// Speed over streamed prompts, measured with learning included, or counted (Figures 2 to 4).
    Speed,
    /// Seconds saved compared with plain decoding since the start of the stream, or counted steps.
    Saved,
    /// Acceptance rate over a stream whose task or target changes (Figures 5 and 6).
    Drift,
    /// Losses over updates.
    Losses,
    /// Cache size, and its growth per streamed token (Figure 9).
    Cache,
    /// N-gram hits over streamed prompts (Figure 8).
    Hits,
    /// Frequencies of n-grams (Figure 7).
    Frequencies,
    /// The metric of the page's claim over the values of a swept key.
    Sweep,
    /// Examples of merged n-grams, task by task (Table 13).
    Merges,
    /// Share of n-grams among the proposed tokens, and their acceptance rate compared with the
    /// other tokens.
    Ngrams,
    /// Acceptance by position in the draft, and tokens a round: a table.
    Positions,
}

impl fmt::Display for FigureName {
    /// The name in files, which is that of the figure.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// A file format of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReportFormat {
    /// Markdown.
    Md,
    /// Comma-separated values: one file, one number per line.
    Csv,
    /// LaTeX: `table-ID.tex` and `figure-ID.tex` for `\input` (they need booktabs and graphicx),
    /// and `report.tex`, a document with all of them.
    Tex,
    /// One self-contained page with vector figures.
    Html,
    /// Vector figures as separate files, beside the PNGs that are always made.
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
