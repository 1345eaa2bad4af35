//! The profile of servers, in a file of its own: what `tidegate profile` measured. A configuration includes it and may
//! say more, or the same, but nothing else: whoever reads one of the two must not be misled.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use tidegate_config::{At, List, Problem, Time};
use tidegate_engine::units::{Seconds, format_duration};
use tidegate_engine::{DispatchConfig, MaxConn, Sla, Statistic, StealingProfile};
use toml::Spanned;

use super::super::policy::DispatchChoice;
use super::super::raw::RawServer;
use super::{Resolver, World, span_of};

/// What a profile says, and where.
pub(super) struct Profile {
    /// The file, as it was named.
    name: String,
    /// Where the configuration names it.
    pub(super) span: Range<usize>,
    target: Option<Line<Duration>>,
    default_cost: Option<Line<Duration>>,
    max_conn: Vec<Kind>,
    pub(super) softscale: Option<Line<StealingProfile>>,
}

/// A value, and its line in the profile.
pub(super) struct Line<T> {
    pub(super) value: T,
    line: usize,
}

/// One entry of `max_conn`.
struct Kind {
    name: Line<String>,
    request_types: Vec<String>,
    within_target: Line<f64>,
    most: Line<f64>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    target: Option<Spanned<Seconds>>,
    default_cost: Option<Spanned<Seconds>>,
    #[serde(default)]
    max_conn: Vec<FileKind>,
    softscale: Option<Spanned<StealingProfile>>,
    /// What it follows from, for people.
    #[serde(default, rename = "measured")]
    _measured: toml::Table,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct FileKind {
    name: Spanned<String>,
    #[serde(default)]
    request_types: Vec<String>,
    within_target: Spanned<f64>,
    most: Spanned<f64>,
}

/// The name of the only kind where all requests are one.
const ALL: &str = "all";

/// Reads a profile; whether it fits the servers is for the engine to say.
///
/// # Errors
/// Everything that is wrong, a sentence each.
pub(super) fn read(world: &dyn World, at: &At<String>) -> Result<Profile, Vec<String>> {
    let bytes = world.read(Path::new(&at.value)).map_err(|error| vec![format!("cannot be read: {error}")])?;
    let text = String::from_utf8(bytes).map_err(|_| vec!["is not text".to_owned()])?;
    let line_at = |start: usize| 1 + text.get(..start).unwrap_or_default().matches('\n').count();
    let file: File = tidegate_config::parse(&text, &at.value).map_err(|errors| {
        let told = |problem: &Problem| format!("line {}: {}", problem.line.unwrap_or(1), problem.message);
        errors.problems.iter().map(told).collect::<Vec<_>>()
    })?;
    if let Some(softscale) = &file.softscale {
        let told = softscale.get_ref().check_for(None);
        told.map_err(|(place, problem)| vec![format!("[softscale]: {place} {problem}")])?;
    }
    fn line<T>(spanned: Spanned<T>, line_at: impl Fn(usize) -> usize) -> Line<T> {
        let line = line_at(spanned.span().start);
        Line { value: spanned.into_inner(), line }
    }
    let time = |spanned| {
        let Line { value: Seconds(seconds), line } = line(spanned, line_at);
        Line { value: Seconds(seconds).duration(), line }
    };
    let kind = |kind: FileKind| Kind {
        name: line(kind.name, line_at),
        request_types: kind.request_types,
        within_target: line(kind.within_target, line_at),
        most: line(kind.most, line_at),
    };
    Ok(Profile {
        name: at.value.clone(),
        span: at.span.clone(),
        target: file.target.map(time),
        default_cost: file.default_cost.map(time),
        max_conn: file.max_conn.into_iter().map(kind).collect(),
        softscale: file.softscale.map(|table| line(table, line_at)),
    })
}

impl Profile {
    fn at(&self, line: usize) -> String {
        format!("profile \"{}\", line {line}", self.name)
    }

    /// Where it says so, if a kind of this name is its own.
    pub(super) fn place_of_kind(&self, name: &str) -> Option<String> {
        let kind = self.max_conn.iter().find(|kind| kind.name.value == name)?;
        Some(format!(" ({})", self.at(kind.name.line)))
    }

    /// Where it says how to steal.
    pub(super) fn place_of_stealing(&self) -> String {
        format!(" (profile \"{}\", [softscale])", self.name)
    }
}

impl Resolver<'_, '_, '_> {
    /// Reads the profile that is named, if one is.
    pub(super) fn profile(&mut self, named: Option<At<String>>) -> Option<Profile> {
        let named = named?;
        let wrong = |problems: Vec<String>| {
            for problem in problems {
                self.report.error(&named.span, format!("profile \"{}\": {problem}", named.value));
            }
        };
        read(self.world, &named).map_err(wrong).ok()
    }

    /// The target: the configuration's own where it has one, at `stated`.
    pub(super) fn sla_beside(&mut self, sla: Sla, stated: Option<Range<usize>>, profile: Option<&Profile>) -> Sla {
        let Some((profile, target)) = profile.and_then(|profile| Some((profile, profile.target.as_ref()?))) else {
            return sla;
        };
        let Some(stated) = stated else {
            return Sla::constant(Statistic::P95, target.value).unwrap_or_else(|_| {
                self.report.error(&profile.span, format!("{}: target must be more than 0", profile.at(target.line)));
                sla
            });
        };
        if self.report.has_errors() {
            return sla;
        }
        let (there, wanted) = (profile.at(target.line), format_duration(target.value));
        if sla.statistic() != Statistic::P95 {
            let message = format!(
                "sla bounds the {} here, but target in {there}, is of the p95; what servers hold within the one says nothing \
                 of the other: leave profile out, or bound the p95",
                sla.statistic().name()
            );
            self.report.error(&stated, message);
        } else if !sla.steps().iter().any(|step| step.target == target.value) {
            let own: Vec<String> = sla.steps().iter().map(|step| format_duration(step.target)).collect();
            let message = format!(
                "target is {} here, but {wanted} in {there}, and servers were measured for that; measure them with \
                 --target {}, or leave target out here",
                own.join(", "),
                own[0]
            );
            self.report.error(&stated, message);
        }
        sla
    }

    /// The default cost: the configuration's own where it has one.
    pub(super) fn cost_beside(&mut self, given: Option<At<Time>>, profile: Option<&Profile>) -> Option<Duration> {
        let stated = span_of(&given);
        let own = given.and_then(|cost| self.positive("default_cost", cost));
        let Some((profile, cost)) = profile.and_then(|profile| Some((profile, profile.default_cost.as_ref()?))) else {
            return own;
        };
        let (Some(own), Some(stated)) = (own, stated) else { return own.or(Some(cost.value)) };
        if own != cost.value {
            let (here, there) = (format_duration(own), format_duration(cost.value));
            self.contradiction(&stated, "default_cost", &here, &there, &profile.at(cost.line));
        }
        Some(own)
    }

    /// What servers hold: the configuration's entries, then those that only the profile has.
    pub(super) fn max_conn_beside(
        &mut self,
        own: Vec<(MaxConn, [Range<usize>; 3])>,
        types: &[String],
        profile: Option<&Profile>,
    ) -> Vec<MaxConn> {
        let mut all: Vec<MaxConn> = Vec::new();
        for (entry, [types_at, within_at, most_at]) in own {
            let both = profile.and_then(|profile| {
                Some((profile, profile.max_conn.iter().find(|kind| kind.name.value == entry.name)?))
            });
            if let Some((profile, kind)) = both {
                let key = |key: &str| format!("{key} of max_conn \"{}\"", entry.name);
                for (name, here, at, there) in [
                    ("within_target", entry.within_target, &within_at, &kind.within_target),
                    ("most", entry.most, &most_at, &kind.most),
                ] {
                    if here != there.value {
                        let (here, value) = (here.to_string(), there.value.to_string());
                        self.contradiction(at, &key(name), &here, &value, &profile.at(there.line));
                    }
                }
                let counted = |name: &str, listed: &[String]| match listed {
                    [] => vec![name.to_owned()],
                    listed => listed.to_vec(),
                };
                let here = counted(&entry.name, &entry.request_types);
                let there = counted(&entry.name, &kind.of_types(types));
                if here != there {
                    let (here, there) = (format!("{here:?}"), format!("{there:?}"));
                    self.contradiction(&types_at, &key("request_types"), &here, &there, &profile.at(kind.name.line));
                }
            }
            all.push(entry);
        }
        let Some(profile) = profile else { return all };
        for kind in &profile.max_conn {
            if all.iter().any(|entry| entry.name == kind.name.value) {
                continue;
            }
            let request_types = kind.of_types(types);
            let counted =
                if request_types.is_empty() { std::slice::from_ref(&kind.name.value) } else { &request_types };
            if let Some(unknown) = counted.iter().find(|name| !types.contains(name)) {
                let message = format!(
                    "the application has no request type \"{unknown}\", but max_conn of {}, counts it; add \
                     [[application.request_type]] with that name, or list request_types there",
                    profile.at(kind.name.line)
                );
                self.report.error(&profile.span, message);
            }
            all.push(MaxConn {
                name: kind.name.value.clone(),
                request_types,
                within_target: kind.within_target.value,
                most: kind.most.value,
            });
        }
        all
    }

    /// The dispatch policy, and the profile that it names itself, if it does.
    pub(super) fn dispatch(
        &mut self,
        given: Option<At<DispatchChoice>>,
        profile: Option<&Profile>,
    ) -> (DispatchConfig, Option<Profile>) {
        let Some(At { value: DispatchChoice { config, profile: named }, span }) = given else {
            return (DispatchConfig::default(), None);
        };
        let Some(file) = named else { return (self.stealing_beside(config, Some(span), profile), None) };
        let Some(mut named) = self.profile(Some(file)) else { return (config, None) };
        let Some(table) = named.softscale.take() else {
            self.report.error(&named.span, "this profile has no table softscale; measure it with --data, or write it");
            return (config, None);
        };
        let config = DispatchConfig::Softscale(table.value);
        (self.stealing_beside(config, Some(span), profile), Some(named))
    }

    /// How to steal: from the profile, where the policy is named and nothing else is said of it.
    fn stealing_beside(
        &mut self,
        own: DispatchConfig,
        stated: Option<Range<usize>>,
        profile: Option<&Profile>,
    ) -> DispatchConfig {
        let both = profile.and_then(|profile| Some((profile, profile.softscale.as_ref()?)));
        let (DispatchConfig::Softscale(here), Some((profile, there))) = (&own, both) else { return own };
        if *here == StealingProfile::default() {
            return DispatchConfig::Softscale(there.value.clone());
        }
        if let (Some(stated), Some((key, here, value))) = (stated, difference(here, &there.value)) {
            let key = format!("{key} of dispatch policy \"softscale\"");
            self.contradiction(&stated, &key, &here, &value, &profile.at(there.line));
        }
        own
    }

    /// No server may hold less than the profile says that it does.
    pub(super) fn servers_beside(&mut self, servers: Option<&At<List<RawServer>>>, profile: Option<&Profile>) {
        let (Some(servers), Some(profile)) = (servers, profile) else { return };
        for server in servers.value.0.iter().map(|server| &server.value.0) {
            let Some(most) = &server.max_connections else { continue };
            let weight = server.weight.as_ref().map_or(1.0, |weight| weight.value);
            let within = profile.max_conn.iter().map(|kind| &kind.within_target);
            let Some(more) = within.into_iter().find(|within| within.value * weight > most.value as f64) else {
                continue;
            };
            let name = server.name.as_ref().or(server.address.as_ref()).map_or("", |name| name.value.as_str());
            let message = format!(
                "max_connections of server \"{name}\" is {} here, but by {}, it holds {} (within_target {}, weight {weight}); \
                 raise max_connections, or measure this server",
                most.value,
                profile.at(more.line),
                more.value * weight,
                more.value
            );
            self.report.error(&most.span, message);
        }
    }

    fn contradiction(&mut self, at: &Range<usize>, key: &str, here: &str, value: &str, there: &str) {
        self.report.error(at, format!("{key} is {here} here, but {value} in {there}; leave one of the two out"));
    }
}

impl Kind {
    /// The types that count: all of them, where all requests were measured as one kind.
    fn of_types(&self, types: &[String]) -> Vec<String> {
        let is_all = self.request_types.is_empty() && self.name.value == ALL && !types.iter().any(|name| name == ALL);
        if is_all { types.to_vec() } else { self.request_types.clone() }
    }
}

/// The first key whose values differ, and both values.
fn difference(here: &StealingProfile, there: &StealingProfile) -> Option<(String, String, String)> {
    let [here, there] = [here, there].map(|profile| toml::Table::try_from(profile).unwrap_or_default());
    let keys = here.keys().chain(there.keys());
    let told = |value: Option<&toml::Value>| value.map_or_else(|| "nothing".to_owned(), ToString::to_string);
    let mut different = keys.filter(|key| here.get(*key) != there.get(*key));
    different.next().map(|key| (key.clone(), told(here.get(key)), told(there.get(key))))
}
