//! The four figures of a report, built from its series.

use super::data::{Arm, RunData};
use super::drift::{Recovery, recovery_lines};
use super::figure::{ArmStyle, Figure, Legend, Line, Mark, Panel, PanelRow, Shade, arm_style};
use super::series::{Band, Curve, Point, offset};
use crate::results::{Phase, UpdateRow};

/// Panels side by side at most; more segments continue in further rows.
const MAX_COLUMNS: usize = 4;

/// Points of a line at most: more than there are pixels would only grow the file.
const MAX_POINTS: usize = 400;

/// A quantity of a curve's points.
type Quantity = fn(&Point) -> Option<Band>;

const ACCEPTANCE: Quantity = |point| point.acceptance;
const SPEEDUP: Quantity = |point| point.speedup;

fn style_of(data: &RunData, name: &str) -> ArmStyle {
    let index = data.arms.iter().position(|arm| arm.name == name);
    arm_style(name, index.unwrap_or(0))
}

fn speculative(data: &RunData) -> impl Iterator<Item = &Arm> {
    data.arms.iter().filter(|arm| !arm.plain)
}

fn legend<'a>(data: &RunData, names: impl Iterator<Item = &'a str>) -> Vec<Legend> {
    names
        .map(|name| Legend {
            label: name.to_owned(),
            style: style_of(data, name),
        })
        .collect()
}

/// Thins a line to `MAX_POINTS`, keeping its last point.
fn thin<T: Copy>(points: Vec<T>) -> Vec<T> {
    let stride = points.len().div_ceil(MAX_POINTS).max(1);
    let last = points.len().saturating_sub(1);
    points
        .into_iter()
        .enumerate()
        .filter(|(index, _)| index % stride == 0 || *index == last)
        .map(|(_, point)| point)
        .collect()
}

/// Lines of all speculative arms in some segments, shifted by what the stream held before each.
fn lines(
    data: &RunData,
    curves: &[Curve],
    segments: &[u32],
    quantity: Quantity,
    shifted: bool,
) -> Vec<Line> {
    let mut lines = Vec::new();
    for arm in speculative(data) {
        let (mut pieces, mut bands) = (Vec::new(), Vec::new());
        for curve in curves
            .iter()
            .filter(|c| c.arm == arm.name && segments.contains(&c.segment))
        {
            let before = if shifted {
                offset(data, curve.segment)
            } else {
                0
            };
            let points: Vec<(f64, f64, f64, f64)> = curve
                .points
                .iter()
                .filter_map(|point| {
                    let band = quantity(point)?;
                    Some(((before + point.seen) as f64, band.mean, band.low, band.high))
                })
                .collect();
            let points = thin(points);
            if points.is_empty() {
                continue;
            }
            pieces.push(points.iter().map(|p| (p.0, p.1)).collect());
            if data.seeds.len() > 1 {
                bands.push(points.iter().map(|p| (p.0, p.2, p.3)).collect());
            }
        }
        if !pieces.is_empty() {
            lines.push(Line {
                style: style_of(data, &arm.name),
                pieces,
                bands,
            });
        }
    }
    lines
}

fn band_note(data: &RunData) -> &'static str {
    if data.seeds.len() > 1 {
        " Lines: mean over seeds; bands: smallest to largest seed."
    } else {
        ""
    }
}

/// `run name, k = 4, T = 0.01, 3 seeds, commit abc`, the caption's last line.
fn provenance(data: &RunData) -> String {
    let list = |values: Vec<String>| {
        let mut values = values;
        values.dedup();
        values.join(", ")
    };
    let k = list(
        speculative(data)
            .filter_map(|a| a.draft_length)
            .map(|k| k.to_string())
            .collect(),
    );
    let t = list(
        data.arms
            .iter()
            .filter_map(|a| a.temperature)
            .map(|t| t.to_string())
            .collect(),
    );
    let seeds = data.seeds.len();
    format!(
        "k = {k}, T = {t}, {seeds} seed{}. {}. Commit {}.",
        if seeds == 1 { "" } else { "s" },
        data.manifest.machine.summary(),
        data.manifest.build.short_commit()
    )
}

/// Acceptance and speedup over prompts seen, one panel per segment (the paper's Figures 2 and 4). `None` without curves.
pub fn curves_figure(data: &RunData, curves: &[Curve], window: usize) -> Option<Figure> {
    if !curves
        .iter()
        .any(|c| c.points.iter().any(|p| p.acceptance.is_some()))
    {
        return None;
    }
    let timed = curves.iter().any(|c| {
        speculative(data).any(|arm| arm.name == c.arm)
            && c.points.iter().any(|p| p.speedup.is_some())
    });
    let mut rows = Vec::new();
    for block in data.segments.chunks(MAX_COLUMNS) {
        let panels = |quantity: Quantity, titled: bool| {
            block
                .iter()
                .map(|segment| Panel {
                    title: titled.then(|| segment.title.clone()),
                    x: (0.0, segment.prompts.max(1) as f64),
                    lines: lines(data, curves, &[segment.index], quantity, false),
                    ..Panel::default()
                })
                .collect()
        };
        rows.push(acceptance_row(panels(ACCEPTANCE, true)));
        if timed {
            rows.push(speedup_row(panels(SPEEDUP, false)));
        }
    }
    let state = if data.has_drift() {
        "Segments follow one another; drafter and cache carry over."
    } else {
        "Every panel starts from the pretrained drafter and an empty cache."
    };
    Some(Figure {
        title: format!("{}: online learning over the stream", data.manifest.name),
        legend: legend(data, speculative(data).map(|arm| arm.name.as_str())),
        rows,
        x_label: "prompts of the segment seen".to_owned(),
        caption: vec![
            format!(
                "Averages over the last {window} prompts. Acceptance: accepted / proposed target tokens per step. \
                 Speedup: tokens per second over plain decoding of the same prompts, decoding time only. {state}{}",
                band_note(data)
            ),
            provenance(data),
        ],
    })
}

fn acceptance_row(panels: Vec<Panel>) -> PanelRow {
    PanelRow {
        y_label: "acceptance rate".to_owned(),
        from_zero: true,
        reference: None,
        panels,
    }
}

fn speedup_row(panels: Vec<Panel>) -> PanelRow {
    PanelRow {
        y_label: "speedup (x)".to_owned(),
        from_zero: false,
        reference: Some((1.0, "plain decoding".to_owned())),
        panels,
    }
}

/// Acceptance and speedup over the whole stream with its segments shaded (Figures 5 and 6). `None` without drift.
pub fn drift_figure(
    data: &RunData,
    curves: &[Curve],
    recoveries: &[Recovery],
    window: usize,
) -> Option<Figure> {
    if !data.has_drift() || curves.is_empty() {
        return None;
    }
    let all: Vec<u32> = data.segments.iter().map(|segment| segment.index).collect();
    let end = data
        .segments
        .iter()
        .map(|segment| segment.prompts)
        .sum::<usize>();
    let shades = |labelled: bool| {
        data.segments
            .iter()
            .map(|segment| {
                let from = offset(data, segment.index);
                Shade {
                    from: from as f64,
                    to: (from + segment.prompts) as f64,
                    label: if labelled {
                        segment.title.clone()
                    } else {
                        String::new()
                    },
                }
            })
            .collect()
    };
    let panel = |quantity, labelled| Panel {
        title: None,
        x: (0.0, end as f64),
        lines: lines(data, curves, &all, quantity, true),
        shades: shades(labelled),
        marks: Vec::new(),
    };
    let mut acceptance = panel(ACCEPTANCE, true);
    acceptance.marks = marks(data, curves, recoveries);
    let speedup = panel(SPEEDUP, false);
    let mut rows = vec![acceptance_row(vec![acceptance])];
    if !speedup.lines.is_empty() {
        rows.push(speedup_row(vec![speedup]));
    }
    let mut caption = vec![format!(
        "Averages over the last {window} prompts of a segment. Recovery: prompts after a switch until the average \
         reaches 95% of the segment's plateau, the acceptance over its last quarter (dots; ≤ {window}: there from \
         the first full window).{}",
        band_note(data)
    )];
    caption.extend(
        recovery_lines(recoveries)
            .into_iter()
            .map(|line| format!("Recovery {line}")),
    );
    caption.push(provenance(data));
    Some(Figure {
        title: format!("{}: when the stream switches", data.manifest.name),
        legend: legend(data, speculative(data).map(|arm| arm.name.as_str())),
        rows,
        x_label: "prompts seen".to_owned(),
        caption,
    })
}

/// Where each arm recovered, on its line; not for arms that had nothing to recover from.
fn marks(data: &RunData, curves: &[Curve], recoveries: &[Recovery]) -> Vec<Mark> {
    recoveries
        .iter()
        .filter_map(|recovery| {
            let seen = recovery.prompts.filter(|&n| n > recovery.window)?;
            let curve = curves
                .iter()
                .find(|c| c.arm == recovery.method && c.segment == recovery.segment)?;
            let point = curve.points.iter().find(|point| point.seen == seen)?;
            Some(Mark {
                x: (offset(data, recovery.segment) + seen) as f64,
                y: point.acceptance?.mean,
                color: style_of(data, &recovery.method).color,
            })
        })
        .collect()
}

/// Losses over prompts seen. `None` when nothing was learnt.
pub fn losses_figure(data: &RunData) -> Option<Figure> {
    let learners: Vec<&str> = speculative(data)
        .map(|arm| arm.name.as_str())
        .filter(|name| data.updates.iter().any(|row| row.arm == *name))
        .collect();
    if learners.is_empty() {
        return None;
    }
    type Term = (&'static str, fn(&UpdateRow) -> Option<f64>);
    let terms: [Term; 2] = [
        ("L_DM (nats per position)", |row| {
            (row.dm_positions > 0 && row.loss_dm.is_finite()).then_some(row.loss_dm)
        }),
        ("L_N-gram (nats per draft token)", |row| {
            (row.ngram_tokens > 0 && row.loss_ngram.is_finite()).then_some(row.loss_ngram)
        }),
    ];
    let updates = data.updates.len() / (learners.len() * data.seeds.len()).max(1);
    let window = (updates / 25).clamp(1, 25);
    let mut rows = Vec::new();
    for block in stretches(data).chunks(MAX_COLUMNS) {
        for (index, (label, term)) in terms.iter().enumerate() {
            let panels: Vec<Panel> = block
                .iter()
                .map(|stretch| Panel {
                    title: (index == 0).then(|| stretch.title.clone()).flatten(),
                    x: (0.0, stretch.prompts.max(1) as f64),
                    lines: learners
                        .iter()
                        .filter_map(|name| loss_line(data, name, stretch, *term, window))
                        .collect(),
                    shades: if index == 0 {
                        stretch.shades.clone()
                    } else {
                        unlabelled(&stretch.shades)
                    },
                    marks: Vec::new(),
                })
                .collect();
            if panels.iter().any(|panel| !panel.lines.is_empty()) {
                rows.push(PanelRow {
                    y_label: plain_label(label),
                    from_zero: true,
                    reference: None,
                    panels,
                });
            }
        }
    }
    if rows.is_empty() {
        return None;
    }
    Some(Figure {
        title: format!("{}: training losses", data.manifest.name),
        legend: legend(data, learners.into_iter()),
        rows,
        x_label: x_label(data).to_owned(),
        caption: vec![
            format!(
                "Averages over the last {window} updates.{}",
                if data.seeds.len() > 1 {
                    " Mean over seeds."
                } else {
                    ""
                }
            ),
            provenance(data),
        ],
    })
}

/// Vertical labels have no subscripts.
fn plain_label(label: &str) -> String {
    label
        .replacen("L_DM", "DM loss", 1)
        .replacen("L_N-gram", "n-gram loss", 1)
}

fn x_label(data: &RunData) -> &'static str {
    if data.has_drift() {
        "prompts seen"
    } else {
        "prompts of the segment seen"
    }
}

/// A part of the stream with one horizontal axis: everything when it is continual, else one segment.
struct Stretch {
    title: Option<String>,
    segments: Vec<u32>,
    prompts: usize,
    shades: Vec<Shade>,
}

fn stretches(data: &RunData) -> Vec<Stretch> {
    if !data.has_drift() {
        return data
            .segments
            .iter()
            .map(|segment| Stretch {
                title: Some(segment.title.clone()),
                segments: vec![segment.index],
                prompts: segment.prompts,
                shades: Vec::new(),
            })
            .collect();
    }
    let shades = data.segments.iter().map(|segment| {
        let from = offset(data, segment.index);
        Shade {
            from: from as f64,
            to: (from + segment.prompts) as f64,
            label: segment.title.clone(),
        }
    });
    vec![Stretch {
        title: None,
        segments: data.segments.iter().map(|segment| segment.index).collect(),
        prompts: data.segments.iter().map(|segment| segment.prompts).sum(),
        shades: shades.collect(),
    }]
}

fn unlabelled(shades: &[Shade]) -> Vec<Shade> {
    let mut shades = shades.to_vec();
    shades.iter_mut().for_each(|shade| shade.label.clear());
    shades
}

/// Trailing averages of a loss term over updates, mean over seeds at equal update numbers.
fn loss_line(
    data: &RunData,
    arm: &str,
    stretch: &Stretch,
    term: fn(&UpdateRow) -> Option<f64>,
    window: usize,
) -> Option<Line> {
    let mut by_update: std::collections::BTreeMap<u32, (f64, f64, f64)> = Default::default();
    for row in &data.updates {
        if row.arm == arm
            && stretch.segments.contains(&row.segment)
            && let Some(value) = term(row)
        {
            let sums = by_update.entry(row.update).or_default();
            *sums = (
                sums.0 + f64::from(row.prompts_seen),
                sums.1 + value,
                sums.2 + 1.0,
            );
        }
    }
    let points: Vec<(f64, f64)> = by_update
        .into_values()
        .map(|(x, y, n)| (x / n, y / n))
        .collect();
    if points.is_empty() {
        return None;
    }
    let smooth = (0..points.len())
        .map(|at| {
            let recent = &points[(at + 1).saturating_sub(window)..=at];
            (
                points[at].0,
                recent.iter().map(|p| p.1).sum::<f64>() / recent.len() as f64,
            )
        })
        .collect();
    Some(Line {
        style: style_of(data, arm),
        pieces: vec![thin(smooth)],
        bands: Vec::new(),
    })
}

/// Size of the n-gram cache and its growth rate over prompts seen (Figure 9). `None` without a cache.
pub fn cache_figure(data: &RunData) -> Option<Figure> {
    let cached: Vec<&str> = speculative(data)
        .map(|arm| arm.name.as_str())
        .filter(|name| {
            let mut rows = data.prompts.iter().filter(|row| row.phase == Phase::Train);
            rows.any(|row| row.arm == *name && row.cache_ngrams > 0)
        })
        .collect();
    if cached.is_empty() {
        return None;
    }
    let quantities: [(&str, usize); 2] =
        [("n-grams in the cache", 0), ("n-grams per 1000 tokens", 1)];
    let mut rows = Vec::new();
    for block in stretches(data).chunks(MAX_COLUMNS) {
        for (label, quantity) in quantities {
            let panels = block
                .iter()
                .map(|stretch| Panel {
                    title: (quantity == 0).then(|| stretch.title.clone()).flatten(),
                    x: (0.0, stretch.prompts.max(1) as f64),
                    lines: cached
                        .iter()
                        .filter_map(|name| cache_line(data, name, stretch, quantity))
                        .collect(),
                    shades: if quantity == 0 {
                        stretch.shades.clone()
                    } else {
                        unlabelled(&stretch.shades)
                    },
                    marks: Vec::new(),
                })
                .collect();
            rows.push(PanelRow {
                y_label: label.to_owned(),
                from_zero: true,
                reference: None,
                panels,
            });
        }
    }
    let last = data
        .prompts
        .iter()
        .rfind(|row| row.phase == Phase::Train && row.cache_ngrams > 0);
    let size = last.map_or_else(String::new, |row| {
        format!(
            " At the end: {} n-grams in {:.1} KB, {:.0} bytes each ({}).",
            row.cache_ngrams,
            row.cache_bytes as f64 / 1e3,
            row.cache_bytes as f64 / f64::from(row.cache_ngrams),
            row.arm
        )
    });
    Some(Figure {
        title: format!("{}: growth of the n-gram cache", data.manifest.name),
        legend: legend(data, cached.into_iter()),
        rows,
        x_label: x_label(data).to_owned(),
        caption: vec![
            format!(
                "Growth rate: entries of the cache / tokens generated so far.{}{size}",
                band_note(data)
            ),
            provenance(data),
        ],
    })
}

/// Quantity 0: entries; quantity 1: entries per 1000 generated tokens.
fn cache_line(data: &RunData, arm: &str, stretch: &Stretch, quantity: usize) -> Option<Line> {
    let mut seeds: Vec<Vec<(f64, f64)>> = vec![Vec::new(); data.seeds.len()];
    for (seed, points) in data.seeds.iter().zip(&mut seeds) {
        let (mut tokens, mut seen) = (0u64, 0usize);
        for &segment in &stretch.segments {
            for rows in data.streams(arm, segment, Phase::Train) {
                for row in rows.into_iter().filter(|row| row.seed == *seed) {
                    seen += 1;
                    tokens += u64::from(row.new_tokens);
                    let entries = f64::from(row.cache_ngrams);
                    let value = match quantity {
                        0 => entries,
                        _ => 1000.0 * entries / (tokens.max(1) as f64),
                    };
                    points.push((seen as f64, value));
                }
            }
        }
    }
    let length = seeds.iter().map(Vec::len).min().unwrap_or(0);
    let points: Vec<(f64, Band)> = (0..length)
        .filter_map(|at| {
            let values: Vec<_> = seeds.iter().map(|points| Some(points[at].1)).collect();
            Some((seeds[0][at].0, Band::of(&values)?))
        })
        .collect();
    if points.is_empty() {
        return None;
    }
    let points = thin(points);
    let bands = if data.seeds.len() > 1 {
        vec![
            points
                .iter()
                .map(|(x, band)| (*x, band.low, band.high))
                .collect(),
        ]
    } else {
        Vec::new()
    };
    Some(Line {
        style: style_of(data, arm),
        pieces: vec![points.iter().map(|(x, band)| (*x, band.mean)).collect()],
        bands,
    })
}
