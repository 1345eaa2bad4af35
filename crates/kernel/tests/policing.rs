//! Real rules in network namespaces of the tests' own: a thread leaves for one and takes `nft` along. Needs root and
//! the program `nft`; without them each test says so and checks nothing, and with `CI=true` that is a failure.

use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use socket2::{Domain, Protocol, Socket, Type};
use tidegate_kernel::{Counts, InstallError, LEASE, Owner, Plan, SourceClass, SynPolicer};

/// Runs `test` on a thread in a new network namespace whose loopback is up.
fn in_namespace(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(move || match enter() {
        Ok(()) => {
            test();
            None
        }
        Err(error) => Some(error.to_string()),
    });
    let missing = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    if let Some(missing) = missing {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "cannot police connections here: {missing}");
        eprintln!("NOT RUN: this needs root, network namespaces and nft: {missing}");
    }
}

fn enter() -> io::Result<()> {
    // SAFETY: it takes no pointers, and concerns this thread only.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(io::Error::last_os_error());
    }
    nft(&["list", "tables"]).map(drop)?;
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    // SAFETY: all zeros are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (at, byte) in b"lo".iter().enumerate() {
        request.ifr_name[at] = *byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request is an `ifreq`, as SIOCSIFFLAGS wants it, and outlives the call.
    match unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&socket), libc::SIOCSIFFLAGS as _, &raw mut request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn nft(args: &[&str]) -> io::Result<String> {
    let output = Command::new("/usr/sbin/nft").args(args).output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn plan(listen: &[SocketAddr]) -> Plan {
    Plan { listen: listen.to_vec(), classes: Vec::new(), rest_share: 1.0, exempt: Vec::new(), depth: 20.0 }
}

/// Tries `count` connections from an address, at once, and counts those that come about.
fn connected(from: IpAddr, to: SocketAddr, count: usize) -> usize {
    let attempt = |_| {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        socket.bind(&SocketAddr::new(from, 0).into())?;
        match socket.connect(&to.into()) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
            _ => Ok(TcpStream::from(socket)),
        }
    };
    let sockets: Vec<_> = (0..count).map(attempt).collect::<io::Result<_>>().expect("sockets");
    // On loopback a handshake is over when `connect` returns; what is not by then was dropped, and is tried again by
    // the kernel a second later.
    sockets.iter().filter(|socket| socket.peer_addr().is_ok()).count()
}

fn listener(address: &str) -> (TcpListener, SocketAddr) {
    let address: SocketAddr = address.parse().expect("an address");
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP)).expect("a socket");
    socket.bind(&address.into()).expect("an address");
    // Nobody accepts here.
    socket.listen(4096).expect("a listener");
    let listener = TcpListener::from(socket);
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

#[test]
fn a_bucket_lets_its_depth_in_and_counts_what_it_turns_away() {
    in_namespace(|| {
        let (_service, address) = listener("127.0.0.1:0");
        let (_other, elsewhere) = listener("127.0.0.1:0");
        let mut policer = SynPolicer::install(plan(&[address])).expect("rules");
        assert_eq!(connected(HERE, address, 50), 50, "without a rate nothing is policed");
        assert!(policer.set_rate(Some(0.5)).expect("a rate"));
        assert_eq!(connected(HERE, address, 100), 20);
        assert_eq!(connected(HERE, elsewhere, 100), 100, "another service");
        let Counts { admitted, refused, .. } = policer.counts().expect("counters")[0].clone();
        assert_eq!((admitted, refused), (20, 80));
        policer.set_rate(None).expect("no rate");
        assert_eq!(connected(HERE, address, 100), 100);
        drop(policer);
        assert_eq!(nft(&["list", "ruleset"]).expect("a list"), "", "nothing is left");
    });
}

#[test]
fn a_rate_within_the_dead_band_does_not_fill_the_bucket() {
    in_namespace(|| {
        let (_service, address) = listener("127.0.0.1:0");
        let mut policer = SynPolicer::install(plan(&[address])).expect("rules");
        policer.set_rate(Some(0.5)).expect("a rate");
        assert_eq!(connected(HERE, address, 40), 20);
        assert!(!policer.set_rate(Some(0.51)).expect("a rate"));
        assert_eq!(connected(HERE, address, 40), 0);
        assert!(policer.set_rate(Some(1.0)).expect("a rate"));
        assert_eq!(connected(HERE, address, 40), 20, "a change does: the kernel has no other way");
        assert_eq!(policer.changes(), 2);
    });
}

#[test]
fn classes_of_both_families_have_parts_of_their_own() {
    in_namespace(|| {
        let (_service, v4) = listener("127.0.0.1:0");
        let (_service, v6) = listener("[::1]:0");
        let net = |net: &str| net.parse::<IpNet>().expect("a network");
        let class = |name: &str, from: &[&str]| SourceClass {
            name: name.to_owned(),
            from: from.iter().map(|from| net(from)).collect(),
            share: 2.0,
        };
        let classes = vec![class("premium", &["127.1.0.0/16", "::1/128"]), class("partner", &["127.2.0.0/16"])];
        let plan = Plan { classes, exempt: vec![net("127.1.9.9/32")], depth: 50.0, ..plan(&[v4, v6]) };
        let mut policer = SynPolicer::install(plan.clone()).expect("rules");
        policer.set_rate(Some(1.0)).expect("a rate");
        let from = |from: &str| from.parse::<IpAddr>().expect("an address");
        assert_eq!(connected(HERE, v4, 30), 10, "the rest");
        assert_eq!(connected(from("127.2.0.1"), v4, 30), 20);
        assert_eq!(connected(from("127.1.0.1"), v4, 15), 15, "both families of a class share its bucket");
        assert_eq!(connected(from("::1"), v6, 30), 5);
        assert_eq!(connected(from("127.1.9.9"), v4, 100), 100, "a health check");
        let counts = policer.counts().expect("counters");
        let shown: Vec<_> = counts.iter().map(|c| (c.class.as_str(), c.admitted, c.refused)).collect();
        assert_eq!(shown, [("premium", 20, 25), ("partner", 20, 10), ("rest", 10, 20)]);
        let mut both = plan;
        both.classes[1].from.push(net("127.1.7.0/24"));
        assert!(matches!(SynPolicer::install(both), Err(InstallError::Overlap(..))));
    });
}

/// Killed with -9, a policer ends by itself; the next start removes what is left of it.
#[test]
fn rules_without_a_controller_end_and_are_removed() {
    in_namespace(|| {
        let (_service, address) = listener("127.0.0.1:0");
        let mut policer = SynPolicer::install(plan(&[address])).expect("rules");
        policer.set_rate(Some(0.5)).expect("a rate");
        assert_eq!(connected(HERE, address, 40), 20);
        let rules = nft(&["list", "ruleset"]).expect("a list");
        let this = Owner::this().expect("there is /proc").to_string();
        // The same rules, whose owner is dead.
        let dead = rules.replace(&this, "owner_4194304_1").replace("tidegate_127.0.0.1", "tidegate_gone");
        policer.renew().expect("a lease");
        std::mem::forget(policer);
        // Nobody renews the lease any more.
        let until = Instant::now() + LEASE + Duration::from_secs(5);
        while connected(HERE, address, 40) < 40 {
            assert!(Instant::now() < until, "connections are still turned away");
            // tidy-allow(sleeping-tests): polls the condition above, with a deadline
            std::thread::sleep(Duration::from_millis(200));
        }
        let file = std::env::temp_dir().join(format!("tidegate-dead-{}.nft", std::process::id()));
        std::fs::write(&file, dead).expect("a file");
        nft(&["-f", file.to_str().expect("a path")]).expect("rules of a dead owner");
        std::fs::remove_file(&file).expect("it is there");
        assert_eq!(nft(&["list", "tables"]).expect("a list").lines().count(), 2);
        let policer = SynPolicer::install(plan(&[address])).expect("it takes over its own table");
        assert_eq!(nft(&["list", "tables"]).expect("a list").trim(), format!("table inet {}", policer.table()));
    });
}

/// A whole process, killed with -9 while it polices: what it left ends by itself, and the next start takes it over.
#[test]
fn a_process_that_is_killed_leaves_nothing_that_blocks() {
    in_namespace(|| {
        let (_service, address) = listener("127.0.0.1:0");
        let me = std::env::current_exe().expect("a path");
        let mut child = Command::new(me)
            .args(["--exact", "the_process_that_is_killed", "--ignored", "--nocapture"])
            .env(POLICES, address.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program, again");
        let said = BufReader::new(child.stdout.take().expect("it is piped"));
        assert!(said.lines().map_while(Result::ok).any(|line| line.contains("polices")), "it never did");
        assert!(connected(HERE, address, 40) < 40, "it polices");
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        let until = Instant::now() + LEASE + Duration::from_secs(5);
        while connected(HERE, address, 40) < 40 {
            assert!(Instant::now() < until, "connections are still turned away");
            // tidy-allow(sleeping-tests): polls the condition above, with a deadline
            std::thread::sleep(Duration::from_millis(200));
        }
        assert_eq!(
            nft(&["list", "tables"]).expect("a list").lines().count(),
            1,
            "the rules are there, and match nobody"
        );
        let policer = SynPolicer::install(plan(&[address])).expect("the owner is dead");
        assert_eq!(nft(&["list", "tables"]).expect("a list").trim(), format!("table inet {}", policer.table()));
        drop(policer);
        assert_eq!(nft(&["list", "ruleset"]).expect("a list"), "");
    });
}

const POLICES: &str = "TIDEGATE_TEST_POLICES";

#[test]
#[ignore = "is the process that a_process_that_is_killed_leaves_nothing_that_blocks starts and kills"]
fn the_process_that_is_killed() {
    let address = std::env::var(POLICES).expect("started by the other test").parse().expect("an address");
    let mut policer = SynPolicer::install(plan(&[address])).expect("rules");
    policer.set_rate(Some(0.5)).expect("a rate");
    println!("polices");
    // Until it is killed; not for ever if nobody does.
    let until = Instant::now() + 3 * LEASE;
    while Instant::now() < until {
        std::thread::park_timeout(Duration::from_millis(100));
    }
}

#[test]
fn an_interface_that_disappears_takes_nothing_else_along() {
    if Command::new("ip").arg("-V").output().is_err() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "the program ip is missing");
        return eprintln!("NOT RUN: this needs the program ip");
    }
    in_namespace(|| {
        let ip = |words: &str| {
            let done = Command::new("ip").args(words.split(' ')).status().expect("the program ip");
            assert!(done.success(), "ip {words}");
        };
        ip("link add tga type veth peer name tgb");
        ip("addr add 10.99.0.1/24 dev tga");
        ip("link set tga up");
        let (_going, going) = listener("10.99.0.1:0");
        let (_staying, staying) = listener("127.0.0.1:0");
        let mut policer = SynPolicer::install(plan(&[going, staying])).expect("rules");
        policer.set_rate(Some(0.5)).expect("a rate");
        ip("link delete tga");
        assert_eq!(connected(HERE, staying, 40), 20, "the other address is policed");
        assert!(policer.set_rate(Some(2.0)).expect("another rate"));
        policer.renew().expect("a lease");
        assert_eq!(connected(HERE, staying, 40), 20);
        assert_eq!(policer.counts().expect("counters")[0].refused, 40);
        drop(policer);
        assert_eq!(nft(&["list", "ruleset"]).expect("a list"), "");
    });
}

#[test]
fn a_living_owner_and_other_tables_are_left_alone() {
    in_namespace(|| {
        let (_service, address) = listener("127.0.0.1:0");
        let mine = SynPolicer::install(plan(&[address])).expect("rules");
        let table = mine.table().to_owned();
        drop(mine);
        // Process 1 lives, and is not this one.
        let stat = std::fs::read_to_string("/proc/1/stat").expect("process 1");
        let started = stat.rsplit_once(')').expect("a name").1.split_whitespace().nth(19).expect("a field").to_owned();
        nft(&["add", "table", "inet", &table]).expect("a table");
        nft(&["add", "chain", "inet", &table, &format!("owner_1_{started}")]).expect("a chain");
        nft(&["add", "table", "inet", "firewall"]).expect("a table");
        match SynPolicer::install(plan(&[address])) {
            Err(InstallError::Occupied { pid: 1, table: shown }) => assert_eq!(shown, table),
            other => panic!("it is another's: {other:?}"),
        }
        nft(&["delete", "table", "inet", &table]).expect("it is there");
        let policer = SynPolicer::install(plan(&[address])).expect("rules");
        drop(policer);
        assert_eq!(nft(&["list", "tables"]).expect("a list").trim(), "table inet firewall");
    });
}

/// The bar is 100 us. Here it is ten times that, for a machine that does other things too; `benches/` has the figures.
#[test]
fn a_change_of_rate_takes_microseconds() {
    in_namespace(|| {
        let (_service, address) = listener("127.0.0.1:0");
        let mut policer = SynPolicer::install(plan(&[address])).expect("rules");
        let mut took: Vec<Duration> = (0..100u32)
            .map(|round| {
                let start = Instant::now();
                policer.set_rate(Some(f64::from(10 + 10 * (round % 2)))).expect("a rate");
                start.elapsed()
            })
            .collect();
        took.sort_unstable();
        println!("median {:?}, 95th percentile {:?}", took[50], took[95]);
        assert!(took[50] < Duration::from_millis(1), "{:?}", took[50]);
        assert_eq!(policer.changes(), 100);
    });
}
