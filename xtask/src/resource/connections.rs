//! New connections turned away by the kernel: beside clients that are not to feel it, and what each costs.

use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::load::Mix;
use super::space::Space;
use super::{Bench, Check, SATURATED, SENTRY_PORT, check, flood};
use crate::bench::proc_fs;
use crate::command;

impl Bench<'_> {
    /// A flood beside the load: each prefix has its part, so that the premium clients do not feel it.
    ///
    /// # Errors
    /// When something does not do its part.
    pub fn premium(&self) -> Result<Vec<Check>> {
        let rate = 0.6 * SATURATED;
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
            let premium = self.load(Space::Premium, SENTRY_PORT, &[(Mix::dynamic(0.2 * rate), seconds - 1.0)]);
            (premium, flood.join().unwrap_or_else(|_| bail!("the flood panicked")))
        });
        let (course, _) = (premium?, flood?);
        let premium = course.between(0.0, seconds);
        thread::sleep(Duration::from_secs(1));
        let turned = self.connections()?.0;
        drop(guarded);
        let kept = premium.all.answered / premium.all.offered;
        println!(
            "\n── premium: {:.1} of {:.1}/s answered in {:.0} ms beside a flood of 5000/s",
            premium.all.answered,
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
    ///
    /// # Errors
    /// When something does not do its part.
    pub fn cost(&self) -> Result<Vec<Check>> {
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
        let run = self.load(Space::Others, SENTRY_PORT, &[(Mix { files: 1_500.0, ..Mix::default() }, 10.0)])?;
        let refused = run.between(0.0, 10.0).all.refused * 10.0;
        let answered = (proc_fs::cpu_micros(refusing.sentry.pid())? - before) / 1e6 / refused.max(1.0);
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
