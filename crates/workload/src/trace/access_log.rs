//! Common and combined log format: `host ident user [time] "request" status bytes ["referer" "agent"]`.
//!
//! *Source.* The Apache HTTP server's documentation of `mod_log_config`; nginx's `combined` is the same. What follows
//! the bytes is not looked at, so formats that append fields are read too.

use super::error::Flaw;
use super::instant::Instant;
use super::{Traced, What};

/// Reads a line. The label is the path without its query, the size is the answer's bytes (`-` is 0).
pub(super) fn read(line: &str) -> Result<(Instant, What), Flaw> {
    let (_, rest) = line.split_once('[').ok_or(Flaw::AccessLog("there is no [time]"))?;
    let (time, rest) = rest.split_once(']').ok_or(Flaw::AccessLog("there is no ] after the time"))?;
    let at = Instant::from_access_log(time).ok_or_else(|| Flaw::Time(time.chars().take(40).collect()))?;
    let rest = rest.trim_start().strip_prefix('"').ok_or(Flaw::AccessLog("there is no \"request\""))?;
    let (request, rest) = quoted(rest).ok_or(Flaw::AccessLog("the request's closing quote is missing"))?;
    let mut fields = rest.split_ascii_whitespace();
    let status = fields.next().filter(|status| status.len() == 3 && status.bytes().all(|byte| byte.is_ascii_digit()));
    status.ok_or(Flaw::AccessLog("there is no status of three digits after the request"))?;
    let mut traced = Traced { label: Some(path(request).into()), ..Traced::default() };
    traced.sizes.push(match fields.next() {
        Some("-") => 0.0,
        Some(bytes) => {
            bytes.parse::<u64>().map_err(|_| Flaw::AccessLog("the bytes after the status are no number"))? as f64
        }
        None => return Err(Flaw::AccessLog("there are no bytes after the status")),
    });
    Ok((at, What::Request(traced)))
}

/// What is before the closing quote, and what is after it. A quote in a request is written with a backslash.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' if !escaped => return Some((&text[..at], &text[at + 1..])),
            b'\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    None
}

/// The path of `GET /path?query HTTP/1.1`; of anything else, all of it.
fn path(request: &str) -> &str {
    let target = request.split_ascii_whitespace().nth(1).unwrap_or(request);
    target.split(['?', '#']).next().unwrap_or(target)
}
