use std::net::{TcpListener, TcpStream};

use super::*;
use crate::netlink::{Family, Netlink};
use crate::source::testing::Tree;

/// A folder of processes with this one alone, whose clock runs: of one thread, with a listener and these connections.
fn tree(inodes: &[u32]) -> Tree {
    let tree = Tree::new(&[]);
    let pid = std::process::id();
    tree.write(&format!("{pid}/task/{pid}/comm"), "server");
    tree.link(&format!("{pid}/fd/3"), "socket:[7]");
    inodes.iter().for_each(|inode| tree.link(&format!("{pid}/fd/{inode}"), &format!("socket:[{inode}]")));
    tree
}

fn socket(inode: u32) -> TcpSocket {
    let (local, peer) = (([127, 0, 0, 1], 80).into(), ([127, 0, 0, 1], 1000 + inode as u16).into());
    TcpSocket { local, peer, inode, waiting: 0, backlog: 0 }
}

fn look(workers: &mut Workers, now: Instant, opened: Option<f64>, connections: &[u32]) {
    workers.look(now, opened, &[7], || Ok(connections.iter().copied().map(socket).collect()));
}

fn ports(read: &[Connection]) -> Vec<u16> {
    read.iter().map(|connection| connection.peer.port()).collect()
}

/// Workers as if each of these connections had been found alone.
fn holding(inodes: std::ops::Range<u32>) -> (Tree, Workers) {
    let all: Vec<u32> = inodes.collect();
    let tree = tree(&all);
    let mut workers = Workers::new(tree.root());
    for &inode in &all {
        let mut one = Search::new(tree.root()).find(Instant::now(), &[], &HashSet::from([inode]), &HashSet::new());
        let holder = one.remove(&inode).expect("found");
        workers.held.push(Held { peer: socket(inode).peer, inode, holder, cpu_ns: None });
    }
    (tree, workers)
}

#[test]
fn a_processs_clock_runs_while_it_works() {
    let before = cpu_clock(std::process::id()).expect("our own clock");
    let mut sum = 0u64;
    while cpu_clock(std::process::id()).expect("our own clock") < before + 2_000_000 {
        sum = std::hint::black_box(sum.wrapping_add(1));
    }
    // No process has a number beyond 2^22.
    assert!(cpu_clock(u32::MAX).is_err() && cpu_clock(1 << 22).is_err());
}

#[test]
fn a_connection_is_read_as_long_as_its_process_has_it() {
    let tree = tree(&[100]);
    let mut workers = Workers::new(tree.root());
    look(&mut workers, Instant::now(), Some(5.0), &[100]);
    let read = workers.read();
    assert_eq!(ports(&read), [1100]);
    assert!(read[0].cpu_ns > 0);
    // The same number may be another connection at once; nobody needs to look for this to be seen.
    let file = format!("{}/fd/100", std::process::id());
    tree.remove(&file);
    // Its clock moves on, or it could have done nothing.
    while cpu_clock(std::process::id()).expect("our own clock") == read[0].cpu_ns {}
    tree.link(&file, "socket:[101]");
    assert_eq!(workers.read(), []);
    look(&mut workers, Instant::now(), Some(6.0), &[101]);
    assert_eq!(ports(&workers.read()), [1101]);
}

#[test]
fn a_process_that_comes_by_a_second_connection_is_left_out() {
    let tree = tree(&[100]);
    let mut workers = Workers::new(tree.root());
    look(&mut workers, Instant::now(), None, &[100]);
    assert_eq!(ports(&workers.read()), [1100]);
    tree.link(&format!("{}/fd/101", std::process::id()), "socket:[101]");
    look(&mut workers, Instant::now(), None, &[100, 101]);
    assert_eq!(workers.read(), [], "its clock is of both");
    tree.remove(&format!("{}/fd/100", std::process::id()));
    look(&mut workers, Instant::now(), None, &[101]);
    assert_eq!(ports(&workers.read()), [1101]);
}

#[test]
fn a_process_whose_clock_stands_still_has_what_it_had() {
    let tree = tree(&[100]);
    let mut workers = Workers::new(tree.root());
    look(&mut workers, Instant::now(), None, &[100]);
    let holder = &mut workers.held[0];
    let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().expect("cat");
    holder.holder.pid = child.id();
    let first = holder.read().expect("a clock");
    tree.remove(&format!("{}/fd/100", std::process::id()));
    // It may have been starting still.
    assert!(holder.read().is_none_or(|second| second == first));
    drop(child.stdin.take());
    child.wait().expect("the end of cat");
    assert_eq!(holder.read(), None, "no such process");
}

#[test]
fn without_news_nobody_looks_for_long() {
    let tree = tree(&[100]);
    let (mut workers, start) = (Workers::new(tree.root()), Instant::now());
    let at = |ms| start + Duration::from_millis(ms);
    assert!(workers.is_look_due(start, None), "nobody has looked yet");
    look(&mut workers, start, Some(5.0), &[100]);
    // Whatever looking took here: how much it may take is the next test's.
    workers.allowance = Allowance::new();
    assert!(!workers.is_look_due(at(9_900), Some(5.0)), "nothing was opened");
    assert!(workers.is_look_due(at(10_000), Some(5.0)));
    assert!(!workers.is_look_due(at(900), Some(6.0)), "a second has not passed");
    assert!(workers.is_look_due(at(1_000), Some(6.0)));
    assert!(workers.is_look_due(at(1_000), None), "nobody counts");
    // The second waits to be accepted, and the third has nobody.
    for connections in [[100, 0], [100, 102]] {
        look(&mut workers, start, Some(6.0), &connections);
        workers.allowance = Allowance::new();
        assert!(workers.is_look_due(at(1_000), Some(6.0)), "{connections:?}");
    }
    look(&mut workers, start, Some(6.0), &[100]);
    assert!(!workers.is_look_due(at(1_000), Some(6.0)));
    workers.look(start, Some(6.0), &[7], || Err(io::ErrorKind::Interrupted.into()));
    workers.allowance = Allowance::new();
    assert!(workers.is_look_due(at(1_000), Some(6.0)), "the list failed");
    assert_eq!(ports(&workers.read()), [1100], "what was known before is known still");
}

#[test]
fn looking_that_costs_too_much_is_done_less_often() {
    let tree = tree(&[]);
    let (mut workers, start) = (Workers::new(tree.root()), Instant::now());
    let at = |ms| start + Duration::from_millis(ms);
    // Nobody has it, and looking takes 70 ms each time, of 2 ms a second.
    look(&mut workers, start, None, &[100]);
    workers.allowance = Allowance::new();
    workers.allowance.spend(start, Duration::from_millis(70));
    assert!(!workers.is_look_due(at(9_000), None));
    assert!(workers.is_look_due(at(20_000), None));
}

#[test]
fn more_connections_than_a_report_has_are_told_in_turn() {
    let (_tree, mut workers) = holding(100..140);
    let all: Vec<u16> = (1100..1140).collect();
    assert_eq!(ports(&workers.read()), all[..32]);
    assert_eq!(ports(&workers.read()), [&all[32..], &all[..24]].concat());
    // Of these 32, 8 found no room.
    assert_eq!(ports(&workers.read()), [&all[24..], &all[..16]].concat());
    workers.put_back(8);
    assert_eq!(ports(&workers.read()), [&all[8..]].concat());
}

#[test]
fn what_found_no_room_comes_first_although_all_fit_in_one_turn() {
    let (tree, mut workers) = holding(100..103);
    workers.put_back(0);
    assert_eq!(ports(&workers.read()), [1100, 1101, 1102]);
    workers.put_back(1);
    assert_eq!(ports(&workers.read()), [1102, 1100, 1101]);
    workers.put_back(3);
    assert_eq!(ports(&workers.read()), [1102, 1100, 1101]);
    tree.remove(&format!("{}/fd/100", std::process::id()));
    assert_eq!(ports(&workers.read()), [1102, 1101], "each once, without the one that is gone");
    let mut nobody = Workers::new(tree.root());
    nobody.put_back(0);
    assert_eq!(nobody.read(), []);
}

/// The test's own process has the listener and several threads: it is left out, as the kernel tells it.
#[test]
fn a_process_with_threads_is_left_out() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let _client = TcpStream::connect(address).expect("a connection");
    let (server, _) = listener.accept().expect("a connection");
    let mut netlink = Netlink::open().expect("netlink");
    let mut connections = Vec::new();
    let own = |socket: TcpSocket| connections.extend((socket.local == address).then_some(socket));
    netlink.connections(Family::V4, address.port(), own).expect("a list");
    assert_eq!(connections.len(), 1, "{server:?}");
    let sockets = sockets_of(&Path::new("/proc").join(std::process::id().to_string()));
    assert!(sockets.iter().any(|(_, inode)| *inode == connections[0].inode), "{sockets:?}");
    let mut workers = Workers::new(Path::new("/proc"));
    let (release, wait) = std::sync::mpsc::sync_channel::<()>(0);
    let other = std::thread::spawn(move || wait.recv());
    workers.look(Instant::now(), None, &[], || Ok(connections.clone()));
    assert_eq!(workers.read(), []);
    assert!(workers.is_unsettled);
    drop(release);
    assert!(other.join().expect("the thread").is_err());
}
