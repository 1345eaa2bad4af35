//! The head of an answer as it is written, and how its body is framed: as hyper does it.

use std::time::SystemTime;

use http::{StatusCode, header, response};
use http_body::Body;
use httpdate::HttpDate;
use hyper::ext::ReasonPhrase;

use crate::gate::head::{Framing, plain_number};
use crate::headers::has_token;
use crate::headers::lines::Lines;
use crate::out::field;

/// The time as answers say it, made anew once a second.
#[derive(Debug)]
pub(crate) struct Date {
    text: String,
    second: u64,
}

impl Default for Date {
    fn default() -> Self {
        Date { text: String::new(), second: u64::MAX }
    }
}

impl Date {
    fn now(&mut self) -> &str {
        let now = SystemTime::now();
        let second = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        if second != self.second {
            (self.text, self.second) = (HttpDate::from(now).to_string(), second);
        }
        &self.text
    }
}

/// Appends an answer's head to `out`, with those of its fields that stay `lines`. `is_head`: it answers `HEAD`.
/// `close`: the connection closes after it, because the client wants it so or, afterwards, because the answer says so.
pub(super) fn head(
    parts: &response::Parts,
    lines: &Lines,
    body: &impl Body,
    is_head: bool,
    close: &mut bool,
    date: &mut Date,
    out: &mut Vec<u8>,
) -> Framing {
    let status = parts.status;
    begin(parts, out);
    let may_have_length =
        !status.is_informational() && !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let may_have_body = may_have_length && !is_head;
    let length = if body.is_end_stream() { Some(0) } else { body.size_hint().exact() };
    let (mut said, mut has_date, mut says_connection) = (None, lines.has_date(), false);
    for (name, value) in &parts.headers {
        match *name {
            header::CONTENT_LENGTH => {
                // An answer to `HEAD` says how long it would be. Any other without a body says nothing here.
                let is_true = is_head || !body.is_end_stream();
                if said.is_some() || !is_true {
                    continue;
                }
                // What is no number is not believed to be short: such a body counts as broken off when it ends.
                said = Some(plain_number(value.as_bytes()).unwrap_or(u64::MAX));
            }
            header::TRANSFER_ENCODING => continue,
            header::TRAILER if !may_have_body => continue,
            header::CONNECTION => {
                says_connection = true;
                *close |= has_token(value.as_bytes(), b"close");
            }
            header::DATE => has_date = true,
            _ => {}
        }
        field(out, name.as_str(), value.as_bytes());
    }
    lines.write(out);
    let framing = match (said, length) {
        (Some(said), None) => Framing::Length(said),
        (Some(_), Some(length)) => Framing::Length(length),
        (None, None) if may_have_body => {
            field(out, "transfer-encoding", b"chunked");
            Framing::Chunked
        }
        (None, None) => Framing::None,
        (None, Some(length)) => {
            if may_have_length && !(is_head && length == 0) {
                field(out, "content-length", length.to_string().as_bytes());
            }
            Framing::Length(length)
        }
    };
    if *close && !says_connection {
        field(out, "connection", b"close");
    }
    if !has_date {
        field(out, "date", date.now().as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    if may_have_body { framing } else { Framing::None }
}

fn begin(parts: &response::Parts, out: &mut Vec<u8>) {
    if parts.status == StatusCode::OK && parts.extensions.is_empty() {
        return out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    }
    let reason = match parts.extensions.get::<ReasonPhrase>() {
        Some(reason) => reason.as_bytes(),
        None => parts.status.canonical_reason().unwrap_or("<none>").as_bytes(),
    };
    for part in [b"HTTP/1.1 ", parts.status.as_str().as_bytes(), b" ", reason, b"\r\n"] {
        out.extend_from_slice(part);
    }
}
