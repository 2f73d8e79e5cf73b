//! The date a chat template may show.

use std::time::{SystemTime, UNIX_EPOCH};

const SECONDS_A_DAY: i64 = 86_400;
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
];

/// A moment, in UTC.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    seconds: i64,
}

impl Clock {
    /// The present, or the moment `SOURCE_DATE_EPOCH` names, so that a prompt with a date in it can be repeated.
    pub(super) fn now() -> Self {
        let fixed = std::env::var("SOURCE_DATE_EPOCH")
            .ok()
            .and_then(|text| text.parse().ok());
        let present = || {
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs() as i64)
        };
        Self {
            seconds: fixed.unwrap_or_else(present),
        }
    }

    /// `strftime` with English names.
    ///
    /// # Errors
    /// A directive that is not known, in words.
    pub(super) fn format(self, format: &str) -> Result<String, String> {
        let days = self.seconds.div_euclid(SECONDS_A_DAY);
        let of_day = self.seconds.rem_euclid(SECONDS_A_DAY);
        let (year, month, day) = civil(days);
        let (month_name, day_name) = (
            MONTHS[month as usize - 1],
            DAYS[days.rem_euclid(7) as usize],
        );
        let mut text = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                text.push(c);
                continue;
            }
            let part = match chars.next() {
                Some('Y') => year.to_string(),
                Some('y') => format!("{:02}", year.rem_euclid(100)),
                Some('m') => format!("{month:02}"),
                Some('d') => format!("{day:02}"),
                Some('e') => format!("{day:2}"),
                Some('B') => month_name.to_owned(),
                Some('b' | 'h') => month_name[..3].to_owned(),
                Some('A') => day_name.to_owned(),
                Some('a') => day_name[..3].to_owned(),
                Some('H') => format!("{:02}", of_day / 3600),
                Some('M') => format!("{:02}", of_day / 60 % 60),
                Some('S') => format!("{:02}", of_day % 60),
                Some('F') => format!("{year}-{month:02}-{day:02}"),
                Some('%') => "%".to_owned(),
                Some(other) => return Err(format!("strftime_now does not know `%{other}`")),
                None => return Err("strftime_now: the format ends in `%`".to_owned()),
            };
            text.push_str(&part);
        }
        Ok(text)
    }
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar.
fn civil(days: i64) -> (i64, i64, i64) {
    let leap = |y: i64| (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
    let mut year = 1970 + days.div_euclid(366);
    let first = |y: i64| {
        let before = y - 1;
        (y - 1970) * 365 + (before / 4 - before / 100 + before / 400)
            - (1969 / 4 - 1969 / 100 + 1969 / 400)
    };
    while first(year + 1) <= days {
        year += 1;
    }
    let mut rest = days - first(year);
    let february = if leap(year) { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if rest < length {
            break;
        }
        rest -= length;
        month += 1;
    }
    (year, month, rest + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_by_hand() {
        let show = |seconds, format: &str| Clock { seconds }.format(format).unwrap();
        assert_eq!(
            show(0, "%A %d %B %Y %H:%M:%S"),
            "Thursday 01 January 1970 00:00:00"
        );
        assert_eq!(show(951_782_400, "%a %e %b %y"), "Tue 29 Feb 00");
        assert_eq!(show(1_721_952_000, "%d %b %Y"), "26 Jul 2024");
        assert_eq!(show(1_735_689_599, "%F 100%%"), "2024-12-31 100%");
        assert_eq!(show(1_735_689_600, "%F"), "2025-01-01");
        assert!(
            Clock { seconds: 0 }
                .format("%Q")
                .unwrap_err()
                .contains("%Q")
        );
    }
}
