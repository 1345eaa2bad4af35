//! Sentries that a control plane starts and stops itself: they come with the load and go with it, and are replaced.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::pool::Pool;
use crate::support::{Folder, Process, free_port, get, loopback, signal, tidegate, until};

/// Sentries that there may be.
const MOST: u8 = 3;

/// A control plane with one application, its servers and its sentries. What it starts outlives it, and is killed at the
/// end.
struct Site {
    admin: SocketAddr,
    port: u16,
    control: Option<Process>,
    _pool: Pool,
    folder: Folder,
}

impl Site {
    fn new() -> Site {
        let (folder, pool) = (Folder::new(), Pool::new());
        let (control, admin, dns, port) = (free_port(), loopback(free_port()), loopback(free_port()), free_port());
        let own: Vec<String> = (0..MOST).map(|post| format!("\"{}\"", address(port, post))).collect();
        let text = format!(
            "listen = \"127.0.0.1:{control}\"\nadmin = \"{admin}\"\nkey_file = \"key\"\nperiod = \"200ms\"\n\
             [dns]\nlisten = \"{dns}\"\nzone = \"tidegate.test\"\nttl = \"1s\"\n\
             [sentries]\nhigh = 0.05\nlow = 0.04\nhold = \"1s\"\n\
             [sentries.provider]\nkind = \"local\"\ncommand = [\"{}\", \"run\", \"-c\", \"{}\"]\nport = {port}\n\
             addresses = [{}]\nleave_after = \"1s\"\nstop_grace = \"5s\"\nlog = \"log\"\n{}",
            env!("CARGO_BIN_EXE_tidegate"),
            folder.path("sentry.toml"),
            own.join(", "),
            pool.tables(),
        );
        folder.write("control.toml", &text);
        let text = format!(
            "[sentry]\nworkers = 1\n[upgrade]\nsocket = \"{}\"\n[control]\nconnect = \"127.0.0.1:{control}\"\nkey_file = \"key\"\n\
             name = \"${{TIDEGATE_NAME}}\"\n[[application]]\nname = \"${{TIDEGATE_APPLICATION}}\"\n\
             listen = \"${{TIDEGATE_ADDRESS}}:{port}\"\ntarget = \"500ms\"\n",
            folder.path("${TIDEGATE_NAME}"),
        );
        folder.write("sentry.toml", &text);
        let mut site = Site { admin, port, control: None, _pool: pool, folder };
        site.start_control();
        site
    }

    fn start_control(&mut self) {
        self.control = Some(Process::start(&["control", "-c", &self.folder.path("control.toml")]));
    }

    fn state(&self) -> Value {
        let text = get(self.admin, "/api/state").unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Who is in DNS answers.
    fn names(&self) -> Vec<String> {
        let state = self.state();
        let roll = state["names"][0]["sentries"].as_array().cloned().unwrap_or_default();
        roll.iter().filter_map(|entry| entry[0].as_str().map(str::to_owned)).collect()
    }

    /// Who stands at a post, by its number.
    fn serving(&self) -> BTreeMap<usize, u32> {
        let state = self.state();
        let posts = state["posts"].as_array().cloned().unwrap_or_default();
        let serves = |(at, post): (usize, &Value)| {
            post["place"]["serving"].is_object().then_some((at, post["process"]["pid"].as_u64()? as u32))
        };
        posts.iter().enumerate().filter_map(serves).collect()
    }

    /// Processes that were started for posts of this site, with their posts.
    fn processes(&self) -> BTreeMap<u32, String> {
        let pids = std::fs::read_dir("/proc").expect("/proc");
        let pids = pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let file = self.folder.path("sentry.toml");
        let ours = |pid: u32| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let is_ours = words.split(|byte| *byte == 0).any(|word| word == file.as_bytes());
            let environment = is_ours.then(|| std::fs::read(format!("/proc/{pid}/environ")).ok())??;
            let mark = environment.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(b"TIDEGATE_POST="))?;
            let mark = String::from_utf8(mark.to_vec()).ok()?;
            Some((pid, mark.split('/').nth(1)?.to_owned()))
        };
        pids.filter_map(ours).collect()
    }

    /// So many serve, in as many processes, and clients are told of these and no others.
    fn has(&self, count: usize) -> bool {
        let (serving, processes) = (self.serving(), self.processes());
        let named: Vec<String> =
            serving.keys().map(|post| format!("sentry-{}", address(self.port, *post as u8))).collect();
        serving.len() == count
            && serving.values().all(|pid| processes.contains_key(pid))
            && processes.len() == count
            && self.names() == named
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // It would replace what is killed after it.
        self.control = None;
        for pid in self.processes().into_keys() {
            // It may have ended already.
            let _ = signal(pid, Signal::KILL);
        }
    }
}

/// Of this test alone, as its port is.
fn address(port: u16, post: u8) -> Ipv4Addr {
    let [high, low] = port.to_be_bytes();
    Ipv4Addr::new(127, high, low, 10 + post)
}

#[test]
fn sentries_come_with_the_load_and_go_with_it_and_are_replaced() {
    let mut site = Site::new();
    until("the first one serves, and clients are told", || site.has(1));
    let first = SocketAddr::from((address(site.port, 0), site.port));
    until("requests are answered through it", || get(first, "/").is_some());

    // A control plane that is killed and comes back knows its sentries again.
    let before = site.processes();
    site.control.take().expect("it runs").kill();
    site.start_control();
    until("it is there again", || site.has(1));
    assert_eq!(site.processes(), before, "and has started no other");

    let to = format!("http://{first}/");
    let load = Process::start(&["load", "--to", &to, "--rate", "600/s", "--duration", "1h", "--seed", "1"]);
    until("a second one comes", || site.serving().len() >= 2 && site.names().len() >= 2);
    drop(load);
    until("one is left", || site.has(1));

    let victim = *site.serving().values().next().expect("a sentry");
    signal(victim, Signal::KILL).expect("it runs");
    // In this order: it takes a moment to die, and until then everything is as before.
    until("it is replaced", || !site.processes().contains_key(&victim) && site.has(1));

    // A successor works by the orders of the one before it: there is no moment without servers.
    let (post, before) = site.serving().into_iter().next().expect("a sentry");
    let ip = address(site.port, post as u8);
    let asked = tidegate(&["upgrade", "--socket", &site.folder.path(&format!("sentry-{ip}"))]).output().expect("runs");
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    let at = SocketAddr::from((ip, site.port));
    until("the one before it ends", || {
        assert!(get(at, "/").is_some(), "requests are answered");
        !site.processes().contains_key(&before)
    });
    let looks = Instant::now() + Duration::from_secs(2);
    until("it goes on at the same post", || {
        assert!(get(at, "/").is_some(), "requests are answered");
        Instant::now() > looks
    });
    assert_eq!((site.serving().len(), site.processes().len(), site.names().len()), (1, 1, 1));

    let audit = get(site.admin, "/api/audit").expect("the audit log");
    for kind in ["sentry-up", "sentries-wanted", "sentry-leaves", "sentry-failed"] {
        assert!(audit.contains(&format!("\"kind\":\"{kind}\"")), "{kind} is not in\n{audit}");
    }
}
