//! The dummy prefix: a space that a tokenizer puts before text that does not begin with one.

use serde_json::{Value, json};

/// Positions at which a tokenizer writes a dummy prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Prefix {
    /// None.
    Never,
    /// Before the whole text (`prepend_scheme` "first").
    First,
    /// Before the whole text and after every added token: `prepend_scheme` "always", and the
    /// `Prepend` normalizer of legacy files.
    Always,
}

/// The kind of text before a part of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Opening {
    /// Nothing: the text begins here.
    Text,
    /// An added token, such as a chat marker.
    Added,
    /// Other text.
    #[default]
    Middle,
}

impl Prefix {
    /// True if text with this opening gets a dummy prefix.
    pub(crate) fn applies(self, opening: Opening) -> bool {
        match opening {
            Opening::Text => self != Self::Never,
            Opening::Added => self == Self::Always,
            Opening::Middle => false,
        }
    }
}

/// A normalizer and a pre-tokenizer without their dummy prefix, for text inside other text, and the
/// rule of the prefix.
pub(crate) struct Bare {
    pub(crate) prefix: Prefix,
    pub(crate) normalizer: Value,
    pub(crate) pre_tokenizer: Value,
}

impl Bare {
    /// Removes the prefix. The error describes a feature that is not supported.
    pub(crate) fn of(normalizer: &Value, pre_tokenizer: &Value) -> Result<Self, &'static str> {
        let mut bare = Self {
            prefix: Prefix::Never,
            normalizer: normalizer.clone(),
            pre_tokenizer: pre_tokenizer.clone(),
        };
        if strip_prepend(&mut bare.normalizer) {
            bare.prefix = Prefix::Always;
        }
        let mut first = true;
        strip_stage(&mut bare.pre_tokenizer, &mut first, &mut bare.prefix)?;
        Ok(bare)
    }
}

/// Pattern of a replacement, written for a `tokenizer.model`, that applies only to whole texts: it
/// removes spaces at both ends.
pub(crate) const ENDS: &str = r"\A +| +\z";
/// Pattern of the replacement that doubles a space sign at the beginning of such a text, so that
/// the sign is not taken for the dummy prefix.
pub(crate) const SIGN: &str = r"\A▁";

/// Removes `Prepend` normalizers, and the replacements that belong to them. Returns true if there
/// was one.
fn strip_prepend(normalizer: &mut Value) -> bool {
    let pattern = normalizer["pattern"]["Regex"].as_str();
    let prefix = normalizer["type"] == "Prepend" || pattern == Some(SIGN);
    if prefix || pattern == Some(ENDS) {
        *normalizer = Value::Null;
        return prefix;
    }
    let parts = normalizer.get_mut("normalizers");
    let Some(parts) = parts.and_then(Value::as_array_mut) else {
        return false;
    };
    let mut found = false;
    parts.retain_mut(|part| {
        found |= strip_prepend(part);
        !part.is_null()
    });
    found
}

fn strip_stage(
    stage: &mut Value,
    first: &mut bool,
    prefix: &mut Prefix,
) -> Result<(), &'static str> {
    let found = match stage["type"].as_str() {
        Some("Sequence") => {
            let parts = stage.get_mut("pretokenizers");
            return parts
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
                .try_for_each(|part| strip_stage(part, first, prefix));
        }
        Some("Metaspace") => {
            // Without a scheme, old files mean "always".
            let scheme = match stage["prepend_scheme"].as_str() {
                Some("never") => Prefix::Never,
                Some("first") => Prefix::First,
                _ => Prefix::Always,
            };
            stage["prepend_scheme"] = json!("never");
            stage["add_prefix_space"] = json!(false);
            scheme
        }
        Some("ByteLevel") => {
            let adds = stage["add_prefix_space"].as_bool().unwrap_or(true);
            stage["add_prefix_space"] = json!(false);
            if adds { Prefix::Always } else { Prefix::Never }
        }
        Some("FixedLength") => return Err("a pre-tokenizer that cuts by position"),
        _ => Prefix::Never,
    };
    if found == Prefix::Always && !*first {
        return Err("a dummy prefix before every piece of another pre-tokenizer");
    }
    if *prefix == Prefix::Never {
        *prefix = found;
    }
    *first = false;
    Ok(())
}

/// True if text far to the right may still move a cut, because a pattern looks ahead, as the one
/// that groups digits from the right does. The usual `(?!\S)`, the end of a run of spaces, looks no
/// further than the next character.
pub(crate) fn looks_far_ahead(pre_tokenizer: &Value) -> bool {
    let own = pre_tokenizer["pattern"]["Regex"].as_str().is_some_and(|p| {
        let rest = p.replace(r"(?!\S)", "");
        rest.contains("(?=") || rest.contains("(?!")
    });
    let parts = pre_tokenizer["pretokenizers"].as_array();
    own || parts.into_iter().flatten().any(looks_far_ahead)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(normalizer: Value, pre_tokenizer: Value) -> Result<Bare, &'static str> {
        Bare::of(&normalizer, &pre_tokenizer)
    }

    #[test]
    fn prefixes_are_found_and_taken_away() {
        let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
        let prepend = json!({"type": "Prepend", "prepend": "▁"});
        let both = json!({"type": "Sequence", "normalizers": [prepend, replace]});
        let bare = of(both, Value::Null).unwrap();
        assert_eq!(bare.prefix, Prefix::Always);
        assert_eq!(bare.normalizer["normalizers"], json!([replace]));
        assert_eq!(of(prepend, Value::Null).unwrap().normalizer, Value::Null);

        let space = |scheme: &str| json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme});
        for (scheme, expected) in [
            ("never", Prefix::Never),
            ("first", Prefix::First),
            ("always", Prefix::Always),
        ] {
            let bare = of(Value::Null, space(scheme)).unwrap();
            assert_eq!(bare.prefix, expected);
            assert_eq!(bare.pre_tokenizer["prepend_scheme"], "never");
        }
        let digits = json!({"type": "Digits", "individual_digits": true});
        let behind = |scheme| json!({"type": "Sequence", "pretokenizers": [digits, space(scheme)]});
        assert_eq!(
            of(Value::Null, behind("first")).unwrap().prefix,
            Prefix::First
        );
        assert!(of(Value::Null, behind("always")).is_err());
        let bytes = json!({"type": "ByteLevel", "add_prefix_space": true});
        assert_eq!(of(Value::Null, bytes).unwrap().prefix, Prefix::Always);
    }

    #[test]
    fn only_patterns_that_look_ahead_look_far() {
        let split = |pattern: &str| json!({"type": "Split", "pattern": {"Regex": pattern}});
        assert!(!looks_far_ahead(&split(r"\p{N}{1,3}|\s+(?!\S)|\s+")));
        assert!(looks_far_ahead(&split(r"\d{1,3}(?=(?:\d{3})*(?!\d))")));
        let inside = json!({"type": "Sequence", "pretokenizers": [split(r"\d(?=\d\d)")]});
        assert!(looks_far_ahead(&inside));
    }
}
