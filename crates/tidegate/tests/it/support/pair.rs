//! Two control planes of which one leads, a sentry, and the servers that outlive all of them.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use serde_json::Value;

use super::pool::Pool;
use super::{Folder, Process, api, free_port, get, loopback, tidegate, until};

/// One of the two.
pub struct Member {
    admin: SocketAddr,
    file: String,
    pub process: Option<Process>,
}

impl Member {
    pub fn start(&mut self) {
        self.process = Some(Process::start(&["control", "-c", &self.file]));
    }

    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("it runs").id()
    }

    pub fn json(&self, path: &str) -> Value {
        serde_json::from_str(&get(self.admin, path).unwrap_or_default()).unwrap_or_default()
    }

    pub fn leads(&self) -> bool {
        self.json("/api/status")["role"] == "leads"
    }

    pub fn waits(&self) -> bool {
        self.json("/api/status")["role"] == "waits"
    }

    pub fn metric(&self, name: &str) -> Option<u64> {
        let text = get(self.admin, "/metrics")?;
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    }

    /// What it has written since it leads.
    pub fn inputs(&self) -> u64 {
        self.metric("tidegate_control_inputs_total ").unwrap_or(0)
    }

    pub fn serving(&self) -> u64 {
        self.json("/api/plan")[0]["serving"].as_u64().unwrap_or(0)
    }
}

/// All of them.
pub struct Pair {
    pub members: [Member; 2],
    pub listen: SocketAddr,
    /// Its drop needs the control planes ended: they would start others.
    pub pool: Pool,
    sentry: Option<Process>,
    sentry_admin: SocketAddr,
    pub folder: Folder,
}

impl Pair {
    /// With their state on this API server.
    pub fn start(server: &api::Api) -> Pair {
        let (folder, pool) = (Folder::new(), Pool::new());
        let kubeconfig = folder.write("kubeconfig", &server.kubeconfig());
        let (listen, sentry_admin) = (loopback(free_port()), loopback(free_port()));
        let mut connect = Vec::new();
        let members = ["one", "two"].map(|member| {
            let (control, admin) = (loopback(free_port()), loopback(free_port()));
            connect.push(format!("\"{control}\""));
            let head = format!("listen = \"{control}\"\nadmin = \"{admin}\"\nkey_file = \"key\"\nperiod = \"200ms\"\n");
            let store = format!("[kubernetes]\nkubeconfig = \"{kubeconfig}\"\nname = \"{member}\"\nlease = \"3s\"\n");
            let text = format!("{head}{store}{}", pool.tables());
            Member { admin, file: folder.write(&format!("{member}.toml"), &text), process: None }
        });
        let mut text = format!("[admin]\nlisten = \"{sentry_admin}\"\n[sentry]\nworkers = 1\n");
        write!(text, "[control]\nconnect = [{}]\nkey_file = \"key\"\nname = \"one\"\n", connect.join(", "))
            .expect("text");
        write!(text, "[[application]]\nname = \"shop\"\nlisten = \"{listen}\"\ntarget = \"500ms\"\n").expect("text");
        let file = folder.write("sentry.toml", &text);
        let mut pair = Pair { members, listen, pool, sentry: None, sentry_admin, folder };
        pair.members.iter_mut().for_each(Member::start);
        pair.sentry = Some(Process::start(&["run", "-c", &file]));
        until("the first server serves", || pair.leader().is_some_and(|leader| pair.members[leader].serving() >= 1));
        until("the sentry has it", || get(listen, "/").is_some());
        pair
    }

    pub fn leader(&self) -> Option<usize> {
        self.members.iter().position(|member| member.process.is_some() && member.leads())
    }

    /// Waits until one leads: which one.
    pub fn one_that_leads(&self) -> usize {
        let mut leader = None;
        until("one leads", || {
            leader = self.leader();
            leader.is_some()
        });
        leader.expect("it was waited for")
    }

    fn sentry_state(&self) -> Value {
        serde_json::from_str(&get(self.sentry_admin, "/api/state").unwrap_or_default()).unwrap_or_default()
    }

    pub fn offered(&self) -> u64 {
        self.sentry_state()["applications"][0]["classes"][0]["offered"].as_u64().unwrap_or(0)
    }

    /// The term of the orders that are in force at the sentry, while it hears who gave them.
    pub fn sentry_term(&self) -> u64 {
        let control = &self.sentry_state()["control"];
        if control["connected"] == true { control["term"].as_u64().unwrap_or(0) } else { 0 }
    }

    pub fn nothing_is_doubled_or_lost(&self) -> bool {
        let Some(leader) = self.leader() else { return false };
        self.pool.nothing_is_doubled_or_lost(&self.members[leader].json("/api/state"))
    }

    pub fn output(&self, member: usize, what: &[&str]) -> (String, String) {
        let arguments = [&["control"], what, &["-c", &self.members[member].file]].concat();
        let output = tidegate(&arguments).output().expect("runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        assert!(output.status.success(), "{}", text(output.stderr));
        (text(output.stdout), text(output.stderr))
    }

    /// 60 requests/s, which are three servers' work, until it is told to end.
    pub fn load(&self) -> Load {
        Load::start(self.listen, self.folder.path("load.json"))
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.members.iter_mut().for_each(|member| member.process = None);
        self.sentry = None;
    }
}

/// Load in pieces of some seconds, each of which has an answer to every request when it ends.
pub struct Load {
    is_over: Arc<AtomicBool>,
    pieces: Option<JoinHandle<Vec<Value>>>,
}

impl Load {
    fn start(listen: SocketAddr, results: String) -> Load {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let pieces = thread::spawn(move || {
            let mut pieces = Vec::new();
            while !over.load(Ordering::SeqCst) {
                pieces.push(piece(listen, &results, pieces.len()));
            }
            pieces
        });
        Load { is_over, pieces: Some(pieces) }
    }

    /// How many requests there were. Every one was answered, or refused by the sentry.
    pub fn end(mut self) -> u64 {
        self.is_over.store(true, Ordering::SeqCst);
        let pieces = self.pieces.take().expect("it runs").join().expect("load");
        for piece in &pieces {
            let total = &piece["total"];
            let has_no_errors = total["errors"].as_object().is_some_and(serde_json::Map::is_empty);
            assert!(has_no_errors && total["other"] == 0 && total["unfinished"] == 0, "{piece:#}");
        }
        pieces.iter().filter_map(|piece| piece["total"]["offered"].as_u64()).sum()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(pieces) = self.pieces.take() {
            // Its panic is printed.
            let _ = pieces.join();
        }
    }
}

fn piece(listen: SocketAddr, results: &str, number: usize) -> Value {
    let (to, seed) = (format!("http://{listen}/"), number.to_string());
    let load = ["load", "--to", &to, "--rate", "60/s", "--duration", "2s", "--timeout", "60s"];
    let output = tidegate(&[&load[..], &["--seed", &seed, "--json", results]].concat()).output().expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&std::fs::read_to_string(results).expect("a file")).expect("JSON")
}
