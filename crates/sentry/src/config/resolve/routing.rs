//! Routes, and whether applications that share a listener can.

use std::ops::Range;

use tidegate_classify::{Access, Paths, Rewrite, Route, Routes};
use tidegate_config::{At, List};

use super::super::raw::{RawAccess, RawApplication, RawRewrite, RawRoute};
use super::super::{Application, Listen, Routing};
use super::Resolver;
use super::address::network;

/// Where an application and its routes stand.
pub(super) struct Places {
    app: Range<usize>,
    routes: Range<usize>,
}

impl Places {
    pub(super) fn of(app: &At<RawApplication>) -> Places {
        let routes = app.value.route.as_ref().map_or_else(|| app.span.clone(), |route| route.span.clone());
        Places { app: app.span.clone(), routes }
    }
}

impl Resolver<'_, '_, '_> {
    /// Which requests are an application's, and what of their paths its servers are not told.
    pub(super) fn routing(
        &mut self,
        routes: Option<At<List<RawRoute>>>,
        rewrite: Option<At<RawRewrite>>,
        access: Option<At<RawAccess>>,
    ) -> Routing {
        let access = access.and_then(|given| self.access(given));
        let rewrite = rewrite.map(|given| self.rewrite(given)).unwrap_or_default();
        let routes = routes.map(|given| self.routes(given)).unwrap_or_default();
        Routing { routes, access, rewrite, ..Routing::default() }
    }

    fn access(&mut self, At { value: raw, span }: At<RawAccess>) -> Option<Access> {
        if raw.allow.is_none() && raw.deny.is_none() {
            return None;
        }
        let mut networks = |list: Option<At<List<String>>>| -> Vec<_> {
            let list = list.map(|list| list.value.0).unwrap_or_default();
            list.iter().filter_map(|given| network(given, self.report)).collect()
        };
        let (allow, deny) = (networks(raw.allow), networks(raw.deny));
        let access = Access::new(allow, deny);
        access
            .map_err(|both| self.report.error(&span, format!("{both} is allowed and denied; leave it out of one")))
            .ok()
    }

    fn rewrite(&mut self, At { value: raw, span }: At<RawRewrite>) -> Rewrite {
        let strip: Vec<String> =
            raw.strip_prefix.into_iter().flat_map(|list| list.value.0).map(|prefix| prefix.value).collect();
        let add = raw.add_prefix.map(|add| add.value).unwrap_or_default();
        Rewrite::new(&strip, &add).unwrap_or_else(|problem| {
            self.report.error(&span, format!("rewrite: {problem}"));
            Rewrite::default()
        })
    }

    fn routes(&mut self, given: At<List<RawRoute>>) -> Vec<Route> {
        if given.value.0.is_empty() && self.complete {
            self.report.error(&given.span, "route is empty; leave it out, or write route = { host = \"example.org\" }");
        }
        let mut routes: Vec<Route> = Vec::new();
        for At { value: raw, span } in given.value.0 {
            let texts = |list: Option<At<List<String>>>| list.map(|list| list.value.0).unwrap_or_default();
            let (hosts, paths) = (texts(raw.host), texts(raw.path));
            if hosts.is_empty() && paths.is_empty() {
                self.missing(&span, "this route has neither host nor path; give it one, or leave route out");
            }
            let each = |list: Vec<At<String>>| {
                let some: Vec<_> = list.into_iter().map(Some).collect();
                if some.is_empty() { vec![None] } else { some }
            };
            let paths = each(paths);
            for host in each(hosts) {
                for path in &paths {
                    let text = |part: &Option<At<String>>| part.as_ref().map(|part| part.value.clone());
                    let span = path.as_ref().or(host.as_ref()).map_or(&span, |part| &part.span);
                    match (Route { host: text(&host), path: text(path) }).normal() {
                        Ok(route) if routes.contains(&route) => {
                            self.report.error(span, format!("{} is there twice; leave one out", said(&route)));
                        }
                        Ok(route) => routes.push(route),
                        Err(problem) => self.report.error(span, problem.to_string()),
                    }
                }
            }
        }
        routes
    }

    /// Whether applications that listen on the same address can tell their requests apart, and agree in what comes
    /// before the first request.
    pub(super) fn sharing(&mut self, apps: &[Application], places: &[Places]) {
        if self.report.has_errors() {
            return;
        }
        for (app, places) in apps.iter().zip(places) {
            if app.paths == Paths::AsIs && !app.routing.rewrite.is_none() {
                let message = "rewrite needs paths that can be read in one way only; leave out paths = \"as-is\"";
                self.report.error(&places.app, message);
            }
        }
        let mut seen: Vec<&Listen> = Vec::new();
        for listen in apps.iter().flat_map(|app| &app.listen) {
            if seen.iter().any(|other| other.is_same(listen)) {
                continue;
            }
            seen.push(listen);
            let here = |app: &Application| app.listen.iter().any(|other| other.is_same(listen));
            let sharers: Vec<usize> = (0..apps.len()).filter(|at| here(&apps[*at])).collect();
            if sharers.len() > 1 {
                self.same_listener(apps, places, &sharers, listen);
            }
        }
    }

    fn same_listener(&mut self, apps: &[Application], places: &[Places], sharers: &[usize], listen: &Listen) {
        let first = &apps[sharers[0]];
        for &at in sharers {
            let (app, span) = (&apps[at], &places[at].app);
            let own = app.listen.iter().find(|other| other.is_same(listen));
            if let Some(what) = own.and_then(|own| difference(listen, own)) {
                let message = format!(
                    "applications \"{}\" and \"{}\" share {listen} and differ in its {what}, which comes before a \
                     request shows whose it is; write the same for both, or listen on another port",
                    first.name, app.name
                );
                self.report.error(span, message);
            }
            if app.paths != first.paths {
                let message = format!(
                    "applications \"{}\" and \"{}\" share {listen} and read paths in different ways; write paths = \
                     \"{}\" for both, or listen on another port",
                    first.name,
                    app.name,
                    first.paths.name()
                );
                self.report.error(span, message);
            }
            if app.setup.demands().connections.is_some() {
                let message = format!(
                    "admission = \"{}\" limits new connections, so application \"{}\" needs a listener of its own; \
                     {listen} is shared",
                    app.setup.admission.name(),
                    app.name
                );
                self.report.error(span, message);
            }
            if app.paths == Paths::AsIs && app.routing.routes.iter().any(|route| route.path.is_some()) {
                let message =
                    "a route by path needs paths that can be read in one way only; leave out paths = \"as-is\"";
                self.report.error(&places[at].routes, message);
            }
        }
        self.told_apart(apps, places, sharers, listen);
    }

    /// Two applications with the same route, or with client certificates that cannot be asked for in time.
    fn told_apart(&mut self, apps: &[Application], places: &[Places], sharers: &[usize], listen: &Listen) {
        let all: Vec<(Route, usize)> =
            sharers.iter().flat_map(|at| apps[*at].routing.all().into_iter().map(|route| (route, *at))).collect();
        let mut taken: Vec<&(Route, usize)> = Vec::new();
        for given in &all {
            let (route, at) = given;
            if let Some((_, other)) = taken.iter().find(|(known, _)| known == route) {
                let line = self.report.line(&places[*other].routes).map(|line| format!(" (line {line})"));
                let message = format!(
                    "application \"{}\" takes {} on {}, and so does application \"{}\"{}; give one of them another \
                     route, or listen on another port",
                    apps[*at].name,
                    said(route),
                    listen,
                    apps[*other].name,
                    line.unwrap_or_default()
                );
                self.report.error(&places[*at].routes, message);
            }
            taken.push(given);
        }
        let Ok(routes) = Routes::compile(all.iter().map(|(route, at)| (route, *at))) else { return };
        let asks = |at: usize| apps[at].tls.as_ref().map(|tls| tls.asks);
        for (route, at) in all.iter().filter(|_| listen.tls) {
            let neighbours = routes.neighbours(&Route { host: route.host.clone(), path: None });
            if let Some(other) = neighbours.into_iter().find(|other| asks(*other) != asks(*at)) {
                let message = format!(
                    "applications \"{}\" and \"{}\" answer requests for the same host by path, and ask clients for \
                     different certificates, which comes before the path; write the same clients and client_ca for both",
                    apps[*at].name, apps[other].name
                );
                self.report.error(&places[*at].routes, message);
                return;
            }
        }
    }
}

/// In what two listeners at one address differ.
fn difference(a: &Listen, b: &Listen) -> Option<&'static str> {
    if a.tls != b.tls {
        return Some("tls");
    }
    if a.proxy != b.proxy {
        return Some("proxy");
    }
    if a.redirect != b.redirect {
        return Some("redirect");
    }
    (a.socket != b.socket).then_some("mode")
}

/// A route in words.
fn said(route: &Route) -> String {
    match (&route.host, &route.path) {
        (Some(host), Some(path)) => format!("host \"{host}\" with path \"{path}\""),
        (Some(host), None) => format!("host \"{host}\""),
        (None, Some(path)) => format!("path \"{path}\""),
        (None, None) => "all requests without a route".to_owned(),
    }
}
