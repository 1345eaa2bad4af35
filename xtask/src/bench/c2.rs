//! `cargo xtask bench c2`: what it costs to refuse a request after the batch test, and by a threshold (the paper's
//! figure 4).
//!
//! The sentry's one worker is saturated by clients that ask again as soon as they are refused, so the rate is the most
//! it sustains. The server answers nobody: one request occupies it, and every other fails its policy's test. In the
//! first case the batch test is made on arrival (the most important class). In the second, requests gather in a class
//! queue for 50 ms and are tested together; there are enough clients to keep the sentry busy meanwhile.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::contender::{CONTENDERS, Contender, Duty};
use super::figure::Figure;
use super::idle::raise_file_limit;
use super::load::{CONNECTIONS, Load, Shape};
use super::proxy::{Case, LOAD_CORE, PROXY_CORE, facts, measure_case};
use super::report::{Report, Section};
use super::stop::Scratch;
use super::{of_engine, record_folder};
use crate::args::Args;

/// At 50 ms in the queue these could ask 160,000 times a second.
const MANY: u32 = 8_000;
const OPEN_FILES: u64 = 9_000;

const CASES: &[Case] = &[
    Case {
        name: "arrival",
        title: "tested on arrival: 64 clients of the most important class",
        duty: Duty::RefuseTested,
        load: Load { path: "/gold", shape: Shape::KeepAlive, connections: CONNECTIONS },
    },
    Case {
        name: "queue",
        title: "tested in batches: 8,000 clients of a class that is looked at every 50 ms",
        duty: Duty::RefuseTested,
        load: Load { path: "/silver", shape: Shape::KeepAlive, connections: MANY },
    },
];

const PAPER: &str =
    "On a processor of 1 GHz the paper's sentry refused about 19,000 requests per second by threshold and about
4,000 by batch (section 6.3, figure 4), a ratio of 4.75. There the batch was most of what a refusal cost. Here
system calls are: a policy's share shows in the decision alone, and in a queued request's way through the proxy.
";

/// Runs the comparison.
///
/// # Errors
/// When wrk is missing, or a sentry does not refuse everything.
pub fn run(mut args: Args) -> Result<Vec<Figure>> {
    let short = args.switch("--short");
    let rounds: usize = args.option("--rounds")?.unwrap_or(if short { 2 } else { 5 });
    let seconds: f64 = args.option("--seconds")?.unwrap_or(if short { 2.0 } else { 5.0 });
    let folder = record_folder(&mut args)?;
    args.finish()?;
    if rounds == 0 || seconds < 1.0 {
        bail!("--rounds must be at least 1 and --seconds at least 1");
    }
    raise_file_limit(OPEN_FILES)?;
    let contenders: Vec<Contender> =
        CONTENDERS.iter().filter(|contender| contender.duties.contains(&Duty::RefuseTested)).copied().collect();
    contenders.first().context("no contender refuses after a test")?.build()?;
    let engine = engine(short)?;
    let scratch = Scratch::new("c2")?;
    let server = silent_server()?;
    let mut report = Report {
        name: "c2",
        title: "C2: batch and threshold policing, everything refused",
        method: method(rounds, seconds),
        facts: facts(&contenders),
        ..Report::default()
    };
    for case in CASES {
        report.cases.push(measure_case(case, (rounds, seconds), &contenders, server, scratch.path())?);
    }
    report.sections = vec![engine, Section { title: "The paper", text: PAPER.to_owned(), data: paper() }];
    report.publish(folder.as_deref())
}

fn method(rounds: usize, seconds: f64) -> String {
    format!(
        "{rounds} interleaved rounds of {seconds:.0} s. The sentry has one worker on core {PROXY_CORE}; wrk shares core \
         {LOAD_CORE} with nobody but the server, which accepts connections and never answers. One request occupies the \
         server's only processor, and by configuration (`default_cost = \"10s\"`, `target = \"1s\"`) every other fails the \
         test: the batch policy refuses it after testing, the threshold policy (`fixed = 0`) after looking it up. Clients \
         ask again as soon as they are refused, so `responses/s` is what the sentry sustains, if its core is busy. \
         Medians, in brackets the range; ratios are taken within a round. Run again with `cargo xtask bench c2 --rounds {rounds} --seconds \
         {seconds} --record`."
    )
}

fn paper() -> Value {
    json!({ "threshold_per_second": 19_000, "batch_per_second": 4_000, "processor": "1 GHz" })
}

/// The bare decisions, as the engine's own benchmark measures them.
fn engine(short: bool) -> Result<Section> {
    println!("── the engine alone");
    let said = of_engine(short)?;
    let rows = decisions(&said);
    if rows.is_empty() {
        bail!("cannot find decisions in what the engine's benchmark printed:\n{said}");
    }
    let mut text = String::from("| decision | ns, median | fastest | slowest |\n|---|---|---|---|\n");
    for row in &rows {
        text += &format!("| {} | {} | {} | {} |\n", row[0], row[1], row[2], row[3]);
    }
    let data = rows.iter().map(|row| json!({ "what": row[0], "ns": [row[1], row[2], row[3]] })).collect();
    Ok(Section { title: "The decision alone (cargo bench -p tidegate-engine)", text, data: Value::Array(data) })
}

/// The rows about threshold and batch: what, median, fastest, slowest.
fn decisions(said: &str) -> Vec<[String; 4]> {
    let rows = said.lines().filter(|line| line.starts_with("| threshold: refused") || line.starts_with("| batch: a "));
    rows.filter_map(|row| {
        let mut cells = row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned());
        Some([cells.next()?, cells.next()?, cells.next()?, cells.next()?])
    })
    .collect()
}

/// A server that takes connections and says nothing, for as long as this program runs.
fn silent_server() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        let _held: Vec<TcpStream> = listener.incoming().flatten().collect();
    });
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_decisions_that_are_compared_are_taken() {
        let said = "| what | median ns | fastest | slowest | bar |\n|---|---|---|---|---|\n\
            | threshold: passes | 9.9 | 9.0 | 12.0 | 40 held |\n| threshold: refused | 8.1 | 8.0 | 9.0 | 40 held |\n\
            | batch: arrival and completion | 300.0 | 200.0 | 400.0 |  |\n\
            | batch: a request of 1000 waiting | 90.5 | 80.0 | 99.0 | 200 held |\n";
        let rows = decisions(said);
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0][..2], ["threshold: refused".to_owned(), "8.1".to_owned()]);
        assert_eq!(rows[1][0], "batch: a request of 1000 waiting");
    }
}
