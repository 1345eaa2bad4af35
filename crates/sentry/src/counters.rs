//! What the data path counts: one lane per worker, so that no two threads write the same cache line.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate_engine::Timestamp;

pub use crate::gate::head::Bad;

/// Something that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Counter {
    /// Client connections accepted.
    ConnectionsAccepted,
    /// Client connections closed again.
    ConnectionsClosed,
    /// Client connections closed at once because there were too many, or all together held far too much.
    ConnectionsRefused,
    /// Client connections closed at once because nobody there may ask.
    ConnectionsDenied,
    /// `accept` failed, for want of file descriptors for example.
    AcceptErrors,
    /// Requests whose head was read.
    Requests,
    /// Requests refused by the gate, without hyper.
    RefusedByGate,
    /// Requests refused in the service.
    RefusedByService,
    /// Requests exempt from policing.
    Exempt,
    /// Body bytes from clients.
    BytesIn,
    /// Body bytes to clients.
    BytesOut,
    /// Answers with a status of 1xx (tunnels).
    Status1xx,
    /// Answers with a status of 2xx.
    Status2xx,
    /// Answers with a status of 3xx.
    Status3xx,
    /// Answers with a status of 4xx.
    Status4xx,
    /// Answers with a status of 5xx.
    Status5xx,
    /// Clients that left before their answer was complete.
    ClientGone,
    /// Connections opened to servers.
    ServerConnects,
    /// Requests sent on a connection that was open.
    ServerReuses,
    /// Idle connections that a server had closed.
    ServerStale,
    /// Connections to servers that could not be opened.
    ServerConnectErrors,
    /// Servers that broke off before or within an answer, or sent garbage.
    ServerErrors,
    /// Requests sent again.
    Retries,
    /// Requests not sent again because the budget was spent.
    RetriesDenied,
    /// Connecting to a server took too long.
    TimeoutConnect,
    /// A server's first byte took too long.
    TimeoutFirstByte,
    /// A body made no progress.
    TimeoutBodyIdle,
    /// A whole request took too long.
    TimeoutRequest,
    /// A client's connection was idle for too long: ordinary.
    TimeoutClientIdle,
    /// Tunnels opened.
    TunnelsOpened,
    /// Tunnels closed.
    TunnelsClosed,
    /// Connections closed because all together held too much: what was left unread or sent ahead, TLS, HTTP/2.
    ConnectionsShed,
    /// Connections closed that waited for their clients, because there were too many, or too few descriptors.
    ConnectionsMadeRoom,
    /// Servers not reached for want of descriptors, ports or memory here.
    LocalErrors,
    /// Servers taken out by requests that they did not answer.
    Ejections,
    /// Tasks of workers that ended in a panic, and were begun anew.
    WorkerPanics,
    /// Ghosts whose servers answered although nobody waited.
    GhostsAnswered,
    /// Ghosts whose servers stopped: they closed without an answer.
    GhostsStopped,
    /// Ghosts of which the end was not seen.
    GhostsUnseen,
    /// Requests sent on by who asked, of whose end nobody told.
    EndsMissing,
    /// TLS handshakes done in full.
    HandshakesFull,
    /// TLS handshakes of clients that resumed a session.
    HandshakesResumed,
    /// TLS handshakes refused before any cryptography, for want of processor time or because there were too many.
    HandshakesRefused,
    /// TLS handshakes that failed.
    HandshakesFailed,
    /// TLS handshakes begun on the thread that gives way to the worker.
    HandshakesAside,
    /// A handshake, or what comes before it, took too long.
    TimeoutHandshake,
    /// Processor time of full handshakes, nanoseconds.
    NanosFull,
    /// Processor time of resumed handshakes, nanoseconds.
    NanosResumed,
    /// Connections without the PROXY header that they must begin with, or with a broken one.
    ProxyHeadersRefused,
    /// Connections that speak HTTP/2.
    Http2Connections,
    /// Requests that came by HTTP/2.
    Http2Requests,
    /// Streams of HTTP/2 that clients reset before their answers began.
    Http2Resets,
    /// Connections of HTTP/2 closed for what their clients did: too many resets, too many frames that ask for nothing.
    Http2Abuse,
    /// Connections reset at once: their clients were closed for what they did a moment ago, and a worker is short of
    /// time.
    Http2TurnedAway,
    /// Streams of HTTP/2 refused because there were too many, most of them of the same client.
    Http2Crowded,
}

/// Every counter with its name in metrics.
pub const COUNTERS: [(Counter, &str); 55] = [
    (Counter::ConnectionsAccepted, "connections_accepted"),
    (Counter::ConnectionsClosed, "connections_closed"),
    (Counter::ConnectionsRefused, "connections_refused"),
    (Counter::ConnectionsDenied, "connections_denied"),
    (Counter::AcceptErrors, "accept_errors"),
    (Counter::Requests, "requests"),
    (Counter::RefusedByGate, "refused_by_gate"),
    (Counter::RefusedByService, "refused_by_service"),
    (Counter::Exempt, "exempt"),
    (Counter::BytesIn, "bytes_in"),
    (Counter::BytesOut, "bytes_out"),
    (Counter::Status1xx, "status_1xx"),
    (Counter::Status2xx, "status_2xx"),
    (Counter::Status3xx, "status_3xx"),
    (Counter::Status4xx, "status_4xx"),
    (Counter::Status5xx, "status_5xx"),
    (Counter::ClientGone, "client_gone"),
    (Counter::ServerConnects, "server_connects"),
    (Counter::ServerReuses, "server_reuses"),
    (Counter::ServerStale, "server_stale"),
    (Counter::ServerConnectErrors, "server_connect_errors"),
    (Counter::ServerErrors, "server_errors"),
    (Counter::Retries, "retries"),
    (Counter::RetriesDenied, "retries_denied"),
    (Counter::TimeoutConnect, "timeout_connect"),
    (Counter::TimeoutFirstByte, "timeout_first_byte"),
    (Counter::TimeoutBodyIdle, "timeout_body_idle"),
    (Counter::TimeoutRequest, "timeout_request"),
    (Counter::TimeoutClientIdle, "timeout_client_idle"),
    (Counter::TunnelsOpened, "tunnels_opened"),
    (Counter::TunnelsClosed, "tunnels_closed"),
    (Counter::ConnectionsShed, "connections_shed"),
    (Counter::ConnectionsMadeRoom, "connections_made_room"),
    (Counter::LocalErrors, "local_errors"),
    (Counter::Ejections, "ejections"),
    (Counter::WorkerPanics, "worker_panics"),
    (Counter::GhostsAnswered, "ghosts_answered"),
    (Counter::GhostsStopped, "ghosts_stopped"),
    (Counter::GhostsUnseen, "ghosts_unseen"),
    (Counter::EndsMissing, "ends_missing"),
    (Counter::HandshakesFull, "handshakes_full"),
    (Counter::HandshakesResumed, "handshakes_resumed"),
    (Counter::HandshakesRefused, "handshakes_refused"),
    (Counter::HandshakesFailed, "handshakes_failed"),
    (Counter::HandshakesAside, "handshakes_aside"),
    (Counter::TimeoutHandshake, "timeout_handshake"),
    (Counter::NanosFull, "nanos_full"),
    (Counter::NanosResumed, "nanos_resumed"),
    (Counter::ProxyHeadersRefused, "proxy_headers_refused"),
    (Counter::Http2Connections, "http2_connections"),
    (Counter::Http2Requests, "http2_requests"),
    (Counter::Http2Resets, "http2_resets"),
    (Counter::Http2Abuse, "http2_abuse"),
    (Counter::Http2TurnedAway, "http2_turned_away"),
    (Counter::Http2Crowded, "http2_crowded"),
];

/// All counters of one application.
#[derive(Debug)]
pub struct Counters {
    lanes: Box<[Lane]>,
    /// How often a worker had no descriptor left.
    lacks: AtomicU64,
}

/// One worker's counters. Aligned so that lanes never share a cache line, nor a prefetched pair of them.
#[derive(Debug)]
#[repr(align(128))]
pub struct Lane {
    counts: [AtomicU64; COUNTERS.len()],
    bad: [AtomicU64; Bad::ALL.len()],
    held: AtomicU64,
    own: AtomicU64,
    /// Bytes that open streams of HTTP/2 take.
    streams: AtomicU64,
    /// When its worker last looked after its connections, nanoseconds; 0: not yet.
    beat: AtomicU64,
}

impl Counters {
    /// Counters for `lanes` workers, all zero.
    pub fn new(lanes: usize) -> Self {
        let lane = |_| Lane {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            bad: std::array::from_fn(|_| AtomicU64::new(0)),
            held: AtomicU64::new(0),
            own: AtomicU64::new(0),
            streams: AtomicU64::new(0),
            beat: AtomicU64::new(0),
        };
        Counters { lanes: (0..lanes.max(1)).map(lane).collect(), lacks: AtomicU64::new(0) }
    }

    /// One worker's lane.
    pub fn lane(&self, index: usize) -> &Lane {
        &self.lanes[index]
    }

    /// A counter's sum over all workers.
    pub fn get(&self, counter: Counter) -> u64 {
        self.lanes.iter().map(|lane| lane.counts[counter as usize].load(Relaxed)).sum()
    }

    /// How many requests were answered with an error for `bad`.
    pub fn bad(&self, bad: Bad) -> u64 {
        self.lanes.iter().map(|lane| lane.bad[bad as usize].load(Relaxed)).sum()
    }

    /// Bytes held now for clients: what they sent ahead, what they have not read, and what their connections take.
    pub fn held(&self) -> u64 {
        sum(self.lanes.iter().map(|lane| &lane.held))
    }

    /// Of these, what connections take whatever is held for their clients besides.
    pub(crate) fn own(&self) -> u64 {
        sum(self.lanes.iter().map(|lane| &lane.own))
    }

    /// Bytes that streams of HTTP/2 take that are open now, by estimate: their tasks and their heads.
    pub fn streams_take(&self) -> u64 {
        sum(self.lanes.iter().map(|lane| &lane.streams))
    }

    /// A worker has no descriptor left.
    pub(crate) fn note_lack(&self) {
        self.lacks.fetch_add(1, Relaxed);
    }

    /// How often that was so.
    pub(crate) fn lacks(&self) -> u64 {
        self.lacks.load(Relaxed)
    }

    /// The worker that was not seen for the longest, since when; `None` before all have begun.
    pub(crate) fn last_beat(&self) -> Option<(usize, Timestamp)> {
        let beats = self.lanes.iter().map(|lane| lane.beat.load(Relaxed)).enumerate();
        let (worker, beat) = beats.filter(|(_, beat)| *beat > 0).min_by_key(|(_, beat)| *beat)?;
        Some((worker, Timestamp::from_nanos(beat)))
    }

    /// Client connections open now.
    pub fn connections_open(&self) -> u64 {
        let closed = self.get(Counter::ConnectionsClosed);
        self.get(Counter::ConnectionsAccepted).saturating_sub(closed)
    }

    /// Tunnels open now.
    pub fn tunnels_open(&self) -> u64 {
        let closed = self.get(Counter::TunnelsClosed);
        self.get(Counter::TunnelsOpened).saturating_sub(closed)
    }
}

impl Lane {
    /// Adds one.
    pub fn bump(&self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Adds `n`. Load and store suffice: a lane has one writer.
    pub fn add(&self, counter: Counter, n: u64) {
        let count = &self.counts[counter as usize];
        count.store(count.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Counts an answer by its status.
    pub fn status(&self, status: u16) {
        self.bump(match status / 100 {
            1 => Counter::Status1xx,
            2 => Counter::Status2xx,
            3 => Counter::Status3xx,
            4 => Counter::Status4xx,
            _ => Counter::Status5xx,
        });
    }

    /// Counts a request that was answered with an error of the sentry's own.
    pub fn bad(&self, bad: Bad) {
        let count = &self.bad[bad as usize];
        count.store(count.load(Relaxed) + 1, Relaxed);
    }

    /// When its worker last looked after its connections, nanoseconds; 0: it has not yet.
    pub(crate) fn last_beat(&self) -> u64 {
        self.beat.load(Relaxed)
    }

    /// Another worker took its worker's place.
    pub(crate) fn forget_beat(&self) {
        self.beat.store(0, Relaxed);
    }

    /// Its worker looks after its connections.
    pub(crate) fn beat(&self, now: Timestamp) {
        self.beat.store(now.as_nanos().max(1), Relaxed);
    }

    /// One connection holds `after` bytes, not `before`.
    pub(crate) fn hold(&self, before: u64, after: u64) {
        let held = self.held.load(Relaxed);
        self.held.store(held.wrapping_sub(before).wrapping_add(after), Relaxed);
    }

    /// A connection itself takes `after` bytes, not `before`.
    pub(crate) fn count_own(&self, before: u64, after: u64) {
        let own = self.own.load(Relaxed);
        self.own.store(own.wrapping_sub(before).wrapping_add(after), Relaxed);
    }

    /// A stream takes `after` bytes, not `before`.
    pub(crate) fn count_streams(&self, before: u32, after: u32) {
        let streams = self.streams.load(Relaxed);
        self.streams.store(streams.wrapping_sub(before.into()).wrapping_add(after.into()), Relaxed);
    }

    /// What this lane counted.
    pub fn get(&self, counter: Counter) -> u64 {
        self.counts[counter as usize].load(Relaxed)
    }
}

/// What several count; none if that is less than nothing: no error in the books may lock a door.
fn sum<'c>(counts: impl Iterator<Item = &'c AtomicU64>) -> u64 {
    let all = counts.map(|count| count.load(Relaxed)).fold(0, u64::wrapping_add);
    if i64::try_from(all).is_ok() { all } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_enum() {
        for (index, (counter, _)) in COUNTERS.iter().enumerate() {
            assert_eq!(*counter as usize, index);
        }
        for (index, bad) in Bad::ALL.iter().enumerate() {
            assert_eq!(*bad as usize, index);
        }
    }

    #[test]
    fn lanes_add_up() {
        let counters = Counters::new(2);
        counters.lane(0).bump(Counter::ConnectionsAccepted);
        counters.lane(1).add(Counter::ConnectionsAccepted, 2);
        counters.lane(1).bump(Counter::ConnectionsClosed);
        assert_eq!(counters.connections_open(), 2);
    }
}
