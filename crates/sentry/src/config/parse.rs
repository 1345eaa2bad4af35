//! Ways to a [`Config`]: a file, a text, the one-line form.

use std::path::{Path, PathBuf};

use tidegate_config::units::parse_duration;
use tidegate_config::{At, ConfigErrors, List, Problem, Report, Time, parse_document};

use super::raw::{
    RawAdmin, RawApplication, RawCertificate, RawConfig, RawListen, RawSentry, RawServer, RawServerTable, RawTls,
    RawUpgrade,
};
#[cfg(any(test, feature = "fuzzing"))]
use super::resolve::NoWorld;
use super::resolve::{RealWorld, Resolver, World};
use super::{Config, policy};

/// A valid configuration, and what is doubtful about it.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The configuration.
    pub config: Config,
    /// Doubts, in the order of the file.
    pub warnings: Vec<Problem>,
}

/// The one-line form: one application, everything else at its default.
#[derive(Clone, Debug, Default)]
pub struct OneLine {
    /// Where to listen; the default when empty.
    pub listen: Vec<String>,
    /// The certificate's file, or `self-signed`; `None` for plain HTTP.
    pub tls: Option<String>,
    /// The file of its key.
    pub key: Option<String>,
    /// The servers, `host:port`.
    pub to: Vec<String>,
    /// The response-time target, such as `500ms`.
    pub target: Option<String>,
    /// The admission policy's name.
    pub policy: Option<String>,
    /// Decide and count, but refuse nothing.
    pub shadow: bool,
    /// Where the admin API listens; `None` for nowhere.
    pub admin: Option<String>,
    /// The file that holds the admin API's token.
    pub admin_token_file: Option<String>,
    /// Worker threads.
    pub workers: Option<u64>,
    /// A file, or `-` for standard output.
    pub access_log: Option<String>,
    /// Where it is asked to hand over to a successor.
    pub upgrade_socket: Option<String>,
}

impl Config {
    /// Reads and checks a file. Names of servers are looked up, pages are read.
    ///
    /// # Errors
    /// Everything that is wrong, with lines.
    pub fn load(path: &Path) -> Result<Checked, ConfigErrors> {
        let text = tidegate_config::load(path)?;
        Config::parse(&text, path)
    }

    /// Checks a text as if it stood in the file `path`.
    ///
    /// # Errors
    /// Everything that is wrong, with lines.
    pub fn parse(text: &str, path: &Path) -> Result<Checked, ConfigErrors> {
        let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
        parse_in(text, &path.display().to_string(), Some(path.to_path_buf()), &RealWorld { folder })
    }

    /// Checks the one-line form.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn one_line(given: OneLine) -> Result<Checked, ConfigErrors> {
        let mut report = Report::new("");
        let raw = given.into_raw(&mut report);
        finish(raw, report, "command line", None, &RealWorld { folder: PathBuf::new() })
    }
}

/// Feeds any text to the parser and, when it is accepted, checks that its rendering is accepted too and means the same.
///
/// # Panics
/// When it does not: that is the finding.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(text: &str) {
    let Ok(checked) = parse_in(text, "fuzz.toml", None, &NoWorld) else { return };
    let rendered = checked.config.to_toml();
    let again = match parse_in(&rendered, "rendered.toml", None, &NoWorld) {
        Ok(again) => again,
        Err(errors) => panic!("{errors}\n{rendered}"),
    };
    assert_eq!(again.config.to_toml(), rendered);
}

pub(super) fn parse_in(
    text: &str,
    source: &str,
    path: Option<PathBuf>,
    world: &dyn World,
) -> Result<Checked, ConfigErrors> {
    let mut report = Report::new(text);
    let Some(document) = parse_document(text, &mut report) else { return Err(report.failure(source)) };
    let raw = RawConfig::read_table(document.get_ref(), &mut report);
    finish(raw, report, source, path, world)
}

fn finish(
    raw: RawConfig,
    mut report: Report<'_>,
    source: &str,
    path: Option<PathBuf>,
    world: &dyn World,
) -> Result<Checked, ConfigErrors> {
    let config = Resolver::new(world, &mut report).config(raw, path);
    if report.has_errors() {
        return Err(report.failure(source));
    }
    let (_, warnings) = report.finish();
    Ok(Checked { config, warnings })
}

impl OneLine {
    fn into_raw(self, report: &mut Report<'_>) -> RawConfig {
        let server =
            |address: String| RawServer(RawServerTable { address: Some(typed(address)), ..RawServerTable::default() });
        let application = RawApplication {
            listen: (!self.listen.is_empty())
                .then(|| typed(list(self.listen.into_iter().map(typed).map(RawListen::at)))),
            tls: tls(self.tls, self.key, report),
            servers: Some(typed(list(self.to.into_iter().map(server)))),
            target: self.target.and_then(|text| target(&text, report)),
            admission: self.policy.and_then(|name| policy::AdmissionChoice::from_name(&name, report)).map(typed),
            shadow: Some(typed(self.shadow)),
            ..RawApplication::default()
        };
        RawConfig {
            access_log: self.access_log.map(typed),
            sentry: Some(typed(RawSentry { workers: self.workers.map(typed), ..RawSentry::default() })),
            admin: self.admin.map(|listen| {
                let token_file = self.admin_token_file.map(typed);
                typed(RawAdmin { listen: Some(typed(listen)), token_file, ..RawAdmin::default() })
            }),
            application: Some(typed(list([application]))),
            reports: None,
            peers: None,
            ends: None,
            traces: None,
            control: None,
            upgrade: self
                .upgrade_socket
                .map(|path| typed(RawUpgrade { socket: Some(typed(path)), ..RawUpgrade::default() })),
        }
    }
}

/// `--tls CERT --key KEY`, or `--tls self-signed`.
fn tls(cert: Option<String>, key: Option<String>, report: &mut Report<'_>) -> Option<At<RawTls>> {
    let raw = match (cert?.as_str(), key) {
        (SELF_SIGNED, None) => RawTls { self_signed: Some(typed(true)), ..RawTls::default() },
        (SELF_SIGNED, Some(_)) => {
            report.error(&(0..0), "a self-signed certificate has its own key; leave --key out");
            return None;
        }
        (_, None) => {
            report.error(&(0..0), "a certificate needs its key; add --key FILE, or write --tls self-signed to try out");
            return None;
        }
        (cert, Some(key)) => {
            let pair = RawCertificate { cert: Some(typed(cert.to_owned())), key: Some(typed(key)) };
            RawTls { certificate: Some(typed(list([pair]))), ..RawTls::default() }
        }
    };
    Some(typed(raw))
}

/// Instead of a certificate's file: one that is made at the start.
const SELF_SIGNED: &str = "self-signed";

fn target(text: &str, report: &mut Report<'_>) -> Option<At<Time>> {
    match parse_duration(text) {
        Ok(target) => Some(typed(Time(target))),
        Err(problem) => {
            report.error(&(0..0), format!("target = {problem}"));
            None
        }
    }
}

fn list<T>(items: impl IntoIterator<Item = T>) -> List<T> {
    List(items.into_iter().map(typed).collect())
}

/// Something typed outside a file.
fn typed<T>(value: T) -> At<T> {
    At { value, span: 0..0 }
}
