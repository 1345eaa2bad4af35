//! The line that tells of an end.
//!
//! Behind whatever syslog puts before it come fields, `name=value`; a value with spaces is in brackets. nginx writes
//! the times of all servers that a request was sent to: `, ` between those of one place, ` : ` where it was sent on to
//! another place. The first is the sentry, which was asked; the last is the service.

use std::time::Duration;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Told {
    /// The status that the client got; 0: none.
    pub(crate) status: u16,
    /// Bytes of its body.
    pub(crate) bytes: u64,
    /// The client has all of the answer.
    pub(crate) is_done: bool,
    /// What its server did.
    pub(crate) served: Served,
}

/// What became of a request that was sent on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Served {
    /// It was not: the answer was in a cache, or is the proxy's own.
    Nowhere,
    /// No server gave an answer.
    Failed,
    /// One did: after so long its head was here, and after so long the whole of it.
    Answered { head: Duration, whole: Duration },
}

/// Reads a line: the request's id, and how it ended. `None`: it is something else.
pub(super) fn read(datagram: &[u8]) -> Option<(&[u8], Told)> {
    let text = std::str::from_utf8(datagram).ok()?;
    let mut id = None;
    let mut told = Told { status: 0, bytes: 0, is_done: false, served: Served::Nowhere };
    let (mut head, mut whole) = (None, None);
    for (name, value) in Fields(&text[text.find(" id=")?..]) {
        match name {
            "id" => id = Some(value),
            "status" => told.status = value.parse().unwrap_or(0),
            "bytes" => told.bytes = value.parse().unwrap_or(0),
            "done" => told.is_done = value == "OK",
            "head" => head = last_place(value),
            "whole" => whole = last_place(value),
            _ => {}
        }
    }
    if let (Some(head), Some(whole)) = (head, whole) {
        told.served = match (last_time(head), last_time(whole)) {
            (Some(head), Some(whole)) => Served::Answered { head, whole: whole.max(head) },
            _ => Served::Failed,
        };
    }
    Some((id?.as_bytes(), told))
}

/// The fields of a line. What is no field ends it.
struct Fields<'a>(&'a str);

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, rest) = self.0.trim_start().split_once('=')?;
        let (value, rest) = match rest.strip_prefix('[') {
            Some(rest) => rest.split_once(']')?,
            None => rest.split_once(' ').unwrap_or((rest, "")),
        };
        self.0 = rest;
        Some((name, value.trim_end()))
    }
}

/// What is said of the servers of the last place that a request was sent to, where that is not the sentry.
fn last_place(value: &str) -> Option<&str> {
    value.rsplit_once(" : ").map(|(_, last)| last)
}

/// The time of the last server there; `None`: it has none.
fn last_time(place: &str) -> Option<Duration> {
    let seconds: f64 = place.rsplit(',').next()?.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BEFORE: &str = "<190>Nov 25 16:12:23 host tidegate: ";

    fn told(fields: &str) -> Option<(String, Told)> {
        let line = format!("{BEFORE}{fields}");
        read(line.as_bytes()).map(|(id, told)| (String::from_utf8_lossy(id).into_owned(), told))
    }

    fn served(head: &str, whole: &str) -> Served {
        told(&format!("id=a status=200 bytes=0 done=OK head=[{head}] whole=[{whole}]")).expect("a line").1.served
    }

    fn answered(head: u64, whole: u64) -> Served {
        Served::Answered { head: Duration::from_millis(head), whole: Duration::from_millis(whole) }
    }

    #[test]
    fn a_line_says_whose_end_it_is_and_how_it_was() {
        let line = "id=0af3 status=200 bytes=512 done=OK head=[0.004 : 0.030] whole=[0.004 : 0.035]\n";
        let end = Told { status: 200, bytes: 512, is_done: true, served: answered(30, 35) };
        assert_eq!(told(line), Some((String::from("0af3"), end)));
        let left = "id=0af3 status=499 bytes=0 done= head=[0.004 : -] whole=[0.004 : 0.500]";
        let end = Told { status: 499, bytes: 0, is_done: false, served: Served::Failed };
        assert_eq!(told(left), Some((String::from("0af3"), end)));
    }

    #[test]
    fn what_counts_is_the_server_that_was_asked_last() {
        assert_eq!(served("0.004 : -, 0.020", "0.004 : 0.001, 0.030"), answered(20, 30));
        assert_eq!(served("0.004 : 0.001 : 0.020", "0.004 : 0.001 : 0.030"), answered(20, 30));
        assert_eq!(served("0.004 : -", "0.004 : 0.000"), Served::Failed, "nobody answered");
        assert_eq!(served("0.004", "0.004"), Served::Nowhere, "from a cache");
        assert_eq!(served("-", "-"), Served::Nowhere);
        assert_eq!(served("0.004 : -1", "0.004 : inf"), Served::Failed, "no times at all");
    }

    #[test]
    fn what_is_no_such_line_is_ignored() {
        for other in ["", "id=", "hello", "status=200 bytes=0", "id"] {
            assert_eq!(told(other).filter(|(id, _)| !id.is_empty()), None, "{other}");
        }
        assert_eq!(read(&[b' ', b'i', b'd', b'=', 0xff]), None);
    }

    proptest! {
        #[test]
        fn nothing_breaks_it(bytes: Vec<u8>, text in "( id=|head=|whole=|\\[|\\]| : |, |[0-9.]{0,4}|-|=){0,40}") {
            let _ = read(&bytes);
            let _ = read(text.as_bytes());
        }
    }
}
