//! Groups of rules, compiled: which is the first group that a request belongs to.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;
use hashbrown::HashMap;

use super::dynamic::is_dynamic;
use super::glob::{Glob, LONGEST_TAIL};
use super::host::{HostBuffer, is_lower, without_port};
use super::path::{LONGEST_ODD_PATH, is_plain, normalise, without_query};
use super::radix::Radix;
use super::values::{cookie_matches, cookie_of, header_matches, header_of};
use super::{Network, PathMatch, RequestView, Rule, RuleProblem, ValueMatch, ValuePattern};

/// Ordered groups of rules, compiled. A group is a class or a request type; `Matcher` also stands alone, as for exempt
/// requests.
#[derive(Clone, Debug, Default)]
pub struct Matcher {
    /// Ascending by group, so that every list of indices below is too.
    rules: Vec<Compiled>,
    exact_paths: HashMap<Box<[u8]>, Vec<u32>>,
    path_prefixes: Radix,
    exact_hosts: HashMap<Box<str>, Vec<u32>>,
    parent_hosts: HashMap<Box<str>, Vec<u32>>,
    headers: Fields,
    cookies: Fields,
    residual: Vec<u32>,
    wants_host: bool,
}

/// Rules by fields, or cookies, that must have a certain value: by their names, and by these values.
#[derive(Clone, Debug, Default)]
struct Fields(Vec<(String, ByValue)>);

type ByValue = HashMap<Box<[u8]>, Vec<u32>>;

/// A rule ready to be tested. Conditions that its place in the index has proved are tested again: they are cheap.
#[derive(Clone, Debug)]
struct Compiled {
    group: u32,
    methods: Box<[String]>,
    hosts: Box<[HostTest]>,
    path: Option<PathTest>,
    headers: Box<[ValueMatch]>,
    cookies: Box<[ValueMatch]>,
    networks: Box<[Network]>,
    certificates: Box<[String]>,
    dynamic: Option<bool>,
}

#[derive(Clone, Debug)]
enum HostTest {
    Is(Box<str>),
    /// Below this name: `*.example.org` holds `example.org`.
    Below(Box<str>),
}

#[derive(Clone, Debug)]
enum PathTest {
    Exact(Box<[u8]>),
    Prefix(Box<[u8]>),
    Glob(Glob),
}

/// A request's path and host in normal form. A `None` matches no rule that asks for it.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) path: Option<&'a [u8]>,
    pub(super) host: Option<&'a str>,
}

impl Matcher {
    /// Compiles groups of rules. A group without rules, like a rule without conditions, matches everything.
    ///
    /// # Errors
    /// The first rule that cannot be matched, by group and position (both from 0), and why.
    pub fn compile<'r>(groups: impl IntoIterator<Item = &'r [Rule]>) -> Result<Matcher, (usize, usize, RuleProblem)> {
        let mut matcher = Matcher::default();
        for (group, rules) in groups.into_iter().enumerate() {
            if rules.is_empty() {
                matcher.add(group, &Rule::default()).map_err(|problem| (group, 0, problem))?;
            }
            for (position, rule) in rules.iter().enumerate() {
                matcher.add(group, rule).map_err(|problem| (group, position, problem))?;
            }
        }
        Ok(matcher)
    }

    /// The first group with a rule that `view` satisfies.
    pub fn find(&self, view: &impl RequestView) -> Option<usize> {
        if self.rules.is_empty() {
            return None;
        }
        with_target(view, self.wants_host, |target| self.find_target(target, view))
    }

    /// The same as [`Matcher::find`], for a target in normal form.
    pub(super) fn find_target(&self, target: Target<'_>, view: &impl RequestView) -> Option<usize> {
        let mut search = Search { matcher: self, target, view, best: u32::MAX };
        if let Some(path) = target.path {
            if let Some(rules) = self.exact_paths.get(path) {
                search.try_rules(rules);
            }
            self.path_prefixes.walk(path, |rules| search.try_rules(rules));
        }
        if let Some(host) = target.host {
            if let Some(rules) = self.exact_hosts.get(host) {
                search.try_rules(rules);
            }
            self.each_parent(host, |rules| search.try_rules(rules));
        }
        self.headers.each(|name| header_of(view, name), |rules| search.try_rules(rules));
        self.cookies.each(|name| cookie_of(view, name), |rules| search.try_rules(rules));
        search.try_rules(&self.residual);
        (search.best != u32::MAX).then_some(search.best as usize)
    }

    fn each_parent(&self, host: &str, mut visit: impl FnMut(&[u32])) {
        if self.parent_hosts.is_empty() {
            return;
        }
        for (dot, _) in host.match_indices('.') {
            if let Some(rules) = self.parent_hosts.get(&host[dot + 1..]) {
                visit(rules);
            }
        }
    }

    fn add(&mut self, group: usize, rule: &Rule) -> Result<(), RuleProblem> {
        let compiled = Compiled::new(group as u32, rule)?;
        let index = self.rules.len() as u32;
        self.wants_host |= !compiled.hosts.is_empty();
        self.file(index, &compiled);
        self.rules.push(compiled);
        Ok(())
    }

    /// Files a rule under its path, else under its hosts, else under the value of a header field or a cookie, else with
    /// those that are always tried.
    fn file(&mut self, index: u32, rule: &Compiled) {
        match &rule.path {
            Some(PathTest::Exact(path)) => self.exact_paths.entry(path.clone()).or_default().push(index),
            Some(PathTest::Prefix(prefix)) => self.path_prefixes.insert(prefix, index),
            Some(PathTest::Glob(glob)) => self.path_prefixes.insert(glob.literal(), index),
            None if rule.hosts.is_empty() => {
                let is_filed = self.headers.file(&rule.headers, index) || self.cookies.file(&rule.cookies, index);
                if !is_filed {
                    self.residual.push(index);
                }
            }
            None => rule.hosts.iter().for_each(|host| self.file_host(index, host)),
        }
    }

    fn file_host(&mut self, index: u32, host: &HostTest) {
        match host {
            HostTest::Is(name) => self.exact_hosts.entry(name.clone()).or_default().push(index),
            HostTest::Below(name) => self.parent_hosts.entry(name.clone()).or_default().push(index),
        }
    }
}

impl Fields {
    /// Under the first that must have a certain value; whether there is one.
    fn file(&mut self, wanted: &[ValueMatch], index: u32) -> bool {
        let exact = wanted.iter().find_map(|wanted| match &wanted.value {
            ValuePattern::Exact(value) => Some((&wanted.name, value)),
            _ => None,
        });
        let Some((name, value)) = exact else { return false };
        let at = self.0.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
            self.0.push((name.clone(), ByValue::new()));
            self.0.len() - 1
        });
        self.0[at].1.entry(value.as_bytes().into()).or_default().push(index);
        true
    }

    /// The rules for the values that a request has.
    fn each<'v>(&self, value: impl Fn(&str) -> Option<&'v [u8]>, mut visit: impl FnMut(&[u32])) {
        for (name, rules) in &self.0 {
            if let Some(rules) = value(name).and_then(|value| rules.get(value)) {
                visit(rules);
            }
        }
    }
}

/// Brings a request's path and, where wanted, host into normal form, on the stack.
pub(super) fn with_target<V: RequestView, R>(view: &V, host: bool, then: impl FnOnce(Target<'_>) -> R) -> R {
    let authority = if host { view.host().map(without_port) } else { None };
    let path = without_query(view.path());
    match authority {
        Some(name) if !is_lower(name) => with_odd_host(path, name, then),
        _ => with_path(path, authority, then),
    }
}

/// The same with the path as it is written.
pub(super) fn with_literal<V: RequestView, R>(view: &V, then: impl FnOnce(Target<'_>) -> R) -> R {
    let mut buffer = HostBuffer::new();
    let host = view.host().and_then(|authority| buffer.lower(authority));
    then(Target { path: Some(without_query(view.path())), host })
}

#[inline(never)]
fn with_odd_host<R>(path: &[u8], authority: &str, then: impl FnOnce(Target<'_>) -> R) -> R {
    let mut buffer = HostBuffer::new();
    with_path(path, buffer.lower(authority), then)
}

pub(super) fn with_path<R>(path: &[u8], host: Option<&str>, then: impl FnOnce(Target<'_>) -> R) -> R {
    if is_plain(path) { then(Target { path: Some(path), host }) } else { with_odd_path(path, host, then) }
}

/// Kept out of line: its buffer would have to be cleared for ordinary requests too.
#[inline(never)]
fn with_odd_path<R>(path: &[u8], host: Option<&str>, then: impl FnOnce(Target<'_>) -> R) -> R {
    let mut buffer = [0; LONGEST_ODD_PATH];
    then(Target { path: normalise(path, &mut buffer), host })
}

/// The best group found so far, and what is needed to find a better one.
struct Search<'a, V> {
    matcher: &'a Matcher,
    target: Target<'a>,
    view: &'a V,
    best: u32,
}

impl<V: RequestView> Search<'_, V> {
    /// Tries rules in ascending order of group; those that cannot improve on the best are not looked at.
    fn try_rules(&mut self, rules: &[u32]) {
        for &index in rules {
            let rule = &self.matcher.rules[index as usize];
            if rule.group >= self.best {
                return;
            }
            if rule.matches(self.target, self.view) {
                self.best = rule.group;
                return;
            }
        }
    }
}

impl Compiled {
    fn new(group: u32, rule: &Rule) -> Result<Compiled, RuleProblem> {
        Ok(Compiled {
            group,
            methods: rule.methods.iter().map(|m| method(m)).collect::<Result<_, _>>()?,
            hosts: rule.hosts.iter().map(|h| HostTest::new(h)).collect::<Result<_, _>>()?,
            path: rule.path.as_ref().map(PathTest::new).transpose()?,
            headers: rule.headers.iter().map(header).collect::<Result<_, _>>()?,
            cookies: rule.cookies.iter().map(cookie).collect::<Result<_, _>>()?,
            networks: rule.networks.iter().map(Network::trunc).collect(),
            certificates: rule.certificates.iter().map(|c| certificate(c)).collect::<Result<_, _>>()?,
            dynamic: rule.dynamic,
        })
    }

    fn matches(&self, target: Target<'_>, view: &impl RequestView) -> bool {
        (self.methods.is_empty() || self.methods.iter().any(|m| m == view.method()))
            && (self.hosts.is_empty() || target.host.is_some_and(|host| self.hosts.iter().any(|h| h.matches(host))))
            && self.path.as_ref().is_none_or(|test| target.path.is_some_and(|path| test.matches(path)))
            && (self.networks.is_empty() || view.client().is_some_and(|client| self.holds(client)))
            && (self.certificates.is_empty() || self.is_certified(view))
            && self.dynamic.is_none_or(|wanted| is_dynamic(target.path, view) == wanted)
            && self.headers.iter().all(|wanted| header_matches(wanted, view))
            && self.cookies.iter().all(|wanted| cookie_matches(wanted, view))
    }

    /// Whether one of the names in the client's certificate is wanted.
    fn is_certified(&self, view: &impl RequestView) -> bool {
        let fits = |wanted: &str, name: &str| match wanted.strip_prefix('*') {
            Some(parent) => name.len() > parent.len() && name.ends_with(parent),
            None => name == wanted,
        };
        let names = view.certificate_names();
        self.certificates.iter().any(|wanted| names.iter().any(|name| fits(wanted, name)))
    }

    /// An IPv4 client on an IPv6 socket is an IPv4 client.
    fn holds(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        self.networks.iter().any(|network| network.contains(&client))
    }
}

impl HostTest {
    fn new(pattern: &str) -> Result<HostTest, RuleProblem> {
        let problem = || RuleProblem::Host(pattern.into());
        let (below, name) = match pattern.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, pattern),
        };
        // A port in a rule would never match, as requests' ports are cut: better an error than a silent miss.
        let name = name.strip_suffix('.').unwrap_or(name);
        if name.is_empty() || without_port(name) != name || name.contains(['*', '/', ' ']) {
            return Err(problem());
        }
        let name = name.to_ascii_lowercase().into_boxed_str();
        Ok(if below { HostTest::Below(name) } else { HostTest::Is(name) })
    }

    fn into_pattern(self) -> String {
        match self {
            HostTest::Is(name) => name.into_string(),
            HostTest::Below(name) => ["*.", &name].concat(),
        }
    }

    fn matches(&self, host: &str) -> bool {
        match self {
            HostTest::Is(name) => **name == *host,
            HostTest::Below(name) => host.strip_suffix(&**name).is_some_and(|sub| sub.len() > 1 && sub.ends_with('.')),
        }
    }
}

impl PathTest {
    fn new(path: &PathMatch) -> Result<PathTest, RuleProblem> {
        match path {
            PathMatch::Exact(path) => Ok(PathTest::Exact(normal_pattern(path)?)),
            PathMatch::Prefix(prefix) => Ok(PathTest::Prefix(normal_pattern(prefix)?)),
            PathMatch::Glob(pattern) => glob(pattern).map(PathTest::Glob),
        }
    }

    fn matches(&self, path: &[u8]) -> bool {
        match self {
            PathTest::Exact(exact) => path == &**exact,
            PathTest::Prefix(prefix) => path
                .strip_prefix(&**prefix)
                .is_some_and(|below| below.is_empty() || prefix.last() == Some(&b'/') || below.first() == Some(&b'/')),
            PathTest::Glob(glob) => glob.matches(path),
        }
    }
}

/// A host, or `*.` and one, in normal form.
pub(super) fn host_pattern(pattern: &str) -> Result<String, RuleProblem> {
    HostTest::new(pattern).map(HostTest::into_pattern)
}

/// Rules see normal paths, so a pattern is brought into normal form too. `*` alone is the target of `OPTIONS *`.
pub(super) fn normal_pattern(pattern: &str) -> Result<Box<[u8]>, RuleProblem> {
    let problem = || RuleProblem::Path(pattern.into());
    let rooted = pattern.starts_with('/') || pattern == "*";
    if !rooted || pattern.contains(['?', '#']) {
        return Err(problem());
    }
    let mut buffer = [0; LONGEST_ODD_PATH];
    normalise(pattern.as_bytes(), &mut buffer).map(Box::from).ok_or_else(problem)
}

fn glob(pattern: &str) -> Result<Glob, RuleProblem> {
    let odd = pattern.contains(['?', '#', '%', '\\']) || pattern.contains("//");
    let dots = pattern.split('/').any(|segment| segment == "." || segment == "..");
    if odd || dots || !pattern.starts_with(['/', '*']) {
        return Err(RuleProblem::Glob(pattern.into()));
    }
    Glob::new(pattern).ok_or_else(|| RuleProblem::GlobTooLong(pattern.into(), LONGEST_TAIL))
}

/// `name`, or `*.name` for what is below it.
fn certificate(pattern: &str) -> Result<String, RuleProblem> {
    let name = pattern.strip_prefix("*.").unwrap_or(pattern);
    if name.is_empty() || name.contains('*') {
        Err(RuleProblem::Certificate(pattern.into()))
    } else {
        Ok(pattern.into())
    }
}

fn method(method: &str) -> Result<String, RuleProblem> {
    if is_token(method) { Ok(method.into()) } else { Err(RuleProblem::Method(method.into())) }
}

fn header(wanted: &ValueMatch) -> Result<ValueMatch, RuleProblem> {
    if !is_token(&wanted.name) {
        return Err(RuleProblem::Header(wanted.name.clone()));
    }
    if wanted.name.contains('_') {
        return Err(RuleProblem::Underscore(wanted.name.clone()));
    }
    Ok(ValueMatch { name: wanted.name.to_ascii_lowercase(), value: wanted.value.clone() })
}

fn cookie(wanted: &ValueMatch) -> Result<ValueMatch, RuleProblem> {
    if is_token(&wanted.name) { Ok(wanted.clone()) } else { Err(RuleProblem::Cookie(wanted.name.clone())) }
}

/// RFC 9110, 5.6.2.
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}
