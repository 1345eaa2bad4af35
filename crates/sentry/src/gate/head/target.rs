//! The request target in its four forms, and the names of hosts: what may pass, and what is plain.

use tidegate_classify::{Paths, Reading, canonical, reading};

use super::{Bad, Head};

/// hyper's bound on a request target.
const MAX_TARGET: usize = u16::MAX as usize - 1;

/// Judges method and target; a target that must be spelt anew before anybody reads it is not plain.
pub(super) fn judge(head: &mut Head<'_, '_>, paths: Paths) -> Result<(), Bad> {
    let target = head.target;
    head.plain &= matches!(head.method, "GET" | "HEAD" | "POST" | "PUT" | "DELETE" | "OPTIONS" | "PATCH");
    if target.len() > MAX_TARGET {
        return Err(Bad::TargetTooLong);
    }
    // A tunnel to anywhere, and an answer that repeats what only servers should read.
    if matches!(head.method, "CONNECT" | "TRACE") {
        return Err(Bad::NotImplemented);
    }
    let plain = target.bytes().all(|b| PLAIN_TARGET[usize::from(b)]);
    if !plain && target.bytes().any(|b| b == b'#' || !(0x21..=0x7e).contains(&b)) {
        return Err(Bad::Target);
    }
    if target.starts_with('/') {
        head.plain &= plain & judge_path(target, paths)?;
        return Ok(());
    }
    head.plain = false;
    if target == "*" && head.method == "OPTIONS" {
        return Ok(());
    }
    let rest = without_scheme(target).ok_or(Bad::Target)?;
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    // A user's name before the host is an error (RFC 9110, 4.2.4): it makes two hosts of one.
    if authority.is_empty() || !is_host(authority.as_bytes()) {
        return Err(Bad::Target);
    }
    judge_path(path, paths).map(|_| ())
}

/// Whether a path may stay as it is written.
fn judge_path(target: &str, paths: Paths) -> Result<bool, Bad> {
    match (reading(target), paths) {
        (Reading::Canonical, _) => Ok(true),
        (Reading::TooLong, _) => Err(Bad::TargetTooLong),
        (_, Paths::AsIs) => Ok(true),
        (Reading::Other, _) => Ok(false),
        (Reading::Ambiguous, Paths::Merge) if canonical(target).is_some() => Ok(false),
        (Reading::Ambiguous, _) => Err(Bad::AmbiguousPath),
    }
}

fn without_scheme(target: &str) -> Option<&str> {
    ["http://", "https://"].iter().find_map(|scheme| {
        let (start, rest) = target.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    })
}

/// Bytes of RFC 3986 in a path and query. Others go to hyper, which takes some of them and refuses the rest.
static PLAIN_TARGET: [bool; 256] = letters_digits_and(b"-._~:/?@!$&'()*+,;=%");

/// Bytes of a name in RFC 3986.
static HOST_NAME: [bool; 256] = letters_digits_and(b"-._~!$&'()*+,;=%");

const fn letters_digits_and(others: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
}

/// Host and port as RFC 3986 spells them; empty is lawful too.
pub(crate) fn is_host(host: &[u8]) -> bool {
    let Some(literal) = host.strip_prefix(b"[") else {
        let name = host.iter().take_while(|&&b| HOST_NAME[usize::from(b)]).count();
        return is_port(&host[name..]);
    };
    let address = literal.iter().take_while(|&&b| b.is_ascii_hexdigit() || b == b':' || b == b'.').count();
    literal[address..].strip_prefix(b"]").is_some_and(is_port)
}

/// Nothing, or a colon and at most five digits.
fn is_port(bytes: &[u8]) -> bool {
    match bytes {
        [] => true,
        [b':', digits @ ..] => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}
