//! The documentation of every key, generated from the types and their doc comments.

use std::fmt::Write;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::check::SHARED;
use crate::count::PromptCounts;
use crate::file::{ArmFile, GridFile, Heading, SegmentFile, StageFile, WhenFile};
use crate::preset::PRESETS;
use crate::report::{LauncherConfig, ReportConfig};
use crate::settings::{
    CacheOptions, CostsConfig, DecodeConfig, HeadOptions, LearnConfig, LoraSettings, ModelTable,
    ModelsConfig,
};

mod fields;
mod keys;

/// A section of the page.
struct Section {
    heading: &'static str,
    /// Prefix of its keys in patches.
    prefix: &'static str,
    introduction: &'static str,
    /// Its keys with their names, as Markdown.
    keys: String,
}

/// The section of the keys of a type.
fn section<T: JsonSchema + for<'de> Deserialize<'de>>(
    heading: &'static str,
    prefix: &'static str,
    introduction: &'static str,
) -> Section {
    Section {
        heading,
        prefix,
        introduction,
        keys: keys::of::<T>(prefix),
    }
}

const INTRODUCTION: &str = "\
# Configuration

One file describes one experiment: models, cells of a grid, stages that every cell goes through, the
arms that are compared, and the page made of the results. This page lists every section and key with
its type, its default and what it does. It is made from the doc comments of the crate `experiment`.

```toml
include = [\"zoo.toml\"]                 # [models] and what experiments share
name = \"table1\"
[grid]                                 # a cell for every combination
seed = [1, 2, 3]
target = [\"L\", \"Q\"]
task = [\"gsm8k\", \"xsum\"]
[stage.stream]                         # learns; any number of jobs at once
prompts = { train = 1000 }
[stage.held-out]                       # goes on from there, timed, one job at a time
from = \"stream\"
exclusive = true
prompts = { test = \"all\" }
[[arm]]
preset = \"autoregressive\"
[[arm]]
preset = \"L_DM+L_N-gram\"
set = { \"decode.k\" = 3 }
```

## What wins

An arm of a cell is put together in this order, later ones win: the sections `[decode]`, `[learn]`,
`[cache]` and `[head]` of the file, the arm's preset, `set` of the stage, `set` of every `[[when]]`
that is for the cell, dotted axes of the grid, `set` of the arm, the values of a sweep. In a patch,
`set = { \"decode.k\" = 3 }` and `set.decode.k = 3` are the same.

`--set KEY=VALUE` on the command line changes what the files say, before any of this: `--set decode.k=3`,
`--set stage.stream.prompts.train=50`, `--set grid.seed=[1]`. So what an arm sets itself, or a sweep,
still wins over `--set decode.k=3`; `--set arm[L_DM].decode.k=3` changes the arm. Items of lists are
reached by their index or name: `--set segment.0.prompts.train=5`. Bare words are strings; keys that
hold dots stand in quotation marks.
";

fn sections() -> Vec<Section> {
    vec![
        section::<Heading>("The file", "", "Keys at the top, before the first section."),
        section::<ModelsConfig>(
            "`[models]`",
            "models",
            "Model folders. Each is its path, or a table with idle weights that make the model as \
             slow as a larger one and change none of its outputs.",
        ),
        section::<ModelTable>(
            "A model",
            "",
            "`drafter` and each of `targets`: `\"models/L\"`, `{ path = \"models/L\", device = \"gpu\" }` or \
             `{ path = \"models/L\", pad_width = 12288 }`.",
        ),
        section::<GridFile>(
            "`[grid]`",
            "grid",
            "Axes, each with a list of values. The cells are their product, in the order of the file; several \
             tables `[[grid]]` with the same axes unite their products. Any dotted key of `decode`, \
             `learn`, `cache`, `head` or `models` is an axis too, and so is any word that some \
             `[[when]]` gives a meaning.",
        ),
        section::<StageFile>(
            "`[stage.NAME]`",
            "stage.NAME",
            "Every cell goes through every stage, in the order of the file, a stage after the one \
             it starts from. A job is a cell of a \
             stage.",
        ),
        section::<PromptCounts>(
            "`prompts`",
            "prompts",
            "Numbers of prompts by split, `{ train = 1000, test = \"all\" }`.",
        ),
        section::<ArmFile>(
            "`[[arm]]`",
            "arm",
            "A method that is compared: a preset, and a patch of its keys.",
        ),
        Section {
            heading: "`[sweep]`",
            prefix: "",
            introduction: "Dotted keys with lists of values: `\"decode.k\" = [1, 2, 4, 8]`. Every \
                arm that drafts, once for every combination; the arms are named `NAME (k = 4)`. An \
                arm's own `sweep` replaces this one. `learnt_by` and `[report]` may name such arms \
                without the value.",
            keys: String::new(),
        },
        section::<WhenFile>(
            "`[[when]]`",
            "when",
            "A patch of some cells. Its other keys are axes of the grid, or `stage`, each with a \
             value or a list of values: `task = [\"gsm8k\", \"xsum\"]`. An axis or a value that does \
             not exist is an error.",
        ),
        section::<SegmentFile>(
            "`[[segment]]`",
            "segment",
            "Only for streams that change (drift): one job streams all segments in order, and its \
             drafters live through them. The grid then has no axis `task`, and no `target` where \
             segments name theirs.",
        ),
        section::<DecodeConfig>(
            "`[decode]`",
            "decode",
            "How tokens are drafted, checked and drawn.",
        ),
        section::<CostsConfig>(
            "`[decode.costs]`",
            "decode.costs",
            "What the parts of a round cost, in steps of the target; `omnidraft costs` measures \
             them. The defaults are those of this repository's padded models on a processor \
             (Zen 4, two threads).",
        ),
        section::<LearnConfig>(
            "`[learn]`",
            "learn",
            "What the drafter learns while it streams (Algorithm 2), and how.",
        ),
        section::<LoraSettings>(
            "`[learn.lora]`",
            "learn.lora",
            "Low-rank adapters (LoRA) instead of all weights of the drafter.",
        ),
        section::<CacheOptions>(
            "`[cache]`",
            "cache",
            "The n-gram cache: target tokens that several draft tokens spell, merged in translation.",
        ),
        section::<HeadOptions>(
            "`[head]`",
            "head",
            "The acceptance head: predicts whether a draft token will be accepted (Eq. 5).",
        ),
        section::<ReportConfig>(
            "`[report]`",
            "report",
            "What `omnidraft report` makes of the rows.",
        ),
        section::<LauncherConfig>("`[launcher]`", "launcher", "Options of launchers."),
    ]
}

/// The page, as Markdown.
pub fn markdown() -> String {
    let mut page = INTRODUCTION.to_owned();
    for section in sections() {
        // Writing to a string cannot fail.
        let _ = write!(
            page,
            "\n## {}\n\n{}\n{}",
            section.heading, section.introduction, section.keys
        );
        match section.prefix {
            "arm" => page.push_str(&presets()),
            "segment" => {
                let shared = SHARED.map(|key| format!("`{key}`")).join(", ");
                let _ = write!(
                    page,
                    "\n## Settings of arms\n\nPatches reach every key of the four sections below. \
                     All arms of a cell must share these of `[decode]`: {shared}; to compare them, \
                     make one an axis of the grid, as `\"decode.temperature\" = [0.0, 1.0]`.\n"
                );
            }
            _ => {}
        }
    }
    page
}

fn presets() -> String {
    let mut text = "\n### Presets\n\nA preset sets the keys named here, whatever `[decode]`, \
                    `[learn]`, `[cache]` and `[head]` say; others are those of the file.\n\n\
                    | preset | what it is | keys |\n|---|---|---|\n"
        .to_owned();
    for preset in PRESETS {
        let keys: Vec<String> = preset
            .keys
            .iter()
            .map(|(key, value)| format!("`{key} = \"{value}\"`"))
            .collect();
        let _ = writeln!(
            text,
            "| `{}` | {} | {} |",
            preset.name,
            preset.meaning,
            keys.join("<br>")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_type_and_a_meaning() {
        for section in sections() {
            let lines = section.keys.lines().filter(|line| line.starts_with("| `"));
            for line in lines.clone() {
                let cells: Vec<&str> = line.split(" | ").collect();
                assert_eq!(cells.len(), 4, "{line}");
                assert!(cells[1].len() > 2 && cells[3].len() > 8, "{line}");
            }
            let is_sweep = section.heading == "`[sweep]`";
            assert_eq!(lines.count() == 0, is_sweep, "{}", section.heading);
        }
    }

    #[test]
    fn keys_stand_in_the_order_of_the_types_with_defaults_and_names() {
        let page = markdown();
        let at = |text: &str| {
            page.find(text)
                .unwrap_or_else(|| panic!("no {text} in {page}"))
        };
        assert!(at("| `verify` | one of") < at("| `k` | integer | `4` |"));
        assert!(at("| `k` |") < at("| `threads` |"));
        at("| `max_entries` | integer | left out |");
        at("- `throughput`: Up to `k`");
        at("| `drafter` | path or table | required |");
        at("| `L_DM+L_N-gram` |");
        at("| `lambda` | number | `0.2` |");
    }
}
