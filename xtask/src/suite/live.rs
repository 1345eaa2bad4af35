//! The live checks: commands that show the finished program at work, on real sockets and beside real programs.

use std::io::{self, BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::binaries::Kind;
use super::measure::Run;
use crate::command::cargo;
use crate::programs::{self, PROGRAMS, Program};

/// One live check.
#[derive(Debug)]
pub struct Live {
    pub name: &'static str,
    pub kind: Kind,
    /// Arguments to cargo.
    pub cargo: &'static [&'static str],
    /// Rows of [`PROGRAMS`] without which it cannot run.
    pub needs: &'static [&'static str],
}

/// What calls the program as the README has it built.
macro_rules! tidegate {
    ($($argument:literal)*) => { &["run", "--quiet", "--release", "--locked", "-p", "tidegate", "--", $($argument),*] };
}

/// Every live check. To add one, add a row.
pub const LIVE: &[Live] = &[
    Live {
        name: "commands of the documents",
        kind: Kind::Correctness,
        cargo: &["xtask", "docs", "--run"],
        needs: &["curl", "ip", "unshare"],
    },
    Live {
        name: "experiments in the simulator, on the mean of ten seeds",
        kind: Kind::Correctness,
        cargo: tidegate!["experiment" "run" "W1" "W2" "W3" "W4" "W5" "W6" "W7" "N1" "N2" "N3" "N4" "N5" "N6" "N7" "D1" "D2"
            "C1-guarantee" "C2-switch" "C6" "T1" "F1" "F2" "M1" "L1" "G1" "G2" "G3" "G4"
            "--seeds" "10"],
        needs: &[],
    },
    Live {
        name: "experiments in the simulator",
        kind: Kind::Correctness,
        cargo: tidegate!["experiment" "run" "A1" "A2" "A3" "A4" "A5" "baselines" "C1" "C1-equal" "C3" "C4" "C5" "C7"
            "O1" "O2" "O3"
            "S1" "S2" "S3" "S4" "S6" "S7" "S8" "S8B" "S10" "S11" "S12"
            "W8" "V1" "V2" "V3" "--seeds" "1"],
        needs: &[],
    },
    Live {
        name: "experiments whose policies are spoilt fail",
        kind: Kind::Correctness,
        cargo: tidegate!["experiment" "mutate" "A1" "A2" "apache-3x" "baselines" "C1" "C1-equal" "C1-guarantee" "C3" "C5"
            "C6" "D1" "D2" "F1" "F2" "L1" "M1" "N2" "N3" "N4" "N5" "N6" "N7" "O1" "O2" "O3"
            "S1" "S2" "S4" "S6" "S7" "S8" "S8B" "S10" "S11" "S12" "V1" "V2" "V3"
            "W1" "W2" "W3" "W4" "W5" "W6" "W7" "W8" "--short"],
        needs: &[],
    },
    // As much of each as it takes to notice. The time of most of these cannot be scaled.
    Live {
        name: "experiments whose policies are spoilt fail in their first 30 s",
        kind: Kind::Correctness,
        cargo: tidegate!["experiment" "mutate" "G1" "G2" "G3" "G4" "N1" "S3" "S5" "S9" "--short" "--until" "30s"],
        needs: &[],
    },
    Live {
        name: "experiments whose policies are spoilt fail in their first 140 s",
        kind: Kind::Correctness,
        cargo: tidegate!["experiment" "mutate" "A3" "A4" "C2-switch" "O4" "--short" "--until" "140s"],
        needs: &[],
    },
    Live {
        name: "experiments whose policies are spoilt fail in their first 220 s",
        kind: Kind::Correctness,
        cargo: tidegate!["experiment" "mutate" "C4" "T1" "--short" "--until" "220s"],
        needs: &[],
    },
    Live {
        name: "experiments whose policies are spoilt fail in their first 400 s",
        kind: Kind::Correctness,
        cargo: tidegate!["experiment" "mutate" "A5" "--short" "--until" "400s"],
        needs: &[],
    },
    Live {
        name: "experiments whose policies are spoilt fail in their first 620 s",
        kind: Kind::Correctness,
        cargo: tidegate!["experiment" "mutate" "C7" "--short" "--until" "620s"],
        needs: &[],
    },
    Live {
        name: "spaces of jumps in the simulator, every third load",
        kind: Kind::Correctness,
        cargo: tidegate!["experiment" "run" "S5" "S9" "--short"],
        needs: &[],
    },
    Live {
        name: "hours of overload in the simulator, a twentieth of them",
        kind: Kind::Correctness,
        cargo: tidegate!["experiment" "run" "O4" "--short"],
        needs: &[],
    },
    Live {
        name: "four sentries before the same servers, short",
        kind: Kind::Measurement,
        cargo: tidegate!["experiment" "run" "F1" "--live" "--short"],
        needs: &[],
    },
    Live { name: "demo, short", kind: Kind::Measurement, cargo: tidegate!["demo" "--short" "--check"], needs: &[] },
    Live {
        name: "Apache and PHP at three times their capacity, short",
        kind: Kind::Measurement,
        cargo: tidegate!["experiment" "run" "apache-3x" "--live" "--short"],
        needs: &["apache2", "php"],
    },
    Live {
        name: "the same from hey and httperf, short",
        kind: Kind::Measurement,
        cargo: &["xtask", "real", "--short"],
        needs: &["apache2", "php", "hey", "httperf"],
    },
    Live {
        name: "a service in Go at three times its capacity, by ghz and h2load, short",
        kind: Kind::Measurement,
        cargo: &["xtask", "grpc", "--short"],
        needs: &["go", "h2load"],
    },
    Live {
        name: "what `tidegate profile` and httperf find of Apache and PHP, short",
        kind: Kind::Measurement,
        cargo: &["xtask", "profile", "--short"],
        needs: &["apache2", "php", "httperf"],
    },
    Live {
        name: "connections policed in the kernel before Apache, in network namespaces",
        kind: Kind::Measurement,
        cargo: tidegate!["experiment" "run" "V1-flood" "--live" "--short"],
        needs: &["apache2", "nft", "ip"],
    },
    Live {
        name: "instructions for a request and a decision beside those that are recorded",
        kind: Kind::Correctness,
        cargo: &["xtask", "bench", "instructions"],
        needs: &["nginx", "h2load", "valgrind"],
    },
    // So that it does not take time when the machine is watched.
    Live {
        name: "programs in Go are built",
        kind: Kind::Correctness,
        cargo: &["xtask", "grpc", "--build"],
        needs: &["go", "h2load"],
    },
    Live { name: "a soak of ten seconds", kind: Kind::Correctness, cargo: &["xtask", "soak", "--short"], needs: &[] },
    Live {
        name: "faults of processes and their network for half a minute",
        kind: Kind::Measurement,
        cargo: &["xtask", "chaos", "--short"],
        needs: &["faketime", "ip", "nft", "unshare"],
    },
    Live {
        name: "comparison of proxies, one short round",
        kind: Kind::Measurement,
        cargo: &[
            "xtask",
            "bench",
            "proxy",
            "--short",
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
    },
];

impl Live {
    /// The programs that it needs and that are not here.
    pub fn absent(&self) -> Vec<&'static Program> {
        let needed = |program: &&Program| self.needs.contains(&program.name);
        PROGRAMS.iter().filter(needed).filter(|program| !program.is_present()).collect()
    }

    /// Whether it takes the optimised program.
    pub fn needs_release(&self) -> bool {
        self.cargo.contains(&"--release") || self.cargo.starts_with(&["xtask", "bench"])
    }

    /// Whether it counts instructions, of a program that is short of processor time beside others.
    pub fn counts(&self) -> bool {
        self.needs.contains(&"valgrind")
    }

    /// Whether it works in network namespaces of its own.
    pub fn is_in_namespaces(&self) -> bool {
        self.needs.contains(&"nft")
    }

    /// Runs it, shows what it prints, and gives how it ended and what it said.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn run(&self) -> Result<(Run, String)> {
        self.run_telling(|line| println!("{line}"))
    }

    /// Runs it, and gives what it printed at the end only, as it runs beside others.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn run_quietly(&self) -> Result<(Run, String)> {
        self.run_telling(|_| ())
    }

    fn run_telling(&self, tell: impl Fn(&str)) -> Result<(Run, String)> {
        let (success, said) = show(cargo(self.cargo).envs(programs::environment()), tell)?;
        Ok((if success { Run::Held } else { Run::Missed }, said))
    }
}

/// Runs a command and tells each line of what it prints, errors too, when it comes. Whether it ended well, and what it
/// printed.
fn show(command: &mut Command, tell: impl Fn(&str)) -> Result<(bool, String)> {
    let (reader, writer) = io::pipe().context("no pipe for what cargo says")?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().context("cannot start cargo")?;
    // A writer that is left here would keep the pipe open.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut said = String::new();
    for line in BufReader::new(reader).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        tell(&line);
        said.push_str(&line);
        said.push('\n');
    }
    Ok((child.wait()?.success(), said))
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
            assert!(!live.cargo.is_empty(), "{} runs nothing", live.name);
        }
    }

    #[test]
    fn every_experiment_that_the_simulator_checks_is_spoilt() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios");
        let texts = std::fs::read_dir(folder).unwrap().map(|entry| std::fs::read_to_string(entry.unwrap().path()));
        let spoilt = |id: &str| LIVE.iter().any(|live| live.cargo.contains(&"mutate") && live.cargo.contains(&id));
        // Only their live forms have checks.
        let live = ["C5-apache", "C6-apache", "V1-flood"];
        for text in texts {
            let text = text.unwrap();
            let id = text.lines().find_map(|line| line.strip_prefix("id = \"")?.strip_suffix('"')).unwrap();
            assert_ne!(spoilt(id), live.contains(&id), "{id}");
        }
    }

    #[test]
    fn a_live_check_with_no_needs_lacks_nothing() {
        let live = Live { name: "free", kind: Kind::Correctness, cargo: &["--version"], needs: &[] };
        assert!(live.absent().is_empty());
        let (end, said) = live.run().unwrap();
        assert_eq!(end, Run::Held);
        assert!(said.starts_with("cargo "), "{said}");
    }

    #[test]
    fn what_a_command_says_is_kept_with_how_it_ended() {
        let (success, said) = show(Command::new("sh").args(["-c", "echo disturbed: a; exit 1"]), |_| ()).unwrap();
        assert_eq!((success, said.as_str()), (false, "disturbed: a\n"));
    }
}
