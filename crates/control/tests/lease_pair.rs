//! Two whole control planes on an API server: one leads and the other waits, and what follows when one ends.

#![cfg(feature = "kubernetes")]

#[path = "cluster/api.rs"]
mod api;
#[path = "support/application.rs"]
mod application;
#[path = "support/home.rs"]
mod home;

use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use home::{Home, PREFIX, until};
use serde_json::Value;
use tidegate_control::{Config, Handle, Member, Question};
use tokio::sync::oneshot;

/// A control plane on a thread.
struct Running {
    handle: Handle,
    kill: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A file with two servers that run always and never answer.
fn config(home: &Home, name: &str) -> Config {
    let folder: PathBuf =
        std::env::temp_dir().join(format!("tidegate-pair-{}-{}", std::process::id(), home.api.address.port()));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("key"), "the secret of the tests").expect("a file");
    let kubeconfig = home.kubeconfig.display();
    let text = format!(
        "listen = \"127.0.0.1:0\"\nkey_file = \"key\"\nperiod = \"100ms\"\n[kubernetes]\nname = \"{name}\"\n\
         pod = \"pod-{name}\"\nprefix = \"{PREFIX}\"\nkubeconfig = \"{kubeconfig}\"\n[provider]\nkind = \"static\"\n\
         addresses = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\n[[application]]\nname = \"shop\"\ntarget = \"1s\"\n"
    );
    let config = Config::parse(&text, &folder.join("control.toml")).expect("makes sense");
    // The folder is temporary: leaving it harms nobody.
    let _ = std::fs::remove_dir_all(&folder);
    config
}

impl Running {
    fn start(home: &Home, name: &str) -> Running {
        let config = config(home, name);
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
        let handle = wait.recv_timeout(Duration::from_secs(30)).expect("it starts");
        Running { handle, kill: Some(kill), thread: Some(thread) }
    }

    fn ask(&self, question: Question) -> Value {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(self.handle.ask(question)).unwrap_or_default()
    }

    fn leads(&self) -> bool {
        self.ask(Question::Status)["role"] == "leads"
    }

    fn follows(&self, name: &str) -> bool {
        let status = self.ask(Question::Status);
        status["role"] == "waits" && status["leader"]["name"] == name
    }

    fn label_problem(&self) -> Option<String> {
        self.ask(Question::Status)["label_problem"].as_str().map(str::to_owned)
    }

    /// What was decided, but for the time at which it is read.
    fn audit(&self) -> Vec<Value> {
        self.ask(Question::Audit(0)).as_array().cloned().unwrap_or_default()
    }

    fn began(&self) -> usize {
        self.audit().iter().filter(|record| record["kind"] == "began").count()
    }

    /// It is gone with nothing said, like after a kill -9.
    fn kill(mut self) {
        drop(self.kill.take());
        self.thread.take().expect("it runs").join().expect("it ends");
    }

    fn stop(mut self) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(self.handle.stop());
        self.thread.take().expect("it runs").join().expect("it ends well");
    }
}

#[test]
fn one_leads_and_the_other_follows_it_when_it_is_killed_or_stops() {
    let home = Home::start("pair");
    let one = Running::start(&home, "one");
    until("one leads", || one.leads() && one.began() == 1);
    let two = Running::start(&home, "two");
    until("two waits", || two.follows("one"));
    let asked = home.api.asked("leases");
    let since = Instant::now();
    until("some time is over", || since.elapsed() > Duration::from_secs(2));
    let per_second = (home.api.asked("leases") - asked) as f64 / since.elapsed().as_secs_f64();
    assert!(per_second < 6.0, "{per_second} requests/s for the Lease of one that leads and one that waits");
    let before = one.audit();
    let killed = Instant::now();
    one.kill();
    until("two leads", || two.leads() && two.began() == 2);
    println!("{:.2?} from the kill to the next leader's first decision", killed.elapsed());
    assert_eq!(two.audit()[..before.len()], before, "with all that was decided before");
    let one = Running::start(&home, "one");
    until("one waits", || one.follows("two"));
    let stopped = Instant::now();
    two.stop();
    until("one leads", || one.leads() && one.began() == 3);
    println!("{:.2?} from the stop to the next leader's first decision", stopped.elapsed());
    assert!(stopped.elapsed() < Duration::from_millis(2500), "it waits for the lease: {:?}", stopped.elapsed());
    home.api.gone_after(Some(0));
    until("it says that the store is away", || one.ask(Question::Status)["store_away"].is_string());
    assert!(one.leads(), "it leads on: nobody else can");
    home.api.gone_after(None);
    until("it goes on", || one.audit().iter().any(|record| record["kind"] == "store-away"));
    home.api.delete("leases", PREFIX);
    until("it is elected anew", || one.leads() && one.began() == 4);
    one.stop();
}

/// Whose pods a service would lead to.
fn labelled(home: &Home) -> Vec<&'static str> {
    let label = |name: &&str| {
        home.api.object("pods", &format!("pod-{name}"))["metadata"]["labels"]["tidegate.io/role"] == "leader"
    };
    ["one", "two", "three"].into_iter().filter(label).collect()
}

fn with_pods(name: &str) -> Home {
    let home = Home::start(name);
    ["pod-one", "pod-two"].iter().for_each(|pod| home.api.make("pods", pod));
    home
}

#[test]
fn the_label_goes_with_the_lead() {
    let home = with_pods("label");
    let one = Running::start(&home, "one");
    until("its pod has the label", || one.leads() && labelled(&home) == ["one"]);
    let two = Running::start(&home, "two");
    until("two waits", || two.follows("one"));
    assert_eq!(labelled(&home), ["one"]);
    // It says nothing any more, and its pod is there still.
    one.kill();
    until("the next one takes it", || two.leads() && labelled(&home) == ["two"]);
    // Its container starts again.
    let one = Running::start(&home, "one");
    until("one waits", || one.follows("two"));
    two.stop();
    until("it goes back", || one.leads() && labelled(&home) == ["one"]);
    one.stop();
    assert!(labelled(&home).is_empty(), "a clean stop takes it away: nobody else can have done it");
    // One that died in office, whose pod is gone, holds up nobody; nor is an end of its own without an answer.
    let gone = Running::start(&home, "three");
    until("it leads without a pod", || gone.leads() && gone.label_problem().is_some_and(|why| why.contains("404")));
    gone.kill();
    let two = Running::start(&home, "two");
    until("it leads with one", || two.leads() && labelled(&home) == ["two"]);
    until("all is well", || two.label_problem().is_none());
    home.api.gone_after(Some(0));
    let stopped = Instant::now();
    two.stop();
    assert!(stopped.elapsed() < Duration::from_secs(30), "{:?}", stopped.elapsed());
}

#[test]
fn a_label_that_is_wrong_is_put_right() {
    let home = with_pods("label-right");
    let one = Running::start(&home, "one");
    let two = Running::start(&home, "two");
    until("the leader's pod has the label", || one.leads() != two.leads() && labelled(&home).len() == 1);
    let (right, wrong) = if one.leads() { ("one", "pod-two") } else { ("two", "pod-one") };
    // As by a write of an earlier term that came late.
    home.api.label(wrong, Some("leader"));
    home.api.label(&format!("pod-{right}"), None);
    until("all is as it was", || labelled(&home) == [right]);
    // The Lease is another's: who led takes its own label away.
    home.api.delete("leases", PREFIX);
    until("one leads, and its pod has the label", || {
        let leader = [&one, &two].into_iter().zip(["one", "two"]).find(|(running, _)| running.leads());
        leader.is_some_and(|(running, name)| running.began() == 2 && labelled(&home) == [name])
    });
}

#[test]
fn one_that_may_not_label_its_pod_leads_all_the_same_and_says_so() {
    let home = with_pods("label-refused");
    home.api.fail(10_000, "PATCH /api/v1/namespaces/home/pods", 403, None);
    let one = Running::start(&home, "one");
    until("it leads and decides", || one.leads() && one.began() == 1);
    until("it says so", || {
        one.label_problem().is_some_and(|why| why.contains("403") && why.contains("give its role this permission"))
    });
    assert!(labelled(&home).is_empty());
    home.api.fail_none();
    until("it is tried again", || labelled(&home) == ["one"] && one.label_problem().is_none());
    assert_eq!(one.began(), 1, "nobody was elected anew");
    one.stop();
}
