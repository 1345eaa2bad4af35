//! What handling a report costs: opening, checking the session, reading every gauge. `cargo bench -p tidegate-wire`.

use std::hint::black_box;
use std::time::Instant;

use tidegate_wire::{
    Connection, Gauge, Gauges, Header, Key, Keys, Kind, MAX_DATAGRAM, Message, ReportWriter, Secret, Session,
};

const ROUNDS: usize = 21;
const REPORTS: u64 = 10_000;

fn main() {
    for connections in [0, 16, 64] {
        let mut nanos: Vec<f64> = (0..ROUNDS).map(|_| round(connections)).collect();
        nanos.sort_by(f64::total_cmp);
        let (low, median, high) = (nanos[1], nanos[ROUNDS / 2], nanos[ROUNDS - 2]);
        println!("handle a report with {connections:>2} connections: {median:.0} ns ({low:.0} to {high:.0})");
    }
}

/// Nanoseconds per report.
fn round(connections: u16) -> f64 {
    let keys = Keys::derive(b"the key of the benchmark");
    let secret = Secret::new([1, 2, 3, 4]);
    let mut session = Session::default();
    let header = |sequence, token| Header { kind: Kind::Report, boot: 7, sequence, token };
    let refused = session.admit(&secret, "web-17", &header(1, 0), 1, 1).expect_err("challenged");
    let token = refused.challenge.expect("a challenge");
    let datagrams: Vec<Vec<u8>> =
        (2..REPORTS + 2).map(|n| datagram(&keys.first(), &header(n, token), connections)).collect();
    let began = Instant::now();
    for datagram in &datagrams {
        let message = Message::read(&keys, datagram).expect("sound");
        session.admit(&secret, message.server, &message.header, 2, 1).expect("in order");
        let report = message.report.expect("a report");
        black_box(report.gauges.iter().map(|(_, value)| value).sum::<f64>());
        black_box(report.connections().map(|connection| connection.cpu_ns).sum::<u64>());
    }
    began.elapsed().as_nanos() as f64 / REPORTS as f64
}

fn datagram(key: &Key, header: &Header, connections: u16) -> Vec<u8> {
    let mut gauges = Gauges::default();
    Gauge::ALL.iter().for_each(|&gauge| gauges.set(gauge, 1.5));
    let mut buffer = [0; MAX_DATAGRAM];
    let mut writer = ReportWriter::new(&mut buffer, "web-17", &gauges);
    writer.active("static", 3.0);
    for port in 0..connections {
        writer.connection(&Connection { peer: ([10, 0, 0, 1], port).into(), cpu_ns: 1 });
    }
    let length = writer.finish(key, header);
    buffer[..length].to_vec()
}
