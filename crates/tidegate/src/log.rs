//! The program's log: which events are written to standard error, and in which form.
//!
//! Libraries say what happens as `tracing` events; what becomes of them is decided here alone. People get lines of text
//! with times, systemd's journal gets lines with priorities (it has times of its own), and programs get JSON.

use std::fmt;
use std::fs::File;
use std::io::stderr;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::str::FromStr;

use tracing::{Event, Level, Subscriber, error, info};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::{Format, FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;

/// The target of messages to whoever started the program: always written, as text without a prefix.
const SAID: &str = "tidegate::said";

/// Which events are logged, and how.
#[derive(Clone, Debug, clap::Args)]
pub struct LogArgs {
    /// Level of the log on standard error: off, error, warn, info, debug or trace; for one part:
    /// tidegate_sentry=debug;
    /// several of these separated by commas. Default info for run, nucleus and control, warn for the others
    #[arg(long, global = true, value_name = "FILTER", env = "TIDEGATE_LOG", hide_env_values = true)]
    log: Option<Filter>,
    /// Format of the log
    #[arg(long, global = true, value_name = "FORMAT", value_enum, default_value_t)]
    log_format: LogFormat,
}

/// The form of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Lines of text: with times; under systemd with priorities instead.
    #[default]
    Text,
    /// A line of JSON per event.
    Json,
}

/// What `--log` says: a level for everything, and levels of parts.
#[derive(Clone, Debug, Default, PartialEq)]
struct Filter {
    all: Option<LevelFilter>,
    parts: Vec<(String, LevelFilter)>,
}

impl LogArgs {
    /// Begins to log, for the rest of the process. `level`: of what `--log` does not mention.
    pub fn start(self, level: LevelFilter) {
        let lines = Lines { format: self.log_format, is_journal: is_journal() };
        let filter = self.log.unwrap_or_default().targets(level);
        // It fails where a log was begun before, which goes on then.
        let _ = tracing::subscriber::set_global_default(subscriber(filter, lines, stderr));
    }
}

/// Announces what runs now to whoever started the program.
pub fn announce(text: impl fmt::Display) {
    info!(target: SAID, "{text}");
}

/// Tells whoever started the program why it ends.
pub fn complain(text: impl fmt::Display) {
    error!(target: SAID, "{text}");
}

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut filter = Filter::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some((target, name)) => filter.parts.push((target.trim().to_owned(), level(name.trim())?)),
                None => filter.all = Some(level(part)?),
            }
        }
        Ok(filter)
    }
}

impl Filter {
    fn targets(self, default: LevelFilter) -> Targets {
        let all = self.all.unwrap_or(default);
        // It warns of what clients do wrong, each time. That is counted, and may be a thousand times in a second.
        let h2 = if all < LevelFilter::DEBUG { all.min(LevelFilter::ERROR) } else { all };
        // It calls each call that nobody answers an error. That is said once, with its cause, by who made the call.
        let kube = if all < LevelFilter::DEBUG { LevelFilter::OFF } else { all };
        let targets = Targets::new().with_default(all).with_target("h2", h2).with_target("kube_client", kube);
        let targets = targets.with_targets(self.parts);
        targets.with_target(SAID, LevelFilter::INFO)
    }
}

fn level(name: &str) -> Result<LevelFilter, String> {
    let known = [
        ("off", LevelFilter::OFF),
        ("error", LevelFilter::ERROR),
        ("warn", LevelFilter::WARN),
        ("info", LevelFilter::INFO),
        ("debug", LevelFilter::DEBUG),
        ("trace", LevelFilter::TRACE),
    ];
    let found = known.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    let names = known.map(|(known, _)| known).join(", ");
    found.map(|(_, level)| *level).ok_or_else(|| format!("\"{name}\" is no level; there are {names}"))
}

/// Whether standard error goes to systemd's journal. The variable may have come from a parent whose standard error this
/// is not.
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let Ok(own) = stderr().as_fd().try_clone_to_owned() else { return false };
    File::from(own).metadata().is_ok_and(|own| stream == format!("{}:{}", own.dev(), own.ino()))
}

fn subscriber<W>(filter: Targets, lines: Lines, writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let written = tracing_subscriber::fmt::layer().with_ansi(false).event_format(lines).with_writer(writer);
    tracing_subscriber::registry().with(filter).with(written)
}

/// How an event is written.
#[derive(Clone, Copy, Debug)]
struct Lines {
    format: LogFormat,
    is_journal: bool,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut text = String::new();
        let to = Writer::new(&mut text);
        let plain = Format::default();
        match self.format {
            LogFormat::Json => {
                let json = plain.json().flatten_event(true).with_current_span(false).with_span_list(false);
                match self.is_journal {
                    true => json.without_time().format_event(context, to, event)?,
                    false => json.format_event(context, to, event)?,
                }
            }
            LogFormat::Text if event.metadata().target() == SAID => context.format_fields(to, event)?,
            LogFormat::Text if self.is_journal => {
                plain.without_time().with_level(false).format_event(context, to, event)?;
            }
            LogFormat::Text => plain.format_event(context, to, event)?,
        }
        // An event may be several lines, each of which is one of the journal's.
        for line in text.lines() {
            if self.is_journal {
                write!(writer, "<{}>", priority(*event.metadata().level()))?;
            }
            writeln!(writer, "{line}")?;
        }
        Ok(())
    }
}

/// As syslog counts: `man 3 sd-daemon`.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use tracing::{debug, warn};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("not poisoned").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is written of some events.
    fn written(filter: &str, format: LogFormat, is_journal: bool) -> String {
        let written = Written::default();
        let to = written.clone();
        let filter = filter.parse::<Filter>().expect("a filter").targets(LevelFilter::INFO);
        let subscriber = subscriber(filter, Lines { format, is_journal }, move || to.clone());
        tracing::subscriber::with_default(subscriber, || {
            announce("it runs\n  here");
            warn!(target: "tidegate_sentry::reload", file = "a.toml", "two\nlines");
            debug!(target: "tidegate_sentry::reload", "detail");
        });
        let bytes = written.0.lock().expect("not poisoned").clone();
        String::from_utf8(bytes).expect("UTF-8")
    }

    #[test]
    fn people_get_times_and_the_journal_gets_priorities() {
        let text = written("", LogFormat::Text, false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..2], ["it runs", "  here"]);
        assert!(lines[2].starts_with("20") && lines[2].ends_with("Z  WARN tidegate_sentry::reload: two"), "{text}");
        assert_eq!(lines[3..], ["lines file=\"a.toml\""]);
        let journal = written("tidegate=debug", LogFormat::Text, true);
        let expected = [
            "<6>it runs",
            "<6>  here",
            "<4>tidegate_sentry::reload: two",
            "<4>lines file=\"a.toml\"",
            "<7>tidegate_sentry::reload: detail",
        ];
        assert_eq!(journal.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn programs_get_one_object_per_event() {
        let text = written("off", LogFormat::Json, false);
        let event: serde_json::Value = serde_json::from_str(&text).expect("one object");
        assert_eq!((&event["level"], &event["message"]), (&"INFO".into(), &"it runs\n  here".into()));
        let text = written("", LogFormat::Json, true);
        let second = text.lines().nth(1).and_then(|line| line.strip_prefix("<4>")).expect("a warning");
        let event: serde_json::Value = serde_json::from_str(second).expect("an object");
        assert_eq!((&event["file"], event.get("timestamp")), (&"a.toml".into(), None));
    }

    #[test]
    fn clients_write_no_lines() {
        for (filter, is_written) in [("", false), ("warn", false), ("off", false), ("debug", true), ("h2=warn", true)] {
            let targets = filter.parse::<Filter>().expect("a filter").targets(LevelFilter::INFO);
            assert_eq!(targets.would_enable("h2::proto::ping_pong", &Level::WARN), is_written, "{filter}");
            assert!(targets.would_enable("tidegate_sentry::reload", &Level::WARN) || filter == "off");
        }
    }

    #[test]
    fn an_api_server_that_is_away_writes_no_lines() {
        for (filter, is_written) in [("", false), ("error", false), ("debug", true), ("kube_client=error", true)] {
            let targets = filter.parse::<Filter>().expect("a filter").targets(LevelFilter::INFO);
            assert_eq!(targets.would_enable("kube_client::client::builder", &Level::ERROR), is_written, "{filter}");
            assert!(targets.would_enable("tidegate_control::member", &Level::ERROR));
        }
    }

    #[test]
    fn a_filter_is_levels_and_nothing_else() {
        let parts = vec![("tidegate_sentry".to_owned(), LevelFilter::DEBUG)];
        let expected = Filter { all: Some(LevelFilter::WARN), parts };
        assert_eq!("WARN, tidegate_sentry=debug".parse(), Ok(expected));
        assert_eq!("".parse(), Ok(Filter::default()));
        let wrong = "verbose".parse::<Filter>().expect_err("no level");
        assert_eq!(wrong, "\"verbose\" is no level; there are off, error, warn, info, debug, trace");
        assert!("sentry=loud".parse::<Filter>().is_err());
    }
}
