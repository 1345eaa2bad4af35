//! Two control planes on a real etcd, their servers and a sentry as real processes: leaders and etcd are killed. The
//! same on an API server, where the program has the feature `kubernetes`.

#[cfg(feature = "kubernetes")]
#[path = "../../control/tests/cluster/api.rs"]
mod api;
#[path = "../../control/tests/etcd_server/mod.rs"]
mod etcd;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use etcd::{EtcdServer, etcd_is_present, signal};
use support::{Folder, Process, free_port, free_ports, get, until_within};

/// From the leader's end to the next one's first decision.
const TAKEOVER: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(90);

#[track_caller]
fn until(what: &str, condition: impl FnMut() -> bool) {
    until_within(PATIENCE, what, condition);
}

/// One of the two.
struct Member {
    admin: SocketAddr,
    file: String,
    process: Option<Process>,
}

impl Member {
    fn start(&mut self) {
        self.process = Some(Process::start(&["control", "-c", &self.file]));
    }

    fn pid(&self) -> u32 {
        self.process.as_ref().expect("it runs").id()
    }

    fn json(&self, path: &str) -> Value {
        serde_json::from_str(&get(self.admin, path).unwrap_or_default()).unwrap_or_default()
    }

    fn leads(&self) -> bool {
        self.json("/api/status")["role"] == "leads"
    }

    fn metric(&self, name: &str) -> Option<u64> {
        let text = get(self.admin, "/metrics")?;
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    }

    /// What it has written since it leads.
    fn inputs(&self) -> u64 {
        self.metric("tidegate_control_inputs_total ").unwrap_or(0)
    }

    fn serving(&self) -> u64 {
        self.json("/api/plan")[0]["serving"].as_u64().unwrap_or(0)
    }
}

/// Two control planes, a sentry, and the servers that outlive all of them.
struct Pair {
    members: [Member; 2],
    sentry: Option<Process>,
    sentry_admin: SocketAddr,
    listen: SocketAddr,
    seed: String,
    folder: Folder,
}

impl Pair {
    fn on_etcd(name: &str, etcd: &EtcdServer, first_port: u16) -> Pair {
        Pair::start(name, &format!("[etcd]\nendpoints = [\"{}\"]", etcd.address()), first_port)
    }

    /// `store`: the table that says where their state is, but for their names.
    fn start(name: &str, store: &str, first_port: u16) -> Pair {
        let folder = Folder::new(name);
        let seed = format!("{}{first_port}", std::process::id());
        let loopback = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let (listen, sentry_admin) = (loopback(free_port()), loopback(free_port()));
        let mut connect = Vec::new();
        let members = ["one", "two"].map(|member| {
            let (control, admin) = (loopback(free_port()), loopback(free_port()));
            connect.push(format!("\"{control}\""));
            let file = folder.path(&format!("{member}.toml"));
            let mut text =
                format!("listen = \"{control}\"\nadmin = \"{admin}\"\nkey_file = \"key\"\nperiod = \"200ms\"\n");
            write!(text, "{store}\nname = \"{member}\"\nlease = \"3s\"\n").expect("text");
            text.push_str(&provider(first_port, &seed));
            std::fs::write(&file, text).expect("a file");
            Member { admin, file, process: None }
        });
        let mut text = format!("[admin]\nlisten = \"{sentry_admin}\"\n[sentry]\nworkers = 1\n");
        write!(text, "[control]\nconnect = [{}]\nkey_file = \"key\"\nname = \"one\"\n", connect.join(", "))
            .expect("text");
        write!(text, "[[application]]\nname = \"shop\"\nlisten = \"{listen}\"\ntarget = \"500ms\"\n").expect("text");
        std::fs::write(folder.path("sentry.toml"), text).expect("a file");
        let mut pair = Pair { members, sentry: None, sentry_admin, listen, seed, folder };
        pair.members.iter_mut().for_each(Member::start);
        pair.sentry = Some(Process::start(&["run", "-c", &pair.folder.path("sentry.toml")]));
        until("one leads", || pair.leader().is_some());
        until("the first server serves", || pair.leader().is_some_and(|leader| pair.members[leader].serving() >= 1));
        until("the sentry has it", || get(listen, "/").is_some());
        pair
    }

    fn leader(&self) -> Option<usize> {
        self.members.iter().position(|member| member.process.is_some() && member.leads())
    }

    fn sentry_state(&self) -> Value {
        serde_json::from_str(&get(self.sentry_admin, "/api/state").unwrap_or_default()).unwrap_or_default()
    }

    fn offered(&self) -> u64 {
        self.sentry_state()["applications"][0]["classes"][0]["offered"].as_u64().unwrap_or(0)
    }

    /// The term of the orders that are in force at the sentry, while it hears who gave them.
    fn sentry_term(&self) -> u64 {
        let control = &self.sentry_state()["control"];
        if control["connected"] == true { control["term"].as_u64().unwrap_or(0) } else { 0 }
    }

    fn load(&self, rate: u32, seconds: u32, results: &str) -> Process {
        let (to, rate, time) = (format!("http://{}/", self.listen), format!("{rate}/s"), format!("{seconds}s"));
        let load = ["load", "--to", &to, "--rate", &rate, "--duration", &time, "--seed", "1", "--timeout", "10s"];
        Process::start(&[load.as_slice(), &["--json", results]].concat())
    }

    /// The emulated servers that run, with the mark of the step that started them.
    fn servers(&self) -> BTreeMap<u32, String> {
        let pids = std::fs::read_dir("/proc").expect("/proc");
        let pids = pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let ours = |pid: u32| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
            let is_ours = words.contains(&b"emulate".as_slice()) && words.contains(&self.seed.as_bytes());
            let environment = is_ours.then(|| std::fs::read(format!("/proc/{pid}/environ")).ok())??;
            let mark = environment.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(b"TIDEGATE_SERVER="));
            Some((pid, String::from_utf8(mark?.to_vec()).ok()?))
        };
        pids.filter_map(ours).collect()
    }

    /// As many processes as places that are in use, each of another place.
    fn nothing_is_doubled_or_lost(&self) -> bool {
        let Some(leader) = self.leader() else { return false };
        let state = self.members[leader].json("/api/state");
        let Some(servers) = state["servers"].as_array() else { return false };
        let used: Vec<u64> = servers.iter().filter_map(|server| server["process"]["pid"].as_u64()).collect();
        let running = self.servers();
        let places: BTreeSet<&str> = running.values().filter_map(|mark| mark.split('/').nth(1)).collect();
        assert_eq!(places.len(), running.len(), "two processes of one place: {running:?}");
        let settled = state["pending"].as_array().is_some_and(Vec::is_empty);
        settled && used.len() == running.len() && used.iter().all(|pid| running.contains_key(&(*pid as u32)))
    }

    fn output(&self, member: usize, what: &[&str]) -> (String, String) {
        let arguments = [&["control"], what, &["-c", &self.members[member].file]].concat();
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate")).args(arguments).output().expect("runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        assert!(output.status.success(), "{}", text(output.stderr));
        (text(output.stdout), text(output.stderr))
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.members.iter_mut().for_each(|member| member.process = None);
        self.sentry = None;
        for pid in self.servers().into_keys() {
            // It may have ended already.
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
    }
}

fn provider(first_port: u16, seed: &str) -> String {
    let program = env!("CARGO_BIN_EXE_tidegate");
    let words = [
        program,
        "emulate",
        "--listen",
        "127.0.0.1:{port}",
        "--service",
        "50ms",
        "--setup-time",
        "500ms",
        "--seed",
        seed,
    ];
    let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    format!(
        "[provider]\nkind = \"local\"\ncommand = [{}]\nfirst_port = {first_port}\nservers = 5\nsetup_time = \"1s\"\n\
         check = \"/\"\nstop_grace = \"2s\"\n\
         [provision]\npolicy = \"follow\"\nevery = \"500ms\"\nsmooth = \"2s\"\ntrend = \"6s\"\nhold = \"4s\"\n\
         [[application]]\nname = \"shop\"\ntarget = \"500ms\"\nmin_servers = 1\n",
        words.join(", ")
    )
}

/// Every request was answered, or refused by the sentry.
fn nothing_was_lost(report: &Value) -> bool {
    let total = &report["total"];
    total["offered"].as_u64() > Some(300)
        && total["errors"].as_object().is_some_and(serde_json::Map::is_empty)
        && total["other"] == 0
        && total["unfinished"] == 0
}

#[test]
fn a_leader_that_is_killed_under_load_is_followed_at_once_and_nothing_is_doubled() {
    if !etcd_is_present() {
        return;
    }
    let etcd = EtcdServer::start("election-kill");
    follows_under_load(Pair::on_etcd("election-kill", &etcd, free_ports(5)));
}

#[test]
#[cfg(feature = "kubernetes")]
fn in_a_cluster_a_leader_that_is_killed_under_load_is_followed_at_once_and_nothing_is_doubled() {
    let (server, folder) = (api::Api::start(), Folder::new("election-cluster"));
    let store = store_in(&server, &folder);
    follows_under_load(Pair::start("election-pods", &store, free_ports(5)));
}

#[test]
#[cfg(feature = "kubernetes")]
fn in_a_cluster_a_leader_that_stood_still_gives_way() {
    let (server, folder) = (api::Api::start(), Folder::new("election-cluster-still"));
    let store = store_in(&server, &folder);
    gives_way(&Pair::start("election-pods-still", &store, free_ports(5)));
}

/// The table that has the state in a cluster.
#[cfg(feature = "kubernetes")]
fn store_in(server: &api::Api, folder: &Folder) -> String {
    let kubeconfig = folder.path("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig()).expect("a file");
    format!("[kubernetes]\nkubeconfig = \"{kubeconfig}\"")
}

/// The leader is killed twice.
fn follows_under_load(mut pair: Pair) {
    let results = pair.folder.path("load.json");
    let _load = pair.load(60, 60, &results);
    let mut fastest = Duration::MAX;
    for round in 0..2 {
        let first = pair.leader().expect("one leads");
        let next = 1 - first;
        until("more are asked for, or serve", || {
            let plan = pair.members[first].json("/api/plan");
            plan[0]["coming"].as_u64().unwrap_or(0) > 0 || plan[0]["serving"].as_u64().unwrap_or(0) > 1
        });
        let (term, offered) = (pair.sentry_term(), pair.offered());
        drop(pair.members[first].process.take());
        let killed = Instant::now();
        until("the next one decides", || pair.members[next].leads() && pair.members[next].inputs() > 0);
        let took = killed.elapsed();
        until("the sentry follows it", || pair.sentry_term() > term);
        println!(
            "round {round}: {took:.2?} to the next leader's first decision, {:.2?} to its first orders",
            killed.elapsed()
        );
        fastest = fastest.min(took);
        until("the sentry serves meanwhile", || pair.offered() > offered);
        pair.members[first].start();
        until("who was killed waits", || pair.members[first].json("/api/status")["role"] == "waits");
    }
    // What else the machine does only adds to it.
    assert!(fastest < TAKEOVER, "{fastest:?}");
    let leader = pair.leader().expect("one leads");
    until("servers come", || pair.members[leader].serving() >= 4);
    until("nothing is doubled or lost", || pair.nothing_is_doubled_or_lost());
    until("the load is over", || std::fs::read_to_string(&results).is_ok_and(|text| text.contains("warnings")));
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&results).expect("a file")).expect("JSON");
    assert!(nothing_was_lost(&report), "{report:#}");
    let (plan, told) = pair.output(1 - leader, &["plan"]);
    assert!(plan.starts_with("shop: ") && told.contains("leads"), "who waits shows what is in etcd: {plan} {told}");
    let (audit, _) = pair.output(1 - leader, &["audit"]);
    let numbers: Vec<u64> = audit
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["number"].as_u64().expect("a number"))
        .collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "in order, and none twice");
    assert!(audit.matches("\"kind\":\"began\"").count() >= 3);
}

#[test]
fn without_etcd_the_last_state_is_served_and_with_it_it_goes_on() {
    if !etcd_is_present() {
        return;
    }
    let mut etcd = EtcdServer::start("election-away");
    let pair = Pair::on_etcd("election-away", &etcd, free_ports(5));
    let leader = pair.leader().expect("one leads");
    let available = |member: usize| pair.members[member].metric("tidegate_control_store_available ");
    until("the sentry has orders", || pair.sentry_term() > 0);
    let (running, term) = (pair.servers(), pair.sentry_term());
    etcd.kill();
    until("it says so", || available(leader) == Some(0));
    assert_eq!(pair.members[leader].metric("tidegate_control_leads "), Some(1));
    let (plan, told) = pair.output(leader, &["plan"]);
    assert!(plan.starts_with("shop: ") && told.contains("nothing is changed now: etcd"), "{plan} {told}");
    // Load that needs more servers, for longer than the lease.
    let results = pair.folder.path("load.json");
    let _load = pair.load(60, 6, &results);
    until("the load is over", || std::fs::read_to_string(&results).is_ok_and(|text| text.contains("warnings")));
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&results).expect("a file")).expect("JSON");
    assert!(nothing_was_lost(&report), "{report:#}");
    assert_eq!(pair.servers(), running, "nothing was started that could not be written down");
    assert_eq!(pair.sentry_term(), term, "the sentry is still spoken to");
    assert!(get(pair.listen, "/").is_some());
    etcd.begin();
    until("it is back", || pair.leader().is_some_and(|leader| available(leader) == Some(1)));
    let _load = pair.load(60, 120, &results);
    until("servers come again", || pair.leader().is_some_and(|leader| pair.members[leader].serving() >= 3));
    until("nothing is doubled or lost", || pair.nothing_is_doubled_or_lost());
    let (audit, _) = pair.output(leader, &["audit"]);
    assert!(
        audit.contains("nothing was changed meanwhile") || audit.matches("\"kind\":\"began\"").count() > 1,
        "{audit}"
    );
}

#[test]
fn a_leader_that_stood_still_gives_way() {
    if !etcd_is_present() {
        return;
    }
    let etcd = EtcdServer::start("election-still");
    let pair = Pair::on_etcd("election-still", &etcd, free_ports(5));
    let (first, next) = gives_way(&pair);
    // etcd stands still, for longer than the lease.
    etcd.stand_still(true);
    let available = |member: usize| pair.members[member].metric("tidegate_control_store_available ");
    until("both say so", || available(first) == Some(0) && available(next) == Some(0));
    etcd.stand_still(false);
    until("one leads", || pair.leader().is_some_and(|leader| available(leader) == Some(1)));
    until("nothing is doubled or lost", || pair.nothing_is_doubled_or_lost());
    until("it serves", || get(pair.listen, "/").is_some());
}

/// The leader stands still until the other one leads: which one it was, and which one that.
fn gives_way(pair: &Pair) -> (usize, usize) {
    let first = pair.leader().expect("one leads");
    let next = 1 - first;
    until("the sentry has orders", || pair.sentry_term() > 0);
    let term = pair.sentry_term();
    signal(pair.members[first].pid(), "-STOP");
    until("the next one leads", || pair.members[next].leads());
    let written = pair.members[next].inputs();
    signal(pair.members[first].pid(), "-CONT");
    until("the first one waits", || pair.members[first].json("/api/status")["role"] == "waits");
    until("the next one goes on", || pair.members[next].leads() && pair.members[next].inputs() > written + 5);
    until("the sentry follows it", || pair.sentry_term() > term);
    until("nothing is doubled or lost", || pair.nothing_is_doubled_or_lost());
    let (audit, _) = pair.output(next, &["audit"]);
    let began = audit.lines().filter(|line| line.contains("\"kind\":\"began\"")).count();
    assert_eq!(began, 2, "the first one did not lead again");
    (first, next)
}
