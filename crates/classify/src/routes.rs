//! Which of several services a request is for, by its host and its path.
//!
//! *Intuition.* Every service names hosts, prefixes of paths, both, or neither. Of all that fit a request the most
//! specific one has it: the host first (a name before a star, a longer star before a shorter one, any star before no
//! host), then the longer prefix. So who names neither has what is left. *Awkward cases.* A host that is named with a
//! path only is not the namer's alone: what is beside that path goes on to the next that fits. Hosts and paths are read
//! as rules read them ([`crate`]), so that a service and the rules of its classes cannot disagree about a request.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::rules::{host_pattern, normal_pattern};
use super::{Matcher, PathMatch, RequestView, Rule, RuleProblem};

/// A part of all requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Route {
    /// The host, or `*.example.org` for all names below it; `None`: any.
    pub host: Option<String>,
    /// This path and everything below it, as a rule's prefix; `None`: any.
    pub path: Option<String>,
}

impl Route {
    /// The same in normal form: two routes are for the same requests if theirs are equal.
    ///
    /// # Errors
    /// What is no host, or no path.
    pub fn normal(&self) -> Result<Route, RuleProblem> {
        let host = self.host.as_deref().map(host_pattern).transpose()?;
        let path = self.path.as_deref().filter(|path| *path != "/").map(|path| {
            let normal = normal_pattern(path).ok().filter(|normal| normal.first() == Some(&b'/'));
            let text = normal.and_then(|normal| String::from_utf8(normal.into()).ok());
            text.ok_or_else(|| RuleProblem::Path(path.to_owned()))
        });
        Ok(Route { host, path: path.transpose()?.filter(|path| path != "/") })
    }

    /// Whether every host that `other` is for is this one's, too. Both are in normal form.
    pub fn covers_host_of(&self, other: &Route) -> bool {
        let Some(own) = &self.host else { return true };
        let Some(host) = &other.host else { return false };
        own == host
            || own.strip_prefix('*').is_some_and(|below| {
                let name = host.strip_prefix('*').unwrap_or(host);
                name.len() > below.len() && name.ends_with(below)
            })
    }

    /// Less is more specific: it is asked first. Of a route in normal form.
    fn rank(&self) -> (u8, Reverse<usize>, Reverse<usize>) {
        let host = self.host.as_deref();
        let kind = host.map_or(2, |host| u8::from(host.starts_with("*.")));
        let length = |text: Option<&str>| Reverse(text.map_or(0, str::len));
        (kind, length(host), length(self.path.as_deref()))
    }

    fn rule(&self) -> Rule {
        let path = self.path.clone().map(PathMatch::Prefix);
        Rule { hosts: self.host.iter().cloned().collect(), path, ..Rule::default() }
    }
}

/// The routes of several services, compiled. Immutable: a reload compiles new ones.
#[derive(Clone, Debug)]
pub struct Routes {
    matcher: Matcher,
    /// Whose each is, most specific first.
    owners: Vec<usize>,
    routes: Vec<Route>,
}

impl Routes {
    /// Compiles routes, each with the number of its owner. Of two that are the same the first counts.
    ///
    /// # Errors
    /// The first that is no host, or no path.
    pub fn compile<'r>(routes: impl IntoIterator<Item = (&'r Route, usize)>) -> Result<Routes, RuleProblem> {
        let normal = |(route, owner): (&Route, usize)| Ok((route.normal()?, owner));
        let mut routes = routes.into_iter().map(normal).collect::<Result<Vec<_>, RuleProblem>>()?;
        routes.sort_by_key(|(route, _)| route.rank());
        let (routes, owners): (Vec<Route>, Vec<usize>) = routes.into_iter().unzip();
        let rules: Vec<[Rule; 1]> = routes.iter().map(|route| [route.rule()]).collect();
        let matcher = Matcher::compile(rules.iter().map(<[Rule; 1]>::as_slice)).map_err(|(_, _, problem)| problem)?;
        Ok(Routes { matcher, owners, routes })
    }

    /// Whose a request is; `None`: nobody's. Allocates nothing.
    pub fn find(&self, view: &impl RequestView) -> Option<usize> {
        self.owners.get(self.matcher.find(view)?).copied()
    }

    /// Whose requests for a host are, as far as that can be said without a path: the first's that may get some.
    pub fn find_host(&self, host: &str) -> Option<usize> {
        let asked = Route { host: Some(host.to_owned()), path: None }.normal().ok()?;
        let at = self.routes.iter().position(|route| route.covers_host_of(&asked))?;
        self.owners.get(at).copied()
    }

    /// All who may get requests for the hosts of `route`, most specific first, each once.
    pub fn neighbours(&self, route: &Route) -> Vec<usize> {
        let mut found = Vec::new();
        for (other, owner) in self.routes.iter().zip(&self.owners).filter(|(other, _)| other.covers_host_of(route)) {
            if !found.contains(owner) {
                found.push(*owner);
            }
            if other.path.is_none() {
                break;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::PlainRequest;
    use proptest::prelude::*;

    fn asked(host: &str, path: &str) -> PlainRequest {
        PlainRequest { host: Some(host.to_owned()), path: path.to_owned(), ..PlainRequest::default() }
    }

    fn route(text: &str) -> Route {
        let at = text.find('/').unwrap_or(text.len());
        let part = |part: &str| (!part.is_empty()).then(|| part.to_owned());
        Route { host: part(&text[..at]), path: part(&text[at..]) }
    }

    fn routes(texts: &[&str]) -> Routes {
        let routes: Vec<Route> = texts.iter().map(|text| route(text)).collect();
        Routes::compile(routes.iter().zip(0..)).expect("routes")
    }

    #[test]
    fn the_most_specific_has_it() {
        let all = routes(&["", "/api", "shop.example", "*.example", "*.shop.example", "shop.example/api", "/api/v2/"]);
        let of = |host: &str, path: &str| all.find(&asked(host, path));
        assert_eq!(of("shop.example", "/"), Some(2));
        assert_eq!(of("SHOP.example.:8080", "/api?x"), Some(5));
        assert_eq!(of("shop.example", "/apis"), Some(2));
        assert_eq!(of("a.shop.example", "/api"), Some(4), "a host comes before a path");
        assert_eq!(of("a.example", "/"), Some(3));
        assert_eq!(of("a.b.example", "/"), Some(3));
        assert_eq!(of("bank", "/"), Some(0));
        assert_eq!(of("bank", "/api"), Some(1));
        assert_eq!(of("bank", "/api/v2"), Some(1), "what ends in a slash is for what is below");
        assert_eq!(of("bank", "/api/v2/x"), Some(6));
        assert_eq!(of("bank", "*"), Some(0));
        assert_eq!(routes(&["shop.example"]).find(&asked("bank", "/")), None);
    }

    #[test]
    fn what_is_beside_a_path_goes_on_to_the_next() {
        let all = routes(&["shop.example/api", "*.example", ""]);
        assert_eq!(all.find(&asked("shop.example", "/")), Some(1));
        assert_eq!(all.neighbours(&route("shop.example")), [0, 1]);
        assert_eq!(all.neighbours(&route("*.example")), [1]);
        assert_eq!(all.neighbours(&route("")), [2]);
        assert_eq!(all.find_host("SHOP.example"), Some(0));
        assert_eq!(all.find_host("bank"), Some(2));
    }

    #[test]
    fn spellings_of_one_route_are_one() {
        let same = |a: &str, b: &str| assert_eq!(route(a).normal(), route(b).normal());
        same("Shop.Example.", "shop.example");
        same("a/%61", "a/a");
        same("a/", "a");
        same("*.Example/x/../y", "*.example/y");
        for bad in ["a:80", "*", "a*b", "a/x?y"] {
            assert!(route(bad).normal().is_err(), "{bad}");
        }
        assert!(Route { host: None, path: Some("api".to_owned()) }.normal().is_err());
        assert!(Route { host: None, path: Some("*".to_owned()) }.normal().is_err());
    }

    /// The same, said as a sentence: of all that fit, the first by rank.
    fn naive(routes: &[Route], host: &str, path: &str) -> Option<usize> {
        let fits = |route: &Route| {
            let by_host = route.host.as_deref().is_none_or(|own| match own.strip_prefix("*.") {
                Some(below) => host.strip_suffix(below).is_some_and(|sub| sub.ends_with('.') && sub.len() > 1),
                None => own == host,
            });
            let by_path = route.path.as_deref().is_none_or(|own| {
                let own = own.trim_end_matches('/');
                path == own && !route.path.as_deref().unwrap_or_default().ends_with('/')
                    || path.starts_with(&alloc::format!("{own}/"))
            });
            by_host && by_path
        };
        let fitting = routes.iter().enumerate().filter(|(_, route)| fits(route));
        fitting.min_by_key(|(at, route)| (route.normal().expect("a route").rank(), *at)).map(|(at, _)| at)
    }

    fn any_route() -> impl Strategy<Value = Route> {
        let host = proptest::option::of("(\\*\\.)?[ab](\\.[ab]){0,2}");
        let path = proptest::option::of("(/[xy]){1,3}/?");
        (host, path).prop_map(|(host, path)| Route { host, path })
    }

    proptest! {
        #[test]
        fn the_index_agrees_with_the_sentence(
            all in proptest::collection::vec(any_route(), 0..8),
            host in "[ab](\\.[ab]){0,3}",
            path in "(/[xyz]){1,4}/?",
        ) {
            let compiled = Routes::compile(all.iter().zip(0..)).expect("routes");
            let found = compiled.find(&asked(&host, &path));
            prop_assert_eq!(found, naive(&all, &host, &path));
            if let Some(found) = found {
                let by_name = compiled.find_host(&host).expect("somebody has it");
                let neighbours = compiled.neighbours(&Route { host: Some(host), path: None });
                prop_assert_eq!(neighbours.first(), Some(&by_name));
                prop_assert!(neighbours.contains(&found));
            }
        }
    }
}
