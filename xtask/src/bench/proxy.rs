//! `cargo xtask bench proxy`: what a request costs in tidegate, nginx, haproxy and Envoy.
//!
//! Every proxy has one worker pinned to core 0; wrk and the origin (an nginx with static files) are pinned to core 1.
//! Rounds are interleaved: in each, every proxy is loaded once, and its ratio is taken to nginx in the same round. The
//! figure that matters is the CPU time of the proxy's processes per response: it does not depend on who the
//! bottleneck was.
//!
//! Ours is built as it is installed (profile `dist`); with `--short`, as checks build it.
//!
//! To compare two builds of our own in one run, name the other's program in `TIDEGATE_BEFORE`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::contender::{BEFORE, CONTENDERS, Contender, Duty, make_certificate};
use super::figure::Figure;
use super::load::{self, CONNECTIONS, Counted, Load, PIPELINE, Shape};
use super::memory::{self, MEMORY_CASES};
use super::origin::start_origin;
use super::report::{CaseReport, Report, Row, Sample};
use super::service::Service;
use super::stop::Scratch;
use super::{machine, proc_fs};
use crate::args::{Args, all_known};
use crate::command::Profile;

/// Where the proxies run.
pub const PROXY_CORE: usize = 0;
/// Where the load and the servers run.
pub const LOAD_CORE: usize = 1;
const WARM_UP_SECONDS: f64 = 1.0;

/// One way to load a proxy.
pub struct Case {
    /// Its name in `--cases`.
    pub name: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// What the proxy has to do.
    pub duty: Duty,
    /// What it has to do it with.
    pub load: Load,
}

const CASES: &[Case] = &[
    Case {
        name: "pass-1k",
        title: "pass 1 kB, kept connections",
        duty: Duty::Pass,
        load: Load { path: "/1k", shape: Shape::KeepAlive, connections: CONNECTIONS },
    },
    Case {
        name: "pass-64k",
        title: "pass 64 kB, kept connections",
        duty: Duty::Pass,
        load: Load { path: "/64k", shape: Shape::KeepAlive, connections: CONNECTIONS },
    },
    Case {
        name: "refuse",
        title: "refuse, kept connections",
        duty: Duty::Refuse,
        load: Load { path: "/1k", shape: Shape::KeepAlive, connections: CONNECTIONS },
    },
    Case {
        name: "refuse-new",
        title: "refuse, a new connection for each request",
        duty: Duty::Refuse,
        load: Load { path: "/1k", shape: Shape::NewConnection, connections: CONNECTIONS },
    },
    Case {
        name: "refuse-pipelined",
        title: "refuse, sixteen requests in one write",
        duty: Duty::Refuse,
        load: Load { path: "/1k", shape: Shape::Pipelined, connections: CONNECTIONS },
    },
    Case {
        name: "pass-1k-h2c",
        title: "pass 1 kB by HTTP/2, in clear text",
        duty: Duty::Pass,
        load: Load { path: "/1k", shape: Shape::Http2, connections: CONNECTIONS },
    },
    Case {
        name: "pass-1k-h2",
        title: "pass 1 kB by HTTP/2 over TLS",
        duty: Duty::Pass,
        load: Load { path: "/1k", shape: Shape::Http2Tls, connections: CONNECTIONS },
    },
    Case {
        name: "pass-1k-grpc",
        title: "pass 1 kB by HTTP/2 on both sides, as gRPC is passed",
        duty: Duty::PassGrpc,
        load: Load { path: "/1k", shape: Shape::Http2, connections: CONNECTIONS },
    },
    Case {
        name: "pass-1k-tls",
        title: "pass 1 kB over TLS, kept connections",
        duty: Duty::Pass,
        load: Load { path: "/1k", shape: Shape::Tls, connections: CONNECTIONS },
    },
    Case {
        name: "handshake-full",
        title: "pass 1 kB over TLS, a full handshake for each request",
        duty: Duty::Pass,
        load: Load { path: "/1k", shape: Shape::FullHandshake, connections: CONNECTIONS },
    },
    Case {
        name: "handshake-resumed",
        title: "pass 1 kB over TLS, a resumed session for each request",
        duty: Duty::Pass,
        load: Load { path: "/1k", shape: Shape::ResumedHandshake, connections: CONNECTIONS },
    },
    Case {
        name: "refuse-h2c",
        title: "refuse by HTTP/2, in clear text",
        duty: Duty::Refuse,
        load: Load { path: "/1k", shape: Shape::Http2, connections: CONNECTIONS },
    },
];

/// What was asked for.
struct Options {
    /// Few rounds, of what checks build.
    short: bool,
    rounds: usize,
    seconds: f64,
    only: Option<Vec<String>>,
    cases: Option<Vec<String>>,
    record: Option<PathBuf>,
}

/// Runs the comparison and writes its report.
///
/// # Errors
/// When a program is missing, or a proxy does not do what its case asks for.
pub fn run(args: Args) -> Result<Vec<Figure>> {
    let options = Options::take(args)?;
    ensure_two_cores()?;
    let contenders = contenders(options.only.as_deref(), options.short)?;
    if MEMORY_CASES.iter().any(|case| options.wants(case.name)) {
        memory::raise_file_limit()?;
    }
    let scratch = Scratch::new("bench")?;
    let report = measure(&options, &contenders, scratch.path())?;
    report.publish(options.record.as_deref())
}

impl Options {
    fn take(mut args: Args) -> Result<Self> {
        let short = args.switch("--short");
        let (rounds, seconds) = if short { (2, 2.0) } else { (5, 5.0) };
        let options = Self {
            short,
            rounds: args.option("--rounds")?.unwrap_or(rounds),
            seconds: args.option("--seconds")?.unwrap_or(seconds),
            only: args.list("--only")?,
            cases: args.list("--cases")?,
            record: super::record_folder(&mut args)?,
        };
        args.finish()?;
        let known_cases: Vec<_> =
            CASES.iter().map(|case| case.name).chain(MEMORY_CASES.iter().map(|case| case.name)).collect();
        all_known("case", options.cases.as_deref(), &known_cases)?;
        if options.rounds == 0 || options.seconds < 1.0 {
            bail!("--rounds must be at least 1 and --seconds at least 1");
        }
        Ok(options)
    }

    fn wants(&self, case: &str) -> bool {
        self.cases.as_ref().is_none_or(|cases| cases.iter().any(|wanted| wanted == case))
    }
}

/// Which contenders take part, built: those that were asked for; what this machine lacks is said, not passed over.
///
/// # Errors
/// When there is no contender of a name, none is on this machine, or ours does not build.
pub fn contenders(only: Option<&[String]>, short: bool) -> Result<Vec<Contender>> {
    let known: Vec<_> = CONTENDERS.iter().map(|contender| contender.name).collect();
    all_known("contender", only, &known)?;
    let asked = |contender: &&Contender| only.is_none_or(|only| only.iter().any(|name| name == contender.name));
    let mut here = Vec::new();
    for contender in CONTENDERS.iter().filter(asked) {
        let contender = if short { contender.quickly_built() } else { *contender };
        match contender.program() {
            Some(_) => {
                contender.build()?;
                here.push(contender);
            }
            None if contender.name == BEFORE => {}
            None => println!("skipped: {} because it is not on this machine", contender.name),
        }
    }
    if here.is_empty() {
        bail!("none of the contenders is on this machine; install nginx and haproxy");
    }
    Ok(here)
}

/// # Errors
/// When the machine has one core only.
pub fn ensure_two_cores() -> Result<()> {
    if std::thread::available_parallelism()?.get() < 2 {
        bail!("the comparison needs two cores: one for the proxy, one for the load");
    }
    Ok(())
}

fn measure(options: &Options, contenders: &[Contender], dir: &Path) -> Result<Report> {
    let (origin, http2) = start_origin(LOAD_CORE, dir)?;
    let wants =
        |wanted: fn(Shape) -> bool| CASES.iter().any(|case| options.wants(case.name) && wanted(case.load.shape));
    if wants(Shape::is_tls) {
        make_certificate(dir)?;
    }
    if wants(Shape::is_handshake) {
        // Its generator puts the load.
        Profile::Release.build()?;
    }
    let mut report = Report {
        name: "proxy",
        title: "CPU and memory per request, beside other proxies",
        method: method(options),
        facts: facts(contenders),
        ..Report::default()
    };
    for case in CASES.iter().filter(|case| options.wants(case.name)) {
        let origin = if case.duty == Duty::PassGrpc { http2 } else { origin.address };
        report.cases.push(measure_case(case, (options.rounds, options.seconds), contenders, origin, dir)?);
    }
    for case in MEMORY_CASES.iter().filter(|case| options.wants(case.name)) {
        report.memory.push(case.measure(contenders, options.rounds.min(3), origin.address, dir)?);
    }
    Ok(report)
}

/// Loads every contender once in each round, and notes what its processes took.
///
/// # Errors
/// When one does not start, or does not do what the case asks for.
pub fn measure_case(
    case: &Case,
    (rounds, seconds): (usize, f64),
    contenders: &[Contender],
    origin: SocketAddr,
    dir: &Path,
) -> Result<CaseReport> {
    println!("── {}", case.title);
    let able = contenders.iter().filter(|contender| contender.duties.contains(&case.duty));
    let mut rows = Vec::new();
    for contender in able {
        let service = contender.start((case.duty, case.load.shape), origin, PROXY_CORE, dir)?;
        let held = if case.duty == Duty::RefuseTested { Some(service.ask(case.load.path)?) } else { None };
        case.check_once(contender.name, &service)?;
        load::put(&service, case.load, WARM_UP_SECONDS, LOAD_CORE, dir)?;
        rows.push((service, Row { name: contender.name.to_owned(), samples: Vec::new() }, held));
    }
    for round in 0..rounds {
        // Nobody is always the first, or always after the same one.
        let count = rows.len();
        for turn in 0..count {
            let (service, row, _) = &mut rows[(round + turn) % count];
            let before = proc_fs::cpu_micros(service.pid())?;
            let counted = load::put(service, case.load, seconds, LOAD_CORE, dir)?;
            let cpu_us = proc_fs::cpu_micros(service.pid())? - before;
            case.check(&row.name, counted)?;
            let sample = Sample { cpu_us, counted };
            println!("round {}: {:20} {:7.2} us/request", round + 1, row.name, sample.cpu_per_request());
            row.samples.push(sample);
        }
    }
    let rows = rows.into_iter().map(|(_, row, _)| row).collect();
    Ok(CaseReport { name: case.name.to_owned(), title: case.title.to_owned(), rows })
}

impl Case {
    /// One request by hand, before the load: a wrong configuration is found at once.
    fn check_once(&self, name: &str, service: &Service) -> Result<()> {
        if self.load.shape.is_http2() || self.load.shape.is_tls() {
            // The load is counted, too.
            return Ok(());
        }
        // nginx lets one request a minute through its limit: the first may pass, the next may not.
        let first = service.status(self.load.path)?;
        let status = if self.duty == Duty::Refuse { service.status(self.load.path)? } else { first };
        let wanted = if matches!(self.duty, Duty::Pass | Duty::PassGrpc) { 200 } else { 503 };
        if status != wanted {
            bail!("{name} answers {status} in the case `{}`, not {wanted}; correct its configuration", self.name);
        }
        Ok(())
    }

    /// The load did what the case asks for.
    fn check(&self, name: &str, counted: Counted) -> Result<()> {
        let passed = counted.responses - counted.refused;
        let right = match self.duty {
            Duty::Pass | Duty::PassGrpc => counted.refused == 0,
            // Their limits let a request a minute through.
            Duty::Refuse | Duty::RefuseTested => passed <= 1 + counted.responses / 1000,
        };
        if counted.responses == 0 || !right {
            bail!("{name} in the case `{}`: {} of {} responses refused", self.name, counted.refused, counted.responses);
        }
        if counted.socket_errors > 0 {
            println!("note: {name} in the case `{}`: {} socket errors", self.name, counted.socket_errors);
        }
        Ok(())
    }
}

fn method(options: &Options) -> String {
    format!(
        "{} interleaved rounds of {:.0} s. Each proxy has one worker on core {PROXY_CORE}; wrk (one thread, \
         {CONNECTIONS} connections; {PIPELINE} requests in one write where pipelined) and the origin (nginx, static \
         files) share core {LOAD_CORE}. Medians, in brackets the range. CPU is the user and system time of the proxy's \
         processes per response; ratios are taken within a round. Run again with `cargo xtask bench proxy{} --rounds {} \
         --seconds {}{} --record`, on a machine that does nothing else, Envoy's program in `ENVOY`.{}",
        options.rounds,
        options.seconds,
        if options.short { " --short" } else { "" },
        options.rounds,
        options.seconds,
        options.cases.as_ref().map_or(String::new(), |cases| format!(" --cases {}", cases.join(","))),
        if options.short { " Ours is built as checks build it, without optimisation at link time." } else { "" },
    )
}

/// The machine, and the programs' versions.
pub fn facts(contenders: &[Contender]) -> Vec<(String, String)> {
    let machine = machine::facts().into_iter().map(|(name, value)| (name.to_owned(), value));
    let versions = contenders.iter().map(|contender| (contender.name.to_owned(), contender.version()));
    machine.chain(versions).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(responses: u64, refused: u64) -> Counted {
        Counted { responses, refused, per_second: 1.0, p99_us: None, socket_errors: 0 }
    }

    #[test]
    fn a_round_that_did_something_else_is_no_result() {
        let (pass, refuse) = (&CASES[0], &CASES[2]);
        assert!(pass.check("a", counted(1000, 0)).is_ok());
        assert!(pass.check("a", counted(1000, 1)).is_err());
        assert!(pass.check("a", counted(0, 0)).is_err());
        assert!(refuse.check("a", counted(100_000, 99_999)).is_ok());
        assert!(refuse.check("a", counted(1000, 900)).is_err());
    }

    #[test]
    fn unknown_names_are_refused_with_the_known_ones() {
        let known: Vec<_> = CONTENDERS.iter().map(|contender| contender.name).collect();
        let error = all_known("contender", Some(&["ngnix".to_owned()]), &known).unwrap_err().to_string();
        assert!(error.contains("ngnix") && error.contains("nginx, haproxy"), "{error}");
        assert!(all_known("contender", None, &known).is_ok());
    }
}
