//! Resources protected by a whole sentry: what is measured reaches the controllers, and new connections are turned away
//! by the kernel where it can be done, else by the workers. What needs root and nft says so where it cannot run.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use crate::support::{PATIENCE, RawServer, Running, admission, application, config, ok, until};
use serde_json::json;
use tidegate_engine::{Facts, LoadReport, ServerId, Signal};
use tidegate_sentry::config::{Application, SynPolicing, SynWith};
use tidegate_sentry::record::NoRecords;
use tidegate_sentry::syn_policing::Mechanism;
use tidegate_sentry::{Process, Sentry, StartError};

/// Connections per second: so few that none is let in during a test but those that may come at once.
const RATE: f64 = 0.002;

/// New connections at [`RATE`], and `depth` at once, from the first sample on.
fn slow(service: &RawServer, depth: f64, with: SynWith) -> Application {
    let mut application = application(&[service.address]);
    application.setup.admission = admission(json!({
        "policy": "resource", "syn": { "initial_rate": RATE, "min_rate": RATE, "max_rate": RATE, "depth": depth },
    }));
    application.syn = SynPolicing { with, ..SynPolicing::default() };
    application
}

const KEPT: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const REQUEST: &str = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

#[test]
fn workers_reset_what_is_beyond_the_rate_and_count_it() {
    let service = RawServer::answering(|_| ok("hello"));
    let running = Running::start(slow(&service, 3.0, SynWith::AcceptAndReset));
    assert_eq!(running.app().syn.in_force().mechanism, Mechanism::AcceptAndReset);
    let mut kept = running.client();
    kept.send(KEPT);
    assert_eq!(kept.answer().status, 200, "before there is a rate");
    until("the rate is in force", || running.app().syn.rate().is_some());
    let reset = |_: &usize| {
        let mut stream = TcpStream::connect(running.address).expect("a handshake");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        // Whether the request gets out before the reset comes does not matter.
        let _ = std::io::Write::write_all(&mut stream, REQUEST.as_bytes());
        !matches!(stream.read(&mut [0; 512]), Ok(1..))
    };
    // Whether the first one came before the rate was there is the machine's affair.
    let already = running.app().syn.counts().pop().expect("a class").admitted as usize;
    let refused = (0..10).filter(reset).count();
    assert_eq!(10 - refused, 3 - already, "three at once");
    let rest = running.app().syn.counts().pop().expect("a class");
    assert_eq!((rest.class.as_str(), rest.admitted, rest.refused as usize), ("rest", 3, refused));
    // Its connection is no new one.
    kept.send(KEPT);
    assert_eq!(kept.answer().status, 200);
    running.assert_quiet();
}

#[test]
fn servers_on_this_machine_are_measured_without_a_nucleus() {
    let service = RawServer::answering(|_| ok("hello"));
    let mut application = application(&[service.address]);
    application.setup.admission = admission(json!({ "policy": "resource", "period": "100ms" }));
    application.syn = SynPolicing { with: SynWith::Off, ..SynPolicing::default() };
    let running = Running::start(application);
    let measured = |resource: &str| {
        let own = running.app().snapshot().policy.own;
        own.list("resources").find(|state| state.text("resource") == Some(resource))?.number("input")
    };
    until("the server's processors are measured", || measured("cpu").is_some_and(|percent| percent <= 100.0));
    until("the queue of connections is measured", || measured("syn") == Some(0.0));
    assert_eq!(running.app().syn.in_force().mechanism, Mechanism::Off);
    assert_eq!(running.ask(REQUEST).status, 200);
}

#[test]
fn a_short_resource_is_refused_with_its_reason() {
    let service = RawServer::answering(|_| ok("hello"));
    let mut application = application(&[service.address]);
    // Of something that is not measured here, so that nothing disturbs what the test says.
    application.setup.admission = admission(json!({
        "policy": "resource", "period": "100ms", "connections": false,
        "resources": [{ "name": "in_service", "control": { "reference": 1, "initial_rate": 0.1, "min_rate": 0.1, "depth": 1 } }],
    }));
    application.setup.tags = vec!["in_service".into()];
    application.tags = vec!["in_service".into()];
    application.setup.request_types.push("heavy".into());
    application.classifier.request_types = vec![tidegate_classify::TypeRules {
        rules: vec![tidegate_classify::Rule { dynamic: Some(true), ..Default::default() }],
        tags: tidegate_engine::Tags(1),
    }];
    let running = Running::start(application);
    let report = LoadReport::Signal { server: Some(ServerId(0)), signal: Signal::InService, value: 5.0 };
    let heavy = "GET /x.cgi HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let (mut refused, mut state): (_, Vec<Facts>) = (None, Vec::new());
    until("a heavy request is refused, at the least rate", || {
        running.app().report(report);
        refused = Some(running.ask(heavy)).filter(|answer| answer.status == 503);
        state = running.app().snapshot().policy.own.list("resources").cloned().collect();
        // Why is told of the last sample, for which the report may have come too late.
        refused.is_some() && state[0].text("why") == Some("at-least")
    });
    let decision = refused.as_ref().and_then(|answer| answer.field("tidegate-decision")).unwrap_or_default().to_owned();
    assert!(decision.contains("reason=resource-limit") && decision.contains("policy=resource"), "{decision}");
    assert_eq!(running.ask(REQUEST).status, 200, "it strains nothing");
    assert_eq!((state.len(), state[0].text("server"), state[0].number("rate")), (1, Some("s0"), Some(0.1)));
    assert!(state[0].count("refused") > Some(0), "{state:?}");
}

/// In a network namespace of this test's own: its threads, and the sentry's, are all in it.
#[test]
fn the_kernel_turns_connections_away_and_is_left_clean() {
    in_namespace(|| {
        let service = RawServer::answering(|_| ok("hello"));
        let mut application = slow(&service, 4.0, SynWith::Auto);
        application.listen = vec![([127, 0, 0, 1], 18080).into()];
        let running = Running::start(application.clone());
        let in_force = running.app().syn.in_force();
        assert_eq!((in_force.mechanism, &*in_force.why), (Mechanism::Nftables, ""));
        // The rate comes with the first sample, and is in the kernel a moment later.
        until("connections are turned away", || {
            let attempt = TcpStream::connect_timeout(&running.address, Duration::from_millis(20));
            attempt.is_err() && running.app().syn.counts().iter().any(|class| class.refused > 0)
        });
        let own = running.app().snapshot().policy.own;
        let last = own.list("resources").last().map(|state| (state.text("resource"), state.number("rate")));
        assert_eq!(last, Some((Some("syn"), Some(RATE))));
        assert!(running.app().syn.change_took().is_some(), "the kernel was given a rate");
        application.syn.required = true;
        drop(running);
        let again = Sentry::start(config(application, 1), Arc::new(NoRecords)).expect("the table is gone");
        drop(again);
    });
}

/// Runs `test` on a thread in a network namespace of its own with nft; says so where that cannot be.
fn in_namespace(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(|| {
        // SAFETY: it takes no pointers, and concerns this thread and those that it starts only.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return Some(std::io::Error::last_os_error().to_string());
        }
        if let Err(error) = loopback_up().and_then(|()| nft(&["list", "tables"])) {
            return Some(error.to_string());
        }
        test();
        None
    });
    if let Some(missing) = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "the kernel cannot police here: {missing}");
        eprintln!("NOT RUN: this needs root, network namespaces and nft: {missing}");
    }
}

fn nft(args: &[&str]) -> std::io::Result<()> {
    let output = std::process::Command::new("/usr/sbin/nft").args(args).output()?;
    let said = || std::io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned());
    if output.status.success() { Ok(()) } else { Err(said()) }
}

/// Another living tidegate's table at the same address: `required` refuses to start, `auto` goes on by the workers.
#[test]
fn an_address_that_another_tidegate_polices_is_its_own() {
    in_namespace(|| {
        let service = RawServer::answering(|_| ok("hello"));
        let mut application = slow(&service, 4.0, SynWith::Auto);
        application.listen = vec![([127, 0, 0, 1], 18082).into()];
        // Process 1 lives, and is not this one.
        let stat = std::fs::read_to_string("/proc/1/stat").expect("process 1");
        let started = stat.rsplit_once(')').expect("a name").1.split_whitespace().nth(19).expect("a field");
        nft(&["add", "table", "inet", "tidegate_127.0.0.1_18082"]).expect("a table");
        let owner = format!("owner_1_{started}");
        nft(&["add", "chain", "inet", "tidegate_127.0.0.1_18082", &owner]).expect("a chain");
        let running = Running::start(application.clone());
        let in_force = running.app().syn.in_force();
        assert_eq!(in_force.mechanism, Mechanism::AcceptAndReset);
        assert!(in_force.why.contains("process 1 polices"), "{}", in_force.why);
        drop(running);
        application.syn.required = true;
        match Sentry::start(config(application, 1), Arc::new(NoRecords)) {
            Err(StartError::Syn(error)) => {
                assert!(error.to_string().contains("stop it, or listen elsewhere"), "{error}")
            }
            other => panic!("it must not start: {other:?}"),
        }
        nft(&["list", "table", "inet", "tidegate_127.0.0.1_18082"]).expect("it was left alone");
    });
}

/// While nearly nobody is let in: the admin port, load balancers that are exempt, and the sentry's own checks.
#[test]
fn health_checks_and_the_admin_port_are_never_policed() {
    in_namespace(|| {
        let service = RawServer::answering(|_| ok("hello"));
        let mut application = slow(&service, 1.0, SynWith::Nftables);
        application.listen = vec![([127, 0, 0, 1], 18081).into()];
        application.syn.exempt = vec!["127.9.9.9/32".parse().expect("a network")];
        application.health.interval = Duration::from_millis(20);
        let mut config = config(application, 1);
        config.admin.listen = Some(([127, 0, 0, 1], 0).into());
        let process = Process::start(config, None).expect("a sentry");
        let (address, admin) = (process.sentry().addresses("app")[0], process.admin_address().expect("an API"));
        let counts = || process.sentry().apps()[0].syn.counts();
        until("connections are turned away", || {
            let attempt = TcpStream::connect_timeout(&address, Duration::from_millis(20));
            attempt.is_err() && counts().iter().any(|class| class.refused > 0)
        });
        for _ in 0..30 {
            assert_eq!(ask_from([127, 0, 0, 1], admin), 200, "the admin port");
        }
        let checks = service.connections();
        until("the sentry still checks its server", || service.connections() > checks + 3);
        for _ in 0..30 {
            assert_eq!(ask_from([127, 9, 9, 9], address), 200, "a load balancer's check");
        }
        let refused = || counts().iter().map(|class| class.refused).sum::<u64>();
        let before = refused();
        // Who gets in takes what has gathered meanwhile, a connection in a minute: the kernel knows no lower rate.
        until("others still are, and are counted", || {
            let attempt = TcpStream::connect_timeout(&address, Duration::from_millis(20));
            attempt.is_err() && refused() > before
        });
    });
}

/// The status of a request on a new connection from an address.
fn ask_from(from: [u8; 4], to: SocketAddr) -> u16 {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from((from, 0)).into()).expect("an address of loopback");
    socket.connect_timeout(&to.into(), PATIENCE).expect("it is exempt");
    let mut stream = TcpStream::from(socket);
    std::io::Write::write_all(&mut stream, REQUEST.as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

/// Where nothing may be installed, `required` refuses to start, and `auto` says what it does instead.
#[test]
fn without_the_privilege_required_refuses_and_auto_goes_on() {
    let thread = std::thread::spawn(|| {
        give_up_privileges();
        let service = RawServer::answering(|_| ok("hello"));
        let mut application = slow(&service, 4.0, SynWith::Auto);
        let running = Running::start(application.clone());
        let in_force = running.app().syn.in_force();
        assert_eq!(in_force.mechanism, Mechanism::AcceptAndReset);
        assert!(!in_force.why.is_empty());
        application.syn.required = true;
        match Sentry::start(config(application, 1), Arc::new(NoRecords)) {
            Err(StartError::Syn(error)) => assert!(error.to_string().contains("required"), "{error}"),
            other => panic!("it must not start: {other:?}"),
        }
    });
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// Of this thread only, and for good.
fn give_up_privileges() {
    // SAFETY: it takes plain numbers, and as a system call concerns this thread only. Without root it does nothing.
    unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) };
}

fn loopback_up() -> std::io::Result<()> {
    use std::os::fd::AsRawFd;
    let socket = std::net::UdpSocket::bind(("0.0.0.0", 0))?;
    // SAFETY: all zeros are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    (request.ifr_name[0], request.ifr_name[1]) = (b'l' as libc::c_char, b'o' as libc::c_char);
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request is an `ifreq`, as SIOCSIFFLAGS wants it, and outlives the call.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw mut request) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
