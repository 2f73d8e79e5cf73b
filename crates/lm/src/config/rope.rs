//! Rotary position embeddings: the frequencies for every scaling that published models use.

use serde::Serialize;

/// Rotation of queries and keys by position.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rope {
    /// Base of the frequencies.
    pub theta: f64,
    /// Number of leading dimensions of a head that are rotated, even. Dimensions `i` and
    /// `i + dims / 2` form a pair, which is rotated as a point of a plane; the dimensions from
    /// `dims` on stay as they are.
    pub dims: usize,
    /// Change of the frequencies for contexts longer than those of the training.
    pub scaling: RopeScaling,
}

/// Scaling of rotary frequencies, under the names of the Hugging Face key `rope_type`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase", tag = "rope_type")]
pub enum RopeScaling {
    /// No scaling.
    Default,
    /// Every frequency is divided by a factor.
    Linear {
        /// The factor, at least 1.
        factor: f64,
    },
    /// A larger base for contexts beyond `original` positions ("NTK-aware").
    Dynamic {
        /// Factor by which the context can grow, at least 1.
        factor: f64,
        /// Number of positions of the training.
        original: usize,
    },
    /// YaRN (arXiv 2309.00071).
    Yarn {
        /// Factor by which low frequencies are slowed down, at least 1.
        factor: f64,
        /// Number of positions of the training.
        original: usize,
        /// Number of turns over `original` positions above which frequencies stay unchanged.
        beta_fast: f64,
        /// Number of turns below which frequencies are slowed down fully.
        beta_slow: f64,
        /// True if the indices of the pairs at the two bounds are rounded outwards to whole ones.
        truncate: bool,
        /// Factor of cosines and sines.
        attention_factor: f64,
    },
    /// LongRoPE (arXiv 2402.13753): a divisor for every frequency, one list for contexts up to
    /// `original` positions and one for longer ones.
    LongRope {
        /// Divisors of short contexts, `[dims / 2]`.
        short: Vec<f64>,
        /// Divisors of long contexts, `[dims / 2]`.
        long: Vec<f64>,
        /// Number of positions of the training.
        original: usize,
        /// Factor of cosines and sines.
        attention_factor: f64,
    },
    /// The scaling of Llama 3.1.
    Llama3 {
        /// Factor by which the lowest frequencies are slowed down.
        factor: f64,
        /// Number of turns over the original context below which frequencies are slowed down fully.
        low_freq_factor: f64,
        /// Number of turns above which frequencies stay unchanged.
        high_freq_factor: f64,
        /// Number of positions of the training.
        original: usize,
    },
}

impl RopeScaling {
    /// True if longer contexts have other frequencies.
    pub fn depends_on_context(&self) -> bool {
        matches!(self, Self::Dynamic { .. } | Self::LongRope { .. })
    }
}

impl Rope {
    /// Angle per position, in radians, of every rotated pair, `[dims / 2]`, for a decoder whose
    /// context holds `context` tokens.
    ///
    /// Two scalings ([`RopeScaling::depends_on_context`]) have other frequencies for longer
    /// contexts. Keys in a cache cannot be rotated again, and a position must get the same logits
    /// whatever was computed before it. The length is therefore the capacity of the cache, which is
    /// fixed when a decoder is built, and not the present number of tokens in it.
    pub fn frequencies(&self, context: usize) -> Vec<f64> {
        let dims = self.dims as f64;
        let with_base = |base: f64| -> Vec<f64> {
            (0..self.dims / 2)
                .map(|i| base.powf(-(2.0 * i as f64) / dims))
                .collect()
        };
        let mut plain = with_base(self.theta);
        match &self.scaling {
            RopeScaling::Default => {}
            RopeScaling::Linear { factor } => plain.iter_mut().for_each(|f| *f /= factor),
            RopeScaling::Dynamic { factor, original } => {
                let length = context.max(*original) as f64 / *original as f64;
                let stretch = factor * length - (factor - 1.0);
                plain = with_base(self.theta * stretch.powf(dims / (dims - 2.0)));
            }
            RopeScaling::Yarn { .. } => self.yarn(&mut plain),
            RopeScaling::LongRope {
                short,
                long,
                original,
                ..
            } => {
                let divisors = if context > *original { long } else { short };
                plain.iter_mut().zip(divisors).for_each(|(f, by)| *f /= by);
            }
            RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original,
            } => {
                for frequency in &mut plain {
                    let wavelength = 2.0 * std::f64::consts::PI / *frequency;
                    let turns = *original as f64 / wavelength;
                    if turns < *low_freq_factor {
                        *frequency /= factor;
                    } else if turns <= *high_freq_factor {
                        let smooth =
                            (turns - low_freq_factor) / (high_freq_factor - low_freq_factor);
                        *frequency = (1.0 - smooth) * *frequency / factor + smooth * *frequency;
                    }
                }
            }
        }
        plain
    }

    /// Slows down the frequencies with few turns fully, and those between the two bounds in part
    /// (YaRN, section 3.2).
    fn yarn(&self, frequencies: &mut [f64]) {
        let RopeScaling::Yarn {
            factor,
            original,
            beta_fast,
            beta_slow,
            truncate,
            ..
        } = self.scaling
        else {
            return;
        };
        // The index, in general a fraction, of the pair that makes `turns` turns over the original
        // context.
        let dimension = |turns: f64| {
            let wavelength = original as f64 / (turns * 2.0 * std::f64::consts::PI);
            self.dims as f64 * wavelength.ln() / (2.0 * self.theta.ln())
        };
        let (mut low, mut high) = (dimension(beta_fast), dimension(beta_slow));
        if truncate {
            (low, high) = (low.floor(), high.ceil());
        }
        (low, high) = (low.max(0.0), high.min(self.dims as f64 - 1.0));
        if low == high {
            high += 0.001;
        }
        for (i, frequency) in frequencies.iter_mut().enumerate() {
            let slowed = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
            *frequency = *frequency / factor * slowed + *frequency * (1.0 - slowed);
        }
    }

    /// Factor of cosines and sines. Scores grow by its square.
    pub fn attention_factor(&self) -> f64 {
        match &self.scaling {
            RopeScaling::Yarn {
                attention_factor, ..
            }
            | RopeScaling::LongRope {
                attention_factor, ..
            } => *attention_factor,
            _ => 1.0,
        }
    }

    /// Number of positions that the scaling is made for; 0 if it does not say.
    pub(super) fn stretched(&self) -> usize {
        match &self.scaling {
            RopeScaling::Dynamic { factor, original }
            | RopeScaling::Yarn {
                factor, original, ..
            } => (*original as f64 * factor) as usize,
            _ => 0,
        }
    }
}
