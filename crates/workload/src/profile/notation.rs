//! Profiles as text: read with errors that point at the place, and written so that they can be read back.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{Piece, Profile, ProfileBuilder};
use crate::text::{Cursor, ParseError};

impl FromStr for Profile {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Profile, ParseError> {
        if !text.contains(':') && !text.contains("..") {
            return text.parse().map(Profile::constant);
        }
        let mut cursor = Cursor::new(text);
        let mut builder = Profile::builder();
        loop {
            let start = cursor.position();
            builder = read_entry(&mut cursor, builder)?;
            if let Some(error) = builder.error.take() {
                return Err(cursor.error_at(start, &format!("entries in order of time ({error})")));
            }
            if cursor.at_end() {
                break;
            }
            cursor.expect(",", "\",\" or the end of the profile")?;
        }
        builder.build().map_err(|error| cursor.error_at(0, &format!("a rate ({error})")))
    }
}

fn read_entry(cursor: &mut Cursor<'_>, builder: ProfileBuilder) -> Result<ProfileBuilder, ParseError> {
    if builder.end.is_finite() {
        return Err(cursor.error("nothing after \"end\""));
    }
    let start = Duration::from_secs_f64(cursor.seconds()?);
    if cursor.eat("..") {
        let stop = Duration::from_secs_f64(cursor.seconds()?);
        cursor.expect(":", "\":\" and the two rates of the ramp, such as 20/s->80/s")?;
        let from = if cursor.eat("->") {
            builder.last_rate()
        } else {
            let from = cursor.rate()?;
            cursor.expect("->", "\"->\" and the rate at the end of the ramp")?;
            from
        };
        return Ok(builder.ramp(start, stop, from, cursor.rate()?));
    }
    cursor.expect(":", "\":\" and a rate (or \"..\" and the end of a ramp)")?;
    if cursor.eat("end") {
        return Ok(builder.end(start));
    }
    Ok(builder.step(start, cursor.rate()?))
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [Piece { start: 0.0, from, to, .. }] = self.pieces[..]
            && from == to
            && self.end.is_infinite()
        {
            return write!(f, "{from}/s");
        }
        let mut separator = "";
        let mut previous: Option<Piece> = None;
        for piece in &self.pieces {
            let Piece { start, stop, from, to } = *piece;
            // The flat piece that follows a ramp is what a ramp means already.
            let implied = previous.is_some_and(|p| p.from != p.to && p.stop == start && p.to == from && from == to);
            if !implied {
                write!(f, "{separator}{start}s")?;
                if from == to {
                    write!(f, ":{from}/s")?;
                } else {
                    write!(f, "..{stop}s:{from}/s->{to}/s")?;
                }
                separator = ", ";
            }
            previous = Some(*piece);
        }
        if self.end.is_finite() {
            write!(f, "{separator}{}s:end", self.end)?;
        }
        Ok(())
    }
}

impl TryFrom<String> for Profile {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Profile, ParseError> {
        text.parse()
    }
}

impl From<Profile> for String {
    fn from(profile: Profile) -> String {
        profile.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rate;

    fn at(profile: &Profile, seconds: f64) -> f64 {
        profile.rate_at(Duration::from_secs_f64(seconds)).per_second()
    }

    #[test]
    fn a_bare_rate_never_ends() {
        let profile: Profile = "60/s".parse().unwrap();
        assert_eq!((at(&profile, 0.0), at(&profile, 1e6), profile.end()), (60.0, 60.0, None));
        assert_eq!(profile.to_string(), "60/s");
    }

    #[test]
    fn a_ramp_may_start_at_the_rate_before_it() {
        let profile: Profile = "0s:10/s, 5s..15s:->30/s".parse().unwrap();
        assert_eq!((at(&profile, 10.0), at(&profile, 20.0)), (20.0, 30.0));
    }

    #[test]
    fn text_and_builder_agree() {
        let s = Duration::from_secs;
        let r = |n| Rate::new(n).unwrap();
        let built =
            Profile::builder().step(s(0), r(20.0)).ramp(s(5), s(9), r(30.0), r(10.0)).end(s(20)).build().unwrap();
        assert_eq!("0s:20/s, 5s..9s:30/s->10/s, 20s:end".parse::<Profile>().unwrap(), built);
        assert_eq!(built.to_string().parse::<Profile>().unwrap(), built);
    }

    #[test]
    fn errors_name_the_column() {
        for (text, column, part) in [
            ("0s:20/s, 13x:80/s", 12, "unit after the number"),
            ("0s:20/s, 5s 80/s", 13, "\":\""),
            ("10s:20/s, 5s:80/s", 11, "order of time"),
            ("5s..5s:1/s->2/s", 1, "takes no time"),
            ("0s..5s:1/s", 11, "\"->\""),
            ("0s:1/s, 5s:end, 6s:1/s", 17, "nothing after"),
            ("0s:1/s,", 8, "duration"),
            ("", 1, "rate such as"),
            ("200/x", 5, "unit of time"),
            ("5s:end", 1, "at least one rate"),
        ] {
            let error = text.parse::<Profile>().unwrap_err();
            assert_eq!(error.column, column, "{error}");
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
