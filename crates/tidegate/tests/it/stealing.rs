//! Real processes: a sentry that steals from a data server, whose cores a nucleus divides; and what may go wrong. On a
//! machine with one core there is nothing to divide, and nothing is tested.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::{Pid, Signal};
use rustix::thread::{CpuSet, sched_getaffinity};
use serde_json::Value;

use crate::support::{Folder, Process, free_port, get, loopback, signal, until};

/// A sentry, an application server that holds one request at a time within the target, a data server.
struct Site {
    folder: Folder,
    listen: SocketAddr,
    admin: SocketAddr,
    data: SocketAddr,
    _application: Process,
    stolen_from: Option<Process>,
    data_service: Process,
    nucleus: Option<Process>,
    _sentry: Process,
}

impl Site {
    /// `None` with one core.
    fn new(has_software: bool) -> Option<Site> {
        if thread::available_parallelism().map_or(1, std::num::NonZero::get) < 2 {
            eprintln!("one core: there is nothing to divide");
            return None;
        }
        let folder = Folder::new();
        let (listen, admin) = (loopback(free_port()), loopback(free_port()));
        let (application, data) = (loopback(free_port()), loopback(free_port()));
        let reports = loopback(free_port());
        let started = emulate(&folder, "application", application);
        let stolen_from = has_software.then(|| emulate(&folder, "data", data));
        let data_service = Process::idle();
        let text = format!(
            "[admin]\nlisten = \"{admin}\"\n[sentry]\nworkers = 1\n[reports]\nlisten = \"{reports}\"\nkey_file = \"key\"\n\
             [[application]]\nlisten = \"{listen}\"\nadmission = \"none\"\n\
             servers = [\"{application}\", {{ address = \"{data}\", role = \"data\", cores = 2 }}]\n\
             [application.dispatch]\npolicy = \"softscale\"\nn_app = 1\npeak = \"1000/s\"\n\
             steps = [{{ below = 0.8, n_data = 4, cores = 1 }}]\n[application.health]\ninterval = \"100ms\"\n"
        );
        folder.write("sentry.toml", &text);
        let text = format!(
            "server = \"{data}\"\nto = [\"{reports}\"]\nkey_file = \"key\"\n[isolation]\nstate_file = \"state.json\"\n\
             cores = \"0-1\"\ndata = {{ pid_file = \"service.pid\" }}\n"
        );
        folder.write("nucleus.toml", &text);
        folder.write("service.pid", &data_service.id().to_string());
        let sentry = Process::start(&["run", "-c", &folder.path("sentry.toml")]);
        let mut site = Site {
            folder,
            listen,
            admin,
            data,
            _application: started,
            stolen_from,
            data_service,
            nucleus: None,
            _sentry: sentry,
        };
        until("the sentry answers", || site.state().is_some());
        site.start_nucleus();
        Some(site)
    }

    fn start_nucleus(&mut self) {
        self.nucleus = Some(Process::start(&["nucleus", "-c", &self.folder.path("nucleus.toml")]));
    }

    fn state(&self) -> Option<Value> {
        serde_json::from_str(&get(self.admin, "/api/state")?).ok()
    }

    /// What the sentry shows of the data server's cores.
    fn isolation(&self, key: &str) -> Value {
        let state = self.state().unwrap_or_default();
        let nuclei = state["reports"]["nuclei"].as_array().cloned().unwrap_or_default();
        let own = nuclei.into_iter().find(|nucleus| nucleus["address"] == self.data.to_string());
        own.map_or(Value::Null, |nucleus| nucleus["isolation"][key].clone())
    }

    fn stolen(&self) -> u64 {
        let state = self.state().unwrap_or_default();
        state["applications"][0]["stealing"]["stolen"].as_u64().expect("the policy shows it")
    }

    /// Sends so many at once; how many were answered well.
    fn ask(&self, at_once: usize) -> usize {
        ask(self.listen, at_once)
    }

    /// The cores that the data service and the application's software may use.
    fn cores(&self) -> [String; 2] {
        let software = self.stolen_from.as_ref().expect("it is installed").id();
        [self.data_service.id(), software].map(mask)
    }
}

/// A server that takes a fifth of a second for each request.
fn emulate(folder: &Folder, name: &str, listen: SocketAddr) -> Process {
    let service = "{ \"distribution\": \"constant\", \"value\": \"200ms\" }";
    let text = format!(
        "{{ \"listen\": \"{listen}\", \"cores\": 64, \"routes\": [{{ \"prefix\": \"/\", \"service\": {service} }}] }}"
    );
    let file = folder.write(&format!("{name}.json"), &text);
    let process = Process::start(&["emulate", "--spec", &file]);
    until("the server answers", || get(listen, "/").is_some());
    process
}

/// The first two cores that a process may use, such as `01` or `0`.
fn mask(process: u32) -> String {
    let pid = Pid::from_raw(process as i32).expect("a number");
    let mask: CpuSet = sched_getaffinity(Some(pid)).expect("it runs");
    ["0", "1"].into_iter().enumerate().filter(|(core, _)| mask.is_set(*core)).map(|(_, name)| name).collect()
}

#[test]
fn cores_are_divided_and_put_back_whoever_is_killed() {
    let Some(mut site) = Site::new(true) else { return };
    until("one core is given", || site.isolation("in_force") == 1);
    assert_eq!(site.cores(), ["0", "1"]);
    assert_eq!(site.isolation("problem"), Value::Null);
    let moved = site.isolation("move_seconds").as_f64().expect("it moved");
    println!("moved in {:.0} us", moved * 1e6);
    until("it is stolen from by three of four at once", || {
        let before = site.stolen();
        assert_eq!(site.ask(4), 4);
        site.stolen() >= before + 3
    });

    // The nucleus is killed: nobody can move the cores now, so nothing is stolen; all are served.
    site.nucleus.take().expect("running").kill();
    until("it is silent", || site.isolation("problem") == "silent");
    let before = site.stolen();
    assert_eq!((site.ask(4), site.stolen()), (4, before));
    site.start_nucleus();
    until("one core is given again", || site.isolation("problem") == Value::Null && site.isolation("in_force") == 1);
    assert_eq!(site.cores(), ["0", "1"]);
    until("it is stolen from again", || site.ask(4) == 4 && site.stolen() > before);

    // It stops in good order.
    let nucleus = site.nucleus.take().expect("running");
    signal(nucleus.id(), Signal::TERM).expect("it runs");
    until("the cores are put back", || site.cores() == ["01", "01"]);
    assert_eq!(site.ask(4), 4);
}

#[test]
fn a_data_server_that_dies_while_stolen_from_costs_nothing_after() {
    let Some(mut site) = Site::new(true) else { return };
    until("one core is given", || site.isolation("in_force") == 1);
    until("it is stolen from", || site.ask(4) == 4 && site.stolen() > 0);
    let killed = AtomicBool::new(false);
    let dying = thread::scope(|scope| {
        let (listen, killed) = (site.listen, &killed);
        let asking = scope.spawn(move || {
            // Again and again: they need not be looked at while they are all in flight.
            loop {
                let answered = ask(listen, 4);
                if killed.load(Ordering::SeqCst) {
                    return answered;
                }
            }
        });
        until("requests are in flight", || {
            let state: Value =
                serde_json::from_str(&get(site.admin, "/api/state").unwrap_or_default()).unwrap_or_default();
            state["applications"][0]["in_flight"].as_u64().is_some_and(|count| count >= 4)
        });
        killed.store(true, Ordering::SeqCst);
        site.stolen_from.take().expect("running").kill();
        asking.join().expect("the clients")
    });
    println!("{dying} of 4 were answered although their server died");
    until("it is down", || {
        let state = site.state().unwrap_or_default();
        let servers = state["applications"][0]["servers"].as_array().cloned().unwrap_or_default();
        servers.iter().any(|server| server["role"] == "data" && server["status"] == "down")
    });
    let before = site.stolen();
    assert_eq!((site.ask(6), site.stolen()), (6, before));
}

fn ask(listen: SocketAddr, at_once: usize) -> usize {
    let clients: Vec<_> = (0..at_once).map(|_| thread::spawn(move || get(listen, "/").is_some())).collect();
    clients.into_iter().map(|client| client.join().expect("a client")).filter(|ok| *ok).count()
}

#[test]
fn where_the_applications_software_is_missing_nothing_is_stolen() {
    let Some(site) = Site::new(false) else { return };
    // Nothing listens where it should: the nucleus says so, and has nothing to move.
    until("it is known to be missing", || site.isolation("problem") == "no-application");
    assert_eq!((site.ask(6), site.stolen()), (6, 0));
    assert!(site.isolation("failures").as_u64().is_some_and(|failures| failures > 0));
    assert!(site.isolation("problems").as_u64().is_some_and(|problems| problems > 0));
}
