//! Connections policed in the kernel by a sentry that has no right to change packet filters: by its helper, also after
//! upgrades. In a network namespace of the test's own; needs root, `ip` and `nft`, and says so where it cannot run.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use std::{fs, io, thread};

use rustix::process::Signal;
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::support::{Folder, Process, free_port, get, loopback, signal, tidegate, until};

/// The bit of CAP_NET_ADMIN.
const NET_ADMIN: u64 = 1 << 12;

/// Runs `test` on a thread in a network namespace of its own; says so where that cannot be.
fn in_namespace(test: impl FnOnce() + Send + 'static) {
    let thread = thread::spawn(|| enter().map(|()| test()));
    if let Err(missing) = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "the kernel cannot police here: {missing}");
        eprintln!("NOT RUN: this needs root, network namespaces, ip and nft: {missing}");
    }
}

fn enter() -> io::Result<()> {
    // SAFETY: no file is closed and no memory is divided: it concerns the network of this thread and its children.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
    run("ip", &["link", "set", "lo", "up"])?;
    run("nft", &["list", "tables"]).map(drop)
}

fn run(program: &str, arguments: &[&str]) -> io::Result<String> {
    let path = "/usr/sbin:/usr/bin:/sbin:/bin";
    let output = Command::new("env").arg(format!("PATH={path}")).arg(program).args(arguments).output()?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(said(&output.stdout)) } else { Err(io::Error::other(said(&output.stderr))) }
}

struct Site {
    folder: Folder,
    listen: SocketAddr,
    admin: SocketAddr,
    server: SocketAddr,
    sentry: Process,
    /// It, or its successor.
    serving: u32,
    _server: Process,
}

impl Site {
    fn new() -> Site {
        let folder = Folder::new();
        let (listen, admin, server) = (loopback(free_port()), loopback(free_port()), loopback(free_port()));
        let emulated = ["emulate", "--listen", &server.to_string(), "--service", "2ms", "--cores", "8"];
        let _server = Process::start(&emulated);
        // In place of the one that is to come.
        let mut site = Site { folder, listen, admin, server, sentry: Process::idle(), serving: 0, _server };
        site.configure(admin);
        site.start();
        site
    }

    fn configure(&self, admin: SocketAddr) {
        let Site { listen, server, folder, .. } = self;
        let rate = "initial_rate = 0.002, min_rate = 0.002, max_rate = 0.002";
        folder.write(
            "sentry.toml",
            &format!(
                "[sentry]\nworkers = 1\n[admin]\nlisten = \"{admin}\"\n\
                 [upgrade]\nsocket = \"{}\"\nspread = \"0s\"\n\
                 [[application]]\nname = \"shop\"\nlisten = \"{listen}\"\nservers = \"{server}\"\n\
                 admission = {{ policy = \"resource\", syn = {{ {rate}, depth = 4 }} }}\n\
                 [application.syn_policing]\nwith = \"nftables\"\n",
                folder.path("upgrade.sock")
            ),
        );
    }

    fn start(&mut self) {
        let log = fs::File::options().create(true).append(true).open(self.folder.path("log")).expect("a file");
        let mut command = tidegate(&["run", "-c", &self.folder.path("sentry.toml")]);
        self.sentry = Process(command.stdout(Stdio::null()).stderr(log).spawn().expect("it starts"));
        self.serving = self.sentry.id();
        until("the sentry is ready", || get(self.admin, "/readyz").is_some());
    }

    fn upgrade(&self) -> Output {
        tidegate(&["upgrade", "--socket", &self.folder.path("upgrade.sock")]).output().expect("it runs")
    }

    /// Whether this is what turns connections away.
    fn is(&self, mechanism: &str) -> bool {
        let metrics = get(self.admin, "/metrics").unwrap_or_default();
        let line = metrics.lines().find(|line| line.starts_with("tidegate_syn_mechanism{"));
        line.is_some_and(|line| line.contains(mechanism))
    }

    /// The sum of a family.
    fn metric(&self, name: &str) -> u64 {
        let metrics = get(self.admin, "/metrics").unwrap_or_default();
        let values = metrics.lines().filter(|line| line.starts_with(name));
        values.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }

    #[track_caller]
    fn kernel_turns_away(&self) {
        until("the kernel turns connections away", || {
            TcpStream::connect_timeout(&self.listen, Duration::from_millis(50))
                .is_err_and(|error| error.kind() == io::ErrorKind::TimedOut)
        });
        assert!(self.is("nftables"), "{}", self.folder.read("log"));
    }

    fn table(&self) -> io::Result<String> {
        run("nft", &["list", "table", "inet", &format!("tidegate_{}_{}", self.listen.ip(), self.listen.port())])
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // A successor is nobody's child; its helper ends with it.
        let _ = signal(self.serving, Signal::KILL);
    }
}

/// What a process may do, and may come to do.
fn capabilities(pid: u32) -> [u64; 5] {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"].map(|set| {
        let line = status.lines().find(|line| line.starts_with(set)).expect("a set");
        u64::from_str_radix(line.split_whitespace().nth(1).expect("a number"), 16).expect("a number")
    })
}

#[track_caller]
fn has_no_right(pid: u32) {
    assert!(capabilities(pid).iter().all(|set| set & NET_ADMIN == 0), "{:x?}", capabilities(pid));
    is_confined(pid);
}

/// Its system calls are filtered, by as many filters more than this test's as are the program's: one.
#[track_caller]
fn is_confined(pid: u32) {
    let filters = |pid: &str| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
        let line = status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"));
        line.and_then(|count| count.trim().parse::<u32>().ok())
    };
    // Where tests are filtered already, by who runs them, it adds none.
    assert_eq!(filters(&pid.to_string()), filters("thread-self").map(|own| own.max(1)));
}

fn children(of: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{of}/task/{of}/children")).expect("it lives");
    children.split_whitespace().map(|pid| pid.parse().expect("a number")).collect()
}

#[test]
fn the_helper_has_the_right_alone_and_serves_every_successor() {
    in_namespace(|| {
        let mut site = Site::new();
        let first = site.sentry.id();
        let helper = children(first)[0];
        has_no_right(first);
        assert_eq!(capabilities(helper), [NET_ADMIN; 5], "nothing else");
        is_confined(helper);
        site.kernel_turns_away();

        // One that takes the table, and then cannot start.
        let taken = TcpListener::bind(loopback(0)).expect("a port");
        site.configure(taken.local_addr().expect("an address"));
        assert!(!site.upgrade().status.success());
        site.kernel_turns_away();
        site.configure(site.admin);

        for _ in 0..2 {
            let before = site.serving;
            let done = site.upgrade();
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(done.status.success(), "{said}\n{}", site.folder.read("log"));
            site.serving = said.split_whitespace().nth(1).and_then(|pid| pid.parse().ok()).expect("a number");
            assert_ne!(site.serving, before);
            has_no_right(site.serving);
            site.kernel_turns_away();
            assert_eq!(capabilities(helper), [NET_ADMIN; 5], "it lives on");
        }
        until("the first one has left", || site.sentry.0.try_wait().expect("a child").is_some());
        site.kernel_turns_away();

        signal(helper, Signal::KILL).expect("it runs");
        until("the workers turn connections away", || site.is("accept-and-reset"));
        assert!(site.folder.read("log").contains("the process that polices connections has ended"));
        assert!(get(site.admin, "/readyz").is_some(), "it serves on");
        until("connections get through to the workers, and some are reset", || {
            get(site.listen, "/").is_none() && site.metric("tidegate_syn_refused_total") > 0
        });
        signal(site.serving, Signal::TERM).expect("it runs");
        until("it ends", || get(site.admin, "/readyz").is_none());
        // What the helper left is no obstacle.
        site.start();
        site.kernel_turns_away();
    });
}

#[test]
fn a_sentry_that_is_killed_takes_its_rules_and_its_helper_along() {
    in_namespace(|| {
        let site = Site::new();
        site.kernel_turns_away();
        site.table().expect("it is there");
        let helper = children(site.serving)[0];
        // As a service manager does, who stops a service: it must not end before the sentry.
        signal(helper, Signal::TERM).expect("it runs");
        signal(helper, Signal::INT).expect("it runs");
        site.kernel_turns_away();
        assert_eq!(children(site.serving), [helper]);
        signal(site.serving, Signal::KILL).expect("it runs");
        until("the rules are gone", || site.table().is_err());
        until("the helper is gone", || signal(helper, Signal::CONT).is_err());
    });
}
