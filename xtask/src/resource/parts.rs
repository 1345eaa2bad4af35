//! The parts of `cargo xtask resource`, each with what must hold.

use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::load::{Mix, Run};
use super::space::Space;
use super::{Bench, Check, SENTRY_PORT, SERVICE_PORT, flood};
use crate::bench::proc_fs;
use crate::command;

impl Bench<'_> {
    pub(super) fn v1(&self) -> Result<Vec<Check>> {
        let saturation = self.saturation();
        println!("\n── V1\n| rate | | answered/s | mean | scripts/s | SYNs turned away |\n|---|---|---|---|---|---|");
        let levels = [0.8, 1.5, 2.0, 3.0];
        let mut alone = Vec::new();
        for level in levels {
            let run = self.settled(SERVICE_PORT, Mix::dynamic(level * saturation))?;
            row(level, "alone", &run, None);
            alone.push(run);
            thread::sleep(Duration::from_secs(5));
        }
        let guarded = self.guard(r#"{ policy = "resource", resources = [{ name = "cpu" }] }"#, "")?;
        let (mut with, mut turned) = (Vec::new(), Vec::new());
        for level in levels {
            self.load(Space::Others, SENTRY_PORT, Mix::dynamic(level * saturation), self.options.settle)?;
            let before = self.connections()?.0;
            let run = self.load(Space::Others, SENTRY_PORT, Mix::dynamic(level * saturation), self.options.seconds)?;
            thread::sleep(Duration::from_secs(1));
            turned.push(self.connections()?.0 - before);
            row(level, "resource", &run, turned.last().copied());
            with.push(run);
        }
        drop(guarded);
        let mut checks = Vec::new();
        for at in [2, 3] {
            let (alone, with) = (alone[at].all, with[at].all);
            let (more, faster) = (with.admitted / alone.admitted, alone.mean / with.mean);
            let level = levels[at];
            checks.push(check(
                format!("V1 at {level} times: at least 40 % more answered"),
                format!("{more:.2} times"),
                more >= 1.4,
            ));
            checks.push(check(
                format!("V1 at {level} times: mean response time a tenth"),
                format!("1/{faster:.0}"),
                faster >= 10.0,
            ));
        }
        let scripts = with[1].scripts;
        checks.push(check(
            "V1 at 1.5 times: scripts are limited".into(),
            format!("{:.0} of {:.0}/s", scripts.admitted, scripts.offered),
            scripts.refused > 0.0,
        ));
        let quiet = turned[0] + turned[1];
        checks.push(check(
            "V1 up to 1.5 times: the SYN policer turns nobody away".into(),
            format!("{quiet:.0}"),
            quiet == 0.0,
        ));
        checks.push(check("V1 at 3 times: it does".into(), format!("{:.0}", turned[3]), turned[3] > 0.0));
        Ok(checks)
    }

    pub(super) fn v2(&self) -> Result<Vec<Check>> {
        self.spaces.bound(Space::Others, "100mbit")?;
        let mix = |large| Mix { files: (0.5 / self.costs.0).min(300.0), scripts: 0.0, large };
        println!(
            "\n── V2\n| large files | | mix answered/s | mean | large answered/s | mean |\n|---|---|---|---|---|---|"
        );
        let mut checks = Vec::new();
        for large in [50.0, 80.0] {
            let alone = self.settled(SERVICE_PORT, mix(large))?;
            thread::sleep(Duration::from_secs(5));
            let guarded = self.guard(r#"{ policy = "resource", resources = [{ name = "nic_queue" }] }"#, "")?;
            let with = self.settled(SENTRY_PORT, mix(large))?;
            drop(guarded);
            for (name, run) in [("alone", &alone), ("resource", &with)] {
                let (files, big) = (run.files, run.large);
                println!(
                    "| {large}/s | {name} | {:.0} of {:.0} | {:.0} ms | {:.0} | {:.0} ms |",
                    files.admitted,
                    files.offered,
                    files.mean * 1e3,
                    big.admitted,
                    big.mean * 1e3
                );
            }
            let kept = with.files.admitted / with.files.offered;
            checks.push(check(
                format!("V2 at {large}/s: the mix keeps 95 % (paper: 96, 95)"),
                format!("{:.1} %", kept * 1e2),
                kept >= 0.95,
            ));
            if large > 60.0 {
                let faster = alone.files.mean / with.files.mean;
                checks.push(check(
                    "V2 at 80/s: the mix is answered ten times as fast (paper: 118)".into(),
                    format!("{faster:.0} times"),
                    faster >= 10.0,
                ));
            }
        }
        Ok(checks)
    }

    pub(super) fn v3(&self) -> Result<Vec<Check>> {
        let saturation = self.saturation();
        let (low, high) = (0.8 * saturation, 2.27 * saturation);
        let scripts = (0.2 * low * 1.2).max(10.0);
        let cpu = format!(r#"{{ name = "cpu", control = {{ initial_rate = {scripts:.0} }} }}"#);
        let syn = 2.67 * saturation;
        let admission =
            format!(r#"{{ policy = "resource", syn = {{ initial_rate = {syn:.0} }}, resources = [{cpu}] }}"#);
        let guarded = self.guard(&admission, "")?;
        println!(
            "\n── V3: {low:.0}/s, for 20 s {high:.0}/s, {low:.0}/s\n| second | rate of connections | rate of scripts |\n|---|---|---|"
        );
        let mut curves = Vec::new();
        thread::scope(|scope| -> Result<()> {
            let load = scope.spawn(|| -> Result<()> {
                for (rate, seconds) in [(low, 10.0), (high, 20.0), (low, 30.0)] {
                    self.load(Space::Others, SENTRY_PORT, Mix::dynamic(rate), seconds)?;
                }
                Ok(())
            });
            let begin = Instant::now();
            while !load.is_finished() {
                let state = self.state()?;
                let rate = |name: &str| {
                    let states = state["policy"]["resources"].as_array()?;
                    states.iter().find(|state| state["resource"] == name)?["rate"].as_f64()
                };
                let now = (begin.elapsed().as_secs_f64(), rate("syn").unwrap_or(0.0), rate("cpu").unwrap_or(0.0));
                println!("| {:.0} | {:.1} | {:.1} |", now.0, now.1, now.2);
                curves.push(now);
                thread::sleep(Duration::from_secs(1));
            }
            load.join().unwrap_or_else(|_| bail!("the load panicked"))
        })?;
        drop(guarded);
        let within = |from: f64, to: f64| curves.iter().filter(move |at| at.0 >= from && at.0 < to);
        let least = within(10.0, 32.0).map(|at| at.1).fold(f64::INFINITY, f64::min);
        let last = curves.last().map_or(0.0, |at| at.1);
        let pairs = || curves.windows(2).map(|pair| pair[0].2 - pair[1].2);
        let (fell, rose) = (pairs().fold(0.0, f64::max), -pairs().fold(0.0, f64::min));
        Ok(vec![
            check(
                "V3: the rate of connections falls below the demand".into(),
                format!("{least:.0} of {high:.0}"),
                least < high,
            ),
            check("V3: and recovers to more than the demand".into(), format!("{last:.0} of {low:.0}"), last > low),
            check("V3: that of scripts falls by 2 a sample at most".into(), format!("{fell:.1}"), fell <= 2.0 * 1.5),
            check("V3: and rises faster".into(), format!("{rose:.1}"), rose > fell),
        ])
    }

    /// A flood beside the load: each prefix has its part, so that the premium clients do not feel it.
    pub(super) fn premium(&self) -> Result<Vec<Check>> {
        let rate = 0.6 * self.saturation();
        let syn = "syn_policing = { required = true, class = [{ name = \"premium\", network = \"10.77.1.0/24\", share = 1 }] }";
        let admission = format!(
            r#"{{ policy = "resource", syn = {{ initial_rate = {rate:.0}, max_rate = {rate:.0} }}, resources = [{{ name = "cpu" }}] }}"#
        );
        let guarded = self.guard(&admission, syn)?;
        thread::sleep(Duration::from_secs(2));
        let seconds = self.options.seconds;
        let (premium, flood) = thread::scope(|scope| {
            let flood = scope.spawn(|| {
                let to = SocketAddr::from((Space::Others.server(), SENTRY_PORT));
                self.spaces.within(Space::Others, || flood::flood(to, (5_000.0 * seconds) as u32, 5_000.0))
            });
            let premium = self.load(Space::Premium, SENTRY_PORT, Mix::dynamic(0.2 * rate), seconds - 1.0);
            (premium, flood.join().unwrap_or_else(|_| bail!("the flood panicked")))
        });
        let (premium, _) = (premium?, flood?);
        thread::sleep(Duration::from_secs(1));
        let turned = self.connections()?.0;
        drop(guarded);
        let kept = premium.all.admitted / premium.all.offered;
        println!(
            "\n── premium: {:.1} of {:.1}/s answered in {:.0} ms beside a flood of 5000/s",
            premium.all.admitted,
            premium.all.offered,
            premium.all.mean * 1e3
        );
        Ok(vec![
            check(
                "premium: at least 95 % answered beside the flood".into(),
                format!("{:.1} %", kept * 1e2),
                kept >= 0.95,
            ),
            check("premium: the flood is turned away".into(), format!("{turned:.0} SYNs"), turned > 1000.0),
        ])
    }

    /// What a refusal costs: processor time of both ends together, less what the sender's own calls cost.
    pub(super) fn cost(&self) -> Result<Vec<Check>> {
        let to = SocketAddr::from((Space::Others.server(), SENTRY_PORT));
        let attempts = 40_000;
        let send = |count| self.spaces.within(Space::Others, || flood::flood(to, count, 1e6));
        let closed = r#"{ policy = "resource", syn = { initial_rate = 1, min_rate = 1, max_rate = 1 } }"#;
        let guarded = self.guard(closed, "syn_policing = { required = true }")?;
        thread::sleep(Duration::from_secs(2));
        send(1_000)?;
        let dropped = send(attempts)?;
        drop(guarded);
        // The same calls, whose SYNs do not leave: what they cost in any case.
        self.spaces.within(Space::Others, || {
            nft("add table ip floor; add chain ip floor out { type filter hook output priority 0; }")?;
            nft(&format!("add rule ip floor out tcp dport {SENTRY_PORT} drop"))
        })?;
        let floor = send(attempts)?;
        self.spaces.within(Space::Others, || nft("delete table ip floor"))?;
        let refusing = self.guard(r#"{ policy = "threshold", fixed = 0.0 }"#, "")?;
        let before = proc_fs::cpu_micros(refusing.sentry.pid())?;
        let run = self.load(Space::Others, SENTRY_PORT, Mix { files: 1_500.0, ..Mix::default() }, 10.0)?;
        let answered = (proc_fs::cpu_micros(refusing.sentry.pid())? - before) / 1e6 / (run.all.refused * 10.0).max(1.0);
        drop(refusing);
        let (syn, ratio) = (dropped - floor, answered / (dropped - floor).max(1e-9));
        let [syn_us, both_us, calls_us, answered_us] = [syn, dropped, floor, answered].map(|seconds| seconds * 1e6);
        println!("\n── cost: a dropped SYN {syn_us:.2} us (both ends {both_us:.2}, the sender's calls {calls_us:.2});");
        println!("   a 503 on a new connection {answered_us:.1} us of the sentry's process alone");
        Ok(vec![check(
            "cost: a connection turned away costs at most 1/15 of a 503".into(),
            format!("1/{ratio:.0}"),
            ratio >= 15.0,
        )])
    }
}

fn nft(rules: &str) -> Result<()> {
    let nft = command::find_program("nft").context("nft is missing (Debian package nftables)")?;
    command::run(Command::new(nft).arg(rules))
}

fn row(level: f64, name: &str, run: &Run, turned: Option<f64>) {
    let turned = turned.map_or(String::new(), |turned| format!("{turned:.0}"));
    println!(
        "| {level} ({:.0}/s) | {name} | {:.0} | {:.0} ms | {:.0} of {:.0} | {turned} |",
        run.all.offered,
        run.all.admitted,
        run.all.mean * 1e3,
        run.scripts.admitted,
        run.scripts.offered
    );
}

fn check(what: String, found: String, holds: bool) -> Check {
    Check { what, found, holds }
}
