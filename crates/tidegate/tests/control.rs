//! A control plane, its servers and a sentry as real processes: load comes and goes, and daemons are killed.

mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use support::{Folder, Process, free_port, free_ports, get, until_within};

/// Sites of this process.
static NEXT: AtomicU16 = AtomicU16::new(0);

const PATIENCE: Duration = Duration::from_secs(60);

#[track_caller]
fn until(what: &str, condition: impl FnMut() -> bool) {
    until_within(PATIENCE, what, condition);
}

/// A site in a folder of its own. Its servers outlive their control plane, and are killed at the end.
struct Site {
    folder: PathBuf,
    /// Marks this site's servers among all processes.
    seed: String,
    listen: SocketAddr,
    admin: SocketAddr,
    control_admin: SocketAddr,
    control: Option<Process>,
    sentry: Option<Process>,
}

impl Site {
    fn new(name: &str, service: &str) -> Site {
        let folder = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("key"), "the secret of the tests\n").expect("a file");
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let seed = format!("{}{number}", std::process::id());
        let loopback = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let (listen, admin) = (loopback(free_port()), loopback(free_port()));
        let (control, control_admin) = (loopback(free_port()), loopback(free_port()));
        let mut text =
            format!("listen = \"{control}\"\nadmin = \"{control_admin}\"\nkey_file = \"key\"\nperiod = \"200ms\"\n");
        let program = env!("CARGO_BIN_EXE_tidegate");
        let command =
            ["emulate", "--listen", "127.0.0.1:{port}", "--service", service, "--setup-time", "500ms", "--seed", &seed];
        let command: Vec<String> = command.iter().map(|word| format!("\"{word}\"")).collect();
        write!(text, "[provider]\nkind = \"local\"\ncommand = [\"{program}\", {}]\n", command.join(", "))
            .expect("text");
        write!(
            text,
            "first_port = {}\nservers = 5\nsetup_time = \"1s\"\ncheck = \"/\"\nstop_grace = \"2s\"\n",
            free_ports(5)
        )
        .expect("text");
        text.push_str(
            "[provision]\npolicy = \"follow\"\nevery = \"500ms\"\nsmooth = \"2s\"\ntrend = \"6s\"\nhold = \"4s\"\n",
        );
        text.push_str("[[application]]\nname = \"shop\"\ntarget = \"500ms\"\nmin_servers = 1\n");
        std::fs::write(folder.join("control.toml"), text).expect("a file");
        let mut text = format!("[admin]\nlisten = \"{admin}\"\n[sentry]\nworkers = 1\n");
        write!(text, "[control]\nconnect = \"{control}\"\nkey_file = \"key\"\nname = \"one\"\n").expect("text");
        write!(text, "[[application]]\nname = \"shop\"\nlisten = \"{listen}\"\ntarget = \"500ms\"\n").expect("text");
        std::fs::write(folder.join("sentry.toml"), text).expect("a file");
        let mut site = Site { folder, seed, listen, admin, control_admin, control: None, sentry: None };
        site.start_control();
        site.sentry = Some(Process::start(&["run", "-c", &site.path("sentry.toml")]));
        site
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().expect("UTF-8").to_owned()
    }

    fn start_control(&mut self) {
        self.control = Some(Process::start(&["control", "-c", &self.path("control.toml")]));
    }

    fn kill_control(&mut self) {
        self.control.take().expect("it runs").kill();
    }

    /// Sends so many requests per second for so many seconds.
    fn load(&self, rate: u32, seconds: u32) -> Process {
        let (to, rate, time) = (format!("http://{}/", self.listen), format!("{rate}/s"), format!("{seconds}s"));
        Process::start(&["load", "--to", &to, "--rate", &rate, "--duration", &time, "--seed", "1", "--timeout", "5s"])
    }

    fn plan(&self) -> Value {
        let text = get(self.control_admin, "/api/plan").unwrap_or_default();
        serde_json::from_str::<Value>(&text).map(|plan| plan[0].clone()).unwrap_or_default()
    }

    fn serving(&self) -> u64 {
        self.plan()["serving"].as_u64().unwrap_or(0)
    }

    fn sentry_state(&self) -> Value {
        let text = get(self.admin, "/api/state").unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Offered and refused since the sentry began.
    fn counts(&self) -> (u64, u64) {
        let state = self.sentry_state();
        let class = &state["applications"][0]["classes"][0];
        let refused = class["rejected"].as_object().map(|all| all.values().filter_map(Value::as_u64).sum());
        let listed = || class["rejected"].as_array().map(|all| all.iter().filter_map(|pair| pair[1].as_u64()).sum());
        (class["offered"].as_u64().unwrap_or(0), refused.or_else(listed).unwrap_or(0))
    }

    /// The emulated servers that run, by the step that started them.
    fn servers(&self) -> BTreeMap<u32, String> {
        let pids = std::fs::read_dir("/proc").expect("/proc");
        let pids = pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let ours = |pid: u32| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
            let is_ours = words.contains(&b"emulate".as_slice()) && words.contains(&self.seed.as_bytes());
            let environment = is_ours.then(|| std::fs::read(format!("/proc/{pid}/environ")).ok())??;
            let mut marks =
                environment.split(|byte| *byte == 0).filter_map(|entry| entry.strip_prefix(b"TIDEGATE_SERVER="));
            Some((pid, String::from_utf8(marks.next_back()?.to_vec()).ok()?))
        };
        pids.filter_map(ours).collect()
    }

    /// As many processes as places that are in use, each of another place and step.
    fn nothing_is_doubled_or_lost(&self) -> bool {
        let text = get(self.control_admin, "/api/state").unwrap_or_default();
        let state: Value = serde_json::from_str(&text).unwrap_or_default();
        let Some(servers) = state["servers"].as_array() else { return false };
        let used: Vec<u64> = servers
            .iter()
            .filter(|server| server["place"].as_object().is_some_and(|place| !place.contains_key("failed")))
            .filter_map(|server| server["process"]["pid"].as_u64())
            .collect();
        let running = self.servers();
        let places: std::collections::BTreeSet<&str> =
            running.values().filter_map(|mark| mark.split('/').nth(1)).collect();
        assert_eq!(places.len(), running.len(), "two processes of one place: {running:?}");
        let settled = state["pending"].as_array().is_some_and(Vec::is_empty);
        settled && used.len() == running.len() && used.iter().all(|pid| running.contains_key(&(*pid as u32)))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.control = None;
        self.sentry = None;
        for pid in self.servers().into_keys() {
            // It may have ended already.
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
        // The folder is temporary: leaving it harms nobody.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// 60 requests/s of 50 ms are three servers' work, and there is one.
#[test]
fn servers_come_with_the_load_and_go_with_it_and_a_killed_daemon_doubles_nothing() {
    let mut site = Site::new("control-live", "50ms");
    until("the first server serves", || site.serving() == 1);
    until("the sentry has it", || get(site.listen, "/").is_some());
    until("one process", || site.nothing_is_doubled_or_lost());

    let load = site.load(60, 600);
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
    until("refusals end", || {
        let before = site.counts();
        thread::park_timeout(Duration::from_secs(2));
        let after = site.counts();
        after.0 > before.0 + 50 && after.1 - before.1 <= (after.0 - before.0) / 20
    });
    drop(load);

    until("they drain", || site.serving() < 4);
    site.kill_control();
    site.start_control();
    until("one is left", || site.serving() == 1 && site.servers().len() == 1);
    until("nothing is doubled or lost", || site.nothing_is_doubled_or_lost());
    until("the sentry still has a server", || get(site.listen, "/").is_some());

    let output = |what: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["control", what, "-c", &site.path("control.toml")])
            .output()
            .expect("runs");
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

#[test]
fn killed_at_random_moments_under_load() {
    let seed = std::env::var("TIDEGATE_SEED").ok().and_then(|seed| seed.parse().ok());
    let mut random: u64 = seed.unwrap_or_else(|| u64::from(std::process::id())) | 1;
    println!("TIDEGATE_SEED={random}");
    let mut next = |most: u64| {
        // xorshift64
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % most
    };
    let mut site = Site::new("control-kill", "50ms");
    until("the first server serves", || site.serving() == 1);
    for _ in 0..4 {
        let _load = site.load(20 + next(60) as u32, 60);
        let begun = Instant::now();
        let pause = Duration::from_millis(200 + next(3000));
        until("a random moment", || begun.elapsed() >= pause);
        site.kill_control();
        site.start_control();
        until("it answers", || site.plan().is_object());
    }
    until("nothing is doubled or lost", || site.nothing_is_doubled_or_lost());
    // One dies by itself: another one takes its place.
    let victim = *site.servers().keys().next().expect("a server");
    assert!(Command::new("kill").args(["-9", &victim.to_string()]).status().is_ok_and(|status| status.success()));
    until("it is replaced", || {
        site.serving() >= 1 && !site.servers().contains_key(&victim) && site.nothing_is_doubled_or_lost()
    });
}

/// The step never ends: it opens its server's log for writing, and nobody reads from there.
#[test]
fn a_stop_does_not_wait_for_a_step_that_hangs() {
    let folder = Folder::new("control-hangs");
    std::fs::create_dir(folder.path("log")).expect("a folder");
    let pipe = folder.path("log/server-0.log");
    assert!(Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()));
    let admin = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let text = format!(
        "listen = \"127.0.0.1:0\"\nadmin = \"{admin}\"\nkey_file = \"key\"\nperiod = \"100ms\"\n[provider]\n\
         kind = \"local\"\ncommand = [\"true\"]\nfirst_port = 9100\nservers = 1\nlog = \"log\"\n[[application]]\n\
         name = \"shop\"\ntarget = \"1s\"\n"
    );
    let file = folder.path("control.toml");
    std::fs::write(&file, text).expect("a file");
    let mut control = Process::start(&["control", "-c", &file]);
    let is_under_way = || get(admin, "/metrics").is_some_and(|text| text.contains("tidegate_control_steps_total 1\n"));
    until("the step is under way", is_under_way);
    assert!(Command::new("kill").arg(control.id().to_string()).status().is_ok_and(|status| status.success()));
    let mut status = None;
    until_within(Duration::from_secs(20), "it ends", || {
        status = control.0.try_wait().expect("a child");
        status.is_some()
    });
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
    // It is begun again, as after a kill -9.
    drop(control);
    let _control = Process::start(&["control", "-c", &file]);
    until("the step is under way again", is_under_way);
}
