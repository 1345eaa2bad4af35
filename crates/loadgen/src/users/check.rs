//! What the types of a users file cannot say: names that must exist, numbers that must make sense, texts that HTTP
//! allows.

use tidegate_config::Step::{Index, Key};
use tidegate_config::{Found, Place, Step, suggestion};
use tidegate_workload::{Retry, Seconds, Users, Wait};

use super::file::{RequestTemplate, UsersFile};
use super::template::{Known, Template};
use crate::plan::LONGEST;

/// Each is a task with a connection: beyond this one machine is no crowd any more.
const MOST_USERS: u32 = 50_000;

/// Everything that makes no sense, with its place.
pub(super) fn problems(file: &UsersFile) -> Vec<Found> {
    let mut checker = Checker { file, found: Vec::new() };
    checker.whole();
    for (at, group) in file.users.iter().enumerate() {
        checker.group(at, group);
    }
    checker.active();
    for (at, request) in file.requests.iter().enumerate() {
        checker.request(at, request);
    }
    // With a wrong name or text, that would be said of what was meant.
    if checker.found.is_empty() {
        checker.beginnings();
    }
    checker.found
}

struct Checker<'f> {
    file: &'f UsersFile,
    found: Vec<Found>,
}

impl Checker<'_> {
    fn whole(&mut self) {
        let file = self.file;
        self.positive("timeout", Some(file.timeout));
        self.positive("target", file.target);
        let wanted = "there must be at least one [[users]] and one [[request]]";
        self.demand(!file.users.is_empty(), &[Key("users")], wanted);
        self.demand(!file.requests.is_empty(), &[Key("request")], wanted);
    }

    fn positive(&mut self, key: &'static str, given: Option<Seconds>) {
        let Some(Seconds(value)) = given else { return };
        let good = value > 0.0 && value <= LONGEST.as_secs_f64();
        self.demand(good, &[Key(key)], &format!("is {value} s: it must be above 0, and at most a year"));
    }

    fn group(&mut self, at: usize, group: &Users) {
        let place = |key| [Key("users"), Index(at), Key(key)];
        let label = group.label();
        let is_first = !self.file.users[..at].iter().any(|other| other.label() == label);
        let twice = format!("two groups of users are called {label:?}; give each a name of its own");
        self.demand(is_first, &place("name"), &twice);
        let few = group.count <= MOST_USERS;
        self.demand(few, &place("count"), &format!("is {}: at most {MOST_USERS}", group.count));
        for (name, weight) in &group.requests {
            self.weight(&place("requests"), name, *weight);
        }
        if group.requests.is_empty() {
            self.add(&place("requests"), "is empty: a session must begin with something");
        } else {
            let all = group.requests.values().sum::<f64>();
            self.demand(all > 0.0, &place("requests"), "the weights are all 0");
        }
        for (from, row) in &group.next {
            self.known(&place("next"), from);
            row.iter().for_each(|(name, weight)| self.weight(&place("next"), name, *weight));
            let sum: f64 = row.values().sum();
            let what = format!("the probabilities after {from:?} add up to {sum}, more than 1");
            self.demand(sum <= 1.0 + 1e-6, &place("next"), &what);
        }
        if let Some(retry) = &group.retry {
            self.retry(&place("retry"), retry);
        }
    }

    fn retry(&mut self, place: &[Step<'static>], retry: &Retry) {
        self.demand(retry.tries > 0, place, "tries is 0; the first try counts");
        let timed = retry.wait != Wait::Own || retry.time.is_some();
        self.demand(timed, place, "wait = \"own\" needs a time");
    }

    fn weight(&mut self, place: &[Step<'static>], name: &str, weight: f64) {
        self.known(place, name);
        let good = weight.is_finite() && weight >= 0.0;
        self.demand(good, place, &format!("{name:?} has the weight {weight}: it must be 0 or more"));
    }

    /// A request type of that name exists.
    fn known(&mut self, place: &[Step<'static>], name: &str) {
        let known: Vec<&str> = self.file.requests.iter().map(|request| request.name.as_str()).collect();
        let hint = suggestion(name, &known);
        self.demand(known.contains(&name), place, &format!("there is no request {name:?}{hint}"));
    }

    fn active(&mut self) {
        let known: Vec<&str> = self.file.users.iter().map(Users::label).collect();
        for (at, active) in self.file.active.iter().enumerate() {
            let place = |key| [Key("active"), Index(at), Key(key)];
            let hint = suggestion(&active.users, &known);
            let is_known = known.contains(&active.users.as_str());
            self.demand(is_known, &place("users"), &format!("there are no users {:?}{hint}", active.users));
            let in_time = (0.0..=LONGEST.as_secs_f64()).contains(&active.at.0);
            self.demand(in_time, &place("at"), "must be 0 to a year");
            self.demand(active.count <= MOST_USERS, &place("count"), &format!("must be at most {MOST_USERS}"));
        }
    }

    fn request(&mut self, at: usize, request: &RequestTemplate) {
        let place = |key| vec![Key("request"), Index(at), Key(key)];
        let is_first = !self.file.requests[..at].iter().any(|other| other.name == request.name);
        self.demand(is_first, &place("name"), &format!("two requests are called {:?}", request.name));
        let is_method = http::Method::from_bytes(request.method.as_bytes()).is_ok();
        self.demand(is_method, &place("method"), &format!("{:?} is no method", request.method));
        self.demand(request.path.starts_with('/'), &place("path"), "must begin with \"/\"");
        let captures = request.capture.values();
        let is_between = captures.into_iter().all(|capture| !capture.after.is_empty() && !capture.until.is_empty());
        self.demand(is_between, &place("capture"), "`after` and `until` must not be empty");
        for name in request.headers.keys() {
            let is_field = http::HeaderName::from_bytes(name.as_bytes()).is_ok();
            self.demand(is_field, &place("headers"), &format!("{name:?} is no header field"));
        }
        let found = self.found.len();
        self.text(place("path"), &request.path);
        request.form.values().for_each(|text| self.text(place("form"), text));
        request.headers.values().for_each(|text| self.text(place("headers"), text));
        if self.found.len() == found {
            self.filled(at, request);
        }
    }

    /// The names in a text are captured somewhere.
    fn text(&mut self, place: Place, text: &str) {
        let template = match Template::parse(text) {
            Ok(template) => template,
            Err(problem) => return self.add(&place, &problem),
        };
        for name in template.names() {
            let is_captured = self.file.requests.iter().any(|request| request.capture.contains_key(name));
            self.demand(is_captured, &place, &format!("{{{name}}} is captured by no request"));
        }
    }

    /// A request whose text HTTP does not allow would never be sent, and nobody would hear of it.
    fn filled(&mut self, at: usize, request: &RequestTemplate) {
        let names = self.file.requests.iter().flat_map(|request| request.capture.keys());
        let captured = names.map(|name| (name.clone(), "1".to_owned())).collect();
        let mut known = Known { user: 1, class: String::new(), captured };
        for group in &self.file.users {
            known.class.clone_from(&group.class);
            let filled = |text: &str| Template::parse(text).ok().and_then(|text| text.fill(&known)).unwrap_or_default();
            let path = filled(&request.path);
            if let Err(error) = path.parse::<http::Uri>() {
                let what = format!("{path:?}: {error}; write %20 for a space, say");
                return self.add(&[Key("request"), Index(at), Key("path")], &what);
            }
            for (name, text) in &request.headers {
                let value = filled(text);
                if http::HeaderValue::from_str(&value).is_err() {
                    let what = format!("{name}: {value:?} is no value of a header field");
                    return self.add(&[Key("request"), Index(at), Key("headers")], &what);
                }
            }
        }
    }

    /// A session must be able to begin: nothing has been captured then.
    fn beginnings(&mut self) {
        let file = self.file;
        let needs_nothing = |text: &String| Template::parse(text).is_ok_and(|text| text.names().next().is_none());
        let is_possible = |name: &str| {
            let request = file.requests.iter().find(|request| request.name == name);
            request.is_some_and(|request| request.texts().all(needs_nothing))
        };
        for (at, group) in file.users.iter().enumerate() {
            let good = group.requests.iter().any(|(name, weight)| *weight > 0.0 && is_possible(name));
            let must = "all of them need something captured before; a session cannot begin with them";
            self.demand(good, &[Key("users"), Index(at), Key("requests")], must);
        }
    }

    fn demand(&mut self, good: bool, place: &[Step<'static>], problem: &str) {
        if !good {
            self.add(place, problem);
        }
    }

    fn add(&mut self, place: &[Step<'static>], problem: &str) {
        self.found.push(Found { place: place.to_vec(), problem: problem.to_owned() });
    }
}
