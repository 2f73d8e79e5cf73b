//! The known name that a wrong one was probably meant to be.

/// Maximum number of wrong letters in a name for which another one is suggested.
pub(super) const SLIPS: usize = 3;

/// Advice for a message that names the wrong name and the known ones; `None` for other messages.
pub(super) fn hint(key: &str, message: &str) -> Option<String> {
    let (wanted, known) = names(key, message)?;
    let near = nearest(wanted, known)?;
    Some(format!("did you mean `{near}`?"))
}

/// The wrong name and the known ones: of `unknown field `x`, expected one of `a`, `b`` (as serde
/// says it), or of `there is no `x` (one of a, b)`. A message without the wrong name is about the
/// last part of its key.
fn names<'a>(key: &'a str, message: &'a str) -> Option<(&'a str, Vec<&'a str>)> {
    let (before, known) = if let Some((before, rest)) = message.split_once("expected ") {
        if !before.starts_with("unknown ") {
            return None;
        }
        (before, rest.split('`').skip(1).step_by(2).collect())
    } else {
        let (before, rest) = message.rsplit_once("(one of ")?;
        (before, rest.trim_end_matches(')').split(", ").collect())
    };
    let quoted = before.split('`').skip(1).step_by(2);
    let wanted = quoted.last().or_else(|| key.rsplit('.').next())?;
    Some((wanted, known))
}

/// The one of `known` that differs from `wanted` by the fewest letters, the first of several;
/// `None` if they are more than three, or more than half of the letters of `wanted`.
pub fn nearest<'a>(wanted: &str, known: Vec<&'a str>) -> Option<&'a str> {
    let letters = wanted.chars().count();
    let wanted = wanted.to_lowercase();
    let slips = |other: &str| strsim::damerau_levenshtein(&wanted, &other.to_lowercase());
    let close = known.into_iter().map(|other| (slips(other), other));
    let close = close.filter(|(slips, _)| *slips <= SLIPS && 2 * slips <= letters);
    close
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, other)| other)
}

#[cfg(test)]
mod tests {
    use super::hint;

    #[test]
    fn only_a_message_that_lists_names_has_advice() {
        assert_eq!(
            hint("", "unknown field `kk`, expected `k`").as_deref(),
            Some("did you mean `k`?")
        );
        for other in [
            "invalid type: string \"x\", expected a number",
            "must be at least 1",
        ] {
            assert_eq!(hint("decode.k", other), None, "{other}");
        }
    }
}
