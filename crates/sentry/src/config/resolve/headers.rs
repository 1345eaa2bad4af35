//! Changes of header fields: what may be changed, and with what.

use std::ops::Range;

use http::HeaderName;
use http::header;
use tidegate_classify::{AffinityBy, ClassifierSetup, TenantSource};
use tidegate_config::{At, List};
use tidegate_engine::{ClassId, ClassSetup};

use super::super::raw::{RawRequestHeader, RawResponseHeader};
use super::super::{Action, Application, HeaderChange, Value};
use super::Resolver;

/// What is typed of one change, in either direction.
struct Typed {
    set: Option<At<String>>,
    add: Option<At<String>>,
    remove: Option<At<String>>,
    value: Option<At<String>>,
    class: Option<At<List<String>>>,
    refused: Option<At<bool>>,
}

impl Resolver<'_, '_, '_> {
    /// Changes in both directions. `app`: everything else is known of it.
    pub(super) fn header_changes(
        &mut self,
        of_requests: Option<At<List<RawRequestHeader>>>,
        of_responses: Option<At<List<RawResponseHeader>>>,
        app: &mut Application,
    ) {
        app.routing.request_headers = self.request_headers(of_requests, app);
        app.routing.response_headers = self.response_headers(of_responses, app);
    }

    fn request_headers(&mut self, given: Option<At<List<RawRequestHeader>>>, app: &Application) -> Vec<HeaderChange> {
        let list = given.map(|list| list.value.0).unwrap_or_default();
        let mut out = Vec::new();
        for At { value: RawRequestHeader { set, add, remove, value, class }, span } in list {
            let typed = Typed { set, add, remove, value, class, refused: None };
            let forbidden = |name: &HeaderName| why_not_of_request(name, app);
            out.extend(self.change(typed, &span, &app.setup.classes, forbidden));
        }
        out
    }

    fn response_headers(&mut self, given: Option<At<List<RawResponseHeader>>>, app: &Application) -> Vec<HeaderChange> {
        let list = given.map(|list| list.value.0).unwrap_or_default();
        let mut out = Vec::new();
        for At { value: RawResponseHeader { set, add, remove, value, class, refused }, span } in list {
            let typed = Typed { set, add, remove, value, class, refused };
            let is_refused = typed.refused.as_ref().is_some_and(|refused| refused.value);
            let forbidden = |name: &HeaderName| why_not_of_response(name, is_refused);
            out.extend(self.change(typed, &span, &app.setup.classes, forbidden));
        }
        out
    }

    fn change(
        &mut self,
        typed: Typed,
        span: &Range<usize>,
        classes: &[ClassSetup],
        forbidden: impl Fn(&HeaderName) -> Option<String>,
    ) -> Option<HeaderChange> {
        let Typed { set, add, remove, value, class, refused } = typed;
        let named = [(set, "set"), (add, "add"), (remove, "remove")];
        let mut named = named.into_iter().filter_map(|(name, key)| Some((name?, key)));
        let (Some((name, key)), None) = (named.next(), named.next()) else {
            self.missing(span, "give one of set = \"NAME\", add = \"NAME\" and remove = \"NAME\"");
            return None;
        };
        let action = match (key, value) {
            ("remove", None) => Action::Remove,
            ("remove", Some(value)) => {
                self.report.error(&value.span, "what is removed has no value; leave it out");
                return None;
            }
            (_, None) => {
                self.missing(span, &format!("{key} needs to know what; add value = \"...\""));
                return None;
            }
            (key, Some(value)) => match Value::parse(&value.value) {
                Ok(value) if key == "set" => Action::Set(value),
                Ok(value) => Action::Add(value),
                Err(problem) => {
                    self.report.error(&value.span, problem);
                    return None;
                }
            },
        };
        let classes = self.classes_of(class, classes);
        let is_refused = refused.as_ref().is_some_and(|refused| refused.value);
        if let (true, Action::Set(value) | Action::Add(value)) = (is_refused, &action)
            && !value.is_of_class_only()
        {
            let message = "refusals are prepared before their requests come, so refused = true goes with {class} only";
            self.report.error(refused.as_ref().map_or(span, |refused| &refused.span), message);
        }
        let header = match HeaderName::from_bytes(name.value.as_bytes()) {
            Ok(header) if !header.as_str().contains('_') => header,
            _ => {
                let message = format!("\"{}\" is no header name; write for example \"X-Environment\"", name.value);
                self.report.error(&name.span, message);
                return None;
            }
        };
        if let Some(why) = forbidden(&header) {
            self.report.error(&name.span, format!("\"{}\" cannot be changed: {why}", name.value));
            return None;
        }
        Some(HeaderChange { name: header, action, classes, refused: is_refused })
    }

    fn classes_of(&mut self, given: Option<At<List<String>>>, classes: &[ClassSetup]) -> Vec<ClassId> {
        let mut out = Vec::new();
        for At { value, span } in given.map(|list| list.value.0).unwrap_or_default() {
            match classes.iter().position(|class| class.name == value) {
                Some(at) => out.push(ClassId(u8::try_from(at).unwrap_or(u8::MAX))),
                None => {
                    let names: Vec<&str> = classes.iter().map(|class| class.name.as_str()).collect();
                    let hint = tidegate_config::suggestion(&value, &names);
                    self.report.error(&span, format!("there is no class \"{value}\"{hint}"));
                }
            }
        }
        out
    }
}

/// Fields of one hop, and those that say where a message ends.
fn is_of_the_hop(name: &HeaderName) -> bool {
    const NAMES: [&str; 4] = ["keep-alive", "proxy-connection", "http2-settings", "trailer"];
    [header::CONNECTION, header::TE, header::TRANSFER_ENCODING, header::UPGRADE, header::CONTENT_LENGTH].contains(name)
        || NAMES.contains(&name.as_str())
}

fn why_not_of_request(name: &HeaderName, app: &Application) -> Option<String> {
    const OURS: [&str; 9] = [
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-host",
        "forwarded",
        "x-request-id",
        "client-cert",
        "x-client-cert-name",
        "traceparent",
        "tracestate",
    ];
    let text = name.as_str();
    if is_of_the_hop(name) || *name == header::EXPECT {
        return Some("it is about this connection, or says where a body ends".to_owned());
    }
    if *name == header::HOST {
        return Some("rules, log and server read the same host".to_owned());
    }
    if OURS.contains(&text) || text.starts_with("tidegate-") {
        return Some("the sentry says it itself; see [application.forwarded]".to_owned());
    }
    decides(name, &app.classifier, app).then(|| "rules decide by it, so servers must read it as it came".to_owned())
}

/// Whether anything is decided by a field, or by cookies where it is theirs.
fn decides(name: &HeaderName, classifier: &ClassifierSetup, app: &Application) -> bool {
    let is = |other: &str| name.as_str().eq_ignore_ascii_case(other);
    let of_types = classifier.request_types.iter().flat_map(|of_type| &of_type.rules);
    let mut rules = classifier.classes.iter().flatten().chain(of_types).chain(&app.exempt);
    let is_cookie = *name == header::COOKIE;
    rules.any(|rule| rule.headers.iter().any(|header| is(&header.name)) || (is_cookie && !rule.cookies.is_empty()))
        || match &classifier.affinity {
            Some(AffinityBy::Header(other)) => is(other),
            Some(AffinityBy::Cookie(_)) => is_cookie,
            None => false,
        }
        || match &classifier.tenants.source {
            TenantSource::Header(other) => is(other),
            TenantSource::Cookie(_) => is_cookie,
            _ => false,
        }
        || classifier.deadline.names().any(is)
}

fn why_not_of_response(name: &HeaderName, refused: bool) -> Option<String> {
    if is_of_the_hop(name) {
        return Some("it is about this connection, or says where a body ends".to_owned());
    }
    if name.as_str().starts_with("tidegate-") {
        return Some("the sentry says it itself".to_owned());
    }
    let own = [header::RETRY_AFTER, header::CACHE_CONTROL, header::CONTENT_TYPE];
    (refused && own.contains(name)).then(|| "refusals have one of their own; leave refused out".to_owned())
}
