//! Finds the processes of the data service and of the application's software.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::netlink::Netlink;
use crate::workers::sockets_of;

use super::masks::Process;
use super::settings::{IsolationConfig, Side};

/// The kernel cuts names of processes to this length.
const NAME: usize = 15;
/// Children of children, so deep.
const GENERATIONS: usize = 16;

/// The processes of both sides.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) data: Vec<Process>,
    pub(super) application: Vec<Process>,
}

impl Found {
    /// Looks through the machine's processes.
    pub(super) fn search(config: &IsolationConfig) -> Found {
        let processes = processes();
        let data = members(&config.data, &processes);
        let mut application = members(&config.application, &processes);
        // Who is both serves data first.
        application.retain(|process| !data.contains(process));
        Found { data, application }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.data.is_empty() || self.application.is_empty()
    }
}

fn processes() -> BTreeMap<u32, Process> {
    let Ok(folder) = fs::read_dir("/proc") else { return BTreeMap::new() };
    let numbers = folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let own = std::process::id();
    numbers.filter(|pid| *pid != own).filter_map(|pid| Some((pid, Process::find(pid)?))).collect()
}

/// Everybody that any of the side's marks names, with all their children.
fn members(side: &Side, all: &BTreeMap<u32, Process>) -> Vec<Process> {
    let mut chosen = BTreeSet::new();
    if let Some(name) = &side.process {
        let name = name.as_bytes();
        let name = &name[..name.len().min(NAME)];
        let is_named = |pid: &u32| fs::read(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_ascii() == name);
        chosen.extend(all.keys().copied().filter(is_named));
    }
    if let Some(file) = &side.pid_file {
        chosen.extend(fs::read_to_string(file).ok().and_then(|text| text.trim().parse::<u32>().ok()));
    }
    if let Some(port) = side.port {
        chosen.extend(listening(port, all));
    }
    if let Some(group) = &side.cgroup {
        chosen.extend(all.keys().copied().filter(|pid| is_in(*pid, group)));
    }
    for _ in 0..GENERATIONS {
        let children: Vec<u32> = all
            .values()
            .filter(|process| chosen.contains(&process.parent) && !chosen.contains(&process.pid))
            .map(|process| process.pid)
            .collect();
        if children.is_empty() {
            break;
        }
        chosen.extend(children);
    }
    chosen.iter().filter_map(|pid| all.get(pid).copied()).collect()
}

/// Processes that have a listener of the port open.
fn listening(port: u16, all: &BTreeMap<u32, Process>) -> Vec<u32> {
    let mut inodes = Vec::new();
    let Ok(mut netlink) = Netlink::open() else { return Vec::new() };
    let listed = netlink.listeners(port, |socket| inodes.push(socket.inode));
    if listed.is_err() || inodes.is_empty() {
        return Vec::new();
    }
    let sockets = |pid: &u32| sockets_of(Path::new(&format!("/proc/{pid}")));
    let has = |pid: &u32| sockets(pid).iter().any(|(_, inode)| inodes.contains(inode));
    all.keys().copied().filter(has).collect()
}

/// Whether a process is in a group, or below it, in any hierarchy.
fn is_in(pid: u32, group: &Path) -> bool {
    let group = Path::new("/").join(group.strip_prefix("/").unwrap_or(group));
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let paths = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    group.parent().is_some() && paths.into_iter().any(|path| Path::new(path).starts_with(&group))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A shell with a child.
    struct Family(Child);

    impl Family {
        fn start() -> Family {
            let mut command = Command::new("sh");
            let command = command.args(["-c", "sleep 300 & wait"]).stdout(Stdio::null()).stdin(Stdio::null());
            Family(command.spawn().expect("a shell"))
        }
    }

    impl Drop for Family {
        fn drop(&mut self) {
            for child in processes().values().filter(|process| process.parent == self.0.id()) {
                let pid = rustix::process::Pid::from_raw(child.pid as i32).expect("a number");
                // It may have ended.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_pid_file_names_a_process_and_its_children() {
        let family = Family::start();
        let file = std::env::temp_dir().join(format!("tidegate-select-{}.pid", std::process::id()));
        fs::write(&file, format!("{}\n", family.0.id())).expect("a file");
        let side = Side { pid_file: Some(file.clone()), ..Side::default() };
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let (mut found, mut named) = (Vec::new(), false);
        while !(found.len() == 2 && named) && std::time::Instant::now() < deadline {
            found = members(&side, &processes());
            // The child has the shell's name until it runs its own program.
            let by_name = Side { process: Some("sleep".into()), ..Side::default() };
            named = members(&by_name, &processes()).iter().any(|process| process.parent == family.0.id());
            std::thread::yield_now();
        }
        let pids: Vec<u32> = found.iter().map(|process| process.pid).collect();
        assert!(pids.contains(&family.0.id()) && found.len() == 2, "{found:?}");
        assert!(named, "the child by its name");
        fs::remove_file(file).expect("removed");
    }

    #[test]
    fn a_listener_names_its_process_and_nobody_is_named_by_nothing() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let own = Process::find(std::process::id()).expect("this one");
        let all = BTreeMap::from([(own.pid, own)]);
        assert_eq!(members(&Side { port: Some(port), ..Side::default() }, &all), [own]);
        drop(listener);
        assert!(members(&Side { port: Some(port), ..Side::default() }, &all).is_empty());
        assert!(members(&Side::default(), &processes()).is_empty());
        assert!(!is_in(own.pid, Path::new("/")), "the root group is everybody");
        assert!(!is_in(own.pid, Path::new("no/such/group")));
    }
}
