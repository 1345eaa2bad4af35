//! `tidegate load`: open-loop load, or users, from the command line.

mod speak;
mod users;

use std::fmt::Display;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{Write, stderr, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use tidegate_loadgen::{LoadError, LoadRun, Plan, Progress, Protocol, Stream};
use tidegate_workload::{ArrivalProcess, Profile, Rate, parse_duration};

/// Send requests like many independent users, and measure the answers. The load is an open loop: each request is sent
/// on schedule, whether or not earlier ones were answered, and its response time counts from the scheduled time. The
/// table and --json report offered, admitted, refused (503) and failed requests by class.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// URL to send to, such as http://127.0.0.1:8080/page or https://...; several share the load evenly
    #[arg(long, value_name = "URL", required = true)]
    to: Vec<String>,
    /// File of users who wait for their answers (a closed loop): their requests, transitions and numbers
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rate", "profile", "classes", "headers", "arrivals"])]
    users: Option<PathBuf>,
    /// Requests per second, such as 200/s or 1.5k/s
    #[arg(long, value_name = "RATE", conflicts_with = "profile")]
    rate: Option<Rate>,
    /// Requests per second over time: steps "0s:20/s, 10s:80/s", ramps "10s..15s:20/s->80/s", "30s:end"
    #[arg(long, value_name = "PROFILE")]
    profile: Option<Profile>,
    /// How long to send; default: to the end of the profiles, else 30s
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Allow a duration above one hour
    #[arg(long)]
    long: bool,
    /// Whether arrivals are random (poisson) or evenly spaced (constant)
    #[arg(long, value_name = "PROCESS", default_value_t = ArrivalProcess::Poisson)]
    arrivals: ArrivalProcess,
    /// One class of requests: name=gold,path=/buy,rate=20/s. Keys: name, path (repeated; "3*/a" weighs it), rate,
    /// profile, header (repeated), arrivals, timeout. The options supply what is not given
    #[arg(long = "class", value_name = "KEY=VALUE,...")]
    classes: Vec<String>,
    /// A header field for every request: "Name: value"
    #[arg(long = "header", value_name = "FIELD")]
    headers: Vec<String>,
    /// Response time within which an answer counts as goodput
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    target: Option<Duration>,
    #[command(flatten)]
    speak: speak::SpeakArgs,
    /// How long a client waits for its answer (for users their file says); in gRPC the call's deadline
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "10s")]
    timeout: Duration,
    /// How long a client waits for a connection; 500ms is too short for the system to repeat the handshake
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "users")]
    connect_timeout: Option<Duration>,
    /// Most connections to each destination
    #[arg(long, value_name = "N", default_value_t = 1024)]
    connections: usize,
    /// Use a new connection for every request
    #[arg(long)]
    close: bool,
    /// Write the results as JSON; "-" writes them to standard output, and the table to standard error
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Seed of all randomness; the same seed generates the same load
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// Runs the load. Exit status 0 when it ran (whatever the answers were), 2 when an option is invalid.
///
/// # Errors
/// When the run itself failed, or its results could not be written.
pub fn run(args: Args) -> Result<ExitCode> {
    if let Some(file) = &args.users {
        return users::run(&args, file);
    }
    let plan = match args.plan().and_then(|plan| plan.validate().map(|()| plan).map_err(Into::into)) {
        Ok(plan) => plan,
        Err(error) => return Ok(bad_usage(&error)),
    };
    let json = match args.json.as_ref().map(open).transpose() {
        Ok(json) => json,
        Err(error) => return Ok(bad_usage(&error)),
    };
    eprint!("{}", announcement(&plan));
    finish(LoadRun::start(plan), json)
}

/// Watches the run to its end, and writes its results.
fn finish<R: Serialize + Display>(run: Result<LoadRun<R>, LoadError>, json: Option<Output>) -> Result<ExitCode> {
    let run = match run {
        Err(error @ (LoadError::Plan(_) | LoadError::Resolve { .. })) => return Ok(bad_usage(&error.into())),
        run => run?,
    };
    let report = watch(run)?;
    match json {
        Some(Output::Stdout) => {
            write!(stderr(), "\n{report}")?;
            writeln!(stdout(), "{}", serde_json::to_string_pretty(&report)?)?;
        }
        Some(Output::File(mut file)) => {
            write!(stdout(), "{report}")?;
            writeln!(file, "{}", serde_json::to_string_pretty(&report)?).context("cannot write the JSON results")?;
        }
        None => write!(stdout(), "{report}")?,
    }
    Ok(ExitCode::SUCCESS)
}

fn bad_usage(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}\n\nFor more, see tidegate load --help");
    ExitCode::from(2)
}

enum Output {
    Stdout,
    File(File),
}

/// Opens the file for the results before the run, which would otherwise be lost.
fn open(path: &PathBuf) -> Result<Output> {
    if path.as_os_str() == "-" {
        return Ok(Output::Stdout);
    }
    File::create(path).map(Output::File).with_context(|| format!("--json: cannot write {}", path.display()))
}

/// Announces what will be sent where.
fn announcement(plan: &Plan) -> String {
    let mut text = format!("sending for {:?} by {}, seed {}:\n", plan.duration, plan.protocol, plan.seed);
    for stream in &plan.streams {
        let urls: Vec<String> = stream.urls.iter().map(|(url, weight)| weighted(url, *weight)).collect();
        text += &format!(
            "  {}: {} {} at {} to {}\n",
            stream.class,
            stream.arrivals,
            if plan.protocol == Protocol::Grpc { "call" } else { stream.method.as_str() },
            stream.profile,
            urls.join(" ")
        );
    }
    text
}

fn weighted(url: &impl ToString, weight: f64) -> String {
    if weight == 1.0 { url.to_string() } else { format!("{weight}*{}", url.to_string()) }
}

/// Shows the run until it is over or interrupted; either way there are results.
fn watch<R>(run: LoadRun<R>) -> Result<R> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut progress = run.progress();
        let stopper = run.stopper();
        let bar = bar(progress.borrow().duration);
        let mut done = std::pin::pin!(run.wait());
        loop {
            tokio::select! {
                report = &mut done => {
                    bar.finish_and_clear();
                    return Ok(report?);
                }
                _ = tokio::signal::ctrl_c() => stopper.stop(),
                Ok(()) = progress.changed() => show(&bar, &progress.borrow_and_update()),
            }
        }
    })
}

fn bar(duration: Duration) -> ProgressBar {
    let style = ProgressStyle::with_template("{elapsed:>4} [{bar:30}] {msg}");
    ProgressBar::new(duration.as_millis() as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn show(bar: &ProgressBar, progress: &Progress) {
    bar.set_position(progress.elapsed.as_millis() as u64);
    let sum =
        |rate: fn(&tidegate_loadgen::Recent) -> f64| progress.classes.iter().map(|c| rate(&c.recent)).sum::<f64>();
    let in_flight: u64 = progress.classes.iter().map(|c| c.in_flight).sum();
    let slowest = progress.classes.iter().filter_map(|c| c.recent.p95).fold(0.0, f64::max);
    bar.set_message(format!(
        "offered {:.0}/s  admitted {:.0}/s  refused {:.0}/s  failed {:.0}/s  in flight {in_flight}  p95 {:.0} ms",
        sum(|r| r.offered_per_s),
        sum(|r| r.admitted_per_s),
        sum(|r| r.refused_per_s),
        sum(|r| r.failed_per_s),
        slowest * 1e3
    ));
}

impl Args {
    fn plan(&self) -> Result<Plan> {
        let classes: Vec<Class> = self.classes.iter().map(|text| Class::parse(text)).collect::<Result<_>>()?;
        let plain = [Class { name: "all".to_owned(), ..Class::default() }];
        let classes = if classes.is_empty() { &plain[..] } else { &classes };
        let streams: Vec<Stream> = classes.iter().map(|class| self.stream(class)).collect::<Result<_>>()?;
        let duration = self.duration.unwrap_or_else(|| end(&streams).unwrap_or(Duration::from_secs(30)));
        ensure!(
            self.long || duration <= HOUR,
            "the duration is {duration:?}, more than an hour: if that is meant, add --long"
        );
        let peak: f64 = streams.iter().map(|s| s.profile.until(duration).peak().per_second()).sum();
        ensure!(
            peak <= MAX_RATE,
            "the rate is up to {peak}/s: more than {MAX_RATE}/s cannot be meant for one generator"
        );
        let mut plan = Plan::new(streams, duration);
        self.speak.say(&mut plan)?;
        plan.seed = self.seed();
        plan.target = self.target;
        plan.connections = self.connections;
        plan.keep_alive = !self.close;
        plan.connect_timeout = self.connect_timeout;
        Ok(plan)
    }

    fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish() % 1_000_000)
    }

    fn stream(&self, class: &Class) -> Result<Stream> {
        let own = class.profile.clone();
        let common = || self.profile.clone().or_else(|| self.rate.map(Profile::constant));
        let name = &class.name;
        let missing = || match self.classes.is_empty() {
            true => anyhow!("how much? Give --rate, such as --rate 200/s, or --profile"),
            false => anyhow!("class {name:?}: how much? Give it rate=..., or all of them --rate"),
        };
        let profile = own.or_else(common).ok_or_else(missing)?;
        let mut stream = Stream::new(name, profile).arrivals(class.arrivals.unwrap_or(self.arrivals));
        stream = stream.timeout(class.timeout.unwrap_or(self.timeout));
        for base in &self.to {
            let base = if base.contains("://") { base.clone() } else { format!("http://{base}") };
            if class.paths.is_empty() {
                stream = stream.url(&base, 1.0)?;
            }
            for (path, weight) in &class.paths {
                stream = stream.url(&format!("{}{path}", origin(&base)), *weight)?;
            }
        }
        for field in self.headers.iter().chain(&class.headers) {
            let (name, value) =
                field.split_once(':').ok_or_else(|| anyhow!("header {field:?}: write it as \"Name: value\""))?;
            stream = stream.header(name.trim(), value.trim())?;
        }
        Ok(stream)
    }
}

/// When the last profile ends, if each has an end.
fn end(streams: &[Stream]) -> Option<Duration> {
    streams.iter().map(|s| s.profile.end()).collect::<Option<Vec<_>>>()?.into_iter().max()
}

/// Scheme, host and port of a URL.
fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    url[host..].find('/').map_or(url, |at| &url[..host + at])
}

/// A parsed `--class` option.
#[derive(Debug, Default, PartialEq)]
struct Class {
    name: String,
    paths: Vec<(String, f64)>,
    profile: Option<Profile>,
    headers: Vec<String>,
    arrivals: Option<ArrivalProcess>,
    timeout: Option<Duration>,
}

impl Class {
    /// Reads `key=value,key=value`. A part without a key belongs to the value before it, so that profiles and header
    /// values may contain commas.
    fn parse(text: &str) -> Result<Class> {
        let mut parts: Vec<(&str, String)> = Vec::new();
        for part in text.split(',') {
            let keyed = part.split_once('=').filter(|(key, _)| key.trim().chars().all(|c| c.is_ascii_lowercase()));
            match (keyed, parts.last_mut()) {
                (Some((key, value)), _) => parts.push((key.trim(), value.trim().to_owned())),
                (None, Some((_, value))) => *value += &format!(",{part}"),
                (None, None) => bail!("class {text:?}: expected key=value, such as name=gold,path=/,rate=20/s"),
            }
        }
        let mut class = Class::default();
        for (key, value) in parts {
            class.set(key, &value).with_context(|| format!("class {text:?}: {key}"))?;
        }
        ensure!(!class.name.is_empty(), "class {text:?}: has no name; add name=...");
        Ok(class)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "name" => self.name = value.to_owned(),
            "path" => self.paths.push(weighted_path(value)?),
            "rate" | "profile" => {
                ensure!(self.profile.is_none(), "given twice: one rate or profile is enough");
                self.profile = Some(value.parse()?);
            }
            "header" => self.headers.push(value.to_owned()),
            "arrivals" => self.arrivals = Some(value.parse()?),
            "timeout" => self.timeout = Some(parse_duration(value)?),
            _ => bail!("unknown key; the keys are name, path, rate, profile, header, arrivals and timeout"),
        }
        Ok(())
    }
}

/// `/path`, or `3*/path` for three times the share.
fn weighted_path(text: &str) -> Result<(String, f64)> {
    let (weight, path) = match text.split_once('*') {
        Some((weight, path)) if !weight.starts_with('/') => {
            (weight.trim().parse().with_context(|| format!("{weight:?} is not a weight"))?, path)
        }
        _ => (1.0, text),
    };
    ensure!(path.starts_with('/'), "{path:?} must begin with \"/\"");
    Ok((path.to_owned(), weight))
}

const HOUR: Duration = Duration::from_secs(3600);

/// Requests per second beyond which a slip of the keyboard is likelier than a wish.
const MAX_RATE: f64 = 1e6;

const EXAMPLES: &str = "Examples:
  tidegate load --to http://127.0.0.1:8080/ --rate 200/s --target 500ms
  tidegate load --to http://127.0.0.1:8080 --profile \"0s:20/s, 10s..20s:->200/s, 60s:end\"
  tidegate load --to http://127.0.0.1:8080 --duration 1min \\
    --class name=gold,path=/buy,rate=20/s --class name=rest,path=3*/,path=/search,rate=300/s
  tidegate load --to https://127.0.0.1:8443 --insecure --protocol grpc --message 1KiB --duration 1min \
    --class name=pay,path=/shop.Checkout/Pay,rate=20/s --class name=rest,path=/shop.Catalog/Search,rate=300/s
  tidegate load --to http://127.0.0.1:8025 --users apps/mail/users.toml --duration 1min";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn plan(line: &[&str]) -> Result<Plan> {
        let given = ["load", "--to", "127.0.0.1:1/base"].iter().chain(line);
        let plan = Cli::try_parse_from(given)?.args.plan()?;
        plan.validate()?;
        Ok(plan)
    }

    #[test]
    fn the_short_form() {
        let plan = plan(&["--rate", "200/s", "--target", "500ms", "--seed", "4", "--close", "--connect-timeout", "1s"])
            .unwrap();
        assert_eq!((plan.duration, plan.seed, plan.keep_alive), (Duration::from_secs(30), 4, false));
        assert_eq!(plan.target, Some(Duration::from_millis(500)));
        assert_eq!(plan.connect_timeout, Some(Duration::from_secs(1)));
        assert_eq!(plan.streams[0].urls[0].0.to_string(), "http://127.0.0.1:1/base");
    }

    #[test]
    fn classes_with_commas_in_values() {
        let class = "name=gold,path=3*/a?x=1,path=/b,profile=0s:20/s, 5s:80/s, 9s:end,header=Accept: text/html, text/*,timeout=2s";
        let plan = plan(&["--class", class, "--header", "X: y"]).unwrap();
        let stream = &plan.streams[0];
        let urls: Vec<(String, f64)> = stream.urls.iter().map(|(url, weight)| (url.to_string(), *weight)).collect();
        assert_eq!(urls, [("http://127.0.0.1:1/a?x=1".to_owned(), 3.0), ("http://127.0.0.1:1/b".to_owned(), 1.0)]);
        assert_eq!(stream.headers["accept"], "text/html, text/*");
        assert_eq!((stream.timeout, plan.duration), (Duration::from_secs(2), Duration::from_secs(9)));
        assert!(
            announcement(&plan).contains("gold: poisson GET at 0s:20/s, 5s:80/s, 9s:end to 3*http://127.0.0.1:1/a?x=1")
        );
    }

    #[test]
    fn absurd_wishes_are_refused_in_words() {
        for (line, part) in [
            (&["--rate", "0/s"][..], "nothing would be sent"),
            (&["--rate", "2M/s"], "more than 1000000/s"),
            (&["--rate", "5/s", "--duration", "2h"], "--long"),
            (&["--rate", "5/s", "--duration", "0s"], "duration is 0"),
            (&[], "Give --rate"),
            (&["--rate", "5/s", "--profile", "5/s"], "cannot be used with"),
            (&["--rate", "5"], "expected"),
            (&["--class", "name=a"], "Give it rate"),
            (&["--class", "path=/,rate=1/s"], "has no name"),
            (&["--class", "name=a,rat=1/s"], "rat"),
            (&["--class", "name=a,rate=1/s,path=x"], "path"),
            (&["--class", "gold"], "expected key=value"),
            (&["--rate", "5/s", "--header", "x"], "Name: value"),
            (&["--rate", "5/s", "--arrivals", "bursty"], "unknown arrival process"),
            (&["--rate", "5/s", "--connections", "0"], "at least 1"),
        ] {
            let error = format!("{:#}", plan(line).unwrap_err());
            assert!(error.contains(part), "{line:?}: {error}");
        }
        assert!(plan(&["--rate", "5/s", "--duration", "2h", "--long"]).is_ok());
    }
}
