//! The file: users as scenario files know them, and the HTTP request that each request type is.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_workload::{Seconds, Users, Wait};

use super::template::{Known, Template};
use crate::plan::LONGEST;

/// What users do. Every name it refers to exists, and every number makes sense: it was checked when it was read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsersFile {
    /// How long a user waits for an answer; 60 s when absent.
    #[serde(default = "patience")]
    timeout: Seconds,
    /// Response time within which an answer counts as goodput.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<Seconds>,
    /// Groups of users, in the form of scenario files.
    pub users: Vec<Users>,
    /// How many of a group there are over time; where nothing is said, `count` all the time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub active: Vec<Active>,
    /// The request types.
    #[serde(rename = "request")]
    pub requests: Vec<RequestTemplate>,
}

/// From an instant on, so many users of a group are there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Active {
    /// The group's name.
    pub users: String,
    /// From when on.
    pub at: Seconds,
    /// How many.
    pub count: u32,
}

/// The HTTP request of a request type.
///
/// In `path`, `form` and `headers`, `{user}` stands for the user's number from 1, `{user%16}` for it counted round
/// from 1 to 16, `{class}` for the class of the group, and any other name for what a request captured before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestTemplate {
    /// The request type.
    pub name: String,
    /// `GET` when absent.
    #[serde(default = "get")]
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Fields of a form that is sent as the body.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub form: BTreeMap<String, String>,
    /// Header fields.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// What later requests need of the answer, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capture: BTreeMap<String, Capture>,
}

/// What is taken out of a page, of its first MiB: the text between two others. Where it occurs several times, one is
/// drawn at random; where it does not, nothing is known under its name any more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capture {
    /// The text before it.
    pub after: String,
    /// The text behind it.
    pub until: String,
}

/// Why a file cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum UsersError {
    /// It cannot be read.
    #[error("cannot read {path}: {reason}")]
    Read {
        /// The file.
        path: String,
        /// What the system said.
        reason: String,
    },
    /// It is not of the form, or makes no sense.
    #[error("{0}")]
    File(String),
    /// A URL that cannot be used.
    #[error("URL {url:?}: {reason}")]
    Url {
        /// As given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl UsersFile {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// When it cannot be read, is not of the form, or makes no sense: with the file's name.
    pub fn read(path: &Path) -> Result<UsersFile, UsersError> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| UsersError::Read { path: shown.clone(), reason: error.to_string() })?;
        UsersFile::parse(&text, &shown)
    }

    /// Reads the text of a file called `name`.
    ///
    /// # Errors
    /// When it is not of the form, or makes no sense.
    pub fn parse(text: &str, name: &str) -> Result<UsersFile, UsersError> {
        let wrong = |reason: &dyn std::fmt::Display| UsersError::File(format!("{name}: {reason}"));
        let file: UsersFile = toml::from_str(text).map_err(|error| wrong(&error))?;
        file.check().map_err(|reason| wrong(&reason))?;
        Ok(file)
    }

    /// How long a user waits for an answer.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs_f64(self.timeout.0)
    }

    /// Response time within which an answer counts as goodput.
    pub fn target(&self) -> Option<Duration> {
        self.target.map(|Seconds(target)| Duration::from_secs_f64(target))
    }

    /// The most users of a group that there are at any time.
    pub fn most(&self, group: &Users) -> u32 {
        let counts = self.active.iter().filter(|active| active.users == group.label()).map(|active| active.count);
        counts.max().unwrap_or(group.count)
    }

    /// The position of a request type.
    pub(crate) fn request(&self, name: &str) -> Option<usize> {
        self.requests.iter().position(|request| request.name == name)
    }

    fn check(&self) -> Result<(), String> {
        positive("timeout", self.timeout)?;
        self.target.map_or(Ok(()), |target| positive("target", target))?;
        if self.users.is_empty() || self.requests.is_empty() {
            return Err("there must be at least one [[users]] and one [[request]]".to_owned());
        }
        for (at, group) in self.users.iter().enumerate() {
            let label = group.label();
            if self.users[..at].iter().any(|other| other.label() == label) {
                return Err(format!("two groups of users are called {label:?}; give each a name of its own"));
            }
            self.check_group(group).map_err(|reason| format!("users {label:?}: {reason}"))?;
        }
        for active in &self.active {
            if !self.users.iter().any(|group| group.label() == active.users) {
                return Err(format!("active: there are no users {:?}", active.users));
            }
            if !(0.0..=LONGEST.as_secs_f64()).contains(&active.at.0) || active.count > MOST_USERS {
                return Err(format!("active: `at` must be 0 to a year, and `count` at most {MOST_USERS}"));
            }
        }
        self.check_requests()?;
        self.users.iter().try_for_each(|group| self.check_beginning(group))
    }

    fn check_requests(&self) -> Result<(), String> {
        for (at, request) in self.requests.iter().enumerate() {
            if self.requests[..at].iter().any(|other| other.name == request.name) {
                return Err(format!("two requests are called {:?}", request.name));
            }
            self.check_request(request).map_err(|reason| format!("request {:?}: {reason}", request.name))?;
        }
        Ok(())
    }

    fn check_group(&self, group: &Users) -> Result<(), String> {
        if group.count > MOST_USERS {
            return Err(format!("count is {}: at most {MOST_USERS}", group.count));
        }
        if group.requests.is_empty() {
            return Err("`requests` is empty: a session must begin with something".to_owned());
        }
        let rows = group.next.values().flatten().chain(&group.requests);
        for (name, weight) in rows {
            self.request(name).ok_or_else(|| format!("there is no request {name:?}"))?;
            if !(weight.is_finite() && *weight >= 0.0) {
                return Err(format!("{name:?} has the weight {weight}: it must be 0 or more"));
            }
        }
        if group.requests.values().sum::<f64>() <= 0.0 {
            return Err("the weights of `requests` are all 0".to_owned());
        }
        for (from, row) in &group.next {
            self.request(from).ok_or_else(|| format!("next: there is no request {from:?}"))?;
            let sum: f64 = row.values().sum();
            if sum > 1.0 + 1e-6 {
                return Err(format!("next: the probabilities after {from:?} add up to {sum}, more than 1"));
            }
        }
        match &group.retry {
            Some(retry) if retry.tries == 0 => Err("retry: tries is 0; the first try counts".to_owned()),
            Some(retry) if retry.wait == Wait::Own && retry.time.is_none() => {
                Err("retry: wait = \"own\" needs a time".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn check_request(&self, request: &RequestTemplate) -> Result<(), String> {
        http::Method::from_bytes(request.method.as_bytes())
            .map_err(|_| format!("{:?} is no method", request.method))?;
        if !request.path.starts_with('/') {
            return Err(format!("path {:?} must begin with \"/\"", request.path));
        }
        if request.capture.values().any(|capture| capture.after.is_empty() || capture.until.is_empty()) {
            return Err("capture: `after` and `until` must not be empty".to_owned());
        }
        for name in request.headers.keys() {
            http::HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("{name:?} is no header field"))?;
        }
        for text in request.texts() {
            for name in Template::parse(text)?.names() {
                if !self.requests.iter().any(|request| request.capture.contains_key(name)) {
                    return Err(format!("{{{name}}} is captured by no request"));
                }
            }
        }
        self.users.iter().try_for_each(|group| self.check_filled(request, &group.class))
    }

    /// A request whose text HTTP does not allow would never be sent, and nobody would hear of it.
    fn check_filled(&self, request: &RequestTemplate, class: &str) -> Result<(), String> {
        let names = self.requests.iter().flat_map(|request| request.capture.keys());
        let captured = names.map(|name| (name.clone(), "1".to_owned())).collect();
        let known = Known { user: 1, class: class.to_owned(), captured };
        let filled = |text: &str| Template::parse(text).map(|template| template.fill(&known).unwrap_or_default());
        let path = filled(&request.path)?;
        path.parse::<http::Uri>().map_err(|error| format!("path {path:?}: {error}; write %20 for a space, say"))?;
        for (name, text) in &request.headers {
            let value = filled(text)?;
            http::HeaderValue::from_str(&value)
                .map_err(|_| format!("{name}: {value:?} is no value of a header field"))?;
        }
        Ok(())
    }

    /// A session must be able to begin: nothing has been captured then.
    fn check_beginning(&self, group: &Users) -> Result<(), String> {
        let needs_nothing = |text: &String| Template::parse(text).is_ok_and(|text| text.names().next().is_none());
        let is_possible = |name: &str| {
            let request = self.requests.iter().find(|request| request.name == name);
            request.is_some_and(|request| request.texts().all(needs_nothing))
        };
        if group.requests.iter().any(|(name, weight)| *weight > 0.0 && is_possible(name)) {
            return Ok(());
        }
        let label = group.label();
        Err(format!(
            "users {label:?}: all of `requests` need something captured before; a session cannot begin with them"
        ))
    }
}

impl RequestTemplate {
    /// Every text with names in it.
    fn texts(&self) -> impl Iterator<Item = &String> {
        [&self.path].into_iter().chain(self.form.values()).chain(self.headers.values())
    }
}

fn positive(key: &str, Seconds(value): Seconds) -> Result<(), String> {
    match value > 0.0 && value <= LONGEST.as_secs_f64() {
        true => Ok(()),
        false => Err(format!("{key} is {value} s: it must be above 0, and at most a year")),
    }
}

fn patience() -> Seconds {
    Seconds(60.0)
}

fn get() -> String {
    "GET".to_owned()
}

/// Each is a task with a connection: beyond this one machine is no crowd any more.
const MOST_USERS: u32 = 50_000;

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        [[users]]
        class = "all"
        count = 3
        think = { distribution = "constant", value = "20ms" }
        requests = { login = 1 }
        next = { login = { list = 1 }, list = { list = 0.5 } }
        [[request]]
        name = "login"
        method = "POST"
        path = "/login"
        form = { name = "user{user%2}" }
        capture = { folder = { after = "/folder/", until = "\"" } }
        [[request]]
        name = "list"
        path = "/folder/{folder}"
    "#;

    #[test]
    fn a_good_file() {
        let file = UsersFile::parse(GOOD, "users.toml").unwrap();
        assert_eq!((file.users[0].label(), file.most(&file.users[0])), ("all", 3));
        assert_eq!(file.timeout(), Duration::from_secs(60));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (from, to, wanted) in [
            ("count = 3", "count = 3\nclas = 1", "clas"),
            ("login = 1 }", "log = 1 }", "there is no request \"log\""),
            ("list = 0.5", "list = 1.5", "add up to 1.5"),
            ("login = 1 }", "login = 0 }", "all 0"),
            ("/folder/{folder}", "/folder/{other}", "{other} is captured by no request"),
            ("/folder/{folder}", "folder", "must begin with"),
            ("/folder/{folder}", "/folder/{folder", "no } after"),
            ("user%2", "user%0", "user%0"),
            ("\"POST\"", "\"PO ST\"", "is no method"),
            ("\"/login\"", "\"/log in\"", "write %20"),
            ("path = \"/login\"", "path = \"/login\"\nheaders = { a = \"\\u0007\" }", "no value of a header field"),
            ("login = 1 }", "list = 1 }", "a session cannot begin"),
            ("login = 1 }", "login = 0, list = 1 }", "a session cannot begin"),
            ("[[users]]", "timeout = 1e300\n[[users]]", "at most a year"),
            ("[[users]]", "target = 0\n[[users]]", "above 0"),
            ("[[users]]", "active = [{ users = \"all\", at = 1e300, count = 1 }]\n[[users]]", "0 to a year"),
        ] {
            let error = UsersFile::parse(&GOOD.replacen(from, to, 1), "users.toml").unwrap_err().to_string();
            assert!(error.contains(wanted) && error.contains("users.toml"), "{error}");
        }
    }
}
