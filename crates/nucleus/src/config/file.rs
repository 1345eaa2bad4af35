//! The file: what may be typed in it, and everything that is wrong there at once.

use std::path::{Path, PathBuf};

use tidegate_config::units::format_duration;
use tidegate_config::{At, ConfigErrors, List, Report, Time, parse_document, section};

use super::{Given, bad, check_address, check_name, check_processors, in_bounds, parse_service, status_url};
use crate::isolation::{GivenIsolation, RawIsolation};

section! {
    struct RawNucleus ("at the top level") {
        /// The server's name. Required to report.
        server: String,
        /// Where sentries listen. Required to report.
        to: List<String>,
        /// The file with the shared secret. Required to report.
        key_file: String,
        /// Time between reports, 10ms to 60s. Default: `"100ms"`.
        interval: Time,
        /// Where the server listens: a port, `address:port`, or `"none"`. Default: the port in `server`.
        service: String,
        /// A status page of the server, asked once a second. Default: none.
        status: String,
        /// The server's own cgroup. Default: the root to be seen.
        cgroup: String,
        /// The server's effective processors. Default: learned by the sentry.
        processors: f64,
        /// Measure processor time per connection. Default: `false`.
        connections: bool,
        /// How a data server's cores are divided. Default: none.
        isolation: RawIsolation,
    }
}

impl Given {
    /// Reads a file. Relative paths in it start from its folder.
    ///
    /// # Errors
    /// When it cannot be read, or makes no sense: everything that is wrong, with lines.
    pub fn load(path: &Path) -> Result<Given, ConfigErrors> {
        let text = tidegate_config::load(path)?;
        let mut given = Given::parse(&text, &path.display().to_string())?;
        if let (Some(key), Some(folder)) = (&mut given.key_file, path.parent()) {
            *key = folder.join(&*key);
        }
        if let (Some(isolation), Some(folder)) = (&mut given.isolation, path.parent()) {
            isolation.move_to(folder);
        }
        Ok(given)
    }

    /// Reads the text of the file `source`.
    ///
    /// # Errors
    /// Everything that is wrong, with lines.
    pub(super) fn parse(text: &str, source: &str) -> Result<Given, ConfigErrors> {
        let mut report = Report::new(text);
        let Some(document) = parse_document(text, &mut report) else { return Err(report.failure(source)) };
        let raw = RawNucleus::read_table(document.get_ref(), &mut report);
        let given = raw.check(&mut report);
        if report.has_errors() { Err(report.failure(source)) } else { Ok(given) }
    }
}

impl RawNucleus {
    /// What was typed; what makes no sense is reported.
    fn check(self, report: &mut Report<'_>) -> Given {
        let to = self.to.map_or_else(Vec::new, |to| to.value.0);
        let interval = self.interval.and_then(|At { value: Time(given), span }| {
            let written = At { value: format_duration(given), span };
            checked("interval", Some(written), |_| in_bounds(given).map(drop), report)
        });
        Given {
            server: checked("server", self.server, |text| check_name(text), report),
            to: to.into_iter().filter_map(|to| checked("to", Some(to), |text| check_address(text), report)).collect(),
            key_file: self.key_file.map(|given| PathBuf::from(given.value)),
            interval,
            service: checked("service", self.service, |text| parse_service(text).map(drop), report),
            status: checked("status", self.status, |text| status_url(text).map(drop), report),
            cgroup: self.cgroup.map(|given| PathBuf::from(given.value)),
            processors: checked("processors", self.processors, |given| check_processors(*given), report),
            connections: self.connections.map(|given| given.value),
            isolation: self.isolation.map(|given| GivenIsolation::read(given, report)),
        }
    }
}

/// What passes a check; the rest is reported.
fn checked<T: Clone + ToString>(
    key: &'static str,
    given: Option<At<T>>,
    check: impl FnOnce(&T) -> Result<(), String>,
    report: &mut Report<'_>,
) -> Option<T> {
    parsed(key, given, |value| check(value).map(|()| value.clone()), report)
}

/// What a value means; what makes no sense is reported.
pub(crate) fn parsed<T: ToString, U>(
    key: &'static str,
    given: Option<At<T>>,
    parse: impl FnOnce(&T) -> Result<U, String>,
    report: &mut Report<'_>,
) -> Option<U> {
    let At { value, span } = given?;
    let wrong = |problem| report.error(&span, bad(key, &value.to_string(), problem).to_string());
    parse(&value).map_err(wrong).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isolation::RawSide;

    fn told(text: &str) -> Vec<String> {
        let errors = Given::parse(text, "nucleus.toml").expect_err("wrong");
        errors.to_string().lines().map(str::to_owned).collect()
    }

    #[test]
    fn all_mistakes_are_told_at_once_with_line_and_nearest_key() {
        let text = "sever = \"web:80\"\nto = [\"10.0.0.9:9901\", \"nowhere\"]\ninterval = \"1ms\"\n\
            status = \"https://x/\"\nprocessors = -1\n[isolation]\nmethod = \"cpusets\"\ncores = \"x\"\n\
            data = { proces = \"memcached\", port = 0 }\n";
        assert_eq!(
            told(text),
            [
                "nucleus.toml:1: unknown key \"sever\" at the top level; did you mean \"server\"?",
                "nucleus.toml:2: to = \"nowhere\": write host:port",
                "nucleus.toml:3: interval = \"1ms\": it must lie between 10ms and 60s",
                "nucleus.toml:4: status = \"https://x/\": write http://host:port/path",
                "nucleus.toml:5: processors = \"-1\": it must be more than 0",
                "nucleus.toml:7: unknown method \"cpusets\"; did you mean \"cpuset\"?",
                "nucleus.toml:8: isolation.cores = \"x\": \"x\" is no list of cores; write one such as 0-3,8",
                "nucleus.toml:9: unknown key \"proces\" in data or application of [isolation]; did you mean \"process\"?",
                "nucleus.toml:9: port = \"0\": write one from 1 to 65535",
            ]
        );
    }

    #[test]
    fn the_page_has_every_key() {
        let page =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/nucleus.md")).expect("the page");
        for section in [RawNucleus::SECTION, RawIsolation::SECTION, RawSide::SECTION] {
            for key in section.keys {
                let is_there =
                    page.contains(&format!("`{}`", key.name())) || page.contains(&format!("`[{}]`", key.name()));
                assert!(is_there, "docs/nucleus.md lacks {} {}", key.name(), section.place);
            }
        }
    }

    #[test]
    fn a_file_that_is_not_toml_or_not_there_says_so() {
        assert!(told("server = ")[0].starts_with("nucleus.toml:1: this is not TOML: "));
        let error = Given::load(Path::new("/nonexistent/nucleus.toml")).expect_err("nothing there").to_string();
        assert!(error.starts_with("/nonexistent/nucleus.toml: cannot be read: "), "{error}");
    }
}
