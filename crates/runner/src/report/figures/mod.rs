//! The figures of a report, built from its series.

mod cache;
mod losses;
mod stream;

pub use cache::cache_figure;
pub use losses::losses_figure;
pub use stream::{curves_figure, drift_figure};

use super::data::{Arm, RunData};
use super::figure::{ArmStyle, Legend, Shade, other_style, own_style, reference_style};
use super::series::offset;

/// Panels side by side at most; more segments continue in further rows.
const MAX_COLUMNS: usize = 4;

/// Points of a line at most: more than there are pixels would only grow the file.
const MAX_POINTS: usize = 400;

/// A part of the stream with one horizontal axis: everything when it is continual, else one segment.
struct Stretch {
    title: Option<String>,
    segments: Vec<u32>,
    prompts: usize,
    shades: Vec<Shade>,
}

impl Stretch {
    /// The shades, labelled in the first row of panels only.
    fn shades(&self, labelled: bool) -> Vec<Shade> {
        let mut shades = self.shades.clone();
        if !labelled {
            shades.iter_mut().for_each(|shade| shade.label.clear());
        }
        shades
    }

    /// The title, in the first row of panels only.
    fn title(&self, titled: bool) -> Option<String> {
        self.title.clone().filter(|_| titled)
    }

    /// The horizontal range.
    fn x(&self) -> (f64, f64) {
        (0.0, self.prompts.max(1) as f64)
    }
}

/// The stream in one stretch when it is continual, else one stretch per segment.
fn stretches(data: &RunData) -> Vec<Stretch> {
    if data.has_drift() {
        vec![whole_stream(data)]
    } else {
        by_segment(data)
    }
}

fn by_segment(data: &RunData) -> Vec<Stretch> {
    let stretch = |segment: &super::data::Segment| Stretch {
        title: Some(segment.title.clone()),
        segments: vec![segment.index],
        prompts: segment.prompts,
        shades: Vec::new(),
    };
    data.segments.iter().map(stretch).collect()
}

fn whole_stream(data: &RunData) -> Stretch {
    let shades = data.segments.iter().map(|segment| {
        let from = offset(data, segment.index);
        Shade {
            from: from as f64,
            to: (from + segment.prompts) as f64,
            label: segment.title.clone(),
        }
    });
    Stretch {
        title: None,
        segments: data.segments.iter().map(|segment| segment.index).collect(),
        prompts: data.segments.iter().map(|segment| segment.prompts).sum(),
        shades: shades.collect(),
    }
}

fn speculative(data: &RunData) -> impl Iterator<Item = &Arm> {
    data.arms.iter().filter(|arm| !arm.plain)
}

fn style_of(data: &RunData, name: &str) -> ArmStyle {
    own_style(name).unwrap_or_else(|| {
        let before = data.arms.iter().take_while(|arm| arm.name != name);
        other_style(before.filter(|arm| own_style(&arm.name).is_none()).count())
    })
}

fn legend<'a>(data: &RunData, names: impl IntoIterator<Item = &'a str>) -> Vec<Legend> {
    let entry = |name: &str| Legend {
        label: name.to_owned(),
        style: style_of(data, name),
    };
    names.into_iter().map(entry).collect()
}

fn reference_legend() -> Legend {
    Legend {
        label: "plain decoding".to_owned(),
        style: reference_style(),
    }
}

/// Thins a line to about `MAX_POINTS`, keeping its last point.
fn thin<T: Copy>(points: &[T]) -> Vec<T> {
    let stride = points.len().div_ceil(MAX_POINTS).max(1);
    let mut thinned: Vec<T> = points.iter().step_by(stride).copied().collect();
    if let Some(&last) = points.last()
        && !(points.len() - 1).is_multiple_of(stride)
    {
        thinned.push(last);
    }
    thinned
}

fn x_label(data: &RunData) -> &'static str {
    if data.has_drift() {
        "prompts seen"
    } else {
        "prompts of the segment seen"
    }
}

fn band_note(data: &RunData) -> &'static str {
    if data.seeds.len() > 1 {
        " Lines: mean over seeds; bands: smallest to largest seed."
    } else {
        ""
    }
}

/// Draft length, temperature, seeds, machine and commit: the last line of every caption.
fn provenance(data: &RunData) -> String {
    let list = |mut values: Vec<String>| {
        values.dedup();
        values.join(", ")
    };
    let lengths = speculative(data).filter_map(|arm| arm.draft_length);
    let temperatures = data.arms.iter().filter_map(|arm| arm.temperature);
    let seeds = data.seeds.len();
    format!(
        "k = {}, T = {}, {seeds} seed{}. {}. Commit {}.",
        list(lengths.map(|k| k.to_string()).collect()),
        list(temperatures.map(|t| t.to_string()).collect()),
        if seeds == 1 { "" } else { "s" },
        data.manifest.machine.summary(),
        data.manifest.build.short_commit()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_both_ends() {
        let points: Vec<usize> = (0..1000).collect();
        let thinned = thin(&points);
        assert!(thinned.len() <= MAX_POINTS + 1);
        assert_eq!((thinned[0], thinned.last()), (0, Some(&999)));
        assert_eq!(thin(&[1, 2, 3]), [1, 2, 3]);
        assert!(thin::<u8>(&[]).is_empty());
    }
}
