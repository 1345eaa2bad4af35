//! The servers that a control plane's local provider starts: emulated ones that outlive it.

use std::collections::{BTreeMap, BTreeSet};

use rustix::process::Signal;
use serde_json::Value;

use super::{free_ports, seed, signal};

/// How many there may be.
const MOST: u16 = 5;

/// A pool at ports of its own. What runs there is killed at the end.
pub struct Pool {
    first_port: u16,
    seed: u64,
    is_known: bool,
}

impl Pool {
    /// One of which it is known what a request takes: on a machine that has much to do it would look like more.
    pub fn new() -> Pool {
        Pool::start(true)
    }

    /// One of which sentries are to learn what a request takes.
    pub fn unknown() -> Pool {
        Pool::start(false)
    }

    fn start(is_known: bool) -> Pool {
        Pool { first_port: free_ports(MOST), seed: seed(), is_known }
    }

    /// The tables of a control plane that provides these servers, of 50 ms for a request, for one application.
    pub fn tables(&self) -> String {
        let (program, seed) = (env!("CARGO_BIN_EXE_tidegate"), self.seed.to_string());
        let words = [program, "emulate", "--listen", "127.0.0.1:{port}", "--service", "50ms", "--setup-time", "500ms"];
        let words = words.into_iter().chain(["--seed", &seed]).map(|word| format!("\"{word}\""));
        format!(
            "[provider]\nkind = \"local\"\ncommand = [{}]\nfirst_port = {}\nservers = {MOST}\nsetup_time = \"1s\"\n\
             check = \"/\"\nstop_grace = \"2s\"\n\
             [provision]\npolicy = \"follow\"\nevery = \"500ms\"\nsmooth = \"2s\"\ntrend = \"6s\"\nhold = \"4s\"\n\
             [[application]]\nname = \"shop\"\ntarget = \"500ms\"\nmin_servers = 1\n{}",
            words.collect::<Vec<_>>().join(", "),
            self.first_port,
            if self.is_known { "service_time = \"50ms\"\n" } else { "" }
        )
    }

    /// Those that run, with the mark of the step that started them.
    pub fn servers(&self) -> BTreeMap<u32, String> {
        let pids = std::fs::read_dir("/proc").expect("/proc");
        let pids = pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let listens: Vec<String> = (0..MOST).map(|at| format!("127.0.0.1:{}", self.first_port + at)).collect();
        let ours = |pid: u32| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
            let is_ours = words.contains(&b"emulate".as_slice())
                && listens.iter().any(|listen| words.contains(&listen.as_bytes()));
            let environment = is_ours.then(|| std::fs::read(format!("/proc/{pid}/environ")).ok())??;
            let mut marks =
                environment.split(|byte| *byte == 0).filter_map(|entry| entry.strip_prefix(b"TIDEGATE_SERVER="));
            Some((pid, String::from_utf8(marks.next_back()?.to_vec()).ok()?))
        };
        pids.filter_map(ours).collect()
    }

    /// As many processes as places that are in use by a control plane's state, each of another place.
    pub fn nothing_is_doubled_or_lost(&self, state: &Value) -> bool {
        let Some(servers) = state["servers"].as_array() else { return false };
        let used: Vec<u64> = servers
            .iter()
            .filter(|server| server["place"].as_object().is_some_and(|place| !place.contains_key("failed")))
            .filter_map(|server| server["process"]["pid"].as_u64())
            .collect();
        let running = self.servers();
        let places: BTreeSet<&str> = running.values().filter_map(|mark| mark.split('/').nth(1)).collect();
        assert_eq!(places.len(), running.len(), "two processes of one place: {running:?}");
        let settled = state["pending"].as_array().is_some_and(Vec::is_empty);
        settled && used.len() == running.len() && used.iter().all(|pid| running.contains_key(&(*pid as u32)))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for pid in self.servers().into_keys() {
            // It may have ended already.
            let _ = signal(pid, Signal::KILL);
        }
    }
}
