//! Pieces that every page is made of.

use std::fmt;

use crate::mailbox::Account;

/// Text that may hold anything, made harmless in HTML.
pub fn escape(text: &str) -> Escaped<'_> {
    Escaped(text)
}

/// Made by [`escape`].
#[derive(Debug, Clone, Copy)]
pub struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(['&', '<', '>', '"', '\'']) {
            f.write_str(&rest[..at])?;
            f.write_str(match rest.as_bytes()[at] {
                b'&' => "&amp;",
                b'<' => "&lt;",
                b'>' => "&gt;",
                b'"' => "&quot;",
                _ => "&#39;",
            })?;
            rest = &rest[at + 1..];
        }
        f.write_str(rest)
    }
}

/// A whole page around its main part.
pub(super) fn page(title: &str, account: Option<&Account>, main: &str) -> String {
    let visitor = account.map_or_else(String::new, |account| {
        format!(
            "<nav aria-label=\"Mail\"><a href=\"/folders\">Folders</a><span>{}</span>\
             <form method=\"post\" action=\"/logout\"><button class=\"plain\">Sign out</button></form></nav>",
            escape(&account.name)
        )
    });
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{} - tidegate mail</title>\
         <link rel=\"stylesheet\" href=\"/static/style.css\"><link rel=\"icon\" href=\"/static/logo.svg\"></head>\n<body>\
         <a class=\"skip\" href=\"#main\">Skip to the content</a>\
         <header><a class=\"name\" href=\"/\"><img src=\"/static/logo.svg\" width=\"32\" height=\"32\" alt=\"\">\
         tidegate mail</a>{visitor}</header>\n<main id=\"main\">{main}</main></body></html>\n",
        escape(title)
    )
}

/// `1 message`, `2 messages`.
pub(super) fn plural(count: i64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// A length people can read.
pub(super) fn bytes(bytes: i64) -> String {
    if bytes < 1_000 { format!("{bytes} B") } else { format!("{:.1} kB", bytes as f64 / 1e3) }
}

/// A day and time in UTC, from seconds since 1970.
pub(super) fn date(seconds: i64) -> impl fmt::Display {
    Date(seconds)
}

struct Date(i64);

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, second) = (self.0.div_euclid(86_400), self.0.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        write!(f, "{year}-{month:02}-{day:02} {:02}:{:02}", second / 3_600, second / 60 % 60)
    }
}

/// Year, month and day of a number of days since 1970: Hinnant's algorithm, in which years begin in March.
fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let (era, day_of_era) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00"),
            (951_827_640, "2000-02-29 12:34"),
            (1_780_315_200, "2026-06-01 12:00"),
            (-1, "1969-12-31 23:59"),
        ] {
            assert_eq!(date(seconds).to_string(), text);
        }
    }

    #[test]
    fn escaping() {
        assert_eq!(escape("a<b>&\"c\"'é").to_string(), "a&lt;b&gt;&amp;&quot;c&quot;&#39;é");
    }
}
