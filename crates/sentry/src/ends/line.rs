//! The line that tells of an end.
//!
//! Behind whatever syslog puts before it come fields, `name=value`; a value with spaces is in brackets. nginx writes
//! the times of all servers that a request was sent to: `, ` between those of one place, ` : ` where it was sent on to
//! another place. The first is the sentry, which was asked; the last is the service. HAProxy writes how long each part
//! took, in milliseconds, -1 for what did not come to pass, and two letters that say who ended it, and when.

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
    let mut haproxy = Haproxy::default();
    for (name, value) in Fields(&text[text.find(" id=")?..]) {
        match name {
            "id" => id = Some(value),
            "status" => told.status = value.parse().unwrap_or(0),
            "bytes" => told.bytes = value.parse().unwrap_or(0),
            "done" => told.is_done = value == "OK",
            "head" => head = last_place(value),
            "whole" => whole = last_place(value),
            "ended" => haproxy.ended = Some(value),
            "queue" => haproxy.queue = milliseconds(value),
            "connect" => haproxy.connect = milliseconds(value),
            "answer" => haproxy.answer = milliseconds(value),
            "rest" => {
                haproxy.rest = milliseconds(value);
                // What follows is the operator's own, with words of clients in it.
                break;
            }
            _ => {}
        }
    }
    if let Some(ended) = haproxy.ended {
        (told.is_done, told.served) = haproxy.served(ended);
    }
    if let (Some(head), Some(whole)) = (head, whole) {
        told.served = match (last_time(head), last_time(whole)) {
            (Some(head), Some(whole)) => Served::Answered { head, whole: whole.max(head) },
            _ => Served::Failed,
        };
    }
    Some((id?.as_bytes(), told))
}

/// What HAProxy writes.
#[derive(Clone, Copy, Debug, Default)]
struct Haproxy<'a> {
    /// Who ended it, and when.
    ended: Option<&'a str>,
    /// In its queue, until a server was connected, until the answer's head was here, until its end.
    queue: Option<Duration>,
    connect: Option<Duration>,
    answer: Option<Duration>,
    rest: Option<Duration>,
}

impl Haproxy<'_> {
    /// Whether the client has all of the answer, and what a server did.
    fn served(&self, ended: &str) -> (bool, Served) {
        let sum = |times: &[Option<Duration>]| times.iter().copied().sum::<Option<Duration>>();
        match ended.as_bytes().first() {
            Some(b'-') => {
                let head = sum(&[self.queue, self.connect, self.answer]);
                let answered = |head| Served::Answered { head, whole: head + self.rest.unwrap_or_default() };
                (true, head.map_or(Served::Nowhere, answered))
            }
            // The client left, or took too long.
            Some(b'C' | b'c') => (false, Served::Failed),
            // It was to go to a server, which had no part in it unless a connection was tried.
            Some(b'S' | b's') => (true, Served::Failed),
            _ if self.connect.is_some() => (true, Served::Failed),
            _ => (true, Served::Nowhere),
        }
    }
}

/// A time as HAProxy writes it; `None`: it did not come to pass.
fn milliseconds(value: &str) -> Option<Duration> {
    value.parse().ok().map(|number: u32| Duration::from_millis(number.into()))
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

    /// As HAProxy 2.6 wrote them: well, from its cache, refused by a rule, without a server, when its server broke off,
    /// and when its client left before the answer and in it.
    #[test]
    fn haproxy_says_who_ended_it_and_how_long_each_part_took() {
        let line = |rest: &str| {
            let line = format!("{BEFORE}id=0af3 status=200 bytes=89 {rest}");
            read(line.as_bytes()).map(|(_, told)| (told.is_done, told.served)).expect("a line")
        };
        assert_eq!(line("ended=-- queue=0 connect=1 answer=20 rest=4"), (true, answered(21, 25)));
        assert_eq!(
            line("ended=-- queue=0 connect=1 answer=2 rest=4 \"GET / ended=SC queue=-1\""),
            (true, answered(3, 7))
        );
        assert_eq!(line("ended=LR queue=-1 connect=-1 answer=-1 rest=-1"), (true, Served::Nowhere));
        assert_eq!(line("ended=SC queue=0 connect=-1 answer=-1 rest=-1"), (true, Served::Failed));
        assert_eq!(line("ended=SD queue=0 connect=0 answer=3 rest=5"), (true, Served::Failed));
        assert_eq!(line("ended=PH queue=0 connect=0 answer=-1 rest=-1"), (true, Served::Failed));
        assert_eq!(line("ended=CH queue=0 connect=0 answer=-1 rest=-1"), (false, Served::Failed));
        assert_eq!(line("ended=cD queue=0 connect=0 answer=1 rest=900"), (false, Served::Failed));
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
        fn nothing_breaks_it(
            bytes: Vec<u8>,
            text in "( id=|head=|whole=|ended=| rest=|answer=|\\[|\\]| : |, |[0-9.]{0,4}|-|=){0,40}",
        ) {
            let _ = read(&bytes);
            let _ = read(text.as_bytes());
        }
    }
}
