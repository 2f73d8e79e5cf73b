//! Files of chains: text with one line for every row of counts, exact to the bit.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::{Chain, Score};
use crate::ChainError;

impl Score {
    const ALL: [Self; 3] = [Self::Head, Self::Confidence, Self::Position];

    fn name(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Confidence => "confidence",
            Self::Position => "position",
        }
    }
}

impl Chain {
    /// Writes chains, lines of `SCORE PART COUNT ...`. The file is replaced as a whole.
    ///
    /// # Errors
    /// [`ChainError::Io`].
    pub fn save(chains: &[Self], path: &Path) -> Result<(), ChainError> {
        let mut text = String::new();
        for chain in chains {
            let mut copy = chain.clone();
            for (part, row) in copy.rows() {
                text.push_str(chain.score.name());
                text.push(' ');
                text.push_str(part);
                for count in row {
                    // The decimal text of an f64 reads back to the same bits.
                    let _ = write!(text, " {count}");
                }
                text.push('\n');
            }
        }
        let part = path.with_extension("part");
        let io = |source| ChainError::Io {
            path: path.to_owned(),
            source,
        };
        fs::write(&part, text).map_err(io)?;
        fs::rename(&part, path).map_err(io)
    }

    /// Reads a file of [`save`](Self::save).
    ///
    /// # Errors
    /// [`ChainError::Io`]; [`ChainError::Line`] for a line that is not one of a chain, is missing,
    /// or has an impossible count.
    pub fn load(path: &Path) -> Result<Vec<Self>, ChainError> {
        let text = fs::read_to_string(path).map_err(|source| ChainError::Io {
            path: path.to_owned(),
            source,
        })?;
        let mut lines = text.lines().enumerate().peekable();
        let mut chains = Vec::new();
        while let Some(&(number, line)) = lines.peek() {
            let fault = |number: usize, fault: String| ChainError::Line {
                path: path.to_owned(),
                line: number + 1,
                fault,
            };
            let name = line.split(' ').next().unwrap_or_default();
            let score = Score::ALL.into_iter().find(|score| score.name() == name);
            let score = score.ok_or_else(|| fault(number, format!("no score `{name}`")))?;
            let mut chain = Self::new(score);
            let mut last = number;
            for (part, row) in chain.rows() {
                let (number, line) = lines
                    .next()
                    .ok_or_else(|| fault(last + 1, format!("`{name} {part}` is missing")))?;
                last = number;
                let counts = line
                    .strip_prefix(name)
                    .and_then(|rest| rest.strip_prefix(' ')?.strip_prefix(part))
                    .ok_or_else(|| fault(number, format!("`{name} {part}` should be here")))?;
                let mut found = 0;
                for count in counts.split_whitespace() {
                    let value = count.parse().ok();
                    let value = value.filter(|x: &f64| x.is_finite() && *x >= 0.0);
                    let value = value.ok_or_else(|| fault(number, format!("`{count}`")))?;
                    if let Some(place) = row.get_mut(found) {
                        *place = value;
                    }
                    found += 1;
                }
                if found != row.len() {
                    let fault_of = format!("{found} counts, expected {}", row.len());
                    return Err(fault(number, fault_of));
                }
            }
            chains.push(chain);
        }
        Ok(chains)
    }

    /// Every row of counts with the name of its part, in the order of the file.
    fn rows(&mut self) -> impl Iterator<Item = (&'static str, &mut [f64])> {
        let first = std::iter::once(("first", &mut self.first[..]));
        let next = self.next.iter_mut().map(|row| ("next", &mut row[..]));
        let judged = self.judged.iter_mut().flatten();
        let judged = judged.map(|row| ("judged", &mut row[..]));
        first.chain(next).chain(judged)
    }
}

#[cfg(test)]
mod tests {
    use super::super::BINS;
    use super::*;
    use crate::Label;

    fn seen(score: Score) -> Chain {
        let mut chain = Chain::new(score);
        for i in 0..50_usize {
            let label = |accepted| Some(Label { accepted, ends: 1 });
            let third = 1.0 / (1 + i) as f64;
            chain.observe(&[(i % BINS, label(third)), (i * 7 % BINS, None)]);
        }
        chain
    }

    #[test]
    fn chains_come_back_to_the_bit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chains.txt");
        let chains = [seen(Score::Head), seen(Score::Position)];
        Chain::save(&chains, &path).unwrap();
        assert_eq!(Chain::load(&path).unwrap(), chains);
        Chain::save(&[], &path).unwrap();
        assert!(Chain::load(&path).unwrap().is_empty());
    }

    #[test]
    fn damage_is_named_by_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chains.txt");
        Chain::save(&[seen(Score::Confidence)], &path).unwrap();
        let whole = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = whole.lines().collect();
        let damaged = |at: usize, line: &str| {
            let mut lines = lines.clone();
            lines[at] = line;
            lines.join("\n")
        };
        let short = lines[3].rsplit_once(' ').unwrap().0;
        let cases = [
            (lines[..5].join("\n"), 6),
            (damaged(0, "luck first 1"), 1),
            (damaged(3, short), 4),
            (damaged(4, &format!("{} 1", lines[4])), 5),
            (
                damaged(5, &lines[5].replace("confidence next", "head next")),
                6,
            ),
            (damaged(2, &format!("{} -1", short)), 3),
            (damaged(2, &format!("{} NaN", short)), 3),
        ];
        for (text, expected) in cases {
            fs::write(&path, text).unwrap();
            match Chain::load(&path) {
                Err(ChainError::Line { line, .. }) => assert_eq!(line, expected),
                other => panic!("{other:?}"),
            }
        }
    }
}
