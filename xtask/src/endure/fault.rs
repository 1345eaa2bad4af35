//! Faults that befall processes and the network between them.

use std::net::TcpStream;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

use super::network::{self, Packets};
use super::site::{SERVERS, Site, signal};

/// How long one lasts.
const LASTS: Duration = Duration::from_secs(2);

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A server and its nucleus are killed, and come back.
    Killed(usize),
    /// A server stands still.
    ServerStands(usize),
    /// A nucleus stands still.
    NucleusStands(usize),
    /// The sentry itself stands still.
    SentryStands,
    /// All servers are gone.
    AllGone,
    /// There are no descriptors left.
    NoDescriptors,
    /// There is no room for the access log.
    DiskFull,
    /// The configuration cannot be read.
    BrokenFile,
    /// Hundreds of clients connect and say nothing.
    Silent,
    /// What is sent to a server is lost.
    ServerDeaf(usize),
    /// What a server sends is lost.
    ServerMute(usize),
    /// What nuclei report is lost.
    NucleiMute,
    /// One packet of ten between clients, sentry and servers is lost.
    Lossy,
    /// Everything goes over a link that is too narrow, with a queue before it.
    Narrow,
}

impl Fault {
    /// The fault of a number.
    pub fn drawn(seed: u64, number: usize) -> Fault {
        let mut bits = seed ^ (number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let which = (bits >> 32) as usize % SERVERS;
        match (bits >> 8) % 14 {
            0 => Fault::Killed(which),
            1 => Fault::ServerStands(which),
            2 => Fault::NucleusStands(which),
            3 => Fault::SentryStands,
            4 => Fault::AllGone,
            5 => Fault::NoDescriptors,
            6 => Fault::DiskFull,
            7 => Fault::BrokenFile,
            8 => Fault::ServerDeaf(which),
            9 => Fault::ServerMute(which),
            10 => Fault::NucleiMute,
            11 => Fault::Lossy,
            12 => Fault::Narrow,
            _ => Fault::Silent,
        }
    }

    /// Whether one server at most is lost by it.
    pub fn leaves_the_others(self) -> bool {
        use Fault::{Killed, NucleiMute, NucleusStands, ServerDeaf, ServerMute, ServerStands};
        let of_one = matches!(self, Killed(_) | ServerStands(_) | NucleusStands(_) | ServerDeaf(_) | ServerMute(_));
        of_one || self == NucleiMute
    }

    /// Lets it happen, and lasts as long as it does.
    ///
    /// # Errors
    /// When it cannot be brought about.
    pub fn strike(self, site: &mut Site) -> Result<()> {
        // Under load, not before.
        sleep(Duration::from_secs(1));
        match self {
            Fault::Killed(at) => site.end(at, true),
            Fault::AllGone => (0..SERVERS).for_each(|at| site.end(at, true)),
            Fault::ServerStands(at) => stand(site.pids(at)[0]),
            Fault::NucleusStands(at) => stand(site.pids(at)[1]),
            Fault::SentryStands => stand(Some(site.pid())),
            Fault::NoDescriptors => {
                let own = std::fs::read_dir(format!("/proc/{}/fd", site.pid()))?.count() as u64;
                let before = descriptors(site.pid(), own)?;
                sleep(LASTS);
                descriptors(site.pid(), before)?;
            }
            Fault::DiskFull => {
                site.access_log = "/dev/full".into();
                site.reload(1)?;
            }
            Fault::BrokenFile => site.write("[[application]\nname = 1 2\n")?,
            Fault::Silent => {
                let address = site.address();
                let clients: Vec<_> = (0..500).map_while(|_| TcpStream::connect(address).ok()).collect();
                sleep(LASTS);
                drop(clients);
            }
            Fault::ServerDeaf(at) => network::lose(&Packets::To(site.port(at)))?,
            Fault::ServerMute(at) => network::lose(&Packets::From(site.port(at)))?,
            Fault::NucleiMute => network::lose(&Packets::Datagrams(site.reports().port()))?,
            Fault::Lossy => {
                let ports = (0..SERVERS).map(|at| site.port(at)).chain([site.address().port()]);
                network::lose(&Packets::Share(10, ports.collect()))?;
            }
            Fault::Narrow => network::narrow()?,
        }
        sleep(LASTS);
        network::mend()
    }

    /// Everything is as before.
    ///
    /// # Errors
    /// When it cannot be.
    pub fn undo(self, site: &mut Site) -> Result<()> {
        network::mend()?;
        (0..SERVERS).try_for_each(|at| site.bring(at))?;
        if matches!(self, Fault::DiskFull | Fault::BrokenFile) {
            site.access_log = site.own_log();
            site.reload(0)?;
        }
        Ok(())
    }
}

fn stand(pid: Option<u32>) {
    let Some(pid) = pid else { return };
    signal(pid, Signal::STOP);
    sleep(LASTS);
    signal(pid, Signal::CONT);
}

/// Sets how many descriptors a process may have; how many it might before.
fn descriptors(pid: u32, most: u64) -> Result<u64> {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits"))?;
    let numbers = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap_or_default();
    let mut numbers = numbers.split_whitespace().map_while(|number| number.parse::<u64>().ok());
    let (soft, hard) = numbers.next().zip(numbers.next()).context("no limit of open files is told")?;
    let limit = Rlimit { current: Some(most), maximum: Some(hard) };
    prlimit(i32::try_from(pid).ok().and_then(Pid::from_raw), Resource::Nofile, limit)?;
    Ok(soft)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_faults_again_and_all_of_them_in_time() {
        let drawn: Vec<Fault> = (0..100).map(|number| Fault::drawn(7, number)).collect();
        assert_eq!(drawn, (0..100).map(|number| Fault::drawn(7, number)).collect::<Vec<_>>());
        let wanted = [
            Fault::SentryStands,
            Fault::AllGone,
            Fault::NoDescriptors,
            Fault::DiskFull,
            Fault::Silent,
            Fault::NucleiMute,
            Fault::Lossy,
            Fault::Narrow,
        ];
        for wanted in wanted {
            assert!(drawn.contains(&wanted), "{wanted:?}");
        }
    }
}
