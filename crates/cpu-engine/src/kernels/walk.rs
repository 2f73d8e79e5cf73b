//! The walk over the panels of a matrix: number of panels read at once, and distance of prefetches.
//! The best choice differs between processors. It determines time, never a bit of a result.

use std::fmt;
use std::str::FromStr;

use crate::KernelChoice;

/// Largest number of rows for which a tile may read several panels at once.
pub(crate) const NARROW: usize = 5;

/// Reach of prefetches of a tile that reads one panel. Several panels at once are left to the
/// processor's own prefetcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// No prefetches.
    Nothing,
    /// Lines some KiB further on, into the second-level cache and from there into the first.
    Lines,
    /// A line in each of the next four pages, so that the processor sees four streams instead of
    /// one.
    Pages,
}

impl Reach {
    /// All values.
    pub(crate) const ALL: [Self; 3] = [Self::Nothing, Self::Lines, Self::Pages];

    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Lines => "lines",
            Self::Pages => "pages",
        }
    }
}

/// An engine's walk over its weights. As text it is written like `4 4 2 2 1 pages`: the largest
/// number of panels that one to five rows read at once (1, 2 or 4), and the reach of prefetches for
/// a single panel (`nothing`, `lines` or `pages`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    /// Largest number of panels at once, by number of rows from one on. Fewer are read if registers
    /// run out.
    pub(crate) streams: [u8; NARROW],
    pub(crate) reach: Reach,
}

impl Walk {
    /// Possible numbers of panels at once.
    pub(crate) const STREAMS: [u8; 3] = [1, 2, 4];

    /// The walk that was best on the processors on which these kernels were written.
    pub(crate) fn usual(kernels: KernelChoice) -> Self {
        let (streams, reach) = match kernels {
            KernelChoice::Avx512Vnni | KernelChoice::Avx512 | KernelChoice::Amx => {
                (2, Reach::Lines)
            }
            KernelChoice::Avx2 | KernelChoice::AvxVnni => (4, Reach::Pages),
            _ => (4, Reach::Nothing),
        };
        Self {
            streams: [streams; NARROW],
            reach,
        }
    }

    /// This walk with every reach.
    pub(crate) fn reaches(self) -> [Self; 3] {
        let streams = self.streams;
        Reach::ALL.map(|reach| Self { streams, reach })
    }

    /// Largest number of panels at once for a tile of `rows` rows.
    #[inline(always)]
    pub(crate) fn streams(self, rows: usize) -> u8 {
        self.streams
            .get(rows.wrapping_sub(1))
            .map_or(1, |&most| most)
    }
}

impl fmt::Display for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for streams in self.streams {
            write!(f, "{streams} ")?;
        }
        f.write_str(self.reach.name())
    }
}

/// A text that describes no [`Walk`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownWalk(pub String);

impl fmt::Display for UnknownWalk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(text) = self;
        write!(f, "`{text}` is no walk (as in `4 4 2 2 1 pages`)")
    }
}

impl std::error::Error for UnknownWalk {}

impl FromStr for Walk {
    type Err = UnknownWalk;

    fn from_str(text: &str) -> Result<Self, UnknownWalk> {
        let unknown = || UnknownWalk(text.to_owned());
        let mut words = text.split_ascii_whitespace();
        let mut streams = [1; NARROW];
        for most in &mut streams {
            let word = words.next().and_then(|word| word.parse().ok());
            *most = word
                .filter(|most| Self::STREAMS.contains(most))
                .ok_or_else(unknown)?;
        }
        let reach = words.next().and_then(|word| {
            let mut all = Reach::ALL.into_iter();
            all.find(|reach| reach.name() == word)
        });
        match (reach, words.next()) {
            (Some(reach), None) => Ok(Self { streams, reach }),
            _ => Err(unknown()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_are_texts() {
        for kernels in KernelChoice::ALL {
            let walk = Walk::usual(kernels);
            assert_eq!(walk.to_string().parse(), Ok(walk));
        }
        let text = "4 4 2 2 1 pages";
        let walk: Walk = text.parse().unwrap();
        assert_eq!(walk.to_string(), text);
        assert_eq!(
            (walk.streams(1), walk.streams(5), walk.streams(6)),
            (4, 1, 1)
        );
        for text in [
            "",
            "4 4 2 2 pages",
            "4 4 2 2 3 pages",
            "4 4 2 2 1 far",
            "4 4 2 2 1 pages x",
        ] {
            assert_eq!(text.parse::<Walk>(), Err(UnknownWalk(text.to_owned())));
        }
    }
}
