//! Whole control planes on an API server, in this process.

use std::sync::mpsc;
use std::thread::JoinHandle;

use serde_json::Value;
use tidegate_control::{Config, Handle, Member, Question};
use tokio::sync::oneshot;

use super::home::{Home, PREFIX};
use super::{PATIENCE, until};

/// A control plane on a thread.
pub struct Running {
    handle: Handle,
    kill: Option<oneshot::Sender<()>>,
    thread: JoinHandle<()>,
}

/// A file with two servers that run always and never answer.
fn config(home: &Home, name: &str, lease: &str) -> Config {
    let folder = home.folder.path();
    std::fs::write(folder.join("key"), "the secret of the tests").expect("a file");
    let kubeconfig = home.kubeconfig.display();
    let text = format!(
        "listen = \"127.0.0.1:0\"\nkey_file = \"key\"\nperiod = \"100ms\"\n[kubernetes]\nname = \"{name}\"\n\
         pod = \"pod-{name}\"\nprefix = \"{PREFIX}\"\nkubeconfig = \"{kubeconfig}\"\nlease = \"{lease}\"\n[provider]\n\
         kind = \"static\"\naddresses = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\n[[application]]\nname = \"shop\"\n\
         target = \"1s\"\n"
    );
    Config::parse(&text, &folder.join("control.toml")).expect("makes sense")
}

impl Running {
    /// One with leases of so long.
    pub fn start(home: &Home, name: &str, lease: &str) -> Running {
        let config = config(home, name, lease);
        let (started, wait) = mpsc::sync_channel(1);
        let (kill, killed) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let (member, handle) = Member::start(config, false).await.expect("starts");
                started.send(handle).expect("is waited for");
                tokio::select! {
                    ended = member.run() => ended.expect("runs to its end"),
                    _ = killed => {}
                }
            });
        });
        let handle = wait.recv_timeout(PATIENCE).expect("it starts");
        Running { handle, kill: Some(kill), thread }
    }

    pub fn ask(&self, question: Question) -> Value {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(self.handle.ask(question)).unwrap_or_default()
    }

    pub fn leads(&self) -> bool {
        self.ask(Question::Status)["role"] == "leads"
    }

    pub fn follows(&self, name: &str) -> bool {
        let status = self.ask(Question::Status);
        status["role"] == "waits" && status["leader"]["name"] == name
    }

    pub fn label_problem(&self) -> Option<String> {
        self.ask(Question::Status)["label_problem"].as_str().map(str::to_owned)
    }

    /// What was decided, but for the time at which it is read.
    pub fn audit(&self) -> Vec<Value> {
        self.ask(Question::Audit(0)).as_array().cloned().unwrap_or_default()
    }

    /// How often one has begun to lead, of all that did.
    pub fn began(&self) -> usize {
        self.audit().iter().filter(|record| record["kind"] == "began").count()
    }

    /// It is gone with nothing said, like after a kill -9.
    pub fn kill(mut self) {
        drop(self.kill.take());
        self.ends();
    }

    /// It stops in good order.
    pub fn stop(self) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(self.handle.stop());
        self.ends();
    }

    fn ends(self) {
        until("it ends", || self.thread.is_finished());
        self.thread.join().expect("it ends well");
    }
}
