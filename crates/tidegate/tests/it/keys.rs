//! Keys of nuclei and sentries, as processes: each speaks for itself only, and keys change while all of them run.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener};

use serde_json::{Value, json};

use crate::support::{Folder, Process, free_port, get, loopback, tidegate, until};

const OLD: &str = "the secret of the tests\n";
const NEW: &str = "the next secret of the tests\n";

/// A sentry before two servers, nuclei as they are started, and a control plane.
struct Site {
    folder: Folder,
    servers: [TcpListener; 2],
    admin: SocketAddr,
    reports: SocketAddr,
    _control: Process,
    _sentry: Process,
}

impl Site {
    fn new() -> Site {
        let folder = Folder::new();
        let servers = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
        let names: Vec<String> = servers.iter().map(|server| format!("\"{}\"", name(server))).collect();
        let [control, admin, reports, listen] = [(); 4].map(|()| loopback(free_port()));
        folder.write("control.key", OLD);
        let mut text = format!("listen = \"{control}\"\nkey_file = \"control.key\"\nperiod = \"200ms\"\n");
        write!(text, "[provider]\nkind = \"static\"\naddresses = [{}]\n", names.join(", ")).expect("text");
        text.push_str("[[application]]\nname = \"shop\"\ntarget = \"1s\"\n");
        let control_plane = Process::start(&["control", "-c", &folder.write("control.toml", &text)]);
        let mut text = format!("[admin]\nlisten = \"{admin}\"\n[sentry]\nworkers = 1\n");
        write!(text, "[reports]\nlisten = \"{reports}\"\nkey_file = \"key\"\nsilent_after = \"3s\"\n").expect("text");
        write!(text, "[control]\nconnect = \"{control}\"\nkey_file = \"one.key\"\nname = \"one\"\n").expect("text");
        write!(text, "[[application]]\nname = \"shop\"\nlisten = \"{listen}\"\nservers = [{}]\n", names.join(", "))
            .expect("text");
        own_key(&folder, &["sentry", "one", "--of", &folder.path("control.key")], "one.key");
        let sentry = Process::start(&["run", "-c", &folder.write("sentry.toml", &text)]);
        let site = Site { folder, servers, admin, reports, _control: control_plane, _sentry: sentry };
        until("the sentry answers", || site.state().is_some());
        site
    }

    fn server(&self, at: usize) -> String {
        name(&self.servers[at])
    }

    /// A nucleus with the key in this file.
    fn nucleus(&self, at: usize, key: &str) -> Process {
        let (server, to, key) = (self.server(at), self.reports.to_string(), self.folder.path(key));
        Process::start(&["nucleus", "--server", &server, "--to", &to, "--key-file", &key])
    }

    /// Puts the own key of a server's nucleus into a file.
    fn own_key(&self, at: usize, of: &str, file: &str) {
        own_key(&self.folder, &["nucleus", &self.server(at), "--of", &self.folder.path(of)], file);
    }

    fn state(&self) -> Option<Value> {
        serde_json::from_str(&get(self.admin, "/api/state")?).ok()
    }

    /// What the sentry shows of a server's nucleus.
    fn shown(&self, at: usize) -> Value {
        let state = self.state().unwrap_or_default();
        let all = state["reports"]["nuclei"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|nucleus| nucleus["address"] == self.server(at).as_str()).unwrap_or_default()
    }

    fn nucleus_state(&self, at: usize) -> String {
        self.shown(at)["state"].as_str().unwrap_or_default().to_owned()
    }

    fn nucleus_key(&self, at: usize) -> Value {
        self.shown(at)["key"].clone()
    }

    fn forged(&self) -> u64 {
        let state = self.state().unwrap_or_default();
        state["reports"]["ignored"]["forged"].as_u64().unwrap_or(0)
    }

    fn control(&self, what: &str) -> Value {
        self.state().unwrap_or_default()["control"][what].clone()
    }
}

fn name(server: &TcpListener) -> String {
    server.local_addr().expect("an address").to_string()
}

fn own_key(folder: &Folder, arguments: &[&str], file: &str) {
    let made = tidegate(&[&["key"], arguments, &["--out", &folder.path(file)]].concat()).output().expect("runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

#[test]
fn a_nucleus_with_its_own_key_speaks_for_its_server_only() {
    let site = Site::new();
    site.own_key(0, "key", "a.key");
    let _own = site.nucleus(0, "a.key");
    until("it is heard", || site.nucleus_state(0) == "speaks");

    // For another server: it is told so, and whoever changes the name is not believed.
    let (server, to, key) = (site.server(1), site.reports.to_string(), site.folder.path("a.key"));
    let refused = tidegate(&["nucleus", "--server", &server, "--to", &to, "--key-file", &key]).output().expect("runs");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains(&format!("is the own key of nucleus {}", site.server(0))), "{said}");
    assert_eq!(refused.status.code(), Some(2));
    site.folder.write("b.key", &site.folder.read("a.key").replace(&site.server(0), &server));
    let before = site.forged();
    let _impostor = site.nucleus(1, "b.key");
    until("it is ignored", || site.forged() > before + 3);
    assert_eq!((site.nucleus_state(0), site.nucleus_state(1)), ("speaks".into(), "never".into()));
}

#[test]
fn keys_change_while_everything_runs() {
    let site = Site::new();
    site.folder.write("a.key", OLD);
    let _a = site.nucleus(0, "a.key");
    until("a nucleus with the old secret is heard", || site.nucleus_state(0) == "speaks");
    until("the control plane is followed", || site.control("connected") == true);

    // The new one is good where it is listened for.
    site.folder.write("key", &format!("{OLD}{NEW}"));
    site.folder.write("control.key", &format!("{OLD}{NEW}"));
    site.folder.write("new", NEW);
    site.own_key(1, "new", "b.key");
    let b = site.nucleus(1, "b.key");
    until("one with the new one is heard", || {
        assert_eq!(site.nucleus_state(0), "speaks", "the other goes on");
        site.nucleus_state(1) == "speaks"
    });
    // Who speaks with the old one changes to the new one, and the old one goes.
    site.own_key(0, "new", "a.key");
    until("it has changed", || {
        assert_eq!(site.nucleus_state(0), "speaks", "without a pause");
        site.nucleus_key(0) == json!({ "entry": 2, "own": true })
    });
    let of_one = ["sentry", "one", "--of", &site.folder.path("new")];
    own_key(&site.folder, &of_one, "one.key");
    site.folder.write("key", NEW);
    site.folder.write("control.key", NEW);
    until("the sentry is back with its new key", || {
        assert_eq!(site.nucleus_state(0), "speaks", "the old one is not missed");
        site.control("cuts").as_u64() >= Some(1) && site.control("connected") == true
    });
    drop(b);
    site.folder.write("old", OLD);
    let before = site.forged();
    let _late = site.nucleus(1, "old");
    until("who still has the old one is ignored", || site.forged() > before + 3);
    until("and its server's is silent", || site.nucleus_state(1) == "silent");
    assert_eq!(site.nucleus_state(0), "speaks");
}
