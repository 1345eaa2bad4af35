//! `cargo xtask bench handshakes`: a flood of TLS handshakes before a sentry, and what it does to those that it ought
//! not to touch.
//!
//! The sentry has one worker on core 0. A calm run learns what a full handshake costs there; the flood is that many
//! times more than the core could bear, from core 1, and costs its clients no cryptography: each sends the same
//! ClientHello, waits for the first byte or the reset, and leaves by a reset. Beside it ask, once without the flood and
//! once with it, clients who come back with their sessions, or clients of the most important class who come anew.
//! A second flood, greater and alone, tells with the first what one takes that is refused, and one that is given and
//! left.

mod flood;

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::figure::Figure;
use super::machine;
use super::origin::start_origin;
use super::proc_fs;
use super::proxy::{LOAD_CORE, PROXY_CORE};
use super::record_folder;
use super::report::{Report, Section, spread};
use super::service::{Service, free_address, pin};
use super::stop::Scratch;
use crate::args::Args;
use crate::command::{Profile, output};

use flood::Flood;

/// The second flood is so many times the first.
const WORSE: f64 = 2.0;
const PATIENCE: Duration = Duration::from_secs(1);

/// Who asks beside the flood.
struct World {
    name: &'static str,
    title: &'static str,
    /// How many a second, and further words for `tidegate load`.
    rate: u32,
    words: &'static [&'static str],
    /// What the sentry is told of classes.
    classes: &'static str,
}

const WORLDS: &[World] = &[
    World { name: "back", title: "clients who come back with their sessions", rate: 50, words: &[], classes: "" },
    World {
        name: "gold",
        title: "clients of the most important class who come anew",
        rate: 20,
        words: &["--full-handshakes"],
        classes: "\n[[application.class]]\nname = \"gold\"\nmatch = [{ network = \"127.0.0.1\" }]\n\n\
                  [[application.class]]\nname = \"rest\"\n",
    },
    World {
        name: "strangers",
        title: "strangers of the same class, whom nothing tells from the flood",
        rate: 20,
        words: &["--full-handshakes"],
        classes: "",
    },
];

/// One round of one world.
struct Outcome {
    /// Of those beside the flood, without it and with it: the 95th percentile in milliseconds, and the share answered.
    calm: (f64, f64),
    flooded: (f64, f64),
    /// Processor time of a full handshake, microseconds.
    full_us: f64,
    /// Of one that was given and left, and of one that was refused: see [`Flooded::prices`].
    left_us: f64,
    refused_us: f64,
    /// A second: tried, refused.
    tried: f64,
    refused: f64,
}

/// Runs the flood, and writes what came of it.
///
/// # Errors
/// When a program is missing, or the sentry does not serve.
pub fn run(mut args: Args) -> Result<Vec<Figure>> {
    let short = args.switch("--short");
    let rounds: usize = args.option("--rounds")?.unwrap_or(if short { 1 } else { 5 });
    let seconds: u64 = args.option("--seconds")?.unwrap_or(if short { 3 } else { 8 });
    let times: f64 = args.option("--times")?.unwrap_or(5.0);
    let folder = record_folder(&mut args)?;
    args.finish()?;
    if rounds == 0 || seconds == 0 || !(1.0..=100.0).contains(&times) {
        bail!("--rounds and --seconds must be at least 1, --times from 1 to 100");
    }
    Profile::Release.build()?;
    let scratch = Scratch::new("handshakes")?;
    make_certificate(scratch.path())?;
    let (origin, _) = start_origin(LOAD_CORE, scratch.path())?;
    let mut report = Report {
        name: "handshakes",
        title: "A flood of TLS handshakes",
        method: method(rounds, seconds, times),
        facts: machine::facts().into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        ..Report::default()
    };
    let mut outcomes: Vec<Vec<Outcome>> = WORLDS.iter().map(|_| Vec::new()).collect();
    for round in 1..=rounds {
        for (world, outcomes) in WORLDS.iter().zip(&mut outcomes) {
            let outcome = play(world, seconds, times, origin.address, scratch.path())?;
            println!("round {round}: {:9} {}", world.name, outcome.row());
            outcomes.push(outcome);
        }
    }
    report.sections.push(section(&outcomes));
    report.figures = WORLDS.iter().zip(&outcomes).flat_map(|(world, outcomes)| world.figures(outcomes)).collect();
    report.publish(folder.as_deref())
}

fn method(rounds: usize, seconds: u64, times: f64) -> String {
    format!(
        "{rounds} interleaved rounds of {seconds} s without and {seconds} s with the flood, each with a sentry of its \
         own: one worker on core {PROXY_CORE}, RSA 2048; generators and the origin (nginx) share core {LOAD_CORE}. The \
         flood is {times} times what the core could bear by the cost of a handshake that the calm run shows; its \
         clients send a ClientHello that was recorded, and compute nothing. Then there is a flood {WORSE} times as \
         great, alone: more are refused, and fewer given. What one takes that is given and left, and one that is \
         refused, are the two numbers by which both floods took the time that they took, besides the calm run's and \
         handshakes done. Medians, in brackets the range. Run again \
         with `cargo xtask bench handshakes --rounds {rounds} --seconds {seconds} --times {times} --record`, on a \
         machine that does nothing else."
    )
}

fn section(outcomes: &[Vec<Outcome>]) -> Section {
    let mut text = String::from(
        "| who asks | p95 ms without | p95 ms with | answered without | answered with | full handshake us | \
         one left us | refused one us | ratio to full | tried/s | refused/s |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for (world, outcomes) in WORLDS.iter().zip(outcomes) {
        let of = |value: fn(&Outcome) -> f64, digits| spread(outcomes.iter().map(value), digits);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            world.title,
            of(|outcome| outcome.calm.0, 1),
            of(|outcome| outcome.flooded.0, 1),
            of(|outcome| outcome.calm.1, 3),
            of(|outcome| outcome.flooded.1, 3),
            of(|outcome| outcome.full_us, 0),
            of(|outcome| outcome.left_us, 0),
            of(|outcome| outcome.refused_us, 1),
            of(|outcome| outcome.refused_us / outcome.full_us, 3),
            of(|outcome| outcome.tried, 0),
            of(|outcome| outcome.refused, 0),
        );
    }
    let data = WORLDS.iter().zip(outcomes).map(|(world, outcomes)| {
        json!({ "world": world.name, "rounds": outcomes.iter().map(Outcome::json).collect::<Vec<_>>() })
    });
    Section { title: "what became of whom", text, data: data.collect() }
}

impl World {
    fn figures(&self, outcomes: &[Outcome]) -> Vec<Figure> {
        let name = |what: &str| format!("{}: {what}", self.name);
        let of = |value: fn(&Outcome) -> f64| outcomes.iter().map(value);
        let us = |what: &str, value| Figure::absolute(name(what), "us", of(value));
        let figures = [
            us("full handshake", |outcome| outcome.full_us),
            us("one given and left", |outcome| outcome.left_us),
            us("one refused", |outcome| outcome.refused_us),
            Figure::ratio(name("one refused by a full one"), of(|outcome| outcome.refused_us / outcome.full_us)),
            Figure::ratio(name("share answered in the flood"), of(|outcome| outcome.flooded.1))
                .map(Figure::more_is_better),
            Figure::absolute(name("p95 in the flood"), "ms", of(|outcome| outcome.flooded.0)),
        ];
        figures.into_iter().flatten().collect()
    }
}

impl Outcome {
    fn row(&self) -> String {
        format!(
            "p95 {:.1} to {:.1} ms, answered {:.3} to {:.3}, full {:.0} us, left {:.0} us, refused {:.1} us, {:.0} tried/s",
            self.calm.0,
            self.flooded.0,
            self.calm.1,
            self.flooded.1,
            self.full_us,
            self.left_us,
            self.refused_us,
            self.tried
        )
    }

    fn json(&self) -> Value {
        let beside = |(p95, answered): (f64, f64)| json!({ "p95_ms": p95, "answered": answered });
        json!({
            "calm": beside(self.calm), "flooded": beside(self.flooded), "full_us": self.full_us,
            "left_us": self.left_us, "refused_us": self.refused_us, "tried_per_s": self.tried, "refused_per_s": self.refused,
        })
    }
}

fn play(world: &World, seconds: u64, times: f64, origin: SocketAddr, dir: &Path) -> Result<Outcome> {
    let (listen, admin) = (free_address()?, free_address()?);
    let file = dir.join(format!("{}.toml", world.name));
    let text = format!(
        "[sentry]\nworkers = 1\n\n[admin]\nlisten = \"{admin}\"\n\n[[application]]\nname = \"bench\"\n\
         listen = \"{listen}\"\nservers = [\"{origin}\"]\nlimits = {{ connections = 12000 }}\n\n\
         [[application.tls.certificate]]\ncert = \"rsa.pem\"\nkey = \"rsa-key.pem\"\n{}",
        world.classes
    );
    std::fs::write(&file, text)?;
    let mut command = Command::new(Profile::Release.tidegate());
    command.arg("run").arg("-c").arg(&file).current_dir(dir);
    let sentry = Service::start("tidegate", command, PROXY_CORE, listen, dir)?;
    learn(&sentry, admin)?;
    let meter = || Meter::read(&sentry, admin);
    let began = meter()?;
    let calm = ask(world, &sentry, seconds)?;
    let quiet = meter()?.since(&began);
    let full_us = meter()?.told.full_us()?;
    let rate = times * 1e6 / full_us;
    let (began, flood) = (meter()?, Flood::start(listen, rate)?);
    let flooded = ask(world, &sentry, seconds)?;
    // All that is not handshakes is the same without the flood.
    let first = Flooded::of(&began, &meter()?, flood, quiet.other_us)?;
    let (began, flood) = (meter()?, Flood::start(listen, WORSE * rate)?);
    thread::sleep(Duration::from_secs(seconds));
    let second = Flooded::of(&began, &meter()?, flood, 0.0)?;
    let (left_us, refused_us) = Flooded::prices(&first, &second)?;
    let Flooded { tried, refused, .. } = first;
    Ok(Outcome { calm, flooded, full_us, left_us, refused_us, tried, refused })
}

/// What a flood did, a second: tried, given and left, refused, and the microseconds that these two took.
#[derive(Debug)]
struct Flooded {
    tried: f64,
    given: f64,
    refused: f64,
    took_us: f64,
}

impl Flooded {
    /// Of a flood that is over now; `business_us`: what else the process does, microseconds a second.
    fn of(began: &Meter, ended: &Meter, flood: Flood, business_us: f64) -> Result<Flooded> {
        let Spent { seconds, given, refused, other_us } = ended.since(began);
        let tried = flood.stop() as f64 / seconds;
        if refused == 0.0 {
            bail!("the flood of {tried:.0} handshakes a second was no flood: none was refused");
        }
        Ok(Flooded { tried, given, refused, took_us: other_us - business_us })
    }

    /// Microseconds of one that was given and left, and of one that was refused, with which both floods took what they
    /// took.
    fn prices(one: &Flooded, other: &Flooded) -> Result<(f64, f64)> {
        let apart = one.given * other.refused - other.given * one.refused;
        if apart.abs() < 0.1 * one.given * other.refused {
            bail!("the floods {one:?} and {other:?} are too much alike to tell what a refusal takes");
        }
        let given = (one.took_us * other.refused - other.took_us * one.refused) / apart;
        Ok((given, (one.given * other.took_us - other.given * one.took_us) / apart))
    }
}

/// What the sentry told up to a time, and its process took, microseconds.
struct Meter {
    at: Instant,
    cpu_us: f64,
    told: Told,
}

/// What happened between two times, a second.
struct Spent {
    seconds: f64,
    given: f64,
    refused: f64,
    /// Microseconds besides handshakes that were done.
    other_us: f64,
}

impl Meter {
    fn read(sentry: &Service, admin: SocketAddr) -> Result<Meter> {
        let (told, cpu_us) = (Told::by(admin)?, proc_fs::cpu_micros(sentry.pid())?);
        Ok(Meter { at: Instant::now(), cpu_us, told })
    }

    fn since(&self, before: &Meter) -> Spent {
        let seconds = self.at.duration_since(before.at).as_secs_f64();
        let a_second = |of: fn(&Told) -> f64| (of(&self.told) - of(&before.told)) / seconds;
        Spent {
            seconds,
            given: a_second(|told| told.failed),
            refused: a_second(|told| told.refused),
            other_us: (self.cpu_us - before.cpu_us) / seconds - a_second(|told| told.shaking_us),
        }
    }
}

/// What the sentry's metrics say of handshakes.
#[derive(Debug, Default)]
struct Told {
    full: f64,
    full_cpu_us: f64,
    refused: f64,
    failed: f64,
    shaking_us: f64,
}

impl Told {
    fn by(admin: SocketAddr) -> Result<Told> {
        let mut stream = TcpStream::connect(admin)?;
        stream.set_read_timeout(Some(10 * PATIENCE))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")?;
        let mut page = String::new();
        stream.read_to_string(&mut page).context("the sentry's metrics")?;
        Ok(Told::read(&page))
    }

    fn read(page: &str) -> Told {
        let sum = |name: &str, label: &str| -> f64 {
            let of = page.lines().filter(|line| line.starts_with(name) && line.contains(label));
            of.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
        };
        let (done, cpu) = ("tidegate_handshakes_total{", "tidegate_handshake_cpu_seconds_total{");
        Told {
            full: sum(done, "outcome=\"full\""),
            full_cpu_us: 1e6 * sum(cpu, "kind=\"full\""),
            refused: sum(done, "outcome=\"refused\""),
            failed: sum(done, "outcome=\"failed\""),
            shaking_us: 1e6 * sum(cpu, ""),
        }
    }

    /// What a full handshake took so far.
    fn full_us(&self) -> Result<f64> {
        if self.full < 20.0 || self.full_cpu_us <= 0.0 {
            bail!("the sentry tells of {} full handshakes and {} us", self.full, self.full_cpu_us);
        }
        Ok(self.full_cpu_us / self.full)
    }
}

/// Full handshakes in calm, from which their cost is known.
fn learn(sentry: &Service, admin: SocketAddr) -> Result<()> {
    let world = World { name: "", title: "", rate: 100, words: &["--full-handshakes"], classes: "" };
    let (_, answered) = ask(&world, sentry, 2)?;
    if answered < 0.9 {
        bail!("in calm {answered:.2} of the requests were answered; metrics: {:?}", Told::by(admin)?);
    }
    Ok(())
}

/// The 95th percentile in milliseconds, and the share that was answered.
fn ask(world: &World, sentry: &Service, seconds: u64) -> Result<(f64, f64)> {
    let mut load = Command::new(Profile::Release.tidegate());
    load.args(["load", "--insecure", "--close", "--json", "-", "--timeout", "2s"]).args(world.words);
    load.args(["--rate", &format!("{}/s", world.rate), "--duration", &format!("{seconds}s")]);
    load.args(["--to", &format!("https://{}/1k", sentry.address)]);
    pin(&mut load, LOAD_CORE);
    let said: Value = serde_json::from_str(&output(&mut load)?).context("what `tidegate load` says")?;
    let number = |pointer: &str| said.pointer(pointer).and_then(Value::as_f64).context(pointer.to_owned());
    Ok((1e3 * number("/total/latency/p95")?, number("/total/admitted")? / number("/total/offered")?))
}

fn make_certificate(dir: &Path) -> Result<()> {
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]);
    openssl.args(["-keyout", "rsa-key.pem", "-out", "rsa.pem"]).current_dir(dir);
    output(&mut openssl).context("openssl (Debian package openssl) makes a certificate")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_metrics_say() {
        let page = "tidegate_handshakes_total{application=\"a\",outcome=\"full\"} 40\n\
                    tidegate_handshakes_total{application=\"a\",outcome=\"refused\"} 7\n\
                    tidegate_handshake_cpu_seconds_total{application=\"a\",kind=\"full\"} 0.02\n\
                    tidegate_handshake_cpu_seconds_total{application=\"a\",kind=\"resumed\"} 0.01\n";
        let told = Told::read(page);
        assert_eq!((told.full, told.refused), (40.0, 7.0));
        assert!((told.full_us().unwrap() - 500.0).abs() < 1e-9 && (told.shaking_us - 30_000.0).abs() < 1e-9);
        assert!(Told::default().full_us().is_err());
    }

    #[test]
    fn two_floods_tell_what_given_and_refused_ones_take() {
        let flood = |given: f64, refused: f64| Flooded {
            tried: given + refused,
            given,
            refused,
            took_us: 900.0 * given + 30.0 * refused,
        };
        let (given, refused) = Flooded::prices(&flood(900.0, 4000.0), &flood(750.0, 9000.0)).unwrap();
        assert!((given - 900.0).abs() < 1e-6 && (refused - 30.0).abs() < 1e-6, "{given} {refused}");
        assert!(Flooded::prices(&flood(900.0, 4000.0), &flood(900.0, 4000.0)).is_err());
    }
}
