//! How the panels of a matrix are walked: how many at once, and how far ahead they are asked for.
//! Processors disagree about both. It decides time, never a bit of a result.

use std::fmt;
use std::str::FromStr;

use crate::KernelChoice;

/// Rows up to which a tile may walk several panels at once.
pub(crate) const NARROW: usize = 5;

/// How far ahead a tile asks for weights where it walks one panel. Several panels at once are
/// followed by the processor's own prefetcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Not at all.
    Nothing,
    /// The lines some KiB further on, into the second-level cache and from there into the first.
    Lines,
    /// A line in each of the next four pages: the processor sees four streams instead of one.
    Pages,
}

impl Reach {
    /// Every way.
    pub(crate) const ALL: [Self; 3] = [Self::Nothing, Self::Lines, Self::Pages];

    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Lines => "lines",
            Self::Pages => "pages",
        }
    }
}

/// How an engine walks its weights. As text, `4 4 2 2 1 pages`: the most panels that one to five rows
/// walk at once, 1, 2 or 4, and how far ahead a single panel is asked for, `nothing`, `lines` or
/// `pages`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    /// By rows, from one on: most panels at once. Fewer are walked where registers end.
    pub(crate) streams: [u8; NARROW],
    pub(crate) reach: Reach,
}

impl Walk {
    /// Panels at once that can be asked for.
    pub(crate) const STREAMS: [u8; 3] = [1, 2, 4];

    /// What was best on the processors where these kernels were written.
    pub(crate) fn usual(kernels: KernelChoice) -> Self {
        let (streams, reach) = match kernels {
            KernelChoice::Avx512 | KernelChoice::Amx => (2, Reach::Lines),
            KernelChoice::Avx2 => (4, Reach::Pages),
            _ => (4, Reach::Nothing),
        };
        Self {
            streams: [streams; NARROW],
            reach,
        }
    }

    /// Most panels at once for a tile of `rows`.
    #[inline(always)]
    pub(crate) fn streams(self, rows: usize) -> u8 {
        self.streams
            .get(rows.wrapping_sub(1))
            .map_or(1, |&most| most)
    }

    /// The same with another reach.
    pub(crate) fn reaching(mut self, reach: Reach) -> Self {
        self.reach = reach;
        self
    }

    /// The same with other numbers of panels for a tile of `rows`.
    pub(crate) fn with_streams(mut self, rows: usize, streams: u8) -> Self {
        if let Some(most) = self.streams.get_mut(rows.wrapping_sub(1)) {
            *most = streams;
        }
        self
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
        for kernels in [
            KernelChoice::Portable,
            KernelChoice::Avx2,
            KernelChoice::Avx512,
            KernelChoice::Amx,
        ] {
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
