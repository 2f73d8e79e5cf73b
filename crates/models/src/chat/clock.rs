//! Date and time for chat templates.

use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// A moment in the local time zone.
#[derive(Debug, Clone)]
pub(super) struct Clock(Zoned);

impl Clock {
    /// The present, or the moment in `SOURCE_DATE_EPOCH`, so that a prompt with a date can be
    /// repeated; in local time, as in Python.
    pub(super) fn now() -> Self {
        let fixed = std::env::var("SOURCE_DATE_EPOCH")
            .ok()
            .and_then(|text| text.parse().ok())
            .and_then(|seconds| Timestamp::from_second(seconds).ok());
        Self(match fixed {
            Some(moment) => moment.to_zoned(TimeZone::system()),
            None => Zoned::now(),
        })
    }

    /// Python's `strftime` of a time without a zone, with English names. As in Python, a letter
    /// that is no directive is kept.
    pub(super) fn format(&self, format: &str) -> String {
        let mut text = String::new();
        let mut rest = format;
        while let Some((before, behind)) = rest.split_once('%') {
            text.push_str(before);
            // Flags and a width, then the letter; the letters E and O before it request forms of
            // other languages.
            let flags = behind.len() - behind.trim_start_matches(['-', '_', '0', '^', '#']).len();
            let width = behind[flags..].len()
                - behind[flags..]
                    .trim_start_matches(|c: char| c.is_ascii_digit())
                    .len();
            let letter = behind[flags + width..].trim_start_matches(['E', 'O']);
            let Some(directive) = letter.chars().next() else {
                text.push('%');
                text.push_str(behind);
                return text;
            };
            let before_letter = &behind[..flags + width];
            rest = &letter[directive.len_utf8()..];
            match self.directive(before_letter, directive) {
                Some(part) => text.push_str(&part),
                None => {
                    text.push('%');
                    text.push_str(&behind[..behind.len() - rest.len()]);
                }
            }
        }
        text.push_str(rest);
        text
    }

    fn directive(&self, flags: &str, directive: char) -> Option<String> {
        // A time without a zone has neither a name nor an offset. The other forms are those of the
        // C locale.
        let own = match directive {
            'Z' | 'z' => return Some(String::new()),
            'f' => return Some(format!("{:06}", self.0.subsec_nanosecond() / 1000)),
            's' => return Some(self.0.timestamp().as_second().to_string()),
            '%' => return Some("%".to_owned()),
            'n' => return Some("\n".to_owned()),
            't' => return Some("\t".to_owned()),
            'c' => Some("%a %b %e %H:%M:%S %Y"),
            'x' => Some("%m/%d/%y"),
            'X' => Some("%H:%M:%S"),
            'r' => Some("%I:%M:%S %p"),
            _ => None,
        };
        if let Some(own) = own {
            return Some(self.format(own));
        }
        if !"AaBbhCdDeFGgHIjklMmpPRSTuUVwWYy".contains(directive) {
            return None;
        }
        let broken = BrokenDownTime::from(&self.0);
        broken.to_string(format!("%{flags}{directive}")).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Clock {
        Clock(
            Timestamp::from_second(seconds)
                .unwrap()
                .to_zoned(TimeZone::UTC),
        )
    }

    #[test]
    fn dates_by_hand() {
        let show = |seconds, format: &str| at(seconds).format(format);
        assert_eq!(
            show(0, "%A %d %B %Y %H:%M:%S"),
            "Thursday 01 January 1970 00:00:00"
        );
        assert_eq!(show(951_782_400, "%a %e %b %y"), "Tue 29 Feb 00");
        assert_eq!(show(1_721_952_000, "%d %b %Y"), "26 Jul 2024");
        assert_eq!(show(1_735_689_599, "%F 100%%"), "2024-12-31 100%");
        assert_eq!(show(1_735_689_600, "%F"), "2025-01-01");
    }

    #[test]
    fn directives_are_pythons() {
        // Output of CPython 3.11 for this moment, a Tuesday.
        let moment = at(1_741_100_767);
        for (format, text) in [
            ("%-d %B %Y", "4 March 2025"),
            ("%I:%M %p", "03:06 PM"),
            ("%j", "063"),
            ("%Z%z", ""),
            ("%x %X", "03/04/25 15:06:07"),
            ("%c", "Tue Mar  4 15:06:07 2025"),
            ("%D %T %R", "03/04/25 15:06:07 15:06"),
            ("%u %w %V %G %U %W", "2 2 10 2025 09 09"),
            ("%k|%l|%-I|%e", "15| 3|3| 4"),
            ("%f", "000000"),
            ("%C %g %h %P", "20 25 Mar pm"),
            ("%^a %Ey %Od", "TUE 25 04"),
            ("100% of %Q%", "100% of %Q%"),
        ] {
            assert_eq!(moment.format(format), text, "{format}");
        }
    }
}
