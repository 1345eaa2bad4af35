//! What counters count, in words.

use crate::counters::Counter;

pub(super) fn counter_help(counter: Counter) -> &'static str {
    match counter {
        Counter::ConnectionsAccepted => "Client connections accepted.",
        Counter::ConnectionsClosed => "Client connections closed.",
        Counter::ConnectionsRefused => "Client connections closed at once because there were too many.",
        Counter::ConnectionsDenied => "Client connections closed at once because their network may not ask.",
        Counter::AcceptErrors => "Failed accepts, for want of file descriptors for example.",
        Counter::Requests => "Requests whose head was read.",
        Counter::RefusedByGate => "Requests refused by the gate.",
        Counter::RefusedByService => "Requests refused behind the gate.",
        Counter::Exempt => "Requests exempt from policing.",
        Counter::BytesIn => "Body bytes from clients.",
        Counter::BytesOut => "Body bytes to clients.",
        Counter::ClientGone => "Clients that left before their answer was complete.",
        Counter::ServerConnects => "Connections opened to servers.",
        Counter::ServerReuses => "Requests sent on a connection that was open.",
        Counter::ServerStale => "Idle connections that a server had closed.",
        Counter::ServerConnectErrors => "Connections to servers that could not be opened.",
        Counter::ServerErrors => "Servers that broke off or sent garbage.",
        Counter::Retries => "Requests sent again.",
        Counter::RetriesDenied => "Requests not sent again because the budget was spent.",
        Counter::TunnelsOpened => "Tunnels opened.",
        Counter::TunnelsClosed => "Tunnels closed.",
        Counter::ConnectionsShed => "Client connections closed because all together left too much unread.",
        Counter::ConnectionsMadeRoom => "Client connections that waited for their clients and made room for others.",
        Counter::LocalErrors => "Servers not reached for want of descriptors, ports or memory here.",
        Counter::Ejections => "Servers taken out by requests that they did not answer.",
        Counter::WorkerPanics => "Tasks of workers that ended in a panic and were begun anew.",
        Counter::GhostsAnswered => "Ghosts whose servers answered although nobody waited.",
        Counter::GhostsStopped => "Ghosts whose servers closed without an answer.",
        Counter::EndsMissing => "Requests sent on by a proxy that asked, of whose end it told nothing.",
        Counter::GhostsUnseen => "Ghosts of which the end was not seen.",
        Counter::HandshakesAside => "TLS handshakes begun on a thread that gives way to the worker.",
        Counter::ProxyHeadersRefused => "Connections without a PROXY header where one must be, or with a broken one.",
        Counter::Http2Connections => "Connections that speak HTTP/2.",
        Counter::Http2Requests => "Requests that came by HTTP/2.",
        Counter::Http2Resets => "Streams of HTTP/2 that clients reset before their answers began.",
        Counter::Http2Abuse => "Connections of HTTP/2 closed for what their clients did.",
        Counter::Http2TurnedAway => {
            "Connections reset at once for what their clients did before, while a worker was short of time."
        }
        Counter::Http2Crowded => "Streams of HTTP/2 refused because there were too many, most of the same client.",
        _ => "A counter of the data path.",
    }
}
