//! Classes, request types and the rules that tell them apart.

use std::path::Path;

use tidegate_classify::{Matcher, PathMatch, Rule, TypeRules, ValueMatch, ValuePattern};
use tidegate_config::{At, List};
use tidegate_engine::{ClassSetup, Tags};

use super::super::RequestKind;
use super::super::raw::{RawClass, RawRule, RawType, RawValueMatch};
use super::Resolver;
use super::address::network;

/// A page's file, as typed.
pub(super) type PageFile = Option<At<String>>;

impl Resolver<'_, '_, '_> {
    /// Classes with their rules, pages and kinds; one class "default" when none is given.
    pub(super) fn classes(
        &mut self,
        raw: Option<At<List<RawClass>>>,
    ) -> (Vec<ClassSetup>, Vec<Vec<Rule>>, Vec<PageFile>, Vec<RequestKind>) {
        let list = raw.map(|list| list.value.0).unwrap_or_default();
        if list.is_empty() {
            return (vec![ClassSetup::new("default")], vec![Vec::new()], vec![None], vec![RequestKind::Ordinary]);
        }
        self.order_of_classes(&list);
        let (mut setups, mut rules, mut pages, mut kinds) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (index, At { value: class, span }) in list.into_iter().enumerate() {
            let name = class.name.map(|name| name.value).unwrap_or_else(|| {
                self.missing(&span, "this class has no name; add name = \"...\"");
                format!("class-{}", index + 1)
            });
            let min_rate = class.min_rate.map_or(0.0, |rate| rate.value.0);
            setups.push(ClassSetup {
                name,
                revenue: class.revenue.map_or(1.0, |revenue| self.zero_or_more("revenue", revenue)),
                min_rate,
                burst: class.burst.map_or_else(|| default_burst(min_rate), |burst| self.at_least_one("burst", burst)),
            });
            rules.push(class.r#match.map_or_else(Vec::new, |list| self.rules(list, "match")));
            pages.push(class.page);
            kinds.push(self.kind(class.kind));
        }
        (setups, rules, pages, kinds)
    }

    /// Names, and the place of the class that takes everything.
    fn order_of_classes(&mut self, list: &[At<RawClass>]) {
        self.unique("class", list.iter().filter_map(|class| class.value.name.as_ref()));
        let name = |class: &At<RawClass>| class.value.name.as_ref().map_or("without a name", |n| &n.value).to_owned();
        let last = list.len() - 1;
        for class in &list[..last] {
            if class.value.r#match.is_none() {
                let message = format!(
                    "class \"{}\" has no match, so it takes every request and the classes after it get none; give it a \
                     match, or move it last",
                    name(class)
                );
                self.report.error(&class.span, message);
            }
        }
        if let Some(matching) = list[last].value.r#match.as_ref() {
            let message = format!(
                "class \"{}\" is the last, so requests that match no class are its too; its match changes nothing",
                name(&list[last])
            );
            self.report.warn(&matching.span, message);
        }
        if list.len() > 255 {
            self.report.error(&list[255].span, format!("{} classes: give 255 at most", list.len()));
        }
    }

    /// Request types with their rules, and the names of all tags. Type 0 is "default".
    pub(super) fn request_types(
        &mut self,
        raw: Option<At<List<RawType>>>,
    ) -> (Vec<String>, Vec<TypeRules>, Vec<RequestKind>, Vec<String>) {
        let list = raw.map(|list| list.value.0).unwrap_or_default();
        self.unique("request type", list.iter().filter_map(|t| t.value.name.as_ref()));
        let (mut names, mut types, mut tags) = (vec!["default".to_owned()], Vec::new(), Vec::new());
        let mut kinds = vec![RequestKind::Ordinary];
        for At { value: raw, span } in list {
            match raw.name {
                Some(name) if name.value == "default" => {
                    self.report
                        .error(&name.span, "\"default\" is the type of requests that match none; take another name");
                }
                Some(name) => names.push(name.value),
                None => self.missing(&span, "this request type has no name; add name = \"...\""),
            }
            let Some(matching) = raw.r#match else {
                self.missing(&span, "this request type has no match; add match = [{ path_prefix = \"/...\" }]");
                continue;
            };
            let rules = self.rules(matching, "match");
            let bits = raw.tags.map_or(Tags(0), |list| self.tags(list, &mut tags));
            types.push(TypeRules { rules, tags: bits });
            kinds.push(self.kind(raw.kind));
        }
        (names, types, kinds, tags)
    }

    fn kind(&mut self, given: Option<At<String>>) -> RequestKind {
        let Some(At { value, span }) = given else { return RequestKind::Ordinary };
        RequestKind::ALL.into_iter().find(|kind| kind.name() == value).unwrap_or_else(|| {
            let known = RequestKind::ALL.map(|kind| format!("\"{}\"", kind.name())).join(", ");
            self.report.error(&span, format!("kind = \"{value}\" is unknown; known here: {known}"));
            RequestKind::Ordinary
        })
    }

    fn tags(&mut self, list: At<List<String>>, all: &mut Vec<String>) -> Tags {
        let mut bits = Tags(0);
        for tag in list.value.0 {
            let number = all.iter().position(|known| *known == tag.value).unwrap_or_else(|| {
                all.push(tag.value);
                all.len() - 1
            });
            match number {
                0..64 => bits = bits.union(Tags(1 << number)),
                _ => self.report.error(&tag.span, "more than 64 different tags in one application"),
            }
        }
        bits
    }

    /// Rules, each tried in the compiler so that a mistake is reported where it stands.
    pub(super) fn rules(&mut self, list: At<List<RawRule>>, key: &str) -> Vec<Rule> {
        if list.value.0.is_empty() && self.complete {
            self.report
                .error(&list.span, format!("{key} is empty; leave it out, or give a rule such as {{ path = \"/\" }}"));
        }
        let mut rules = Vec::new();
        for At { value: raw, span } in list.value.0 {
            let errors = self.report.errors();
            let rule = self.rule(raw, &span);
            if rule == Rule::default() && self.complete && self.report.errors() == errors {
                self.report.error(&span, "this rule asks for nothing, so it matches everything; give it a condition");
            }
            if let Err((_, _, problem)) = Matcher::compile([std::slice::from_ref(&rule)]) {
                self.report.error(&span, problem.to_string());
            }
            rules.push(rule);
        }
        rules
    }

    fn rule(&mut self, raw: RawRule, span: &std::ops::Range<usize>) -> Rule {
        let paths = [
            raw.path.map(|path| PathMatch::Exact(path.value)),
            raw.path_prefix.map(|prefix| PathMatch::Prefix(prefix.value)),
            raw.path_glob.map(|glob| PathMatch::Glob(glob.value)),
        ];
        let mut paths = paths.into_iter().flatten();
        let path = paths.next();
        if paths.next().is_some() {
            self.report.error(span, "give one of path, path_prefix and path_glob; more paths are more rules");
        }
        Rule {
            methods: texts(raw.method),
            hosts: texts(raw.host),
            path,
            headers: self.value_matches(raw.header),
            cookies: self.value_matches(raw.cookie),
            networks: self.networks(raw.network),
            certificates: texts(raw.certificate),
            dynamic: raw.dynamic.map(|given| given.value),
        }
    }

    fn value_matches(&mut self, list: Option<At<List<RawValueMatch>>>) -> Vec<ValueMatch> {
        let list = list.map(|list| list.value.0).unwrap_or_default();
        list.into_iter().filter_map(|item| self.value_match(item)).collect()
    }

    fn value_match(&mut self, At { value: raw, span }: At<RawValueMatch>) -> Option<ValueMatch> {
        let Some(name) = raw.name else {
            self.missing(&span, "whose value? add name = \"...\"");
            return None;
        };
        let patterns = [
            raw.value.map(|text| ValuePattern::Exact(text.value)),
            raw.prefix.map(|text| ValuePattern::Prefix(text.value)),
            raw.contains.map(|text| ValuePattern::Contains(text.value)),
        ];
        let mut patterns = patterns.into_iter().flatten();
        let value = patterns.next().unwrap_or(ValuePattern::Present);
        if patterns.next().is_some() {
            self.report.error(&span, "give one of value, prefix and contains");
        }
        Some(ValueMatch { name: name.value, value })
    }

    /// Networks; those that cannot be read are reported.
    pub(super) fn networks(&mut self, list: Option<At<List<String>>>) -> Vec<tidegate_classify::Network> {
        let list = list.map(|list| list.value.0).unwrap_or_default();
        list.iter().filter_map(|given| network(given, self.report)).collect()
    }

    /// An operator's page: its bytes and media type.
    pub(super) fn page(&mut self, file: At<String>) -> Option<super::super::Page> {
        let path = Path::new(&file.value);
        match self.world.read(path) {
            Ok(body) if body.len() > LARGEST_PAGE => {
                let message = format!("page \"{}\" has {} bytes; at most {LARGEST_PAGE}", file.value, body.len());
                self.report.error(&file.span, message);
                None
            }
            Ok(body) => Some(super::super::Page {
                content_type: media_type(path).to_owned(),
                body: body.into(),
                path: self.world.absolute(path),
            }),
            Err(error) => {
                self.report.error(&file.span, format!("page \"{}\" cannot be read: {error}", file.value));
                None
            }
        }
    }
}

/// A refusal must stay cheap.
const LARGEST_PAGE: usize = 1 << 20;

/// Guaranteed requests that may come at once: a tenth of a second's worth, so that a class which keeps its rate on
/// average is not refused for arriving in clumps.
fn default_burst(min_rate: f64) -> f64 {
    (min_rate / 10.0).ceil().max(1.0)
}

fn texts(list: Option<At<List<String>>>) -> Vec<String> {
    list.map(|list| list.value.0.into_iter().map(|item| item.value).collect()).unwrap_or_default()
}

fn media_type(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("html" | "htm") => "text/html; charset=utf-8",
        Some("json") => "application/json",
        Some("txt") => "text/plain; charset=utf-8",
        Some("xml") => "application/xml",
        _ => "application/octet-stream",
    }
}
