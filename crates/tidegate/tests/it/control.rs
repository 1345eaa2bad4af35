//! A control plane, its servers and a sentry as real processes: load comes and goes, and daemons are killed.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::pool::Pool;
use crate::support::{Folder, Process, free_port, get, loopback, seed, signal, tidegate, until};

/// Seeds with which a test once failed.
const REGRESSIONS: [u64; 0] = [];

/// A site in a folder of its own. Its servers outlive their control plane, and are killed at the end.
pub struct Site {
    listen: SocketAddr,
    admin: SocketAddr,
    control_admin: SocketAddr,
    control: Option<Process>,
    _sentry: Process,
    pool: Pool,
    folder: Folder,
}

impl Site {
    pub fn new(pool: Pool) -> Site {
        let folder = Folder::new();
        let (listen, admin) = (loopback(free_port()), loopback(free_port()));
        let (control, control_admin) = (loopback(free_port()), loopback(free_port()));
        let head =
            format!("listen = \"{control}\"\nadmin = \"{control_admin}\"\nkey_file = \"key\"\nperiod = \"200ms\"\n");
        folder.write("control.toml", &(head + &pool.tables()));
        let mut text = format!("[admin]\nlisten = \"{admin}\"\n[sentry]\nworkers = 1\n");
        write!(text, "[control]\nconnect = \"{control}\"\nkey_file = \"key\"\nname = \"one\"\n").expect("text");
        write!(text, "[[application]]\nname = \"shop\"\nlisten = \"{listen}\"\ntarget = \"500ms\"\n").expect("text");
        let file = folder.write("sentry.toml", &text);
        let sentry = Process::start(&["run", "-c", &file]);
        let mut site = Site { listen, admin, control_admin, control: None, _sentry: sentry, pool, folder };
        site.start_control();
        until("the first server serves", || site.serving() == 1);
        site
    }

    fn start_control(&mut self) {
        self.control = Some(Process::start(&["control", "-c", &self.folder.path("control.toml")]));
    }

    fn kill_control(&mut self) {
        self.control.take().expect("it runs").kill();
    }

    /// Sends so many requests per second for longer than any test takes.
    pub fn load(&self, rate: u32) -> Process {
        let (to, rate) = (format!("http://{}/", self.listen), format!("{rate}/s"));
        Process::start(&["load", "--to", &to, "--rate", &rate, "--duration", "1h", "--seed", "1", "--timeout", "5s"])
    }

    fn plan(&self) -> Value {
        let text = get(self.control_admin, "/api/plan").unwrap_or_default();
        serde_json::from_str::<Value>(&text).map(|plan| plan[0].clone()).unwrap_or_default()
    }

    pub fn serving(&self) -> u64 {
        self.plan()["serving"].as_u64().unwrap_or(0)
    }

    fn sentry_state(&self) -> Value {
        let text = get(self.admin, "/api/state").unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Offered and refused since the sentry began.
    pub fn counts(&self) -> (u64, u64) {
        let state = self.sentry_state();
        let class = &state["applications"][0]["classes"][0];
        let refused = class["rejected"].as_object().map(|all| all.values().filter_map(Value::as_u64).sum());
        let listed = || class["rejected"].as_array().map(|all| all.iter().filter_map(|pair| pair[1].as_u64()).sum());
        (class["offered"].as_u64().unwrap_or(0), refused.or_else(listed).unwrap_or(0))
    }

    fn nothing_is_doubled_or_lost(&self) -> bool {
        let text = get(self.control_admin, "/api/state").unwrap_or_default();
        self.pool.nothing_is_doubled_or_lost(&serde_json::from_str(&text).unwrap_or_default())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // It would replace what is killed after it.
        self.control = None;
    }
}

/// 60 requests/s of 50 ms are three servers' work, and there is one.
#[test]
fn servers_come_with_the_load_and_go_with_it_and_a_killed_daemon_doubles_nothing() {
    let mut site = Site::new(Pool::new());
    until("the sentry has a server", || get(site.listen, "/").is_some());
    until("one process", || site.nothing_is_doubled_or_lost());

    let load = site.load(60);
    until("refusals", || site.counts().1 > 0);
    until("more are asked for", || site.plan()["coming"].as_u64().unwrap_or(0) > 0);
    // In the middle of it.
    site.kill_control();
    let asked = site.counts().0;
    until("the sentry says that it is cut off", || site.sentry_state()["control"]["connected"] == false);
    until("the sentry works on", || site.counts().0 > asked + 30);
    site.start_control();
    until("the sentry is back", || site.sentry_state()["control"]["connected"] == true);
    until("servers come", || site.serving() >= 4);
    until("nothing is doubled or lost", || site.nothing_is_doubled_or_lost());
    drop(load);

    until("they drain", || site.serving() < 4);
    site.kill_control();
    site.start_control();
    until("one is left", || site.serving() == 1 && site.pool.servers().len() == 1);
    until("nothing is doubled or lost", || site.nothing_is_doubled_or_lost());
    until("the sentry still has a server", || get(site.listen, "/").is_some());

    let output = |what: &str| {
        let output = tidegate(&["control", what, "-c", &site.folder.path("control.toml")]).output().expect("runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    assert!(output("plan").contains("shop: 1 serve"), "{}", output("plan"));
    let audit = output("audit");
    for kind in
        ["began", "sentry-registered", "servers-wanted", "start", "server-up", "drain", "server-drained", "stop"]
    {
        assert!(audit.contains(&format!("\"kind\":\"{kind}\"")), "{kind} is not in\n{audit}");
    }
}

/// Its machine may be gone, or the way from there: no word that the connection is over comes in any of these.
#[test]
fn a_daemon_that_stands_still_is_noticed_and_followed_again() {
    let site = Site::new(Pool::new());
    until("the sentry is connected", || site.sentry_state()["control"]["connected"] == true);
    let control = site.control.as_ref().expect("it runs").id();
    signal(control, Signal::STOP).expect("it runs");
    until("the sentry says that it is cut off", || site.sentry_state()["control"]["connected"] == false);
    assert!(get(site.listen, "/").is_some(), "the last orders are in force");
    signal(control, Signal::CONT).expect("it runs");
    until("the sentry is back", || site.sentry_state()["control"]["connected"] == true);
}

#[test]
fn killed_at_random_moments_under_load() {
    REGRESSIONS.into_iter().for_each(killed_again_and_again);
    killed_again_and_again(seed());
}

fn killed_again_and_again(seed: u64) {
    let mut random = seed | 1;
    let mut next = |most: u64| {
        // xorshift64
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % most
    };
    let mut site = Site::new(Pool::new());
    for _ in 0..4 {
        let _load = site.load(20 + next(60) as u32);
        let moment = Instant::now() + Duration::from_millis(200 + next(3000));
        until("a random moment", || Instant::now() >= moment);
        site.kill_control();
        site.start_control();
        until("it answers", || site.plan().is_object());
    }
    until("nothing is doubled or lost", || site.nothing_is_doubled_or_lost());
    // One dies by itself: another one takes its place.
    let victim = *site.pool.servers().keys().next().expect("a server");
    signal(victim, Signal::KILL).expect("it runs");
    until("it is replaced", || {
        site.serving() >= 1 && !site.pool.servers().contains_key(&victim) && site.nothing_is_doubled_or_lost()
    });
}

/// The step never ends: it opens its server's log for writing, and nobody reads from there.
#[test]
fn a_stop_does_not_wait_for_a_step_that_hangs() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("log")).expect("a folder");
    let pipe = folder.path("log/server-0.log");
    assert!(Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()));
    let (admin, port) = (loopback(free_port()), free_port());
    let text = format!(
        "listen = \"127.0.0.1:0\"\nadmin = \"{admin}\"\nkey_file = \"key\"\nperiod = \"100ms\"\n[provider]\n\
         kind = \"local\"\ncommand = [\"true\"]\nfirst_port = {port}\nservers = 1\nlog = \"log\"\n[[application]]\n\
         name = \"shop\"\ntarget = \"1s\"\n"
    );
    let file = folder.write("control.toml", &text);
    let mut control = Process::start(&["control", "-c", &file]);
    let is_under_way = || get(admin, "/metrics").is_some_and(|text| text.contains("tidegate_control_steps_total 1\n"));
    until("the step is under way", is_under_way);
    signal(control.id(), Signal::TERM).expect("it runs");
    let mut status = None;
    until("it ends", || {
        status = control.0.try_wait().expect("a child");
        status.is_some()
    });
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
    // It is begun again, as after a kill -9.
    drop(control);
    let _control = Process::start(&["control", "-c", &file]);
    until("the step is under way again", is_under_way);
}
