//! The file: users as scenario files know them, and the HTTP request that each request type is.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_config::ConfigErrors;
use tidegate_workload::{Seconds, Users};

use super::check;

/// What users do. Every name it refers to exists, and every number makes sense: it was checked when it was read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsersFile {
    /// How long a user waits for an answer; 60 s when absent.
    #[serde(default = "patience")]
    pub(super) timeout: Seconds,
    /// Response time within which an answer counts as goodput.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) target: Option<Seconds>,
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
    /// It cannot be read, is not of the form, or makes no sense.
    #[error(transparent)]
    File(#[from] ConfigErrors),
    /// A duration that cannot be used.
    #[error("{0}")]
    Duration(&'static str),
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
    /// When it cannot be read, is not of the form, or makes no sense: everything that is wrong, with line and key.
    pub fn read(path: &Path) -> Result<UsersFile, UsersError> {
        UsersFile::parse(&tidegate_config::load(path)?, &path.display().to_string())
    }

    /// Reads the text of a file called `name`.
    ///
    /// # Errors
    /// When it is not of the form, or makes no sense: everything that is wrong, with line and key.
    pub fn parse(text: &str, name: &str) -> Result<UsersFile, UsersError> {
        let file: UsersFile = tidegate_config::parse(text, name)?;
        let problems = check::problems(&file);
        if problems.is_empty() { Ok(file) } else { Err(ConfigErrors::of_checks(name, text, problems).into()) }
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
}

impl RequestTemplate {
    /// Every text with names in it.
    pub(super) fn texts(&self) -> impl Iterator<Item = &String> {
        [&self.path].into_iter().chain(self.form.values()).chain(self.headers.values())
    }
}

fn patience() -> Seconds {
    Seconds(60.0)
}

fn get() -> String {
    "GET".to_owned()
}

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
            assert!(error.contains(wanted) && error.starts_with("users.toml:"), "{error}");
        }
    }

    #[test]
    fn all_mistakes_are_told_at_once_with_line_and_nearest_key() {
        let told = |text: &str| -> Vec<String> {
            let error = UsersFile::parse(text, "users.toml").unwrap_err().to_string();
            error.lines().map(str::to_owned).collect()
        };
        let text = GOOD.replacen("count = 3", "cuont = 3", 1).replacen("value = \"20ms\"", "value = \"20\"", 1);
        let text = text.replacen("method =", "methd =", 1);
        let unreadable = told(&text);
        assert_eq!(unreadable[0], "users.toml:4: users[0].cuont: unknown key \"cuont\"; did you mean \"count\"?");
        assert!(unreadable[1].starts_with("users.toml:5: users[0].think"), "{unreadable:?}");
        assert_eq!(unreadable[2], "users.toml:10: request[0].methd: unknown key \"methd\"; did you mean \"method\"?");
        let text = GOOD.replacen("login = 1 }", "logn = 1 }", 1).replacen("list = 0.5", "list = 1.5", 1);
        assert_eq!(
            told(&text.replacen("user%2", "user%0", 1)),
            [
                "users.toml:6: users[0].requests: there is no request \"logn\"; did you mean \"login\"?",
                "users.toml:7: users[0].next: the probabilities after \"list\" add up to 1.5, more than 1",
                "users.toml:12: request[0].form: {user%0} is neither a name nor {user%N} with N above 0",
            ]
        );
    }
}
