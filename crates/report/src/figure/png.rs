//! PNG with a palette: figures have few colours, and with a palette their files are a third of the
//! size.

use std::collections::{BTreeMap, HashMap};

/// Maximum number of colours of a palette.
const COLORS: usize = 256;

/// Encodes RGB pixels.
pub fn encode(pixels: &[u8], (width, height): (usize, usize)) -> Result<Vec<u8>, String> {
    let (palette, indices) = quantize(pixels);
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width as u32, height as u32);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::High);
    // Neighbouring indices are not neighbouring colours, so that filters increase the size.
    encoder.set_filter(png::Filter::NoFilter);
    encoder.set_palette(palette);
    let mut writer = encoder.write_header().map_err(|error| error.to_string())?;
    let written = writer.write_image_data(&indices);
    written.map_err(|error| error.to_string())?;
    writer.finish().map_err(|error| error.to_string())?;
    Ok(bytes)
}

/// The most frequent colours, and for every pixel the nearest of them.
fn quantize(pixels: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let colors = || pixels.as_chunks::<3>().0.iter().copied();
    let mut counts: BTreeMap<[u8; 3], usize> = BTreeMap::new();
    for color in colors() {
        *counts.entry(color).or_default() += 1;
    }
    let mut ranked: Vec<([u8; 3], usize)> = counts.into_iter().collect();
    ranked.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    let palette: Vec<[u8; 3]> = ranked
        .iter()
        .take(COLORS)
        .map(|(color, _)| *color)
        .collect();
    let nearest = |color: &[u8; 3]| {
        let distance = |other: &[u8; 3]| -> i32 {
            let squares = color
                .iter()
                .zip(other)
                .map(|(a, b)| (i32::from(*a) - i32::from(*b)).pow(2));
            squares.sum()
        };
        let found = palette
            .iter()
            .enumerate()
            .min_by_key(|(_, other)| distance(other));
        found.map_or(0, |(index, _)| index as u8)
    };
    let places: HashMap<[u8; 3], u8> = ranked
        .iter()
        .map(|(color, _)| (*color, nearest(color)))
        .collect();
    let indices = colors().map(|color| places.get(&color).copied().unwrap_or(0));
    (palette.concat(), indices.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_colours_are_kept_exactly() {
        let pixels = [[255, 255, 255], [10, 20, 30], [255, 255, 255], [1, 2, 3]].concat();
        let (palette, indices) = quantize(&pixels);
        assert_eq!(palette, [[255, 255, 255], [1, 2, 3], [10, 20, 30]].concat());
        assert_eq!(indices, [0, 2, 0, 1]);
    }

    #[test]
    fn many_colours_become_their_neighbours() {
        let pixels: Vec<u8> = (0..300u32)
            .flat_map(|i| [(i % 256) as u8, (i / 256) as u8, 0])
            .collect();
        let (palette, indices) = quantize(&pixels);
        assert_eq!(palette.len(), 3 * COLORS);
        assert_eq!(indices.len(), 300);
        assert_eq!(
            encode(&pixels, (30, 10)).unwrap().get(..4),
            Some(&b"\x89PNG"[..])
        );
    }
}
