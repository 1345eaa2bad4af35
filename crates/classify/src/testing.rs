//! A second, naive matcher, and the comparison of the two: for property tests and the fuzz target.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Classifier, ClassifierSetup, Network, PathMatch, RequestView, Rule, TypeRules, ValueMatch, ValuePattern};
use tidegate_engine::Tags;

/// Makes rules and requests from `data` and compares the classifier with the naive matcher.
///
/// # Panics
/// When they disagree: that is the finding.
pub fn compare(data: &[u8]) {
    let mut input = Input { data };
    let setup = input.setup();
    let Ok(classifier) = Classifier::compile(&setup) else { return };
    for _ in 0..8 {
        let request = input.request();
        let found = classifier.classify(&request);
        let (class, request_type) = naive(&setup, &request);
        let context = || format!("{setup:#?}\n{request:#?}");
        assert_eq!(found.class.index(), class, "class: {}", context());
        assert_eq!(found.request_type.index(), request_type, "type: {}", context());
        let tags = request_type.checked_sub(1).map_or(Tags(0), |index| setup.request_types[index].tags);
        assert_eq!(found.tags, tags, "tags: {}", context());
    }
}

/// A request made of owned parts, for tests.
#[derive(Clone, Debug, Default)]
pub struct PlainRequest {
    /// The method.
    pub method: String,
    /// The host.
    pub host: Option<String>,
    /// The target.
    pub path: String,
    /// Headers by lower-case name.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The client.
    pub client: Option<IpAddr>,
}

impl RequestView for PlainRequest {
    fn method(&self) -> &str {
        &self.method
    }

    fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    fn path(&self) -> &str {
        &self.path
    }

    fn header(&self, lowercase_name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|(name, _)| name == lowercase_name).map(|(_, value)| value.as_slice())
    }

    fn client(&self) -> Option<IpAddr> {
        self.client
    }
}

/// Class and type of a request by trying every rule in turn.
fn naive(setup: &ClassifierSetup, request: &PlainRequest) -> (usize, usize) {
    let group = |rules: &[Rule]| rules.is_empty() || rules.iter().any(|rule| rule_matches(rule, request));
    let class = setup.classes.iter().position(|rules| group(rules)).unwrap_or(setup.classes.len() - 1);
    let request_type = setup.request_types.iter().position(|t| group(&t.rules)).map_or(0, |index| index + 1);
    (class, request_type)
}

fn rule_matches(rule: &Rule, request: &PlainRequest) -> bool {
    let any = |list: &[String], test: &dyn Fn(&str) -> bool| list.is_empty() || list.iter().any(|item| test(item));
    let host = request.host.as_deref().map(naive_host);
    any(&rule.methods, &|m| m == request.method)
        && any(&rule.hosts, &|h| host.as_deref().is_some_and(|host| host_matches(h, host)))
        && rule.path.as_ref().is_none_or(|path| path_matches(path, &naive_path(&request.path)))
        && (rule.networks.is_empty() || rule.networks.iter().any(|n| network_holds(n, request.client)))
        && rule.headers.iter().all(|h| {
            let value = request.header(&h.name.to_lowercase());
            value.is_some_and(|value| value_matches(&h.value, String::from_utf8_lossy(value).trim()))
        })
        && rule.cookies.iter().all(|wanted| cookie_matches(wanted, request))
}

fn naive_host(authority: &str) -> String {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => host,
        _ => authority,
    };
    host.strip_suffix('.').unwrap_or(host).to_lowercase()
}

fn host_matches(pattern: &str, host: &str) -> bool {
    let pattern = pattern.to_lowercase();
    let pattern = pattern.strip_suffix('.').unwrap_or(&pattern);
    match pattern.strip_prefix('*') {
        Some(suffix) => host.ends_with(suffix) && host.len() > suffix.len(),
        None => host == pattern,
    }
}

fn naive_path(target: &str) -> Vec<u8> {
    let path = target.split(['?', '#']).next().unwrap_or("");
    if !(path.is_empty() || path.starts_with(['/', '\\', '%'])) {
        return path.as_bytes().to_vec();
    }
    let decoded = decode(path.as_bytes());
    let mut segments: Vec<&[u8]> = decoded.split(|b| matches!(b, b'/' | b'\\')).collect();
    let rooted = segments.len() > 1 || decoded.is_empty();
    let lead = if segments.len() > 1 && segments[0].is_empty() { segments.remove(0) } else { b"" };
    debug_assert!(lead.is_empty());
    let leading_slash = decoded.is_empty() || matches!(decoded[0], b'/' | b'\\');
    let last = segments.last().copied().unwrap_or(b"");
    let mut kept: Vec<&[u8]> = Vec::new();
    for segment in segments.iter().copied() {
        match segment.split(|&b| b == b';').next().unwrap_or(b"") {
            b"." => {}
            b".." => drop(kept.pop()),
            _ if segment.is_empty() => {}
            _ => kept.push(segment),
        }
    }
    let mut out: Vec<u8> = Vec::new();
    if leading_slash {
        out.push(b'/');
    }
    out.extend(kept.join(&b'/'));
    let directory = matches!(last.split(|&b| b == b';').next(), Some(b"." | b"..")) || last.is_empty();
    if rooted && directory && !kept.is_empty() {
        out.push(b'/');
    }
    out
}

fn decode(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < path.len() {
        let digits = path.get(at + 1..at + 3).filter(|d| path[at] == b'%' && d.iter().all(u8::is_ascii_hexdigit));
        let value = digits.and_then(|d| core::str::from_utf8(d).ok()).and_then(|d| u8::from_str_radix(d, 16).ok());
        out.push(value.unwrap_or(path[at]));
        at += if value.is_some() { 3 } else { 1 };
    }
    out
}

fn path_matches(wanted: &PathMatch, path: &[u8]) -> bool {
    match wanted {
        PathMatch::Exact(exact) => naive_path(exact) == path,
        PathMatch::Prefix(prefix) => {
            let prefix = naive_path(prefix);
            let mut below = prefix.clone();
            if below.last() != Some(&b'/') {
                below.push(b'/');
            }
            path == prefix || path.starts_with(&below)
        }
        PathMatch::Glob(pattern) => glob(pattern.as_bytes(), path),
    }
}

fn glob(pattern: &[u8], path: &[u8]) -> bool {
    match pattern {
        [] => path.is_empty(),
        [b'*', b'*', rest @ ..] => {
            let rest = &rest[rest.iter().take_while(|&&b| b == b'*').count()..];
            (0..=path.len()).any(|skip| glob(rest, &path[skip..]))
        }
        [b'*', rest @ ..] => {
            let segment = path.iter().position(|&b| b == b'/').unwrap_or(path.len());
            (0..=segment).any(|skip| glob(rest, &path[skip..]))
        }
        [byte, rest @ ..] => path.first() == Some(byte) && glob(rest, &path[1..]),
    }
}

fn network_holds(network: &Network, client: Option<IpAddr>) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(v4) => (4, u128::from(u32::from(v4)) << 96),
        IpAddr::V6(v6) => (6, u128::from(v6)),
    };
    let Some(client) = client else { return false };
    let client = match client {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(client, IpAddr::V4),
        v4 => v4,
    };
    let ((family, wanted), (client_family, got)) = (bits(network.addr()), bits(client));
    let length = u32::from(network.prefix_len());
    family == client_family && (length == 0 || (wanted ^ got) >> (128 - length) == 0)
}

fn value_matches(pattern: &ValuePattern, value: &str) -> bool {
    match pattern {
        ValuePattern::Present => true,
        ValuePattern::Exact(text) => value == text,
        ValuePattern::Prefix(text) => value.starts_with(text.as_str()),
        ValuePattern::Contains(text) => value.contains(text.as_str()),
    }
}

fn cookie_matches(wanted: &ValueMatch, request: &PlainRequest) -> bool {
    let header = request.header("cookie").map(String::from_utf8_lossy).unwrap_or_default();
    let mut pairs = header.split(';').filter_map(|pair| pair.split_once('='));
    pairs.find(|(name, _)| name.trim() == wanted.name).is_some_and(|(_, value)| {
        let value = value.trim();
        let inner = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
        value_matches(&wanted.value, inner.unwrap_or(value))
    })
}

/// Small words, so that rules and requests often meet.
const SEGMENTS: [&str; 16] =
    ["a", "b", "ab", "", ".", "..", "%61", "%2F", "a;x", "..;b", "c.d", "*", "**", "a*", "*b", "%"];
const HOSTS: [&str; 8] =
    ["a.example", "B.a.Example", "example", "c.example:80", "*.example", "*.a.example", "a.example.", "[::1]:8"];
const WORDS: [&str; 6] = ["gold", "goldfish", "a gold", "", "silver", "\"gold\""];
const METHODS: [&str; 3] = ["GET", "POST", "get"];
const CLIENTS: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
    IpAddr::V4(Ipv4Addr::new(10, 1, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0x0a00, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1)),
];
const NETWORKS: [&str; 5] = ["10.0.0.0/8", "10.0.0.0/16", "fd00::/8", "0.0.0.0/0", "10.0.0.1/32"];

/// Bytes read as choices; when they run out, every choice is the first.
struct Input<'a> {
    data: &'a [u8],
}

impl Input<'_> {
    fn setup(&mut self) -> ClassifierSetup {
        let classes = (0..1 + self.below(4)).map(|_| self.rules()).collect();
        let types = self.below(4);
        let request_types = (0..types).map(|index| TypeRules { rules: self.rules(), tags: Tags(1 << index) }).collect();
        ClassifierSetup { classes, request_types, seed: 7, ..ClassifierSetup::default() }
    }

    fn rules(&mut self) -> Vec<Rule> {
        (0..self.below(4)).map(|_| self.rule()).collect()
    }

    fn rule(&mut self) -> Rule {
        let conditions = self.below(64);
        let asks = |bit: usize| conditions >> bit & 1 == 1;
        Rule {
            path: asks(0).then(|| self.path_match()),
            hosts: if asks(1) { self.some(&HOSTS) } else { Vec::new() },
            methods: if asks(2) && asks(3) { self.some(&METHODS) } else { Vec::new() },
            headers: if asks(3) { [self.value_match("X-Tier")].into() } else { Vec::new() },
            cookies: if asks(4) { [self.value_match("tier")].into() } else { Vec::new() },
            dynamic: None,
            networks: if asks(5) { self.networks() } else { Vec::new() },
            certificates: Vec::new(),
        }
    }

    fn path_match(&mut self) -> PathMatch {
        match self.below(3) {
            0 => PathMatch::Exact(self.path()),
            1 => PathMatch::Prefix(self.path()),
            _ => PathMatch::Glob(self.path()),
        }
    }

    fn path(&mut self) -> String {
        let mut path = String::new();
        for _ in 0..1 + self.below(4) {
            path.push(if self.below(16) == 15 { '\\' } else { '/' });
            path.push_str(self.one(&SEGMENTS));
        }
        path
    }

    fn value_match(&mut self, name: &str) -> ValueMatch {
        let text = self.one(&WORDS).to_string();
        let value = match self.below(4) {
            0 => ValuePattern::Present,
            1 => ValuePattern::Exact(text),
            2 => ValuePattern::Prefix(text),
            _ => ValuePattern::Contains(text),
        };
        ValueMatch { name: name.to_string(), value }
    }

    fn networks(&mut self) -> Vec<Network> {
        self.some(&NETWORKS).iter().filter_map(|text| text.parse().ok()).collect()
    }

    fn request(&mut self) -> PlainRequest {
        let mut path = match self.below(32) {
            30 => String::new(),
            31 => self.one(&SEGMENTS).to_string(),
            _ => self.path(),
        };
        if self.below(4) == 3 {
            path.push_str("?a/b");
        }
        let mut headers = Vec::new();
        if self.below(2) == 1 {
            headers.push(("x-tier".to_string(), self.one(&WORDS).as_bytes().to_vec()));
        }
        if self.below(2) == 1 {
            let cookie = format!("x=1; tier={}; tier={}", self.one(&WORDS), self.one(&WORDS));
            headers.push(("cookie".to_string(), cookie.into_bytes()));
        }
        PlainRequest {
            method: self.one(&METHODS).to_string(),
            host: (self.below(4) > 0).then(|| self.one(&HOSTS).to_string()),
            path,
            headers,
            client: (self.below(4) > 0).then(|| CLIENTS[self.below(CLIENTS.len())]),
        }
    }

    fn some(&mut self, of: &[&str]) -> Vec<String> {
        (0..1 + self.below(2)).map(|_| self.one(of).to_string()).collect()
    }

    fn one<'s>(&mut self, of: &[&'s str]) -> &'s str {
        of[self.below(of.len())]
    }

    fn below(&mut self, n: usize) -> usize {
        let (first, rest) = self.data.split_first().unwrap_or((&0, &[]));
        self.data = rest;
        usize::from(*first) % n
    }
}
