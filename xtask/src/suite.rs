//! `cargo xtask test`: the programs tests need, the workspace's tests, then the live checks in release mode.
//!
//! On Debian as root, missing programs are installed. Elsewhere they are listed and what needs them is skipped aloud;
//! with `CI=true` a missing program is a failure, never a skip.
//!
//! What depends on the clock of a machine that others use too may fail once by chance, a fault fails each time: such a
//! check has a second try, alone, and the summary says that it took one.

mod workspace;

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Result, bail};

use crate::args::Args;
use crate::command::{cargo, run as run_command};
use crate::programs::{self, PROGRAMS, Program};
use crate::steps::Steps;

/// A check of the finished program on real sockets, as a cargo command.
#[derive(Debug)]
struct Live {
    name: &'static str,
    /// Arguments to cargo.
    cargo: &'static [&'static str],
    /// Rows of [`PROGRAMS`] without which it cannot run.
    needs: &'static [&'static str],
    /// How often it may be run until it passes: once where the clock has no part in it.
    tries: u32,
}

/// The live checks. To add one, add a row.
const LIVE: &[Live] = &[
    Live {
        name: "traces (feature otel)",
        cargo: &[
            "test",
            "--quiet",
            "--locked",
            "-p",
            "tidegate-sentry",
            "--features",
            "otel",
            "--lib",
            "--test",
            "traces",
            "--test",
            "relay",
        ],
        needs: &[],
        tries: 2,
    },
    Live {
        name: "pods, and etcd by TLS (features kubernetes, etcd-tls)",
        cargo: &[
            "test",
            "--quiet",
            "--locked",
            "-p",
            "tidegate-control",
            "--features",
            "kubernetes,etcd-tls",
            "--lib",
            "--test",
            "kubernetes",
            "--test",
            "etcd_tls",
            "--test",
            "lease",
            "--test",
            "lease_killed",
            "--test",
            "lease_pair",
        ],
        needs: &["etcd", "openssl"],
        tries: 2,
    },
    Live {
        name: "control planes in a cluster (features kubernetes, etcd-tls)",
        cargo: &[
            "test",
            "--quiet",
            "--locked",
            "-p",
            "tidegate",
            "--features",
            "kubernetes,etcd-tls",
            "--test",
            "election",
            "in_a_cluster",
        ],
        needs: &[],
        tries: 2,
    },
    Live {
        name: "clippy (features kubernetes, etcd-tls)",
        cargo: &[
            "clippy",
            "--quiet",
            "--locked",
            "-p",
            "tidegate-control",
            "-p",
            "tidegate",
            "--features",
            "kubernetes,etcd-tls",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
        needs: &[],
        tries: 1,
    },
    Live {
        name: "demo, short",
        cargo: &["run", "--quiet", "--release", "--locked", "-p", "tidegate", "--", "demo", "--short", "--check"],
        needs: &[],
        tries: 2,
    },
    Live {
        name: "commands of the documents",
        cargo: &["xtask", "docs", "--run"],
        needs: &["curl", "ip", "unshare"],
        tries: 2,
    },
    Live {
        name: "experiments in the simulator",
        cargo: &[
            "run",
            "--quiet",
            "--release",
            "--locked",
            "-p",
            "tidegate",
            "--",
            "experiment",
            "run",
            "A1",
            "A2",
            "A3",
            "A4",
            "A5",
            "C1",
            "C3",
            "C4",
            "C5",
            "C6",
            "C7",
            "O1",
            "O2",
            "O3",
            "S1",
            "S2",
            "S3",
            "S4",
            "S5",
            "S6",
            "S7",
            "S8",
            "S8B",
            "S9",
            "S10",
            "S11",
            "S12",
            "W1",
            "W2",
            "W3",
            "W4",
            "W5",
            "W6",
            "W7",
            "W8",
            "V1",
            "V2",
            "V3",
        ],
        needs: &[],
        tries: 1,
    },
    Live {
        name: "Apache and PHP at three times their capacity, short",
        cargo: &["xtask", "real", "--short"],
        needs: &["apache2", "php", "hey", "httperf"],
        tries: 3,
    },
    Live {
        name: "what `tidegate profile` and httperf find of Apache and PHP, short",
        cargo: &["xtask", "profile", "--short"],
        needs: &["apache2", "php", "httperf"],
        tries: 3,
    },
    Live {
        name: "connections policed in the kernel before Apache, in network namespaces",
        cargo: &["xtask", "resource", "--short", "--only", "premium"],
        needs: &["apache2", "nft", "ip"],
        tries: 2,
    },
    Live {
        name: "comparison of proxies, one short round",
        cargo: &[
            "xtask",
            "bench",
            "proxy",
            "--rounds",
            "1",
            "--seconds",
            "1",
            "--only",
            "nginx,tidegate",
            "--cases",
            "pass-1k,refuse,refuse-pipelined",
            "--out",
            "target/bench",
        ],
        needs: &["nginx", "wrk"],
        tries: 2,
    },
];

/// Runs every test and prints the summary.
///
/// # Errors
/// When an argument is unknown; a failing step is counted, not returned.
pub fn run(args: Args) -> Result<ExitCode> {
    args.finish()?;
    let mut steps = Steps::default();
    add_to(&mut steps);
    Ok(steps.finish())
}

/// Installs or lists the external programs, and no more.
///
/// # Errors
/// When an argument is unknown; a failing step is counted, not returned.
pub fn run_programs(args: Args) -> Result<ExitCode> {
    args.finish()?;
    let mut steps = Steps::default();
    steps.run("external programs", external_programs);
    Ok(steps.finish())
}

/// Whether `cargo xtask test` has a step of this name that runs commands.
pub fn is_step(name: &str) -> bool {
    name == TESTS || LIVE.iter().any(|live| live.name == name)
}

/// The step that runs the tests.
const TESTS: &str = "tests";

/// Adds the steps of `cargo xtask test` to a longer list.
pub fn add_to(steps: &mut Steps) {
    steps.run("external programs", external_programs);
    let no_namespaces = no_namespaces();
    match &no_namespaces {
        None => steps.run("network namespaces can be made", || Ok(())),
        Some(because) => lack(steps, "tests in network namespaces (connections policed in the kernel)", because),
    }
    let mut lucky = Vec::new();
    steps.run(TESTS, || {
        let here = programs::environment().into_iter();
        let mut variables: Vec<_> = here.map(|(name, value)| (name, value.to_owned())).collect();
        if let Some(seed) = seed_of_commit().filter(|_| in_ci()) {
            println!("generated inputs: TIDEGATE_SEED={seed}");
            variables.push(("TIDEGATE_SEED".to_owned(), seed));
        }
        lucky = workspace::test(&variables)?;
        Ok(())
    });
    for program in lucky {
        steps.remark(format!("tests: {program} failed, and passed when it ran alone"));
    }
    if Path::new("fuzz/Cargo.toml").exists() {
        steps.run("fuzz targets, replayed", crate::fuzz::replay);
    }
    for live in LIVE {
        let in_namespaces = live.needs.contains(&"nft");
        match (live.absent().as_slice(), no_namespaces.as_ref().filter(|_| in_namespaces)) {
            ([], None) => {
                steps.run_until(live.tries, live.name, || run_command(cargo(live.cargo).envs(programs::environment())));
            }
            ([], Some(because)) => lack(steps, live.name, because),
            (absent, _) => {
                let names: Vec<_> = absent.iter().map(|program| program.name).collect();
                lack(steps, live.name, &format!("{} is missing", names.join(", ")));
            }
        }
    }
}

/// A step that cannot run here: in continuous integration a failure.
fn lack(steps: &mut Steps, name: &str, because: &str) {
    if in_ci() {
        steps.run(name, || bail!("{because}"));
    } else {
        steps.skip(name, because);
    }
}

/// Why tests cannot have network namespaces with packet filters of their own; `None`: they can. Those tests say it too,
/// but what a test that passes says is not shown.
fn no_namespaces() -> Option<String> {
    let Some(nft) = crate::command::find_program("nft") else { return Some("nft is missing".to_owned()) };
    let mut probe = Command::new("unshare");
    let made = crate::command::output(probe.arg("--net").arg(nft).args(["list", "tables"]));
    made.err().map(|error| format!("they need root, or CAP_NET_ADMIN and CAP_SYS_ADMIN: {error}"))
}

impl Live {
    fn absent(&self) -> Vec<&'static Program> {
        let needed = |program: &&Program| self.needs.contains(&program.name);
        PROGRAMS.iter().filter(needed).filter(|program| !program.is_present()).collect()
    }
}

/// Seeds that continuous integration draws from: few enough that each was tried before a policy changes hands.
const SEEDS: u8 = 16;

/// Continuous integration tries other inputs with every commit, and the same ones when it tries a commit again.
fn seed_of_commit() -> Option<String> {
    let head = Command::new("git").args(["rev-parse", "HEAD"]).output().ok().filter(|head| head.status.success())?;
    let hash = String::from_utf8(head.stdout).ok()?;
    u8::from_str_radix(hash.get(..2)?, 16).ok().map(|seed| (seed % SEEDS).to_string())
}

fn external_programs() -> Result<()> {
    let missing = programs::missing();
    if missing.is_empty() {
        println!("all {} are here", PROGRAMS.len());
        return Ok(());
    }
    let list: Vec<_> = missing.iter().map(|program| program.package).collect();
    if programs::can_install() {
        println!("installing {}", list.join(" "));
        return programs::install(&missing);
    }
    for program in &missing {
        println!("missing: {} (Debian package {}): needed for {}", program.name, program.package, program.needed_by);
    }
    let remedy = format!("apt-get install --no-install-recommends {}", list.join(" "));
    if in_ci() {
        bail!("with CI=true every program must be here; run, as root: {remedy}");
    }
    println!("what needs them is skipped; to run all, as root: {remedy}");
    Ok(())
}

/// Whether this is continuous integration, where nothing may be left out.
pub fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_live_check_needs_only_programs_of_the_table() {
        for live in LIVE {
            for name in live.needs {
                assert!(PROGRAMS.iter().any(|program| program.name == *name), "{}: {name}", live.name);
            }
            assert!(!live.cargo.is_empty() && live.tries > 0, "{} runs nothing", live.name);
        }
    }

    #[test]
    fn a_live_check_with_no_needs_lacks_nothing() {
        let live = Live { name: "free", cargo: &["--version"], needs: &[], tries: 1 };
        assert!(live.absent().is_empty());
    }
}
